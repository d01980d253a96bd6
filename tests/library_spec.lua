-- library_spec.lua -- libflow for programs in C, C++ and Python: the examples, what is exported, what is installed.
local process = require "tests.process"

local build = process.build
local usable = build == "build" and process.has "cc" and process.exists(build .. "/libflow.so")
local function needs(what) return usable and (not what or process.has(what)) end

-- Compiles a program with the flags and returns its path; any output of the compiler is an error.
local folder = process.folder()
local count = 0
local function compile(source, flags, compiler)
    count = count + 1
    local path = ("%s/program%d"):format(folder, count)
    local output, code = process.output(("%s -Wall -Wextra -Werror -o %s %s %s 2>&1"):format(compiler or "cc -std=c99", path,
        source, flags))
    assert.are.equal("", output)
    assert.are.equal(0, code)
    return path
end

local shared = ("-Isrc/core/api -L%s -lflow -Wl,-rpath,$PWD/%s"):format(build, build)
local needed = "-rdynamic -ljansson -lz -lm -ldl -lpthread"    -- by libflow.a; flow.pc has it
local static = ("-Isrc/core/api %s/libflow.a %s"):format(build, needed)

local function with(what, name, f)
    if needs(what) then it(name, f) else it(name, function() pending("needs a release build and " .. (what or "cc")) end) end
end

describe("libflow", function()
    teardown(function() os.execute("rm -rf " .. folder) end)

    for _, linked in ipairs {{"libflow.so", shared}, {"libflow.a", static}} do
        with(nil, "trains a layer, uses a host's buffer and its functions: " .. linked[1], function()
            assert.are.equal("y = 2.00 x -1.00\n", (process.output(compile("examples/c/train.c", linked[2]))))
            assert.are.equal("mean colour 63 70 75, last byte of a row 100\nthe picture is free again\n",
                (process.output(compile("examples/c/buffers.c", linked[2]))))
            assert.are.equal("chunk 1: 0.5\nchunk 2: 1.5\nchunk 3: 2.5\n3 chunks, no more\nrecord: the signal is over\n",
                (process.output(compile("examples/c/tasks.c", linked[2]))))
        end)
    end

    with(nil, "is a part of a shared object of the host's: libflow.a", function()
        local own = folder .. "/libown.so"
        local source = process.write(folder .. "/own.c", process.read "examples/c/train.c":gsub("int main%(void%)", "int train(void)"))
        compile(source, ("-shared -fPIC -Isrc/core/api %s/libflow.a %s -o %s"):format(build, needed, own))
        local main = process.write(folder .. "/main.c", "int train(void);\nint main(void) { return train(); }\n")
        assert.are.equal("y = 2.00 x -1.00\n", (process.output(compile(main, ("%s -Wl,-rpath,%s"):format(own, folder)))))
    end)

    for _, linked in ipairs {{"libflow.so", shared}, {"libflow.a", static}} do
        with(nil, "takes ops from a shared object: " .. linked[1], function()
            assert.are.equal("", (process.output(("env -u MAKEFLAGS -u MAKELEVEL make -s -C examples/ops NVCC= OUT=%s 2>&1"):format(folder))))
            local other = process.write(folder .. "/other.c", "int other = 1;\n")
            compile(other, "-shared -fPIC -o " .. folder .. "/other.so")
            local program = compile("tests/host/load_ops.c", linked[2])
            assert.are.equal(table.concat({
                "flow_load_ops: flow_open was not called, or flow_close since",
                "rms(x, weight, ~eps: float = 1e-6)",
                "flow_load_ops: '" .. folder .. "/other.so' has no 'fl_ops_library_entry'",
                "rms(x, weight, ~eps: float = 1e-6)",
                "flow_load_ops: the path is empty",
                "flow_load_ops: path is NULL",
                "0.8485 1.4000",
                "rms: weight must have as many elements as the last axis of x",
            }, "\n") .. "\n", (process.output(("cd %s && %s rms.so %s/other.so"):format(folder, program, folder))))
        end)
    end

    with(nil, "does what docs/embedding.md shows", function()
        local code, shown = process.read "docs/embedding.md":match "```c\n(.-)```\n\n```text\n(.-)```"
        local source = process.write(folder .. "/readme.c", code)
        assert.are.equal(shown, (process.output(compile(source, shared))))
    end)

    with("mpirun", "trains on the decomposition of an MPI program", function()
        local flags = process.output("pkg-config --cflags --libs ompi-c 2>/dev/null"):gsub("\n", " ")
        if flags == "" then pending "needs Open MPI" end
        local mpirun = "mpirun --allow-run-as-root --oversubscribe --bind-to none -q -n "
        for _, linked in ipairs {shared, static .. " -DSTATIC"} do
            local program = compile("examples/c/mpi.c", linked .. " " .. flags)
            local plugins = linked ~= shared and ("FLOW_PLUGINS=$PWD/%s "):format(build) or ""
            local ranks = linked == shared and {"2", "3"} or {"2"}
            for _, n in ipairs(ranks) do
                local rows = n == "2" and 17 or 27
                assert.are.equal(("%s ranks, %d rows: w = 1.00 2.00\n"):format(n, rows),
                    (process.output(plugins .. mpirun .. n .. " " .. program)))
            end
        end
    end)

    with("mpirun", "leaves a host its MPI, and the decision when another rank has failed", function()
        local flags = process.output("pkg-config --cflags --libs ompi-c 2>/dev/null"):gsub("\n", " ")
        if flags == "" then pending "needs Open MPI" end
        local program = compile("tests/host/ranks.c", shared .. " " .. flags)
        local function run(n, mode)
            return process.output(("mpirun --allow-run-as-root --oversubscribe --bind-to none -q -n %d %s %s 2>&1"):format(
                n, program, mode))
        end
        assert.are.equal("2 ranks, single: fine\n", (run(2, "single")))
        assert.are.equal("3 ranks, single: fine\n", (run(3, "single")))
        assert.are.equal("4 ranks, multiple: fine\n", (run(4, "multiple")))
        assert.are.equal("3 ranks, differ: fine\n", (run(3, "differ")))
        local output, code = run(3, "ends")
        assert.is_truthy(output:find("^flowlua: rank 1: local to global: rank 0 has ended"), output)
        assert.are_not.equal(0, code)
    end)

    with("c++", "has a header for C++, which needs no other", function()
        local source = folder .. "/header.cc"
        process.write(source, [[
#include <flow.h>
int main() {
    int64_t shape[] = {2};
    flow_spec spec = {"float32", 1, shape, nullptr, nullptr, nullptr};
    flow_tensor *x = nullptr, *y = nullptr;
    if (flow_open(nullptr) || flow_empty(&x, &spec)) return 1;
    if (flow_call(&y, 1, "cast", FLOW_ARGS(flow_of(x), flow_named("dtype", flow_text("int64"))))) return 2;
    flow_unref(x);
    x = y;
    flow_arg args[] = {flow_of(x), flow_of(x)};
    if (flow_call(&y, 1, "add", args, 2)) return 3;
    flow_unref(x);
    flow_unref(y);
    return flow_close();
}
]])
        for _, compiler in ipairs {"c++", "clang++"} do
            if process.has(compiler) then
                assert.are.equal(0, select(2, process.output(compile(source, "-std=c++11 -pedantic -Wold-style-cast -Wconversion " .. shared, compiler))))
            end
        end
    end)

    -- The output of tests/host/program.c for a program, by this one.
    local function expected(path)
        local flow, lines = require "flow", {}
        local p = flow.program(path)
        local inputs = {}
        for i, input in ipairs(p.inputs) do
            local value, numel = p.values[input.value], 1
            for _, n in ipairs(value.shape) do numel = numel * n end
            local x = (flow.arange(numel):remainder(7) - 3):to("float32"):view(value.shape):to(value.dtype)
            inputs[i] = value.sbp and x:to_global{placement = flow.placement.all("cpu"), sbp = value.sbp} or x
        end
        for _, y in ipairs {p(table.unpack(inputs))} do
            lines[#lines + 1] = ("%s%s on cpu %.4f\n"):format(y.dtype, y.shape, y:to("float64"):sum():item())
        end
        return table.concat(lines)
    end

    local function save_programs()
        local flow = require "flow"
        local nn, paths = flow.nn, {}
        flow.manual_seed(3)
        local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        local everywhere = {placement = flow.placement.all("cpu"), sbp = "S(0)"}
        local wrapped = flow.ones({2, 2}, everywhere)
        for i, case in ipairs {
            {function(x) return net(x):softmax(-1) end, {2, 4}},
            {function(x)
                local a, places = (x[{0, {0, 2}}] * 2):sort()
                return a, places, x:max(0), x:clamp(0, math.huge):sum(0, true), flow.einsum("ij,kj->ik", x, x)
            end, {2, 4}},
            {function(x) return flow.cat({x, x:detach(), x}, 1):view(-1), x:max(), flow.where(x:gt(0), x, 0.5) end, {3, 2}},
            {function(x) return (x:to_global{sbp = "B"} * 2 + wrapped):to_local() end, {2, 2}, everywhere},
            {function(x) local y = x:clone() y:add_(1) y[{1}] = 5 return y, flow.zeros(3) + y:sum(), x:to("int64") end, {2, 2}},
        } do
            paths[i] = ("%s/p%d.safetensors"):format(folder, i)
            flow.trace(case[1], {flow.spec(case[2], case[3])}):save(paths[i])
        end
        return paths
    end

    with(nil, "runs saved programs as scripts do, and refuses damaged ones", function()
        local paths = save_programs()
        local program = compile("tests/host/program.c", shared)
        for _, path in ipairs(paths) do assert.are.equal(expected(path), (process.output(program .. " " .. path))) end
        local random, damaged = 7, {}
        local function draw(n)
            random = random * 1103515245 + 12345 & 0x7fffffff
            return random // 8 % n + 1
        end
        for i = 1, 60 do
            local bytes = process.read(paths[draw(#paths)])
            local from, to = bytes:find '"flow.program".*"version'
            for _ = 1, draw(3) do
                local at = from + draw(to - from)
                if bytes:sub(at, at):find "[%w:,{}%[%]]" then
                    bytes = bytes:sub(1, at - 1) .. ("0129-,:[]{}ax"):sub(draw(13)):sub(1, 1) .. bytes:sub(at + 1)
                end
            end
            damaged[i] = process.write(("%s/d%d.safetensors"):format(folder, i), bytes)
        end
        local output, code = process.output(program .. " " .. table.concat(damaged, " ") .. " 2>&1")
        assert.are.equal(0, code, output)
        assert.is_nil(output:find("tensors left", 1, true), output)
        assert.is_truthy(output:find("flow_program_open: ", 1, true))
    end)

    with(nil, "takes the steps of scripts' optimizers, bit by bit", function()
        local steps = require "tests.host.steps"
        local program = compile("tests/host/optimizer.c", shared)
        for _, case in ipairs(steps.cases) do
            local output = process.output(("%s %s '%s' 2>&1"):format(program, case[1], case[2]))
            assert.are.equal(steps.of(case[1], case[3]), output, case[1] .. " " .. case[2])
        end
    end)

    -- The lines of each case, of four steps each.
    local function by_case(output)
        local list = {}
        for lines in output:gmatch "[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n" do list[#list + 1] = lines end
        return list
    end

    with("mpirun", "takes them over several ranks, too", function()
        local steps = require "tests.host.steps"
        local program = compile("tests/host/optimizer.c", shared)
        local arguments = {}
        for i, case in ipairs(steps.cases) do arguments[i] = ("%s '%s'"):format(case[1], case[2]) end
        for _, run in ipairs {{2, "S(0)", "B"}, {2, "B", "S(0)"}, {3, "S(1)", "S(0)"}, {3, "B", "B"}} do
            local n, first, second = table.unpack(run)
            local output = process.output(("mpirun --allow-run-as-root --oversubscribe --bind-to none -q -n %d %s " ..
                "'FIRST=%s' 'SECOND=%s' %s 2>&1"):format(n, program, first, second, table.concat(arguments, " ")))
            local script = ([[local steps = require "tests.host.steps"
                for _, case in ipairs(steps.cases) do
                    local lines = steps.of(case[1], case[3], {"%s", "%s", "B"})
                    flow.on_rank(0, function() io.write(lines) end)
                end]]):format(first, second)
            local wanted = process.output(("%s/flowlua --ranks %d -e '%s' 2>&1"):format(build, n, script))
            local got, want = by_case(output), by_case(wanted)
            assert.are.equal(#steps.cases, #want, wanted)
            for i, case in ipairs(steps.cases) do
                assert.are.equal(want[i], got[i], ("%s %s as %s and %s on %d ranks: %s"):format(case[1], case[2], first, second,
                    n, got[i] and "" or output))
            end
        end
    end)

    with(nil, "serves C modules of scripts", function()
        compile("tests/host/module.c", "-shared -fPIC $(pkg-config --cflags lua5.4 2>/dev/null || echo -I/usr/include/lua5.4) " ..
            ("-Isrc/core/api && cp %s/program%d %s/module.so"):format(folder, count + 1, folder))
        local script = process.write(folder .. "/script.lua", [[
            local flow = require "flow"
            local module = require "module"
            local x = flow.tensor({1, 2}, {dtype = "float32", requires_grad = true})
            local y = module.square(x)
            y:sum():backward()
            print(y, x.grad, module.square(3), pcall(module.fail))
        ]])
        assert.are.equal("[1.0, 4.0]  float32[2] on cpu, gradient through mul\t[2.0, 4.0]  float32[2] on cpu\tnil\tfalse\t" ..
            "flow_call: there is no op 'sqare'; did you mean 'square'?\n", (process.output(process.flowlua .. " " .. script)))
    end)

    with("nm", "exports nothing but its interface, and what plug-ins and ops of others need", function()
        for line in process.output(("nm -D --defined-only %s/libflow.so"):format(build)):gmatch "[^\n]+" do
            local name = line:match "%S+$"
            assert.is_truthy(name:find "^flow_" or name:find "^fl_" or name:find "^__s[a-z]+_fl_ops$", name)
        end
    end)

    with("readelf", "takes little of the room that all libraries share for variables of threads", function()
        local header = process.output(("readelf -lW %s/libflow.so"):format(build))
        assert.is_true(tonumber(header:match "TLS +%S+ +%S+ +%S+ +%S+ +(%S+)") <= 128)
    end)

    with("make", "is installed with header and pkg-config file", function()
        local prefix = folder .. "/usr"
        local plugin = process.exists(build .. "/flowlua-mpi.so") and build .. "/flowlua-mpi.so" or ""
        assert.are.equal(0, select(2, process.output(("make -s install PREFIX=%s PLUGINS=%s 2>&1"):format(prefix, plugin))))
        local program = compile("examples/c/train.c",
            ("$(PKG_CONFIG_PATH=%s/lib/pkgconfig pkg-config --cflags --libs flow)"):format(prefix))
        assert.are.equal("y = 2.00 x -1.00\n", (process.output(("LD_LIBRARY_PATH=%s/lib %s"):format(prefix, program))))
        program = compile("examples/c/train.c",
            ("$(PKG_CONFIG_PATH=%s/lib/pkgconfig pkg-config --cflags --libs flow-static)"):format(prefix))
        assert.are.equal("y = 2.00 x -1.00\n", (process.output(program))) -- finds no libflow.so
        compile("examples/ops/rms.c", ('-shared -fPIC -I"$(PKG_CONFIG_PATH=%s/lib/pkgconfig pkg-config --variable=opsdir flow)"'):format(
            prefix), "cc -std=gnu11 -Wno-unused-parameter")
    end)

    with(nil, "shares memory with NumPy and PyTorch", function()
        local python = os.getenv "FLOW_PYTHON" or "python3"
        if select(2, process.output(python .. " -c 'import numpy; numpy.from_dlpack' 2>/dev/null")) ~= 0 then
            pending "needs Python with NumPy 2.1 or newer (FLOW_PYTHON names it)"
        end
        local output = process.output(("FLOW_LIBRARY=$PWD/%s/libflow.so %s tests/share.py 2>&1"):format(build, python))
        assert.is_truthy(output:find("numpy shares memory\n", 1, true), output)
        assert.is_truthy(output:find("tensors left: 0\n$"), output)
    end)
end)

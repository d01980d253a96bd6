-- load_ops_spec.lua -- ops in shared objects: the example, and files that are none.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"
local fails = support.fails

local folder, write = process.folder()
local compiler = os.getenv "CC" or "gcc"

-- A shared object of this C text; its path.
local function compile(name, text)
    local source, path = write(name .. ".c", text), folder .. "/" .. name .. ".so"
    local output = process.output(("%s -std=gnu11 -Isrc/core -fPIC -fvisibility=hidden -shared -o %s %s 2>&1"):format(compiler, path, source))
    assert(process.exists(path), output)
    return path
end

-- An object with one op; fields of its descriptor.
local head = [[
#include "ops/own_ops.h"
static fl_status run(fl_kernel *kernel) { return FL_OK; }
]]
local function with_op(name, fields)
    return compile(name, head .. ("FL_OP(%s) = {%s};\nFL_OPS_LIBRARY;\n"):format(name, fields))
end

describe("flow.load_ops", function()
    teardown(function() os.execute("rm -rf " .. folder) end)

    it("opens the example, whose op is like a built-in one", function()
        local output = process.output(("env -u MAKEFLAGS -u MAKELEVEL make -s -C examples/ops CC='%s' NVCC= OUT=%s 2>&1"):format(compiler, folder))
        assert.are.equal("", output)
        assert.are.same({"rms"}, flow.load_ops(folder .. "/rms.so"))
        assert.are.same({"rms"}, flow.load_ops(folder .. "/rms.so")) -- once more
        fails("op: 'rms' is an op of a shared object, which stays; an op of your own needs another name", flow.op,
            {name = "rms", forward = print, replace = true})
        assert.is_true(flow.testing.check_op "rms")
        local x = flow.randn(3, 4)
        assert.is_true(flow.allclose(x:rms(flow.ones(4)), x * (x:square():mean(-1, true) + 1e-6):rsqrt(), {atol = 1e-6}))
        fails("rms: weight must have as many elements as the last axis of x", x.rms, x, flow.ones(3))
        fails("rms: unknown option 'epsilon'; it is called 'eps' here", x.rms, x, flow.ones(4), {epsilon = 1})
        assert.is_truthy(require("flow.help").of_callable(flow.rms):find("rms(x, weight, eps: float = 1e-6)", 1, true))
        local step = flow.capture(function(t) return t:rms(flow.ones(4)):sum() end)
        for _ = 1, 3 do assert.are.equal(x:rms(flow.ones(4)):sum(), step(x)) end
        assert.are.equal("true\tfloat64\n", (process.output(("%s examples/ops/rms.lua %s/rms.so"):format(process.flowlua, folder)):match "[^\n]*\n$"))
    end)

    it("takes as many ops as there are", function()
        local text, count = {head}, 300
        for i = 1, count do
            text[i + 1] = ([[FL_OP(many%d) = {.name = "many%d", .sig = "many%d(x)", .doc = "Nothing.", .nout = 1,
                .infer = fl_infer_same, .cpu = run};]]):format(i, i, i)
        end
        local names = flow.load_ops(compile("many", table.concat(text, "\n") .. "\nFL_OPS_LIBRARY;\n"))
        assert.are.equal(count, #names)
        assert.are.same({2, 3}, flow.zeros(2, 3)["many" .. count](flow.zeros(2, 3)).shape)
        assert.are.same({4}, flow.many1(flow.zeros(4)).shape)
    end)

    it("has words for hooks that fail without any", function()
        flow.load_ops(compile("silent", head .. [[
            static fl_status silent(fl_kernel *kernel) { return FL_ERR_VALUE; }
            static fl_status unknown(fl_kernel *kernel) { return (fl_status)77; }
            static fl_status unknown_said(fl_kernel *kernel) { return fl_fail((fl_status)-1, "the disk is full"); }
            static fl_status stopped(fl_kernel *kernel) { return FL_ERR_INTERRUPTED; }
            static fl_status said(fl_kernel *kernel) { return fl_fail(FL_ERR_IO, "the disk is full"); }
            static fl_status no_infer(fl_infer *infer) { return FL_ERR_SHAPE; }
            static fl_status no_body(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) { return FL_ERR_DTYPE; }
            static fl_status no_grad(fl_grad *grad) { return FL_ERR_STATE; }
            static fl_status no_check(const fl_operand *in, int nin, const fl_attrs *attrs) { return (fl_status)-3; }
            #define ROW(n, ...) FL_OP(n) = {.name = #n, .sig = #n "(x)", .doc = "Nothing.", .nout = 1, __VA_ARGS__}
            ROW(w_silent, .infer = fl_infer_same, .cpu = silent);
            ROW(w_unknown, .infer = fl_infer_same, .cpu = unknown);
            ROW(w_unknown_said, .infer = fl_infer_same, .cpu = unknown_said);
            ROW(w_stopped, .infer = fl_infer_same, .cpu = stopped);
            ROW(w_said, .infer = fl_infer_same, .cpu = said);
            ROW(w_infer, .infer = no_infer, .cpu = run);
            ROW(w_body, .body = no_body);
            ROW(w_grad, .infer = fl_infer_same, .cpu = run, .grad = no_grad);
            ROW(w_check, .infer = fl_infer_same, .cpu = run, .check = no_check);
            FL_OPS_LIBRARY;
        ]]))
        local x = flow.ones(1)
        local cases = {
            w_silent = "its kernel failed with status 3 (a value out of its range) and gave no message",
            w_unknown = "its kernel returned 77, which is no status, and gave no message",
            w_unknown_said = "its kernel returned -1, which is no status: the disk is full",
            w_stopped = "its kernel was interrupted and gave no message",
            w_infer = "its infer failed with status 1 (shapes that do not fit) and gave no message",
            w_body = "its body failed with status 2 (a dtype that it does not take) and gave no message",
            w_check = "its check returned -3, which is no status, and gave no message",
        }
        for name, words in pairs(cases) do
            pcall(x.sum, x, 9) -- an earlier message is not repeated
            fails(name .. ": " .. words, x[name], x)
        end
        fails("the disk is full", x.w_said, x)
        local leaf = flow.ones(2, {requires_grad = true})
        local y = leaf:w_grad():sum()
        pcall(x.sum, x, 9)
        fails("w_grad: its grad failed with status 5 (not allowed now) and gave no message", y.backward, y)
        fails("w_silent: its kernel failed with status 3", flow.capture(function(t) return t:w_silent() end), x)
        assert.are.equal("2", (process.output(("FLOW_ENGINE=queued %s -e 'local f = require \"flow\" f.load_ops \"%s/silent.so\" " ..
            "local n = 0 for _, name in ipairs {\"w_silent\", \"w_unknown\"} do local ok, m = pcall(function() f.ones(1)[name](f.ones(1)):item() end) " ..
            "if not ok and m:find(name .. \" (\", 1, true) and m:find(\"gave no message\", 1, true) then n = n + 1 end end print(n)'")
            :format(process.flowlua, folder)):match "%d+"))
    end)

    it("refuses what is no library of ops", function()
        fails("load_ops: './nothing.so' cannot be opened: cannot open shared object file", flow.load_ops, "nothing.so")
        local text = write("text.so", "no shared object")
        fails("'" .. text .. "' cannot be opened: ", flow.load_ops, text)
        local pipe = text:gsub("text", "pipe")
        assert(os.execute("mkfifo " .. pipe))
        for _, name in ipairs {"/dev/zero", "/dev", pipe} do
            fails(("load_ops: '%s' cannot be opened: not a regular file"):format(name), flow.load_ops, name)
        end
        local other = compile("other", "int other = 1;")
        fails("'" .. other .. "' has no 'fl_ops_library_entry'", flow.load_ops, other)
        local odd = compile("odd", "__attribute__((visibility(\"default\"))) const char fl_ops_library_entry[64] = \"odd\";")
        fails("has an fl_ops_library_entry that is none of FL_OPS_LIBRARY's", flow.load_ops, odd)
        local whole = process.read(other)
        for _, size in ipairs {20, 100, 3000, #whole // 2} do
            local cut = write("cut.so", whole:sub(1, size))
            fails("'" .. cut .. "' cannot be opened: ", flow.load_ops, cut)
        end
        local old = compile("old", [[__attribute__((visibility("default"))) const struct { char magic[8]; int abi[9]; const void *first, *last; }
            fl_ops_library_entry = {"flowops", {0, 1}};]])
        fails("was built for another flowlua: its ABI is 0.1.0.0.0.0.0.0.0, this one's 4.", flow.load_ops, old)
        fails("build it again with the headers of this one", flow.load_ops, old)
        local missing = compile("missing", head .. "void fl_not_there(void);\nvoid f(void) { fl_not_there(); }\n" ..
            "FL_OP(a) = {.name = \"a\"};\nvoid (*used)(void) = f;\nFL_OPS_LIBRARY;\n")
        fails("undefined symbol: fl_not_there", flow.load_ops, missing)
        fails("load_ops: missing argument 'path'", flow.load_ops)
        fails("load_ops: the path is empty", flow.load_ops, "")
    end)

    it("refuses descriptors that cannot work, and takes all ops of an object or none", function()
        local good = '.name = "NAME", .sig = "NAME(x)", .doc = "Nothing.", .nout = 1, .infer = fl_infer_same, .cpu = run'
        local n = 0
        local function bad(message, fields)
            n = n + 1
            local name = "bad_op" .. n
            fails(message, flow.load_ops, with_op(name, (fields:gsub("NAME", name))))
            assert.is_false(flow.has(name))
        end
        bad("'Bad' is no name of an op", good .. ', .name = "Bad"')
        bad('its signature must be "bad_op2(...)", it is "x(x)"', good .. ', .sig = "x(x)"')
        bad("signature 'bad_op3(x, y: flot)': an unknown type", good .. ', .sig = "NAME(x, y: flot)"')
        bad("bad_op4: it has no sentence of documentation", good .. ", .doc = 0")
        bad("bad_op5: it has 9 results, 1 to 4 are possible", good .. ", .nout = 9")
        bad("bad_op6: it has no CPU kernel", good .. ", .cpu = 0")
        bad("bad_op7: gradient 'g * z': an unknown name before '' (character 6)", good .. ', FL_VJP("g * z")')
        bad("relu: there is an op of this name", good .. ', .name = "relu", .sig = "relu(x)"')
        bad("load_ops: flow has 'tensor' already", good .. ', .name = "tensor", .sig = "tensor(x)"')
    end)
end)

-- fused_spec.lua -- chains of elementwise ops on the GPU against the same ops one by one: every row in every dtype, random lists
-- over all dtypes and layouts. A chain of one op runs that op's own kernel. With FLOW_NVRTC (a stand-in, where the GPU is
-- emulated) chains are kernels made at run time, kept on disk.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local process = require "tests.process"
local support = require "tests.support"

local ALL = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

-- From 4 K elements on ops of the GPU are deferred.
local ROWS, COLUMNS = 80, 64

---- rows of elementwise.def ----

local OPERANDS = {MAP1 = 1, VECTORS = 1, TEST1 = 1, TRIG = 1, SWITCH = 1, FIRST = 1, MAP2 = 2, TEST2 = 2, POW2 = 2, RATIO = 2, MAP3 = 3, POW3 = 3, WHERE = 3, FILL = 3}
local BOOL = {WHERE = 1, FILL = 2} -- the operand that is bool

local calls, rows = {}, {}
for _, op in ipairs(flow._testing.ops()) do calls[op.name] = op.call end
for line in io.lines "src/core/op/elementwise.def" do
    local name, shape = line:match '^EW%(([%w_]+), ".-", (%w+), '
    if name then rows[#rows + 1] = {name = name, call = calls[name], nin = OPERANDS[shape], mask = BOOL[shape]} end
end
-- Integers may be wrong for these, which is an error: they are never deferred.
local MAY_FAIL = {fmod = true, remainder = true, floor_divide = true, pow = true}

-- The result of a row; nil where it does not take these.
local function call(row, args, wait)
    local floats = not MAY_FAIL[row.name]
    for i = 1, row.nin do
        if args[i] == nil then return end
        floats = floats or flow.is_tensor(args[i]) and args[i].dtype:find "float"
    end
    if not floats then return end
    local ok, result = pcall(row.call, table.unpack(args, 1, row.nin))
    if ok and flow.is_tensor(result) then return wait(result) end
end

---- operands ----

local function numbers(dtype, shape)
    if dtype == "bool" then return flow.rand(shape):gt(0.4) end
    if dtype == "uint8" then return flow.randint(0, 250, shape):to(dtype) end
    if dtype:find "int" then return flow.randint(-9, 10, shape):to(dtype) end
    local x = cuda.special(flow.randn(shape) * 3)
    return x:to(dtype)
end

local function same(want, got, what)
    assert.are.equal(want.dtype, got.dtype, what)
    local x, y = want:to "cpu", got:to "cpu"
    assert.is_true(x:eq(y):logical_or(x:ne(x):logical_and(y:ne(y))):all():item(), what)
end

-- Computes deferred ops: the op that x comes from is alone.
local function alone(x)
    flow.sync()
    return x
end
local function deferred(x) return x end

-- Every row that takes these operands; results are held until the end.
local function all_rows(wait, operands, mask)
    local results = {}
    for _, row in ipairs(rows) do
        local args = {}
        for i = 1, row.nin do args[i] = i == row.mask and mask or operands[i] end
        local result = call(row, args, wait)
        if result then results[#results + 1] = {row.name, result} end
    end
    flow.sync()
    return results
end

describe("chains on the GPU", function()
    for _, dtype in ipairs(ALL) do
        cuda.it("give the bits of every row alone: " .. dtype, function()
            flow.manual_seed(5)
            local x, y, z = numbers(dtype, {ROWS, COLUMNS}), numbers(dtype, {ROWS, COLUMNS}), numbers(dtype, {COLUMNS})
            local mask = flow.rand(ROWS, COLUMNS):gt(0.5)
            local operands = {x:to "cuda", y:to "cuda", z:to "cuda"}
            local want = all_rows(alone, operands, mask:to "cuda")
            local got = all_rows(deferred, operands, mask:to "cuda")
            assert.are.equal(#want, #got)
            assert.is_true(#want > 10)
            for i, pair in ipairs(want) do
                assert.are.equal(pair[1], got[i][1])
                same(pair[2], got[i][2], pair[1])
            end
        end)
    end
end)

---- random lists ----

local SHAPES = {{4099}, {64, 128}, {70, 61}, {9, 20, 32}, {4, 33, 35}, {16384}, {5, 1031}}

-- An operand for results of this shape, in some layout; or a number.
local function operand(shape, draw)
    local dtype, layout = ALL[draw(#ALL)], draw(8)
    if layout == 1 then return ({2, -1, 0.5, 0, 3})[draw(5)] end
    local own = table.move(shape, 1, #shape, 1, {})
    if layout == 2 then own[1] = 1 end
    if layout == 3 then own[#own] = 1 end
    if layout == 4 then own = {own[#own]} end
    if layout == 5 then return numbers(dtype, {1}):to "cuda"[0] end
    local x = numbers(dtype, own):to "cuda"
    if layout == 6 then return cuda.layouts[5][2](x) end
    if layout == 7 then -- gaps between rows
        own[1], own[#own] = own[1], own[#own] + 3
        return numbers(dtype, own):to "cuda":narrow(-1, 0, shape[#shape])
    end
    return x
end

-- A list of ops over the operands, as places of a pool; results join it.
local function random_list(shape, draw)
    local pool, list = {}, {}
    for i = 1, 2 + draw(5) do pool[i] = operand(shape, draw) end
    local operands = #pool
    for i = 1, 2 + draw(12) do
        local row, step = rows[draw(#rows)], {}
        step.row = row
        for k = 1, row.nin do step[k] = draw(operands + i - 1) end
        list[i] = step
    end
    return pool, list
end

-- nil in the pool: that op did not take its operands.
local function run(pool, count, list, wait)
    local values = table.move(pool, 1, count, 1, {})
    for i, step in ipairs(list) do
        local args = {}
        for k = 1, step.row.nin do args[k] = values[step[k]] end
        values[count + i] = call(step.row, args, wait)
    end
    return values
end

describe("a chain of one conversion on the GPU", function()
    cuda.it("takes one element for all of the result", function()
        for _, shape in ipairs {{300, 200}, {1 << 16}, {1}} do
            for _, x in ipairs {flow.tensor(1.25), flow.tensor {-3.5}, flow.tensor {{0.5}}} do
                local want = x:expand(#shape < x.ndim and {1, table.unpack(shape)} or shape)
                local there = x:to(cuda.device):expand(want.shape)
                for _, dtype in ipairs {"float64", "float16", "int32"} do
                    assert.is_true(want:to(dtype):eq(there:to(dtype):to "cpu"):all():item(), dtype)
                end
            end
        end
    end)

    cuda.it("is the gradient of a sum in another dtype", function()
        local x = flow.randn({300, 200}, {device = cuda.device}):requires_grad_(true)
        x:to("float64"):sum():backward()
        assert.is_true(x.grad:eq(1):all():item())
    end)
end)

describe("random lists on the GPU", function()
    for seed = 1, os.getenv "FLOW_TEST_ALL" == "1" and 400 or 8 do
        cuda.it("give the bits of their ops, seed " .. seed, function()
            math.randomseed(seed)
            flow.manual_seed(seed)
            local function draw(n) return math.random(n) end
            local shape = SHAPES[draw(#SHAPES)]
            local pool, list = random_list(shape, draw)
            local count = #pool
            local want = run(pool, count, list, alone)
            local got = run(pool, count, list, deferred)
            -- some results are asked for, in any order; others are garbage, or computed on the way
            for i = #list, 1, -1 do
                local w, g = want[count + i], got[count + i]
                assert.are.equal(w == nil, g == nil)
                if w and (i == #list or draw(3) == 1) then same(w, g, ("step %d: %s"):format(i, list[i].row.name)) end
            end
        end)
    end
end)

describe("chains of what an op has failed to compute", function()
    cuda.it("fail as that op does, and nothing else fails", function()
        local x, y = flow.randn(100, 64):to "cuda", flow.ones(120, 64):to "cuda"
        local index = flow.tensor({5, 200, 3}, {dtype = "int64"}):rep(40):to "cuda"
        local message = "index[1] is 200, but this axis of x has 100 positions (0 to 99)"
        if os.getenv "FLOW_ENGINE" == "naive" then return support.fails(message, x.index_select, x, 0, index) end
        local bad = x:index_select(0, index) * 2 + 1
        local good = y * 3
        local both, fine = bad + good, good:exp() + 1
        same((flow.ones(120, 64) * 3):exp() + 1, fine, "fine")
        support.fails(message, function() return both:sum():item() end)
        support.fails(message, function() return bad:sum():item() end)
        same(flow.ones(120, 64) * 3, good, "good")
        flow.sync()
    end)
end)

---- the cache on disk ----

local stand_in = cuda.emulated and os.getenv "FLOW_NVRTC"
local deferring = not os.getenv "FLOW_ENGINE" and os.getenv "FLOW_FUSE" ~= "0"
local needs = not (stand_in and deferring) and "needs the stand-in for NVRTC, and ops that are deferred" or nil

describe("kernels on disk", function()
    local folder = os.tmpname()
    os.remove(folder)
    local log = folder .. ".log"
    local script = [[
        local flow = require "flow"
        local x = flow.arange(5000, {dtype = "float32"}):to "cuda"
        print(((x * 2 + 1):sqrt() - x):narrow(0, 4, 1):to "cpu":item())]]

    -- Runs the script with its cache there; returns its output, and the number of compiled kernels.
    local function compiled(cache)
        local file = assert(io.open(folder .. ".lua", "w"))
        file:write(script)
        file:close()
        os.remove(log)
        local run_it = io.popen(("XDG_CACHE_HOME=%s FLOW_FAKE_NVRTC_LOG=%s %s %s.lua 2>&1"):format(cache, log,
                                                                                                 process.flowlua, folder))
        local text, count = run_it:read "a", 0
        run_it:close()
        local lines = io.open(log)
        for _ in lines and lines:lines() or function() end do count = count + 1 end
        return text, count
    end
    local function each_file(f)
        local list = io.popen("find " .. folder .. "/flowlua -type f")
        for path in list:lines() do f(path) end
        list:close()
    end

    process.it_unless(needs, "are compiled once", function()
        local text, count = compiled(folder)
        assert.are.equal("-1.0\n", text)
        assert.are.equal(1, count)
        text, count = compiled(folder)
        assert.are.equal("-1.0\n", text)
        assert.are.equal(0, count)
    end)
    process.it_unless(needs, "are compiled again where a file is not as it was written", function()
        local files = 0
        each_file(function(path)
            files = files + 1
            local file = assert(io.open(path, "r+b"))
            file:seek("end", -100)
            file:write "xxxx"
            file:close()
        end)
        assert.are.equal(1, files)
        local text, count = compiled(folder)
        assert.are.equal("-1.0\n", text)
        assert.are.equal(1, count)
        each_file(function(path) assert(io.open(path, "w")):close() end)
        assert.are.same({"-1.0\n", 1}, {compiled(folder)})
        assert.are.same({"-1.0\n", 0}, {compiled(folder)})
    end)
    process.it_unless(needs, "need no place to lie", function()
        assert.are.same({"-1.0\n", 1}, {compiled "/proc/nowhere"})
        assert.are.same({"-1.0\n", 1}, {compiled "/dev/null"})
        os.execute("rm -rf " .. folder .. "*")
    end)
end)

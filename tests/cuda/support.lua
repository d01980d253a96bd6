-- support.lua -- what the specs of the CUDA device share: skipping where there is none, layouts of tensors, comparing a
-- call on the CPU with the same call on the GPU.
--
-- The GPU may be emulated (FLOW_CUDA_EMULATED=1, deferred): then the same kernels run on the CPU, slowly.
local assert = require "luassert"
local busted = require "busted"
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"

local M = {device = "cuda"}

M.emulated = (os.getenv "FLOW_CUDA_EMULATED" or "0") ~= "0"

local reached, problem = pcall(function() flow.tensor({0}):to(M.device):item() end)

-- Why no tensor can be on a GPU; nil when one can.
M.obstacle = not reached and (tostring(problem):gsub("^.-:%d+: ", "")) or nil

-- it(), where there is a GPU: real or emulated (which must work where it is asked for).
function M.it(name, body)
    if M.obstacle and M.emulated then busted.it(name, function() error(M.obstacle, 0) end)
    else process.it_unless(M.obstacle, name, body) end
end

-- it(), on a real one: specs that need its memory or its speed.
function M.it_real(name, body)
    process.it_unless(M.emulated and "needs a GPU that is not emulated" or M.obstacle, name, body)
end

-- The library that a kernel of an op calls, by the variable that names another file of it.
M.libraries = {fft_complex = "FLOW_CUFFT", fft_to_half = "FLOW_CUFFT", fft_from_half = "FLOW_CUFFT"}

-- it(), for what calls a library: in the emulation there is none but the stand-in that the variable names.
function M.it_with(variable, name, body)
    if variable and M.emulated and (os.getenv(variable) or "") == "" then
        busted.pending(("%s: %s names no stand-in"):format(name, variable))
    else
        M.it(name, body)
    end
end

---- layouts ----

-- t on the GPU with the strides it has here: the storage is copied as a whole, where t is a plain view.
function M.to_gpu(t)
    local strides = t:stride()
    local order = {}
    for axis = 0, t.ndim - 1 do order[axis + 1] = axis end
    table.sort(order, function(a, b)
        if strides[a + 1] ~= strides[b + 1] then return strides[a + 1] > strides[b + 1] end
        return a < b
    end)
    local back = {}
    for place, axis in ipairs(order) do back[axis + 1] = place - 1 end
    if t.ndim == 0 then return t:to(M.device) end
    return t:permute(order):to(M.device):permute(back)
end

local function expanded(t)
    for axis = t.ndim - 1, 0, -1 do
        if t:size(axis) > 1 then return t:narrow(axis, 0, 1):expand(t.shape) end
    end
    return t
end

-- Each makes, from a tensor, one of another layout or size, on the device it is on. `values` says whether the elements are
-- still those of t, each at its place.
M.layouts = {
    {"contiguous", function(t) return t:contiguous() end, values = true},
    {"strided", support.strided, values = true},
    {"transposed", function(t)
        return t.ndim < 2 and t or t:transpose(0, -1):contiguous():transpose(0, -1)
    end, values = true},
    {"backwards", function(t)   -- outer axes first in memory
        if t.ndim < 3 then return t end
        return t:transpose(0, 1):contiguous():transpose(0, 1)
    end, values = true},
    {"shifted", function(t)     -- begins at an address that is a multiple of one element only
        if t.ndim == 0 then return t end
        local long = flow.cat({flow.zeros(1, {dtype = t.dtype, device = t.device}), t:reshape(-1)})
        return long:narrow(0, 1, t:numel()):view(t.shape)
    end, values = true},
    {"expanded", expanded},
    {"empty", function(t) return t.ndim == 0 and t or t:narrow(0, 0, 0) end},
    {"without axes", function(t) return t:numel() == 0 and t or t:reshape(-1)[0] end},
    {"one element", function(t)
        for axis = 0, t.ndim - 1 do t = t:size(axis) > 1 and t:narrow(axis, t:size(axis) - 1, 1) or t end
        return t
    end},
}

-- A tensor of about `elements` elements: t over and over.
function M.larger(elements)
    return function(t)
        if t.ndim == 0 or t:numel() == 0 then return t end
        local each = math.max(1, math.floor((elements / t:numel()) ^ (1 / t.ndim)))
        local times = {}
        for axis = 1, t.ndim do times[axis] = each end
        times[t.ndim] = times[t.ndim] + 1
        return t:rep(times)
    end
end

-- Floats with what is not a number among them.
function M.special(t)
    if not t.dtype:find "float" or t.ndim == 0 then return t end
    local flat = t:reshape(-1):clone()
    for i, v in ipairs {0 / 0, 1 / 0, -1 / 0, -0.0, 0.0, 1e-40} do
        if (i - 1) * 2 < flat:numel() then flat[(i - 1) * 2] = v end
    end
    return flat:view(t.shape)
end

---- a call here and there ----

-- The outcome of f(): true and its results packed; or false and the message, without positions. An op that was queued fails later.
local function outcome(f)
    local ok, results = pcall(function()
        local list = table.pack(f())
        flow.sync()
        return list
    end)
    if ok then return true, results end
    pcall(flow.sync)
    local message = tostring(results)
    for _ = 1, 3 do
        message = message:gsub("^[^\n:]-:%d+: ", ""):gsub("^([%w_.]+) %([^()]*:?%d*%): ", "%1: ")
            :gsub("^([%w_.]+): [%w_.]+ %([^()]*:%d+%): ", "%1: ")
    end
    return false, message
end

M.tolerance = {float64 = 1e-11, float32 = 2e-5, float16 = 4e-3, bfloat16 = 3e-2}

-- The tolerance of an element of that dtype, the call being made on tensors of the dtypes in `seen`.
local function nearness(dtype, seen)
    local eps = M.tolerance[dtype] or 0
    for coarse in pairs(seen) do
        if M.tolerance[dtype] then eps = math.max(eps, M.tolerance[coarse] or 0) end
    end
    return eps
end

local function compare(want, got, what, seen)
    if not flow.is_tensor(want) then
        assert.are.equal(want, got, what)
        return
    end
    assert.are.equal(M.device, got.device, what .. ": device")
    support.same(want, got, what, nearness(want.dtype, seen))
end

-- f(args) on the CPU and on the GPU: equal results, or the same error. `layout` makes the operands out of those of args, on each
-- side. Operands that were written are compared too when `writes`. Returns the results of both, nil when both failed. An op that is a
-- `composite` of others may be one of other ones on a GPU, in whose words it fails there.
function M.agree(what, f, args, writes, layout, composite)
    local seen, n = {}, args.n
    for _, t in ipairs(support.tensors_of(args)) do seen[t.dtype] = true end
    local there = support.map_tensors(args, M.to_gpu)
    if layout then args, there = support.map_tensors(args, layout), support.map_tensors(there, layout) end
    args.n, there.n = n, n
    local ok, want = outcome(function() return f(args) end)
    local ok_there, got = outcome(function() return f(there) end)
    if not ok or not ok_there then
        if not ok and not ok_there and composite then return end
        -- the first of several bad values to be found is not specified
        local function say(fine, result) return fine and "no error" or (result:gsub(", got .*$", "")) end
        assert.are.equal(say(ok, want), say(ok_there, got), what)
        return
    end
    assert.are.equal(want.n, got.n, what .. ": results")
    for j = 1, want.n do compare(want[j], got[j], what, seen) end
    if writes then
        local here, far = support.tensors_of(args), support.tensors_of(there)
        for j, t in ipairs(here) do compare(t, far[j], what .. ": operand " .. j, seen) end
    end
    return want, got
end

-- f(...) on the CPU and on the GPU: the result is equal to the last bit.
function M.equal(what, f, ...)
    local args = table.pack(...)
    local there = support.map_tensors(args, M.to_gpu)
    local want, got = f(table.unpack(args, 1, args.n)), f(table.unpack(there, 1, args.n))
    assert.are.equal(M.device, got.device, what)
    support.same(want, got:to("cpu"), what, 0)
end

return M

-- metamorphic_spec.lua -- random small programs: with every input placed and split at random, and boxed at random on the way,
-- they give the values and gradients of one rank. Integer programs exactly; float programs in float64, within rounding.
--
-- Every rank runs the program on local tensors too: that is the reference. FLOW_TEST_SEED=n runs that program alone,
-- FLOW_TEST_ALL=1 many more.
local flow = require "flow"
local ranks = require "tests.ranks.support"

local places = ranks.placements()
local count = ranks.all and 1500 or 100
local only = math.tointeger(tonumber(os.getenv "FLOW_TEST_SEED" or ""))

local function concat(a, b)
    local list = {table.unpack(a)}
    for _, v in ipairs(b) do list[#list + 1] = v end
    return list
end

---- programs ----

-- A program is a list of steps {text, f, arguments}: f takes the tensors at those positions (inputs first, then the
-- results so far) and gives the next. It is drawn with shapes alone, so that all runs of it are the same.

-- The kinds of steps: draws from the nodes {shape, ...} so far, gives text, f, positions, shape; nil: does not fit.
local steps = {}

local function any(r, nodes, fits)
    local list = {}
    for i, node in ipairs(nodes) do
        if not fits or fits(node) then list[#list + 1] = i end
    end
    if #list == 0 then return end
    local i = r.pick(list)
    return i, nodes[i].shape
end

local function has_axes(n) return function(node) return #node.shape >= n and #node.shape <= 3 end end

local function unary(text, f)
    steps[#steps + 1] = function(r, nodes)
        local i, shape = any(r, nodes)
        return text, f, {i}, shape
    end
end

unary("tanh", function(x) return x:tanh() end)
unary("sigmoid", function(x) return x:sigmoid() * 2 end)
unary("relu", function(x) return x:relu() end)
unary("gelu", function(x) return x:gelu() end)
unary("scale", function(x) return x * 0.5 - 0.25 end)
unary("halves", function(x) return x / 2 end)
unary("neg", function(x) return -x end)
unary("clamp", function(x) return x:clamp(-1.5, 1.5) end)
unary("square", function(x) return x:tanh():square() end)
unary("clone", function(x) return x:clone() end)
unary("dropout", function(x) return x:dropout(0.3) end)
unary("noise", function(x) return x + flow.randn_like(x) * 0.1 end)
unary("in place", function(x)
    local y = x + 0.25 -- a partial tensor would stay one and could not be written so
    y:mul_(2)
    y:add_(0.5)
    return y
end)
unary("detached factor", function(x) return x * x:detach():sigmoid() end)

-- The shape of a result; false where the step does not fit.
local function after(shape_after, shape, axis)
    if shape_after then return shape_after(shape, axis) end
    return shape
end

local function along(text, least, f, shape_after)
    steps[#steps + 1] = function(r, nodes)
        local i, shape = any(r, nodes, has_axes(least))
        if not i then return end
        local axis = r.below(#shape)
        return ("%s(%d)"):format(text, axis), function(x) return f(x, axis) end, {i}, after(shape_after, shape, axis)
    end
end

local function without(shape, axis)
    local list = {table.unpack(shape)}
    table.remove(list, axis + 1)
    return list
end
local function with_size(shape, axis, size)
    local list = {table.unpack(shape)}
    list[axis + 1] = size
    return list
end

along("softmax", 1, function(x, a) return x:softmax(a) end)
along("log_softmax", 1, function(x, a) return x:log_softmax(a) * 0.2 end)
along("sum", 1, function(x, a) return x:sum(a) * 0.3 end, without)
along("mean", 1, function(x, a) return x:mean(a, true) end, function(s, a) return with_size(s, a, 1) end)
along("var", 1, function(x, a) return x:var(a) * 0.5 end, function(s, a) return s[a + 1] > 1 and without(s, a) or false end)
along("amax", 1, function(x, a) return x:amax(a) end, without)
along("max", 1, function(x, a) return (x:max(a)) end, without)
along("min", 1, function(x, a) return (x:min(a)) end, without)
along("logsumexp", 1, function(x, a) return x:logsumexp(a) * 0.5 end, without)
along("centred", 1, function(x, a) return x - x:mean(a, true) end)
along("norm", 1, function(x, a) return x:norm(2, a) * 0.5 end, without)
along("narrow", 1, function(x, a) return x:narrow(a, 1, x:size(a) - 1) end, function(s, a) return s[a + 1] > 2 and with_size(s, a, s[a + 1] - 1) or false end)
along("select", 1, function(x, a) return x:select(a, -1) end, without)
along("step", 1, function(x, a) return x:slice(a, 0, x:size(a), 2) end, function(s, a) return with_size(s, a, (s[a + 1] + 1) // 2) end)
along("unsqueeze", 1, function(x, a) return x:unsqueeze(a) end, function(s, a)
    local list = {table.unpack(s)}
    table.insert(list, a + 1, 1)
    return list
end)
along("twice", 1, function(x, a) return flow.cat({x, x * 2}, a) end, function(s, a) return s[a + 1] < 8 and with_size(s, a, 2 * s[a + 1]) or false end)
along("halves joined", 1, function(x, a)
    local at = x:size(a) // 2
    return flow.cat({x:narrow(a, at, x:size(a) - at), x:narrow(a, 0, at)}, a)
end)
along("index_select", 1, function(x, a)
    local list = {}
    for i = 0, x:size(a) - 1 do list[i + 1] = (i * 2 + 1) % x:size(a) end
    local options = x.is_global and {dtype = "int64", placement = x.placement, sbp = "B"} or {dtype = "int64"}
    if x.is_global and #x.sbp > 1 then
        options.sbp = {}
        for k = 1, #x.sbp do options.sbp[k] = "B" end
    end
    return x:index_select(a, flow.tensor(list, options))
end)
along("flatten", 2, function(x) return x:reshape(-1) end, function(s)
    local n = 1
    for _, size in ipairs(s) do n = n * size end
    return {n}
end)
along("expand", 1, function(x) return x:unsqueeze(0):expand(concat({3}, x.shape)):mean(0) end)
along("layer_norm", 1, function(x) return x:layer_norm {x:size(-1)} end)
along("permute", 2, function(x) return x:transpose(0, -1) end, function(s)
    local list = {table.unpack(s)}
    list[1], list[#list] = list[#list], list[1]
    return list
end)
along("tril", 2, function(x) return x:tril() + x:triu(1) * 0.5 end)
along("cross_entropy", 2, function(x)
    local rows = x:reshape(-1, x:size(-1))
    local target = rows:detach():argmax(1)
    return flow.cross_entropy(rows, (target + 1):remainder(rows:size(1)), {reduction = "none"})
end, function(s)
    local n = 1
    for i = 1, #s - 1 do n = n * s[i] end
    return {n}
end)
along("embedding", 2, function(x)
    if x.ndim > 2 then return x:sum(0) * 0.1 end
    local ids = x:detach():argmax(1):remainder(x:size(0))
    return flow.embedding(ids, x)
end, function(s) return #s > 2 and without(s, 0) or s end)

-- Operands of equal shape, and of shapes that broadcast.
local function binary(list, text, f)
    list[#list + 1] = function(r, nodes)
        local i, shape = any(r, nodes)
        local j = any(r, nodes, function(node)
            if #node.shape > #shape then return false end
            for k = 1, #node.shape do
                local size = node.shape[#node.shape - k + 1]
                if size ~= 1 and size ~= shape[#shape - k + 1] then return false end
            end
            return true
        end)
        return text, f, {i, j}, shape
    end
end
binary(steps, "add", function(x, y) return x + y end)
binary(steps, "sub", function(x, y) return x - y end)
binary(steps, "mul", function(x, y) return x * y:tanh() end)
binary(steps, "div", function(x, y) return x / (y:square() + 1) end)
binary(steps, "maximum", function(x, y) return flow.maximum(x, y) end)
binary(steps, "where", function(x, y) return flow.where(y:gt(0), x, x * 0.5) end)

steps[#steps + 1] = function(r, nodes)
    local i, a = any(r, nodes, function(node) return #node.shape == 2 end)
    if not i then return end
    local j, b = any(r, nodes, function(node) return #node.shape == 2 and (node.shape[1] == a[2] or node.shape[2] == a[2]) end)
    if not j then return end
    local flip = b[1] ~= a[2]
    return flip and "matmul transposed" or "matmul", function(x, y) return x:matmul(flip and y:t() or y) * 0.3 end, {i, j}, {a[1], flip and b[1] or b[2]}
end

---- integers ----

local integer_steps = {}

local function integer(text, f, shape_after, least)
    integer_steps[#integer_steps + 1] = function(r, nodes)
        local i, shape = any(r, nodes, has_axes(least or 0))
        if not i then return end
        local axis = #shape > 0 and r.below(#shape) or 0
        return ("%s(%d)"):format(text, axis), function(x) return f(x, axis) end, {i}, after(shape_after, shape, axis)
    end
end
integer("affine", function(x) return x * 3 - 7 end)
integer("remainder", function(x) return x:remainder(11) - 5 end)
integer("abs", function(x) return x:abs() end)
integer("sign", function(x) return x:sign() * 4 end)
integer("clamp", function(x) return x:clamp(-6, 9) end)
integer("relu", function(x) return flow.maximum(x, x * 0) end)
integer("sum", function(x, a) return x:sum(a) end, without, 1)
integer("amax", function(x, a) return x:amax(a) end, without, 1)
integer("amin", function(x, a) return x:amin(a) end, without, 1)
integer("argmax", function(x, a) return x:argmax(a) end, without, 1)
integer("max", function(x, a)
    local value, position = x:max(a)
    return value * 10 + position
end, without, 1)
integer("any", function(x, a) return x:gt(2):any(a):to "int64" end, without, 1)
integer("all", function(x, a) return x:gt(-9):all(a):to "int64" end, without, 1)
integer("rows", function(x) return x:ne(3):to "int64" end)
integer("transpose", function(x) return x:transpose(0, -1) end, function(s)
    local list = {table.unpack(s)}
    list[1], list[#list] = list[#list], list[1]
    return list
end, 2)
integer("flatten", function(x) return x:reshape(-1) end, function(s)
    local n = 1
    for _, size in ipairs(s) do n = n * size end
    return {n}
end, 1)
integer("joined", function(x, a) return flow.cat({x, x + 1}, a) end, function(s, a) return s[a + 1] < 8 and with_size(s, a, 2 * s[a + 1]) or false end, 1)
integer("stacked", function(x) return flow.stack({x, x * 2}, 0):sum(0) end)
integer("tril", function(x) return x:tril(-1) end, nil, 2)
binary(integer_steps, "add", function(x, y) return x + y end)
binary(integer_steps, "sub", function(x, y) return y - x end)
binary(integer_steps, "mul", function(x, y) return x * y:remainder(3) end)
binary(integer_steps, "minimum", function(x, y) return flow.minimum(x, y) end)
binary(integer_steps, "where", function(x, y) return flow.where(x:lt(y), x, y * 2) end)

---- running ----

local function draw(seed, choice)
    local r = ranks.random(seed)
    local sizes = {r.pick {1, 3, 4, 5, 7}, r.pick {2, 4, 6}}
    local nodes, program = {}, {inputs = {}, steps = {}, r = r}
    for i, shape in ipairs {{sizes[1], sizes[2]}, {sizes[2]}, {sizes[2], sizes[1]}, {2, sizes[1], sizes[2]}, {}} do
        nodes[i], program.inputs[i] = {shape = shape}, shape
    end
    while #program.steps < 10 do
        local text, f, positions, shape = r.pick(choice)(r, nodes)
        if text and shape and #shape <= 4 then
            nodes[#nodes + 1] = {shape = shape}
            program.steps[#program.steps + 1] = {text = text, f = f, positions = positions}
        end
    end
    return program
end

-- Runs a program on inputs; `boxed` may move every result. Returns all tensors.
local function execute(program, inputs, boxed)
    local tensors = {table.unpack(inputs)}
    for _, step in ipairs(program.steps) do
        local arguments = {}
        for i, position in ipairs(step.positions) do arguments[i] = tensors[position] end
        tensors[#tensors + 1] = boxed(step.f(table.unpack(arguments)))
    end
    return tensors
end

local function program_text(program)
    local lines = {}
    for i, step in ipairs(program.steps) do
        lines[i] = ("  %d = %s of %s"):format(#program.inputs + i, step.text, table.concat(step.positions, ", "))
    end
    return table.concat(lines, "\n")
end

local function everywhere(place, sbp)
    local list = {}
    for k = 1, #place.hierarchy do list[k] = sbp or "B" end
    return list
end

local function any_sbp(r, place, ndim, partial)
    local list = ranks.nd_sbps(place, ndim)
    local nd_sbp
    repeat nd_sbp = r.pick(list) until partial or not ranks.has_partial(nd_sbp)
    return nd_sbp
end

local function spread(r, t, place, partial)
    return t:to_global {placement = place.value, sbp = everywhere(place)}:to_global {sbp = any_sbp(r, place, t.ndim, partial)}
end

-- The whole of a tensor on every rank.
local function whole(t) return t:to_global {placement = places[1].value, sbp = "B"}:to_local() end

local function compare(want, got, eps, what)
    local a = want:to "float64":reshape(-1)
    local b = whole(got):to "float64":reshape(-1)
    assert.are.same(want.shape, got.shape, what)
    if a:numel() == 0 then return end
    local off = ((a - b):abs() / a:abs():clamp(1)):max():item()
    if off > eps or off ~= off then error(("%s is off by %g:\n%s\nexpected\n%s"):format(what, off, tostring(b), tostring(a)), 0) end
end

-- One program on one rank and, with several choices of placement and SBPs, on all of them.
local function check(seed, kind)
    local program = draw(seed, kind == "float" and steps or integer_steps)
    local what = ("program of FLOW_TEST_SEED=%d:\n%s"):format(seed, program_text(program))
    flow.manual_seed(seed)
    local data = {}
    for i, shape in ipairs(program.inputs) do
        data[i] = kind == "float" and flow.randn(shape, {dtype = "float64"}) or flow.randint(-9, 10, shape)
    end
    local function run(give, boxed)
        flow.manual_seed(seed + 1)
        local inputs, loss = {}, nil
        for i, t in ipairs(data) do
            inputs[i] = give(t):detach()
            if kind == "float" then inputs[i]:requires_grad_() end
        end
        local tensors = execute(program, inputs, boxed)
        if kind == "float" then
            for i = #inputs + 1, #tensors do
                local part = tensors[i]:tanh():sum()
                loss = loss and loss + part or part
            end
            loss:backward()
        end
        return tensors, inputs
    end
    local want, want_inputs = run(function(t) return t:clone() end, function(t) return t end)
    for trial = 1, 2 do
        local r = ranks.random(seed * 10 + trial)
        local place = r.pick(places)
        local got, inputs = run(function(t) return spread(r, t, place, true) end, function(t)
            if r.below(4) > 0 then return t end
            return t:to_global {sbp = any_sbp(r, place, t.ndim, true)}
        end)
        local where = ("%s\non %s, trial %d"):format(what, tostring(place.value), trial)
        for i = #inputs + 1, #got do
            compare(want[i], got[i], kind == "float" and 1e-9 or 0, ("tensor %d of %s"):format(i, where))
        end
        for i, input in ipairs(inputs) do
            local expected = want_inputs[i].grad
            assert.are.equal(expected == nil, input.grad == nil, where)
            if expected then compare(expected, input.grad, 1e-8, ("gradient of input %d of %s"):format(i, where)) end
        end
    end
end

for _, kind in ipairs {"float", "integer"} do
    describe(kind .. " programs give what one rank gives:", function()
        for seed = 1, count do
            if not only or only == seed then it("seed " .. seed, function() check(seed, kind) end) end
        end
    end)
end

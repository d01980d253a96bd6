-- bad_input_spec.lua -- what a hostile user does: every mistake is an error that pcall catches, with the whole message; nothing
-- is lost and nothing crashes. Messages of single ops stand in their families' specs, those of files in save_spec and data_spec.
local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local nan, inf = 0 / 0, 1 / 0

local message_of = require("tests.support").placed_message_of
local process = require "tests.process"
local x = flow.zeros(2, 3)

local function refuses(group, cases)
    describe(group, function()
        for _, case in ipairs(cases) do
            it("say: " .. case[1], function()
                assert.are.equal(case[1], message_of(case[2]))
                assert.are.same({{0, 0, 0}, {0, 0, 0}}, x:totable()) -- as it was
            end)
        end
    end)
end

local cycle, deep = {}, 1
cycle[1] = cycle
for _ = 1, 100000 do deep = {deep} end

refuses("sizes", {
    {"zeros: size must be a whole number, got nan", function() flow.zeros(nan) end},
    {"zeros: size must be a whole number, got inf", function() flow.zeros(inf) end},
    {"zeros: size must be a whole number, got 2^63 or more", function() flow.zeros(2 ^ 63) end},
    {"zeros: size must be a whole number, got less than -2^63", function() flow.zeros(-2 ^ 64) end},
    {"zeros: size must be a whole number, got 0.5", function() flow.zeros(0.5) end},
    {"zeros: size must be a whole number or a list of them, got string", function() flow.zeros("3") end},
    {"zeros: missing argument 'size': zeros(size: sizes, options)", function() flow.zeros(nil) end},
    {"zeros: size -1 in shape [-1] is negative", function() flow.zeros(-1) end},
    {"zeros: size -9223372036854775808 in shape [-9223372036854775808] is negative", function() flow.zeros(math.mininteger) end},
    {"zeros: shape [9223372036854775807] has too many elements (2^59 or more)", function() flow.zeros(math.maxinteger) end},
    {"zeros: shape [1099511627776, 1099511627776] has too many elements (2^59 or more)", function() flow.zeros(1 << 40, 1 << 40) end},
    {"zeros: shape [4294967296, 4294967296] has too many elements (2^59 or more)", function() flow.zeros(1 << 32, 1 << 32) end},
    {"zeros: size holds at most 8 numbers, got 9", function() flow.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1) end},
    {"zeros: size must hold whole numbers, number 2 is string", function() flow.zeros {2, "x"} end},
    {"zeros: size must hold whole numbers, number 2 is nil", function() flow.zeros {2, nil, 3} end},
    {"zeros: size must hold whole numbers, number 1 is table", function() flow.zeros(cycle) end},
    {"zeros: size is a list, but has the key 'dtype'; put options in a separate table", function() flow.zeros {2, 3, dtype = "int64"} end},
    {"index_put: index 2 must be of integers or bool, got float32", function() flow.index_put(x, {flow.tensor {0}, flow.ones(1)}, 1) end},
    {"zeros: size must be a list of whole numbers, got Linear", function() flow.zeros(nn.Linear(1, 1)) end},
    {"zeros: too many arguments: zeros(size: sizes, options)", function() flow.zeros(3, nn.Linear(1, 1)) end},
    {"relu: too many arguments: relu(x)", function() flow.relu(x, nn.Linear(1, 1)) end},
    {"rep: [2, 3] repeated 4611686018427387904 times is too large", function() x:rep(1 << 62, 1 << 62) end},
    {"view: only one size can be -1, not [-1, -1]", function() x:view(-1, -1) end},
    {"view: [2, 3] with 6 elements cannot become [4]", function() x:view(4) end},
    {"expand: [2, 3] cannot be expanded to [5, 3]: axis 0 has size 2", function() x:expand(5, 3) end},
    {"arange: too many elements", function() flow.arange(1e30) end},
    {"arange: step must not be 0", function() flow.arange(0, 10, 0) end},
    {"linspace: steps -1 is negative", function() flow.linspace(0, 1, -1) end},
    {"Linear: inputs must be a whole number >= 1, got -1", function() nn.Linear(-1, 3) end},
})

-- Functions written in Lua name themselves before the op that they call.
local on_all = flow.ones({2, 3}, {placement = flow.placement.all "cpu", sbp = "B"})
refuses("functions on top of ops", {
    {"allclose: sub: shapes [2, 3] and [4] do not broadcast", function() flow.allclose(x, flow.ones(4)) end},
    {"allclose: sub: shapes [2, 3] and [4] do not broadcast", function() return flow.allclose(x, flow.ones(4)) end},
    {"equal: eq: x is a local tensor (float32[2, 3]) and y is global (float32[2, 3] on " .. tostring(on_all.placement) .. " as B); write " ..
        "x:to_global{placement = y.placement, sbp = \"B\"}", function() flow.equal(x, on_all) end},
    {"to: unknown dtype or device 'bogus'", function() nn.Linear(2, 3):to "bogus" end},
    {"to_empty: unknown device 'bogus'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"", function() nn.Linear(2, 3):to_empty "bogus" end},
    {"read: specs must be a list of {\"--layers N\", default, \"what it is for\"}, got table", function() flow.cli.read({}, {{"n"}}) end},
    {"read: args must be a list of strings, as arg, got table", function() flow.cli.read({3}, {}) end},
    {"help: missing argument 'specs'", function() flow.cli.help "about" end},
    {"parse: most must be a whole number >= 0, got -1", function() flow.cli.parse({}, "about", {}, -1) end},
    {"stop: message must be a string, got nil", function() flow.cli.stop({}, nil) end},
    {"encode: too many arguments: encode(value: any)", function() flow.json.encode(1, 2) end},
    {"zeros: fill_: this tensor is expanded (several positions share one element), so it cannot be written in place; use clone() first",
        function() nn.init.zeros(flow.ones(2, 1):expand(2, 3)) end},
    {"json: a key is table, not a string", function() flow.json.encode {[{}] = 1} end},
    {"profile: the input 'a' must be a tensor, got 3", function() flow.trace(function(a) return a * 2 end, {flow.spec {2}}):profile(1, {3}) end},
    {"profile: a program of 1 input was called with 2 arguments", function()
        flow.trace(function(a) return a * 2 end, {flow.spec {2}}):profile(1, {flow.ones(2), flow.ones(2)})
    end},
    {"backward: wrt must be a table, got ReLU", function() flow.trace(function(a) return a * 2 end, {flow.spec {2}}):backward(nn.ReLU()) end},
    {"CausalSelfAttention: x must be [batch, time, width], got [3, 4]", function() nn.CausalSelfAttention(4, 2):forward(flow.ones(3, 4)) end},
    {"infer: the spec of a must be flow.spec(shape, dtype), got a tensor with values; a tensor that f reaches from outside is a weight of the program",
        function() flow.trace(function(a) return a * 2 end, {flow.spec {2}}):infer {flow.ones(3)} end},
    {"infer: spec: shape must hold whole numbers, number 1 is string", function()
        flow.trace(function(a) return a * 2 end, {flow.spec {2}}):infer {{"x"}}
    end},
    {"addr: add: shapes [3, 2] and [2, 3] do not broadcast", function() flow.addr(flow.ones(3, 2), flow.ones(2), flow.ones(3)) end},
    {"trace: takes a function and its specs: flow.trace(f, {flow.spec({64, 784})})", function()
        flow.trace(function(a) return a end, flow.data.loader(flow.data.tensors(x), {}))
    end},
})

-- A device that is not there, or that cannot be used from here.
describe("without a GPU", function()
    for name, f in pairs {
        ones = function() flow.ones(2, {device = "cuda"}) end, tensor = function() flow.tensor({2}, {device = "cuda"}) end,
        to = function() x:to "cuda" end, full = function() flow.with_device("cuda", flow.full, {2}, 3) end,
        frombytes = function() flow.frombytes("ab", "uint8", {2}, {device = "cuda"}) end,
        Linear = function() flow.with_device("cuda", nn.Linear, 2, 3) end, to_empty = function() nn.Linear(2, 3):to_empty "cuda" end,
        to_global = function() x:to_global {placement = flow.placement("cuda", {0}), sbp = "B"} end,
        ["to "] = function() nn.Linear(2, 3):to "cuda" end,
    } do
        it(name .. " says what is missing in its name", function()
            if flow.device_count "cuda" > 0 then return end
            local message = message_of(f)
            assert.matches("^" .. name:gsub(" ", "") .. ": .*cuda", message)
        end)
    end
end)

refuses("axes", {
    {"sum: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() x:sum(2) end},
    {"sum: axis -9223372036854775808 is out of range for shape [2, 3] (-2 to 1)", function() x:sum(math.mininteger) end},
    {"sum: axis 0 is named twice", function() x:sum {0, -2} end},
    {"sum: axis must be a whole number, got 0.5", function() x:sum(0.5) end},
    {"sum: axis must be a whole number, got nan", function() x:sum(nan) end},
    {"transpose: axis 5 is out of range for shape [2, 3] (-2 to 1)", function() x:transpose(0, 5) end},
    {"permute: axis 0 is named twice", function() x:permute(0, 0) end},
    {"softmax: missing argument 'axis': softmax(x, axis: axis)", function() x:softmax() end},
    {"norm: axis 7 is out of range for shape [2, 3] (-2 to 1)", function() x:norm(2, 7) end},
    {"index: position 2 is out of range for axis 0 of [2, 3]", function() return x[2] end},
    {"index: position -9223372036854775808 is out of range for axis 0 of [2, 3]", function() return x[math.mininteger] end},
    {"narrow: start 1 and length 5 exceed size 2 of axis 0 of [2, 3]", function() x:narrow(0, 1, 5) end},
    {"narrow: start 1 and length 9223372036854775807 exceed size 2 of axis 0 of [2, 3]", function() x:narrow(0, 1, math.maxinteger) end},
    {"#: a tensor without axes has no length", function() return #flow.tensor(1) end},
})

refuses("data", {
    {"tensor: data[1][1][1][1][1][1][1][1] is nested deeper than 8 lists (does a list hold itself?)", function() flow.tensor(cycle) end},
    {"tensor: data[1][1][1][1][1][1][1][1] is nested deeper than 8 lists (does a list hold itself?)", function() flow.tensor(deep) end},
    {"tensor: data[2] has 1 values, the lists before it have 2", function() flow.tensor {{1, 2}, {3}} end},
    {"tensor: data[2][1] has 2 values, the lists before it have 1", function() flow.tensor {{{1}}, {{1, 2}}} end},
    {"tensor: data[2] must be a number, got a list", function() flow.tensor {1, {2}} end},
    {"tensor: data[2] must be a list, got number", function() flow.tensor {{1}, 2} end},
    {"tensor: data[2] must be a number, a boolean or a list, got string", function() flow.tensor {1, "2"} end},
    {"tensor: data[2] must be a number, a boolean or a list, got nil", function() flow.tensor {1, nil, 3} end},
    {"tensor: data is a table without a list part", function() flow.tensor {a = 1} end},
    {"tensor: data[2] is no plain list (its metatable has __len); copy its values into one",
        function() flow.tensor {{}, setmetatable({}, {__len = function() return 3 end})} end},
    {"tensor: data must be a number, a boolean or a list, got nil", function() flow.tensor(nil) end},
    {"tensor: data must be a number, a boolean or a list, got function", function() flow.tensor(print) end},
    {"tensor: data is missing: flow.tensor(number, boolean or nested list, options)", function() flow.tensor() end},
    {"tensor: data[1] = 300 does not fit into uint8", function() flow.tensor({300}, {dtype = "uint8"}) end},
    {"tensor: data[1] = nan does not fit into int64", function() flow.tensor({nan}, {dtype = "int64"}) end},
    {"tensor: data[2][1] = 1e+70 does not fit into int64", function() flow.tensor({{1}, {1e70}}, {dtype = "int64"}) end},
    {"tensor: data[1] is a tensor; put tensors together with flow.stack or flow.cat", function() flow.tensor {flow.ones(2)} end},
    {"index: the value assigned must be a tensor, a number or a list, got string", function() x[0] = "a" end},
    {"tensor: data[1][1][1][1][1][1][1][1] is nested deeper than 8 lists (does a list hold itself?)", function() x[0] = cycle end},
    {"index: src [4] does not broadcast to x [3]", function() x[0] = flow.zeros(4) end},
})

refuses("shapes and dtypes", {
    {"add: shapes [2, 3] and [4] do not broadcast", function() return x + flow.zeros(4) end},
    {"matmul: [2, 3] and [4, 2] do not fit: axis 1 of x has size 3, axis 0 of y has size 4", function() x:matmul(flow.zeros(4, 2)) end},
    {"cat: xs[1] is [2, 3] and xs[2] is [2, 4]: only axis 0 may differ", function() flow.cat {x, flow.zeros(2, 4)} end},
    {"stack: xs[1] is [2, 3] and xs[2] is [3]: shapes must be equal", function() flow.stack {x, flow.zeros(3)} end},
    {"cat: needs at least one tensor", function() flow.cat {} end},
    {"layer_norm: the last sizes of x must be [4], x is float32[2, 3]", function() x:layer_norm {4} end},
    {"softmax: takes a float tensor, x is int64[6]; write x:to(\"float32\")", function() flow.arange(6):softmax(0) end},
    {"zeros: unknown dtype 'int65'; did you mean 'int64'?", function() flow.zeros(2, {dtype = "int65"}) end},
    {"zeros: dtype must be a string, got number", function() flow.zeros(2, {dtype = 3}) end},
    {"requires_grad: only float tensors have gradients, this is int64", function() flow.zeros(2, {dtype = "int64", requires_grad = true}) end},
    {"masked_select: mask must be bool, not float32", function() x:masked_select(x) end},
    {"where: the condition must be bool, it is float32", function() flow.where(x, x, x) end},
    {"max: axis 0 of [0] is empty, so there is no result", function() flow.zeros(0):max() end},
    {"argmax: axis 0 of [0, 3] is empty, so there is no result", function() flow.zeros(0, 3):argmax(0) end},
    {"in Linear: linear: takes x [..., in] and weight [out, in], got [2, 4] and [2, 3]", function() nn.Linear(3, 2)(flow.ones(2, 4)) end},
})

refuses("labels and positions", {
    {"cross_entropy: target[1] is 3, but input has 3 classes (0 to 2)", function() flow.cross_entropy(x, flow.tensor {0, 3}) end},
    {"cross_entropy: target[0] is -1, but input has 3 classes (0 to 2)", function() flow.cross_entropy(x, flow.tensor {-1, 9}) end},
    {"cross_entropy: target[1] is -9223372036854775808, but input has 3 classes (0 to 2)",
        function() flow.cross_entropy(x, flow.tensor {0, math.mininteger}) end},
    {"cross_entropy: target[1, 0] is 7, but input has 2 classes (0 to 1)", function() flow.cross_entropy(flow.zeros(2, 2, 2), flow.tensor {{0, 1}, {7, 0}}) end},
    {"cross_entropy: target must be integers (class labels), got float32[2]", function() flow.cross_entropy(x, flow.tensor {0.5, 1}) end},
    {"cross_entropy: input [2, 3] and target [3] do not fit; target must be [2]", function() flow.cross_entropy(x, flow.tensor {0, 1, 2}) end},
    {"nll_loss: target[1] is 7, but input has 3 classes (0 to 2)", function() flow.nll_loss(x, flow.tensor {0, 7}) end},
    {"embedding: indices[1] is 7, but weight has 2 rows (0 to 1)", function() flow.embedding(flow.tensor {1, 7}, x) end},
    {"gather: index[0, 1] is 3, but this axis of x has 3 positions (0 to 2)", function() x:gather(1, flow.tensor {{0, 3}, {0, 0}}) end},
    {"index_select: index[0] is 2, but this axis of x has 2 positions (0 to 1)", function() x:index_select(0, flow.tensor {2}) end},
    {"index: position 2 (element 1 of the index) is out of range for an axis of size 2", function() return x[flow.tensor {0, 2}] end},
})

refuses("arguments", {
    {"add: y must be a tensor or a number, got nil", function() return x + nil end},
    {"add: y must be a tensor or a number, got string", function() return x + "1" end},
    {"add: y must be a tensor or a number, got table; flow.tensor makes one of a list", function() return x + {} end},
    {"add: missing argument 'y'", function() x:add() end},
    {"add: too many arguments: add(x|number, y|number, alpha: scalar = 1)", function() x:add(1, 2, 3) end},
    {"add: missing argument 'x' (a method is called with a colon: x:add())", function() x.add() end},
    {"item: takes a tensor of one element, x has 6 (shape [2, 3])", function() x:item() end},
    {"cross_entropy: unknown option 'weights'; did you mean 'weight'?", function() flow.cross_entropy(x, flow.tensor {0, 1}, {weights = x}) end},
    {"cross_entropy: reduction must be one of mean|sum|none, got 'avg'", function() flow.cross_entropy(x, flow.tensor {0, 1}, {reduction = "avg"}) end},
    {"tensor has no method or field 'som'; did you mean 'sum'?", function() x:som() end},
    {"flow has no 'zeross'; did you mean 'zeros'?", function() flow.zeross(2) end},
    {"a tensor's field 'shape' cannot be assigned; only requires_grad and grad can be", function() x.shape = {6} end},
    {"tensors are compared elementwise with x:lt(y), x:le(y), x:gt(y), x:ge(y), x:eq(y), x:ne(y)", function() return x < x end},
    {"load_state: takes {seed =, counter =}, got string", function() flow.generator(1):load_state "x" end},
    {"load_state: takes {seed =, counter =}, got number", function() flow.generator(1):load_state(3) end},
    {"load_state: takes {seed =, counter =}, got boolean", function() flow.generator(1):load_state(true) end},
    {"load_state: takes {seed =, counter =}, got nil", function() flow.generator(1):load_state(nil) end},
    {"load_state: takes {seed =, counter =}, got nothing", function() flow.generator(1):load_state() end},
    {"load_state: takes {seed =, counter =}, got tensor", function() flow.generator(1):load_state(x) end},
    {"load_state: seed must be a whole number, got string", function() flow.generator(1):load_state {seed = "1", counter = 0} end},
    {"memory: takes {reset_peak =, device =}, got number", function() flow.memory(3) end},
    {"memory: takes {reset_peak =, device =}, got string", function() flow.memory "cpu" end},
    {"memory: reset_peak must be true or false, got number", function() flow.memory {reset_peak = 1} end},
    {"memory: too many arguments: memory{reset_peak =, device =}", function() flow.memory({}, 1) end},
    {"to: too many arguments: x:to{dtype =, device =}", function() x:to({dtype = "int64"}, "cpu") end},
    {"requires_grad_: takes true or false, got number", function() x:requires_grad_(0) end},
    {"grad: a tensor and its gradient must not share memory; write x.grad = x:clone() for a copy of it", function() x.grad = x end},
    {"grad: a tensor and its gradient must not share memory; write x.grad = x:clone() for a copy of it", function() x.grad = x:detach() end},
    {"save: values is a module; save what it holds: net:state_dict()", function() flow.save(os.tmpname(), nn.ReLU()) end},
    {"save: 'a.net' is a module; save what it holds: a.net:state_dict()", function() flow.save(os.tmpname(), {a = {net = nn.ReLU()}}) end},
    {"grad: a tensor and its gradient must not share memory; write x.grad = x:clone() for a copy of it", function()
        local y, z = flow.ones(2), flow.ones(2)
        y.grad, z.grad = z, y
    end},
    {"from_part: shape must be a list of whole numbers, got string", function() flow._testing.from_part(x, "ab") end},
    {"SGD: the list of parameters is empty", function() optim.SGD({}, {lr = 1}) end},
    {"SGD: parameter 1 is not a leaf: it was computed, from tensors that require grad", function() optim.SGD({nn.Parameter(x) * 2}, {lr = 1}) end},
    {"set_num_threads: n must be 1 to 4096, got 0", function() flow.set_num_threads(0) end},
})

-- Functions of C that read a fixed number of arguments: {the message's name, the call, f, arguments}; one more is an error.
describe("one argument too many is refused by", function()
    local g = flow.generator(1)
    for _, case in ipairs {
        {"manual_seed", "manual_seed(seed)", flow.manual_seed, 1}, {"sync", "sync()", flow.sync},
        {"stats", "engine.stats()", flow.engine.stats}, {"stats", "infer_cache.stats()", flow.infer_cache.stats},
        {"clear", "infer_cache.clear()", flow.infer_cache.clear}, {"set_num_threads", "set_num_threads(n)", flow.set_num_threads, 1},
        {"get_num_threads", "get_num_threads()", flow.get_num_threads},
        {"set_float32_matmul_precision", "set_float32_matmul_precision(name)", flow.set_float32_matmul_precision, "highest"},
        {"get_float32_matmul_precision", "get_float32_matmul_precision()", flow.get_float32_matmul_precision},
        {"device_count", "device_count(type)", flow.device_count, "cpu"}, {"is_tensor", "is_tensor(value)", flow.is_tensor, 1},
        {"rank", "rank()", flow.rank}, {"world_size", "world_size()", flow.world_size}, {"barrier", "barrier()", flow.barrier},
        {"generator", "generator(seed)", flow.generator, 1}, {"default_generator", "default_generator()", flow.default_generator},
        {"state", "g:state()", g.state, g}, {"manual_seed", "g:manual_seed(seed)", g.manual_seed, g, 1},
        {"load_state", "g:load_state{seed =, counter =}", g.load_state, g, {seed = 1, counter = 0}},
        {"placement", "placement(type, ranks)", flow.placement, "cpu", {0}},
        {"placement.all", "placement.all(type)", flow.placement.all, "cpu"}, {"sbp.split", "sbp.split(axis)", flow.sbp.split, 0},
        {"is_grad_enabled", "is_grad_enabled()", flow.is_grad_enabled},
        {"grad", "grad(y, xs, {grad_outputs =, create_graph =, retain_graph =, allow_unused =})", flow.grad, x, x, {}},
        {"dim", "x:dim()", x.dim, x}, {"numel", "x:numel()", x.numel, x}, {"size", "x:size(axis)", x.size, x, 0},
        {"stride", "x:stride(axis)", x.stride, x, 0}, {"is_contiguous", "x:is_contiguous()", x.is_contiguous, x},
        {"chunk", "chunk(x, count, axis)", x.chunk, x, 2, 0}, {"split", "split(x, size or sizes, axis)", x.split, x, 1, 0},
        {"to_global", "x:to_global{placement =, sbp =, grad_sbp =, check =, priority =}", x.to_global, x, {}},
        {"to_local", "x:to_local{grad_sbp =}", x.to_local, x, {}}, {"item", "x:item()", x.item, x},
        {"totable", "x:totable()", x.totable, x}, {"detach", "x:detach()", x.detach, x},
        {"retain_grad", "x:retain_grad()", x.retain_grad, x}, {"cpu", "x:cpu()", x.cpu, x},
        {"detach_", "x:detach_()", x.detach_, x}, {"storage_offset", "x:storage_offset()", x.storage_offset, x},
        {"cuda", "x:cuda(index, {non_blocking =})", x.cuda, x, 0, {}}, {"requires_grad_", "x:requires_grad_(on)", x.requires_grad_, x, true},
        {"register_hook", "x:register_hook(f)", x.register_hook, x, print},
        {"register_post_accumulate_grad_hook", "x:register_post_accumulate_grad_hook(f)", x.register_post_accumulate_grad_hook, x, print},
        {"backward", "x:backward(gradient, {retain_graph =, create_graph =})", x.backward, x, x, {}},
    } do
        it(case[2], function()
            local arguments = table.pack(table.unpack(case, 4))
            arguments[arguments.n + 1] = false
            assert.are.equal(("%s: too many arguments: %s"):format(case[1], case[2]),
                message_of(case[3], table.unpack(arguments, 1, arguments.n + 1)))
        end)
    end
end)

describe("a metamethod called with what is none of its own", function()
    for name, f in pairs {
        ["a shape's __tostring"] = function() getmetatable(x.shape).__tostring "ab" end,
        ["a shape's __eq"] = function() getmetatable(x.shape).__eq("ab", "ab") end,
        ["flow's __index"] = function() getmetatable(flow).__index(3, "zeross") end,
        ["placement's __index"] = function() getmetatable(flow.placement).__index("a", "b") end,
        ["sbp's __index"] = function() getmetatable(flow.sbp).__index(true, "b") end,
        ["a tensor's __len"] = function() getmetatable(x).__len {} end,
        ["save of names that are numbers"] = function() flow._io.save(os.tmpname(), {1}, {x}, {}) end,
        ["save of metadata that is a table"] = function() flow._io.save(os.tmpname(), {}, {}, {{}, {}}) end,
    } do
        it("is an error: " .. name, function() assert.is_false(pcall(f)) end)
    end
end)

describe("a function called with a colon", function()
    for _, name in ipairs {"save", "load", "show", "explain", "has"} do assert(flow[name]) end -- into the table
    local tables = {
        {flow, "flow"}, {flow.nn, "nn"}, {flow.optim, "optim"}, {flow.data, "data"}, {flow.nn.init, "nn.init"},
        {flow.optim.schedule, "optim.schedule"}, {flow.progress, "progress"}, {flow.kvstore, "kvstore"}, {flow.cli, "cli"}, {flow.sbp, "flow.sbp"},
        {flow.placement, "flow.placement"}, {flow.engine, "flow.engine"}, {flow.infer_cache, "flow.infer_cache"},
    }
    local function is_callable(value)
        local meta = type(value) == "table" and getmetatable(value)
        return type(value) == "function" or meta and meta.__call
    end
    it("is named as it was called, though no other of its names was read", function()
        for _, name in ipairs {"mvlgamma", "row_stack", "unstack", "broadcast_arrays", "pinverse"} do
            assert.are.equal(("flow.%s is a function: write flow.%s(...), with a dot\n"):format(name, name),
                process.output(("%s -e \"local flow = require 'flow'; local ok, m = pcall(function() flow:%s(3) end); print((m:gsub('^.-:%%d+: ', '')))\"")
                    :format(process.flowlua, name)))
        end
    end)

    for _, case in ipairs(tables) do
        it("of " .. case[2] .. " says to write a dot", function()
            local count = 0
            for name, value in next, case[1] do
                local f = type(name) == "string" and is_callable(value) and load(("local t = ... t:%s('a')"):format(name))
                if f and name:sub(1, 1) ~= "_" then
                    local what = getmetatable(value) and case[1] ~= flow and "class" or "function"
                    local ok, message = pcall(f, case[1])
                    assert.is_false(ok, name)
                    message = message:gsub("^.-:%d+: ", "")
                    local said = message:match(" write " .. case[2]:gsub("%.", "%%.") .. "%.([%w_]+)%(")
                    assert.is_true(said == name or said ~= nil and rawequal(case[1][said], value), message)    -- or its first name
                    local full = case[2] .. "." .. said
                    assert.are.equal(("%s is a %s: write %s(...), with a dot"):format(full, what, full), message)
                    count = count + 1
                end
            end
            assert.is_true(count > 0)
        end)
    end

    it("of a table of one's own is one's own business", function()
        local own = {ones = flow.ones, print = flow.print}
        assert.matches("ones: size is a list, but has the key '%a+'; put options in a separate table$",
            select(2, pcall(function() own:ones(3) end)))
        assert.is_false(flow.nn.is_module(flow.nn))
    end)
end)

local square = flow.zeros({2, 2}, {placement = flow.placement("cpu", {{0}}), sbp = {"B", "B"}})
local sgd = flow.optim.SGD({flow.ones(2):requires_grad_()}, {lr = 1})
local batches = flow.data.loader(flow.data.tensors(flow.ones(2)))
local generator = flow.generator(1)

refuses("unknown fields and positions", {
    {"x:stride() is a Lua list: x:stride()[1] is the stride of axis 0, or x:stride(0)", function() return x:stride()[0] end},
    {"p.ranks is a Lua list: p.ranks[1] is the first one", function() return square.placement.ranks[0] end},
    {"p.ranks is a Lua list: p.ranks[1] is the first one", function() return square.placement.ranks[1][0] end},
    {"p.hierarchy is a Lua list: p.hierarchy[1] is the size of hierarchy axis 0", function() return square.placement.hierarchy[-1] end},
    {"x.sbp is a Lua list: x.sbp[1] belongs to hierarchy axis 0", function() return square.sbp[0] end},
    {"an sbp has no field 'axis'; it is a list of 2", function() return square.sbp.axis end},
    {"an sbp has no assignable field, got '1'", function() square.sbp[1] = "B" end},
    {"a placement has no assignable field, got 'foo'", function() square.placement.foo = 3 end},
    {"a generator has no assignable field, got 'foo'", function() generator.foo = 3 end},
    {"a generator has no 'seed'; it is called 'manual_seed' here", function() generator.seed() end},
    {"a generator has no 'device'; it has load_state, manual_seed, state", function() return generator.device end},
    {"a generator has no 'stat'; did you mean 'state'?", function() generator:stat() end},
    {"a hook's handle has no 'close'; it has remove", function() flow.ones(1):requires_grad_():register_hook(print):close() end},
    {"a scope (for local _ <close> = ...) has no 'close'", function()
        local scope <close> = flow.no_grad()
        scope:close()
    end},
    {"engine has no 'stat'; did you mean 'stats'?", function() flow.engine.stat() end},
    {"infer_cache has no 'size'; it has clear, stats", function() return flow.infer_cache.size end},
    {"Loader has no [1]; write for batch in loader do, or loader:next()", function() return batches[1] end},
    {"Tensors has no [1]; write dataset:batch(positions)", function() return batches.dataset[1] end},
    {"optimizer.groups is a list of 1: its first is optimizer.groups[1], got 0", function() return sgd.groups[0] end},
    {"optimizer.groups is a list of 1: its first is optimizer.groups[1], got 'lr'", function() sgd.groups.lr = 3 end},
})

describe("lists that objects give", function()
    it("are lists in every other way", function()
        local p = square.placement
        for _, case in ipairs {{x:stride(), x:stride()}, {p.ranks[1], {0}}, {p.ranks, {{0}}}, {p.hierarchy, {1, 1}}} do
            local list, count = case[1], 0
            for _ in ipairs(list) do count = count + 1 end
            assert.are.same(case[2], list)
            assert.are.equal(#list, count)
            assert.are.equal(#list, select("#", table.unpack(list)))
            assert.is_nil(list[#list + 1])
        end
        assert.are.equal("[[0]]", tostring(p.ranks))
        assert.is_true(flow.placement("cpu", p.ranks) == p)
        assert.is_nil(square.sbp[3])
        assert.are.equal(1, #sgd.groups)
        assert.is_nil(sgd.groups[2])
    end)
end)

refuses("porting", {
    {"sum: missing argument 'x' (a method is called with a colon: x:sum())", function() x.sum() end},
    {"sum: x must be a tensor, got number; write x:sum(...) or flow.sum(x, ...)", function() x.sum(0) end},
    {"item: x must be a tensor, got nothing; a method is called with a colon: x:item()", function() x.item() end},
    {"size: x must be a tensor, got number; a method is called with a colon: x:size()", function() x.size(0) end},
    {"add: missing argument 'y' (a method is called with a colon: x:add())", function() x.add(1) end},
    {"view: x must be a tensor, got number; write x:view(...)", function() x.view(3, 2) end},
    {"backward: x must be a tensor, got nothing; a method is called with a colon: x:backward()",
        function() x.backward() end},
    {"state: takes a generator, got nothing; a method is called with a colon: g:state()",
        function() flow.generator(1).state() end},
    {"to: unknown dtype or device 'half'; it is called 'float16' here", function() x:to "half" end},
    {"to: unknown dtype or device 'float'; it is called 'float32' here", function() x:to "float" end},
    {"to: unknown dtype or device 'torch.float32'; it is called 'float32' here", function() x:to "torch.float32" end},
    {"tensor has no method or field 'type'; write x:to(\"float32\"); x.dtype is the type it has",
        function() x:type("float32") end},
    {"cuda: x must be a tensor, got nothing; a method is called with a colon: x:cuda()", function() x.cuda() end},
    {"cuda: index must be a whole number, got string", function() x:cuda "gpu" end},
    {"to: unknown device 'cuda:-1'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"", function() x:cuda(-1) end},
    {"to: unknown option 'blocking'", function() x:cuda {blocking = true} end},
    {"tensor has no method or field 'numpy'; write x:totable() for nested lists, flow.save for a file that Python's safetensors reads",
        function() x:numpy() end},
    {"tensor has no method or field 'data'; write x:detach()", function() return x.data end},
    {"tensor has no method or field 'is_cuda'; write x.device:find(\"cuda\")", function() return x.is_cuda end},
    {"tensor has no method or field 'symeig'; write flow.linalg.eigh(x)", function() x:symeig() end},
    {"tensor has no method or field 'softmax_': softmax does not work in place; write y = x:softmax(...)",
        function() x:softmax_(0) end},
    {"tensor has no method or field 'unsqueeze_': unsqueeze does not work in place; write y = x:unsqueeze(...)",
        function() x:unsqueeze_(0) end},
    {"tensor has no method or field 'eq_': eq does not work in place; write y = x:eq(...)", function() x:eq_(1) end},
    {"tensor has no method or field 'isnan_': isnan does not work in place; write y = x:isnan(...)",
        function() x:isnan_() end},
    {"tensor has no method or field 'where_'; write x = flow.where(cond, x, y)", function() x:where_(x, x) end},
    {"tensor has no method or field 'Sum'; did you mean 'sum'?", function() x:Sum() end},
    {"tensor has no method or field 'maxtul'; did you mean 'matmul'?", function() x:maxtul(x) end},
    {"vmap: f must be a function, got float32 tensor", function() flow.vmap(x) end},
    {"linalg has no 'svdval'; did you mean 'svdvals'?", function() flow.linalg.svdval(x) end},
    {"flow has no 'float32'; a dtype is a string: \"float32\"", function() flow.float32() end},
    {"flow has no 'long'; a dtype is a string: \"int64\"", function() flow.long() end},
    {"cuda has no 'set_device'; write flow.set_default_device(\"cuda:1\"), or x:cuda(1)", function() flow.cuda.set_device(1) end},
    {"flow has no 'device'; a device is a string: \"cpu\", \"cuda\", \"cuda:1\"", function() flow.device("cpu") end},
    {"flow has no 'FloatTensor'; write flow.tensor(data, {dtype = \"float32\"})", function() flow.FloatTensor(2) end},
    {"flow has no 'from_numpy'; it is called 'tensor' here", function() flow.from_numpy(x) end},
    {"flow has no 'Tensor'; it is called 'tensor' here", function() flow.Tensor(2) end},
    {"set_default_dtype: unknown dtype 'flaot64'; did you mean 'float64'?", function() flow.set_default_dtype("flaot64") end},
    {"nn has no 'CrossEntropy'; did you mean 'CrossEntropyLoss'?", function() nn.CrossEntropy() end},
    {"nn has no 'MSE'; did you mean 'MSELoss'?", function() nn.MSE() end},
    {"nn has no 'LayerNormalization'; did you mean 'LayerNorm'?", function() nn.LayerNormalization(3) end},
    {"nn has no 'LinearActivationUnit'", function() nn.LinearActivationUnit() end},
    {"nn has no 'Li'", function() nn.Li() end},
    {"nn has no 'Relu'; did you mean 'ReLU'?", function() nn.Relu() end},
    {"nn has no 'relu'; did you mean 'ReLU', or flow.relu?", function() nn.relu(x) end},
    {"nn has no 'cross_entropy'; write flow.cross_entropy", function() nn.cross_entropy(x, x) end},
    {"nn has no 'clip_grad_norm_'; write flow.nn.utils.clip_grad_norm_", function() nn.clip_grad_norm_({x}, 1) end},
    {"flow has no 'AdamW'; write flow.optim.AdamW", function() flow.AdamW {x} end},
    {"flow has no 'Linear'; did you mean 'linear', or flow.nn.Linear?", function() flow.Linear(2, 2) end},
    {"flow has no 'DataLoader'; write flow.data.loader(dataset, {batch_size = 64})", function() flow.DataLoader(x) end},
    {"optim has no 'StepLR'; write flow.optim.lr_scheduler.StepLR", function() optim.StepLR(1) end},
    {"LSTM: proj_size must be smaller than hidden_size 4, got 4", function() nn.LSTM(3, 4, {proj_size = 4}) end},
    {"LSTM: x must be [steps, batch, 3] or [steps, 3], got [2, 2, 5]", function() nn.LSTM(3, 4):forward(flow.ones(2, 2, 5)) end},
    {"LSTM: hx must be {h0, c0}, got float32 tensor", function()
        nn.LSTM(3, 4):forward(flow.ones(2, 2, 3), flow.ones(1, 2, 4))
    end},
    {"GRU: h0 must be [1, 2, 4], got [1, 3, 4]", function() nn.GRU(3, 4):forward(flow.ones(2, 2, 3), flow.ones(1, 3, 4)) end},
    {"RNN: takes sequences of at least one step, got [0, 2, 3]", function() nn.RNN(3, 4):forward(flow.ones(0, 2, 3)) end},
    {"GRUCell: h must be [2, 4], got [2, 3]", function() nn.GRUCell(3, 4):forward(flow.ones(2, 3), flow.ones(2, 3)) end},
    {"pack_padded_sequence: lengths must be in falling order; write enforce_sorted = false", function()
        nn.utils.rnn.pack_padded_sequence(flow.ones(3, 2, 1), {1, 3})
    end},
    {"pack_padded_sequence: length 4 is more than the 3 steps of input", function()
        nn.utils.rnn.pack_padded_sequence(flow.ones(3, 2, 1), {4, 3})
    end},
    {"nn has no 'DataParallel'; write net:to_global {placement = flow.placement.all(\"cpu\"), sbp = \"B\"}; the gradients are summed over the ranks",
        function() nn.DataParallel(x) end},
    {"optim has no 'LRScheduler'; it is called 'Scheduler' here", function() optim.LRScheduler() end},
    {"optim has no 'Adma'; did you mean 'Adam'?", function() optim.Adma {} end},
    {"bitwise_and: takes no float32 tensors", function() return x & x end},
    {"bitwise_or: takes no float32 tensors", function() return x | 1 end},
    {"bitwise_not: takes no float32 tensors", function() return ~x end},
    {"bitwise_xor: takes no float32 tensors", function() return x ~ x end},
    {"bitwise_left_shift: takes no float32 tensors", function() return x << 1 end},
    {"index: position 2 is out of range for axis 0 of [2, 3]; ipairs counts from 1, tensors from 0: write for i, row in pairs(x) do ... end",
        function() for _ in ipairs(x) do end end},
    {"a tensor cannot be called; index it with x[i]; to iterate write for i, row in pairs(x) do ... end",
        function() return x(0) end},
    {"sum: unknown option 'dim'; it is called 'axis' here", function() x:sum {dim = 1} end},
    {"softmax: unknown option 'dim'; it is called 'axis' here", function() x:softmax {dim = 1} end},
    {"sum: unknown option 'keepdims'; it is called 'keepdim' here", function() x:sum(0, {keepdims = true}) end},
    {"cat: unknown option 'dim'; it is called 'axis' here", function() flow.cat({x, x}, {dim = 1}) end},
    {"cat: xs is a list, but has the key 'dim'; put options in a separate table",
        function() flow.cat {x, x, dim = 1} end},
    {"cat: xs must be a list of tensors, got tensor; write flow.cat({x, y})", function() flow.cat(x, x) end},
    {"stack: xs must be a list of tensors, got tensor; write flow.stack({x, y})", function() flow.stack(x, x) end},
    {"zeros: options go in a table: {dtype = \"float64\"}", function() flow.zeros({2, 3}, "float64") end},
    {"zeros: options go in a table: {device = \"cuda\"}", function() flow.zeros(2, 3, "cuda") end},
    {"zeros: unknown dtype 'float'; it is called 'float32' here", function() flow.zeros(2, 3, {dtype = "float"}) end},
    {"zeros: unknown dtype 'long'; it is called 'int64' here", function() flow.zeros(2, 3, {dtype = "long"}) end},
    {"tensor: data is one list, and options have names: flow.tensor({{1, 2}, {3, 4}}, {dtype = \"float32\"})",
        function() flow.tensor({1, 2}, {3, 4}) end},
    {"tensor: options go in a table: {dtype = \"float32\"}", function() flow.tensor({1, 2}, "float32") end},
    {"tensor: data is a list, but has the key 'dtype'; put options in a separate table",
        function() flow.tensor {1, 2, dtype = "float32"} end},
    {"tensor: data[2] is a list, but has the key 'dtype'; put options in a separate table",
        function() flow.tensor {{1, 2}, {3, 4, dtype = "float32"}} end},
    {"tensor: too many arguments: tensor(data, options); data is one value or one list",
        function() flow.tensor(1, 2, 3) end},
    {"reshape: one argument too many, which is nil (a misspelt variable?): reshape(x, size: sizes)",
        function() x:reshape(2, nil) end},
    {"view: size must be a whole number or a list of them, got string", function() x:view("2, 3") end},
    {"transpose: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() x:transpose(1, 2) end},
    {"permute: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() x:permute(1, 2) end},
    {"sum: axis must be a whole number or a list of them, got string", function() x:sum("0") end},
    {"sum: keepdim must be true or false, got string", function() x:sum(0, "true") end},
    {"relu: x must be a tensor, got number; write x:relu(...) or flow.relu(x, ...)", function() flow.relu(3) end},
    {"exp: x must be a tensor, got string; write x:exp(...) or flow.exp(x, ...)", function() flow.exp("1") end},
    {"exp: x must be a tensor, got table; flow.tensor makes one of a list", function() flow.exp {1, 2} end},
    {"gather: index must be a tensor, got table; flow.tensor makes one of a list", function() x:gather(0, {0, 1}) end},
    {"index_select: index must be a tensor, got number", function() x:index_select(0, 1) end},
    {"masked_fill: missing argument 'value'", function() x:masked_fill(x:gt(0)) end},
    {"where: cond must be a tensor, got boolean", function() flow.where(true, x, x) end},
    {"where: y must be a tensor or a number, got string", function() flow.where(x:gt(0), x, "1") end},
    {"pow: y must be a tensor or a number, got string", function() x:pow("2") end},
    {"mul: y must be a tensor or a number, got nil", function() return x * nil end},
    {"a tensor cannot be concatenated with ..; use tostring(x), x:item() or flow.cat", function() return "a" .. x end},
    {"index: \"1, x\" is not an index; an index is like \"0, 1:3, :, -1\"", function() return x["1, x"] end},
    {"tensor has no method or field 'a'", function() return x["a"] end},
    {"index: position 3 is out of range for axis 0 of [3]", function() return x[{0, 3}] end},
    {"index: 3 entries for a tensor of shape [2, 3]", function() return x[{1, 2, 3}] end},
    {"index: positions must be integers, a mask bool; this is float32", function() return x[flow.tensor {0.5}] end},
    {"index: src [2] does not broadcast to x [3]", function() x[0] = {1, 2} end},
    {"index: the value assigned must be a tensor, a number or a list, got nil", function() x[0] = nil end},
    {"tensor has no method or field 'foo'", function() x.foo = 1 end},
    {"requires_grad must be true or false, got number", function() x.requires_grad = 1 end},
    {"backward: this tensor does not require grad: nothing it was computed from has requires_grad = true",
        function() x:backward() end},
    {"add_: this tensor is a leaf that requires grad, and cannot be changed in place; do it inside flow.no_grad()",
        function() flow.ones(3):requires_grad_():add_(1, {alpha = 2}) end},
    {"nan_to_num_: this tensor is expanded (several positions share one element), so it cannot be written in place; use clone() first",
        function() flow.ones(1):expand(3):nan_to_num_() end},
    {"add_: this tensor is a leaf that requires grad, and cannot be changed in place; do it inside flow.no_grad()",
        function() flow.ones(2, {requires_grad = true}):add_(1) end},
    {"mean: takes a float tensor, x is int64[4]; write x:to(\"float32\")", function() flow.arange(4):mean() end},
    {"softmax: takes a float tensor, x is int64[4]; write x:to(\"float32\")", function() flow.arange(4):softmax(0) end},
    {"randint: missing argument 'high': randint(low: int, high: int, size: sizes, options)",
        function() flow.randint(10) end},
    {"full: too many arguments: full(size: sizes, value: scalar, options)", function() flow.full(2, 3, 1) end},
    {"einsum: 'ij,jk->ik' describes 2 operands, got 1", function() flow.einsum("ij,jk->ik", x) end},
    {"einsum: equation must be a string, got tensor", function() flow.einsum(x, x, "ij,jk") end},
    {"cross_entropy: target must be a tensor, got table; flow.tensor makes one of a list",
        function() flow.cross_entropy(x, {0, 1}) end},
    {"cross_entropy: weight must be a tensor, got string; options go in a table: {reduction = \"sum\"}",
        function() flow.cross_entropy(x, flow.tensor {0, 1}, "sum") end},
    {"cross_entropy: unknown option 'reduce'; it is called 'reduction' here",
        function() flow.cross_entropy(x, flow.tensor {0, 1}, {reduce = "sum"}) end},
    {"embedding: indices must be integers, got float32[2, 3]", function() flow.embedding(x, x) end},
    {"no_grad: takes a function, or nothing: local _ <close> = flow.no_grad()", function() flow.no_grad(x) end},
    {"save: takes a table, got tensor; write flow.save(path, {x = x})", function() flow.save("x.safetensors", x) end},
    {"save: takes a path and a table, flow.save(\"x.safetensors\", {x = x}), got tensor",
        function() flow.save(x, "x.safetensors") end},
    {"placement: unknown device 'gpu'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"",
        function() flow.placement("gpu", {0}) end},
    {"to_global: a local tensor needs placement and sbp: x:to_global{placement = p, sbp = \"B\"}",
        function() x:to_global {sbp = "B"} end},
    {"has: name must be a string, as \"matmul\", \"nn.Linear\" or \"x:sum\", got number", function() flow.has(3) end},
})

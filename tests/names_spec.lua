-- names_spec.lua -- what is asked for by a name that flow does not have: names from PyTorch, flow.has, a dot for a colon.
local flow = require "flow"
local lazy_names = require "flow.lazy_names"
local nn, optim = flow.nn, flow.optim
local message_of = require("tests.support").placed_message_of
local process = require "tests.process"

local x = flow.zeros(2, 3)

describe("a method with a dot", function()
    it("of an own module says to use a colon", function()
        local Net = nn.Module:extend("Net")
        function Net:init() self.fc = nn.Linear(3, 2) end
        function Net:forward(y) return self.fc(y) end
        local net = Net()
        assert.are.equal("tensor has no method or field 'fc'; self is a tensor here: a method is called with a colon, net:forward(x)",
            message_of(function() net.forward(x) end))
    end)
end)

describe("arguments that are wrong", function()
    it("are refused by functions and objects written in Lua", function()
        local ds, F = flow.data.tensors(flow.ones(3)), nn.functional
        local lbfgs, sequences = optim.LBFGS({nn.Parameter(flow.ones(2))}), nn.utils.rnn.pack_sequence({flow.ones(2)})
        local positions = "batch: positions must be a 1-D local tensor of whole numbers, got "
        for want, f in pairs {
            ["relu: missing argument 'x' (a method is called with a colon: x:relu())"] = function() F.relu() end,
            ["alpha_dropout: x must be a tensor, got 3"] = function() F.alpha_dropout(3, 0.5, true, true) end,
            ["StackTransform: entry 2 of tseq must be a transform, got 0"] = function()
                local T = flow.distributions.transforms
                T.StackTransform {T.ExpTransform(), 0}
            end,
            ["ComposeTransform: entry 1 of parts must be a transform, got table"] = function() flow.distributions.transforms.ComposeTransform {{}} end,
            ["relu: inplace must be true or false, got 3"] = function() F.relu(x, 3) end,
            ["cumsum_: missing argument 'x'"] = function() x.cumsum_() end,
            ["sum_to_size: a size must be a whole number, got table"] = function() x:sum_to_size {{}} end,
            ["new_full: options must be a table, got true"] = function() x:new_full(2, 1, true) end,
            ["invert_permutation: permutation must have one axis, got [2, 2]"] = function() nn.utils.rnn.invert_permutation(flow.zeros(2, 2)) end,
            ["invert_permutation: permutation must hold each of 0 to 1 once"] = function() nn.utils.rnn.invert_permutation(flow.tensor {1, 1}) end,
            ["pack_sequence: sequence 1 must be a tensor with axes, got 1"] = function() nn.utils.rnn.pack_sequence {1} end,
            ["to: a method is called with a colon, packed:to(); got 3 as the packed"] = function() sequences.to(3) end,
            ["state_dict: a method is called with a colon, optimizer:state_dict(); got nil as the optimizer"] = function() lbfgs.state_dict() end,
            ["load_state_dict: state must be what state_dict gave, got 3"] = function() lbfgs:load_state_dict(3) end,
            ["add_param_group: LBFGS has one group of parameters, which are one vector"] = function() lbfgs:add_param_group {params = {}} end,
            [positions .. "3"] = function() flow.data.concat(ds, ds):batch(3) end,
            [positions .. "nil"] = function() flow.data.subset(ds, {0}).batch() end,
        } do assert.are.equal(want, message_of(f)) end
    end)
end)

describe("a function of an op", function()
    -- The output of a new process.
    local function output(code)
        return process.output(("%s -e '%s' 2>&1"):format(process.flowlua, code))
    end

    it("is made when its name is read, once for all that have it", function()
        assert.are.equal("nil\ttrue\ttrue\ttrue\n", output([[
            local before, x = rawget(flow, "cosh"), flow.ones(2)
            print(before, flow.cosh == x.cosh, rawequal(flow._op.cosh, flow.cosh), rawequal(x.max, flow.max))]]))
        assert.are.equal("true\ttrue\ttrue\n", output([[
            local x = flow.ones(2)
            print(rawequal(x.negative_, x.neg_), rawequal(flow.negative, x.neg), x.repeat_interleave ~= x.polygamma)]]))
    end)

    it("is not made again where a script has another one", function()
        assert.are.equal("mine\tfunction\n", output([[
            function flow.cosh() return "mine" end
            local f = flow.ones(2).cosh
            print(flow.cosh(), type(f))]]))
    end)

    it("is listed once", function()
        for _, holder in ipairs {flow, flow._methods, flow._op, nn, flow.data, flow.linalg} do
            local seen = {}
            for _, name in ipairs(lazy_names.of(holder)) do
                assert.is_nil(seen[name], name)
                seen[name] = true
            end
        end
    end)

    it("is there for pairs before it was read", function()
        for _, holder in ipairs {"flow", "flow._methods", "flow._op"} do
            assert.are.equal("function\tfunction\n", output(([[
                local found = {}
                for name, value in pairs(%s) do found[name] = type(value) end
                print(found.cosh, found.sum)]]):format(holder)))
        end
    end)

    it("is suggested, and named in tracebacks, before it was read", function()
        assert.matches("did you mean 'cosh'", output "flow.coshh(1)")
        assert.matches("did you mean 'cosh'", output "flow.ones(2):coshh()")
        assert.matches("in function 'flow.cosh'", output "flow.ones(2):cosh(1, 2)")
    end)
end)

describe("names from PyTorch", function()
    local renamed, advice = flow._testing.ported()
    local holders = {tensor = flow._methods, flow = flow, nn = nn, optim = optim, data = flow.data, ["nn.utils"] = nn.utils,
        ["nn.init"] = nn.init, ["nn.functional"] = nn.functional, ["nn.attention"] = nn.attention, cuda = flow.cuda,
        autograd = flow.autograd, linalg = flow.linalg, special = flow.special,
        loader = {}, option = {}, ["linalg.diagonal"] = {offset = 0, axis0 = 0, axis1 = 1}}      -- the options of that function, of any op

    for _, op in ipairs(flow._testing.ops()) do
        for _, entry in ipairs(advice) do
            if entry[1] == op.name then
                holders[op.name] = {}
                for name in op.sig:gmatch "([%w_]+):" do holders[op.name][name] = true end
            end
        end
    end

    it("that exist are not explained", function()
        for _, entry in ipairs(advice) do
            local place, word = entry[1], entry[2]
            assert.is_table(holders[place], place)
            assert.is_nil(lazy_names.get(holders[place], word), ("%s has %s"):format(place, word))
        end
    end)

    it("are explained once", function()
        local seen = {}
        for _, entry in ipairs(advice) do
            local key = entry[1] .. "." .. entry[2]
            assert.is_nil(seen[key], key)
            seen[key] = true
        end
    end)

    it("stand for names that exist", function()
        local known = {cuda = true, batch_size = true}
        for _, op in ipairs(flow._testing.ops()) do
            for name in op.sig:gmatch("[%w_]+") do known[name] = true end
        end
        for _, name in ipairs {"float16", "bfloat16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool"} do known[name] = true end
        for _, class in ipairs {optim.AdamW, optim.SGD} do
            for name in pairs(class.defaults) do known[name] = true end
        end
        local original = require "flow.check".original
        for _, name in ipairs {"Conv2d", "BatchNorm2d", "LayerNorm", "Linear", "GroupNorm", "Embedding", "AdaptiveAvgPool2d"} do
            for parameter in select(2, original(nn[name].init)):gmatch "([%w_]+): " do known[parameter] = true end
        end
        for _, entry in ipairs(lazy_names.of(flow.data)) do
            local _, usage = original(flow.data[entry])
            for name in (usage or ""):gmatch "([%w_]+): " do known[name] = true end
        end
        local lost = {}
        for _, entry in ipairs(renamed) do
            local name, found = entry[2], known[entry[2]]
            for _, holder in pairs(holders) do found = found or lazy_names.get(holder, name) ~= nil end
            if not found then lost[#lost + 1] = entry[1] .. " -> " .. name end
        end
        assert.are.same({}, lost)
    end)

    it("are explained where they are options", function()
        local dataset = flow.data.tensors(x)
        for option, want in pairs {
            num_workers = "; it is called 'workers' here", collate_fn = "; it is called 'collate' here",
            pin_memory = "; write device = \"cuda\": workers then make batches in pinned memory",
        } do
            assert.are.equal(("loader: unknown option '%s'%s"):format(option, want),
                message_of(function() flow.data.loader(dataset, {[option] = true}) end))
        end
    end)

    it("are explained where they are options of ops", function()
        local g = flow.generator(1)
        local cast = "; write x:to(\"float32\"):"
        for want, f in pairs {
            ["div: unknown option 'rounding_mode'; write x // y, which is flow.floor_divide, or flow.trunc(x / y)"] = function()
                flow.div(x, x, {rounding_mode = "floor"})
            end,
            ["softmax: unknown option 'dtype'" .. cast .. "softmax(-1)"] = function() x:softmax(-1, {dtype = "float32"}) end,
            ["log_softmax: unknown option 'dtype'" .. cast .. "log_softmax(-1)"] = function() x:log_softmax {axis = -1, dtype = "float32"} end,
            ["flip: unknown option 'dims'; it is called 'axes' here"] = function() x:flip {dims = {0}} end,
            ["roll: unknown option 'dims'; it is called 'axes' here"] = function() x:roll {shifts = 1, dims = 0} end,
            ["permute: unknown option 'dims'; it is called 'axes' here"] = function() x:permute {dims = {1, 0}} end,
            ["rot90: unknown option 'dims'; it is called 'axes' here"] = function() x:rot90 {dims = {1, 0}} end,
            ["scaled_dot_product_attention: unknown option 'attn_mask'; it is called 'mask' here"] = function()
                flow.scaled_dot_product_attention(x, x, x, {attn_mask = x})
            end,
            ["var: unknown option 'unbiased'; write correction = 0 for unbiased = false"] = function() x:var {unbiased = false} end,
            ["std: unknown option 'unbiased'; write correction = 0 for unbiased = false"] = function() x:std {axis = 0, unbiased = false} end,
            ["diagonal: unknown option 'dim1'; axes are numbered from 0: dim1 and dim2 are axis0 and axis1 here"] = function()
                x:diagonal {dim1 = 0}
            end,
            ["linalg.diagonal: unknown option 'dim1'; axes are numbered from 0: dim1 and dim2 are axis0 and axis1 here"] = function()
                flow.linalg.diagonal(x, {dim1 = 0, dim2 = 1})
            end,
            ["diag_embed: unknown option 'axis2'; NumPy's axis1 and axis2 are axis0 and axis1 here"] = function() x:diag_embed {axis2 = 1} end,
            ["transpose: unknown option 'dim0'; it is called 'axis0' here"] = function() x:transpose {dim0 = 0, axis1 = 1} end,
            ["rand: unknown option 'generator'; write flow.with_generator(g, f), or local _ <close> = flow.with_generator(g)"] = function()
                flow.rand({2}, {generator = g})
            end,
            ["bernoulli: unknown option 'generator'; write flow.with_generator(g, f), or local _ <close> = flow.with_generator(g)"] = function()
                x:bernoulli {generator = g}
            end,
            ["norm: p must be a number, got string; write flow.linalg.matrix_norm(x, \"nuc\")"] = function() x:norm "nuc" end,
            ["norm: p must be a number, got string; write x:norm(), or flow.linalg.matrix_norm(x) for each of many matrices"] = function()
                flow.norm(x, "fro", {axis = {0, 1}})
            end,
            ["norm: p must be a number, got string"] = function() x:norm "f" end,
            ["checkpoint: has no options; leave out use_reentrant"] = function()
                flow.checkpoint(function(y) return y end, x, {use_reentrant = false})
            end,
            ["autocast: the options are {enabled = true} or {enabled = false}"] = function() flow.autocast("bfloat16", {cache_enabled = true}) end,
        } do assert.are.equal(want, message_of(f)) end
    end)

    it("and what is meant are told apart from what merely looks alike", function()
        local names = {"std", "sum", "log", "MSELoss", "matmul", "relu", "tanh", "elu", "index_select", "cov", "conv2d", "conv1d", "AvgPool2d"}
        for word, want in pairs {
            stft = "", long = "; did you mean 'log'?", BCELoss = "", som = "; did you mean 'sum'?", smu = "; did you mean 'sum'?",
            matmull = "; did you mean 'matmul'?", mamtul = "; did you mean 'matmul'?", Matmul = "; did you mean 'matmul'?",
            atmul = "; did you mean 'matmul'?", selu = "", celu = "", rely = "; did you mean 'relu'?", sin = "", x = "",
            indexselect = "; did you mean 'index_select'?", index_put = "", [""] = "",
            conv = "; did you mean 'conv1d'?", AvgPool = "; did you mean 'AvgPool2d'?", c = "",
        } do
            assert.are.equal(want, flow._io.suggest(word, names), word)
        end
    end)
end)

describe("a name of several ops", function()
    it("stays one when one of the ops was read first", function()
        assert.are.equal("0 2\t1\n", (process.run("", [[
            local flow = require "flow"
            local _ = flow._op.where, flow._op.nonzero
            local mask = flow.tensor {1, 0, 1}:gt(0)
            print(table.concat(flow.where(mask):tolist(), " "), #{flow.nonzero(mask, {as_tuple = true})})]])))
    end)
end)

describe("flow.has", function()
    for _, name in ipairs {
        "matmul", "tensor", "placement", "save", "has", "nn", "nn.Linear", "nn.Linear.forward", "nn.init", "optim.AdamW",
        "optim.AdamW.step", "data.loader", "engine.stats", "sbp.split", "x:sum", "x.sum", "x:add_", "x.shape", "x:backward",
        "flow.sum", "flow.nn.Linear", "stft", "fft.rfft",
    } do
        it("finds " .. name, function() assert.is_true(flow.has(name)) end)
    end
    for _, name in ipairs {
        "cdist_", "nn.LSTN", "x:stft", "x:eq_", "_op", "_testing.ops", "check", "nn.Linear._x", "matmul.x", "", ".", "nn.", "x:", "x",
        "x.", "version.x", "optim.AdamW.nothing", "flow.", "flow.cdist_", "flow",
    } do
        it("does not find '" .. name .. "'", function() assert.is_false(flow.has(name)) end)
    end
end)

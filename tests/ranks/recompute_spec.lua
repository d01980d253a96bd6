-- recompute_spec.lua -- flow.checkpoint of global tensors: every rank computes the same again, so collectives match, and
-- gradients, losses and random numbers have the bits that they have without it.
local flow = require "flow"
local nn, optim = flow.nn, flow.optim

local everywhere = flow.placement.all "cpu"

local function plain(f, ...) return f(...) end

local Block = nn.Module:extend "Block"
function Block:init(width)
    self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
    self.attention = nn.CausalSelfAttention(width, 3, {dropout = 0.2})
    self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    self.dropout = nn.Dropout(0.2)
end
function Block:forward(x)
    x = x + self.dropout(self.attention(self.norm1(x)))
    return x + self.dropout(self.mlp(self.norm2(x)))
end

-- The results of training with these options and SBPs: losses, a parameter, and the next random numbers.
local function train(call, options, sbp, extra)
    flow.manual_seed(4)
    local net = nn.ModuleList()
    for _ = 1, 3 do net:append(Block(12)) end
    net:to_global(options)
    local optimizer = optim.AdamW(net:parameters(), {lr = 1e-3})
    local x = flow.randn({7, 5, 12}, {placement = everywhere, sbp = sbp})
    local losses = {}
    for step = 1, 6 do
        local h = x
        for _, block in ipairs(net) do h = call(block, h) end
        local loss = h:square():mean()
        optimizer:zero_grad()
        if extra then extra(net, loss) else loss:backward() end
        optimizer:step()
        losses[step] = loss:item()
    end
    return {losses, net[1].mlp[1].weight:totable(), net[3].norm2.bias:totable(), flow.rand(3):totable()}
end

local function compare(...)
    assert.are.same(train(plain, ...), train(flow.checkpoint, ...))
end

describe("flow.checkpoint over ranks", function()
    it("has the bits of data parallel training", function() compare({placement = everywhere, sbp = "B"}, "S(0)") end)

    it("has the bits of model parallel training", function()
        local rules = {{"mlp%.1", "S(0)"}, {"mlp%.3%.weight", "S(1)"}}
        compare({placement = everywhere, sbp = "B", rules = rules}, "B")
    end)

    it("has the bits of training whose parameters are gathered where they are used", function()
        compare({placement = everywhere, sbp = "B", zero = 0}, "S(0)")
    end)

    it("has the bits of gradients that are kept back", function()
        compare({placement = everywhere, sbp = "B"}, "S(0)", function(net, loss)
            flow.no_sync(function() loss:backward({retain_graph = true}) end)
            loss:backward()
            assert.is_truthy(net[1].norm1.weight.grad)
        end)
    end)

    it("moves what f moves", function()
        local gradients = {}
        for i, call in ipairs {plain, flow.checkpoint} do
            flow.manual_seed(9)
            local w = flow.randn({5, 6}, {placement = everywhere, sbp = "S(1)", requires_grad = true})
            local x = flow.randn({4, 5}, {placement = everywhere, sbp = "S(0)"})
            local y = call(function(a)
                local h = a:matmul(w:to_global {sbp = "B"}):sigmoid():to_global {sbp = "S(1)"}
                local inner = call(function(b) return b:dropout(0.3):exp():to_global {sbp = "B"}:tanh() end, h)
                return (inner * h:sum(0)):to_local():exp()
            end, x)
            y:sum():backward()
            gradients[i] = {w.grad:totable(), flow.rand(2, {placement = everywhere, sbp = "B"}):totable()}
        end
        assert.are.same(gradients[1], gradients[2])
    end)
end)

-- lora.lua -- LoRA: a frozen transformer whose weights get a product of low rank by parametrizations; the trained part,
-- kept and merged.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim, F = flow.nn, flow.optim, flow.nn.functional
local parametrize = nn.utils.parametrize

local LoRA = nn.Module:extend("LoRA")

function LoRA:init(outputs, inputs, rank, alpha)
    self.A = nn.Parameter(flow.empty(rank, inputs, {dtype = "float64"}))
    self.B = nn.Parameter(flow.zeros(outputs, rank, {dtype = "float64"}))
    self.scale = alpha / rank
    flow.no_grad(function() self.A:copy_(fill.values({rank, inputs}, 9)) end)
end

function LoRA:forward(W) return W + self.scale * self.B:matmul(self.A) end

return function(capture)
    local base = fill.module(nn.Sequential(
        nn.TransformerEncoderLayer(8, 2, 16, {dropout = 0.0, batch_first = true, activation = "gelu"}), nn.Linear(8, 5)))
    base:requires_grad_(false)
    local targets = {}
    for name, part in base:named_modules() do
        if name == "1.linear1" or name == "1.linear2" or name == "2" then
            parametrize.register_parametrization(part, "weight", LoRA(part.outputs, part.inputs, 2, 4))
            targets[name] = part
        end
    end
    local trained, count = {}, 0
    for _, p in ipairs(base:parameters()) do
        if p.requires_grad then trained[#trained + 1], count = p, count + p:numel() end
    end
    local optimizer = optim.AdamW(trained, {lr = 5e-2})
    local x, y = fill.values({4, 6, 8}, 1, 4), fill.integers({4}, 2, 5)
    local step = capture(function()
        optimizer:zero_grad()
        local loss = F.cross_entropy(base(x):mean(1), y)
        loss:backward()
        optimizer:step()
        return loss
    end)
    local losses = {}
    for i = 1, 6 do losses[i] = step():item() end
    local kept = 0
    for name in pairs(base:state_dict()) do
        if name:find "%.A$" or name:find "%.B$" then kept = kept + 1 end
    end
    local before = base(x):mean(1)
    local cached = parametrize.cached(function() return base(x):mean(1) end)
    for _, part in pairs(targets) do parametrize.remove_parametrizations(part, "weight", true) end
    local merged = base(x):mean(1)
    return {losses = losses, count = count, kept = kept, before = before[0], cached = cached[0], merged = merged[0]}
end

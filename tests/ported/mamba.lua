-- mamba.lua -- Mamba: blocks of a selective scan, a state whose steps depend on the input; tied weights, two groups of
-- parameters, a warm-up by hand.
local flow = require "flow"
local fill = require "tests.ported.fill"
local nn, optim = flow.nn, flow.optim

local SelectiveScan = nn.Module:extend("SelectiveScan")

function SelectiveScan:init(width, inner, state, rank)
    self.inner, self.state, self.rank = inner, state, rank
    self.A_log = nn.Parameter(flow.arange(1, state + 1):double():log():tile(inner, 1))
    self.D = nn.Parameter(flow.ones(inner))
    self.in_proj = nn.Linear(width, 2 * inner, {bias = false})
    self.conv = nn.Conv1d(inner, inner, 3, {groups = inner, padding = 2})
    self.x_proj = nn.Linear(inner, rank + 2 * state, {bias = false})
    self.dt_proj = nn.Linear(rank, inner)
    self.out_proj = nn.Linear(inner, width, {bias = false})
end

function SelectiveScan:forward(input)
    local steps = input:size(1)
    local x, z = self.in_proj(input):chunk(2, -1)
    x = flow.silu(self.conv(x:transpose(1, 2))[{"...", {0, steps}}]:transpose(1, 2))
    local dt, B, C = self.x_proj(x):split({self.rank, self.state, self.state}, -1)
    dt = flow.softplus(self.dt_proj(dt))
    local decay = flow.einsum("bld,dn->bldn", dt, -flow.exp(self.A_log)):exp()
    local given = flow.einsum("bld,bln,bld->bldn", dt, B, x)
    local h, ys = x:new_zeros(x:size(0), self.inner, self.state), {}
    for t = 0, steps - 1 do
        h = decay[{{}, t}] * h + given[{{}, t}]
        ys[#ys + 1] = flow.einsum("bdn,bn->bd", h, C[{{}, t}])
    end
    local y = flow.stack(ys, 1) + x * self.D
    return self.out_proj(y * flow.silu(z))
end

local Mamba = nn.Module:extend("Mamba")

function Mamba:init()
    self.embed = nn.Embedding(20, 8)
    self.blocks = nn.ModuleList(SelectiveScan(8, 12, 4, 2), SelectiveScan(8, 12, 4, 2))
    self.norms = nn.ModuleList(nn.RMSNorm(8, {eps = 1e-5}), nn.RMSNorm(8, {eps = 1e-5}))
    self.norm = nn.RMSNorm(8, {eps = 1e-5})
    self.head = nn.Linear(8, 20, {bias = false})
    self.head.weight = self.embed.weight
end

function Mamba:forward(ids)
    local x = self.embed(ids)
    for i, block in ipairs(self.blocks) do x = x + block(self.norms[i](x)) end
    return self.head(self.norm(x))
end

return function(capture)
    local model = fill.module(Mamba())
    local decays, others = {}, {}
    for _, p in ipairs(model:parameters()) do
        local list = p.ndim >= 2 and decays or others
        list[#list + 1] = p
    end
    local optimizer = optim.AdamW({{params = decays, weight_decay = 0.1}, {params = others, weight_decay = 0}}, {lr = 2e-2})
    local tokens = fill.integers({3, 9}, 7, 20)
    local step = capture(function()
        optimizer:zero_grad()
        local scores = model(tokens[{{}, {0, 8}}])
        local loss = flow.cross_entropy(scores:flatten(0, 1), tokens[{{}, {1, 9}}]:flatten())
        loss:backward()
        optimizer:step()
        return loss
    end)
    local losses = {}
    for i = 1, 6 do
        for _, group in ipairs(optimizer.param_groups) do group.lr = 2e-2 * math.min(1, i / 3) end
        losses[i] = step():item()
    end
    return {losses = losses, count = #model:parameters(), A = model.blocks[1].A_log[0], scores = model(tokens)[{1, -1}]}
end

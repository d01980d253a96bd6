-- formula.lua -- an activation in one line: one kernel, its gradient, its tests; in a network like any other.

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

flow.op{name = "swish", formula = "x * sigmoid(beta * x)", attrs = "beta: float = 1"}
print(flow.testing.check_op "swish")
--> true

-- beta is learnt here: as an operand it has a gradient.
flow.op{name = "swish_by", formula = "x * sigmoid(beta * x)"}

local Swish = nn.Module:extend("Swish")

function Swish:init()
    self.beta = nn.Parameter(flow.ones(1))
end

function Swish:forward(x)
    return x:swish_by(self.beta)
end

flow.manual_seed(2)
local x = flow.linspace(-2, 2, 64):unsqueeze(1)
local net = nn.Sequential(nn.Linear(1, 16), Swish(), nn.Linear(16, 1))
local opt = optim.Adam(net:parameters(), {lr = 0.02})
local first, last
for step = 1, 200 do
    opt:zero_grad()
    local loss = flow.mse_loss(net(x), x:sin())
    loss:backward()
    opt:step()
    if step == 1 then first = loss:item() end
    last = loss:item()
end
print(last < first / 100, net[2].beta:item() ~= 1)
--> true	true

-- An error names the place.
print(select(2, pcall(flow.op, {name = "bad", formula = "x * sgmoid(x)"})):match "character.*")
--> character 5: unknown function 'sgmoid'; did you mean 'sigmoid'?

-- layers.lua -- constructors and inputs of every class of nn, for specs that go through all of them; a class that is not here
-- fails those.
local flow = require "flow"

local function image() return flow.randn(2, 3, 8, 8) end
local function row() return flow.randn(2, 6) end
return {
    Linear = {{6, 4}, row}, Embedding = {{10, 4}, function() return flow.tensor {{1, 2}, {3, 9}} end},
    LayerNorm = {{6}, row}, Dropout = {{0.5}, row}, GELU = {{}, row}, Softmax = {{}, row}, ReLU = {{}, row}, SiLU = {{}, row},
    Tanh = {{}, row}, Sigmoid = {{}, row}, Identity = {{}, row}, Flatten = {{}, image},
    Conv2d = {{3, 4, 3, {padding = 1, groups = 1}}, image}, MaxPool2d = {{2}, image}, AvgPool2d = {{2}, image},
    CausalSelfAttention = {{8, 2}, function() return flow.randn(2, 5, 8) end},
    CrossEntropyLoss = {{}, function() return flow.randn(2, 6), flow.tensor {1, 5} end},
    MSELoss = {{}, function() return flow.randn(2, 6), flow.randn(2, 6) end},
    ModuleList = {{}}, Sequential = {{}, row}, Module = {},
}

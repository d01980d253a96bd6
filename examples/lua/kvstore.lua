-- kvstore.lua -- a model whose parameters lie in a store: workers push gradients and pull what the optimizer made.
--
--   flowlua examples/lua/kvstore.lua                               one process
--   flowlua --ranks 2 examples/lua/kvstore.lua dist_sync           two workers, all at the same step
--   flowlua --ranks 3 examples/lua/kvstore.lua dist_async          two workers and a server; nobody waits

local flow = require "flow"

local kv = flow.kvstore.create(arg[1] or "local")
flow.manual_seed(1)

-- The function to learn: y = 3 a - 2 b + 1. Every worker has rows of its own.
local x = flow.randn(64 * kv.num_workers, 2):narrow(0, 64 * kv.rank, 64)
local y = x:matmul(flow.tensor {3.0, -2.0}) + 1

local params = {weight = flow.zeros({2}, {requires_grad = true}), bias = flow.zeros({}, {requires_grad = true})}
local keys = {"weight", "bias"}
local values = {params.weight, params.bias}

kv:init(keys, values)
kv:set_optimizer("SGD", {lr = 0.2 / kv.num_workers})

local first, loss
for _ = 1, 300 do
    loss = (x:matmul(params.weight) + params.bias - y):square():mean()
    loss:backward()
    kv:pushpull(keys, {params.weight.grad, params.bias.grad}, values)
    params.weight.grad, params.bias.grad = nil, nil
    first = first or loss:item()
end
kv:barrier()
kv:pull(keys, values)

flow.print(("the loss fell to less than a thousandth: %s"):format(loss:item() < 1e-3 * first))
--> the loss fell to less than a thousandth: true
local w = params.weight:totable()
flow.print(("y = %.1f a + %.1f b + %.1f"):format(w[1], w[2], params.bias:item()))
--> y = 3.0 a + -2.0 b + 1.0

local table_of_rows = flow.arange(8, {dtype = "float32"}):view(4, 2)
kv:init("embedding", table_of_rows)
local rows = flow.zeros(4, 2)
kv:row_sparse_pull("embedding", flow.tensor {3, 1}, rows)    -- rows that are not asked for are 0
flow.print(rows:sum(1))
--> [ 0.0,  5.0,  0.0, 13.0]  float32[4] on cpu

-- rms.lua -- an op in C, used from a script: make -C examples/ops, then flowlua examples/ops/rms.lua.
local flow = require "flow"

local here = arg[0]:match "^(.*)/" or "."
print(flow.load_ops(arg[1] or here .. "/rms.so")[1])
local x = flow.tensor({{3.0, 4.0}, {1.0, 7.0}}, {requires_grad = true})
local y = x:rms(flow.ones(2), {eps = 0})
y[0][0]:backward()
print(y, x.grad)
print(flow.testing.check_op "rms", flow.rms(x:detach():to "float64", flow.ones(2)).dtype)

-- engine.lua -- what decides which engine mode is the default: small ops, where the caller pays, and whole steps.

local small, grad, train = require "cases.small", require "cases.grad", require "cases.train"

return {add = small.add, add_ = small.add_, chain = grad.chain, mlp = train.mlp}

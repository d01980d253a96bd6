-- testing.lua -- flow.testing: checks of results for scripts.

local check = require "flow.check"
local compare = require "flow.compare"

local M = {assert_close = compare.assert_close, check_op = require("flow.op_check").check_op}

check.takes(M, {"check_op(op: function or string)"})

return check.strict("testing", M)

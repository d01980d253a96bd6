-- testing.lua -- flow.testing: what scripts check their results with.

local check = require "flow.check"
local compare = require "flow.compare"

local M = {assert_close = compare.assert_close}

return check.strict("testing", M)

-- print_options.lua -- how tensors are printed.

local flow = require "flow"
local check = require "flow.check"

local print_style = flow._io.print_style

local M = {}

---The options of printing, as set_printoptions takes them.
---@return {precision: integer, threshold: number, edgeitems: integer, linewidth: integer, sci_mode: boolean}
function M.get_printoptions()
    local threshold, edge, precision, width, exponent = print_style()
    return {precision = precision, threshold = threshold, edgeitems = edge, linewidth = width, sci_mode = exponent}
end

local profiles = {
    default = {precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80},
    short = {precision = 2, threshold = 1000, edgeitems = 2, linewidth = 80},
    full = {precision = 4, threshold = math.huge, edgeitems = 3, linewidth = 80},
}

---Sets the format in which tensors are printed: decimals; the number of elements beyond which `edgeitems` at each end
---of an axis stand for the rest (math.huge: never); characters of a line; sci_mode true or false: numbers with or
---without an exponent, nil: by their magnitudes. profile "default", "short" or "full" sets the first four; other given
---options override it. Options that are not given stay unchanged, except sci_mode. Every rank sets the same.
---@param opts table
function M.set_printoptions(opts)
    local base = opts.profile and profiles[opts.profile] or M.get_printoptions()
    local function option(name)
        if opts[name] ~= nil then return opts[name] end
        return base[name]
    end
    print_style(option "threshold", option "edgeitems", option "precision", option "linewidth", opts.sci_mode)
end

check.takes(M, {
    "get_printoptions()",
    [[set_printoptions({precision: integer 0..64?, threshold: number >= 0?, edgeitems: integer 1..1000000000?,
        linewidth: integer 1..1000000000?, profile: default|short|full?, sci_mode: boolean?})]],
})

return M

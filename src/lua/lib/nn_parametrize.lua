-- nn_parametrize.lua -- flow.nn.utils.parametrize: parameters that a module makes of others. They are computed before
-- each forward; between two of them the field holds what the last one has used, and behind one that is captured or
-- traced what it held before, since a value that was made there would outlive it.
--
-- The originals are parameters of net.parametrizations.NAME: "original", or "original0", "original1", ... where the
-- first part takes a parameter apart (right_inverse).

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"

local Module, signatures = module.Module, module.signatures
local M = {}

-- ---- the holder of the originals ----

local List = Module:extend("ParametrizationList")

function List:forward()
    local x
    if self.count == 0 then x = self[1](self.original)
    else
        local parts = {}
        for i = 1, self.count do parts[i] = self["original" .. i - 1] end
        x = self[1](table.unpack(parts))
    end
    for i = 2, #self do x = self[i](x) end
    return x
end

local All = Module:extend("Parametrizations")

local handles = setmetatable({}, {__mode = "k"})        -- by list: of its two hooks
local kept                                              -- by list, while `cached` holds: the computed tensor

local function list_of(net, name)
    local all = module.fields(net).parametrizations
    return all and module.is_module(all) and module.fields(all)[name] or nil
end

-- Sets the field, and returns what it held.
local function compute(net, name)
    local list, fields = list_of(net, name), module.fields(net)
    local before = fields[name]
    if not list then return before end      -- a copy of the module, whose parametrizations were removed
    local value = kept and kept[list]
    if value == nil then value = list() end
    if kept then kept[list] = value end
    fields[name] = value
    return before
end

-- The hooks around the forward of a module with a computed parameter.
local function watch(net, name)
    local before = setmetatable({}, {__mode = "k"})     -- by module: copies of it have the same hooks
    return {
        net:register_forward_pre_hook(function(self) before[self] = compute(self, name) end),
        net:register_forward_hook(function(self)
            if flow._program.recording or flow._function.is_traced() then
                module.fields(self)[name] = before[self]
            end
            before[self] = nil
        end),
    }
end

local Caching = {__close = function(caching) kept = caching.before end}

---Parameters are computed once until f has returned, or without f until the value is closed:
---`local _ <close> = parametrize.cached()`.
---@param f function?
---@param ... any
function M.cached(f, ...)
    local caching = setmetatable({before = kept}, Caching)
    kept = kept or {}
    if not f then return caching end
    local _ <close> = caching
    return (function(...) return ... end)(f(...))
end

---True if the parameter of that name, or any, is computed.
---@param net flow.nn.Module
---@param name string?
---@return boolean
function M.is_parametrized(net, name)
    local all = module.fields(net).parametrizations
    if not name then return all ~= nil and #all:children() > 0 end
    return list_of(net, name) ~= nil
end

-- The method of a module's class, or nil.
local function method_of(part, name)
    local class = getmetatable(part)
    while class do
        local f = rawget(class, name)
        if f then return f end
        local meta = getmetatable(class)
        class = meta and meta.__index
    end
end

-- The list with the original, taken apart by the first part where that can do so.
local function begin(net, name, part)
    local original = module.fields(net)[name]
    if not check.is_tensor(original) then
        check.fail("register_parametrization: the module has no parameter %s", check.quote(name))
    end
    local list, values = List(), {original}
    local inverse = method_of(part, "right_inverse")
    if inverse then
        values = flow.no_grad(function() return table.pack(inverse(part, original:detach())) end)
    end
    list.count = #values > 1 and #values or 0
    for i, value in ipairs(values) do
        local own = not inverse and original or module.Parameter(value:clone(), original.requires_grad)
        list:register_parameter(#values > 1 and "original" .. i - 1 or "original", own)
    end
    return list
end

---The parameter becomes what part(original) gives; further parts get what those before them give. A method
---part:right_inverse(p), if there is one, gives the original of the parameter that there is, or several.
---@param net flow.nn.Module
---@param name string
---@param part flow.nn.Module
---@return flow.nn.Module net
function M.register_parametrization(net, name, part)
    local list, original = list_of(net, name), module.fields(net)[name]
    local is_new = list == nil
    if is_new then list = begin(net, name, part) end
    list[#list + 1] = part
    local made = list()
    if not check.is_tensor(made) or check.shape(made) ~= check.shape(original) then
        list[#list] = nil
        check.fail("register_parametrization: '%s' is %s, the parametrization makes %s of it", name,
            check.shape(original), check.is_tensor(made) and check.shape(made) or check.got(made))
    end
    if is_new then
        if not module.fields(net).parametrizations then net.parametrizations = All() end
        net[name] = nil
        net.parametrizations:register_module(name, list)
        handles[list] = watch(net, name)
    end
    compute(net, name)
    return net
end

---The parameter again, with the value that was computed, or with its original where there is one and
---leave_parametrized is false.
---@param net flow.nn.Module
---@param name string
---@param leave_parametrized boolean?
---@return flow.nn.Module net
function M.remove_parametrizations(net, name, leave_parametrized)
    local list = list_of(net, name)
    if not list then check.fail("remove_parametrizations: '%s' has none", name) end
    if not leave_parametrized and list.count > 0 then
        check.fail("remove_parametrizations: '%s' has %d originals; leave_parametrized must be true", name, list.count)
    end
    local value = leave_parametrized and list():detach():clone() or list.original:detach()
    local trained = list:parameters()[1].requires_grad
    for _, handle in ipairs(handles[list] or {}) do handle:remove() end
    net.parametrizations[name] = nil
    if #net.parametrizations:children() == 0 then net.parametrizations = nil end
    net[name] = nil
    net:register_parameter(name, module.Parameter(value, trained))
    return net
end

check.takes(M, {
    "cached(f: function?, ...: any)",
    "is_parametrized(net: module, name: string?)",
    "register_parametrization(net: module, name: string, part: module)",
    "remove_parametrizations(net: module, name: string, leave_parametrized: boolean = true)",
})

-- ---- parametrizations that there are ----

local P = {}

local function norm_except(tensor, axis)
    if not axis then return tensor:norm() end
    local axes = {}
    for i = 0, tensor:dim() - 1 do
        if i ~= axis % tensor:dim() then axes[#axes + 1] = i end
    end
    return #axes == 0 and tensor:abs() or tensor:norm(2, axes, true)
end

local WeightNorm = Module:extend("WeightNorm")
function WeightNorm:init(axis) self.axis = axis ~= -1 and axis or nil end
function WeightNorm:forward(length, direction) return length * (direction / norm_except(direction, self.axis)) end
function WeightNorm:right_inverse(weight) return norm_except(weight, self.axis), weight end
signatures(WeightNorm, "WeightNorm(axis: integer)", "forward(length: tensor, direction: tensor)")

---The parameter as a length (original0) and a direction (original1).
---@param net flow.nn.Module
---@param name string? default "weight"
---@param axis integer? that keeps its lengths, default 0; -1: one length for all
function P.weight_norm(net, name, axis) return M.register_parametrization(net, name, WeightNorm(axis)) end

local SpectralNorm = Module:extend("SpectralNorm")

local function matrix(self, w)
    if w:dim() < 2 then return w:unsqueeze(0) end
    if self.axis ~= 0 then w = w:transpose(0, self.axis) end
    return w:reshape(w:size(0), -1)
end

-- Steps of the power iteration.
local function iterate(self, w, count)
    local _ <close> = flow.no_grad()
    for _ = 1, count do
        self._u:copy_(flow.normalize(w:matmul(self._v), 2, 0, self.eps))
        self._v:copy_(flow.normalize(w:t():matmul(self._u), 2, 0, self.eps))
    end
end

function SpectralNorm:init(weight, steps, eps, axis)
    self.steps, self.eps, self.axis = steps, eps, axis
    local w = matrix(self, weight:detach())
    for i, name in ipairs {"_u", "_v"} do
        local start = flow.randn({w:size(i - 1)}, flow.nn.like(w, {dtype = w.dtype}))
        self:register_buffer(name, flow.normalize(start, 2, 0, eps))
    end
    iterate(self, w, 15)
end

function SpectralNorm:forward(weight)
    if weight:dim() < 2 then return flow.normalize(weight, 2, 0, self.eps) end
    local w = matrix(self, weight)
    if self.training then iterate(self, w:detach(), self.steps) end
    return weight / (self._u:clone() * w:matmul(self._v:clone())):sum()
end
signatures(SpectralNorm, "SpectralNorm(weight: weight, steps: integer >= 1, eps: number, axis: integer >= 0)",
    "forward(weight: tensor)")

---The parameter divided by its largest singular value, which steps of the power iteration follow during training.
---@param net flow.nn.Module
---@param name string? default "weight"
---@param steps integer? of each forward
---@param eps number?
---@param axis integer? that counts the outputs, default 0
function P.spectral_norm(net, name, steps, eps, axis)
    local weight = module.fields(net)[name]
    if not check.is_tensor(weight) then
        check.fail("spectral_norm: the module has no parameter %s", check.quote(name))
    end
    return M.register_parametrization(net, name, SpectralNorm(weight, steps, eps, axis))
end

---The parameter as a matrix with orthonormal rows or columns, whichever are fewer; it begins as the one that is nearest
---to it in the sense of QR.
---@param net flow.nn.Module
---@param name string? default "weight"
---@param orthogonal_map string? how it comes from free numbers; default matrix_exp of a square matrix, else householder
---@param opts {use_trivialization: boolean} true: it is where it began, times one that begins as the identity
function P.orthogonal(net, name, orthogonal_map, opts)
    local weight = module.fields(net)[name]
    if not check.is_tensor(weight) or weight:dim() < 2 then
        check.fail("orthogonal: the module has no matrix %s", check.quote(name))
    end
    local square = weight:size(-1) == weight:size(-2)
    local Orthogonal = require "flow.nn_orthogonal"
    return M.register_parametrization(net, name,
        Orthogonal(orthogonal_map or (square and "matrix_exp" or "householder"), opts.use_trivialization))
end

check.takes(P, {
    "orthogonal(net: module, name: string = weight, orthogonal_map: matrix_exp|cayley|householder?, "
        .. "{use_trivialization: boolean = true})",
    "weight_norm(net: module, name: string = weight, axis: integer = 0)",
    "spectral_norm(net: module, name: string = weight, steps: integer >= 1 = 1, eps: number = 1e-12, "
        .. "axis: integer >= 0 = 0)",
})

return {
    parametrize = check.strict("nn.utils.parametrize", M),
    parametrizations = check.strict("nn.utils.parametrizations", P),
}

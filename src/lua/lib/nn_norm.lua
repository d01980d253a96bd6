-- nn_norm.lua -- layers of flow.nn that normalise: batches, instances, groups of channels, rows.

local flow = require "flow"
local check = require "flow.check"
local module = require "flow.module"

local Module, signatures = module.Module, module.signatures
local classes = {}

-- ---- with running statistics ----

-- Parameters of the affine map and buffers of the running statistics, where the options ask for them.
local function set_up(self, channels, opts)
    self.channels, self.eps, self.momentum = channels, opts.eps, opts.momentum
    if opts.momentum == true then check.fail("%s: momentum must be a number or false, got true", self.__name) end
    self.affine, self.track_running_stats = opts.affine, opts.track_running_stats
    self.weight = nil
    self.bias = nil
    if opts.affine then
        self.weight = module.Parameter(flow.ones(channels))
        if opts.bias then self.bias = module.Parameter(flow.zeros(channels)) end
    end
    if opts.track_running_stats then
        self:register_buffer("running_mean", flow.zeros(channels))
        self:register_buffer("running_var", flow.ones(channels))
        self:register_buffer("num_batches_tracked", flow.tensor(0))
    else
        self.running_mean, self.running_var, self.num_batches_tracked = nil, nil, nil
    end
end

-- ", bias=false" where there is a weight without a bias.
local function bias_text(self) return self.weight and not self.bias and ", bias=false" or "" end

local function extra(self)
    return ("%d, eps=%g, momentum=%s, affine=%s, track_running_stats=%s"):format(self.channels, self.eps,
        self.momentum and ("%g"):format(self.momentum) or "false", self.affine, self.track_running_stats) ..
        bias_text(self)
end

-- x has a number of axes that the layer takes, and its channels.
local function check_input(self, name, x, axes)
    local fits = false
    for _, n in ipairs(axes) do fits = fits or x.ndim == n end
    if not fits then
        check.fail("%s: x must have %s axes, got %s", name, table.concat(axes, " or "), check.shape(x))
    end
    local channels = x:size(x.ndim == axes.unbatched and 0 or 1)
    if channels ~= self.channels then
        check.fail("%s: x must have %d channels, got %s", name, self.channels, check.shape(x))
    end
end

local function tracks(self) return self.training and self.track_running_stats end

-- The share of this batch in the running statistics; momentum false: they are the mean of all batches.
local function step(self)
    if not tracks(self) then return 0 end
    return self.momentum or 1 / (self.num_batches_tracked:item() + 1)
end

-- Counts a batch when it was taken: one that was refused is none.
local function counted(self, y)
    if not tracks(self) then return y end
    local _ <close> = flow.no_grad()
    self.num_batches_tracked:add_(1)
    return y
end

local OPTIONS = "{eps: number >= 0 = 1e-5, momentum: number or boolean = 0.1, affine: boolean = %s, " ..
    "track_running_stats: boolean = %s, bias: boolean = true}"

local function batch_norm(name, axes)
    local class = Module:extend(name)

    function class:init(channels, opts) set_up(self, channels, opts) end

    function class:forward(x)
        check_input(self, name, x, axes)
        local own = self.training or not self.track_running_stats
        return counted(self, flow.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own,
            step(self), self.eps))
    end

    class.extra = extra
    signatures(class, name .. "(channels: integer >= 1, " .. OPTIONS:format("true", "true") .. ")",
        "forward(x: tensor)")
    classes[name] = class
end

batch_norm("BatchNorm1d", {2, 3})
batch_norm("BatchNorm2d", {4})
batch_norm("BatchNorm3d", {5})
-- The statistics of a batch that is split over ranks are those of the whole: every batch_norm is a synchronous one.
batch_norm("SyncBatchNorm", {2, 3, 4, 5})

local function instance_norm(name, axes)
    local class = Module:extend(name)

    function class:init(channels, opts) set_up(self, channels, opts) end

    function class:forward(x)
        check_input(self, name, x, axes)
        local one = x.ndim == axes.unbatched
        local own = self.training or not self.track_running_stats
        local y = flow.instance_norm(one and x:unsqueeze(0) or x, self.running_mean, self.running_var, self.weight,
            self.bias, own, step(self), self.eps)
        counted(self, y)
        return one and y:squeeze(0) or y
    end

    class.extra = extra
    signatures(class, name .. "(channels: integer >= 1, " .. OPTIONS:format("false", "false") .. ")",
        "forward(x: tensor)")
    classes[name] = class
end

instance_norm("InstanceNorm1d", {2, 3, unbatched = 2})
instance_norm("InstanceNorm2d", {3, 4, unbatched = 3})
instance_norm("InstanceNorm3d", {4, 5, unbatched = 4})

-- ---- without ----

---Normalises groups of channels of x [n, channels, ...].
---@class flow.nn.GroupNorm: flow.nn.Module
local GroupNorm = Module:extend("GroupNorm")
classes.GroupNorm = GroupNorm

---@param groups integer
---@param channels integer
---@param opts {eps: number, affine: boolean, bias: boolean}?
function GroupNorm:init(groups, channels, opts)
    if channels % groups ~= 0 then
        check.fail("GroupNorm: %d channels cannot be divided into %d groups", channels, groups)
    end
    self.groups, self.channels, self.eps = groups, channels, opts.eps
    self.weight = nil
    self.bias = nil
    if opts.affine then
        self.weight = module.Parameter(flow.ones(channels))
        if opts.bias then self.bias = module.Parameter(flow.zeros(channels)) end
    end
end

function GroupNorm:forward(x)
    return flow.group_norm(x, self.groups, self.weight, self.bias, self.eps)
end

signatures(GroupNorm, "GroupNorm(groups: integer >= 1, channels: integer >= 1, " ..
    "{eps: number >= 0 = 1e-5, affine: boolean = true, bias: boolean = true})", "forward(x: tensor)")

function GroupNorm:extra()
    return ("%d, %d, eps=%g, affine=%s"):format(self.groups, self.channels, self.eps, self.weight ~= nil) ..
        bias_text(self)
end

---Divides rows by their root mean square.
---@class flow.nn.RMSNorm: flow.nn.Module
local RMSNorm = Module:extend("RMSNorm")
classes.RMSNorm = RMSNorm

---@param sizes integer|integer[] the last sizes of the input
---@param opts {eps: number, affine: boolean}?
function RMSNorm:init(sizes, opts)
    self.sizes = type(sizes) == "table" and sizes or {sizes}
    if #self.sizes == 0 then check.fail("RMSNorm: sizes must be the last sizes of its input, got an empty list") end
    self.eps = opts.eps
    self.weight = nil
    if opts.affine then self.weight = module.Parameter(flow.ones(self.sizes)) end
end

function RMSNorm:forward(x)
    return flow.rms_norm(x, self.sizes, self.weight, {eps = self.eps})
end

signatures(RMSNorm, "RMSNorm(sizes: integer >= 1 or list, {eps: number >= 0?, affine: boolean = true})",
    "forward(x: tensor)")

function RMSNorm:extra()
    return ("[%s], eps=%s, affine=%s"):format(table.concat(self.sizes, ", "),
        self.eps and ("%g"):format(self.eps) or "smallest", self.weight ~= nil)
end

---Divides each channel by a power of the mean square of its neighbours.
---@class flow.nn.LocalResponseNorm: flow.nn.Module
local LocalResponseNorm = Module:extend("LocalResponseNorm")
classes.LocalResponseNorm = LocalResponseNorm

---@param size integer channels that are neighbours
---@param opts {alpha: number, beta: number, k: number}?
function LocalResponseNorm:init(size, opts)
    self.size, self.alpha, self.beta, self.k = size, opts.alpha, opts.beta, opts.k
end

function LocalResponseNorm:forward(x)
    return flow.local_response_norm(x, self.size, self.alpha, self.beta, self.k)
end

signatures(LocalResponseNorm, "LocalResponseNorm(size: integer >= 1, " ..
    "{alpha: number = 1e-4, beta: number = 0.75, k: number = 1})", "forward(x: tensor)")

function LocalResponseNorm:extra()
    return ("%d, alpha=%g, beta=%g, k=%g"):format(self.size, self.alpha, self.beta, self.k)
end

return classes

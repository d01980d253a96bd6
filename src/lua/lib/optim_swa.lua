-- optim_swa.lua -- flow.optim.swa_utils: the ways of AveragedModel, statistics of BatchNorm layers, and SWALR.

local flow = require "flow"
local check = require "flow.check"
local nn_module = require "flow.module"
local optim_average = require "flow.optim_average"
local schedulers = require "flow.optim_lr_scheduler"

local M = {AveragedModel = optim_average, SWALR = schedulers.SWALR}

-- The average moves by this share of its distance from the parameter.
local function towards(average, p, share) return average + (p - average) * share end

local function multi(share_of)
    return function(averages, params, count)
        local _ <close> = flow.no_grad()
        for i, average in ipairs(averages) do average:copy_(towards(average, params[i], share_of(count))) end
    end
end

---avg_fn of an exponential average.
---@param decay number? 0.999 if absent
function M.get_ema_avg_fn(decay)
    local share = 1 - (decay or 0.999)
    return function(average, p) return towards(average, p, share) end
end

---avg_fn of an average in which all updates count alike.
function M.get_swa_avg_fn()
    return function(average, p, count) return towards(average, p, 1 / (count + 1)) end
end

---multi_avg_fn of an exponential average.
---@param decay number? 0.999 if absent
function M.get_ema_multi_avg_fn(decay)
    local share = 1 - (decay or 0.999)
    return multi(function() return share end)
end

---multi_avg_fn of an average in which all updates count alike.
function M.get_swa_multi_avg_fn() return multi(function(count) return 1 / (count + 1) end) end

local function norms_of(net)
    local list = {}
    for _, module in net:named_modules() do
        if rawget(module, "running_mean") ~= nil or module._buffers and module._buffers.running_mean then
            list[#list + 1] = module
        end
    end
    return list
end

---One pass over the batches of a loader, by which each BatchNorm of the net has the mean of their statistics. A batch
---is a tensor or a list that begins with one.
---@param loader any what `for batch in loader` takes, or a list of batches
---@param net flow.nn.Module
---@param device string? where batches are moved
function M.update_bn(loader, net, device)
    if not nn_module.is_module(net) then check.fail("update_bn: takes a module, got %s", check.got(net)) end
    local _ <close> = flow.no_grad()
    local norms, momenta, training = norms_of(net), {}, net.training
    if #norms == 0 then return end
    for i, norm in ipairs(norms) do
        norm.running_mean:zero_()
        norm.running_var:fill_(1)
        momenta[i] = norm.momentum
    end
    net:train()
    local count = 0
    local function run(batch)
        local x = flow.is_tensor(batch) and batch or batch[1]
        count = count + 1
        for _, norm in ipairs(norms) do norm.momentum = 1 / count end
        net(device and x:to(device) or x)
    end
    if type(loader) == "table" and #loader > 0 then
        for _, batch in ipairs(loader) do run(batch) end
    else
        for batch in loader do run(batch) end
    end
    for i, norm in ipairs(norms) do norm.momentum = momenta[i] end
    net:train(training)
end

check.takes(M, {
    "get_ema_avg_fn(decay: number 0..1?)", "get_ema_multi_avg_fn(decay: number 0..1?)",
    "update_bn(loader: any, net: any, device: string?)",
})
return check.strict("swa_utils", M)

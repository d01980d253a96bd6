-- sampling.lua -- flow.normal: normal numbers by tensors of means and deviations.

local flow = require "flow"
local check = require "flow.check"

local M = {}

local function check_std(std)
    local least = std
    if check.is_tensor(std) then
        if std.dtype == "bool" then check.fail "normal: std must be a tensor of numbers, got bool tensor" end
        if std.device == "meta" or std:numel() == 0 then return end
        least = std:min():item()
    end
    if least < 0 then check.fail("normal: std must not be negative, got %g", least) end
end

---Normal random numbers with the means and the deviations of two tensors, of which one may be a number, or of two
---numbers and a size. They have no gradients.
---@param mean any tensor or number
---@param std any tensor or number
---@param size any of the result, where both are numbers
---@param opts table options of a new tensor
---@return table
function M.normal(mean, std, size, opts)
    local by_mean, by_std = check.is_tensor(mean), check.is_tensor(std)
    check_std(std)
    if not by_mean and not by_std then
        if not size then check.fail "normal: missing argument 'size', as mean and std are numbers" end
        return flow.randn(size, opts) * std + mean
    end
    if size then check.fail "normal: size is for a mean and std that are numbers" end
    return flow.no_grad(function()
        local like = by_mean and by_std and mean + std or by_mean and mean or std
        if not like.dtype:find "float" then like = like:to(flow.get_default_dtype()) end
        return flow.randn_like(like) * std + mean
    end)
end

check.takes(M, {
    [[normal(mean: tensor or number = 0, std: tensor or number = 1, size: list or integer?,
        {dtype: string?, device: string?, placement: placement?, sbp: sbp?, requires_grad: boolean?})]],
})

return M

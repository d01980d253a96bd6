-- cuda.lua -- flow.cuda: functions under the names of torch.cuda. A GPU is named by its number or as "cuda:1"; without
-- a name it is the first one that this rank uses.

local flow = require "flow"
local check = require "flow.check"

local M = {}

---True if there is a GPU that can be used, with its driver and the plug-in.
---@return boolean
function M.is_available() return flow.device_count "cuda" > 0 end

---The number of GPUs that can be used.
---@return integer
function M.device_count() return flow.device_count "cuda" end

---True if there is a GPU: all that flow runs on compute with bfloat16.
---@return boolean
function M.is_bf16_supported() return M.is_available() end

---Waits until the GPUs have done all that was asked of them; raises the first error among it.
function M.synchronize() flow.sync() end

---Seeds the default generator of random numbers: GPUs draw from it, too.
---@param seed integer
function M.manual_seed(seed) flow.manual_seed(seed) end

---manual_seed: there is one generator for all GPUs.
---@param seed integer
function M.manual_seed_all(seed) flow.manual_seed(seed) end

local function memory(device, reset_peak)
    local name = type(device) == "number" and ("cuda:%d"):format(device) or device or "cuda"
    return flow.memory {device = name, reset_peak = reset_peak}
end

---Bytes of tensors on a GPU.
---@param device any
---@return integer
function M.memory_allocated(device) return memory(device).live_bytes end

---The most bytes that tensors on a GPU had together, since the beginning or the last reset_peak_memory_stats.
---@param device any
---@return integer
function M.max_memory_allocated(device) return memory(device).peak_bytes end

---Bytes of a GPU that tensors have, or that are kept for new ones.
---@param device any
---@return integer
function M.memory_reserved(device)
    local m = memory(device)
    return m.live_bytes + m.cached_bytes
end

---max_memory_allocated counts from here on.
---@param device any
function M.reset_peak_memory_stats(device) memory(device, true) end

check.takes(M, {
    "cuda.is_available()", "cuda.device_count()", "cuda.is_bf16_supported()", "cuda.synchronize()",
    "cuda.manual_seed(seed: integer)", "cuda.manual_seed_all(seed: integer)",
    "cuda.memory_allocated(device: integer or string?)", "cuda.max_memory_allocated(device: integer or string?)",
    "cuda.memory_reserved(device: integer or string?)", "cuda.reset_peak_memory_stats(device: integer or string?)",
})

return check.strict("cuda", M)

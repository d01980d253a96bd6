-- kvstore.lua -- values by key, shared by the workers that push to them and pull from them.
--
--     local kv = flow.kvstore.create "local"
--     kv:init("w", flow.zeros(2, 3))                   a copy of the tensor, the store's own
--     kv:push("w", {g1, g2})                           the sum of what is pushed replaces the value, or updates it
--     kv:pull("w", w)
--
-- A value keeps its dtype and shape. set_updater or set_optimizer define the effect of a push's sum. Tensors
-- given to a store are local ones; every call takes a list of keys with a list of values too.

local flow = require "flow"
local check = require "flow.check"
local Store = require "flow.kvstore_store"
require "flow.kvstore_optimizer"
local Async = require "flow.kvstore_async"
local Sync = require "flow.kvstore_sync"

local kvstore = {}

local kinds = {["local"] = Store, dist_sync = Sync, dist_async = Async}
local OPTIONS = {"servers", "staleness", "bound"}

---Makes a store. "local": of this process alone; "dist_sync": of all ranks, each of which is a worker and keeps a part
---of every value; a push waits for no rank, and a pull gives what all ranks have pushed. "dist_async": the last ranks
---are servers, for which this function does not return: they end with the workers. From then on the workers are the
---world: flow.world_size() is their number. A push is applied when it arrives; workers do not wait for each other.
---@param type string
---@param options table? of dist_async: servers (1), staleness: how many pushes of a key a worker may be ahead of the
---slowest before it waits, bound: elements from which on a key is split over all servers (1000000)
---@return flow.kvstore.Store
function kvstore.create(type, options)
    local class = kinds[type]
    if not class then
        check.fail("create: type must be one of %s, got %s", table.concat(check.sorted_keys(kinds), "|"),
            check.quote(type))
    end
    if class == Async and flow._plan.on then
        check.fail("create: a dist_async store cannot be planned: when its servers are asked depends on their " ..
            "speed; plan dist_sync, or leave the store out")
    end
    if class == Async then
        return Async.create{
            servers = options.servers or 1, staleness = options.staleness, bound = options.bound or 1000000,
        }
    end
    for _, name in ipairs(OPTIONS) do
        if options[name] then check.fail("create: %s is an option of dist_async, not of %s", name, type) end
    end
    if class == Store then return Store._new(class, type, 0, 1) end
    return Store._new(class, type, flow.rank(), flow.world_size())
end

check.methods(Store, "store", {
    "init(key: any, value: any)", "push(key: any, value: any)", "pull(key: any, out: any)",
    "pushpull(key: any, value: any, out: any)", "row_sparse_pull(key: any, rows: any, out: any)",
    "set_updater(f: function)", "set_optimizer(optimizer: string or function or optimizer, options: table?)",
    "set_compression({type: 2bit|none = 2bit, threshold: number >= 0 = 0.5})", "set_lr(lr: number >= 0)",
    "save(path: string)", "load(path: string)", "barrier()", "close()",
})
check.takes(kvstore, {
    "create(type: string, {servers: integer >= 1?, staleness: integer >= 0?, bound: integer >= 1?})",
})
check.strict("kvstore", Store)
return check.strict("kvstore", kvstore)

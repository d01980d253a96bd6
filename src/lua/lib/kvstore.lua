-- kvstore.lua -- values by key, shared by those who push to them and pull from them.
--
--     local kv = flow.kvstore.create "local"
--     kv:init("w", flow.zeros(2, 3))                   a copy of the tensor, the store's own
--     kv:push("w", {g1, g2})                           the sum of what is pushed replaces the value, or updates it
--     kv:pull("w", w)
--
-- A value keeps its dtype and shape. What a push does with the sum is decided by set_updater or set_optimizer. Tensors
-- given to a store are local ones; every call takes a list of keys with a list of values too.

local flow = require "flow"
local check = require "flow.check"
local Store = require "flow.kvstore_store"
require "flow.kvstore_optimizer"
local Sync = require "flow.kvstore_sync"

local kvstore = {}

local kinds = {["local"] = Store, dist_sync = Sync}

---Makes a store. "local": of this process alone; "dist_sync": of all ranks, each of which is a worker and keeps a part
---of every value; a push waits for no rank, and a pull gives what all ranks have pushed.
---@param type string
---@return flow.kvstore.Store
function kvstore.create(type)
    local class = kinds[type]
    if not class then
        check.fail("create: there is no store of type %s%s", check.quote(type),
            check.suggest(type, check.sorted_keys(kinds)))
    end
    if class == Store then return Store.new(class, type, 0, 1) end
    return Store.new(class, type, flow.rank(), flow.world_size())
end

check.methods(Store, "store", {
    "init(key: any, value: any)", "push(key: any, value: any)", "pull(key: any, out: any)",
    "pushpull(key: any, value: any, out: any)", "row_sparse_pull(key: any, rows: any, out: any)",
    "set_updater(f: function)", "set_optimizer(optimizer: string or function or optimizer, options: table?)",
    "set_compression({type: 2bit|none = 2bit, threshold: number >= 0 = 0.5})", "set_lr(lr: number >= 0)",
    "save(path: string)", "load(path: string)", "barrier()",
})
check.takes(kvstore, {"create(type: string)"})
check.strict("kvstore", Store)
return check.strict("kvstore", kvstore)

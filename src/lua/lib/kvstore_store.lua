-- kvstore_store.lua -- a store of this process, and what all kinds of stores share: see kvstore.lua.
--
-- The kinds differ in where a value lies (`_keep`), how pushes are summed (`_reduce`), how a value is read (`_whole`,
-- `_rows`) and how workers wait for each other (`_meet`).

local flow = require "flow"
local check = require "flow.check"
local compress = require "flow.kvstore_compress"

---@class flow.kvstore.Store
---@field type string
---@field rank integer this worker's number, from 0
---@field num_workers integer
local Store = {}
Store.__index = Store

-- ---- arguments ----

-- The length of a list without gaps.
local function length(who, name, list)
    local count = 0
    for key in pairs(list) do
        if math.type(key) ~= "integer" or key < 1 then
            check.fail("%s: %s must be a list, got the key %s", who, name, check.got(key))
        end
        count = math.max(count, key)
    end
    if count == 0 then check.fail("%s: %s is an empty list", who, name) end
    for i = 1, count do
        if list[i] == nil then check.fail("%s: %s[%d] is nil", who, name, i) end
    end
    return count
end

local function key_of(who, name, value)
    if type(value) == "string" then return value end
    local whole = math.type(value) and math.tointeger(value)
    if not whole then check.fail("%s: %s must be a whole number or a string, got %s", who, name, check.got(value)) end
    return whole
end

-- A key as messages show it: 3 or 'w'.
local function show(key)
    return type(key) == "string" and check.quote(key) or tostring(key)
end

-- Adds to `list` the tensors of one key: a tensor or a list of them.
local function append_tensors(list, who, name, value)
    if check.is_tensor(value) then
        list[#list + 1] = value
        return
    end
    if not check.is("list", value) then
        check.fail("%s: %s must be a tensor or a list of tensors, got %s", who, name, check.got(value))
    end
    for i = 1, length(who, name, value) do
        if not check.is_tensor(value[i]) then
            check.fail("%s: %s[%d] must be a tensor, got %s", who, name, i, check.got(value[i]))
        end
        list[#list + 1] = value[i]
    end
end

-- The entries of a call, key by key: {key =, name = of the value in messages, tensors =}.
local function requests(who, keys, name, values)
    if type(keys) ~= "table" then
        local one = {key = key_of(who, "key", keys), name = name, tensors = {}}
        append_tensors(one.tensors, who, name, values)
        return {one}
    end
    local count, list = length(who, "key", keys), {}
    if not check.is("list", values) then
        check.fail("%s: with a list of keys, %s must be a list too, got %s", who, name, check.got(values))
    end
    local given = length(who, name, values)
    if given ~= count then check.fail("%s: there are %d keys, but %s has length %d", who, count, name, given) end
    for i = 1, count do
        local one = {key = key_of(who, ("key[%d]"):format(i), keys[i]), name = ("%s[%d]"):format(name, i), tensors = {}}
        append_tensors(one.tensors, who, one.name, values[i])
        list[i] = one
    end
    return list
end

-- Requests of one key become one, with the tensors of all.
local function merged(list)
    local result, by_key = {}, {}
    for _, one in ipairs(list) do
        local first = by_key[one.key]
        if first then
            table.move(one.tensors, 1, #one.tensors, #first.tensors + 1, first.tensors)
        else
            by_key[one.key] = one
            result[#result + 1] = one
        end
    end
    return result
end

local function entry_of(self, who, key)
    local entry = self.entries[key]
    if entry then return entry end
    local names = {}
    for i, one in ipairs(self.order) do names[i] = tostring(one.key) end
    check.fail("%s: there is no key %s: make it with init(key, value)%s", who, show(key), check.suggest(key, names))
end

local function check_floats(who, entry, what)
    if not entry.dtype:find("float", 1, true) then
        check.fail("%s: key %s is %s, and %s only floats", who, show(entry.key), entry.text, what)
    end
end

local function describe(tensor)
    return tensor.dtype .. check.shape(tensor)
end

local function check_local(who, name, tensor)
    if tensor.is_global then
        check.fail("%s: %s is a global tensor; a worker gives a local one of its own: x:to_local()", who, name)
    end
end

-- The tensors of a request are like the value of its key.
local function check_like(who, entry, one)
    for i, t in ipairs(one.tensors) do
        local name = #one.tensors > 1 and ("%s[%d]"):format(one.name, i) or one.name
        check_local(who, name, t)
        if describe(t) ~= entry.text then
            check.fail("%s: key %s is %s, but %s is %s", who, show(entry.key), entry.text, name, describe(t))
        end
    end
end

-- ---- a store of this process ----

function Store._keep(_, value)
    return value:detach():clone()
end

-- The sum of a list of tensors, where the value lies; no copy when there is one.
local function sum_of(entry, tensors)
    local sum = tensors[1]:detach():to(entry.device)
    for i = 2, #tensors do sum = sum + tensors[i]:detach():to(entry.device) end
    return sum
end

function Store:_reduce(entry, tensors)
    if not self.threshold then return sum_of(entry, tensors) end
    local codes = {}
    for i, t in ipairs(tensors) do
        codes[i] = compress.compress(entry, i, t:detach():to(entry.device), 1, self.threshold)
    end
    return compress.expand(entry, flow.cat(codes, 0), entry.shape, self.threshold)
end

function Store._whole(_, entry)
    return entry.stored
end

-- Rows of a value; `index` is a 1-d tensor of their numbers.
function Store._rows(_, entry, index)
    return entry.stored:index_select(0, index)
end

function Store._meet() end

-- When init has checked what it was given.
function Store._begin() end

-- When all values that init was given are kept, and after an updater ("updater") or an optimizer ("optimizer") was set.
function Store._made() end
function Store._tell() end

-- ---- the effect of a push ----

local function call_updater(self, update)
    local stored = update.entry.stored
    local result = self.updater(update.entry.key, update.pushed, stored)
    if result ~= nil and not rawequal(result, stored) then
        check.fail("push: the updater returned %s; it must change `stored` in place, as stored:add_(pushed) does",
            check.got(result))
    end
end

---Applies updates to the values of the keys: by the updater or the optimizer, else the sums replace them.
---@param updates table[] {entry =, pushed =, shared = is `pushed` a tensor of the script?}
function Store:_apply(updates)
    if self.shared or self.make then return self:_step(updates) end
    for _, update in ipairs(updates) do
        if not self.updater then
            update.entry.stored:copy_(update.pushed)
        else
            if update.shared then update.pushed = update.pushed:clone() end
            call_updater(self, update)
        end
    end
end

-- ---- methods ----

---Makes keys with their values, which are copied. With several workers all of them call it, and the values of worker 0
---count. A key is made once.
---@param key any a whole number or a string, or a list of these
---@param value any a tensor, or a list of tensors, one per key
function Store:init(key, value)
    local list, seen = requests("init", key, "value", value), {}
    for _, one in ipairs(list) do
        if self.entries[one.key] or seen[one.key] then
            check.fail("init: key %s exists already", show(one.key))
        elseif #one.tensors > 1 then
            check.fail("init: %s has %d tensors; a key begins with one", one.name, #one.tensors)
        end
        seen[one.key] = true
        local t = one.tensors[1]
        check_local("init", one.name, t)
        one.entry = {
            key = one.key, text = describe(t), shape = t.shape, dtype = t.dtype, device = t.device, residuals = {},
        }
        if t.dtype == "bool" then
            check.fail("init: key %s is %s, and a store adds up numbers", show(one.key), one.entry.text)
        end
        if self.shared or self.make then check_floats("init", one.entry, "an optimizer updates") end
        if self.threshold then check_floats("init", one.entry, "compression takes") end
    end
    local _ <close> = flow.no_grad()
    self:_begin(list)
    for _, one in ipairs(list) do one.entry.stored = self:_keep(one.tensors[1], one.entry) end
    self:_made(list)
    for _, one in ipairs(list) do
        self.entries[one.key] = one.entry
        self.order[#self.order + 1] = one.entry
    end
end

-- Drops a key, if there is one.
function Store:_forget(key)
    for i, entry in ipairs(self.order) do
        if entry.key == key then table.remove(self.order, i) end
    end
    self.entries[key] = nil
end

local function push(self, who, key, value)
    local list, updates = merged(requests(who, key, "value", value)), {}
    for _, one in ipairs(list) do
        one.entry = entry_of(self, who, one.key)
        check_like(who, one.entry, one)
    end
    local _ <close> = flow.no_grad()
    for i, one in ipairs(list) do
        updates[i] = {
            entry = one.entry, pushed = self:_reduce(one.entry, one.tensors),
            shared = #one.tensors == 1 and not self.threshold,
        }
    end
    self:_apply(updates)
end

---Gives the store tensors for keys, which are summed: those of a list, of a key that occurs several times, and those of
---all workers. The sum replaces the value unless there is an updater or an optimizer.
---@param key any as of init
---@param value any a tensor or a list of tensors; of a list of keys a list of them
function Store:push(key, value)
    push(self, "push", key, value)
end

-- The requests of a call that writes to `out`.
local function targets(self, who, key, out)
    local list = requests(who, key, "out", out)
    for _, one in ipairs(list) do
        one.entry = entry_of(self, who, one.key)
        check_like(who, one.entry, one)
        for _, t in ipairs(one.tensors) do
            if t.requires_grad and not t.is_leaf then
                check.fail("%s: %s was computed from tensors that require grad; write to a leaf, or to %s:detach()",
                    who, one.name, one.name)
            end
        end
    end
    return list
end

local function pull(self, list)
    local _ <close> = flow.no_grad()
    for _, one in ipairs(list) do
        local whole = self:_whole(one.entry)
        for _, t in ipairs(one.tensors) do t:copy_(whole) end
    end
end

---Writes the values of keys to tensors of their dtypes and shapes.
---@param key any as of init
---@param out any a tensor or a list of tensors; of a list of keys a list of them
function Store:pull(key, out)
    pull(self, targets(self, "pull", key, out))
end

---Pushes, then pulls.
---@param key any as of init
---@param value any as of push
---@param out any as of pull
function Store:pushpull(key, value, out)
    local list = targets(self, "pushpull", key, out)
    push(self, "pushpull", key, value)
    pull(self, list)
end

local function check_rows(one, out)
    if #one.tensors ~= 1 and #one.tensors ~= #out.tensors then
        check.fail("row_sparse_pull: %s has %d tensors, %s has %d", one.name, #one.tensors, out.name, #out.tensors)
    end
    if not out.entry.text:find "%[%d" then
        check.fail("row_sparse_pull: key %s is %s, which has no rows", show(one.key), out.entry.text)
    end
    for _, t in ipairs(one.tensors) do
        check_local("row_sparse_pull", one.name, t)
        if t.dtype ~= "int64" and t.dtype ~= "int32" then
            check.fail("row_sparse_pull: %s must be int64 or int32, got %s", one.name, t.dtype)
        end
    end
end

---Writes rows of values (their parts along axis 0) to tensors of the values' shapes; other rows become 0.
---@param key any as of init
---@param rows any a tensor of row numbers, or a list of them, one per tensor of out; of a list of keys a list of these
---@param out any as of pull
function Store:row_sparse_pull(key, rows, out)
    local list, wanted = targets(self, "row_sparse_pull", key, out), requests("row_sparse_pull", key, "rows", rows)
    for i, one in ipairs(list) do check_rows(wanted[i], one) end
    local _ <close> = flow.no_grad()
    for i, one in ipairs(list) do
        for k, t in ipairs(one.tensors) do
            local index = (wanted[i].tensors[k] or wanted[i].tensors[1]):detach():flatten()
            local found = self:_rows(one.entry, index:to(one.entry.device))
            t:zero_()
            t[index:to(t.device)] = found:to(t.device)
        end
    end
end

---Sets the effect of a push: f(key, pushed, stored) changes `stored` in place; `pushed` is the sum. Gradients are not
---recorded.
---@param f function
function Store:set_updater(f)
    self.updater, self.shared, self.make = f, false, false
    self:_tell("updater", f)
end

---Pushes are compressed to 2 bits per element: one at or above the threshold counts as the threshold, one at or below
---its negative as that, others as 0. The rest of a push is added to the next one of the key by the same worker (and
---from the same place in its list). Values must be floats; init and pull are not compressed.
---@param options table type = "2bit" or "none", threshold
function Store:set_compression(options)
    for _, entry in ipairs(self.order) do
        if options.type == "2bit" then check_floats("set_compression", entry, "compression takes") end
        entry.residuals = {}
    end
    if options.threshold == 0 then check.fail("set_compression: threshold must be above 0") end
    self.threshold = options.type == "2bit" and options.threshold
end

---Ends this worker's part; the store takes no more calls. A script that ends does so too.
function Store.close() end

---Waits until all workers have called it.
function Store:barrier()
    self:_meet()
end

function Store:__tostring()
    return ('kvstore("%s", %d keys, worker %d of %d)'):format(self.type, #self.order, self.rank, self.num_workers)
end

---A store of a class.
function Store._new(class, name, rank, workers)
    return setmetatable({
        type = name, rank = rank, num_workers = workers, entries = {}, order = {}, updater = false, shared = false,
        make = false, threshold = false,
    }, class)
end

Store._show, Store._sum_of, Store._check_floats = show, sum_of, check_floats
return Store

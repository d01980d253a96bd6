-- kvstore.lua -- values by key, shared by those who push to them and pull from them.
--
--     local kv = flow.kvstore.create "local"
--     kv:init("w", flow.zeros(2, 3))                   a copy of the tensor, the store's own
--     kv:push("w", {g1, g2})                           the sum of what is pushed replaces the value, or updates it
--     kv:pull("w", w)
--
-- A value keeps its dtype and shape. What a push does with the sum is decided by set_updater or set_optimizer. Tensors
-- given to a store are local ones; every call takes a list of keys with a list of values too. The kinds of stores
-- differ in where a value lies (`keep`), how pushes are summed (`reduce`), and how it is read (`whole`, `rows`).

local flow = require "flow"
local check = require "flow.check"
local optim = require "flow.optim"

local kvstore = {}

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

-- What a call is about, key by key: {key =, name = of the value in messages, tensors =}.
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

local function describe(t)
    return t.dtype .. check.shape(t)
end

local function check_local(who, name, t)
    if t.is_global then
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

function Store.keep(_, value)
    return value:detach():clone()
end

-- The sum of a list of tensors; not a copy when there is one.
local function sum_of(entry, tensors)
    local sum = tensors[1]:detach():to(entry.device)
    for i = 2, #tensors do sum = sum + tensors[i]:detach():to(entry.device) end
    return sum
end

function Store.reduce(_, entry, tensors)
    return sum_of(entry, tensors)
end

function Store.whole(_, entry)
    return entry.stored
end

-- Rows of a value; `index` is a 1-d tensor of their numbers.
function Store.rows(_, entry, index)
    return entry.stored:index_select(0, index)
end

function Store.meet() end

-- ---- what a push does ----

local function check_floats(who, entry)
    if not entry.text:find("float", 1, true) then
        check.fail("%s: key %s is %s, and an optimizer updates only floats", who, show(entry.key), entry.text)
    end
end

local function optimizer_of(self, entry)
    if self.shared then return self.shared end
    if entry.optimizer then return entry.optimizer end
    local made = self.make(entry.key, entry.stored)
    if not check.is("optimizer", made) then
        check.fail("set_optimizer: the function must return an optimizer, got %s", check.got(made))
    end
    local groups = made.groups
    if #groups ~= 1 or #groups[1].params ~= 1 or not rawequal(groups[1].params[1], entry.stored) then
        check.fail("set_optimizer: the function must return an optimizer of the one tensor that it is given")
    end
    entry.optimizer = made
    return made
end

-- One step of every optimizer concerned, over all of its keys that are pushed.
local function step(self, updates)
    local lists, optimizers = {}, {}
    for _, update in ipairs(updates) do
        local entry = update.entry
        local optimizer = optimizer_of(self, entry)
        if not lists[optimizer] then
            lists[optimizer] = {}
            optimizers[#optimizers + 1] = optimizer
        end
        table.insert(lists[optimizer], entry.stored)
        entry.stored.grad = update.pushed
    end
    for _, optimizer in ipairs(optimizers) do
        optimizer.groups[1].params = lists[optimizer]
        optimizer:step()
    end
    for _, update in ipairs(updates) do update.entry.stored.grad = nil end
end

local function call_updater(self, update)
    local stored = update.entry.stored
    local result = self.updater(update.entry.key, update.pushed, stored)
    if result ~= nil and not rawequal(result, stored) then
        check.fail("push: the updater returned %s; it must change `stored` in place, as stored:add_(pushed) does",
            check.got(result))
    end
end

---What becomes of the values of the keys: the updater's or the optimizer's work, else the sums replace them.
---@param updates table[] {entry =, pushed =, shared = is `pushed` a tensor of the script?}
function Store:apply(updates)
    if self.shared or self.make then return step(self, updates) end
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
        one.entry = {key = one.key, text = describe(one.tensors[1]), device = one.tensors[1].device, residuals = {}}
        check_local("init", one.name, one.tensors[1])
        if self.shared or self.make then check_floats("init", one.entry) end
    end
    local _ <close> = flow.no_grad()
    for _, one in ipairs(list) do
        one.entry.stored = self:keep(one.tensors[1], one.entry)
        self.entries[one.key] = one.entry
        self.order[#self.order + 1] = one.entry
    end
end

---Gives the store tensors for keys, which are summed: those of a list, of a key that occurs several times, and those of
---all workers. The sum replaces the value unless there is an updater or an optimizer.
---@param key any as of init
---@param value any a tensor or a list of tensors; of a list of keys a list of them
function Store:push(key, value)
    local list, updates = merged(requests("push", key, "value", value)), {}
    for _, one in ipairs(list) do
        one.entry = entry_of(self, "push", one.key)
        check_like("push", one.entry, one)
    end
    local _ <close> = flow.no_grad()
    for i, one in ipairs(list) do
        updates[i] = {
            entry = one.entry, pushed = self:reduce(one.entry, one.tensors), shared = #one.tensors == 1,
        }
    end
    self:apply(updates)
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

---Writes the values of keys to tensors of their dtypes and shapes.
---@param key any as of init
---@param out any a tensor or a list of tensors; of a list of keys a list of them
function Store:pull(key, out)
    local list = targets(self, "pull", key, out)
    local _ <close> = flow.no_grad()
    for _, one in ipairs(list) do
        local whole = self:whole(one.entry)
        for _, t in ipairs(one.tensors) do t:copy_(whole) end
    end
end

---Pushes, then pulls.
---@param key any as of init
---@param value any as of push
---@param out any as of pull
function Store:pushpull(key, value, out)
    targets(self, "pushpull", key, out)
    self:push(key, value)
    self:pull(key, out)
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
            local found = self:rows(one.entry, index:to(one.entry.device))
            t:zero_()
            t[index:to(t.device)] = found:to(t.device)
        end
    end
end

---What a push does: f(key, pushed, stored) changes `stored` in place; `pushed` is the sum. Gradients are not recorded.
---@param f function
function Store:set_updater(f)
    self.updater, self.shared, self.make = f, false, false
end

-- ---- optimizers ----

local function optimizer_names()
    local names = {}
    for _, name in ipairs(check.sorted_keys(optim)) do
        local class = rawget(optim, name)
        if type(class) == "table" and rawget(class, "_options") then names[#names + 1] = name end
    end
    return names
end

-- An optimizer of a kind that has no parameters yet.
local function new_shared(name, options)
    local names = optimizer_names()
    local known = false
    for _, one in ipairs(names) do known = known or one == name end
    if not known then
        check.fail("set_optimizer: there is no optimizer %s%s", check.quote(name), check.suggest(name, names))
    end
    local made = optim[name]({flow.zeros({})}, options)
    made.groups[1].params = {}
    return made
end

-- The name and the options of an optimizer, whose own parameters do not matter.
local function kind_of(optimizer)
    if #optimizer.groups ~= 1 then
        check.fail("set_optimizer: the optimizer has %d groups; for options of each key, give a function of key and " ..
            "tensor that returns an optimizer", #optimizer.groups)
    end
    local options = {}
    for key in pairs(optimizer.defaults) do options[key] = optimizer.groups[1][key] end
    return optimizer.name, options
end

---The store updates its values by an optimizer: a push is a gradient and one step of its keys. The optimizer is a name
---and options, ("SGD", {lr = 0.1}); an optimizer of flow.optim, whose kind and options are taken, not its parameters;
---or a function of a key and its tensor that returns the optimizer of that tensor.
---@param optimizer any
---@param options table?
function Store:set_optimizer(optimizer, options)
    local name = optimizer
    if options and type(name) ~= "string" then
        check.fail("set_optimizer: options come with a name: set_optimizer(\"SGD\", {lr = 0.1})")
    end
    for _, entry in ipairs(self.order) do check_floats("set_optimizer", entry) end
    if check.is("optimizer", optimizer) then name, options = kind_of(optimizer) end
    local shared, make = false, false
    if type(name) == "string" then shared = new_shared(name, options) else make = optimizer end
    for _, entry in ipairs(self.order) do entry.optimizer = nil end
    self.updater, self.shared, self.make = false, shared, make
end

-- The optimizers there are with their entries, in order; of all keys.
local function optimizers_of(self, who)
    if not self.shared and not self.make then check.fail("%s: the store has no optimizer", who) end
    local list, by_optimizer = {}, {}
    for _, entry in ipairs(self.order) do
        local optimizer = optimizer_of(self, entry)
        if not by_optimizer[optimizer] then
            by_optimizer[optimizer] = {optimizer = optimizer, entries = {}}
            list[#list + 1] = by_optimizer[optimizer]
            optimizer.groups[1].params = {}
        end
        table.insert(by_optimizer[optimizer].entries, entry)
        table.insert(optimizer.groups[1].params, entry.stored)
    end
    return list
end

---Sets the learning rate of the store's optimizer.
---@param lr number
function Store:set_lr(lr)
    if self.shared then self.shared:set_lr(lr) end
    for _, one in ipairs(optimizers_of(self, "set_lr")) do one.optimizer:set_lr(lr) end
end

-- ---- the optimizer's state in files ----

local KIND = "kvstore"

-- The saved form: a list of {key =, optimizer = its name, options =, state = tensors and `step`}.
function Store:states()
    local list = {}
    for _, one in ipairs(optimizers_of(self, "save")) do
        local saved = one.optimizer:state_dict()
        saved.groups[1].params = nil
        for i, entry in ipairs(one.entries) do
            list[#list + 1] = {
                key = entry.key, optimizer = one.optimizer.name, options = saved.groups[1], state = saved.state[i],
            }
        end
    end
    return list
end

---Takes states as Store:states gives them, of all keys.
---@param by_key table key -> one of the list
function Store:take_states(by_key)
    for _, one in ipairs(optimizers_of(self, "load")) do
        local dict, options = {groups = {{params = {}}}, state = {}}, nil
        for i, entry in ipairs(one.entries) do
            local saved = by_key[entry.key]
            if saved.optimizer ~= one.optimizer.name then
                check.fail("load: the state of key %s is that of %s, the store has %s", show(entry.key),
                    check.got(saved.optimizer), one.optimizer.name)
            end
            dict.groups[1].params[i], dict.state[i], options = i, saved.state, saved.options
        end
        for name, value in pairs(options) do dict.groups[1][name] = value end
        one.optimizer:load_state_dict(dict)
    end
end

---Saves the state of the optimizer, not the values.
---@param path string
function Store:save(path)
    flow.save(path, {kind = KIND, keys = self:states()})
end

-- The entries of a file by their keys: those of the store.
local function read_states(self, path)
    local loaded, by_key = flow.load(path, {lazy = true}), {}
    if loaded.kind ~= KIND or type(loaded.keys) ~= "table" then
        check.fail("load: %s was not saved by a store", path)
    end
    for _, saved in ipairs(loaded.keys) do
        if type(saved) ~= "table" or type(saved.options) ~= "table" or type(saved.state) ~= "table" then
            check.fail("load: %s was not saved by a store", path)
        end
        if not self.entries[saved.key] then
            check.fail("load: %s has a state of key %s, which the store does not have", path, show(saved.key))
        end
        by_key[saved.key] = saved
    end
    for _, entry in ipairs(self.order) do
        if not by_key[entry.key] then check.fail("load: %s has no state of key %s", path, show(entry.key)) end
    end
    return by_key
end

---Loads what save has saved, into a store with the same keys and the same optimizer.
---@param path string
function Store:load(path)
    if not self.shared and not self.make then check.fail("load: the store has no optimizer") end
    self:take_states(read_states(self, path))
end

---Waits until all workers have called it.
function Store:barrier()
    self:meet()
end

function Store:__tostring()
    return ('kvstore("%s", %d keys, worker %d of %d)'):format(self.type, #self.order, self.rank, self.num_workers)
end

-- ---- kinds of stores ----

local kinds = {["local"] = Store}

local function new(class, name, rank, workers)
    return setmetatable({
        type = name, rank = rank, num_workers = workers, entries = {}, order = {}, updater = false, shared = false,
        make = false,
    }, class)
end

---Makes a store. "local": of this process alone.
---@param kind string
---@return flow.kvstore.Store
function kvstore.create(kind)
    local class = kinds[kind]
    if not class then
        check.fail("create: there is no store of type %s%s", check.quote(kind),
            check.suggest(kind, check.sorted_keys(kinds)))
    end
    return new(class, kind, 0, 1)
end

check.methods(Store, "store", {
    "init(key: any, value: any)", "push(key: any, value: any)", "pull(key: any, out: any)",
    "pushpull(key: any, value: any, out: any)", "row_sparse_pull(key: any, rows: any, out: any)",
    "set_updater(f: function)", "set_optimizer(optimizer: string or function or optimizer, options: table?)",
    "set_lr(lr: number >= 0)", "save(path: string)", "load(path: string)", "barrier()",
})
check.takes(kvstore, {"create(type: string)"})
check.strict("kvstore", Store)
return check.strict("kvstore", kvstore)

-- kvstore_optimizer.lua -- the optimizer of a store: its arguments, its steps, and its state in files.
--
-- One optimizer has all keys (`shared`), or a function has made one for each key. The list of parameters of an
-- optimizer is that of the keys that are updated; its states belong to the tensors and stay.

local flow = require "flow"
local check = require "flow.check"
local optim = require "flow.optim"
local Store = require "flow.kvstore_store"

local show, check_floats = Store._show, Store._check_floats

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
function Store:_step(updates)
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
    local fits, made = pcall(optim[name], {flow.zeros({})}, options)
    if not fits then check.fail("set_optimizer: %s", (made:gsub("^[^\n]-:%d+: ", ""))) end
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
    for _, entry in ipairs(self.order) do check_floats("set_optimizer", entry, "an optimizer updates") end
    if check.is("optimizer", optimizer) then name, options = kind_of(optimizer) end
    local shared, make = false, false
    if type(name) == "string" then shared = new_shared(name, options) else make = optimizer end
    for _, entry in ipairs(self.order) do entry.optimizer = nil end
    self.updater, self.shared, self.make = false, shared, make
    self:_tell("optimizer", {optimizer = make or name, options = options})
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
    if not self.shared and not self.make then check.fail("set_lr: the store has no optimizer") end
    self:_change_lr(lr)
end

function Store:_change_lr(lr)
    if self.shared then self.shared:set_lr(lr) end
    for _, one in ipairs(optimizers_of(self, "set_lr")) do one.optimizer:set_lr(lr) end
end

-- ---- the optimizer's state in files ----

local KIND = "kvstore"

-- The saved form: a list of {key =, optimizer = its name, options =, state = tensors and `step`}.
function Store:_states()
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

---Takes states as Store:_states gives them, of all keys.
---@param by_key table key -> one of the list
function Store:_take_states(by_key)
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
    if not self.shared and not self.make then check.fail("save: the store has no optimizer") end
    self:_write(path, {kind = KIND, keys = self:_states()})
end

function Store._write(_, path, saved)
    flow.save(path, saved)
end

-- The entries of a file by their keys: those of the store.
function Store:_read_states(path, whole)
    local loaded, by_key = flow.load(path, {lazy = not whole}), {}
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
    self:_take_states(self:_read_states(path))
end

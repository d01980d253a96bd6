-- data_loader.lua -- batches of a dataset, in an order that can be saved and taken up again.
--
-- The loader's order depends on its seed and the epoch alone: where a pass stands is (epoch, batch), whatever else
-- draws random numbers and however many ranks there are, and can be saved and taken up again. With a placement a batch
-- is global, and each rank asks the dataset for its own rows alone; nothing is communicated.
--
-- A generic `for` calls the loader itself, with the batch that it got last: so the loader can tell the loops
-- apart, and each makes a pass of its own.

local flow = require "flow"
local check = require "flow.check"

local io_ = flow._io

local loaders = {}

---Where it stands is where the pass does that gave a batch last.
---@class flow.data.Loader
---@field dataset any
---@field batch_size integer
---@field epoch integer of that pass, from 0; at its end that of the next one
---@field position integer batches given in this epoch
---@field begun integer passes begun
local Loader = {}
Loader.__index = Loader

-- The rows of a batch of `count` that this rank holds.
local function own_rows(count, placement, sbp)
    return flow.arange(count, {placement = placement, sbp = sbp}):to_local():to("cpu")
end

local function check_places(o)
    if (o.placement == nil) ~= (o.sbp == nil) then check.fail("loader: placement and sbp must be given together") end
    if o.placement and not pcall(own_rows, 1, o.placement, o.sbp) then
        check.fail("loader: sbp must be S(0), rows, or B for each of the %d axes of the placement's hierarchy",
            #o.placement.hierarchy)
    end
end

local function is_dataset(value)
    local ok, batch = pcall(function() return value.batch end)
    return ok and type(value) == "table" and type(batch) == "function"
end

---Batches of a dataset. `for batch in loader do` walks one epoch, also inside a loop over the same loader;
---loader:next() continues through all epochs. batch_size counts the rows of all ranks together. With placement and sbp
---("S(0)", "B") the tensors of a batch are global. With `shuffle` every epoch has its own order, which depends on
---`seed`; the default seed is that of flow.manual_seed when the first pass begins.
---@param dataset any
---@param opts {batch_size: integer, shuffle: boolean, seed: integer, drop_last: boolean, placement: any, sbp: any}?
function loaders.loader(dataset, opts)
    check_places(opts)
    if not is_dataset(dataset) then
        local form = "as data.tensors(x, y) gives (#dataset and dataset:batch(positions))"
        check.fail("loader: takes a dataset, %s, got %s", form, check.got(dataset))
    end
    local self = setmetatable({
        dataset = dataset, batch_size = opts.batch_size, shuffle = opts.shuffle, seed = opts.seed or false,
        drop_last = opts.drop_last, placement = opts.placement or false, sbp = opts.sbp or false,
        epoch = 0, position = 0, begun = 0,
        pass = false,                                   -- {epoch =, position =}: the one that gave a batch last
        resumed = false,                                -- is `pass` for the next loop to go on with?
        passes = setmetatable({}, {__mode = "k"}),      -- batch -> the pass that gave it
    }, Loader)
    if #self == 0 then check.fail("loader: %d items are too few for a batch of %d", #dataset, opts.batch_size) end
    return self
end

---Batches of one epoch.
function Loader:__len()
    local count = #self.dataset
    return self.drop_last and count // self.batch_size or (count + self.batch_size - 1) // self.batch_size
end

-- A batch as global tensors, of which this rank has made its own rows.
local function global_batch(self, positions)
    local count = positions:size(0)
    local places = {placement = self.placement, sbp = self.sbp}
    local rows = own_rows(count, self.placement, self.sbp)
    local batch = self.dataset:batch(positions:index_select(0, rows))
    for i, t in ipairs(batch) do
        local shape = t.shape
        shape[1], places.dtype = count, t.dtype
        local whole = flow.empty(shape, places)
        local own = whole:to_local()
        if rows:size(0) > 0 then own:copy_(t:to(own.device)) end
        batch[i] = whole
    end
    return batch
end

local function begin(self)
    self.begun = self.begun + 1
    return {epoch = self.begun - 1, position = 0}
end

-- The seed of the order, for good once it is known.
local function seed_of(self)
    if not self.seed then self.seed = self.shuffle and flow.default_generator():state().seed or 0 end
    return self.seed
end

-- Notes that the pass gave this batch. A dataset may give the same table again: other loops need one of their own.
local function note(self, pass, batch)
    if type(batch) ~= "table" then check.fail("loader: a dataset's batch must be a table, got %s", check.got(batch)) end
    local other = self.passes[batch]
    if other and other ~= pass then
        local copy = setmetatable({}, getmetatable(batch))
        for key, value in next, batch do rawset(copy, key, value) end
        batch = copy
    end
    self.passes[batch] = pass
    return batch
end

-- The next batch of a pass, nil at its end.
local function advance(self, pass)
    self.resumed = false
    if pass.position >= #self then
        self.pass, self.epoch, self.position = false, self.begun, 0
        return nil
    end
    local first = pass.position * self.batch_size
    local count = math.min(self.batch_size, #self.dataset - first)
    local positions = self.shuffle and io_.shuffled(#self.dataset, seed_of(self), pass.epoch, first, count)
        or flow.arange(first, first + count)
    local batch = self.placement and global_batch(self, positions) or self.dataset:batch(positions)
    batch = note(self, pass, batch)
    pass.position = pass.position + 1
    self.pass, self.epoch, self.position = pass, pass.epoch, pass.position
    return batch
end

---The next batch: of the pass that gave the last one, or of a new pass after its end.
function Loader:next()
    return advance(self, self.pass or begin(self)) or advance(self, begin(self))
end

-- Called by a generic `for`. A loop that was left early is not taken up again by the next loop, unless its state was
-- loaded.
function Loader:__call(...)
    local _, last = ...
    if select("#", ...) ~= 2 or _ ~= nil or last ~= nil and not self.passes[last] then
        check.fail("loader: not a function; write for batch in loader do, or loader:next()")
    end
    if last ~= nil then return advance(self, self.passes[last]) end
    return advance(self, self.resumed and self.pass or begin(self))
end

---The position of the pass that gave the last batch, in whatever loop. To resume an outer loop, take the state before
---an inner loop over the same loader begins.
---@return {epoch: integer, position: integer, seed: integer, begun: integer}
function Loader:state()
    return {epoch = self.epoch, position = self.position, seed = seed_of(self), begun = self.begun}
end

---Continues where `state` was taken; dataset and options must be the same. The next loop, or next(), continues that
---pass; later ones begin the epochs after it. The order is the saved one, whatever flow.manual_seed was called with.
---@param state {epoch: integer, position: integer, seed: integer, begun: integer?}
function Loader:load_state(state)
    local o = check.options("load_state", state,
        {epoch = check.none, position = check.none, seed = check.none, begun = check.none})
    local epoch = check.integer("load_state", "epoch", o.epoch, 0)
    local position = check.integer("load_state", "position", o.position, 0)
    local seed = check.integer("load_state", "seed", o.seed, math.mininteger)
    local begun = o.begun == nil and epoch + 1 or o.begun
    begun = check.integer("load_state", "begun", begun, position > 0 and epoch + 1 or epoch)
    self.pass = begun > epoch and {epoch = epoch, position = position}
    self.epoch, self.position, self.seed, self.begun, self.resumed = epoch, position, seed, begun, true
end

check.takes(loaders, {
    [[loader(dataset: any, {batch_size: integer >= 1 = 1, shuffle: boolean = false, seed: integer?,
        drop_last: boolean = false, placement: placement?, sbp: any?})]],
})
check.methods(Loader, "loader", {"next()", "state()", "load_state(state: list)"})
check.strict("Loader", Loader, "; write for batch in loader do, or loader:next()")
return loaders

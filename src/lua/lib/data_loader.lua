-- data_loader.lua -- batches of a dataset, in an order that can be saved and taken up again.
--
-- The loader's order depends on its seed and the epoch alone. The position of a pass is (epoch, items given),
-- independent of other random numbers and of the number of ranks. It can be saved and taken up again, also by other
-- ranks and in batches of another size. With a placement a batch is global, and each rank asks the dataset for its own
-- rows alone; nothing is communicated. A rank's history has the number of its batch, so that ranks with rows of
-- different batches, as when an item failed on one of them, get an error when they meet.
--
-- A pass asks for batches ahead of the one that it gives (data_batch.lua makes them), in their order. An error of a
-- batch is raised when its turn comes.
--
-- A generic `for` calls the loader itself, with the batch that it got last: so the loader can tell the loops
-- apart, and each makes a pass of its own.

local flow = require "flow"
local check = require "flow.check"
local batches = require "flow.data_batch"
local collate = require "flow.data_collate"
local samplers = require "flow.data_sampler"

local io_ = flow._io

local loaders = {}

---Its position is that of the pass that gave a batch last.
---@class flow.data.Loader
---@field dataset any
---@field batch_size integer
---@field epoch integer of that pass, from 0; at its end that of the next one
---@field position integer batches given in this epoch
---@field begun integer passes begun
---@field real integer rows of the last batch that are not there to fill it up (pad_last)
---@field skipped integer items left out so far (skip_errors)
---@field problem string|false why the last of them was left out
local Loader = {}
Loader.__index = Loader

local function check_places(o)
    if o.placement and o.device then check.fail("loader: a placement says the device; leave out device") end
    if (o.placement == nil) ~= (o.sbp == nil) then check.fail("loader: placement and sbp must be given together") end
    if o.placement and not pcall(batches.own_rows, 1, o.placement, o.sbp) then
        check.fail("loader: sbp must be S(0), rows, or B for each of the %d axes of the placement's hierarchy",
            #o.placement.hierarchy)
    end
end

local function check_size(dataset)
    local size = #dataset
    if math.type(size) == "integer" and size >= 0 then return end
    check.fail("loader: the size of a dataset, #dataset, must be a whole number >= 0, got %s", check.got(size))
end

local function check_options(o)
    check_places(o)
    local ok, message = pcall(flow.empty, 0, {device = o.device})
    if not ok then check.fail("loader: %s", (message:gsub("^.-empty: ", "", 1))) end
    if o.drop_last and o.pad_last then
        check.fail("loader: drop_last leaves out the batch that pad_last fills up; give one")
    end
    if o.skip_errors and o.placement then
        check.fail("loader: skip_errors and a placement do not go together: ranks would have rows of different batches")
    end
end

local function has(dataset, name)
    local ok, method = pcall(function() return dataset[name] end)
    return ok and type(method) == "function"
end

local function is_dataset(value)
    return (type(value) == "table" or type(value) == "userdata") and (has(value, "batch") or has(value, "get"))
end

-- {function, arguments} of a dataset whose items a function makes (data.generate), nil: of another.
local function generated_of(dataset)
    local ok, generated = pcall(function() return dataset._generated end)
    return ok and generated or nil
end

-- The way of making batches: by the dataset as a whole, or of its items, which are rows if it gives batches alone.
local function kind_of(dataset, o)
    local whole, items = has(dataset, "batch"), has(dataset, "get")
    if generated_of(dataset) then return "generate" end
    if not whole or not o.transform and (o.collate or o.skip_errors) then return items and "get" or "row" end
    return "batch"
end

-- The crew that makes or changes the items; false: there is none.
local function crew_of(dataset, o)
    local generated = generated_of(dataset)
    if not generated and not o.transform then return false end
    if o.transform and type(o.transform) ~= "function" then
        check.fail("loader: transform must be a Lua function, got %s", check.got(o.transform))
    end
    return io_.crew {
        generate = generated and generated[1], generate_args = generated and generated[2],
        transform = o.transform, transform_args = o.args, workers = o.workers,
    }
end

-- True if the dataset computes a batch in one call, and draws nothing at random.
local function is_at_once(dataset)
    local ok, at_once = pcall(function() return dataset._at_once end)
    return ok and at_once == true
end

---Batches of a dataset. `for batch in loader do` walks one epoch, also inside a loop over the same loader;
---loader:next() continues through all epochs. batch_size counts the rows of all ranks together. With placement and sbp
---("S(0)", "B") the tensors of a batch are global; with `device` they are copied there. With `shuffle` every epoch has
---its own order, which depends on `seed`; the default seed is that of flow.manual_seed when the first pass begins. The
---next `prefetch` batches are asked for ahead. transform(item, random, ...) changes every item, `args` are the dots;
---with `workers` it runs on so many threads beside the script, where it sees tensors as arrays and has nothing of the
---script around it; the default is 0, the script itself. Random numbers from `random` depend on seed, epoch and
---position alone. Items are stacked, or `collate(items)` makes the batch; with skip_errors those that fail are left out
---and counted in loader.skipped. The last batch may be short; drop_last leaves it out, pad_last fills it up from the
---epoch's beginning: loader.real says how many rows are its own. Of an empty dataset a loop is empty. `sampler` gives
---the positions of an epoch in their order: a list, a tensor, or a function that returns one for an epoch, from 0.
---`batch_sampler` gives the items of each batch, of any number: a list of lists (or tensors) of positions, or a
---function that returns one for an epoch.
---@param dataset any
---@param opts {batch_size: integer, shuffle: boolean, seed: integer, drop_last: boolean, pad_last: boolean,
---sampler: any, batch_sampler: any, prefetch: integer, workers: integer, transform: function, args: list,
---collate: function, skip_errors: boolean, device: string, placement: any, sbp: any}?
function loaders.loader(dataset, opts)
    check_options(opts)
    if not is_dataset(dataset) then
        local form = "as data.tensors(x, y) gives (#dataset and dataset:batch(positions))"
        check.fail("loader: takes a dataset, %s, got %s", form, check.got(dataset))
    end
    check_size(dataset)
    local device = opts.placement and opts.placement.type or opts.device or false
    local at_once = is_at_once(dataset)             -- nothing is gained by asking ahead, but for copies to a device
    local crew = crew_of(dataset, opts)
    local self = {
        dataset = dataset, kind = kind_of(dataset, opts), crew = crew, device = device,
        fresh = at_once,                                -- ours, which give a new table each time
        draws = opts.shuffle or crew or not at_once,            -- its results can depend on its seed
        epoch = 0, position = 0, begun = 0, items = 0, real = 0, skipped = 0, problem = false,
        pass = false,                                   -- the one that gave a batch last
        resumed = false,                                -- the next loop continues `pass`
        passes = setmetatable({}, {__mode = "k"}),      -- batch -> the pass that gave it
    }
    for _, name in ipairs {"seed", "collate", "placement", "sbp"} do
        self[name] = opts[name] or false
    end
    self.batch_size, self.batch_sampler, self.sampled = opts.batch_size or 1, samplers.of(opts), false
    self.sampler = opts.sampler and true or false   -- a batch has batch_size of its positions
    for _, name in ipairs {"shuffle", "drop_last", "pad_last", "skip_errors", "workers"} do
        self[name] = opts[name]
    end
    local copies = device and device ~= "cpu"
    self.prefetch = opts.prefetch or (copies or not at_once or crew and opts.workers > 0) and 2 or 0
    self.at_once = self.prefetch == 0 and self.kind == "batch" and not (crew or device or self.placement)
    setmetatable(self, Loader)
    local size = #dataset                           -- 0, as a rank's part may be: its loops are empty
    if size > 0 and opts.drop_last and #self == 0 then
        check.fail("loader: %d items are too few for a batch of %d; leave out drop_last", size, self.batch_size)
    end
    return self
end

---The batch that a loader without `collate` makes of a list of items, for a `collate` of the script's own; of tensors,
---numbers or strings in place of items what it makes of one field.
---@param items any[]
---@return any
function loaders.default_collate(items)
    if #items == 0 then check.fail("default_collate: items must not be empty") end
    local bare, list, numbers = type(items[1]) ~= "table", {}, {}
    for i, item in ipairs(items) do
        list[i], numbers[i] = bare and {item} or item, i - 1
        collate.check_item(list[i], i - 1, "default_collate")
    end
    local batch = collate.stack(list, numbers, "default_collate")
    if bare then return batch[1] end
    return batch
end

-- Batches that `items` fill, the last one perhaps in part.
local function batches_of(self, items) return -(-items // self.batch_size) end

---Batches of one epoch.
function Loader:__len()
    if self.batch_sampler then return #samplers.batches(self, self.epoch) end
    local count = #self.dataset
    return self.drop_last and count // self.batch_size or batches_of(self, count)
end

-- A pass: items and batches given, items asked for, and the batches in between.
local function new_pass(epoch, items, position)
    return {epoch = epoch, items = items, position = position, asked = items, ahead = {}, draws = false}
end

local function begin(self)
    self.begun = self.begun + 1
    return new_pass(self.begun - 1, 0, 0)
end

-- The seed of the order, for good once it is known.
local function seed_of(self)
    if not self.seed then self.seed = self.draws and flow.default_generator():state().seed or 0 end
    return self.seed
end

-- Positions in the dataset of `total` items of `count` of the epoch, from `first` on; after its last one its first
-- follows again.
local function positions_of(self, total, epoch, first, count)
    if first + count > total then
        local left = total - first
        local again = positions_of(self, total, epoch, 0, math.min(count - left, total))
        if count - left > total then again = again:index_select(0, flow.arange(count - left):remainder(total)) end
        return flow.cat({positions_of(self, total, epoch, first, left), again}, 0)
    end
    if self.shuffle then return io_.shuffled(total, seed_of(self), epoch, first, count) end
    return flow.arange(first, first + count)
end

-- Rows of the next batch of the pass that are its own, and the positions of all its rows; nil at the end.
local function next_rows(self, pass)
    if self.batch_sampler then
        pass.batches = pass.batches or samplers.batches(self, pass.epoch)
        local number = pass.position + #pass.ahead + 1
        if number > #pass.batches then return nil end
        local positions = samplers.positions(pass.batches, number)
        pass.draws = pass.draws or {seed = seed_of(self), epoch = pass.epoch}
        return #positions, positions
    end
    local total = #self.dataset                     -- of a dataset that grows or shrinks, as it is now
    local real = math.min(self.batch_size, total - pass.asked)
    if real <= 0 or self.drop_last and real < self.batch_size then return nil end
    pass.draws = pass.draws or {seed = seed_of(self), epoch = pass.epoch}
    return real, positions_of(self, total, pass.epoch, pass.asked, self.pad_last and self.batch_size or real)
end

-- Asks for the next batch of the pass; false at its end. An error is the batch's, and raised in its turn; Ctrl-C at
-- once.
local function ask(self, pass)
    local real, positions = next_rows(self, pass)
    if not real then return false end
    local ok, batch = pcall(batches.ask, self, positions, real, pass.draws)
    if not ok then
        if batches.is_interrupt(batch) then error(batch, 0) end
        batch = {failed = true, message = batch, real = real, skipped = {}}
    end
    pass.asked = pass.asked + real
    pass.ahead[#pass.ahead + 1] = batch
    return true
end

-- Notes that the pass has given a batch with so many rows of its own, or failed to.
local function note(self, pass, real)
    pass.items, pass.position = pass.items + real, pass.position + 1
    self.pass, self.epoch, self.position, self.items = pass, pass.epoch, pass.position, pass.items
    self.real = real
end

local function note_skipped(self, batch)
    for _, item in ipairs(batch.skipped) do
        if item.place <= batch.real then            -- rows that fill the batch up count in their own place
            self.skipped, self.problem, self.real = self.skipped + 1, item.message, self.real - 1
        end
    end
end

-- The fields of the batch whose turn it is, nil when all of its items were left out; its error.
local function give(self, pass, batch)
    local ok, result = not batch.failed, batch.message
    if ok then ok, result = pcall(batches.finish, self, batch) end
    if not ok and batches.is_interrupt(result) then error(result, 0) end
    table.remove(pass.ahead, 1)
    if self.placement then io_.point(self.placement, ok, pass.epoch, pass.items) end
    note(self, pass, batch.real)
    note_skipped(self, batch)
    if not ok then error(result, 0) end
    return result
end

-- The next batch of a dataset that makes it at once, where nothing else is to be done to it; nil at the end.
local function give_at_once(self, pass)
    local real, positions = next_rows(self, pass)
    if not real then return nil end
    local ok, result = pcall(batches.whole, self, positions, pass.draws)
    if not ok and batches.is_interrupt(result) then error(result, 0) end
    pass.asked = pass.asked + real
    note(self, pass, real)
    if not ok then error(result, 0) end
    return result
end

-- Brings a batch further whose turn has not come; an error waits for it.
local function progress(self, batch)
    if batch.failed then return end
    local ok, message = pcall(batches.progress, self, batch)
    if ok then return end
    if batches.is_interrupt(message) then error(message, 0) end
    batch.failed, batch.message = true, message
end

-- The same of any dataset, with those after it asked for.
local function give_next(self, pass)
    local ahead = pass.ahead
    while true do
        while #ahead <= self.prefetch and ask(self, pass) do end
        if #ahead == 0 then return nil end
        for i = 2, #ahead do progress(self, ahead[i]) end
        local fields = give(self, pass, ahead[1])
        if fields then return fields end
    end
end

-- The next batch of a pass, nil at its end.
local function advance(self, pass)
    self.resumed = false
    local fields = (self.at_once and give_at_once or give_next)(self, pass)
    if fields and not self.fresh then batches.given(fields) end
    if fields then self.passes[fields] = pass
    else self.pass, self.epoch, self.position, self.items = false, self.begun, 0, 0 end
    return fields
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
---@return {epoch: integer, position: integer, items: integer, seed: integer, begun: integer, size: integer}
function Loader:state()
    return {
        epoch = self.epoch, position = self.position, items = self.items, seed = seed_of(self), begun = self.begun,
        size = #self.dataset,
    }
end

-- In words, with the place of the pass that gave the last batch.
function Loader:__tostring()
    local text = ("loader: %d items in batches of %s%s"):format(#self.dataset,
        self.batch_sampler and not self.sampler and "batch_sampler" or ("%d"):format(self.batch_size),
        self.sampler and " by a sampler" or self.shuffle and ", shuffled" or "")
    return ("%s; at epoch %d, item %d"):format(text, self.epoch, self.items)
end

---Continues where `state` was taken; the dataset and the order must be the same, but ranks and batch_size need not. The
---next loop, or next(), continues that pass; later ones begin the epochs after it. The order is the saved one, whatever
---flow.manual_seed was called with.
---@param state {epoch: integer, position: integer, items: integer?, seed: integer, begun: integer?, size: integer?}
function Loader:load_state(state)
    local o = check.options("load_state", state, {
        epoch = check.none, position = check.none, items = check.none, seed = check.none, begun = check.none,
        size = check.none,
    })
    local epoch = check.integer("load_state", "epoch", o.epoch, 0)
    local position = check.integer("load_state", "position", o.position, 0)
    local seed = check.integer("load_state", "seed", o.seed, math.mininteger)
    local begun = o.begun == nil and epoch + 1 or o.begun
    begun = check.integer("load_state", "begun", begun, position > 0 and epoch + 1 or epoch)
    local items = o.items and check.integer("load_state", "items", o.items, 0)
    local size = o.size and check.integer("load_state", "size", o.size, 0)
    if size and size ~= #self.dataset and self.shuffle then
        check.fail("load_state: the state is of an order of %d items; this dataset has %d", size, #self.dataset)
    elseif items and items > #self.dataset and not self.batch_sampler then
        check.fail("load_state: the state stands at item %d of a dataset; this one has %d", items, #self.dataset)
    end
    if self.batch_sampler then
        local count = #samplers.batches(self, epoch)
        if position > count then
            check.fail("load_state: the state stands at batch %d of an epoch; %s has %d", position,
                self.sampler and "sampler" or "batch_sampler", count)
        end
        items = items or 0
    elseif items then
        position = batches_of(self, items)
    elseif position > batches_of(self, #self.dataset) then
        check.fail("load_state: the state stands at batch %d of an epoch; this loader's have %d", position, #self)
    else
        items = position * self.batch_size
    end
    self.pass = begun > epoch and new_pass(epoch, items, position)
    self.epoch, self.position, self.items, self.seed, self.begun = epoch, position, items, seed, begun
    self.resumed = true
end

check.takes(loaders, {
    [[loader(dataset: any, {batch_size: integer >= 1?, shuffle: boolean = false, seed: integer?,
        drop_last: boolean = false, pad_last: boolean = false, sampler: list or tensor or function?,
        batch_sampler: list or function?,
        prefetch: integer >= 0?, workers: integer 0..256 = 0, transform: function?, args: list?, collate: function?,
        skip_errors: boolean = false, device: string?, placement: placement?, sbp: any?})]],
    "default_collate(items: list)",
})
check.methods(Loader, "loader", {"next()", "state()", "load_state(state: list)"})
check.strict("Loader", Loader, "; write for batch in loader do, or loader:next()")
return loaders

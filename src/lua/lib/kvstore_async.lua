-- kvstore_async.lua -- a store on servers: the last ranks, which do nothing else. This is the side of the workers.
--
-- A key lies on one server, by a hash of it; a big one lies on all of them, in parts of its rows. A push is a message
-- that nothing waits for, a pull writes its tensor when the answer has come: workers do not wait for each other. Every
-- so many pushes a server answers, so that it is never far behind; where staleness is bounded it answers each, when it
-- may.

local flow = require "flow"
local check = require "flow.check"
local compress = require "flow.kvstore_compress"
local server = require "flow.kvstore_server"
local values = require "flow.kvstore_values"
local Store = require "flow.kvstore_store"

local messages, head = flow._messages, server.head

---@class flow.kvstore.Async: flow.kvstore.Store
local Async = setmetatable({}, {__index = Store})
Async.__index, Async.__tostring = Async, Store.__tostring

local UNANSWERED = 32           -- pushes to a server

-- ---- messages ----

local function check_open(self, name)
    if self.closed then check.fail("%s: the store is closed", name) end
end

-- Sends what may go without an answer.
local function send(self, name, to, kind, number, text, body)
    check_open(self, name)
    local count = self.unanswered[to] + 1
    local answered = self.staleness or count >= UNANSWERED
    self.unanswered[to] = answered and 0 or count
    if answered then
        messages.fetch(name, to, head(kind, true, number, text), nil, body)
    else
        messages.send(name, to, head(kind, false, number, text), body)
    end
end

-- Waits for the answer and gives its head.
local function ask(self, name, to, kind, number, text, body)
    check_open(self, name)
    return messages.ask(name, to, head(kind, true, number, text), body)
end

-- ---- places of values ----

-- The rows of each server: {server =, start =, count =}; of a key on one server, without rows.
local function parts_of(self, entry)
    local rows, numel = entry.shape[1] or 0, 1
    for _, size in ipairs(entry.shape) do numel = numel * size end
    local count = #self.servers
    if numel < self.bound or rows < count or count == 1 then
        return {{server = self.servers[values.hash(values.key_text(entry.key)) % count + 1], shape = entry.shape}}
    end
    local parts, start = {}, 0
    for i, rank in ipairs(self.servers) do
        local size = rows // count + (i <= rows % count and 1 or 0)
        local shape = values.sizes(entry.shape)
        shape[1] = size
        parts[i] = {server = rank, start = start, count = size, shape = shape}
        start = start + size
    end
    return parts
end

local function part_of(whole, part)
    return part.start and whole:narrow(0, part.start, part.count) or whole
end

function Async:_keep(value, entry)
    entry.text_key, entry.parts = values.key_text(entry.key), parts_of(self, entry)
    local whole = value:detach():to("cpu"):contiguous()
    for _, part in ipairs(self.rank == 0 and entry.parts or {}) do
        local about = {key = entry.key, dtype = entry.dtype, shape = values.sizes(part.shape)}
        ask(self, "kvstore init", part.server, "I", 0, values.encode(about, "init"), part_of(whole, part))
    end
    return false
end

-- ---- pushing and pulling ----

function Async:_apply(updates)
    for _, update in ipairs(updates) do
        local entry, pushed = update.entry, update.pushed
        local codes = self.threshold and compress.compress(entry, 1, pushed, #entry.parts, self.threshold):to "cpu"
        local whole = not codes and pushed:to("cpu"):contiguous()
        for i, part in ipairs(entry.parts) do
            local body = codes and codes:narrow(0, i - 1, 1) or part_of(whole, part)
            send(self, "kvstore push", part.server, codes and "C" or "P", self.threshold or 0, entry.text_key, body)
        end
    end
end

function Async._reduce(_, entry, tensors)
    return Store._sum_of(entry, tensors)
end

function Async:_whole(entry)
    check_open(self, "kvstore pull")
    local whole = flow.empty(entry.shape, {dtype = entry.dtype})
    for _, part in ipairs(entry.parts) do
        messages.fetch("kvstore pull", part.server, head("G", true, 0, entry.text_key), part_of(whole, part))
    end
    return whole
end

-- The rows of one part that are among `index`: places in it, and their numbers within the part.
local function rows_of_part(index, part)
    local places, numbers = {}, {}
    for place, row in ipairs(index) do
        if row >= part.start and row < part.start + part.count then
            places[#places + 1], numbers[#numbers + 1] = place - 1, row - part.start
        end
    end
    return flow.tensor(places, {dtype = "int64"}), flow.tensor(numbers, {dtype = "int64"})
end

local function fetch_rows(entry, part, index)
    local shape = values.sizes(entry.shape)
    shape[1] = index:numel()
    local found = flow.empty(shape, {dtype = entry.dtype})
    messages.fetch("kvstore pull", part.server, head("R", true, 0, entry.text_key), found, index)
    return found
end

function Async:_rows(entry, index)
    check_open(self, "kvstore pull")
    index = index:to("cpu"):to("int64"):contiguous()
    local numbers, count = index:totable(), entry.shape[1]
    for place, row in ipairs(numbers) do
        if row < 0 or row >= count then
            check.fail("row_sparse_pull: row %d is %d, but key %s has %d rows", place - 1, row,
                Store._show(entry.key), count)
        end
    end
    if not entry.parts[1].start then return fetch_rows(entry, entry.parts[1], index) end
    local shape = values.sizes(entry.shape)
    shape[1] = #numbers
    local found = flow.empty(shape, {dtype = entry.dtype})
    for _, part in ipairs(entry.parts) do
        local places, rows = rows_of_part(numbers, part)
        if rows:numel() > 0 then found[places] = fetch_rows(entry, part, rows) end
    end
    return found
end

-- ---- all workers together ----

-- Waits for all workers at the same call, after all of their pushes.
function Async:_meet(what)
    for _, rank in ipairs(self.servers) do
        if self.unanswered[rank] > 0 then ask(self, "kvstore barrier", rank, "F") end
        self.unanswered[rank] = 0
    end
    ask(self, "kvstore barrier", self.servers[1], "B", 0, what or "barrier")
end

-- Every worker sends a description of its keys; the values are worker 0's.
function Async:_made(list)
    self:_meet("init of " .. values.describe(list))
end

function Async:_tell(kind, value)
    local name = "set_" .. kind
    local bytes = values.to_tensor(values.encode(value, name))
    for _, rank in ipairs(self.rank == 0 and self.servers or {}) do
        ask(self, "kvstore " .. name, rank, kind == "updater" and "U" or "O", 0, "", bytes)
    end
    self:_meet(name)
end

-- Worker 0's rate counts.
function Async:_change_lr(lr)
    for _, rank in ipairs(self.rank == 0 and self.servers or {}) do
        send(self, "kvstore set_lr", rank, "L", lr)
    end
end

-- ---- the optimizer's state in files, which worker 0 reads and writes ----

-- The states on a server: key -> saved.
local function fetch_states(self, rank)
    local bytes = flow.empty(tonumber(ask(self, "kvstore save", rank, "S")), {dtype = "uint8"})
    messages.fetch("kvstore save", rank, head("X", true), bytes)
    local by_key = {}
    for _, saved in ipairs(values.decode(bytes:tobytes())) do
        for name, about in pairs(saved.state) do
            if type(about) == "table" then
                local tensor = flow.empty(about.shape, {dtype = about.dtype})
                messages.fetch("kvstore save", rank, head("T", true, about.number), tensor)
                saved.state[name] = tensor
            end
        end
        by_key[saved.key] = saved
    end
    return by_key
end

-- The state of a key from those of its parts.
local function joined(entry, by_server)
    local saved = by_server[entry.parts[1].server][entry.key]
    for name, value in pairs(saved.state) do
        if check.is_tensor(value) and #entry.parts > 1 then
            local pieces = {}
            for i, part in ipairs(entry.parts) do pieces[i] = by_server[part.server][entry.key].state[name] end
            saved.state[name] = flow.cat(pieces, 0)
        end
    end
    return saved
end

function Async:_states()
    self:_meet "save"
    if self.rank > 0 then return nil end
    local by_server, list = {}, {}
    for _, rank in ipairs(self.servers) do by_server[rank] = fetch_states(self, rank) end
    for i, entry in ipairs(self.order) do list[i] = joined(entry, by_server) end
    return list
end

function Async:_write(path, saved)
    flow.on_rank(0, flow.save, path, saved)
    self:_meet "save"
end

function Async:_read_states(path)
    return flow.on_rank(0, Store._read_states, self, path, true)
end

local function send_state(self, part, saved)
    local about, tensors = {}, {}
    for name, value in pairs(saved.state) do
        about[name] = value
        if check.is_tensor(value) then
            tensors[name] = part_of(value, part):contiguous()
            about[name] = {dtype = value.dtype, shape = values.sizes(part.shape)}
        end
    end
    local whole = {key = saved.key, optimizer = saved.optimizer, options = saved.options, state = about}
    ask(self, "kvstore load", part.server, "A", 0, "", values.to_tensor(values.encode(whole, "load")))
    for name, tensor in pairs(tensors) do ask(self, "kvstore load", part.server, "Y", 0, name, tensor) end
end

function Async:_take_states(by_key)
    if self.rank == 0 then
        for _, entry in ipairs(self.order) do
            for _, part in ipairs(entry.parts) do send_state(self, part, by_key[entry.key]) end
        end
        for _, rank in ipairs(self.servers) do ask(self, "kvstore load", rank, "Z") end
    end
    self:_meet "load"
end

-- ---- the beginning and the end ----

function Async:close()
    if self.closed then return end
    for _, rank in ipairs(self.servers) do ask(self, "kvstore close", rank, "Q") end
    self.closed = true
end

-- At the end of the script. Servers of this host see that it has ended, and may have done so themselves.
function Async:__gc()
    pcall(self.close, self)
end

local made = false

-- All ranks give the same options; ranks that differ find it here.
local function agree(options)
    local numbers = flow.tensor({options.servers, options.staleness or -1, options.bound}, {dtype = "int64"})
    local same, message = pcall(numbers.to_global, numbers, {placement = flow.placement.all "cpu", sbp = "B"})
    if same then return end
    if message:find("different data", 1, true) then
        check.fail("create: the ranks give different options of dist_async")
    end
    check.fail("create: %s", (message:gsub("^[^\n]-:%d+: ", "")))
end

---A store on the last ranks of the world. On these it does not return: they serve, and end when the workers have.
function Async.create(options)
    local ranks, workers = flow.world_size(), flow.world_size() - options.servers
    if made then check.fail("create: this job has a dist_async store already, which its servers serve alone") end
    if workers < 1 then
        check.fail("create: dist_async with %d server%s needs %d ranks or more, there %s %d: start the script with " ..
            "flowlua --ranks %d", options.servers, options.servers == 1 and "" or "s", options.servers + 1,
            ranks == 1 and "is" or "are", ranks, options.servers + 1)
    end
    agree(options)
    made = true
    messages.set_aside(options.servers)
    if flow.rank() >= workers then
        server.serve(workers, options.staleness)
        os.exit(true, true)
    end
    local self = Store._new(Async, "dist_async", flow.rank(), workers)
    self.servers, self.unanswered, self.closed = {}, {}, false
    self.staleness, self.bound = options.staleness or false, options.bound
    for i = 1, options.servers do
        self.servers[i] = workers + i - 1
        self.unanswered[workers + i - 1] = 0
    end
    return self
end

return Async

-- kvstore_server.lua -- a rank that keeps values for the workers of a dist_async store.
--
-- A server has a store of its own, with the keys, or the rows of big keys, that are its part. It takes one message
-- after the other, from any worker: the first byte of a head is the request, the second is "a" if an answer is
-- expected. An answer can be late: at a barrier, or while a worker is too far ahead of the slowest. A worker that has
-- ended blocks no other; workers that wait for it at a barrier get an error that names it.

local flow = require "flow"
local check = require "flow.check"
local compress = require "flow.kvstore_compress"
local values = require "flow.kvstore_values"
local Store = require "flow.kvstore_store"

local messages = flow._messages

local M = {}

local HEAD = "<c1 c1 d"         -- the request, "a": answer, a number; then text
local LOOK_EVERY = 256          -- messages between two looks at who is still there
local SECONDS = 0.05            -- of a wait for a message

---The head of a message.
---@return string
function M.head(kind, answered, number, text)
    return string.pack(HEAD, kind, answered and "a" or "-", number or 0) .. (text or "")
end

-- ---- workers that wait ----

-- The fewest pushes of a key that any worker has made that is still there.
local function slowest(self, counts)
    local least = math.huge
    for worker in pairs(self.open) do least = math.min(least, counts[worker] or 0) end
    return least
end

local function is_ahead(self, key, worker)
    local counts = self.counts[key]
    return counts[worker] - slowest(self, counts) > self.staleness
end

-- Answers those who wait no longer; with an error when `gone`, a worker, has died.
local function release(self, gone, how)
    for i = #self.waiting, 1, -1 do
        local one = self.waiting[i]
        if how == "died" then
            messages.answer(one.worker, ("kvstore push: rank %d has died"):format(gone), nil, true)
            table.remove(self.waiting, i)
        elseif not is_ahead(self, one.key, one.worker) then
            messages.answer(one.worker, "")
            table.remove(self.waiting, i)
        end
    end
end

local function finish_barrier(self, message)
    for worker in pairs(self.barrier) do messages.answer(worker, message or "", nil, message ~= nil) end
    self.barrier = {}
end

-- The first two workers that are at different barriers, as text; nil: all are at the same.
local function difference(self)
    local first, label
    for worker = 0, self.workers - 1 do
        local own = self.barrier[worker]
        if own and not label then first, label = worker, own end
        if own and own ~= label then
            return ("kvstore: rank %d calls %s, rank %d calls %s"):format(first, label, worker, own)
        end
    end
end

-- A barrier is over when all workers are there; it fails when one never will be.
local function look_at_barrier(self, gone, how)
    local here = 0
    for _ in pairs(self.barrier) do here = here + 1 end
    if here == 0 then return end
    if gone then
        local _, label = next(self.barrier)
        finish_barrier(self, ("kvstore %s: rank %d has %s; all workers must call it"):format(label, gone, how))
    elseif here == self.left then
        finish_barrier(self, difference(self))
    end
end

local function leave(self, worker, how)
    if not self.open[worker] then return end
    self.open[worker], self.left = nil, self.left - 1
    release(self, worker, how)
    look_at_barrier(self, worker, how)
end

-- A worker that has ended may have sent messages before: it leaves at the second look that finds none.
local function look_at_workers(self)
    for worker in pairs(self.open) do
        local state = messages.peer(worker)
        if state == "died" or state == "ended" and self.leaving[worker] then
            leave(self, worker, state)
        elseif state == "ended" then
            self.leaving[worker] = true
        end
    end
end

-- ---- requests of workers ----

local function body_of(from, shape, dtype)
    local body = flow.empty(shape, {dtype = dtype})
    messages.read(from, body)
    return body
end

local function decoded_body(from, bytes)
    return values.decode(body_of(from, {bytes}, "uint8"):tobytes())
end

local function count_push(self, entry, worker, answered)
    local counts = self.counts[entry.key]
    counts[worker] = (counts[worker] or 0) + 1
    if not self.staleness then return answered and "" end
    release(self)
    if not is_ahead(self, entry.key, worker) then return "" end
    self.waiting[#self.waiting + 1] = {worker = worker, key = entry.key}
    return nil
end

-- Each gets the server, the worker, the text and the number of the head, the bytes of the body, and whether an answer
-- is expected; gives the head and the body of the answer, or nothing when it comes later.
local handlers = {}

-- A key with its value.
function handlers.I(self, from, text)
    local about = values.decode(text)
    local value = body_of(from, about.shape, about.dtype)
    self.counts[about.key] = {}
    self.store:_forget(about.key) -- if workers did not agree on it before
    self.store:init(about.key, value)
    return ""
end

function handlers.P(self, from, text, _, _, answered)
    local entry = self.store.entries[values.key(text)]
    local pushed = body_of(from, entry.shape, entry.dtype)
    self.store:_apply {{entry = entry, pushed = pushed}}
    return count_push(self, entry, from, answered)
end

-- A push of codes.
function handlers.C(self, from, text, threshold, bytes, answered)
    local entry = self.store.entries[values.key(text)]
    local codes = body_of(from, {1, bytes // 4}, "int32")
    self.store:_apply {{entry = entry, pushed = compress.expand(entry, codes, entry.shape, threshold)}}
    return count_push(self, entry, from, answered)
end

function handlers.G(self, _, text)
    return "", self.store.entries[values.key(text)].stored
end

-- Rows.
function handlers.R(self, from, text, _, bytes)
    local index = body_of(from, {bytes // 8}, "int64")
    return "", self.store.entries[values.key(text)].stored:index_select(0, index):contiguous()
end

-- Nothing: earlier messages have been processed.
function handlers.F() return "" end

function handlers.B(self, from, text)
    self.barrier[from] = text
    local gone
    for worker = 0, self.workers - 1 do gone = gone or not self.open[worker] and worker end
    look_at_barrier(self, gone, "ended")
end

function handlers.U(self, from, _, _, bytes)
    self.store:set_updater(decoded_body(from, bytes))
    return ""
end

function handlers.O(self, from, _, _, bytes)
    local about = decoded_body(from, bytes)
    self.store:set_optimizer(about.optimizer, about.options)
    return ""
end

function handlers.L(self, _, _, lr)
    if self.store.shared or self.store.make then self.store:set_lr(lr) end
    return ""
end

-- The states of the optimizer: the number of bytes of their description, then these (X) and the tensors (T).
function handlers.S(self)
    local tensors, list = {}, self.store:_states()
    for _, one in ipairs(list) do
        for name, value in pairs(one.state) do
            if check.is_tensor(value) then
                tensors[#tensors + 1] = value:contiguous()
                one.state[name] = {number = #tensors, dtype = value.dtype, shape = values.sizes(value.shape)}
            end
        end
    end
    self.outgoing = {description = values.to_tensor(values.encode(list, "save")), tensors = tensors}
    return tostring(self.outgoing.description:numel())
end

function handlers.X(self) return "", self.outgoing.description end

function handlers.T(self, _, _, number) return "", self.outgoing.tensors[number // 1 | 0] end

-- The same the other way: of one key (A), its tensors in order (Y), then of no more keys (Z).
function handlers.A(self, from, _, _, bytes)
    local saved = decoded_body(from, bytes)
    self.incoming[saved.key] = saved
    self.taking = saved.state
    return ""
end

function handlers.Y(self, from, name)
    local about = self.taking[name]
    self.taking[name] = body_of(from, about.shape, about.dtype)
    return ""
end

function handlers.Z(self)
    local by_key = self.incoming
    self.incoming = {}
    self.store:_take_states(by_key)
    return ""
end

function handlers.Q(self, from)
    leave(self, from, "ended")
    return ""
end

-- An error in a push is one in the updater: it ends the job, as in a script. Others go to the worker that asked.
local function handle(self, from, head, bytes)
    local kind, answered, number, at = string.unpack(HEAD, head)
    local handler, text, expected = handlers[kind], head:sub(at), answered == "a"
    if kind == "P" or kind == "C" or not expected then
        local answer = handler(self, from, text, number, bytes, expected)
        if expected and answer then messages.answer(from, answer) end
        return
    end
    local done, answer, body = pcall(handler, self, from, text, number, bytes, expected)
    if not done then
        messages.answer(from, (tostring(answer):gsub("^[^\n]-:%d+: ", ""):sub(1, 900)), nil, true)
    elseif answer then
        messages.answer(from, answer, body)
    end
end

---Serves until all workers have closed their stores or ended.
---@param workers integer ranks 0 to workers - 1
---@param staleness integer? pushes of a key that a worker may be ahead of the slowest
function M.serve(workers, staleness)
    local _ <close> = flow.no_grad()
    local self = {
        store = Store._new(Store, "server", 0, 1), workers = workers, left = workers, open = {}, leaving = {},
        staleness = staleness, counts = {}, waiting = {}, barrier = {}, incoming = {},
    }
    for worker = 0, workers - 1 do self.open[worker] = true end
    local since = 0
    while self.left > 0 do
        local from, head, bytes = messages.next(SECONDS)
        if from then handle(self, from, head, bytes) end
        since = from and since + 1 or LOOK_EVERY
        if since == LOOK_EVERY then
            look_at_workers(self)
            since = 0
        end
    end
end

return M

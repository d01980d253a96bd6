-- nn_rnn_utils.lua -- flow.nn.utils.rnn: sequences of several lengths, padded to one or packed step by step.
--
-- A packed sequence holds, for step after step, the rows that have that step: the longest sequence first. Recurrent
-- layers take and give them.

local flow = require "flow"
local check = require "flow.check"

local M = {}

---Sequences of several lengths, packed.
---@class flow.nn.PackedSequence
---@field data any [elements, ...]
---@field batch_sizes any int64: number of sequences that have each step
---@field sorted_indices any? int64: which sequence of the batch each row is; nil: they were sorted
---@field unsorted_indices any? int64: which row each sequence of the batch is
---@field lengths integer[] of the rows, sorted
local PackedSequence = {__name = "PackedSequence"}
PackedSequence.__index = PackedSequence

---@return boolean
function M.is_packed(value)
    return type(value) == "table" and getmetatable(value) == PackedSequence
end

---The same with the data elsewhere, or of another dtype.
function PackedSequence:to(...)
    return self:_with(self.data:to(...))
end
check.methods(PackedSequence, "packed", {"to(...: any)"})

-- The same sequences with other data.
function PackedSequence:_with(data)
    local other = {}
    for key, value in pairs(self) do other[key] = value end
    other.data = data
    return setmetatable(other, PackedSequence)
end

local function integers(list, like)
    local options = {dtype = "int64"}
    if like.is_global then
        options.placement, options.sbp = like.placement, {}
        for k = 1, #like.sbp do options.sbp[k] = "B" end
    else
        options.device = like.device
    end
    return flow.tensor(list, options)
end

-- Lengths as a list, from one or a tensor.
local function length_list(who, lengths, count)
    local list = check.is_tensor(lengths) and lengths:totable() or lengths
    if type(list) ~= "table" or #list ~= count then
        check.fail("%s: lengths must be %d numbers, one for each sequence, got %s", who, count,
            type(list) == "table" and #list or check.got(list))
    end
    for i = 1, count do
        list[i] = check.integer(who, "length " .. i, list[i])
        if list[i] < 1 then check.fail("%s: all lengths must be greater than 0, length %d is %d", who, i, list[i]) end
    end
    return list
end

-- Sequences from the longest to the shortest: the sorted lengths; for each row its sequence; for each sequence its row.
local function sort_lengths(lengths)
    local order, rank, sorted = {}, {}, {}
    for i = 1, #lengths do order[i] = i end
    table.sort(order, function(i, j) return lengths[i] > lengths[j] or lengths[i] == lengths[j] and i < j end)
    for row, i in ipairs(order) do sorted[row], rank[i] = lengths[i], row - 1 end
    for row = 1, #order do order[row] = order[row] - 1 end
    return sorted, order, rank
end

local function is_sorted(lengths)
    for i = 2, #lengths do
        if lengths[i] > lengths[i - 1] then return false end
    end
    return true
end

-- The number of sorted sequences that have each step, and the places of those elements in [steps * batch].
local function layout(sorted, batch)
    local sizes, rows, active = {}, {}, #sorted
    for step = 1, sorted[1] or 0 do
        while sorted[active] < step do active = active - 1 end
        sizes[step] = active
        for row = 0, active - 1 do rows[#rows + 1] = (step - 1) * batch + row end
    end
    return sizes, rows
end

local function pack(x, lengths, order, rank)   -- x [steps, batch, ...], of sorted rows
    local batch = x:size(1)
    local sizes, rows = layout(lengths, batch)
    local shape = {table.unpack(x.shape)}
    table.remove(shape, 1)
    shape[1] = -1
    local packed = {
        data = x:narrow(0, 0, lengths[1]):reshape(shape):index_select(0, integers(rows, x)), lengths = lengths,
        batch_sizes = flow.tensor(sizes, {dtype = "int64"}),
    }
    if order then packed.sorted_indices, packed.unsorted_indices = integers(order, x), integers(rank, x) end
    return setmetatable(packed, PackedSequence)
end

---Packs sequences that were padded to one length.
---@param input any [steps, batch, ...], with batch_first [batch, steps, ...]
---@param lengths any the length of each sequence: a list or a tensor
---@param batch_first boolean?
---@param enforce_sorted boolean? false: the lengths need not be in falling order
---@return flow.nn.PackedSequence
function M.pack_padded_sequence(input, lengths, batch_first, enforce_sorted)
    local who = "pack_padded_sequence"
    if input.ndim < 2 then check.fail("%s: input must have steps and a batch, got %s", who, check.shape(input)) end
    if batch_first then input = input:transpose(0, 1) end
    local list = length_list(who, lengths, input:size(1))
    if #list == 0 then check.fail("%s: the batch is empty", who) end
    local sorted, order, rank = sort_lengths(list)
    if sorted[1] > input:size(0) then
        check.fail("%s: length %d is more than the %d steps of input", who, sorted[1], input:size(0))
    end
    if not enforce_sorted then
        return pack(input:index_select(1, integers(order, input)), sorted, order, rank)
    elseif not is_sorted(list) then
        check.fail("%s: lengths must be in falling order; write enforce_sorted = false", who)
    end
    return pack(input, sorted)
end

-- [steps, batch, ...] of the sorted rows, with `value` behind their ends.
local function padded(packed, steps, value)
    local data, batch, sizes = packed.data, #packed.lengths, {table.unpack(packed.data.shape)}
    local at, count, from = {}, sizes[1], 0
    for step = 1, steps do
        local active = 0
        while active < batch and packed.lengths[active + 1] >= step do active = active + 1 end
        for row = 0, batch - 1 do at[#at + 1] = row < active and from + row or count end
        from = from + active
    end
    sizes[1] = 1
    local behind = flow.full_like(data:narrow(0, 0, 1), value)
    table.remove(sizes, 1)
    local rows = flow.cat({data, behind:detach()}, 0):index_select(0, integers(at, data))
    return rows:view(steps, batch, table.unpack(sizes))
end

-- For recurrent layers: the padded steps of the sorted rows, and their lengths as a tensor.
function M._unpacked(packed)
    return padded(packed, packed.lengths[1], 0), integers(packed.lengths, packed.data)
end

-- y [steps, batch, ...] of the same rows, packed as `packed` is.
function M._packed_like(packed, y)
    local _, rows = layout(packed.lengths, #packed.lengths)
    local sizes = {table.unpack(y.shape)}
    table.remove(sizes, 1)
    sizes[1] = -1
    return packed:_with(y:reshape(sizes):index_select(0, integers(rows, y)))
end

---Pads a packed sequence to one length.
---@param sequence flow.nn.PackedSequence
---@param batch_first boolean?
---@param padding_value number? default 0
---@param total_length integer? the length; default: that of the longest sequence
---@return any padded [steps, batch, ...], with batch_first [batch, steps, ...]
---@return any lengths int64 [batch]
function M.pad_packed_sequence(sequence, batch_first, padding_value, total_length)
    local lengths = sequence.lengths
    if total_length and total_length < lengths[1] then
        check.fail("pad_packed_sequence: total_length must be at least the longest sequence, %d, got %d", lengths[1],
            total_length)
    end
    local x, list = padded(sequence, total_length or lengths[1], padding_value), flow.tensor(lengths, {dtype = "int64"})
    if sequence.unsorted_indices then
        x = x:index_select(1, sequence.unsorted_indices)
        local unsorted = sequence.unsorted_indices
        list = list:index_select(0, flow.tensor(unsorted:totable(), {dtype = "int64"}))
    end
    return batch_first and x:transpose(0, 1) or x, list
end

---Sequences [length, ...] of several lengths as one tensor.
---@param sequences any[]
---@param batch_first boolean? the result is [batch, steps, ...]
---@param padding_value number? default 0
---@param padding_side "right"|"left"|nil
function M.pad_sequence(sequences, batch_first, padding_value, padding_side)
    local longest, list = 0, {}
    for i, x in ipairs(sequences) do
        check.tensor("pad_sequence", "sequence " .. i, x)
        if x.ndim == 0 then check.fail("pad_sequence: sequence %d has no axes", i) end
        longest = math.max(longest, x:size(0))
    end
    if #sequences == 0 then check.fail("pad_sequence: takes a list of tensors, got an empty one") end
    for i, x in ipairs(sequences) do
        local sizes = {table.unpack(x.shape)}
        sizes[1] = longest - x:size(0)
        list[i] = x
        if sizes[1] > 0 then
            local padding = flow.full_like(x:detach():narrow(0, 0, math.min(1, x:size(0))), padding_value)
            padding = x:size(0) > 0 and padding:expand(sizes) or flow.full(sizes, padding_value, {dtype = x.dtype})
            list[i] = flow.cat(padding_side == "left" and {padding, x} or {x, padding}, 0)
        end
    end
    return flow.stack(list, batch_first and 0 or 1)
end

---The sequences that pad_sequence padded.
---@return any[]
function M.unpad_sequence(padded_sequences, lengths, batch_first)
    local x, list = padded_sequences, {}
    if not batch_first then x = x:transpose(0, 1) end
    for i, length in ipairs(length_list("unpad_sequence", lengths, x:size(0))) do
        list[i] = x:select(0, i - 1):narrow(0, 0, length)
    end
    return list
end

---Packs a list of sequences [length, ...].
---@return flow.nn.PackedSequence
function M.pack_sequence(sequences, enforce_sorted)
    local lengths = {}
    for i, x in ipairs(sequences) do
        if not check.is_tensor(x) or x.ndim == 0 then
            check.fail("pack_sequence: sequence %d must be a tensor with axes, got %s", i, check.got(x))
        end
        lengths[i] = x:size(0)
    end
    return M.pack_padded_sequence(M.pad_sequence(sequences, false, 0, "right"), lengths, false, enforce_sorted)
end

---The sequences of a packed one.
---@return any[]
function M.unpack_sequence(packed)
    local x, lengths = M.pad_packed_sequence(packed, true, 0)
    return M.unpad_sequence(x, lengths, true)
end

---The permutation that undoes another.
function M.invert_permutation(permutation)
    if permutation.ndim ~= 1 then
        check.fail("invert_permutation: permutation must have one axis, got %s", check.shape(permutation))
    end
    local inverse, n = {}, permutation:numel()
    for i, to in ipairs(permutation:totable()) do
        if math.type(to) ~= "integer" or to < 0 or to >= n or inverse[to + 1] then
            check.fail("invert_permutation: permutation must hold each of 0 to %d once", n - 1)
        end
        inverse[to + 1] = i - 1
    end
    return integers(inverse, permutation)
end

M.PackedSequence = PackedSequence

check.define_type("packed sequence", "a packed sequence", M.is_packed)
check.takes(M, {
    "pack_padded_sequence(input: tensor, lengths: value, batch_first: boolean = false, enforce_sorted: boolean = true)",
    "pad_packed_sequence(sequence: packed sequence, batch_first: boolean = false, padding_value: number = 0, " ..
        "total_length: integer >= 1?)",
    "pad_sequence(sequences: list, batch_first: boolean = false, padding_value: number = 0, " ..
        "padding_side: right|left = right)",
    "unpad_sequence(padded_sequences: tensor, lengths: value, batch_first: boolean = false)",
    "pack_sequence(sequences: list, enforce_sorted: boolean = true)", "unpack_sequence(packed: packed sequence)",
    "invert_permutation(permutation: tensor)", "is_packed(value: any)",
})

return M

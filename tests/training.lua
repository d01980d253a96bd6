-- training.lua -- what specs need to run scripts/train.lua inside their own process or beside a job, and the collectives that
-- textbooks list for its schemes of parallelism.
local flow = require "flow"
local process = require "tests.process"

local M = {}

-- A text whose lines differ.
function M.text()
    local lines = {}
    for i = 1, 200 do lines[i] = ("line %d of the text: %d and é.\n"):format(i, i * i) end
    return table.concat(lines)
end

-- A text of 10 different characters.
function M.write_text(path)
    local lines = {}
    for i = 1, 300 do lines[i] = "abc " .. ("defgh"):sub(1 + i % 5) .. "\n" end
    process.write(path, table.concat(lines))
end

-- Scripts that run alone have an environment of their own, with these variables.
local KEPT = {"PATH", "HOME", "LD_LIBRARY_PATH", "FLOW_THREADS", "FLOW_CUDA_EMULATED", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS"}

-- Runs a script, scripts/train.lua unless another is named, with these arguments (words, separated by blanks).
function M.run(arguments, script)
    local words = {[0] = script or "scripts/train.lua"}
    for word in arguments:gmatch("%S+") do words[#words + 1] = word end
    local chunk = assert(loadfile(words[0], "t", setmetatable({arg = words}, {__index = _G})))
    local on_device = package.loaded["tests.on_device"]
    if on_device then return on_device.without(chunk) end
    return chunk()
end

-- The same in one process of its own, outside of this job, started by rank 0 while the others wait.
function M.run_alone(arguments, script)
    if flow.rank() == 0 then
        local kept = {}
        for _, name in ipairs(KEPT) do
            local value = os.getenv(name)
            if value then kept[#kept + 1] = ("%s='%s'"):format(name, value) end
        end
        local said, status = process.output(("env -i %s %s %s %s 2>&1"):format(table.concat(kept, " "), process.flowlua,
            script or "scripts/train.lua", arguments))
        if status ~= 0 then error(said, 0) end
    end
    flow.barrier()
end

-- The numbers of a column of a log, by step: 2 training loss, 3 validation loss.
function M.column(path, column)
    local result = {}
    for line in io.lines(path) do
        local row = {}
        for word in (line .. ","):gmatch("([^,]*),") do row[#row + 1] = word end
        if tonumber(row[1]) then result[tonumber(row[1])] = tonumber(row[column]) end
    end
    return result
end

---- the communication of a step ----

M.model = "--layers 2 --width 16 --heads 4 --context 8 --steps 1 --sample 1 --dropout 0.1"
local LAYERS, WIDTH, CONTEXT, CHARACTERS = 2, 16, 8, 10

-- Parameters: shape, their split by tensor parallelism, the axis that ZeRO splits beside that (nil: there is none).
local function parameters(tp)
    local list = {}
    local function add(shape, split, free)
        list[#list + 1] = {shape = "float32[" .. table.concat(shape, ", ") .. "]", zero = not (tp and split) and 0 or free}
    end
    local function norm()
        add {WIDTH}
        add {WIDTH}
    end
    local function columns(inputs, outputs)
        add({outputs, inputs}, 0, 1)
        add({outputs}, 0, nil)
    end
    local function rows(inputs, outputs)
        add({outputs, inputs}, 1, 0)
        add {outputs}
    end
    add({CHARACTERS, WIDTH}, 0, 1)
    add {CONTEXT, WIDTH}
    for _ = 1, LAYERS do
        norm()
        columns(WIDTH, 3 * WIDTH)
        rows(WIDTH, WIDTH)
        norm()
        columns(WIDTH, 4 * WIDTH)
        rows(4 * WIDTH, WIDTH)
    end
    norm()
    columns(WIDTH, CHARACTERS)
    return list
end

-- The textbook's list of a step's collectives, each "kind axis tensor", in forward, backward and after it:
-- data parallel: an all-reduce of each parameter's gradient, and of the number of characters that the mean divides by;
-- tensor parallel: an all-reduce where the characters' embedding, each attention and each mlp end (forward) and where
-- each attention, each mlp and the head begin (backward), two of a number per character for the softmax over split classes;
-- ZeRO: an all-gather of each parameter, and a reduce-scatter in place of its gradient's all-reduce. Parameters split
-- over the model's ranks without a further axis stay whole. After that: the norm of the gradients where they are in
-- parts; reading the loss is not counted.
function M.textbook(dp, tp, zero, batch)
    local forward, backward, after = {}, {}, {}
    local activation = ("float32[%d, %d, %d]"):format(batch, CONTEXT, WIDTH)
    local function add(list, count, kind, axis, tensor)
        for _ = 1, count do list[#list + 1] = ("%s %d %s"):format(kind, axis, tensor) end
    end
    if tp > 1 then
        add(forward, 1 + 2 * LAYERS, "all-reduce", 1, activation)
        add(backward, 1 + 2 * LAYERS, "all-reduce", 1, activation)
        local rows = batch % dp == 0 and ("float32[%d, 1]"):format(batch * CONTEXT) or ("float32[%d, 1, %d]"):format(batch, CONTEXT)
        add(forward, 2, "all-reduce", 1, rows)
        add(after, 1, "all-reduce", 1, "float32[]")
    end
    if dp > 1 then
        add(forward, 1, "all-reduce", 0, "float32[]")
        if zero then add(after, 1, "all-reduce", 0, "float32[]") end
        for _, p in ipairs(parameters(tp > 1)) do
            if zero and p.zero then add(forward, 1, "all-gather", 0, p.shape) end
            add(backward, 1, zero and p.zero and "reduce-scatter" or "all-reduce", 0, p.shape)
        end
    end
    return forward, backward, after
end

-- The collectives of an explained step in the same form.
function M.collectives(report)
    local forward, backward, after = {}, {}, {}
    local list = forward
    for _, step in ipairs(report.collectives) do
        if step.by == "backward" then list = backward elseif list == backward then list = after end
        if step.by == "item" then break end
        list[#list + 1] = ("%s %s %s"):format(step.kind, step.axis, step.tensor)
    end
    return forward, backward, after
end

-- {"a", "b", "a"} -> "2 a\n1 b": lists are compared as they are counted.
function M.counted(list)
    local counts, names = {}, {}
    for _, name in ipairs(list) do
        if not counts[name] then names[#names + 1] = name end
        counts[name] = (counts[name] or 0) + 1
    end
    table.sort(names)
    for i, name in ipairs(names) do names[i] = ("%d %s"):format(counts[name], name) end
    return table.concat(names, "\n")
end

-- Raises an error that shows both lists when a step does not communicate what the textbook says.
function M.check_collectives(report, dp, tp, zero, batch)
    local want, got = {M.textbook(dp, tp, zero, batch)}, {M.collectives(report)}
    for i, phase in ipairs {"forward", "backward", "after backward"} do
        local w, g = M.counted(want[i]), M.counted(got[i])
        if w ~= g then error(("%s communicates\n%s\n\nexpected\n%s\n%s"):format(phase, g, w, report.error or ""), 0) end
    end
end

-- The report of flow.explain on the first step (the values that follow are read and printed).
function M.explain(arguments)
    return flow.explain(function() M.run(arguments) end)
end

return M

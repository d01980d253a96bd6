-- side.lua -- a side of the benchmarks: a process, or several ranks, that answers one question at a time.
--
-- Questions and answers go through fifos. An answer that does not come in time is an error like any other: the process is
-- ended with all that it started, and the next question goes to a new one. So is one that fails where `fresh` is set: an
-- error on a GPU may have taken the process's device with it. One bad case never costs another one.

local clock = require("flow").progress.clock

local M = {
    deadline = math.huge,   -- after it nobody is waited for
}

local Side = {}
Side.__index = Side

local sides = {}

function M.quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local quote = M.quote

---First line that a command prints, or nil.
---@param command string
---@return string?
function M.ask(command)
    local pipe = io.popen(command .. " 2>/dev/null")
    local line = pipe:read()
    pipe:close()
    return line
end

---@class bench.side_options
---@field ranks integer
---@field launch fun(command: string): string  what starts a command on the ranks
---@field settings string?      environment of the command
---@field fresh boolean?        whether a process that gave an error is not asked again
---@field limit number          seconds for an answer
---@field start_limit number    seconds more for the first one

---A side that is started when it is first asked.
---@param name string
---@param command string    reads questions, one a line, and writes an answer to each
---@param options bench.side_options
function M.new(name, command, options)
    local path = ("%s/%d."):format(os.getenv("BENCH_FOLDER"), #sides + 1)
    local reading = ("sh -c %s"):format(quote(("exec %s < %s${OMPI_COMM_WORLD_RANK:-0}"):format(command, quote(path))))
    local side = setmetatable({
        name = name, path = path, options = options,
        command = ("%s %s"):format(options.settings or "", options.launch(reading)),
    }, Side)
    sides[#sides + 1] = side
    return side
end

local function fifo(path)
    os.remove(path)
    assert(os.execute("mkfifo " .. quote(path)))
    return assert(io.open(path, "r+"))      -- for writing too: opening does not wait for the other end
end

-- The process leads a group of its own, whose number it is, and says when it has ended.
function Side:start()
    self.requests, self.asked = {}, 0
    for i = 1, self.options.ranks do self.requests[i] = fifo(self.path .. i - 1) end
    self.answers = fifo(self.path .. "answers")
    local body = ("%s < /dev/null > %s 2> %s; echo ended $? > %s"):format(self.command, quote(self.path .. "answers"),
        quote(self.path .. "log"), quote(self.path .. "answers"))
    assert(os.execute(("setsid sh -c %s & echo $! > %s"):format(quote(body), quote(self.path .. "pid"))))
end

function Side:request(line)
    for _, file in ipairs(self.requests) do
        file:write(line, "\n")
        file:flush()
    end
end

-- The next line of the answers, or nil after so many seconds. The shell's read takes no more than that line.
function Side:read(seconds)
    local shell = [[timeout %g sh -c 'IFS= read -r line && printf "%%s\n" "$line"' < %s]]
    return M.ask(shell:format(seconds, quote(self.path .. "answers")))
end

-- Ends the process and all of its group, whatever it is doing: at first with a word, for mpirun to end its ranks.
function Side:kill()
    self:signal "TERM"
    if not (self:read(1) or ""):find "^ended" then self:signal "KILL" end
    self:close()
end

function Side:signal(name)
    local pid = assert(io.open(self.path .. "pid"))
    os.execute(("kill -s %s -- -%d 2>/dev/null"):format(name, pid:read("n")))
    pid:close()
end

function Side:close()
    self.answers:close()
    for _, file in ipairs(self.requests) do file:close() end
    os.remove(self.path .. "pid")
    self.answers = nil
end

-- The last line that it wrote to the standard error, for a process that died.
function Side:last_words()
    local last
    for line in io.lines(self.path .. "log") do
        if line:find "%S" then last = line end
    end
    return last and ": " .. last or ""
end

---The measurement of a case and a remark on it, or nil and the reason why there is none.
---@return number?, string
function Side:measure(group, case, seconds)
    if not self.answers then self:start() end
    self:request(("%s %s %g"):format(group, case, seconds))
    local limit = self.options.limit + (self.asked == 0 and self.options.start_limit or 0)
    limit = math.ceil(math.max(1, math.min(limit, M.deadline - clock())))
    local line = self:read(limit)
    self.asked = self.asked + 1
    if not line or line:find "^ended" then
        local why = line and self.name .. " crashed" .. self:last_words() or ("%s: no answer in %g s"):format(self.name, limit)
        if line then self:close() else self:kill() end
        return nil, why
    end
    local value, note = line:match("^(%S+) ?(.*)$")
    if tonumber(value) then return tonumber(value), note end
    if self.options.fresh then self:kill() end
    return nil, line
end

---Ends all sides. They are told to: the end of their input would not do, since sides started later hold that open too.
function M.stop()
    for _, side in ipairs(sides) do
        if side.answers then side:request("end") end
    end
    for _, side in ipairs(sides) do
        if side.answers and (side:read(3) or ""):find "^ended" then side:close() elseif side.answers then side:kill() end
    end
end

return M

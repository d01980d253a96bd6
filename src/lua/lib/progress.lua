-- progress.lua -- how far a long loop is: a bar on a terminal, plain lines elsewhere. Only rank 0 prints.
--
-- Rank 0 draws at intervals of time, but texts may need all ranks (loss:item()): with several ranks they are made at
-- steps that are the same on all of them.

local flow = require "flow"
local check = require "flow.check"

local io_ = flow._io

local progress = {}

---Seconds of a monotonic clock.
---@return number
function progress.clock()
    return io_.clock()
end

---12 -> "12 s", 125 -> "2:05", 3725 -> "1:02:05".
---@param seconds number
---@return string
function progress.duration(seconds)
    if math.abs(seconds) >= 2 ^ 53 then return ("%g s"):format(seconds) end
    local s = math.floor(seconds + 0.5)
    if s < 60 then return s .. " s" end
    if s < 3600 then return ("%d:%02d"):format(s // 60, s % 60) end
    return ("%d:%02d:%02d"):format(s // 3600, s // 60 % 60, s % 60)
end

local TEXTS = 200       -- that several ranks make in all

---@class flow.progress.Bar
local Bar = {}
Bar.__index = Bar

---@param total integer steps in all
---@param o {start: integer, lines: integer, width: integer, unit: string}? steps done before; plain lines in all;
---columns of a bar (default: the terminal's; 0: plain lines); the unit (default: step)
function progress.bar(total, o)
    local width = o.width or io_.terminal_width() or 0
    return setmetatable({
        total = total, unit = o.unit, start = o.start, step = o.start,
        every = math.max(1, total // math.max(1, o.lines)), pace = math.max(1, total // TEXTS),
        width = flow.rank() == 0 and width or 0,
        follows = not o.width, silent = flow.rank() ~= 0, began = io_.clock(), shown = -1, drawn = 0, text = "",
    }, Bar)
end

---Steps per second since the beginning.
---@return number
function Bar:rate()
    return (self.step - self.start) / math.max(io_.clock() - self.began, 1e-9)
end

---@return number
function Bar:seconds()
    return io_.clock() - self.began
end

local function status(self, text)
    local rate = self:rate()
    local left = rate > 0 and progress.duration((self.total - self.step) / rate) or "?"
    local unit = self.unit
    return ("%s %d/%d  %s  %.1f %ss/s  %s left"):format(unit, self.step, self.total, text or "", rate, unit, left)
end

local function draw(self, text)
    local line = status(self, text)
    if self.follows then self.width = io_.terminal_width() or self.width end    -- windows are resized
    local room = self.width - #line - 4
    if room >= 10 then
        local filled = self.total > 0 and room * self.step // self.total or room
        line = "[" .. ("#"):rep(filled) .. ("."):rep(room - filled) .. "] " .. line
    end
    line = line:sub(1, self.width - 1)
    io.stdout:write("\r", line, (" "):rep(math.min(self.drawn, self.width - 1) - #line))
    io.stdout:flush()
    self.drawn = #line
end

-- The text, the same on all ranks: made at some steps, the last one in between.
local function shared_text(self, step, text)
    if type(text) ~= "function" then return text end
    if step % self.pace == 0 or step % self.every == 0 or step >= self.total then self.text = text() or "" end
    return self.text
end

---Reports that `step` steps are done. `text`, a string or a function that returns one, is shown too. Every rank calls
---it; the function may communicate.
---@param step integer
---@param text string|fun(): string
function Bar:update(step, text)
    self.step = step
    if flow.world_size() > 1 then text = shared_text(self, step, text) end
    if self.silent then return end
    local now = io_.clock()
    local due
    if self.width > 0 then due = now - self.shown >= 0.1 or step >= self.total else due = step % self.every == 0 end
    if not due then return end
    self.shown = now
    if type(text) == "function" then text = text() end
    if self.width > 0 then
        draw(self, text)
    else
        io.stdout:write(status(self, text), "\n")
        io.stdout:flush()
    end
end

---Prints a line above the bar, as flow.print does.
function Bar:print(...)
    self:clear()
    flow.print(...)
    if not self.silent then io.stdout:flush() end
end

---Clears the bar from the terminal.
function Bar:clear()
    if self.drawn > 0 then
        io.stdout:write("\r", (" "):rep(self.drawn), "\r")
        io.stdout:flush()
    end
    self.drawn, self.shown = 0, -1
end

check.takes(progress, {
    "clock()", "duration(seconds: number)",
    [[bar(total: integer >= 0, {start: integer >= 0 = 0, lines: integer >= 0 = 20, width: integer >= 0?,
        unit: string = step})]],
})
local update = Bar.update
check.methods(Bar, "bar", {
    "rate()", "seconds()", "update(step: integer >= 0, text: string or function?)", "print(...: any)", "clear()",
})
local checked = Bar.update

-- Runs in every step: usual arguments return at once.
function Bar:update(...)
    local step, text = ...
    local plain = select("#", ...) == 2 and math.type(step) == "integer" and type(text) == "function"
    if plain and getmetatable(self) == Bar then return update(self, step, text) end
    return checked(self, ...)
end

check.strict("Bar", Bar)
return check.strict("progress", progress)

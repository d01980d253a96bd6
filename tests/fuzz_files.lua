-- fuzz_files.lua SEED COUNT -- reads COUNT safetensors and IDX files with bytes changed, added or missing. Each is read or is
-- an error that begins with a position and names the reader; "BAD i: what" otherwise. The last line is "end".
local flow = require "flow"

local seed, count = tonumber(arg[1]), tonumber(arg[2])
local random = math.random
math.randomseed(seed)
local name = os.tmpname()

local function write(bytes)
  local file = assert(io.open(name, "wb"))
  file:write(bytes)
  file:close()
end

local function safetensors()
  flow.save(name, {a = flow.randn(3, 4), b = {c = flow.arange(5), d = flow.tensor {true, false}, s = "text", n = 3, l = {1, 2, {x = 1.5}}},
    e = flow.zeros(0, 3):to("bfloat16")})
  local file = assert(io.open(name, "rb"))
  local bytes = file:read("a")
  file:close()
  return bytes
end

local function idx() return "\0\0\8\3" .. (">I4I4I4"):pack(3, 4, 5) .. ("x"):rep(60) end

-- One change of a list of bytes.
local changes = {
  function(b, i) b[i] = random(0, 255) end,
  function(b, i) b[i] = b[i] ~ (1 << random(0, 7)) end,
  function(b, i) for j = #b, i, -1 do b[j] = nil end end,
  function(b, i) table.insert(b, i, random(0, 255)) end,
  function(b, i) table.remove(b, i) end,
  function(b, i) for n = 0, random(0, 12) do if b[i + n] then b[i + n] = b[random(#b)] end end end,
  function(b, i) for n = 0, 7 do if b[i + n] then b[i + n] = 255 end end end,
}

local function damaged(bytes)
  local list, text = {bytes:byte(1, -1)}, {}
  for _ = 1, random(4) do
    if #list > 0 then changes[random(#changes)](list, random(#list)) end
  end
  for i, byte in ipairs(list) do text[i] = string.char(byte) end
  return table.concat(text)
end

-- Touches all values of what was read.
local function use(value)
  if flow.is_tensor(value) then return value:totable() end
  if type(value) == "table" then for _, v in pairs(value) do use(v) end end
end

local function check(i, who, read, bytes)
  write(bytes)
  local ok, result = pcall(read, name)
  if ok then use(result)
  elseif type(result) ~= "string" or not result:find("^[^:\n]+:%d+: " .. who .. ": ") then print(("BAD %d: %s"):format(i, tostring(result))) end
end

local st, images = safetensors(), idx()
for i = 1, count do
  check(i, "load", flow.load, damaged(st))
  check(i, "idx", flow.data.idx, damaged(images))
end
os.remove(name)
print("end")

-- fuzz_programs.lua SEED FIRST LAST [-v] [-s] -- random programs on local and on global tensors: `flowlua --ranks N
-- tests/fuzz_programs.lua SEED FIRST LAST`, or one rank without --ranks. -v prints every program, -s drops the lines that a
-- finding does not need, -c compares captured functions with the same ones as they are. The number is written before a
-- program runs: the last one tells where a process died; with a small
-- FLOW_TIMEOUT where the ranks waited for each other. Written as "BAD number: what" otherwise; at the end what was reached.
package.path = "./?.lua;" .. package.path
local flow = require "flow"
local programs = require "tests.programs"

local seed, first, last = tonumber(arg[1]) or 1, tonumber(arg[2]) or 1, tonumber(arg[3]) or 1000
local options = {}
for i = 4, #arg do options[arg[i]] = true end
local rank = flow.rank()

io.stdout:setvbuf("no")
local found, began = 0, os.time()
for i = first, last do
    if rank == 0 then io.write(i, "\n") end
    if options["-v"] and rank == 0 then io.write(programs.text(programs.draw(seed, i)), "\n") end
    local check = options["-c"] and programs.check_captured or programs.check
    local finding, text = check(seed, i, options["-s"])
    if finding then
        found = found + 1
        if rank == 0 then io.write(("BAD %d: seed %d on %d ranks\n%s\n"):format(i, seed, flow.world_size(), text)) end
        if finding ~= true then io.write(("BAD %d on rank %d: %s\n"):format(i, rank, finding)) end
        flow.barrier()
    end
end

local function summary()
    local c, reached, missing = programs.coverage, 0, {}
    for _, op in ipairs(programs.ops) do
        if c.ops[op.name] then reached = reached + 1 else missing[#missing + 1] = op.name end
    end
    print(("%d programs, %d lines, %d findings in %d s; %d of %d ops, %d nd-SBPs; not called: %s"):format(c.programs, c.lines, found, os.time() - began,
        reached, #programs.ops, c.sbp_count, table.concat(missing, " ")))
end
if rank == 0 and options["-c"] then
    local c = programs.captured
    print(("%d captured, %d refused, %d lines, %d findings in %d s"):format(c.captured, c.refused, c.lines, found, os.time() - began))
elseif rank == 0 then summary() end
os.exit(found == 0, true)

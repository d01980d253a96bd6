-- capture_spec.lua -- captured steps of training on GPUs of several ranks: an error in the data of one rank is one on all of them, as
-- in eager code, and parameters stay alike.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local nn, optim = flow.nn, flow.optim

local all = ranks.placements()[1].value

-- Some steps; in those of `bad` the rank that is named has a wrong label, or a wrong position. Returns what each call gave here.
local function train(captures, bad)
    flow.manual_seed(3)
    local net = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 5))
    net:to_global {placement = all, sbp = "B"}
    local optimizer = optim.AdamW(net:parameters(), {lr = 0.01})
    local rows = 2 * ranks.world
    local x = flow.randint(0, 9, {rows}, {placement = all, sbp = "S(0)"})
    local y = flow.randint(0, 5, {rows}, {placement = all, sbp = "S(0)"})
    local function step(a, b)
        optimizer:zero_grad()
        flow.cross_entropy(net(a), b):backward()
        optimizer:step()
    end
    if captures then step = flow.capture(step) end
    local told = {}
    for i = 1, 13 do
        local positions, labels = {}, {}
        for k = 1, rows do positions[k], labels[k] = (i + k) % 9, (i * k) % 5 end
        local wrong = bad[i]
        if wrong and wrong[1] == "position" then positions[2 * wrong[2] + 1] = 20 end
        if wrong and wrong[1] == "label" then labels[2 * wrong[2] + 2] = 7 end
        x:copy_(flow.tensor(positions, {placement = all, sbp = "S(0)"}))
        y:copy_(flow.tensor(labels, {placement = all, sbp = "S(0)"}))
        local ok, message = pcall(step, x, y)
        told[i] = ok and "fine" or message:match "[%w_]+ %b(): .*" or message
        local synced, rest = pcall(flow.sync)
        if not synced then told[i] = told[i] .. "; " .. (rest:match "[%w_]+ %b(): .*" or rest) end
    end
    return told, net:state_dict()
end

describe("an error in the data of one rank", function()
    local last = ranks.world - 1
    for _, case in ipairs {
        {"in the first op", {[9] = {"position", 0}}},
        {"in the last op of forward", {[9] = {"label", last}}},
        {"on one rank, then on another", {[8] = {"label", 0}, [9] = {"label", last}, [12] = {"position", last}}},
    } do
        local bad = case[2]
        it("stops the captured step on all, as that of eager code: " .. case[1], function()
            local want, values = train(false, bad)
            local got, mine = train(true, bad)
            assert.are.same(want, got)
            for i, wrong in pairs(bad) do
                local part = wrong[1] == "label" and "is 7, but input has 5 classes" or "is 20, but weight has 9 rows"
                assert.is_truthy(got[i]:find(part, 1, true), got[i])
            end
            for key, t in pairs(values) do
                assert.is_true(t:to_local():eq(mine[key]:to_local()):all():item(), key)
            end
        end)
    end
end)

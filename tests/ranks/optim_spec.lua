-- optim_spec.lua -- optimizers, clipping and losses over global tensors: the numbers of one rank whatever the SBPs and
-- placements, and no more communication than the method needs.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local nn, optim = flow.nn, flow.optim

local everywhere = flow.placement.all "cpu"
local places = ranks.placements()
local shapes = {{6, 5}, {7, 3}, {3}, {1, 4}, {2, 2, 3}, {}, {0, 4}, {9}}

-- Numbers of a parameter and of its gradient in a step, as a local tensor: the same on every rank.
local function numbers(shape, i, step)
    flow.manual_seed(1000 * i + step)
    return flow.randn(shape)
end

-- A local tensor that every rank has, as a global one: nothing is communicated.
local function global(t, place, sbp)
    local whole = {}
    for k = 1, #place.hierarchy do whole[k] = "B" end
    return flow._testing.from_part(t, t.shape, place.value, whole):to_global{sbp = sbp}
end

-- This rank's part of what every rank has.
local function part(t, like)
    for _, w in ipairs(flow._windows(like)) do
        if w.rank == ranks.rank then
            for axis = 1, t:dim() do t = t:narrow(axis - 1, w.start[axis], w.size[axis]) end
            return t
        end
    end
end

local function worst(t) return t:numel() == 0 and 0 or t:abs():max():item() end

local function check_parts(wholes, globals, limit, what)
    local wrong = ranks.complaints()
    for i, t in ipairs(globals) do
        local want = part(wholes[i]:detach(), t)
        local far = want and worst(want - t:detach():to_local()) or 0
        if far ~= far or far > limit then wrong.add("%s: parameter %d, %s as %s: off by %g", what, i, ranks.shape_text(t.shape), tostring(t.sbp), far) end
    end
    wrong.check(#globals)
end

-- Parameters of all shapes, in SBPs drawn at random from S and B, and local copies of them.
local function parameters(place_list, seed)
    local random, globals, locals = ranks.random(seed), {}, {}
    for i, shape in ipairs(shapes) do
        local place = place_list[i % #place_list + 1]
        local sbp
        repeat sbp = random.pick(ranks.nd_sbps(place, #shape, "float32")) until not ranks.has_partial(sbp)
        local t = numbers(shape, i, 0)
        locals[i], globals[i] = nn.Parameter(t), nn.Parameter(global(t:clone(), place, sbp))
    end
    return globals, locals
end

local function set_gradients(globals, locals, step, scale)
    for i, p in ipairs(globals) do
        if (i + step) % 5 ~= 0 then
            local g = numbers(p.shape, i, step) * scale
            locals[i].grad = g:clone()
            local place = ranks.place(p.placement.ranks)
            local sbp = {}
            for k = 1, #p.sbp do sbp[k] = tostring(p.sbp[k]) end
            p.grad = global(g, place, sbp)
        end
    end
end

-- Four steps of both, with clipping when max_norm is given; the largest difference of the norms.
local function train(make, globals, locals, max_norm)
    local one, other, off = make(globals), make(locals), 0
    for step = 1, 4 do
        one:zero_grad()
        other:zero_grad()
        set_gradients(globals, locals, step, step == 3 and 0.001 or 1)
        if max_norm then
            local a, b = optim.clip_grad_norm(globals, max_norm):item(), optim.clip_grad_norm(locals, max_norm):item()
            off = math.max(off, math.abs(a - b) / b)
        end
        one:step()
        other:step()
    end
    return off, one, other
end

local kinds = {
    {"SGD", function(p) return optim.SGD(p, {lr = 0.1}) end},
    {"SGD with momentum", function(p) return optim.SGD(p, {lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.1}) end},
    {"AdamW", function(p) return optim.AdamW(p, {lr = 0.05}) end},
}

-- Elementwise, so bits are those of one rank; LAMB, LARS and Adafactor sum squares over ranks.
local others = {}
for _, name in ipairs {"ASGD", "Adadelta", "Adagrad", "Adamax", "Lion", "NAdam", "RAdam", "RMSprop", "Rprop"} do
    others[#others + 1] = {name, function(p) return optim[name](p, {lr = 0.05}) end, 0}
end
others[#others + 1] = {"amsgrad", function(p) return optim.Adam(p, {lr = 0.05, amsgrad = true}) end, 0}
others[#others + 1] = {"RMSprop with all", function(p)
    return optim.RMSprop(p, {lr = 0.05, momentum = 0.9, centered = true})
end, 0}
for _, name in ipairs {"LAMB", "LARS", "Adafactor"} do
    others[#others + 1] = {name, function(p) return optim[name](p, {lr = 0.05, weight_decay = 0.1}) end, 1e-5}
end

-- Those with two axes; a sum in another order may move a bfloat16 of it by one unit.
local function matrices(list)
    local result = {}
    for _, p in ipairs(list) do
        if #p.shape == 2 and p:numel() > 0 then result[#result + 1] = p end
    end
    return result
end
others[#others + 1] = {"Muon", function(p) return optim.Muon(matrices(p), {lr = 0.05}) end, 0.05}

describe("a step of every optimizer", function()
    it("has the numbers of one rank over split parameters, on several placements at once", function()
        for k, kind in ipairs(others) do
            local globals, locals = parameters(places, 500 + k)
            train(kind[2], globals, locals)
            check_parts(locals, globals, kind[3], kind[1])
        end
    end)

    it("minimizes over split parameters by LBFGS", function()
        local function run(p)
            local opt = optim.LBFGS({p}, {line_search_fn = "strong_wolfe"})
            opt:step(function()
                opt:zero_grad()
                local loss = ((p - 3):square() * 2 + p:square():square()):sum()
                loss:backward()
                return loss
            end)
            return p
        end
        local whole = numbers({6, 5}, 1, 0)
        for _, sbp in ipairs {"S(0)", "S(1)", "B"} do
            local p = run(nn.Parameter(flow._testing.from_part(whole:clone(), whole.shape, everywhere, {"B"}):to_global{sbp = sbp}))
            check_parts({run(nn.Parameter(whole:clone()))}, {p}, 1e-2, "LBFGS " .. sbp)
        end
    end)
end)

describe("a step over split parameters", function()
    for i, place in ipairs(places) do
        it("has the numbers of one rank, bit for bit, on " .. tostring(place.value), function()
            for k, kind in ipairs(kinds) do
                local globals, locals = parameters({place}, 10 * i + k)
                train(kind[2], globals, locals)
                check_parts(locals, globals, 0, kind[1])
            end
        end)
    end

    it("has the numbers of one rank on several placements at once", function()
        for k, kind in ipairs(kinds) do
            local globals, locals = parameters(places, k)
            train(kind[2], globals, locals)
            check_parts(locals, globals, 0, kind[1])
        end
    end)

    it("communicates nothing, and is one op for each placement", function()
        local globals, locals = parameters(places, 5)
        set_gradients(globals, locals, 1, 1)
        local optimizer = optim.AdamW(globals)
        optimizer:step()
        local report = flow.explain(function() optimizer:step() end)
        local used = {}
        for _, p in ipairs(globals) do
            if p.grad then used[tostring(p.placement)] = true end
        end
        local count = 0
        for _ in pairs(used) do count = count + 1 end
        assert.are.equal(count, #report)
        assert.are.equal(0, report.bytes)
    end)

    it("goes on from a state dict in other SBPs", function()
        local globals, locals = parameters({places[1]}, 77)
        local _, one, other = train(kinds[3][2], globals, locals)
        local moved, to = {}, places[#places]
        local whole = {}
        for k = 1, #to.hierarchy do whole[k] = "B" end
        for k in ipairs(globals) do moved[k] = nn.Parameter(global(locals[k]:detach():clone(), to, whole)) end
        local again = kinds[3][2](moved)
        again:load_state_dict(one:state_dict())
        other:zero_grad()
        set_gradients(moved, locals, 6, 1)
        again:step()
        other:step()
        check_parts(locals, moved, 0, "resumed")
    end)
end)

describe("clip_grad_norm over split gradients", function()
    for i, place in ipairs(places) do
        it("has one rank's norm on " .. tostring(place.value), function()
            local globals, locals = parameters({place}, 300 + i)
            local off = train(kinds[1][2], globals, locals, 2)
            assert.is_true(off < 1e-6, ("norms differ by %g"):format(off))
            check_parts(locals, globals, 1e-5, "clipped")
        end)
    end

    it("has one norm over several placements, the same on all ranks", function()
        local globals, locals = parameters(places, 400)
        local off = train(kinds[3][2], globals, locals, 2)
        assert.is_true(off < 1e-6, ("norms differ by %g"):format(off))
        check_parts(locals, globals, 1e-4, "clipped")
        set_gradients(globals, locals, 9, 1)
        local norm = optim.clip_grad_norm(globals, 1):item()
        local all = ranks.share({{norm}})
        for r = 1, ranks.world do assert.are.equal(norm, all[r][1][1]) end
    end)

    it("costs one all-reduce", function()
        local params = {}
        for i, sbp in ipairs {"S(0)", "B", "S(1)", "S(0)", "B"} do
            params[i] = nn.Parameter(flow.zeros({8, 4}, {placement = everywhere, sbp = sbp}))
            params[i].grad = flow.ones({8, 4}, {placement = everywhere, sbp = sbp})
        end
        local report = flow.explain(function() optim.clip_grad_norm(params, 1) end)
        if ranks.world == 1 then
            assert.are.equal(0, #report.collectives)
        else
            assert.are.equal(1, #report.collectives)
            assert.are.equal("all-reduce", report.collectives[1].kind)
            assert.are.equal("float32[]", report.collectives[1].tensor)
        end
        local whole = flow.explain(function() optim.clip_grad_norm({params[2], params[5]}, 1) end)
        assert.are.equal(0, #whole.collectives)
    end)
end)

describe("norms of other powers over split gradients", function()
    local sbps = {"S(0)", "B", "S(1)", "S(0)", "B"}

    local function both(dtype)
        local globals, locals = {}, {}
        for i, sbp in ipairs(sbps) do
            locals[i] = numbers({7, 4}, 40 + i, 1):to(dtype)
            globals[i] = locals[i]:to_global{placement = everywhere, sbp = "B"}:to_global{sbp = sbp}
        end
        return globals, locals
    end

    for _, p in ipairs {0, 0.5, 1, 2, 3, math.huge, -math.huge} do
        it(("are one rank's, and cost one all-reduce: %g"):format(p), function()
            local globals, locals = both "float64"
            local got
            local report = flow.explain(function() got = nn.utils.get_total_norm(globals, p) + 0 end)
            assert.are.equal(ranks.world == 1 and 0 or 1, #report.collectives, tostring(report))
            local want, norm = nn.utils.get_total_norm(locals, p):item(), got:item()
            assert.is_true(math.abs(norm - want) <= 1e-12 * want, ("%.17g, not %.17g"):format(norm, want))
            local all = ranks.share({{norm}})
            for r = 1, ranks.world do assert.are.equal(norm, all[r][1][1]) end
        end)
    end

    it("limit the gradients as on one rank", function()
        local globals, locals = both "float32"
        for _, list in ipairs {globals, locals} do
            for i, g in ipairs(list) do
                list[i] = nn.Parameter(g:detach():clone())
                list[i].grad = g:clone()
            end
        end
        local report = flow.explain(function() nn.utils.clip_grad_norm_(globals, 0.25, 3) end)
        assert.are.equal(ranks.world == 1 and 0 or 1, #report.collectives, tostring(report))
        nn.utils.clip_grad_norm_(locals, 0.25, 3)
        for i, g in ipairs(globals) do
            local off = (g.grad:to_global{sbp = "B"}:to_local() - locals[i].grad):abs():max():item()
            assert.is_true(off < 1e-7, ("%d is off by %g"):format(i, off))
        end
    end)
end)

describe("losses over global tensors", function()
    local logits, classes = numbers({6, 5}, 1, 1), flow.tensor({0, 4, 2, 2, 1, 3})
    local wanted = numbers({6, 5}, 2, 1)
    local cases = {
        {"cross_entropy", function(x, y) return flow.cross_entropy(x, y) end, classes},
        {"cross_entropy of a sum", function(x, y) return flow.cross_entropy(x, y, {reduction = "sum"}) end, classes},
        {"cross_entropy that ignores a class", function(x, y) return flow.cross_entropy(x, y, {ignore_index = 2}) end, classes},
        {"nll_loss", function(x, y) return flow.nll_loss(x:log_softmax(1), y) end, classes},
        {"mse_loss", function(x, y) return flow.mse_loss(x, y) end, wanted},
    }
    for i, place in ipairs(places) do
        it("and their gradients are one rank's on " .. tostring(place.value), function()
            local random, wrong, count = ranks.random(i), ranks.complaints(), 0
            for _, case in ipairs(cases) do
                local leaf = nn.Parameter(logits:clone())
                local loss = case[2](leaf, case[3])
                loss:backward()
                for _ = 1, 4 do
                    local sbp, target_sbp
                    repeat sbp = random.pick(ranks.nd_sbps(place, 2, "float32")) until not ranks.has_partial(sbp)
                    repeat target_sbp = random.pick(ranks.nd_sbps(place, case[3]:dim(), "float32")) until not ranks.has_partial(target_sbp)
                    local x = nn.Parameter(global(logits:clone(), place, sbp))
                    local got = case[2](x, global(case[3]:clone(), place, target_sbp))
                    got:backward()
                    count = count + 1
                    local value, want = got:item(), part(leaf.grad, x)
                    local off = math.max(math.abs(value - loss:item()), want and worst(want - x.grad:to_local()) or 0)
                    if off ~= off or off > 1e-5 then
                        wrong.add("%s of (%s) and (%s): off by %g", case[1], table.concat(sbp, ", "), table.concat(target_sbp, ", "), off)
                    end
                end
            end
            wrong.check(count)
        end)
    end
end)

describe("a model over several placements", function()
    it("learns as on one rank: layers on ranks of their own", function()
        local first, second = ranks.place {0}, ranks.place {ranks.world - 1}
        if ranks.world == 4 then first, second = ranks.place {0, 1}, ranks.place {3, 2} end
        local function make()
            flow.manual_seed(11)
            return nn.Linear(5, 8), nn.Linear(8, 3)
        end
        local function losses(parallel)
            local a, b = make()
            flow.manual_seed(12)
            local x, y = flow.randn({6, 5}), flow.tensor({0, 1, 2, 2, 1, 0})
            if parallel then
                a:to_global{placement = first.value, sbp = "B"}
                b:to_global{placement = second.value, sbp = "B"}
                x, y = global(x, first, {"S(0)"}), global(y, second, {"S(0)"})
            end
            local params = {a.weight, a.bias, b.weight, b.bias}
            local optimizer, list = optim.AdamW(params, {lr = 0.1}), {}
            for step = 1, 6 do
                optimizer:zero_grad()
                local h = a(x):relu()
                if parallel then h = h:to_global{placement = second.value, sbp = "S(0)"} end
                local loss = flow.cross_entropy(b(h), y)
                loss:backward()
                optim.clip_grad_norm(params, 0.5)
                optimizer:step()
                list[step] = loss:item()
            end
            return list
        end
        local want, got = losses(false), losses(true)
        for step, loss in ipairs(want) do
            assert.is_true(math.abs(loss - got[step]) < 1e-5, ("step %d: %g, on one rank %g"):format(step, got[step], loss))
        end
    end)

    it("cannot mix local and global parameters in one norm", function()
        local a, b = nn.Parameter(flow.zeros(2)), nn.Parameter(flow.zeros({2}, {placement = everywhere, sbp = "B"}))
        local ok, message = pcall(optim.clip_grad_norm, {a, b}, 1)
        assert.is_false(ok)
        assert.are.equal("clip_grad_norm: parameter 1 is local and parameter 2 is global; all must be global or all local",
            (message:gsub("^.-:%d+: ", "")))
    end)
end)

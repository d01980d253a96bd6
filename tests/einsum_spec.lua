-- einsum_spec.lua -- einsum against loops in plain Lua: letters, "...", diagonals, sums, broadcasting, any number of operands;
-- gradients, SBP and every message.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"
local testing = flow._testing

-- The sum of products, letter by letter: operands as lists of letters, all sizes given. No "...", sizes of 1 broadcast.
local function naive(terms, result, arrays)
    local sizes, letters = {}, {}
    for i, term in ipairs(terms) do
        for axis, letter in ipairs(term) do
            if not sizes[letter] then letters[#letters + 1] = letter end
            sizes[letter] = math.max(sizes[letter] or 1, arrays[i].shape[axis])
            if arrays[i].shape[axis] == 0 then sizes[letter] = 0 end
        end
    end
    local summed, all = {}, {}
    local out_shape, kept = {}, {}
    for axis, letter in ipairs(result) do out_shape[axis], kept[letter] = sizes[letter], true end
    for _, letter in ipairs(letters) do
        if not kept[letter] then summed[#summed + 1], all[#all + 1] = letter, sizes[letter] end
    end
    return ref.array(out_shape, function(index)
        local at, total = {}, 0
        for axis, position in ipairs(ref.unravel(out_shape, index)) do at[result[axis]] = position end
        for step = 0, ref.count(all) - 1 do
            for i, position in ipairs(ref.unravel(all, step)) do at[summed[i]] = position end
            local product = 1
            for i, term in ipairs(terms) do
                local own = {}
                for axis, letter in ipairs(term) do own[axis] = arrays[i].shape[axis] == 1 and 0 or at[letter] end
                product = product * ref.at(arrays[i], own)
            end
            total = total + product
        end
        return total
    end)
end

local function letters_of(text)
    local list = {}
    for letter in text:gmatch "%a" do list[#list + 1] = letter end
    return list
end

-- equation, sizes of the operands; the equation written out where it has "..." or no result.
local cases = {
    {"i->i", {{3}}}, {"ij->ji", {{2, 3}}}, {"ij->", {{2, 3}}}, {"ij->j", {{2, 3}}}, {"ijk->ki", {{2, 3, 4}}},
    {"ii->i", {{3, 3}}}, {"ii->", {{3, 3}}}, {"iij->ji", {{3, 3, 2}}}, {"iji->j", {{2, 3, 2}}}, {"iii->i", {{3, 3, 3}}}, {"ijij->ij", {{2, 3, 2, 3}}},
    {"i,i->", {{4}, {4}}}, {"i,i->i", {{4}, {4}}}, {"i,j->ij", {{2}, {3}}}, {"i,j->ji", {{2}, {3}}}, {"i,j->", {{2}, {3}}},
    {"ij,jk->ik", {{2, 3}, {3, 4}}}, {"ij,kj->ik", {{2, 3}, {4, 3}}}, {"ji,jk->ki", {{3, 2}, {3, 4}}}, {"ij,j->i", {{2, 3}, {3}}},
    {"bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}}}, {"bij,bkj->bki", {{2, 3, 4}, {2, 5, 4}}}, {"bi,bi->b", {{2, 3}, {2, 3}}}, {"bij,bij->", {{2, 3, 4}, {2, 3, 4}}},
    {"bhqd,bhkd->bhqk", {{2, 3, 4, 5}, {2, 3, 2, 5}}}, {"abcd,cdef->abef", {{2, 1, 3, 2}, {3, 2, 2, 3}}}, {"abcd,dcab->", {{2, 2, 3, 2}, {2, 3, 2, 2}}},
    {"abc,adb->cd", {{2, 3, 4}, {2, 5, 3}}}, {"aab,bcc->ac", {{2, 2, 3}, {3, 4, 4}}}, {"ijk,jl->l", {{2, 3, 4}, {3, 2}}},
    {"ij,jk,kl->il", {{2, 3}, {3, 4}, {4, 2}}}, {"ij,jk,ki->", {{2, 3}, {3, 4}, {4, 2}}}, {"a,b,c->cab", {{2}, {3}, {4}}}, {"ij,ij,ij->ij", {{2, 3}, {2, 3}, {2, 3}}},
    {"i,i,i,i,i->", {{3}, {3}, {3}, {3}, {3}}}, {"a,ab,abc->abc", {{2}, {2, 3}, {2, 3, 4}}}, {"ab,c,bd,->dca", {{2, 3}, {2}, {3, 4}, {}}},
    {"Ij,jK->KI", {{2, 3}, {3, 4}}}, {"aA,Aa->a", {{2, 3}, {3, 2}}}, {" i j , j k -> i k ", {{2, 3}, {3, 4}}},
    {"->", {{}}}, {",->", {{}, {}}}, {"i,->i", {{3}, {}}},
    {"ij,jk->ik", {{2, 1}, {3, 4}}}, {"ij,ij->ij", {{2, 1}, {1, 3}}}, {"ij,ij->", {{2, 1}, {1, 3}}}, {"ij,jk,ik->ik", {{2, 1}, {3, 1}, {1, 4}}},
    {"ij,jk->ik", {{2, 0}, {0, 4}}}, {"ij,jk->ik", {{0, 3}, {3, 4}}}, {"ij->", {{0, 3}}},
    {"ij,jk", {{2, 3}, {3, 4}}, "ij,jk->ik"}, {"ba", {{2, 3}}, "ba->ab"}, {"aB", {{2, 3}}, "aB->Ba"}, {"ii", {{3, 3}}, "ii->"}, {"i,i", {{3}, {3}}, "i,i->"},
    {"...ij,...jk->...ik", {{2, 1, 3, 4}, {5, 4, 2}}, "abij,bjk->abik"}, {"...i->...", {{2, 3, 4}}, "abi->ab"}, {"i...", {{2, 3, 4}}, "iab->abi"},
    {"...", {{2, 3}}, "ab->ab"}, {"...,...->...", {{2, 3}, {3}}, "ab,b->ab"}, {"i...j->j...i", {{2, 3, 4, 5}}, "iabj->jabi"}, {"...ij->ij", {{2, 3, 4}}, "aij->ij"},
    {"...i,...i->...", {{3, 4}, {2, 1, 4}}, "bi,abi->ab"}, {"...ij->...ji", {{2, 3}}, "ij->ji"}, {"ii...->...i", {{2, 2, 3}}, "iia->ai"},
}

local function table_of(case)
    local written = (case[3] or case[1]):gsub(" ", "")
    local left, right = written:match "^(.*)%->(.*)$"
    local terms = {}
    for term in (left .. ","):gmatch "([^,]*)," do terms[#terms + 1] = letters_of(term) end
    return terms, letters_of(right)
end

local function operands(case, dtype)
    local list = {}
    for i, sizes in ipairs(case[2]) do list[i] = (flow.randn(sizes) * 3):round():to(dtype) end
    return list
end

describe("einsum", function()
    it("gives what loops give, for each equation", function()
        flow.manual_seed(1)
        for _, case in ipairs(cases) do
            for _, dtype in ipairs {"float64", "float32", "bfloat16", "int64"} do
                local xs, arrays = operands(case, dtype), {}
                for i, x in ipairs(xs) do arrays[i] = ref.of(x) end
                local terms, result = table_of(case)
                local want = naive(terms, result, arrays)
                local name = case[1] .. " in " .. dtype
                local ulps = dtype == "bfloat16" and 3 or 0
                local slack = dtype == "bfloat16" and 1 or 1e-30 -- a zero may have a sign
                ref.check(flow.einsum(case[1], table.unpack(xs)), want, dtype, ulps, name, slack)
                ref.check(flow.einsum(case[1], xs), want, dtype, ulps, name .. ", as a list", slack)
                for i, x in ipairs(xs) do xs[i] = support.strided(x) end
                ref.check(flow.einsum(case[1], xs), want, dtype, ulps, name .. ", strided", slack)
            end
        end
    end)

    it("takes bools where nothing is summed, and integers narrower than their sum", function()
        local x = flow.tensor {{true, false}, {true, true}}
        assert.are.same({{true, true}, {false, true}}, flow.einsum("ij->ji", x):totable())
        assert.are.equal(3, flow.einsum("ij->", x):item())
        local small = flow.full({2, 200}, 100, {dtype = "uint8"})
        assert.are.same({20000, 20000}, flow.einsum("ij->i", small):totable())
    end)

    it("gives a view where it only reorders axes", function()
        local x = flow.zeros(2, 3)
        local y = flow.einsum("ij->ji", x)
        y[{2, 1}] = 5
        assert.are.equal(5, x[{1, 2}]:item())
    end)

    it("is differentiable", function()
        for _, case in ipairs {{"ij,jk->ik", {{2, 3}, {3, 2}}}, {"iij,j->i", {{2, 2, 3}, {3}}}, {"a,ab,b->", {{2}, {2, 3}, {3}}}, {"...i,i->...", {{2, 2, 3}, {3}}},
                               {"ij,ij->ij", {{2, 1}, {2, 3}}}} do
            flow.manual_seed(3)
            local args = operands(case, "float64")
            args.n = #args
            support.gradcheck(function(xs) return table.pack(flow.einsum(case[1], table.unpack(xs, 1, xs.n))) end, args, case[1])
        end
    end)

    it("keeps split axes split", function()
        finally(function() testing.set_world(1, 0) end)
        for _, case in ipairs {
            {"bij,bjk->bik", {{4, 2, 3}, {4, 3, 2}}, {"S(0)", "S(0)"}, "S(0)"},
            {"bij,bjk->bik", {{4, 2, 3}, {4, 3, 2}}, {"S(2)", "S(1)"}, "P"},
            {"bhqd,bhkd->bhqk", {{2, 4, 3, 2}, {2, 4, 3, 2}}, {"S(1)", "S(1)"}, "S(1)"},
            {"ij,jk->ik", {{4, 3}, {3, 2}}, {"S(0)", "B"}, "S(0)"},
            {"ij->ji", {{4, 3}}, {"S(0)"}, "S(1)"},
            {"ij->j", {{4, 3}}, {"S(0)"}, "P"},
        } do
            flow.manual_seed(5)
            local whole, parts, results = operands(case, "float64"), {}, {}
            local want = flow.einsum(case[1], whole)
            for i, x in ipairs(whole) do parts[i] = support.cut(x, case[3][i], 2) end
            for rank = 0, 1 do
                testing.set_world(2, rank)
                local p, mine = flow.placement("cpu", {0, 1}), {}
                for i, x in ipairs(whole) do mine[i] = testing.from_part(parts[i][rank + 1], x.shape, p, case[3][i]) end
                local y = flow.einsum(case[1], mine)
                assert.are.equal(case[4], tostring(y.sbp), case[1])
                results[rank + 1] = y:to_local()
                testing.set_world(1, 0)
            end
            support.close(want, support.join(results, case[4]), 1e-12, case[1])
        end
    end)

    it("says what is wrong", function()
        local x, y, z = flow.zeros(2, 3), flow.zeros(4, 5), flow.zeros(2, 2, 2, 2, 2, 2, 2)
        for _, case in ipairs {
            {"einsum: letter j is 3 in operand 0 and 4 in operand 1", function() flow.einsum("ij,jk->ik", x, y) end},
            {"einsum: letter i is 2 and 3 in operand 0", function() flow.einsum("ii", x) end},
            {"einsum: axis -2 of '...' is 2 in operand 0 and 4 in operand 1", function() flow.einsum("...,...", x, y) end},
            {"einsum: axis -1 of '...' is 2 in operand 0 and 4 in operand 1", function() flow.einsum("...a,...b->...", x:unsqueeze(0), y:unsqueeze(0)) end},
            {"einsum: 'ijk' names 3 axes, but operand 0 is [2, 3]", function() flow.einsum("ijk->i", x) end},
            {"einsum: ' j' names 1 axes, but operand 1 is [4, 5]", function() flow.einsum("ij, j->i", x, y) end},
            {"einsum: 'ijk...' names 3 axes, but operand 0 is [2, 3]", function() flow.einsum("ijk...->i", x) end},
            {"einsum: 'ij,jk->ik' describes 2 operands, got 1", function() flow.einsum("ij,jk->ik", x) end},
            {"einsum: 'ij->ij' describes 1 operands, got 2", function() flow.einsum("ij->ij", {x, y}) end},
            {"einsum: '1' in 'i1->i' is not a letter", function() flow.einsum("i1->i", x) end},
            {"einsum: '-' in 'i-j' is not a letter", function() flow.einsum("i-j", x) end},
            {"einsum: '.' in 'i.j' is not part of '...'", function() flow.einsum("i.j", x) end},
            {"einsum: '...' occurs twice in operand 1", function() flow.einsum("ij,......->i", x, y) end},
            {"einsum: '...' occurs twice in the result", function() flow.einsum("...->......", x) end},
            {"einsum: letter k of the result is in no operand", function() flow.einsum("ij->ik", x) end},
            {"einsum: letter B of the result is in no operand", function() flow.einsum("ib->iB", x) end},
            {"einsum: letter i occurs twice in the result", function() flow.einsum("ij->iij", x) end},
            {"einsum: 'ij->i,j' continues after the result", function() flow.einsum("ij->i,j", x) end},
            {"einsum: 'ij->i->j' continues after the result", function() flow.einsum("ij->i->j", x) end},
            {"einsum: the result has 9 axes; a tensor has at most 8", function() flow.einsum("abcdefg,hi->abcdefghi", z, x) end},
            {"einsum: the result has 9 axes; a tensor has at most 8", function() flow.einsum("abcdefg,hi", z, x) end},
            {"einsum: a product of operands has 9 axes; a tensor has at most 8", function() flow.einsum("abcdefg,hi,abcdefg->hi", z, x, z) end},
            {"einsum: equation must be a string, got number", function() flow.einsum(1, x) end},
            {"einsum: entry 2 of xs must be a tensor, got number", function() flow.einsum("i,i", x, 2) end},
            {"einsum: xs must be a list of tensors, got number", function() flow.einsum("i", 2) end},
            {"einsum: missing argument 'xs': einsum(equation: text, xs...)", function() flow.einsum("i") end},
            {"einsum: takes at least one tensor", function() flow.einsum("", {}) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
    end)
end)

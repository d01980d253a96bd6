-- program_spec.lua -- programs on several ranks: on global tensors they give the bits of what was traced, and their SBPs.
local flow = require "flow"
local nn = flow.nn

local ranks, rank = flow.world_size(), flow.rank()
local all = flow.placement.all "cpu"

-- A path that all ranks know.
local path = ("/tmp/program_spec.%d.safetensors"):format(flow.randint(0, 1 << 40, {1}, {placement = all, sbp = "B"}):item())
teardown(function()
    flow.barrier()
    if rank == 0 then os.remove(path) end
end)

local function same(want, got, what)
    assert.are.equal(tostring(want.sbp), tostring(got.sbp), what)
    assert.is_true(want == got, what)
end

local function spec(shape, sbp, dtype) return flow.spec(shape, {placement = all, sbp = sbp, dtype = dtype}) end

local function model(rules)
    flow.manual_seed(5)
    local net = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Dropout(0.25), nn.LayerNorm(16), nn.Linear(16, 6))
    net:to_global {placement = all, sbp = "B", rules = rules}
    return net
end

local function seeded(f, ...)
    flow.manual_seed(12)
    return f(...)
end

describe("a program on " .. ranks .. " ranks", function()
    local cases = {
        {"data parallel", data = "S(0)"},
        {"of split parameters", data = "B", rules = {{"1%.", "S(0)"}, {"5%.weight", "S(1)"}}},
    }
    for _, o in ipairs(cases) do
        it(o[1] .. " gives the bits and SBPs of the function", function()
            local net = model(o.rules)
            local n = 3 * ranks + 1
            local function loss(x, y) return net(x):cross_entropy(y) end
            local p = flow.trace(loss, {spec({n, 12}, o.data), spec({n}, o.data, "int64")})
            p:save(path)
            local q = flow.program(path)
            assert.are.equal(tostring(p), tostring(q))
            local x = flow.randn(n, 12, {placement = all, sbp = o.data})
            local y = flow.randint(0, 6, {n}, {placement = all, sbp = o.data})
            for _, program in ipairs {p, q} do
                for _ = 1, 2 do same(seeded(loss, x, y), seeded(program, x, y), "loss") end
                assert.are.equal(tostring(loss(x, y).sbp), tostring(p.values[p.outputs[1].value].sbp))
                local back = program:backward()
                for _ = 1, 2 do
                    net:zero_grad()
                    seeded(loss, x, y):backward()
                    local got = {seeded(back, x, y)}
                    local i = 0
                    for name, parameter in net:named_parameters() do
                        i = i + 1
                        assert.are.equal(name, back.outputs[i].name)
                        same(parameter.grad, got[i], name)
                    end
                end
            end
        end)
    end

    it("prints the SBP that inference chose", function()
        local p = flow.trace(function(x, w) return x:matmul(w), (x:t():matmul(x)):relu() end,
            {spec({4 * ranks, 6}, "S(0)"), spec({6, 2}, "B")})
        local text = tostring(p)
        assert.is_truthy(text:find("value  op +shape +dtype +sbp +bytes +line\n"), text)
        assert.is_truthy(text:find("%%1 +matmul%(x, w%) +%[%d+, 2%] +float32  S%(0%) +32 bytes"), text)
        assert.is_truthy(text:find("matmul%(%%2, x%) +%[6, 6%] +float32  P "), text)
        assert.is_truthy(text:find("relu%(%%3%) +%[6, 6%] +float32  [SB]"), text)
    end)

    it("holds what moves between SBPs, and parts of this rank", function()
        local function f(x)
            local y = (x * 2):to_global {sbp = "B"}
            local z = y:sum(0):to_global {sbp = "S(0)"}
            return z, y:to_local() + 1
        end
        local p = flow.trace(f, {spec({2 * ranks, 5}, "S(0)")})
        local x = flow.randn(2 * ranks, 5, {placement = all, sbp = "S(0)"})
        for _ = 1, 2 do
            local a, b = f(x)
            local c, d = p(x)
            same(a, c, "z")
            assert.is_true(b == d)
        end
        local q = p:infer {{3 * ranks, 5}}
        x = flow.randn(3 * ranks, 5, {placement = all, sbp = "S(0)"})
        same((f(x)), (q(x)), "z of more rows")
    end)

    it("refuses inputs in another SBP", function()
        local p = flow.trace(function(x) return x + 1 end, {spec({2, 3}, "B")})
        local ok, message = pcall(p, flow.ones(2, 3, {placement = all, sbp = "S(0)"}))
        assert.is_false(ok)
        assert.is_truthy(message:find("the input 'x' is float32[2, 3] as S(0), the program was made for float32[2, 3] as B",
            1, true), message)
    end)
end)

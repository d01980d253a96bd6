-- out.lua -- results in tensors that are there already: a stencil that allocates nothing while it runs.

local flow = require "flow"

-- Heat on a rod of n points whose ends are held at 1 and 0.
local n = 64
local now, after = flow.zeros(n), flow.zeros(n)
now[0], after[0] = 1, 1

local function inner(t, shift) return t:narrow(0, 1 + shift, n - 2) end

local flux = flow.zeros(n - 2)
flow.no_grad(function()
    for _ = 1, 20000 do
        inner(now, -1):add(inner(now, 1), {out = flux})
        flux:mul(0.5, {out = inner(after, 0)})
        now, after = after, now
    end
end)

print(flow.allclose(now, flow.linspace(1, 0, n), {atol = 1e-3}))
--> true

-- An out that does not fit, or whose gradient would be lost, is an error.
print(select(2, pcall(flux.mul, flux, 2, {out = now})))
--> examples/lua/out.lua:25: mul: out is float32[64] on cpu (local), the result is float32[62] on cpu (local)
flux.requires_grad = true
print((select(2, pcall(flux.mul, flux, 2, {out = flow.zeros(n - 2)})):match ": mul: ([^;]*)"))
--> out has no gradient, and an operand requires grad

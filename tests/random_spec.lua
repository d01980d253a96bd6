-- random_spec.lua -- random ops: known words, ranges, moments, dtypes, dropout's mask in the gradient.
local flow = require "flow"

describe("uniforms", function()
  it("are the words of Philox4x32-10", function()
    flow.manual_seed(0)
    local words = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8} -- Random123's answer for key 0, counter 0
    local got = flow.rand(4):totable()
    for i = 1, 4 do assert.are.equal((words[i] >> 8) * 2.0 ^ -24, got[i]) end
  end)

  it("stay below 1 in every dtype", function()
    for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
      local x = flow.rand(20000, {dtype = dtype}):to("float64")
      assert.is_true(x:lt(1):all():item())
      assert.is_true(x:ge(0):all():item())
      assert.is_true(math.abs(x:mean():item() - 0.5) < 0.02)
    end
  end)

  it("fill views in place", function()
    local x = flow.zeros(3, 4)
    x:t():narrow(0, 1, 2):uniform_(2, 3)
    assert.is_true(x:narrow(1, 1, 2):ge(2):all():item())
    assert.are.equal(0, x:select(1, 0):sum():item())
  end)
end)

describe("normals", function()
  it("have the moments of a normal distribution", function()
    flow.manual_seed(11)
    local x = flow.randn(200000):to("float64")
    assert.is_true(math.abs(x:mean():item()) < 0.01)
    assert.is_true(math.abs((x * x):mean():item() - 1) < 0.02)
    assert.is_true(math.abs((x * x * x * x):mean():item() - 3) < 0.1)
  end)

  it("do not depend on the shape", function()
    flow.manual_seed(3)
    local flat = flow.randn(100)
    flow.manual_seed(3)
    assert.is_true(flow.randn(10, 10):reshape(100):eq(flat):all():item())
  end)
end)

describe("integers", function()
  it("lie in the range", function()
    local x = flow.randint(3, 7, {4000})
    for v = 3, 6 do assert.is_true(math.abs(x:eq(v):to("float32"):mean():item() - 0.25) < 0.05) end
    assert.is_true(flow.randint(-4000000000, -3999999999, {5}):eq(-4000000000):all():item())
  end)

  it("refuse empty ranges and ranges the dtype lacks", function()
    assert.has_error(function() flow.randint(5, 5, {2}) end)
    assert.has_error(function() flow.randint(0, 300, {2}, {dtype = "uint8"}) end)
  end)

  it("permute", function()
    local list = flow.randperm(500):totable()
    table.sort(list)
    for i = 1, 500 do assert.are.equal(i - 1, list[i]) end
  end)
end)

describe("dropout", function()
  it("has the same mask in its gradient", function()
    local x = flow.randn(50, 40, {requires_grad = true})
    local y = x:dropout(0.4)
    y:sum():backward()
    assert.is_true((x.grad * x):sub(y):abs():max():item() < 1e-5)
    assert.is_true(math.abs(y:ne(0):to("float32"):mean():item() - 0.6) < 0.05)
  end)

  it("does nothing when not training and everything at 1", function()
    local x = flow.randn(5)
    assert.is_true(x:dropout(0.5, false):eq(x):all():item())
    assert.are.equal(0, x:dropout(1):abs():sum():item())
    assert.has_error(function() x:dropout(1.5) end)
  end)
end)

it("bernoulli follows its probabilities", function()
  assert.are.same({0, 1, 0, 1}, flow.bernoulli(flow.tensor {0.0, 1.0, 0.0, 1.0}):totable())
  assert.has_error(function() flow.bernoulli(flow.tensor {2.0}):item() end)
end)

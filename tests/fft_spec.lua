-- fft_spec.lua -- flow.fft and flow.signal: every length against sums, several axes, errors. tests/peer has the values.
local flow = require "flow"
local support = require "tests.support"
local fft = flow.fft

-- Complex numbers [n, 2] by the definition.
local function by_sums(x, inverse)
    local n = x:size(0)
    local at = flow.arange(n)
    local phase = (at:unsqueeze(1) * at % n):to "float64" * ((inverse and 2 or -2) * math.pi / n)
    local c, s = phase:cos(), phase:sin()
    return flow.stack({c:matmul(x:select(1, 0)) - s:matmul(x:select(1, 1)),
        s:matmul(x:select(1, 0)) + c:matmul(x:select(1, 1))}, 1)
end

local function error_between(x, y)
    return (x:to "float64" - y):abs():max():item() / math.max(1, y:abs():max():item())
end

describe("flow.fft", function()
    for _, dtype in ipairs {"float64", "float32"} do
        local tolerance = dtype == "float64" and 1e-13 or 2e-6
        it("gives sums of every length in " .. dtype, function()
            local wrong = {}
            local function note(what, n, got, want)
                if error_between(got, want) >= tolerance then wrong[#wrong + 1] = what .. " " .. n end
            end
            for n = 1, 200 do
                local x = flow.randn(n, 2, {dtype = "float64"})
                local y, z = by_sums(x), by_sums(x, true)
                note("fft", n, fft.fft(x:to(dtype)), y)
                note("ifft", n, fft.ifft(x:to(dtype)) * n, z)
                local many = flow.stack({x, x * 2, x * 3, x * 4, x * 5, x * 6, x * 7, x * 8, x * 9}, 0):to(dtype)
                note("many", n, fft.fft(many):select(0, 8), y * 9)
                note("beside", n, fft.fft(many:transpose(0, 1), nil, 0):select(1, 4), y * 5)
                local signal = x:select(1, 0)
                local half = by_sums(fft.complex(signal)):narrow(0, 0, n // 2 + 1)
                note("rfft", n, fft.rfft(signal:to(dtype)), half)
                note("irfft", n, fft.irfft(half:to(dtype), n), signal)
            end
            assert.are.same({}, wrong)
        end)

        it("comes back from long lines in " .. dtype, function()
            for _, n in ipairs {1000, 1009, 2401, 4096, 4099, 10007, 16384, 46189, 65536, 65537, 100000, 131072} do
                local x = flow.randn(n, 2, {dtype = dtype})
                local y = fft.fft(x)
                assert.is_true(error_between(fft.ifft(y), x:to "float64") < tolerance * 3, n)
                local k = n // 3
                local phase = (flow.arange(n) * k % n):to "float64" * (-2 * math.pi / n)
                local one = (x:select(1, 0):to "float64" * phase:cos() - x:select(1, 1):to "float64" * phase:sin()):sum()
                assert.is_true(math.abs(y[{k, 0}]:item() - one:item()) < tolerance * 50 * math.sqrt(n), n)
            end
        end)
    end

    it("does not depend on the threads", function()
        local x = flow.randn(1 << 16, 2)
        local many = flow.randn(70, 343)
        local y, z = fft.fft(x), fft.rfft(many)
        flow.set_num_threads(1)
        assert.is_true(fft.fft(x) == y)
        assert.is_true(fft.rfft(many) == z)
        flow.set_num_threads(2)
    end)

    it("takes integers and 16 bits", function()
        assert.are.equal("float32", fft.rfft(flow.arange(8)).dtype)
        local x = flow.randn(4, 16, {dtype = "float16"})
        assert.are.equal("float16", fft.rfft(x).dtype)
        assert.is_true(error_between(fft.irfft(fft.rfft(x)), x:to "float64") < 1e-2)
    end)

    it("words its errors", function()
        for message, f in pairs {
            ["fft.fft: takes complex numbers [..., n, 2], got [4, 3]; for a real signal write flow.fft.rfft(x), or "
                .. "flow.fft.complex(x)"] = function() fft.fft(flow.zeros(4, 3)) end,
            ["fft.rfft: axis must be a whole number in [-2, 1], got 2"] = function() fft.rfft(flow.zeros(4, 3), nil, 2) end,
            ["fft.ifft: the length of a transform must be at least 1, got 0"] = function() fft.ifft(flow.zeros(4, 2), 0) end,
            ["fft.fftn: axis 0 is given twice"] = function() fft.fftn(flow.zeros(4, 4, 2), nil, {0, -2}) end,
            ["fft.fft2: s has 1 lengths for 2 axes"] = function() fft.fft2(flow.zeros(4, 4, 2), {3}) end,
            ["fft.fft: norm must be one of backward|forward|ortho, got 'orto'; did you mean 'ortho'?"] = function()
                fft.fft(flow.zeros(4, 2), nil, -1, "orto")
            end,
        } do
            assert.are.equal(message, support.error_of(f))
        end
    end)
end)

describe("flow.signal", function()
    it("comes back from an stft", function()
        for _, n in ipairs {8, 16, 50} do
            local x = flow.randn(2, 200, {dtype = "float64"})
            local w = flow.hann_window(n, true, {dtype = "float64"})
            local y = flow.stft(x, n, n // 4, nil, w)
            local back = flow.istft(y, n, n // 4, nil, w, {length = 200})
            local inner = back:narrow(1, 0, 190)
            assert.is_true(error_between(inner, x:narrow(1, 0, 190)) < 1e-12)
        end
    end)

    it("gives windows options", function()
        local w = flow.hann_window(6, {dtype = "float64", requires_grad = true})
        assert.are.equal("float64", w.dtype)
        assert.is_true(w.requires_grad)
        assert.are.equal("float16", flow.kaiser_window(6, {dtype = "float16"}).dtype)
    end)

    it("filters spectrograms by mels", function()
        local filters = flow.signal.melscale_fbanks(201, 0, 8000, 40, 16000)
        assert.are.same({201, 40}, {filters:size(0), filters:size(1)})
        assert.is_true(filters:ge(0):all():item())
        assert.is_true(filters:amax(0):gt(0.3):all():item())
        local area = flow.signal.melscale_fbanks(2049, 0, 8000, 20, 16000, "slaney", "slaney"):sum(0) * (8000 / 2048)
        assert.is_true((area - 1):abs():max():item() < 1e-2)
        local x = flow.randn(2, 3, 1600)
        local mels = flow.signal.mel_spectrogram(x, {n_fft = 256, n_mels = 20})
        assert.are.same({2, 3, 20, 13}, table.move(mels.shape, 1, 4, 1, {}))
        local tone = (flow.arange(4000) * (2 * math.pi * 1000 / 8000)):sin()
        local power = flow.signal.spectrogram(tone, {n_fft = 256})
        assert.are.equal(32, power:select(-1, 10):argmax():item())
    end)

    it("words its errors", function()
        for message, f in pairs {
            ["stft: window must have 16 numbers, as many as win_length, got [8]"] = function()
                flow.stft(flow.zeros(40), 16, {window = flow.ones(8)})
            end,
            ["stft: frames of 2 numbers are too short for a default of hop_length: give it"] = function()
                flow.stft(flow.ones(8), 2)
            end,
            ["istft: frames of 3 numbers are too short for a default of hop_length: give it"] = function()
                flow.istft(flow.ones(2, 4, 2), 3)
            end,
            ["stft: a signal of 8 numbers is too short to be continued by 8 on both sides"] = function()
                flow.stft(flow.zeros(8), 16)
            end,
            ["istft: the windows leave gaps: their squares overlap to 0 somewhere; a smaller hop_length, or a window "
                .. "without zeros at its ends, has none"] = function() flow.istft(flow.zeros(9, 4, 2), 16, 20) end,
        } do
            assert.are.equal(message, support.error_of(f))
        end
    end)
end)

-- fft_spec.lua -- Fourier transforms on the GPU, by cuFFT: every kind, length, axis and layout against the CPU, gradients, what is
-- said where there is no cuFFT. In the emulation FLOW_CUFFT names a stand-in.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local process = require "tests.process"
local support = require "tests.support"

local fft = flow.fft
local function it(name, body) cuda.it_with("FLOW_CUFFT", name, body) end

local LENGTHS = {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 30, 31, 49, 64, 97, 100, 128, 210}
if not cuda.emulated then table.move({1000, 1009, 1024, 4099, 10007, 46189, 65536, 65537, 1 << 18}, 1, 9, #LENGTHS + 1, LENGTHS) end

-- Both succeed, and equally.
local function agree(what, f, ...)
    assert.is_not_nil(cuda.agree(what, function(args) return f(table.unpack(args, 1, args.n)) end, table.pack(...)), what)
end

describe("Fourier transforms on the GPU", function()
    for _, dtype in ipairs {"float64", "float32"} do
        it("have every length in " .. dtype, function()
            for _, n in ipairs(LENGTHS) do
                local x, signal, half = flow.randn(3, n, 2, {dtype = dtype}), flow.randn(3, n, {dtype = dtype}),
                    flow.randn(3, n // 2 + 1, 2, {dtype = dtype})
                -- sums of n numbers: compared as shares of the largest
                local scale = 1 / math.sqrt(n)
                agree("fft " .. n, function(t) return fft.fft(t) * scale end, x)
                agree("ifft " .. n, function(t) return fft.ifft(t, nil, -1, "forward") * scale end, x)
                agree("rfft " .. n, function(t) return fft.rfft(t) * scale end, signal)
                agree("irfft " .. n, function(t) return fft.irfft(t, n, -1, "ortho") end, half)
                agree("hfft " .. n, function(t) return fft.hfft(t, n, -1, "ortho") end, half)
                agree("ihfft " .. n, function(t) return fft.ihfft(t, n, -1, "ortho") end, signal)
            end
        end)

        it("have every axis and cut or fill up lines in " .. dtype, function()
            for _, shape in ipairs {{4, 6, 5}, {7, 3}, {2, 3, 4, 5}, {1, 8, 1}, {5}} do
                local complex = table.move(shape, 1, #shape, 1, {})
                complex[#complex + 1] = 2
                local x, signal = flow.randn(complex, {dtype = dtype}), flow.randn(shape, {dtype = dtype})
                for axis = 0, #shape - 1 do
                    for _, n in ipairs {1, 3, 4, 5, 8, 9} do
                        local what = ("axis %d of %s, length %d"):format(axis, table.concat(shape, "x"), n)
                        agree("fft, " .. what, fft.fft, x, n, axis)
                        agree("ifft, " .. what, fft.ifft, x, n, axis, "ortho")
                        agree("rfft, " .. what, fft.rfft, signal, n, axis)
                        agree("irfft, " .. what, fft.irfft, x, n, axis)
                        agree("hfft, " .. what, fft.hfft, x, n, axis)
                        agree("ihfft, " .. what, fft.ihfft, signal, n, axis)
                    end
                end
            end
        end)
    end

    it("take every layout", function()
        for _, layout in ipairs(cuda.layouts) do
            for _, dtype in ipairs {"float64", "float32", "float16", "bfloat16"} do
                local what = ("%s, %s"):format(layout[1], dtype)
                -- the numbers are pairs in every layout
                local function pairs_of(t) return flow.stack({t, t * 0.5 - 1}, -1) end
                for axis = -1, 0 do
                    local function f(args)
                        local x = args[1]
                        if x.ndim == 0 then x = x:unsqueeze(0) end
                        return fft.fft(pairs_of(x), 6, axis), fft.rfft(x, 6, axis), fft.irfft(pairs_of(x), 6, axis)
                    end
                    cuda.agree(what, f, {n = 1, flow.randn(3, 4, 5, {dtype = dtype})}, false, layout[2])
                end
            end
        end
        -- complex numbers whose address is that of a real, and whose parts lie apart
        agree("shifted pairs", function(t) return fft.fft(t:narrow(0, 1, 12):view(6, 2)) end, flow.randn(13))
        agree("parts apart", function(t) return fft.fft(t:transpose(0, 1)) end, flow.randn(2, 6))
        agree("shifted signal", function(t) return fft.rfft(t:narrow(0, 1, 12)) end, flow.randn(13))
    end)

    it("go over several axes", function()
        agree("fft2", fft.fft2, flow.randn(3, 6, 5, 2))
        agree("ifft2", fft.ifft2, flow.randn(3, 6, 5, 2))
        agree("fftn", fft.fftn, flow.randn(3, 6, 5, 2))
        agree("rfft2", fft.rfft2, flow.randn(3, 6, 5))
        agree("irfft2", fft.irfft2, flow.randn(3, 6, 4, 2))
        agree("columns of large images", function(t) return fft.fft(t, nil, 1) end, flow.randn(2, 16, 4096, 2))
        agree("columns of large real images", function(t) return fft.rfft(t, nil, 1) end, flow.randn(3, 17, 4097))
        agree("stft", function(t) return flow.stft(t, 16, 4, nil, flow.hann_window(16, true, {device = t.device})) end, flow.randn(2, 100))
    end)

    it("have no lines, or no numbers", function()
        agree("no lines", fft.fft, flow.zeros(0, 4, 2))
        agree("no lines of an axis before", function(t) return fft.rfft(t, 3, 0) end, flow.zeros(4, 0))
        agree("empty lines", function(t) return fft.fft(t, 4) end, flow.zeros(3, 0, 2))
    end)

    it("have gradients of two orders", function()
        local function derivatives(f)
            return function(t)
                t = t:detach():requires_grad_()
                local y = f(t)
                local weight = flow.arange(y:numel(), {dtype = y.dtype, device = y.device}):reshape(y.shape) * 0.1 - 1
                local g = flow.grad((y * y * weight):sum(), {t}, {create_graph = true})[1]
                return g, flow.grad((g * g):sum(), {t})[1]
            end
        end
        for _, n in ipairs {6, 7} do
            agree("fft", derivatives(function(t) return fft.fft(t, n) end), flow.randn(3, 6, 2, {dtype = "float64"}))
            agree("rfft", derivatives(function(t) return fft.rfft(t, n) end), flow.randn(3, 6, {dtype = "float64"}))
            agree("irfft", derivatives(function(t) return fft.irfft(t, n) end), flow.randn(3, 4, 2, {dtype = "float64"}))
            agree("columns", derivatives(function(t) return fft.rfft(t, n, 0) end), flow.randn(6, 3, {dtype = "float64"}))
        end
    end)

    it("forget plans that were not used for long", function()
        local x = flow.randn(4, 100, 2)
        local there = x:to(cuda.device)
        for round = 1, 2 do
            for n = 2, 50 do support.same(fft.fft(x, n), fft.fft(there, n), ("round %d, %d"):format(round, n), 2e-5) end
        end
    end)

    it("are the same in captured functions", function()
        local x = flow.randn(4, 12)
        local function f(t) return fft.irfft(fft.rfft(t * 2) * 3, 12) + 1 end
        local p = flow.capture(f)
        local there = x:to(cuda.device)
        for _ = 1, 6 do support.same(f(x), p(there), "captured", 2e-5) end
    end)
end)

describe("without cuFFT", function()
    cuda.it("Fourier transforms say what is missing", function()
        local code = 'print(select(2, pcall(function() return flow.fft.fft(flow.ones(4, 2):to("cuda")):sum():item() end)))'
        local text = process.output(("FLOW_CUFFT=none %s -e '%s' 2>&1"):format(process.flowlua, code))
        assert.is_truthy(text:find('fft_complex: cuFFT (libcufft.so.12 or .11) was not found; install it, set LD_LIBRARY_PATH or FLOW_CUFFT, '
            .. 'or move the operand to the CPU: x:to("cpu")', 1, true), text)
    end)
end)

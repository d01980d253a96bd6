-- signal.lua -- flow.signal: windows, short-time Fourier transforms, spectrograms.
--
-- Names, arguments and results are PyTorch's (stft, istft and the windows are fields of flow too) and torchaudio's
-- (spectrograms). Complex results have a trailing axis of size 2, as in flow.fft. Frames are taken by index and put
-- back by scattered sums.

local flow = require "flow"
local check = require "flow.check"
local fft = require "flow.fft"

local M = {}

-- ---- windows ----

-- Options of new tensors, of this dtype.
local function options_of(opts, dtype)
    return {dtype = dtype, device = opts.device, placement = opts.placement, sbp = opts.sbp}
end

-- A window of n numbers from f(phase), phase from 0 to 2 pi. A periodic one is the beginning of one with n + 1 numbers.
local function window(n, periodic, opts, f)
    local dtype = opts.dtype or flow.get_default_dtype()
    local result
    if n <= 1 then
        result = flow.ones(n, options_of(opts, dtype))
    else
        local phase = flow.arange(n, options_of(opts, "float64")) * (2 * math.pi / (periodic and n or n - 1))
        result = f(phase):to(dtype)
    end
    return opts.requires_grad and result:requires_grad_() or result
end

---Hann's window: (1 - cos) / 2.
---@param window_length integer
---@param periodic boolean?
---@param opts table options of a new tensor
---@return table
function M.hann_window(window_length, periodic, opts)
    return M.hamming_window(window_length, periodic, 0.5, 0.5, opts)
end

---Hamming's window: alpha - beta cos.
---@param window_length integer
---@param periodic boolean?
---@param alpha number?
---@param beta number?
---@param opts table options of a new tensor
---@return table
function M.hamming_window(window_length, periodic, alpha, beta, opts)
    return window(window_length, periodic, opts, function(phase) return phase:cos() * -beta + alpha end)
end

---Blackman's window: 0.42 - 0.5 cos + 0.08 cos of twice the phase.
---@param window_length integer
---@param periodic boolean?
---@param opts table options of a new tensor
---@return table
function M.blackman_window(window_length, periodic, opts)
    return window(window_length, periodic, opts,
        function(phase) return phase:cos() * -0.5 + (phase * 2):cos() * 0.08 + 0.42 end)
end

---Bartlett's window: a triangle.
---@param window_length integer
---@param periodic boolean?
---@param opts table options of a new tensor
---@return table
function M.bartlett_window(window_length, periodic, opts)
    return window(window_length, periodic, opts, function(phase) return 1 - (phase / math.pi - 1):abs() end)
end

-- The modified Bessel function of order 0, by its series.
local function bessel(x)
    local sum, term, k = 1.0, 1.0, 0
    repeat
        k = k + 1
        term = term * (x / 2) ^ 2 / k ^ 2
        sum = sum + term
    until term < 1e-17 * sum
    return sum
end

---Kaiser's window, made of a Bessel function; beta: larger is narrower.
---@param window_length integer
---@param periodic boolean?
---@param beta number?
---@param opts table options of a new tensor
---@return table
function M.kaiser_window(window_length, periodic, beta, opts)
    return window(window_length, periodic, opts, function()
        local values, last = {}, periodic and window_length or window_length - 1
        for i = 0, window_length - 1 do
            values[i + 1] = bessel(beta * math.sqrt(math.max(0, 1 - (2 * i / last - 1) ^ 2))) / bessel(beta)
        end
        return flow.tensor(values, options_of(opts, "float64"))
    end)
end

-- ---- frames ----

-- Numbers from one frame to the next: a quarter of a frame, where none are given.
local function hop_of(who, hop_length, n_fft)
    local hop = hop_length or n_fft // 4
    if hop < 1 then
        check.fail("%s: frames of %d numbers are too short for a default of hop_length: give it", who, n_fft)
    end
    return hop
end

-- The window in the middle of n numbers; ones without one.
local function frame_window(who, opts, n, x)
    local length = opts.win_length or n
    if length > n or length < 1 then
        check.fail("%s: win_length %d is not between 1 and n_fft %d", who, length, n)
    end
    local w = opts.window
    if w and (w.ndim ~= 1 or w:size(0) ~= length) then
        check.fail("%s: window must have %d numbers, as many as win_length, got %s", who, length, check.shape(w))
    end
    if not w and length == n then return nil end
    w = w or flow.ones_like(x:flatten():narrow(0, 0, 1)):expand(length)
    local left = (n - length) // 2
    if length == n then return w end
    local zero = flow.zeros_like(w:narrow(0, 0, 1))
    return flow.cat({zero:expand(left), w, zero:expand(n - length - left)}, 0)
end

-- Positions of the numbers of all frames, [frames * n].
local function frame_positions(frames, n, hop)
    return (flow.arange(frames):unsqueeze(1) * hop + flow.arange(n)):flatten()
end

-- Positions in a signal of `length` of positions in one that is continued on both sides by `pad`.
local continued = {
    reflect = function(at, length) return (at - (length - 1)):abs():neg() + (length - 1) end,
    replicate = function(at, length) return at:clamp(0, length - 1) end,
    circular = function(at, length) return at % length end,
}

-- x [rows, length] in overlapping frames [rows, frames, n].
local function frames_of(who, x, n, hop, pad, mode)
    local length = x:size(1)
    if pad > 0 and mode == "constant" then
        local zeros = flow.zeros_like(x:narrow(1, 0, 1)):expand(x:size(0), pad)
        x = flow.cat({zeros, x, zeros}, 1)
        length, pad = length + 2 * pad, 0
    end
    if mode == "reflect" and pad >= length or mode == "circular" and pad > length then
        check.fail("%s: a signal of %d numbers is too short to be continued by %d on both sides", who, length, pad)
    end
    local whole = length + 2 * pad
    if whole < n then check.fail("%s: n_fft %d is larger than the signal of %d numbers", who, n, whole) end
    local count = (whole - n) // hop + 1
    local at = frame_positions(count, n, hop)
    if pad > 0 then
        at = at - pad
        if mode == "reflect" then at = at:abs() end
        at = continued[mode](at, length)
    end
    if x.is_global then at = at:to_global {placement = x.placement, sbp = "B"} else at = at:to(x.device) end
    return x:index_select(1, at):reshape(x:size(0), count, n)
end

-- ---- short-time Fourier transforms ----

---Spectra of overlapping frames of a signal [time] or [batch, time]: complex numbers [batch, n_fft/2 + 1, frames, 2],
---of all n_fft frequencies if `onesided` is false. return_complex, as PyTorch has it, makes no difference.
---@param x table tensor
---@param n_fft integer
---@param hop_length integer? default n_fft / 4
---@param win_length integer? default n_fft
---@param window table? tensor
---@param center boolean? a frame is in the middle of its time: the signal is continued by n_fft/2 on both sides
---@param pad_mode string?
---@param normalized boolean? divides by sqrt(n_fft)
---@param onesided boolean?
---@return table
function M.stft(x, n_fft, hop_length, win_length, window_, center, pad_mode, normalized, onesided)
    if x.ndim ~= 1 and x.ndim ~= 2 then
        check.fail("stft: takes a signal [time] or [batch, time], got %s", check.shape(x))
    end
    local rows = x.ndim == 1 and x:unsqueeze(0) or x
    local w = frame_window("stft", {window = window_, win_length = win_length}, n_fft, rows)
    local hop = hop_of("stft", hop_length, n_fft)
    local frames = frames_of("stft", rows, n_fft, hop, center and n_fft // 2 or 0, pad_mode)
    if w then frames = frames * w end
    local norm = normalized and "ortho" or "backward"
    local spectra = onesided and fft.rfft(frames, nil, -1, norm) or fft.fft(fft.complex(frames), nil, -1, norm)
    spectra = spectra:transpose(1, 2)
    return x.ndim == 1 and spectra:squeeze(0) or spectra
end

-- Sums of frames [rows, frames, n] at their places [rows, length].
local function overlapped(frames, hop)
    local rows, count, n = frames:size(0), frames:size(1), frames:size(2)
    local length = n + hop * (count - 1)
    local at = frame_positions(count, n, hop)
    local zeros = flow.zeros_like(frames:select(1, 0):narrow(1, 0, 1)):expand(rows, length)
    if frames.is_global then
        at = at:to_global {placement = frames.placement, sbp = "B"}
    else
        at = at:to(frames.device)
    end
    return zeros:contiguous():scatter_add(1, at:unsqueeze(0):expand(rows, count * n), frames:reshape(rows, count * n))
end

-- The sums of squares of windows at their places; an error where one is 0, as no signal could be found there.
local function envelope(w, frames, hop, from, to)
    local squares = (w * w):reshape(1, 1, w:size(0)):expand(1, frames:size(1), w:size(0))
    local sums = overlapped(squares:to(frames.dtype), hop):narrow(1, from, to - from)
    if sums.device ~= "meta" and sums:abs():min():item() < 1e-11 then
        check.fail("istft: the windows leave gaps: their squares overlap to 0 somewhere; a smaller hop_length, or a "
            .. "window without zeros at its ends, has none")
    end
    return sums
end

---The signal whose stft is nearest to x [batch, n_fft/2 + 1, frames, 2]: frames times the window, added up and divided
---by the sums of squared windows.
---@param x table tensor
---@param n_fft integer
---@param hop_length integer?
---@param win_length integer?
---@param window table? tensor
---@param center boolean?
---@param normalized boolean?
---@param onesided boolean? false: of all n_fft frequencies the first half is used
---@param length integer? of the signal
---@return table
function M.istft(x, n_fft, hop_length, win_length, window_, center, normalized, onesided, length)
    if x.ndim ~= 3 and x.ndim ~= 4 or x:size(-1) ~= 2 then
        check.fail("istft: takes spectra [frequencies, frames, 2] or [batch, frequencies, frames, 2], got %s",
            check.shape(x))
    end
    local rows, hop = x.ndim == 3 and x:unsqueeze(0) or x, hop_of("istft", hop_length, n_fft)
    local bins = onesided and n_fft // 2 + 1 or n_fft
    if rows:size(1) ~= bins then
        check.fail("istft: n_fft %d has %d frequencies, got %s", n_fft, bins, check.shape(x))
    end
    local w = frame_window("istft", {window = window_, win_length = win_length}, n_fft, rows)
    local norm = normalized and "ortho" or "backward"
    local frames = fft.irfft(rows:narrow(1, 0, n_fft // 2 + 1):transpose(1, 2), n_fft, -1, norm)
    w = w or flow.ones_like(frames:select(0, 0):select(0, 0))
    local signal = overlapped(frames * w, hop)
    local whole, from = signal:size(1), center and n_fft // 2 or 0
    local to = length and from + length or center and whole - n_fft // 2 or whole
    local last = math.min(to, whole)
    if last <= from then check.fail("istft: %d frames leave no signal", frames:size(1)) end
    signal = signal:narrow(1, from, last - from) / envelope(w, frames, hop, from, last)
    if last < to then
        signal = flow.cat({signal, flow.zeros_like(signal:narrow(1, 0, 1)):expand(signal:size(0), to - last)}, 1)
    end
    return x.ndim == 3 and signal:squeeze(0) or signal
end

-- ---- spectrograms ----

---Spectrograms of signals [..., time]: powers of the absolute values of their stft, [..., frequencies, frames].
---@param x table tensor
---@param opts table n_fft, hop_length (n_fft / 2), win_length, window (Hann's), power, pad, center, pad_mode, onesided,
---normalized: by the root of the sum of squares of the window
---@return table
function M.spectrogram(x, opts)
    local n = opts.n_fft
    local length = opts.win_length or n
    local w = opts.window or M.hann_window(length, true, {dtype = x.dtype})
    if not opts.window then
        w = x.is_global and w:to_global {placement = x.placement, sbp = "B"} or w:to(x.device)
    end
    local shape = table.move(x.shape, 1, x.ndim, 1, {})
    local rows = x:reshape(-1, table.remove(shape))
    if opts.pad > 0 then
        local zeros = flow.zeros_like(rows:narrow(1, 0, 1)):expand(rows:size(0), opts.pad)
        rows = flow.cat({zeros, rows, zeros}, 1)
    end
    local spectra = M.stft(rows, n, opts.hop_length or length // 2, length, w, opts.center, opts.pad_mode, false,
        opts.onesided)
    if opts.normalized then spectra = spectra / (w * w):sum():sqrt() end
    local result = opts.power == 2 and (spectra * spectra):sum(-1) or fft.abs(spectra)
    if opts.power ~= 1 and opts.power ~= 2 then result = result ^ opts.power end
    shape[#shape + 1], shape[#shape + 2] = result:size(1), result:size(2)
    return result:reshape(shape)
end

-- Mels of a frequency, and back, of the two scales there are.
local scales = {
    htk = {
        function(hertz) return 2595 * math.log(1 + hertz / 700, 10) end,
        function(mel) return 700 * (10 ^ (mel / 2595) - 1) end,
    },
    slaney = {
        function(hertz) return hertz < 1000 and hertz * 3 / 200 or 15 + math.log(hertz / 1000) * 27 / math.log(6.4) end,
        function(mel) return mel < 15 and mel * 200 / 3 or 1000 * math.exp((mel - 15) * math.log(6.4) / 27) end,
    },
}

---Triangular filters [frequencies, mels], equally far apart on the mel scale.
---@param n_freqs integer
---@param f_min number
---@param f_max number
---@param n_mels integer
---@param sample_rate integer
---@param norm string? "slaney": each has area 1
---@param mel_scale string?
---@return table
function M.melscale_fbanks(n_freqs, f_min, f_max, n_mels, sample_rate, norm, mel_scale)
    local mel, hertz = table.unpack(scales[mel_scale])
    local low, high, corners = mel(f_min), mel(f_max), {}
    for i = 0, n_mels + 1 do corners[i + 1] = hertz(low + (high - low) * i / (n_mels + 1)) end
    local at = flow.tensor(corners, {dtype = "float64"})
    local every = flow.arange(n_freqs, {dtype = "float64"}):unsqueeze(1)
        * ((sample_rate // 2) / math.max(n_freqs - 1, 1))
    local left, middle, right = at:narrow(0, 0, n_mels), at:narrow(0, 1, n_mels), at:narrow(0, 2, n_mels)
    local filters = ((every - left) / (middle - left)):minimum((right - every) / (right - middle)):clamp(0)
    if norm == "slaney" then filters = filters * (2 / (right - left)) end
    return filters:to "float32"
end

---Spectrograms on the mel scale [..., mels, frames].
---@param x table tensor
---@param opts table those of spectrogram, sample_rate, f_min, f_max (half of the rate), n_mels, norm, mel_scale
---@return table
function M.mel_spectrogram(x, opts)
    local filters = M.melscale_fbanks(opts.n_fft // 2 + 1, opts.f_min, opts.f_max or opts.sample_rate / 2, opts.n_mels,
        opts.sample_rate, opts.norm, opts.mel_scale):to(x.dtype)
    filters = x.is_global and filters:to_global {placement = x.placement, sbp = "B"} or filters:to(x.device)
    local power = M.spectrogram(x, {n_fft = opts.n_fft, hop_length = opts.hop_length, win_length = opts.win_length,
        window = opts.window, power = opts.power, pad = opts.pad, center = opts.center, pad_mode = opts.pad_mode,
        normalized = opts.normalized})
    return power:transpose(-1, -2):matmul(filters):transpose(-1, -2)
end

local NEW = "{dtype: string?, device: string?, placement: placement?, sbp: sbp?, requires_grad: boolean = false})"
local FRAMES = [[n_fft: integer >= 1 = 400, win_length: integer >= 1?, hop_length: integer >= 1?, window: weight?,
    pad: integer >= 0 = 0, power: number >= 0 = 2, normalized: boolean = false, center: boolean = true,
    pad_mode: reflect|constant|replicate|circular = reflect]]

check.takes(M, {
    "hann_window(window_length: integer >= 0, periodic: boolean = true, " .. NEW,
    "hamming_window(window_length: integer >= 0, periodic: boolean = true, alpha: number = 0.54, beta: number = 0.46, "
        .. NEW,
    "blackman_window(window_length: integer >= 0, periodic: boolean = true, " .. NEW,
    "bartlett_window(window_length: integer >= 0, periodic: boolean = true, " .. NEW,
    "kaiser_window(window_length: integer >= 0, periodic: boolean = true, beta: number = 12, " .. NEW,
    [[stft(x: weight, n_fft: integer >= 1, hop_length: integer >= 1?, win_length: integer >= 1?, window: weight?,
        center: boolean = true, pad_mode: reflect|constant|replicate|circular = reflect, normalized: boolean = false,
        onesided: boolean = true, return_complex: boolean?)]],
    [[istft(x: weight, n_fft: integer >= 1, hop_length: integer >= 1?, win_length: integer >= 1?, window: weight?,
        center: boolean = true, normalized: boolean = false, onesided: boolean = true, length: integer >= 1?)]],
    "signal.spectrogram(x: weight, {" .. FRAMES .. ", onesided: boolean = true})",
    [[signal.melscale_fbanks(n_freqs: integer >= 1, f_min: number >= 0, f_max: number >= 0, n_mels: integer >= 1,
        sample_rate: integer >= 1, norm: slaney|none = none, mel_scale: htk|slaney = htk)]],
    "signal.mel_spectrogram(x: weight, {" .. FRAMES .. [[, sample_rate: integer >= 1 = 16000, f_min: number >= 0 = 0,
        f_max: number >= 0?, n_mels: integer >= 1 = 128, norm: slaney|none = none, mel_scale: htk|slaney = htk})]],
})

return check.strict("signal", M)

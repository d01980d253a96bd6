-- figures_gpu.lua -- what is measured on a GPU, in the fields of figures.lua. Data only. Only gpu.sh asks for these groups.
--
-- A case describes a computation: "op,dtype,AxBxC,extra" (cases/gpu.lua, peer_gpu.py). A figure with a `standard` sets the rate of
-- that name to the better of both sides; `share`: the least fraction of the rate `of` that a figure should reach; `flops`: of a call, for
-- figures that are no rate themselves. GPU_DRY=1: the same cases with no size above LIMIT, to see that all of them run.

local DRY = os.getenv "GPU_DRY" == "1"
local LIMIT = DRY and 2 or math.huge
local BYTES = {bool = 1, int8 = 1, uint8 = 1, float16 = 2, bfloat16 = 2, float32 = 4, int32 = 4, int64 = 8, float64 = 8}
local MI = 1 << 20

local function joined(...)
    local list = {}
    for _, part in ipairs {...} do table.move(part, 1, #part, #list + 1, list) end
    return list
end

-- Name, dtype, shape as a list and as text, and the rest of a case.
local function words(case)
    local name, dtype, shape, extra = case:match("^([^,]+),([^,]+),([^,]+),?(.*)$")
    local sizes = {}
    for n in shape:gmatch("%d+") do sizes[#sizes + 1] = math.min(math.tointeger(n), LIMIT) end
    return name, dtype, sizes, table.concat(sizes, "x"), extra
end

-- The case with no size above LIMIT.
local function limited(case)
    local name, dtype, _, shape, extra = words(case)
    return ("%s,%s,%s%s%s"):format(name, dtype, shape, extra ~= "" and "," or "", extra)
end

local function product(list)
    local n = 1
    for _, factor in ipairs(list) do n = n * factor end
    return n
end

-- "permute 021 64x1024x1024 float32"; of a permutation the axes as digits.
local function describe(case)
    local name, dtype, _, shape, extra = words(case)
    if name ~= "permute" then extra = "" end
    return (("%s %s %s %s"):format(name:gsub("_", " "):gsub("^host/", ""), extra:gsub("x", ""), shape, dtype):gsub("  +", " "))
end

-- Bandwidth: `passes` times the tensor's bytes are read or written in all.
local function bandwidths(passes, share, ratio, cases)
    local list = {}
    for i, case in ipairs(cases) do
        local _, dtype, sizes = words(case)
        list[i] = {limited(case), describe(case), "GB/s", nil, passes * product(sizes) * BYTES[dtype], of = share and "copy",
            share = share, ratio = ratio}
    end
    return list
end

-- Shapes to permute, with the share of a copy that they should reach.
local function permutes(list)
    local figures = {}
    for i, entry in ipairs(list) do figures[i] = bandwidths(2, entry[2], 1, {"permute," .. entry[1]})[1] end
    return figures
end

-- Cases so short that their time is more informative than a rate.
local function times(unit, ratio, cases)
    local list = {}
    for i, case in ipairs(cases) do list[i] = {limited(case), describe(case), unit, ratio = ratio} end
    return list
end

-- Products; linear's sizes are rows, in, out. of: the rate that they are a share of; standard: that they set.
local function products(of, cases, standard)
    local list = {}
    for i, case in ipairs(cases) do
        local _, _, sizes = words(case)
        list[i] = {limited(case), describe(case), "TF/s", nil, 2 * product(sizes), of = of, standard = standard, ratio = 0.98}
    end
    return list
end

local DEFAULT_GPT, GPT_124M = "gpt,float32,100x4x128x4x64x12,10x0", "gpt,bfloat16,50304x12x768x12x1024x8,0x1"
local TOKENS, PARAMETERS, ATTENTION = 8 * 1024, 124e6, 12 * 12 * 768 * 1024   -- 6 flops a parameter, 12 a layer, width and context

-- Part of a case of several parts, on the GPU alone.
local function group(name, title, figures, more)
    local made = {gpu = true, name = "gpu_" .. name, title = "GPU: " .. title, cases = "gpu", peer = "PyTorch, cuda", figures = figures}
    for key, value in pairs(more or {}) do made[key] = value end
    return made
end

-- Collectives between two ranks that share the GPU: cases/ranks.lua and peer.py make them there.
local function collectives(sizes)
    local list = {}
    for _, name in ipairs {"all_reduce", "all_gather"} do
        for _, size in ipairs(sizes) do
            local what = ("%s, %s"):format(name:gsub("_", "-"), size:upper():gsub("(%a)$", " %1B"))
            list[#list + 1] = {name .. "_" .. size, what, size == "64m" and "ms" or "us", ratio = 1}
        end
    end
    return list
end

return {
    group("limits", "what it can do", joined({
        {limited "copy,float32,67108864", "copy, 256 MB", "GB/s", nil, 8 * math.min(64 * MI, LIMIT), standard = "copy", ratio = 1},
    }, products(nil, {"matmul,bfloat16,8192x8192x8192"}, "16 bits"), products(nil, {"matmul,float32,8192x8192x8192"}, "float32"))),
    group("train", "training", {
        {limited(DEFAULT_GPT), "the default GPT", "steps/s", ratio = 2},
        {limited(GPT_124M), "GPT of 124 M, bfloat16, 8 x 1024", "steps/s", ratio = 1, of = "16 bits",
            flops = (6 * PARAMETERS + ATTENTION) * TOKENS},
        {"script", "scripts/train.lua --device cuda", "steps/s", ratio = 2, peer_case = limited(DEFAULT_GPT)},
    }),
    group("captured", "captured training; peer: CUDA graphs", {
        {limited(DEFAULT_GPT .. "x1"), "the default GPT", "steps/s", ratio = 1},
        {limited(GPT_124M .. "x1"), "GPT of 124 M, bfloat16, 8 x 1024", "steps/s", ratio = 1},
    }),
    group("permute", "permute to contiguous", permutes {
        {"float32,64x1024x1024,0x2x1", 0.95}, {"float16,128x1024x1024,0x2x1", 0.95}, {"float64,32x1024x1024,0x2x1", 0.95},
        {"float32,16x1024x1024,0x2x1", 0.6}, {"bfloat16,64x1024x1024,0x2x1", 0.95}, {"float16,64x1023x1025,0x2x1", 0.6},
        {"int8,256x1024x1024,0x2x1", 0.6}, {"float32,8192x8192,1x0", 0.95}, {"float16,8191x8193,1x0", 0.6},
        {"float32,128x64x112x112,0x2x3x1", 0.6}, {"float32,128x112x112x64,0x3x1x2", 0.6}, {"bfloat16,32x1024x16x64,0x2x1x3", 0.9},
        {"bfloat16,32x16x1024x64,0x1x3x2", 0.9}, {"float32,512x256x512,2x1x0", 0.6}, {"float32,512x256x512,1x0x2", 0.9},
        {"float32,512x256x512,1x2x0", 0.6}, {"float32,512x256x512,2x0x1", 0.6}, {"float32,4194304x3,1x0", 0.6},
        {"float32,3x4194304,1x0", 0.6}, {"uint8,128x3x512x512,0x2x3x1", 0.6}, {"float32,64x64x64x64,3x1x2x0", 0.6},
        {"float32,33x127x65x129,2x0x3x1", 0.6}, {"float16,128x64x112x112,0x2x3x1", 0.6},
    }),
    group("softmax", "softmax, layer_norm, cross-entropy", joined(
        bandwidths(2, 0.9, 1, {"softmax,float32,65536x1024", "softmax,float32,1048576x64", "softmax,float32,2048x32768",
            "softmax,bfloat16,131072x1024", "log_softmax,float32,65536x1024", "log_softmax,bfloat16,131072x1024"}),
        bandwidths(3, 0.9, 1.5, {"softmax_backward,float32,65536x1024", "softmax_backward,float32,1048576x64",
            "softmax_backward,bfloat16,131072x1024", "log_softmax_backward,float32,65536x1024"}),
        bandwidths(2, 0.9, 1.5, {"layer_norm,float32,65536x1024", "layer_norm,float32,1048576x64", "layer_norm,bfloat16,131072x768",
            "layer_norm,float32,2048x32768"}),
        bandwidths(3, 0.9, 1.5, {"layer_norm_backward,float32,65536x1024", "layer_norm_backward,bfloat16,131072x768",
            "layer_norm_backward,float32,2048x32768"}),
        bandwidths(3, 0.9, 1, {"cross_entropy,float32,8192x50304", "cross_entropy,bfloat16,8192x50304",
            "cross_entropy,float32,1048576x64"}))),
    group("elementwise", "elementwise", joined(
        bandwidths(3, 0.9, 1, {"add,float32,16777216", "add,float32,67108864", "add,bfloat16,33554432", "add,float64,8388608",
            "add_,float32,16777216", "addturned,float32,4096x4096"}),
        bandwidths(2, 0.9, 1, {"mulnum,float32,16777216", "mulnum,bfloat16,33554432", "exp,float32,16777216", "gelu,float32,16777216",
            "gelu,bfloat16,33554432", "relu,float32,67108864", "tanh,float16,33554432", "addrow,float32,16384x1024",
            "dropout,float32,16777216"}),
        bandwidths(1.5, 0.9, 1, {"cast,float32,16777216"}),
        bandwidths(4.5, nil, 1, {"where,float32,16777216"}), bandwidths(3.5, nil, 1, {"masked_fill,float32,16777216"}),
        bandwidths(1, nil, 1, {"randn,float32,67108864", "rand,float32,67108864"})), {side = "one by one"}),
    group("chains", "chains of elementwise ops, as one kernel", joined(
        bandwidths(3, 0.9, 2, {"norm7,float32,16777216", "norm7,bfloat16,33554432", "norm7,float64,8388608", "muladd,float32,16777216",
            "gate,float32,16777216"}),
        times("us", 2, {"norm7,float32,65536", "norm7,float32,1048576", "muladd,float32,1048576", "gate,float32,1048576"}))),
    group("reduce", "reductions", bandwidths(1, 0.9, 1, {"sum,float32,67108864", "sum,bfloat16,134217728",
        "sumlast,float32,65536x1024", "sumlast,float32,1048576x64", "sumlast,float32,64x1048576", "sumfirst,float32,65536x1024",
        "sumfirst,float32,1048576x64", "summiddle,float32,64x1024x1024", "summany,float32,64x1024x1024", "mean,bfloat16,131072x1024",
        "max,float32,65536x1024", "argmax,float32,65536x1024", "norm,float32,67108864", "var,float32,65536x1024",
        "logsumexp,float32,65536x1024"})),
    group("sort", "sort and topk", times("us", 1, {"sort,float32,16384x1024", "sort,float32,64x65536", "sort,float32,16777216",
        "topk,float32,4096x1024", "topk,bfloat16,256x50304", "topk,float32,16777216"})),
    group("images", "images, running sums", joined(times("us", 1, {"conv2d,float32,64x16x32x14x3", "conv2d,float32,32x64x64x56x3",
        "conv2d,bfloat16,32x256x256x14x3", "conv2d,float32,32x256x64x56x1", "conv2d_backward,float32,32x64x64x56x3",
        "conv2d_backward,bfloat16,32x256x256x14x3"}), bandwidths(1.5, nil, 1, {"max_pool2d,float32,64x64x112x112",
        "max_pool2d_backward,float32,64x64x112x112"}), bandwidths(2, nil, 1, {"cumsum,float32,65536x1024", "cumsum,float32,67108864"}))),
    group("launch", "launching, from the script", {
        {limited "host/add,float32,16", "a + b, 16 floats: host time", "us", 3, ratio = 2},
        {limited "host/add_,float32,16", "a:add_(b): host time", "us", 3, ratio = 2},
        {limited "host/softmax,float32,8x16", "softmax, 8x16: host time", "us", 3, ratio = 2},
        {limited "host/linear,float32,8x16x32", "linear, 8 rows: host time", "us", ratio = 2},
        {limited "host/view,float32,4x4", "a view", "us", 0.15},
        {limited "add,float32,16", "a + b: launched and done", "kop/s", ratio = 2},
        {limited "add_,float32,16", "a:add_(b): launched and done", "kop/s", ratio = 2},
        {limited "softmax,float32,8x16", "softmax: launched and done", "kop/s", ratio = 2},
        {limited "item,float32,16", "x[0]:item()", "us", ratio = 1},
    }),
    group("matmul", "products and attention", joined(
        products("16 bits", {"matmul,bfloat16,4096x4096x4096", "matmul,float16,4096x4096x4096", "matmul,bfloat16,1024x1024x1024",
            "matmul,float16,1024x1024x1024", "matmul,bfloat16,8192x50304x768", "linear,bfloat16,8192x768x3072",
            "linear,bfloat16,8192x3072x768", "bmm,bfloat16,256x1024x1024x64"}),
        products("float32", {"matmul,float32,4096x4096x4096", "matmul,float32,1024x1024x1024", "matmul,float32,768x384x128"}),
        products(nil, {"matmul,float64,2048x2048x2048"}),
        times("us", 1, {"attention,bfloat16,8x12x1024x64", "attention_backward,bfloat16,8x12x1024x64",
            "attention,float32,12x4x64x32", "attention_backward,float32,12x4x64x32"}))),
    group("tf32", "products and convolutions through TF32", joined(products(nil, {"matmul,float32,8192x8192x8192"}, "TF32"),
        products("TF32", {"matmul,float32,4096x4096x4096", "matmul,float32,1024x1024x1024", "linear,float32,8192x768x3072"}),
        times("us", 1, {"conv2d,float32,32x64x64x56x3", "conv2d_backward,float32,32x64x64x56x3"})),
        {side = "tf32", peer = "PyTorch, tf32"}),
    group("small", "small sizes", times("us", 1, {"add,float32,262144", "gelu,float32,262144", "sum,float32,262144",
        "sumlast,float32,768x128", "sumfirst,float32,768x128", "softmax,float32,768x64", "softmax_backward,float32,768x64",
        "log_softmax,float32,768x100", "layer_norm,float32,768x128", "layer_norm_backward,float32,768x128",
        "cross_entropy,float32,768x100", "embedding,float32,100x128x768", "embedding_backward,float32,100x128x768",
        "permute,float32,12x64x4x32,0x2x1x3", "permute,float32,256x256,1x0"}), {side = "one by one"}),
    group("shapes", "expand, repeat, rows of tables", joined(
        bandwidths(1, 0.9, 1, {"expand,float32,65536x1024", "expand_backward,float32,65536x1024"}),
        bandwidths(3, 0.9, 1, {"rep,float32,32768x1024"}), bandwidths(2, nil, 1, {"index_select,float32,65536x1024"}),
        times("us", 1, {"embedding,bfloat16,50304x768x8192", "embedding_backward,bfloat16,50304x768x8192"}))),
    group("optim", "optimizers", joined(
        times("us", 1, {"adamw,float32,4x128", "adam,float32,4x128", "sgd,float32,4x128", "clip,float32,4x128"}),
        bandwidths(7, 0.9, 1, {"adamw,float32,67108864"}), bandwidths(5, 0.9, 1, {"sgd,float32,67108864"}),
        times("ms", 1, {"adamw,bfloat16,12x768"}))),
    group("linalg", "factors of matrices", times("us", 1, {"cholesky,float32,2048x2048", "cholesky,float32,4096x32x32",
        "solve,float32,2048x2048", "solve,float32,4096x32x32", "inv,float64,4096x8x8", "qr,float32,1024x1024",
        "eigh,float32,512x512", "eigh,float32,4096x8x8", "svd,float32,256x256", "svd,float32,4096x8x8"})),
    group("copies", "copies between host and device", joined(
        bandwidths(1, nil, 1, {"to_device,float32,16777216,0", "to_host,float32,16777216,0"}), {
            {limited "to_device,float32,16777216,1", "to_device; peer: pinned memory", "GB/s", nil, 4 * math.min(16 * MI, LIMIT)},
            {limited "to_host,float32,16777216,1", "to_host; peer: pinned memory", "GB/s", nil, 4 * math.min(16 * MI, LIMIT)},
        }, times("us", 1, {"to_device,int64,768,0"}))),
    group("memory", "peak of memory", {
        {"peak/" .. limited(DEFAULT_GPT), "the default GPT", "MiB"},
        {"peak/" .. limited(GPT_124M), "GPT of 124 M, bfloat16, 8 x 1024", "MiB"},
        {"peak/" .. limited "cross_entropy,bfloat16,8192x50304", "cross_entropy 8192x50304 bfloat16", "MiB"},
        {"peak/" .. limited "attention_backward,bfloat16,8x12x1024x64", "attention backward 8x12x1024x64 bf16", "MiB"},
    }),
    group("ranks", "2 ranks that share it; PyTorch's over gloo", collectives(DRY and {"4k", "64k"} or {"4k", "1m", "64m"}),
        {cases = "ranks", ranks = 2, side = "shared GPU", peer = "gloo, cuda"}),
}

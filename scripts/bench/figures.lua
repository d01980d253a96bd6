-- figures.lua -- what is measured: groups of figures with their goals. Data only.
--
-- Of each figure: the case's name (cases/<group>.lua and the peer know it), what it is, the unit, the goal (times: at
-- most; rates: at least) and, for GF/s and GB/s, the work of one call: operations, or bytes to be read and written;
-- `ratio`: how many times as fast as the peer it should be. Of a group: `cases` when they are not its name's, `ranks`
-- when there are several, `side` and `peer` when they are not flowlua as it is and PyTorch; `gpu`: only where it is asked for.
-- On a GPU the case says what is computed (cases/gpu.lua); the `standard` of a unit is the rate that it can reach (the better of
-- both sides), and `share` how much of that it should be.

local MI = 1024 * 1024

-- The collectives between ranks from 4 KB to 64 MB, ahead of the peer from 64 KB on. goals: of some, in their unit.
local function collectives(list, sizes, goals)
    local figures = {}
    for _, name in ipairs(list) do
        for _, size in ipairs(sizes) do
            local case, unit = name .. "_" .. size, size == "64m" and "ms" or "us"
            local what = ("%s, %s"):format(name:gsub("_", "-"), size:upper():gsub("(%a)$", " %1B"))
            figures[#figures + 1] = {case, what, unit, goals and goals[case], ratio = goals and (size == "4k" and 0.95 or 1)}
        end
    end
    return figures
end

local ALL = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather_columns", "rows_to_columns"}

local function joined(...)
    local list = {}
    for _, part in ipairs {...} do table.move(part, 1, #part, #list + 1, list) end
    return list
end

local SIZES = {bool = 1, int8 = 1, uint8 = 1, float16 = 2, bfloat16 = 2, float32 = 4, int32 = 4, float64 = 8}

local function elements(shape)
    local n = 1
    for size in shape:gmatch("%d+") do n = n * tonumber(size) end
    return n
end

-- A figure of memory bandwidth: `passes` times the tensor's bytes are read or written in all.
local function bandwidth(case, passes, share, ratio)
    local name, dtype, shape, axes = case:match("^([^,]+),([^,]+),([^,]+),?(.*)$")
    local what = ("%s %s %s %s"):format(name:gsub("_", " "), axes:gsub("x", ""), shape, dtype):gsub("  +", " ")
    return {case, what, "GB/s", nil, passes * elements(shape) * SIZES[dtype], share = share, ratio = ratio or 1}
end

local function bandwidths(passes, share, ratio, cases)
    local list = {}
    for i, case in ipairs(cases) do list[i] = bandwidth(case, passes, share, ratio) end
    return list
end

-- Shapes to permute, with the share of a copy that they should reach: large transposes, and what is awkward.
local function permutes(list)
    local figures = {}
    for i, entry in ipairs(list) do figures[i] = bandwidth("permute," .. entry[1], 2, entry[2], 1) end
    return figures
end

local function gemm(m, n, k, count) return 2 * m * n * k * (count or 1) end

return {
    {name = "start", title = "start", figures = {
        {"empty", "an empty script", "ms", 2},
        {"lua", "the same; peer: lua5.4", "ms"},
        {"nn", "a script that loads nn, optim, data", "ms"},
    }},
    {name = "small", title = "small ops, from the script", figures = {
        {"add", "a + b, 16 floats", "us", 0.16},
        {"add_", "a:add_(b)", "us", 0.06},
        {"view", "a:view(4, 4)", "us", 0.15},
        {"transpose", "m:transpose(0, 1)", "us", 0.15},
        {"add_number", "a + 1.5", "us"},
        {"mul_number_", "a:mul_(1.5)", "us"},
        {"global_add", "a + b, global", "us", 0.25},
        {"global_add_", "a:add_(b), global", "us"},
        {"select", "a[3]", "us"},
        {"range", "a[{{1, 3}}]", "us"},
        {"item", "x:item()", "us"},
        {"empty", "flow.empty(16)", "us"},
        {"sum", "a:sum()", "us"},
        {"softmax", "softmax, 8x16", "us"},
        {"matmul", "matmul, 4x4", "us"},
        {"linear", "nn.Linear(16, 32), 8 rows", "us"},
    }},
    {name = "grad", title = "autograd, per op", figures = {
        {"chain", "10 x (y * w), forward + backward", "us", 1},
        {"chain_leaves", "the same, w wants a gradient too", "us"},
        {"forward", "a + b, recorded", "us"},
        {"no_grad", "a + b, no_grad", "us"},
    }},
    {name = "large", title = "large tensors", figures = {
        {"copy", "y:copy_(x), 16 M", "GB/s", nil, 8 * 16 * MI},
        {"add", "a + b, 16 M, fresh result", "ms", 7},
        {"tanh", "tanh, 1 M", "us", 240},
        {"gelu", "gelu (tanh), 1 M", "us", 420},
        {"exp", "exp, 1 M", "us"},
        {"muladd_1m", "a * b + c, 1 M", "us", 320},
        {"muladd_16m", "a * b + c, 16 M", "ms", 7.5},
        {"sum", "sum, 16 M", "ms"},
        {"randn", "randn, 16 M", "GB/s", 4.5, 4 * 16 * MI},
        {"uniform", "rand, 16 M", "GB/s", 7.5, 4 * 16 * MI},
    }},
    {name = "matmul", title = "matrix products, float32", figures = {
        {"m64", "64^3", "GF/s", nil, gemm(64, 64, 64)},
        {"m256", "256^3", "GF/s", nil, gemm(256, 256, 256)},
        {"m1024", "1024^3", "GF/s", 210, gemm(1024, 1024, 1024)},
        {"mlp", "768x384x128", "GF/s", 200, gemm(768, 384, 128)},
        {"linear", "768x512x128, x @ w:t()", "GF/s", nil, gemm(768, 512, 128)},
        {"batch", "48 x 64x64x32", "GF/s", 180, gemm(64, 64, 32, 48)},
    }},
    {name = "permute", title = "permute to contiguous", figures = {
        {"matrices", "(0, 2, 1), 64x1024x1024", "GB/s", 22, 8 * 64 * MI},
        {"nhwc", "NCHW -> NHWC, 32x64x56x56", "GB/s", 33, 8 * 32 * 64 * 56 * 56},
        {"square", "4096^2", "GB/s", 18, 8 * 16 * MI},
        {"attention", "(0, 1, 3, 2), 12x4x64x32", "GB/s", 40, 8 * 12 * 4 * 64 * 32},
    }},
    {name = "nn", title = "parts of networks", figures = {
        {"softmax", "softmax, 3072x64", "us", 75},
        {"cross_entropy", "cross-entropy fwd + bwd, 3072x64", "us", 100},
        {"layer_norm", "layer_norm fwd + bwd, 768x65", "us", 50},
        {"attention", "causal attention fwd, 1x8x1024x64", "ms", 8},
        {"attention_train", "the same fwd + bwd, 12x4x64x32", "us"},
        {"embedding", "embedding fwd, 768 of 65x128", "us"},
    }},
    {name = "optim", title = "optimizers", figures = {
        {"adamw", "AdamW, 0.8 M in 52 tensors", "ms", 0.35},
        {"adamw_16m", "AdamW, 16 M in one", "ms", 9},
        {"sgd", "SGD, 0.8 M in 52 tensors", "ms"},
    }},
    {name = "train", title = "training", figures = {
        {"mlp", "MLP 784-128-10, batch 64", "steps/s", 4500},
        {"gpt", "scripts/train.lua, default GPT", "steps/s", 30},
    }},
    {name = "engine", title = "engine: on the caller, against FLOW_ENGINE=queued", peer = "queued", figures = {
        {"add", "a + b, 16 floats", "us"},
        {"add_", "a:add_(b)", "us"},
        {"chain", "10 x (y * w), forward + backward", "us"},
        {"mlp", "MLP 784-128-10, batch 64", "steps/s"},
        {"gpt", "scripts/train.lua, default GPT", "steps/s"},
    }},
    {name = "ranks2", title = "2 ranks on one host", cases = "ranks", ranks = 2, peer = "Open MPI", figures = joined({
        {"first", "mpirun to the first op", "ms", 120},
        {"add_split", "a + b, 16 floats on a rank, S(0)", "us", 0.25},
        {"add_broadcast", "the same, B", "us", 0.25},
    }, collectives(ALL, {"4k", "64k", "1m", "64m"}, {all_reduce_4k = 2, all_reduce_1m = 40, all_reduce_64m = 6}))},
    {name = "ranks4", title = "4 ranks on one host", cases = "ranks", ranks = 4, peer = "Open MPI",
        figures = collectives(ALL, {"4k", "64k", "1m", "64m"}, {})},
    {name = "apart", title = "2 ranks as if on two hosts", cases = "ranks", ranks = 2, side = "apart", peer = "Open MPI",
        figures = collectives({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}, {"4k", "1m", "64m"})},
    {name = "gloo", title = "2 ranks, PyTorch's over gloo", cases = "ranks", ranks = 2, figures = joined({
        {"first", "mpirun to the first op", "ms"},
        {"gpt", "scripts/train.lua; peer: DDP", "steps/s"},
    }, collectives({"all_reduce", "all_gather"}, {"4k", "1m", "64m"}))},
    {gpu = true, name = "gpu_limits", title = "GPU: what it can do", cases = "gpu", peer = "PyTorch, cuda", figures = {
        {"copy,float32,67108864", "copy, 256 MB", "GB/s", nil, 8 * 64 * MI, standard = true},
        {"matmul,bfloat16,8192x8192x8192", "matmul 8192^3 bfloat16", "TF/s", nil, gemm(8192, 8192, 8192), standard = true, ratio = 0.98},
    }},
    {gpu = true, name = "gpu_elementwise", title = "GPU: elementwise", cases = "gpu", peer = "PyTorch, cuda", figures = joined(
        bandwidths(3, 0.9, 1, {"add,float32,16777216", "add,float32,67108864", "add,bfloat16,33554432", "add,float64,8388608",
            "addturned,float32,4096x4096"}),
        bandwidths(2, 0.9, 1, {"mulnum,float32,16777216", "mulnum,bfloat16,33554432", "exp,float32,16777216", "gelu,float32,16777216",
            "gelu,bfloat16,33554432", "tanh,float16,33554432", "addrow,float32,16384x1024", "dropout,float32,16777216"}),
        bandwidths(1.5, 0.9, 1, {"cast,float32,16777216"}),
        bandwidths(1, 0.8, 1, {"randn,float32,67108864", "rand,float32,67108864"}))},
    {gpu = true, name = "gpu_reduce", title = "GPU: reductions", cases = "gpu", peer = "PyTorch, cuda", figures =
        bandwidths(1, 0.9, 1, {"sum,float32,67108864", "sum,bfloat16,134217728", "sumlast,float32,65536x1024", "sumlast,float32,1048576x64",
            "sumlast,float32,64x1048576", "sumfirst,float32,65536x1024", "sumfirst,float32,1048576x64", "summiddle,float32,64x1024x1024",
            "max,float32,65536x1024", "argmax,float32,65536x1024", "norm,float32,67108864", "mean,bfloat16,131072x1024"})},
    {gpu = true, name = "gpu_softmax", title = "GPU: softmax, layer_norm, cross-entropy", cases = "gpu", peer = "PyTorch, cuda",
        figures = joined(
        bandwidths(2, 0.9, 1, {"softmax,float32,65536x1024", "softmax,float32,1048576x64", "softmax,float32,2048x32768",
            "softmax,bfloat16,131072x1024", "log_softmax,float32,65536x1024"}),
        bandwidths(3, 0.9, 1.5, {"softmax_backward,float32,65536x1024", "softmax_backward,float32,1048576x64",
            "softmax_backward,bfloat16,131072x1024"}),
        bandwidths(2, 0.9, 1.5, {"layer_norm,float32,65536x1024", "layer_norm,float32,1048576x64", "layer_norm,bfloat16,131072x768",
            "layer_norm,float32,2048x32768"}),
        bandwidths(3, 0.9, 1.5, {"layer_norm_backward,float32,65536x1024", "layer_norm_backward,bfloat16,131072x768"}),
        bandwidths(3, 0.9, 1, {"cross_entropy,float32,8192x50304", "cross_entropy,bfloat16,8192x50304",
            "cross_entropy,float32,1048576x64"}))},
    {gpu = true, name = "gpu_permute", title = "GPU: permute to contiguous", cases = "gpu", peer = "PyTorch, cuda", figures = permutes {
        {"float32,64x1024x1024,0x2x1", 0.95}, {"float16,128x1024x1024,0x2x1", 0.95}, {"float64,32x1024x1024,0x2x1", 0.95},
        {"int8,256x1024x1024,0x2x1", 0.6}, {"float32,8192x8192,1x0", 0.95}, {"float16,8191x8193,1x0", 0.6},
        {"float32,128x64x112x112,0x2x3x1", 0.6}, {"float32,128x112x112x64,0x3x1x2", 0.6}, {"bfloat16,32x1024x16x64,0x2x1x3", 0.9},
        {"bfloat16,32x16x1024x64,0x1x3x2", 0.9}, {"float32,512x256x512,2x1x0", 0.6}, {"float32,512x256x512,1x0x2", 0.9},
        {"float32,512x256x512,1x2x0", 0.6}, {"float32,512x256x512,2x0x1", 0.6}, {"float32,4194304x3,1x0", 0.6},
        {"float32,3x4194304,1x0", 0.6},
        {"uint8,128x3x512x512,0x2x3x1", 0.6}, {"float32,64x64x64x64,3x1x2x0", 0.6}, {"float32,33x127x65x129,2x0x3x1", 0.6},
    }},
    {gpu = true, name = "gpu_matmul", title = "GPU: products", cases = "gpu", peer = "PyTorch, cuda", figures = {
        {"matmul,float32,4096x4096x4096", "4096^3 float32", "TF/s", nil, gemm(4096, 4096, 4096), ratio = 0.98},
        {"matmul,bfloat16,4096x4096x4096", "4096^3 bfloat16", "TF/s", nil, gemm(4096, 4096, 4096), ratio = 0.98},
        {"matmul,float16,1024x1024x1024", "1024^3 float16", "TF/s", nil, gemm(1024, 1024, 1024), ratio = 0.98},
        {"matmul,float64,2048x2048x2048", "2048^3 float64", "TF/s", nil, gemm(2048, 2048, 2048), ratio = 0.98},
        {"linear,bfloat16,8192x768x3072", "linear 8192x768 -> 3072, bfloat16, bias", "TF/s", nil, gemm(8192, 3072, 768), ratio = 0.98},
        {"bmm,bfloat16,256x1024x1024x64", "batch of 256: 1024x1024x64, bfloat16", "TF/s", nil, gemm(1024, 1024, 64, 256), ratio = 0.98},
        {"attention,bfloat16,8x12x1024x64", "causal attention 8x12x1024x64, bfloat16", "us", ratio = 1},
        {"attention_backward,bfloat16,8x12x1024x64", "its backward pass", "us", ratio = 1},
    }},
    {gpu = true, name = "gpu_launch", title = "GPU: launching, from the script", cases = "gpu", peer = "PyTorch, cuda", figures = {
        {"add,float32,16", "a + b, 16 floats", "us", 3, ratio = 2},
        {"add_,float32,16", "a:add_(b)", "us", 3, ratio = 2},
        {"view,float32,4x4", "a view", "us", 0.15},
        {"softmax,float32,8x16", "softmax, 8x16", "us", 3, ratio = 2},
        {"linear,float32,8x16x32", "linear, 8 rows", "us", ratio = 2},
        {"adamw,float32,8x128", "AdamW, 48 tensors", "us", ratio = 1},
        {"adamw,float32,67108864", "AdamW, 64 M in one", "ms", ratio = 1},
    }},
    {gpu = true, name = "gpu_train", title = "GPU: training", cases = "gpu", peer = "PyTorch, cuda", figures = {
        {"gpt,float32,100x4x128x4x64x12,10", "the default GPT", "steps/s", ratio = 2},
        {"gpt,bfloat16,50304x12x768x12x1024x8,0", "GPT of 124 M, bfloat16, 8 x 1024", "steps/s", ratio = 1},
    }},
    {name = "cores", title = "2 ranks x 1 core against 1 rank x 2 cores", ranks = 2, peer = "1 rank", figures = {
        {"dp", "scripts/train.lua --dp 2", "steps/s", ratio = 0.9},
        {"tp", "scripts/train.lua --tp 2", "steps/s"},
    }},
}

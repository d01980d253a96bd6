-- figures.lua -- what is measured: groups of figures with their goals. Data only.
--
-- Of each figure: the case's name (cases/<group>.lua and the peer know it), what it is, the unit, the goal (times: at
-- most; rates: at least) and, for GF/s and GB/s, the work of one call: operations, or bytes to be read and written;
-- `ratio`: the speed that it should have relative to the peer; `peer_case`: the peer's case, if not the same. Of a group:
-- `cases` when they are not its name's, `ranks` when there are several, `side` and `peer` when they are not flowlua as it is
-- and PyTorch; `apart`: it runs only by its name; `slower`: only figures that many times slower than the peer are printed;
-- figures that can be called give the list. Those of a GPU: figures_gpu.lua.

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

local function gemm(m, n, k, count) return 2 * m * n * k * (count or 1) end

-- The chains of three operands, of each size: at 1 M as fast as the better peer, beside it twice as fast.
local function chains(list)
    local figures = {}
    for _, chain in ipairs(list) do
        for _, size in ipairs {"64k", "1m", "16m"} do
            local what = ("%s, %s"):format(chain[2], size:upper():gsub("(%a)$", " %1"))
            figures[#figures + 1] = {chain[1] .. "_" .. size, what, size == "16m" and "ms" or "us", ratio = size == "1m" and 0.95 or 2}
        end
    end
    return figures
end

-- The ops of cases/linalg.lua, on a thousand small matrices and on a large one.
local function factors(list)
    local figures = {}
    for _, size in ipairs {{"small", "1000 x 4x4", "us"}, {"large", "512x512", "ms"}} do
        for _, op in ipairs(list) do
            figures[#figures + 1] = {op[1] .. "_" .. size[1], op[2] .. ", " .. size[2], size[3]}
        end
    end
    return figures
end

local groups = {
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
        {"cumsum", "cumsum, 16 M", "ms"},
        {"flip", "flip, 16 M", "ms"},
        {"roll", "roll, 16 M", "ms"},
        {"scatter", "scatter_, 1 M", "us"},
        {"scatter_add", "scatter_add_, 1 M", "us"},
        {"sort", "sort, 1 M", "ms"},
        {"topk", "topk(10), 1 M", "us"},
        {"sort_rows", "sort, 4096x1024", "ms"},
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
    {name = "linalg", title = "linear algebra, float32", figures = factors {
        {"det", "det"}, {"inv", "inv"}, {"inv_train", "inv fwd + bwd"}, {"solve", "solve"}, {"cholesky", "cholesky"},
        {"triangular", "solve_triangular"}, {"qr", "qr"}, {"eigh", "eigh"}, {"svd", "svd"}, {"exp", "matrix_exp"},
        {"pinv", "pinv"},
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
        {"linear_gelu", "Linear and GELU fwd + bwd, 768x128 to 512", "us"},
        {"attention", "causal attention fwd, 1x8x1024x64", "ms", 8},
        {"attention_train", "the same fwd + bwd, 12x4x64x32", "us"},
        {"embedding", "embedding fwd, 768 of 65x128", "us"},
        {"conv2d", "conv2d fwd, 64x16x14x14 to 32, 3x3", "us"},
        {"conv2d_train", "conv2d fwd + bwd, 8x64x56x56 to 64, 3x3", "ms"},
        {"max_pool2d", "max_pool2d fwd + bwd, 64x16x28x28, 2x2", "us"},
    }},
    {name = "recurrent", title = "recurrent layers and products of rows", figures = {
        {"lstm_128", "LSTM of 128 and AdamW, a step, 50x32", "ms", ratio = 1},
        {"lstm_256", "LSTM of 256 and AdamW, a step, 100x64", "ms", ratio = 1},
        {"lstm_512", "LSTM of 512 and AdamW, a step, 32x32", "ms", ratio = 1},
        {"gru_128", "GRU of 128 and AdamW, a step, 50x32", "ms", ratio = 2},
        {"gru_256", "GRU of 256 and AdamW, a step, 100x64", "ms", ratio = 1.5},
        {"rnn_256", "RNN of 256 and AdamW, a step, 100x64", "ms", ratio = 1.5},
        {"lstm_cell", "LSTMCell of 128, 32 rows", "us"},
        {"lstm_forward", "LSTM of 256, 64x32, no gradient", "ms", ratio = 0.95},
        {"lstm_one", "the same of one sequence", "ms", ratio = 1},
        {"gru_one", "GRU of 256, one sequence of 64, no gradient", "ms", ratio = 1.5},
        {"row", "1x768 by 768x16384", "ms", ratio = 1},
        {"row_linear", "1x768 by a weight 16384x768", "ms", ratio = 1.2},
        {"row_bfloat16", "the same in bfloat16", "ms", ratio = 1.2},
        {"few_rows", "32x768 by a weight 3072x768", "ms", ratio = 1},
        {"bfloat16", "64x768 by a weight 768x768 in bfloat16", "ms", ratio = 1},
        {"int64", "int64, 256x256 by 256x256", "ms", ratio = 1},
        {"encoder_layer", "transformer layer fwd + bwd, 64x12x128", "ms"},
    }},
    {name = "optim", title = "optimizers", figures = {
        {"adamw", "AdamW, 0.8 M in 52 tensors", "ms", 0.35},
        {"adamw_16m", "AdamW, 16 M in one", "ms", 9},
        {"sgd", "SGD, 0.8 M in 52 tensors", "ms"},
        {"momentum", "SGD with momentum, the same", "ms"},
        {"momentum_20", "SGD with momentum, 20 x 256 x 256", "ms", ratio = 1},
        {"amsgrad", "AdamW with amsgrad, 0.8 M", "ms"},
        {"rmsprop", "RMSprop", "ms"},
        {"rmsprop_all", "RMSprop, centered, momentum", "ms"},
        {"adagrad", "Adagrad", "ms"},
        {"adadelta", "Adadelta", "ms"},
        {"adamax", "Adamax", "ms"},
        {"nadam", "NAdam", "ms"},
        {"radam", "RAdam", "ms"},
        {"rprop", "Rprop", "ms"},
        {"asgd", "ASGD", "ms"},
        {"lion", "Lion; no peer", "ms"},
        {"lamb", "LAMB; no peer", "ms"},
        {"lars", "LARS; no peer", "ms"},
    }},
    {name = "train", title = "training", figures = {
        {"mlp", "MLP 784-128-10, batch 64", "steps/s", 4500},
        {"cnn", "CNN 1-16-32-10, 28x28, batch 64", "steps/s", 260},
        {"gpt", "scripts/train.lua, default GPT", "steps/s", 30},
    }},
    {name = "captured", title = "captured steps; peer: eager or compiled", figures = {
        {"tiny", "MLP 16-16-10, batch 8", "steps/s"},
        {"mlp", "MLP 784-128-10, batch 64", "steps/s"},
        {"cnn", "CNN 1-16-32-10, 28x28, batch 64", "steps/s"},
        {"gpt", "scripts/train.lua --capture, default GPT", "steps/s", ratio = 2.4},
    }},
    {name = "capture", title = "captured against not", cases = "captured", peer = "eager", figures = {
        {"empty", "replay of an empty function", "us", 1},
        {"ops", "100 x (x + x), 16 floats", "us", 4},
        {"tiny", "MLP 16-16-10, batch 8", "steps/s", ratio = 3},
        {"mlp", "MLP 784-128-10, batch 64", "steps/s", ratio = 1.5},
        {"cnn", "CNN 1-16-32-10, 28x28, batch 64", "steps/s"},
        {"gpt", "scripts/train.lua, default GPT", "steps/s", ratio = 1.1},
    }},
    {name = "records", title = "records, 1 thread; peer: such rows of a mapped file; in order: read(2)",
        side = "on the caller", figures = {
        {"checked_4k", "of 4 KB in random order, checksums checked", "GB/s", nil, 122 * MI, ratio = 0.9},
        {"checked_16k", "of 16 KB", "GB/s", nil, 122 * MI, ratio = 0.9},
        {"checked_128k", "of 128 KB", "GB/s", nil, 122 * MI, ratio = 0.9},
        {"checked_1m", "of 1 MB", "GB/s", nil, 122 * MI, ratio = 0.9},
        {"plain_4k", "of 4 KB, not checked", "GB/s", nil, 122 * MI, ratio = 0.9},
        {"plain_128k", "of 128 KB, not checked", "GB/s", nil, 122 * MI, ratio = 0.9},
        {"ordered_4k", "of 4 KB in the file's order, checked", "GB/s", nil, 122 * MI, ratio = 0.9},
        {"ordered_128k", "of 128 KB in the file's order, checked", "GB/s", nil, 122 * MI, ratio = 0.9},
    }},
    {name = "loader", title = "batches of 64 x 784 floats", figures = {
        {"rows", "of tensors, shuffled", "us", ratio = 1},
        {"augment", "the same, a function per item", "us", ratio = 1},
        {"workers", "the same in 2 workers", "us", ratio = 1},
    }},
    {name = "tokens", title = "the README as tokens; peer: `tokenizers`", figures = {
        {"bytes", "as LLaMA 3", "ms", ratio = 3},
        {"spaces", "as LLaMA 2", "ms", ratio = 3},
        {"words", "words and digits, by patterns", "ms", ratio = 2},
        {"decode", "tokens as LLaMA 3 to text", "ms", ratio = 3},
    }},
    {name = "files", title = "tables of 200,000 rows and an array; peer: pandas, NumPy", figures = {
        {"integers", "csv, 4 columns of integers", "ms", ratio = 1},
        {"floats", "csv, 4 columns of floats, 6 digits", "ms", ratio = 1},
        {"digits", "csv, 3 columns of floats, 17 digits", "ms", ratio = 1},
        {"mixed", "csv, numbers, quoted text, categories", "ms", ratio = 1},
        {"npy", "npy, 64 MiB of float32", "ms", ratio = 0.9},
    }},
    {name = "hidden", title = "a step beside its loader, 1 thread and 1 worker", cases = "loader", side = "one thread",
        peer = "one batch", figures = {
        {"hidden", "CNN 1-16-32-10, batch 64", "ms", ratio = 0.98},
    }},
    {name = "images", title = "32 JPEG files of 500 x 375, cropped to 224, on one thread", side = "one thread", figures = {
        {"batch", "beside torchvision on tensors", "ms", ratio = 1},
        {"pillow", "beside torchvision on Pillow", "ms", ratio = 1},
    }},
    {name = "chains", title = "chains of elementwise ops; peer: eager or compiled", figures = joined(chains {
        {"norm7", "sqrt(clamp(a*a+b*b)) / (1+|a-b|)"},
        {"muladd", "a * b + c"},
        {"sum", "sum(tanh, sigmoid, exp; 7 ops)"},
    }, {
        {"loop", "y = y * 1.01 + 1, 1 M", "us"},
        {"dropout", "x + dropout(y), 1 M", "us"},
        {"layer_norm", "layer norm of ops fwd + bwd, 256x1024", "us"},
        {"cross_entropy", "cross-entropy of ops, the same", "us"},
        {"adam", "Adam of ops, 1 M, new tensors", "us"},
        {"adam_", "the same, in place", "us"},
        {"vae", "VAE 784-400-20-400-784, batch 128", "steps/s"},
        {"diffusion", "diffusion MLP 66-256-256-256-2, 512", "steps/s"},
    })},
    -- every op of the registry: only what is slower than the peer by a tenth is printed, and only when it is asked for
    {name = "sweep", title = "ops on 1 thread (time of the processor), slower by a tenth", side = "working", peer = "PyTorch, working",
        apart = true, slower = 1.1, figures = setmetatable({}, {__call = function() return require("cases.sweep").figures end})},
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
    {name = "cores", title = "2 ranks x 1 core against 1 rank x 2 cores", ranks = 2, peer = "1 rank", figures = {
        {"dp", "scripts/train.lua --dp 2", "steps/s", ratio = 0.9},
        {"tp", "scripts/train.lua --tp 2", "steps/s"},
    }},
}

return joined(groups, require "figures_gpu")

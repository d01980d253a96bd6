-- sweep.lua -- elementwise ops, reductions and scans of the registry, by their own samples, and what moves or selects
-- elements, by arguments that are written here, at four sizes.
--
-- A case is named "op:dtype:size:way:arguments", with the text of the arguments, in which R and C are rows and columns;
-- peer_sweep.py reads the same names. way: forward, or backward: the op with the gradient of its sum.
-- It runs with FLOW_FUSE=0, since results that nobody reads would not be computed.
-- SWEEP_OPS, SWEEP_DTYPES, SWEEP_SIZES, SWEEP_WAYS: lists with commas, of what is measured alone.

local flow = require "flow"

local SIZES = {["1k"] = {32, 32}, ["64k"] = {256, 256}, ["1m"] = {1024, 1024}, ["16m"] = {4096, 4096}}
local ORDER = {
    dtypes = {"float32", "float64", "bfloat16", "int64"}, sizes = {"1k", "64k", "1m", "16m"}, ways = {"forward", "backward"},
}

-- ---- the list ----

local PLANES = "flow.randn(R//32,C//32,32,32)"

-- Arguments of ops whose samples do not grow; both sides read them.
local WRITTEN = {
    sum = {"flow.randn(R//32,32,C),1", "flow.randn(R//32,32,C),{0,2}"},
    mean = {"flow.randn(R//32,32,C),1"},
    gather = {"flow.randn(R,C),1,flow.randint(0,C,{R,C})", "flow.randn(R,C),0,flow.randint(0,R,{R,C})"},
    index_select = {"flow.randn(R,C),0,flow.randint(0,R,{R})", "flow.randn(R,C),1,flow.randint(0,C,{C})"},
    take = {"flow.randn(R,C),flow.randint(0,R*C,{R*C})"},
    take_along_axis = {"flow.randn(R,C),flow.randint(0,C,{R,C}),1"},
    masked_select = {"flow.randn(R,C),flow.randn(R,C):gt(0)"},
    scatter = {"flow.zeros(R,C),1,flow.randint(0,C,{R,C}),flow.randn(R,C)", "flow.zeros(R,C),0,flow.randint(0,R,{R,C}),flow.randn(R,C)"},
    scatter_add = {
        "flow.zeros(R,C),1,flow.randint(0,C,{R,C}),flow.randn(R,C)",
        "flow.zeros(R,C),0,flow.randint(0,R,{R,C}),flow.randn(R,C)",
    },
    scatter_reduce = {
        "flow.zeros(R,C),1,flow.randint(0,C,{R,C}),flow.randn(R,C),'sum'",
        "flow.zeros(R,C),1,flow.randint(0,C,{R,C}),flow.randn(R,C),'amax'",
        "flow.zeros(R,C),0,flow.randint(0,R,{R,C}),flow.randn(R,C),'mean'",
    },
    index_add = {"flow.zeros(R,C),0,flow.randint(0,R,{R}),flow.randn(R,C)", "flow.zeros(R,C),1,flow.randint(0,C,{C}),flow.randn(R,C)"},
    index_copy = {"flow.zeros(R,C),0,flow.randperm(R),flow.randn(R,C)", "flow.zeros(R,C),1,flow.randperm(C),flow.randn(R,C)"},
    index_fill = {"flow.zeros(R,C),0,flow.randperm(R),1.0", "flow.zeros(R,C),1,flow.randperm(C),1.0"},
    masked_scatter = {"flow.zeros(R,C),flow.randn(R,C):gt(0),flow.randn(R,C)"},
    put = {"flow.zeros(R,C),flow.randint(0,R*C,{R*C}),flow.randn(R*C)"},
    sort = {"flow.randn(R,C),1", "flow.randn(R,C),0", "flow.randn(R*C)"},
    argsort = {"flow.randn(R*C)"},
    msort = {"flow.randn(R,C)"},
    topk = {"flow.randn(R,C),10", "flow.randn(R*C),10", "flow.randn(R,C),R//2", "flow.randn(R,C),5,0"},
    kthvalue = {"flow.randn(R,C),C//2", "flow.randn(R*C),R*C//2", "flow.randn(R,C),R//2,0"},
    median = {"flow.randn(R,C)", "flow.randn(R,C),1", "flow.randn(R,C),0"},
    nanmedian = {"flow.randn(R,C)", "flow.randn(R,C),1"},
    quantile = {"flow.randn(R,C),0.3,1", "flow.randn(R,C),0.3,0"},
    mode = {"flow.randint(0,9,{R,C})", "flow.randn(R,C)"},
    unique = {"flow.randint(0,1000,{R*C})"},
    unique_consecutive = {"flow.randint(0,3,{R*C})"},
    bincount = {"flow.randint(0,1000,{R*C})"},
    histc = {"flow.randn(R,C),100,-3.0,3.0"},
    searchsorted = {"flow.arange(0,1000),flow.randn(R,C)"},
    bucketize = {"flow.randn(R,C),flow.arange(0,1000)"},
    isin = {"flow.randint(0,1000,{R,C}),flow.randint(0,1000,{100})"},
    nonzero = {"flow.randn(R,C):gt(0)"},
    trapezoid = {"flow.randn(R,C)"},
    cumulative_trapezoid = {"flow.randn(R,C)"},
    flip = {"flow.randn(R,C),{0}", "flow.randn(R,C),{1}", "flow.randn(R,C),{0,1}"},
    roll = {"flow.randn(R,C),3", "flow.randn(R,C),3,1"},
    rot90 = {"flow.randn(R,C)"},
    tile = {"flow.randn(R,C),{2,2}"},
    repeat_interleave = {"flow.randn(R,C),2,1", "flow.randn(R,C),2,0"},
    contiguous = {"flow.randn(R,C):t()", "flow.randn(R//32,32,C):permute(1,0,2)", "flow.randn(R//32,32,C):permute(2,0,1)"},
    clone = {"flow.randn(R,C)"},
    pad = {"flow.randn(R,C),{1,2,3,4}", PLANES .. ",{1,1,1,1},'reflect'", PLANES .. ",{1,1,1,1},'replicate'"},
    triu = {"flow.randn(R,C)"},
    tril = {"flow.randn(R,C)"},
    cov = {"flow.randn(R,C)"},
    max_pool2d = {PLANES .. ",2", PLANES .. ",3,2,1"},
    avg_pool2d = {PLANES .. ",2", PLANES .. ",3,2,1"},
    max_pool1d = {"flow.randn(R//8,8,C),2", "flow.randn(R//8,8,C),3,2,1"},
    avg_pool1d = {"flow.randn(R//8,8,C),2"},
    adaptive_avg_pool2d = {PLANES .. ",1", PLANES .. ",2"},
    adaptive_max_pool2d = {PLANES .. ",2"},
    interpolate = {PLANES .. ",nil,2.0,'nearest'", PLANES .. ",nil,2.0,'bilinear'", PLANES .. ",nil,2.0,'bicubic'"},
    pixel_shuffle = {PLANES .. ",2"},
    select_scatter = {"flow.randn(R,C),flow.randn(C),0,1"},
    slice_scatter = {"flow.randn(R,C),flow.randn(R//2,C),0,0,R//2"},
    ["fft.fft"] = {"flow.fft.rfft(flow.randn(R,2*C-2))"},
    ["fft.rfft"] = {"flow.randn(R,C)", "flow.randn(R*C)"},
    ["fft.irfft"] = {"flow.fft.rfft(flow.randn(R,C))"},
    ["fft.rfft2"] = {"flow.randn(R,C)"},
}

local FORWARD_ONLY = {}
for name in ("argsort unique unique_consecutive bincount histc searchsorted bucketize isin nonzero"):gmatch "%S+" do
    FORWARD_ONLY[name] = true
end

-- The arguments of a sample at any size, nil where its shapes are of another kind: (3, 4), (3, 1), (4), { } for ( ).
local function resized(sample)
    local text = sample:gsub("%s+", "")
    text = text:gsub("([({])3,[45]([)}])", "%1R,C%2"):gsub("([({])3,1([)}])", "%1R,1%2"):gsub("(flow%.%l+[(])4[)]", "%1C)")
    text = text:gsub("{4}", "{C}")
    local shaped = text:gsub("[({]R,C[)}]", ""):gsub("[({]R,1[)}]", ""):gsub("[({]C[)}]", ""):gsub("{C}", "")
    if not text:find("R,C", 1, true) or shaped:find "randn?[({]" or text:find "[\"']" or text:find("tensor", 1, true) then return nil end
    return text
end

-- Elementwise ops; those along axes, of one tensor.
local function is_swept(op)
    if op.hidden or op.mutates or op.random or op.source or op.name:find("%.") then return false end
    return op.elementwise or op.sig:find("^[%l_%d]+%(x, .*axis: ax[ei]s") ~= nil
end

local function wanted(kind)
    local chosen = os.getenv("SWEEP_" .. kind:upper())
    if not chosen then return ORDER[kind] end
    local list = {}
    for word in chosen:gmatch "[^,]+" do list[#list + 1] = word end
    return list
end

-- name and arguments of all that is measured, in order: {name, arguments, differentiable}
local function calls()
    local list = {}
    for _, op in ipairs(flow._testing.ops()) do
        for i, sample in ipairs(is_swept(op) and op.samples or {}) do
            local arguments = (i == 1 or not op.elementwise) and resized(sample)
            if arguments then list[#list + 1] = {op.name, arguments, op.differentiable} end
        end
    end
    for name, written in pairs(WRITTEN) do
        for _, arguments in ipairs(written) do list[#list + 1] = {name, arguments, not FORWARD_ONLY[name]} end
    end
    table.sort(list, function(a, b)
        if a[1] ~= b[1] then return a[1] < b[1] end
        return a[2] < b[2]
    end)
    return list
end

-- All cases, as figures.
local function figures()
    local list, chosen = {}, os.getenv "SWEEP_OPS"
    for _, call in ipairs(calls()) do
        local name, arguments, differentiable = table.unpack(call)
        local dtypes = (not chosen or ("," .. chosen .. ","):find("," .. name .. ",", 1, true)) and wanted "dtypes" or {}
        for _, dtype in ipairs(dtypes) do
            for _, size in ipairs(wanted "sizes") do
                for _, way in ipairs(differentiable and dtype ~= "int64" and wanted "ways" or {"forward"}) do
                    local words = {name, dtype, size, way, arguments}
                    list[#list + 1] = {table.concat(words, ":"), table.concat(words, " "):gsub("flow%.", ""), "us"}
                end
            end
        end
    end
    return list
end

-- ---- one case ----

-- Of dtype; integers: 1 .. 9. Masks and indices stay what they are.
local function converted(x, dtype)
    if not flow.is_tensor(x) then return x end
    if dtype == "int64" then return x.dtype == "float32" and flow.randint(1, 10, x.shape) or x end
    return x.dtype == "float32" and x:to(dtype) or x
end

local function prepare(case)
    local name, dtype, size, way, text = case:match("^([%w_.]+):(%w+):(%w+):(%w+):(.+)$")
    assert(name, "there is no case " .. case)
    local f, shape = flow, SIZES[size]
    for word in name:gmatch "[^.]+" do f = f[word] end
    local args = table.pack(assert(load("local flow, R, C = ... return " .. text))(flow, shape[1], shape[2]))
    for i = 1, args.n do args[i] = converted(args[i], dtype) end
    if way == "forward" then
        return function(count)
            for _ = 1, count do f(table.unpack(args, 1, args.n)) end
        end
    end
    local leaves = {}
    for i = 1, args.n do
        if flow.is_tensor(args[i]) and args[i].dtype == dtype then leaves[#leaves + 1] = args[i]:requires_grad_() end
    end
    return function(count)
        for _ = 1, count do flow.grad((f(table.unpack(args, 1, args.n))):sum(), leaves, {allow_unused = true}) end
    end
end

return setmetatable({}, {__index = function(_, case)
    if case == "figures" then return figures() end
    return function() return prepare(case) end
end})

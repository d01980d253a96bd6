/*
** ported.c -- names that scripts bring from PyTorch and NumPy, and what to write here instead.
**
** Consulted only when a name is unknown. A word of `renamed` has the same meaning under another name, offered wherever
** that name exists. `advice` answers for one place with a sentence; an empty one says that there is nothing like it, so
** that nothing that merely looks alike is offered. A place is a module, or an op for its options. tests/names_spec.lua
** checks that no word here exists and that every new name does.
*/
#include "errors.h"

/* clang-format off */
static const struct { const char *word, *name; } renamed[] = {
    /* options and parameters */
    {"dim", "axis"}, {"dims", "axis"}, {"dim", "axes"}, {"dims", "axes"}, {"axis", "axes"}, {"dim0", "axis0"},
    {"dim1", "axis1"}, {"attn_mask", "mask"}, {"keepdims", "keepdim"}, {"keep_dims", "keepdim"},
    {"learning_rate", "lr"}, {"unbiased", "correction"}, {"param_groups", "groups"}, {"reduce", "reduction"},
    {"minimum", "min"}, {"maximum", "max"},
    {"sep", "delimiter"}, {"usecols", "columns"}, {"na_values", "missing"}, {"missing_values", "missing"},
    {"filling_values", "fill"}, {"nrows", "limit"}, {"max_rows", "limit"}, {"skiprows", "skip"},
    {"skip_header", "skip"}, {"comments", "comment"}, {"quotechar", "quote"}, {"mmap_mode", "map"},
    {"epsilon", "eps"}, {"seq", "xs"}, {"tensors", "xs"}, {"repeats", "sizes"}, {"shape", "size"},
    {"kernel_size", "kernel"}, {"in_channels", "inputs"}, {"out_channels", "outputs"}, {"in_features", "inputs"},
    {"out_features", "outputs"}, {"num_features", "channels"}, {"num_channels", "channels"}, {"num_groups", "groups"},
    {"num_embeddings", "count"}, {"embedding_dim", "width"}, {"normalized_shape", "sizes"}, {"output_size", "size"},
    {"elementwise_affine", "affine"}, {"start_dim", "start_axis"}, {"end_dim", "end_axis"},
    {"unflattened_size", "sizes"},
    /* dtypes and devices */
    {"float", "float32"}, {"double", "float64"}, {"half", "float16"}, {"long", "int64"}, {"int", "int32"},
    {"byte", "uint8"},
    {"char", "int8"}, {"boolean", "bool"}, {"gpu", "cuda"}, {"fp16", "float16"}, {"fp32", "float32"},
    {"fp64", "float64"},
    {"bf16", "bfloat16"}, {"torch.float32", "float32"}, {"torch.float64", "float64"}, {"torch.int64", "int64"},
    {"torch.long", "int64"},
    /* functions and methods */
    {"power", "pow"},
    {"mod", "remainder"},

    {"range", "arange"},
    {"copy", "clone"},
    {"from_numpy", "tensor"}, {"Tensor", "tensor"},
    {"array", "tensor"}, {"frombuffer", "frombytes"}, {"fromstring", "frombytes"},
    {"set_seed", "manual_seed"}, {"seed", "manual_seed"},
    {"get_rank", "rank"}, {"get_world_size", "world_size"}, {"synchronize", "sync"}, {"expit", "sigmoid"},
    /* modules and what belongs to them */
    {"read_csv", "csv"}, {"loadtxt", "csv"}, {"genfromtxt", "csv"}, {"load_npy", "npy"}, {"load_npz", "npz"},
    {"read_json", "jsonl"}, {"savez", "save_npz"},
    {"DataLoader", "loader"}, {"Dense", "Linear"},
    {"TensorDataset", "tensors"}, {"Subset", "subset"}, {"ConcatDataset", "concat"},
    {"WeightedRandomSampler", "weighted"}, {"num_workers", "workers"}, {"collate_fn", "collate"},
    {"prefetch_factor", "prefetch"}, {"manual_seed_all", "manual_seed"},
    {"LRScheduler", "Scheduler"},
};

#define AXES_OF_DIAGONAL "axes are numbered from 0: dim1 and dim2 are axis0 and axis1 here"
#define NUMPY_AXES "NumPy's axis1 and axis2 are axis0 and axis1 here"
#define DIAGONAL(op) \
    {op, "dim1", AXES_OF_DIAGONAL}, {op, "dim2", AXES_OF_DIAGONAL}, {op, "axis2", NUMPY_AXES}
#define UNBIASED(op) {op, "unbiased", "write correction = 0 for unbiased = false"}
#define CAST_FIRST(op) {op, "dtype", "write x:to(\"float32\"):" op "(-1)"}
#define DTYPE(word, dtype) {"flow", word, "a dtype is a string: \"" dtype "\""}
#define IN_FLOW(word, text) {"nn", word, "write " text}

static const struct { const char *place, *word, *text; } advice[] = {
    {"tensor", "type", "write x:to(\"float32\"); x.dtype is the type it has"},
    {"tensor", "short", "there is no int16; write x:to(\"int32\")"},
    {"tensor", "numpy", "write x:totable() for nested lists, flow.save for a file that Python's safetensors reads"},
    {"tensor", "data", "write x:detach()"},
    {"tensor", "is_cuda", "write x.device:find(\"cuda\")"},
    {"tensor", "is_cpu", "write x.device == \"cpu\""}, {"tensor", "is_sparse", "there are no sparse tensors"},
    {"tensor", "to_sparse", "there are no sparse tensors"}, {"tensor", "to_dense", "there are no sparse tensors"},
    {"tensor", "is_quantized", "there are no quantized tensors; nn.quantize makes layers with small weights"},
    {"tensor", "layout", "all tensors are dense, with strides"},
    {"tensor", "itemsize", "write x:element_size()"}, {"tensor", "nbytes", "write x:numel() * x:element_size()"},
    {"tensor", "pin_memory", "data.loader(dataset, {device = \"cuda\", workers = 2}) copies from pinned memory"},
    {"tensor", "share_memory_", "ranks of one host share memory as it is; workers are threads"},
    {"tensor", "record_stream", "streams wait for each other as data need; leave it out"},
    {"tensor", "new", "write x:new_zeros(2, 3) or x:new_tensor {1, 2}"},
    {"tensor", "real", "complex numbers have a trailing axis of size 2: x:select(-1, 0)"},
    {"tensor", "imag", "complex numbers have a trailing axis of size 2: x:select(-1, 1)"},
    {"tensor", "storage", "write x:tobytes() for the bytes of the elements"},
    {"tensor", "untyped_storage", "write x:tobytes() for the bytes of the elements"},
    {"tensor", "data_ptr", "write x:tobytes(), or x:__dlpack() for the memory itself"},
    {"tensor", "stft", "write flow.stft(x, n_fft)"}, {"tensor", "istft", "write flow.istft(x, n_fft)"},
    {"tensor", "resize_as_", "write x = x:reshape(y.shape)"}, {"tensor", "set_", "write x:copy_(y)"},
    {"tensor", "map_", "ops work on all elements at once: x:exp(), x * 2 + 1"},
    {"tensor", "apply", "ops work on all elements at once: x:exp(), x * 2 + 1"},
    {"tensor", "is_meta", "write x.device == \"meta\""}, {"tensor", "get_device", "write x.device"},
    {"tensor", "grad_fn", "x.is_leaf is false for a tensor that was computed from ones that require grad"},



    {"tensor", "map", "ops work on all elements at once: x:exp(), x * 2 + 1"},
    {"tensor", "apply_", "ops work on all elements at once: x:exp(), x * 2 + 1"},
    {"tensor", "where_", "write x = flow.where(cond, x, y)"},
    {"tensor", "append", "write flow.cat {x, y}"}, {"tensor", "resize_", "write x = x:reshape(...)"},
    {"tensor", "len", "write #x for the size of axis 0, x:numel() for the number of elements"},
    {"tensor", "eig", "write flow.linalg.eig(x)"}, {"tensor", "eigh", "write flow.linalg.eigh(x)"},
    {"tensor", "symeig", "write flow.linalg.eigh(x)"}, {"tensor", "inv", "write x:inverse()"},
    {"tensor", "pinv", "write flow.linalg.pinv(x)"}, {"tensor", "solve", "write flow.linalg.solve(A, B)"},
    {"tensor", "lstsq", "write flow.linalg.lstsq(A, B)"},
    {"tensor", "matrix_rank", "write flow.linalg.matrix_rank(x)"},
    {"tensor", "multi_dot", "write flow.linalg.multi_dot {x, y, z}"},


    DTYPE("float16", "float16"), DTYPE("bfloat16", "bfloat16"), DTYPE("float32", "float32"),
    DTYPE("float64", "float64"), DTYPE("int8", "int8"),
    DTYPE("uint8", "uint8"), DTYPE("int32", "int32"), DTYPE("int64", "int64"), DTYPE("bool", "bool"),
    DTYPE("float", "float32"),
    DTYPE("double", "float64"), DTYPE("half", "float16"), DTYPE("long", "int64"), DTYPE("int", "int32"),
    {"flow", "FloatTensor", "write flow.tensor(data, {dtype = \"float32\"})"},
    {"flow", "LongTensor", "write flow.tensor(data, {dtype = \"int64\"})"},
    {"flow", "DoubleTensor", "write flow.tensor(data, {dtype = \"float64\"})"},
    {"flow", "device", "a device is a string: \"cpu\", \"cuda\", \"cuda:1\""},
    {"flow", "functional", "functions are flow's own: flow.relu(x), flow.cross_entropy(x, y)"},
    {"flow", "utils", "write flow.data.loader(dataset, {batch_size = 64})"},
    {"flow", "DataLoader", "write flow.data.loader(dataset, {batch_size = 64})"},
    {"flow", "distributed",
     "tensors are distributed by placement and sbp; see flow.rank() and flow.world_size()"},
    {"flow", "init", "write flow.nn.init"}, {"flow", "Module", "write flow.nn.Module"},
    {"flow", "Parameter", "write flow.nn.Parameter(t)"},
    {"flow", "jit", "write flow.trace(f, specs), whose program can be saved"},
    {"flow", "compile", "write flow.capture(f)"},
    {"flow", "export", "write flow.trace(f, specs), whose program can be saved"},
    {"flow", "backends", "results are the same in every run, on any number of threads; leave it out"},
    {"flow", "use_deterministic_algorithms", "results are the same in every run; leave it out"},
    {"flow", "amp", "write flow.autocast(\"bfloat16\", f) and flow.GradScaler()"},
    {"flow", "is_autocast_enabled", "flow.autocast_dtype() is nil outside of autocast"},
    {"flow", "get_autocast_dtype", "write flow.autocast_dtype()"},
    {"flow", "polar",
     "write flow.fft.complex(r * angle:cos(), r * angle:sin()): complex numbers have a trailing axis of size 2"},
    {"flow", "view_as_complex", "complex numbers have a trailing axis of size 2: x:unflatten(-1, {-1, 2})"},
    {"flow", "view_as_real", "complex numbers have a trailing axis of size 2 as they are"},
    {"flow", "profiler", "write flowlua --trace trace.json script.lua, or program:profile(n)"},
    {"flow", "multiprocessing", "write flowlua --ranks 4 script.lua, or data.loader(dataset, {workers = 4})"},
    {"flow", "random", "write flow.manual_seed(1); flow.rand(2, 3)"},
    {"flow", "Size", "a shape is a list of numbers"}, {"flow", "dtype", "a dtype is a string: \"float32\""},
    {"flow", "memory_format", "tensors have strides, and no memory formats; leave it out"},
    {"flow", "channels_last", "tensors have strides, and no memory formats; leave it out"},
    {"flow", "embedding_bag", "write flow.nn.functional.embedding_bag"},
    {"flow", "initial_seed", "write flow.default_generator():state()"},
    {"flow", "scalar_tensor", "write flow.tensor(2.5)"},
    {"flow", "frobenius_norm", "write flow.linalg.matrix_norm(x)"},
    {"flow", "nuclear_norm", "write flow.linalg.matrix_norm(x, \"nuc\")"},
    {"flow", "imag", "write flow.fft.imag(x): complex numbers have a trailing axis of size 2"},
    {"flow", "angle", "write flow.atan2(im, re); complex numbers have a trailing axis of size 2"},
    {"flow", "lstm_cell", "write flow.nn.LSTMCell(inputs, width)"},
    {"flow", "gru_cell", "write flow.nn.GRUCell(inputs, width)"},
    {"flow", "sparse", "there are no sparse tensors; write index_add, embedding or matmul on dense ones"},
    {"flow", "sparse_coo_tensor", "there are no sparse tensors: flow.zeros(size):index_put_(positions, values)"},
    {"flow", "complex", "write flow.fft.complex(re, im): complex numbers have a trailing axis of size 2"},
    {"flow", "mean_squared_error", "write flow.mse_loss(input, target)"},
    {"flow", "is_available", "write flow.device_count(\"cuda\") > 0"},

    {"nn", "parallel",
     "write net:to_global {placement = flow.placement.all(\"cpu\"), sbp = \"B\"}; "
     "the gradients are summed over the ranks"},
    {"nn", "DataParallel",
     "write net:to_global {placement = flow.placement.all(\"cpu\"), sbp = \"B\"}; "
     "the gradients are summed over the ranks"},
    IN_FLOW("Swish", "nn.SiLU()"),
    IN_FLOW("LinearCrossEntropyOptions", "nn.LinearCrossEntropyLoss(inputs, classes, {batch_chunk_size = 256})"),
    IN_FLOW("NLLLoss2d", "nn.NLLLoss()"),
    IN_FLOW("CrossMapLRN2d", "nn.LocalResponseNorm(size)"),
    {"nn.utils", "skip_init", "write flow.with_device(\"meta\", nn.Linear, 4, 2):to_empty(\"cpu\")"},
    IN_FLOW("Container", "nn.Module:extend(name)"),
    {"nn.attention", "sdpa_kernel", "flow.scaled_dot_product_attention chooses its kernel; leave it out"},
    {"nn.attention", "SDPBackend", "flow.scaled_dot_product_attention chooses its kernel; leave it out"},
    {"nn.init", "orthogonal", "write nn.init.orthogonal_(t)"}, {"nn.init", "eye", "write nn.init.eye_(t)"},
    {"nn.init", "dirac", "write nn.init.dirac_(t)"}, {"nn.init", "sparse", "write nn.init.sparse_(t, sparsity)"},
    {"nn.utils", "clip_grad_norm", "write nn.utils.clip_grad_norm_(parameters, limit)"},
    {"nn.functional", "upsample", "write nn.functional.interpolate(x, {scale_factor = 2})"},
    {"nn.functional", "upsample_bilinear",
     "write nn.functional.interpolate(x, {scale_factor = 2, mode = \"bilinear\", align_corners = true})"},
    {"nn.functional", "upsample_nearest", "write nn.functional.interpolate(x, {scale_factor = 2})"},
    {"nn.functional", "multi_head_attention_forward", "write nn.MultiheadAttention(width, heads)"},

    {"autograd", "Function", "write flow.autograd_function{forward = ..., backward = ...}"},
    {"autograd", "Variable", "write flow.tensor(data, {requires_grad = true})"},
    {"autograd", "profiler", "write flowlua --trace trace.json script.lua"},
    {"autograd", "forward_ad", "write flow.func.jvp(f, primals, tangents)"},

    {"optim", "SparseAdam", "there are no sparse gradients; write optim.Adam"},

    {"data", "Dataset",
     "a dataset is a table with a method get(position), from 0, and a __len; or write data.tensors(x, y)"},
    {"data", "IterableDataset", "write data.generate(count, f), or a table with a method get(position) and a __len"},
    {"data", "StackDataset", "write data.tensors(x, y)"},
    {"data", "ChainDataset", "write data.concat(a, b)"},
    {"data", "RandomSampler", "write data.loader(dataset, {shuffle = true})"},
    {"data", "SequentialSampler", "a loader without shuffle walks a dataset in order"},
    {"data", "SubsetRandomSampler", "write data.loader(data.subset(dataset, positions), {shuffle = true})"},
    {"data", "BatchSampler",
     "write data.loader(dataset, {batch_size = 64, drop_last = true}), or {batch_sampler = lists of positions}"},
    {"data", "Sampler", "write data.loader(dataset, {sampler = positions}), or a function that gives them per epoch"},
    {"data", "DistributedSampler",
     "write data.loader(dataset, {placement = p, sbp = \"S(0)\"}): each rank asks for its own rows"},
    {"loader", "pin_memory", "write device = \"cuda\": workers then make batches in pinned memory"},
    {"loader", "persistent_workers", "workers live as long as the loader; leave it out"},
    {"loader", "worker_init_fn", "items draw from `random`, which depends on their position alone"},
    {"loader", "generator", "write seed = 1"}, {"loader", "timeout", "leave it out"},
    {"data", "get_worker_info", "items depend on their position alone: data.random(pass, position)"},
    {"data", "default_convert", "a loader without the option collate stacks items"},

    {"cuda", "empty_cache", "memory that tensors leave is used again as it is; leave it out"},
    {"cuda", "set_device", "write flow.set_default_device(\"cuda:1\"), or x:cuda(1)"},
    {"cuda", "current_device", "x.device says where x is, flow.get_default_device() where new tensors are made"},
    {"cuda", "get_device_name", "flowlua --doctor lists the GPUs"},
    {"cuda", "get_device_properties", "flowlua --doctor lists the GPUs"},
    {"cuda", "amp", "write flow.autocast(\"float16\", f) and flow.GradScaler()"},
    {"cuda", "Stream", "a GPU's ops and copies run beside the script and each other as they are; leave it out"},
    {"cuda", "Event", "write flow.sync() before a clock is read, or flowlua --trace trace.json script.lua"},
    /* options of ops; "option": of any op */
    {"option", "generator", "write flow.with_generator(g, f), or local _ <close> = flow.with_generator(g)"},
    {"div", "rounding_mode", "write x // y, which is flow.floor_divide, or flow.trunc(x / y)"},
    DIAGONAL("diagonal"), DIAGONAL("diag_embed"), DIAGONAL("linalg.diagonal"),
    UNBIASED("var"), UNBIASED("std"), UNBIASED("var_mean"), UNBIASED("std_mean"),
    CAST_FIRST("softmax"), CAST_FIRST("log_softmax"), CAST_FIRST("softmin"),
    {"norm", "fro", "write x:norm(), or flow.linalg.matrix_norm(x) for each of many matrices"},
    {"norm", "nuc", "write flow.linalg.matrix_norm(x, \"nuc\")"},
    {"linalg", "LinAlgError", "errors are messages; pcall returns them"},
};
/* clang-format on */

enum { RENAMED = sizeof renamed / sizeof *renamed, ADVICE = sizeof advice / sizeof *advice };

bool fl_lua_is_renamed(const char *word, const char *name)
{
    for (int i = 0; i < RENAMED; i++)
        if (strcmp(renamed[i].word, word) == 0 && strcmp(renamed[i].name, name) == 0) return true;
    return false;
}

static const char *advice_in(const char *place, const char *word)
{
    for (int i = 0; i < ADVICE; i++)
        if (strcmp(advice[i].place, place) == 0 && strcmp(advice[i].word, word) == 0) return advice[i].text;
    return NULL;
}

/* Advice for a method holds for the function of that name too. */
const char *fl_lua_advice(const char *place, const char *word)
{
    const char *text = advice_in(place, word);
    return text || strcmp(place, "flow") != 0 ? text : advice_in("tensor", word);
}

/* ported() -> list of {word, name} and list of {place, word, text}, for the tests */
int fl_lua_push_ported(lua_State *L)
{
    lua_createtable(L, RENAMED, 0);
    for (int i = 0; i < RENAMED; i++) {
        lua_createtable(L, 2, 0);
        lua_pushstring(L, renamed[i].word);
        lua_rawseti(L, -2, 1);
        lua_pushstring(L, renamed[i].name);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, i + 1);
    }
    lua_createtable(L, ADVICE, 0);
    for (int i = 0; i < ADVICE; i++) {
        const char *const row[] = {advice[i].place, advice[i].word, advice[i].text};
        lua_createtable(L, 3, 0);
        for (int k = 0; k < 3; k++) {
            lua_pushstring(L, row[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_rawseti(L, -2, i + 1);
    }
    return 2;
}

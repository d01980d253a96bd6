/*
** ported.c -- names that scripts bring from PyTorch and NumPy, and what to write here instead.
**
** Consulted only when a name is unknown. A word of `renamed` has the same meaning under another name, offered wherever
** that name exists. `advice` answers for one place with a sentence; an empty one says that there is nothing like it, so
** that nothing that merely looks alike is offered. tests/names_spec.lua checks that no word here exists and that
** every new name does.
*/
#include "errors.h"

/* clang-format off */
static const struct { const char *word, *name; } renamed[] = {
    /* options and parameters */
    {"dim", "axis"}, {"dims", "axis"}, {"axis", "axes"}, {"keepdims", "keepdim"}, {"keep_dims", "keepdim"},
    {"learning_rate", "lr"}, {"unbiased", "correction"}, {"param_groups", "groups"}, {"reduce", "reduction"},
    {"minimum", "min"}, {"maximum", "max"},
    {"sep", "delimiter"}, {"usecols", "columns"}, {"na_values", "missing"}, {"missing_values", "missing"},
    {"filling_values", "fill"}, {"nrows", "limit"}, {"max_rows", "limit"}, {"skiprows", "skip"},
    {"skip_header", "skip"}, {"comments", "comment"}, {"quotechar", "quote"}, {"mmap_mode", "map"},
    {"epsilon", "eps"}, {"seq", "xs"}, {"tensors", "xs"}, {"repeats", "sizes"}, {"shape", "size"},
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
    {"set_seed", "manual_seed"}, {"seed", "manual_seed"}, {"inference_mode", "no_grad"},
    {"get_rank", "rank"}, {"get_world_size", "world_size"}, {"synchronize", "sync"}, {"expit", "sigmoid"},
    /* modules and what belongs to them */
    {"read_csv", "csv"}, {"loadtxt", "csv"}, {"genfromtxt", "csv"}, {"load_npy", "npy"}, {"load_npz", "npz"},
    {"read_json", "jsonl"}, {"savez", "save_npz"},
    {"DataLoader", "loader"}, {"Dense", "Linear"},
    {"LRScheduler", "Scheduler"},
};

#define CONVERTS(word, dtype) {"tensor", word, "write x:to(\"" dtype "\")"}
#define DTYPE(word, dtype) {"flow", word, "a dtype is a string: \"" dtype "\""}
#define IN_FLOW(word, text) {"nn", word, "write " text}

static const struct { const char *place, *word, *text; } advice[] = {
    CONVERTS("cuda", "cuda"), CONVERTS("cpu", "cpu"),
    {"tensor", "type", "write x:to(\"float32\"); x.dtype is the type it has"},
    {"tensor", "short", "there is no int16; write x:to(\"int32\")"},
    {"tensor", "numpy", "write x:totable() for nested lists, flow.save for a file that Python's safetensors reads"},
    {"tensor", "data", "write x:detach()"},
    {"tensor", "is_cuda", "write x.device:find(\"cuda\")"},
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
    {"flow", "cuda", "write x:to(\"cuda\"); flow.device_count(\"cuda\") says how many GPUs there are"},
    {"flow", "functional", "functions are flow's own: flow.relu(x), flow.cross_entropy(x, y)"},
    {"flow", "autograd", "write flow.grad(y, xs) or y:backward()"},
    {"flow", "set_grad_enabled", "write flow.no_grad(f) or flow.enable_grad(f)"},
    {"flow", "utils", "write flow.data.loader(dataset, {batch_size = 64})"},
    {"flow", "set_default_dtype", "write {dtype = \"float64\"} where a tensor is made"},
    {"flow", "distributed",
     "tensors are distributed by placement and sbp; see flow.rank() and flow.world_size()"},
    {"flow", "init", "write flow.nn.init"}, {"flow", "Module", "write flow.nn.Module"},
    {"flow", "Parameter", "write flow.nn.Parameter(t)"},
    {"flow", "jit", ""}, {"flow", "compile", ""}, {"flow", "vmap", ""},
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

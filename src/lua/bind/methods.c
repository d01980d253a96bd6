/*
** methods.c -- methods that are no single op: sizes, conversions, parts, global and local.
*/
#include "core/process.h"
#include "arguments.h"
#include "members.h"
#include "modules.h"
#include "op_call.h"
#include "tensors.h"

/* ---- sizes ---- */

static int tensor_dim(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "dim", "x");
    fl_lua_check_count(L, 1, "dim", "x:dim()");
    lua_pushinteger(L, x->meta->shape.ndim);
    return 1;
}

static int tensor_numel(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "numel", "x");
    fl_lua_check_count(L, 1, "numel", "x:numel()");
    lua_pushinteger(L, x->meta->numel);
    return 1;
}

/* An axis argument, counted from the end when negative. */
static int check_axis(lua_State *L, int index, const char *who, const fl_shape *shape)
{
    int axis;
    int64_t given = fl_lua_check_integer(L, index, who, "axis");
    if (shape->ndim == 0) FL_RAISE(L, "%s: x has no axes", who);
    FL_CHECK(L, fl_shape_axis(&axis, who, given, shape));
    return axis;
}

/* x:size() -> list, x:size(axis) -> number */
static int tensor_size(lua_State *L)
{
    const fl_shape *shape = &fl_lua_check_tensor(L, 1, "size", "x")->meta->shape;
    fl_lua_check_count(L, 2, "size", "x:size(axis)");
    if (lua_isnoneornil(L, 2)) lua_getfield(L, 1, "shape");
    else lua_pushinteger(L, shape->dims[check_axis(L, 2, "size", shape)]);
    return 1;
}

static int tensor_length(lua_State *L)
{
    const fl_shape *shape = &fl_lua_check_tensor(L, 1, "#", "x")->meta->shape;
    if (shape->ndim == 0) FL_RAISE(L, "#: a tensor without axes has no length");
    lua_pushinteger(L, shape->dims[0]);
    return 1;
}

/* x:stride() -> list, x:stride(axis) -> number; of this rank's part, in elements */
static int tensor_stride(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "stride", "x");
    fl_lua_check_count(L, 2, "stride", "x:stride(axis)");
    const fl_shape *shape = &t->meta->shape;
    if (!lua_isnoneornil(L, 2)) {
        lua_pushinteger(L, t->strides[check_axis(L, 2, "stride", shape)]);
        return 1;
    }
    lua_createtable(L, shape->ndim, 0);
    for (int i = 0; i < shape->ndim; i++) {
        lua_pushinteger(L, t->strides[i]);
        lua_rawseti(L, -2, i + 1);
    }
    fl_lua_set_list(L, FL_LIST_STRIDE);
    return 1;
}

static int tensor_is_contiguous(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "is_contiguous", "x");
    fl_lua_check_count(L, 1, "is_contiguous", "x:is_contiguous()");
    lua_pushboolean(L, x->contiguous);
    return 1;
}

/* ---- equality ---- */

static bool comparable(const fl_meta *a, const fl_meta *b)
{
    bool equal = a->dtype == b->dtype && a->is_local == b->is_local && a->placement == b->placement
        && a->shape.ndim == b->shape.ndim;
    for (int i = 0; equal && i < a->shape.ndim; i++) equal = a->shape.dims[i] == b->shape.dims[i];
    return equal;
}

/*
** x == y: true for two tensors of one dtype, shape and place, with equal elements. By value, as placements, sbps and
** shapes compare: x.grad is another Lua object each time it is read, so that identity would say nothing. rawequal
** compares objects. Every rank of a global tensor's placement calls it. Upvalue: the methods.
*/
static int tensor_equal(lua_State *L)
{
    fl_tensor *x = fl_lua_to_tensor(L, 1), *y = fl_lua_to_tensor(L, 2);
    bool alike = x && y && comparable(x->meta, y->meta);
    lua_settop(L, 2);
    if (!alike || x == y) {
        lua_pushboolean(L, alike);
        return 1;
    }
    lua_getfield(L, lua_upvalueindex(1), "item");
    lua_getfield(L, lua_upvalueindex(1), "all");
    lua_getfield(L, lua_upvalueindex(1), "eq");
    lua_rotate(L, 1, 3);
    for (int nargs = 2, i = 0; i < 3; nargs = 1, i++) lua_call(L, nargs, 1);
    return 1;
}

/* x:storage_offset(): where the elements that this rank holds begin in their memory, in elements */
static int tensor_storage_offset(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "storage_offset", "x");
    fl_lua_check_count(L, 1, "storage_offset", "x:storage_offset()");
    lua_pushinteger(L, x->offset);
    return 1;
}

/* ---- to ---- */

struct target {
    fl_dtype dtype;
    const fl_placement *device; /* NULL: where it is */
};

static void unknown_target(lua_State *L, const char *word)
{
    char hint[FL_SUGGEST_TEXT];
    fl_suggestion s = {.word = word};
    for (int type = 0; type < FL_DEVICE_TYPES; type++) fl_suggest_offer(&s, fl_device_type_name((fl_device_type)type));
    for (int d = 0; d < FL_DTYPE_COUNT; d++) fl_suggest_offer(&s, fl_dtype_name((fl_dtype)d));
    FL_RAISE(L, "to: unknown dtype or device '%s'%s", word, fl_suggest_text(hint, &s));
}

/* One positional argument of to: a dtype, a device, or a tensor to be like. */
static void read_target(lua_State *L, struct target *to, int index)
{
    fl_tensor *like = fl_lua_to_tensor(L, index);
    if (like) {
        to->dtype = like->meta->dtype;
        if (like->meta->is_local) to->device = like->meta->placement;
    } else if (lua_type(L, index) != LUA_TSTRING)
        FL_RAISE(L, "to: takes a dtype, a device, a tensor or {dtype =, device =}, got %s", fl_lua_type_name(L, index));
    else if (fl_dtype_parse(lua_tostring(L, index)) != FL_DTYPE_COUNT)
        to->dtype = fl_dtype_parse(lua_tostring(L, index));
    else if (fl_lua_names_device(lua_tostring(L, index))) to->device = fl_lua_check_device(L, index, "to");
    else unknown_target(L, lua_tostring(L, index));
}

static void read_targets(lua_State *L, struct target *to, int top)
{
    static const char *const names[] = {"dtype", "device", NULL}, *const copying[] = {"non_blocking", NULL};
    if (top < 2) FL_RAISE(L, "to: a dtype or a device is missing");
    if (top > 2 && lua_istable(L, top)) fl_lua_check_keys(L, top--, "to", copying); /* copies never wait */
    if (!lua_istable(L, 2)) {
        for (int i = 2; i <= top; i++) read_target(L, to, i);
        return;
    }
    fl_lua_check_count(L, 2, "to", "x:to{dtype =, device =}");
    fl_lua_check_keys(L, 2, "to", names);
    if (lua_getfield(L, 2, "dtype") != LUA_TNIL) to->dtype = fl_lua_check_dtype(L, -1, "to");
    if (lua_getfield(L, 2, "device") != LUA_TNIL) to->device = fl_lua_check_device(L, -1, "to");
    lua_pop(L, 2);
}

static bool same_device(const fl_placement *a, const fl_placement *b)
{
    return a->type == b->type && (a->device_index == b->device_index || b->device_index < 0);
}

/* x:to(dtype or device), x:to{dtype =, device =}; x itself when it is so already */
static int tensor_to(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "to", "x");
    struct target to = {x->meta->dtype, NULL};
    read_targets(L, &to, lua_gettop(L));
    lua_settop(L, 1);
    if (to.device && !same_device(x->meta->placement, to.device)) {
        fl_box *box = fl_lua_new_box_fast(L);
        FL_CHECK_OF(L, "to", fl_to_device(&box->tensor, x, to.device));
        x = box->tensor;
    }
    if (to.dtype != x->meta->dtype) {
        fl_box *box = fl_lua_new_box_fast(L);
        fl_attrs attrs;
        fl_attrs_init(&attrs, FL_OP_REF(cast));
        fl_attr_set(&attrs, FL_CAST_DTYPE, to.dtype);
        FL_CHECK(L, FL_CALL_WITH(&box->tensor, &attrs, cast, fl_of(x)));
    }
    fl_lua_account(L);
    return 1;
}

/* x:float(), x:long(): upvalue 1 is the boxes' metatable, 2 the dtype, 3 the name. */
static int tensor_as(lua_State *L)
{
    char usage[32];
    const char *name = lua_tostring(L, lua_upvalueindex(3));
    snprintf(usage, sizeof usage, "x:%s()", name);
    fl_lua_check_count(L, 1, name, usage);
    lua_settop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(2));
    return tensor_to(L);
}

/* x:cpu() */
static int tensor_cpu(lua_State *L)
{
    fl_lua_check_tensor(L, 1, "cpu", "x");
    fl_lua_check_count(L, 1, "cpu", "x:cpu()");
    lua_pushliteral(L, "cpu");
    return tensor_to(L);
}

/* x:cuda(), x:cuda(1); {non_blocking =} last, as x:to takes it */
static int tensor_cuda(lua_State *L)
{
    fl_lua_check_tensor(L, 1, "cuda", "x");
    if (lua_istable(L, 2)) { /* options alone */
        lua_pushnil(L);
        lua_insert(L, 2);
    }
    fl_lua_check_count(L, 3, "cuda", "x:cuda(index, {non_blocking =})");
    lua_settop(L, lua_isnoneornil(L, 3) ? 2 : 3);
    if (lua_isnil(L, 2)) lua_pushliteral(L, "cuda");
    else lua_pushfstring(L, "cuda:%I", (LUAI_UACINT)fl_lua_check_integer(L, 2, "cuda", "index"));
    lua_replace(L, 2);
    return tensor_to(L);
}

static void open_conversions(lua_State *L, int methods)
{
    static const struct {
        const char *name;
        fl_dtype dtype;
    } conversions[] = {{"float", FL_FLOAT32},     {"double", FL_FLOAT64}, {"half", FL_FLOAT16},
                       {"bfloat16", FL_BFLOAT16}, {"long", FL_INT64},     {"int", FL_INT32},
                       {"char", FL_INT8},         {"byte", FL_UINT8},     {"bool", FL_BOOL}};
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++) {
        fl_lua_push_metatable(L);
        lua_pushstring(L, fl_dtype_name(conversions[i].dtype));
        lua_pushstring(L, conversions[i].name);
        lua_pushcclosure(L, tensor_as, 3);
        lua_setfield(L, methods, conversions[i].name);
    }
}

/* ---- parts ---- */

static void push_narrow(lua_State *L, fl_tensor *x, int axis, int64_t start, int64_t length)
{
    fl_box *box = fl_lua_new_box_fast(L);
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(narrow));
    fl_attr_set(&attrs, FL_SLICE_AXIS, axis);
    fl_attr_set(&attrs, FL_SLICE_START, start);
    fl_attr_set(&attrs, FL_SLICE_LENGTH, length);
    FL_CHECK(L, FL_CALL_WITH(&box->tensor, &attrs, narrow, fl_of(x)));
}

static int optional_axis(lua_State *L, int index, const char *who, const fl_shape *shape)
{
    if (lua_isnoneornil(L, index)) lua_settop(L, index - 1), lua_pushinteger(L, 0);
    return check_axis(L, index, who, shape);
}

/* Pushes pieces of `length` (the last may be shorter), `empty` ones of an axis without positions, and returns their
** number. */
static int push_pieces(lua_State *L, fl_tensor *x, const char *who, int axis, int64_t length, int64_t empty)
{
    int64_t size = x->meta->shape.dims[axis], count = size == 0 ? empty : (size - 1) / length + 1;
    if (count > 100000 || !lua_checkstack(L, (int)count + 4))
        FL_RAISE(L, "%s: %lld pieces are too many", who, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        int64_t start = size == 0 ? 0 : i * length, rest = size - start;
        push_narrow(L, x, axis, start, rest < length ? rest : length);
    }
    fl_lua_account(L);
    return (int)count;
}

/* x:chunk(n, axis) -> n tensors, the last ones smaller or missing, as in PyTorch */
static int tensor_chunk(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "chunk", "x");
    fl_lua_check_count(L, 3, "chunk", "chunk(x, count, axis)");
    int64_t n = fl_lua_check_integer(L, 2, "chunk", "count");
    int axis = optional_axis(L, 3, "chunk", &x->meta->shape);
    if (n < 1) FL_RAISE(L, "chunk: count must be at least 1, got %lld", (long long)n);
    int64_t size = x->meta->shape.dims[axis], length = size == 0 ? 1 : (size - 1) / n + 1;
    return push_pieces(L, x, "chunk", axis, length, n);
}

/* x:split(size or {sizes}, axis) -> that many tensors */
static int tensor_split(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "split", "x");
    fl_lua_check_count(L, 3, "split", "split(x, size or sizes, axis)");
    int axis = optional_axis(L, 3, "split", &x->meta->shape);
    int64_t size = x->meta->shape.dims[axis], start = 0;
    if (!lua_istable(L, 2)) {
        int64_t length = fl_lua_check_integer(L, 2, "split", "size");
        if (length < 1) FL_RAISE(L, "split: size must be at least 1, got %lld", (long long)length);
        return push_pieces(L, x, "split", axis, length, 1);
    }
    int count = (int)lua_rawlen(L, 2);
    if (!lua_checkstack(L, count + 4)) FL_RAISE(L, "split: %d pieces are too many", count);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, 2, i);
        int64_t length = fl_lua_check_integer(L, -1, "split", "a size");
        lua_pop(L, 1);
        if (length < 0) FL_RAISE(L, "split: size %lld is negative", (long long)length);
        if (length > size - start)
            FL_RAISE(L, "split: the sizes must add up to %lld, the size of axis %d", (long long)size, axis);
        push_narrow(L, x, axis, start, length);
        start += length;
    }
    if (start != size)
        FL_RAISE(L, "split: the sizes add up to %lld, axis %d has %lld", (long long)start, axis, (long long)size);
    fl_lua_account(L);
    return count;
}

/* ---- global and local ---- */

/* An SBP among the options that lie on the stack; false: it is not there. */
static bool read_sbp(lua_State *L, fl_nd_sbp *out, int index, int ndim, const char *who)
{
    bool given = !lua_isnil(L, index);
    if (given) *out = fl_lua_check_sbp(L, index, ndim, who);
    return given;
}

/* x:to_global{placement =, sbp =, grad_sbp =, check =, priority =} */
static int tensor_to_global(lua_State *L)
{
    enum { OPTIONS = 2, PLACEMENT, SBP, GRAD_SBP, CHECK, PRIORITY };
    static const char *const names[] = {"placement", "sbp", "grad_sbp", "check", "priority", NULL};
    fl_tensor *x = fl_lua_check_tensor(L, 1, "to_global", "x");
    fl_lua_check_count(L, 2, "to_global", "x:to_global{placement =, sbp =, grad_sbp =, check =, priority =}");
    lua_settop(L, OPTIONS);
    if (!lua_istable(L, OPTIONS))
        FL_RAISE(L, "to_global: takes {placement =, sbp =}, got %s", fl_lua_type_name(L, OPTIONS));
    fl_lua_push_options(L, OPTIONS, "to_global", names);
    int ndim = x->meta->shape.ndim;
    bool local = x->meta->is_local;
    const fl_placement *p = lua_isnil(L, PLACEMENT) ? NULL : fl_lua_check_placement(L, PLACEMENT, "to_global");
    fl_nd_sbp sbp, grad_sbp;
    bool has_sbp = read_sbp(L, &sbp, SBP, ndim, "to_global"),
         has_grad = read_sbp(L, &grad_sbp, GRAD_SBP, ndim, "to_global");
    if (local && (!p || !has_sbp))
        FL_RAISE(L, "to_global: a local tensor needs placement and sbp: x:to_global{placement = p, sbp = \"B\"}");
    if (!p) p = x->meta->placement;
    if (!has_sbp) sbp = x->meta->nd_sbp;
    fl_lua_check_fit(L, sbp, p, "to_global");
    if (has_grad && (local || grad_sbp.n != x->meta->nd_sbp.n))
        FL_RAISE(L,
                 local ? "to_global: grad_sbp is for global tensors"
                       : "to_global: grad_sbp must have as many entries as x.sbp");
    int priority = fl_lua_check_priority(L, PRIORITY, "to_global");
    if (local && !lua_isnil(L, PRIORITY)) FL_RAISE(L, "to_global: priority is for global tensors");
    bool check = lua_isnil(L, CHECK) ? fl_comm_get() != NULL : lua_toboolean(L, CHECK);
    fl_box *box = fl_lua_new_box(L);
    if (local) FL_CHECK_OF(L, "to_global", fl_local_to_global(&box->tensor, x, p, sbp, check));
    else FL_CHECK_OF(L, "to_global", fl_to_global_with(&box->tensor, x, p, sbp, has_grad ? &grad_sbp : NULL, priority));
    fl_lua_account(L);
    return 1;
}

/* x:to_local{grad_sbp =} */
static int tensor_to_local(lua_State *L)
{
    static const char *const names[] = {"grad_sbp", NULL};
    fl_tensor *x = fl_lua_check_tensor(L, 1, "to_local", "x");
    fl_lua_check_count(L, 2, "to_local", "x:to_local{grad_sbp =}");
    lua_settop(L, 2);
    if (!lua_isnil(L, 2) && !lua_istable(L, 2))
        FL_RAISE(L, "to_local: takes {grad_sbp =}, got %s", fl_lua_type_name(L, 2));
    if (lua_istable(L, 2)) fl_lua_push_options(L, 2, "to_local", names);
    else lua_pushnil(L);
    fl_nd_sbp grad_sbp;
    bool has_grad = read_sbp(L, &grad_sbp, 3, x->meta->shape.ndim, "to_local");
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_to_local(&box->tensor, x, has_grad ? &grad_sbp : NULL));
    return 1;
}

void fl_lua_open_methods(lua_State *L, int flow, int methods)
{
    static const luaL_Reg functions[] = {{"dim", tensor_dim},
                                         {"size", tensor_size},
                                         {"numel", tensor_numel},
                                         {"nelement", tensor_numel},
                                         {"stride", tensor_stride},
                                         {"is_contiguous", tensor_is_contiguous},
                                         {"to", tensor_to},
                                         {"to_global", tensor_to_global},
                                         {"to_local", tensor_to_local},
                                         {"chunk", tensor_chunk},
                                         {"split", tensor_split},
                                         {"cpu", tensor_cpu},
                                         {"cuda", tensor_cuda},
                                         {"storage_offset", tensor_storage_offset},
                                         {NULL, NULL}};
    static const luaL_Reg both[] = {{"chunk", tensor_chunk}, {"split", tensor_split}, {NULL, NULL}};
    fl_lua_set_functions(L, methods, functions);
    fl_lua_set_functions(L, flow, both);
    fl_lua_push_metatable(L);
    lua_pushcfunction(L, tensor_length);
    lua_setfield(L, -2, "__len");
    lua_pushvalue(L, methods);
    lua_pushcclosure(L, tensor_equal, 1);
    lua_setfield(L, -2, "__eq");
    lua_pop(L, 1);
    open_conversions(L, methods);
}

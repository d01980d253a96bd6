/*
** values.c -- tensors from Lua values and back: flow.tensor, item, totable.
**
** A nested list is read twice: once for its shape and kind (lists of unequal lengths and cycles are errors that
** name the place), once for its numbers. int64 when every number is a Lua integer, else float32. Lists of numbers are
** read in batches, which spares Lua's stack a pop per number.
*/
#include "arguments.h"
#include "members.h"
#include "tensors.h"

#include <math.h>
#include <stdio.h>

/* ---- elements ---- */

double fl_lua_read_number(fl_dtype dtype, const void *at)
{
    switch (dtype) {
    case FL_FLOAT64: return *(const double *)at;
    case FL_FLOAT32: return *(const float *)at;
    case FL_FLOAT16: return fl_float16_to_float(*(const fl_float16 *)at);
    case FL_BFLOAT16: return fl_bfloat16_to_float(*(const fl_bfloat16 *)at);
    default: return (double)fl_lua_read_integer(dtype, at);
    }
}

int64_t fl_lua_read_integer(fl_dtype dtype, const void *at)
{
    switch (dtype) {
    case FL_INT64: return *(const int64_t *)at;
    case FL_INT32: return *(const int32_t *)at;
    case FL_INT8: return *(const int8_t *)at;
    default: return *(const uint8_t *)at;
    }
}

void fl_lua_push_element(lua_State *L, fl_dtype dtype, const void *at)
{
    if (dtype == FL_BOOL) lua_pushboolean(L, *(const uint8_t *)at);
    else if (fl_dtype_is_float(dtype)) lua_pushnumber(L, fl_lua_read_number(dtype, at));
    else lua_pushinteger(L, fl_lua_read_integer(dtype, at));
}

/* ---- reading a tensor from here ---- */

fl_status fl_lua_host(fl_tensor **out, fl_tensor *tensor)
{
    FL_TRY(fl_meta_check_values(tensor->meta));
    if (!tensor->meta->is_local && fl_boxing_pretend)
        return fl_fail(FL_ERR_COMM,
                       "the values of a global tensor are unknown inside flow.explain in a dry world, where ranks do "
                       "not communicate");
    return fl_host_whole(out, tensor);
}

/* fl_lua_host, whose errors begin with `who` where they are about the values of this tensor. */
static void read_host(lua_State *L, fl_tensor **out, fl_tensor *tensor, const char *who)
{
    fl_status status = fl_lua_host(out, tensor);
    if (status == FL_ERR_COMM || tensor->meta->placement->type == FL_META) fl_fail_prefix(status, "%s: ", who);
    FL_CHECK(L, status);
}

fl_tensor *fl_lua_push_host(lua_State *L, const char *who)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, who, "x");
    fl_box *box = fl_lua_new_box_fast(L);
    read_host(L, &box->tensor, t, who);
    return box->tensor;
}

/* Pushes the value that a planned script reads if none was computed: NaN, 0 or false. */
static void push_unknown(lua_State *L, fl_dtype dtype)
{
    if (dtype == FL_BOOL) lua_pushboolean(L, false);
    else if (fl_dtype_is_float(dtype)) lua_pushnumber(L, NAN);
    else lua_pushinteger(L, 0);
}

static void push_unknown_nested(lua_State *L, const fl_meta *meta, int axis)
{
    const fl_shape *shape = &meta->shape;
    if (axis == shape->ndim) {
        push_unknown(L, meta->dtype);
        return;
    }
    luaL_checkstack(L, 3, "totable");
    if (shape->dims[axis] > INT32_MAX)
        FL_RAISE(L, "totable: axis %d has %lld elements, too many for a table", axis, (long long)shape->dims[axis]);
    lua_createtable(L, (int)shape->dims[axis], 0);
    for (int64_t i = 1; i <= shape->dims[axis]; i++) {
        push_unknown_nested(L, meta, axis + 1);
        lua_rawseti(L, -2, i);
    }
}

static int tensor_item(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "item", "x");
    fl_lua_check_count(L, 1, "item", "x:item()");
    char shape[FL_SHAPE_TEXT];
    if (t->meta->numel != 1)
        FL_RAISE(L, "item: takes a tensor of one element, x has %lld (shape %s)", (long long)t->meta->numel,
                 fl_shape_text(shape, &t->meta->shape));
    if (fl_is_planned(t->meta)) {
        push_unknown(L, t->meta->dtype);
        return 1;
    }
    fl_tensor *host; /* without a box: pushing a number raises nothing */
    read_host(L, &host, t, "item");
    fl_lua_push_element(L, host->meta->dtype, fl_tensor_data(host));
    fl_status status = fl_tensor_wait(host); /* a mapped file may have been lost just now */
    fl_tensor_unref(host);
    FL_CHECK(L, status);
    return 1;
}

static void push_nested(lua_State *L, const fl_tensor *tensor, int axis, int64_t offset)
{
    const fl_shape *shape = &tensor->meta->shape;
    if (axis == shape->ndim) {
        fl_lua_push_element(L, tensor->meta->dtype,
                            (char *)tensor->storage->data + offset * (int64_t)fl_dtype_size(tensor->meta->dtype));
        return;
    }
    luaL_checkstack(L, 3, "totable");
    if (shape->dims[axis] > INT32_MAX)
        FL_RAISE(L, "totable: axis %d has %lld elements, too many for a table", axis, (long long)shape->dims[axis]);
    lua_createtable(L, (int)shape->dims[axis], 0);
    for (int64_t i = 0; i < shape->dims[axis]; i++) {
        push_nested(L, tensor, axis + 1, offset + i * tensor->strides[axis]);
        lua_rawseti(L, -2, i + 1);
    }
}

static int tensor_totable(lua_State *L)
{
    fl_lua_check_count(L, 1, "totable", "x:totable()");
    fl_tensor *t = fl_lua_check_tensor(L, 1, "totable", "x");
    if (fl_is_planned(t->meta)) {
        push_unknown_nested(L, t->meta, 0);
        return 1;
    }
    fl_tensor *host = fl_lua_push_host(L, "totable");
    push_nested(L, host, 0, host->offset);
    FL_CHECK(L, fl_tensor_wait(host)); /* a mapped file may have been lost just now */
    return 1;
}

/* ---- making a tensor from a value ---- */

/* The result of the first pass, and its place. */
struct list_scan {
    fl_shape shape;
    int64_t at[FL_MAX_NDIM];
    bool leaves; /* some number was seen: shape.ndim is final */
    bool numbers, floats, booleans;
    bool tensors, doubles; /* some leaf is a tensor without axes, one of float64 */
};

/* "[1][2]" */
static const char *path_text(char *buffer, size_t size, const struct list_scan *scan, int depth)
{
    size_t n = 0;
    buffer[0] = 0;
    for (int i = 0; i < depth && n < size; i++)
        n += (size_t)snprintf(buffer + n, size - n, "[%lld]", (long long)scan->at[i]);
    return buffer;
}
enum { PATH_TEXT = 128 };

/* A tensor without axes counts as its number. */
static void scan_scalar(struct list_scan *scan, fl_dtype dtype)
{
    scan->tensors = true;
    if (dtype == FL_BOOL) scan->booleans = true;
    else scan->numbers = true;
    scan->floats |= fl_dtype_is_float(dtype);
    scan->doubles |= dtype == FL_FLOAT64;
}

static void scan_leaf(lua_State *L, struct list_scan *scan, int depth)
{
    char path[PATH_TEXT];
    if (scan->leaves && depth != scan->shape.ndim)
        FL_RAISE(L, "tensor: data%s must be a list, got %s", path_text(path, sizeof path, scan, depth),
                 luaL_typename(L, -1));
    if (lua_type(L, -1) == LUA_TNUMBER) {
        scan->numbers = true;
        scan->floats |= !lua_isinteger(L, -1);
    } else if (lua_isboolean(L, -1)) scan->booleans = true;
    else if (fl_lua_box(L, -1) && fl_lua_box(L, -1)->tensor->meta->shape.ndim == 0)
        scan_scalar(scan, fl_lua_box(L, -1)->tensor->meta->dtype);
    else if (fl_lua_box(L, -1))
        FL_RAISE(L, "tensor: data%s is a tensor; put tensors together with flow.stack or flow.cat",
                 path_text(path, sizeof path, scan, depth));
    else
        FL_RAISE(L, "tensor: data%s must be a number, a boolean or a list, got %s",
                 path_text(path, sizeof path, scan, depth), luaL_typename(L, -1));
    if (!scan->leaves && depth < scan->shape.ndim)
        FL_RAISE(L, "tensor: data%s must be a list, got %s", path_text(path, sizeof path, scan, depth),
                 luaL_typename(L, -1));
    scan->leaves = true;
}

enum { BATCH = 32 };

/* The entries of the list on top of the stack that are numbers and booleans, up to the first that is neither: its
** position, n + 1 where there is none. */
static int64_t scan_plain(lua_State *L, struct list_scan *scan, int64_t n)
{
    int list = lua_gettop(L);
    int64_t i = 1;
    bool plain = true, floats = false, booleans = false, numbers = false;
    while (plain && i <= n) {
        int64_t stop = i + BATCH > n ? n + 1 : i + BATCH;
        for (; plain && i < stop; i += plain) {
            int type = lua_rawgeti(L, list, i);
            if (type == LUA_TNUMBER) {
                numbers = true;
                floats |= !lua_isinteger(L, -1);
            } else if (type == LUA_TBOOLEAN) booleans = true;
            else plain = false;
        }
        lua_settop(L, list);
    }
    scan->numbers |= numbers;
    scan->floats |= floats;
    scan->booleans |= booleans;
    scan->leaves |= i > 1;
    return i;
}

/* The value on top of the stack, at `depth` lists deep. */
static void scan_value(lua_State *L, struct list_scan *scan, int depth)
{
    char path[PATH_TEXT];
    if (!lua_istable(L, -1)) {
        scan_leaf(L, scan, depth);
        return;
    }
    if (depth == FL_MAX_NDIM)
        FL_RAISE(L, "tensor: data%s is nested deeper than %d lists%s", path_text(path, sizeof path, scan, depth),
                 FL_MAX_NDIM, " (does a list hold itself?)");
    if (scan->leaves && depth >= scan->shape.ndim)
        FL_RAISE(L, "tensor: data%s must be a number, got a list", path_text(path, sizeof path, scan, depth));
    int64_t n = (int64_t)lua_rawlen(L, -1);
    if (n == 0 && lua_next(L, (lua_pushnil(L), -2)))
        FL_RAISE(L, "tensor: data%s is a table without a list part", path_text(path, sizeof path, scan, depth));
    if (n == 0 && luaL_getmetafield(L, -1, "__len") != LUA_TNIL)
        FL_RAISE(L, "tensor: data%s is no plain list (its metatable has __len); copy its values into one",
                 path_text(path, sizeof path, scan, depth));
    const char *stray = fl_lua_stray_key(L, -1);
    if (stray) FL_RAISE(L, "tensor: data%s " FL_STRAY_KEY, path_text(path, sizeof path, scan, depth), stray);
    if (depth == scan->shape.ndim) scan->shape.dims[scan->shape.ndim++] = n;
    if (scan->shape.dims[depth] != n)
        FL_RAISE(L, "tensor: data%s has %lld values, the lists before it have %lld",
                 path_text(path, sizeof path, scan, depth), (long long)n, (long long)scan->shape.dims[depth]);
    luaL_checkstack(L, BATCH + 4, "tensor");
    for (int64_t i = depth + 1 == scan->shape.ndim ? scan_plain(L, scan, n) : 1; i <= n; i++) {
        scan->at[depth] = i;
        lua_rawgeti(L, -1, i);
        scan_value(L, scan, depth + 1);
        lua_pop(L, 1);
    }
}

/* The number or boolean at index as an integer; false: it does not fit into the dtype. */
static bool to_integer(int64_t *out, lua_State *L, int index, fl_dtype dtype)
{
    const int64_t low = fl_dtype_ranges[dtype].lowest, high = fl_dtype_ranges[dtype].highest;
    if (lua_isboolean(L, index)) *out = lua_toboolean(L, index);
    else if (lua_isinteger(L, index)) {
        *out = lua_tointeger(L, index);
        return *out >= low && *out <= high;
    } else {
        double number = trunc(lua_tonumber(L, index));
        if (!(number >= (double)low && (dtype == FL_INT64 ? number < 0x1p63 : number <= (double)high))) return false;
        *out = (int64_t)number;
    }
    return true;
}

bool fl_lua_store_element(lua_State *L, int index, fl_dtype dtype, void *at)
{
    int64_t whole;
    if (!fl_dtype_is_float(dtype) && dtype != FL_BOOL) {
        if (!to_integer(&whole, L, index, dtype)) return false;
        if (dtype == FL_INT64) *(int64_t *)at = whole;
        else if (dtype == FL_INT32) *(int32_t *)at = (int32_t)whole;
        else *(uint8_t *)at = (uint8_t)whole;
        return true;
    }
    double number = lua_isboolean(L, index) ? lua_toboolean(L, index) : lua_tonumber(L, index);
    switch (dtype) {
    case FL_BOOL: *(uint8_t *)at = number != 0; break;
    case FL_FLOAT16: *(fl_float16 *)at = fl_float16_from_float((float)number); break;
    case FL_BFLOAT16: *(fl_bfloat16 *)at = fl_bfloat16_from_float((float)number); break;
    case FL_FLOAT32: *(float *)at = (float)number; break;
    default: *(double *)at = number; break;
    }
    return true;
}

/* Pushes the value of the tensor without axes at index. */
static void push_item(lua_State *L, int index)
{
    fl_tensor *host;
    FL_CHECK(L, fl_lua_host(&host, fl_lua_box(L, index)->tensor));
    fl_lua_push_element(L, host->meta->dtype, fl_tensor_data(host));
    fl_tensor_unref(host);
}

static void store_leaf(lua_State *L, void *at, fl_dtype dtype, const struct list_scan *scan)
{
    char path[PATH_TEXT];
    if (FL_UNLIKELY(scan->tensors) && fl_lua_box(L, -1)) {
        push_item(L, -1);
        lua_replace(L, -2);
    }
    if (FL_LIKELY(fl_lua_store_element(L, -1, dtype, at))) return;
    bool nan = lua_tonumber(L, -1) != lua_tonumber(L, -1);
    FL_RAISE(L, "tensor: data%s = %s does not fit into %s", path_text(path, sizeof path, scan, scan->shape.ndim),
             nan ? "nan" : lua_tostring(L, -1), fl_dtype_name(dtype));
}

/* The value on top of the stack, which rawgeti said is of this type. */
static inline double top_number(lua_State *L, int type)
{
    return type == LUA_TNUMBER ? lua_tonumberx(L, -1, NULL) : lua_toboolean(L, -1);
}

/* Stores the entries first..last of the list at index `list`; they stay on the stack. */
static void store_batch(lua_State *L, char *at, fl_dtype dtype, struct list_scan *scan, int list, int64_t first,
                        int64_t last)
{
    size_t size = fl_dtype_size(dtype);
    if (dtype == FL_FLOAT32) {
        for (float *out = (float *)at; first <= last; first++)
            *out++ = (float)top_number(L, lua_rawgeti(L, list, first));
    } else if (dtype == FL_FLOAT64) {
        for (double *out = (double *)at; first <= last; first++) *out++ = top_number(L, lua_rawgeti(L, list, first));
    } else {
        for (int64_t i = first; i <= last; i++, at += size) {
            int type = lua_rawgeti(L, list, i), whole = 0;
            if (dtype == FL_INT64 && type == LUA_TNUMBER) *(int64_t *)at = lua_tointegerx(L, -1, &whole);
            if (whole) continue;
            scan->at[scan->shape.ndim - 1] = i;
            store_leaf(L, at, dtype, scan);
        }
    }
}

/* Stores the value on top of the stack from *at on. The lists cannot have changed since the scan: no Lua code ran. */
static void store_value(lua_State *L, char **at, fl_dtype dtype, struct list_scan *scan, int depth)
{
    size_t size = fl_dtype_size(dtype);
    if (depth == scan->shape.ndim) {
        store_leaf(L, *at, dtype, scan);
        *at += size;
        return;
    }
    if (depth + 1 == scan->shape.ndim && !scan->tensors) {
        int list = lua_gettop(L);
        int64_t n = scan->shape.dims[depth];
        for (int64_t i = 1; i <= n; i += BATCH) {
            int64_t last = i + BATCH > n ? n : i + BATCH - 1;
            store_batch(L, *at, dtype, scan, list, i, last);
            *at += (size_t)(last - i + 1) * size;
            lua_settop(L, list);
        }
        return;
    }
    for (int64_t i = 1; i <= scan->shape.dims[depth]; i++) {
        scan->at[depth] = i;
        lua_rawgeti(L, -1, i);
        store_value(L, at, dtype, scan, depth + 1);
        lua_pop(L, 1);
    }
}

fl_tensor *fl_lua_push_from_value(lua_State *L, int index, bool has_dtype, fl_dtype dtype)
{
    struct list_scan s = {0};
    luaL_checkstack(L, 3 * FL_MAX_NDIM + BATCH, "tensor");
    index = lua_absindex(L, index);
    fl_box *box = fl_lua_new_box(L);
    lua_pushvalue(L, index);
    scan_value(L, &s, 0);
    if (!has_dtype)
        dtype = s.booleans && !s.numbers ? FL_BOOL
            : s.doubles                  ? FL_FLOAT64
            : s.floats || !s.leaves      ? fl_dtype_default
                                         : FL_INT64;
    FL_CHECK(L, fl_tensor_empty_local(&box->tensor, dtype, &s.shape));
    char *at = fl_tensor_data(box->tensor);
    store_value(L, &at, dtype, &s, 0);
    lua_pop(L, 1);
    fl_lua_account(L);
    return box->tensor;
}

fl_status fl_lua_place(fl_box *box, const fl_attrs *attrs, const char *who)
{
    fl_tensor *local = box->tensor, *placed = NULL;
    const fl_meta *whole = NULL, *wanted = NULL;
    const fl_placement *p = attrs->placement;
    if (attrs->is_local && p->type == FL_CPU) return FL_OK;
    fl_status status = fl_meta_get(&wanted, local->meta->dtype, &local->meta->shape, p, attrs->nd_sbp, attrs->is_local);
    if (status != FL_OK) return fl_fail_prefix(status, "%s: ", who);
    if (attrs->is_local || p->type == FL_META) status = fl_boxing_apply(&placed, local, wanted);
    else {
        const fl_placement *host;
        fl_tensor *copies = NULL;
        status = fl_placement_on_cpu(&host, p);
        if (status == FL_OK)
            status = fl_meta_get(&whole, local->meta->dtype, &local->meta->shape, host, fl_nd_sbp_fill(FL_B, p->ndim),
                                 false);
        if (status == FL_OK)
            status = whole->holds ? fl_tensor_view(&copies, local, whole, whole->strides, local->offset)
                                  : fl_tensor_empty(&copies, whole);
        if (status == FL_OK) status = fl_global_note_data(local, whole);
        if (status == FL_OK) status = fl_boxing_apply(&placed, copies, wanted);
        fl_tensor_unref(copies);
    }
    if (whole) fl_meta_unref(whole);
    fl_meta_unref(wanted);
    if (status != FL_OK) return status;
    box->tensor = placed;
    fl_tensor_unref(local);
    return FL_OK;
}

/* A copy of the tensor that is not connected to the tape, in the dtype of the options. */
static fl_status copy_of(fl_tensor **out, fl_tensor *tensor, const fl_lua_options *options)
{
    if (!options->has_dtype || options->dtype == tensor->meta->dtype) return FL_CALL(out, clone, fl_of(tensor));
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(cast));
    fl_attr_set(&attrs, FL_CAST_DTYPE, options->dtype);
    return FL_CALL_WITH(out, &attrs, cast, fl_of(tensor));
}

static void push_copy(lua_State *L, fl_tensor *tensor, const fl_lua_options *options)
{
    fl_box *box = fl_lua_new_box(L);
    bool recording = fl_record_pause();
    fl_status status = copy_of(&box->tensor, tensor, options);
    fl_record_resume(recording);
    FL_CHECK_OF(L, "tensor", status);
}

/* flow.tensor(data, {dtype, device, placement, sbp, requires_grad}) */
static int flow_tensor(lua_State *L)
{
    fl_lua_options options = {0};
    fl_attrs attrs = {0};
    fl_lua_enter(L);
    if (lua_gettop(L) < 1) FL_RAISE(L, "tensor: data is missing: flow.tensor(number, boolean or nested list, options)");
    if (lua_gettop(L) > 2)
        FL_RAISE(L, "tensor: too many arguments: tensor(data, options); data is one value or one list");
    if (lua_istable(L, 2) && lua_rawlen(L, 2) > 0)
        FL_RAISE(
            L,
            "tensor: data is one list, and options have names: flow.tensor({{1, 2}, {3, 4}}, {dtype = \"float32\"})");
    fl_lua_read_options(L, &options, 2, 0, "tensor");
    fl_tensor *given = fl_lua_to_tensor(L, 1);
    if (!given) fl_lua_complete_options(&options);
    fl_lua_apply_options(L, &attrs, &options, "tensor");
    if (given) push_copy(L, given, &options);
    else {
        FL_CHECK(L, fl_program_refuse("a tensor is made of Lua values"));
        fl_lua_push_from_value(L, 1, options.has_dtype, options.dtype);
    }
    fl_box *box = lua_touserdata(L, -1);
    if (options.requires_grad && !attrs.has_placement && fl_world_get()->planned) { /* a parameter, not data */
        attrs.has_placement = attrs.is_local = true;
        attrs.placement = fl_placement_local(FL_META, -1);
        attrs.nd_sbp = fl_nd_sbp_fill(FL_B, 1);
    }
    if (attrs.has_placement) FL_CHECK_OF(L, "tensor", fl_lua_place(box, &attrs, "tensor"));
    if (options.requires_grad) FL_CHECK(L, fl_autograd_set_requires_grad(box->tensor, true));
    fl_lua_account(L);
    return 1;
}

void fl_lua_open_values(lua_State *L, int flow, int methods)
{
    static const luaL_Reg functions[] = {{"tensor", flow_tensor}, {NULL, NULL}};
    static const luaL_Reg method_functions[] = {{"item", tensor_item}, {"totable", tensor_totable}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
    fl_lua_set_functions(L, methods, method_functions);
}

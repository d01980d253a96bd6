/*
** array_ops.c -- what arrays compute: other shapes, parts, turned and mirrored copies, simple arithmetic in place.
**
** All but reshape and what works in place give an array with memory of its own.
*/
#include "array.h"
#include "tensors.h"

#include <string.h>

static fl_array *check_writable(lua_State *L)
{
    fl_array *a = fl_lua_check_array(L, 1);
    if (!a->writable) luaL_error(L, "this array is one of `reads`; name its tensor in `writes`");
    return a;
}

static int check_axis(lua_State *L, const fl_array *array, int index)
{
    lua_Integer axis = luaL_checkinteger(L, index);
    int ndim = array->shape.ndim;
    if (axis < -ndim || axis >= ndim) luaL_error(L, "axis %I of an array with %d axes", (LUAI_UACINT)axis, ndim);
    return (int)(axis < 0 ? axis + ndim : axis);
}

/* The numbers from argument 2 on, or those of a list there; returns their number. */
static int check_numbers(lua_State *L, int64_t *out)
{
    bool list = lua_istable(L, 2);
    int count = list ? (int)lua_rawlen(L, 2) : lua_gettop(L) - 1;
    if (count > FL_MAX_NDIM) luaL_error(L, "at most %d axes, got %d", FL_MAX_NDIM, count);
    for (int i = 0; i < count; i++) {
        if (list) lua_rawgeti(L, 2, i + 1);
        else lua_pushvalue(L, i + 2);
        out[i] = luaL_checkinteger(L, -1);
        lua_pop(L, 1);
    }
    return count;
}

/* ---- shapes ---- */

/* One size may be -1: it follows from the others. */
static void complete_sizes(lua_State *L, int64_t *dims, int ndim, int64_t numel)
{
    int64_t others = 1;
    int open = -1;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] == -1 && open < 0) open = i;
        else if (dims[i] < 0) luaL_error(L, "size %I is negative", (LUAI_UACINT)dims[i]);
        else if (__builtin_mul_overflow(others, dims[i], &others)) others = INT64_MAX;
    }
    if (open >= 0) dims[open] = others > 0 ? numel / others : 0;
    if (open >= 0 && __builtin_mul_overflow(others, dims[open], &others)) others = INT64_MAX;
    if (others != numel)
        luaL_error(L, "the array has %I elements, the shape %I", (LUAI_UACINT)numel, (LUAI_UACINT)others);
}

/* a:reshape(2, 3), a:reshape{2, -1}: the same memory */
static int array_reshape(lua_State *L)
{
    const fl_array *a = fl_lua_check_array(L, 1);
    int64_t dims[FL_MAX_NDIM];
    fl_shape shape = {.ndim = check_numbers(L, dims)};
    complete_sizes(L, dims, shape.ndim, a->numel);
    memcpy(shape.dims, dims, sizeof(int64_t) * (size_t)shape.ndim);
    fl_lua_share_array(L, 1, &shape);
    return 1;
}

/* Pushes a copy as `dtype`, of what lies at `strides` (in elements). */
static int push_copy(lua_State *L, const fl_array *array, fl_dtype dtype, const fl_shape *shape, const int64_t *strides)
{
    int64_t packed[FL_MAX_NDIM], zeros[FL_MAX_NDIM] = {0};
    fl_array *out = fl_lua_new_array(L, dtype, shape);
    if (out->numel == 0) return 1;
    fl_shape_strides(packed, shape->dims, shape->ndim);
    fl_view from = {.data = array->data,
                    .dtype = array->dtype,
                    .ndim = shape->ndim,
                    .size = shape->dims,
                    .stride = strides,
                    .start = zeros,
                    .logical = shape->dims,
                    .numel = out->numel};
    fl_view to = from;
    to.data = out->data;
    to.dtype = dtype;
    to.stride = packed;
    to.contiguous = true;
    from.contiguous = memcmp(strides, packed, sizeof(int64_t) * (size_t)shape->ndim) == 0;
    if (fl_cpu_copy(&to, &from) != FL_OK) luaL_error(L, "%s", fl_message());
    return 1;
}

/* a:to(dtype): a copy, converted as x:to does for tensors */
static int array_to(lua_State *L)
{
    int64_t strides[FL_MAX_NDIM];
    const fl_array *a = fl_lua_check_array(L, 1);
    luaL_checkstring(L, 2);
    fl_shape_strides(strides, a->shape.dims, a->shape.ndim);
    return push_copy(L, a, fl_lua_opt_dtype(L, 2, a->dtype), &a->shape, strides);
}

static int array_copy(lua_State *L)
{
    int64_t strides[FL_MAX_NDIM];
    const fl_array *a = fl_lua_check_array(L, 1);
    fl_shape_strides(strides, a->shape.dims, a->shape.ndim);
    return push_copy(L, a, a->dtype, &a->shape, strides);
}

/* a:permute(2, 0, 1): the axes in another order */
static int array_permute(lua_State *L)
{
    int64_t axes[FL_MAX_NDIM], old[FL_MAX_NDIM], strides[FL_MAX_NDIM];
    const fl_array *a = fl_lua_check_array(L, 1);
    fl_shape shape = {.ndim = check_numbers(L, axes)};
    unsigned seen = 0;
    if (shape.ndim != a->shape.ndim) luaL_error(L, "%d axes for an array with %d", shape.ndim, a->shape.ndim);
    fl_shape_strides(old, a->shape.dims, shape.ndim);
    for (int i = 0; i < shape.ndim; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + shape.ndim : axes[i];
        if (axis < 0 || axis >= shape.ndim || seen >> axis & 1)
            luaL_error(L, "permute takes each axis from 0 to %d once", shape.ndim - 1);
        seen |= 1u << axis;
        shape.dims[i] = a->shape.dims[axis];
        strides[i] = old[axis];
    }
    return push_copy(L, a, a->dtype, &shape, strides);
}

/* ---- parts and mirrors: an array as [before][axis][after] ---- */

struct cut {
    int64_t before, size, after; /* after: in bytes */
};

static struct cut cut_at(const fl_array *array, int axis)
{
    struct cut cut = {1, array->shape.dims[axis], (int64_t)fl_dtype_size(array->dtype)};
    for (int i = 0; i < axis; i++) cut.before *= array->shape.dims[i];
    for (int i = axis + 1; i < array->shape.ndim; i++) cut.after *= array->shape.dims[i];
    return cut;
}

/* a:narrow(axis, start, length): a part of an axis */
static int array_narrow(lua_State *L)
{
    const fl_array *a = fl_lua_check_array(L, 1);
    int axis = check_axis(L, a, 2);
    lua_Integer start = luaL_checkinteger(L, 3), length = luaL_checkinteger(L, 4);
    struct cut cut = cut_at(a, axis);
    if (start < 0 || length < 0 || start > cut.size - length)
        luaL_error(L, "narrow: %I from %I on of an axis of %I", (LUAI_UACINT)length, (LUAI_UACINT)start,
                   (LUAI_UACINT)cut.size);
    fl_shape shape = a->shape;
    shape.dims[axis] = length;
    fl_array *out = fl_lua_new_array(L, a->dtype, &shape);
    size_t run = (size_t)(length * cut.after);
    for (int64_t i = 0; run && i < cut.before; i++)
        memcpy(out->data + (size_t)i * run, a->data + (i * cut.size + start) * cut.after, run);
    return 1;
}

/* The parts of `size` runs of `bytes` in the opposite order. */
static void mirror(char *to, const char *from, int64_t size, int64_t bytes)
{
    if (bytes == 4) /* elements of the last axis, as a rule floats */
        for (int64_t k = 0; k < size; k++) memcpy(to + k * 4, from + (size - 1 - k) * 4, 4);
    else if (bytes == 1)
        for (int64_t k = 0; k < size; k++) to[k] = from[size - 1 - k];
    else
        for (int64_t k = 0; k < size; k++) memcpy(to + k * bytes, from + (size - 1 - k) * bytes, (size_t)bytes);
}

/* a:flip(axis): mirrored */
static int array_flip(lua_State *L)
{
    const fl_array *a = fl_lua_check_array(L, 1);
    struct cut cut = cut_at(a, check_axis(L, a, 2));
    fl_array *out = fl_lua_new_array(L, a->dtype, &a->shape);
    int64_t block = cut.size * cut.after;
    for (int64_t i = 0; out->numel && i < cut.before; i++)
        mirror(out->data + i * block, a->data + i * block, cut.size, cut.after);
    return 1;
}

/* ---- elements ---- */

/* a:fill(value), in place */
static int array_fill(lua_State *L)
{
    fl_array *a = check_writable(L);
    size_t size = fl_dtype_size(a->dtype);
    luaL_checkany(L, 2);
    if (a->numel > 0) fl_lua_array_store(L, a, 0, 2);
    for (int64_t i = 1; i < a->numel; i++) memcpy(a->data + (size_t)i * size, a->data, size);
    lua_settop(L, 1);
    return 1;
}

/* a:map(f[, dtype]): a new array of f(element, position) */
static int array_map(lua_State *L)
{
    const fl_array *a = fl_lua_check_array(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    fl_dtype dtype = fl_lua_opt_dtype(L, 3, a->dtype);
    size_t size = fl_dtype_size(a->dtype);
    fl_array *out = fl_lua_new_array(L, dtype, &a->shape);
    for (int64_t i = 0; i < a->numel; i++) {
        lua_pushvalue(L, 2);
        fl_lua_push_element(L, a->dtype, a->data + (size_t)i * size);
        lua_pushinteger(L, i);
        lua_call(L, 2, 1);
        fl_lua_array_store(L, out, i, -1);
        lua_pop(L, 1);
    }
    return 1;
}

/* The second operand: a number, or an array that is as long as the last axes of the first. */
struct operand {
    const fl_array *array;
    double number;
    int64_t period;
};

static struct operand check_operand(lua_State *L, const fl_array *array)
{
    struct operand v = {fl_lua_to_array(L, 2), 0, 1};
    if (!fl_dtype_is_float(array->dtype)) luaL_error(L, "takes an array of floats; write a:to(\"float32\") first");
    if (!v.array) {
        v.number = luaL_checknumber(L, 2);
        return v;
    }
    int skip = array->shape.ndim - v.array->shape.ndim;
    bool fits = skip >= 0;
    for (int i = 0; fits && i < v.array->shape.ndim; i++) fits = v.array->shape.dims[i] == array->shape.dims[skip + i];
    if (!fits) luaL_error(L, "takes a number, or an array of the shape of the last axes");
    v.period = v.array->numel;
    return v;
}

static double operand_at(const struct operand *operand, int64_t i)
{
    if (!operand->array) return operand->number;
    return fl_lua_read_number(operand->array->dtype,
                              operand->array->data + (size_t)i * fl_dtype_size(operand->array->dtype));
}

/* Element at `at` becomes itself times or plus b, computed in float, or double for a float64. */
static void combine_element(fl_dtype dtype, char *at, double b, bool multiply)
{
    if (dtype == FL_FLOAT64) {
        *(double *)at = multiply ? *(double *)at * b : *(double *)at + b;
        return;
    }
    float x = (float)fl_lua_read_number(dtype, at), y = (float)b;
    x = multiply ? x * y : x + y;
    if (dtype == FL_FLOAT32) *(float *)at = x;
    else if (dtype == FL_FLOAT16) *(fl_float16 *)at = fl_float16_from_float(x);
    else *(fl_bfloat16 *)at = fl_bfloat16_from_float(x);
}

/* The same for every element of float32 and one number. */
static void combine_floats(float *x, int64_t n, float y, bool multiply)
{
    if (multiply) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) x[i] *= y;
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) x[i] += y;
    }
}

static void combine(fl_array *array, const struct operand *operand, bool multiply)
{
    size_t size = fl_dtype_size(array->dtype);
    if (!operand->array && array->dtype == FL_FLOAT32) {
        combine_floats((float *)array->data, array->numel, (float)operand->number, multiply);
        return;
    }
    for (int64_t i = 0; i < operand->period && array->numel; i++) {
        double b = operand_at(operand, i);
        for (int64_t k = i; k < array->numel; k += operand->period)
            combine_element(array->dtype, array->data + (size_t)k * size, b, multiply);
    }
}

static int combine_call(lua_State *L, bool multiply)
{
    fl_array *a = check_writable(L);
    struct operand v = check_operand(L, a);
    combine(a, &v, multiply);
    lua_settop(L, 1);
    return 1;
}

/* a:add(b), a:mul(b), in place */
static int array_add(lua_State *L) { return combine_call(L, false); }
static int array_mul(lua_State *L) { return combine_call(L, true); }

void fl_lua_open_array_ops(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"reshape", array_reshape}, {"to", array_to},     {"copy", array_copy}, {"permute", array_permute},
        {"narrow", array_narrow},   {"flip", array_flip}, {"fill", array_fill}, {"map", array_map},
        {"add", array_add},         {"mul", array_mul},   {NULL, NULL}};
    luaL_setfuncs(L, methods, 0);
}

/*
** array.c -- arrays as Lua values: elements, bytes, and the module flow.array that makes them (array.h).
*/
#include "array.h"
#include "tensors.h"

#include <string.h>

static const char array_type[] = "flow.array";

enum { HEAD = (sizeof(fl_array) + 7) / 8 * 8 }; /* the memory follows */

fl_array *fl_lua_to_array(lua_State *L, int index)
{
    fl_array *a = luaL_testudata(L, index, array_type);
    if (a && a->root->over) luaL_error(L, "the task of this array is over");
    return a;
}

fl_array *fl_lua_check_array(lua_State *L, int index)
{
    fl_array *a = luaL_checkudata(L, index, array_type);
    if (a->root->over) luaL_error(L, "the task of this array is over");
    return a;
}

static fl_array *push_array(lua_State *L, fl_dtype dtype, const fl_shape *shape, size_t bytes)
{
    fl_array *a = lua_newuserdatauv(L, HEAD + bytes, 1);
    *a = (fl_array){.dtype = dtype, .numel = fl_shape_numel(shape), .shape = *shape, .writable = true, .root = a};
    luaL_setmetatable(L, array_type);
    return a;
}

fl_array *fl_lua_new_array(lua_State *L, fl_dtype dtype, const fl_shape *shape)
{
    fl_array *a = push_array(L, dtype, shape, (size_t)fl_shape_numel(shape) * fl_dtype_size(dtype));
    a->data = (char *)a + HEAD;
    return a;
}

fl_array *fl_lua_lend_array(lua_State *L, char *data, fl_dtype dtype, const fl_shape *shape, bool writable)
{
    fl_array *a = push_array(L, dtype, shape, 0);
    a->data = data;
    a->writable = writable;
    return a;
}

fl_array *fl_lua_share_array(lua_State *L, int index, const fl_shape *shape)
{
    fl_array *base = fl_lua_check_array(L, index);
    index = lua_absindex(L, index);
    fl_array *a = push_array(L, base->dtype, shape, 0);
    a->data = base->data;
    a->writable = base->writable;
    a->root = base->root;
    lua_pushvalue(L, index); /* keeps the root */
    lua_setiuservalue(L, -2, 1);
    return a;
}

fl_dtype fl_lua_opt_dtype(lua_State *L, int index, fl_dtype otherwise)
{
    if (lua_isnoneornil(L, index)) return otherwise;
    const char *name = luaL_checkstring(L, index);
    fl_dtype dtype = fl_dtype_parse(name);
    if (dtype == FL_DTYPE_COUNT) luaL_error(L, "there is no dtype '%s'", name);
    return dtype;
}

/* ---- elements ---- */

static char *check_element(lua_State *L, const fl_array *array)
{
    lua_Integer i = luaL_checkinteger(L, 2);
    if (i < 0 || i >= array->numel)
        luaL_error(L, "position %I is outside 0 to %I", (LUAI_UACINT)i, (LUAI_UACINT)array->numel - 1);
    return array->data + (size_t)i * fl_dtype_size(array->dtype);
}

static void check_writable(lua_State *L, const fl_array *array)
{
    if (!array->writable) luaL_error(L, "this array is one of `reads`; name its tensor in `writes`");
}

static void store(lua_State *L, const fl_array *array, char *at, int index)
{
    int type = lua_type(L, index);
    if (type != LUA_TNUMBER && type != LUA_TBOOLEAN)
        luaL_error(L, "an element must be a number or a boolean, got %s", luaL_typename(L, index));
    if (!fl_lua_store_element(L, index, array->dtype, at))
        luaL_error(L, "%s does not fit into %s", luaL_tolstring(L, index, NULL), fl_dtype_name(array->dtype));
}

void fl_lua_array_store(lua_State *L, fl_array *array, int64_t i, int index)
{
    store(L, array, array->data + (size_t)i * fl_dtype_size(array->dtype), index);
}

static void push_shape(lua_State *L, const fl_shape *shape)
{
    lua_createtable(L, shape->ndim, 0);
    for (int i = 0; i < shape->ndim; i++) {
        lua_pushinteger(L, shape->dims[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

/* a[position], a.dtype, a.shape, methods; upvalue: the table of methods */
static int array_index(lua_State *L)
{
    const fl_array *a = fl_lua_check_array(L, 1);
    if (lua_type(L, 2) != LUA_TSTRING) {
        fl_lua_push_element(L, a->dtype, check_element(L, a));
        return 1;
    }
    const char *key = lua_tostring(L, 2);
    if (strcmp(key, "dtype") == 0) lua_pushstring(L, fl_dtype_name(a->dtype));
    else if (strcmp(key, "shape") == 0) push_shape(L, &a->shape);
    else {
        lua_pushvalue(L, 2);
        if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TNIL)
            luaL_error(L,
                       "an array has no '%s'; it has positions from 0, dtype, shape, tobytes, frombytes, reshape, "
                       "permute, narrow, flip, to, copy, fill, add, mul and map",
                       key);
    }
    return 1;
}

static int array_newindex(lua_State *L)
{
    const fl_array *a = fl_lua_check_array(L, 1);
    check_writable(L, a);
    store(L, a, check_element(L, a), 3);
    return 0;
}

static int array_length(lua_State *L)
{
    lua_pushinteger(L, fl_lua_check_array(L, 1)->numel);
    return 1;
}

static int array_tostring(lua_State *L)
{
    char shape[FL_SHAPE_TEXT];
    const fl_array *a = luaL_checkudata(L, 1, array_type);
    lua_pushfstring(L, "array (%s%s)", fl_dtype_name(a->dtype), fl_shape_text(shape, &a->shape));
    return 1;
}

/* ---- bytes ---- */

static int array_tobytes(lua_State *L)
{
    const fl_array *a = fl_lua_check_array(L, 1);
    lua_pushlstring(L, a->numel ? a->data : "", (size_t)a->numel * fl_dtype_size(a->dtype));
    return 1;
}

/* Fills the array with the bytes of the string at index. */
static void set_bytes(lua_State *L, const fl_array *array, int index)
{
    size_t size, want = (size_t)array->numel * fl_dtype_size(array->dtype);
    const char *bytes = luaL_checklstring(L, index, &size);
    if (size != want) luaL_error(L, "the array takes %I bytes, got %I", (LUAI_UACINT)want, (LUAI_UACINT)size);
    for (size_t i = 0; array->dtype == FL_BOOL && i < size; i++)
        if ((unsigned char)bytes[i] > 1) luaL_error(L, "a bool is a byte 0 or 1, got %d", (unsigned char)bytes[i]);
    if (size) memcpy(array->data, bytes, size);
}

static int array_frombytes(lua_State *L)
{
    const fl_array *a = fl_lua_check_array(L, 1);
    check_writable(L, a);
    set_bytes(L, a, 2);
    return 0;
}

/* ---- the module ---- */

/* The sizes at index: a list, or one number. */
static void check_shape(lua_State *L, fl_shape *out, int index)
{
    int64_t dims[FL_MAX_NDIM + 1];
    int ndim = 1;
    if (lua_istable(L, index)) {
        ndim = (int)lua_rawlen(L, index);
        for (int i = 0; i < ndim && i <= FL_MAX_NDIM; i++) {
            lua_rawgeti(L, index, i + 1);
            dims[i] = luaL_checkinteger(L, -1);
            lua_pop(L, 1);
        }
    } else dims[0] = luaL_checkinteger(L, index);
    if (fl_shape_make(out, "array", dims, ndim) != FL_OK) luaL_error(L, "%s", fl_message());
}

/* array.zeros(shape[, dtype]) */
static int module_zeros(lua_State *L)
{
    fl_shape shape;
    fl_dtype dtype = fl_lua_opt_dtype(L, 2, FL_FLOAT32);
    check_shape(L, &shape, 1);
    fl_array *a = fl_lua_new_array(L, dtype, &shape);
    memset(a->data, 0, (size_t)a->numel * fl_dtype_size(dtype));
    return 1;
}

static bool all_whole(lua_State *L, lua_Integer count)
{
    bool whole = true;
    for (lua_Integer i = 1; whole && i <= count; i++) {
        lua_rawgeti(L, 1, i);
        whole = lua_isinteger(L, -1);
        lua_pop(L, 1);
    }
    return whole;
}

/* array.new(list[, dtype]): int64 if all numbers are integers, else float32 */
static int module_new(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    lua_Integer count = (lua_Integer)lua_rawlen(L, 1);
    fl_dtype dtype = fl_lua_opt_dtype(L, 2, all_whole(L, count) ? FL_INT64 : FL_FLOAT32);
    fl_shape shape = {.ndim = 1, .dims = {count}};
    fl_array *a = fl_lua_new_array(L, dtype, &shape);
    for (lua_Integer i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1);
        fl_lua_array_store(L, a, i, -1);
        lua_pop(L, 1);
    }
    return 1;
}

/* array.frombytes(s, dtype, shape) */
static int module_frombytes(lua_State *L)
{
    fl_shape shape;
    luaL_checkstring(L, 1);
    luaL_checkstring(L, 2);
    check_shape(L, &shape, 3);
    set_bytes(L, fl_lua_new_array(L, fl_lua_opt_dtype(L, 2, FL_UINT8), &shape), 1);
    return 1;
}

static int open_module(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"zeros", module_zeros}, {"new", module_new}, {"frombytes", module_frombytes}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}

void fl_lua_open_arrays(lua_State *L)
{
    static const luaL_Reg metamethods[] = {
        {"__newindex", array_newindex}, {"__len", array_length}, {"__tostring", array_tostring}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"tobytes", array_tobytes}, {"frombytes", array_frombytes}, {NULL, NULL}};
    luaL_newmetatable(L, array_type);
    luaL_setfuncs(L, metamethods, 0);
    luaL_newlib(L, methods);
    fl_lua_open_array_ops(L);
    lua_pushcclosure(L, array_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, open_module);
    lua_setfield(L, -2, "flow.array");
    lua_pop(L, 1);
}

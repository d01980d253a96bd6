/*
** fields.c -- x.shape, x.dtype and the other fields; only requires_grad and grad can be assigned.
*/
#include "arguments.h"
#include "members.h"
#include "tensors.h"

#include <stdio.h>

/* Lists that functions and fields give: the message for reading position 0 of each. Their addresses are their
** metatables' keys. */
static const char *const list_texts[FL_LIST_COUNT] = {
    [FL_LIST_SHAPE] = "x.shape is a Lua list: x.shape[1] is the size of axis 0, or x:size(0); x:size(-1) is the size "
                      "of the last axis",
    [FL_LIST_STRIDE] = "x:stride() is a Lua list: x:stride()[1] is the stride of axis 0, or x:stride(0)",
    [FL_LIST_RANKS] = "p.ranks is a Lua list: p.ranks[1] is the first one",
    [FL_LIST_HIERARCHY] = "p.hierarchy is a Lua list: p.hierarchy[1] is the size of hierarchy axis 0",
};

void fl_lua_set_functions(lua_State *L, int table, const luaL_Reg *functions)
{
    for (; functions->name; functions++) {
        fl_lua_push_metatable(L);
        lua_pushcclosure(L, functions->func, 1);
        lua_setfield(L, table, functions->name);
    }
}

/* A shape is a plain list that prints as "[2, 3]". */
static void get_shape(lua_State *L, fl_tensor *tensor)
{
    const fl_shape *shape = &tensor->meta->shape;
    lua_createtable(L, shape->ndim, 0);
    for (int i = 0; i < shape->ndim; i++) {
        lua_pushinteger(L, shape->dims[i]);
        lua_rawseti(L, -2, i + 1);
    }
    fl_lua_set_list(L, FL_LIST_SHAPE);
}

void fl_lua_set_list(lua_State *L, fl_lua_list kind)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &list_texts[kind]);
    lua_setmetatable(L, -2);
}

static int list_tostring(lua_State *L)
{
    luaL_Buffer b;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_buffinit(L, &b);
    luaL_addchar(&b, '[');
    for (lua_Unsigned i = 1; i <= lua_rawlen(L, 1); i++) {
        if (i > 1) luaL_addstring(&b, ", ");
        lua_rawgeti(L, 1, (lua_Integer)i);
        luaL_tolstring(L, -1, NULL);
        lua_remove(L, -2);
        luaL_addvalue(&b);
    }
    luaL_addchar(&b, ']');
    luaL_pushresult(&b);
    return 1;
}

/* list[key] of a key that it does not have. An entry may be missing (x.shape[3] or 1), position 0 is a mistake. */
static int list_index(lua_State *L)
{
    if (!lua_isinteger(L, 2) || lua_tointeger(L, 2) > 0) return 0;
    FL_RAISE(L, "%s", lua_tostring(L, lua_upvalueindex(1)));
}

static int list_equal(lua_State *L)
{
    for (int i = 1; i <= 2; i++) luaL_checktype(L, i, LUA_TTABLE);
    lua_Unsigned n = lua_rawlen(L, 1);
    bool equal = n == lua_rawlen(L, 2);
    for (lua_Unsigned i = 1; equal && i <= n; i++) {
        lua_rawgeti(L, 1, (lua_Integer)i);
        lua_rawgeti(L, 2, (lua_Integer)i);
        equal = lua_rawequal(L, -1, -2);
        lua_pop(L, 2);
    }
    lua_pushboolean(L, equal);
    return 1;
}

static void get_dtype(lua_State *L, fl_tensor *tensor) { lua_pushstring(L, fl_dtype_name(tensor->meta->dtype)); }

static void get_device(lua_State *L, fl_tensor *tensor)
{
    char device[FL_DEVICE_TEXT];
    lua_pushstring(L, fl_placement_device_text(device, tensor->meta->placement));
}

static void get_ndim(lua_State *L, fl_tensor *tensor) { lua_pushinteger(L, tensor->meta->shape.ndim); }
static void get_is_global(lua_State *L, fl_tensor *tensor) { lua_pushboolean(L, !tensor->meta->is_local); }
static void get_is_leaf(lua_State *L, fl_tensor *tensor) { lua_pushboolean(L, fl_autograd_is_leaf(tensor)); }
static void get_requires_grad(lua_State *L, fl_tensor *tensor) { lua_pushboolean(L, fl_requires_grad(tensor)); }
static void get_grad(lua_State *L, fl_tensor *tensor) { fl_lua_push_tensor(L, fl_autograd_grad_of(tensor)); }

static void get_placement(lua_State *L, fl_tensor *tensor)
{
    if (tensor->meta->is_local) lua_pushnil(L);
    else fl_lua_push_placement(L, tensor->meta->placement);
}

static void get_sbp(lua_State *L, fl_tensor *tensor)
{
    if (tensor->meta->is_local) lua_pushnil(L);
    else fl_lua_push_sbp(L, tensor->meta->nd_sbp);
}

/* x.T: the axes in the opposite order */
static void get_reversed(lua_State *L, fl_tensor *tensor)
{
    fl_attrs attrs;
    int64_t order[FL_MAX_NDIM];
    int ndim = tensor->meta->shape.ndim;
    for (int i = 0; i < ndim; i++) order[i] = ndim - 1 - i;
    fl_attrs_init(&attrs, FL_OP_REF(permute));
    fl_attr_set_list(&attrs, FL_PERMUTE_AXES, order, ndim);
    fl_box *box = fl_lua_new_box_fast(L);
    FL_CHECK(L, FL_CALL_WITH(&box->tensor, &attrs, permute, fl_of(tensor)));
    fl_lua_account(L);
}

/* x.mT, x.mH: the last two axes exchanged */
static void get_transposed(lua_State *L, fl_tensor *tensor)
{
    fl_box *box = fl_lua_new_box_fast(L);
    FL_CHECK(L, FL_CALL(&box->tensor, matrix_transpose, fl_of(tensor)));
    fl_lua_account(L);
}

/* x.H: of a matrix the transposed one */
static void get_adjoint(lua_State *L, fl_tensor *tensor)
{
    if (tensor->meta->shape.ndim != 2) FL_RAISE(L, "x.H is for matrices; x has %d axes", tensor->meta->shape.ndim);
    get_transposed(L, tensor);
}

static const fl_lua_field fields[] = {
    {"shape", get_shape},   {"dtype", get_dtype},         {"device", get_device},
    {"ndim", get_ndim},     {"is_global", get_is_global}, {"placement", get_placement},
    {"sbp", get_sbp},       {"is_leaf", get_is_leaf},     {"requires_grad", get_requires_grad},
    {"grad", get_grad},     {"T", get_reversed},          {"H", get_adjoint},
    {"mT", get_transposed}, {"mH", get_transposed},
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };

static bool is_field(const char *name)
{
    for (int i = 0; i < FIELD_COUNT; i++)
        if (strcmp(fields[i].name, name) == 0) return true;
    return false;
}

bool fl_lua_set_field(lua_State *L, fl_tensor *tensor, const char *name)
{
    if (strcmp(name, "grad") == 0) {
        fl_tensor *grad = lua_isnil(L, 3) ? NULL : fl_lua_check_tensor(L, 3, "grad", "value");
        FL_CHECK(L, fl_autograd_set_grad(tensor, grad));
        return true;
    }
    if (strcmp(name, "requires_grad") == 0) {
        if (!lua_isboolean(L, 3)) FL_RAISE(L, "requires_grad must be true or false, got %s", fl_lua_type_name(L, 3));
        FL_CHECK(L, fl_autograd_set_requires_grad(tensor, lua_toboolean(L, 3)));
        return true;
    }
    if (is_field(name))
        FL_RAISE(L, "a tensor's field '%s' cannot be assigned; only requires_grad and grad can be", name);
    return false;
}

void fl_lua_open_fields(lua_State *L, int methods)
{
    static const luaL_Reg meta[] = {
        {"__tostring", list_tostring}, {"__index", list_index}, {"__eq", list_equal}, {NULL, NULL}};
    for (int i = 0; i < FL_LIST_COUNT; i++) {
        lua_createtable(L, 0, 4);
        lua_pushstring(L, list_texts[i]);
        luaL_setfuncs(L, meta, 1);
        lua_pushboolean(L, true);
        lua_setfield(L, -2, "__is_list"); /* for check.lua */
        lua_rawsetp(L, LUA_REGISTRYINDEX, &list_texts[i]);
    }
    for (int i = 0; i < FIELD_COUNT; i++) {
        lua_pushlightuserdata(L, (void *)&fields[i]);
        lua_setfield(L, methods, fields[i].name);
    }
}

/*
** dlpack.c -- memory shared with other libraries: flow.from_dlpack, x:__dlpack().
**
** __dlpack returns a capsule: a userdata around the pointer, which releases it unless it was taken.
*/
#include "arguments.h"
#include "members.h"
#include "tensors.h"

#define CAPSULE_TYPE "flow.dlpack"

static int capsule_drop(lua_State *L)
{
    void **capsule = luaL_checkudata(L, 1, CAPSULE_TYPE);
    fl_dlpack_drop(*capsule);
    *capsule = NULL;
    return 0;
}

/* capsule:take() -> the pointer, a light userdata, whose deleter the caller now has to call */
static int capsule_take(lua_State *L)
{
    void **capsule = luaL_testudata(L, 1, CAPSULE_TYPE);
    if (!capsule)
        FL_RAISE(L, "take: a method is called with a colon, capsule:take(); got %s as the capsule",
                 fl_lua_type_name(L, 1));
    fl_lua_check_count(L, 1, "take", "capsule:take()");
    if (!*capsule) FL_RAISE(L, "take: the capsule was taken already");
    lua_pushlightuserdata(L, *capsule);
    *capsule = NULL;
    return 1;
}

/* x:__dlpack() */
static int tensor_dlpack(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "__dlpack", "x");
    fl_lua_check_count(L, 1, "__dlpack", "x:__dlpack()");
    fl_tensors_reclaim();
    void **capsule = lua_newuserdatauv(L, sizeof *capsule, 0);
    *capsule = NULL;
    luaL_setmetatable(L, CAPSULE_TYPE);
    fl_status status = fl_dlpack_give(capsule, t);
    if (status != FL_OK) fl_lua_error(L, fl_fail_prefix(status, "__dlpack: "));
    return 1;
}

/* The field __dlpack of what is at 1. */
static int get_method(lua_State *L)
{
    lua_getfield(L, 1, "__dlpack");
    return 1;
}

/* Pushes the method __dlpack of the object at 1; false, and nothing pushed: it has none. Objects for which an unknown
** name is an error have none either. */
static bool push_method(lua_State *L)
{
    lua_pushcfunction(L, get_method);
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 1, 1, 0) == LUA_OK && fl_lua_is_callable(L, -1)) return true;
    lua_pop(L, 1);
    return false;
}

/* flow.from_dlpack(capsule, a pointer to a DLManagedTensorVersioned, or what has a method __dlpack) */
static int flow_from_dlpack(lua_State *L)
{
    fl_lua_check_count(L, 1, "from_dlpack", "from_dlpack(array)");
    fl_tensors_reclaim();
    if (!luaL_testudata(L, 1, CAPSULE_TYPE) && lua_type(L, 1) != LUA_TLIGHTUSERDATA
        && (lua_type(L, 1) == LUA_TUSERDATA || lua_istable(L, 1)) && push_method(L)) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 1);
        lua_replace(L, 1);
    }
    void **capsule = luaL_testudata(L, 1, CAPSULE_TYPE);
    void *managed = capsule ? *capsule : lua_type(L, 1) == LUA_TLIGHTUSERDATA ? lua_touserdata(L, 1) : NULL;
    if (capsule && !managed) FL_RAISE(L, "from_dlpack: the capsule was taken already");
    if (!managed)
        FL_RAISE(L, "from_dlpack: takes what x:__dlpack() gives, or a pointer, got %s", fl_lua_type_name(L, 1));
    FL_CHECK(L, fl_program_refuse("memory of another library is taken"));
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_dlpack_take(&box->tensor, managed));
    if (capsule) *capsule = NULL;
    fl_lua_account(L);
    return 1;
}

void fl_lua_open_dlpack(lua_State *L, int flow, int methods)
{
    static const luaL_Reg functions[] = {{"from_dlpack", flow_from_dlpack}, {NULL, NULL}};
    static const luaL_Reg method_functions[] = {{"__dlpack", tensor_dlpack}, {NULL, NULL}};
    static const luaL_Reg capsule_functions[] = {{"take", capsule_take}, {NULL, NULL}};
    if (luaL_newmetatable(L, CAPSULE_TYPE)) {
        lua_pushcfunction(L, capsule_drop);
        lua_setfield(L, -2, "__gc");
        luaL_newlib(L, capsule_functions);
        lua_setfield(L, -2, "__index");
        fl_lua_set_object(L, "a DLPack capsule");
    }
    lua_pop(L, 1);
    fl_lua_set_functions(L, flow, functions);
    fl_lua_set_functions(L, methods, method_functions);
}

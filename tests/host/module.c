/*
** module.c -- a C module of scripts that uses flow.h.
*/
#include <flow.h>
#include <lauxlib.h>

/* square(x) -> x * x, or nil for what is no tensor */
static int square(lua_State *L)
{
    flow_tensor *x = flow_lua_tensor(L, 1), *y = NULL;
    if (x && flow_call(&y, 1, "mul", FLOW_ARGS(flow_of(x), flow_of(x))) != FLOW_OK)
        return luaL_error(L, "%s", flow_error());
    flow_lua_push(L, y);
    flow_unref(y);
    return 1;
}

static int fail(lua_State *L)
{
    flow_tensor *y;
    flow_call(&y, 1, "sqare", NULL, 0);
    lua_pushstring(L, flow_error());
    return lua_error(L);
}

int luaopen_module(lua_State *L);
int luaopen_module(lua_State *L)
{
    const luaL_Reg functions[] = {{"square", square}, {"fail", fail}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}

/*
** host.c -- tensors between C code that uses flow.h and a lua_State: C modules of scripts, hosts with a Lua.
*/
#include "core/api/flow.h"
#include "modules.h"
#include "tensors.h"

flow_tensor *flow_lua_tensor(lua_State *L, int index)
{
    index = lua_absindex(L, index);
    if (!fl_lua_push_flow(L)) return NULL;
    lua_pop(L, 1);
    return (flow_tensor *)fl_lua_to_tensor(L, index);
}

void flow_lua_push(lua_State *L, flow_tensor *tensor)
{
    if (!fl_lua_push_flow(L)) luaL_error(L, "flow_lua_push: this state has not called require \"flow\"");
    lua_pop(L, 1);
    fl_lua_push_tensor(L, (fl_tensor *)tensor);
}

/*
** help.c -- what help.lua and complete.lua read: descriptors of ops, sources of modules.
*/
#include "members.h"
#include "modules.h"
#include "op_call.h"

/* Under which heading help(flow) lists an op. */
static const char *subject(const fl_lua_call *call)
{
    unsigned flags = call->op->flags;
    if (call->signature->has_options) return "creation";
    if (flags & FL_OP_ELEMENTWISE) return "elements";
    if (flags & FL_OP_VIEW) return "views";
    for (int i = 0; i < call->signature->param_count; i++)
        if (strcmp(call->signature->params[i].name, "keepdim") == 0) return "reductions";
    return "operations";
}

/* flow._describe(function) -> {name, sig, doc, subject, in_place, differentiable} of an op's function, else nil */
static int describe(lua_State *L)
{
    const fl_lua_call *c = fl_lua_call_of(L, 1);
    if (!c) return 0;
    lua_createtable(L, 0, 6);
    lua_pushstring(L, c->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, subject(c));
    lua_setfield(L, -2, "subject");
    fl_lua_push_usage(L, c);
    lua_setfield(L, -2, "sig");
    lua_pushstring(L, c->op->doc);
    lua_setfield(L, -2, "doc");
    lua_pushboolean(L, fl_op_in_place(c->op));
    lua_setfield(L, -2, "in_place");
    lua_pushboolean(L, !(c->op->flags & FL_OP_NO_GRAD) && (c->op->grad || c->op->vjp || c->op->body || c->op->compute));
    lua_setfield(L, -2, "differentiable");
    return 1;
}

/* flow._source(name) -> source text of the embedded module, else nil */
static int source(lua_State *L)
{
    const char *name = lua_tostring(L, 1);
    const fl_lua_module *m = name ? fl_lua_module_find(name) : NULL;
    if (m) fl_lua_push_source(L, m);
    return m != NULL;
}

/* help(...) loads help.lua at its first use */
static int help(lua_State *L)
{
    fl_lua_push_module(L, "help");
    lua_getfield(L, -1, "help");
    lua_insert(L, 1);
    lua_pop(L, 1);
    lua_call(L, lua_gettop(L) - 1, 0);
    return 0;
}

void fl_lua_open_help(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"_describe", describe}, {"_source", source}, {"_help", help}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
}

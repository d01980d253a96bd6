/*
** capture_shared.c -- calls of a captured function whose arguments lie in the memory of one another, or of a tensor
** that the function reaches by itself. If one of the two is written, Lua runs the function.
*/
#include "arguments.h"
#include "capture.h"

/* True if two of the arguments are tensors with bytes in common. */
bool fl_captured_overlap(lua_State *L, int first, int count)
{
    for (int i = 0; i < count; i++) {
        const fl_box *a = fl_lua_box(L, first + i);
        for (int k = 0; k < i && a; k++) {
            const fl_box *b = fl_lua_box(L, first + k);
            if (b && fl_tensors_overlap(a->tensor, b->tensor)) return true;
        }
    }
    return false;
}

int fl_captured_shares(lua_State *L, const fl_captured_version *version, int first)
{
    fl_tensor *args[FL_CAPTURE_ARGS];
    int place[FL_CAPTURE_ARGS], n = 0;
    for (int i = 0; i < version->arg_count; i++) {
        if (version->args[i].kind == FL_ARG_CONSTANT) continue;
        place[n] = i + 1;
        args[n++] = version->args[i].kind == FL_ARG_TENSOR ? fl_lua_box(L, first + i)->tensor : NULL;
    }
    int shared = fl_program_shares(version->program, args);
    return shared < 0 ? 0 : place[shared];
}

int fl_captured_call_overlapping(lua_State *L, fl_captured *captured, int count)
{
    enum { FIRST = 2 };
    uint32_t before[FL_CAPTURE_ARGS];
    bool written = false;
    for (int i = 0; i < count; i++) {
        const fl_box *box = fl_lua_box(L, FIRST + i);
        before[i] = box ? box->tensor->storage->var.version : 0;
    }
    luaL_checkstack(L, count + 8, "capture");
    lua_getiuservalue(L, 1, FL_CAPTURED_FUNCTION);
    for (int i = 0; i < count; i++) lua_pushvalue(L, FIRST + i);
    lua_call(L, count, LUA_MULTRET);
    for (int i = 0; i < count; i++) {
        const fl_box *box = fl_lua_box(L, FIRST + i);
        written |= box && box->tensor->storage->var.version != before[i];
    }
    captured->reads_overlapping = !written;
    return lua_gettop(L) - FIRST - count + 1;
}

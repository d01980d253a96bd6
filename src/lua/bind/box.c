/*
** box.c -- tensors as Lua values: 16-byte userdata that own one reference.
**
** A box is recognised by its size and a magic number, which costs a third of luaL_checkudata. When Lua drops a box, the
** heap (heap.c) frees the tensor, or __gc in a state that is not ours.
*/
#include "errors.h"
#include "tensors.h"

static const char metatable_key;

void fl_lua_push_metatable(lua_State *L) { lua_rawgetp(L, LUA_REGISTRYINDEX, &metatable_key); }

static int box_gc(lua_State *L)
{
    fl_box *box = fl_lua_box(L, 1);
    if (!box) return 0;
    fl_tensor *t = box->tensor;
    box->tensor = NULL;
    fl_tensor_release(t); /* a program may close its state on any thread */
    return 0;
}

void fl_lua_open_box(lua_State *L)
{
    fl_heap_learn_box(L);
    lua_createtable(L, 0, 32);
    lua_pushliteral(L, "tensor");
    lua_setfield(L, -2, "__name");
    if (!fl_heap_frees_boxes_of(L)) {
        lua_pushcfunction(L, box_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &metatable_key);
}

/* An empty box on the stack, still without metatable. */
static inline fl_box *bare_box(lua_State *L)
{
    fl_box *box = lua_newuserdatauv(L, sizeof *box, 0);
    box->magic = FL_BOX_MAGIC;
    box->tensor = NULL;
    if (FL_LIKELY(fl_heap_frees_boxes) || fl_heap_frees_boxes_of(L)) fl_heap_mark_box(box);
    return box;
}

fl_box *fl_lua_new_box(lua_State *L)
{
    fl_lua_enter(L);
    fl_box *box = bare_box(L);
    fl_lua_push_metatable(L);
    lua_setmetatable(L, -2);
    return box;
}

fl_box *fl_lua_new_box_fast(lua_State *L)
{
    fl_box *box = bare_box(L);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_setmetatable(L, -2);
    return box;
}

void fl_lua_push_tensor(lua_State *L, fl_tensor *tensor)
{
    if (!tensor) {
        lua_pushnil(L);
        return;
    }
    fl_lua_new_box(L)->tensor = fl_tensor_ref(tensor);
}

fl_tensor *fl_lua_check_tensor(lua_State *L, int index, const char *who, const char *name)
{
    fl_tensor *t = fl_lua_to_tensor(L, index);
    if (t) return t;
    const char *given = fl_lua_type_name(L, index);
    const char *hint = index == 1 && !lua_isnil(L, 1) && strcmp(name, "x") == 0 ? fl_lua_push_colon(L, name, who) : "";
    FL_RAISE(L, "%s: %s must be a tensor, got %s%s", who, name, given, hint);
}

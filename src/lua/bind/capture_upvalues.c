/*
** capture_upvalues.c -- the local variables that a captured function reaches: their values are part of its key.
**
** Looked at are upvalues of the function and of the script's functions among them: numbers by their bits, all else by
** identity. Variables that the function itself has assigned while it was recorded are not looked at. Globals and fields
** of tables are not looked at either: it is unknown which of them the function reads.
**
** The list has, one function after the other: the function, the number of its upvalues, the value of each. Its length
** is at 0.
*/
#include "capture.h"
#include "errors.h"

static const char ignored; /* its address stands for what is not looked at */

struct list {
    lua_State *L;
    int index, seen, objects; /* seen: index of a table whose keys are the functions in the list */
    lua_Integer length;
};

static bool is_seen(const struct list *list, int function)
{
    lua_pushvalue(list->L, function);
    bool seen = lua_rawget(list->L, list->seen) != LUA_TNIL;
    lua_pop(list->L, 1);
    return seen;
}

static bool is_of_script(lua_State *L, int function)
{
    lua_Debug ar;
    if (!lua_isfunction(L, function) || lua_iscfunction(L, function)) return false;
    lua_pushvalue(L, function);
    lua_getinfo(L, ">S", &ar);
    return !fl_lua_is_own(&ar);
}

/* The value on top of the stack is one of the objects where it is a table with a metatable. */
static void note_object(const struct list *list)
{
    lua_State *L = list->L;
    if (!list->objects || !lua_istable(L, -1) || !lua_getmetatable(L, -1)) return;
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lua_pushboolean(L, true);
    lua_rawset(L, list->objects);
}

static int count_upvalues(lua_State *L, int function)
{
    lua_Debug ar;
    lua_pushvalue(L, function);
    lua_getinfo(L, ">u", &ar);
    return ar.nups;
}

static void note(struct list *list, int function)
{
    lua_State *L = list->L;
    luaL_checkstack(L, 8, "capture");
    if (!is_of_script(L, function) || is_seen(list, function)) return;
    const int count = count_upvalues(L, function);
    if (count == 0) return;
    lua_pushvalue(L, function);
    lua_pushboolean(L, true);
    lua_rawset(L, list->seen);
    lua_pushvalue(L, function);
    lua_rawseti(L, list->index, ++list->length);
    lua_pushinteger(L, count);
    lua_rawseti(L, list->index, ++list->length);
    const lua_Integer before = list->length;
    list->length += count;
    for (int n = 1; n <= count; n++) {
        const char *name = lua_getupvalue(L, function, n);
        note(list, lua_gettop(L));
        note_object(list);
        if (strcmp(name, "_ENV") == 0) {
            lua_pop(L, 1);
            lua_pushlightuserdata(L, (void *)&ignored);
        }
        lua_rawseti(L, list->index, before + n);
    }
}

static lua_Integer length_of(lua_State *L, int list)
{
    lua_rawgeti(L, list, 0);
    const lua_Integer length = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return length;
}

void fl_upvalues_note(lua_State *L, int list, int function, int objects)
{
    struct list l = {L, list, 0, objects, length_of(L, list)};
    lua_newtable(L);
    l.seen = lua_gettop(L);
    note(&l, function);
    lua_pop(L, 1);
    lua_pushinteger(L, l.length);
    lua_rawseti(L, list, 0);
}

/* Two values on top of the stack. */
static bool are_same(lua_State *L)
{
    if (lua_type(L, -1) != LUA_TNUMBER || lua_type(L, -2) != LUA_TNUMBER) return lua_rawequal(L, -1, -2);
    if (lua_isinteger(L, -1) != lua_isinteger(L, -2)) return false;
    if (lua_isinteger(L, -1)) return lua_tointeger(L, -1) == lua_tointeger(L, -2);
    const lua_Number a = lua_tonumber(L, -1), b = lua_tonumber(L, -2);
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool is_ignored(lua_State *L) { return lua_touserdata(L, -1) == (const void *)&ignored; }

/* at: place in the list of what an upvalue held. True if it holds that. */
static bool holds_same(lua_State *L, int list, lua_Integer at, int function, int n)
{
    lua_rawgeti(L, list, at);
    bool same = is_ignored(L);
    if (!same) {
        lua_getupvalue(L, function, n);
        same = are_same(L);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return same;
}

/* True if all variables have the recorded values. settles: those that do not are ignored from now on. */
static bool look(lua_State *L, int list, bool settles)
{
    const lua_Integer length = length_of(L, list);
    bool same = true;
    for (lua_Integer at = 1; at <= length && (same || settles);) {
        lua_rawgeti(L, list, at++);
        const int function = lua_gettop(L);
        lua_rawgeti(L, list, at++);
        const int count = (int)lua_tointeger(L, -1);
        lua_pop(L, 1);
        for (int n = 1; n <= count && (same || settles); n++, at++) {
            if (holds_same(L, list, at, function, n)) continue;
            same = false;
            if (!settles) break;
            lua_pushlightuserdata(L, (void *)&ignored);
            lua_rawseti(L, list, at);
        }
        lua_pop(L, 1);
    }
    return same;
}

void fl_upvalues_settle(lua_State *L, int list) { look(L, list, true); }

bool fl_upvalues_are_any(lua_State *L, int list) { return length_of(L, list) > 0; }

bool fl_upvalues_are_same(lua_State *L, int list) { return look(L, list, false); }

/*
** overloads.c -- names that mean one of several ops, which the arguments choose.
*/
#include "overloads.h"
#include "arguments.h"
#include "modules.h"
#include "op_call.h"
#include "tensors.h"

#include <string.h>

/* ---- functions that scripts call ---- */

/* Upvalues: the ops over everything, along an axis, and of two tensors. x:max(), x:max(axis, keepdim), x:max(y). For
** median there is no third. */
static int max_or_min(lua_State *L)
{
    int which = 2;
    fl_lua_refuse_colon(L);
    if (lua_gettop(L) < 2 || lua_isnil(L, 2)) {
        which = 1;
        lua_settop(L, 1);
    } else if (fl_lua_box(L, 2) && !lua_isnil(L, lua_upvalueindex(3))) which = 3;
    lua_pushvalue(L, lua_upvalueindex(which));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* flow.where(cond, x, y), or flow.where(cond): the positions of what is true, one result per axis. Upvalue: the op. */
static int where_or_positions(lua_State *L)
{
    fl_lua_refuse_colon(L);
    bool positions = lua_gettop(L) == 1 && fl_lua_box(L, 1);
    if (positions) {
        fl_lua_push_module(L, "shaping");
        lua_getfield(L, -1, "positions");
        lua_remove(L, -2);
    } else lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* x:where(cond, y): x where cond is true, y elsewhere. Upvalue: the op. */
static int tensor_where(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_settop(L, 4);
    lua_pushvalue(L, 3); /* cond is first */
    lua_remove(L, 3);
    lua_insert(L, 2);
    lua_call(L, 3, 1);
    return 1;
}

/* nonzero(x), or nonzero(x, {as_tuple = true}): the positions, one result per axis. Upvalue: the op. */
static int nonzero_or_positions(lua_State *L)
{
    fl_lua_refuse_colon(L);
    int given = lua_gettop(L);
    if (given == 2 && fl_lua_box(L, 1) && (lua_istable(L, 2) || lua_isboolean(L, 2))) {
        fl_lua_push_module(L, "shaping");
        lua_getfield(L, -1, "nonzero");
        lua_remove(L, -2);
    } else lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, given, LUA_MULTRET);
    return lua_gettop(L);
}

/* Puts 0 as the lower bound at index and calls the op, the upvalue. */
static int call_from(lua_State *L, int index, bool from_0)
{
    if (from_0) {
        lua_pushinteger(L, 0);
        lua_insert(L, index);
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* randint(low, high, size), randint(high, size) */
static int randint(lua_State *L)
{
    fl_lua_refuse_colon(L);
    bool is_size = lua_gettop(L) >= 2 && lua_isnumber(L, 1) && lua_istable(L, 2) && !lua_getmetatable(L, 2);
    if (is_size && lua_rawlen(L, 2) == 0) {
        lua_pushnil(L);
        is_size = lua_next(L, 2) == 0; /* else it names arguments */
        if (!is_size) lua_pop(L, 2);
    }
    return call_from(L, 1, is_size);
}

/* randint_like(x, low, high), randint_like(x, high) */
static int randint_like(lua_State *L)
{
    fl_lua_refuse_colon(L);
    int given = lua_gettop(L);
    bool is_high = given >= 2 && given <= 3 && lua_isnumber(L, 2) && (given == 2 || lua_istable(L, 3));
    if (is_high && given == 3) {
        lua_pushliteral(L, "high");
        is_high = lua_rawget(L, 3) == LUA_TNIL; /* a module, which is no table of options, may refuse the name */
        lua_pop(L, 1);
    }
    return call_from(L, 2, is_high);
}

/* ---- their names ---- */

enum { OPS = 3 };

static const struct overload {
    const char *name;
    lua_CFunction function, method; /* NULL: it is no method */
    const char *ops[OPS];           /* upvalues */
} overloads[] = {
    {"max", max_or_min, max_or_min, {"max_all", "max_axis", "maximum"}},
    {"min", max_or_min, max_or_min, {"min_all", "min_axis", "minimum"}},
    {"median", max_or_min, max_or_min, {"median_all", "median_axis"}},
    {"nanmedian", max_or_min, max_or_min, {"nanmedian_all", "nanmedian_axis"}},
    {"where", where_or_positions, tensor_where, {"where"}},
    {"nonzero", nonzero_or_positions, nonzero_or_positions, {"nonzero"}},
    {"randint", randint, NULL, {"randint"}},
    {"randint_like", randint_like, NULL, {"randint_like"}},
};
enum { OVERLOADS = sizeof overloads / sizeof *overloads };

const char *fl_lua_overload_name(int i) { return i < OVERLOADS ? overloads[i].name : NULL; }
bool fl_lua_overload_has(int i, bool method) { return !method || overloads[i].method; }

bool fl_lua_is_overload(const char *name)
{
    for (int i = 0; i < OVERLOADS; i++)
        if (strcmp(overloads[i].name, name) == 0) return true;
    return false;
}

const char *fl_lua_overload_of(const fl_op *op)
{
    if (!(op->flags & FL_OP_HIDDEN)) return NULL;
    for (int i = 0; i < OVERLOADS; i++)
        for (int k = 0; k < OPS && overloads[i].ops[k]; k++)
            if (strcmp(overloads[i].ops[k], op->name) == 0) return overloads[i].name;
    return NULL;
}

/* Of functions that are methods as well there is one, which the registry keeps. */
static void push(lua_State *L, const struct overload *overload, lua_CFunction function)
{
    const void *key = function == overload->function ? &overload->function : &overload->method;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, key) != LUA_TNIL) return;
    lua_pop(L, 1);
    for (int i = 0; i < OPS; i++) {
        if (overload->ops[i]) fl_lua_push_function_of(L, overload->ops[i]);
        else lua_pushnil(L);
    }
    lua_pushcclosure(L, function, OPS);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

bool fl_lua_push_overload(lua_State *L, const char *name, bool method)
{
    for (int i = 0; i < OVERLOADS; i++) {
        if (strcmp(overloads[i].name, name) != 0 || !fl_lua_overload_has(i, method)) continue;
        push(L, &overloads[i], method ? overloads[i].method : overloads[i].function);
        return true;
    }
    return false;
}

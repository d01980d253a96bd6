/*
** error.c -- the one place that raises, and the words for wrong calls.
*/
#include "errors.h"
#include "modules.h"
#include "state.h"
#include "tensors.h"

#include <string.h>

/* Pushes the name under which the table at `index` holds the value at `value`; false, and nothing pushed: it does
** not. */
static bool push_name_in(lua_State *L, int index, int value)
{
    lua_pushnil(L);
    while (lua_next(L, index)) {
        bool found = lua_type(L, -2) == LUA_TSTRING && lua_rawequal(L, -1, value);
        lua_pop(L, 1);
        if (found) return true;
    }
    return false;
}

/* flow:ones(3) for flow.ones(3), flow.sbp:split(0): words the error for a function of ours that got the table that
** holds it as its first argument; false: it did not. Of a callable table (flow:placement(...)) that is its second
** one. */
static bool word_colon(lua_State *L)
{
    bool worded = false;
    lua_Debug ar;
    int top = lua_gettop(L), value = top + 2, table = lua_istable(L, 1) ? 1 : 0;
    if (!table || !lua_checkstack(L, 8) || !lua_getstack(L, 0, &ar) || !fl_lua_push_flow(L)) return false;
    lua_getinfo(L, "nf", &ar);
    bool method = strcmp(ar.namewhat, "method") == 0 || *ar.namewhat == 0;
    bool of_flow = lua_rawequal(L, 1, top + 1);
    if (lua_rawequal(L, 2, top + 1) && top >= 2) {
        table = 2, of_flow = true;
        lua_pushvalue(L, 1);
        value = lua_gettop(L);
    }
    if (method && push_name_in(L, table, value)) {
        const char *name = *ar.namewhat ? ar.name : lua_tostring(L, -1),
                   *owner = NULL; /* one function may have two names */
        if (!of_flow && push_name_in(L, top + 1, 1)) owner = lua_tostring(L, -1);
        worded = of_flow || owner;
        if (worded)
            fl_fail(FL_ERR_VALUE, "flow.%s%s%s is a function: write flow.%s%s%s(...), with a dot", owner ? owner : "",
                    owner ? "." : "", name, owner ? owner : "", owner ? "." : "", name);
    }
    lua_settop(L, top);
    return worded;
}

void fl_lua_refuse_colon(lua_State *L)
{
    if (lua_istable(L, 1) && word_colon(L)) fl_lua_error(L, FL_ERR_VALUE);
}

/* ---- the function that the script called ---- */

static const char names_key; /* registry: functions of ours that are written in Lua -> what messages call them; weak */

void fl_lua_push_names(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &names_key) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &names_key);
}

/* True for the frame of a pcall in one of our modules, which words what it catches itself. */
static bool is_caught(lua_State *L, lua_Debug *ar, int level)
{
    lua_Debug caller;
    lua_getinfo(L, "n", ar);
    return *ar->what == 'C' && ar->name && strcmp(ar->name, "pcall") == 0 && lua_getstack(L, level + 1, &caller)
        && lua_getinfo(L, "S", &caller) && fl_lua_is_own(&caller);
}

const char *fl_lua_push_called(lua_State *L)
{
    lua_Debug ar;
    fl_lua_push_names(L);
    int names = lua_gettop(L);
    lua_pushliteral(L, ""); /* the innermost */
    lua_pushliteral(L, ""); /* the outermost */
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Slf", &ar);
        if (lua_rawget(L, names) == LUA_TSTRING) {
            if (*lua_tostring(L, names + 1) == 0) lua_copy(L, -1, names + 1);
            lua_replace(L, names + 2);
        } else lua_pop(L, 1);
        if (ar.currentline > 0 && !fl_lua_is_own(&ar)) break;
        if (!is_caught(L, &ar, level)) continue;
        lua_pushliteral(L, "");
        lua_replace(L, names + 2);
        break;
    }
    return lua_tostring(L, names + 2);
}

/* True if the message names `who`, as "who: ..." or "who (a.lua:3): ...", or an op that was queued before. */
static bool is_named(const char *message, const char *who)
{
    size_t n = strlen(who), word = strspn(message, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (strncmp(message + word, " (", 2) == 0) return true;
    for (const char *p = message; (p = strstr(p, who)); p += n)
        if ((p == message || p[-1] == ' ') && (p[n] == ':' || strncmp(p + n, " (", 2) == 0)) return true;
    return false;
}

/* The last message begins with the function that the script called: an op's error names the op alone. */
static void name_called(lua_State *L, fl_status status)
{
    bool of_the_call = status == FL_ERR_SHAPE || status == FL_ERR_DTYPE || status == FL_ERR_VALUE
        || status == FL_ERR_SBP || status == FL_ERR_STATE || status == FL_ERR_MISSING;
    int top = lua_gettop(L);
    if (!of_the_call || !lua_checkstack(L, 6)) return;
    const char *who = fl_lua_push_called(L);
    if (*who && !is_named(fl_message(), who)) fl_fail_prefix(status, "%s: ", who);
    lua_settop(L, top);
}

__attribute__((noreturn)) int fl_lua_error(lua_State *L, fl_status status)
{
    lua_Debug ar;
    fl_lua_enter(L);
    if (status == FL_ERR_INTERRUPTED) fl_lua_interrupt_raised();
    if (status == FL_ERR_VALUE) word_colon(L);
    if (fl_recompute_complete()) { /* ends a function that runs again: an error without a text, never shown */
        lua_pushlightuserdata(L, NULL);
        lua_error(L);
    }
    if (fl_lua_push_caught(L)) lua_error(L);
    name_called(L, status);
    if (fl_lua_find_line(L, &ar) && !fl_lua_is_own(&ar))
        lua_pushfstring(L, "%s:%d: %s", ar.short_src, ar.currentline, fl_message());
    else lua_pushstring(L, fl_message());
    lua_error(L);
    __builtin_unreachable();
}

__attribute__((noreturn)) int fl_lua_error_of(lua_State *L, fl_status status, const char *who)
{
    if (status == FL_ERR_MISSING && !is_named(fl_message(), who)) fl_fail_prefix(status, "%s: ", who);
    fl_lua_error(L, status);
}

const char *fl_lua_type_name(lua_State *L, int index)
{
    if (fl_lua_box(L, index)) return "tensor";
    if (lua_type(L, index) == LUA_TNONE) return "nothing";
    if (lua_type(L, index) == LUA_TNUMBER && lua_tonumber(L, index) != lua_tonumber(L, index)) return "nan";
    if (lua_istable(L, index) && luaL_getmetafield(L, index, "__name") != LUA_TNIL) { /* an object's class */
        const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "table";
        lua_pop(L, 1); /* the class keeps the string */
        return name;
    }
    return luaL_typename(L, index);
}

const char *fl_lua_push_colon(lua_State *L, const char *object, const char *method)
{
    lua_Debug ar;
    bool field = lua_getstack(L, 0, &ar) && lua_getinfo(L, "n", &ar) && strcmp(ar.namewhat, "field") == 0;
    return field ? lua_pushfstring(L, "; a method is called with a colon: %s:%s()", object, method)
                 : lua_pushliteral(L, "");
}

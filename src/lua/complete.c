/*
** complete.c -- what Tab offers: names of globals, fields of tables, methods and fields of values.
**
** The word before the cursor is a chain like flow.nn.Lin or x:mat. The chain is followed without calling
** user code (raw reads, and __index tables); only the modules of flow are loaded when their fields are asked for.
*/
#include "binding.h"

#include <ctype.h>

static bool is_name_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Where the chain that ends at `end` begins. */
static size_t chain_start(const char *line, size_t end)
{
    size_t i = end;
    while (i > 0 && (is_name_char(line[i - 1]) || line[i - 1] == '.' || line[i - 1] == ':')) i--;
    return i;
}

static bool is_flow(lua_State *L, int index)
{
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "flow");
    bool same = lua_rawequal(L, -1, index);
    lua_pop(L, 2);
    return same;
}

/* Pushes the table in which fields of the value at index are looked up next: its __index table. */
static bool push_index_table(lua_State *L, int index)
{
    if (!luaL_getmetafield(L, index, "__index")) return false;
    if (lua_istable(L, -1)) return true;
    lua_pop(L, 1);
    if (!fl_lua_box(L, index)) return false;
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "flow");
    lua_getfield(L, -1, "_methods");
    lua_replace(L, -3);
    lua_pop(L, 1);
    return true;
}

/* Replaces the value on top by its field `name` (length n); nil when it has none that can be read safely. */
static void follow(lua_State *L, const char *name, size_t n)
{
    lua_pushlstring(L, name, n);
    if (is_flow(L, lua_absindex(L, -2))) {
        if (lua_getfield(L, -2, "_source") != LUA_TFUNCTION) lua_pop(L, 1);
        else {
            lua_pushvalue(L, -2);
            lua_call(L, 1, 1);
            bool module = !lua_isnil(L, -1);
            lua_pop(L, 1);
            if (module) {
                lua_gettable(L, -2);
                lua_remove(L, -2);
                return;
            }
        }
    }
    for (int depth = 0; depth < 8; depth++) {
        if (lua_istable(L, -2)) {
            lua_pushvalue(L, -1);
            if (lua_rawget(L, -3) != LUA_TNIL) {
                lua_replace(L, -3);
                lua_pop(L, 1);
                return;
            }
            lua_pop(L, 1);
        }
        if (!push_index_table(L, lua_absindex(L, -2))) break;
        lua_replace(L, -3);
    }
    lua_pop(L, 2);
    lua_pushnil(L);
}

/* ---- candidates ---- */

typedef struct offer {
    const char *prefix;         /* what is typed of the last name */
    size_t length;
    const char *before;         /* chain in front of it, with its separator */
    size_t before_length;
    bool methods;               /* after ':' */
    int names;                  /* stack index of the set of names */
} offer;

static void offer_name(lua_State *L, const offer *o, const char *name)
{
    if (strncmp(name, o->prefix, o->length) != 0 || (name[0] == '_' && o->length == 0)) return;
    for (const char *p = name; *p; p++)
        if (!is_name_char(*p)) return;
    lua_pushlstring(L, o->before, o->before_length);
    lua_pushstring(L, name);
    lua_concat(L, 2);
    lua_pushboolean(L, 1);
    lua_rawset(L, o->names);
}

/* Names in the table on top of the stack. */
static void offer_table(lua_State *L, const offer *o)
{
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        bool fits = !o->methods || lua_isfunction(L, -1);
        lua_pop(L, 1);
        if (fits && lua_type(L, -1) == LUA_TSTRING) offer_name(L, o, lua_tostring(L, -1));
    }
    if (!o->methods && luaL_getmetafield(L, -1, "__names") == LUA_TTABLE) { /* loaded at first use */
        for (int i = 1; lua_rawgeti(L, -1, i) == LUA_TSTRING; i++) {
            offer_name(L, o, lua_tostring(L, -1));
            lua_pop(L, 1);
        }
        lua_pop(L, 2);
    }
}

/* Names in the value on top of the stack, and in what it inherits from. */
static void offer_fields(lua_State *L, const offer *o)
{
    for (int depth = 0; depth < 8; depth++) {
        if (lua_istable(L, -1)) offer_table(L, o);
        if (!push_index_table(L, lua_absindex(L, -1))) return;
        lua_replace(L, -2);
    }
}

static void offer_keywords(lua_State *L, const offer *o)
{
    static const char *const words[] = {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
                                        "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) offer_name(L, o, words[i]);
}

/* Sorted list of the keys of the set at index. */
static void push_sorted(lua_State *L, int index)
{
    int n = 0;
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        int at = ++n;
        for (; at > 1; at--) { /* insertion: the lists are short */
            lua_rawgeti(L, -2, at - 1);
            bool after = strcmp(lua_tostring(L, -1), lua_tostring(L, -2)) < 0;
            if (after) {
                lua_pop(L, 1);
                break;
            }
            lua_rawseti(L, -3, at);
        }
        lua_pushvalue(L, -1);
        lua_rawseti(L, -3, at);
    }
}

size_t fl_lua_complete(lua_State *L, const char *line, size_t end)
{
    size_t start = chain_start(line, end), at = start;
    luaL_checkstack(L, 20, "completion");
    lua_newtable(L);
    offer o = {.names = lua_gettop(L)};
    lua_pushglobaltable(L);
    for (size_t i = start; i < end; i++) {
        if (line[i] != '.' && line[i] != ':') continue;
        follow(L, line + at, i - at);
        o.methods = line[i] == ':';
        at = i + 1;
    }
    o.prefix = lua_pushlstring(L, line + at, end - at);
    lua_insert(L, -2);
    o.length = end - at;
    o.before = line + start;
    o.before_length = at - start;
    offer_fields(L, &o);
    if (at == start) offer_keywords(L, &o);
    push_sorted(L, o.names);
    lua_replace(L, o.names);
    lua_settop(L, o.names);
    return start;
}

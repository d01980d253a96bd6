/*
** read.c -- reading values from Lua: whole numbers, lists, paths, dtypes, devices, and the keys of a table.
*/
#include "arguments.h"
#include "tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The text for a value that is no whole number: "2.5", "nan", "string", "2^63 or more". */
static const char *describe(lua_State *L, int index)
{
    double number = lua_tonumber(L, index);
    if (lua_type(L, index) != LUA_TNUMBER || number != number) return fl_lua_type_name(L, index);
    if (isfinite(number) && fabs(number) >= 0x1p63) return number > 0 ? "2^63 or more" : "less than -2^63";
    return lua_pushfstring(L, "%f", number);
}

int64_t fl_lua_check_integer(lua_State *L, int index, const char *who, const char *name)
{
    int exact = 0;
    lua_Integer value = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &exact) : 0;
    if (!exact) FL_RAISE(L, "%s: %s must be a whole number, got %s", who, name, describe(L, index));
    return value;
}

const char *fl_lua_check_path(lua_State *L, int index, const char *who)
{
    if (lua_type(L, index) != LUA_TSTRING) FL_RAISE(L, "%s: takes a path, got %s", who, fl_lua_type_name(L, index));
    size_t length;
    const char *path = lua_tolstring(L, index, &length);
    if (length == 0) FL_RAISE(L, "%s: the path is empty", who);
    if (strlen(path) != length)
        FL_RAISE(L, "%s: the path '%s' continues after a NUL; a path cannot contain one", who, path);
    return path;
}

#define DTYPE_NAMES "bool, uint8, int8, int32, int64, float16, bfloat16, float32 and float64"

fl_dtype fl_lua_check_dtype(lua_State *L, int index, const char *who)
{
    if (lua_type(L, index) != LUA_TSTRING)
        FL_RAISE(L, "%s: dtype must be a string, got %s", who, fl_lua_type_name(L, index));
    const char *word = lua_tostring(L, index);
    fl_dtype dtype = fl_dtype_parse(word);
    if (dtype != FL_DTYPE_COUNT) return dtype;
    fl_suggestion s = {.word = word};
    for (int d = 0; d < FL_DTYPE_COUNT; d++) fl_suggest_offer(&s, fl_dtype_name((fl_dtype)d));
    char hint[FL_SUGGEST_TEXT];
    FL_RAISE(L, "%s: unknown dtype '%s'%s", who, word, s.best ? fl_suggest_text(hint, &s) : "; there are " DTYPE_NAMES);
}

/* "cpu", "cuda:1" or "meta"; false when it is no device. */
static bool parse_device(const char *text, fl_device_type *type, int *number)
{
    *number = -1;
    *type = FL_CPU;
    if (strcmp(text, "cpu") == 0) return true;
    *type = FL_META;
    if (strcmp(text, "meta") == 0) return true;
    *type = FL_CUDA;
    if (strcmp(text, "cuda") == 0) return true;
    if (strncmp(text, "cuda:", 5) != 0 || text[5] < '0' || text[5] > '9') return false;
    char *end;
    long value = strtol(text + 5, &end, 10);
    *number = (int)value;
    return *end == 0 && value < 64;
}

bool fl_lua_names_device(const char *word)
{
    for (int type = 0; type < FL_DEVICE_TYPES; type++) {
        const char *name = fl_device_type_name((fl_device_type)type);
        if (strncmp(word, name, strlen(name)) == 0) return true;
    }
    return false;
}

const fl_placement *fl_lua_check_device(lua_State *L, int index, const char *who)
{
    fl_device_type type;
    int number;
    if (lua_type(L, index) != LUA_TSTRING)
        FL_RAISE(L, "%s: device must be a string, got %s", who, fl_lua_type_name(L, index));
    if (!parse_device(lua_tostring(L, index), &type, &number))
        FL_RAISE(L, "%s: unknown device '%s'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"", who,
                 lua_tostring(L, index));
    return fl_placement_local(type, number);
}

int fl_lua_check_priority(lua_State *L, int index, const char *who)
{
    int whole;
    if (lua_isnil(L, index)) return 0;
    lua_Integer priority = lua_tointegerx(L, index, &whole);
    if (!whole || lua_type(L, index) != LUA_TNUMBER || !fl_priority_is(priority))
        fl_lua_error(L,
                     fl_priority_fail(who,
                                      lua_type(L, index) == LUA_TSTRING
                                          ? lua_pushfstring(L, "\"%s\"", lua_tostring(L, index))
                                          : luaL_tolstring(L, index, NULL)));
    return (int)priority;
}

int fl_lua_check_list(lua_State *L, int index, int64_t *out, int limit, const char *who, const char *name)
{
    if (!lua_istable(L, index))
        FL_RAISE(L, "%s: %s must be a list of whole numbers, got %s", who, name, fl_lua_type_name(L, index));
    lua_Unsigned count = lua_rawlen(L, index);
    if (count > (lua_Unsigned)limit)
        FL_RAISE(L, "%s: %s holds at most %d numbers, got %llu", who, name, limit, (unsigned long long)count);
    index = lua_absindex(L, index);
    for (int i = 0; i < (int)count; i++) {
        int exact = 0;
        int type = lua_rawgeti(L, index, i + 1);
        out[i] = type == LUA_TNUMBER ? lua_tointegerx(L, -1, &exact) : 0;
        if (!exact) FL_RAISE(L, "%s: %s must hold whole numbers, number %d is %s", who, name, i + 1, describe(L, -1));
        lua_pop(L, 1);
    }
    lua_pushnil(L);
    while (lua_next(L, index)) {
        if (lua_type(L, -2) == LUA_TSTRING)
            FL_RAISE(L, "%s: %s is a list, but has the key '%s'; put options in a separate table", who, name,
                     lua_tostring(L, -2));
        if (lua_type(L, -2) != LUA_TNUMBER) /* of a module, whose keys are tables */
            FL_RAISE(L, "%s: %s must be a list of whole numbers, got %s", who, name, fl_lua_type_name(L, index));
        lua_pop(L, 1);
    }
    return (int)count;
}

bool fl_lua_flag(lua_State *L, int index, const char *name)
{
    lua_getfield(L, index, name);
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

bool fl_lua_is_callable(lua_State *L, int index)
{
    if (lua_type(L, index) == LUA_TFUNCTION) return true;
    if (fl_lua_to_tensor(L, index)) return false;
    if (luaL_getmetafield(L, index, "__call") == LUA_TNIL) return false;
    lua_pop(L, 1);
    return true;
}

const char *fl_lua_stray_key(lua_State *L, int index)
{
    index = lua_absindex(L, index);
    lua_Integer n = (lua_Integer)lua_rawlen(L, index);
    const char *key = NULL;
    if (n > 0) lua_pushinteger(L, n); /* the keys of the list part come first */
    else lua_pushnil(L);
    while (!key && lua_next(L, index)) {
        if (lua_type(L, -2) == LUA_TSTRING) key = lua_tostring(L, -2);
        lua_pop(L, 1);
    }
    if (key) lua_pop(L, 1); /* the table keeps the string */
    return key;
}

void fl_lua_check_count(lua_State *L, int most, const char *who, const char *usage)
{
    fl_lua_enter(L);
    int top = lua_gettop(L);
    while (top > most && lua_isnil(L, top)) top--;
    if (FL_UNLIKELY(top > most)) FL_RAISE(L, "%s: too many arguments: %s", who, usage);
}

/* The position of the key among the names, -1 when it is none of them. */
static int position_of(const char *key, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (names[i][0] == key[0] && strcmp(names[i], key) == 0) return i;
    return -1;
}

static void raise_unknown(lua_State *L, const char *who, const char *key, const char *const *names)
{
    char hint[FL_SUGGEST_TEXT];
    fl_suggestion s = {.word = key};
    for (; *names; names++) fl_suggest_offer(&s, *names);
    FL_RAISE(L, "%s: unknown option '%s'%s", who, key, fl_suggest_text(hint, &s));
}

/* "{seed =, counter =}" */
static const char *push_keys(lua_State *L, const char *const *names)
{
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (int i = 0; names[i]; i++) {
        luaL_addstring(&b, i ? ", " : "{");
        luaL_addstring(&b, names[i]);
        luaL_addstring(&b, " =");
    }
    luaL_addchar(&b, '}');
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

/* The position of the option whose name and value are on top of the stack. */
static int check_key(lua_State *L, const char *who, const char *const *names)
{
    if (lua_type(L, -2) != LUA_TSTRING)
        FL_RAISE(L, "%s: options must have names, got a key of type %s", who, luaL_typename(L, -2));
    const char *key = lua_tostring(L, -2);
    int i = position_of(key, names);
    if (i < 0) raise_unknown(L, who, key, names);
    return i;
}

static void check_table(lua_State *L, int index, const char *who, const char *const *names)
{
    if (lua_istable(L, index)) return;
    const char *got = fl_lua_type_name(L, index);
    FL_RAISE(L, "%s: takes %s, got %s", who, push_keys(L, names), got);
}

void fl_lua_check_keys(lua_State *L, int index, const char *who, const char *const *names)
{
    index = lua_absindex(L, index);
    check_table(L, index, who, names);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        check_key(L, who, names);
        lua_pop(L, 1);
    }
}

void fl_lua_push_options(lua_State *L, int index, const char *who, const char *const *names)
{
    index = lua_absindex(L, index);
    check_table(L, index, who, names);
    int first = lua_gettop(L) + 1, count = 0;
    while (names[count]) count++;
    lua_settop(L, first + count - 1);
    lua_pushnil(L);
    while (lua_next(L, index)) lua_replace(L, first + check_key(L, who, names));
}

/*
** worker.c -- Lua states beside the script's: plain values and functions on their way there (worker.h).
*/
#include "worker.h"
#include "arguments.h"
#include "array.h"

#include <lualib.h>
#include <string.h>

/* ---- plain values ---- */

bool fl_lua_is_plain(lua_State *L, int index)
{
    int type = lua_type(L, index);
    return type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING;
}

size_t fl_pack_size(lua_State *L, int first, int count)
{
    size_t size = sizeof(fl_pack) + sizeof(fl_plain) * (size_t)count;
    for (int i = first; i < first + count; i++)
        if (lua_type(L, i) == LUA_TSTRING) size += lua_rawlen(L, i);
    return size;
}

void fl_pack_fill(fl_pack *pack, lua_State *L, int first, int count)
{
    size_t at = 0;
    pack->count = count;
    for (int i = 0; i < count; i++) {
        fl_plain *v = &pack->values[i];
        v->type = lua_type(L, first + i);
        v->whole = lua_isinteger(L, first + i);
        if (v->type == LUA_TBOOLEAN) v->integer = lua_toboolean(L, first + i);
        else if (v->whole) v->integer = lua_tointeger(L, first + i);
        else if (v->type == LUA_TNUMBER) v->number = lua_tonumber(L, first + i);
        else if (v->type == LUA_TSTRING) {
            const char *text = lua_tolstring(L, first + i, &v->text.size);
            v->text.at = at;
            memcpy(fl_pack_texts(pack) + at, text, v->text.size);
            at += v->text.size;
        }
    }
    pack->bytes = at;
}

void fl_pack_push(lua_State *L, const fl_pack *pack)
{
    luaL_checkstack(L, pack->count + 4, "too many values");
    for (int i = 0; i < pack->count; i++) {
        const fl_plain *v = &pack->values[i];
        if (v->type == LUA_TBOOLEAN) lua_pushboolean(L, v->integer != 0);
        else if (v->type == LUA_TSTRING) lua_pushlstring(L, fl_pack_texts(pack) + v->text.at, v->text.size);
        else if (v->type == LUA_TNIL) lua_pushnil(L);
        else if (v->whole) lua_pushinteger(L, v->integer);
        else lua_pushnumber(L, v->number);
    }
}

int fl_lua_push_arguments(lua_State *L, int index, const char *who, const char *advice)
{
    int first = lua_gettop(L) + 1, list = lua_absindex(L, index);
    luaL_checkstack(L, FL_MOST_VALUES + 8, who);
    if (lua_getglobal(L, LUA_LOADLIBNAME) == LUA_TTABLE) lua_getfield(L, -1, "path");
    else lua_pushnil(L);
    lua_remove(L, first);
    if (lua_type(L, first) != LUA_TSTRING) {
        lua_settop(L, first - 1);
        lua_pushliteral(L, LUA_PATH_DEFAULT);
    }
    if (lua_isnil(L, list)) return 1;
    if (!lua_istable(L, list)) FL_RAISE(L, "%s: args must be a list, got %s", who, fl_lua_type_name(L, list));
    int count = (int)lua_rawlen(L, list);
    if (count >= FL_MOST_VALUES) FL_RAISE(L, "%s: at most %d args, got %d", who, FL_MOST_VALUES - 1, count);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, list, i);
        if (!fl_lua_is_plain(L, -1))
            FL_RAISE(L, "%s: entry %d of args is a %s; args are numbers, strings and booleans%s", who, i,
                     fl_lua_type_name(L, -1), advice);
    }
    return count + 1;
}

/* ---- functions ---- */

/* Bytecode that is dumped. The function stays below the buffer, which must be on top of the stack. */
struct dump {
    bool begun;
    luaL_Buffer buffer;
};

static int append(lua_State *L, const void *bytes, size_t size, void *context)
{
    struct dump *dump = context;
    if (!dump->begun) luaL_buffinit(L, &dump->buffer);
    dump->begun = true;
    luaL_addlstring(&dump->buffer, bytes, size);
    return 0;
}

void fl_lua_push_code(lua_State *L, int index, const char *who, const char *name, const char *advice)
{
    index = lua_absindex(L, index);
    if (lua_type(L, index) == LUA_TSTRING) {
        if (*lua_tostring(L, index) == LUA_SIGNATURE[0])
            FL_RAISE(L, "%s: %s is a text or a function, got bytecode", who, name);
        lua_pushvalue(L, index);
        return;
    }
    if (lua_type(L, index) != LUA_TFUNCTION || lua_iscfunction(L, index))
        FL_RAISE(L, "%s: %s must be a Lua function or the text of one, got %s", who, name,
                 lua_isfunction(L, index) ? "a function of C" : fl_lua_type_name(L, index));
    for (int i = 1; lua_getupvalue(L, index, i); i++) {
        const char *variable = lua_getupvalue(L, index, i);
        lua_pop(L, 2);
        if (strcmp(variable, "_ENV") != 0)
            FL_RAISE(L, "%s: %s uses the local variable '%s' of the code around it, which stays behind; %s", who, name,
                     variable, advice);
    }
    struct dump dump = {false};
    lua_pushvalue(L, index);
    lua_dump(L, append, &dump, 0);
    luaL_pushresult(&dump.buffer);
    lua_remove(L, -2);
}

void fl_lua_load_code(lua_State *L, const char *code, size_t size, const char *chunk)
{
    if (luaL_loadbufferx(L, code, size, chunk, *code == LUA_SIGNATURE[0] ? "b" : "t") != LUA_OK) lua_error(L);
}

/* ---- a new state ---- */

/* upvalue: the owner's name, as in both */
static int refuse_flow(lua_State *L)
{
    return luaL_error(L,
                      "flow cannot be required here: a function of %s runs beside it, and sees its tensors "
                      "as arrays",
                      lua_tostring(L, lua_upvalueindex(1)));
}

static int refuse_exit(lua_State *L)
{
    return luaL_error(L, "os.exit: a function of %s cannot end the process", lua_tostring(L, lua_upvalueindex(1)));
}

/* While libc's system() runs, the whole process ignores SIGINT. */
static int refuse_execute(lua_State *L)
{
    return luaL_error(L,
                      "os.execute: a function of %s cannot run it, as Ctrl-C would be lost meanwhile; run the command "
                      "before, or with io.popen(command):close()",
                      lua_tostring(L, lua_upvalueindex(1)));
}

int fl_lua_open_worker(lua_State *L)
{
    static const luaL_Reg refused[] = {{"exit", refuse_exit}, {"execute", refuse_execute}, {NULL, NULL}};
    const char *owner = lua_touserdata(L, 1);
    luaL_openlibs(L);
    lua_getglobal(L, LUA_OSLIBNAME);
    lua_pushstring(L, owner);
    luaL_setfuncs(L, refused, 1);
    fl_lua_open_arrays(L);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushstring(L, owner);
    lua_pushcclosure(L, refuse_flow, 1);
    lua_setfield(L, -2, "flow");
    return 0;
}

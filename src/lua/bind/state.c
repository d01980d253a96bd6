/*
** state.c -- the Lua state of the program: its allocator, warnings, calls of user code, what Ctrl-C stops.
*/
#include "core/process.h"
#include "errors.h"
#include "state.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static int free_text(lua_State *L)
{
    char **text = lua_touserdata(L, 1);
    free(*text);
    *text = NULL;
    return 0;
}

char **fl_lua_new_text(lua_State *L)
{
    char **text = lua_newuserdatauv(L, sizeof *text, 0);
    *text = NULL;
    if (luaL_newmetatable(L, "flow.text")) {
        lua_pushcfunction(L, free_text);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return text;
}

/* ---- calls ---- */

/* The line that must come before a use of these names. Lua's own message about them ends with (global 'name'). */
static const char *const requires[][2] = {
    {"flow", "local flow = require \"flow\""},
    {"torch", "local flow = require \"flow\""},
    {"nn", "local nn = require \"flow.nn\""},
    {"optim", "local optim = require \"flow.optim\""},
};

/* The message, pushed; with the line to write if one of ours was used without require. */
static const char *with_hint(lua_State *L, const char *message)
{
    const char *name = strstr(message, "attempt to index a nil value (global '");
    if (name) {
        name = strchr(name, '\'') + 1;
        for (size_t i = 0; i < sizeof requires / sizeof *requires; i++) {
            size_t length = strlen(requires[i][0]);
            if (strncmp(name, requires[i][0], length) == 0 && strcmp(name + length, "')") == 0)
                return lua_pushfstring(L, "%s; write first: %s", message, requires[i][1]);
        }
    }
    return lua_pushstring(L, message);
}

/* Adds the traceback to a message; an error object that has a text gives only that. */
static int traceback(lua_State *L)
{
    const char *message = lua_tostring(L, 1);
    if (message) message = with_hint(L, message);
    else {
        if (luaL_callmeta(L, 1, "__tostring") && lua_type(L, -1) == LUA_TSTRING) return 1;
        message = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
    }
    if (fl_lua_in_script(L)) luaL_traceback(L, L, message, 1); /* not of the session, printing a value */
    return 1;
}

int fl_lua_protected_call(lua_State *L, int nargs, int nresults)
{
    int base = lua_gettop(L) - nargs;
    lua_pushcfunction(L, traceback);
    lua_insert(L, base);
    fl_lua_interrupt_begin(L);
    int status = lua_pcall(L, nargs, nresults, base);
    fl_lua_interrupt_disarm();
    lua_remove(L, base);
    return status;
}

/* ---- making and closing ---- */

static int panic(lua_State *L)
{
    const char *message = lua_tostring(L, -1);
    lua_writestringerror("PANIC: unprotected error in call to Lua API (%s)\n",
                         message ? message : "error object is not a string");
    return 0;
}

/* Warnings of `warn`, switched by "@on" and "@off" as in lua.c. */
static bool warnings_on;
static void warn(void *context, const char *message, int to_continue)
{
    static bool continuing;
    if (!continuing && !to_continue && *message == '@') {
        if (strcmp(message, "@off") == 0) warnings_on = false;
        else if (strcmp(message, "@on") == 0) warnings_on = true;
        return;
    }
    if (warnings_on) {
        if (!continuing) lua_writestringerror("%s", "Lua warning: ");
        lua_writestringerror("%s", message);
        if (!to_continue) lua_writestringerror("%s", "\n");
    }
    continuing = to_continue;
}

#ifdef __SANITIZE_ADDRESS__
static void *plain_alloc(void *context, void *block, size_t old_size, size_t new_size)
{
    if (new_size) return realloc(block, new_size);
    free(block);
    return NULL;
}
#define STATE_ALLOC plain_alloc
#else
#define STATE_ALLOC fl_heap_alloc
#endif

lua_State *fl_lua_new_state(void)
{
    fl_lua_own_process = true;
    lua_State *L = lua_newstate(STATE_ALLOC, NULL);
    if (!L) return NULL;
    lua_atpanic(L, panic);
    lua_setwarnf(L, warn, NULL);
    fl_engine_interrupted = fl_lua_interrupted;
    fl_comm_stopping = fl_lua_interrupt_asked;
    return L;
}

void fl_lua_close_state(lua_State *L)
{
    fl_lua_drop_late();
    fl_engine_interrupted = NULL;
    fl_comm_stopping = NULL;
    lua_close(L);
}

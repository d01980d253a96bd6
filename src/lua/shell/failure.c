/*
** failure.c -- how a script ends: by an error, by os.exit, or well, with the engine stopped before libraries are torn
** down.
*/
#define _GNU_SOURCE
#include "core/process.h"
#include "lua/bind/state.h"
#include "lua/bind/tensors.h"
#include "repl.h"
#include "shell.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn void fl_lua_fail(const char *text)
{
    static const char head[] = "\nstack traceback:\n";
    const char *traceback = strstr(text, head);
    size_t length = traceback ? (size_t)(traceback - text) : strlen(text);
    char *message = strndup(text, length), *details = NULL;
    if (traceback && asprintf(&details, "%s\n", traceback + 1) < 0) details = NULL;
    fl_failure_end(EXIT_FAILURE, message ? message : text, details);
}

void fl_lua_leave_ranks(void)
{
    if (!fl_comm_get()) return;
    if (fl_engine_end(true) != FL_OK) fl_lua_fail(fl_message());
    fl_failure_none();
}

void (*fl_lua_last)(void);

/* A lane that is still in an op after a second (a large product) is not waited for: the process ends under it, and what
** exit would do otherwise is done here. */
_Noreturn void fl_lua_exit(int code)
{
    if (fl_lua_last) fl_lua_last();
    if (fl_engine_stop()) exit(code);
    fl_terminal_give_back();
    fflush(NULL);
    _exit(code);
}

/* os.exit([code [, close]]). With several ranks a code that is not 0 ends the job before anything waits for
** other ranks, the code 0 waits until they have come to their end too. */
static int os_exit(lua_State *L)
{
    int code = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : (int)luaL_optinteger(L, 1, EXIT_SUCCESS);
    fl_lua_enter(L);
    if (fl_comm_get() && code & 0xff) fl_failure_exit(code & 0xff); /* the system keeps 8 bits */
    fl_lua_leave_ranks();
    if (lua_toboolean(L, 2)) fl_lua_close_state(L);
    if (!fl_lua_last) fl_engine_stop();
    fl_launch_leave();
    fl_lua_exit(code);
}

void fl_lua_open_exit(lua_State *L)
{
    lua_getglobal(L, LUA_OSLIBNAME);
    lua_pushcfunction(L, os_exit);
    lua_setfield(L, -2, "exit");
    lua_pop(L, 1);
}

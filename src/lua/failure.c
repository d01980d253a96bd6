/*
** failure.c -- how a script that several ranks run ends: by an error, by os.exit, or well.
*/
#define _GNU_SOURCE
#include "binding.h"
#include "../core/failure.h"
#include "../core/launch.h"

#include <stdio.h>
#include <stdlib.h>

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

/* os.exit([code [, close]]): a code that is not 0 ends the job before anything waits for other ranks, the code 0 waits until
** they have come to their end too. */
static int os_exit(lua_State *L)
{
    int code = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : (int)luaL_optinteger(L, 1, EXIT_SUCCESS);
    fl_lua_current = L;
    if (code & 0xff) fl_failure_exit(code & 0xff); /* what the system keeps of it */
    fl_lua_leave_ranks();
    if (lua_toboolean(L, 2)) fl_lua_close_state(L);
    fl_launch_leave();
    exit(EXIT_SUCCESS);
}

void fl_lua_open_exit(lua_State *L)
{
    lua_getglobal(L, LUA_OSLIBNAME);
    lua_pushcfunction(L, os_exit);
    lua_setfield(L, -2, "exit");
    lua_pop(L, 1);
}

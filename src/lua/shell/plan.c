/*
** plan.c -- flowlua --plan N script: the program starts itself once for each kind of rank, and reads their reports.
**
** The process that was started makes the text (flow.plan); those that it starts run the script in a planned world
** (fl_world_plan), and send their tables through a pipe. The output of the script goes to standard error, of the first
** process alone: standard output has the plan.
*/
#define _GNU_SOURCE
#include "core/process.h"
#include "core/script.h"
#include "lua/bind/errors.h"
#include "shell.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The variable for a started process: ranks, rank, ranks of a host, bytes of one, the report's path. */
#define PLANNED "FLOW_PLANNED"

static struct planned {
    int ranks, rank, ranks_per_host;
    long long memory;
    int pipe;
} planned;

bool fl_plan_is_started(void)
{
    const char *text = getenv(PLANNED);
    if (!text) return planned.ranks > 0;
    struct planned p;
    if (sscanf(text, "%d:%d:%d:%lld:%d", &p.ranks, &p.rank, &p.ranks_per_host, &p.memory, &p.pipe) == 5 && p.ranks > 0
        && p.ranks_per_host > 0 && fcntl(p.pipe, F_SETFD, FD_CLOEXEC) == 0)
        planned = p;
    unsetenv(PLANNED);
    return planned.ranks > 0;
}

fl_status fl_plan_join(void)
{
    FL_TRY(fl_world_plan(planned.ranks, planned.rank));
    FL_TRY(fl_tally_open(planned.ranks_per_host, planned.memory));
    fl_planned_look_on(true);
    return FL_OK;
}

/* deliver(text): the report of this process */
static int deliver(lua_State *L)
{
    size_t size, done = 0;
    const char *text = luaL_checklstring(L, 1, &size);
    while (done < size) {
        ssize_t n = write(planned.pipe, text + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return luaL_error(L, "plan: the report cannot be sent: %s", strerror(errno));
        done += (size_t)n;
    }
    close(planned.pipe);
    return 0;
}

/* ---- the processes ---- */

/* Becomes the process of a rank. */
static _Noreturn void run(char **argv, const struct planned *process)
{
    char text[96];
    int null = process->rank == 0 ? -1 : open("/dev/null", O_WRONLY);
    snprintf(text, sizeof text, "%d:%d:%d:%lld:%d", process->ranks, process->rank, process->ranks_per_host,
             process->memory, process->pipe);
    setenv(PLANNED, text, 1);
    dup2(null >= 0 ? null : STDERR_FILENO, STDOUT_FILENO);
    if (null >= 0) dup2(null, STDERR_FILENO);
    execv("/proc/self/exe", argv);
    _exit(EXIT_FAILURE);
}

/* Pushes all that comes out of the pipe. */
static void push_all(lua_State *L, int pipe)
{
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (;;) {
        ssize_t n = read(pipe, luaL_prepbuffer(&b), LUAL_BUFFERSIZE);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        luaL_addsize(&b, (size_t)n);
    }
    luaL_pushresult(&b);
}

/* start(rank, ranks_per_host, memory_per_rank) -> the report of that rank's process ("": there is none), its status */
static int start(lua_State *L)
{
    char **argv = lua_touserdata(L, lua_upvalueindex(1));
    struct planned p = {(int)lua_tointeger(L, lua_upvalueindex(2)), (int)luaL_checkinteger(L, 1),
                        (int)luaL_checkinteger(L, 2), luaL_checkinteger(L, 3), -1};
    int ends[2], status = 0;
    fflush(NULL);
    if (pipe2(ends, 0) != 0) return luaL_error(L, "plan: no pipe: %s", strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    p.pipe = ends[1];
    pid_t child = fork();
    if (child == 0) run(argv, &p);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return luaL_error(L, "plan: no process: %s", strerror(errno));
    }
    push_all(L, ends[0]);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 2;
}

/* ---- the functions that main calls ---- */

/* Pushes a function of flow.plan. */
static void push_function(lua_State *L, const char *name)
{
    lua_getglobal(L, "require");
    lua_pushliteral(L, "flow.plan");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

int fl_plan_watch(lua_State *L)
{
    push_function(L, "watch");
    lua_pushcfunction(L, deliver);
    lua_call(L, 1, 0);
    return 0;
}

int fl_plan_finish(lua_State *L)
{
    push_function(L, "finish");
    lua_pushliteral(L, "script");
    lua_call(L, 1, 0);
    return 0;
}

/* main(ranks, path of the machine or nil, argv as light userdata, script) -> status */
int fl_plan_main(lua_State *L)
{
    lua_settop(L, 4);
    push_function(L, "main");
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, 4);
    lua_pushvalue(L, 3);
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, start, 2);
    lua_call(L, 4, 1);
    return 1;
}

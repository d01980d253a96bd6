/*
** shell.h -- what main.c calls: starting ranks, the session, the doctor, and the end of the process.
*/
#ifndef FL_LUA_SHELL_H
#define FL_LUA_SHELL_H

#include "core/script.h"

#include <lua.h>

/* ---- ranks (ranks.c) ---- */

/* Becomes mpirun, which starts this program that many times with argv, of which the words [skip, skip + skipped) are
** left out. Returns only when that fails. */
fl_status fl_lua_start_ranks(char **argv, int skip, int skipped, int ranks);
/* Rank 0's standard input, to its end, becomes that of all ranks. Nothing happens when there is one rank. */
fl_status fl_lua_share_stdin(void);
/* io.stderr:write(a, b) becomes one write. For several ranks, after luaL_openlibs. */
void fl_lua_join_errors(lua_State *L);

/* ---- flowlua --plan N (plan.c) ---- */

/* True in a process that plans a rank, started by fl_plan_main; the world is then not joined but planned. */
bool fl_plan_is_started(void);
fl_status fl_plan_join(void);
/* Lua functions, where flow can be required. Before the script of such a process; after it. */
int fl_plan_watch(lua_State *L);
int fl_plan_finish(lua_State *L);
/* (ranks, path of the machine's description or nil, argv, script) -> the status to end with; prints the plan. */
int fl_plan_main(lua_State *L);

/* ---- the end of the process (failure.c) ---- */

/* Called first by fl_lua_exit; NULL: nothing. */
FL_OWN extern void (*fl_lua_last)(void);
/* Ends the process with the engine stopped. */
_Noreturn void fl_lua_exit(int code);
/* Several ranks: reports an uncaught error, with its traceback, and ends the job. */
_Noreturn void fl_lua_fail(const char *text);
/* The script is through: waits for what is queued. Nothing happens when there is one rank. */
void fl_lua_leave_ranks(void);
/* os.exit as the engine and several ranks need it. */
void fl_lua_open_exit(lua_State *L);

/* ---- the session (repl.c, repl_ranks.c) and flowlua --doctor (doctor.c) ---- */

/* *there: standard input is a terminal. All ranks get the answer of rank 0. */
fl_status fl_lua_on_terminal(bool *there);
/* Reads and evaluates lines until there are none; all ranks evaluate what rank 0 reads. greet: with the version.
** Errors: the terminal cannot be used, another rank is lost. */
fl_status fl_lua_repl(lua_State *L, bool greet);
/* Prints a report on this machine; false: an op, a product or memory is wrong. */
bool fl_lua_doctor(lua_State *L);

#endif

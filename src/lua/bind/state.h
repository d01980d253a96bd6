/*
** state.h -- the Lua state: making it, calling user code in it, stopping what runs.
*/
#ifndef FL_LUA_STATE_H
#define FL_LUA_STATE_H

#include <lua.h>
#include <stdbool.h>

/* ---- states and calls (state.c) ---- */

/* A state with the hooks of the core set; NULL when out of memory. */
lua_State *fl_lua_new_state(void);
void fl_lua_close_state(lua_State *L);

/* Calls the function below `nargs` arguments as the interpreter calls user code: errors come with a traceback, Ctrl-C
** stops it. Returns Lua's status. */
int fl_lua_protected_call(lua_State *L, int nargs, int nresults);

/* Pushes a place for a text that the core allocates: NULL at first, and freed with the value on the stack. */
char **fl_lua_new_text(lua_State *L);

/* ---- Ctrl-C, and ranks that query the line of the script (interrupt.c) ---- */

/* A protected call begins: Ctrl-C stops it with "interrupted!"; the state of the call before is dropped. */
void fl_lua_interrupt_begin(lua_State *L);
/* From now on Ctrl-C stops the running Lua code (NULL: of the state of the last call). */
void fl_lua_interrupt_arm(lua_State *L);
void fl_lua_interrupt_disarm(void);
/* True when Lua code and waits have to stop. */
bool fl_lua_interrupted(void);
/* True once Ctrl-C was pressed. Among several ranks collectives stop then, all at the same point; code that enters no
** collective is interrupted some time later. */
bool fl_lua_interrupt_asked(void);
/* Set in a session over several ranks: reports Ctrl-C to the others. A signal handler calls it. */
extern void (*fl_lua_pass_interrupt)(void);
/* True when Ctrl-C ended the last protected call, or an error after it did. */
bool fl_lua_was_interrupted(void);

/* From now on SIGUSR2 makes the script write its current line into this rank's journal; ranks that wait for it in vain
** send it. */
void fl_lua_answer_questions(void);
/* Ctrl-C has become an error. A script may catch the first of a call, as under lua; what comes after it, and in the
** session already the first, is raised again at every instruction of Lua until the call ends, whatever pcall
** catches. */
void fl_lua_interrupt_raised(void);
extern bool fl_lua_in_session;

#endif

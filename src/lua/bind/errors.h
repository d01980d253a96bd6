/*
** errors.h -- raising errors, and the words that help: where, what is meant, what to write instead.
**
** Only fl_lua_error raises, at the line of the user's script. Nothing may be held when it is called.
*/
#ifndef FL_LUA_ERRORS_H
#define FL_LUA_ERRORS_H

#include "core/script.h"

#include <lauxlib.h>
#include <lua.h>

/* Raises the core's last message at the nearest line of the user's script. */
__attribute__((noreturn)) int fl_lua_error(lua_State *L, fl_status status);

/* Pushes a table: functions of our modules written in Lua -> their names, which begin the errors of what they call. */
void fl_lua_push_names(lua_State *L);
/* Pushes the name of the one that the script called, or "": it called a function in C, there is no script, or a module
** of ours catches the error. */
const char *fl_lua_push_called(lua_State *L);

/* Words an error and raises it; nothing may be held. */
#define FL_RAISE(L, ...) fl_lua_error((L), fl_fail(FL_ERR_VALUE, __VA_ARGS__))
/* Raises when a core call failed. */
#define FL_CHECK(L, expression)                                        \
    do {                                                               \
        fl_status status_ = (expression);                              \
        if (FL_UNLIKELY(status_ != FL_OK)) fl_lua_error((L), status_); \
    } while (0)
/* Raises as fl_lua_error; that a device is missing, which the core says of the device alone, begins with `who`. */
__attribute__((noreturn)) int fl_lua_error_of(lua_State *L, fl_status status, const char *who);
#define FL_CHECK_OF(L, who, expression)                                          \
    do {                                                                         \
        fl_status status_ = (expression);                                        \
        if (FL_UNLIKELY(status_ != FL_OK)) fl_lua_error_of((L), status_, (who)); \
    } while (0)

/* ---- errors of Lua functions that the core has called (caught.c) ---- */

/* Makes an error of the core from the value that lua_pcall left on top of the stack: with its text, and if the value is
** no text, fl_lua_error raises the value itself. On the script's thread; raises nothing. */
fl_status fl_lua_caught(lua_State *L, fl_status status);
/* Pushes the value that the core's last failure was made of; false, and nothing: it was made of a text. */
bool fl_lua_push_caught(lua_State *L);
/* The text of the error on top of the stack, valid while it stays there: its __tostring, or a description. Never empty;
** raises nothing. In any state, on any thread. */
const char *fl_lua_error_text(lua_State *L);

/* ---- the line of the script (where.c) ---- */

/* Writes "train.lua:41" of the nearest user's line into buffer, "" when there is none. */
void fl_lua_where(lua_State *L, char *buffer, size_t size);
/* True for a function (its "S" known) of one of our own modules. */
bool fl_lua_is_own(const lua_Debug *ar);
/* Finds the nearest level that runs a line of the user's, with "S" and "l"; false: none does. found is then the nearest
** Lua line at all, if there is one. */
bool fl_lua_find_line(lua_State *L, lua_Debug *found);
/* True while a line of the user's runs; false while the session prints a value. */
bool fl_lua_in_script(lua_State *L);

/* ---- words that help (error.c) ---- */

/* The name of a value's type in messages: "nil", "a tensor" is "tensor", tables are "table". */
const char *fl_lua_type_name(lua_State *L, int index);

/* Pushes "; a method is called with a colon: x:item()" when the running function was called as a field (x.item()), else
** "". */
const char *fl_lua_push_colon(lua_State *L, const char *object, const char *method);

/* An error when the running function, one of the flow table, was called as flow:print(x). For functions that take any
** value, or call others; all others report it in the error about their first argument. */
void fl_lua_refuse_colon(lua_State *L);

/* ---- tables and objects whose unknown names are errors (strict.c) ---- */

/* Makes unknown names of the table whose metatable is on top of the stack an error: "engine has no 'x'". */
void fl_lua_set_strict(lua_State *L, const char *name);
/* Makes assigning to fields of the userdata whose metatable is on top an error: "a placement has no fields that
** ...". */
void fl_lua_set_constant(lua_State *L, const char *what);
/* Both for a userdata: its methods are those of the table at __index, or none. */
void fl_lua_set_object(lua_State *L, const char *what);

/* ---- did you mean (suggest.c) ---- */

/* The known name nearest to an unknown one. place: where it was looked for ("tensor", "flow", "nn", ...), for advice to
** scripts ported from PyTorch; NULL: elsewhere. */
typedef struct fl_suggestion {
    const char *word, *place, *best;
    const char *elsewhere; /* the path of the same name in another table; NULL: none is known */
    int distance;
} fl_suggestion;
void fl_suggest_offer(fl_suggestion *suggestion, const char *name);
/* "; did you mean 'matmul'?", "; write x:to(\"float32\")" or "". */
enum { FL_SUGGEST_TEXT = 192 };
const char *fl_suggest_text(char *buffer, const fl_suggestion *suggestion);

/* ---- names that scripts bring along (ported.c) ---- */

/* True when `name` is what PyTorch or NumPy call `word`. */
bool fl_lua_is_renamed(const char *word, const char *name);
/* The advice in place of a word that `place` does not have; "": there is nothing like it; NULL: not known. */
const char *fl_lua_advice(const char *place, const char *word);
/* Pushes both tables for the tests. */
int fl_lua_push_ported(lua_State *L);

#endif

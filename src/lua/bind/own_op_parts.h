/*
** own_op_parts.h -- what own_op.c, own_formula.c and load_ops.c have of each other.
*/
#ifndef FL_LUA_OWN_OP_PARTS_H
#define FL_LUA_OWN_OP_PARTS_H

#include "core/script.h"

#include <lua.h>

/* own_op.c: fields of the definition at index; zeroed memory, or an error of Lua. */
bool fl_own_flag(lua_State *L, int index, const char *name);
lua_Integer fl_own_integer(lua_State *L, int index, const char *name);
void *fl_own_allocate(lua_State *L, size_t bytes);
/* "name_", for as long as the process lives. */
const char *fl_own_in_place_name(lua_State *L, const char *name);

/* own_formula.c: the list of nodes at index of the definition at 1; *out is to be freed even where it raises. */
void fl_own_read_formula(lua_State *L, fl_formula **out, const char *name, int index);
bool fl_own_same_formula(const fl_formula *x, const fl_formula *y);

/* Functions of flow._own. */
int fl_own_row(lua_State *L);
int fl_own_set_gradients(lua_State *L);
int fl_own_load(lua_State *L);

#endif

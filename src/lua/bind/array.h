/*
** array.h -- arrays: tensors as a Lua function sees them that runs beside the script, in a state of its own.
**
** The core may not be called there. An array is plain memory with a dtype and a shape, row-major, with elements at
** positions from 0. It has memory of its own, which Lua's collector frees; or shares another array's (reshape); or was
** lent, until its task is over. Errors are Lua's own, with the line: these states are not the script's.
*/
#ifndef FL_LUA_ARRAY_H
#define FL_LUA_ARRAY_H

#include "core/script.h"

#include <lauxlib.h>
#include <lua.h>

typedef struct fl_array {
    char *data; /* aligned for its elements */
    fl_dtype dtype;
    int64_t numel;
    fl_shape shape;
    bool writable;
    bool over;             /* the memory was taken back */
    struct fl_array *root; /* whose memory it is: itself, or the array that user value 1 keeps */
} fl_array;

/* Makes the class, and puts the module flow.array among those that can be required. */
void fl_lua_open_arrays(lua_State *L);

/* The array at index, NULL when there is none, an error when it was taken back. */
fl_array *fl_lua_to_array(lua_State *L, int index);
fl_array *fl_lua_check_array(lua_State *L, int index);

/* Each pushes an array: with memory of its own, uninitialised; with memory that is lent; with that of the array at
** `index`, which has as many elements. */
fl_array *fl_lua_new_array(lua_State *L, fl_dtype dtype, const fl_shape *shape);
fl_array *fl_lua_lend_array(lua_State *L, char *data, fl_dtype dtype, const fl_shape *shape, bool writable);
fl_array *fl_lua_share_array(lua_State *L, int index, const fl_shape *shape);

/* The dtype that is named at index; nil: the one that is given. */
fl_dtype fl_lua_opt_dtype(lua_State *L, int index, fl_dtype otherwise);

/* Stores the value at index as element i. */
void fl_lua_array_store(lua_State *L, fl_array *array, int64_t i, int index);

/* Sets the methods that compute in the table on top of the stack (array_ops.c). */
void fl_lua_open_array_ops(lua_State *L);

#endif

/*
** data_records.h -- what the bindings of record files share, and datasets of them for others.
*/
#ifndef FL_LUA_DATA_RECORDS_H
#define FL_LUA_DATA_RECORDS_H

#include "core/script.h"

#include <lua.h>

/* The set that _io.records has put at index (borrowed), NULL when the value is none. */
fl_record_set *fl_lua_to_record_set(lua_State *L, int index);

/* The strings, without NUL, of the list at index, which keeps them; the array is left on the stack. */
const char **fl_lua_check_strings(lua_State *L, int index, int64_t *count);

#endif

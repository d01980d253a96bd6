/*
** data_records.h -- datasets of record files for other bindings.
*/
#ifndef FL_LUA_DATA_RECORDS_H
#define FL_LUA_DATA_RECORDS_H

#include "core/script.h"

#include <lua.h>

/* The set that _io.records has put at index (borrowed), NULL when the value is none. */
fl_record_set *fl_lua_to_record_set(lua_State *L, int index);

#endif

/*
** data_row.h -- an item of a dataset between two Lua states: fields by name or number, each an array's bytes, a number,
** a string or a boolean, in one block of memory.
*/
#ifndef FL_DATA_ROW_H
#define FL_DATA_ROW_H

#include "core/script.h"
#include "worker.h"

/* A key, and a value: plain, or an array (type LUA_TUSERDATA). Texts and arrays lie `at` bytes behind the fields. */
typedef struct fl_row_field {
    fl_plain key, value;
    fl_dtype dtype;
    fl_shape shape;
    size_t at, size; /* of an array */
} fl_row_field;

typedef struct fl_row {
    int count;
    fl_row_field fields[];
} fl_row;

static inline char *fl_row_bytes(const fl_row *row) { return (char *)&row->fields[row->count]; }

/* The item in the table at index, allocated with malloc. Arrays are copied, and in the script's state tensors, whose
** values are waited for. Errors are Lua's, and allocate nothing. */
fl_row *fl_row_take(lua_State *L, int index, bool script);

/* Pushes a field's key; sets the fields of the row in the table at index, arrays as such or as tensors (in the script's
** state). */
void fl_row_push_key(lua_State *L, const fl_row *row, const fl_row_field *field);
void fl_row_set_arrays(lua_State *L, int index, const fl_row *row);
void fl_row_set_tensors(lua_State *L, int index, const fl_row *row);

/* Pushes a plain value of the row. */
void fl_row_push_plain(lua_State *L, const fl_row *row, const fl_plain *value);

/* The field of this key, NULL: the row has none. near: where it may be. */
const fl_row_field *fl_row_find(const fl_row *row, const fl_row *other, const fl_row_field *key, int near);

#endif

/*
** data_records.c -- flow._io's record files, from which data_records.lua makes datasets; data_pack.c writes them.
*/
#include "core/process.h"
#include "arguments.h"
#include "data_records.h"
#include "members.h"
#include "tensors.h"

#include <string.h>

const char **fl_lua_check_strings(lua_State *L, int index, int64_t *count)
{
    luaL_checktype(L, index, LUA_TTABLE);
    *count = (int64_t)lua_rawlen(L, index);
    const char **out = lua_newuserdatauv(L, sizeof *out * ((size_t)*count + 1), 0);
    for (int64_t i = 0; i < *count; i++, lua_pop(L, 1)) {
        size_t size;
        if (lua_rawgeti(L, index, i + 1) != LUA_TSTRING) luaL_argerror(L, index, "must be a list of strings");
        out[i] = lua_tolstring(L, -1, &size);
        if (strlen(out[i]) != size) luaL_argerror(L, index, "a path contains a NUL");
    }
    return out;
}

/* ---- opening ---- */

static const char set_name[] = "flow.record_set";

static int set_close(lua_State *L)
{
    fl_record_set **set = luaL_checkudata(L, 1, set_name);
    fl_record_set_unref(*set);
    *set = NULL;
    return 0;
}

fl_record_set *fl_lua_to_record_set(lua_State *L, int index)
{
    fl_record_set **set = luaL_testudata(L, index, set_name);
    return set ? *set : NULL;
}

static fl_record_set *check_set(lua_State *L)
{
    fl_record_set *set = fl_lua_to_record_set(L, 1);
    luaL_argcheck(L, set, 1, "takes what _io.records gives");
    return set;
}

/* Pushes {name =, type =, dtype =, shape =}: of fields of lists the name is their number. */
static void push_column(lua_State *L, const fl_record_schema *schema, int index)
{
    const fl_record_column *c = &schema->columns[index];
    lua_createtable(L, 0, 4);
    if (schema->list) lua_pushinteger(L, index + 1);
    else lua_pushlstring(L, c->name, (size_t)c->name_bytes);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, fl_record_kind_name(c->kind));
    lua_setfield(L, -2, "type");
    if (c->kind != FL_RECORD_TENSOR) return;
    lua_pushstring(L, fl_dtype_name(c->dtype));
    lua_setfield(L, -2, "dtype");
    if (!c->fixed) return;
    lua_createtable(L, c->shape.ndim, 0);
    for (int i = 0; i < c->shape.ndim; i++) {
        lua_pushinteger(L, c->shape.dims[i]);
        lua_rawseti(L, -2, i + 1);
    }
    fl_lua_set_list(L, FL_LIST_SHAPE);
    lua_setfield(L, -2, "shape");
}

/* Pushes {bytes =, metadata = a text for each file, fields =} */
static void push_facts(lua_State *L, const fl_record_set *set)
{
    int64_t bytes = 0;
    lua_createtable(L, 0, 5);
    lua_createtable(L, set->file_count, 0);
    for (int i = 0; i < set->file_count; i++) {
        size_t size;
        const char *text = fl_records_metadata(&size, set->files[i]);
        lua_pushlstring(L, text, size);
        lua_rawseti(L, -2, i + 1);
        bytes += fl_records_bytes(set->files[i]);
    }
    lua_setfield(L, -2, "metadata");
    lua_pushinteger(L, bytes);
    lua_setfield(L, -2, "bytes");
    lua_createtable(L, set->schema.count, 0);
    for (int i = 0; i < set->schema.count; i++) {
        push_column(L, &set->schema, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "fields");
}

/* _io.records(paths, part_index, num_parts, skip, checksum, workers or nil) -> set, count, skipped, facts */
static int io_records(lua_State *L)
{
    int64_t count;
    fl_record_options options = {.part_index = luaL_checkinteger(L, 2),
                                 .num_parts = luaL_checkinteger(L, 3),
                                 .skip = lua_toboolean(L, 4),
                                 .checksum = lua_toboolean(L, 5),
                                 .workers = (int)luaL_optinteger(L, 6, 0)};
    const char **paths = fl_lua_check_strings(L, 1, &count);
    fl_record_set **set = lua_newuserdatauv(L, sizeof *set, 0);
    *set = NULL;
    luaL_setmetatable(L, set_name);
    FL_CHECK(L, fl_record_set_open(set, paths, (int)count, options));
    lua_pushinteger(L, (*set)->count);
    lua_pushinteger(L, (*set)->skipped);
    push_facts(L, *set);
    return 4;
}

/* ---- items and batches ---- */

/* The columns at index, a list of numbers from 1; nil: all. Returns how many. */
static int check_columns(lua_State *L, int index, const fl_record_set *set, int *out)
{
    int count = lua_isnoneornil(L, index) ? set->schema.count : (int)lua_rawlen(L, index);
    for (int i = 0; i < count && lua_isnoneornil(L, index); i++) out[i] = i;
    for (int i = 0; i < count && !lua_isnoneornil(L, index); i++, lua_pop(L, 1)) {
        lua_rawgeti(L, index, i + 1);
        out[i] = (int)luaL_checkinteger(L, -1) - 1;
    }
    return count;
}

static int64_t check_position(lua_State *L, const fl_record_set *set, int64_t position, const char *who)
{
    if (position < -set->count || position >= set->count)
        FL_RAISE(L, "%s: position %lld is outside 0 to %lld", who, (long long)position, (long long)set->count - 1);
    return position < 0 ? position + set->count : position;
}

static void push_value(lua_State *L, const fl_record_field *field)
{
    int64_t integer;
    double number;
    fl_box *box;
    switch (field->kind) {
    case FL_RECORD_TENSOR:
        box = fl_lua_new_box(L);
        FL_CHECK(L, fl_tensor_empty_local(&box->tensor, field->dtype, &field->shape));
        if (field->bytes) memcpy(fl_tensor_data(box->tensor), field->value, (size_t)field->bytes);
        break;
    case FL_RECORD_INTEGER: memcpy(&integer, field->value, 8), lua_pushinteger(L, integer); break;
    case FL_RECORD_NUMBER: memcpy(&number, field->value, 8), lua_pushnumber(L, number); break;
    case FL_RECORD_BOOLEAN: lua_pushboolean(L, *(const unsigned char *)field->value); break;
    default: lua_pushlstring(L, field->value, (size_t)field->bytes);
    }
}

/* table[column] = the value on top, which is popped; the table lies at index. */
static void set_column(lua_State *L, int index, const fl_record_schema *schema, int column, int place)
{
    if (schema->list) lua_rawseti(L, index, place + 1);
    else lua_setfield(L, index, schema->columns[column].name);
}

/* _io.record_get(set, position, columns) -> item */
static int io_record_get(lua_State *L)
{
    const fl_record_set *set = check_set(L);
    int columns[FL_RECORD_FIELDS], count = check_columns(L, 3, set, columns);
    fl_record_field fields[FL_RECORD_FIELDS];
    int64_t position = check_position(L, set, luaL_checkinteger(L, 2), "get");
    FL_CHECK(L, fl_program_refuse("a record is read"));
    FL_CHECK(L, fl_record_set_read(fields, set, position));
    lua_createtable(L, set->schema.list ? count : 0, set->schema.list ? 0 : count);
    int item = lua_gettop(L);
    for (int i = 0; i < count; i++) {
        push_value(L, &fields[columns[i]]);
        set_column(L, item, &set->schema, columns[i], i);
    }
    FL_CHECK(L, fl_record_set_check(set, position));
    fl_lua_account(L);
    return 1;
}

/* A batch on its way: outputs for the columns of tensors; those of strings are lists. */
struct batch {
    int count, strings;
    int string_columns[FL_RECORD_FIELDS];
    fl_record_output outputs[FL_RECORD_FIELDS];
    fl_tensor *tensors[FL_RECORD_FIELDS]; /* of boxes in the table */
};

/* Puts tensors and lists into the table on top. */
static void make_columns(lua_State *L, struct batch *batch, const fl_record_set *set, const int *columns, int count,
                         int64_t rows)
{
    int table = lua_gettop(L);
    for (int i = 0; i < count; i++) {
        if (set->schema.columns[columns[i]].kind == FL_RECORD_STRING) {
            batch->string_columns[batch->strings++] = columns[i];
            lua_createtable(L, (int)rows, 0);
        } else {
            fl_box *box = fl_lua_new_box(L);
            FL_CHECK(L,
                     fl_record_output_new(&box->tensor, &batch->outputs[batch->count], "batch", set, columns[i], rows));
            batch->tensors[batch->count++] = box->tensor;
        }
        set_column(L, table, &set->schema, columns[i], i);
    }
}

/* With strings: item by item, at once. lists: stack index of the first of the lists. */
static void fill_now(lua_State *L, const struct batch *batch, int lists, const fl_record_set *set,
                     const int64_t *positions, int64_t rows)
{
    fl_record_field fields[FL_RECORD_FIELDS];
    for (int64_t row = 0; row < rows; row++) {
        FL_CHECK(L, fl_record_output_row(batch->outputs, batch->count, row, fields, set, positions, rows));
        for (int i = 0; i < batch->strings; i++) {
            push_value(L, &fields[batch->string_columns[i]]);
            lua_rawseti(L, lists + i, row + 1);
        }
        FL_CHECK(L, fl_record_set_check(set, positions[row]));
    }
}

/* Pushes the lists of strings of the table at index. */
static void push_lists(lua_State *L, int index, const struct batch *batch, const fl_record_set *set, const int *columns,
                       int count)
{
    luaL_checkstack(L, batch->strings + 4, "batch");
    for (int i = 0; i < count; i++) {
        if (set->schema.columns[columns[i]].kind != FL_RECORD_STRING) continue;
        if (set->schema.list) lua_rawgeti(L, index, i + 1);
        else lua_getfield(L, index, set->schema.columns[columns[i]].name);
    }
}

/* _io.record_batch(set, positions, columns) -> batch: positions a 1-D int64 tensor. Tensors may be filled later. */
static int io_record_batch(lua_State *L)
{
    fl_record_set *set = check_set(L);
    int columns[FL_RECORD_FIELDS], count = check_columns(L, 3, set, columns);
    FL_CHECK(L, fl_program_refuse("records are read"));
    fl_box *host = fl_lua_new_box(L);
    FL_CHECK(L, fl_lua_host(&host->tensor, fl_lua_check_tensor(L, 2, "batch", "positions")));
    const fl_tensor *p = host->tensor;
    int64_t rows = p->meta->numel, *positions = lua_newuserdatauv(L, sizeof *positions * ((size_t)rows + 1), 0);
    for (int64_t i = 0; i < rows; i++)
        positions[i] = check_position(L, set, ((const int64_t *)fl_tensor_data(p))[i * p->strides[0]], "batch");
    struct batch *batch = lua_newuserdatauv(L, sizeof *batch, 0);
    batch->count = batch->strings = 0;
    lua_newtable(L);
    int table = lua_gettop(L);
    make_columns(L, batch, set, columns, count, rows);
    if (batch->strings) {
        push_lists(L, table, batch, set, columns, count);
        fill_now(L, batch, table + 1, set, positions, rows);
    } else FL_CHECK(L, fl_record_batch_fill(batch->tensors, batch->outputs, batch->count, set, positions, rows));
    lua_settop(L, table);
    fl_lua_account(L);
    return 1;
}

void fl_lua_open_records(lua_State *L, int io)
{
    static const luaL_Reg functions[] = {
        {"records", io_records},
        {"record_get", io_record_get},
        {"record_batch", io_record_batch},
        {NULL, NULL},
    };
    luaL_newmetatable(L, set_name);
    lua_pushcfunction(L, set_close);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    lua_pushvalue(L, io);
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}

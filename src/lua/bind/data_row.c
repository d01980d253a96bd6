/*
** data_row.c -- items between two Lua states (data_row.h).
*/
#include "data_row.h"
#include "array.h"
#include "errors.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

/* ---- contents of a field ---- */

struct found {
    const void *data;
    fl_dtype dtype;
    fl_shape shape;
    size_t size;
};

/* The array or tensor at index. */
static bool find_data(struct found *out, lua_State *L, int index, bool script)
{
    const fl_array *a = fl_lua_to_array(L, index);
    if (a) {
        *out = (struct found){a->data, a->dtype, a->shape, (size_t)a->numel * fl_dtype_size(a->dtype)};
        return true;
    }
    fl_tensor *t = script ? fl_lua_to_tensor(L, index) : NULL;
    if (!t) return false;
    *out = (struct found){NULL, t->meta->dtype, t->meta->shape, (size_t)t->meta->numel * fl_dtype_size(t->meta->dtype)};
    if (out->size) out->data = fl_tensor_data(t);
    return true;
}

/* Waits for a tensor, of which this process must have all elements, in order. */
static void check_tensor(lua_State *L, fl_tensor *tensor)
{
    if (!tensor->meta->is_local || tensor->meta->placement->type != FL_CPU || !tensor->contiguous)
        luaL_error(L, "a tensor of an item must be local, on the CPU and contiguous");
    FL_CHECK(L, fl_tensor_wait(tensor));
}

/* Raises an error unless the value on top can be a field, whose key lies below; waits for tensors. */
static void check_field(lua_State *L, bool script)
{
    struct found found;
    if (lua_type(L, -2) != LUA_TSTRING && !lua_isinteger(L, -2))
        luaL_error(L, "a field of an item must have a name or a number, got a key of type %s", luaL_typename(L, -2));
    fl_tensor *t = script ? fl_lua_to_tensor(L, -1) : NULL;
    if (t) check_tensor(L, t);
    if (find_data(&found, L, -1, script) || (fl_lua_is_plain(L, -1) && !lua_isnil(L, -1))) return;
    const char *type = luaL_typename(L, -1), *name = luaL_tolstring(L, -2, NULL);
    luaL_error(L,
               "field '%s' is a %s; an item holds arrays, numbers, strings and booleans "
               "(require \"flow.array\".new(list) makes an array)",
               name, type);
}

/* ---- packing ---- */

static size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

static size_t text_size(lua_State *L, int index)
{
    return lua_type(L, index) == LUA_TSTRING ? lua_rawlen(L, index) : 0;
}

static void take_plain(fl_plain *out, lua_State *L, int index, char *bytes, size_t *at)
{
    *out = (fl_plain){.type = lua_type(L, index), .whole = lua_isinteger(L, index)};
    if (out->type == LUA_TBOOLEAN) out->integer = lua_toboolean(L, index);
    else if (out->whole) out->integer = lua_tointeger(L, index);
    else if (out->type == LUA_TNUMBER) out->number = lua_tonumber(L, index);
    else {
        const char *text = lua_tolstring(L, index, &out->text.size);
        out->text.at = *at;
        memcpy(bytes + *at, text, out->text.size);
        *at += padded(out->text.size);
    }
}

static void take_field(fl_row_field *out, lua_State *L, char *bytes, size_t *at, bool script)
{
    struct found found;
    take_plain(&out->key, L, -2, bytes, at);
    if (!find_data(&found, L, -1, script)) {
        take_plain(&out->value, L, -1, bytes, at);
        return;
    }
    out->value = (fl_plain){.type = LUA_TUSERDATA};
    out->dtype = found.dtype;
    out->shape = found.shape;
    out->at = *at;
    out->size = found.size;
    if (found.size) memcpy(bytes + *at, found.data, found.size);
    *at += padded(found.size);
}

fl_row *fl_row_take(lua_State *L, int index, bool script)
{
    struct found found;
    size_t bytes = 0, at = 0;
    int count = 0;
    index = lua_absindex(L, index);
    luaL_checkstack(L, 8, "item");
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1), count++) {
        check_field(L, script);
        bytes += padded(text_size(L, -2)) + padded(text_size(L, -1));
        if (find_data(&found, L, -1, script)) bytes += padded(found.size);
    }
    fl_row *row = malloc(sizeof *row + sizeof(fl_row_field) * (size_t)count + bytes);
    if (!row) luaL_error(L, "out of memory for an item of %I bytes", (LUAI_UACINT)bytes);
    row->count = count;
    count = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1))
        take_field(&row->fields[count++], L, fl_row_bytes(row), &at, script);
    return row;
}

/* ---- unpacking ---- */

void fl_row_push_plain(lua_State *L, const fl_row *row, const fl_plain *value)
{
    if (value->type == LUA_TBOOLEAN) lua_pushboolean(L, value->integer != 0);
    else if (value->type == LUA_TSTRING) lua_pushlstring(L, fl_row_bytes(row) + value->text.at, value->text.size);
    else if (value->whole) lua_pushinteger(L, value->integer);
    else lua_pushnumber(L, value->number);
}

void fl_row_push_key(lua_State *L, const fl_row *row, const fl_row_field *field)
{
    fl_row_push_plain(L, row, &field->key);
}

/* Sets the fields of a row in the table at index; push(L, field, bytes) pushes the value of one that is an array. */
static void set_fields(lua_State *L, int index, const fl_row *row,
                       void (*push)(lua_State *L, const fl_row_field *field, const void *bytes))
{
    index = lua_absindex(L, index);
    for (int i = 0; i < row->count; i++) {
        const fl_row_field *field = &row->fields[i];
        fl_row_push_key(L, row, field);
        if (field->value.type == LUA_TUSERDATA) push(L, field, fl_row_bytes(row) + field->at);
        else fl_row_push_plain(L, row, &field->value);
        lua_rawset(L, index);
    }
}

static void push_array(lua_State *L, const fl_row_field *field, const void *bytes)
{
    fl_array *array = fl_lua_new_array(L, field->dtype, &field->shape);
    if (field->size) memcpy(array->data, bytes, field->size);
}

static void push_tensor(lua_State *L, const fl_row_field *field, const void *bytes)
{
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_tensor_empty_local(&box->tensor, field->dtype, &field->shape));
    if (field->size) memcpy(fl_tensor_data(box->tensor), bytes, field->size);
}

void fl_row_set_arrays(lua_State *L, int index, const fl_row *row) { set_fields(L, index, row, push_array); }
void fl_row_set_tensors(lua_State *L, int index, const fl_row *row) { set_fields(L, index, row, push_tensor); }

/* ---- finding ---- */

static bool same_key(const fl_row *a, const fl_plain *x, const fl_row *b, const fl_plain *y)
{
    if (x->type != y->type) return false;
    if (x->type != LUA_TSTRING) return x->integer == y->integer;
    return x->text.size == y->text.size
        && memcmp(fl_row_bytes(a) + x->text.at, fl_row_bytes(b) + y->text.at, x->text.size) == 0;
}

const fl_row_field *fl_row_find(const fl_row *row, const fl_row *other, const fl_row_field *key, int near)
{
    if (near < row->count && same_key(row, &row->fields[near].key, other, &key->key)) return &row->fields[near];
    for (int i = 0; i < row->count; i++)
        if (same_key(row, &row->fields[i].key, other, &key->key)) return &row->fields[i];
    return NULL;
}

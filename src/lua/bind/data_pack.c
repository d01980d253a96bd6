/*
** data_pack.c -- flow._io's writer of record files: data_pack.lua decides what goes into them.
*/
#include "core/process.h"
#include "arguments.h"
#include "data_records.h"
#include "members.h"
#include "tensors.h"

#include <string.h>

static const char writer_name[] = "flow.record_writer";

static int writer_close(lua_State *L)
{
    fl_record_writer **writer = luaL_checkudata(L, 1, writer_name);
    fl_record_writer_free(*writer);
    *writer = NULL;
    return 0;
}

static fl_record_writer *check_writer(lua_State *L)
{
    fl_record_writer **writer = luaL_checkudata(L, 1, writer_name);
    luaL_argcheck(L, *writer, 1, "the writer is closed");
    return *writer;
}

/* _io.record_writer(path, metadata) -> writer, which drops its file when it is closed before record_finish */
static int io_record_writer(lua_State *L)
{
    size_t bytes;
    const char *path = fl_lua_check_path(L, 1, "pack"), *metadata = luaL_checklstring(L, 2, &bytes);
    fl_record_writer **writer = lua_newuserdatauv(L, sizeof *writer, 0);
    *writer = NULL;
    luaL_setmetatable(L, writer_name);
    FL_CHECK(L, fl_record_writer_new(writer, path, metadata, bytes));
    return 1;
}

/* An item on its way into a record: where numbers lie, and the tensors as contiguous ones of the host. */
struct item {
    int count;
    bool list;
    fl_record_field fields[FL_RECORD_FIELDS];
    union {
        int64_t integer;
        double number;
        uint8_t boolean;
    } values[FL_RECORD_FIELDS];
};

/* Makes the tensor at the top a contiguous one of the host, in a box that takes its place. */
static const fl_tensor *host_tensor(lua_State *L, fl_tensor *tensor)
{
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_lua_host(&box->tensor, tensor));
    if (!box->tensor->contiguous) {
        fl_box *copy = fl_lua_new_box(L);
        FL_CHECK(L, FL_CALL_UNRECORDED(&copy->tensor, contiguous, fl_of(box->tensor)));
        FL_CHECK(L, fl_tensor_wait(copy->tensor));
        lua_replace(L, -2);
        box = copy;
    }
    lua_replace(L, -2);
    return box->tensor;
}

/* "item 5: field 'x'", or "item 5: field 2" where `name` is NULL */
static const char *field_text(lua_State *L, int64_t number, const char *name, int index)
{
    char shown[FL_SHOWN_TEXT];
    if (!name) return lua_pushfstring(L, "item %I: field %d", (LUAI_UACINT)number, index + 1);
    return lua_pushfstring(L, "item %I: field '%s'", (LUAI_UACINT)number, fl_text_name(shown, name));
}

static void fill_tensor(lua_State *L, fl_record_field *field, fl_tensor *tensor, const char *what)
{
    if (!tensor->meta->is_local) FL_RAISE(L, "pack: %s must be a local tensor, got a global one", what);
    if (tensor->meta->placement->type == FL_META) FL_RAISE(L, "pack: %s has no values: it is on the meta device", what);
    const fl_tensor *host = host_tensor(L, tensor);
    field->kind = FL_RECORD_TENSOR;
    field->dtype = host->meta->dtype;
    field->shape = host->meta->shape;
    field->bytes = host->meta->numel * (int64_t)fl_dtype_size(field->dtype);
    field->value = field->bytes ? fl_tensor_data(host) : "";
}

/* The value on top of the stack as field `index` of the item; it stays there, and holds the bytes. */
static void fill_field(lua_State *L, struct item *item, int index, const char *name, int64_t number)
{
    fl_record_field *field = &item->fields[index];
    void *value = &item->values[index];
    fl_tensor *tensor = fl_lua_to_tensor(L, -1);
    size_t size = 0;
    *field = (fl_record_field){.name = name ? name : "", .name_bytes = name ? (int)strlen(name) : 0, .value = value};
    if (tensor) {
        const char *what = field_text(L, number, name, index);
        lua_insert(L, -2);
        fill_tensor(L, field, tensor, what);
    } else if (lua_isinteger(L, -1)) {
        field->kind = FL_RECORD_INTEGER;
        field->bytes = 8;
        item->values[index].integer = lua_tointeger(L, -1);
    } else if (lua_type(L, -1) == LUA_TNUMBER) {
        field->kind = FL_RECORD_NUMBER;
        field->bytes = 8;
        item->values[index].number = lua_tonumber(L, -1);
    } else if (lua_isboolean(L, -1)) {
        field->kind = FL_RECORD_BOOLEAN;
        field->bytes = 1;
        item->values[index].boolean = lua_toboolean(L, -1) != 0;
    } else if (lua_type(L, -1) == LUA_TSTRING) {
        field->kind = FL_RECORD_STRING;
        field->value = lua_tolstring(L, -1, &size);
        field->bytes = (int64_t)size;
    } else
        FL_RAISE(L, "pack: %s must be a tensor, a number, a string or a boolean, got %s",
                 field_text(L, number, name, index), fl_lua_type_name(L, -1));
}

/* _io.record_append(writer, item, names) -> items so far: names lists the fields of an item with names, nil where it is
** a list. data_pack.lua has seen to it that the item has these fields and no others. */
static int io_record_append(lua_State *L)
{
    fl_record_writer *writer = check_writer(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    bool list = lua_isnoneornil(L, 3);
    lua_settop(L, 3);
    struct item *item = lua_newuserdatauv(L, sizeof *item, 0);
    item->list = list;
    item->count = (int)lua_rawlen(L, list ? 2 : 3);
    luaL_checkstack(L, 3 * FL_RECORD_FIELDS, "pack");
    for (int i = 0; i < item->count && i < FL_RECORD_FIELDS; i++) {
        const char *name = NULL;
        if (list) lua_geti(L, 2, i + 1);
        else {
            lua_rawgeti(L, 3, i + 1);
            name = lua_tostring(L, -1); /* the list of names keeps it */
            lua_gettable(L, 2);
        }
        fill_field(L, item, i, name, fl_record_writer_count(writer));
    }
    FL_CHECK(L, fl_record_append(writer, item->fields, item->count, item->list));
    fl_lua_account(L);
    lua_pushinteger(L, fl_record_writer_count(writer));
    return 1;
}

/* _io.record_files(writer, root, paths, labels or nil, workers or nil): items of files, as record_pack.h says */
static int io_record_files(lua_State *L)
{
    fl_record_writer *writer = check_writer(L);
    const char *root = fl_lua_check_path(L, 2, "pack");
    bool labelled = !lua_isnil(L, 4);
    int64_t count, *labels = NULL;
    int workers = (int)luaL_optinteger(L, 5, 0);
    const char **paths = fl_lua_check_strings(L, 3, &count);
    if (labelled) labels = lua_newuserdatauv(L, sizeof *labels * ((size_t)count + 1), 0);
    for (int64_t i = 0; labelled && i < count; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, 4, i + 1);
        labels[i] = luaL_checkinteger(L, -1);
    }
    FL_CHECK(L, fl_record_pack_files(writer, root, paths, labels, count, workers));
    return 0;
}

/* _io.record_finish(writer) -> items, bytes: the file is in its place */
static int io_record_finish(lua_State *L)
{
    fl_record_writer *writer = check_writer(L);
    FL_CHECK(L, fl_record_writer_finish(writer));
    lua_pushinteger(L, fl_record_writer_count(writer));
    lua_pushinteger(L, fl_record_writer_bytes(writer));
    return 2;
}

void fl_lua_open_pack(lua_State *L, int io)
{
    static const luaL_Reg functions[] = {
        {"record_writer", io_record_writer},
        {"record_append", io_record_append},
        {"record_files", io_record_files},
        {"record_finish", io_record_finish},
        {NULL, NULL},
    };
    luaL_newmetatable(L, writer_name);
    lua_pushcfunction(L, writer_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, writer_close);
    lua_setfield(L, -2, "__close");
    lua_pop(L, 1);
    lua_pushvalue(L, io);
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}

/*
** data_readers.c -- flow._io's readers and writers of NumPy's files, and lines of text (data_readers.lua and
** data_jsonl.lua document them).
*/
#include "arguments.h"
#include "members.h"
#include "tensors.h"

static const char stream_name[] = "flow.stream", zip_name[] = "flow.zip", lines_name[] = "flow.lines";

static int stream_close(lua_State *L)
{
    fl_stream **stream = luaL_checkudata(L, 1, stream_name);
    fl_stream_close(*stream);
    *stream = NULL;
    return 0;
}

static int zip_close(lua_State *L)
{
    fl_zip **zip = luaL_checkudata(L, 1, zip_name);
    fl_zip_close(*zip);
    *zip = NULL;
    return 0;
}

/* Pushes an empty holder, which closes what the caller puts into it. */
static void *push_holder(lua_State *L, const char *name)
{
    void **holder = lua_newuserdatauv(L, sizeof *holder, 0);
    *holder = NULL;
    luaL_setmetatable(L, name);
    return holder;
}

/* The array in the stream on top of the stack -> tensor, columns_first; closes it. */
static int push_array(lua_State *L)
{
    fl_stream **stream = lua_touserdata(L, -1);
    fl_box *box = fl_lua_new_box(L);
    bool columns_first = false;
    FL_CHECK(L, fl_npy_read(&box->tensor, &columns_first, *stream));
    fl_stream_close(*stream);
    *stream = NULL;
    fl_lua_account(L);
    lua_pushboolean(L, columns_first);
    return 2;
}

/* _io.npy(path, map) -> tensor, columns_first: reverse its axes. */
static int io_npy(lua_State *L)
{
    const char *path = fl_lua_check_path(L, 1, "npy");
    if (!lua_toboolean(L, 2)) {
        fl_stream **stream = push_holder(L, stream_name);
        FL_CHECK(L, fl_stream_open(stream, "npy", path));
        return push_array(L);
    }
    fl_box *box = fl_lua_new_box(L);
    bool columns_first = false;
    FL_CHECK(L, fl_npy_map(&box->tensor, &columns_first, path));
    lua_pushboolean(L, columns_first);
    return 2;
}

/* _io.zip(who, path) -> archive, names of its members */
static int io_zip(lua_State *L)
{
    const char *who = luaL_checkstring(L, 1), *path = fl_lua_check_path(L, 2, who);
    fl_zip **zip = push_holder(L, zip_name);
    FL_CHECK(L, fl_zip_open(zip, who, path));
    lua_createtable(L, (int)(*zip)->count, 0);
    for (int64_t i = 0; i < (*zip)->count; i++) {
        lua_pushstring(L, (*zip)->members[i].name);
        lua_rawseti(L, -2, i + 1);
    }
    return 2;
}

/* _io.zip_npy(archive, index) -> tensor, columns_first; index counts from 1. */
static int io_zip_npy(lua_State *L)
{
    fl_zip *zip = *(fl_zip **)luaL_checkudata(L, 1, zip_name);
    lua_Integer index = luaL_checkinteger(L, 2) - 1;
    luaL_argcheck(L, zip && index >= 0 && index < zip->count, 2, "no such member");
    fl_stream **stream = push_holder(L, stream_name);
    FL_CHECK(L, fl_zip_stream(stream, zip, index));
    return push_array(L);
}

/* _io.save_npy(path, tensor): local and contiguous, on any device. */
static int io_save_npy(lua_State *L)
{
    const char *path = fl_lua_check_path(L, 1, "save_npy");
    fl_tensor *tensor = fl_lua_check_tensor(L, 2, "save_npy", "x");
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_lua_host(&box->tensor, tensor));
    FL_CHECK(L, fl_npy_write(path, box->tensor));
    return 0;
}

/* _io.save_npz(path, names, tensors, packed): lists. */
static int io_save_npz(lua_State *L)
{
    const char *path = fl_lua_check_path(L, 1, "save_npz");
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 4);
    int count = (int)lua_rawlen(L, 2);
    const char **names = lua_newuserdatauv(L, sizeof *names * ((size_t)count + 1), 0);
    fl_tensor **tensors = lua_newuserdatauv(L, sizeof *tensors * ((size_t)count + 1), 0);
    lua_createtable(L, count, 0); /* keeps what is read */
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        names[i] = luaL_checkstring(L, -1);
        lua_rawgeti(L, 3, i + 1);
        fl_tensor *tensor = fl_lua_check_tensor(L, -1, "save_npz", names[i]);
        fl_box *box = fl_lua_new_box(L);
        FL_CHECK(L, fl_lua_host(&box->tensor, tensor));
        tensors[i] = box->tensor;
        lua_rawseti(L, -4, i + 1);
        lua_pop(L, 2); /* the lists keep the name and the tensor */
    }
    FL_CHECK(L, fl_npz_write(path, names, tensors, count, lua_toboolean(L, 4)));
    return 0;
}

/* ---- lines ---- */

static int lines_close(lua_State *L)
{
    fl_lines **lines = luaL_checkudata(L, 1, lines_name);
    fl_lines_close(*lines);
    *lines = NULL;
    return 0;
}

/* _io.lines(who, path) -> lines, their number */
static int io_lines(lua_State *L)
{
    const char *who = luaL_checkstring(L, 1), *path = fl_lua_check_path(L, 2, who);
    fl_lines **lines = push_holder(L, lines_name);
    FL_CHECK(L, fl_lines_open(lines, who, path));
    lua_pushinteger(L, (*lines)->count);
    return 2;
}

static const fl_lines *check_line(lua_State *L, int64_t *index)
{
    const fl_lines *lines = *(fl_lines **)luaL_checkudata(L, 1, lines_name);
    *index = luaL_checkinteger(L, 2);
    luaL_argcheck(L, lines && *index >= 0 && *index < lines->count, 2, "no such line");
    return lines;
}

/* _io.line(lines, index) -> its text, and blanks behind it; index counts from 0. */
static int io_line(lua_State *L)
{
    int64_t index;
    luaL_Buffer buffer;
    const fl_lines *lines = check_line(L, &index);
    int64_t start = lines->starts[index], bytes = lines->starts[index + 1] - start;
    char *text = luaL_buffinitsize(L, &buffer, (size_t)bytes);
    FL_CHECK(L, fl_text_file_read(lines->text, text, start, bytes));
    luaL_pushresultsize(&buffer, (size_t)bytes);
    return 1;
}

/* _io.line_number(lines, index) -> which line of the file it is, counted from 1 */
static int io_line_number(lua_State *L)
{
    int64_t index, line, column;
    const fl_lines *lines = check_line(L, &index);
    FL_CHECK(L, fl_text_file_place(&line, &column, lines->text, lines->starts[index]));
    lua_pushinteger(L, line);
    return 1;
}

static void add_class(lua_State *L, const char *name, lua_CFunction close)
{
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, close);
    lua_setfield(L, -2, "__close");
    lua_pop(L, 1);
}

void fl_lua_open_readers(lua_State *L, int io)
{
    static const luaL_Reg functions[] = {
        {"npy", io_npy},
        {"zip", io_zip},
        {"zip_npy", io_zip_npy},
        {"save_npy", io_save_npy},
        {"save_npz", io_save_npz},
        {"lines", io_lines},
        {"line", io_line},
        {"line_number", io_line_number},
        {NULL, NULL},
    };
    add_class(L, stream_name, stream_close);
    add_class(L, zip_name, zip_close);
    add_class(L, lines_name, lines_close);
    lua_pushvalue(L, io);
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
    fl_lua_open_csv(L, io);
}

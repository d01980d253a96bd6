/*
** data_tokens.c -- flow._io.tokens: tokenizers as userdata (data_tokens.lua documents them).
*/
#include "arguments.h"
#include "members.h"
#include "state.h"
#include "tensors.h"

#include <stdlib.h>

static const char name[] = "flow.tokenizer";

static int tokenizer_free(lua_State *L)
{
    fl_tokenizer **t = luaL_checkudata(L, 1, name);
    fl_tokenizer_free(*t);
    *t = NULL;
    return 0;
}

static fl_tokenizer *check_tokenizer(lua_State *L)
{
    fl_tokenizer **t = luaL_checkudata(L, 1, name);
    luaL_argcheck(L, *t != NULL, 1, "closed");
    return *t;
}

static fl_tokenizer **new_tokenizer(lua_State *L)
{
    fl_tokenizer **t = lua_newuserdatauv(L, sizeof *t, 0);
    *t = NULL;
    luaL_setmetatable(L, name);
    return t;
}

/* tokens.open(path) or (vocab, merges) -> userdata */
static int tokens_open(lua_State *L)
{
    const char *path = fl_lua_check_path(L, 1, "tokenizer");
    const char *merges = lua_isnoneornil(L, 2) ? NULL : fl_lua_check_path(L, 2, "tokenizer");
    fl_tokenizer **t = new_tokenizer(L);
    FL_CHECK(L, merges ? fl_tokenizer_read_pair(t, path, merges) : fl_tokenizer_read(t, path));
    return 1;
}

/* tokens.encode(tokenizer, text, add_special, dtype) -> tensor */
static int tokens_encode(lua_State *L)
{
    fl_tokenizer *t = check_tokenizer(L);
    size_t size;
    const char *text = luaL_checklstring(L, 2, &size);
    fl_dtype dtype = fl_lua_check_dtype(L, 4, "encode");
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_tokenizer_encode(&box->tensor, t, text, size, lua_toboolean(L, 3), dtype));
    fl_lua_account(L);
    return 1;
}

/* tokens.encode_list(tokenizer, texts, add_special, dtype) -> list of tensors; texts: a list of strings */
static int tokens_encode_list(lua_State *L)
{
    fl_tokenizer *t = check_tokenizer(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    size_t count = lua_rawlen(L, 2);
    fl_dtype dtype = fl_lua_check_dtype(L, 4, "encode");
    lua_createtable(L, (int)count, 0);
    int list = lua_gettop(L);
    fl_tokenizer_text *texts = lua_newuserdatauv(L, (count + 1) * sizeof *texts, 0);
    fl_tensor **tensors = lua_newuserdatauv(L, (count + 1) * sizeof *tensors, 0);
    fl_box **boxes = lua_newuserdatauv(L, (count + 1) * sizeof *boxes, 0);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, 2, (lua_Integer)i + 1);
        texts[i].data = luaL_checklstring(L, -1, &texts[i].size); /* the list keeps the string */
        lua_pop(L, 1);
        boxes[i] = fl_lua_new_box(L);
        lua_rawseti(L, list, (lua_Integer)i + 1);
    }
    fl_lua_enter(L);
    FL_CHECK(L, fl_tokenizer_encode_list(tensors, t, texts, count, lua_toboolean(L, 3), dtype));
    for (size_t i = 0; i < count; i++) boxes[i]->tensor = tensors[i];
    lua_settop(L, list);
    fl_lua_account(L);
    return 1;
}

/* tokens.encode_file(tokenizer, path, add_special, dtype, workers or nil) -> tensor */
static int tokens_encode_file(lua_State *L)
{
    fl_tokenizer *t = check_tokenizer(L);
    const char *path = fl_lua_check_path(L, 2, "encode_file");
    fl_dtype dtype = fl_lua_check_dtype(L, 4, "encode_file");
    int workers = (int)luaL_optinteger(L, 5, 0);
    fl_box *box = fl_lua_new_box(L);
    fl_lua_enter(L);
    FL_CHECK(L,
             fl_tokenizer_encode_file(&box->tensor, t, path, lua_toboolean(L, 3), dtype, workers, fl_lua_interrupted));
    fl_lua_account(L);
    return 1;
}

/* tokens.decode(tokenizer, ids, skip_special) -> text; ids: a contiguous int64 tensor of one axis */
static int tokens_decode(lua_State *L)
{
    fl_tokenizer *t = check_tokenizer(L);
    size_t size;
    fl_tensor *ids = fl_lua_check_tensor(L, 2, "decode", "ids");
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_lua_host(&box->tensor, ids));
    char **text = fl_lua_new_text(L);
    int64_t count = box->tensor->meta->numel;
    const int64_t *list = count > 0 ? fl_tensor_data(box->tensor) : NULL;
    FL_CHECK(L, fl_tokenizer_decode(text, &size, t, list, (size_t)count, lua_toboolean(L, 3)));
    lua_pushlstring(L, *text ? *text : "", size);
    free(*text);
    *text = NULL;
    return 1;
}

/* tokens.size(tokenizer) -> largest id + 1 */
static int tokens_size(lua_State *L)
{
    lua_pushinteger(L, fl_tokenizer_size(check_tokenizer(L)));
    return 1;
}

/* tokens.id(tokenizer, token) -> id or nil */
static int tokens_id(lua_State *L)
{
    size_t size;
    const char *token = luaL_checklstring(L, 2, &size);
    int64_t id = fl_tokenizer_id(check_tokenizer(L), token, size);
    if (id >= 0) lua_pushinteger(L, id);
    else lua_pushnil(L);
    return 1;
}

/* tokens.token(tokenizer, id) -> token or nil */
static int tokens_token(lua_State *L)
{
    const char *token;
    size_t size;
    if (fl_tokenizer_token(check_tokenizer(L), luaL_checkinteger(L, 2), &token, &size)) lua_pushlstring(L, token, size);
    else lua_pushnil(L);
    return 1;
}

/* tokens.describe(tokenizer) -> text */
static int tokens_describe(lua_State *L)
{
    char text[160];
    fl_tokenizer_describe(check_tokenizer(L), text, sizeof text);
    lua_pushstring(L, text);
    return 1;
}

void fl_lua_open_tokens(lua_State *L, int io)
{
    static const luaL_Reg functions[] = {
        {"open", tokens_open},
        {"encode", tokens_encode},
        {"encode_list", tokens_encode_list},
        {"encode_file", tokens_encode_file},
        {"decode", tokens_decode},
        {"size", tokens_size},
        {"id", tokens_id},
        {"token", tokens_token},
        {"describe", tokens_describe},
        {NULL, NULL},
    };
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, tokenizer_free);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    lua_setfield(L, io, "tokens");
}

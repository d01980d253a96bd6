/*
** checkpoint.c -- flow._io's files of tensors: checkpoint.lua decides what goes into them, stored.h writes and reads
** them on all ranks together.
*/
#include "core/process.h"
#include "arguments.h"
#include "members.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- saving ---- */

static void *new_array(lua_State *L, size_t item, int count)
{
    return lua_newuserdatauv(L, item * ((size_t)count + 1), 0);
}

/* _io.save(path, names, tensors, metadata, failure) -> differs: every rank calls it. metadata is a list of key, value,
** key, value ...; failure: the error of this rank so far, nil: none. If the ranks' metadata differ
** nothing is written, and all get the error. */
static int io_save(lua_State *L)
{
    fl_save_job job = {.path = lua_toboolean(L, 5) ? "" : fl_lua_check_path(L, 1, "save")};
    lua_settop(L, 5);
    for (int i = 2; i <= 4; i++) luaL_checktype(L, i, LUA_TTABLE);
    job.count = (int)lua_rawlen(L, 2);
    job.metadata_count = (int)lua_rawlen(L, 4) / 2;
    job.entries = new_array(L, sizeof *job.entries, job.count);
    job.tensors = new_array(L, sizeof *job.tensors, job.count);
    job.metadata = new_array(L, sizeof *job.metadata, 2 * job.metadata_count);
    for (int i = 0; i < job.count; i++) {
        if (lua_rawgeti(L, 2, i + 1) != LUA_TSTRING) return luaL_argerror(L, 2, "names must be strings");
        lua_rawgeti(L, 3, i + 1);
        job.tensors[i] = fl_lua_check_tensor(L, -1, "save", lua_tostring(L, -2));
        job.entries[i] = (fl_safetensors_entry){lua_tostring(L, -2), job.tensors[i]->meta->dtype,
                                                job.tensors[i]->meta->shape, 0, 0};
        lua_pop(L, 2); /* the tables keep the strings and the tensors */
    }
    for (int i = 0; i < 2 * job.metadata_count; i++) {
        if (lua_rawgeti(L, 4, i + 1) != LUA_TSTRING) return luaL_argerror(L, 4, "keys and values must be strings");
        job.metadata[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    FL_CHECK(L, fl_save_together(&job, luaL_optstring(L, 5, NULL)));
    lua_pushboolean(L, job.differs);
    return 1;
}

/* ---- loading ---- */

static const char reader_name[] = "flow.safetensors";

static int reader_close(lua_State *L)
{
    fl_safetensors **reader = luaL_checkudata(L, 1, reader_name);
    fl_safetensors_close(*reader);
    *reader = NULL;
    return 0;
}

static void push_entry(lua_State *L, const fl_safetensors_entry *entry)
{
    lua_createtable(L, 0, 5); /* checkpoint.lua adds two */
    lua_pushstring(L, entry->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, fl_dtype_name(entry->dtype));
    lua_setfield(L, -2, "dtype");
    lua_createtable(L, entry->shape.ndim, 0);
    for (int i = 0; i < entry->shape.ndim; i++) {
        lua_pushinteger(L, entry->shape.dims[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "shape");
}

/* _io.open(path, together) -> file, list of {name, dtype, shape}, metadata (as _io.save takes it). together: every rank
** of the world calls it, and all must find the same file. */
static int io_open(lua_State *L)
{
    const char *path = fl_lua_check_path(L, 1, "load");
    bool together = lua_toboolean(L, 2) && !fl_world_get()->dry;
    fl_safetensors **reader = lua_newuserdatauv(L, sizeof *reader, 0);
    *reader = NULL;
    luaL_setmetatable(L, reader_name);
    fl_status status = fl_safetensors_open(reader, path);
    FL_CHECK(L, together ? fl_load_agree(status, *reader, path) : status);
    lua_createtable(L, (*reader)->count, 0);
    for (int i = 0; i < (*reader)->count; i++) {
        push_entry(L, &(*reader)->entries[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_createtable(L, 2 * (*reader)->metadata_count, 0);
    for (int i = 0; i < 2 * (*reader)->metadata_count; i++) {
        lua_pushstring(L, (*reader)->metadata[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 3;
}

/* _io.read(file, index, placement, sbp) -> tensor: local without a placement, else global, of which this rank reads
** only its own part. Nothing is communicated. index counts from 1. */
static int io_read(lua_State *L)
{
    fl_safetensors *file = *(fl_safetensors **)luaL_checkudata(L, 1, reader_name);
    int index = (int)luaL_checkinteger(L, 2) - 1;
    luaL_argcheck(L, file && index >= 0 && index < file->count, 2, "no such entry");
    const fl_safetensors_entry *entry = &file->entries[index];
    fl_box *box = fl_lua_new_box(L);
    fl_status status;
    if (lua_isnoneornil(L, 3)) status = fl_load_local(&box->tensor, file, index);
    else {
        const fl_placement *placement = fl_lua_check_placement(L, 3, "load");
        status = fl_load_global(&box->tensor, file, index, placement,
                                fl_lua_check_sbp(L, 4, entry->shape.ndim, "load"));
        if (status == FL_ERR_SBP) fl_fail_prefix(status, "load: tensor '%s': ", entry->name);
    }
    FL_CHECK(L, status);
    fl_lua_account(L);
    return 1;
}

/* _io.agree(what, failure): every rank of the world calls it; when one has failed all fail with its message. */
static int io_agree(lua_State *L)
{
    const char *failure = luaL_optstring(L, 2, NULL);
    if (fl_world_get()->dry && !failure) return 0;
    FL_CHECK(L,
             fl_agree(luaL_checkstring(L, 1), failure ? fl_fail(FL_ERR_VALUE, "%s", failure) : FL_OK, NULL, NULL, 0));
    return 0;
}

enum { WORDS_TEXT = 256 };

/* The lists of all ranks, of which `least` is the shortest's length: words the first difference, alike on all ranks.
** `mine`, `texts`: room for one and for all ranks' texts; own, all: for `least` hashes and all ranks'. */
static fl_status words_fail(lua_State *L, int64_t least, uint64_t *own, uint64_t *all, char *mine, char *texts)
{
    const char *what = lua_tostring(L, 1);
    int world = fl_agree_count(), rank = 0;
    int64_t at = 0, count = (int64_t)lua_rawlen(L, 3);
    for (int64_t i = 0; i < least; i++, lua_pop(L, 1)) {
        size_t length;
        lua_rawgeti(L, 3, i + 1);
        const char *text = lua_tolstring(L, -1, &length);
        own[i] = fl_hash_bytes(FL_HASH_START, text, length);
    }
    FL_TRY(fl_agree(what, FL_OK, all, own, sizeof *own * (size_t)least));
    for (at = 0; at < least && rank == 0; at += rank == 0)
        for (int r = world - 1; r > 0; r--)
            if (all[r * least + at] != all[at]) rank = r;
    if (at < count) lua_rawgeti(L, 3, at + 1);
    else lua_pushliteral(L, "nothing more");
    snprintf(mine, WORDS_TEXT, "%s", lua_tostring(L, -1));
    lua_pop(L, 1);
    FL_TRY(fl_agree(what, FL_OK, texts, mine, WORDS_TEXT));
    for (int r = 1; r < world && rank == 0; r++)
        if (strcmp(texts, texts + r * WORDS_TEXT) != 0) rank = r;
    return fl_fail(FL_ERR_VALUE, "%s: %s; rank 0 has %s and rank %d has %s", what, lua_tostring(L, 2), texts, rank,
                   texts + rank * WORDS_TEXT);
}

/* _io.same(what, rule, words): every rank of the world calls it with its list of strings; that they differ is an error
** that gives the rule and the first two that do. */
static int io_same(lua_State *L)
{
    struct {
        uint64_t hash;
        int64_t count;
    } mine = {FL_HASH_START, (int64_t)lua_rawlen(L, 3)}, *facts;
    int world = fl_agree_count();
    if (world == 1 || fl_world_get()->dry) return 0;
    facts = new_array(L, sizeof *facts, world);
    for (int64_t i = 0; i < mine.count; i++, lua_pop(L, 1)) {
        size_t length;
        lua_rawgeti(L, 3, i + 1);
        const char *text = luaL_checklstring(L, -1, &length);
        mine.hash = fl_hash_bytes(mine.hash, text, length + 1);
    }
    FL_CHECK(L, fl_agree(lua_tostring(L, 1), FL_OK, facts, &mine, sizeof mine));
    bool same = true;
    int64_t least = mine.count;
    for (int r = 0; r < world; r++) {
        same = same && facts[r].hash == facts[0].hash;
        if (facts[r].count < least) least = facts[r].count;
    }
    if (same) return 0;
    uint64_t *own = new_array(L, sizeof *own * ((size_t)world + 1), (int)least);
    char *texts = new_array(L, WORDS_TEXT, world + 1);
    FL_CHECK(L, words_fail(L, least, own, own + least, texts + world * WORDS_TEXT, texts));
    return 0;
}

void fl_lua_open_checkpoint(lua_State *L, int io)
{
    static const luaL_Reg functions[] = {
        {"save", io_save}, {"open", io_open}, {"read", io_read}, {"agree", io_agree}, {"same", io_same}, {NULL, NULL},
    };
    luaL_newmetatable(L, reader_name);
    lua_pushcfunction(L, reader_close);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    lua_pushvalue(L, io);
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}

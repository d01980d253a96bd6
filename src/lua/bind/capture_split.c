/*
** capture_split.c -- a captured function that reads values: Lua runs it at each call, its ops are answered
** (core/program/pieces.h).
*/
#include "capture.h"
#include "errors.h"

/* Boxes of tensors are collected young only where no collection has come between: there is none by itself while ops are
** answered. */
struct collector {
    lua_State *L;
    bool paused;
};

static void pause_collector(struct collector *collector)
{
    collector->paused = lua_gc(collector->L, LUA_GCISRUNNING);
    lua_gc(collector->L, LUA_GCSTOP);
}

static void resume_collector(void *context)
{
    struct collector *collector = context;
    if (collector->paused) lua_gc(collector->L, LUA_GCRESTART);
    collector->paused = false;
}

static void collect(void *context, bool all)
{
    lua_State *L = ((const struct collector *)context)->L;
    if (all) fl_lua_collect_all(L);
    else fl_lua_collect_young(L);
}

static int tensors_of(fl_tensor **out, lua_State *L, int first, int count)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        if (fl_lua_box(L, first + i)) out[n++] = fl_lua_box(L, first + i)->tensor;
    return n;
}

/* The pieces for arguments of these metas; a new one takes the place of the oldest. */
static fl_pieces *pieces_for(lua_State *L, fl_captured *captured, fl_tensor *const *args, int count)
{
    for (int i = 0; i < FL_CAPTURE_VERSIONS; i++)
        if (captured->pieces_of[i] && fl_pieces_fits(captured->pieces_of[i], args, count))
            return captured->pieces_of[i];
    fl_pieces **place = &captured->pieces_of[captured->pieces_next];
    captured->pieces_next = (captured->pieces_next + 1) % FL_CAPTURE_VERSIONS;
    fl_pieces_free(*place);
    *place = NULL;
    FL_CHECK(L, fl_pieces_new(place, args, count));
    return *place;
}

int fl_captured_split(lua_State *L, int self, fl_captured *captured, int first, int count)
{
    fl_tensor *args[FL_CAPTURE_ARGS];
    struct collector collector = {.L = L};
    const fl_pieces_host host = {collect, resume_collector, &collector};
    bool answers = false;
    fl_pieces *pieces = pieces_for(L, captured, args, tensors_of(args, L, first, count));
    if (!fl_pieces_is_vain(pieces)) FL_CHECK(L, fl_pieces_begin(&answers, pieces, args, &host));
    lua_getiuservalue(L, self, FL_CAPTURED_FUNCTION);
    luaL_checkstack(L, count + 8, "capture");
    for (int i = 0; i < count; i++) lua_pushvalue(L, first + i);
    const int below = lua_gettop(L) - count - 1;
    if (!answers) {
        lua_call(L, count, LUA_MULTRET);
        return lua_gettop(L) - below;
    }
    pause_collector(&collector);
    bool failed = lua_pcall(L, count, LUA_MULTRET, 0) != LUA_OK;
    fl_lua_enter(L);
    fl_status status = fl_pieces_end(failed);
    resume_collector(&collector);
    fl_lua_account(L);
    if (failed) return lua_error(L);
    FL_CHECK(L, status);
    return lua_gettop(L) - below;
}

/*
** collector.c -- Lua's collector, driven by the bytes of tensors.
**
** Lua's collector does not see the bytes of tensors, so they are reported to it: generational mode, a young
** collection for every 4 MiB allocated or four large tensors, and a full one when the live bytes exceed twice what the
** last full one left (young ones alone leak what outlives two of them) and FULL_SHARE times Lua's heap: computing so
** many bytes takes ten times as long as a full collection.
*/
#include "tensors.h"

enum { FULL_MINIMUM = 64 << 20, FULL_SHARE = 64 };

static int64_t live_after_full;

void fl_lua_collect_all(lua_State *L)
{
    lua_gc(L, LUA_GCCOLLECT);
    live_after_full = fl_storage_live;
    fl_storage_unaccounted = 0;
}

/* Live bytes from which a full collection pays. */
static int64_t full_from(lua_State *L)
{
    int64_t least = FULL_SHARE * ((int64_t)lua_gc(L, LUA_GCCOUNT) << 10);
    if (least > FULL_MINIMUM) least = FULL_MINIMUM;
    return 2 * (live_after_full > least ? live_after_full : least);
}

static int temporaries; /* functions that run, see tensors.h */

void fl_lua_collect_young(lua_State *L)
{
    if (temporaries == 0) lua_gc(L, LUA_GCSTEP, 0);
    fl_storage_unaccounted = 0;
}

void fl_lua_collect_step(lua_State *L)
{
    if (fl_tensors_released) fl_tensors_reclaim();
    if (fl_storage_live > full_from(L)) fl_lua_collect_all(L);
    else fl_lua_collect_young(L);
}

void fl_lua_begin_temporaries(lua_State *L)
{
    fl_lua_collect_young(L);
    temporaries++;
}

void fl_lua_end_temporaries(lua_State *L, bool at_once)
{
    temporaries--;
    if (at_once) fl_lua_collect_young(L);
}

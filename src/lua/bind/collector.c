/*
** collector.c -- Lua's collector, driven by the bytes of tensors.
**
** Lua's collector does not see the bytes of tensors, so they are reported to it: generational mode, a young
** collection for every 4 MiB allocated, and a full one when the live bytes exceed twice what the last
** full one left (young ones alone leak what outlives two of them).
*/
#include "tensors.h"

#include <stdlib.h>

enum { FULL_MINIMUM = 64 << 20 };

/* ---- values to drop when Lua may be called again ---- */

int fl_lua_late;
static int *late_refs;
static int late_capacity;

void fl_lua_unref_later(int ref)
{
    if (fl_lua_late == late_capacity) {
        int capacity = late_capacity ? 2 * late_capacity : 16;
        int *grown = realloc(late_refs, sizeof *grown * (size_t)capacity);
        if (!grown) return; /* the value stays alive: no harm */
        late_refs = grown;
        late_capacity = capacity;
    }
    late_refs[fl_lua_late++] = ref;
}

void fl_lua_drop_late(lua_State *L)
{
    while (fl_lua_late > 0) luaL_unref(L, LUA_REGISTRYINDEX, late_refs[--fl_lua_late]);
}

/* ---- the collector ---- */

static int64_t live_after_full;

void fl_lua_collect_all(lua_State *L)
{
    lua_gc(L, LUA_GCCOLLECT);
    live_after_full = fl_storage_live > FULL_MINIMUM ? fl_storage_live : FULL_MINIMUM;
    fl_storage_unaccounted = 0;
}

void fl_lua_collect_step(lua_State *L)
{
    if (live_after_full == 0) live_after_full = FULL_MINIMUM;
    if (fl_storage_live > 2 * live_after_full) fl_lua_collect_all(L);
    else {
        lua_gc(L, LUA_GCSTEP, 0);
        fl_storage_unaccounted = 0;
    }
}

/*
** item_random.c -- random(), random(n), random(a, b) as math.random has them, random:uniform(a, b),
** random:normal(mean, std).
*/
#include "item_random.h"
#include "core/script.h"

#include <math.h>

static const char random_type[] = "flow.random";

static fl_item_random *check_random(lua_State *L) { return luaL_checkudata(L, 1, random_type); }

static int random_call(lua_State *L)
{
    fl_item_random *r = check_random(L);
    lua_Integer low = 1, high = 0;
    switch (lua_gettop(L)) {
    case 1: lua_pushnumber(L, fl_item_random_uniform(r)); return 1;
    case 2: high = luaL_checkinteger(L, 2); break;
    case 3:
        low = luaL_checkinteger(L, 2);
        high = luaL_checkinteger(L, 3);
        break;
    default: return luaL_error(L, "random: takes no number, one or two");
    }
    if (low > high) luaL_error(L, "random: the interval from %I to %I is empty", (LUAI_UACINT)low, (LUAI_UACINT)high);
    lua_pushinteger(L, (lua_Integer)((uint64_t)low + fl_item_random_upto(r, (uint64_t)high - (uint64_t)low)));
    return 1;
}

/* random:uniform([a, b]), in [a, b) */
static int random_uniform(lua_State *L)
{
    fl_item_random *r = check_random(L);
    double low = luaL_optnumber(L, 2, 0), high = luaL_optnumber(L, 3, 1);
    lua_pushnumber(L, low + (high - low) * fl_item_random_uniform(r));
    return 1;
}

/* random:normal([mean, std]): Box and Muller's transform */
static int random_normal(lua_State *L)
{
    fl_item_random *r = check_random(L);
    double mean = luaL_optnumber(L, 2, 0), std = luaL_optnumber(L, 3, 1);
    double u = 1 - fl_item_random_uniform(r), angle = 2 * 3.141592653589793 * fl_item_random_uniform(r);
    lua_pushnumber(L, mean + std * sqrt(-2 * log(u)) * cos(angle));
    return 1;
}

void fl_lua_push_item_random(lua_State *L, uint64_t seed, uint64_t epoch, uint64_t position, uint64_t stream)
{
    fl_item_random *r = lua_newuserdatauv(L, sizeof *r, 0);
    fl_item_random_begin(r, seed, epoch, position, stream);
    luaL_setmetatable(L, random_type);
}

void fl_lua_open_item_random(lua_State *L)
{
    static const luaL_Reg methods[] = {{"uniform", random_uniform}, {"normal", random_normal}, {NULL, NULL}};
    luaL_newmetatable(L, random_type);
    lua_pushcfunction(L, random_call);
    lua_setfield(L, -2, "__call");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

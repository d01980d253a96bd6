/*
** generator.c -- flow.generator: streams of random numbers beside the default one.
**
** A generator is a seed and a counter, so saving and restoring one is exact. flow.with_generator(g, f) lets the random
** ops inside f draw from g: an evaluation or a sampler then leaves the default stream where it was.
*/
#include "arguments.h"
#include "members.h"
#include "scope.h"

static const char generator_name[] = "flow.Generator";

struct generator {
    fl_generator *state; /* &own, or the default generator of the core */
    fl_generator own;
};

static struct generator *check_generator(lua_State *L, int index, const char *who)
{
    struct generator *g = luaL_testudata(L, index, generator_name);
    if (g) return g;
    const char *given = fl_lua_type_name(L, index);
    const char *hint = strcmp(who, "with_generator") == 0 ? "" : fl_lua_push_colon(L, "g", who);
    FL_RAISE(L, "%s: takes a generator, got %s%s", who, given, hint);
}

static struct generator *push_generator(lua_State *L)
{
    struct generator *g = lua_newuserdatauv(L, sizeof *g, 0);
    *g = (struct generator){.state = &g->own};
    luaL_setmetatable(L, generator_name);
    return g;
}

/* flow.generator(seed) */
static int generator_new(lua_State *L)
{
    fl_lua_check_count(L, 1, "generator", "generator(seed)");
    uint64_t seed = (uint64_t)fl_lua_check_integer(L, 1, "generator", "seed");
    push_generator(L)->own.seed = seed;
    return 1;
}

/* flow.default_generator(): the generator of random ops outside of with_generator */
static int generator_default(lua_State *L)
{
    fl_lua_check_count(L, 0, "default_generator", "default_generator()");
    struct generator *g = push_generator(L);
    fl_generator *current = fl_generator_use(NULL);
    g->state = fl_generator_current();
    fl_generator_use(current);
    return 1;
}

/* g:state() -> {seed =, counter =} */
static int generator_state(lua_State *L)
{
    struct generator *g = check_generator(L, 1, "state");
    FL_CHECK(L, fl_answer_read());
    fl_lua_check_count(L, 1, "state", "g:state()");
    lua_createtable(L, 0, 2);
    lua_pushinteger(L, (lua_Integer)g->state->seed);
    lua_setfield(L, -2, "seed");
    lua_pushinteger(L, (lua_Integer)g->state->counter);
    lua_setfield(L, -2, "counter");
    return 1;
}

/* g:load_state(state) */
static int generator_load_state(lua_State *L)
{
    static const char *const keys[] = {"seed", "counter", NULL};
    struct generator *g = check_generator(L, 1, "load_state");
    FL_CHECK(L, fl_program_refuse("the generator of random numbers is changed"));
    fl_lua_check_count(L, 2, "load_state", "g:load_state{seed =, counter =}");
    fl_lua_check_keys(L, 2, "load_state", keys);
    lua_getfield(L, 2, "seed");
    lua_getfield(L, 2, "counter");
    uint64_t seed = (uint64_t)fl_lua_check_integer(L, -2, "load_state", "seed");
    uint64_t counter = (uint64_t)fl_lua_check_integer(L, -1, "load_state", "counter");
    fl_generator_set(g->state, (fl_generator){seed, counter});
    return 0;
}

/* g:manual_seed(seed) */
static int generator_manual_seed(lua_State *L)
{
    struct generator *g = check_generator(L, 1, "manual_seed");
    FL_CHECK(L, fl_program_refuse("the generator of random numbers is changed"));
    fl_lua_check_count(L, 2, "manual_seed", "g:manual_seed(seed)");
    uint64_t seed = (uint64_t)fl_lua_check_integer(L, 2, "manual_seed", "seed");
    fl_generator_set(g->state, (fl_generator){seed, 0});
    return 0;
}

static int generator_tostring(lua_State *L)
{
    struct generator *g = check_generator(L, 1, "tostring");
    FL_CHECK(L, fl_answer_read());
    lua_pushfstring(L, "generator(seed = %I, counter = %I)", (LUAI_UACINT)g->state->seed,
                    (LUAI_UACINT)g->state->counter);
    return 1;
}

/* ---- scopes ---- */

/* flow.with_generator(g, f, ...) -> what f returns; without f: a value for `local _ <close> =` */
static int with_generator(lua_State *L)
{
    struct generator *g = check_generator(L, 1, "with_generator");
    FL_CHECK(L, fl_program_refuse("the generator of random numbers is changed"));
    int given = lua_gettop(L);
    if (given > 1 && !fl_lua_is_callable(L, 2))
        FL_RAISE(L, "with_generator: f must be a function, got %s", fl_lua_type_name(L, 2));
    fl_lua_scope_open(L, FL_SETTING_GENERATOR, (uintptr_t)g->state, 1);
    if (given == 1) return 1;
    lua_replace(L, 1);
    return fl_lua_scope_call(L);
}

static const luaL_Reg methods[] = {
    {"state", generator_state},
    {"load_state", generator_load_state},
    {"manual_seed", generator_manual_seed},
    {NULL, NULL},
};

void fl_lua_open_generator(lua_State *L, int flow)
{
    luaL_newmetatable(L, generator_name);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, generator_tostring);
    lua_setfield(L, -2, "__tostring");
    fl_lua_set_object(L, "a generator");
    lua_pop(L, 1);
    lua_pushcfunction(L, generator_new);
    lua_setfield(L, flow, "generator");
    lua_pushcfunction(L, generator_default);
    lua_setfield(L, flow, "default_generator");
    lua_pushcfunction(L, with_generator);
    lua_setfield(L, flow, "with_generator");
}

/*
** plan.c -- flow._plan: the cost of a stretch of a planned script on this rank, as tables (flow.plan makes the report).
*/
#include "arguments.h"
#include "members.h"
#include "tensors.h"

static void set_integer(lua_State *L, const char *name, lua_Integer value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

static void set_text(lua_State *L, const char *name, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

static void append(lua_State *L) { lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1); }

/* By fl_tally_tag. */
static const char *const tags[] = {"temporary", "boxed", "kept", "parameter", "gradient", "optimizer", NULL};

/* begin(): the stretch begins */
static int plan_begin(lua_State *L)
{
    fl_lua_enter(L);
    fl_tally_begin();
    return 0;
}

/* tag(tensor, tag): the contents of its memory; of a tensor with values nothing happens */
static int plan_tag(lua_State *L)
{
    fl_tensor *tensor = fl_lua_to_tensor(L, 1);
    if (tensor) fl_tally_tag_tensor(tensor, (fl_tally_tag)luaL_checkoption(L, 2, NULL, tags));
    return 0;
}

/* tag_gradient(tensor): the same for its gradient, of which x.grad would be a reference until the next collection */
static int plan_tag_gradient(lua_State *L)
{
    fl_tensor *tensor = fl_lua_to_tensor(L, 1), *grad = tensor ? fl_autograd_grad_of(tensor) : NULL;
    if (grad) fl_tally_tag_tensor(grad, FL_TALLY_GRADIENT);
    return 0;
}

/* real(f, ...): f(...), whose results have values on the CPU although they are drawn or filled */
static int plan_real(lua_State *L)
{
    fl_planned_look_on(false);
    int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    fl_planned_look_on(fl_world_get()->planned);
    return status == LUA_OK ? lua_gettop(L) : lua_error(L);
}

static void push_ops(lua_State *L)
{
    const fl_tally_op *ops;
    int64_t count;
    FL_CHECK(L, fl_tally_ops(&ops, &count));
    lua_newtable(L);
    for (int64_t i = 0; i < count; i++) {
        lua_createtable(L, 0, 5);
        set_text(L, "op", ops[i].op->name);
        set_text(L, "dtype", fl_dtype_name(ops[i].each.dtype));
        set_integer(L, "flops", ops[i].each.flops);
        set_integer(L, "bytes", ops[i].each.bytes);
        set_integer(L, "count", ops[i].count);
        append(L);
    }
}

static void push_moves(lua_State *L)
{
    const fl_tally_move *moves;
    int64_t count;
    FL_CHECK(L, fl_tally_moves(&moves, &count));
    lua_newtable(L);
    for (int64_t i = 0; i < count; i++) {
        const fl_tally_move *m = &moves[i];
        lua_createtable(L, 0, 8);
        set_text(L, "kind", fl_box_kind_name(m->kind));
        set_text(L, "line", m->line);
        set_text(L, "tensor", m->tensor);
        set_integer(L, "axis", m->axis);
        set_integer(L, "ranks", m->ranks);
        set_integer(L, "bytes", m->bytes);
        set_integer(L, "count", m->count);
        lua_pushboolean(L, m->network);
        lua_setfield(L, -2, "network");
        lua_pushboolean(L, m->joined);
        lua_setfield(L, -2, "joined");
        append(L);
    }
}

static void push_memory(lua_State *L)
{
    fl_tally_memory memory;
    FL_CHECK(L, fl_tally_memory_get(&memory));
    lua_createtable(L, 0, FL_TALLY_TAGS + 1);
    set_integer(L, "peak", memory.peak);
    for (int t = 0; t < FL_TALLY_TAGS; t++) set_integer(L, tags[t], memory.of[t]);
}

static void push_kinds(lua_State *L)
{
    fl_tally_kind *kinds;
    int count;
    FL_CHECK(L, fl_tally_kinds(&kinds, &count));
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_createtable(L, 0, 2);
        set_integer(L, "elements", kinds[i].elements);
        lua_createtable(L, kinds[i].count, 0);
        for (int r = 0; r < kinds[i].count; r++) {
            lua_pushinteger(L, kinds[i].ranks[r]);
            append(L);
        }
        lua_setfield(L, -2, "ranks");
        append(L);
    }
    fl_tally_kinds_free(kinds, count);
}

/* report() -> {ops =, moves =, memory =, kinds =} of the stretch */
static int plan_report(lua_State *L)
{
    lua_createtable(L, 0, 4);
    push_ops(L);
    lua_setfield(L, -2, "ops");
    push_moves(L);
    lua_setfield(L, -2, "moves");
    push_memory(L);
    lua_setfield(L, -2, "memory");
    push_kinds(L);
    lua_setfield(L, -2, "kinds");
    return 1;
}

void fl_lua_open_plan(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {
        {"begin", plan_begin}, {"tag", plan_tag},       {"tag_gradient", plan_tag_gradient},
        {"real", plan_real},   {"report", plan_report}, {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_pushboolean(L, fl_world_get()->planned);
    lua_setfield(L, -2, "on");
    lua_setfield(L, flow, "_plan");
}

/*
** placement.c -- placements and SBPs as Lua values.
**
** Both are small userdata with value semantics: placements are interned in the core, an SBP is eight
** bytes. x.sbp is the list of its entries: x.sbp[1] belongs to hierarchy axis 0.
*/
#include "arguments.h"
#include "members.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>

#define PLACEMENT_TYPE "flow.placement"
#define SBP_TYPE "flow.sbp"

enum { MAX_RANK = 1 << 20 };

/* ---- placements ---- */

void fl_lua_push_placement(lua_State *L, const fl_placement *placement)
{
    const fl_placement **box = lua_newuserdatauv(L, sizeof *box, 0);
    *box = placement;
    luaL_setmetatable(L, PLACEMENT_TYPE);
}

const fl_placement *fl_lua_check_placement(lua_State *L, int index, const char *who)
{
    const fl_placement **box = luaL_testudata(L, index, PLACEMENT_TYPE);
    if (!box) FL_RAISE(L, "%s: placement must be one of flow.placement(...), got %s", who, fl_lua_type_name(L, index));
    return *box;
}

/* The ranks of a nested list; `ranks` is memory of a userdata on the stack. */
struct rank_list {
    int *ranks, count, capacity;
    int hierarchy[FL_MAX_HIERARCHY], ndim;
};

/* The most ranks that the nested lists at `index` can name: those of a regular grid with its first lists. */
static int count_ranks(lua_State *L, int index, int limit)
{
    int64_t count = 1, depth = 0;
    luaL_checkstack(L, 2, "placement");
    lua_pushvalue(L, index);
    while (lua_istable(L, -1) && depth++ < FL_MAX_HIERARCHY && count <= limit) {
        count *= (int64_t)lua_rawlen(L, -1);
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
    }
    lua_pop(L, 1);
    return count < limit ? (int)count : limit;
}

static void read_ranks(lua_State *L, struct rank_list *list, int index, int depth)
{
    if (depth >= FL_MAX_HIERARCHY) FL_RAISE(L, "placement: ranks are nested deeper than %d", FL_MAX_HIERARCHY);
    luaL_checkstack(L, 4, "placement");
    int n = (int)lua_rawlen(L, index);
    if (list->ndim <= depth) {
        list->ndim = depth + 1;
        list->hierarchy[depth] = n;
    }
    if (list->hierarchy[depth] != n)
        FL_RAISE(L, "placement: ranks must form a regular grid; one list holds %d, another %d", list->hierarchy[depth],
                 n);
    for (int i = 1; i <= n; i++) {
        bool nested = lua_rawgeti(L, index, i) == LUA_TTABLE;
        if (nested != (depth + 1 < list->ndim) && list->count > 0)
            FL_RAISE(L, "placement: ranks must form a regular grid");
        if (nested) read_ranks(L, list, lua_gettop(L), depth + 1);
        else {
            if (list->count == list->capacity)
                FL_RAISE(L, "placement: more ranks than the world has (%d)", fl_world_get()->size);
            int64_t rank = fl_lua_check_integer(L, -1, "placement", "a rank");
            if (rank < 0 || rank > MAX_RANK)
                FL_RAISE(L, "placement: there is no rank %lld: ranks count from 0", (long long)rank);
            list->ranks[list->count++] = (int)rank;
        }
        lua_pop(L, 1);
    }
}

static fl_device_type check_device_type(lua_State *L, int index, const char *who)
{
    const fl_placement *own = fl_lua_check_device(L, index, who);
    if (own->device_index >= 0)
        FL_RAISE(L, "%s: every rank uses a GPU of its own; write \"cuda\", not \"%s\"", who, lua_tostring(L, index));
    return own->type;
}

/* flow.placement(type, ranks): called through __call, so the arguments begin at 2 */
static int placement_new(lua_State *L)
{
    fl_lua_check_count(L, 3, "placement", "placement(type, ranks)");
    fl_device_type type = check_device_type(L, 2, "placement");
    if (!lua_istable(L, 3)) FL_RAISE(L, "placement: ranks must be a list, got %s", fl_lua_type_name(L, 3));
    struct rank_list list = {.capacity = count_ranks(L, 3, type == FL_META ? MAX_RANK : fl_world_get()->size + 1)};
    list.ranks = lua_newuserdatauv(L, sizeof *list.ranks * (size_t)list.capacity, 0);
    read_ranks(L, &list, 3, 0);
    const fl_placement *p;
    FL_CHECK(L, fl_placement_get(&p, type, list.ranks, list.count, list.hierarchy, list.ndim));
    fl_lua_push_placement(L, p);
    return 1;
}

static int placement_all(lua_State *L)
{
    fl_lua_check_count(L, 1, "placement.all", "placement.all(type)");
    const fl_placement *p = fl_placement_all(check_device_type(L, 1, "placement.all"));
    if (!p) FL_RAISE(L, "placement: out of memory");
    fl_lua_push_placement(L, p);
    return 1;
}

/* Pushes the ranks as nested lists of the hierarchy's axes from `axis` on. */
static void push_ranks(lua_State *L, const fl_placement *placement, int axis, int *next)
{
    lua_createtable(L, placement->hierarchy[axis], 0);
    for (int i = 1; i <= placement->hierarchy[axis]; i++) {
        if (axis + 1 < placement->ndim) push_ranks(L, placement, axis + 1, next);
        else lua_pushinteger(L, placement->ranks[(*next)++]);
        lua_rawseti(L, -2, i);
    }
    fl_lua_set_list(L, FL_LIST_RANKS);
}

static int placement_index(lua_State *L)
{
    const fl_placement *p = fl_lua_check_placement(L, 1, "placement");
    const char *key = luaL_tolstring(L, 2, NULL);
    int next = 0;
    if (strcmp(key, "type") == 0) lua_pushstring(L, fl_device_type_name(p->type));
    else if (strcmp(key, "ranks") == 0) push_ranks(L, p, 0, &next);
    else if (strcmp(key, "hierarchy") == 0) {
        lua_createtable(L, p->ndim, 0);
        for (int k = 0; k < p->ndim; k++) {
            lua_pushinteger(L, p->hierarchy[k]);
            lua_rawseti(L, -2, k + 1);
        }
        fl_lua_set_list(L, FL_LIST_HIERARCHY);
    } else {
        fl_suggestion s = {.word = key};
        fl_suggest_offer(&s, "type");
        fl_suggest_offer(&s, "ranks");
        fl_suggest_offer(&s, "hierarchy");
        char hint[FL_SUGGEST_TEXT];
        FL_RAISE(L, "a placement has no field '%s'%s", key, fl_suggest_text(hint, &s));
    }
    return 1;
}

static int placement_tostring(lua_State *L)
{
    char text[FL_PLACEMENT_TEXT];
    lua_pushstring(L, fl_placement_text(text, fl_lua_check_placement(L, 1, "placement")));
    return 1;
}

static int placement_equal(lua_State *L)
{
    const fl_placement **a = luaL_testudata(L, 1, PLACEMENT_TYPE), **b = luaL_testudata(L, 2, PLACEMENT_TYPE);
    lua_pushboolean(L, a && b && *a == *b);
    return 1;
}

/* ---- SBPs ---- */

void fl_lua_push_sbp(lua_State *L, fl_nd_sbp sbp)
{
    fl_nd_sbp *box = lua_newuserdatauv(L, sizeof *box, 0);
    *box = sbp;
    luaL_setmetatable(L, SBP_TYPE);
}

void fl_lua_check_fit(lua_State *L, fl_nd_sbp sbp, const fl_placement *placement, const char *who)
{
    fl_status status = fl_nd_sbp_check(sbp, placement);
    if (status != FL_OK) fl_lua_error(L, fl_fail_prefix(status, "%s: ", who));
}

/* Raises: the text is no sbp. */
static void refuse_sbp(lua_State *L, const char *text, int ndim, const char *who)
{
    int axis, end = 0;
    if (ndim > 0 && sscanf(text, "S(-%d)%n", &axis, &end) == 1 && end > 0 && text[end] == 0)
        FL_RAISE(L, "%s: sbp %s: the tensor has %d ax%ss; write \"S(-%d)\" to \"S(%d)\"", who, text, ndim,
                 ndim == 1 ? "i" : "e", ndim, ndim - 1);
    FL_RAISE(L, "%s: '%s' is not an sbp; an sbp is \"S(0)\", \"B\", \"P\", \"P(max)\" or \"P(min)\"", who, text);
}

static fl_sbp parse_sbp(lua_State *L, const char *text, int ndim, const char *who)
{
    fl_sbp sbp;
    if (!fl_sbp_parse(&sbp, text, ndim)) refuse_sbp(L, text, ndim, who);
    return sbp;
}

fl_nd_sbp fl_lua_check_sbp(lua_State *L, int index, int ndim, const char *who)
{
    fl_nd_sbp *box = luaL_testudata(L, index, SBP_TYPE);
    if (box) return *box;
    if (lua_type(L, index) == LUA_TSTRING) return fl_nd_sbp_fill(parse_sbp(L, lua_tostring(L, index), ndim, who), 1);
    if (!lua_istable(L, index))
        FL_RAISE(L, "%s: sbp must be an sbp, a string or a list of them, got %s", who, fl_lua_type_name(L, index));
    fl_nd_sbp all = {0};
    lua_Unsigned n = lua_rawlen(L, index);
    if (n < 1 || n > FL_MAX_HIERARCHY)
        FL_RAISE(L, "%s: sbp must have 1 to %d entries, got %d", who, FL_MAX_HIERARCHY, (int)n);
    for (int k = 0; k < (int)n; k++) {
        if (lua_rawgeti(L, index, k + 1) == LUA_TTABLE) FL_RAISE(L, "%s: entry %d of sbp is a list", who, k + 1);
        fl_nd_sbp one = fl_lua_check_sbp(L, lua_gettop(L), ndim, who);
        if (one.n != 1) FL_RAISE(L, "%s: entry %d of sbp must be one sbp, got a list of %d", who, k + 1, one.n);
        all.at[all.n++] = one.at[0];
        lua_pop(L, 1);
    }
    return all;
}

static int sbp_split(lua_State *L)
{
    fl_lua_check_count(L, 1, "sbp.split", "sbp.split(axis)");
    int64_t axis = fl_lua_check_integer(L, 1, "sbp.split", "axis");
    if (axis < 0 || axis >= FL_MAX_NDIM)
        FL_RAISE(L, "sbp.split: axis must be 0 to %d, got %lld; \"S(-1)\" as text counts from the end", FL_MAX_NDIM - 1,
                 (long long)axis);
    fl_lua_push_sbp(L, fl_nd_sbp_fill(FL_S(axis), 1));
    return 1;
}

static int sbp_index(lua_State *L)
{
    fl_nd_sbp *box = luaL_checkudata(L, 1, SBP_TYPE);
    lua_Integer k = lua_tointeger(L, 2);
    if (!lua_isinteger(L, 2) && lua_type(L, 2) != LUA_TNUMBER)
        FL_RAISE(L, "an sbp has no field '%s'; it is a list of %d", luaL_tolstring(L, 2, NULL), box->n);
    if (lua_isinteger(L, 2) && k < 1) FL_RAISE(L, "x.sbp is a Lua list: x.sbp[1] belongs to hierarchy axis 0");
    if (k < 1 || k > box->n) lua_pushnil(L);
    else fl_lua_push_sbp(L, fl_nd_sbp_fill(box->at[k - 1], 1));
    return 1;
}

static int sbp_length(lua_State *L)
{
    fl_nd_sbp *box = luaL_checkudata(L, 1, SBP_TYPE);
    lua_pushinteger(L, box->n);
    return 1;
}

static int sbp_tostring(lua_State *L)
{
    char text[FL_ND_SBP_TEXT];
    fl_nd_sbp *box = luaL_checkudata(L, 1, SBP_TYPE);
    lua_pushstring(L, fl_nd_sbp_text(text, *box));
    return 1;
}

static int sbp_equal(lua_State *L)
{
    fl_nd_sbp *a = luaL_testudata(L, 1, SBP_TYPE), *b = luaL_testudata(L, 2, SBP_TYPE);
    lua_pushboolean(L, a && b && fl_nd_sbp_equal(*a, *b));
    return 1;
}

/* ---- holders of elements ---- */

static void push_numbers(lua_State *L, const int64_t *numbers, int count, const char *name)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushinteger(L, numbers[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, name);
}

/* flow._windows(x) -> {rank, start = list, size = list} for every rank of x's placement, in its order */
static int windows(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "_windows", "x");
    const fl_meta *m = x->meta;
    lua_createtable(L, m->placement->count, 0);
    for (int i = 0; i < m->placement->count; i++) {
        fl_window window;
        fl_meta_window(&window, m, i);
        lua_createtable(L, 0, 3);
        lua_pushinteger(L, m->placement->ranks[i]);
        lua_setfield(L, -2, "rank");
        push_numbers(L, window.start, m->shape.ndim, "start");
        push_numbers(L, window.size, m->shape.ndim, "size");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* ---- opening ---- */

static const luaL_Reg placement_meta[] = {
    {"__index", placement_index}, {"__tostring", placement_tostring}, {"__eq", placement_equal}, {NULL, NULL}};
static const luaL_Reg sbp_meta[] = {
    {"__index", sbp_index}, {"__len", sbp_length}, {"__tostring", sbp_tostring}, {"__eq", sbp_equal}, {NULL, NULL}};

static void set_sbp(lua_State *L, const char *name, fl_sbp sbp)
{
    fl_lua_push_sbp(L, fl_nd_sbp_fill(sbp, 1));
    lua_setfield(L, -2, name);
}

void fl_lua_open_placement(lua_State *L, int flow)
{
    luaL_newmetatable(L, PLACEMENT_TYPE);
    luaL_setfuncs(L, placement_meta, 0);
    fl_lua_set_constant(L, "a placement");
    luaL_newmetatable(L, SBP_TYPE);
    luaL_setfuncs(L, sbp_meta, 0);
    fl_lua_set_constant(L, "an sbp");
    lua_pop(L, 2);

    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, placement_all);
    lua_setfield(L, -2, "all");
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, placement_new);
    lua_setfield(L, -2, "__call");
    fl_lua_set_strict(L, "placement");
    lua_setmetatable(L, -2);
    lua_setfield(L, flow, "placement");

    lua_createtable(L, 0, 5);
    lua_pushcfunction(L, sbp_split);
    lua_setfield(L, -2, "split");
    set_sbp(L, "broadcast", FL_B);
    set_sbp(L, "partial_sum", FL_PSUM);
    set_sbp(L, "partial_max", FL_PMAX);
    set_sbp(L, "partial_min", FL_PMIN);
    lua_createtable(L, 0, 1);
    fl_lua_set_strict(L, "sbp");
    lua_setmetatable(L, -2);
    lua_setfield(L, flow, "sbp");
    lua_pushcfunction(L, windows);
    lua_setfield(L, flow, "_windows");
}

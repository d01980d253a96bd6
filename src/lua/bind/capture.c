/*
** capture.c -- flow.capture: a function whose calls are recorded once per kind of arguments, and replayed.
**
** A captured function is a userdata with a list of versions, each a program with the key that it serves: metas of
** tensors, kinds of numbers, other arguments themselves, the settings of flow, what the variables that it reaches hold,
** and which modules train. Its user values are Lua's part of each version, in a table of tables, and the function.
*/
#include "arguments.h"
#include "capture.h"
#include "members.h"
#include "op_call.h"
#include "tensors.h"

static const char type_name[] = "flow.captured";

int64_t fl_captured_changes;

/* ---- arguments ---- */

static void check_arguments(lua_State *L, int first, int count)
{
    if (count > FL_CAPTURE_ARGS) FL_RAISE(L, "capture: at most %d arguments, got %d", FL_CAPTURE_ARGS, count);
    for (int i = 0; i < count; i++) {
        const fl_tensor *t = fl_lua_to_tensor(L, first + i);
        int type = lua_type(L, first + i);
        if (t && fl_requires_grad(t))
            FL_RAISE(L,
                     "capture: argument %d requires grad, and a replay gives no gradient to arguments; let the "
                     "function reach it from outside, or pass x:detach()",
                     i + 1);
        if (!t && type > LUA_TSTRING)
            FL_RAISE(L, "capture: argument %d must be a tensor, a number, a boolean, a string or nil, got %s", i + 1,
                     fl_lua_type_name(L, first + i));
    }
}

/* ---- the version for a call ---- */

void fl_captured_push_field(lua_State *L, int self, const fl_captured_version *version, int field)
{
    lua_getiuservalue(L, self, FL_CAPTURED_VERSIONS);
    lua_rawgeti(L, -1, version->id);
    lua_rawgeti(L, -1, field);
    lua_replace(L, -3);
    lua_pop(L, 1);
}

static bool constants_match(lua_State *L, int self, const fl_captured_version *version, int first)
{
    bool match = true;
    fl_captured_push_field(L, self, version, FL_VERSION_CONSTANTS);
    for (int i = 0; i < version->arg_count && match; i++) {
        if (version->args[i].kind != FL_ARG_CONSTANT) continue;
        lua_rawgeti(L, -1, i + 1);
        match = lua_rawequal(L, -1, first + i);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return match;
}

/* True if the modules that the function calls are unchanged. */
static bool modules_match(lua_State *L, int self, fl_captured_version *version)
{
    if (version->changes == fl_captured_changes) return true;
    fl_captured_push_field(L, self, version, FL_VERSION_MODULES);
    bool match = lua_isnil(L, -1);
    if (!match) {
        lua_call(L, 0, 1);
        match = lua_toboolean(L, -1);
    }
    lua_pop(L, 1);
    if (match) version->changes = fl_captured_changes;
    return match;
}

/* True if the local variables that it reaches have the values they had. */
static bool upvalues_match(lua_State *L, int self, const fl_captured_version *version)
{
    if (!version->has_upvalues) return true;
    fl_captured_push_field(L, self, version, FL_VERSION_UPVALUES);
    bool match = fl_upvalues_are_same(L, lua_gettop(L));
    lua_pop(L, 1);
    return match;
}

static bool guards_agree(lua_State *L, int self, const fl_captured_version *version)
{
    bool agree = true;
    if (!version->guard_count) return true;
    fl_captured_push_field(L, self, version, FL_VERSION_GUARDS);
    for (int i = 1; i <= version->guard_count && agree; i++) {
        lua_rawgeti(L, -1, i);
        lua_call(L, 0, 1);
        agree = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return agree;
}

static bool has_strides(const fl_tensor *tensor, const fl_captured_arg *arg)
{
    return tensor->contiguous == arg->contiguous
        && (tensor->contiguous
            || memcmp(tensor->strides, arg->strides, sizeof *tensor->strides * (size_t)tensor->meta->shape.ndim) == 0);
}

static bool serves(lua_State *L, int self, fl_captured_version *version, int first, int count)
{
    bool constants = false;
    if (!version->program || version->arg_count != count || version->grad_enabled != fl_grad_enabled
        || version->grad_sync != fl_grad_sync || version->autocast != fl_autocast_now
        || version->default_dtype != fl_dtype_default || version->default_device != fl_lua_device)
        return false;
    for (int i = 0; i < count; i++) {
        const fl_captured_arg *a = &version->args[i];
        fl_arg_kind kind = fl_captured_kind(L, first + i);
        constants |= kind == FL_ARG_CONSTANT;
        if (kind != a->kind) return false;
        const fl_tensor *t = kind == FL_ARG_TENSOR ? fl_lua_box(L, first + i)->tensor : NULL;
        if (t && (t->meta != a->meta || !has_strides(t, a) || fl_requires_grad(t))) return false;
    }
    if (constants && !constants_match(L, self, version, first)) return false;
    return upvalues_match(L, self, version) && modules_match(L, self, version) && fl_program_fits(version->program)
        && guards_agree(L, self, version);
}

static fl_captured_version *find(lua_State *L, int self, fl_captured *captured, int first, int count)
{
    fl_captured_version *newest = NULL, *v;
    for (int i = 0; i < FL_CAPTURE_VERSIONS; i++) {
        v = &captured->versions[i];
        if (serves(L, self, v, first, count) && (!newest || v->used > newest->used)) newest = v;
    }
    if (newest) newest->used = ++captured->clock;
    return newest;
}

void fl_captured_drop(fl_captured_version *version)
{
    fl_program_free(version->program);
    for (int i = 0; i < version->arg_count; i++) fl_meta_unref(version->args[i].meta);
    *version = (fl_captured_version){NULL};
}

/* ---- the object ---- */

static fl_captured *check_captured(lua_State *L, int index, const char *who)
{
    fl_captured *c = luaL_testudata(L, index, type_name);
    if (!c) FL_RAISE(L, "%s: takes a captured function, got %s", who, fl_lua_type_name(L, index));
    return c;
}

/* A number stays one where Lua runs the function at every call: it may decide what is done. */
static bool has_number(lua_State *L, int first, int count)
{
    for (int i = 0; i < count; i++)
        if (lua_type(L, first + i) == LUA_TNUMBER) return true;
    return false;
}

/* Inside another capture, or where a program is traced, the function becomes part of that one; of a planned script it
** is called as it is, and where a pass under no_sync has left gradients that wait for another one: no program holds
** these. */
static int captured_call(lua_State *L)
{
    fl_captured *c = check_captured(L, 1, "capture");
    int count = lua_gettop(L) - 1;
    fl_lua_enter(L);
    bool is_part = fl_program_is_recording() || fl_tracer_now || fl_pieces_is_running() || fl_world_get()->planned
        || fl_grad_unsynced > 0;
    if (!c->strict && !c->splits && has_number(L, 2, count)) c->splits = true;
    if (c->splits && !is_part && count <= FL_CAPTURE_ARGS) return fl_captured_split(L, 1, c, 2, count);
    if (!c->splits && !is_part) {
        fl_captured_version *v = find(L, 1, c, 2, count);
        bool shares = v && fl_captured_shares(L, v, 2);
        if (FL_LIKELY(v && !shares && !fl_program_is_busy(v->program))) return fl_captured_replay(L, 1, v, 2);
        check_arguments(L, 2, count);
        if (!shares && !c->reads_overlapping && fl_captured_overlap(L, 2, count))
            return fl_captured_call_overlapping(L, c, count);
        if (!v) return fl_captured_record(L, 1, c, 2, count);
    }
    lua_getiuservalue(L, 1, FL_CAPTURED_FUNCTION);
    lua_insert(L, 2);
    lua_call(L, count, LUA_MULTRET);
    return lua_gettop(L) - 1;
}

static int captured_gc(lua_State *L)
{
    fl_captured *c = luaL_checkudata(L, 1, type_name);
    for (int i = 0; i < FL_CAPTURE_VERSIONS; i++) {
        fl_captured_drop(&c->versions[i]);
        fl_pieces_free(c->pieces_of[i]);
    }
    return 0;
}

static int version_gc(lua_State *L)
{
    fl_captured_drop(luaL_checkudata(L, 1, FL_CAPTURED_VERSION_TYPE));
    return 0;
}

static int captured_tostring(lua_State *L)
{
    fl_captured *c = check_captured(L, 1, "tostring");
    int count = 0;
    fl_program_facts facts;
    for (int i = 0; i < FL_CAPTURE_VERSIONS; i++) {
        count += c->versions[i].program != NULL;
        if (c->pieces_of[i]) count += fl_pieces_facts_get(&facts, c->pieces_of[i]);
    }
    lua_pushfstring(L, "captured function, %d program%s", count, count == 1 ? "" : "s");
    return 1;
}

/* The program that ran last; NULL: none did. */
static fl_program *newest(const fl_captured *captured)
{
    const fl_captured_version *newest = NULL;
    for (int i = 0; i < FL_CAPTURE_VERSIONS; i++) {
        const fl_captured_version *v = &captured->versions[i];
        if (v->program && (!newest || v->used > newest->used)) newest = v;
    }
    return newest ? newest->program : NULL;
}

static int captured_memory(lua_State *L)
{
    fl_captured *c = check_captured(L, 1, "memory");
    fl_program *p = newest(c);
    fl_program_facts facts;
    int pieces = 0;
    fl_lua_check_count(L, 1, "memory", "step:memory()");
    if (p) fl_program_facts_get(&facts, p);
    for (int i = 0; i < FL_CAPTURE_VERSIONS && !p && !pieces; i++)
        if (c->pieces_of[i]) pieces = fl_pieces_facts_get(&facts, c->pieces_of[i]);
    if (!p && !pieces) FL_RAISE(L, "memory: the function was not captured yet: call it first");
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {{"steps", facts.steps},         {"none", facts.bytes_alone},  {"in_place", facts.bytes_in_place},
                  {"shared", facts.bytes_shared}, {"least", facts.bytes_least}, {"own", facts.bytes_own}};
    lua_createtable(L, 0, 6);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_pushinteger(L, fields[i].value);
        lua_setfield(L, -2, fields[i].name);
    }
    return 1;
}

/* ---- the functions ---- */

/* flow.capture(f, {strict = true}) */
static int flow_capture(lua_State *L)
{
    static const char *const names[] = {"strict", NULL};
    bool strict = true;
    fl_lua_check_count(L, 2, "capture", "capture(f, {strict = true})");
    if (lua_isnoneornil(L, 1)) FL_RAISE(L, "capture: takes a function, got %s", fl_lua_type_name(L, 1));
    if (!fl_lua_is_callable(L, 1)) FL_RAISE(L, "capture: takes a function, got %s", fl_lua_type_name(L, 1));
    lua_settop(L, 2);
    if (!lua_isnil(L, 2)) {
        fl_lua_check_keys(L, 2, "capture", names);
        lua_getfield(L, 2, "strict");
        if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
            FL_RAISE(L, "capture: strict must be true or false, got %s", fl_lua_type_name(L, -1));
        strict = lua_isnil(L, -1) || lua_toboolean(L, -1);
    }
    fl_captured *c = lua_newuserdatauv(L, sizeof *c, 2);
    memset(c, 0, sizeof *c);
    c->strict = strict;
    luaL_setmetatable(L, type_name);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, FL_CAPTURED_FUNCTION);
    lua_newtable(L);
    lua_setiuservalue(L, -2, FL_CAPTURED_VERSIONS);
    return 1;
}

/* True while a program is recorded that replays without Lua. */
static bool records(void) { return fl_program_is_recording() && !fl_pieces_is_running(); }

/* live(op, tensors, options, f): op(tensors, options) and its result; its replays take the options that
** f(complete, first) returns. Those that it does not name are the op's defaults; with a second result that is true
** they, and all where it returns nil, stay as in the replay before. complete: that one came to its end, so its options
** are known to have been taken. first: nothing of Lua has run in this one but the guards. */
static int program_live(lua_State *L)
{
    int64_t since = fl_program_length();
    lua_settop(L, 4);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, 3);
    lua_call(L, 2, 1);
    if (records()) FL_CHECK(L, fl_program_mark_live(fl_captured_add_host(L, 1, 4), since));
    return 1;
}

/* again(f): f() at this place of every replay. */
static int program_again(lua_State *L)
{
    if (records()) FL_CHECK(L, fl_program_mark_host(fl_captured_add_host(L, 0, 1)));
    return 0;
}

/* changed(): a field of some module has changed. */
static int program_changed(lua_State *L)
{
    fl_captured_changes++;
    return 0;
}

enum { MOST_FIELDS = 84 }; /* a C function has 255 upvalues */

/* Upvalues: number of fields; of each its table, key and value. */
static int are_unchanged(lua_State *L)
{
    const int count = (int)lua_tointeger(L, lua_upvalueindex(1));
    bool same = true;
    for (int i = 0, at = 2; i < count && same; i++, at += 3) {
        lua_pushvalue(L, lua_upvalueindex(at + 1));
        lua_rawget(L, lua_upvalueindex(at));
        same = lua_rawequal(L, -1, lua_upvalueindex(at + 2));
        lua_settop(L, 0);
    }
    lua_pushboolean(L, same);
    return 1;
}

/* fields(table, key, table, key, ...): a function that returns true while these fields are as they are now. */
static int program_fields(lua_State *L)
{
    const int count = lua_gettop(L) / 2;
    if (count > MOST_FIELDS) FL_RAISE(L, "fields: takes at most %d fields, got %d", MOST_FIELDS, count);
    luaL_checkstack(L, 3 * count + 4, "fields");
    lua_pushinteger(L, count);
    for (int i = 1; i < 2 * count; i += 2) {
        luaL_checktype(L, i, LUA_TTABLE);
        lua_pushvalue(L, i);
        lua_pushvalue(L, i + 1);
        lua_pushvalue(L, i + 1);
        lua_rawget(L, i);
    }
    lua_pushcclosure(L, are_unchanged, 3 * count + 1);
    return 1;
}

/* Upvalues: a list, and a copy of it. */
static int has_same_entries(lua_State *L)
{
    bool same = true;
    for (lua_Integer i = 1, more = 1; more && same; i++) {
        more = lua_rawgeti(L, lua_upvalueindex(1), i) != LUA_TNIL;
        lua_rawgeti(L, lua_upvalueindex(2), i);
        same = lua_rawequal(L, -1, -2);
        lua_pop(L, 2);
    }
    lua_pushboolean(L, same);
    return 1;
}

/* entries(list): a function that returns true while the list has the entries that it has now. */
static int program_entries(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    const lua_Integer count = (lua_Integer)lua_rawlen(L, 1);
    lua_createtable(L, (int)count, 0);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, 1, i);
        lua_rawseti(L, 2, i);
    }
    lua_pushcclosure(L, has_same_entries, 2);
    return 1;
}

/* guard(f): replays only where f() is true. */
static int program_guard(lua_State *L)
{
    if (records()) fl_captured_add_guard(L, 1);
    return 0;
}

/* made_state(): the function that is recorded has made what its later calls use. */
static int program_made_state(lua_State *L)
{
    if (records()) fl_captured_make_state();
    return 0;
}

/* called(module): the function that is recorded calls it. */
static int program_called(lua_State *L)
{
    if (records()) fl_captured_add_module(L, 1);
    return 0;
}

void fl_lua_open_capture(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"capture", flow_capture}, {NULL, NULL}};
    static const luaL_Reg own[] = {
        {"live", program_live},     {"again", program_again},     {"changed", program_changed},
        {"guard", program_guard},   {"called", program_called},   {"made_state", program_made_state},
        {"fields", program_fields}, {"entries", program_entries}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"memory", captured_memory}, {NULL, NULL}};
    static const luaL_Reg metamethods[] = {
        {"__call", captured_call}, {"__gc", captured_gc}, {"__tostring", captured_tostring}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
    luaL_newlib(L, own);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "recording");
    lua_setfield(L, flow, "_program");
    luaL_newmetatable(L, FL_CAPTURED_VERSION_TYPE);
    lua_pushcfunction(L, version_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newmetatable(L, type_name);
    luaL_setfuncs(L, metamethods, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    fl_lua_set_object(L, "a captured function");
    lua_pop(L, 1);
}

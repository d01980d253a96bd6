/*
** capture.c -- flow.capture: a function whose calls are recorded once per kind of arguments, and replayed.
**
** A captured function is a userdata with a list of versions, each a program with the key that it serves: metas of
** tensors, kinds of numbers, other arguments themselves, whether gradients are recorded, and which modules train. Its
** user values are Lua's part of each version, in a table of tables, and the function.
*/
#include "arguments.h"
#include "members.h"
#include "modules.h"
#include "op_call.h"
#include "tensors.h"

#include <stdio.h>

enum { MAX_VERSIONS = 8, MAX_ARGS = 32, MAX_RESULTS = 64 };
enum { FUNCTION = 1, VERSIONS = 2 };              /* user values */
enum { CONSTANTS = 1, TEMPLATE, HOSTS, MODULES }; /* fields of a version's table */

static const char type_name[] = "flow.captured";
static const char hosts_key, modules_key; /* registry: of the function that is recorded */

typedef enum argument_kind { CONSTANT, TENSOR, WHOLE, REAL } argument_kind;

/* What one argument must be. */
struct argument {
    argument_kind kind;
    const fl_meta *meta; /* owned; of a tensor */
    bool written;        /* the function writes into it */
};

struct version {
    fl_program *program; /* owned; NULL: a free place */
    int id;              /* its place in the table of versions */
    int arg_count, tensor_count, result_count;
    struct argument args[MAX_ARGS];
    bool grad_enabled;
    int64_t trainings; /* module.train was called so often when it was found to fit */
    uint64_t used;
};

struct captured {
    bool strict;
    bool gave_up;   /* it cannot be captured: it runs as it is */
    int made_state; /* recordings in vain, because the function kept what it made */
    int captures;
    uint64_t clock;
    struct version versions[MAX_VERSIONS];
};

static int64_t trainings;

/* ---- arguments ---- */

static argument_kind kind_of(lua_State *L, int index)
{
    if (fl_lua_box(L, index)) return TENSOR;
    if (lua_type(L, index) != LUA_TNUMBER) return CONSTANT;
    return lua_isinteger(L, index) ? WHOLE : REAL;
}

static void check_arguments(lua_State *L, int first, int count)
{
    if (count > MAX_ARGS) FL_RAISE(L, "capture: at most %d arguments, got %d", MAX_ARGS, count);
    for (int i = 0; i < count; i++) {
        const fl_tensor *t = fl_lua_to_tensor(L, first + i);
        int type = lua_type(L, first + i);
        if (t && (fl_requires_grad(t)))
            FL_RAISE(L,
                     "capture: argument %d requires grad, and a replay gives no gradient to arguments; let the "
                     "function reach it from outside, or pass x:detach()",
                     i + 1);
        if (!t && type > LUA_TSTRING)
            FL_RAISE(L, "capture: argument %d must be a tensor, a number, a boolean, a string or nil, got %s", i + 1,
                     fl_lua_type_name(L, first + i));
    }
}

/* Fills the box with a 0-d tensor of the number at index: float32, or int64 for a whole one. */
static fl_status number_tensor(fl_tensor **out, lua_State *L, int index)
{
    fl_shape scalar = {0, {0}};
    bool whole = lua_isinteger(L, index);
    FL_TRY(fl_tensor_empty_local(out, whole ? FL_INT64 : FL_FLOAT32, &scalar));
    if (whole) *(int64_t *)fl_tensor_data(*out) = lua_tointeger(L, index);
    else *(float *)fl_tensor_data(*out) = (float)lua_tonumber(L, index);
    return FL_OK;
}

/* ---- which version serves a call ---- */

/* Pushes a field of the version's table. */
static void push_field(lua_State *L, int self, const struct version *version, int field)
{
    lua_getiuservalue(L, self, VERSIONS);
    lua_rawgeti(L, -1, version->id);
    lua_rawgeti(L, -1, field);
    lua_replace(L, -3);
    lua_pop(L, 1);
}

static bool constants_match(lua_State *L, int self, const struct version *version, int first)
{
    bool match = true;
    push_field(L, self, version, CONSTANTS);
    for (int i = 0; i < version->arg_count && match; i++) {
        if (version->args[i].kind != CONSTANT) continue;
        lua_rawgeti(L, -1, i + 1);
        match = lua_rawequal(L, -1, first + i);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return match;
}

/* Are the modules that the function called in training as they were? The list holds modules and flags in turn. */
static bool modules_match(lua_State *L, int self, struct version *version)
{
    bool match = true;
    if (version->trainings == trainings) return true;
    push_field(L, self, version, MODULES);
    int count = (int)lua_rawlen(L, -1);
    for (int i = 1; i < count && match; i += 2) {
        lua_rawgeti(L, -1, i);
        lua_getfield(L, -1, "training");
        lua_rawgeti(L, -3, i + 1);
        match = lua_rawequal(L, -1, -2);
        lua_pop(L, 3);
    }
    lua_pop(L, 1);
    if (match) version->trainings = trainings;
    return match;
}

static bool serves(lua_State *L, int self, struct version *version, int first, int count)
{
    bool constants = false;
    if (!version->program || version->arg_count != count || version->grad_enabled != fl_grad_enabled) return false;
    for (int i = 0; i < count; i++) {
        const struct argument *a = &version->args[i];
        argument_kind kind = kind_of(L, first + i);
        constants |= kind == CONSTANT;
        if (kind != a->kind) return false;
        if (kind == TENSOR && fl_lua_box(L, first + i)->tensor->meta != a->meta) return false;
    }
    if (constants && !constants_match(L, self, version, first)) return false;
    return modules_match(L, self, version) && fl_program_fits(version->program);
}

static struct version *find(lua_State *L, int self, struct captured *captured, int first, int count)
{
    struct version *newest = NULL, *v;
    for (int i = 0; i < MAX_VERSIONS; i++) {
        v = &captured->versions[i];
        if (serves(L, self, v, first, count) && (!newest || v->used > newest->used)) newest = v;
    }
    if (newest) newest->used = ++captured->clock;
    return newest;
}

static void version_drop(struct version *version)
{
    fl_program_free(version->program);
    for (int i = 0; i < version->arg_count; i++) fl_meta_unref(version->args[i].meta);
    *version = (struct version){NULL};
}

/* ---- what the function returns ---- */

/* Collects the tensors of the value at the top, in tables too, and replaces it by a template: a tensor by its number as
** a light userdata. */
struct results {
    fl_tensor *at[MAX_RESULTS]; /* borrowed: the boxes are in the table at `boxes` */
    int count, boxes;
    fl_tensor **args; /* copies that the function was given */
};

static void collect(lua_State *L, struct results *results, int depth)
{
    fl_tensor *t = fl_lua_to_tensor(L, -1);
    luaL_checkstack(L, 8, "capture");
    if (t) {
        if (results->count == MAX_RESULTS) FL_RAISE(L, "capture: at most %d tensors can be returned", MAX_RESULTS);
        fl_box *box = fl_lua_new_box(L);
        FL_CHECK(L, fl_tensor_detach(&box->tensor, t));
        results->at[results->count++] = box->tensor;
        lua_rawseti(L, results->boxes, results->count);
        lua_pop(L, 1);
        lua_pushlightuserdata(L, (void *)(intptr_t)results->count);
        return;
    }
    if (lua_type(L, -1) != LUA_TTABLE || luaL_getmetafield(L, -1, "__name") != LUA_TNIL) return;
    if (depth == 8) FL_RAISE(L, "capture: the tables that are returned are nested too deep");
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, -3)) {
        collect(L, results, depth + 1);
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
    lua_remove(L, -2);
}

/* Pushes what the template at the top stands for, in its place; boxes: index of the results' boxes. */
static void instantiate(lua_State *L, int boxes)
{
    if (lua_islightuserdata(L, -1)) {
        lua_Integer i = (lua_Integer)(intptr_t)lua_touserdata(L, -1);
        lua_pop(L, 1);
        lua_rawgeti(L, boxes, i);
        return;
    }
    if (!lua_istable(L, -1)) return;
    luaL_checkstack(L, 8, "capture");
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, -3)) {
        instantiate(L, boxes);
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
    lua_remove(L, -2);
}

/* Pushes the values returned, by the template at index; returns their number. */
static int push_results(lua_State *L, int template, int boxes)
{
    lua_rawgeti(L, template, 0);
    int count = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
    luaL_checkstack(L, count + 8, "capture");
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, template, i);
        instantiate(L, boxes);
    }
    return count;
}

/* ---- replaying ---- */

struct host {
    lua_State *L;
    int hosts; /* index of the list */
    int id;
    fl_attrs *attrs;
};

/* In a protected call: runs the function of the number, and reads the attributes that it returns. */
static int host_protected(lua_State *L)
{
    const struct host *h = lua_touserdata(L, 2);
    lua_rawgeti(L, 1, h->id);
    lua_rawgeti(L, -1, 2);
    lua_call(L, 0, h->attrs ? 1 : 0);
    if (!h->attrs) return 0;
    lua_rawgeti(L, 3, 1);
    fl_lua_read_attrs(L, h->attrs, fl_lua_call_of(L, -1), 4);
    return 0;
}

static fl_status call_host(void *context, int id, const fl_op *op, fl_attrs *attrs)
{
    struct host *h = context;
    h->id = id;
    h->attrs = attrs;
    lua_pushcfunction(h->L, host_protected);
    lua_pushvalue(h->L, h->hosts);
    lua_pushlightuserdata(h->L, h);
    if (lua_pcall(h->L, 2, 0, 0) == LUA_OK) return FL_OK;
    fl_status status = fl_fail(FL_ERR_STATE, "%s", luaL_tolstring(h->L, -1, NULL));
    lua_pop(h->L, 2);
    return status;
}

/* Fills args with what the program takes: contiguous tensors, and 0-d ones of numbers. Boxes of what is made are pushed. */
static void prepare_arguments(lua_State *L, fl_tensor **args, const struct version *version, int first)
{
    int n = 0;
    for (int i = 0; i < version->arg_count; i++) {
        const struct argument *a = &version->args[i];
        if (a->kind == CONSTANT) continue;
        fl_tensor *t = a->kind == TENSOR ? fl_lua_box(L, first + i)->tensor : NULL;
        if (t && t->contiguous) {
            args[n++] = t;
            continue;
        }
        if (t && a->written)
            FL_RAISE(L,
                     "capture: the function writes into argument %d, so it must be contiguous; pass x:contiguous() and "
                     "keep that",
                     i + 1);
        luaL_checkstack(L, 4, "capture");
        fl_box *box = fl_lua_new_box(L);
        if (t) FL_CHECK(L, fl_dispatch_unrecorded(&box->tensor, FL_OP_REF(clone), &(fl_operand){FL_TENSOR, {t}}, 1));
        else FL_CHECK(L, number_tensor(&box->tensor, L, first + i));
        args[n++] = box->tensor;
    }
}

/* Pushes what the version gives for the arguments from `first` on. */
static int replay(lua_State *L, int self, struct version *version, int first)
{
    fl_tensor *args[MAX_ARGS], *results[MAX_RESULTS];
    fl_box *boxes[MAX_RESULTS];
    prepare_arguments(L, args, version, first);
    luaL_checkstack(L, version->result_count + 16, "capture");
    struct host host = {.L = L};
    push_field(L, self, version, HOSTS);
    host.hosts = lua_gettop(L);
    push_field(L, self, version, TEMPLATE);
    int template = lua_gettop(L);
    bool single = version->result_count == 1 && lua_rawlen(L, template) == 1 && lua_rawgeti(L, template, 1)
        && lua_islightuserdata(L, -1);
    lua_settop(L, template);
    if (!single) lua_createtable(L, version->result_count, 0);
    int list = lua_gettop(L);
    for (int i = 0; i < version->result_count; i++) {
        boxes[i] = fl_lua_new_box(L);
        if (!single) lua_rawseti(L, list, i + 1);
    }
    fl_lua_current = L;
    FL_CHECK(L, fl_program_run(version->program, args, results, call_host, &host));
    for (int i = 0; i < version->result_count; i++) boxes[i]->tensor = results[i];
    fl_lua_account(L);
    return single ? 1 : push_results(L, template, list);
}

/* ---- recording ---- */

/* Pushes the arguments as the function gets them while it is recorded: tensors of their own memory, numbers as 0-d
** tensors. */
static void push_arguments(lua_State *L, struct version *version, fl_tensor **args, int first, int count)
{
    luaL_checkstack(L, 2 * count + 8, "capture");
    for (int i = 0; i < count; i++) {
        struct argument *a = &version->args[version->arg_count++];
        *a = (struct argument){kind_of(L, first + i), NULL, false};
        if (a->kind == CONSTANT) {
            lua_pushvalue(L, first + i);
            continue;
        }
        fl_box *box = fl_lua_new_box(L);
        if (a->kind == TENSOR) {
            fl_tensor *t = fl_lua_box(L, first + i)->tensor;
            FL_CHECK(L, fl_dispatch_unrecorded(&box->tensor, FL_OP_REF(clone), &(fl_operand){FL_TENSOR, {t}}, 1));
            a->meta = fl_meta_ref(t->meta);
        } else FL_CHECK(L, number_tensor(&box->tensor, L, first + i));
        args[version->tensor_count++] = box->tensor;
    }
}

/* What the function wrote into its copies of the arguments goes back. */
static fl_status write_back(lua_State *L, struct version *version, fl_tensor *const *args, int first)
{
    int n = 0;
    for (int i = 0; i < version->arg_count; i++) {
        struct argument *a = &version->args[i];
        if (a->kind == CONSTANT) continue;
        a->written = fl_program_writes(version->program, n);
        fl_tensor *copy = args[n++], *out;
        if (!a->written || a->kind != TENSOR) continue;
        const fl_operand in[2] = {fl_of(fl_lua_box(L, first + i)->tensor), fl_of(copy)};
        FL_TRY(fl_dispatch_unrecorded(&out, FL_OP_REF(copy_), in, 2));
        fl_tensor_unref(out);
    }
    return FL_OK;
}

/* Results that are the copies of arguments, or views of them, become those of the arguments themselves. */
static fl_status give_arguments(lua_State *L, const struct version *version, struct results *results, int first)
{
    fl_tensor *args[MAX_ARGS], *view;
    int n = 0;
    for (int i = 0; i < version->arg_count; i++) {
        fl_tensor *t = fl_lua_to_tensor(L, first + i);
        if (version->args[i].kind == TENSOR && !t->contiguous) return FL_OK;
        if (version->args[i].kind == CONSTANT) continue;
        args[n] = t ? t : results->args[n];
        n++;
    }
    for (int i = 0; i < results->count; i++) {
        FL_TRY(fl_program_argument_result(&view, version->program, i, args));
        if (!view) continue;
        lua_rawgeti(L, results->boxes, i + 1);
        fl_box *box = fl_lua_box(L, -1);
        lua_pop(L, 1);
        fl_tensor_unref(box->tensor);
        box->tensor = view;
    }
    return FL_OK;
}

/* A place for one more version; the one that was used longest ago goes. */
static struct version *place_of_new(lua_State *L, int self, struct captured *captured)
{
    struct version *oldest = &captured->versions[0];
    for (int i = 0; i < MAX_VERSIONS; i++) {
        struct version *v = &captured->versions[i];
        if (!v->program) return v;
        if (v->used < oldest->used) oldest = v;
    }
    if (captured->captures == MAX_VERSIONS) {
        lua_warning(L, "flow.capture: this function was captured for ", 1);
        lua_warning(L, "8 kinds of arguments; each further one is captured anew and drops an older one", 0);
    }
    lua_getiuservalue(L, self, VERSIONS);
    lua_pushnil(L);
    lua_rawseti(L, -2, oldest->id);
    lua_pop(L, 1);
    version_drop(oldest);
    return oldest;
}

/* flow._program.recording, which Lua modules look at. */
static void set_recording(lua_State *L, bool on)
{
    fl_lua_push_flow(L);
    lua_getfield(L, -1, "_program");
    lua_pushboolean(L, on);
    lua_setfield(L, -2, "recording");
    lua_pop(L, 2);
}

/* Makes the lists that functions of the host and modules are put into while one is recorded, on the stack too. */
static void open_lists(lua_State *L)
{
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &hosts_key);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &modules_key);
}

static void close_lists(lua_State *L)
{
    set_recording(L, false);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &hosts_key);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &modules_key);
}

/* Stores Lua's part of the version: arguments from `first` on, template and lists by index. */
static void store(lua_State *L, int self, struct captured *captured, struct version *version, int first, int template,
                  int lists)
{
    version->id = ++captured->captures;
    lua_getiuservalue(L, self, VERSIONS);
    lua_createtable(L, 4, 0);
    lua_createtable(L, version->arg_count, 0);
    for (int i = 0; i < version->arg_count; i++) {
        if (version->args[i].kind == CONSTANT) lua_pushvalue(L, first + i);
        else lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i + 1);
    }
    lua_rawseti(L, -2, CONSTANTS);
    lua_pushvalue(L, template);
    lua_rawseti(L, -2, TEMPLATE);
    lua_pushvalue(L, lists);
    lua_rawseti(L, -2, HOSTS);
    lua_pushvalue(L, lists + 1);
    lua_rawseti(L, -2, MODULES);
    lua_rawseti(L, -2, version->id);
    lua_pop(L, 1);
}

/* Ends the recording: true where a version came of it. */
static bool end_recording(lua_State *L, struct captured *captured, struct version *version,
                          const struct results *results)
{
    fl_lua_collect_all(L);
    fl_lua_collect_all(L);
    fl_status status = fl_program_end(&version->program, results->at, results->count);
    if (status == FL_OK) return true;
    if (status == FL_ERR_STATE && !captured->strict) captured->gave_up = true;
    else if (status != FL_ERR_STATE || captured->made_state++ > 0) fl_lua_error(L, status);
    return false; /* the first call may make what later ones use: buffers, an optimizer's state */
}

/* Runs the function, recorded, and pushes what it returns. self, the arguments from `first` on are at their places. */
static int record(lua_State *L, int self, struct captured *captured, int first, int count)
{
    struct version version = {.grad_enabled = fl_grad_enabled, .trainings = trainings};
    struct results results = {.count = 0};
    fl_tensor *args[MAX_ARGS];
    open_lists(L);
    int lists = lua_gettop(L) - 1;
    lua_newtable(L);
    results.boxes = lua_gettop(L);
    push_arguments(L, &version, args, first, count);
    int copies = lua_gettop(L) - count + 1; /* kept below the call: what is written goes back */
    lua_getiuservalue(L, self, FUNCTION);
    int base = lua_gettop(L);
    for (int i = 0; i < count; i++) lua_pushvalue(L, copies + i);
    fl_status status = fl_program_begin(args, version.tensor_count, captured->strict);
    if (status != FL_OK) fl_lua_error(L, status);
    set_recording(L, true);
    bool failed = lua_pcall(L, count, LUA_MULTRET, 0) != LUA_OK;
    close_lists(L);
    if (failed) {
        fl_program_abort();
        return lua_error(L);
    }
    int returned = lua_gettop(L) - base + 1;
    lua_createtable(L, returned, 1);
    lua_insert(L, base);
    for (int i = returned; i > 0; i--) {
        collect(L, &results, 0);
        lua_rawseti(L, base, i);
    }
    lua_pushinteger(L, returned);
    lua_rawseti(L, base, 0);
    if (end_recording(L, captured, &version, &results)) {
        results.args = args;
        FL_CHECK(L, write_back(L, &version, args, first));
        FL_CHECK(L, give_arguments(L, &version, &results, first));
        struct version *kept = place_of_new(L, self, captured);
        version.result_count = results.count;
        store(L, self, captured, &version, first, base, lists);
        *kept = version;
        kept->used = ++captured->clock;
    } else
        for (int i = 0; i < version.arg_count; i++) fl_meta_unref(version.args[i].meta);
    return push_results(L, base, results.boxes);
}

/* ---- the object ---- */

static struct captured *check_captured(lua_State *L, int index, const char *who)
{
    struct captured *c = luaL_testudata(L, index, type_name);
    if (!c) FL_RAISE(L, "%s: takes a captured function, got %s", who, fl_lua_type_name(L, index));
    return c;
}

/* Inside another capture the function becomes part of that one. */
static int captured_call(lua_State *L)
{
    struct captured *c = check_captured(L, 1, "capture");
    int count = lua_gettop(L) - 1;
    fl_lua_current = L;
    if (!c->gave_up && !fl_program_is_recording()) {
        struct version *v = find(L, 1, c, 2, count);
        if (FL_LIKELY(v && !fl_program_is_busy(v->program))) return replay(L, 1, v, 2);
        check_arguments(L, 2, count);
        if (!v) return record(L, 1, c, 2, count);
    }
    lua_getiuservalue(L, 1, FUNCTION);
    lua_insert(L, 2);
    lua_call(L, count, LUA_MULTRET);
    return lua_gettop(L) - 1;
}

static int captured_gc(lua_State *L)
{
    struct captured *c = luaL_checkudata(L, 1, type_name);
    for (int i = 0; i < MAX_VERSIONS; i++) version_drop(&c->versions[i]);
    return 0;
}

static int captured_tostring(lua_State *L)
{
    struct captured *c = check_captured(L, 1, "tostring");
    int count = 0;
    for (int i = 0; i < MAX_VERSIONS; i++) count += c->versions[i].program != NULL;
    lua_pushfstring(L, "captured function, %d program%s", count, count == 1 ? "" : "s");
    return 1;
}

/* The program that ran last; NULL: none did. */
static fl_program *newest(const struct captured *captured)
{
    const struct version *newest = NULL;
    for (int i = 0; i < MAX_VERSIONS; i++) {
        const struct version *v = &captured->versions[i];
        if (v->program && (!newest || v->used > newest->used)) newest = v;
    }
    return newest ? newest->program : NULL;
}

static int captured_memory(lua_State *L)
{
    fl_program *p = newest(check_captured(L, 1, "memory"));
    fl_program_facts facts;
    fl_lua_check_count(L, 1, "memory", "step:memory()");
    if (!p) FL_RAISE(L, "memory: the function was not captured yet: call it first");
    fl_program_facts_get(&facts, p);
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {{"steps", facts.steps},
                  {"none", facts.bytes_alone},
                  {"in_place", facts.bytes_in_place},
                  {"shared", facts.bytes_shared},
                  {"own", facts.bytes_own}};
    lua_createtable(L, 0, 5);
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
    if (lua_type(L, 1) != LUA_TFUNCTION && luaL_getmetafield(L, 1, "__call") == LUA_TNIL)
        FL_RAISE(L, "capture: takes a function, got %s", fl_lua_type_name(L, 1));
    lua_settop(L, 2);
    if (!lua_isnil(L, 2)) {
        fl_lua_check_keys(L, 2, "capture", names);
        lua_getfield(L, 2, "strict");
        if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
            FL_RAISE(L, "capture: strict must be true or false, got %s", fl_lua_type_name(L, -1));
        strict = lua_isnil(L, -1) || lua_toboolean(L, -1);
    }
    struct captured *c = lua_newuserdatauv(L, sizeof *c, 2);
    memset(c, 0, sizeof *c);
    c->strict = strict;
    luaL_setmetatable(L, type_name);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, FUNCTION);
    lua_newtable(L);
    lua_setiuservalue(L, -2, VERSIONS);
    return 1;
}

/* Appends {op function, f} to the list of host functions; returns its number. */
static int add_host(lua_State *L, int op, int function)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &hosts_key);
    int id = (int)lua_rawlen(L, -1) + 1;
    lua_createtable(L, 2, 0);
    if (op) {
        lua_pushvalue(L, op);
        lua_rawseti(L, -2, 1);
    }
    lua_pushvalue(L, function);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, id);
    lua_pop(L, 1);
    return id;
}

/* live(op, tensors, options, f): op(tensors, options); its replays take the options that f returns. */
static int program_live(lua_State *L)
{
    int64_t since = fl_program_length();
    lua_settop(L, 4);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, 3);
    lua_call(L, 2, 0);
    if (fl_program_is_recording()) FL_CHECK(L, fl_program_mark_live(add_host(L, 1, 4), since));
    return 0;
}

/* again(f): f() at this place of every replay. */
static int program_again(lua_State *L)
{
    if (fl_program_is_recording()) FL_CHECK(L, fl_program_mark_host(add_host(L, 0, 1)));
    return 0;
}

/* trained(): some module's `training` has changed. */
static int program_trained(lua_State *L)
{
    trainings++;
    return 0;
}

/* called(module): the function that is recorded calls it. */
static int program_called(lua_State *L)
{
    if (!fl_program_is_recording() || lua_rawgetp(L, LUA_REGISTRYINDEX, &modules_key) != LUA_TTABLE) return 0;
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, n + 1);
    lua_getfield(L, 1, "training");
    lua_rawseti(L, -2, n + 2);
    return 0;
}

void fl_lua_open_capture(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"capture", flow_capture}, {NULL, NULL}};
    static const luaL_Reg own[] = {{"live", program_live},
                                   {"again", program_again},
                                   {"trained", program_trained},
                                   {"called", program_called},
                                   {NULL, NULL}};
    static const luaL_Reg methods[] = {{"memory", captured_memory}, {NULL, NULL}};
    static const luaL_Reg metamethods[] = {
        {"__call", captured_call}, {"__gc", captured_gc}, {"__tostring", captured_tostring}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
    luaL_newlib(L, own);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "recording");
    lua_setfield(L, flow, "_program");
    luaL_newmetatable(L, type_name);
    luaL_setfuncs(L, metamethods, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    fl_lua_set_object(L, "a captured function");
    lua_pop(L, 1);
}

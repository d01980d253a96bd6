/*
** capture_run.c -- a captured function is recorded, and replayed.
**
** While it is recorded it gets copies of its tensors, so that what it does with an argument cannot be taken for what it
** does with the same memory reached in another way, and 0-d tensors for numbers.
*/
#include "arguments.h"
#include "capture.h"
#include "modules.h"
#include "op_call.h"

#include <stdio.h>

static const char hosts_key, modules_key; /* registry: of the function that is recorded */

/* ---- arguments ---- */

/* The first tensor among the arguments; NULL: there is none. */
static const fl_tensor *first_tensor(lua_State *L, int first, int count)
{
    for (int i = 0; i < count; i++)
        if (fl_lua_box(L, first + i)) return fl_lua_box(L, first + i)->tensor;
    return NULL;
}

/* A 0-d tensor of the number at index, float32, or int64 for a whole one; where `beside` is, that ops may take both. */
static fl_status number_tensor(fl_tensor **out, lua_State *L, int index, const fl_tensor *beside)
{
    fl_shape scalar = {0, {0}};
    fl_tensor *host, *there;
    bool whole = lua_isinteger(L, index);
    const fl_placement *p = beside ? beside->meta->placement : NULL;
    FL_TRY(fl_tensor_empty_local(&host, whole ? FL_INT64 : FL_FLOAT32, &scalar));
    if (whole) *(int64_t *)fl_tensor_data(host) = lua_tointeger(L, index);
    else *(float *)fl_tensor_data(host) = (float)lua_tonumber(L, index);
    *out = host;
    if (!p || (beside->meta->is_local && p->type == FL_CPU)) return FL_OK;
    bool recording = fl_record_pause();
    fl_status status = fl_to_device(&there, host,
                                    fl_placement_local(p->type, beside->meta->is_local ? p->device_index : -1));
    fl_tensor_unref(host);
    if (status == FL_OK && !beside->meta->is_local) {
        status = fl_global_from_part(out, there, &scalar, p, fl_nd_sbp_fill(FL_B, p->ndim));
        fl_tensor_unref(there);
    } else if (status == FL_OK) *out = there;
    fl_record_resume(recording);
    if (status != FL_OK) *out = NULL;
    return status;
}

/* ---- what the function returns ---- */

/* Collects the tensors of the value at the top, in tables too, and replaces it by a template: a tensor by its number as
** a light userdata. */
struct results {
    fl_tensor *at[FL_CAPTURE_RESULTS]; /* borrowed: the boxes are in the table at `boxes` */
    int count, boxes;
    fl_tensor **args; /* copies that the function was given */
};

static void collect(lua_State *L, struct results *results, int depth)
{
    fl_tensor *t = fl_lua_to_tensor(L, -1);
    luaL_checkstack(L, 8, "capture");
    if (t) {
        if (results->count == FL_CAPTURE_RESULTS)
            FL_RAISE(L, "capture: at most %d tensors can be returned", FL_CAPTURE_RESULTS);
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

/* Fills args with what the program takes: contiguous tensors, and 0-d ones of numbers. Pushes boxes of what is made. */
static void prepare_arguments(lua_State *L, fl_tensor **args, const fl_captured_version *version, int first)
{
    int n = 0;
    const fl_tensor *beside = first_tensor(L, first, version->arg_count);
    for (int i = 0; i < version->arg_count; i++) {
        const fl_captured_arg *a = &version->args[i];
        if (a->kind == FL_ARG_CONSTANT) continue;
        fl_tensor *t = a->kind == FL_ARG_TENSOR ? fl_lua_box(L, first + i)->tensor : NULL;
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
        else FL_CHECK(L, number_tensor(&box->tensor, L, first + i, beside));
        args[n++] = box->tensor;
    }
}

/* Pushes what the version gives for the arguments from `first` on. */
int fl_captured_replay(lua_State *L, int self, fl_captured_version *version, int first)
{
    fl_tensor *args[FL_CAPTURE_ARGS], *results[FL_CAPTURE_RESULTS];
    fl_box *boxes[FL_CAPTURE_RESULTS];
    prepare_arguments(L, args, version, first);
    luaL_checkstack(L, version->result_count + 16, "capture");
    struct host host = {.L = L};
    fl_captured_push_field(L, self, version, FL_VERSION_HOSTS);
    host.hosts = lua_gettop(L);
    fl_captured_push_field(L, self, version, FL_VERSION_TEMPLATE);
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

/* ---- what else is read anew ---- */

int fl_captured_add_host(lua_State *L, int op, int function)
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

void fl_captured_add_module(lua_State *L, int index)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &modules_key);
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    lua_pushvalue(L, index);
    lua_rawseti(L, -2, n + 1);
    lua_getfield(L, index, "training");
    lua_rawseti(L, -2, n + 2);
    lua_pop(L, 1);
}

/* ---- recording ---- */

/* Pushes the arguments as the function gets them while it is recorded: tensors of their own memory, numbers as 0-d
** tensors. */
static void push_arguments(lua_State *L, fl_captured_version *version, fl_tensor **args, int first, int count)
{
    const fl_tensor *beside = first_tensor(L, first, count);
    luaL_checkstack(L, 2 * count + 8, "capture");
    for (int i = 0; i < count; i++) {
        fl_captured_arg *a = &version->args[version->arg_count++];
        *a = (fl_captured_arg){fl_captured_kind(L, first + i), NULL, false};
        if (a->kind == FL_ARG_CONSTANT) {
            lua_pushvalue(L, first + i);
            continue;
        }
        fl_box *box = fl_lua_new_box(L);
        if (a->kind == FL_ARG_TENSOR) {
            fl_tensor *t = fl_lua_box(L, first + i)->tensor;
            FL_CHECK(L, fl_dispatch_unrecorded(&box->tensor, FL_OP_REF(clone), &(fl_operand){FL_TENSOR, {t}}, 1));
            a->meta = fl_meta_ref(t->meta);
        } else FL_CHECK(L, number_tensor(&box->tensor, L, first + i, beside));
        args[version->tensor_count++] = box->tensor;
    }
}

/* What the function wrote into its copies of the arguments goes back. */
static fl_status write_back(lua_State *L, fl_captured_version *version, fl_tensor *const *args, int first)
{
    int n = 0;
    for (int i = 0; i < version->arg_count; i++) {
        fl_captured_arg *a = &version->args[i];
        if (a->kind == FL_ARG_CONSTANT) continue;
        a->written = fl_program_writes(version->program, n);
        fl_tensor *copy = args[n++], *out;
        if (!a->written || a->kind != FL_ARG_TENSOR) continue;
        const fl_operand in[2] = {fl_of(fl_lua_box(L, first + i)->tensor), fl_of(copy)};
        FL_TRY(fl_dispatch_unrecorded(&out, FL_OP_REF(copy_), in, 2));
        fl_tensor_unref(out);
    }
    return FL_OK;
}

/* Results that are the copies of arguments, or views of them, become those of the arguments themselves. */
static fl_status give_arguments(lua_State *L, const fl_captured_version *version, struct results *results, int first)
{
    fl_tensor *args[FL_CAPTURE_ARGS], *view;
    int n = 0;
    for (int i = 0; i < version->arg_count; i++) {
        fl_tensor *t = fl_lua_to_tensor(L, first + i);
        if (version->args[i].kind == FL_ARG_TENSOR && !t->contiguous) return FL_OK;
        if (version->args[i].kind == FL_ARG_CONSTANT) continue;
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
static fl_captured_version *place_of_new(lua_State *L, int self, fl_captured *captured)
{
    fl_captured_version *oldest = &captured->versions[0];
    for (int i = 0; i < FL_CAPTURE_VERSIONS; i++) {
        fl_captured_version *v = &captured->versions[i];
        if (!v->program) return v;
        if (v->used < oldest->used) oldest = v;
    }
    if (captured->captures == FL_CAPTURE_VERSIONS) {
        char line[LUA_IDSIZE + 16];
        fl_lua_where(L, line, sizeof line);
        fprintf(stderr, "flowlua: %s: captured for 8 kinds of arguments; each further one drops an older one\n", line);
    }
    lua_getiuservalue(L, self, FL_CAPTURED_VERSIONS);
    lua_pushnil(L);
    lua_rawseti(L, -2, oldest->id);
    lua_pop(L, 1);
    fl_captured_drop(oldest);
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
static void store(lua_State *L, int self, fl_captured *captured, fl_captured_version *version, int first, int template,
                  int lists)
{
    version->id = ++captured->captures;
    lua_getiuservalue(L, self, FL_CAPTURED_VERSIONS);
    lua_createtable(L, 4, 0);
    lua_createtable(L, version->arg_count, 0);
    for (int i = 0; i < version->arg_count; i++) {
        if (version->args[i].kind == FL_ARG_CONSTANT) lua_pushvalue(L, first + i);
        else lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i + 1);
    }
    lua_rawseti(L, -2, FL_VERSION_CONSTANTS);
    lua_pushvalue(L, template);
    lua_rawseti(L, -2, FL_VERSION_TEMPLATE);
    lua_pushvalue(L, lists);
    lua_rawseti(L, -2, FL_VERSION_HOSTS);
    lua_pushvalue(L, lists + 1);
    lua_rawseti(L, -2, FL_VERSION_MODULES);
    lua_rawseti(L, -2, version->id);
    lua_pop(L, 1);
}

/* Ends the recording: true where a version came of it. */
static bool end_recording(lua_State *L, fl_captured *captured, fl_captured_version *version,
                          const struct results *results)
{
    fl_lua_collect_all(L);
    fl_lua_collect_all(L);
    bool held = false;
    fl_status status = fl_program_end(&version->program, &held, results->at, results->count);
    if (status == FL_OK) return true;
    if (held && captured->made_state++ == 0) return false; /* what later calls use: buffers, an optimizer's state */
    if (captured->strict) fl_lua_error(L, status);
    captured->gave_up = true;
    return false;
}

/* Runs the function, recorded, and pushes what it returns. self, the arguments from `first` on are at their places. */
int fl_captured_record(lua_State *L, int self, fl_captured *captured, int first, int count)
{
    fl_captured_version version = {.grad_enabled = fl_grad_enabled, .trainings = fl_captured_trainings};
    struct results results = {.count = 0};
    fl_tensor *args[FL_CAPTURE_ARGS];
    open_lists(L);
    int lists = lua_gettop(L) - 1;
    lua_newtable(L);
    results.boxes = lua_gettop(L);
    push_arguments(L, &version, args, first, count);
    int copies = lua_gettop(L) - count + 1; /* kept below the call: what is written goes back */
    lua_getiuservalue(L, self, FL_CAPTURED_FUNCTION);
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
        fl_captured_version *kept = place_of_new(L, self, captured);
        version.result_count = results.count;
        store(L, self, captured, &version, first, base, lists);
        *kept = version;
        kept->used = ++captured->clock;
    } else
        for (int i = 0; i < version.arg_count; i++) fl_meta_unref(version.args[i].meta);
    return push_results(L, base, results.boxes);
}

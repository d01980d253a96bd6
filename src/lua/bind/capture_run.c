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

/* Lists in the registry, of the function that is recorded: what the host does in replays, what has to be true before
** them, the modules that it calls (its keys), and what the variables hold that it reaches. */
enum { HOSTS, GUARDS, MODULES, UPVALUES, LISTS };
static const char list_keys[LISTS];

static bool makes_state; /* the function that is recorded has made what stays, as it will not at the next call */

/* ---- arguments ---- */

/* The first tensor among the arguments; NULL: there is none. */
static const fl_tensor *first_tensor(lua_State *L, int first, int count)
{
    for (int i = 0; i < count; i++)
        if (fl_lua_box(L, first + i)) return fl_lua_box(L, first + i)->tensor;
    return NULL;
}

/* The dtype of numbers that are not whole: beside float64 they keep all their digits. */
static fl_dtype real_dtype(lua_State *L, int first, int count)
{
    for (int i = 0; i < count; i++) {
        const fl_tensor *t = fl_lua_to_tensor(L, first + i);
        if (t && t->meta->dtype == FL_FLOAT64) return FL_FLOAT64;
    }
    return fl_dtype_default;
}

/* A 0-d tensor of the number at index, of dtype `real`, or int64 for a whole one; where `beside` is, that ops may take
** both. */
static fl_status number_tensor(fl_tensor **out, lua_State *L, int index, fl_dtype real, const fl_tensor *beside)
{
    fl_shape scalar = {0, {0}};
    fl_tensor *host, *there;
    bool whole = lua_isinteger(L, index);
    const fl_placement *p = beside ? beside->meta->placement : NULL;
    FL_TRY(fl_tensor_empty_local(&host, whole ? FL_INT64 : real, &scalar));
    if (whole) *(int64_t *)fl_tensor_data(host) = lua_tointeger(L, index);
    else if (real == FL_FLOAT64) *(double *)fl_tensor_data(host) = lua_tonumber(L, index);
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

/* ---- results of the function ---- */

/* Collects the tensors of the value at the top, in tables too, and replaces it by a template: a tensor by its number as
** a light userdata. */
struct results {
    fl_tensor *at[FL_CAPTURE_RESULTS]; /* borrowed: the boxes are in the table at `boxes` */
    int count, boxes;
    bool as_they_are; /* nothing is collected: the recording failed */
};

static void collect(lua_State *L, struct results *results, int depth)
{
    fl_tensor *t = fl_lua_to_tensor(L, -1);
    luaL_checkstack(L, 8, "capture");
    if (t && results->as_they_are) return;
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
    bool complete; /* the last replay was */
    bool later;    /* a function has run in this one */
    fl_attrs *attrs;
};

/* In a protected call: runs the function of the number, and reads the attributes that it returns; nil: they stay, and
** those without a name do where true comes after them. */
static int host_protected(lua_State *L)
{
    struct host *h = lua_touserdata(L, 2);
    lua_rawgeti(L, 1, h->id);
    lua_rawgeti(L, -1, 2);
    lua_pushboolean(L, h->complete);
    lua_pushboolean(L, !h->later);
    h->later = true;
    lua_call(L, 2, h->attrs ? 2 : 0);
    if (!h->attrs || lua_isnil(L, 4)) return 0;
    lua_rawgeti(L, 3, 1);
    fl_lua_read_attrs(L, h->attrs, fl_lua_call_of(L, -1), 4, lua_toboolean(L, 5));
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
    fl_status status = fl_lua_caught(h->L, FL_ERR_STATE);
    lua_pop(h->L, 1);
    return status;
}

/* Fills args with what the program takes: tensors with the strides of those that it was recorded with, and 0-d ones of
** numbers. Pushes boxes of what is made. */
static void prepare_arguments(lua_State *L, fl_tensor **args, const fl_captured_version *version, int first)
{
    int n = 0;
    const fl_tensor *beside = first_tensor(L, first, version->arg_count);
    const fl_dtype real = real_dtype(L, first, version->arg_count);
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
        if (t) FL_CHECK(L, fl_program_copy_argument(&box->tensor, t));
        else FL_CHECK(L, number_tensor(&box->tensor, L, first + i, real, beside));
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
    struct host host = {.L = L, .complete = version->complete};
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
    fl_lua_enter(L);
    version->complete = false;
    FL_CHECK(L, fl_program_run(version->program, args, results, call_host, &host));
    version->complete = true;
    for (int i = 0; i < version->result_count; i++) boxes[i]->tensor = results[i];
    fl_lua_account(L);
    return single ? 1 : push_results(L, template, list);
}

/* ---- other values that are read anew ---- */

int fl_captured_add_host(lua_State *L, int op, int function)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &list_keys[HOSTS]);
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
    lua_rawgetp(L, LUA_REGISTRYINDEX, &list_keys[MODULES]);
    lua_pushvalue(L, index);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

void fl_captured_add_guard(lua_State *L, int function)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &list_keys[GUARDS]);
    lua_pushvalue(L, function);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    lua_pop(L, 1);
}

void fl_captured_make_state(void) { makes_state = true; }

/* ---- recording ---- */

/* One recording: the arguments of the function, and its results. */
struct recording {
    fl_captured_version *version;
    int first;                             /* index of the arguments */
    fl_tensor *copies[FL_CAPTURE_ARGS];    /* of those that are tensors or numbers, in order */
    uint32_t versions[FL_CAPTURE_ARGS];    /* of the copies' memory, when the function got them */
    fl_tensor *originals[FL_CAPTURE_ARGS]; /* borrowed; NULL: a number */
    struct results results;
};

/* Pushes the arguments as the function gets them while it is recorded: tensors of their own memory, numbers as 0-d
** tensors. */
static void push_arguments(lua_State *L, struct recording *recording, int count)
{
    fl_captured_version *version = recording->version;
    const fl_tensor *beside = first_tensor(L, recording->first, count);
    const fl_dtype real = real_dtype(L, recording->first, count);
    luaL_checkstack(L, 2 * count + 8, "capture");
    for (int i = 0; i < count; i++) {
        const int at = recording->first + i;
        fl_captured_arg *a = &version->args[version->arg_count++];
        *a = (fl_captured_arg){.kind = fl_captured_kind(L, at)};
        if (a->kind == FL_ARG_CONSTANT) {
            lua_pushvalue(L, at);
            continue;
        }
        fl_tensor *t = fl_lua_to_tensor(L, at);
        fl_box *box = fl_lua_new_box(L);
        if (t) {
            FL_CHECK(L, fl_program_copy_argument(&box->tensor, t));
            a->meta = fl_meta_ref(t->meta);
            a->contiguous = t->contiguous;
            memcpy(a->strides, t->strides, sizeof a->strides);
        } else FL_CHECK(L, number_tensor(&box->tensor, L, at, real, beside));
        const int n = version->tensor_count++;
        recording->copies[n] = box->tensor;
        recording->versions[n] = box->tensor->storage->var.version;
        recording->originals[n] = t;
    }
}

/* Copies the values that the function wrote into its copies of the arguments back to the arguments. */
static fl_status write_back(struct recording *recording)
{
    fl_captured_version *version = recording->version;
    for (int i = 0, n = 0; i < version->arg_count; i++) {
        fl_captured_arg *a = &version->args[i];
        if (a->kind == FL_ARG_CONSTANT) continue;
        fl_tensor *copy = recording->copies[n], *original = recording->originals[n], *out;
        a->written = copy->storage->var.version != recording->versions[n++];
        if (!a->written || !original) continue;
        const fl_operand in[2] = {fl_of(original), fl_of(copy)};
        FL_TRY(fl_dispatch_unrecorded(&out, FL_OP_REF(copy_), in, 2));
        fl_tensor_unref(out);
    }
    return FL_OK;
}

/* Fails if a tensor that the function reaches by itself shares memory with an argument: it saw a copy. */
static void check_memory(lua_State *L, struct recording *recording)
{
    const int shared = fl_captured_shares(L, recording->version, recording->first);
    if (shared)
        FL_RAISE(L,
                 "capture: argument %d lies in memory that the function also gets in another way, and writes; pass "
                 "x:clone(), or let it reach that memory in one way",
                 shared);
}

/* A result that is the copy of an argument, or a view of it, becomes that of the argument itself. */
static fl_status give_argument(const struct recording *recording, fl_tensor **result)
{
    for (int n = 0; n < recording->version->tensor_count; n++) {
        fl_tensor *t = *result, *original = recording->originals[n];
        if (t->storage != recording->copies[n]->storage || !original || !original->contiguous) continue;
        FL_TRY(fl_tensor_view(result, original, t->meta, t->strides, original->offset + t->offset));
        (*result)->moved_view = t->moved_view;
        fl_tensor_unref(t);
        return FL_OK;
    }
    return FL_OK;
}

static fl_status give_arguments(lua_State *L, struct recording *recording)
{
    for (int i = 0; i < recording->results.count; i++) {
        lua_rawgeti(L, recording->results.boxes, i + 1);
        fl_box *box = fl_lua_box(L, -1);
        lua_pop(L, 1);
        FL_TRY(give_argument(recording, &box->tensor));
    }
    return FL_OK;
}

/* A place for one more version; the one that was used longest ago goes. NULL: all are running. */
static fl_captured_version *place_of_new(lua_State *L, int self, fl_captured *captured)
{
    fl_captured_version *oldest = NULL;
    for (int i = 0; i < FL_CAPTURE_VERSIONS; i++) {
        fl_captured_version *v = &captured->versions[i];
        if (!v->program) return v;
        if (!fl_program_is_busy(v->program) && (!oldest || v->used < oldest->used)) oldest = v;
    }
    if (!oldest) return NULL;
    if (captured->captures == FL_CAPTURE_VERSIONS) {
        char line[LUA_IDSIZE + 16];
        fl_lua_where(L, line, sizeof line);
        fprintf(stderr,
                "flowlua: %s: captured 8 times, for other kinds of arguments or because what it reaches changed; each "
                "further time drops an older one\n",
                line);
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

/* Makes the lists, on the stack too. */
static void open_lists(lua_State *L)
{
    for (int i = 0; i < LISTS; i++) {
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &list_keys[i]);
    }
}

static void close_lists(lua_State *L)
{
    set_recording(L, false);
    for (int i = 0; i < LISTS; i++) {
        lua_pushnil(L);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &list_keys[i]);
    }
}

/* Replaces the modules at index by a function that returns true while they are unchanged; nil if there is none. The
** script's functions that are their fields, and their forwards, are looked at like those that are variables. */
static void watch_modules(lua_State *L, int modules, int upvalues)
{
    const int top = lua_gettop(L);
    fl_lua_push_flow(L);
    lua_getfield(L, -1, "_program");
    lua_pushnil(L);
    const bool any = lua_next(L, modules) != 0;
    lua_settop(L, top + 2);
    if (!any || lua_getfield(L, -1, "watch") == LUA_TNIL) lua_pushnil(L); /* none without flow.nn */
    else {
        lua_pushvalue(L, modules);
        lua_call(L, 1, 2);
        for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
            fl_upvalues_note(L, upvalues, lua_gettop(L), 0);
            lua_pop(L, 1);
        }
        lua_pop(L, 2);
    }
    lua_replace(L, modules);
    lua_settop(L, top);
}

/* Stores Lua's part of the version: arguments from `first` on, template and lists by index. */
static void store(lua_State *L, int self, fl_captured *captured, fl_captured_version *version, int first, int template,
                  int lists)
{
    version->id = ++captured->captures;
    lua_getiuservalue(L, self, FL_CAPTURED_VERSIONS);
    lua_createtable(L, FL_VERSION_UPVALUES, 0);
    lua_createtable(L, version->arg_count, 0);
    for (int i = 0; i < version->arg_count; i++) {
        if (version->args[i].kind == FL_ARG_CONSTANT) lua_pushvalue(L, first + i);
        else lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i + 1);
    }
    lua_rawseti(L, -2, FL_VERSION_CONSTANTS);
    lua_pushvalue(L, template);
    lua_rawseti(L, -2, FL_VERSION_TEMPLATE);
    for (int i = 0; i < LISTS; i++) {
        lua_pushvalue(L, lists + i);
        lua_rawseti(L, -2, FL_VERSION_HOSTS + i);
    }
    lua_rawseti(L, -2, version->id);
    lua_pop(L, 1);
}

/* Collections until nothing but the results is held of what the function made: a young one, then full ones. */
static void collect_garbage(lua_State *L, const struct results *results)
{
    fl_lua_collect_young(L);
    for (int i = 0; i < 2 && fl_program_is_held(results->at, results->count); i++) fl_lua_collect_all(L);
}

/* Ends the recording: true where a version came of it. */
static bool end_recording(lua_State *L, fl_captured *captured, struct recording *recording)
{
    const struct results *results = &recording->results;
    bool held = false;
    if (fl_grad_unsynced > 0) { /* under no_sync: the next call adds to them */
        fl_program_abort();
        return false;
    }
    collect_garbage(L, results);
    fl_status status = fl_program_end(&recording->version->program, &held, results->at, results->count);
    if (status == FL_OK && makes_state) { /* none of it here: other ranks hold some, and record the next call too */
        fl_program_free(recording->version->program);
        recording->version->program = NULL;
        return false;
    }
    if (status == FL_OK) {
        captured->made_state = 0;
        return true;
    }
    if (held && (makes_state || captured->made_state++ == 0)) return false; /* state that later calls use */
    if (captured->strict) fl_lua_error(L, status);
    captured->splits = true;
    return false;
}

/* In a protected call with the recording, the table of boxes, the function and its arguments: gives the template of
** what it returns. */
static int run_protected(lua_State *L)
{
    enum { BOXES = 2, TEMPLATE = 3 };
    struct recording *recording = lua_touserdata(L, 1);
    lua_call(L, lua_gettop(L) - TEMPLATE, LUA_MULTRET);
    int returned = lua_gettop(L) - BOXES;
    recording->results.boxes = BOXES;
    recording->results.as_they_are = fl_program_has_failed();
    luaL_checkstack(L, 8, "capture");
    lua_createtable(L, returned, 1);
    lua_insert(L, TEMPLATE);
    for (int i = returned; i > 0; i--) {
        collect(L, &recording->results, 0);
        lua_rawseti(L, TEMPLATE, i);
    }
    lua_pushinteger(L, returned);
    lua_rawseti(L, TEMPLATE, 0);
    return 1;
}

/* A version that is collected as garbage until it is kept. */
static fl_captured_version *push_version(lua_State *L)
{
    fl_captured_version *version = lua_newuserdatauv(L, sizeof *version, 0);
    *version = (fl_captured_version){
        .complete = true,
        .grad_enabled = fl_grad_enabled,
        .grad_sync = fl_grad_sync,
        .autocast = fl_autocast_now,
        .default_dtype = fl_dtype_default,
        .default_device = fl_lua_device,
    };
    luaL_setmetatable(L, FL_CAPTURED_VERSION_TYPE);
    return version;
}

/* Runs the function, recorded, and pushes what it returns. self, the arguments from `first` on are at their places. */
int fl_captured_record(lua_State *L, int self, fl_captured *captured, int first, int count)
{
    struct recording recording = {.version = push_version(L), .first = first};
    makes_state = false;
    open_lists(L);
    int lists = lua_gettop(L) - LISTS + 1;
    lua_getiuservalue(L, self, FL_CAPTURED_FUNCTION);
    fl_upvalues_note(L, lists + UPVALUES, lua_gettop(L), lists + MODULES);
    lua_pop(L, 1);
    lua_newtable(L);
    int boxes = lua_gettop(L);
    push_arguments(L, &recording, count);
    int copies = lua_gettop(L) - count + 1; /* kept below the call: written ones are copied back */
    lua_pushcfunction(L, run_protected);
    int template = lua_gettop(L);
    lua_pushlightuserdata(L, &recording);
    lua_pushvalue(L, boxes);
    lua_getiuservalue(L, self, FL_CAPTURED_FUNCTION);
    for (int i = 0; i < count; i++) lua_pushvalue(L, copies + i);
    FL_CHECK(L, fl_program_begin(recording.copies, recording.version->tensor_count, captured->strict));
    set_recording(L, true);
    bool failed = lua_pcall(L, count + 3, 1, 0) != LUA_OK;
    close_lists(L);
    if (failed) {
        fl_program_abort();
        return lua_error(L);
    }
    recording.results.boxes = boxes;
    bool recorded = end_recording(L, captured, &recording);
    if (recorded) check_memory(L, &recording);
    FL_CHECK(L, write_back(&recording));
    FL_CHECK(L, give_arguments(L, &recording));
    fl_captured_version *kept = recorded ? place_of_new(L, self, captured) : NULL;
    if (kept) {
        fl_captured_version *version = recording.version;
        version->result_count = recording.results.count;
        version->guard_count = (int)lua_rawlen(L, lists + GUARDS);
        version->changes = fl_captured_changes;
        fl_upvalues_settle(L, lists + UPVALUES);
        watch_modules(L, lists + MODULES, lists + UPVALUES);
        version->has_upvalues = fl_upvalues_are_any(L, lists + UPVALUES);
        version->used = ++captured->clock;
        store(L, self, captured, version, first, template, lists);
        *kept = *version;
        *version = (fl_captured_version){NULL};
    }
    return push_results(L, template, boxes);
}

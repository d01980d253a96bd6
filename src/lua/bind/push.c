/*
** push.c -- flow.engine.push: a Lua function among the ops, in a lua_State and on a thread of its own.
**
** It runs when the tensors it reads have their values and nothing uses those it writes any more; ops that use these
** wait for it. The core may not be called there, so it sees memory: flat arrays that it reads and writes by position or
** as strings. Arguments and results are copied: the function as its bytecode, numbers, strings, booleans.
**
** A job lies in the bytes of a tensor, which the engine keeps until the task is over, even if the script drops it.
*/
#include "core/process.h"
#include "core/tasks.h"
#include "arguments.h"
#include "array.h"
#include "members.h"
#include "tensors.h"
#include "worker.h"

#include <lualib.h>
#include <stdlib.h>

enum { MOST_TENSORS = 32 };

/* ---- jobs ---- */

/* A tensor that the job uses. */
struct part {
    char *data; /* borrowed */
    fl_dtype dtype;
    fl_shape shape;
    bool writable;
};

struct job {
    fl_pack *result; /* atomic; owned by the handle; NULL: none yet, &dropped: not wanted any more */
    int read_count, write_count;
    size_t code_size; /* the code follows the pack */
    struct part arrays[2 * MOST_TENSORS];
    fl_pack values; /* package.path, then the arguments; last: it is as long as they are */
};

static fl_pack dropped;
static lua_State *worker;               /* made by the first job, on the lanes' thread, which alone uses it */
static int lanes[FL_PRIORITIES] = {-1}; /* the highest priority first; they share a thread */

static const char *code_of(const struct job *job) { return fl_pack_texts(&job->values) + job->values.bytes; }

/* ---- arrays, in the worker ---- */

/* Pushes the list of `count` arrays; they are also put into the table at `lent`, which scripts do not see. */
static void push_arrays(lua_State *L, const struct part *parts, int count, int lent)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        fl_lua_lend_array(L, parts[i].data, parts[i].dtype, &parts[i].shape, parts[i].writable);
        lua_pushvalue(L, -1);
        lua_rawseti(L, lent, (lua_Integer)lua_rawlen(L, lent) + 1);
        lua_rawseti(L, -2, i + 1);
    }
}

/* A script may have kept them. */
static void end_arrays(lua_State *L, int lent)
{
    for (int i = (int)lua_rawlen(L, lent); i > 0; i--) {
        lua_rawgeti(L, lent, i);
        ((fl_array *)lua_touserdata(L, -1))->over = true;
        lua_pop(L, 1);
    }
}

/* ---- the worker ---- */

static void set_result(struct job *job, fl_pack *pack)
{
    if (__atomic_exchange_n(&job->result, pack, __ATOMIC_ACQ_REL) == &dropped) {
        free(pack);
        job->result = &dropped;
    }
}

/* Calls the function of the job and keeps what it returns. */
static int call_job(lua_State *L)
{
    struct job *job = lua_touserdata(L, 1);
    enum { LENT = 2, READS, WRITES };
    const char *code = code_of(job);
    lua_newtable(L);
    push_arrays(L, job->arrays, job->read_count, LENT);
    push_arrays(L, job->arrays + job->read_count, job->write_count, LENT);
    fl_lua_load_code(L, code, job->code_size, "=push");
    lua_pushvalue(L, READS);
    lua_pushvalue(L, WRITES);
    fl_pack_push(L, &job->values);
    lua_getglobal(L, LUA_LOADLIBNAME);
    lua_pushvalue(L, -job->values.count - 1); /* the first value */
    lua_setfield(L, -2, "path");
    lua_pop(L, 1);
    lua_remove(L, -job->values.count);
    int function = WRITES + 1, status = lua_pcall(L, job->values.count + 1, LUA_MULTRET, 0);
    end_arrays(L, LENT);
    if (status != LUA_OK) lua_error(L);
    int count = lua_gettop(L) - function + 1;
    if (count > FL_MOST_VALUES) luaL_error(L, "at most %d results, got %d", FL_MOST_VALUES, count);
    for (int i = 0; i < count; i++)
        if (!fl_lua_is_plain(L, function + i))
            luaL_error(L, "result %d is a %s; results are numbers, strings, booleans and nil", i + 1,
                       luaL_typename(L, function + i));
    fl_pack *pack = malloc(fl_pack_size(L, function, count));
    if (!pack) luaL_error(L, "out of memory for the results");
    fl_pack_fill(pack, L, function, count);
    set_result(job, pack);
    return 0;
}

static fl_status in_worker(lua_CFunction function, void *context)
{
    if (!worker) return fl_fail(FL_ERR_MEMORY, "push: out of memory for a Lua state");
    lua_settop(worker, 0);
    lua_pushcfunction(worker, function);
    lua_pushlightuserdata(worker, context);
    fl_status status = FL_OK;
    if (lua_pcall(worker, 1, 0, 0) != LUA_OK) status = fl_fail(FL_ERR_STATE, "push: %s", fl_lua_error_text(worker));
    lua_settop(worker, 0);
    return status;
}

/* Runs on the lane. If an operand is missing it does not call the function, and that error is the handle's. */
static fl_status run_job(void *payload)
{
    struct job *job = *(struct job **)payload;
    if (!worker) {
        worker = luaL_newstate();
        FL_TRY(in_worker(fl_lua_open_worker, (void *)"engine.push"));
    }
    return in_worker(call_job, job);
}

void fl_lua_worker_close(void)
{
    if (worker) lua_close(worker);
    worker = NULL;
}

/* ---- pushing ---- */

static const char handle_type[] = "flow.job";

/* Its user value: a box of the tensor that the job lies in. */
struct handle {
    fl_tensor *token; /* owned */
};

static struct job *job_of(const struct handle *handle) { return fl_tensor_data(handle->token); }

/* The tensors of the list in field `name`, in boxes of a new table that is pushed; they can be seen as arrays. */
static int check_tensors(lua_State *L, fl_tensor **out, const char *name, bool writes)
{
    lua_newtable(L);
    if (lua_getfield(L, 1, name) == LUA_TNIL) {
        lua_pop(L, 1);
        return 0;
    }
    if (!lua_istable(L, -1)) FL_RAISE(L, "push: %s must be a list of tensors, got %s", name, fl_lua_type_name(L, -1));
    int count = (int)lua_rawlen(L, -1);
    if (count > MOST_TENSORS) FL_RAISE(L, "push: at most %d tensors in %s, got %d", MOST_TENSORS, name, count);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, -1, i + 1);
        fl_tensor *t = fl_lua_to_tensor(L, -1);
        if (!t) FL_RAISE(L, "push: entry %d of %s must be a tensor, got %s", i + 1, name, fl_lua_type_name(L, -1));
        if (!t->meta->is_local || t->meta->placement->type != FL_CPU)
            FL_RAISE(L, "push: entry %d of %s must be a local tensor on the CPU", i + 1, name);
        if (writes && fl_requires_grad(t))
            FL_RAISE(L, "push: entry %d of writes requires grad, which a function has none for; pass x:detach()",
                     i + 1);
        if (writes && !t->contiguous) FL_RAISE(L, "push: entry %d of writes must be contiguous", i + 1);
        fl_box *box = fl_lua_new_box(L);
        if (t->contiguous) box->tensor = fl_tensor_ref(t);
        else FL_CHECK(L, FL_CALL_UNRECORDED(&box->tensor, contiguous, fl_of(t)));
        out[i] = box->tensor;
        lua_rawseti(L, -4, i + 1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return count;
}

static void list_vars(fl_var **out, fl_tensor *const *tensors, int count)
{
    for (int i = 0; i < count; i++) out[i] = &tensors[i]->storage->var;
}

static void fill_part(struct part *part, fl_tensor *tensor, bool writable)
{
    *part = (struct part){.data = fl_tensor_data(tensor),
                          .dtype = tensor->meta->dtype,
                          .shape = tensor->meta->shape,
                          .writable = writable};
}

static fl_status push_task(struct handle *handle, fl_tensor *const *reads, int read_count, fl_tensor *const *writes,
                           int write_count, int priority)
{
    static const char *const names[] = {"lua first", "lua", "lua last"};
    struct job *job = job_of(handle);
    fl_var *read_vars[MOST_TENSORS], *write_vars[MOST_TENSORS + 1];
    fl_task task = {.name = "push",
                    .run = run_job,
                    .payload = &job,
                    .payload_size = sizeof job,
                    .reads = read_vars,
                    .writes = write_vars};
    write_vars[0] = &handle->token->storage->var;
    list_vars(write_vars + 1, writes, write_count);
    list_vars(read_vars, reads, read_count);
    task.write_count = 1 + write_count;
    task.read_count = read_count;
    fl_vars_once(read_vars, &task.read_count, write_vars, &task.write_count);
    if (lanes[0] < 0) FL_TRY(fl_engine_lanes_new(lanes, names, FL_PRIORITIES, 0));
    task.lane = lanes[fl_priority_place(priority)];
    return fl_engine_push(&task);
}

/* engine.push{run =, reads =, writes =, args =, priority =} -> a handle */
static int engine_push(lua_State *L)
{
    static const char *const names[] = {"run", "reads", "writes", "args", "priority", NULL};
    fl_tensor *reads[MOST_TENSORS], *writes[MOST_TENSORS];
    enum { OPTIONS = 1, RUN, READS, WRITES, CODE, HANDLE, ARGS, VALUES };
    fl_lua_check_count(L, 1, "push", "engine.push{run =, reads =, writes =, args =, priority =}");
    if (!lua_istable(L, 1))
        FL_RAISE(L, "push: takes a table, engine.push{run =, reads =, writes =, args =, priority =}, got %s",
                 fl_lua_type_name(L, 1));
    fl_lua_check_keys(L, 1, "push", names);
    FL_CHECK(L, fl_program_refuse("a function is pushed to the engine"));
    if (fl_tracer_now) FL_RAISE(L, "push: a program that is traced has no place for functions of the engine");
    lua_getfield(L, 1, "priority");
    int priority = fl_lua_check_priority(L, -1, "push");
    lua_settop(L, OPTIONS);
    lua_getfield(L, OPTIONS, "run");
    int read_count = check_tensors(L, reads, "reads", false), write_count = check_tensors(L, writes, "writes", true);
    fl_lua_push_code(L, RUN, "push", "run", "pass it in args");
    struct handle *handle = lua_newuserdatauv(L, sizeof *handle, 0);
    handle->token = NULL;
    luaL_setmetatable(L, handle_type);
    lua_getfield(L, OPTIONS, "args");
    int count = fl_lua_push_arguments(L, ARGS, "push", ", tensors go in reads and writes");
    size_t code_size, size = offsetof(struct job, values) + fl_pack_size(L, VALUES, count);
    const char *code = lua_tolstring(L, CODE, &code_size);
    fl_shape shape = {.ndim = 1, .dims = {(int64_t)(size + code_size + 1)}};
    FL_CHECK(L, fl_tensor_empty_local(&handle->token, FL_UINT8, &shape));
    struct job *job = job_of(handle);
    *job = (struct job){.read_count = read_count, .write_count = write_count, .code_size = code_size};
    for (int i = 0; i < read_count; i++) fill_part(&job->arrays[i], reads[i], false);
    for (int i = 0; i < write_count; i++) fill_part(&job->arrays[read_count + i], writes[i], true);
    fl_pack_fill(&job->values, L, VALUES, count);
    memcpy(fl_pack_texts(&job->values) + job->values.bytes, code, code_size);
    FL_CHECK(L, push_task(handle, reads, read_count, writes, write_count, priority));
    lua_settop(L, HANDLE);
    fl_lua_account(L);
    return 1;
}

/* ---- handles ---- */

static struct handle *check_handle(lua_State *L, const char *who, const char *usage)
{
    struct handle *h = luaL_testudata(L, 1, handle_type);
    if (!h)
        FL_RAISE(L, "%s: a method is called with a colon, job:%s(); got %s as the job", who, who,
                 fl_lua_type_name(L, 1));
    fl_lua_check_count(L, 1, who, usage);
    return h;
}

/* job:wait() -> what the function returned; its error */
static int job_wait(lua_State *L)
{
    struct handle *h = check_handle(L, "wait", "job:wait()");
    FL_CHECK(L, fl_engine_wait_var(&h->token->storage->var));
    fl_pack *result = __atomic_load_n(&job_of(h)->result, __ATOMIC_ACQUIRE);
    if (!result) return 0;
    fl_pack_push(L, result);
    return result->count;
}

/* job:done() -> true once it has ended */
static int job_done(lua_State *L)
{
    struct handle *h = check_handle(L, "done", "job:done()");
    lua_pushboolean(L, fl_var_settle(&h->token->storage->var));
    return 1;
}

static int job_gc(lua_State *L)
{
    struct handle *h = luaL_checkudata(L, 1, handle_type);
    if (!h->token) return 0;
    fl_pack *result = __atomic_exchange_n(&job_of(h)->result, &dropped, __ATOMIC_ACQ_REL);
    if (result != &dropped) free(result);
    fl_tensor_release(h->token);
    h->token = NULL;
    return 0;
}

static int job_tostring(lua_State *L)
{
    struct handle *h = luaL_checkudata(L, 1, handle_type);
    lua_pushfstring(L, "job (%s)", fl_var_settle(&h->token->storage->var) ? "done" : "not done");
    return 1;
}

void fl_lua_open_push(lua_State *L, int flow)
{
    static const luaL_Reg methods[] = {{"wait", job_wait}, {"done", job_done}, {NULL, NULL}};
    static const luaL_Reg metamethods[] = {{"__gc", job_gc}, {"__tostring", job_tostring}, {NULL, NULL}};
    luaL_newmetatable(L, handle_type);
    luaL_setfuncs(L, metamethods, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    fl_lua_set_object(L, "a job");
    lua_pop(L, 1);
    lua_getfield(L, flow, "engine");
    lua_pushcfunction(L, engine_push);
    lua_setfield(L, -2, "push");
    lua_pop(L, 1);
}

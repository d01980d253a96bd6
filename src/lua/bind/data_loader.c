/*
** data_loader.c -- flow._io: batches made by Lua functions beside the script.
**
** A batch is one task on the lane of the data pool (data/pool.h): it reads the tensors whose rows the items are, so it
** begins when they have their values, and the pool's threads share its items. Its results are bytes; the script's
** thread makes tensors of them, without a copy. An item's error is kept with its number and raised by who takes the
** batch. A batch that was dropped makes no further item.
**
** A job is the memory of a tensor, which the engine keeps until the task is over, even if the script drops it.
*/
#include "core/process.h"
#include "core/tasks.h"
#include "arguments.h"
#include "array.h"
#include "data_crew.h"
#include "data_stack.h"
#include "item_random.h"
#include "members.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

static const char job_type[] = "flow.batch";

struct job {
    fl_crew *crew;           /* owned */
    const fl_device *device; /* that the batch will be copied to, NULL: none */
    uint64_t seed, epoch;
    int64_t count;
    int64_t *positions; /* owned, as all below */
    fl_row *keys;       /* of the columns, each with its place */
    fl_row **given;     /* of each item, or NULL */
    fl_row **rows;      /* made; NULL: failed, or not begun */
    fl_row **good;      /* those that are there, borrowed; as many as good_count */
    char **errors;      /* of each item */
    fl_stack *stack;    /* NULL: not wanted, or the items differ */
    int64_t good_count;
    bool goes_on; /* after an error, with the other items */
    bool stacks;
    bool in_place; /* the columns are those of the dataset, of which items have the rows at their positions */
    bool waited;   /* the script's thread works on it, and Ctrl-C ends it */
    bool dropped;  /* atomic: it will not be taken */
    bool scratch;  /* the token's memory may be overwritten */
    int column_count;
    fl_crew_column columns[];
};

struct handle {
    fl_tensor *token; /* owned; its variable is written by the task */
    struct job *job;  /* of the token; before there is one, owned */
};

static void free_list(void *list, int64_t count)
{
    void **items = list;
    for (int64_t i = 0; items && i < count; i++) free(items[i]);
    free(items);
}

static void job_free(void *context)
{
    struct job *job = context;
    fl_stack_free(job->stack);
    for (int i = 0; i < job->column_count; i++)
        if (job->columns[i].tensor) fl_tensor_release(job->columns[i].tensor);
    free_list(job->given, job->count);
    free_list(job->rows, job->count);
    free_list(job->errors, job->count);
    free(job->good);
    free(job->positions);
    free(job->keys);
    fl_crew_unref(job->crew);
    free(job);
}

/* ---- making the items ---- */

static bool is_interrupted(const struct job *job)
{
    return job->waited && fl_engine_interrupted && fl_engine_interrupted();
}

static bool is_dropped(const void *context)
{
    const struct job *job = context;
    return __atomic_load_n(&job->dropped, __ATOMIC_RELAXED) || fl_engine_is_stopping() || is_interrupted(job);
}

static fl_crew_item item_at(const struct job *job, int64_t i)
{
    return (fl_crew_item){.seed = job->seed,
                          .epoch = job->epoch,
                          .position = job->positions[i],
                          .row = job->in_place ? job->positions[i] : i,
                          .keys = job->keys,
                          .columns = job->columns,
                          .column_count = job->column_count,
                          .given = job->given ? job->given[i] : NULL,
                          .stops = is_dropped,
                          .job = job};
}

/* An error ends the job, unless it goes on. */
static fl_status make_item(void *context, int64_t i, int seat)
{
    struct job *job = context;
    fl_crew_item item = item_at(job, i);
    if (is_dropped(job)) return fl_fail(FL_ERR_STATE, "dropped");
    bool good = fl_crew_make(job->crew, seat, &item, &job->rows[i], &job->errors[i]);
    if (!good && !job->errors[i]) return fl_fail(FL_ERR_MEMORY, "loader: out of memory for a Lua state");
    return good || job->goes_on ? FL_OK : fl_fail(FL_ERR_VALUE, "failed");
}

static bool has_errors(const struct job *job)
{
    bool some = false;
    for (int64_t i = 0; i < job->count; i++) some = some || job->errors[i];
    return some;
}

static void finish_job(struct job *job)
{
    for (int64_t i = 0; i < job->count; i++)
        if (job->rows[i]) job->good[job->good_count++] = job->rows[i];
    if (!job->stacks || (!job->goes_on && job->good_count < job->count)) return;
    job->stack = fl_stack_rows(job->good, job->good_count, job->device);
    if (!job->stack || !fl_stack_is_whole(job->stack)) return;
    for (int64_t i = 0; i < job->count; i++) {
        if (job->rows[i] == job->good[0]) continue;
        free(job->rows[i]);
        job->rows[i] = NULL;
    }
}

static void begin_job(struct job *job)
{
    for (int i = 0; i < job->column_count; i++) {
        fl_crew_column *column = &job->columns[i];
        column->data = column->tensor->meta->numel ? fl_tensor_data(column->tensor) : NULL;
    }
}

/* On the lane, or where the engine has it run at once (FLOW_ENGINE=naive, a forked child) on the script's thread. The
** errors of items are not the task's. */
static fl_status run_job(void *payload)
{
    struct job *job = *(struct job **)payload;
    if (__atomic_load_n(&job->dropped, __ATOMIC_RELAXED)) return FL_OK;
    job->waited = fl_owner_is_here();
    fl_status status = fl_pool_run(job->count, fl_crew_workers(job->crew), make_item, job);
    if (is_interrupted(job)) return fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    if (__atomic_load_n(&job->dropped, __ATOMIC_RELAXED)) return FL_OK;
    if (status != FL_OK && !has_errors(job)) return status;
    finish_job(job);
    return FL_OK;
}

static fl_status push_job(const struct handle *handle)
{
    struct job *job = handle->job;
    fl_var **reads = malloc(sizeof *reads * (size_t)(job->column_count + 1)),
           *writes[] = {&handle->token->storage->var};
    if (!reads) return fl_fail(FL_ERR_MEMORY, "loader: out of memory");
    fl_task task = {.name = "loader",
                    .run = run_job,
                    .payload = &job,
                    .payload_size = sizeof job,
                    .reads = reads,
                    .writes = writes,
                    .write_count = 1,
                    .flags = FL_TASK_QUIET};
    for (int i = 0; i < job->column_count; i++) reads[task.read_count++] = &job->columns[i].tensor->storage->var;
    fl_vars_once(reads, &task.read_count, writes, &task.write_count);
    fl_status status = fl_pool_lane(&task.lane);
    if (status == FL_OK) status = fl_engine_push(&task);
    free(reads);
    return status;
}

/* All items, in the script's state; Ctrl-C is an error that ends them. */
static void run_here(lua_State *L, struct job *job, int crew)
{
    begin_job(job);
    for (int64_t i = 0; i < job->count; i++) {
        fl_crew_item item = item_at(job, i);
        bool good = fl_crew_make_here(L, crew, &item, &job->rows[i], &job->errors[i]);
        if (!good && !job->errors[i]) FL_RAISE(L, "loader: out of memory");
        if (!good && (!job->goes_on || strstr(job->errors[i], "interrupted"))) break;
    }
    finish_job(job);
}

/* ---- asking for a batch ---- */

static void *zeros(lua_State *L, int64_t count, size_t size)
{
    void *memory = calloc((size_t)(count ? count : 1), size);
    if (!memory) FL_RAISE(L, "loader: out of memory");
    return memory;
}

/* The columns in the table at index: field name -> tensor. */
static struct job *new_job(lua_State *L, struct handle *handle, int columns)
{
    int count = 0;
    for (lua_pushnil(L); lua_next(L, columns); lua_pop(L, 1)) count++;
    struct job *job = handle->job = zeros(L, 1, sizeof *job + sizeof(fl_crew_column) * (size_t)count);
    lua_newtable(L); /* field name -> place */
    for (lua_pushnil(L); lua_next(L, columns); lua_pop(L, 1)) {
        fl_tensor *t = fl_lua_check_tensor(L, -1, "loader", "a field");
        job->columns[job->column_count++].tensor = fl_tensor_ref(t);
        lua_pushvalue(L, -2);
        lua_pushinteger(L, job->column_count - 1);
        lua_rawset(L, -5);
    }
    job->keys = fl_row_take(L, -1, false);
    lua_pop(L, 1);
    return job;
}

/* The place of each key. */
static void order_columns(struct job *job)
{
    for (int k = 0; k < job->keys->count; k++) job->columns[job->keys->fields[k].value.integer].key = k;
}

/* Of the list at index, or of an int64 tensor of one axis. */
static void read_positions(lua_State *L, struct job *job, int index)
{
    const fl_tensor *t = NULL;
    if (!lua_istable(L, index)) {
        fl_box *host = fl_lua_new_box(L);
        FL_CHECK(L, fl_lua_host(&host->tensor, fl_lua_check_tensor(L, index, "loader", "positions")));
        lua_replace(L, index);
        t = host->tensor;
    }
    int64_t count = t ? t->meta->numel : (int64_t)lua_rawlen(L, index);
    job->positions = zeros(L, count, sizeof *job->positions);
    job->rows = zeros(L, count, sizeof *job->rows);
    job->good = zeros(L, count, sizeof *job->good);
    job->errors = zeros(L, count, sizeof *job->errors);
    job->count = count;
    for (int64_t i = 0; i < count && t; i++)
        job->positions[i] = ((const int64_t *)fl_tensor_data(t))[i * t->strides[0]];
    for (int64_t i = 0; i < count && !t; i++) {
        lua_rawgeti(L, index, i + 1);
        job->positions[i] = lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
}

/* The columns have rows at all positions. */
static void check_rows(lua_State *L, const struct job *job)
{
    for (int k = 0; k < job->column_count; k++) {
        int64_t rows = job->columns[k].tensor->meta->shape.dims[0];
        for (int64_t i = 0; i < job->count; i++)
            if (job->positions[i] < 0 || job->positions[i] >= rows)
                FL_RAISE(L, "loader: position %lld is outside the %lld rows of a field", (long long)job->positions[i],
                         (long long)rows);
    }
}

/* The items in the list at index (nil: none), each a table. */
static void read_given(lua_State *L, struct job *job, int list)
{
    if (lua_isnil(L, list)) return;
    job->given = zeros(L, job->count, sizeof *job->given);
    for (int64_t i = 0; i < job->count; i++) {
        lua_rawgeti(L, list, i + 1);
        job->given[i] = fl_row_take(L, -1, true);
        lua_pop(L, 1);
    }
}

static fl_status new_token(struct handle *handle)
{
    const fl_meta *meta;
    fl_shape shape = {.ndim = 1, .dims = {1}};
    FL_TRY(fl_meta_get(&meta, FL_BOOL, &shape, fl_placement_local(FL_CPU, -1), fl_nd_sbp_fill(FL_B, 1), true));
    fl_status status = fl_tensor_foreign(&handle->token, meta, NULL, &handle->job->scratch, job_free, handle->job);
    fl_meta_unref(meta);
    return status;
}

/* The device at index: its queue is opened here, so that threads of the pool find it open. */
static void read_device(lua_State *L, struct job *job, int index)
{
    if (!lua_toboolean(L, index)) return;
    FL_CHECK(L, fl_device_get(&job->device, fl_lua_check_device(L, index, "loader")->type));
    if (job->device) FL_CHECK(L, job->device->enter(job->device->own, FL_QUEUE_COMPUTE));
}

enum { CREW = 1, POSITIONS, COLUMNS, GIVEN, PASS, GOES_ON, STACKS, DEVICE, HANDLE };

static int make(lua_State *L, bool in_place)
{
    lua_settop(L, DEVICE);
    FL_CHECK(L, fl_program_refuse("a loader's function makes a batch"));
    if (fl_tracer_now) FL_RAISE(L, "loader: a program that is traced has no place for functions of a loader");
    struct handle *handle = lua_newuserdatauv(L, sizeof *handle, 0);
    *handle = (struct handle){NULL, NULL};
    luaL_setmetatable(L, job_type);
    struct job *job = new_job(L, handle, COLUMNS);
    order_columns(job);
    job->crew = fl_crew_at(L, CREW);
    job->goes_on = lua_toboolean(L, GOES_ON);
    job->stacks = lua_toboolean(L, STACKS);
    job->in_place = in_place;
    read_device(L, job, DEVICE);
    lua_getfield(L, PASS, "seed");
    lua_getfield(L, PASS, "epoch");
    job->seed = (uint64_t)lua_tointeger(L, -2);
    job->epoch = (uint64_t)lua_tointeger(L, -1);
    lua_settop(L, HANDLE);
    read_positions(L, job, POSITIONS);
    if (job->in_place) check_rows(L, job);
    read_given(L, job, GIVEN);
    FL_CHECK(L, new_token(handle));
    if (fl_crew_workers(job->crew) == 0) {
        for (int i = 0; i < job->column_count; i++) FL_CHECK(L, fl_tensor_wait(job->columns[i].tensor));
        run_here(L, job, CREW);
    } else {
        begin_job(job);
        FL_CHECK(L, push_job(handle));
    }
    return 1;
}

/* _io.make(crew, positions, columns, given, {seed =, epoch =}, goes_on, stacks, device) -> a batch under way. columns:
** field name -> tensor, of which the items have row after row. */
static int io_make(lua_State *L) { return make(L, false); }

static bool is_readable(const fl_tensor *tensor)
{
    return tensor && tensor->meta->is_local && tensor->meta->placement->type == FL_CPU && tensor->contiguous
        && tensor->meta->shape.ndim > 0;
}

/* _io.make_in_place(...): the same of columns of which the items have the rows at their positions, a tensor. nil: the
** columns cannot be read so. */
static int io_make_in_place(lua_State *L)
{
    bool readable = true;
    luaL_checktype(L, COLUMNS, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, COLUMNS); lua_pop(L, 1))
        readable = readable && is_readable(fl_lua_to_tensor(L, -1));
    if (readable) return make(L, true);
    lua_pushnil(L);
    return 1;
}

/* ---- taking it ---- */

static struct handle *check_handle(lua_State *L)
{
    struct handle *handle = luaL_checkudata(L, 1, job_type);
    if (!handle->token) luaL_error(L, "the batch was dropped");
    return handle;
}

/* batch:done() -> true if it can be taken without waiting */
static int batch_done(lua_State *L)
{
    lua_pushboolean(L, fl_var_settle(&check_handle(L)->token->storage->var));
    return 1;
}

/* Pushes {{place =, number =, message =}, ...} */
static void push_errors(lua_State *L, const struct job *job)
{
    lua_newtable(L);
    for (int64_t i = 0, n = 0; i < job->count; i++) {
        if (!job->errors[i]) continue;
        lua_createtable(L, 0, 3);
        lua_pushinteger(L, i + 1);
        lua_setfield(L, -2, "place");
        lua_pushinteger(L, job->positions[i]);
        lua_setfield(L, -2, "number");
        lua_pushstring(L, job->errors[i]);
        lua_setfield(L, -2, "message");
        lua_rawseti(L, -2, ++n);
    }
}

/* Pushes the items that were made, and their numbers. */
static void push_items(lua_State *L, const struct job *job)
{
    lua_newtable(L);
    lua_newtable(L);
    for (int64_t i = 0, n = 0; i < job->count; i++) {
        if (!job->rows[i]) continue;
        lua_createtable(L, 0, job->rows[i]->count);
        fl_row_set_tensors(L, -1, job->rows[i]);
        lua_rawseti(L, -3, ++n);
        lua_pushinteger(L, job->positions[i]);
        lua_rawseti(L, -2, n);
    }
}

/* batch:take() -> errors, the fields, which can be taken once; or errors, nil, items and their numbers. */
static int batch_take(lua_State *L)
{
    struct handle *handle = check_handle(L);
    FL_CHECK(L, fl_engine_wait_var(&handle->token->storage->var));
    struct job *job = handle->job;
    push_errors(L, job);
    if (job->stack) {
        fl_stack_push(L, job->stack);
        fl_lua_account(L);
        return 2;
    }
    lua_pushnil(L);
    push_items(L, job);
    fl_lua_account(L);
    return 4;
}

/* batch:drop(): nothing is needed of it any more */
static int batch_drop(lua_State *L)
{
    struct handle *handle = luaL_checkudata(L, 1, job_type);
    if (handle->job) __atomic_store_n(&handle->job->dropped, true, __ATOMIC_RELAXED);
    if (handle->token) fl_tensor_release(handle->token);
    else if (handle->job) job_free(handle->job);
    *handle = (struct handle){NULL, NULL};
    return 0;
}

/* ---- other functions for the loader ---- */

/* _io.crew{...} (data_crew.h) */
static int io_crew(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    fl_crew_new(L, 1);
    return 1;
}

/* _io.random(seed, epoch, position) */
static int io_random(lua_State *L)
{
    fl_lua_push_item_random(L, (uint64_t)luaL_checkinteger(L, 1), (uint64_t)luaL_checkinteger(L, 2),
                            (uint64_t)luaL_checkinteger(L, 3), 0);
    return 1;
}

/* _io.ready(tensor) -> true if its value, or an error, is there. A deferred value counts: reading it computes it. */
static int io_ready(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "ready", "x");
    lua_pushboolean(L, fl_var_is_deferred(&t->storage->var) || fl_var_settle(&t->storage->var));
    return 1;
}

/* _io.given(tensor): the script gets it */
static int io_given(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "given", "x");
    if (t->storage) fl_var_give(&t->storage->var);
    return 0;
}

/* _io.whole(rows, count, placement, sbp) -> the global tensor of `count` rows, of which this rank has these; nothing is
** communicated, and no rows are copied */
static int io_whole(lua_State *L)
{
    fl_tensor *rows = fl_lua_check_tensor(L, 1, "loader", "a field");
    fl_shape shape = rows->meta->shape;
    const fl_placement *placement = fl_lua_check_placement(L, 3, "loader");
    fl_nd_sbp sbp = fl_lua_check_sbp(L, 4, shape.ndim, "loader");
    shape.dims[0] = (int64_t)luaL_checkinteger(L, 2);
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_global_from_part(&box->tensor, rows, &shape, placement, sbp));
    fl_lua_account(L);
    return 1;
}

/* _io.point(placement, ok, epoch, items): all ranks of the placement are at the batch that follows so many items of the
** epoch; ok: this rank has its rows */
static int io_point(lua_State *L)
{
    const fl_placement *p = fl_lua_check_placement(L, 1, "loader");
    const char *what = lua_toboolean(L, 2) ? "a loader's batch" : "a loader's batch that failed there";
    uint64_t number = fl_hash_mix((uint64_t)luaL_checkinteger(L, 3), (uint64_t)luaL_checkinteger(L, 4));
    FL_CHECK(L, fl_history_point(p->ranks, p->count, what, number));
    return 0;
}

void fl_lua_open_loader(lua_State *L, int io)
{
    static const luaL_Reg functions[] = {{"make", io_make},   {"make_in_place", io_make_in_place},
                                         {"crew", io_crew},   {"random", io_random},
                                         {"ready", io_ready}, {"given", io_given},
                                         {"whole", io_whole}, {"point", io_point},
                                         {NULL, NULL}};
    static const luaL_Reg methods[] = {{"done", batch_done}, {"take", batch_take}, {"drop", batch_drop}, {NULL, NULL}};
    fl_lua_open_arrays(L);
    fl_lua_open_item_random(L);
    fl_crew_open(L);
    luaL_newmetatable(L, job_type);
    lua_pushcfunction(L, batch_drop);
    lua_setfield(L, -2, "__gc");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushvalue(L, io);
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}

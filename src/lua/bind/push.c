/*
** push.c -- flow.engine.push: a Lua function among the ops, in a lua_State and on a thread of its own.
**
** It runs when the tensors it reads have their values and nothing uses those it writes any more; ops that use these
** wait for it. The core may not be called there, so it sees memory: flat arrays that it reads and writes by position or
** as strings. What goes in and comes out is copied: the function as its bytecode, numbers, strings, booleans.
**
** A job lies in the bytes of a tensor, which the engine keeps until the task is over, whoever has dropped it.
*/
#include "core/process.h"
#include "arguments.h"
#include "members.h"
#include "tensors.h"

#include <lualib.h>
#include <stdlib.h>

enum { MOST_TENSORS = 32, MOST_VALUES = 250 };

/* ---- values on their way from one state to another ---- */

struct value {
    int type; /* of Lua */
    bool whole;
    union {
        lua_Integer integer; /* also of a boolean */
        lua_Number number;
        struct {
            size_t at, size; /* in bytes */
        } text;
    };
};

struct pack {
    int count;
    size_t bytes; /* of the texts, which follow the values */
    struct value values[];
};

static char *texts_of(const struct pack *pack) { return (char *)&pack->values[pack->count]; }

static bool is_plain(lua_State *L, int index)
{
    int type = lua_type(L, index);
    return type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING;
}

/* Size of a pack of the plain values from `first` on. */
static size_t pack_size(lua_State *L, int first, int count)
{
    size_t size = sizeof(struct pack) + sizeof(struct value) * (size_t)count;
    for (int i = first; i < first + count; i++)
        if (lua_type(L, i) == LUA_TSTRING) size += lua_rawlen(L, i);
    return size;
}

static void pack_fill(struct pack *pack, lua_State *L, int first, int count)
{
    size_t at = 0;
    pack->count = count;
    for (int i = 0; i < count; i++) {
        struct value *v = &pack->values[i];
        v->type = lua_type(L, first + i);
        v->whole = lua_isinteger(L, first + i);
        if (v->type == LUA_TBOOLEAN) v->integer = lua_toboolean(L, first + i);
        else if (v->whole) v->integer = lua_tointeger(L, first + i);
        else if (v->type == LUA_TNUMBER) v->number = lua_tonumber(L, first + i);
        else if (v->type == LUA_TSTRING) {
            const char *text = lua_tolstring(L, first + i, &v->text.size);
            v->text.at = at;
            memcpy(texts_of(pack) + at, text, v->text.size);
            at += v->text.size;
        }
    }
    pack->bytes = at;
}

static void pack_push(lua_State *L, const struct pack *pack)
{
    luaL_checkstack(L, pack->count + 4, "push");
    for (int i = 0; i < pack->count; i++) {
        const struct value *v = &pack->values[i];
        if (v->type == LUA_TBOOLEAN) lua_pushboolean(L, v->integer != 0);
        else if (v->type == LUA_TSTRING) lua_pushlstring(L, texts_of(pack) + v->text.at, v->text.size);
        else if (v->type == LUA_TNIL) lua_pushnil(L);
        else if (v->whole) lua_pushinteger(L, v->integer);
        else lua_pushnumber(L, v->number);
    }
}

/* ---- jobs ---- */

struct array {
    char *data; /* borrowed */
    fl_dtype dtype;
    int64_t numel;
    fl_shape shape;
    bool writable;
};

struct job {
    struct pack *result; /* atomic; owned by the handle; NULL: none yet, &dropped: nobody will ask */
    int read_count, write_count;
    size_t code_size; /* the code follows the pack */
    struct array arrays[2 * MOST_TENSORS];
    struct pack values; /* package.path, then the arguments; last: it is as long as they are */
};

static struct pack dropped;
static lua_State *worker; /* made by the first job, on the lane's thread, which alone uses it */
static int lane = -1;

static const char *code_of(const struct job *job) { return texts_of(&job->values) + job->values.bytes; }

/* ---- arrays, in the worker ---- */

static const char array_type[] = "flow.array";

static const struct array *check_array(lua_State *L)
{
    const struct array **handle = luaL_checkudata(L, 1, array_type);
    if (!*handle) luaL_error(L, "the task of this array is over");
    return *handle;
}

static char *check_element(lua_State *L, const struct array *array)
{
    lua_Integer i = luaL_checkinteger(L, 2);
    if (i < 0 || i >= array->numel)
        luaL_error(L, "position %I is outside 0 to %I", (LUAI_UACINT)i, (LUAI_UACINT)array->numel - 1);
    return array->data + (size_t)i * fl_dtype_size(array->dtype);
}

static void check_writable(lua_State *L, const struct array *array)
{
    if (!array->writable) luaL_error(L, "this array is one of `reads`; name its tensor in `writes`");
}

static int array_tobytes(lua_State *L)
{
    const struct array *a = check_array(L);
    lua_pushlstring(L, a->numel ? a->data : "", (size_t)a->numel * fl_dtype_size(a->dtype));
    return 1;
}

static int array_frombytes(lua_State *L)
{
    const struct array *a = check_array(L);
    size_t size, want = (size_t)a->numel * fl_dtype_size(a->dtype);
    const char *bytes = luaL_checklstring(L, 2, &size);
    check_writable(L, a);
    if (size != want) luaL_error(L, "the array takes %I bytes, got %I", (LUAI_UACINT)want, (LUAI_UACINT)size);
    for (size_t i = 0; a->dtype == FL_BOOL && i < size; i++)
        if ((unsigned char)bytes[i] > 1) luaL_error(L, "a bool is a byte 0 or 1, got %d", (unsigned char)bytes[i]);
    if (size) memcpy(a->data, bytes, size);
    return 0;
}

static int array_index(lua_State *L)
{
    const struct array *a = check_array(L);
    if (lua_type(L, 2) != LUA_TSTRING) {
        fl_lua_push_element(L, a->dtype, check_element(L, a));
        return 1;
    }
    const char *key = lua_tostring(L, 2);
    if (strcmp(key, "dtype") == 0) lua_pushstring(L, fl_dtype_name(a->dtype));
    else if (strcmp(key, "tobytes") == 0) lua_pushcfunction(L, array_tobytes);
    else if (strcmp(key, "frombytes") == 0) lua_pushcfunction(L, array_frombytes);
    else if (strcmp(key, "shape") == 0) {
        lua_createtable(L, a->shape.ndim, 0);
        for (int i = 0; i < a->shape.ndim; i++) {
            lua_pushinteger(L, a->shape.dims[i]);
            lua_rawseti(L, -2, i + 1);
        }
    } else luaL_error(L, "an array has no '%s'; it has positions from 0, dtype, shape, tobytes and frombytes", key);
    return 1;
}

static int array_newindex(lua_State *L)
{
    const struct array *a = check_array(L);
    check_writable(L, a);
    char *at = check_element(L, a);
    int type = lua_type(L, 3);
    if (type != LUA_TNUMBER && type != LUA_TBOOLEAN)
        luaL_error(L, "an element must be a number or a boolean, got %s", luaL_typename(L, 3));
    if (!fl_lua_store_element(L, 3, a->dtype, at))
        luaL_error(L, "%s does not fit into %s", luaL_tolstring(L, 3, NULL), fl_dtype_name(a->dtype));
    return 0;
}

static int array_length(lua_State *L)
{
    lua_pushinteger(L, check_array(L)->numel);
    return 1;
}

/* Pushes the list of `count` arrays. */
static void push_arrays(lua_State *L, const struct array *arrays, int count)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        const struct array **handle = lua_newuserdatauv(L, sizeof *handle, 0);
        *handle = &arrays[i];
        luaL_setmetatable(L, array_type);
        lua_rawseti(L, -2, i + 1);
    }
}

/* A script may have kept them. */
static void end_arrays(lua_State *L, int list)
{
    for (int i = (int)lua_rawlen(L, list); i > 0; i--) {
        lua_rawgeti(L, list, i);
        *(const struct array **)lua_touserdata(L, -1) = NULL;
        lua_pop(L, 1);
    }
}

/* ---- the worker ---- */

static int refuse_flow(lua_State *L)
{
    return luaL_error(L,
                      "flow cannot be required here: a function of engine.push runs beside it, and sees its tensors "
                      "as arrays");
}

static int refuse_exit(lua_State *L)
{
    return luaL_error(L, "os.exit: a function of engine.push cannot end the process");
}

static int open_worker(lua_State *L)
{
    static const luaL_Reg array[] = {
        {"__index", array_index}, {"__newindex", array_newindex}, {"__len", array_length}, {NULL, NULL}};
    luaL_openlibs(L);
    lua_getglobal(L, LUA_OSLIBNAME);
    lua_pushcfunction(L, refuse_exit);
    lua_setfield(L, -2, "exit");
    luaL_newmetatable(L, array_type);
    luaL_setfuncs(L, array, 0);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, refuse_flow);
    lua_setfield(L, -2, "flow");
    return 0;
}

static void set_result(struct job *job, struct pack *pack)
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
    enum { READS = 2, WRITES };
    const char *code = code_of(job);
    push_arrays(L, job->arrays, job->read_count);
    push_arrays(L, job->arrays + job->read_count, job->write_count);
    if (luaL_loadbufferx(L, code, job->code_size, "=push", *code == LUA_SIGNATURE[0] ? "b" : "t") != LUA_OK)
        lua_error(L);
    lua_pushvalue(L, READS);
    lua_pushvalue(L, WRITES);
    pack_push(L, &job->values);
    lua_getglobal(L, LUA_LOADLIBNAME);
    lua_pushvalue(L, -job->values.count - 1); /* the first value */
    lua_setfield(L, -2, "path");
    lua_pop(L, 1);
    lua_remove(L, -job->values.count);
    int function = WRITES + 1, status = lua_pcall(L, job->values.count + 1, LUA_MULTRET, 0);
    end_arrays(L, READS);
    end_arrays(L, WRITES);
    if (status != LUA_OK) lua_error(L);
    int count = lua_gettop(L) - function + 1;
    if (count > MOST_VALUES) luaL_error(L, "at most %d results, got %d", MOST_VALUES, count);
    for (int i = 0; i < count; i++)
        if (!is_plain(L, function + i))
            luaL_error(L, "result %d is a %s; results are numbers, strings, booleans and nil", i + 1,
                       luaL_typename(L, function + i));
    struct pack *pack = malloc(pack_size(L, function, count));
    if (!pack) luaL_error(L, "out of memory for the results");
    pack_fill(pack, L, function, count);
    set_result(job, pack);
    return 0;
}

static fl_status in_worker(lua_CFunction f, void *context)
{
    if (!worker) return fl_fail(FL_ERR_MEMORY, "push: out of memory for a Lua state");
    lua_settop(worker, 0);
    lua_pushcfunction(worker, f);
    lua_pushlightuserdata(worker, context);
    fl_status status = FL_OK;
    if (lua_pcall(worker, 1, 0, 0) != LUA_OK)
        status = fl_fail(FL_ERR_STATE, "%s", lua_type(worker, -1) == LUA_TSTRING ? lua_tostring(worker, -1) : "error");
    lua_settop(worker, 0);
    return status;
}

/* On the lane. Where something that it reads is missing it does not run, and that error is the handle's. */
static fl_status run_job(void *payload)
{
    struct job *job = *(struct job **)payload;
    if (!worker) {
        worker = luaL_newstate();
        FL_TRY(in_worker(open_worker, NULL));
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

/* Bytecode that is dumped. The function stays below the buffer, which must be on top of the stack. */
struct dump {
    bool begun;
    luaL_Buffer buffer;
};

static int append(lua_State *L, const void *bytes, size_t size, void *context)
{
    struct dump *dump = context;
    if (!dump->begun) luaL_buffinit(L, &dump->buffer);
    dump->begun = true;
    luaL_addlstring(&dump->buffer, bytes, size);
    return 0;
}

/* Pushes the bytecode of the function at index, or the text of the chunk that is there. */
static void push_code(lua_State *L, int index)
{
    if (lua_type(L, index) == LUA_TSTRING) {
        if (*lua_tostring(L, index) == LUA_SIGNATURE[0]) FL_RAISE(L, "push: run is a text or a function, got bytecode");
        lua_pushvalue(L, index);
        return;
    }
    if (lua_type(L, index) != LUA_TFUNCTION || lua_iscfunction(L, index))
        FL_RAISE(L, "push: run must be a Lua function or the text of one, got %s",
                 lua_isfunction(L, index) ? "a function of C" : fl_lua_type_name(L, index));
    for (int i = 1; lua_getupvalue(L, index, i); i++) {
        const char *name = lua_getupvalue(L, index, i);
        lua_pop(L, 2);
        if (strcmp(name, "_ENV") != 0)
            FL_RAISE(
                L, "push: run uses the local variable '%s' of the code around it, which stays behind; pass it in args",
                name);
    }
    struct dump dump = {false};
    lua_pushvalue(L, index);
    lua_dump(L, append, &dump, 0);
    luaL_pushresult(&dump.buffer);
    lua_remove(L, -2);
}

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

/* Pushes package.path and the arguments; how many they are. */
static int push_values(lua_State *L)
{
    int first = lua_gettop(L) + 1;
    luaL_checkstack(L, MOST_VALUES + 8, "push");
    if (lua_getglobal(L, LUA_LOADLIBNAME) == LUA_TTABLE) lua_getfield(L, -1, "path");
    else lua_pushnil(L);
    lua_remove(L, first);
    if (lua_type(L, first) != LUA_TSTRING) {
        lua_settop(L, first - 1);
        lua_pushliteral(L, LUA_PATH_DEFAULT);
    }
    if (lua_getfield(L, 1, "args") == LUA_TNIL) {
        lua_pop(L, 1);
        return 1;
    }
    int list = lua_gettop(L);
    if (!lua_istable(L, list)) FL_RAISE(L, "push: args must be a list, got %s", fl_lua_type_name(L, list));
    int count = (int)lua_rawlen(L, list);
    if (count >= MOST_VALUES) FL_RAISE(L, "push: at most %d args, got %d", MOST_VALUES - 1, count);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, list, i);
        if (!is_plain(L, -1))
            FL_RAISE(L,
                     "push: entry %d of args is a %s; args are numbers, strings and booleans, tensors go in reads "
                     "and writes",
                     i, fl_lua_type_name(L, -1));
    }
    lua_remove(L, list);
    return count + 1;
}

/* A variable is in one list, once. */
static int list_vars(fl_var **out, fl_tensor *const *tensors, int count, fl_var *const *others, int other_count)
{
    int n = 0;
    for (int i = 0; i < count; i++) {
        fl_var *var = &tensors[i]->storage->var;
        bool seen = false;
        for (int k = 0; k < n; k++) seen |= out[k] == var;
        for (int k = 0; k < other_count; k++) seen |= others[k] == var;
        if (!seen) out[n++] = var;
    }
    return n;
}

static void fill_array(struct array *array, fl_tensor *tensor, bool writable)
{
    *array = (struct array){.data = fl_tensor_data(tensor),
                            .dtype = tensor->meta->dtype,
                            .numel = tensor->meta->numel,
                            .shape = tensor->meta->shape,
                            .writable = writable};
}

static fl_status push_task(struct handle *handle, fl_tensor *const *reads, int read_count, fl_tensor *const *writes,
                           int write_count)
{
    struct job *job = job_of(handle);
    fl_var *read_vars[MOST_TENSORS], *write_vars[MOST_TENSORS + 1];
    fl_task task = {.name = "push",
                    .run = run_job,
                    .payload = &job,
                    .payload_size = sizeof job,
                    .reads = read_vars,
                    .writes = write_vars};
    write_vars[0] = &handle->token->storage->var;
    task.write_count = 1 + list_vars(write_vars + 1, writes, write_count, write_vars, 1);
    task.read_count = list_vars(read_vars, reads, read_count, write_vars, task.write_count);
    if (lane < 0) FL_TRY(fl_engine_lane_new(&lane, "lua", 0, true));
    task.lane = lane;
    return fl_engine_push(&task);
}

/* engine.push{run =, reads =, writes =, args =} -> a handle */
static int engine_push(lua_State *L)
{
    static const char *const names[] = {"run", "reads", "writes", "args", NULL};
    fl_tensor *reads[MOST_TENSORS], *writes[MOST_TENSORS];
    enum { OPTIONS = 1, RUN, READS, WRITES, CODE, HANDLE, VALUES };
    fl_lua_check_count(L, 1, "push", "engine.push{run =, reads =, writes =, args =}");
    if (!lua_istable(L, 1))
        FL_RAISE(L, "push: takes a table, engine.push{run =, reads =, writes =, args =}, got %s",
                 fl_lua_type_name(L, 1));
    fl_lua_check_keys(L, 1, "push", names);
    FL_CHECK(L, fl_program_refuse("a function is pushed to the engine"));
    if (fl_tracer_now) FL_RAISE(L, "push: a program that is traced has no place for functions of the engine");
    lua_settop(L, OPTIONS);
    lua_getfield(L, OPTIONS, "run");
    int read_count = check_tensors(L, reads, "reads", false), write_count = check_tensors(L, writes, "writes", true);
    push_code(L, RUN);
    struct handle *handle = lua_newuserdatauv(L, sizeof *handle, 0);
    handle->token = NULL;
    luaL_setmetatable(L, handle_type);
    int count = push_values(L);
    size_t code_size, size = offsetof(struct job, values) + pack_size(L, VALUES, count);
    const char *code = lua_tolstring(L, CODE, &code_size);
    fl_shape shape = {.ndim = 1, .dims = {(int64_t)(size + code_size + 1)}};
    FL_CHECK(L, fl_tensor_empty_local(&handle->token, FL_UINT8, &shape));
    struct job *job = job_of(handle);
    *job = (struct job){.read_count = read_count, .write_count = write_count, .code_size = code_size};
    for (int i = 0; i < read_count; i++) fill_array(&job->arrays[i], reads[i], false);
    for (int i = 0; i < write_count; i++) fill_array(&job->arrays[read_count + i], writes[i], true);
    pack_fill(&job->values, L, VALUES, count);
    memcpy(texts_of(&job->values) + job->values.bytes, code, code_size);
    FL_CHECK(L, push_task(handle, reads, read_count, writes, write_count));
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
    struct pack *result = __atomic_load_n(&job_of(h)->result, __ATOMIC_ACQUIRE);
    if (!result) return 0;
    pack_push(L, result);
    return result->count;
}

/* job:done() -> is it over? */
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
    struct pack *result = __atomic_exchange_n(&job_of(h)->result, &dropped, __ATOMIC_ACQ_REL);
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

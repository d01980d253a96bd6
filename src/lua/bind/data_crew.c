/*
** data_crew.c -- Lua functions that make items, in states of workers (data_crew.h).
*/
#include "data_crew.h"
#include "arguments.h"
#include "array.h"
#include "item_random.h"
#include "tensors.h"

#include <lualib.h>
#include <stdlib.h>
#include <string.h>

static const char crew_type[] = "flow.crew";

/* A function and its arguments, for states to come. */
struct stage {
    char *code; /* owned; NULL: there is none */
    size_t size;
    fl_pack *arguments; /* owned; package.path first */
};

struct worker {
    lua_State *L;             /* owned; NULL: not made yet */
    const fl_crew_item *item; /* that it makes; NULL: none */
};

struct fl_crew {
    int refs; /* atomic: of the script, and of jobs */
    int workers;
    struct stage stages[FL_CREW_STAGES];
    struct worker seats[]; /* one for each worker */
};

/* The object of scripts. User value 1: {generate, transform}; 2: lists of their arguments. */
struct handle {
    fl_crew *crew;
};

void fl_crew_unref(fl_crew *crew)
{
    if (!crew || __atomic_sub_fetch(&crew->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    for (int i = 0; i < crew->workers; i++)
        if (crew->seats[i].L) lua_close(crew->seats[i].L);
    for (int i = 0; i < FL_CREW_STAGES; i++) {
        free(crew->stages[i].code);
        free(crew->stages[i].arguments);
    }
    free(crew);
}

fl_crew *fl_crew_at(lua_State *L, int index)
{
    fl_crew *crew = ((struct handle *)luaL_checkudata(L, index, crew_type))->crew;
    __atomic_add_fetch(&crew->refs, 1, __ATOMIC_RELAXED);
    return crew;
}

int fl_crew_workers(const fl_crew *crew) { return crew->workers; }

/* ---- making an item ---- */

/* A row of a column: a number, or an array. */
static void push_column(lua_State *L, const fl_crew_column *column, int64_t row)
{
    const fl_meta *meta = column->tensor->meta;
    fl_shape shape = {.ndim = meta->shape.ndim - 1};
    memcpy(shape.dims, meta->shape.dims + 1, sizeof(int64_t) * (size_t)shape.ndim);
    size_t size = (size_t)fl_shape_numel(&shape) * fl_dtype_size(meta->dtype);
    const char *at = column->data ? column->data + (size_t)row * size : NULL;
    if (shape.ndim == 0) fl_lua_push_element(L, meta->dtype, at);
    else {
        fl_array *a = fl_lua_new_array(L, meta->dtype, &shape);
        if (size) memcpy(a->data, at, size);
    }
}

/* Pushes the item as the transform gets it. */
static void push_item(lua_State *L, const fl_crew_item *item)
{
    lua_createtable(L, 0, 4);
    for (int i = 0; i < item->column_count; i++) {
        fl_row_push_key(L, item->keys, &item->keys->fields[item->columns[i].key]);
        push_column(L, &item->columns[i], item->row);
        lua_rawset(L, -3);
    }
    if (item->given) fl_row_set_arrays(L, -1, item->given);
}

/* Pushes the arguments in the list at index; returns their number. */
static int push_list(lua_State *L, int list)
{
    int count = (int)lua_rawlen(L, list);
    luaL_checkstack(L, count + 8, "too many arguments");
    for (int i = 1; i <= count; i++) lua_rawgeti(L, list, i);
    return count;
}

struct call {
    const fl_crew_item *item;
    fl_row *row;
};

enum { CALL = 1, FUNCTIONS, ARGUMENTS, VALUE };

/* Replaces the value by what the stage's function makes of it, if there is one. */
static void run_stage(lua_State *L, const fl_crew_item *item, int stage)
{
    lua_settop(L, VALUE);
    if (lua_rawgeti(L, FUNCTIONS, stage + 1) != LUA_TFUNCTION) return;
    if (stage == FL_CREW_GENERATE) lua_pushinteger(L, item->position);
    else lua_pushvalue(L, VALUE);
    fl_lua_push_item_random(L, item->seed, item->epoch, (uint64_t)item->position, (uint64_t)stage);
    lua_rawgeti(L, ARGUMENTS, stage + 1);
    int list = lua_gettop(L), count = push_list(L, list);
    lua_remove(L, list);
    lua_call(L, count + 2, 1);
    lua_replace(L, VALUE);
    if (!lua_istable(L, VALUE))
        luaL_error(L, "%s must give an item, a table of arrays, numbers, strings and booleans; got %s",
                   stage == FL_CREW_GENERATE ? "the function of generate" : "transform", luaL_typename(L, VALUE));
}

/* The call, and tables of functions and of lists of arguments: runs the functions. */
static int make_item(lua_State *L)
{
    struct call *call = lua_touserdata(L, CALL);
    luaL_checktype(L, FUNCTIONS, LUA_TTABLE); /* debug.getregistry shows them to functions */
    luaL_checktype(L, ARGUMENTS, LUA_TTABLE);
    bool generates = lua_rawgeti(L, FUNCTIONS, FL_CREW_GENERATE + 1) == LUA_TFUNCTION;
    lua_settop(L, ARGUMENTS);
    if (generates) lua_pushnil(L);
    else push_item(L, call->item);
    for (int stage = 0; stage < FL_CREW_STAGES; stage++) run_stage(L, call->item, stage);
    call->row = fl_row_take(L, VALUE, false);
    return 0;
}

/* Calls make_item. Its tables of functions and of arguments are on top of the stack, and taken from it. */
static bool call_make(lua_State *L, const fl_crew_item *item, fl_row **out, char **error)
{
    struct call call = {item, NULL};
    int function = lua_gettop(L) - 1;
    lua_pushcfunction(L, make_item);
    lua_insert(L, function);
    lua_pushlightuserdata(L, &call);
    lua_insert(L, function + 1);
    bool good = lua_pcall(L, 3, 0, 0) == LUA_OK;
    if (good) *out = call.row;
    else *error = strdup(fl_lua_error_text(L));
    lua_settop(L, function - 1);
    return good;
}

bool fl_crew_make_here(lua_State *L, int index, const fl_crew_item *item, fl_row **out, char **error)
{
    luaL_checkstack(L, 8, "loader");
    index = lua_absindex(L, index);
    lua_getiuservalue(L, index, 1);
    lua_getiuservalue(L, index, 2);
    return call_make(L, item, out, error);
}

/* ---- states of workers ---- */

static int refuse_random(lua_State *L)
{
    return luaL_error(L,
                      "math.random draws differently in every worker and every run; use random, the second argument "
                      "of the function");
}

/* Opens a state: registry fields "functions" and "arguments". */
static int open_state(lua_State *L)
{
    fl_crew *crew = lua_touserdata(L, 1);
    lua_pushcfunction(L, fl_lua_open_worker);
    lua_pushlightuserdata(L, (void *)"data.loader");
    lua_call(L, 1, 0);
    fl_lua_open_item_random(L);
    lua_getglobal(L, LUA_MATHLIBNAME);
    lua_pushcfunction(L, refuse_random);
    lua_setfield(L, -2, "random");
    lua_newtable(L);
    lua_newtable(L);
    int functions = lua_gettop(L) - 1, arguments = functions + 1;
    for (int i = 0; i < FL_CREW_STAGES; i++) {
        const struct stage *stage = &crew->stages[i];
        if (!stage->code) continue;
        fl_lua_load_code(L, stage->code, stage->size, i == FL_CREW_GENERATE ? "=generate" : "=transform");
        lua_rawseti(L, functions, i + 1);
        lua_createtable(L, stage->arguments->count, 0);
        fl_pack_push(L, stage->arguments);
        for (int k = stage->arguments->count; k > 1; k--) lua_rawseti(L, arguments + 1, k - 1);
        lua_getglobal(L, LUA_LOADLIBNAME);
        lua_insert(L, -2);
        lua_setfield(L, -2, "path");
        lua_settop(L, arguments + 1);
        lua_rawseti(L, arguments, i + 1);
    }
    lua_setfield(L, LUA_REGISTRYINDEX, "arguments");
    lua_setfield(L, LUA_REGISTRYINDEX, "functions");
    return 0;
}

static void stop_hook(lua_State *L, lua_Debug *ar) { luaL_error(L, "stopped"); }

/* The allocator of a worker's state, which is called in the midst of its functions: where they are to stop it sets a
** hook, which runs at the next instruction. */
static void *allocate(void *context, void *block, size_t old_size, size_t new_size)
{
    const struct worker *worker = context;
    if (new_size == 0) {
        free(block);
        return NULL;
    }
    if (block == NULL && worker->item && worker->item->stops(worker->item->job) && !lua_gethook(worker->L))
        lua_sethook(worker->L, stop_hook, LUA_MASKCOUNT, 1);
    return realloc(block, new_size);
}

/* Makes the worker's state, where there is none yet. */
static bool open_worker(fl_crew *crew, struct worker *worker, char **error)
{
    if (worker->L) return true;
    lua_State *L = lua_newstate(allocate, worker);
    if (!L) return false;
    lua_pushcfunction(L, open_state);
    lua_pushlightuserdata(L, crew);
    if (lua_pcall(L, 1, 0, 0) == LUA_OK) {
        worker->L = L;
        return true;
    }
    *error = strdup(fl_lua_error_text(L));
    lua_close(L);
    return false;
}

bool fl_crew_make(fl_crew *crew, int seat, const fl_crew_item *item, fl_row **out, char **error)
{
    struct worker *worker = &crew->seats[seat];
    if (!open_worker(crew, worker, error)) return false;
    lua_State *L = worker->L;
    lua_settop(L, 0);
    lua_sethook(L, NULL, 0, 0);
    lua_getfield(L, LUA_REGISTRYINDEX, "functions");
    lua_getfield(L, LUA_REGISTRYINDEX, "arguments");
    worker->item = item;
    bool good = call_make(L, item, out, error);
    worker->item = NULL;
    return good;
}

/* ---- crews ---- */

static void *checked(lua_State *L, void *memory)
{
    if (!memory) luaL_error(L, "loader: out of memory");
    return memory;
}

/* Keeps the arguments of the function at an index, and, for states to come, its code. */
static void set_stage(lua_State *L, struct stage *stage, int function, int arguments, const char *name, bool copied)
{
    size_t size;
    int first = lua_gettop(L) + 1, count = fl_lua_push_arguments(L, arguments, "loader", "");
    stage->arguments = checked(L, malloc(fl_pack_size(L, first, count)));
    fl_pack_fill(stage->arguments, L, first, count);
    lua_settop(L, first - 1);
    if (copied) {
        fl_lua_push_code(L, function, "loader", name, "pass it in args");
        const char *code = lua_tolstring(L, -1, &size);
        stage->code = checked(L, malloc(size + 1));
        memcpy(stage->code, code, size + 1);
        stage->size = size;
    }
    lua_settop(L, first - 1);
}

void fl_crew_new(lua_State *L, int index)
{
    static const char *const names[FL_CREW_STAGES] = {"generate", "transform"};
    static const char *const lists[FL_CREW_STAGES] = {"generate_args", "transform_args"};
    index = lua_absindex(L, index);
    lua_getfield(L, index, "workers");
    int workers = (int)lua_tointeger(L, -1);
    struct handle *handle = lua_newuserdatauv(L, sizeof *handle, 2);
    handle->crew = NULL;
    luaL_setmetatable(L, crew_type);
    int self = lua_gettop(L);
    handle->crew = checked(L, calloc(1, sizeof(fl_crew) + sizeof(struct worker) * (size_t)workers));
    handle->crew->refs = 1;
    handle->crew->workers = workers;
    lua_newtable(L);
    lua_newtable(L);
    for (int i = 0; i < FL_CREW_STAGES; i++) {
        if (lua_getfield(L, index, names[i]) == LUA_TNIL) {
            lua_settop(L, self + 2);
            continue;
        }
        lua_getfield(L, index, lists[i]);
        set_stage(L, &handle->crew->stages[i], self + 3, self + 4, names[i], workers > 0);
        if (lua_isnil(L, self + 4)) {
            lua_newtable(L);
            lua_replace(L, self + 4);
        }
        lua_rawseti(L, self + 2, i + 1);
        lua_rawseti(L, self + 1, i + 1);
    }
    lua_setiuservalue(L, self, 2);
    lua_setiuservalue(L, self, 1);
    lua_remove(L, self - 1);
}

static int crew_gc(lua_State *L)
{
    struct handle *handle = luaL_checkudata(L, 1, crew_type);
    fl_crew_unref(handle->crew);
    handle->crew = NULL;
    return 0;
}

void fl_crew_open(lua_State *L)
{
    luaL_newmetatable(L, crew_type);
    lua_pushcfunction(L, crew_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

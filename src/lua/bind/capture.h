/*
** capture.h -- captured functions as the files behind flow.capture see them: versions, and what each needs.
*/
#ifndef FL_LUA_CAPTURE_H
#define FL_LUA_CAPTURE_H

#include "core/script.h"
#include "tensors.h"

#include <lauxlib.h>
#include <lua.h>

enum { FL_CAPTURE_VERSIONS = 8, FL_CAPTURE_ARGS = 32, FL_CAPTURE_RESULTS = 1024 };
enum { FL_CAPTURED_FUNCTION = 1, FL_CAPTURED_VERSIONS = 2 }; /* user values */
enum {
    FL_VERSION_CONSTANTS = 1,
    FL_VERSION_TEMPLATE,
    FL_VERSION_HOSTS,
    FL_VERSION_GUARDS,
    FL_VERSION_MODULES,
    FL_VERSION_UPVALUES
}; /* fields of a version's table */

typedef enum fl_arg_kind { FL_ARG_CONSTANT, FL_ARG_TENSOR, FL_ARG_WHOLE, FL_ARG_REAL } fl_arg_kind;

/* The requirements of one argument. */
typedef struct fl_captured_arg {
    fl_arg_kind kind;
    const fl_meta *meta; /* owned; of a tensor */
    bool written;        /* the function writes into it */
    bool contiguous;     /* else it has these strides */
    int64_t strides[FL_MAX_NDIM];
} fl_captured_arg;

typedef struct fl_captured_version {
    fl_program *program; /* owned; NULL: a free place */
    int id;              /* its place in the table of versions */
    int arg_count, tensor_count, result_count;
    fl_captured_arg args[FL_CAPTURE_ARGS];
    bool grad_enabled, grad_sync;
    uintptr_t autocast;
    fl_dtype default_dtype;
    const fl_placement *default_device; /* of flow.with_device; NULL: none */
    bool has_upvalues;                  /* to look at */
    bool complete;                      /* the last run: the steps have what the host gave for it */
    int guard_count;
    int64_t changes; /* of modules, when it was found to fit */
    uint64_t used;
} fl_captured_version;

typedef struct fl_captured {
    bool strict;
    bool splits;            /* it reads values: it is captured in pieces */
    bool reads_overlapping; /* the last call with such arguments wrote none: they may be recorded */
    int made_state;         /* recordings in vain, because the function kept what it made */
    int captures;
    uint64_t clock;
    fl_captured_version versions[FL_CAPTURE_VERSIONS];
    fl_pieces *pieces_of[FL_CAPTURE_VERSIONS]; /* owned; NULL: a free place */
    int pieces_next;
} fl_captured;

/* The metatable of a version before it has its place. */
#define FL_CAPTURED_VERSION_TYPE "flow.captured.version"

/* Number of changes of fields of modules. */
FL_OWN extern int64_t fl_captured_changes;

/* Of the argument at index. */
static inline fl_arg_kind fl_captured_kind(lua_State *L, int index)
{
    if (fl_lua_box(L, index)) return FL_ARG_TENSOR;
    if (lua_type(L, index) != LUA_TNUMBER) return FL_ARG_CONSTANT;
    return lua_isinteger(L, index) ? FL_ARG_WHOLE : FL_ARG_REAL;
}

/* Pushes a field of the version's table; self: index of the captured function. */
void fl_captured_push_field(lua_State *L, int self, const fl_captured_version *version, int field);

/* The version is freed, and its place too. */
void fl_captured_drop(fl_captured_version *version);

/* Pushes what the version gives for the arguments from `first` on; returns how many values. */
int fl_captured_replay(lua_State *L, int self, fl_captured_version *version, int first);

/* Runs the function, recorded, and pushes what it returns. */
int fl_captured_record(lua_State *L, int self, fl_captured *captured, int first, int count);

/* ---- arguments in shared memory (capture_shared.c) ---- */

/* True if two of the arguments have bytes in common. */
bool fl_captured_overlap(lua_State *L, int first, int count);

/* The first argument, from 1, that keeps the version's program from running (fl_program_shares); 0: there is none. */
int fl_captured_shares(lua_State *L, const fl_captured_version *version, int first);

/* Calls the function at 1 with the arguments behind it, and notes whether it writes them. */
int fl_captured_call_overlapping(lua_State *L, fl_captured *captured, int count);

/* Runs the function, captured in pieces, and pushes what it returns. */
int fl_captured_split(lua_State *L, int self, fl_captured *captured, int first, int count);

/* Appends {op function, f} to what the host does in replays of the function that is recorded; op: index, or 0. Returns
** its number. */
int fl_captured_add_host(lua_State *L, int op, int function);

/* Notes that the function that is recorded calls the module at index. */
void fl_captured_add_module(lua_State *L, int index);

/* A function that has to give true before each replay; else the function is recorded anew. */
void fl_captured_add_guard(lua_State *L, int function);

/* The function that is recorded makes tensors that stay, once: its next call will do. */
void fl_captured_make_state(void);

/* ---- variables (capture_upvalues.c) ---- */

/* Appends to the list at index what the upvalues of a function hold, and those of the script's functions among them.
** objects: index of a table whose keys become the tables with a metatable that they hold; 0: none. */
void fl_upvalues_note(lua_State *L, int list, int function, int objects);

/* Those that hold something else by now are looked at no more. */
void fl_upvalues_settle(lua_State *L, int list);

/* True if there is any function in the list. */
bool fl_upvalues_are_any(lua_State *L, int list);

/* True if all others have the values they had. */
bool fl_upvalues_are_same(lua_State *L, int list);

#endif

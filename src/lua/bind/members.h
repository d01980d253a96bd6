/*
** members.h -- what the flow table and tensors hold beside the ops: functions, methods, fields, indexing.
*/
#ifndef FL_LUA_MEMBERS_H
#define FL_LUA_MEMBERS_H

#include "core/script.h"

#include <lauxlib.h>
#include <lua.h>

int fl_lua_index(lua_State *L); /* index.c: x[key]; upvalues: metatable, methods */
int fl_lua_newindex(lua_State *L);
/* Iteration over a tensor, in messages. */
#define FL_ITERATION "for i, row in pairs(x) do ... end"

/* A field lies in the method table as a light userdata that points here. */
typedef struct fl_lua_field {
    const char *name;
    void (*get)(lua_State *L, fl_tensor *tensor); /* pushes the value */
} fl_lua_field;
/* The list on top of the stack prints as "[2, 3]", compares by its entries, and raises at position 0 that Lua counts
** from 1. */
typedef enum fl_lua_list { FL_LIST_SHAPE, FL_LIST_STRIDE, FL_LIST_RANKS, FL_LIST_HIERARCHY, FL_LIST_COUNT } fl_lua_list;
void fl_lua_set_list(lua_State *L, fl_lua_list kind);
void fl_lua_open_fields(lua_State *L, int methods); /* fields.c */
/* t.name = the value at index 3, an error for a field that cannot be assigned; false where `name` is no field. */
bool fl_lua_set_field(lua_State *L, fl_tensor *tensor, const char *name);

/* Each puts its functions into the flow table and the method table (stack indices); the functions' first
** upvalue is the boxes' metatable. */
void fl_lua_open_values(lua_State *L, int flow, int methods);  /* values.c: tensor, item, totable */
void fl_lua_open_bytes(lua_State *L, int flow, int methods);   /* bytes.c: tobytes, frombytes */
void fl_lua_open_dlpack(lua_State *L, int flow, int methods);  /* dlpack.c: from_dlpack, __dlpack */
void fl_lua_open_methods(lua_State *L, int flow, int methods); /* methods.c: size, to, split, to_global, ... */
void fl_lua_open_grad(lua_State *L, int flow, int methods);    /* grad.c: backward, no_grad, hooks */
void fl_lua_open_function(lua_State *L, int flow);             /* function.c: flow._function */
void fl_lua_open_recompute(lua_State *L, int flow);            /* recompute.c: flow.checkpoint */
void fl_lua_open_placement(lua_State *L, int flow);            /* placement.c: flow.placement, flow.sbp */
void fl_lua_open_runtime(lua_State *L, int flow);              /* runtime.c: sync, memory, stats, ranks */
void fl_lua_open_push(lua_State *L, int flow);                 /* push.c: flow.engine.push */
void fl_lua_worker_close(void);                                /* no job runs any more */
void fl_lua_open_testing(lua_State *L, int flow);              /* testing.c: flow._testing */
void fl_lua_open_help(lua_State *L, int flow);                 /* help.c: flow._help and what it needs */
void fl_lua_open_io(lua_State *L, int flow);        /* io.c: flow._io, files and the system for the Lua modules */
void fl_lua_open_checkpoint(lua_State *L, int io);  /* checkpoint.c: flow._io's files of tensors */
void fl_lua_open_json(lua_State *L, int io);        /* json.c: flow._io's reader of JSON */
void fl_lua_open_loader(lua_State *L, int io);      /* data_loader.c: functions for the loader */
void fl_lua_open_pack(lua_State *L, int io);        /* data_pack.c: flow._io's writer of record files */
void fl_lua_open_records(lua_State *L, int io);     /* data_records.c: flow._io's record files */
void fl_lua_open_readers(lua_State *L, int io);     /* data_readers.c: flow._io's readers of other programs' files */
void fl_lua_open_tokens(lua_State *L, int io);      /* data_tokens.c: flow._io.tokens */
void fl_lua_open_images(lua_State *L, int io);      /* data_images.c: images, and sources of items */
void fl_lua_open_csv(lua_State *L, int io);         /* data_csv.c: flow._io's reader of tables of text */
void fl_lua_open_device(lua_State *L, int flow);    /* device.c: flow.with_device, spec, set_default_dtype */
void fl_lua_open_generator(lua_State *L, int flow); /* generator.c: flow.generator, with_generator */
void fl_lua_open_explain(lua_State *L, int flow);   /* explain.c: the records of flow.explain */
void fl_lua_open_capture(lua_State *L, int flow);   /* capture.c: flow.capture, and what the Lua modules tell it */
void fl_lua_open_trace(lua_State *L, int flow);     /* trace.c: flow._trace, ops as scripts called them */
void fl_lua_open_plan(lua_State *L, int flow);      /* plan.c: flow._plan, the costs of a planned script */
void fl_lua_open_messages(lua_State *L, int flow);  /* message.c: flow._messages, between two ranks */
/* later.c: methods that are made when they are read for the first time: ops, and functions of Lua modules. */
void fl_lua_open_later_methods(lua_State *L, int methods);
/* Pushes that method and stores it, true; nothing, false: there is none. */
bool fl_lua_push_later_method(lua_State *L, int methods, const char *name);
int fl_lua_tostring(lua_State *L);    /* print.c */
int fl_lua_print_style(lua_State *L); /* print.c */
void fl_lua_set_functions(lua_State *L, int table, const luaL_Reg *functions);

#endif

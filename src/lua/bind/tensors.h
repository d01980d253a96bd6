/*
** tensors.h -- tensors as Lua values: boxes, the memory they lie in, and the numbers they hold.
**
** A box is a 16-byte userdata that owns one reference. It is pushed first and filled after, so that a Lua error in
** between loses nothing.
*/
#ifndef FL_LUA_TENSORS_H
#define FL_LUA_TENSORS_H

#include "core/script.h"
#include "instance.h"

#include <lauxlib.h>
#include <lua.h>

/* ---- boxes (box.c) ---- */

#define FL_BOX_MAGIC 0x7e4501ab5f10a7edu
typedef struct fl_box {
    uint64_t magic;
    fl_tensor *tensor; /* owned; NULL until filled */
} fl_box;

/* The box at index, NULL when the value is no tensor. */
static inline fl_box *fl_lua_box(lua_State *L, int index)
{
    fl_box *box = lua_touserdata(L, index);
    if (FL_UNLIKELY(!box || lua_rawlen(L, index) != sizeof *box || box->magic != FL_BOX_MAGIC || !box->tensor))
        return NULL;
    return box;
}

/* The tensor at index (borrowed), NULL when it is none. */
static inline fl_tensor *fl_lua_to_tensor(lua_State *L, int index)
{
    fl_box *box = fl_lua_box(L, index);
    fl_lua_enter(L);
    return box ? box->tensor : NULL;
}

/* The tensor at index, or an error "who: name must be a tensor, got nil". */
fl_tensor *fl_lua_check_tensor(lua_State *L, int index, const char *who, const char *name);

/* Pushes an empty box; the caller fills box->tensor with a reference of its own. */
fl_box *fl_lua_new_box(lua_State *L);
/* The same when the running C function's first upvalue is the boxes' metatable. */
fl_box *fl_lua_new_box_fast(lua_State *L);

/* Pushes a tensor with one more reference; nil for NULL. */
void fl_lua_push_tensor(lua_State *L, fl_tensor *tensor);

/* Pushes the metatable of boxes. */
void fl_lua_push_metatable(lua_State *L);

/* Makes the metatable and leaves it on the stack. */
void fl_lua_open_box(lua_State *L);

/* ---- the collector (collector.c) ---- */

/* Call after anything that allocated tensors: lets tensor bytes drive Lua's collector. */
enum { FL_DEBT_STEP = 4 << 20 }; /* small, so that a loop's results come back to memory that is still in the caches */
void fl_lua_collect_step(lua_State *L);
/* Around a function whose values are not needed when it is over: no young collection in between, which would make its
** temporaries old. Older garbage is collected first, but for results that live until the next function (at_once is
** false: these would grow old by two collections); at_once: the temporaries are collected too, at the end. */
void fl_lua_begin_temporaries(lua_State *L);
void fl_lua_end_temporaries(lua_State *L, bool at_once);
/* A quick collection, of what is new. */
void fl_lua_collect_young(lua_State *L);
/* A full collection, for when memory runs short. */
void fl_lua_collect_all(lua_State *L);
static inline void fl_lua_account(lua_State *L)
{
    if (FL_UNLIKELY(fl_storage_unaccounted > FL_DEBT_STEP)) fl_lua_collect_step(L);
    if (FL_UNLIKELY(fl_lua_late > 0)) fl_lua_drop_late();
}

/* ---- Lua's heap (heap.c) ---- */

/* lua_Alloc with size classes. Knows which blocks are boxes and drops their tensors when Lua frees them,
** so boxes need no finalizer. */
void *fl_heap_alloc(void *context, void *block, size_t old_size, size_t new_size);
void fl_heap_learn_box(lua_State *L);
/* True when the heap releases the boxes of all states; else those of states with another allocator have __gc. */
FL_OWN extern bool fl_heap_frees_boxes;
bool fl_heap_frees_boxes_of(lua_State *L);
void fl_heap_mark_box(fl_box *box);
/* There is one state more, or less (-1); own: its allocator is fl_heap_alloc. */
void fl_heap_states(bool own, int count);

/* ---- their elements (values.c) ---- */

/* The tensor so that this process can read all its elements: local, on the host, waited for (any strides). One
** reference. */
fl_status fl_lua_host(fl_tensor **out, fl_tensor *tensor);
/* Pushes a box of that for the tensor at index 1, which the box holds; the function's first upvalue is the boxes'
** metatable. */
fl_tensor *fl_lua_push_host(lua_State *L, const char *who);
/* Element of a host tensor at p. */
double fl_lua_read_number(fl_dtype dtype, const void *at);
int64_t fl_lua_read_integer(fl_dtype dtype, const void *at);
void fl_lua_push_element(lua_State *L, fl_dtype dtype, const void *at);
/* Writes the number or boolean at index there; false: it does not fit into the dtype. */
bool fl_lua_store_element(lua_State *L, int index, fl_dtype dtype, void *at);
/* Pushes a new local CPU tensor made from the number, boolean or nested list at index; returns it (borrowed). */
fl_tensor *fl_lua_push_from_value(lua_State *L, int index, bool has_dtype, fl_dtype dtype);
/* Replaces the local tensor in `box` by the same data as the options name it: a global tensor, or on a device. Every
** rank gave the same data, so a global tensor begins as B. On the meta device nothing is left of them. */
fl_status fl_lua_place(fl_box *box, const fl_attrs *attrs, const char *who);

#endif

/*
** heap.c -- Lua's allocator: size classes on slabs, and boxes without finalizers.
**
** Lua's objects are small and short-lived: free lists of 16-byte classes cost a few nanoseconds where malloc and free
** cost thirty. Every slab begins with one mark per 16 bytes, set where a tensor's box lies; when the collector frees
** such a block the heap drops the box's tensor. That spares every tensor Lua's way of finalizers (a protected call and
** one more cycle of life), and its bytes are free as soon as the collector finds them unreachable. A foreign state or a
** sanitizer build uses __gc instead.
*/
#include "tensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    GRAIN = 16,
    CLASSES = 16, /* blocks of up to 256 bytes */
    SMALL = CLASSES * GRAIN,
    SLAB_BYTES = 1 << 16, /* slabs are aligned to their size */
    MARK_BYTES = SLAB_BYTES / GRAIN,
    SLABS_MAPPED = 16 /* at once: a start needs a dozen */
};

struct free_block {
    struct free_block *next;
};

static struct free_block *free_lists[CLASSES];
static struct {
    char *at, *end; /* the untouched rest of the newest slab */
} fresh[CLASSES];

bool fl_heap_frees_boxes;
static int foreign_states;
static size_t box_block;  /* size of a box with Lua's header; 0: not known */
static size_t box_header; /* bytes in front of the payload */
static void *newest;      /* block given out last, for fl_heap_learn_box */

static inline size_t class_of(size_t size) { return (size - 1) / GRAIN; }

static inline unsigned char *mark_of(const void *block)
{
    uintptr_t address = (uintptr_t)block, within = address & (SLAB_BYTES - 1);
    return (unsigned char *)(address - within) + within / GRAIN;
}

/* Zeros, as the marks begin; NULL: no memory. Slabs stay until exit. */
static char *slab_new(void)
{
    static char *next, *end;
    if (next == end) {
        const size_t bytes = SLABS_MAPPED * SLAB_BYTES;
        char *map = mmap(NULL, bytes + SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) return NULL;
        next = map + (-(uintptr_t)map & (SLAB_BYTES - 1));
        end = next + bytes;
    }
    next += SLAB_BYTES;
    return next - SLAB_BYTES;
}

static void *slab_block(size_t class)
{
    size_t size = (class + 1) * GRAIN;
    if ((size_t)(fresh[class].end - fresh[class].at) < size) {
        char *slab = slab_new();
        if (!slab) return NULL;
        fresh[class].at = slab + MARK_BYTES;
        fresh[class].end = slab + SLAB_BYTES;
    }
    void *block = fresh[class].at;
    fresh[class].at += size;
    return block;
}

static inline void *small_new(size_t size)
{
    size_t class = class_of(size);
    struct free_block *b = free_lists[class];
    if (FL_UNLIKELY(!b)) return newest = slab_block(class);
    free_lists[class] = b->next;
    return newest = b;
}

static inline void small_free(void *block, size_t size)
{
    size_t class = class_of(size);
    struct free_block *b = block;
    b->next = free_lists[class];
    free_lists[class] = b;
}

/* A block of a box's size is going: if it is a box, its tensor goes too. */
static inline void release_box(void *block)
{
    unsigned char *mark = mark_of(block);
    if (!*mark) return;
    *mark = 0;
    fl_box *box = (fl_box *)((char *)block + box_header);
    fl_tensor_unref(box->tensor);
}

static void *resize(void *block, size_t old_size, size_t new_size)
{
    bool was_small = old_size <= SMALL, is_small = new_size <= SMALL;
    if (!was_small && !is_small) return realloc(block, new_size);
    if (was_small && is_small && class_of(old_size) == class_of(new_size)) return block;
    void *moved = is_small ? small_new(new_size) : malloc(new_size);
    if (!moved) return NULL;
    memcpy(moved, block, old_size < new_size ? old_size : new_size);
    if (was_small) small_free(block, old_size);
    else free(block);
    return moved;
}

void *fl_heap_alloc(void *context, void *block, size_t old_size, size_t new_size)
{
    if (new_size == 0) {
        if (!block) return NULL;
        if (old_size > SMALL) free(block);
        else {
            if (old_size == box_block) release_box(block);
            small_free(block, old_size);
        }
        return NULL;
    }
    if (!block) return new_size <= SMALL ? small_new(new_size) : malloc(new_size);
    return resize(block, old_size, new_size);
}

/* Finds out how Lua lays out a userdata: the block it asks for and the payload's place in it. */
void fl_heap_learn_box(lua_State *L)
{
    void *context;
    if (box_block || lua_getallocf(L, &context) != fl_heap_alloc) return;
    lua_gc(L, LUA_GCSTOP);
    char *payload = lua_newuserdatauv(L, sizeof(fl_box), 0);
    size_t header = (size_t)(payload - (char *)newest);
    lua_pop(L, 1);
    lua_gc(L, LUA_GCRESTART);
    if (header + sizeof(fl_box) > SMALL) return;
    box_header = header;
    box_block = header + sizeof(fl_box);
    fl_heap_states(true, 0);
}

void fl_heap_states(bool own, int count)
{
    if (!own) foreign_states += count;
    fl_heap_frees_boxes = box_block && foreign_states == 0;
}

bool fl_heap_frees_boxes_of(lua_State *L)
{
    void *context;
    return box_block && lua_getallocf(L, &context) == fl_heap_alloc;
}

void fl_heap_mark_box(fl_box *box) { *mark_of((char *)box - box_header) = 1; }

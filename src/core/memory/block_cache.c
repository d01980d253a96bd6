/*
** block_cache.c -- see block_cache.h.
*/
#include "block_cache.h"
#include "arena.h"

enum { SHARED = 4096, FLOOR = 64 << 20 };

struct block {
    struct block *next;
}; /* a cached block's first bytes */

static struct block *cached[FL_BLOCK_CLASSES];
static int64_t cached_bytes, system_allocations;
static int64_t held_bytes;                             /* in blocks from the system: live, in limbo and cached */
static int64_t recent_peak, earlier_peak, epoch_bytes; /* of bytes in use; see note_peak */

static void *system_block(int c)
{
    size_t bytes = fl_block_bytes(c);
    void *data = bytes < SHARED ? NULL : fl_arena_take(bytes + FL_BLOCK_GUARD);
    if (!data) return fl_block_new(c);
    FL_SHOW(data, bytes + FL_BLOCK_GUARD);
    return data;
}

static void system_release(void *data, int c)
{
    size_t bytes = fl_block_bytes(c);
    if (!fl_arena_owns(data)) {
        fl_block_release(data, c);
        return;
    }
    fl_arena_give(data, bytes + FL_BLOCK_GUARD);
    FL_HIDE(data, bytes + FL_BLOCK_GUARD);
}

static int64_t bytes_in_use(void) { return held_bytes - cached_bytes; }

/* Before a block is taken. The peak is that of the last two epochs; an epoch ends when 32 times the peak was
** allocated. */
static void note_peak(size_t bytes)
{
    int64_t used = bytes_in_use() + (int64_t)bytes;
    if (used > recent_peak) recent_peak = used;
    epoch_bytes += (int64_t)bytes;
    if (epoch_bytes / 32 <= recent_peak) return;
    earlier_peak = recent_peak;
    recent_peak = used;
    epoch_bytes = 0;
}

/* The limit of live and cached blocks together, in bytes. */
static int64_t allowed_bytes(void)
{
    int64_t peak = recent_peak > earlier_peak ? recent_peak : earlier_peak;
    return peak + peak / 8 > FLOOR ? peak + peak / 8 : FLOOR;
}

static void drop_cached(int c)
{
    struct block *b = cached[c];
    FL_SHOW(b, sizeof *b);
    cached[c] = b->next;
    system_release(b, c);
    held_bytes -= (int64_t)fl_block_bytes(c);
    cached_bytes -= (int64_t)fl_block_bytes(c);
}

/* Drops cached blocks, the largest first, until `held` bytes are held. */
static void trim_to(int64_t held)
{
    for (int c = FL_BLOCK_CLASSES - 1; c > 0 && held_bytes > held; c--)
        while (cached[c] && held_bytes > held) drop_cached(c);
}

static void *take_cached(int c)
{
    struct block *b = cached[c];
    if (!b) return NULL;
    FL_SHOW(b, fl_block_bytes(c));
    cached[c] = b->next;
    cached_bytes -= (int64_t)fl_block_bytes(c);
    return b;
}

void *fl_cache_take_fresh(int c)
{
    int64_t bytes = (int64_t)fl_block_bytes(c);
    if (bytes > fl_memory_limit() - bytes_in_use()) return NULL;
    void *data = system_block(c);
    if (!data) return NULL;
    held_bytes += bytes;
    system_allocations++;
    return data;
}

void fl_cache_give(void *data, int c)
{
    struct block *b = data;
    FL_SHOW(data, fl_block_bytes(c));
    b->next = cached[c];
    cached[c] = b;
    cached_bytes += (int64_t)fl_block_bytes(c);
    FL_HIDE(data, fl_block_bytes(c) + FL_BLOCK_GUARD);
    if (held_bytes > allowed_bytes()) drop_cached(c);
}

static __attribute__((noinline)) void *take_fresh_within(int c)
{
    int64_t bytes = (int64_t)fl_block_bytes(c);
    if (held_bytes + bytes > allowed_bytes()) trim_to(allowed_bytes() - bytes);
    return fl_cache_take_fresh(c);
}

void *fl_cache_take(int c)
{
    note_peak(fl_block_bytes(c));
    void *data = take_cached(c);
    return FL_LIKELY(data != NULL) ? data : take_fresh_within(c);
}

void fl_cache_trim(void)
{
    trim_to(0);
    recent_peak = earlier_peak = bytes_in_use();
}

void fl_cache_stats(fl_memory_stats *out)
{
    out->cached_bytes = cached_bytes;
    out->system_allocations = system_allocations;
}

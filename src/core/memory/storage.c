/*
** storage.c -- tensors' bytes: where they lie, limbo, the way to an out-of-memory error.
**
** Blocks on the host come from a cache (block_cache.h); few bytes lie in the storage itself. A storage that queued ops
** may still touch waits in limbo. All but fl_scratch is for the script's thread.
*/
#include "storage.h"
#include "block_cache.h"
#include "large_blocks.h"
#include "scratch.h"
#include "device.h"
#include "testing.h"
#include "engine/control.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLAB_STORAGES = 63,
    LIMBO_FLOOR = 64 << 20,
    LARGE_DEBT = 1 << 20, /* bytes */
    LARGE_SHARE = 16,
    INLINE_CLASS = -1, /* in the struct; also without any bytes */
    DEVICE_CLASS = -2,
    FOREIGN_CLASS = -3 /* the host program's */
};

/* Structs come in slabs, which live until the shutdown. */
struct slab {
    struct slab *next;
    _Alignas(64) fl_storage storages[SLAB_STORAGES];
};

int64_t fl_storage_unaccounted, fl_storage_live;
void (*fl_storage_collect)(void);
int fl_storage_watchers;
void (*fl_storage_meta_watch)(fl_storage *storage, bool made);

static struct slab *slabs;
static fl_storage *free_storages;
static fl_storage *limbo_first, *limbo_last;
static fl_memory_stats stats;
static fl_memory_stats meta_stats; /* of storages on FL_META */

/* ---- structs ---- */

static inline fl_storage *storage_take(void)
{
    if (FL_UNLIKELY(!free_storages)) {
        struct slab *fresh = aligned_alloc(64, sizeof *fresh);
        if (!fresh) return NULL;
        fresh->next = slabs;
        slabs = fresh;
        for (int i = 0; i < SLAB_STORAGES; i++) {
            fresh->storages[i].mapped = 0;
            fresh->storages[i].next = free_storages;
            free_storages = &fresh->storages[i];
        }
    }
    fl_storage *s = free_storages;
    free_storages = s->next;
    return s;
}

static void storage_put(fl_storage *storage)
{
    storage->next = free_storages;
    free_storages = storage;
}

/* ---- memory of the host program ---- */

/* Lies in `small` of its storage. */
struct foreign {
    void (*release)(void *context);
    void *context;
};

/* The storage is taken back first: the host's function may free others. */
static void release_foreign(fl_storage *storage)
{
    struct foreign foreign;
    memcpy(&foreign, storage->small, sizeof foreign);
    storage_put(storage);
    if (foreign.release) foreign.release(foreign.context);
}

/* ---- freeing ---- */

static const fl_device *device_of(const fl_storage *storage)
{
    const fl_device *d = NULL;
    return fl_device_get(&d, storage->device) == FL_OK ? d : NULL; /* it is there: the memory came from it */
}

/* No queued op touches s any more, or only ops of the queue in whose order the device takes its memory back. */
static void storage_release(fl_storage *storage)
{
    if (FL_UNLIKELY(storage->var.poison != NULL)) fl_var_clear(&storage->var);
    if (storage->size_class > 0) fl_cache_give(storage->data, storage->size_class);
    else if (storage->size_class == INLINE_CLASS) FL_SHOW(storage->small, sizeof storage->small);
    else if (storage->size_class == FOREIGN_CLASS) {
        release_foreign(storage);
        return;
    } else device_of(storage)->release(storage->data, storage->bytes, storage->device_index, storage->queue);
    storage_put(storage);
}

static void limbo_add(fl_storage *storage)
{
    storage->next = NULL;
    if (limbo_last) limbo_last->next = storage;
    else limbo_first = storage;
    limbo_last = storage;
    stats.limbo_bytes += (int64_t)storage->bytes;
}

/* Takes from limbo, oldest first, what is complete. */
static void limbo_reclaim(void)
{
    while (limbo_first && fl_var_settle(&limbo_first->var)) {
        fl_storage *s = limbo_first;
        limbo_first = s->next;
        if (!limbo_first) limbo_last = NULL;
        stats.limbo_bytes -= (int64_t)s->bytes;
        storage_release(s);
    }
}

/* Dropped storage of queued ops stays below a bound, so a script that runs ahead waits here. */
static void limbo_limit(void)
{
    limbo_reclaim();
    while (stats.limbo_bytes > LIMBO_FLOOR && stats.limbo_bytes > fl_storage_live / 4) {
        fl_engine_wait_idle(&limbo_first->var);
        limbo_reclaim();
    }
}

void (*fl_storage_dropped)(fl_storage *storage);

/* Frees a storage on FL_META or a deferred one; false: it is one of no bytes. */
static bool free_without_data(fl_storage *storage)
{
    if (storage->device == FL_META) {
        meta_stats.live_bytes -= (int64_t)storage->bytes;
        meta_stats.live_blocks--;
        if (FL_UNLIKELY(fl_storage_meta_watch != NULL)) {
            fl_storage_live -= (int64_t)storage->bytes;
            fl_storage_meta_watch(storage, false);
        }
    } else if (!storage->bytes) return false;
    else if (fl_var_is_deferred(&storage->var)) fl_storage_dropped(storage);
    if (storage->var.poison) fl_var_clear(&storage->var);
    storage_put(storage);
    return true;
}

void fl_storage_free(fl_storage *storage)
{
    if (FL_UNLIKELY(!storage->data) && free_without_data(storage)) return;
    fl_storage_live -= (int64_t)storage->bytes;
    stats.live_blocks--;
    if (FL_UNLIKELY(fl_is_large(storage))) fl_large_unlink(storage);
    if (FL_UNLIKELY(storage->size_class == DEVICE_CLASS)) {
        fl_engine_hand_over(&storage->var, device_of(storage)->lane(storage->device_index, FL_QUEUE_COMPUTE));
        storage_release(storage);
    } else if (FL_LIKELY(fl_var_settle(&storage->var))) storage_release(storage);
    else limbo_add(storage);
}

/* ---- allocating ---- */

/* Waits for all lanes without taking the errors they filed. */
static void wait_for_limbo(void)
{
    for (fl_storage *s = limbo_first; s; s = s->next) fl_engine_wait_idle(&s->var);
    limbo_reclaim();
}

/* The block, at any price: each step frees more than the one before. */
static void *take_block_hard(int c)
{
    fl_storage_trim();
    void *data = fl_cache_take_fresh(c);
    if (data) return data;
    wait_for_limbo();
    fl_storage_trim();
    data = fl_cache_take_fresh(c);
    if (data || !fl_storage_collect) return data;
    fl_storage_collect();
    wait_for_limbo();
    fl_storage_trim();
    return fl_cache_take_fresh(c);
}

static fl_status host_data(fl_storage *storage, size_t bytes)
{
    if (bytes > FL_BLOCK_MAX) return fl_memory_error(bytes, stats.live_blocks);
    int c = fl_block_class(bytes);
    storage->data = fl_cache_take(c);
    if (FL_UNLIKELY(!storage->data)) storage->data = take_block_hard(c);
    if (FL_UNLIKELY(!storage->data)) return fl_memory_error(bytes, stats.live_blocks);
    storage->size_class = (int16_t)c;
    FL_HIDE((char *)storage->data + bytes, fl_block_bytes(c) + FL_BLOCK_GUARD - bytes);
    return FL_OK;
}

/* The device's own memory, asked for again after each thing that may free some. */
static fl_status device_data(fl_storage *storage, size_t bytes, fl_device_type type, int *index)
{
    const fl_device *d = NULL;
    FL_TRY(fl_device_get(&d, type));
    if (*index < 0) *index = d->own;
    storage->size_class = DEVICE_CLASS;
    storage->data = NULL;
    if (bytes == 0) return FL_OK;
    fl_status status = d->allocate(&storage->data, bytes, *index, storage->queue);
    if (status == FL_ERR_MEMORY) {
        if (fl_storage_collect) fl_storage_collect();
        d->trim(*index);
        status = d->allocate(&storage->data, bytes, *index, storage->queue);
        if (status == FL_ERR_MEMORY) return fl_device_memory_error(type, *index);
    }
    if (status == FL_OK)
        storage->var.write = fl_engine_issued(d->lane(*index, storage->queue)); /* other queues follow it */
    return status;
}

static fl_status set_host_data(fl_storage *storage, size_t bytes)
{
    storage->size_class = INLINE_CLASS;
    if (bytes > FL_STORAGE_INLINE) return host_data(storage, bytes);
    storage->data = bytes ? storage->small : NULL;
    FL_HIDE(storage->small + bytes, sizeof storage->small - bytes);
    return FL_OK;
}

static void link_large(fl_storage *storage)
{
    char line[128] = "";
    if (fl_engine_where) fl_engine_where(line, sizeof line);
    fl_large_link(storage, line);
}

/* The bytes that a storage counts for Lua's collector. Large ones count less, so that a young collection comes after
** several: were there one for each, a loop's variable would outlive two, be old, and as garbage wait for a full one. */
static inline int64_t debt_of(size_t bytes)
{
    if (FL_LIKELY(bytes <= LARGE_DEBT)) return (int64_t)bytes;
    return bytes / LARGE_SHARE > LARGE_DEBT ? (int64_t)(bytes / LARGE_SHARE) : LARGE_DEBT;
}

/* Its data are there. */
static inline void account(fl_storage *storage, size_t bytes)
{
    storage->bytes = bytes;
    storage->refs = 1;
    if (FL_UNLIKELY(fl_is_large(storage))) link_large(storage);
    fl_storage_unaccounted += debt_of(bytes) + (int64_t)sizeof *storage;
    fl_storage_live += (int64_t)bytes;
    if (fl_storage_live > stats.peak_bytes) stats.peak_bytes = fl_storage_live;
    stats.live_blocks++;
    stats.allocations++;
}

fl_status fl_storage_new_deferred(fl_storage **out, size_t bytes, fl_device_type device, int device_index,
                                  fl_stamp stamp)
{
    fl_storage *s = storage_take();
    if (FL_UNLIKELY(!s)) return fl_memory_error(bytes, stats.live_blocks);
    memset(&s->var, 0, sizeof s->var);
    s->var.write = stamp;
    s->queue = FL_QUEUE_COMPUTE;
    s->device = (uint8_t)device;
    s->device_index = (int8_t)device_index;
    s->size_class = device == FL_CUDA ? DEVICE_CLASS : INLINE_CLASS;
    s->data = NULL;
    s->bytes = bytes;
    s->refs = 1;
    fl_storage_unaccounted += (int64_t)sizeof *s;
    *out = s;
    return FL_OK;
}

/* A storage that waits for no value: it never gets any. */
static fl_status new_meta(fl_storage **out, size_t bytes)
{
    FL_TRY(fl_storage_new_deferred(out, bytes, FL_META, -1, 0));
    meta_stats.live_bytes += (int64_t)bytes;
    if (meta_stats.live_bytes > meta_stats.peak_bytes) meta_stats.peak_bytes = meta_stats.live_bytes;
    meta_stats.live_blocks++;
    meta_stats.allocations++;
    if (FL_UNLIKELY(fl_storage_meta_watch != NULL)) { /* collections come as they would with memory */
        fl_storage_unaccounted += debt_of(bytes);
        fl_storage_live += (int64_t)bytes;
        fl_storage_meta_watch(*out, true);
    }
    return FL_OK;
}

static fl_status new_on_device(fl_storage **out, size_t bytes, fl_device_type device, int device_index, int queue)
{
    if (device == FL_META) return new_meta(out, bytes);
    fl_storage *s = storage_take();
    if (!s) return fl_memory_error(bytes, stats.live_blocks);
    memset(&s->var, 0, sizeof s->var);
    s->queue = (uint8_t)queue;
    fl_status status = device_data(s, bytes, device, &device_index);
    if (status != FL_OK) {
        storage_put(s);
        return status;
    }
    s->device = (uint8_t)device;
    s->device_index = (int8_t)device_index;
    account(s, bytes);
    *out = s;
    return FL_OK;
}

fl_status fl_storage_new_for(fl_storage **out, size_t bytes, fl_device_type device, int device_index, int queue)
{
    if (FL_UNLIKELY(limbo_first != NULL)) limbo_limit();
    if (FL_UNLIKELY(device != FL_CPU)) return new_on_device(out, bytes, device, device_index, queue);
    fl_storage *s = storage_take();
    if (FL_UNLIKELY(!s)) return fl_memory_error(bytes, stats.live_blocks);
    memset(&s->var, 0, sizeof s->var);
    s->queue = (uint8_t)queue;
    fl_status status = set_host_data(s, bytes);
    if (FL_UNLIKELY(status != FL_OK)) {
        storage_put(s);
        return status;
    }
    s->device = FL_CPU;
    s->device_index = (int8_t)device_index;
    account(s, bytes);
    *out = s;
    return FL_OK;
}

fl_status fl_storage_new_foreign(fl_storage **out, void *data, size_t bytes, fl_device_type device, int device_index,
                                 void (*release)(void *context), void *context)
{
    struct foreign foreign = {release, context};
    fl_storage *s = storage_take();
    if (!s) return fl_memory_error(bytes, stats.live_blocks);
    memset(&s->var, 0, sizeof s->var);
    s->data = bytes ? data : NULL;
    s->queue = FL_QUEUE_COMPUTE;
    s->device = (uint8_t)device;
    s->device_index = (int8_t)device_index;
    s->size_class = FOREIGN_CLASS;
    memcpy(s->small, &foreign, sizeof foreign);
    account(s, bytes);
    *out = s;
    return FL_OK;
}

void fl_storage_set_release(fl_storage *storage, void (*release)(void *context), void *context)
{
    struct foreign foreign = {release, context};
    memcpy(storage->small, &foreign, sizeof foreign);
}

/* The block and its place among the large ones. */
static void move_block(fl_storage *to, fl_storage *from)
{
    to->size_class = from->size_class;
    if (from->size_class == INLINE_CLASS) {
        FL_SHOW(to->small, from->bytes);
        memcpy(to->small, from->small, from->bytes);
        FL_HIDE(to->small + to->bytes, sizeof to->small - to->bytes);
        FL_SHOW(from->small, sizeof from->small);
        to->data = to->small;
    } else to->data = from->data;
    if (!fl_is_large(from)) return;
    fl_large_unlink(from);
    fl_large_link(to, from->site);
}

void fl_storage_move_data(fl_storage *to, fl_storage *from)
{
    move_block(to, from);
    storage_put(from);
}

fl_status fl_storage_park(fl_storage **out, fl_storage *storage, fl_stamp stamp)
{
    fl_storage *s = storage_take();
    if (FL_UNLIKELY(!s)) return fl_memory_error(storage->bytes, stats.live_blocks);
    memset(&s->var, 0, sizeof s->var);
    s->bytes = storage->bytes;
    s->refs = 1;
    s->device = storage->device;
    s->queue = storage->queue;
    s->device_index = storage->device_index;
    move_block(s, storage);
    storage->data = NULL;
    storage->var.write = stamp;
    *out = s;
    return FL_OK;
}

bool fl_storage_is_foreign(const fl_storage *storage) { return storage->size_class == FOREIGN_CLASS; }

void *fl_storage_computed_data(fl_storage *storage)
{
    if (storage->bytes && fl_var_is_deferred(&storage->var)) fl_var_computer(storage->var.write);
    return storage->data;
}

fl_status fl_storage_new(fl_storage **out, size_t bytes, fl_device_type device, int device_index)
{
    return fl_storage_new_for(out, bytes, device, device_index, FL_QUEUE_COMPUTE);
}

/* ---- statistics, trimming ---- */

void fl_storage_stats(fl_memory_stats *out)
{
    limbo_reclaim();
    *out = stats;
    fl_cache_stats(out);
    out->live_bytes = fl_storage_live;
}

void fl_storage_reset_peak(void) { stats.peak_bytes = fl_storage_live; }

void fl_storage_meta_stats(fl_memory_stats *out, bool reset_peak)
{
    *out = meta_stats;
    if (reset_peak) meta_stats.peak_bytes = meta_stats.live_bytes;
}

void fl_storage_trim(void)
{
    limbo_reclaim();
    fl_cache_trim();
}

void fl_storage_shutdown(void)
{
    limbo_reclaim();
    fl_cache_trim();
    fl_scratch_release();
    if (stats.live_blocks || limbo_first) return; /* the program still holds some: slabs stay */
    while (slabs) {
        struct slab *next = slabs->next;
        free(slabs);
        slabs = next;
    }
    free_storages = NULL;
}

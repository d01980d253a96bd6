/*
** storage.h -- bytes of tensors: counted blocks with an engine variable, from a caching allocator.
**
** Small blocks (<= FL_STORAGE_INLINE bytes) lie inside the pooled struct itself. Reference counts are
** touched only by the thread that runs Lua. A storage dropped while queued ops may touch it waits in
** limbo and is reused when its stamps are complete.
*/
#ifndef FL_STORAGE_H
#define FL_STORAGE_H

#include "engine/var.h"
#include "value/placement.h"
#include "device.h"

enum { FL_STORAGE_INLINE = 128 };

typedef struct fl_storage {
    fl_var var;
    void *data; /* 64-byte aligned; NULL when bytes == 0, on FL_META, and while the value is deferred */
    size_t bytes;
    int refs;
    uint8_t device : 4;             /* fl_device_type */
    uint8_t queue : 2;              /* of device memory: fl_queue that it was allocated for */
    uint8_t mapped : 2;             /* by the host program: dispatch/mapped.h */
    int8_t device_index;            /* of device memory: which one, never -1 */
    int16_t size_class;             /* allocator's own */
    struct fl_storage *prev, *next; /* allocator's own: free list, limbo, large blocks */
    char site[32];                  /* large blocks: the script's line that allocated them */
    unsigned char small[FL_STORAGE_INLINE] __attribute__((aligned(64)));
} fl_storage;

/* Uninitialised bytes on a device (index -1: the one this rank uses); the caller gets one reference. The first to use
** the device's memory is an op of this of its queues (fl_queue), which waits for no other to have it. Walks the
** out-of-memory ladder (reclaim limbo, wait for the lanes, trim caches, ask the host program to collect garbage, retry)
** before FL_ERR_MEMORY, whose message has the bytes requested, the bytes live and the lines that allocated most.
** On FL_META only the number of bytes is kept, and counted apart. */
fl_status fl_storage_new_for(fl_storage **out, size_t bytes, fl_device_type device, int device_index, int queue);

/* Bytes of the host program's, on the CPU or a device (index never -1 there). release(context) is called once, by the
** thread that frees the storage, when nothing uses them any more; NULL: nothing is called. On an error neither. */
fl_status fl_storage_new_foreign(fl_storage **out, void *data, size_t bytes, fl_device_type device, int device_index,
                                 void (*release)(void *context), void *context);

/* Of such a storage: another function, which is called in place of the one before. */
void fl_storage_set_release(fl_storage *storage, void (*release)(void *context), void *context);

/* A storage whose bytes come later: `data` is NULL until fl_storage_move_data. Its variable has a deferred write from
** the start, whose value is then computed (var.h). It is not counted as live or as allocated: collections in between
** would make temporaries old, and they would be computed. */
fl_status fl_storage_new_deferred(fl_storage **out, size_t bytes, fl_device_type device, int device_index,
                                  fl_stamp stamp);
static inline bool fl_storage_is_deferred(const fl_storage *storage)
{
    return !storage->data && storage->bytes && storage->device != FL_META;
}

/* `from`, a storage of as many bytes on the same device, gives its block to `to`, which has none; `from` is freed. */
void fl_storage_move_data(fl_storage *to, fl_storage *from);

/* Before a write that is put off: the block, with the old value, goes to a storage of its own, from which the new value
** comes back with fl_storage_move_data. The stamp then defers the value of `storage`. */
fl_status fl_storage_park(fl_storage **out, fl_storage *storage, fl_stamp stamp);

/* True if the memory is the host program's. */
bool fl_storage_is_foreign(const fl_storage *storage);

/* Has a deferred value computed; the data, NULL where that failed and the variable is poisoned. */
void *fl_storage_computed_data(fl_storage *storage);

/* Called when the last reference to a deferred storage goes. */
FL_OWN extern void (*fl_storage_dropped)(fl_storage *storage);

static inline fl_storage *fl_storage_ref(fl_storage *storage)
{
    storage->refs++;
    return storage;
}
void fl_storage_free(fl_storage *storage); /* the last reference is gone */
static inline void fl_storage_unref(fl_storage *storage)
{
    if (storage && --storage->refs == 0) fl_storage_free(storage);
}

void fl_storage_stats(fl_memory_stats *out);
void fl_storage_reset_peak(void);
void fl_storage_meta_stats(fl_memory_stats *out, bool reset_peak); /* FL_META: bytes its tensors would take */
/* Set, for good, where scripts are planned: called with every storage on FL_META that is made or freed. Its
** bytes count as live. */
FL_OWN extern void (*fl_storage_meta_watch)(fl_storage *storage, bool made);
void fl_storage_trim(void); /* gives cached blocks back to the system */

/* Number of references to every storage that are held by observers: 1 while a program is recorded. */
FL_OWN extern int fl_storage_watchers;

/* Bytes allocated since the host program last reset it, of large tensors a part: drives Lua's collector. */
FL_OWN extern int64_t fl_storage_unaccounted;
FL_OWN extern int64_t fl_storage_live; /* live bytes now */

/* Set by the host program: collects garbage so that dead tensors drop their storage. */
FL_OWN extern void (*fl_storage_collect)(void);

#endif

/*
** tensor.c -- tensors: pooled structs that tie a meta to a storage.
*/
#include "tensor.h"
#include "base/owner.h"
#include "device.h"

#include <stdlib.h>

void (*fl_tensor_release_record)(fl_autograd *record);
void (*fl_tensor_made)(fl_tensor *tensor);

static fl_tensor *pool; /* free structs, linked through `storage` */
static int64_t live;

static inline __attribute__((always_inline)) fl_tensor *tensor_take(void)
{
    fl_tensor *t = pool;
    if (FL_LIKELY(t != NULL)) pool = (fl_tensor *)t->storage;
    else if (!(t = malloc(sizeof *t))) return NULL;
    live++;
    t->refs = 1;
    t->requires_grad = t->moved_view = false;
    t->autograd = NULL;
    return t;
}

static fl_status out_of_memory(void) { return fl_fail(FL_ERR_MEMORY, "out of memory for the description of a tensor"); }

void fl_tensor_free(fl_tensor *tensor)
{
    if (tensor->autograd) fl_tensor_release_record(tensor->autograd);
    fl_storage_unref(tensor->storage);
    fl_meta_unref(tensor->meta);
    tensor->storage = (fl_storage *)pool;
    pool = tensor;
    live--;
}

int64_t fl_tensor_count(void) { return live; }

/* ---- references given back on other threads ---- */

struct released {
    struct released *next;
    fl_tensor *tensor; /* owned: one reference */
};

void *fl_tensors_released; /* struct released * */

/* Without memory for the note the tensor stays for ever. */
void fl_tensor_release(fl_tensor *tensor)
{
    if (!tensor || fl_owner_is_here() || !fl_owner_is_known()) {
        fl_tensor_unref(tensor);
        return;
    }
    struct released *note = malloc(sizeof *note);
    if (!note) return;
    note->tensor = tensor;
    note->next = __atomic_load_n((struct released **)&fl_tensors_released, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n((struct released **)&fl_tensors_released, &note->next, note, true,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

void fl_tensors_reclaim(void)
{
    struct released *note = __atomic_exchange_n((struct released **)&fl_tensors_released, NULL, __ATOMIC_ACQUIRE);
    while (note) {
        struct released *next = note->next;
        fl_tensor_unref(note->tensor);
        free(note);
        note = next;
    }
}

/* Takes the reference to the storage over. */
static inline fl_status tensor_over(fl_tensor **out, const fl_meta *meta, fl_storage *storage)
{
    fl_tensor *t = tensor_take();
    if (FL_UNLIKELY(!t)) {
        fl_storage_unref(storage);
        return out_of_memory();
    }
    t->meta = fl_meta_ref(meta);
    t->storage = storage;
    t->offset = 0;
    t->contiguous = true;
    memcpy(t->strides, meta->strides, sizeof t->strides);
    *out = t;
    return FL_OK;
}

fl_status fl_tensor_empty_for(fl_tensor **out, const fl_meta *meta, int queue)
{
    fl_storage *storage;
    size_t bytes = (size_t)meta->local_numel * fl_dtype_size(meta->dtype);
    FL_TRY(fl_storage_new_for(&storage, bytes, meta->placement->type, meta->placement->device_index, queue));
    FL_TRY(tensor_over(out, meta, storage));
    if (FL_UNLIKELY(fl_tensor_made != NULL)) fl_tensor_made(*out);
    return FL_OK;
}

fl_status fl_tensor_deferred(fl_tensor **out, const fl_meta *meta, int device_index, fl_stamp stamp)
{
    fl_storage *storage;
    size_t bytes = (size_t)meta->local_numel * fl_dtype_size(meta->dtype);
    FL_TRY(fl_storage_new_deferred(&storage, bytes, meta->placement->type, device_index, stamp));
    FL_TRY(tensor_over(out, meta, storage));
    if (FL_UNLIKELY(fl_tensor_made != NULL)) fl_tensor_made(*out);
    return FL_OK;
}

fl_status fl_tensor_empty(fl_tensor **out, const fl_meta *meta)
{
    return fl_tensor_empty_for(out, meta, FL_QUEUE_COMPUTE);
}

fl_status fl_tensor_empty_local(fl_tensor **out, fl_dtype dtype, const fl_shape *shape)
{
    const fl_meta *meta;
    FL_TRY(fl_meta_local(&meta, dtype, shape));
    fl_status status = fl_tensor_empty(out, meta);
    fl_meta_unref(meta);
    return status;
}

/* Sets tensor->contiguous from strides and the local shape. The stride of a split axis counts also where this rank has
** one row of it: ranks with more must come to the same answer, or some of them would copy what others view. */
static void update_contiguous(fl_tensor *tensor)
{
    int64_t expected = 1;
    const int64_t *size = fl_tensor_local_shape(tensor);
    tensor->contiguous = true;
    if (tensor->meta->local_numel == 0) return;
    for (int i = tensor->meta->shape.ndim - 1; i >= 0; i--) {
        if (tensor->meta->shape.dims[i] == 1) continue;
        if (tensor->strides[i] != expected) {
            tensor->contiguous = false;
            return;
        }
        expected *= size[i];
    }
}

fl_status fl_tensor_view(fl_tensor **out, fl_tensor *base, const fl_meta *meta, const int64_t *strides, int64_t offset)
{
    fl_tensor *t = tensor_take();
    if (FL_UNLIKELY(!t)) return out_of_memory();
    t->meta = fl_meta_ref(meta);
    t->storage = fl_storage_ref(base->storage);
    t->offset = offset;
    t->moved_view = base->moved_view;
    memcpy(t->strides, strides, sizeof t->strides);
    update_contiguous(t);
    *out = t;
    return FL_OK;
}

fl_status fl_tensor_check_strides(const char *who, const fl_meta *meta, const int64_t *strides)
{
    int64_t element = (int64_t)fl_dtype_size(meta->dtype), bytes = element;
    for (int i = 0; i < meta->shape.ndim && meta->local_numel; i++) {
        int64_t size = meta->window.size[i], reach;
        if (size < 2) continue;
        if (__builtin_mul_overflow(size - 1, strides[i], &reach) || __builtin_mul_overflow(reach, element, &reach)
            || __builtin_sub_overflow(bytes, reach < 0 ? reach : -reach, &bytes))
            return fl_fail(FL_ERR_VALUE, "%s: stride %lld of axis %d is too large for size %lld", who,
                           (long long)strides[i], i, (long long)size);
    }
    return FL_OK;
}

/* Bytes from the first local element to behind the last. */
static size_t span_of(const fl_meta *meta, const int64_t *strides)
{
    int64_t last = 0;
    if (!meta->local_numel) return 0;
    for (int i = 0; i < meta->shape.ndim; i++) last += (meta->window.size[i] - 1) * strides[i];
    return (size_t)(last + 1) * fl_dtype_size(meta->dtype);
}

fl_status fl_tensor_foreign(fl_tensor **out, const fl_meta *meta, const int64_t *strides, void *data,
                            void (*release)(void *context), void *context)
{
    const fl_placement *place = meta->placement;
    const fl_device *device;
    FL_TRY(fl_device_get(&device, place->type));
    fl_tensor *t = tensor_take();
    if (!t) return out_of_memory();
    memcpy(t->strides, meta->strides, sizeof t->strides); /* the given stride of an axis of size 1 may be any number */
    for (int i = 0; strides && meta->local_numel && i < meta->shape.ndim; i++)
        if (meta->window.size[i] > 1) t->strides[i] = strides[i];
    fl_status status = fl_storage_new_foreign(&t->storage, data, span_of(meta, t->strides), place->type,
                                              device ? fl_device_index(device, place) : -1, release, context);
    if (status != FL_OK) {
        t->storage = (fl_storage *)pool;
        pool = t;
        live--;
        return status;
    }
    t->meta = fl_meta_ref(meta);
    t->offset = 0;
    update_contiguous(t);
    *out = t;
    return FL_OK;
}

fl_status fl_tensor_detach(fl_tensor **out, fl_tensor *tensor)
{
    return fl_tensor_view(out, tensor, tensor->meta, tensor->strides, tensor->offset);
}

/* In a planned world tensors without values come where readers expect those of a CPU. */
fl_status fl_tensor_wait(fl_tensor *tensor)
{
    if (FL_UNLIKELY(!tensor->storage->data) && fl_world_get()->planned) FL_TRY(fl_meta_check_values(tensor->meta));
    return fl_engine_wait_var(&tensor->storage->var);
}

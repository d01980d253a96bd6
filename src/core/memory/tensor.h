/*
** tensor.h -- a tensor: meta, storage, strides and offset, autograd record.
**
** Counted by hand (`refs`), pooled, touched only by the thread that runs Lua. Functions borrow their
** arguments and give the caller one reference to what they return.
*/
#ifndef FL_TENSOR_H
#define FL_TENSOR_H

#include "value/meta.h"
#include "storage.h"

typedef struct fl_autograd fl_autograd; /* the state of autograd that belongs to a tensor */

/* Frees it; set by who attaches any (record.h). */
FL_OWN extern void (*fl_tensor_release_record)(fl_autograd *record);

typedef struct fl_tensor {
    int refs;
    bool contiguous;              /* the local part is row-major without gaps */
    bool requires_grad;           /* a leaf with a gradient, or computed from one */
    bool moved_view;              /* a view that had to move data: writing to it in place is an error */
    const fl_meta *meta;          /* owned */
    fl_storage *storage;          /* owned */
    int64_t offset;               /* of the first local element, in elements */
    fl_autograd *autograd;        /* owned; NULL for a plain tensor */
    int64_t strides[FL_MAX_NDIM]; /* of the local part, in elements */
} fl_tensor;

static inline fl_tensor *fl_tensor_ref(fl_tensor *tensor)
{
    tensor->refs++;
    return tensor;
}
FL_EXPORT void fl_tensor_free(fl_tensor *tensor); /* the last reference is gone */
static inline void fl_tensor_unref(fl_tensor *tensor)
{
    if (tensor && --tensor->refs == 0) fl_tensor_free(tensor);
}

/* Gives a reference back, on any thread: on another one than the owner (base/owner.h) it is noted, and the tensor goes
** when the owner calls fl_tensors_reclaim. NULL is fine. */
void fl_tensor_release(fl_tensor *tensor);
FL_OWN extern void *fl_tensors_released; /* atomic: NULL when nothing is noted */
void fl_tensors_reclaim(void);

/* Set while a program is recorded or an op of a script runs: called with every tensor that gets memory of its own. */
FL_OWN extern void (*fl_tensor_made)(fl_tensor *tensor);

/* Uninitialised contiguous tensor of this meta. */
fl_status fl_tensor_empty(fl_tensor **out, const fl_meta *meta);

/* The same; on a device an op of this queue is the first to use it (fl_storage_new_for). */
fl_status fl_tensor_empty_for(fl_tensor **out, const fl_meta *meta, int queue);

/* Local, on this rank's CPU. */
fl_status fl_tensor_empty_local(fl_tensor **out, fl_dtype dtype, const fl_shape *shape);

/* Of this meta and these strides (of the local part, in elements; NULL: contiguous), on memory of the host program
** (fl_storage_new_foreign); the first local element is at `data`. Strides are checked, and not negative. */
fl_status fl_tensor_foreign(fl_tensor **out, const fl_meta *meta, const int64_t *strides, void *data,
                            void (*release)(void *context), void *context);

/* Error: with these strides, of any sign, the local part's elements lie further apart than addresses count. */
fl_status fl_tensor_check_strides(const char *who, const fl_meta *meta, const int64_t *strides);

/* Shares storage; no autograd record. */
fl_status fl_tensor_view(fl_tensor **out, fl_tensor *base, const fl_meta *meta, const int64_t *strides, int64_t offset);

/* Same storage, not connected to the tape. */
fl_status fl_tensor_detach(fl_tensor **out, fl_tensor *tensor);

/* First local element. A deferred value is computed; NULL where that failed: the variable is then poisoned. */
static inline void *fl_tensor_data(const fl_tensor *tensor)
{
    char *data = (char *)tensor->storage->data; /* casts: nvcc reads this as C++ */
    if (FL_UNLIKELY(!data)) {
        fl_storage_computed_data(tensor->storage); /* the value may come in another storage (program/pieces.c) */
        data = (char *)tensor->storage->data;
    }
    return data + tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype);
}
/* The same where the value is known to be there. */
static inline void *fl_tensor_ready_data(const fl_tensor *tensor)
{
    return (char *)tensor->storage->data + tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype);
}
static inline const int64_t *fl_tensor_local_shape(const fl_tensor *tensor) { return tensor->meta->window.size; }
static inline bool fl_tensor_is_scalar(const fl_tensor *tensor) { return tensor->meta->shape.ndim == 0; }

/* Uninitialised contiguous tensor of this meta, on this device of its placement, whose value is computed when it is
** needed. */
fl_status fl_tensor_deferred(fl_tensor **out, const fl_meta *meta, int device_index, fl_stamp stamp);

/* Waits for the value; a poisoned one is an error. */
fl_status fl_tensor_wait(fl_tensor *tensor);

/* Live tensors (for leak tests). */
int64_t fl_tensor_count(void);

#endif

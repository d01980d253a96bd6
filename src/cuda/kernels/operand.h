/*
** operand.h -- operands of a kernel in the dtype and layout it reads, results in those it writes.
**
** What already fits is used where it lies; the rest goes by way of temporary memory in the order of the queue.
*/
#ifndef FL_CUDA_OPERAND_H
#define FL_CUDA_OPERAND_H

#include "copies.h"

#include "core/base/shape.h"

/* data NULL: absent. Zeroed before it is opened, closed whether or not that succeeded. */
typedef struct fl_cuda_operand {
    char *data;
    int64_t stride[FL_MAX_NDIM]; /* in elements */
    void *temporary;
} fl_cuda_operand;

/* v's shape as a row-major array at data. */
static inline fl_view fl_cuda_array_like(const fl_view *v, void *data, fl_dtype dtype, int64_t *strides)
{
    fl_view array = *v;
    fl_shape_strides(strides, v->size, v->ndim);
    array.data = data;
    array.dtype = dtype;
    array.contiguous = true;
    array.stride = strides;
    return array;
}

/* as_is: its strides suit the kernel, so it is copied only if the dtype differs. */
static inline fl_status fl_cuda_operand_in(fl_cuda_operand *o, const fl_view *v, fl_dtype dtype, bool as_is)
{
    o->data = (char *)v->data;
    if (!v->data) return FL_OK;
    if (v->dtype == dtype && (as_is || v->contiguous)) {
        memcpy(o->stride, v->stride, sizeof(int64_t) * (size_t)v->ndim);
        return FL_OK;
    }
    FL_TRY(fl_cuda_malloc(&o->temporary, (size_t)v->numel * fl_dtype_size(dtype)));
    fl_view array = fl_cuda_array_like(v, o->temporary, dtype, o->stride);
    o->data = (char *)o->temporary;
    return fl_cuda_copy_view(&array, v);
}

/* Row-major memory for a result that the kernel computes in `dtype`. */
static inline fl_status fl_cuda_operand_out(fl_cuda_operand *o, const fl_view *v, fl_dtype dtype)
{
    fl_shape_strides(o->stride, v->size, v->ndim);
    o->data = (char *)v->data;
    if (v->dtype == dtype && v->contiguous) return FL_OK;
    FL_TRY(fl_cuda_malloc(&o->temporary, (size_t)v->numel * fl_dtype_size(dtype)));
    o->data = (char *)o->temporary;
    return FL_OK;
}

/* Brings a result to where it belongs. */
static inline fl_status fl_cuda_operand_store(const fl_cuda_operand *o, const fl_view *v, fl_dtype dtype)
{
    int64_t strides[FL_MAX_NDIM];
    if (!o->temporary) return FL_OK;
    fl_view array = fl_cuda_array_like(v, o->temporary, dtype, strides);
    return fl_cuda_copy_view(v, &array);
}

static inline void fl_cuda_operand_close(fl_cuda_operand *o)
{
    if (o->temporary) fl_cuda_free(o->temporary);
    o->temporary = NULL;
}

#endif

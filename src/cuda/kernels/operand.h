/*
** operand.h -- operands of a kernel in the dtype and layout it reads, results in those it writes.
**
** Operands that fit are used in place; others go by way of temporary memory in the order of the queue.
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

/* as_is: its strides suit the kernel, so it is copied only if the dtype differs. */
static inline fl_status fl_cuda_operand_in(fl_cuda_operand *operand, const fl_view *view, fl_dtype dtype, bool as_is)
{
    operand->data = (char *)view->data;
    if (!view->data) return FL_OK;
    if (view->dtype == dtype && (as_is || view->contiguous)) {
        memcpy(operand->stride, view->stride, sizeof(int64_t) * (size_t)view->ndim);
        return FL_OK;
    }
    FL_TRY(fl_cuda_malloc(&operand->temporary, (size_t)view->numel * fl_dtype_size(dtype)));
    fl_view array = fl_view_array(view, operand->temporary, dtype, operand->stride);
    operand->data = (char *)operand->temporary;
    return fl_cuda_copy_view(&array, view);
}

/* Row-major memory for a result that the kernel computes in `dtype`. */
static inline fl_status fl_cuda_operand_out(fl_cuda_operand *operand, const fl_view *view, fl_dtype dtype)
{
    fl_shape_strides(operand->stride, view->size, view->ndim);
    operand->data = (char *)view->data;
    if (view->dtype == dtype && view->contiguous) return FL_OK;
    FL_TRY(fl_cuda_malloc(&operand->temporary, (size_t)view->numel * fl_dtype_size(dtype)));
    operand->data = (char *)operand->temporary;
    return FL_OK;
}

/* Brings a result to where it belongs. */
static inline fl_status fl_cuda_operand_store(const fl_cuda_operand *operand, const fl_view *view, fl_dtype dtype)
{
    int64_t strides[FL_MAX_NDIM];
    if (!operand->temporary) return FL_OK;
    fl_view array = fl_view_array(view, operand->temporary, dtype, strides);
    return fl_cuda_copy_view(view, &array);
}

static inline void fl_cuda_operand_close(fl_cuda_operand *operand)
{
    if (operand->temporary) fl_cuda_free(operand->temporary);
    operand->temporary = NULL;
}

#endif

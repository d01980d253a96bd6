/*
** arrays.h -- operands as row-major arrays of a dtype that a kernel is written for.
*/
#ifndef FL_CUDA_ARRAYS_H
#define FL_CUDA_ARRAYS_H

#include "cuda/parts/cuda.h"

/* A view that is contiguous: of the operand itself where that fits, else of temporary memory. Not to be copied: the
** view points at its strides. */
typedef struct fl_cuda_array {
    fl_view view;
    int64_t stride[FL_MAX_NDIM];
    void *memory; /* owned; NULL: the operand itself */
} fl_cuda_array;

/* The operand's values. On failure there is nothing to close. */
fl_status fl_cuda_array_open(fl_cuda_array *array, const fl_view *view, fl_dtype dtype);

/* Room for the operand's values, which fl_cuda_array_store writes to where they belong. */
fl_status fl_cuda_array_room(fl_cuda_array *array, const fl_view *view, fl_dtype dtype);
fl_status fl_cuda_array_store(const fl_view *view, const fl_cuda_array *array);

void fl_cuda_array_close(fl_cuda_array *array);

/* A Lua number, which travels in its view, in the bytes of a dtype. */
void fl_cuda_number_bytes(int64_t bytes[1], fl_dtype dtype, const fl_view *number);

/* Row-major strides, in elements. */
void fl_cuda_strides(int64_t *strides, const int64_t *size, int ndim);

/* Axis of an already validated attribute. */
static inline int fl_cuda_axis(const fl_attr *attr, int ndim)
{
    return (int)(attr->integer < 0 ? attr->integer + (ndim ? ndim : 1) : attr->integer);
}

#endif

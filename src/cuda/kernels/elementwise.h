/*
** elementwise.h -- one row of elementwise.def on the GPU, for callers that have no op.
*/
#ifndef FL_CUDA_ELEMENTWISE_H
#define FL_CUDA_ELEMENTWISE_H

#include "cuda/parts/cuda.h"

extern "C" {
#include "core/cpu/elementwise.h"
}

/* Issues the row of `kernel` with operands and result of any dtype and layout, computed in `compute`. */
fl_status fl_cuda_row(const fl_kernel *kernel, fl_dtype compute, const fl_ew_attr *attributes);

/* The bytes of a number, and of a scalar attribute, as a row that computes in `dtype` takes them. */
int64_t fl_cuda_number(const fl_view *view, fl_dtype dtype);
int64_t fl_cuda_attribute(const fl_ew_attr *attribute, fl_dtype dtype);

#endif

/*
** copies.h -- copies and fills on the device: issued to the queue that was entered, not waited for.
*/
#ifndef FL_CUDA_COPIES_H
#define FL_CUDA_COPIES_H

#include "cuda/parts/cuda.h"

/* Copies `in` to `out`: same local shape, any strides, converts dtypes; as fl_cpu_copy, both in device memory. */
fl_status fl_cuda_copy_view(const fl_view *out, const fl_view *in);

/* Every element of `out` becomes *value (host memory, of out's dtype). */
fl_status fl_cuda_fill_view(const fl_view *out, const void *value);

#endif

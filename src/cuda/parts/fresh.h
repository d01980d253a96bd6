/*
** fresh.h -- numbers that are others at every launch of a graph: seeds and counters, rates of optimizers.
**
** A kernel is given them by value; where a graph is recorded they lie in device memory, and before each launch of the
** graph they are written there anew from the op's attributes.
*/
#ifndef FL_CUDA_FRESH_H
#define FL_CUDA_FRESH_H

#include "cuda.h"

/* Writes the numbers that the kernel's attributes and seed give now. */
typedef void fl_cuda_fill(void *out, const fl_kernel *kernel);

/* Device memory for them; NULL: nothing is recorded. The op's kernel lives as long as the graph. */
extern "C" const void *fl_cuda_renewed(size_t bytes, fl_cuda_fill *fill, const fl_kernel *kernel);

template<typename T>
struct fl_fresh {
    T value;
    const T *at; /* NULL: the value counts */
    __device__ T get() const { return at ? *at : value; }
};

template<typename T>
static inline fl_fresh<T> fl_cuda_fresh(fl_cuda_fill *fill, const fl_kernel *kernel)
{
    fl_fresh<T> fresh;
    fill(&fresh.value, kernel);
    fresh.at = (const T *)fl_cuda_renewed(sizeof(T), fill, kernel);
    return fresh;
}

#endif

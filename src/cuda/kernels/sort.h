/*
** sort.h -- a stable sort by 32-bit keys on the device.
*/
#ifndef FL_CUDA_SORT_H
#define FL_CUDA_SORT_H

#include "cuda/parts/cuda.h"

/* CUB is a part of the toolkit; its kernels can't run in the emulation. */
#if !defined FL_EMULATED && __has_include(<cub/device/device_radix_sort.cuh>)
#define FL_CUDA_CUB 1
#endif

/* `keys` is filled by the caller between open and run. After the run it has the sorted keys, and order[i] is the number
** of the element that comes i-th; elements with equal keys keep their order. Another run may follow, by other keys that
** the caller has filled in that order: these count more than those before. */
typedef struct fl_cuda_sort {
    uint32_t *keys, *order; /* [n] */
    int64_t n;
    bool ordered; /* order is that of an earlier run */
    void *memory; /* owned */
} fl_cuda_sort;

#define FL_CUDA_SORT_MOST (INT64_C(1) << 31)

/* Memory for n elements, fewer than FL_CUDA_SORT_MOST: else, and when there is no memory, an error. */
fl_status fl_cuda_sort_open(fl_cuda_sort *sort, const char *who, int64_t n);

/* Issues the sort; keys count below 2^bits. */
fl_status fl_cuda_sort_run(fl_cuda_sort *sort, int bits);
void fl_cuda_sort_close(fl_cuda_sort *sort);

/* Bits of the numbers 0 to most. */
static inline int fl_cuda_bits(int64_t most)
{
    int bits = 0;
    while (most >> bits) bits++;
    return bits;
}

#endif

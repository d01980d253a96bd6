/*
** quotient.h -- kernels that count in 32 bits where all numbers fit, and then divide by multiplication: I is int32_t or
** int64_t.
*/
#ifndef FL_CUDA_QUOTIENT_H
#define FL_CUDA_QUOTIENT_H

#include "index.h"

/* The divisor of a number I. */
template<typename I>
struct fl_divisor {
    typedef I type;
};
template<>
struct fl_divisor<int32_t> {
    typedef fl_division type;
};

/* n 0, of what has no elements, counts as 1. */
static inline void fl_divisor_set(int64_t *d, int64_t n) { *d = n > 0 ? n : 1; }
static inline void fl_divisor_set(fl_division *division, int64_t n) { *division = fl_division_of(n > 0 ? n : 1); }

/* n is not negative. */
__device__ static inline int64_t fl_quotient(int64_t n, const int64_t &d) { return n / d; }
__device__ static inline int32_t fl_quotient(int32_t n, const fl_division &division)
{
    return (int32_t)fl_divide((uint32_t)n, division);
}

/* The position along an axis of `count` windows at which tap t is on element i; -1: at none. */
template<typename I>
__device__ static inline I fl_window_at(I i, I t, I stride, I padding, I dilation, I count,
                                        const typename fl_divisor<I>::type &by_stride)
{
    I from = i + padding - t * dilation;
    if (from < 0) return -1;
    I position = fl_quotient(from, by_stride);
    return position * stride != from || position >= count ? -1 : position;
}

#endif

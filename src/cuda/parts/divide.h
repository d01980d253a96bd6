/*
** divide.h -- division of 32-bit numbers by multiplication. Also part of sources that are compiled at run time.
*/
#ifndef FL_CUDA_DIVIDE_H
#define FL_CUDA_DIVIDE_H

#include "cuda/parts/values.h"

/* n / divisor = (high word of n * multiplier + n) >> shift, for n and divisor below 2^31 (Granlund and Montgomery
** 1994). */
typedef struct fl_division {
    uint32_t divisor, multiplier, shift;
} fl_division;

__device__ static inline uint32_t fl_divide(uint32_t n, const fl_division &division)
{
    return ((uint32_t)((uint64_t)n * division.multiplier >> 32) + n) >> division.shift;
}

#endif

/*
** sort_key.h -- elements as unsigned numbers that have the order in which sort puts them.
**
** NaN comes after all other numbers, and both zeros are equal, as in PyTorch; so a sort of keys is a sort of elements
** on every device. A key has as many bits as its element.
*/
#ifndef FL_SORT_KEY_H
#define FL_SORT_KEY_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define FL_SORT_KEY __host__ __device__ static inline
#else
#define FL_SORT_KEY static inline
#endif

/* Of an IEEE float's bits; infinity: the bits of +inf. */
FL_SORT_KEY uint64_t fl_sort_key_float(uint64_t bits, int width, uint64_t infinity)
{
    uint64_t sign = (uint64_t)1 << (width - 1), ones = sign | (sign - 1), magnitude = bits & (sign - 1);
    if (magnitude > infinity) return ones;
    if (magnitude == 0) return sign;
    return bits & sign ? bits ^ ones : bits | sign;
}

/* The bits of the float that has this key; false: several have it, the zeros or what is not a number. */
FL_SORT_KEY bool fl_sort_key_to_float(uint64_t *bits, uint64_t key, int width)
{
    uint64_t sign = (uint64_t)1 << (width - 1), ones = sign | (sign - 1);
    *bits = key & sign ? key ^ sign : key ^ ones;
    return key != sign && key != ones;
}

FL_SORT_KEY uint64_t fl_sort_key_signed(int64_t value, int width)
{
    uint64_t sign = (uint64_t)1 << (width - 1);
    return ((uint64_t)value ^ sign) & (sign | (sign - 1));
}

#define FL_SORT_INFINITY_FLOAT16 UINT64_C(0x7c00)
#define FL_SORT_INFINITY_BFLOAT16 UINT64_C(0x7f80)
#define FL_SORT_INFINITY_FLOAT32 UINT64_C(0x7f800000)
#define FL_SORT_INFINITY_FLOAT64 UINT64_C(0x7ff0000000000000)

#endif

/*
** pool.lv.c -- pooling one row at a time, for one CPU level: a tap of many windows after the other, so that the loops
** run along rows of x.
*/
#include "pool.h"
#include "simd.h"

/* The maximum is taken of so many windows at a time, in vectors without a rest: of parts of lines that are filled up,
** or of longer ones in place. */
enum { LANES = 16, BLOCK = 128, LONG_BLOCK = 1024, MOST_APART = 3, SEEN = MOST_APART * BLOCK };

/* memcpy as compilers expand it starts too slowly for few bytes. `bytes` is a multiple of 4. */
FL_INLINE void copy(void *out, const void *x, size_t bytes)
{
    char *to = out;
    const char *from = x;
    for (; bytes >= 64; bytes -= 64, to += 64, from += 64) memcpy(to, from, 64);
    if (bytes & 32) memcpy(to, from, 32), to += 32, from += 32;
    if (bytes & 16) memcpy(to, from, 16), to += 16, from += 16;
    if (bytes & 8) memcpy(to, from, 8), to += 8, from += 8;
    if (bytes & 4) memcpy(to, from, 4);
}

FL_INLINE int64_t whole_lanes(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

#define T float
#define FL_VECTOR vf
#define FL_LANES VF_W
#define FL_V(name) vf_##name
#define FL_T(name) name##_float
#include "pool.inc"

#define T double
#define FL_VECTOR vd
#define FL_LANES VD_W
#define FL_V(name) vd_##name
#define FL_T(name) name##_double
#include "pool.inc"

const fl_pool_kernels FL_LV(fl_pool_kernels) = {
    .max = {max_float, max_double},
    .gather = {gather_float, gather_double},
    .scatter = {scatter_float, scatter_double},
    .average = {average_float, average_double},
    .spread = {spread_float, spread_double},
};

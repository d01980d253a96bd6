/*
** pool.h -- pooling of contiguous float32 or float64 planes, with the team.
*/
#ifndef FL_CPU_POOL_H
#define FL_CPU_POOL_H

#include "op/pool.h"
#include "cpu.h"

/* y: the largest element of every window, taps: which one of the window's it is, counted in rows. The first of equals;
** a NaN is larger than anything before it. taps NULL: not needed. */
void fl_cpu_pool_max(fl_dtype dtype, const fl_pool *pool, void *y, int32_t *taps, const void *x);

/* y: the element of x at every window's tap, 0 in the padding. */
fl_status fl_cpu_pool_gather(fl_dtype dtype, const fl_pool *pool, void *y, const void *x, const int32_t *taps);

/* x: zeros, to which y is added at every window's tap. */
fl_status fl_cpu_pool_scatter(fl_dtype dtype, const fl_pool *pool, void *x, const void *y, const int32_t *taps);

/* y: the mean of every window. */
void fl_cpu_pool_average(fl_dtype dtype, const fl_pool *pool, fl_pool_mean mean, void *y, const void *x);

/* x: the adjoint; every element of y is shared out over its window. */
void fl_cpu_pool_spread(fl_dtype dtype, const fl_pool *pool, fl_pool_mean mean, void *x, const void *y);

/* ---- loops of one CPU level ([0]: float, [1]: double): one row of y, of one plane of x ---- */

/* The offsets of a window's taps from its first element. */
typedef struct fl_pool_taps {
    int64_t count;
    int32_t *row, *column;
} fl_pool_taps;

typedef struct fl_pool_kernels {
    void (*max[2])(void *y, int32_t *taps, const void *x, const fl_pool *p, int64_t row);
    void (*gather[2])(void *y, const void *x, const int32_t *taps, const fl_pool *p, const fl_pool_taps *where,
                      int64_t row);
    void (*scatter[2])(void *x, const void *y, const int32_t *taps, const fl_pool *p, const fl_pool_taps *where,
                       int64_t row);
    void (*average[2])(void *y, const void *x, const fl_pool *p, fl_pool_mean mean, int64_t row);
    void (*spread[2])(void *x, const void *y, const fl_pool *p, fl_pool_mean mean, int64_t row);
} fl_pool_kernels;

FL_DECLARE_LEVELS(const fl_pool_kernels, fl_pool_kernels);

#endif

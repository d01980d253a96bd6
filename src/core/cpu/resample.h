/*
** resample.h -- lines resampled along an axis, of contiguous float32 or float64 arrays.
*/
#ifndef FL_CPU_RESAMPLE_H
#define FL_CPU_RESAMPLE_H

#include "op/resample.h"
#include "cpu.h"
#include "rows.h"

/* y [outer, size, inner] of x [outer, n, inner], where `lines` is the shape of x. FL_ERR_MEMORY. */
fl_status fl_cpu_resample(fl_dtype dtype, const fl_resample *resample, fl_row_shape lines, void *y, const void *x);
/* The adjoint: x of y. */
fl_status fl_cpu_resample_back(fl_dtype dtype, const fl_resample *resample, fl_row_shape lines, void *x, const void *y);

/* The taps of all elements of a line: tap k of element o at [k * size + o], which counts for k < count[o] alone. Unused
** ones have weight 0 at a position that is used. */
typedef struct fl_resample_table {
    int64_t n, size;
    int most; /* taps of an element, at most */
    const int32_t *position, *count;
    const void *weight;
    int64_t run_from, run_to; /* the longest run of elements that are neighbours in x too, of weight 1 and one tap */
} fl_resample_table;

/* ---- loops of one CPU level ([0]: float, [1]: double): `outer` blocks of `inner` neighbouring lines ---- */

typedef struct fl_resample_kernels {
    void (*forward[2])(void *y, const void *x, const fl_resample_table *table, int64_t outer, int64_t inner);
    void (*back[2])(void *x, const void *y, const fl_resample_table *table, int64_t outer, int64_t inner);
} fl_resample_kernels;

FL_DECLARE_LEVELS(const fl_resample_kernels, fl_resample_kernels);

#endif

/*
** conv.h -- convolutions of contiguous float32 or float64 arrays, and their two gradients.
*/
#ifndef FL_CPU_CONV_H
#define FL_CPU_CONV_H

#include "op/conv.h"
#include "cpu.h"

/* bias [groups * out] or NULL. */
fl_status fl_cpu_conv(fl_dtype dtype, const fl_conv *conv, void *y, const void *x, const void *weight,
                      const void *bias);
fl_status fl_cpu_conv_input_grad(fl_dtype dtype, const fl_conv *conv, void *dx, const void *dy, const void *weight);
fl_status fl_cpu_conv_weight_grad(fl_dtype dtype, const fl_conv *conv, void *dweight, const void *dy, const void *x);

/* ---- loops of one CPU level ([0]: float, [1]: double) ---- */

typedef struct fl_conv_kernels {
    /* columns [channels * taps, rows of y from `begin` to `end` * columns of y]: what each tap of each window sees of x
    ** [channels, ...], 0 in the padding. */
    void (*unfold[2])(void *columns, const void *x, const fl_conv *c, int64_t channels, int64_t begin, int64_t end);
    /* The adjoint: adds every column to the elements of x it was taken from, taps in order. */
    void (*fold[2])(void *x, const void *columns, const fl_conv *c, int64_t channels, int64_t begin, int64_t end);
    /* out[k] = sum over i < count of parts[i * part + k * step], in order. */
    void (*sum[2])(void *out, const void *parts, int64_t n, int64_t count, int64_t part, int64_t step);
    void (*fill[2])(void *out, const void *value, int64_t n);
} fl_conv_kernels;

FL_DECLARE_LEVELS(const fl_conv_kernels, fl_conv_kernels);

#endif

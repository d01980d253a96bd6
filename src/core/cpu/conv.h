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

typedef enum fl_conv_sum { FL_CONV_FORWARD, FL_CONV_INPUT_GRAD, FL_CONV_WEIGHT_GRAD } fl_conv_sum;

/* Any of the three of float32 through oneDNN, if it is there and faster at this convolution; else *done is false. What
** the sum gives is written, of the other two it reads. bias: NULL of the gradients. */
fl_status fl_cpu_conv_onednn(bool *done, fl_conv_sum sum, const fl_conv *conv, const void *x, const void *weight,
                             const void *y, const void *bias);

/* The same where every channel is by itself (fl_conv_is_depthwise); the gradient of the input where no padding is wider
** than the window. */
fl_status fl_cpu_conv_depthwise(fl_dtype dtype, const fl_conv *conv, void *y, const void *x, const void *weight,
                                const void *bias);
fl_status fl_cpu_conv_depthwise_input_grad(fl_dtype dtype, const fl_conv *conv, void *dx, const void *dy,
                                           const void *weight);
fl_status fl_cpu_conv_depthwise_weight_grad(fl_dtype dtype, const fl_conv *conv, void *dweight, const void *dy,
                                            const void *x);

/* columns [images * in, taps, windows] of image [images * in, plane], and the image of sums of columns (unfold.c). */
void fl_cpu_unfold(fl_dtype dtype, const fl_conv *conv, void *columns, const void *image);
void fl_cpu_fold(fl_dtype dtype, const fl_conv *conv, void *image, const void *columns);

/* ---- loops of one CPU level ([0]: float, [1]: double) ---- */

typedef struct fl_conv_kernels {
    /* columns [channels * taps, rows of y from `begin` to `end` * columns of y], `row` elements apart: what each tap of
    ** each window sees of x [channels, ...], 0 in the padding. Every element is `lanes` values, of as many images. */
    void (*unfold[2])(void *columns, int64_t row, const void *x, const fl_conv *c, int64_t channels, int64_t begin,
                      int64_t end, int64_t lanes);
    /* The adjoint: adds every column to the elements of x it was taken from, taps in order. */
    void (*fold[2])(void *x, const void *columns, int64_t row, const fl_conv *c, int64_t channels, int64_t begin,
                    int64_t end, int64_t lanes);
    /* out[p * lanes + i] = in[i * step + p] for p < n, i < lanes, and the other way round. */
    void (*interleave[2])(void *out, const void *in, int64_t n, int64_t lanes, int64_t step);
    void (*separate[2])(void *out, const void *in, int64_t n, int64_t lanes, int64_t step);
    /* out[k] = sum over i < count of parts[i * part + k * step], in order. */
    void (*sum[2])(void *out, const void *parts, int64_t n, int64_t count, int64_t part, int64_t step);
    void (*fill[2])(void *out, const void *value, int64_t n);
    /* y [rows, columns]: the sum over taps of weight[tap] times x at it, where x is padded: no tap lies outside.
    ** x_size: of the padded x; window: its size, stride and dilation count. bias NULL: 0. */
    void (*depthwise[2])(void *y, const int64_t y_size[FL_WINDOW_AXES], const void *x,
                         const int64_t x_size[FL_WINDOW_AXES], const fl_window_geometry *window, const void *weight,
                         const void *bias);
    /* dweight[tap] += the sum over y of dy times the padded x at the tap. */
    void (*depthwise_weight[2])(void *dweight, const void *dy, const int64_t y_size[FL_WINDOW_AXES], const void *x,
                                const int64_t x_size[FL_WINDOW_AXES], const fl_window_geometry *window);
} fl_conv_kernels;

FL_DECLARE_LEVELS(const fl_conv_kernels, fl_conv_kernels);

#endif

/*
** pixels.h -- loops over the bytes of images, one table per CPU level (pixels.lv.c).
**
** Only multiplications, additions and divisions in a given order are used, so all levels give the same bytes. A plane
** is one channel of an image, row by row; n counts its pixels.
*/
#ifndef FL_CPU_PIXELS_H
#define FL_CPU_PIXELS_H

#include "cpu.h"

/* Pixels of a line as weighted sums of pixels of another line: pixel x sums `taps` pixels from first[x] on, weighted by
** weights[x * taps] and the following, of which unused ones are 0. */
typedef struct fl_pixel_taps {
    const int32_t *first;
    const float *weights;
    int taps, count; /* count: of pixels made */
} fl_pixel_taps;

typedef struct fl_pixel_loops {
    /* out[i] = the sum of weights[k] * rows[k][i] over k < taps, i < n */
    void (*rows)(float *out, const unsigned char *const *rows, const float *weights, int taps, int64_t n);
    /* The line `in`, of interleaved channels (1 to 4), becomes one line of each plane: of channel c at out + c * plane,
    ** rounded. Up to 3 floats behind the line may be read. */
    void (*line)(unsigned char *out, int64_t plane, const float *in, const fl_pixel_taps *taps, int channels);
    /* Interleaved channels to planes, and back. */
    void (*split)(unsigned char *out, int64_t plane, const unsigned char *in, int64_t n, int channels);
    void (*join)(unsigned char *out, const unsigned char *in, int64_t plane, int64_t n, int channels);
    /* Numbers of a plane: x * scale + shift; step: distance of two results. */
    void (*floats)(float *out, int64_t step, const unsigned char *in, int64_t n, float scale, float shift);
    /* out[0] = in[n - 1] and so on */
    void (*reverse)(unsigned char *out, const unsigned char *in, int64_t n);
    /* x * ratio + other, cut to 0 .. 255 and to whole numbers, as all that follow */
    void (*blend)(unsigned char *x, int64_t n, float ratio, float other);
    /* The same with gray * (1 - ratio) as the other, of each pixel. */
    void (*blend_gray)(unsigned char *red, unsigned char *green, unsigned char *blue, int64_t n, float ratio);
    /* Sum of the grays. */
    int64_t (*gray_sum)(const unsigned char *red, const unsigned char *green, const unsigned char *blue, int64_t n);
    /* Hue turned by `turn`, of which 1 is a whole circle; -1 < turn < 1. */
    void (*hue)(unsigned char *red, unsigned char *green, unsigned char *blue, int64_t n, float turn);
} fl_pixel_loops;

FL_DECLARE_LEVELS(const fl_pixel_loops, fl_pixel_loops);

#endif

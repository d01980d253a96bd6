/*
** pixels.lv.c -- loops over the bytes of images, once per level.
**
** They are written so that the compiler makes vectors of them: no branches, planes instead of interleaved channels.
** Grays, blends and hues are computed as torchvision's functions of tensors compute them.
*/
#include "pixels.h"

#include <string.h>

/* ---- resampling ---- */

/* Four rows at a time, so that sums stay in registers. */
static void rows_4(float *restrict out, const unsigned char *const *rows, const float *weights, int64_t n, bool first)
{
    const unsigned char *restrict a = rows[0], *restrict b = rows[1], *restrict c = rows[2], *restrict d = rows[3];
    float p = weights[0], q = weights[1], r = weights[2], s = weights[3];
    if (first)
        for (int64_t i = 0; i < n; i++) out[i] = (float)a[i] * p + (float)b[i] * q + (float)c[i] * r + (float)d[i] * s;
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = out[i] + (float)a[i] * p + (float)b[i] * q + (float)c[i] * r + (float)d[i] * s;
}

static void rows(float *out, const unsigned char *const *from, const float *weights, int taps, int64_t n)
{
    for (int k = 0; k < taps; k += 4) {
        const unsigned char *four[4];
        float w[4];
        for (int i = 0; i < 4; i++) {
            four[i] = k + i < taps ? from[k + i] : from[0];
            w[i] = k + i < taps ? weights[k + i] : 0;
        }
        rows_4(out, four, w, n, k == 0);
    }
}

typedef float four __attribute__((vector_size(16)));
typedef int32_t four_ints __attribute__((vector_size(16)));

static inline four load_four(const float *at)
{
    four v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* The channels of a pixel are the lanes of a vector; lanes behind them are ignored. */
static inline __attribute__((always_inline)) void line_of(unsigned char *out, int64_t plane, const float *in,
                                                          const fl_pixel_taps *t, int channels, int taps)
{
    const float *w = t->weights;
    for (int x = 0; x < t->count; x++, w += taps) {
        const float *at = in + (int64_t)t->first[x] * channels;
        four sum = load_four(at) * w[0];
        for (int k = 1; k < taps; k++) sum += load_four(at + (int64_t)k * channels) * w[k];
        four_ints whole = __builtin_convertvector(sum + 0.5f, four_ints);
        for (int c = 0; c < channels; c++) out[c * plane + x] = (unsigned char)(whole[c] > 255 ? 255 : whole[c]);
    }
}

static void line_any(unsigned char *out, int64_t plane, const float *in, const fl_pixel_taps *taps, int channels)
{
    line_of(out, plane, in, taps, channels, taps->taps);
}

/* Of three channels with the usual numbers of taps: the loops are unrolled. */
static void line(unsigned char *out, int64_t plane, const float *in, const fl_pixel_taps *taps, int channels)
{
    if (channels == 3 && taps->taps == 2) line_of(out, plane, in, taps, 3, 2);
    else if (channels == 3 && taps->taps == 3) line_of(out, plane, in, taps, 3, 3);
    else if (channels == 3 && taps->taps == 4) line_of(out, plane, in, taps, 3, 4);
    else if (channels == 3 && taps->taps == 5) line_of(out, plane, in, taps, 3, 5);
    else if (channels == 3) line_of(out, plane, in, taps, 3, taps->taps);
    else line_any(out, plane, in, taps, channels);
}

/* ---- layouts ---- */

static void split(unsigned char *restrict out, int64_t plane, const unsigned char *restrict in, int64_t n, int channels)
{
    if (channels == 1) memcpy(out, in, (size_t)n);
    else if (channels == 3)
        for (int64_t i = 0; i < n; i++) {
            out[i] = in[3 * i];
            out[plane + i] = in[3 * i + 1];
            out[2 * plane + i] = in[3 * i + 2];
        }
    else
        for (int c = 0; c < channels; c++)
            for (int64_t i = 0; i < n; i++) out[c * plane + i] = in[channels * i + c];
}

static void join(unsigned char *restrict out, const unsigned char *restrict in, int64_t plane, int64_t n, int channels)
{
    if (channels == 1) memcpy(out, in, (size_t)n);
    else
        for (int64_t i = 0; i < n; i++)
            for (int c = 0; c < channels; c++) out[channels * i + c] = in[c * plane + i];
}

static void floats(float *restrict out, int64_t step, const unsigned char *restrict in, int64_t n, float scale,
                   float shift)
{
    if (step == 1)
        for (int64_t i = 0; i < n; i++) out[i] = (float)in[i] * scale + shift;
    else
        for (int64_t i = 0; i < n; i++) out[i * step] = (float)in[i] * scale + shift;
}

static void reverse(unsigned char *restrict out, const unsigned char *restrict in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = in[n - 1 - i];
}

/* ---- colours ---- */

static inline unsigned char byte_of(float x)
{
    x = x < 0 ? 0 : x;
    return (unsigned char)(int32_t)(x > 255 ? 255 : x);
}

/* Rounded down: a whole number. */
static inline float gray(unsigned char red, unsigned char green, unsigned char blue)
{
    return (float)(int32_t)((float)red * 0.2989f + (float)green * 0.587f + (float)blue * 0.114f);
}

static void blend(unsigned char *x, int64_t n, float ratio, float other)
{
    for (int64_t i = 0; i < n; i++) x[i] = byte_of((float)x[i] * ratio + other);
}

static void blend_gray(unsigned char *restrict red, unsigned char *restrict green, unsigned char *restrict blue,
                       int64_t n, float ratio)
{
    float rest = 1 - ratio;
    for (int64_t i = 0; i < n; i++) {
        float other = gray(red[i], green[i], blue[i]) * rest;
        red[i] = byte_of((float)red[i] * ratio + other);
        green[i] = byte_of((float)green[i] * ratio + other);
        blue[i] = byte_of((float)blue[i] * ratio + other);
    }
}

static int64_t gray_sum(const unsigned char *red, const unsigned char *green, const unsigned char *blue, int64_t n)
{
    enum { PIECE = 1 << 20 }; /* of which the sum fits into 32 bits */
    int64_t sum = 0;
    for (int64_t at = 0; at < n; at += PIECE) {
        int32_t part = 0;
        int64_t end = at + PIECE < n ? at + PIECE : n;
        for (int64_t i = at; i < end; i++) part += (int32_t)gray(red[i], green[i], blue[i]);
        sum += part;
    }
    return sum;
}

/* Channel n of the colour of hue h (1: a circle), saturation s, value v: 5 red, 3 green, 1 blue. */
static inline float from_hue(float h, float s, float v, float n)
{
    float k = n + h * 6;
    k = k >= 6 ? k - 6 : k;
    float rest = 4 - k;
    k = k < rest ? k : rest;
    k = k < 1 ? k : 1;
    k = k > 0 ? k : 0;
    return v - v * s * k;
}

static inline float fraction(float x) { return x - (float)(int32_t)x; }

static void hue(unsigned char *restrict red, unsigned char *restrict green, unsigned char *restrict blue, int64_t n,
                float turn)
{
    for (int64_t i = 0; i < n; i++) {
        float r = (float)red[i] / 255, g = (float)green[i] / 255, b = (float)blue[i] / 255;
        float most = r > g ? r : g, least = r < g ? r : g;
        most = most > b ? most : b;
        least = least < b ? least : b;
        float range = most - least, divisor = range > 0 ? range : 1;
        float s = range / (range > 0 ? most : 1);
        float rc = (most - r) / divisor, gc = (most - g) / divisor, bc = (most - b) / divisor;
        float h = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
        h = fraction(fraction(h * (1.0f / 6) + 1) + turn + 1);
        red[i] = byte_of(from_hue(h, s, most, 5) * 255.999f);
        green[i] = byte_of(from_hue(h, s, most, 3) * 255.999f);
        blue[i] = byte_of(from_hue(h, s, most, 1) * 255.999f);
    }
}

const fl_pixel_loops FL_LV(fl_pixel_loops) = {
    rows, line, split, join, floats, reverse, blend, blend_gray, gray_sum, hue,
};

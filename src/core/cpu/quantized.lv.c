/*
** quantized.lv.c -- the loops over rows of 8 and 4 bits, once per level.
*/
#include "quantized.h"

static float dot(const float *x, const float *y, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static float dot_int8(const float *x, const int8_t *q, const float *scales, int64_t columns, int64_t group)
{
    float total = 0;
    for (int64_t g = 0; g < columns / group; g++, x += group, q += group) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < group; i++) sum += x[i] * (float)q[i];
        total += sum * scales[g];
    }
    return total;
}

static void unpack_int8(float *out, const void *row, const float *scales, int64_t columns, int64_t group)
{
    const int8_t *q = row;
    for (int64_t g = 0; g < columns / group; g++, out += group, q += group) {
        float scale = scales[g];
#pragma omp simd
        for (int64_t i = 0; i < group; i++) out[i] = (float)q[i] * scale;
    }
}

static inline __attribute__((always_inline)) void unpack_halves(float *out, const void *row, const float *scales,
                                                                int64_t columns, int64_t group)
{
    const uint8_t *q = row;
    int64_t half = group / 2;
    for (int64_t g = 0; g < columns / group; g++, out += group, q += half) {
        float scale = scales[g];
#pragma omp simd
        for (int64_t i = 0; i < half; i++) {
            out[i] = (float)((int)(q[i] & 15) - 8) * scale;
            out[i + half] = (float)((int)(q[i] >> 4) - 8) * scale;
        }
    }
}

/* Short groups of the usual sizes are loops of constant length. */
static void unpack_int4(float *out, const void *row, const float *scales, int64_t columns, int64_t group)
{
    if (group == 32) unpack_halves(out, row, scales, columns, 32);
    else if (group == 64) unpack_halves(out, row, scales, columns, 64);
    else if (group == 128) unpack_halves(out, row, scales, columns, 128);
    else unpack_halves(out, row, scales, columns, group);
}

const fl_quantized_table FL_LV(fl_quantized_table) = {dot, dot_int8, {unpack_int8, unpack_int4}};

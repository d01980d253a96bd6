/*
** vmath.h -- elementary functions of one float, written without branches so that loops over them vectorise.
**
** Included by .lv.c files. fl_<name>_f32 handles inf, NaN and subnormals and gives the same bits wherever an element
** falls in a vector, since the scalar tail is the same code; levels without FMA differ in the last bit. Largest errors
** measured, in ulp: exp exp2 log 1.0, log2 1.1, erf 1.3, log1p expm1 1.5, sin cos 1.6, tanh log10 2.4, tan 3.5.
** fl_<name>_f64: vmath_double.h and vmath_float64.h. Coefficients: minimax fits made for these intervals;
** the reductions are Cody and Waite's (Software Manual for the Elementary Functions, 1980).
*/
#ifndef FL_VMATH_H
#define FL_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "op/special.h"

#define FL_VMATH static inline __attribute__((always_inline, unused))

FL_VMATH float fl_fma_f32(float a, float b, float c)
{
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

FL_VMATH int32_t fl_float_bits(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FL_VMATH float fl_float_of_bits(int32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FL_VMATH float fl_abs_f32(float x) { return fl_float_of_bits(fl_float_bits(x) & 0x7fffffff); }
FL_VMATH float fl_copysign_f32(float x, float sign)
{
    return fl_float_of_bits((fl_float_bits(x) & 0x7fffffff) | (fl_float_bits(sign) & INT32_MIN));
}

/* a - b without a word about overflow: bits of NaN may be anything. */
FL_VMATH int32_t fl_wrap_sub(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }

/* Adding this rounds a float below 2^22 to an integer, whose value is then in the low bits. */
#define FL_ROUNDER 12582912.0f

/* 2^k, -126 <= k <= 127 */
FL_VMATH float fl_power2(int32_t k) { return fl_float_of_bits((int32_t)(((uint32_t)k + 127u) << 23)); }
/* x * 2^k, -250 <= k <= 254: in two steps, so that subnormal results are rounded once. */
FL_VMATH float fl_scale2(float x, int32_t k) { return x * fl_power2(k >> 1) * fl_power2(fl_wrap_sub(k, k >> 1)); }

/* (e^r - 1 - r) / r for |r| <= ln(2) / 2, relative to e^r within 1e-10. */
FL_VMATH float fl_exp_tail(float r)
{
    float p = 1.990770397e-4f;
    p = fl_fma_f32(p, r, 1.394869993e-3f);
    p = fl_fma_f32(p, r, 8.333286270e-3f);
    p = fl_fma_f32(p, r, 4.166623950e-2f);
    p = fl_fma_f32(p, r, 1.666666716e-1f);
    return fl_fma_f32(p, r, 0.5f) * r;
}

/* k and r with x = k ln(2) + r; x within +-110 */
FL_VMATH float fl_exp_reduce(int32_t *k, float x)
{
    float shifted = fl_fma_f32(x, 1.44269504f, FL_ROUNDER), whole = shifted - FL_ROUNDER;
    *k = fl_wrap_sub(fl_float_bits(shifted), fl_float_bits(FL_ROUNDER));
    return fl_fma_f32(whole, 2.12194440e-4f, fl_fma_f32(whole, -0.693359375f, x));
}

FL_VMATH float fl_exp_f32(float x)
{
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    int32_t k;
    float r = fl_exp_reduce(&k, x);
    return fl_scale2(fl_fma_f32(fl_exp_tail(r), r, r) + 1.0f, k);
}

/* 2^r with x = k + r, |r| <= 1/2 */
FL_VMATH float fl_exp2_part(int32_t *k, float x)
{
    float shifted = x + FL_ROUNDER, r = x - (shifted - FL_ROUNDER);
    float p = 1.335989509e-5f;
    p = fl_fma_f32(p, r, 1.546136773e-4f);
    p = fl_fma_f32(p, r, 1.334195025e-3f);
    p = fl_fma_f32(p, r, 9.618056938e-3f);
    p = fl_fma_f32(p, r, 5.550400540e-2f);
    p = fl_fma_f32(p, r, 2.402265072e-1f);
    p = fl_fma_f32(p, r, 6.931471825e-1f);
    *k = fl_wrap_sub(fl_float_bits(shifted), fl_float_bits(FL_ROUNDER));
    return fl_fma_f32(p, r, 1.0f);
}

FL_VMATH float fl_exp2_f32(float x)
{
    int32_t k;
    x = x > 129.0f ? 129.0f : x;
    float part = fl_exp2_part(&k, x < -151.0f ? -151.0f : x);
    return fl_scale2(part, k);
}

/* e^x - 1, -20 <= x <= 89: 2^k (e^r - 1) + (2^k - 1), exact cancellation for small x, where k is 0. Halved on the way,
** for k = 128, so the last bit of subnormals is lost. */
FL_VMATH float fl_expm1_within(float x)
{
    int32_t k;
    float r = fl_exp_reduce(&k, x);
    float half = fl_power2(fl_wrap_sub(k, 1)), e = fl_fma_f32(fl_exp_tail(r), r, r);
    return fl_fma_f32(half, e, half - 0.5f) * 2.0f;
}

FL_VMATH float fl_expm1_f32(float x)
{
    float y = x > 89.0f ? 89.0f : x;
    y = y < -20.0f ? -20.0f : y;
    return fl_abs_f32(x) < 1e-20f ? x : fl_expm1_within(y);
}

FL_VMATH float fl_tanh_f32(float x)
{
    float a = fl_abs_f32(x);
    float e = fl_expm1_within(a > 10.0f ? 20.0f : a + a);
    return fl_copysign_f32(e / (e + 2.0f), x);
}

/* log(1 + z) - z for sqrt(1/2) - 1 <= z <= sqrt(2) - 1 */
FL_VMATH float fl_log_tail(float z)
{
    float s = z * z, p = 7.105221599e-2f;
    p = fl_fma_f32(p, z, -1.196212620e-1f);
    p = fl_fma_f32(p, z, 1.188639104e-1f);
    p = fl_fma_f32(p, z, -1.235897020e-1f);
    p = fl_fma_f32(p, z, 1.421344429e-1f);
    p = fl_fma_f32(p, z, -1.667034924e-1f);
    p = fl_fma_f32(p, z, 2.000251114e-1f);
    p = fl_fma_f32(p, z, -2.499997318e-1f);
    p = fl_fma_f32(p, z, 3.333330750e-1f);
    return fl_fma_f32(s * z, p, s * -0.5f);
}

/* m in [sqrt(1/2), sqrt(2)) and the exponent e of a positive x = m 2^e, subnormals included. */
FL_VMATH float fl_log_reduce(float *e, float x)
{
    int subnormal = x < 1.17549435e-38f;
    float normal = subnormal ? x * 8388608.0f : x;
    int32_t bits = fl_wrap_sub(fl_float_bits(normal), 0x3f3504f3); /* sqrt(1/2) */
    *e = (float)(bits >> 23) - (subnormal ? 23.0f : 0.0f);
    return fl_float_of_bits((bits & 0x007fffff) + 0x3f3504f3);
}

/* The values of logarithms outside (0, inf). */
#define FL_LOG_EDGES(T, name)                    \
    FL_VMATH T name(T result, T x)               \
    {                                            \
        result = x == (T)INFINITY ? x : result;  \
        result = x == 0 ? -(T)INFINITY : result; \
        return x >= 0 ? result : (T)NAN;         \
    }
FL_LOG_EDGES(float, fl_log_edges_f32)
FL_LOG_EDGES(double, fl_log_edges_f64)
#undef FL_LOG_EDGES

FL_VMATH float fl_log_f32(float x)
{
    float e, z = fl_log_reduce(&e, x) - 1.0f;
    float low = fl_fma_f32(e, -2.12194440e-4f, fl_log_tail(z));
    return fl_log_edges_f32(fl_fma_f32(e, 0.693359375f, z + low), x);
}

/* log2(m) with the head of z kept apart: log2(e) = 1.4375 + 0.00519504..., z split so that products are exact. */
FL_VMATH float fl_log2_f32(float x)
{
    float e, z = fl_log_reduce(&e, x) - 1.0f, tail = fl_log_tail(z);
    float high = fl_float_of_bits(fl_float_bits(z) & (int32_t)0xfffff000), low = z - high + tail;
    float small = fl_fma_f32(low, 1.44269504f, high * 5.19504089e-3f);
    return fl_log_edges_f32(fl_fma_f32(high, 1.4375f, small) + e, x);
}

FL_VMATH float fl_log10_f32(float x)
{
    float e, z = fl_log_reduce(&e, x) - 1.0f, tail = fl_log_tail(z);
    float high = fl_float_of_bits(fl_float_bits(z) & (int32_t)0xfffff000), low = z - high + tail;
    float small = fl_fma_f32(low, 0.43429448f, high * 5.44819033e-5f);
    small = fl_fma_f32(e, -7.64637257e-6f, small);
    return fl_log_edges_f32(fl_fma_f32(e, 0.301037639f, fl_fma_f32(high, 0.43424f, small)), x);
}

/* The rounding error of 1 + x is brought back in at the scale of the mantissa. */
FL_VMATH float fl_log1p_f32(float x)
{
    float u = 1.0f + x, lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    float e, z = fl_log_reduce(&e, u) - 1.0f;
    int32_t k = (int32_t)(e < 126.0f ? e : 126.0f);
    z = e == 0.0f ? x : z + lost * fl_power2(-k);
    float low = fl_fma_f32(e, -2.12194440e-4f, fl_log_tail(z));
    float result = fl_log_edges_f32(fl_fma_f32(e, 0.693359375f, z + low), u);
    return fl_abs_f32(x) < 1e-20f ? x : result;
}

/* erf(x) = x + x P(x^2) near 0 */
FL_VMATH float fl_erf_near_f32(float x)
{
    float s = x * x, p = 8.316797175e-5f;
    p = fl_fma_f32(p, s, -8.130018250e-4f);
    p = fl_fma_f32(p, s, 5.199907348e-3f);
    p = fl_fma_f32(p, s, -2.685894258e-2f);
    p = fl_fma_f32(p, s, 1.128368750e-1f);
    p = fl_fma_f32(p, s, -3.761263192e-1f);
    p = fl_fma_f32(p, s, 1.283791661e-1f);
    return fl_fma_f32(p, x, x);
}

/* 1 - e^-Q(x) beyond */
FL_VMATH float fl_erf_f32(float x)
{
    float a = fl_abs_f32(x);
    float t = a > 4.0f ? 4.0f : a, q = 1.123140191e-5f;
    q = fl_fma_f32(q, t, -3.228047572e-4f);
    q = fl_fma_f32(q, t, 3.642462427e-3f);
    q = fl_fma_f32(q, t, -2.376206964e-2f);
    q = fl_fma_f32(q, t, 1.062368825e-1f);
    q = fl_fma_f32(q, t, 6.351513267e-1f);
    q = fl_fma_f32(q, t, 1.286484897e-1f);
    float far = fl_copysign_f32(1.0f - fl_exp_f32(-fl_fma_f32(q, t, t)), x);
    return a > 0.925f ? far : fl_erf_near_f32(x);
}

/* The share of the normal distribution below x, within 6e-8; below -5.6, where it is less, 0. Of |x| the smaller part
** is 2^-Q(|x|) / 2. */
FL_VMATH float fl_normal_cdf_f32(float x)
{
    float a = fl_abs_f32(x), q = 1.3034817e-7f;
    q = fl_fma_f32(q, a, -3.30411558e-6f);
    q = fl_fma_f32(q, a, 3.29764189e-5f);
    q = fl_fma_f32(q, a, -1.35483104e-4f);
    q = fl_fma_f32(q, a, -2.83420348e-4f);
    q = fl_fma_f32(q, a, 7.26790773e-3f);
    q = fl_fma_f32(q, a, -5.26362173e-2f);
    q = fl_fma_f32(q, a, -4.5916599e-1f);
    q = fl_fma_f32(q, a, -1.15110922f);
    int32_t k;
    float part = fl_exp2_part(&k, q * a), tail = part * fl_power2(fl_wrap_sub(k, 1));
    tail = a > 5.6f ? 0.0f : tail;
    return x < 0 ? tail : 1.0f - tail;
}

/* The square root of the sum of squares, which fits a double. */
FL_VMATH float fl_hypot_f32(float x, float y)
{
    float length = (float)__builtin_sqrt((double)x * x + (double)y * y);
    return (fl_abs_f32(x) == INFINITY) | (fl_abs_f32(y) == INFINITY) ? INFINITY : length;
}

/* Polynomials in w = -log(1 - x^2), after M. Giles, Approximating the erfinv function (GPU Computing Gems, 2011). */
FL_VMATH float fl_erfinv_f32(float x)
{
    float w = -fl_log1p_f32(-x * x), v = w - 2.5f, u = __builtin_sqrtf(w) - 3.0f;
    float p = 2.81022636e-08f, q = -0.000200214257f;
    p = fl_fma_f32(p, v, 3.43273939e-07f), q = fl_fma_f32(q, u, 0.000100950558f);
    p = fl_fma_f32(p, v, -3.5233877e-06f), q = fl_fma_f32(q, u, 0.00134934322f);
    p = fl_fma_f32(p, v, -4.39150654e-06f), q = fl_fma_f32(q, u, -0.00367342844f);
    p = fl_fma_f32(p, v, 0.00021858087f), q = fl_fma_f32(q, u, 0.00573950773f);
    p = fl_fma_f32(p, v, -0.00125372503f), q = fl_fma_f32(q, u, -0.0076224613f);
    p = fl_fma_f32(p, v, -0.00417768164f), q = fl_fma_f32(q, u, 0.00943887047f);
    p = fl_fma_f32(p, v, 0.246640727f), q = fl_fma_f32(q, u, 1.00167406f);
    p = fl_fma_f32(p, v, 1.50140941f), q = fl_fma_f32(q, u, 2.83297682f);
    float y = (w < 5.0f ? p : q) * x;
    return fl_abs_f32(x) == 1.0f ? fl_copysign_f32(INFINITY, x) : fl_abs_f32(x) < 1.0f ? y : NAN;
}

/* ---- sine, cosine, tangent: |x| <= FL_TRIG_LIMIT; the caller gives larger ones to the C library ---- */

#define FL_TRIG_LIMIT 1e5f

/* r and k with x = k pi / 2 + r, |r| <= pi / 4 */
FL_VMATH float fl_trig_reduce_f32(int32_t *k, float x)
{
    float shifted = fl_fma_f32(x, 0.636619772f, FL_ROUNDER), whole = shifted - FL_ROUNDER;
    *k = fl_float_bits(shifted);
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    float r = fl_fma_f32(whole, -1.57079637f, x);
    r = fl_fma_f32(whole, 4.37113883e-8f, r);
    return fl_fma_f32(whole, 1.71512449e-15f, r);
#else
    double r = (double)x - (double)whole * 1.57079632673412561417; /* 33 bits: the product is exact */
    return (float)(r - (double)whole * 6.07710050650619224932e-11);
#endif
}

FL_VMATH float fl_sin_poly_f32(float r)
{
    float s = r * r, p = -1.951495797e-4f;
    p = fl_fma_f32(p, s, 8.332158439e-3f);
    p = fl_fma_f32(p, s, -1.666665524e-1f);
    return fl_fma_f32(p * s, r, r);
}

FL_VMATH float fl_cos_poly_f32(float r)
{
    float s = r * r, p = 2.443278572e-5f;
    p = fl_fma_f32(p, s, -1.388731296e-3f);
    p = fl_fma_f32(p, s, 4.166664556e-2f);
    return fl_fma_f32(p * s, s, fl_fma_f32(s, -0.5f, 1.0f));
}

/* sin(r + quadrant pi / 2) */
FL_VMATH float fl_quadrant_f32(float r, int32_t quadrant)
{
    float y = quadrant & 1 ? fl_cos_poly_f32(r) : fl_sin_poly_f32(r);
    return fl_float_of_bits(fl_float_bits(y) ^ (int32_t)(((uint32_t)quadrant & 2u) << 30));
}

#include "vmath_double.h"
#include "vmath_float64.h"

/* ---- functions that vectorise by themselves, or are left to the C library ---- */

#define FL_VMATH_BUILTIN(name, call)                                           \
    FL_VMATH float fl_##name##_f32(float x) { return __builtin_##call##f(x); } \
    FL_VMATH double fl_##name##_f64(double x) { return __builtin_##call(x); }
FL_VMATH_BUILTIN(sqrt, sqrt)
FL_VMATH_BUILTIN(floor, floor)
FL_VMATH_BUILTIN(ceil, ceil)
FL_VMATH_BUILTIN(trunc, trunc)
FL_VMATH_BUILTIN(round, rint)
#undef FL_VMATH_BUILTIN

FL_VMATH float fl_pow_f32(float x, float y) { return powf(x, y); }
FL_VMATH double fl_pow_f64(double x, double y) { return pow(x, y); }
FL_VMATH float fl_fmod_f32(float x, float y) { return fmodf(x, y); }
FL_VMATH double fl_fmod_f64(double x, double y) { return fmod(x, y); }

/* ---- the common part of both types ---- */

#define T float
#define M(name) fl_##name##_f32
#define BITS int32_t
#define HAS_POWERS 1
#define BITS_OF fl_float_bits
#define OF_BITS fl_float_of_bits
#include "vmath_both.inc"

#define T double
#define M(name) fl_##name##_f64
#define BITS int64_t
#define HAS_POWERS FL_HAS_FMA
#define BITS_OF fl_double_bits
#define OF_BITS fl_double_of_bits
#include "vmath_both.inc"

FL_VMATH double fl_normal_cdf_f64(double x) { return 0.5 * (1 + fl_erf_f64(x * 0.70710678118654752)); }

/* ---- functions that are computed in double precision for both ---- */

FL_VMATH double fl_i0_f64(double x) { return fl_special_i0(x); }
FL_VMATH double fl_i0e_f64(double x) { return fl_special_i0e(x); }
FL_VMATH double fl_i1_f64(double x) { return fl_special_i1(x); }
FL_VMATH double fl_i1e_f64(double x) { return fl_special_i1e(x); }

extern double j0(double x), j1(double x), y0(double x), y1(double x);

#define FL_VMATH_SPECIAL(name, function)                                           \
    FL_VMATH float fl_##name##_f32(float x) { return (float)function((double)x); } \
    FL_VMATH double fl_##name##_f64(double x) { return function(x); }
FL_VMATH_SPECIAL(k0, fl_special_k0)
FL_VMATH_SPECIAL(k0e, fl_special_k0e)
FL_VMATH_SPECIAL(k1, fl_special_k1)
FL_VMATH_SPECIAL(k1e, fl_special_k1e)
FL_VMATH_SPECIAL(j0, j0)
FL_VMATH_SPECIAL(j1, j1)
FL_VMATH_SPECIAL(y0, y0)
FL_VMATH_SPECIAL(y1, y1)
FL_VMATH_SPECIAL(airy_ai, fl_special_airy_ai)
FL_VMATH_SPECIAL(airy_ai_slope, fl_special_airy_ai_slope)
FL_VMATH_SPECIAL(erfcx, fl_special_erfcx)
FL_VMATH_SPECIAL(log_ndtr, fl_special_log_ndtr)
FL_VMATH_SPECIAL(ndtri, fl_special_ndtri)
FL_VMATH_SPECIAL(frexp_mantissa, fl_special_frexp_mantissa)
FL_VMATH_SPECIAL(frexp_exponent, fl_special_frexp_exponent)
#undef FL_VMATH_SPECIAL

FL_VMATH float fl_igamma_f32(float x, float y) { return (float)fl_special_igamma(x, y); }
FL_VMATH double fl_igamma_f64(double x, double y) { return fl_special_igamma(x, y); }
FL_VMATH float fl_igammac_f32(float x, float y) { return (float)fl_special_igammac(x, y); }
FL_VMATH double fl_igammac_f64(double x, double y) { return fl_special_igammac(x, y); }

#endif

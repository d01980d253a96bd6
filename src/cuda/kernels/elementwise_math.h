/*
** elementwise_math.h -- what the expressions of elementwise.def name: M(exp), the elementary functions, here those of
** CUDA's library, and FN(power), the functions of elementwise_formulas.inc. Both are overloaded by type. Also part of
** sources that are compiled at run time.
*/
#ifndef FL_CUDA_ELEMENTWISE_MATH_H
#define FL_CUDA_ELEMENTWISE_MATH_H

#include "cuda/parts/values.h"

#include "core/op/special.h" /* its INFINITY and NAN come from values.h under NVRTC */

#ifndef __CUDACC_RTC__ /* a source that is compiled at run time defines the codes of `bad` */
extern "C" {
#include "core/cpu/elementwise.h"
}
#endif

#define M(name) math_##name
#define FN(name) row_##name

#define MATH1(name, function)                                                      \
    __device__ static inline float math_##name(float x) { return function##f(x); } \
    __device__ static inline double math_##name(double x) { return function(x); }
#define MATH2(name, function)                                                                  \
    __device__ static inline float math_##name(float x, float y) { return function##f(x, y); } \
    __device__ static inline double math_##name(double x, double y) { return function(x, y); }

MATH1(abs, fabs)
MATH1(sqrt, sqrt)
MATH1(exp, exp)
MATH1(exp2, exp2)
MATH1(expm1, expm1)
MATH1(log, log)
MATH1(log2, log2)
MATH1(log10, log10)
MATH1(log1p, log1p)
MATH1(sin, sin)
MATH1(cos, cos)
MATH1(tan, tan)
MATH1(asin, asin)
MATH1(acos, acos)
MATH1(atan, atan)
MATH1(sinh, sinh)
MATH1(cosh, cosh)
MATH1(tanh, tanh)
MATH1(erf, erf)
MATH1(erfc, erfc)
MATH1(erfinv, erfinv)
MATH1(lgamma, lgamma)
MATH1(asinh, asinh)
MATH1(acosh, acosh)
MATH1(atanh, atanh)
MATH1(floor, floor)
MATH1(ceil, ceil)
MATH1(round, rint)
MATH1(trunc, trunc)
MATH2(fmod, fmod)
MATH2(atan2, atan2)
MATH2(copysign, copysign)
MATH2(pow, pow)
MATH2(hypot, hypot)
MATH2(nextafter, nextafter)

__device__ static inline float math_normal_cdf(float x) { return 0.5f * erfcf(x * -0.70710678f); }
__device__ static inline double math_normal_cdf(double x) { return 0.5 * erfc(x * -0.70710678118654752); }

MATH1(j0, j0)
MATH1(j1, j1)
MATH1(y0, y0)
MATH1(y1, y1)

/* Functions of double, for both types. */
#define SPECIAL1(name)                                                                                  \
    __device__ static inline float math_##name(float x) { return (float)fl_special_##name((double)x); } \
    __device__ static inline double math_##name(double x) { return fl_special_##name(x); }
#define SPECIAL2(name)                                                                                      \
    __device__ static inline float math_##name(float x, float y) { return (float)fl_special_##name(x, y); } \
    __device__ static inline double math_##name(double x, double y) { return fl_special_##name(x, y); }

SPECIAL1(i0)
SPECIAL1(i0e)
SPECIAL1(i1)
SPECIAL1(i1e)
SPECIAL1(k0)
SPECIAL1(k0e)
SPECIAL1(k1)
SPECIAL1(k1e)
SPECIAL1(airy_ai)
SPECIAL1(airy_ai_slope)
SPECIAL1(erfcx)
SPECIAL1(log_ndtr)
SPECIAL1(ndtri)
SPECIAL1(frexp_mantissa)
SPECIAL1(frexp_exponent)
SPECIAL2(igamma)
SPECIAL2(igammac)

#undef SPECIAL1
#undef SPECIAL2
#undef MATH1
#undef MATH2

#define FL_FORMULA __device__ static inline
#define FL_QUOTIENT(x, y) ((T)((x) / (y)))

#define IS_FLOAT 1
#define T float
#include "core/op/elementwise_formulas.inc"
#undef T
#define T double
#include "core/op/elementwise_formulas.inc"
#undef T
#undef IS_FLOAT

#define IS_FLOAT 0
#define U uint32_t
#define T uint8_t
#include "core/op/elementwise_formulas.inc"
#undef T
#define T int8_t
#include "core/op/elementwise_formulas.inc"
#undef T
#define T int32_t
#include "core/op/elementwise_formulas.inc"
#undef T
#undef U
#define U uint64_t
#define T int64_t
#include "core/op/elementwise_formulas.inc"
#undef T
#undef U
#undef IS_FLOAT

#endif

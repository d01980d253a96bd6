/*
** elementwise_math.h -- what the expressions of elementwise.def name: M(exp), the elementary functions, and FN(power),
** the helpers that cpu/elementwise.inc has for the CPU.
*/
#ifndef FL_CUDA_ELEMENTWISE_MATH_H
#define FL_CUDA_ELEMENTWISE_MATH_H

#include "cuda/parts/cuda.h"

extern "C" {
#include "core/cpu/elementwise.h"
}

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
MATH1(floor, floor)
MATH1(ceil, ceil)
MATH1(round, rint)
MATH1(trunc, trunc)
MATH2(fmod, fmod)
MATH2(atan2, atan2)
MATH2(copysign, copysign)

#undef MATH1
#undef MATH2

/* Squares are common and exact to the last bit. */
__device__ static inline float math_pow(float x, float y) { return y == 2 ? x * x : powf(x, y); }
__device__ static inline double math_pow(double x, double y) { return y == 2 ? x * x : pow(x, y); }

template<typename T>
__device__ static inline T math_sigmoid(T x)
{
    return 1 / (1 + math_exp(-x));
}

/* ---- floats ---- */

template<typename T>
__device__ static inline T row_clamped(T x, T low, T high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

template<typename T>
__device__ static inline T row_modulo(T x, T y)
{
    T rest = math_fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* Python's rule: exact where the quotient is close to an integer. */
template<typename T>
__device__ static inline T row_floor_quotient(T x, T y)
{
    if (y == 0) return x / y;
    T rest = math_fmod(x, y), quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0)) quotient -= 1;
    if (quotient == 0) return math_copysign((T)0, x / y);
    T whole = math_floor(quotient);
    return quotient - whole > (T)0.5 ? whole + 1 : whole;
}

template<typename T>
__device__ static inline T row_normal_cdf(T x)
{
    return (T)0.5 * (1 + math_erf(x * (T)0.70710678118654752));
}
template<typename T>
__device__ static inline T row_gelu_erf(T x)
{
    return x * row_normal_cdf(x);
}
template<typename T>
__device__ static inline T row_gelu_erf_slope(T x)
{
    return row_normal_cdf(x) + x * math_exp(x * x * (T)-0.5) * (T)0.39894228040143268;
}

/* (1 + tanh(u)) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
template<typename T>
__device__ static inline T row_gelu_gate(T x)
{
    return math_sigmoid(x * ((T)1.5957691216057308 + (T)0.071354816272600144 * (x * x)));
}
template<typename T>
__device__ static inline T row_gelu_tanh(T x)
{
    return x * row_gelu_gate(x);
}
template<typename T>
__device__ static inline T row_gelu_tanh_slope(T x)
{
    T gate = row_gelu_gate(x);
    return gate + x * gate * (1 - gate) * ((T)1.5957691216057308 + (T)0.21406444881780043 * (x * x));
}

template<typename T>
__device__ static inline T row_silu_slope(T grad, T x)
{
    T s = math_sigmoid(x);
    return grad * s * (1 + x * (1 - s));
}

/* ---- integers ---- */

template<typename T>
__device__ static inline bool row_negative(T x)
{
    return std::is_signed<T>::value && x < (T)0;
}

/* Division by zero is noted and gives 0; dividing by -1 negates. */
template<typename T>
__device__ static inline bool row_divides(T y, int *bad)
{
    if (y == 0) *bad = FL_EW_DIVISION_BY_ZERO;
    return y != 0 && !(std::is_signed<T>::value && y == (T)-1);
}

template<typename T>
__device__ static inline T row_rest(T x, T y, int *bad)
{
    return row_divides(y, bad) ? (T)(x % y) : (T)0;
}

template<typename T>
__device__ static inline T row_modulo(T x, T y, int *bad)
{
    T rest = row_rest(x, y, bad);
    return rest != 0 && row_negative(rest) != row_negative(y) ? (T)(rest + y) : rest;
}

template<typename T>
__device__ static inline T row_floor_quotient(T x, T y, int *bad)
{
    if (!row_divides(y, bad)) return y == 0 ? (T)0 : (T)(0 - (uint64_t)x);
    T quotient = (T)(x / y);
    return x % y != 0 && row_negative(x) != row_negative(y) ? (T)(quotient - 1) : quotient;
}

template<typename T>
__device__ static inline T row_power(T x, T y, int *bad)
{
    if (row_negative(y)) *bad = FL_EW_NEGATIVE_POWER;
    uint64_t result = 1, square = (uint64_t)x;
    for (uint64_t rest = row_negative(y) ? 0 : (uint64_t)y; rest; rest >>= 1, square *= square)
        if (rest & 1) result *= square;
    return (T)result;
}

#endif

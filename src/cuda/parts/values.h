/*
** values.h -- elements of every dtype as kernels take them: types, conversions by the rules of the CPU
** (cpu/copy_dtype.inc: integers wrap, floats are cut towards zero, what is not 0 is true), groups that are moved at
** once.
**
** Also part of the sources that are compiled at run time (kernels/fused.cuh), where no header of the toolkit or of the
** standard library is to be found: NVRTC's compiler has its own declarations here.
*/
#ifndef FL_CUDA_VALUES_H
#define FL_CUDA_VALUES_H

#ifdef __CUDACC_RTC__

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#define INT64_MIN (-9223372036854775807L - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

__device__ static inline float __half2float(__half x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ static inline __half __float2half_rn(float x)
{
    __half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

__device__ static inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float((uint32_t)x.bits << 16); }

__device__ static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    __nv_bfloat16 y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    uint32_t bits = __float_as_uint(x);
    y.bits = (uint16_t)(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
    return y;
}

#else

#define CUDA_NO_HALF /* `half` is a name of ours */
#ifdef FL_EMULATED
#include "emulate.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif
#include <stdint.h>
#include <string.h>

#endif

/* ---- types ---- */

template<typename A, typename B>
struct fl_is_same {
    enum { value = 0 };
};
template<typename A>
struct fl_is_same<A, A> {
    enum { value = 1 };
};
template<typename T>
struct fl_is_float {
    enum { value = fl_is_same<T, float>::value || fl_is_same<T, double>::value };
};

/* The type that arithmetic is done in. */
template<typename T>
struct fl_wide {
    typedef T type;
};
template<>
struct fl_wide<__half> {
    typedef float type;
};
template<>
struct fl_wide<__nv_bfloat16> {
    typedef float type;
};

template<typename T>
__device__ __host__ static inline typename fl_wide<T>::type fl_load(T x)
{
    return x;
}
template<>
__device__ __host__ inline float fl_load(__half x)
{
    return __half2float(x);
}
template<>
__device__ __host__ inline float fl_load(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template<typename T>
__device__ __host__ static inline T fl_store(typename fl_wide<T>::type x)
{
    return (T)x;
}
template<>
__device__ __host__ inline __half fl_store<__half>(float x)
{
    return __float2half_rn(x);
}
template<>
__device__ __host__ inline __nv_bfloat16 fl_store<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* ---- conversions ---- */

/* bool as a type of its own: uint8_t is the integer. */
struct fl_flag {
    uint8_t value;
};
template<>
struct fl_wide<fl_flag> {
    typedef uint8_t type;
};
template<>
__device__ __host__ inline uint8_t fl_load(fl_flag x)
{
    return x.value != 0;
}
template<>
__device__ __host__ inline fl_flag fl_store<fl_flag>(uint8_t x)
{
    return {(uint8_t)(x != 0)};
}

/* Outside the range of int64: its lowest number, as x86 has it. */
template<typename F>
__device__ __host__ static inline int64_t fl_to_int64(F v)
{
    return v >= (F)-9223372036854775808.0 && v < (F)9223372036854775808.0 ? (int64_t)v : INT64_MIN;
}

template<typename To, typename From>
__device__ __host__ static inline To fl_convert(From x)
{
    auto v = fl_load(x);
    typedef typename fl_wide<To>::type wide;
    if constexpr (fl_is_same<To, fl_flag>::value) return {(uint8_t)(v != 0)};
    else if constexpr (fl_is_float<decltype(v)>::value && !fl_is_float<wide>::value) return (To)fl_to_int64(v);
    else return fl_store<To>((wide)v);
}

/* ---- vectors ---- */

/* N elements that are moved at once. */
template<typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) fl_pack {
    T at[N];
};

/* A word of that many bytes, for moves. */
template<int BYTES>
struct fl_words {
    typedef uint4 type;
};
template<>
struct fl_words<1> {
    typedef uint8_t type;
};
template<>
struct fl_words<2> {
    typedef uint16_t type;
};
template<>
struct fl_words<4> {
    typedef uint32_t type;
};
template<>
struct fl_words<8> {
    typedef uint64_t type;
};

template<typename W>
__device__ static inline void fl_words_store(void *to, const W &words)
{
    *(W *)to = words;
}
#ifndef FL_EMULATED
__device__ inline void fl_words_store(void *to, const uint4 &words)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words.x),
                 "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
}
#endif

/* Stores a pack up to 16 bytes at once. An assignment of one is cut into stores of its elements where the compiler
** finds others to merge them with, as in the other branch of a condition. */
template<typename T, int N>
__device__ static inline void fl_pack_store(void *to, const fl_pack<T, N> &pack)
{
    enum { BYTES = sizeof pack < 16 ? (int)sizeof pack : 16 };
#pragma unroll
    for (int i = 0; i < (int)sizeof pack; i += BYTES) {
        typename fl_words<BYTES>::type words;
        memcpy(&words, (const char *)&pack + i, sizeof words);
        fl_words_store((char *)to + i, words);
    }
}

#endif

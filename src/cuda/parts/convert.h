/*
** convert.h -- values of one dtype in another, by the rules of the CPU (cpu/copy_dtype.inc): integers wrap, floats are
** cut towards zero, what is not 0 is true.
*/
#ifndef FL_CUDA_CONVERT_H
#define FL_CUDA_CONVERT_H

#include "cuda.h"

#include <type_traits>

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
    if constexpr (std::is_same<To, fl_flag>::value) return {(uint8_t)(v != 0)};
    else if constexpr (std::is_floating_point<decltype(v)>::value && std::is_integral<wide>::value)
        return (To)fl_to_int64(v);
    else return fl_store<To>((wide)v);
}

/* ---- dtypes known at run time ---- */

/* As fl_cuda_by_dtype, but bool is fl_flag. */
template<typename F>
static inline fl_status fl_cuda_by_storage(fl_dtype dtype, F &&f)
{
    return dtype == FL_BOOL ? f(fl_flag()) : fl_cuda_by_dtype(dtype, f);
}

/* The same on the device. */
template<typename F>
__device__ static inline void fl_with_dtype(int dtype, F &&f)
{
    switch (dtype) {
    case FL_BOOL: return f(fl_flag());
    case FL_UINT8: return f((uint8_t)0);
    case FL_INT8: return f((int8_t)0);
    case FL_INT32: return f((int32_t)0);
    case FL_INT64: return f((int64_t)0);
    case FL_FLOAT16: return f(__half());
    case FL_BFLOAT16: return f(__nv_bfloat16());
    case FL_FLOAT32: return f(0.0f);
    default: return f(0.0);
    }
}

/* Out of line: rare, and the same code in every kernel. */
template<typename T>
__device__ __attribute__((noinline)) T fl_load_any(const void *from, int dtype)
{
    T value;
    fl_with_dtype(dtype, [&](auto like) { value = fl_convert<T>(*(const decltype(like) *)from); });
    return value;
}

template<typename T>
__device__ __attribute__((noinline)) void fl_store_any(void *to, int dtype, T value)
{
    fl_with_dtype(dtype, [&](auto like) { *(decltype(like) *)to = fl_convert<decltype(like)>(value); });
}

/* ---- vectors ---- */

/* N elements that are moved at once. */
template<typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) fl_pack {
    T at[N];
};

/* What moves that many bytes at once, and computes nothing. */
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

/*
** convert.h -- elements whose dtype is known at run time, by the conversions of values.h.
*/
#ifndef FL_CUDA_CONVERT_H
#define FL_CUDA_CONVERT_H

#include "cuda.h"

#include <type_traits>

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

#endif

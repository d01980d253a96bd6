/*
** fft.lv.c -- the loops of Fourier transforms, once per level and type.
**
** A packed number is the real parts of all lanes, then their imaginary parts. An inverse transform is a transform of
** numbers whose parts are exchanged, and so are its results.
*/
#include "fft.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define ALONE static __attribute__((noinline))
#define UNROLL _Pragma("GCC unroll 32")

/* The layout that a pass reads or writes: packed numbers, or pairs of neighbouring lanes. */
enum { PACKED, PAIRS };

#define EVEN_2 0, 2
#define ODD_2 1, 3
#define LOW_2 0, 2
#define HIGH_2 1, 3
#define BACK_2 1, 0
#define EVEN_4 0, 2, 4, 6
#define ODD_4 1, 3, 5, 7
#define LOW_4 0, 4, 1, 5
#define HIGH_4 2, 6, 3, 7
#define BACK_4 3, 2, 1, 0
#define EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define ODD_8 1, 3, 5, 7, 9, 11, 13, 15
#define LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define BACK_8 7, 6, 5, 4, 3, 2, 1, 0
#define SHUFFLE_(order, lanes, a, b) __builtin_shufflevector(a, b, order##_##lanes)
#define SHUFFLE(order, lanes, a, b) SHUFFLE_(order, lanes, a, b)

#if defined(FL_LEVEL_avx512) || defined(FL_LEVEL_avx2)
#define LANES_F32 8
#else
#define LANES_F32 4
#endif
#if defined(FL_LEVEL_avx512)
#define LANES_F64 8
#elif defined(FL_LEVEL_avx2)
#define LANES_F64 4
#else
#define LANES_F64 2
#endif

#define T float
#define LANES LANES_F32
#define FN(name) FL_PASTE(name, f32)
#include "fft.inc"

#define T double
#define LANES LANES_F64
#define FN(name) FL_PASTE(name, f64)
#include "fft.inc"

const fl_fft_table FL_LV(fl_fft_table) = {
    .f32 = {LANES_F32, lanes_of_f32, beside_f32, line_f32, columns_f32, rows_f32, product_f32, mirror_f32},
    .f64 = {LANES_F64, lanes_of_f64, beside_f64, line_f64, columns_f64, rows_f64, product_f64, mirror_f64},
};

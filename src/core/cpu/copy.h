/*
** copy.h -- the inner loops of fl_cpu_copy: one table per CPU level (copy.lv.c fills it, copy.c calls it).
**
** All strides are in bytes, so that a run of elements can be moved as one wider element.
*/
#ifndef FL_COPY_H
#define FL_COPY_H

#include "cpu.h"

enum { FL_COPY_WIDTHS = 5 }; /* elements of 1, 2, 4, 8, 16 bytes: indexed by log2 */

/* The type that a dtype is converted through. */
typedef enum fl_copy_through {
    FL_THROUGH_INT64,
    FL_THROUGH_FLOAT,
    FL_THROUGH_DOUBLE,
    FL_THROUGH_COUNT
} fl_copy_through;

static inline fl_copy_through fl_copy_through_of(fl_dtype dtype)
{
    if (dtype == FL_FLOAT64) return FL_THROUGH_DOUBLE;
    return fl_dtype_is_float(dtype) ? FL_THROUGH_FLOAT : FL_THROUGH_INT64;
}

typedef struct fl_copy_kernels {
    /* out[i * out_stride] = in[i * in_stride], 0 <= i < n */
    void (*move[FL_COPY_WIDTHS])(char *out, int64_t out_stride, const char *in, int64_t in_stride, int64_t n);
    /* out[r * out_row + c * width] = in[c * in_row + r * width], 0 <= r < rows, 0 <= c < columns */
    void (*transpose[FL_COPY_WIDTHS])(char *out, int64_t out_row, const char *in, int64_t in_row, int64_t rows,
                                      int64_t columns);
    /* memcpy. Many a libc copies long blocks by an instruction that is slow where the sides are aligned differently. */
    void (*block)(char *out, const char *in, int64_t bytes);
    /* memcpy past the caches: out 64-byte aligned, bytes a multiple of 64. `fence` after the last one. */
    void (*stream)(char *out, const char *in, int64_t bytes);
    void (*fence)(void);
    /* n elements to a buffer of the type they are converted through, and back. */
    void (*load[FL_DTYPE_COUNT])(void *buffer, const char *in, int64_t in_stride, int64_t n);
    void (*store[FL_THROUGH_COUNT][FL_DTYPE_COUNT])(char *out, int64_t out_stride, const void *buffer, int64_t n);
} fl_copy_kernels;

FL_DECLARE_LEVELS(const fl_copy_kernels, fl_copy_kernels);

#endif

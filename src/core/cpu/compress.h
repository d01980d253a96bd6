/*
** compress.h -- two bits per element on the CPU: plus or minus a threshold, nothing, or NaN.
*/
#ifndef FL_CPU_COMPRESS_H
#define FL_CPU_COMPRESS_H

#include "cpu.h"

/* The loops of one CPU level. `threshold` is above 0; strides of codes in elements. */
typedef struct fl_compress_loops {
    /* x[i] -= what its code stands for, 0 <= i < n */
    void (*compress)(int32_t *codes, int64_t stride, void *x, int64_t n, double threshold);
    /* out[i] = the sum of what the codes of all rows say of element i */
    void (*expand)(void *out, const int32_t *codes, int64_t row_stride, int64_t stride, int64_t rows, int64_t n,
                   double threshold);
} fl_compress_loops;

typedef struct fl_compress_table {
    fl_compress_loops at[2]; /* float, double */
} fl_compress_table;

FL_DECLARE_LEVELS(const fl_compress_table, fl_compress_table);

/* The kernels of compress_2bit_ and expand_2bit (op/compress.h). */
fl_status fl_cpu_compress(fl_kernel *kernel);
fl_status fl_cpu_expand(fl_kernel *kernel);

#endif

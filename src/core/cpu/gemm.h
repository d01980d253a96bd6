/*
** gemm.h -- matrix products: the serial kernels of one CPU level, and what gemm.c makes of them.
*/
#ifndef FL_GEMM_H
#define FL_GEMM_H

#include "cpu.h"

/* C[m, n] = alpha * A B + bias + beta * C with A[m, k], B[k, n] of any strides (in elements), C's rows contiguous.
** C is not read when beta is 0. bias [n] may be NULL. float32 or float64 throughout. */
typedef struct fl_gemm {
    int64_t m, n, k;
    const void *a, *b, *bias;
    void *c;
    int64_t a_row, a_col, b_row, b_col, c_row;
    double alpha, beta;
    fl_flat_fn activation;               /* NULL: none. Then `activated`, which lies as C does and may be C, becomes */
    const struct fl_ew_attr *attributes; /* its value of C, with these attributes */
    void *activated;
} fl_gemm;

/* Serial, without the activation. An element's value does not depend on m, n or on its place in C. */
typedef void (*fl_gemm_fn)(const fl_gemm *gemm);

/* The kernels, and fl_gemm_pack: packed[p * stride + j] = b[p * row + j * col] for p < k, j < n. */
#define FL_GEMM_DECLARE(level)                                                                                    \
    void FL_PASTE(fl_gemm_f32, level)(const fl_gemm *g);                                                          \
    void FL_PASTE(fl_gemm_f64, level)(const fl_gemm *g);                                                          \
    void FL_PASTE(fl_gemm_pack_f32, level)(void *packed, int64_t stride, const void *b, int64_t row, int64_t col, \
                                           int64_t k, int64_t n);                                                 \
    void FL_PASTE(fl_gemm_pack_f64, level)(void *packed, int64_t stride, const void *b, int64_t row, int64_t col, \
                                           int64_t k, int64_t n);
FL_GEMM_DECLARE(base)
FL_GEMM_DECLARE(avx2)
FL_GEMM_DECLARE(avx512)

/* The serial kernel of this machine; dtype float32 or float64. */
fl_gemm_fn fl_gemm_kernel(fl_dtype dtype);

/* One product with the team, through oneDNN where that is faster. dtype float32 or float64. */
void fl_gemm_run(fl_dtype dtype, const fl_gemm *gemm);

/* Same-shaped products with the team, of int64 too (serial; sums wrap around): problem i adds i-th offsets (in
** elements) to a, b, c and activated. */
typedef struct fl_gemm_batch {
    fl_gemm one;
    int64_t count;
    const int64_t *a_offset, *b_offset; /* count entries each */
    int64_t c_step;
} fl_gemm_batch;
void fl_gemm_run_batch(fl_dtype dtype, const fl_gemm_batch *batch);

/* The products along batch axes: the first matrices, and how far the others lie from them. */
typedef struct fl_gemm_axes {
    fl_gemm one;
    int ndim;
    int64_t size[FL_MAX_NDIM], a_step[FL_MAX_NDIM], b_step[FL_MAX_NDIM];
} fl_gemm_axes;

/* All of them, with the team; changes *axes. c and `activated` are contiguous. name: for messages. FL_ERR_MEMORY. */
fl_status fl_gemm_run_axes(fl_gemm_axes *axes, fl_dtype dtype, const char *name);

/* What computes large float32 products: "oneDNN 2.6 (libdnnl.so.2)" or "own kernels (avx512)". */

#endif

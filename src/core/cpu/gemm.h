/*
** gemm.h -- matrix products: the serial kernels of one CPU level, and what gemm.c makes of them.
*/
#ifndef FL_GEMM_H
#define FL_GEMM_H

#include "cpu.h"

/* C[m, n] = alpha * A B + bias + beta * C with A[m, k], B[k, n] of any strides (in elements), C's rows contiguous.
** C is not read when beta is 0. bias [n] may be NULL. float32, float64 or int64 (which wraps around) throughout. */
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

/* Serial, without the activation. An element's value does not depend on m, n or on its place in C. (A single row, or a
** single column, that is multiplied by contiguous columns is summed in other order: row_product.h.) */
typedef void (*fl_gemm_fn)(const fl_gemm *gemm);

/* The kernels, and fl_gemm_pack: packed[p * stride + j] = b[p * row + j * col] for p < k, j < n. */
#define FL_GEMM_DECLARE(level)                                                                                    \
    void FL_PASTE(fl_gemm_f32, level)(const fl_gemm *g);                                                          \
    void FL_PASTE(fl_gemm_f64, level)(const fl_gemm *g);                                                          \
    void FL_PASTE(fl_gemm_i64, level)(const fl_gemm *g);                                                          \
    void FL_PASTE(fl_gemm_pack_f32, level)(void *packed, int64_t stride, const void *b, int64_t row, int64_t col, \
                                           int64_t k, int64_t n);                                                 \
    void FL_PASTE(fl_gemm_pack_f64, level)(void *packed, int64_t stride, const void *b, int64_t row, int64_t col, \
                                           int64_t k, int64_t n);                                                 \
    void FL_PASTE(fl_gemm_pack_i64, level)(void *packed, int64_t stride, const void *b, int64_t row, int64_t col, \
                                           int64_t k, int64_t n);
FL_GEMM_DECLARE(base)
FL_GEMM_DECLARE(avx2)
FL_GEMM_DECLARE(avx512)

/* The serial kernel of this machine; dtype float32 or float64, else int64's. */
fl_gemm_fn fl_gemm_kernel(fl_dtype dtype);

/* One product with the team, through oneDNN where that is faster. dtype float32, float64 or int64. */
void fl_gemm_run(fl_dtype dtype, const fl_gemm *gemm);

/* One that fl_row_product_suits (row_product.h) gave; matrix: dtype of B. */
void fl_gemm_run_row(fl_dtype dtype, fl_dtype matrix, const fl_gemm *row);

/* A and B of bfloat16, C of float32; false: it is too small for oneDNN, or its layout does not suit. */
bool fl_gemm_run_bf16(const fl_gemm *gemm);

/* Same-shaped products with the team: problem i adds i-th offsets (in
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

/* True if this machine multiplies bfloat16 matrices by instructions of its own, and oneDNN is there to call them. */
bool fl_gemm_has_bfloat16(void);
/* One product of bfloat16 matrices where they lie, into a float32 result; changes *axes. false: it is for
** fl_gemm_run_axes, of float32 copies. */
bool fl_gemm_run_bfloat16(fl_gemm_axes *axes);

/* The name of the code for large float32 products: "oneDNN 2.6 (libdnnl.so.2)" or "own kernels (avx512)". */

#endif

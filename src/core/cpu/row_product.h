/*
** row_product.h -- one row by a matrix: bound by reading the matrix once, so it is read as it lies, floats of 16 bits
** too.
*/
#ifndef FL_ROW_PRODUCT_H
#define FL_ROW_PRODUCT_H

#include "gemm.h"

/* True if one of the operands is a single row, or a single column of a result without bias, and fl_row_product_kernel
** can take it: *row becomes the call to make, gemm or its transposed product. */
bool fl_row_product_suits(fl_gemm *row, const fl_gemm *gemm);

/* gemm with m 1, serial and without the activation. dtype: of A and C, float32 or float64; matrix: of B, the same or,
** for float32, a float of 16 bits. If B's rows are contiguous, an element is summed as fl_gemm_kernel's sums it. */
fl_gemm_fn fl_row_product_kernel(fl_dtype dtype, fl_dtype matrix);

#define FL_ROW_PRODUCT_DECLARE(level)                            \
    void FL_PASTE(fl_row_product_f32, level)(const fl_gemm *g);  \
    void FL_PASTE(fl_row_product_f64, level)(const fl_gemm *g);  \
    void FL_PASTE(fl_row_product_bf16, level)(const fl_gemm *g); \
    void FL_PASTE(fl_row_product_f16, level)(const fl_gemm *g);
FL_ROW_PRODUCT_DECLARE(base)
FL_ROW_PRODUCT_DECLARE(avx2)
FL_ROW_PRODUCT_DECLARE(avx512)

#endif

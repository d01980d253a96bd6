/*
** row_product.c -- one row by a matrix: see row_product.h.
*/
#include "row_product.h"

/* The kernels sum along columns of B where b_col is not 1, which those of a single column need not be. */
static bool readable(fl_gemm *gemm)
{
    if (gemm->n == 1) gemm->b_col = gemm->b_row == 1 ? gemm->k : 1;
    return gemm->m == 1 && (gemm->b_col == 1 || gemm->b_row == 1);
}

bool fl_row_product_suits(fl_gemm *row, const fl_gemm *gemm)
{
    *row = *gemm;
    if (readable(row)) return true;
    if (gemm->n != 1 || gemm->c_row != 1 || gemm->bias) return false;
    *row = (fl_gemm){.m = 1,
                     .n = gemm->m,
                     .k = gemm->k,
                     .a = gemm->b,
                     .b = gemm->a,
                     .c = gemm->c,
                     .a_row = gemm->b_col,
                     .a_col = gemm->b_row,
                     .b_row = gemm->a_col,
                     .b_col = gemm->a_row,
                     .c_row = gemm->m,
                     .alpha = gemm->alpha,
                     .beta = gemm->beta,
                     .activation = gemm->activation,
                     .attributes = gemm->attributes,
                     .activated = gemm->activated};
    return readable(row);
}

fl_gemm_fn fl_row_product_kernel(fl_dtype dtype, fl_dtype b_dtype)
{
    if (dtype == FL_FLOAT64) return FL_BY_LEVEL(fl_row_product_f64);
    if (b_dtype == FL_BFLOAT16) return FL_BY_LEVEL(fl_row_product_bf16);
    return b_dtype == FL_FLOAT16 ? FL_BY_LEVEL(fl_row_product_f16) : FL_BY_LEVEL(fl_row_product_f32);
}

/*
** products.h -- what the files of matrix products have of each other: matmul.c, linear_activated.c, product_sums.c and
** product_grad.c.
*/
#ifndef FL_PRODUCTS_H
#define FL_PRODUCTS_H

#include "cpu/gemm.h"
#include "cpu/stage.h"
#include "op/product.h"
#include "ops.h"

/* Shape and dtype of a product (fl_product_for says of which axes), of linear; the dtype alone. Errors: bool, integers
** beside floats, sizes that do not fit. */
fl_status fl_product_infer(fl_infer *infer);
fl_status fl_linear_infer(fl_infer *infer);
fl_status fl_product_infer_dtype(fl_infer *infer);

/* A signature of a product; bias is left out where the op has none. The product before an activation lies as the result
** does where it is kept. */
void fl_product_sig(fl_sigs *sigs, fl_body body, fl_sbp x, fl_sbp y, fl_sbp bias, fl_sbp out);
/* The signatures by which every rank makes a part of the result: batch axes, rows of x, columns of y. */
void fl_product_split(fl_sigs *sigs, const fl_product *product);

/* Bits of the operands x and y that can be read where they lie: those of the dtype that is computed in. */
uint32_t fl_product_readable(const fl_kernel *kernel);
/* The product of a kernel's operands where they lie after staging, to be written to `result`. */
void fl_product_of_kernel(fl_gemm_axes *axes, const fl_stage *stage, void *result);
/* The kernel of a product. beta: 0 writes the result, 1 adds to it. */
fl_status fl_product_run(fl_kernel *kernel, double beta);

/* fl_op.flops of a product: the multiplications and additions, without bias and activation. */
int64_t fl_product_flops(const fl_kernel *kernel);

extern const char *const fl_linear_samples[];

/* Gradients (product_grad.c): of matmul, bmm and gemm; linear; linear with relu and with gelu. */
fl_status fl_product_grad(fl_grad *g);
fl_status fl_linear_grad(fl_grad *g);
fl_status fl_linear_relu_grad(fl_grad *g);
fl_status fl_linear_gelu_grad(fl_grad *g);

/* linear_gelu_kept: it gives the product before the activation, too. */
static inline bool fl_gelu_keeps_product(const fl_attrs *attrs) { return attrs->at[FL_GELU_KEEP].integer != 0; }

#endif

/*
** products.h -- what matmul.c and product_grad.c have of each other: the gradients of products.
*/
#ifndef FL_PRODUCTS_H
#define FL_PRODUCTS_H

#include "op/op.h"
#include "op/product.h"

/* matmul, bmm and gemm; linear; linear with relu and with gelu. */
fl_status fl_product_grad(fl_grad *g);
fl_status fl_linear_grad(fl_grad *g);
fl_status fl_linear_relu_grad(fl_grad *g);
fl_status fl_linear_gelu_grad(fl_grad *g);

/* linear_gelu_kept: it gives the product before the activation, too. */
static inline bool fl_gelu_keeps_product(const fl_attrs *attrs) { return attrs->at[FL_GELU_KEEP].integer != 0; }

#endif

/*
** expr.h -- several ops as one C expression, for bodies and gradients.
**
** The first failure sticks: later calls do nothing and return NULL. The expression owns every intermediate
** result; fl_expr_end releases them.
**
**     fl_expr c = {0};
**     fl_tensor *e = expr_exp(&c, expr_sub(&c, x, expr_amax(&c, x, axis)));
**     out[0] = fl_expr_take(&c, e);
**     return fl_expr_end(&c);
*/
#ifndef FL_EXPR_H
#define FL_EXPR_H

#include "ops.h"

enum { FL_EXPR_LENGTH = 128 };

typedef struct fl_expr {
    fl_status status;
    int count;
    fl_tensor *owned[FL_EXPR_LENGTH];
} fl_expr;

/* Any op; returns its first result (the others are owned too, and follow in expr->owned). NULL operands that are
** tensors mean an earlier failure or an absent operand. */
fl_tensor *fl_expr_call(fl_expr *expr, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs);

#define EXPR_CALL(c, attrs, ident, ...)                                    \
    fl_expr_call((c), FL_OP_REF(ident), (const fl_operand[]){__VA_ARGS__}, \
                 (int)(sizeof((const fl_operand[]){__VA_ARGS__}) / sizeof(fl_operand)), (attrs))

fl_tensor *expr_add(fl_expr *expr, fl_tensor *x, fl_tensor *y);
fl_tensor *expr_sub(fl_expr *expr, fl_tensor *x, fl_tensor *y);
fl_tensor *expr_mul(fl_expr *expr, fl_tensor *x, fl_tensor *y);
fl_tensor *expr_div(fl_expr *expr, fl_tensor *x, fl_tensor *y);
fl_tensor *expr_add_number(fl_expr *expr, fl_tensor *x, double y);
fl_tensor *expr_mul_number(fl_expr *expr, fl_tensor *x, double y);
fl_tensor *expr_neg(fl_expr *expr, fl_tensor *x);
fl_tensor *expr_exp(fl_expr *expr, fl_tensor *x);
fl_tensor *expr_log(fl_expr *expr, fl_tensor *x);
/* Reductions over the axes of a mask, at least one; `op` has its axes in slot 0 and keepdim in slot 1. */
fl_tensor *expr_reduce(fl_expr *expr, const fl_op *op, fl_tensor *x, uint32_t axes, bool keepdim);
fl_tensor *expr_sum(fl_expr *expr, fl_tensor *x, uint32_t axes, bool keepdim);
fl_tensor *expr_mean(fl_expr *expr, fl_tensor *x, uint32_t axes, bool keepdim);
fl_tensor *expr_amax(fl_expr *expr, fl_tensor *x, uint32_t axes, bool keepdim);
fl_tensor *expr_reshape(fl_expr *expr, fl_tensor *x, const fl_shape *shape);
fl_tensor *expr_unsqueeze(fl_expr *expr, fl_tensor *x, int axis);
/* x without axis `axis`, which has size 1. */
fl_tensor *expr_without_axis(fl_expr *expr, fl_tensor *x, int axis);
fl_tensor *expr_expanded(fl_expr *expr, fl_tensor *x, const fl_shape *shape);
/* `length` elements of an axis from `start` on; the element of an axis at a position, without the axis. */
fl_tensor *expr_narrowed(fl_expr *expr, fl_tensor *x, int axis, int64_t start, int64_t length);
fl_tensor *expr_selected(fl_expr *expr, fl_tensor *x, int axis, int64_t position);
/* Zeros along an axis of `size`, with x from `start` on. */
fl_tensor *expr_set_in_zeros(fl_expr *expr, fl_tensor *x, int axis, int64_t start, int64_t size);
/* Axis j of the result is axis order[j] of x. */
fl_tensor *expr_permuted(fl_expr *expr, fl_tensor *x, const int64_t *order);
fl_tensor *expr_concatenated(fl_expr *expr, fl_tensor *x, fl_tensor *y, int axis);

/* Ones, zeros in the shape and place of x. */
fl_tensor *expr_ones(fl_expr *expr, fl_tensor *x);
fl_tensor *expr_zeros(fl_expr *expr, fl_tensor *x);

/* Zeros of another shape, and start, start + step, ... as int64: where x is, whole on every rank. */
fl_tensor *expr_zeros_of(fl_expr *expr, fl_tensor *x, const fl_shape *shape);
fl_tensor *expr_range(fl_expr *expr, fl_tensor *x, int64_t start, int64_t count, int64_t step);

/* x in a dtype, x itself where it has that. */
fl_tensor *expr_cast(fl_expr *expr, fl_tensor *x, fl_dtype dtype);
/* x as float32 where it is a float of 16 bits: its squares, powers and sums would leave its range, and kernels compute
** them in float32 too. */
fl_tensor *expr_widen(fl_expr *expr, fl_tensor *x);

/* x whole on every rank where it is partial: small results that several ops need are added up once. */
fl_tensor *expr_whole(fl_expr *expr, fl_tensor *x);

/* x y with the last two axes of x, of y exchanged. */
fl_tensor *expr_gemm(fl_expr *expr, fl_tensor *x, fl_tensor *y, bool ta, bool tb);

/* Takes a result out of the expression: one reference for the caller (NULL after a failure). */
fl_tensor *fl_expr_take(fl_expr *expr, fl_tensor *tensor);
/* Releases what is left. Returns the status of the expression. */
fl_status fl_expr_end(fl_expr *expr);

#endif

/*
** chain.h -- several ops as one C expression, for bodies and gradients.
**
** The first failure sticks: later calls do nothing and return NULL. The chain owns every intermediate
** result; chain_end releases them.
**
**     fl_chain c = {0};
**     fl_tensor *e = chain_exp(&c, chain_sub(&c, x, chain_amax(&c, x, axis)));
**     out[0] = fl_chain_take(&c, e);
**     return fl_chain_end(&c);
*/
#ifndef FL_CHAIN_H
#define FL_CHAIN_H

#include "ops.h"

enum { FL_CHAIN_LENGTH = 64 };

typedef struct fl_chain {
    fl_status status;
    int count;
    fl_tensor *owned[FL_CHAIN_LENGTH];
} fl_chain;

/* Any op; returns its first result (the others are owned too, and follow in c->owned). NULL operands that are
** tensors mean an earlier failure or an absent operand. */
fl_tensor *fl_chain_call(fl_chain *c, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs);

#define CHAIN_CALL(c, attrs, ident, ...)                                                                 \
    fl_chain_call((c), FL_OP_REF(ident), (const fl_operand[]){__VA_ARGS__},                              \
                  (int)(sizeof((const fl_operand[]){__VA_ARGS__}) / sizeof(fl_operand)), (attrs))

fl_tensor *chain_add(fl_chain *c, fl_tensor *x, fl_tensor *y);
fl_tensor *chain_sub(fl_chain *c, fl_tensor *x, fl_tensor *y);
fl_tensor *chain_mul(fl_chain *c, fl_tensor *x, fl_tensor *y);
fl_tensor *chain_div(fl_chain *c, fl_tensor *x, fl_tensor *y);
fl_tensor *chain_add_number(fl_chain *c, fl_tensor *x, double y);
fl_tensor *chain_mul_number(fl_chain *c, fl_tensor *x, double y);
fl_tensor *chain_neg(fl_chain *c, fl_tensor *x);
fl_tensor *chain_exp(fl_chain *c, fl_tensor *x);
fl_tensor *chain_log(fl_chain *c, fl_tensor *x);
/* Reductions over the axes of a mask, at least one. */
fl_tensor *chain_sum(fl_chain *c, fl_tensor *x, uint32_t axes, bool keepdim);
fl_tensor *chain_mean(fl_chain *c, fl_tensor *x, uint32_t axes, bool keepdim);
fl_tensor *chain_amax(fl_chain *c, fl_tensor *x, uint32_t axes, bool keepdim);
fl_tensor *chain_reshape(fl_chain *c, fl_tensor *x, const fl_shape *shape);
fl_tensor *chain_unsqueeze(fl_chain *c, fl_tensor *x, int axis);

/* x in a dtype, x itself where it has that. */
fl_tensor *chain_cast(fl_chain *c, fl_tensor *x, fl_dtype dtype);
/* x as float32 where it is a float of 16 bits: its squares, powers and sums would leave its range, and kernels compute them in
** float32 too. */
fl_tensor *chain_widen(fl_chain *c, fl_tensor *x);

/* x whole on every rank where it is partial: small results that several ops need are added up once. */
fl_tensor *chain_whole(fl_chain *c, fl_tensor *x);

/* x y with the last two axes of x, of y exchanged. */
fl_tensor *chain_gemm(fl_chain *c, fl_tensor *x, fl_tensor *y, bool ta, bool tb);

/* Takes a result out of the chain: one reference for the caller (NULL after a failure). */
fl_tensor *fl_chain_take(fl_chain *c, fl_tensor *t);
/* Releases what is left. Returns the chain's status. */
fl_status fl_chain_end(fl_chain *c);

#endif

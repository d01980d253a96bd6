/*
** dispatch.h -- calling ops from C: bodies, gradients, bindings.
*/
#ifndef FL_DISPATCH_H
#define FL_DISPATCH_H

#include "op/op.h"
#include "value/random.h"
#include "memory/tensor.h"

/* The way of every op: see dispatch.c. out: op->nout slots, set on success, one reference each. */
FL_EXPORT fl_status fl_dispatch(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs);

/* Elementwise op whose result goes into operand 0 (x:add_(y)); out[0] is operand 0 with one more reference. */
FL_EXPORT fl_status fl_dispatch_inplace(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin,
                                        const fl_attrs *attrs);

/* The op's result written into `target`, which has its shape, dtype and SBP: by the kernel itself where it may, else as
** a copy of the result. Nothing is recorded: an error where a gradient would be. attrs: not NULL. */
fl_status fl_dispatch_into(fl_tensor *target, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs);

/* The generator of a random op on tensors of this meta; every rank of a global tensor calls it. The draws of a rank
** that is alone (flow.on_rank) are put back afterwards, so they are not agreed. On FL_META nothing is drawn: making a
** model there does not change the numbers of one that is made next. */
fl_generator fl_dispatch_draw(const fl_meta *meta);

/* The last draw was for nothing: the generator goes back to where it was. */
void fl_dispatch_undraw(const fl_generator *before);

/* FL_CALL(&y, mul, fl_of(a), fl_of_number(2)): default attributes. */
#define FL_CALL(out, ident, ...) FL_CALL_WITH(out, NULL, ident, __VA_ARGS__)
/* The same with attributes: FL_CALL_WITH(&y, &attrs, sum, fl_of(x)) */
#define FL_CALL_WITH(out, attributes, ident, ...)                           \
    fl_dispatch((out), FL_OP_REF(ident), (const fl_operand[]){__VA_ARGS__}, \
                (int)(sizeof((const fl_operand[]){__VA_ARGS__}) / sizeof(fl_operand)), (attributes))

/* The same without a record for gradients. */
fl_status fl_dispatch_unrecorded(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin);
#define FL_CALL_UNRECORDED(out, ident, ...)                                            \
    fl_dispatch_unrecorded((out), FL_OP_REF(ident), (const fl_operand[]){__VA_ARGS__}, \
                           (int)(sizeof((const fl_operand[]){__VA_ARGS__}) / sizeof(fl_operand)))

#endif

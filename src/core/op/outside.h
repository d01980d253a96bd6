/*
** outside.h -- calling the hooks of ops, of which some may come from shared objects (ops/library.h).
**
** Such a hook may fail without a message, or return a number that is no status: it gets a message here. Results of
** built-in ops are not checked.
*/
#ifndef FL_OUTSIDE_H
#define FL_OUTSIDE_H

#include "op.h"

/* Some op comes from a shared object. */
FL_OWN extern bool fl_ops_outside;

/* The kernel as plans have it: itself, or for an op from a shared object what calls it. on_device: the op's. */
fl_kernel_fn fl_outside_kernel(const fl_op *op, fl_kernel_fn kernel);

/* Around the call of another hook. */
static inline uint64_t fl_hook_begin(void) { return FL_UNLIKELY(fl_ops_outside) ? fl_failures() : 0; }
fl_status fl_hook_failed(fl_status status, uint64_t before, const fl_op *op, const char *hook);
static inline fl_status fl_hook_end(fl_status status, uint64_t before, const fl_op *op, const char *hook)
{
    return FL_UNLIKELY(status != FL_OK && fl_ops_outside) ? fl_hook_failed(status, before, op, hook) : status;
}

static inline fl_status fl_op_infer(fl_infer *infer)
{
    uint64_t before = fl_hook_begin();
    return fl_hook_end(infer->op->infer(infer), before, infer->op, "its infer");
}

static inline fl_status fl_op_check(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (!op->check) return FL_OK;
    uint64_t before = fl_hook_begin();
    return fl_hook_end(op->check(in, nin, attrs), before, op, "its check");
}

#endif

/*
** record.h -- the functions by which dispatch records ops for gradients.
**
** Autograd registers them when the program starts; without it nothing is recorded, and all else works.
*/
#ifndef FL_RECORD_H
#define FL_RECORD_H

#include "memory/tensor.h"
#include "op/op.h"

typedef struct fl_recorder {
    /* t (which has a record) is a view of a tensor whose history was rewritten since, and that requires grad by now. */
    bool (*view_wants)(const fl_tensor *tensor);
    /* An op that has run, with an input that needs a gradient: connects its outputs. */
    fl_status (*record)(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs, fl_tensor **out,
                        int nout);
    /* Such an op is about to run (called while fl_dispatch_watched): an error where it need not. */
    fl_status (*ahead)(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs);
    /* `view` was just made from `base` by op: in-place writes to it reach the base. */
    fl_status (*note_view)(fl_tensor *view, fl_tensor *base, const fl_op *op, const fl_attrs *attrs);
    /* Before an in-place op on target (in[0]): an error if it may not be written. *before: a copy of the target's old
    ** value, owned by the caller, if a gradient will need it; else NULL. */
    fl_status (*check_inplace)(fl_tensor **before, const fl_op *op, fl_tensor *target, const fl_operand *in, int nin);
    /* After it: histories are rewritten. */
    fl_status (*rewrite)(const fl_op *op, fl_tensor *target, fl_tensor *before, const fl_operand *in, int nin,
                         const fl_attrs *attrs);
    /* It was not computed from tensors that require grad. */
    bool (*is_leaf)(const fl_tensor *tensor);
    /* A tensor with a record is freed. */
    void (*release)(fl_autograd *record);
} fl_recorder;

/* NULL: nothing is recorded. */
FL_OWN extern const fl_recorder *fl_recorder_now;

/* Before any tensor exists. */
void fl_recorder_set(const fl_recorder *recorder);

/* True while ops are recorded: cleared by no_grad, false without a recorder. */
FL_OWN extern bool fl_grad_enabled;

/* The observers of ops before they run, a bit each: FLOW_FAULT, mapped.h, the tracer, the answerer, a recomputation
** (`ahead`), autocast.h, planned.h and alone.h. 0: none. */
enum {
    FL_WATCH_FAULT = 1,
    FL_WATCH_MAPPED = 2,
    FL_WATCH_TRACE = 4,
    FL_WATCH_ANSWER = 8,
    FL_WATCH_AGAIN = 16,
    FL_WATCH_CAST = 32,
    FL_WATCH_PLAN = 64,
    FL_WATCH_ALONE = 128
};
FL_OWN extern uint8_t fl_dispatch_watched;

static inline void fl_dispatch_watch(unsigned who, bool on)
{
    fl_dispatch_watched = (uint8_t)(on ? fl_dispatch_watched | who : fl_dispatch_watched & ~who);
}

/* True if results computed from the tensor have a gradient. */
static inline bool fl_requires_grad(const fl_tensor *tensor)
{
    return tensor->requires_grad || (tensor->autograd && fl_recorder_now->view_wants(tensor));
}

static inline bool fl_record_wanted(const fl_op *op, const fl_operand *in, int nin)
{
    if (!fl_grad_enabled || (op->flags & FL_OP_NO_GRAD)) return false;
    for (int i = 0; i < nin; i++)
        if (in[i].kind == FL_TENSOR && fl_requires_grad(in[i].tensor)) return true;
    return false;
}

/* `view` was just made from `base`. */
static inline fl_status fl_record_view(fl_tensor *view, fl_tensor *base, const fl_op *op, const fl_attrs *attrs)
{
    return fl_recorder_now ? fl_recorder_now->note_view(view, base, op, attrs) : FL_OK;
}

/* Stops recording; the value returned goes to fl_record_resume. */
static inline bool fl_record_pause(void)
{
    bool before = fl_grad_enabled;
    fl_grad_enabled = false;
    return before;
}
static inline void fl_record_resume(bool before) { fl_grad_enabled = before; }

#endif

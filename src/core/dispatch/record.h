/*
** record.h -- what dispatch tells whoever records ops for gradients.
**
** Autograd registers itself here when the program starts; without it nothing is recorded and the core works all the
** same.
*/
#ifndef FL_RECORD_H
#define FL_RECORD_H

#include "memory/tensor.h"
#include "op/op.h"

typedef struct fl_recorder {
    /* t (which has a record) is a view of a tensor whose history was rewritten since, and that requires grad by now. */
    bool (*view_wants)(const fl_tensor *t);
    /* An op that has run, of which some input wants a gradient: connects its outputs. */
    fl_status (*record)(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs, fl_tensor **out,
                        int nout);
    /* `view` was just made from `base` by op: in-place writes to it reach the base. */
    fl_status (*note_view)(fl_tensor *view, fl_tensor *base, const fl_op *op, const fl_attrs *attrs);
    /* Before an in-place op on target (in[0]): may it be written? *before: a copy of the target as it is, owned by the
    ** caller, when a gradient will need it; else NULL. */
    fl_status (*check_inplace)(fl_tensor **before, const fl_op *op, fl_tensor *target, const fl_operand *in, int nin);
    /* After it: histories are rewritten. */
    fl_status (*rewrite)(const fl_op *op, fl_tensor *target, fl_tensor *before, const fl_operand *in, int nin,
                         const fl_attrs *attrs);
    /* A tensor with a record is freed. */
    void (*release)(fl_autograd *record);
} fl_recorder;

/* NULL: nobody records. */
extern const fl_recorder *fl_recorder_now;

/* Before any tensor exists. */
void fl_recorder_set(const fl_recorder *recorder);

/* Are ops recorded? (no_grad clears it; false where nobody records) */
extern bool fl_grad_enabled;

/* Does what is computed from t have a gradient? */
static inline bool fl_requires_grad(const fl_tensor *t)
{
    return t->requires_grad || (t->autograd && fl_recorder_now->view_wants(t));
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

/* A stretch in which ops are not recorded: what it returns is given back at its end. */
static inline bool fl_record_pause(void)
{
    bool before = fl_grad_enabled;
    fl_grad_enabled = false;
    return before;
}
static inline void fl_record_resume(bool before) { fl_grad_enabled = before; }

#endif

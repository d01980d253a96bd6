/*
** tape_inplace.c -- ops that write a tensor in place: the tensors that may be written, and the histories that change.
**
** A write to a view rewrites the history of its base. Views of that base catch up when they are next used.
*/
#include "tape.h"

#include <stdlib.h>

/* True if an in-place op leaves a node. */
static bool rewrites(const fl_operand *in, int nin)
{
    if (fl_tape_target_wants_grad(in[0].tensor)) return true;
    for (int i = 1; i < nin; i++)
        if (in[i].kind == FL_TENSOR && fl_requires_grad(in[i].tensor)) return true;
    return false;
}

/* A copy of the target, in its place on the tape, when a saved operand is the target itself. */
static fl_status keep_value(fl_tensor **before, const fl_op *op, fl_tensor *target, const fl_operand *in, int nin)
{
    bool needed = false;
    tape_saves saves = fl_tape_what_to_save(op, in, nin, true);
    for (int i = 0; i < nin && i < FL_MAX_PARAMS; i++)
        needed |= (saves.in >> i & 1u) && in[i].kind == FL_TENSOR && in[i].tensor == target;
    if (!needed) return FL_OK;
    fl_node *node;
    int slot;
    FL_TRY(fl_tape_node_of(&node, &slot, target));
    fl_grad_enabled = false;
    fl_status status = FL_CALL(before, clone, fl_of(target));
    fl_grad_enabled = true;
    FL_TRY(status);
    if (node) status = fl_tape_attach(*before, node, slot);
    if (status == FL_OK) return FL_OK;
    fl_tensor_unref(*before);
    *before = NULL;
    return status;
}

fl_status fl_tape_check_inplace(fl_tensor **before, const fl_op *op, fl_tensor *target, const fl_operand *in, int nin)
{
    *before = NULL;
    if (!fl_grad_enabled) return FL_OK;
    fl_tensor *base = target->autograd && target->autograd->base ? target->autograd->base : target;
    if (target->requires_grad && fl_autograd_is_leaf(target)) base = target;
    if (base->requires_grad && fl_autograd_is_leaf(base))
        return fl_fail(
            FL_ERR_STATE,
            "%s%s: %s a leaf that requires grad, and cannot be changed in place; do it inside flow.no_grad()", op->name,
            op->mutates ? "" : "_", base == target ? "this tensor is" : "this tensor is a view of");
    for (int i = 1; i < nin; i++)
        if (in[i].kind == FL_TENSOR && fl_requires_grad(in[i].tensor) && !fl_dtype_is_float(target->meta->dtype))
            return fl_fail(FL_ERR_DTYPE, "%s%s: a gradient cannot flow through %s; write into a float tensor", op->name,
                           op->mutates ? "" : "_", fl_dtype_name(target->meta->dtype));
    return rewrites(in, nin) ? keep_value(before, op, target, in, nin) : FL_OK;
}

/* The base's history becomes the old one with the region that `view` names replaced by the op's result. */
static fl_status rewrite_base(fl_node *node, fl_tensor *view)
{
    fl_autograd *a = view->autograd;
    fl_tensor *base = a->base;
    node->region = malloc(sizeof *node->region);
    if (!node->region) return fl_tape_out_of_memory();
    node->region->link = a->link;
    node->region->link->refs++;
    FL_TRY(fl_tape_lead_to(node, base));
    FL_TRY(fl_tape_attach(base, node, 0));
    base->autograd->history++;
    return fl_tape_catch_up(view);
}

fl_status fl_tape_rewrite(const fl_op *op, fl_tensor *target, fl_tensor *before, const fl_operand *in, int nin,
                          const fl_attrs *attrs)
{
    if (!fl_grad_enabled || !rewrites(in, nin)) return FL_OK;
    fl_node *n;
    FL_TRY(fl_tape_node_for(&n, op, in, nin, attrs, &target, 1, &(tape_write){target, before}));
    fl_status status;
    if (target->autograd && target->autograd->base) status = rewrite_base(n, target);
    else {
        status = fl_tape_attach(target, n, 0);
        if (status == FL_OK) target->autograd->history++;
    }
    if (FL_UNLIKELY(fl_recompute_active) && status == FL_OK) status = fl_recompute_note(n);
    fl_node_unref(n);
    return status;
}

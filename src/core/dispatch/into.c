/*
** into.c -- results in tensors that are there: {out = c}.
*/
#include "call.h"
#include "dispatch.h"
#include "record.h"
#include "target.h"
#include "to_global.h"
#include "listener.h"
#include "mapped.h"
#include "op/outside.h"

static fl_status check_into(const fl_op *op, const fl_tensor *target, const fl_operand *in, int nin)
{
    if (op->nout != 1 || op->mutates) return fl_fail(FL_ERR_VALUE, "%s: takes no out", op->name);
    if (!fl_grad_enabled) return FL_OK;
    bool graded = fl_requires_grad(target);
    for (int i = 0; i < nin && !graded && !(op->flags & FL_OP_NO_GRAD); i++)
        graded = in[i].kind == FL_TENSOR && fl_requires_grad(in[i].tensor);
    if (!graded) return FL_OK;
    return fl_fail(FL_ERR_STATE,
                   "%s: out has no gradient, and %s requires grad; leave out away, or do it inside flow.no_grad()",
                   op->name, fl_requires_grad(target) ? "it" : "an operand");
}

static fl_status check_out(const fl_op *op, const fl_tensor *target)
{
    if (target->contiguous && !target->moved_view) return FL_OK;
    if (!fl_is_nested(target))
        return fl_fail(FL_ERR_STATE, "%s: out %s (several positions share one element); give it memory with clone()",
                       op->name, fl_is_expanded(target) ? "is expanded" : "has strides that overlap");
    return fl_target_check(op, target);
}

static fl_status check_fits(const fl_op *op, const fl_meta *target, const fl_meta *result)
{
    char have[FL_META_TEXT], want[FL_META_TEXT];
    if (target == result) return FL_OK;
    if (result->placement->type == FL_META && target->placement->type != FL_META)
        return fl_fail(FL_ERR_STATE,
                       "%s: out has memory, the result is on the meta device, as in a traced function, which returns "
                       "results instead of writing tensors from outside",
                       op->name);
    return fl_fail(FL_ERR_SHAPE, "%s: out is %s (%s), the result is %s (%s)", op->name,
                   fl_meta_placed_text(have, target), target->is_local ? "local" : "global",
                   fl_meta_placed_text(want, result), result->is_local ? "local" : "global");
}

/* True if the kernel may write the target while it reads the operands. Kernels of other than elementwise ops take their
** result to be contiguous. */
static bool writes_apart(const fl_call *call, const fl_tensor *target)
{
    bool elementwise = call->op->flags & FL_OP_ELEMENTWISE;
    if (target->storage->var.poison || !(elementwise || target->contiguous)) return false;
    for (int i = 0; i < call->nin; i++) {
        const fl_tensor *t = call->tensors[i];
        if (!t || t->storage != target->storage) continue;
        if (!elementwise || t->meta != target->meta || t->meta != call->plan->in[i] || fl_overlaps_askew(target, t))
            return false;
    }
    return true;
}

/* True if the op's kernel may write the target itself: not a body, not a view, and no listener is set. */
static bool has_kernel_for(const fl_plan *plan)
{
    const fl_op *op = plan->op;
    return !plan->body && (plan->kernel || !plan->runs) && !(op->flags & (FL_OP_VIEW | FL_OP_RANDOM | FL_OP_SOURCE))
        && !fl_listener_now && !fl_dispatch_watched;
}

/* *done: the kernel has written the target. */
static fl_status dispatch_kernel_into(fl_call *call, fl_tensor *target, bool *done)
{
    *done = has_kernel_for(call->plan) && writes_apart(call, target);
    if (!*done) return FL_OK;
    fl_call_note(call, false);
    if (call->plan->boxes) FL_TRY(fl_call_box(call));
    call->out = &target;
    fl_status status = fl_call_run_into(call, target);
    if (call->plan->boxes) fl_call_release_boxed(call);
    return status;
}

/* Parts of global tensors are always copied: a rank's own strides must not decide. */
static fl_status copy_result(fl_tensor *target, fl_tensor *result)
{
    fl_tensor *to = NULL, *from = NULL, *same = NULL;
    bool recording = fl_record_pause();
    fl_status status = FL_OK;
    if (target->meta->is_local) to = fl_tensor_ref(target), from = fl_tensor_ref(result);
    else if ((status = fl_to_local(&to, target, NULL)) == FL_OK) status = fl_to_local(&from, result, NULL);
    if (status == FL_OK) status = FL_CALL(&same, copy_, fl_of(to), fl_of(from));
    fl_record_resume(recording);
    fl_tensor_unref(same);
    fl_tensor_unref(from);
    fl_tensor_unref(to);
    return status;
}

fl_status fl_dispatch_into(fl_tensor *target, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *result = NULL, *tensors[FL_CALL_OPERANDS];
    bool done = false;
    FL_TRY(check_into(op, target, in, nin));
    FL_TRY(check_out(op, target));
    FL_TRY(fl_mapped_check_out(op, target));
    if (!op->body && nin <= FL_CALL_OPERANDS) {
        fl_call c = {.op = op, .attrs = attrs, .in = in, .nin = nin, .nout = 1, .tensors = tensors};
        FL_TRY(fl_op_check(op, in, nin, attrs));
        FL_TRY(fl_infer_plan(&c.plan, op, in, nin, attrs, false));
        FL_TRY(check_fits(op, target->meta, c.plan->out[0]));
        for (int i = 0; i < nin; i++) tensors[i] = in[i].kind == FL_TENSOR ? in[i].tensor : NULL;
        FL_TRY(dispatch_kernel_into(&c, target, &done));
    }
    if (done) return FL_OK;
    FL_TRY(fl_dispatch(&result, op, in, nin, attrs));
    fl_status status = check_fits(op, target->meta, result->meta);
    if (status == FL_OK) status = copy_result(target, result);
    fl_tensor_unref(result);
    return status;
}

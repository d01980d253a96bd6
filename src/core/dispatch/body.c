/*
** body.c -- ops written in other ops: their bodies run on operands boxed as planned, and are recorded as one op where
** that has a gradient of its own.
*/
#include "call.h"
#include "record.h"
#include "to_global.h"
#include "tracer.h"
#include "op/outside.h"
#include "op/registry.h"

#include <assert.h>

static bool has_own_gradient(const fl_op *op) { return op->grad || op->vjp; }

/* An error inside a body is reported under the name of the op that the script called: "max" will do for max_axis, "add"
** not for addr. */
static fl_status fail_in_body(const fl_op *op, fl_status status)
{
    const char *message = fl_message(), *name = fl_op_public_name(op);
    size_t length = strspn(message, "abcdefghijklmnopqrstuvwxyz0123456789_");
    bool named = length && strncmp(message, name, length) == 0 && strchr("._", name[length]);
    bool hidden = (op->flags & FL_OP_HIDDEN) && name == op->name;
    if (named || hidden || status == FL_ERR_INTERRUPTED) return status;
    return fl_fail_prefix(status, "%s: ", name);
}

static fl_status run_body(fl_body body, fl_tensor **out, const fl_op *op, const fl_operand *in, int nin,
                          const fl_attrs *attrs)
{
    uint64_t before = fl_hook_begin();
    return fl_hook_end(body(out, in, nin, attrs), before, op, "its body");
}

/* The operand in the SBP that the plan has for it; the caller owns out's tensor. */
static fl_status operand_as(fl_operand *out, const fl_operand *in, const fl_meta *planned)
{
    *out = *in;
    if (in->kind != FL_TENSOR) return FL_OK;
    if (!fl_nd_sbp_equal(in->tensor->meta->nd_sbp, planned->nd_sbp))
        return fl_to_global(&out->tensor, in->tensor, planned->placement, planned->nd_sbp, NULL);
    fl_tensor_ref(in->tensor);
    return FL_OK;
}

/* The body on operands boxed as planned: once, and not by each of its ops that reads them. */
static fl_status run_body_boxed(const fl_plan *plan, fl_tensor **out, const fl_operand *in, int nin,
                                const fl_attrs *attrs)
{
    fl_operand boxed[FL_CALL_OPERANDS] = {{0}};
    fl_status status = FL_OK;
    int count = 0;
    assert(nin <= FL_CALL_OPERANDS);
    while (count < nin && (status = operand_as(&boxed[count], &in[count], plan->in[count])) == FL_OK) count++;
    if (status == FL_OK) status = run_body(plan->body, out, plan->op, boxed, nin, attrs);
    while (--count >= 0)
        if (boxed[count].kind == FL_TENSOR) fl_tensor_unref(boxed[count].tensor);
    return status;
}

/* Records an op whose body has run. A result that shares the operand's storage is a view of it; one that is the operand
** itself still needs a place of its own on the tape. */
static fl_status record_body(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[0].kind == FL_TENSOR ? in[0].tensor : NULL;
    bool views = op->flags & FL_OP_VIEW;
    if (fl_record_wanted(op, in, nin)) {
        if (views && out[0] == x) {
            fl_tensor *own;
            FL_TRY(fl_tensor_detach(&own, x));
            fl_tensor_unref(x);
            out[0] = own;
        }
        FL_TRY(fl_recorder_now->record(op, in, nin, attrs, out, op->nout));
    }
    if (!views || out[0] == x || out[0]->storage != x->storage || !fl_dtype_is_float(x->meta->dtype)) return FL_OK;
    return fl_record_view(out[0], x, op, attrs);
}

fl_status fl_call_run_body(const fl_plan *plan, fl_tensor **out, const fl_op *op, const fl_operand *in, int nin,
                           const fl_attrs *attrs)
{
    bool enabled = fl_grad_enabled, own = has_own_gradient(op) || (op->compute && op->flags & FL_OP_NO_GRAD);
    if (own) fl_grad_enabled = false;
    bool opened = fl_trace_open(op, own);
    fl_status status;
    if (FL_UNLIKELY(op->compute != NULL)) status = fl_call_compute(plan, out, in, nin, attrs, opened);
    else if (FL_UNLIKELY(plan && plan->on_host)) status = fl_call_on_host(plan, out, in, nin, attrs);
    else
        status = plan && plan->boxes ? run_body_boxed(plan, out, in, nin, attrs)
                                     : run_body(plan ? plan->body : op->body, out, op, in, nin, attrs);
    fl_trace_close(opened);
    fl_record_resume(enabled);
    if (status != FL_OK) return fail_in_body(op, status);
    if (!own || (status = record_body(out, op, in, nin, attrs)) == FL_OK) return FL_OK;
    for (int i = 0; i < op->nout; i++) {
        fl_tensor_unref(out[i]);
        out[i] = NULL;
    }
    return status;
}

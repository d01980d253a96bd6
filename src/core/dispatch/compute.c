/*
** compute.c -- ops that the host wrote in other ops (op->compute), run on this rank's parts.
**
** They are independent of other ranks: the plan's signature says of which tensor the parts are parts. If a gradient is
** needed and the op has none of its own, the ops that it calls are recorded, on global operands as on local ones.
*/
#include "boxing/boxing.h"
#include "call.h"
#include "dispatch.h"
#include "record.h"
#include "to_global.h"

#include <stdlib.h>

/* Operand i in the plan's SBP, this rank's part of it; the caller owns its tensor. */
static fl_status part_of(fl_operand *out, const fl_operand *in, const fl_plan *plan, int i)
{
    *out = *in;
    if (in->kind != FL_TENSOR) return FL_OK;
    fl_tensor *boxed;
    FL_TRY(fl_boxing_apply_planned(&boxed, in->tensor, plan->in[i], plan->boxings[i]));
    if (boxed->meta->is_local) {
        out->tensor = boxed;
        return FL_OK;
    }
    fl_status status = fl_to_local(&out->tensor, boxed, NULL);
    fl_tensor_unref(boxed);
    return status;
}

static fl_status fail_result(const fl_plan *plan, int i, const fl_tensor *got, const fl_shape *shape, fl_dtype dtype)
{
    char have[FL_META_TEXT], want[FL_SHAPE_TEXT];
    return fl_fail(FL_ERR_SHAPE, "%s: forward gave %s (%s) as result %d, infer says %s%s", plan->op->name,
                   fl_meta_placed_text(have, got->meta), got->meta->is_local ? "local" : "global", i + 1,
                   fl_dtype_name(dtype), fl_shape_text(want, shape));
}

/* *out, a local tensor, becomes result i of the plan. */
static fl_status as_planned(fl_tensor **out, const fl_plan *plan, int i)
{
    const fl_meta *want = plan->out[i], *have = (*out)->meta;
    fl_shape part = {want->shape.ndim, {0}};
    if (have == want) return FL_OK;
    memcpy(part.dims, want->window.size, sizeof(int64_t) * (size_t)part.ndim);
    if (want->is_local || !have->is_local || have->dtype != want->dtype || !fl_shape_equal(&have->shape, &part))
        return fail_result(plan, i, *out, &part, want->dtype);
    fl_tensor *whole;
    FL_TRY(fl_global_from_part(&whole, *out, &want->shape, want->placement, want->nd_sbp));
    fl_tensor_unref(*out);
    *out = whole;
    return FL_OK;
}

static void release_results(fl_tensor **out, int count)
{
    for (int i = 0; i < count; i++) {
        fl_tensor_unref(out[i]);
        out[i] = NULL;
    }
}

static fl_status run_on_parts(const fl_plan *plan, fl_tensor **out, const fl_operand *in, int nin,
                              const fl_attrs *attrs)
{
    fl_operand few[FL_CALL_OPERANDS], *parts = nin > FL_CALL_OPERANDS ? malloc(sizeof *parts * (size_t)nin) : few;
    if (!parts) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", plan->op->name, nin);
    fl_status status = FL_OK;
    int count = 0;
    while (count < nin && (status = part_of(&parts[count], &in[count], plan, count)) == FL_OK) count++;
    if (status == FL_OK) status = plan->op->compute(plan->op, out, parts, nin, attrs);
    while (--count >= 0)
        if (parts[count].kind == FL_TENSOR) fl_tensor_unref(parts[count].tensor);
    if (parts != few) free(parts);
    return status;
}

/* Results without values, or of which this rank has no part. */
static fl_status make_empty(const fl_plan *plan, fl_tensor **out)
{
    for (int i = 0; i < plan->nout; i++) {
        fl_status status = fl_tensor_empty(&out[i], plan->out[i]);
        if (status == FL_OK) continue;
        release_results(out, i);
        return status;
    }
    return FL_OK;
}

/* The op on its operands as they are: the results are those of its ops. */
static fl_status run_as_ops(const fl_plan *plan, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    FL_TRY(plan->op->compute(plan->op, out, in, nin, attrs));
    for (int i = 0; i < plan->nout; i++) {
        const fl_meta *have = out[i]->meta, *want = plan->out[i];
        if (have->dtype == want->dtype && have->is_local == want->is_local
            && fl_shape_equal(&have->shape, &want->shape))
            continue;
        fl_status status = fail_result(plan, i, out[i], &want->shape, want->dtype);
        release_results(out, plan->nout);
        return status;
    }
    return FL_OK;
}

fl_status fl_call_compute(const fl_plan *plan, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs,
                          bool as_ops)
{
    bool records = fl_record_wanted(plan->op, in, nin), parts = plan->runs && !plan->boxes && plan->out[0]->is_local;
    if (as_ops || (records && !parts)) return run_as_ops(plan, out, in, nin, attrs);
    if (!plan->runs) return make_empty(plan, out);
    FL_TRY(run_on_parts(plan, out, in, nin, attrs));
    bool recording = plan->out[0]->is_local ? fl_grad_enabled : fl_record_pause();
    fl_status status = FL_OK;
    for (int i = 0; i < plan->nout && status == FL_OK; i++) status = as_planned(&out[i], plan, i);
    fl_record_resume(recording);
    if (status != FL_OK) release_results(out, plan->nout);
    return status;
}

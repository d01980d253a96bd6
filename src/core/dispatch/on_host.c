/*
** on_host.c -- ops that the CPU computes for a device: their operands are copied to the CPU, their results back.
**
** The copies are ops as any other, in the order of their queues: nothing waits for the device here.
*/
#include "call.h"
#include "to_global.h"

#include <assert.h>

/* The tensor where `placement` is, in this SBP; the caller owns it. */
static fl_status moved_to(fl_tensor **out, fl_tensor *x, const fl_placement *placement, fl_nd_sbp nd_sbp)
{
    return x->meta->is_local ? fl_to_device(out, x, placement) : fl_to_global(out, x, placement, nd_sbp, NULL);
}

static fl_status to_host(fl_operand *out, const fl_operand *in)
{
    const fl_placement *cpu = fl_placement_local(FL_CPU, -1);
    *out = *in;
    if (in->kind != FL_TENSOR) return FL_OK;
    const fl_meta *meta = in->tensor->meta;
    if (!meta->is_local) FL_TRY(fl_placement_on_cpu(&cpu, meta->placement));
    return moved_to(&out->tensor, in->tensor, cpu, meta->nd_sbp);
}

static void release(fl_tensor **tensors, int count)
{
    for (int i = 0; i < count; i++) {
        fl_tensor_unref(tensors[i]);
        tensors[i] = NULL;
    }
}

/* results: those of the CPU. */
static fl_status move_back(const fl_plan *plan, fl_tensor **out, fl_tensor *const *results)
{
    for (int i = 0; i < plan->nout; i++) {
        const fl_meta *want = plan->out[i];
        fl_status status = moved_to(&out[i], results[i], want->placement, want->nd_sbp);
        if (status == FL_OK) continue;
        release(out, i);
        return status;
    }
    return FL_OK;
}

fl_status fl_call_on_host(const fl_plan *plan, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_operand operands[FL_CALL_OPERANDS] = {{0}};
    fl_tensor *results[FL_MAX_OUT] = {NULL};
    fl_status status = FL_OK;
    int count = 0;
    assert(nin <= FL_CALL_OPERANDS);
    while (count < nin && (status = to_host(&operands[count], &in[count])) == FL_OK) count++;
    if (status == FL_OK) status = fl_dispatch(results, plan->op, operands, nin, attrs);
    while (--count >= 0)
        if (operands[count].kind == FL_TENSOR) fl_tensor_unref(operands[count].tensor);
    FL_TRY(status);
    status = move_back(plan, out, results);
    release(results, plan->nout);
    return status;
}

/*
** cost.c -- flops and bytes of a call.
*/
#include "cost.h"

#include <stdlib.h>

void (*fl_cost_watch)(const fl_call *call);

static int64_t bytes_of(const fl_tensor *tensor)
{
    return tensor->meta->local_numel * (int64_t)fl_dtype_size(tensor->meta->dtype);
}

/* ---- flops ---- */

static int64_t elements_written(const fl_call *call)
{
    int64_t numel = 0;
    if (call->op->flags & FL_OP_FOLDS && call->nin && call->tensors[0]) return call->tensors[0]->meta->local_numel;
    for (int i = 0; i < call->nin; i++)
        if (call->tensors[i] && fl_call_writes(call, i)) numel += call->tensors[i]->meta->local_numel;
    for (int i = 0; numel == 0 && i < call->nout; i++) numel += call->out[i]->meta->local_numel;
    return numel;
}

static fl_status flops_of(int64_t *flops, const fl_call *call)
{
    fl_view stack[FL_CALL_OPERANDS], *views = stack;
    int count = call->nin + call->nout;
    *flops = call->op->flops ? 0 : elements_written(call);
    if (!call->op->flops || call->out[0]->meta->placement->my_index < 0) return FL_OK;
    if (count > FL_CALL_OPERANDS) views = malloc(sizeof *views * (size_t)count);
    if (!views) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", call->op->name, count);
    for (int i = 0; i < count; i++) {
        const fl_tensor *t = i < call->nin ? call->tensors[i] : call->out[i - call->nin];
        views[i] = (fl_view){0};
        if (t) fl_call_layout(&views[i], t);
    }
    fl_kernel kernel = {.op = call->op,
                        .name = call->op->name,
                        .row = call->op->row,
                        .variant = call->op->variant,
                        .attrs = call->attrs,
                        .in = views,
                        .out = views + call->nin,
                        .nin = call->nin,
                        .nout = call->nout};
    *flops = call->op->flops(&kernel);
    if (views != stack) free(views);
    return FL_OK;
}

/* ---- bytes ---- */

static bool is_again(const fl_call *call, int i)
{
    for (int j = 0; j < i; j++)
        if (call->tensors[j] == call->tensors[i]) return true;
    return false;
}

/* Of operand i: read, and written where the op does so. */
static int64_t operand_bytes(const fl_call *call, int i)
{
    const fl_tensor *t = call->tensors[i];
    int64_t bytes = bytes_of(t), picked = bytes_of(call->out[0]);
    bool writes = fl_call_writes(call, i), reads = i > 0 || !(call->op->flags & FL_OP_OVERWRITES);
    if (i < 32 && call->op->picks >> i & 1u && picked < bytes) bytes = picked;
    return bytes * (reads + writes);
}

static int64_t bytes_moved(const fl_call *call)
{
    int64_t bytes = 0;
    for (int i = 0; i < call->nin; i++)
        if (call->tensors[i] && !is_again(call, i)) bytes += operand_bytes(call, i);
    for (int i = 0; i < call->nout && !call->writes; i++) bytes += bytes_of(call->out[i]);
    return bytes;
}

fl_status fl_cost_of(fl_cost *out, const fl_call *call)
{
    out->dtype = call->out[0]->meta->dtype;
    for (int i = call->nin - 1; i >= 0; i--)
        if (call->tensors[i] && fl_dtype_is_float(call->tensors[i]->meta->dtype))
            out->dtype = call->tensors[i]->meta->dtype;
    out->bytes = bytes_moved(call);
    return flops_of(&out->flops, call);
}

/*
** planned.c -- ops of a planned script: stand-ins for data, and tensors that are made without memory.
*/
#include "planned.h"
#include "infer/infer.h"
#include "record.h"

#include <stdlib.h>
#include <string.h>

/* A call, with what it is given or what stands in for that. */
struct planned_call {
    const fl_op *op;
    const fl_operand *in;
    int nin;
    const fl_attrs *attrs;
    bool done;            /* the result is there */
    fl_operand *replaced; /* owned; NULL: the operands are those given */
    uint64_t stands_in;   /* operands made here, a bit each */
    fl_attrs attrs_there;
};

void fl_planned_look_on(bool on) { fl_dispatch_watch(FL_WATCH_PLAN, on); }

static bool is_meta(const fl_operand *operand)
{
    return operand->kind == FL_TENSOR && operand->tensor->meta->placement->type == FL_META;
}

static bool any_meta(const struct planned_call *call)
{
    for (int i = 0; i < call->nin; i++)
        if (is_meta(&call->in[i])) return true;
    return false;
}

/* A tensor on FL_META in the place of one with values. */
static fl_status stand_in(fl_tensor **out, const fl_op *op, const fl_tensor *tensor)
{
    char text[FL_META_TEXT];
    const fl_meta *there;
    if (fl_requires_grad(tensor))
        return fl_fail(FL_ERR_STATE,
                       "%s: %s has values and requires grad, the other operands have none while the script is planned; "
                       "make it with flow.empty, flow.zeros or flow.randn and {requires_grad = true}",
                       op->name, fl_meta_text(text, tensor->meta));
    FL_TRY(fl_meta_get(&there, tensor->meta->dtype, &tensor->meta->shape, fl_placement_local(FL_META, -1),
                       fl_nd_sbp_fill(FL_B, 1), true));
    fl_status status = fl_tensor_empty(out, there);
    fl_meta_unref(there);
    return status;
}

static fl_status replace_operands(struct planned_call *call)
{
    const fl_operand *given = call->in;
    call->replaced = malloc(sizeof *given * (size_t)call->nin);
    if (!call->replaced) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", call->op->name, call->nin);
    memcpy(call->replaced, given, sizeof *given * (size_t)call->nin);
    call->in = call->replaced;
    for (int i = 0; i < call->nin && i < 64; i++) {
        if (given[i].kind != FL_TENSOR || is_meta(&given[i])) continue;
        FL_TRY(stand_in(&call->replaced[i].tensor, call->op, given[i].tensor));
        call->stands_in |= (uint64_t)1 << i;
    }
    return FL_OK;
}

/* The result is local, on FL_META. */
static void place_on_meta(struct planned_call *call)
{
    fl_attrs *there = &call->attrs_there;
    memcpy(there, call->attrs, offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)call->attrs->count);
    there->is_local = there->has_placement = true;
    there->nd_sbp = fl_nd_sbp_fill(FL_B, 1);
    there->placement = fl_placement_local(FL_META, -1);
    call->attrs = there;
}

/* Floats that are filled or drawn have no memory; integers and conditions are positions, labels and masks: data. */
static fl_status look_at_source(struct planned_call *call)
{
    const fl_plan *plan;
    if (call->op->body) return FL_OK;
    FL_TRY(fl_infer_plan(&plan, call->op, call->in, call->nin, call->attrs, false));
    if (fl_dtype_is_float(plan->out[0]->dtype)) place_on_meta(call);
    return FL_OK;
}

static fl_status fail_target(const struct planned_call *call)
{
    char text[FL_META_TEXT];
    return fl_fail(FL_ERR_STATE,
                   "%s: x, %s, has values, and what is written to it has none while the script is planned; make x with "
                   "flow.empty_like, or leave this out",
                   call->op->name, fl_meta_text(text, call->in[0].tensor->meta));
}

static fl_status look(struct planned_call *call, fl_tensor **out, bool in_place)
{
    const fl_op *op = call->op;
    bool values = !any_meta(call), moves = op == FL_OP_REF(to_device);
    bool here = !call->attrs->has_placement || call->attrs->placement == fl_placement_local(FL_CPU, -1);
    if (values && (op->flags & FL_OP_SOURCE) && here) return look_at_source(call);
    if (values) return FL_OK;
    if (moves && here && call->in[0].tensor->meta->is_local) { /* there is nothing to copy to the CPU */
        call->done = true;
        *out = fl_tensor_ref(call->in[0].tensor);
        return FL_OK;
    }
    if ((in_place || op->mutates) && !is_meta(&call->in[0])) return fail_target(call);
    if (call->attrs->has_placement && here && !moves) place_on_meta(call);
    for (int i = 0; i < call->nin; i++)
        if (call->in[i].kind == FL_TENSOR && !is_meta(&call->in[i])) return replace_operands(call);
    return FL_OK;
}

static void release_operands(struct planned_call *call)
{
    for (int i = 0; i < call->nin && call->stands_in >> i; i++)
        if (call->stands_in >> i & 1) fl_tensor_unref(call->replaced[i].tensor);
    free(call->replaced);
}

fl_status fl_planned_dispatch(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                              bool in_place,
                              fl_status (*dispatch)(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin,
                                                    const fl_attrs *attrs))
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        attrs = &defaults;
    }
    struct planned_call call = {.op = op, .in = in, .nin = nin, .attrs = attrs};
    fl_status status = look(&call, out, in_place);
    if (status == FL_OK && !call.done) status = dispatch(out, op, call.in, nin, call.attrs);
    release_operands(&call);
    return status;
}

/*
** tracer.c -- ops that are traced: each runs on FL_META, and is reported to the tracer.
*/
#include "tracer.h"
#include "autocast.h"
#include "call.h"
#include "record.h"

#include <stddef.h>
#include <stdlib.h>

const fl_tracer *fl_tracer_now;
fl_draw_note *fl_draws_noted;

bool fl_trace_lacked_flat;

static bool flat;
static bool inside; /* an op runs: the ops that it dispatches are its own */
static bool opened; /* the op that runs is reported as the ops of its body */
static uint64_t draws;

void fl_trace(const fl_tracer *tracer, bool is_flat)
{
    fl_autocast_forget();
    fl_dispatch_watch(FL_WATCH_TRACE, tracer != NULL);
    fl_tracer_now = tracer;
    flat = is_flat;
    inside = opened = fl_trace_lacked_flat = false;
    draws = 0;
}

bool fl_trace_is_active(void) { return fl_tracer_now && !inside; }

bool fl_trace_may_differentiate(void)
{
    fl_trace_lacked_flat = fl_tracer_now && !flat;
    return !fl_trace_lacked_flat;
}

/* The gradient of dropout needs nothing of its body but the draw, which is known as that of the op. */
bool fl_trace_open(const fl_op *op, bool own_gradient)
{
    bool open = inside && flat && !own_gradient && op != FL_OP_REF(dropout);
    if (open) {
        opened = true;
        inside = false;
    }
    return open;
}

void fl_trace_close(bool was_opened)
{
    if (was_opened) inside = true;
}

fl_generator fl_trace_draw(void)
{
    if (!fl_tracer_now) return (fl_generator){0};
    return (fl_generator){FL_TRACED_SEED, ++draws};
}

/* The operands with stand-ins for those that have values. */
static fl_status replace_operands(fl_operand *to, const fl_operand *in, int nin)
{
    for (int i = 0; i < nin; i++) {
        to[i] = in[i];
        if (in[i].kind != FL_TENSOR || in[i].tensor->meta->placement->type == FL_META) continue;
        FL_TRY(fl_tracer_now->stand_in(&to[i].tensor, in[i].tensor));
    }
    return FL_OK;
}

/* The place of the result on the same ranks of FL_META. */
static fl_status replace_place(fl_attrs *to, const fl_attrs *attrs, const fl_op *op)
{
    const fl_placement *p = attrs->placement;
    memcpy(to, attrs, offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)attrs->count);
    if (!attrs->has_placement && !(op->flags & FL_OP_SOURCE)) return FL_OK;
    if (attrs->has_placement && p->type == FL_META) return FL_OK;
    if (!attrs->has_placement || attrs->is_local || op == FL_OP_REF(to_device)) {
        to->is_local = to->has_placement = true;
        to->nd_sbp = fl_nd_sbp_fill(FL_B, 1);
        to->placement = fl_placement_local(FL_META, -1);
        return FL_OK;
    }
    return fl_placement_get(&to->placement, FL_META, p->ranks, p->count, p->hierarchy, p->ndim);
}

static fl_status run(fl_tensor **out, fl_traced *call)
{
    fl_attrs there;
    fl_draw_note note = {.count = 0}, *before = fl_draws_noted;
    const fl_attrs *given = call->attrs;
    FL_TRY(replace_place(&there, given, call->op));
    bool outer = opened;
    fl_draws_noted = &note;
    inside = true;
    opened = false;
    fl_status status = call->in_place ? fl_dispatch_inplace(out, call->op, call->in, call->nin, &there)
                                      : fl_dispatch(out, call->op, call->in, call->nin, &there);
    fl_draws_noted = before;
    for (int i = 0; before && i < note.count; i++)
        if (before->count++ < FL_DRAWS_NOTED) before->at[before->count - 1] = note.at[i < FL_DRAWS_NOTED ? i : 0];
    call->draws = &note;
    call->out = out;
    bool reported = !opened;
    opened = outer;
    if (status == FL_OK && reported) {
        status = fl_tracer_now->called(call);
        for (int i = 0; status != FL_OK && i < call->nout; i++) {
            fl_tensor_unref(out[i]);
            out[i] = NULL;
        }
    }
    inside = false;
    return status;
}

fl_status fl_trace_call(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                        bool in_place)
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        attrs = &defaults;
    }
    fl_operand few[FL_CALL_OPERANDS], *operands = nin > FL_CALL_OPERANDS ? malloc(sizeof *in * (size_t)nin) : few;
    if (!operands) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", op->name, nin);
    fl_traced call = {.op = op, .in_place = in_place, .in = operands, .nin = nin, .attrs = attrs};
    call.nout = in_place ? 1 : op->nout;
    fl_status status = replace_operands(operands, in, nin);
    if (status == FL_OK) status = run(out, &call);
    if (operands != few) free(operands);
    return status;
}

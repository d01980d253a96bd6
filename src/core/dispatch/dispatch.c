/*
** dispatch.c -- the way of every op: plan, box, allocate, run or queue, record.
**
** The plan comes from the infer cache and touches no tensor. Conditions on strides, offsets or values are checked here,
** at every call. Ops run in run.c; deferred results are in chain.c.
*/
#include "record.h"
#include "autocast.h"
#include "call.h"
#include "cost.h"
#include "chain.h"
#include "dispatch.h"
#include "boxing/boxing.h"
#include "fault.h"
#include "listener.h"
#include "mapped.h"
#include "op/formula.h"
#include "op/outside.h"
#include "planned.h"
#include "tracer.h"
#include "infer/infer.h"
#include "ranks/comm.h"
#include "engine/engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- random numbers ---- */

fl_generator fl_dispatch_draw(const fl_meta *meta)
{
    bool values = meta->placement->type != FL_META;
    fl_generator drawn = values ? fl_random_draw(!meta->is_local && !fl_comm_refusal) : fl_trace_draw();
    if (FL_UNLIKELY(fl_listener_now != NULL) && values) fl_listener_now->drew(meta, &drawn);
    fl_draw_note *note = fl_draws_noted;
    if (FL_UNLIKELY(note != NULL) && note->count++ < FL_DRAWS_NOTED) note->at[note->count - 1] = drawn;
    return drawn;
}

void fl_dispatch_undraw(const fl_generator *before)
{
    *fl_generator_current() = *before;
    if (FL_UNLIKELY(fl_trace_is_active())) fl_tracer_now->undrew();
    if (FL_UNLIKELY(fl_listener_now != NULL)) fl_listener_now->undrew();
}

fl_status fl_call_without_kernel(const fl_call *call)
{
    if (call->op->flags & FL_OP_RANDOM) fl_dispatch_draw(call->out[0]->meta);
    if (FL_UNLIKELY(fl_cost_watch != NULL)) fl_cost_watch(call);
    return fl_listener_now ? fl_listener_now->passed(call) : FL_OK;
}

/* ---- outputs ---- */

static void release_outputs(fl_call *call, int count)
{
    for (int i = 0; i < count; i++) {
        fl_tensor_unref(call->out[i]);
        call->out[i] = NULL;
    }
}

static inline fl_status allocate_outputs(fl_call *call)
{
    for (int i = 0; i < call->nout; i++) {
        fl_status status = fl_tensor_empty(&call->out[i], call->plan->out[i]);
        if (FL_UNLIKELY(status != FL_OK)) {
            release_outputs(call, i);
            return status == FL_ERR_MEMORY ? fl_fail_prefix(status, "%s: ", call->op->name) : status;
        }
    }
    return FL_OK;
}

/* Tries to make out[0] a view of the input. */
static inline __attribute__((always_inline)) fl_status try_view(fl_call *call, bool *made)
{
    fl_tensor *base = call->tensors[0];
    fl_view_request v = {call->attrs, base, call->plan->out[0], {0}, 0, true};
    *made = false;
    call->op->view(&v);
    if (v.possible) {
        FL_TRY(fl_tensor_view(&call->out[0], base, v.out_meta, v.strides, base->offset + v.offset));
        call->out[0]->moved_view |= base != call->in[0].tensor;
        *made = true;
        return FL_OK;
    }
    if (!(call->op->flags & FL_OP_VIEW_ONLY)) return FL_OK;
    char from[FL_SHAPE_TEXT], strides[FL_SHAPE_TEXT], to[FL_SHAPE_TEXT];
    fl_shape as_shape = {base->meta->shape.ndim, {0}};
    memcpy(as_shape.dims, base->strides, sizeof as_shape.dims);
    return fl_fail(FL_ERR_SHAPE, "%s: %s with strides %s cannot be viewed as %s; use reshape", call->op->name,
                   fl_shape_text(from, &base->meta->shape), fl_shape_text(strides, &as_shape),
                   fl_shape_text(to, &v.out_meta->shape));
}

/* ---- inputs ---- */

fl_status fl_call_box(fl_call *call)
{
    for (int i = 0; i < call->nin; i++) {
        fl_tensor *t = call->in[i].kind == FL_TENSOR ? call->in[i].tensor : NULL;
        if (!t || t->meta == call->plan->in[i]) {
            call->tensors[i] = t;
            continue;
        }
        fl_status status = fl_boxing_apply_planned(&call->tensors[i], t, call->plan->in[i], call->plan->boxings[i]);
        if (status != FL_OK) {
            while (--i >= 0)
                if (call->in[i].kind == FL_TENSOR && call->tensors[i] != call->in[i].tensor)
                    fl_tensor_unref(call->tensors[i]);
            return fl_fail_prefix(status, "%s%s: ", call->op->name, call->target ? "_" : "");
        }
    }
    return FL_OK;
}

void fl_call_release_boxed(fl_call *call)
{
    for (int i = 0; i < call->nin; i++)
        if (call->in[i].kind == FL_TENSOR && call->tensors[i] != call->in[i].tensor) fl_tensor_unref(call->tensors[i]);
}

/* ---- dispatch ---- */

/* The result is computed later, if it is needed. */
static __attribute__((noinline)) bool defer(fl_call *call)
{
    int read = call->op->flags & FL_OP_RANDOM ? 0 : call->nin; /* draws do not depend on operands */
    fl_chain_call chained = {call->plan, call->attrs, call->in, call->tensors, read};
    call->out[0] = fl_chain_add(&chained);
    fl_engine_direct_ops += call->out[0] != NULL;
    return call->out[0] != NULL;
}

/* The result stays as it was allocated: the kernel, which does nothing, is called for the listener. */
static fl_status leave_unset(fl_call *call)
{
    call->out[0]->storage->var.unset = true;
    if (FL_UNLIKELY(!call->plan->runs)) return fl_call_without_kernel(call);
    if (FL_UNLIKELY(fl_listener_now != NULL)) return fl_call_run(call);
    fl_engine_direct_ops++;
    return FL_OK;
}

/* The results are allocated and computed, now or when they are needed. */
static inline __attribute__((always_inline)) fl_status compute(fl_call *call)
{
    if (FL_UNLIKELY(call->plan->defers) && defer(call)) return FL_OK;
    FL_TRY(allocate_outputs(call));
    fl_status status = FL_UNLIKELY(call->op->flags & FL_OP_UNSET) ? leave_unset(call)
        : FL_LIKELY(call->plan->runs)                             ? fl_call_run(call)
                                                                  : fl_call_without_kernel(call);
    if (FL_UNLIKELY(status != FL_OK)) release_outputs(call, call->nout);
    return status;
}

static inline fl_status record(fl_call *call)
{
    if (FL_LIKELY(!call->graded) || !fl_record_wanted(call->op, call->in, call->nin)) return FL_OK;
    fl_status status = fl_recorder_now->record(call->op, call->in, call->nin, call->attrs, call->out, call->nout);
    if (FL_UNLIKELY(status != FL_OK)) release_outputs(call, call->nout);
    return status;
}

/* out[0] was just made as a view of the input. */
static fl_status record_view(fl_call *call)
{
    const fl_tensor *view = call->out[0];
    fl_tensor *base = call->in[0].tensor;
    FL_TRY(record(call));
    if (!fl_dtype_is_float(view->meta->dtype) || call->plan->in[0] != base->meta) return FL_OK;
    fl_status status = fl_record_view(call->out[0], base, call->op, call->attrs);
    if (FL_UNLIKELY(status != FL_OK)) release_outputs(call, 1);
    return status;
}

/* A view of the input, or a copy where that cannot be viewed so. */
static __attribute__((noinline)) fl_status execute_view(fl_call *call)
{
    bool made;
    fl_status status = try_view(call, &made);
    if (status == FL_OK && !made) status = compute(call);
    else if (FL_UNLIKELY(fl_listener_now != NULL) && made && (status = fl_listener_now->passed(call)) != FL_OK)
        release_outputs(call, 1);
    if (call->plan->boxes) fl_call_release_boxed(call);
    FL_TRY(status);
    return made ? record_view(call) : record(call);
}

static inline __attribute__((always_inline)) fl_status execute(fl_call *call)
{
    if (FL_UNLIKELY(call->plan->boxes)) FL_TRY(fl_call_box(call));
    if (call->op->flags & FL_OP_VIEW) return execute_view(call);
    fl_status status = compute(call);
    if (FL_UNLIKELY(call->plan->boxes)) fl_call_release_boxed(call);
    FL_TRY(status);
    return record(call);
}

bool fl_call_intercepted(fl_status *status, fl_tensor **out, const fl_call *call, fl_tensor *target)
{
    const fl_plan *plan = call->plan;
    if (!target && fl_record_wanted(call->op, call->in, call->nin)) {
        *status = fl_recorder_now->ahead(call->op, call->in, call->nin, call->attrs);
        if (*status != FL_OK) return true;
    }
    return fl_fault_armed && fl_fault_op(status, out, plan->op->name, plan->out, plan->nout, target);
}

/* The operands as they are: none is boxed. */
static inline void take_tensors(fl_call *call)
{
    bool graded = false;
    for (int i = 0; i < call->nin; i++) {
        fl_tensor *t = call->tensors[i] = call->in[i].kind == FL_TENSOR ? call->in[i].tensor : NULL;
        if (t) graded |= t->requires_grad | (t->autograd != NULL);
    }
    call->graded = graded;
}

/* watched: some of those whose bits fl_dispatch_watched has look at the op here; dispatch_watched has asked the others.
** An operand that is boxed counts as graded. */
static inline __attribute__((always_inline)) fl_status dispatch(fl_tensor **out, const fl_op *op, const fl_operand *in,
                                                                int nin, const fl_attrs *attrs, bool watched)
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        attrs = &defaults;
    }
    FL_TRY(fl_op_check(op, in, nin, attrs));
    if (op->body) return fl_call_run_body(NULL, out, op, in, nin, attrs);
    fl_call c = {
        .op = op, .attrs = attrs, .in = in, .nin = nin, .nout = op->nout, .out = out, .writes = op->mutates != 0};
    FL_TRY(fl_infer_plan(&c.plan, op, in, nin, attrs, false));
    if (c.plan->body) {
        if (FL_UNLIKELY(op->compute && c.plan->history)) fl_call_note(&c, watched);
        return fl_call_run_body(c.plan, out, op, in, nin, attrs);
    }
    fl_call_note(&c, watched);
    fl_status status;
    if (watched && fl_call_intercepted(&status, out, &c, op->mutates ? in[0].tensor : NULL)) return status;
    fl_tensor *stack[FL_CALL_OPERANDS];
    c.tensors = stack;
    if (FL_UNLIKELY(nin > FL_CALL_OPERANDS)) {
        c.tensors = malloc(sizeof *c.tensors * (size_t)nin);
        if (!c.tensors) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", op->name, nin);
    }
    c.graded = c.plan->boxes;
    if (!c.plan->boxes) take_tensors(&c);
    status = op->mutates ? fl_call_run_mutating(out, &c) : execute(&c);
    if (c.tensors != stack) free(c.tensors);
    return status;
}

static __attribute__((noinline)) fl_status dispatch_looked_at(fl_tensor **out, const fl_op *op, const fl_operand *in,
                                                              int nin, const fl_attrs *attrs)
{
    return dispatch(out, op, in, nin, attrs, true);
}

static __attribute__((noinline)) fl_status dispatch_watched(fl_tensor **out, const fl_op *op, const fl_operand *in,
                                                            int nin, const fl_attrs *attrs)
{
    FL_TRY(fl_mapped_check(op, in, nin, false));
    if (fl_autocast_takes(op)) return fl_autocast_call(out, op, in, nin, attrs);
    if (fl_trace_is_active()) return fl_trace_call(out, op, in, nin, attrs, false);
    if (fl_dispatch_watched & FL_WATCH_PLAN)
        return fl_planned_dispatch(out, op, in, nin, attrs, false, dispatch_looked_at);
    if (fl_answerer_now) return fl_answerer_now->call(out, op, in, nin, attrs, false);
    return dispatch_looked_at(out, op, in, nin, attrs);
}

/* The op that is recorded for a formula on these operands: one with values for its gradients, or itself. */
static const fl_op *recorded_op(const fl_op *op, const fl_operand *in, int nin)
{
    const fl_op *saving = op->formula->saving;
    if (!saving || in[0].kind != FL_TENSOR || !fl_record_wanted(op, in, nin)) return op;
    const fl_meta *meta = in[0].tensor->meta;
    for (int i = 1; i < nin; i++)
        if (in[i].kind == FL_TENSOR && in[i].tensor->meta != meta) return op;
    return meta->dtype == FL_FLOAT32 || meta->dtype == FL_FLOAT64 ? saving : op;
}

static __attribute__((noinline)) fl_status dispatch_formula(fl_tensor **out, const fl_op *op, const fl_operand *in,
                                                            int nin, const fl_attrs *attrs)
{
    fl_tensor *results[FL_MAX_OUT] = {NULL};
    const fl_op *recorded = recorded_op(op, in, nin);
    FL_TRY(dispatch(results, recorded, in, nin, attrs, false));
    for (int i = op->nout; i < recorded->nout; i++) fl_tensor_unref(results[i]);
    out[0] = results[0];
    return FL_OK;
}

fl_status fl_dispatch(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (FL_UNLIKELY(fl_dispatch_watched)) return dispatch_watched(out, op, in, nin, attrs);
    if (FL_UNLIKELY(op->formula != NULL)) return dispatch_formula(out, op, in, nin, attrs);
    return dispatch(out, op, in, nin, attrs, false);
}

fl_status fl_dispatch_unrecorded(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin)
{
    bool recording = fl_record_pause();
    fl_status status = fl_dispatch(out, op, in, nin, NULL);
    fl_record_resume(recording);
    return status;
}

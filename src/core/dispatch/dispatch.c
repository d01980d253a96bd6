/*
** dispatch.c -- the way of every op: plan, box, allocate, run or queue, record.
**
** The plan comes from the infer cache and touches no tensor. What depends on strides, offsets or values
** is checked here, at every call. Running is the matter of run.c, results that wait that of chain.c.
*/
#include "record.h"
#include "call.h"
#include "chain.h"
#include "op/operand.h"
#include "dispatch.h"
#include "boxing/boxing.h"
#include "fault.h"
#include "listener.h"
#include "tracer.h"
#include "to_global.h"
#include "infer/infer.h"
#include "value/random.h"
#include "ranks/journal.h"
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
    if (FL_UNLIKELY(fl_trace_hears())) fl_tracer_now->undrew();
    if (FL_UNLIKELY(fl_listener_now != NULL)) fl_listener_now->undrew();
}

/* A rank without a part counts the op all the same: counters agree on all ranks. */
static fl_status skip_draw(const fl_call *call)
{
    if (call->op->flags & FL_OP_RANDOM) fl_dispatch_draw(call->out[0]->meta);
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

static fl_status allocate_outputs(fl_call *call)
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
static fl_status try_view(fl_call *call, bool *made)
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

/* Boxes the inputs whose SBP differs; what was boxed is owned by call->tensors. */
static fl_status box_inputs(fl_call *call)
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
                if (call->tensors[i] != call->in[i].tensor) fl_tensor_unref(call->tensors[i]);
            return fl_fail_prefix(status, "%s%s: ", call->op->name, call->target ? "_" : "");
        }
    }
    return FL_OK;
}

static void release_boxed(fl_call *call)
{
    for (int i = 0; i < call->nin; i++)
        if (call->in[i].kind == FL_TENSOR && call->tensors[i] != call->in[i].tensor) fl_tensor_unref(call->tensors[i]);
}

/* ---- bodies ---- */

static bool has_own_gradient(const fl_op *op) { return op->grad || op->vjp; }

/* An error inside a body is reported under the name of the op that the script called. */
static fl_status fail_in_body(const fl_op *op, fl_status status)
{
    const char *message = fl_message();
    size_t length = strspn(message, "abcdefghijklmnopqrstuvwxyz0123456789_");
    bool named = length && strncmp(message, op->name, length) == 0;
    if (named || (op->flags & FL_OP_HIDDEN) || status == FL_ERR_INTERRUPTED) return status;
    return fl_fail_prefix(status, "%s: ", op->name);
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
    fl_body body = plan->body;
    fl_status status = FL_OK;
    int count = 0;
    assert(nin <= FL_CALL_OPERANDS);
    while (count < nin && (status = operand_as(&boxed[count], &in[count], plan->in[count])) == FL_OK) count++;
    if (status == FL_OK) status = body(out, boxed, nin, attrs);
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

/* Runs an op written in other ops, for all SBPs or as its plan says. When the op has a gradient of its own, that one is
** recorded. */
static fl_status run_body(const fl_plan *plan, fl_tensor **out, const fl_op *op, const fl_operand *in, int nin,
                          const fl_attrs *attrs)
{
    bool enabled = fl_grad_enabled, own = has_own_gradient(op) || (op->compute && op->flags & FL_OP_NO_GRAD);
    if (own) fl_grad_enabled = false;
    bool opened = fl_trace_open(op, own);
    fl_status status;
    if (FL_UNLIKELY(op->compute != NULL)) status = fl_call_compute(plan, out, in, nin, attrs, opened);
    else
        status = plan && plan->boxes ? run_body_boxed(plan, out, in, nin, attrs)
                                     : (plan ? plan->body : op->body)(out, in, nin, attrs);
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

/* ---- dispatch ---- */

/* The result is computed later, if anybody needs it. */
static bool defer(fl_call *call)
{
    int read = call->op->flags & FL_OP_RANDOM ? 0 : call->nin; /* what is drawn does not depend on operands */
    fl_chain_call chained = {call->plan, call->attrs, call->in, call->tensors, read};
    call->out[0] = fl_chain_add(&chained);
    fl_engine_direct_ops += call->out[0] != NULL;
    return call->out[0] != NULL;
}

static fl_status execute(fl_call *call)
{
    bool made = false;
    if (call->plan->boxes) FL_TRY(box_inputs(call));
    fl_status status = FL_OK;
    if (call->op->flags & FL_OP_VIEW) status = try_view(call, &made);
    if (FL_UNLIKELY(fl_listener_now != NULL) && made) status = fl_listener_now->passed(call);
    if (status == FL_OK && !made && !(FL_UNLIKELY(call->plan->defers) && defer(call))) {
        status = allocate_outputs(call);
        if (status == FL_OK && call->plan->runs) {
            status = fl_call_run(call);
            if (FL_UNLIKELY(status != FL_OK)) release_outputs(call, call->nout);
        } else if (status == FL_OK) {
            status = skip_draw(call);
            if (FL_UNLIKELY(status != FL_OK)) release_outputs(call, call->nout);
        }
    }
    if (call->plan->boxes) release_boxed(call);
    if (FL_UNLIKELY(status != FL_OK && made)) release_outputs(call, 1);
    FL_TRY(status);
    if (FL_UNLIKELY(fl_record_wanted(call->op, call->in, call->nin)))
        status = fl_recorder_now->record(call->op, call->in, call->nin, call->attrs, call->out, call->nout);
    if (made && status == FL_OK && fl_dtype_is_float(call->out[0]->meta->dtype)
        && call->plan->in[0] == call->in[0].tensor->meta)
        status = fl_record_view(call->out[0], call->in[0].tensor, call->op, call->attrs);
    if (status != FL_OK) release_outputs(call, call->nout);
    return status;
}

static fl_status dispatch_mutating(fl_tensor **out, fl_call *call);

/* "sum of float32[8, 4] S(0)": an op is identified by its inputs, or else by its results. */
static void word_plan(char *buffer, const void *what)
{
    const fl_plan *plan = what;
    char shape[FL_SHAPE_TEXT], sbp[FL_ND_SBP_TEXT];
    const fl_meta *m = NULL;
    for (int i = 0; i < plan->nin && !m; i++) m = plan->in[i];
    if (!m && plan->nout) m = plan->out[0];
    snprintf(buffer, FL_PAST_WHAT, "%s", plan->op->name);
    size_t n = strlen(buffer);
    if (m)
        snprintf(buffer + n, FL_PAST_WHAT - n, " of %s%s %s", fl_dtype_name(m->dtype), fl_shape_text(shape, &m->shape),
                 fl_nd_sbp_text(sbp, m->nd_sbp));
}

uint64_t fl_call_hash_operands(const fl_plan *plan, const fl_operand *in)
{
    uint64_t h = 0;
    for (uint64_t left = plan->number_operands; left; left &= left - 1)
        h = fl_hash_mix(h, (uint64_t)in[__builtin_ctzll(left)].integer);
    return h;
}

uint64_t fl_call_hash_attrs(uint64_t hash, uint32_t numbers, const fl_attrs *attrs)
{
    for (uint32_t left = numbers; left; left &= left - 1) {
        const fl_attr *a = &attrs->at[__builtin_ctz(left)];
        int i = 0;
        if (!a->given) continue;
        do hash = fl_hash_mix(hash, (uint64_t)a->list[i]);
        while (++i < a->count);
    }
    return hash;
}

/* The numbers of a call, which the plan does not know. */
static uint64_t hash_numbers(const fl_call *call)
{
    return fl_call_hash_attrs(fl_call_hash_operands(call->plan, call->in), call->plan->numbers, call->attrs);
}

/* Apart, so that an op on local tensors saves no registers for it. */
static __attribute__((noinline)) void note_in_history(const fl_call *c)
{
    const fl_plan *plan = c->plan;
    if (FL_UNLIKELY(fl_comm_refusal != NULL)) return;
    fl_history_note(plan->history, plan->content, plan->number_operands | plan->numbers ? hash_numbers(c) : 0,
                    word_plan, plan);
}

/* What this rank does, for the others to see. */
static inline void note_in_journal(const fl_call *call)
{
    fl_journal *j = fl_journal_own;
    j->op = FL_JOURNAL_PLACE(call->op);
    j->ops++;
    if (call->plan->history) note_in_history(call);
}

/* Before an op runs that writes `target`, or NULL. True: it does not run, and *status is what becomes of it: an error,
** or what FLOW_FAULT makes (fl_fault_op). */
static bool stopped(fl_status *status, fl_tensor **out, const fl_call *call, fl_tensor *target)
{
    const fl_plan *plan = call->plan;
    if (!target && fl_record_wanted(call->op, call->in, call->nin)) {
        *status = fl_recorder_now->ahead(call->op, call->in, call->nin, call->attrs);
        if (*status != FL_OK) return true;
    }
    return fl_fault_armed && fl_fault_op(status, out, plan->op->name, plan->out, plan->nout, target);
}

/* watched: what fl_dispatch_watched is for. */
static inline __attribute__((always_inline)) fl_status dispatch(fl_tensor **out, const fl_op *op, const fl_operand *in,
                                                                int nin, const fl_attrs *attrs, bool watched)
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        attrs = &defaults;
    }
    if (op->check) FL_TRY(op->check(in, nin, attrs));
    if (op->body) return run_body(NULL, out, op, in, nin, attrs);
    fl_call c = {
        .op = op, .attrs = attrs, .in = in, .nin = nin, .nout = op->nout, .out = out, .writes = op->mutates != 0};
    FL_TRY(fl_infer_plan(&c.plan, op, in, nin, attrs, false));
    if (c.plan->body) {
        if (FL_UNLIKELY(op->compute && c.plan->history)) note_in_journal(&c);
        return run_body(c.plan, out, op, in, nin, attrs);
    }
    note_in_journal(&c);
    fl_status status;
    if (watched && stopped(&status, out, &c, op->mutates ? in[0].tensor : NULL)) return status;
    fl_tensor *stack[FL_CALL_OPERANDS];
    c.tensors = stack;
    if (FL_UNLIKELY(nin > FL_CALL_OPERANDS)) {
        c.tensors = malloc(sizeof *c.tensors * (size_t)nin);
        if (!c.tensors) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", op->name, nin);
    }
    if (!c.plan->boxes)
        for (int i = 0; i < nin; i++) c.tensors[i] = in[i].kind == FL_TENSOR ? in[i].tensor : NULL;
    status = op->mutates ? dispatch_mutating(out, &c) : execute(&c);
    if (c.tensors != stack) free(c.tensors);
    return status;
}

static __attribute__((noinline)) fl_status dispatch_watched(fl_tensor **out, const fl_op *op, const fl_operand *in,
                                                            int nin, const fl_attrs *attrs)
{
    if (fl_trace_hears()) return fl_trace_call(out, op, in, nin, attrs, false);
    if (fl_answerer_now) return fl_answerer_now->call(out, op, in, nin, attrs, false);
    return dispatch(out, op, in, nin, attrs, true);
}

fl_status fl_dispatch(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (FL_UNLIKELY(fl_dispatch_watched)) return dispatch_watched(out, op, in, nin, attrs);
    return dispatch(out, op, in, nin, attrs, false);
}

fl_status fl_dispatch_unrecorded(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin)
{
    bool recording = fl_record_pause();
    fl_status status = fl_dispatch(out, op, in, nin, NULL);
    fl_record_resume(recording);
    return status;
}

/* ---- writing into tensors ---- */

/* Two tensors of one storage that share bytes but not the same elements at the same positions. */
static bool overlaps_askew(const fl_tensor *a, const fl_tensor *b)
{
    if (a->meta->local_numel == 0 || b->meta->local_numel == 0) return false;
    if (a->offset == b->offset && a->meta == b->meta
        && memcmp(a->strides, b->strides, sizeof(int64_t) * (size_t)a->meta->shape.ndim) == 0)
        return false;
    int64_t lo_a = a->offset, hi_a = a->offset, lo_b = b->offset, hi_b = b->offset;
    for (int i = 0; i < a->meta->shape.ndim; i++) hi_a += (a->meta->window.size[i] - 1) * a->strides[i];
    for (int i = 0; i < b->meta->shape.ndim; i++) hi_b += (b->meta->window.size[i] - 1) * b->strides[i];
    return lo_a <= hi_b && lo_b <= hi_a;
}

/* Every stride steps over all that the axes of smaller strides reach: so it is in views of whole tensors, and not in
** expanded tensors, nor in memory of other libraries whose positions share elements. */
static bool is_nested_sorted(const int64_t *size, const int64_t *strides, int ndim)
{
    int order[FL_MAX_NDIM], count = 0; /* of axes, the smallest stride first */
    int64_t reach = 0;
    for (int i = 0; i < ndim; i++) {
        if (size[i] < 2) continue;
        int at = count++;
        for (; at > 0 && strides[order[at - 1]] > strides[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (int k = 0; k < count; k++) {
        if (strides[order[k]] <= reach) return false;
        reach += (size[order[k]] - 1) * strides[order[k]];
    }
    return true;
}

static bool is_nested(const fl_tensor *tensor)
{
    const int64_t *size = tensor->meta->window.size;
    int64_t reach = 0;
    for (int i = tensor->meta->shape.ndim - 1; i >= 0; i--) { /* most have the smallest last */
        if (size[i] < 2) continue;
        if (tensor->strides[i] <= reach) return is_nested_sorted(size, tensor->strides, tensor->meta->shape.ndim);
        reach += (size[i] - 1) * tensor->strides[i];
    }
    return true;
}

static bool is_expanded(const fl_tensor *tensor)
{
    for (int i = 0; i < tensor->meta->shape.ndim; i++)
        if (tensor->strides[i] == 0 && tensor->meta->window.size[i] > 1) return true;
    return false;
}

/* What shares elements would be written several times there. */
static fl_status check_target(const fl_op *op, const fl_tensor *target)
{
    if (FL_LIKELY(target->contiguous && !target->moved_view)) return FL_OK;
    const char *suffix = op->mutates ? "" : "_";
    if (!is_nested(target))
        return fl_fail(
            FL_ERR_STATE,
            "%s%s: this tensor %s (several positions share one element), so it cannot be written in place; use clone() "
            "first",
            op->name, suffix, is_expanded(target) ? "is expanded" : "has strides that overlap");
    if (target->moved_view)
        return fl_fail(FL_ERR_STATE,
                       "%s%s: this view of a split axis had to move data, so it is a copy; assign x[...] = v instead",
                       op->name, suffix);
    return FL_OK;
}

/* Replaces read operands that overlap the target askew by copies; owned by call->tensors then. */
static fl_status separate_operands(fl_call *call, const fl_tensor *target, bool *copied)
{
    for (int i = 1; i < call->nin; i++) {
        if (!call->tensors[i] || call->tensors[i]->storage != target->storage) continue;
        if (fl_call_writes(call, i) || !overlaps_askew(target, call->tensors[i])) continue;
        fl_tensor *copy;
        fl_status status = FL_CALL_UNRECORDED(&copy, clone, fl_of(call->tensors[i]));
        FL_TRY(status);
        if (call->tensors[i] != call->in[i].tensor) fl_tensor_unref(call->tensors[i]); /* boxed before */
        call->tensors[i] = copy;
        *copied = true;
    }
    return FL_OK;
}

/* Some operand has a place on the tape, so histories and rules of in-place writes matter. */
static bool on_the_tape(const fl_call *call)
{
    for (int i = 0; i < call->nin; i++)
        if (call->in[i].kind == FL_TENSOR && (call->in[i].tensor->requires_grad || call->in[i].tensor->autograd))
            return true;
    return false;
}

/* Boxes the inputs and runs. */
static fl_status run_writing(fl_call *call, const fl_tensor *target)
{
    if (call->plan->boxes) FL_TRY(box_inputs(call));
    bool copied = call->plan->boxes;
    fl_status status = call->op->groups ? FL_OK : separate_operands(call, target, &copied);
    if (status == FL_OK && call->plan->runs) status = fl_call_run(call);
    else if (status == FL_OK) {
        status = skip_draw(call);
        fl_call_note_writes(call, FL_OK); /* versions agree on all ranks */
    }
    if (copied) release_boxed(call);
    return status;
}

/* Checks, runs and records an op that writes operand 0 (and, with groups, many more). */
static fl_status write_into(fl_call *call, fl_tensor **out)
{
    fl_tensor *target = call->in[0].tensor;
    bool taped = !call->op->groups && on_the_tape(call);
    if (!call->op->groups) FL_TRY(check_target(call->op, target));
    fl_tensor *before = NULL;
    if (taped) FL_TRY(fl_recorder_now->check_inplace(&before, call->op, target, call->in, call->nin));
    fl_status status = run_writing(call, target);
    if (status == FL_OK && taped)
        status = fl_recorder_now->rewrite(call->op, target, before, call->in, call->nin, call->attrs);
    fl_tensor_unref(before);
    FL_TRY(status);
    if (call->op->nout) out[0] = fl_tensor_ref(target);
    return FL_OK;
}

static fl_status dispatch_mutating(fl_tensor **out, fl_call *call)
{
    fl_tensor *target = call->in[0].tensor;
    call->out = &target;
    return write_into(call, out);
}

static inline __attribute__((always_inline)) fl_status dispatch_inplace(fl_tensor **out, const fl_op *op,
                                                                        const fl_operand *in, int nin,
                                                                        const fl_attrs *attrs, bool watched)
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        attrs = &defaults;
    }
    if (in[0].kind != FL_TENSOR) return fl_fail(FL_ERR_VALUE, "%s_: the first operand must be a tensor", op->name);
    if (op->check) FL_TRY(op->check(in, nin, attrs));
    fl_call c = {.op = op, .attrs = attrs, .in = in, .nin = nin, .nout = 1, .target = in[0].tensor, .writes = true};
    FL_TRY(fl_infer_plan(&c.plan, op, in, nin, attrs, true));
    note_in_journal(&c);
    fl_status status;
    if (watched && stopped(&status, out, &c, in[0].tensor)) return status;
    fl_tensor *tensors[FL_CALL_OPERANDS];
    c.tensors = tensors;
    if (!c.plan->boxes)
        for (int i = 0; i < nin; i++) c.tensors[i] = in[i].kind == FL_TENSOR ? in[i].tensor : NULL;
    c.out = &c.target;
    return write_into(&c, out);
}

static __attribute__((noinline)) fl_status dispatch_inplace_watched(fl_tensor **out, const fl_op *op,
                                                                    const fl_operand *in, int nin,
                                                                    const fl_attrs *attrs)
{
    if (fl_trace_hears()) return fl_trace_call(out, op, in, nin, attrs, true);
    if (fl_answerer_now) return fl_answerer_now->call(out, op, in, nin, attrs, true);
    return dispatch_inplace(out, op, in, nin, attrs, true);
}

fl_status fl_dispatch_inplace(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (FL_UNLIKELY(fl_dispatch_watched)) return dispatch_inplace_watched(out, op, in, nin, attrs);
    return dispatch_inplace(out, op, in, nin, attrs, false);
}

/* ---- results in given tensors ---- */

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
    if (!is_nested(target))
        return fl_fail(FL_ERR_STATE, "%s: out %s (several positions share one element); give it memory with clone()",
                       op->name, is_expanded(target) ? "is expanded" : "has strides that overlap");
    return check_target(op, target);
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
        if (!elementwise || t->meta != target->meta || t->meta != call->plan->in[i] || overlaps_askew(target, t))
            return false;
    }
    return true;
}

/* True if the op's kernel may write the target itself: not a body, not a view, nothing that somebody listens to. */
static bool has_kernel_for(const fl_plan *plan)
{
    const fl_op *op = plan->op;
    return !plan->body && (plan->kernel || !plan->runs) && !(op->flags & (FL_OP_VIEW | FL_OP_RANDOM | FL_OP_SOURCE))
        && !fl_listener_now && !fl_dispatch_watched;
}

/* Runs the kernel with the target as its result. */
static fl_status run_into(fl_call *call, fl_tensor *target)
{
    fl_var *var = &target->storage->var;
    if (!call->plan->runs) return FL_OK;
    if (!call->plan->device && !fl_var_writable(var)) fl_engine_wait_idle(var);
    uint32_t version = var->version;
    fl_status status = fl_call_run(call);
    if (var->version == version) fl_var_bump(var);
    if (status != FL_OK && !var->poison) fl_var_poison(var, call->op->name);
    return status;
}

/* *done: the kernel has written the target. */
static fl_status dispatch_kernel_into(fl_call *call, fl_tensor *target, bool *done)
{
    *done = has_kernel_for(call->plan) && writes_apart(call, target);
    if (!*done) return FL_OK;
    note_in_journal(call);
    if (call->plan->boxes) FL_TRY(box_inputs(call));
    call->out = &target;
    fl_status status = run_into(call, target);
    if (call->plan->boxes) release_boxed(call);
    return status;
}

/* Of global tensors the parts are copied: whether one is depends on its strides, which are a rank's own affair. */
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
    if (!op->body && nin <= FL_CALL_OPERANDS) {
        fl_call c = {.op = op, .attrs = attrs, .in = in, .nin = nin, .nout = 1, .tensors = tensors};
        if (op->check) FL_TRY(op->check(in, nin, attrs));
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

/*
** inplace.c -- ops that write an operand: x:add_(y), and those that mutate their operands by nature.
*/
#include "answer.h"
#include "call.h"
#include "chain.h"
#include "engine/engine.h"
#include "mapped.h"
#include "planned.h"
#include "record.h"
#include "target.h"
#include "tracer.h"
#include "op/outside.h"
#include "op/registry.h"

#include <assert.h>
#include <string.h>

/* Replaces read operands that overlap the target askew by copies; owned by call->tensors then. */
static fl_status separate_operands(fl_call *call, const fl_tensor *target, bool *copied)
{
    for (int i = 1; i < call->nin; i++) {
        if (!call->tensors[i] || call->tensors[i]->storage != target->storage) continue;
        if (fl_call_writes(call, i) || !fl_overlaps_askew(target, call->tensors[i])) continue;
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

/* The source of write_by_body's copy, which has no other use, or NULL. */
static fl_tensor *last_copied;

static bool copies_the_last(const fl_call *call)
{
    return call->op->flags & FL_OP_OVERWRITES && call->nin == 2 && call->tensors[1] == last_copied;
}

/* The value is computed later, if it is needed. */
static bool defer_writing(fl_call *call, fl_tensor *target)
{
    fl_chain_call chained = {call->plan, call->attrs, call->in, call->tensors, call->nin};
    bool deferred = call->plan->defers ? fl_chain_write(&chained) : fl_chain_give(target, last_copied);
    if (!deferred) return false;
    fl_var_bump(&target->storage->var);
    fl_engine_direct_ops++;
    return true;
}

/* Boxes the inputs and runs. */
static fl_status run_writing(fl_call *call, fl_tensor *target)
{
    if (call->plan->boxes) FL_TRY(fl_call_box(call));
    bool copied = call->plan->boxes;
    bool in_part = (call->op->flags & FL_OP_OVERWRITES) && target->storage->var.unset && !fl_call_overwrites(call);
    fl_status status = call->op->groups ? FL_OK : separate_operands(call, target, &copied);
    bool waits = call->plan->defers || (FL_UNLIKELY(last_copied != NULL) && copies_the_last(call));
    if (status == FL_OK && call->plan->runs) status = waits && defer_writing(call, target) ? FL_OK : fl_call_run(call);
    else if (status == FL_OK) {
        status = fl_call_without_kernel(call);
        fl_call_note_writes(call, FL_OK); /* versions agree on all ranks */
    }
    if (FL_UNLIKELY(in_part)) target->storage->var.unset = true;
    if (copied) fl_call_release_boxed(call);
    return status;
}

/* Checks, runs and records an op that writes operand 0 (and, with groups, many more). */
static fl_status write_into(fl_call *call, fl_tensor **out)
{
    fl_tensor *target = call->in[0].tensor;
    bool taped = !call->op->groups && on_the_tape(call);
    if (!call->op->groups) FL_TRY(fl_target_check(call->op, target));
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

fl_status fl_call_run_mutating(fl_tensor **out, fl_call *call)
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
    FL_TRY(fl_op_check(op, in, nin, attrs));
    fl_call c = {.op = op, .attrs = attrs, .in = in, .nin = nin, .nout = 1, .target = in[0].tensor, .writes = true};
    FL_TRY(fl_infer_plan(&c.plan, op, in, nin, attrs, true));
    fl_call_note(&c, watched);
    fl_status status;
    if (watched && fl_call_intercepted(&status, out, &c, in[0].tensor)) return status;
    fl_tensor *tensors[FL_CALL_OPERANDS];
    c.tensors = tensors;
    if (!c.plan->boxes)
        for (int i = 0; i < nin; i++) c.tensors[i] = in[i].kind == FL_TENSOR ? in[i].tensor : NULL;
    c.out = &c.target;
    return write_into(&c, out);
}

static __attribute__((noinline)) fl_status dispatch_looked_at(fl_tensor **out, const fl_op *op, const fl_operand *in,
                                                              int nin, const fl_attrs *attrs)
{
    return dispatch_inplace(out, op, in, nin, attrs, true);
}

static __attribute__((noinline)) fl_status dispatch_inplace_watched(fl_tensor **out, const fl_op *op,
                                                                    const fl_operand *in, int nin,
                                                                    const fl_attrs *attrs)
{
    FL_TRY(fl_mapped_check(op, in, nin, true));
    if (fl_trace_is_active()) return fl_trace_call(out, op, in, nin, attrs, true);
    if (fl_dispatch_watched & FL_WATCH_PLAN)
        return fl_planned_dispatch(out, op, in, nin, attrs, true, dispatch_looked_at);
    if (fl_answerer_now) return fl_answerer_now->call(out, op, in, nin, attrs, true);
    return dispatch_looked_at(out, op, in, nin, attrs);
}

static fl_status fit_target(const fl_op *op, const fl_tensor *target, const fl_tensor *result)
{
    char text[FL_META_TEXT], shape[FL_SHAPE_TEXT];
    bool same_shape = fl_shape_equal(&target->meta->shape, &result->meta->shape);
    if (same_shape && fl_dtype_categories[result->meta->dtype] <= fl_dtype_categories[target->meta->dtype])
        return FL_OK;
    const char *name = fl_op_public_name(op);
    if (!same_shape)
        return fl_fail(FL_ERR_SHAPE, "%s_: x is %s and the result has shape %s; write x = x:%s(...)", name,
                       fl_meta_text(text, target->meta), fl_shape_text(shape, &result->meta->shape), name);
    return fl_fail(FL_ERR_DTYPE, "%s_: x is %s and the result is %s; write x = x:%s(...)", name,
                   fl_meta_text(text, target->meta), fl_dtype_name(result->meta->dtype), name);
}

/* The error of the copy, with the name of the op that was called: "add_" for "copy_". */
static fl_status fail_copy(const fl_op *op, fl_status status)
{
    static const char copy[] = "copy_: ";
    const char *message = fl_message();
    if (strncmp(message, copy, sizeof copy - 1) != 0) return status;
    return fl_fail(status, "%s_: %s", fl_op_public_name(op), message + sizeof copy - 1);
}

/* An op written in other ops: the result of its body is copied. Its gradient may need what the target was. */
static __attribute__((noinline)) fl_status write_by_body(fl_tensor **out, const fl_op *op, const fl_operand *in,
                                                         int nin, const fl_attrs *attrs)
{
    fl_tensor *result, *before = NULL;
    fl_operand read[FL_CALL_OPERANDS];
    if (in[0].kind != FL_TENSOR) return fl_fail(FL_ERR_VALUE, "%s_: the first operand must be a tensor", op->name);
    if (fl_record_wanted(op, in, nin)) {
        assert(nin <= FL_CALL_OPERANDS);
        FL_TRY(FL_CALL(&before, clone, in[0]));
        memcpy(read, in, sizeof *in * (size_t)nin);
        read[0] = fl_of(before);
    }
    fl_status status = fl_dispatch(&result, op, before ? read : in, nin, attrs);
    fl_tensor_unref(before);
    FL_TRY(status);
    status = fit_target(op, in[0].tensor, result);
    last_copied = result;
    if (status == FL_OK && (status = FL_CALL(out, copy_, in[0], fl_of(result))) != FL_OK)
        status = fail_copy(op, status);
    last_copied = NULL;
    fl_tensor_unref(result);
    return status;
}

fl_status fl_dispatch_inplace(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (FL_UNLIKELY(op->body != NULL)) return write_by_body(out, op, in, nin, attrs);
    if (FL_UNLIKELY(fl_dispatch_watched)) return dispatch_inplace_watched(out, op, in, nin, attrs);
    return dispatch_inplace(out, op, in, nin, attrs, false);
}

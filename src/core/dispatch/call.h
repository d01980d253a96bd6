/*
** call.h -- one call of an op on its way: shared by dispatch.c, inplace.c, into.c, body.c, note.c and run.c.
*/
#ifndef FL_CALL_H
#define FL_CALL_H

#include "dispatch.h"
#include "infer/infer.h"
#include "ranks/comm.h"
#include "ranks/journal.h"

enum { FL_CALL_OPERANDS = 12 }; /* for so many, arrays lie on the stack */

/* Everything one call works with. `tensors` are the inputs after boxing. */
typedef struct fl_call {
    const fl_op *op;
    const fl_plan *plan;
    const fl_attrs *attrs;
    const fl_operand *in;
    int nin, nout;
    fl_tensor **tensors; /* nin entries: owned when boxed, else borrowed; NULL for numbers */
    fl_tensor **out;
    fl_tensor *target; /* in place: operand 0 */
    bool writes;       /* in place, or an op that mutates operands */
    bool graded;       /* an operand may have a gradient */
} fl_call;

/* The tensor as a kernel sees it, all but the data. */
static inline void fl_call_layout(fl_view *view, const fl_tensor *tensor)
{
    const fl_meta *meta = tensor->meta;
    view->dtype = meta->dtype;
    view->ndim = meta->shape.ndim;
    view->contiguous = tensor->contiguous;
    view->size = meta->window.size;
    view->stride = tensor->strides;
    view->start = meta->window.start;
    view->logical = meta->shape.dims;
    view->numel = meta->local_numel;
}

/* True if the op writes operand i. */
bool fl_call_writes(const fl_call *call, int i);

/* Runs the kernel, or queues it; the outputs are allocated. With the plan's bare loop where that serves. */
fl_status fl_call_run_kernel(const fl_call *call);
fl_status fl_call_run_flat(const fl_call *call);
static inline fl_status fl_call_run(const fl_call *call)
{
    return call->plan->flat ? fl_call_run_flat(call) : fl_call_run_kernel(call);
}

/* The same with a tensor as the result that is there. */
fl_status fl_call_run_into(fl_call *call, fl_tensor *target);

/* The numbers of the call that its plan does not know, for the rank's history: number operands, then attributes. */
uint64_t fl_call_hash_operands(const fl_plan *plan, const fl_operand *in);
uint64_t fl_call_hash_attrs(uint64_t hash, uint32_t numbers, const fl_attrs *attrs);

/* True if the op replaces all bytes of its target's storage by values from elsewhere. */
bool fl_call_overwrites(const fl_call *call);

/* After a kernel that ran on the caller: versions of what it wrote, and poison when it failed half way. */
void fl_call_note_writes(const fl_call *call, fl_status status);

/* dispatch.c: boxes the inputs whose SBP differs; the boxed tensors are owned by call->tensors. */
fl_status fl_call_box(fl_call *call);
void fl_call_release_boxed(fl_call *call);

/* A rank without a part counts the op all the same: it draws the op's random number, so that counters agree on all
** ranks, and is reported to the listener. */
fl_status fl_call_without_kernel(const fl_call *call);

/* Before an op runs that writes `target`, or NULL. True: it does not run, and *status is what becomes of it: an error,
** or what FLOW_FAULT makes (fl_fault_op). */
bool fl_call_intercepted(fl_status *status, fl_tensor **out, const fl_call *call, fl_tensor *target);

/* inplace.c: an op that mutates operand 0, or several. */
fl_status fl_call_run_mutating(fl_tensor **out, fl_call *call);

/* body.c: runs an op written in other ops, for all SBPs or as its plan says. When the op has a gradient of its own,
** that one is recorded. */
fl_status fl_call_run_body(const fl_plan *plan, fl_tensor **out, const fl_op *op, const fl_operand *in, int nin,
                           const fl_attrs *attrs);

/* note.c: a hash of all numbers of the call. Words the plan, for the rank's history. */
uint64_t fl_call_hash_numbers(const fl_call *call);
void fl_call_word_plan(char *buffer, const void *plan);

/* Notes the call in this rank's journal, which the other ranks read. watched: as for fl_dispatch_watched. */
static inline void fl_call_note(const fl_call *call, bool watched)
{
    const fl_plan *plan = call->plan;
    fl_journal *j = fl_journal_own;
    j->op = plan->place;
    j->ops++;
    if (!plan->history || (watched && fl_comm_refusal)) return;
    uint64_t numbers = 0;
    if (plan->number >= 0)
        numbers = plan->number < FL_PLAN_NUMBERS ? fl_hash_mix(0, (uint64_t)call->in[plan->number].integer)
                                                 : fl_call_hash_numbers(call);
    fl_history_note(plan->history, plan->content, numbers, fl_call_word_plan, plan);
}

/* Runs an op written by the host (op->compute) on this rank's parts of the operands, boxed as planned, and makes of its
** results those of the plan. as_ops: only the ops that it calls are noted. */
fl_status fl_call_compute(const fl_plan *plan, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs,
                          bool as_ops);

/* on_host.c: runs an op that only the CPU has a kernel for on a device's operands: they are copied there, and the
** results back to where the plan has them. */
fl_status fl_call_on_host(const fl_plan *plan, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs);

#endif

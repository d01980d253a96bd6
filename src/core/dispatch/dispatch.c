/*
** dispatch.c -- the way of every op: plan, box, allocate, run or queue, record.
**
** The plan comes from the infer cache and touches no tensor. What depends on strides, offsets or values
** is checked here, at every call. When everything an op needs is complete its kernel runs on the
** caller at once; otherwise a packed copy of the call goes into the engine's CPU lane.
*/
#include "record.h"
#include "chain.h"
#include "op/operand.h"
#include "dispatch.h"
#include "boxing/boxing.h"
#include "fault.h"
#include "to_global.h"
#include "infer/infer.h"
#include "value/random.h"
#include "ranks/journal.h"
#include "ranks/comm.h"
#include "engine/engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { STACK_OPERANDS = 12 };

static const int64_t zeros[FL_MAX_NDIM];

/* Everything one call works with. `tensors` are the inputs after boxing. */
struct call {
    const fl_op *op;
    const fl_plan *plan;
    const fl_attrs *attrs;
    const fl_operand *in;
    int nin, nout;
    fl_tensor **tensors; /* nin entries: owned when boxed, else borrowed; NULL for numbers */
    fl_tensor **out;
    fl_tensor *target; /* in place: operand 0 */
    bool writes;       /* in place, or an op that mutates operands */
};

/* ---- operands as kernels see them ---- */

/* All but the data. */
static inline void layout_of(fl_view *view, const fl_tensor *tensor)
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

static inline void view_of(fl_view *view, const fl_tensor *tensor)
{
    view->data = fl_tensor_data(tensor);
    layout_of(view, tensor);
}

static void fill_views(fl_view *in, fl_view *out, const struct call *call)
{
    for (int i = 0; i < call->nin; i++) {
        if (call->tensors[i]) view_of(&in[i], call->tensors[i]);
        else if (call->in[i].kind == FL_NONE) memset(&in[i], 0, sizeof in[i]);
        else fl_view_of_number(&in[i], &call->in[i], call->plan->number_dtype);
    }
    if (call->target) out[0] = in[0];
    else
        for (int i = 0; i < call->nout; i++) view_of(&out[i], call->out[i]);
}

/* ---- which operands an op writes ---- */

static bool operand_mutated(const fl_op *op, int i, int nin)
{
    if (!op->mutates) return false;
    int group = op->groups ? i / (nin / op->groups) : i;
    return group < 32 && (op->mutates >> group & 1u);
}

static bool writes_operand(const struct call *call, int i)
{
    return (call->target && i == 0) || operand_mutated(call->op, i, call->nin);
}

/* ---- running ---- */

static bool ready_to_run(const struct call *call)
{
    if (FL_UNLIKELY(!fl_engine_direct)) return false;
    for (int i = 0; i < call->nin; i++) {
        if (!call->tensors[i]) continue;
        fl_var *v = &call->tensors[i]->storage->var;
        bool ready = call->writes && writes_operand(call, i) ? fl_var_writable(v) : fl_var_readable(v);
        if (FL_UNLIKELY(!ready)) {
            if (!fl_var_settle(v) || v->poison) return false;
        }
    }
    return true;
}

/* After a kernel that ran on the caller: versions, and poison when it failed half way. */
static void note_writes(const struct call *call, fl_status status)
{
    for (int i = 0; i < call->nin; i++) {
        if (!call->tensors[i] || !writes_operand(call, i)) continue;
        fl_var_bump(&call->tensors[i]->storage->var);
        if (status != FL_OK) fl_var_poison(&call->tensors[i]->storage->var, call->op->name);
    }
}

/* A call packed for a lane: one block with copies of the views, attributes, shapes and strides. Pointers into the
** block are kept as offsets from its start, because the lane keeps a copy of its own. */
struct packed {
    fl_kernel kernel;
    fl_kernel_fn run;
    fl_attrs *attrs;
};

static fl_status packed_run(void *payload)
{
    char *base = payload;
    struct packed *p = payload;
    fl_kernel k = p->kernel;
    k.in = (fl_view *)(base + (uintptr_t)k.in);
    k.out = (fl_view *)(base + (uintptr_t)k.out);
    k.attrs = (const fl_attrs *)(base + (uintptr_t)p->attrs);
    for (int i = 0; i < k.nin + k.nout; i++) {
        fl_view *v = i < k.nin ? &k.in[i] : &k.out[i - k.nin];
        v->size = (const int64_t *)(base + (uintptr_t)v->size);
        v->stride = (const int64_t *)(base + (uintptr_t)v->stride);
        v->start = (const int64_t *)(base + (uintptr_t)v->start);
        v->logical = (const int64_t *)(base + (uintptr_t)v->logical);
        if (v->data == &zeros) v->data = v->scalar;
    }
    return p->run(&k);
}

/* Copies a view's arrays to `at` (an offset in base) and replaces its pointers by offsets. */
static size_t pack_view(char *base, size_t at, fl_view *view)
{
    const int64_t **arrays[4] = {&view->size, &view->stride, &view->start, &view->logical};
    if (view->data == view->scalar) view->data = (void *)&zeros; /* a mark: the number travels in the view */
    for (int j = 0; j < 4; j++) {
        size_t bytes = (size_t)view->ndim * sizeof(int64_t);
        if (bytes) memcpy(base + at, *arrays[j], bytes);
        *arrays[j] = (const int64_t *)(uintptr_t)at;
        at += bytes;
    }
    return at;
}

static size_t packed_size(const fl_kernel *kernel)
{
    size_t size = sizeof(struct packed) + sizeof(fl_view) * (size_t)(kernel->nin + kernel->nout);
    size += offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)kernel->attrs->count;
    for (int i = 0; i < kernel->nin; i++) size += 4 * sizeof(int64_t) * (size_t)kernel->in[i].ndim;
    for (int i = 0; i < kernel->nout; i++) size += 4 * sizeof(int64_t) * (size_t)kernel->out[i].ndim;
    return size;
}

static void pack(char *base, const fl_kernel *kernel, fl_kernel_fn run)
{
    struct packed *p = (struct packed *)base;
    size_t at = sizeof *p;
    p->kernel = *kernel;
    p->run = run;
    p->kernel.in = (fl_view *)(uintptr_t)at;
    fl_view *views = (fl_view *)(base + at);
    /* a number's data pointer must be recognised before the view moves */
    for (int i = 0; i < kernel->nin; i++)
        if (kernel->in[i].data == kernel->in[i].scalar) kernel->in[i].data = (void *)&zeros;
    memcpy(views, kernel->in, sizeof(fl_view) * (size_t)kernel->nin);
    memcpy(views + kernel->nin, kernel->out, sizeof(fl_view) * (size_t)kernel->nout);
    at += sizeof(fl_view) * (size_t)kernel->nin;
    p->kernel.out = (fl_view *)(uintptr_t)at;
    at += sizeof(fl_view) * (size_t)kernel->nout;
    p->attrs = (fl_attrs *)(uintptr_t)at;
    size_t attr_bytes = offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)kernel->attrs->count;
    memcpy(base + at, kernel->attrs, attr_bytes);
    at += attr_bytes;
    for (int i = 0; i < kernel->nin + kernel->nout; i++) at = pack_view(base, at, &views[i]);
}

/* Adds var to list unless it is there. */
static void add_var(fl_var **list, int *count, fl_var *var)
{
    for (int i = 0; i < *count; i++)
        if (list[i] == var) return;
    list[(*count)++] = var;
}

static void collect_vars(const struct call *call, fl_var **reads, int *read_count, fl_var **writes, int *write_count)
{
    *read_count = *write_count = 0;
    for (int i = 0; i < call->nout; i++) add_var(writes, write_count, &call->out[i]->storage->var);
    for (int i = 0; i < call->nin; i++)
        if (call->tensors[i] && writes_operand(call, i)) add_var(writes, write_count, &call->tensors[i]->storage->var);
    for (int i = 0; i < call->nin; i++) {
        if (!call->tensors[i] || writes_operand(call, i)) continue;
        fl_var *v = &call->tensors[i]->storage->var;
        bool written = false;
        for (int j = 0; j < *write_count; j++) written |= writes[j] == v;
        if (!written) add_var(reads, read_count, v);
    }
}

/* True if the op replaces all bytes of its target's storage by values from elsewhere. */
static bool overwrites(const struct call *call)
{
    if (!(call->op->flags & FL_OP_OVERWRITES)) return false;
    const fl_tensor *t = call->tensors[0];
    for (int i = 1; i < call->nin; i++)
        if (call->tensors[i] && call->tensors[i]->storage == t->storage) return false;
    return t->contiguous && (size_t)t->meta->local_numel * fl_dtype_size(t->meta->dtype) == t->storage->bytes;
}

static fl_status push_kernel(const struct call *call, fl_kernel *kernel)
{
    size_t size = (packed_size(kernel) + 7) & ~(size_t)7;
    size_t operands = (size_t)(call->nin + call->nout);
    char *block = malloc(size + 2 * operands * sizeof(fl_var *));
    if (!block) return fl_fail(FL_ERR_MEMORY, "%s: out of memory while queueing", call->op->name);
    fl_var **reads = (fl_var **)(block + size), **writes = reads + operands;
    pack(block, kernel, call->plan->kernel);
    fl_task task = {.name = call->op->name,
                    .run = packed_run,
                    .payload = block,
                    .payload_size = size,
                    .reads = reads,
                    .writes = writes,
                    .lane = FL_LANE_CPU,
                    .flags = FL_TASK_CHEAP};
    collect_vars(call, reads, &task.read_count, writes, &task.write_count);
    if (call->writes) task.flags |= FL_TASK_UPDATES;
    if (overwrites(call)) task.flags |= FL_TASK_OVERWRITES;
    fl_status status = fl_engine_push(&task);
    free(block);
    return status;
}

/* ---- on a device ---- */

struct issued {
    const fl_plan *plan;
    fl_kernel *kernel;
};

static fl_status issue_run(void *payload)
{
    const struct issued *i = payload;
    FL_TRY(i->plan->device->enter(i->plan->device_index, FL_QUEUE_COMPUTE));
    return i->plan->kernel(i->kernel);
}

/* The kernel's launches go into the device's queue now; they run when what they read is there. */
static fl_status issue_kernel(const struct call *call, fl_kernel *kernel)
{
    fl_var *stack[2 * STACK_OPERANDS], **reads = stack;
    size_t operands = (size_t)(call->nin + call->nout);
    if (!call->plan->kernel)
        return fl_fail(FL_ERR_MISSING, "%s: it has no %s kernel; move the operands to the CPU: x:to(\"cpu\")",
                       call->op->name, call->plan->device->name);
    if (operands > STACK_OPERANDS) reads = malloc(2 * operands * sizeof *reads);
    if (!reads) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %zu operands", call->op->name, operands);
    struct issued payload = {call->plan, kernel};
    fl_task task = {.name = call->op->name,
                    .run = issue_run,
                    .payload = &payload,
                    .payload_size = sizeof payload,
                    .reads = reads,
                    .writes = reads + operands,
                    .lane = call->plan->lane,
                    .flags = call->writes ? FL_TASK_UPDATES : 0};
    collect_vars(call, reads, &task.read_count, reads + operands, &task.write_count);
    if (overwrites(call)) task.flags |= FL_TASK_OVERWRITES;
    fl_status status = fl_engine_push(&task);
    if (reads != stack) free(reads);
    return status;
}

/* ---- on the CPU ---- */

/* Runs the plan's bare loop when the operands are ready and contiguous; false: the kernel must see to it. */
static bool run_flat(const struct call *call)
{
    const void *in[FL_FLAT_MAX_IN];
    const fl_tensor *out = call->out[0];
    if (FL_UNLIKELY(!fl_engine_direct || !out->contiguous)) return false;
    for (int i = 0; i < call->nin; i++) {
        const fl_tensor *t = call->tensors[i];
        const fl_var *v = &t->storage->var;
        if (!t->contiguous || !(call->writes && i == 0 ? fl_var_writable(v) : fl_var_readable(v))) return false;
        in[i] = fl_tensor_ready_data(t);
    }
    call->plan->flat(fl_tensor_ready_data(out), in, out->meta->local_numel, NULL);
    if (call->writes) fl_var_bump(&call->out[0]->storage->var);
    fl_engine_direct_ops++;
    return true;
}

fl_generator fl_dispatch_draw(const fl_meta *meta) { return fl_random_draw(!meta->is_local && !fl_comm_refusal); }

/* A reduction of a deferred operand, whose elements need no memory then. */
static fl_status run_fold(const struct call *call)
{
    fl_view in = {0}, out;
    fl_kernel kernel = {call->op, call->op->name, call->op->row, call->attrs, &in, &out, 1, 1, 0, 0, NULL};
    layout_of(&in, call->tensors[0]);
    view_of(&out, call->out[0]);
    fl_engine_direct_ops++;
    return fl_chain_fold(call->tensors[0], &kernel, call->plan->kernel);
}

static bool can_fold(const struct call *call)
{
    return fl_chain_has(call->tensors[0]) && fl_var_writable(&call->out[0]->storage->var);
}

/* Flat loops first: no reduction has one. */
static fl_status run_kernel(const struct call *call)
{
    if (call->plan->flat && FL_LIKELY(run_flat(call))) return FL_OK;
    if (FL_UNLIKELY(call->plan->folds) && can_fold(call)) return run_fold(call);
    fl_view stack[STACK_OPERANDS], *views = stack;
    int count = call->nin + call->nout;
    if (FL_UNLIKELY(count > STACK_OPERANDS)) {
        views = malloc(sizeof *views * (size_t)count);
        if (!views) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", call->op->name, count);
    }
    fl_kernel k = {
        call->op, call->op->name, call->op->row, call->attrs, views, views + call->nin, call->nin, call->nout, 0, 0,
        NULL};
    fill_views(k.in, k.out, call);
    if (call->op->flags & FL_OP_RANDOM) {
        fl_generator g = fl_dispatch_draw(call->out[0]->meta);
        k.seed = g.seed;
        k.counter = g.counter;
    }
    fl_status status;
    if (FL_UNLIKELY(call->plan->device != NULL)) status = issue_kernel(call, &k);
    else if (FL_LIKELY(ready_to_run(call))) {
        status = call->plan->kernel(&k);
        if (call->writes) note_writes(call, status);
        fl_engine_direct_ops++;
    } else status = push_kernel(call, &k);
    if (views != stack) free(views);
    return status;
}

/* A rank without a part counts the op all the same: counters agree on all ranks. */
static void skip_draw(const struct call *call)
{
    if (call->op->flags & FL_OP_RANDOM) fl_dispatch_draw(call->out[0]->meta);
}

/* ---- outputs ---- */

static void release_outputs(struct call *call, int count)
{
    for (int i = 0; i < count; i++) {
        fl_tensor_unref(call->out[i]);
        call->out[i] = NULL;
    }
}

static fl_status allocate_outputs(struct call *call)
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
static fl_status try_view(struct call *call, bool *made)
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
static fl_status box_inputs(struct call *call)
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

static void release_boxed(struct call *call)
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
    fl_operand boxed[STACK_OPERANDS] = {{0}};
    fl_body body = plan->body;
    fl_status status = FL_OK;
    int count = 0;
    assert(nin <= STACK_OPERANDS);
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
    bool enabled = fl_grad_enabled, own = has_own_gradient(op);
    if (own) fl_grad_enabled = false;
    fl_status status = plan && plan->boxes ? run_body_boxed(plan, out, in, nin, attrs)
                                           : (plan ? plan->body : op->body)(out, in, nin, attrs);
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
static bool defer(struct call *call)
{
    int read = call->op->flags & FL_OP_RANDOM ? 0 : call->nin; /* what is drawn does not depend on operands */
    fl_chain_call chained = {call->plan, call->attrs, call->in, call->tensors, read};
    call->out[0] = fl_chain_add(&chained);
    fl_engine_direct_ops += call->out[0] != NULL;
    return call->out[0] != NULL;
}

static fl_status execute(struct call *call)
{
    bool made = false;
    if (call->plan->boxes) FL_TRY(box_inputs(call));
    fl_status status = FL_OK;
    if (call->op->flags & FL_OP_VIEW) status = try_view(call, &made);
    if (status == FL_OK && !made && !(FL_UNLIKELY(call->plan->defers) && defer(call))) {
        status = allocate_outputs(call);
        if (status == FL_OK && call->plan->holds) {
            status = run_kernel(call);
            if (FL_UNLIKELY(status != FL_OK)) release_outputs(call, call->nout);
        } else if (status == FL_OK) skip_draw(call);
    }
    if (call->plan->boxes) release_boxed(call);
    FL_TRY(status);
    if (FL_UNLIKELY(fl_record_wanted(call->op, call->in, call->nin)))
        status = fl_recorder_now->record(call->op, call->in, call->nin, call->attrs, call->out, call->nout);
    if (made && status == FL_OK && fl_dtype_is_float(call->out[0]->meta->dtype)
        && call->plan->in[0] == call->in[0].tensor->meta)
        status = fl_record_view(call->out[0], call->in[0].tensor, call->op, call->attrs);
    if (status != FL_OK) release_outputs(call, call->nout);
    return status;
}

static fl_status dispatch_mutating(fl_tensor **out, struct call *call);

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

/* The numbers of a call, which the plan does not know. */
static uint64_t hash_numbers(const struct call *call)
{
    const fl_plan *plan = call->plan;
    uint64_t h = 0;
    for (uint64_t left = plan->number_operands; left; left &= left - 1)
        h = fl_hash_mix(h, (uint64_t)call->in[__builtin_ctzll(left)].integer);
    for (uint32_t left = plan->numbers; left; left &= left - 1) {
        const fl_attr *a = &call->attrs->at[__builtin_ctz(left)];
        int i = 0;
        if (!a->given) continue;
        do h = fl_hash_mix(h, (uint64_t)a->list[i]);
        while (++i < a->count);
    }
    return h;
}

/* Apart, so that an op on local tensors saves no registers for it. */
static __attribute__((noinline)) void note_in_history(const struct call *c)
{
    const fl_plan *plan = c->plan;
    if (FL_UNLIKELY(fl_comm_refusal != NULL)) return;
    fl_history_note(plan->history, plan->content, plan->number_operands | plan->numbers ? hash_numbers(c) : 0,
                    word_plan, plan);
}

/* What this rank does, for the others to see. */
static inline void note_in_journal(const struct call *call)
{
    fl_journal *j = fl_journal_own;
    j->op = FL_JOURNAL_PLACE(call->op);
    j->ops++;
    if (call->plan->history) note_in_history(call);
}

/* FLOW_FAULT: see fl_fault_op. */
static bool fault_op(fl_status *status, fl_tensor **out, const fl_plan *plan, fl_tensor *target)
{
    return fl_fault_op(status, out, plan->op->name, plan->out, plan->nout, target);
}

fl_status fl_dispatch(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        attrs = &defaults;
    }
    if (op->check) FL_TRY(op->check(in, nin, attrs));
    if (op->body) return run_body(NULL, out, op, in, nin, attrs);
    struct call c = {
        .op = op, .attrs = attrs, .in = in, .nin = nin, .nout = op->nout, .out = out, .writes = op->mutates != 0};
    FL_TRY(fl_infer_plan(&c.plan, op, in, nin, attrs, false));
    if (c.plan->body) return run_body(c.plan, out, op, in, nin, attrs);
    note_in_journal(&c);
    fl_status status;
    if (FL_UNLIKELY(fl_fault_armed) && fault_op(&status, out, c.plan, op->mutates ? in[0].tensor : NULL)) return status;
    fl_tensor *stack[STACK_OPERANDS];
    c.tensors = stack;
    if (FL_UNLIKELY(nin > STACK_OPERANDS)) {
        c.tensors = malloc(sizeof *c.tensors * (size_t)nin);
        if (!c.tensors) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", op->name, nin);
    }
    if (!c.plan->boxes)
        for (int i = 0; i < nin; i++) c.tensors[i] = in[i].kind == FL_TENSOR ? in[i].tensor : NULL;
    status = op->mutates ? dispatch_mutating(out, &c) : execute(&c);
    if (c.tensors != stack) free(c.tensors);
    return status;
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

/* An expanded tensor has several elements at one place. */
static fl_status check_target(const fl_op *op, const fl_tensor *target)
{
    if (FL_LIKELY(target->contiguous && !target->moved_view)) return FL_OK;
    const char *suffix = op->mutates ? "" : "_";
    for (int i = 0; i < target->meta->shape.ndim; i++)
        if (target->strides[i] == 0 && target->meta->window.size[i] > 1)
            return fl_fail(FL_ERR_STATE,
                           "%s%s: this tensor is expanded (several positions share one element), so it cannot be "
                           "written in place; use clone() first",
                           op->name, suffix);
    if (target->moved_view)
        return fl_fail(FL_ERR_STATE,
                       "%s%s: this view of a split axis had to move data, so it is a copy; assign x[...] = v instead",
                       op->name, suffix);
    return FL_OK;
}

/* Replaces read operands that overlap the target askew by copies; owned by call->tensors then. */
static fl_status separate_operands(struct call *call, const fl_tensor *target, bool *copied)
{
    for (int i = 1; i < call->nin; i++) {
        if (!call->tensors[i] || call->tensors[i]->storage != target->storage) continue;
        if (writes_operand(call, i) || !overlaps_askew(target, call->tensors[i])) continue;
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
static bool on_the_tape(const struct call *call)
{
    for (int i = 0; i < call->nin; i++)
        if (call->in[i].kind == FL_TENSOR && (call->in[i].tensor->requires_grad || call->in[i].tensor->autograd))
            return true;
    return false;
}

/* Boxes the inputs and runs. */
static fl_status run_writing(struct call *call, const fl_tensor *target)
{
    if (call->plan->boxes) FL_TRY(box_inputs(call));
    bool copied = call->plan->boxes;
    fl_status status = call->op->groups ? FL_OK : separate_operands(call, target, &copied);
    if (status == FL_OK && call->plan->holds) status = run_kernel(call);
    else if (status == FL_OK) {
        skip_draw(call);
        note_writes(call, FL_OK); /* versions agree on all ranks */
    }
    if (copied) release_boxed(call);
    return status;
}

/* Checks, runs and records an op that writes operand 0 (and, with groups, many more). */
static fl_status write_into(struct call *call, fl_tensor **out)
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

static fl_status dispatch_mutating(fl_tensor **out, struct call *call)
{
    fl_tensor *target = call->in[0].tensor;
    call->out = &target;
    return write_into(call, out);
}

fl_status fl_dispatch_inplace(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        attrs = &defaults;
    }
    if (in[0].kind != FL_TENSOR) return fl_fail(FL_ERR_VALUE, "%s_: the first operand must be a tensor", op->name);
    if (op->check) FL_TRY(op->check(in, nin, attrs));
    struct call c = {.op = op, .attrs = attrs, .in = in, .nin = nin, .nout = 1, .target = in[0].tensor, .writes = true};
    FL_TRY(fl_infer_plan(&c.plan, op, in, nin, attrs, true));
    note_in_journal(&c);
    fl_status status;
    if (FL_UNLIKELY(fl_fault_armed) && fault_op(&status, out, c.plan, in[0].tensor)) return status;
    fl_tensor *tensors[STACK_OPERANDS];
    c.tensors = tensors;
    if (!c.plan->boxes)
        for (int i = 0; i < nin; i++) c.tensors[i] = in[i].kind == FL_TENSOR ? in[i].tensor : NULL;
    c.out = &c.target;
    return write_into(&c, out);
}

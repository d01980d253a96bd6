/*
** run.c -- a call whose outputs are allocated is run: on the caller at once where everything that it needs is complete,
** as a packed copy in the engine's CPU lane otherwise, or as launches that are issued to a device.
*/
#include "call.h"
#include "chain.h"
#include "cpu/elementwise.h"
#include "engine/engine.h"
#include "engine/loss.h"
#include "listener.h"
#include "op/operand.h"
#include "value/random.h"

#include <assert.h>
#include <stdlib.h>

static const int64_t zeros[FL_MAX_NDIM];

/* ---- operands as kernels see them ---- */

static inline void view_of(fl_view *view, const fl_tensor *tensor)
{
    view->data = fl_tensor_data(tensor);
    fl_call_layout(view, tensor);
}

static void fill_views(fl_view *in, fl_view *out, const fl_call *call)
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

/* ---- the operands that an op writes ---- */

static bool operand_mutated(const fl_op *op, int i, int nin)
{
    if (!op->mutates) return false;
    int group = op->groups ? i / (nin / op->groups) : i;
    return group < 32 && (op->mutates >> group & 1u);
}

bool fl_call_writes(const fl_call *call, int i)
{
    return (call->target && i == 0) || operand_mutated(call->op, i, call->nin);
}

/* ---- running ---- */

static bool ready_to_run(const fl_call *call)
{
    if (FL_UNLIKELY(!fl_engine_direct)) return false;
    for (int i = 0; i < call->nin; i++) {
        if (!call->tensors[i]) continue;
        fl_var *v = &call->tensors[i]->storage->var;
        bool ready = call->writes && fl_call_writes(call, i) ? fl_var_writable(v) : fl_var_readable(v);
        if (FL_UNLIKELY(!ready)) {
            if (!fl_var_settle(v) || v->poison) return false;
        }
    }
    return true;
}

void fl_call_note_writes(const fl_call *call, fl_status status)
{
    for (int i = 0; i < call->nin; i++) {
        if (!call->tensors[i] || !fl_call_writes(call, i)) continue;
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

static void collect_vars(const fl_call *call, fl_var **reads, int *read_count, fl_var **writes, int *write_count)
{
    *read_count = *write_count = 0;
    for (int i = 0; i < call->nout; i++) writes[(*write_count)++] = &call->out[i]->storage->var;
    for (int i = 0; i < call->nin; i++) {
        if (!call->tensors[i]) continue;
        fl_var *var = &call->tensors[i]->storage->var;
        if (fl_call_writes(call, i)) writes[(*write_count)++] = var;
        else reads[(*read_count)++] = var;
    }
    fl_vars_once(reads, read_count, writes, write_count);
}

bool fl_call_overwrites(const fl_call *call)
{
    if (!(call->op->flags & FL_OP_OVERWRITES)) return false;
    const fl_tensor *t = call->tensors[0];
    for (int i = 1; i < call->nin; i++)
        if (call->tensors[i] && call->tensors[i]->storage == t->storage) return false;
    return t->contiguous && (size_t)t->meta->local_numel * fl_dtype_size(t->meta->dtype) == t->storage->bytes;
}

/* Flags of a task that changes its operands. */
static unsigned write_flags(const fl_call *call)
{
    if (!call->writes) return 0;
    unsigned flags = FL_TASK_UPDATES;
    if (fl_call_overwrites(call)) flags |= FL_TASK_OVERWRITES;
    if ((call->op->flags & FL_OP_OVERWRITES) && call->tensors[0]->storage->var.unset) flags |= FL_TASK_UNSET;
    return flags;
}

static fl_status push_kernel(const fl_call *call, fl_kernel *kernel)
{
    if (FL_UNLIKELY(fl_listener_now != NULL)) FL_TRY(fl_listener_now->kernel(call, kernel));
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
                    .flags = FL_TASK_CHEAP | write_flags(call)};
    collect_vars(call, reads, &task.read_count, writes, &task.write_count);
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
static fl_status issue_kernel(const fl_call *call, fl_kernel *kernel)
{
    fl_var *stack[2 * FL_CALL_OPERANDS], **reads = stack;
    size_t operands = (size_t)(call->nin + call->nout);
    if (FL_UNLIKELY(fl_listener_now != NULL)) FL_TRY(fl_listener_now->kernel(call, kernel));
    if (!call->plan->kernel)
        return fl_fail(FL_ERR_MISSING, "%s: it has no %s kernel; move the operands to the CPU: x:to(\"cpu\")",
                       call->op->name, call->plan->device->name);
    if (operands > FL_CALL_OPERANDS) reads = malloc(2 * operands * sizeof *reads);
    if (!reads) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %zu operands", call->op->name, operands);
    struct issued payload = {call->plan, kernel};
    fl_task task = {.name = call->op->name,
                    .run = issue_run,
                    .payload = &payload,
                    .payload_size = sizeof payload,
                    .reads = reads,
                    .writes = reads + operands,
                    .lane = call->plan->lane,
                    .flags = write_flags(call)};
    collect_vars(call, reads, &task.read_count, reads + operands, &task.write_count);
    fl_status status = fl_engine_push(&task);
    if (reads != stack) free(reads);
    return status;
}

/* ---- on the CPU ---- */

/* Runs the plan's bare loop when the operands are ready and contiguous; false: the kernel must see to it.
** repeated: room for the operand that is a number; NULL: there is none. */
static inline __attribute__((always_inline)) bool run_flat_with(const fl_call *call, void *repeated)
{
    const void *in[FL_FLAT_MAX_IN];
    const fl_tensor *out = call->out[0];
    fl_var *written = &out->storage->var;
    int64_t numel = out->meta->local_numel, size = (int64_t)fl_dtype_size(out->meta->dtype);
    if (FL_UNLIKELY(!fl_engine_direct || !out->contiguous)) return false;
    for (int i = 0; i < call->nin; i++) {
        const fl_tensor *t = call->tensors[i];
        if (repeated && !t) {
            const fl_operand *number = &call->in[i];
            double value = number->kind == FL_NUM_FLOAT ? number->number : (double)number->integer;
            fl_cpu_repeat_number(repeated, value, call->plan->number_dtype, numel);
            in[i] = repeated;
            continue;
        }
        if (!t->contiguous || !fl_var_readable(&t->storage->var)) return false;
        in[i] = (char *)t->storage->data + t->offset * size;
    }
    if (call->writes && !fl_var_writable(written)) return false; /* the first operand is `out` */
    call->plan->flat((char *)out->storage->data + out->offset * size, in, numel, NULL);
    if (call->writes) fl_var_bump(written);
    fl_engine_direct_ops++;
    return true;
}

/* A function of its own for the sake of the stack. */
static __attribute__((noinline)) bool run_flat_with_number(const fl_call *call)
{
    _Alignas(64) double repeated[FL_EW_REPEATS];
    return run_flat_with(call, repeated);
}

static inline bool run_flat(const fl_call *call)
{
    return call->plan->flat_number ? run_flat_with_number(call) : run_flat_with(call, NULL);
}

/* A reduction of a deferred operand, whose elements need no memory then. */
static fl_status run_fold(const fl_call *call)
{
    fl_view in = {0}, out;
    fl_kernel kernel = {.attrs = call->attrs, .in = &in, .out = &out, .nin = 1, .nout = 1};
    fl_kernel_set_op(&kernel, call->op);
    fl_call_layout(&in, call->tensors[0]);
    view_of(&out, call->out[0]);
    fl_engine_direct_ops++;
    return fl_chain_fold(call->tensors[0], &kernel, call->plan->kernel);
}

static bool can_fold(const fl_call *call)
{
    return !fl_listener_now && fl_chain_has(call->tensors[0]) && fl_var_writable(&call->out[0]->storage->var);
}

/* The call ran on the caller: an error if memory of its operands was lost meanwhile, with the values that it wrote. */
static __attribute__((noinline)) fl_status check_losses(const fl_call *call)
{
    fl_status status = FL_OK;
    for (int i = 0; i < call->nin && status == FL_OK; i++)
        if (call->tensors[i]) status = fl_loss_check(&call->tensors[i]->storage->var);
    if (status != FL_OK && call->writes) fl_call_note_writes(call, status);
    return status;
}

/* Runs the kernel on views of the operands. */
fl_status fl_call_run_kernel(const fl_call *call)
{
    if (FL_UNLIKELY(call->plan->folds) && can_fold(call)) return run_fold(call);
    fl_view stack[FL_CALL_OPERANDS], *views = stack;
    int count = call->nin + call->nout;
    if (FL_UNLIKELY(count > FL_CALL_OPERANDS)) {
        views = malloc(sizeof *views * (size_t)count);
        if (!views) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", call->op->name, count);
    }
    fl_kernel k = {.attrs = call->attrs, .in = views, .out = views + call->nin, .nin = call->nin, .nout = call->nout};
    fl_kernel_set_op(&k, call->op);
    fill_views(k.in, k.out, call);
    if (call->op->flags & FL_OP_RANDOM) {
        fl_generator g = fl_dispatch_draw(call->out[0]->meta);
        k.seed = g.seed;
        k.counter = g.counter;
    }
    fl_status status = FL_OK;
    if (FL_UNLIKELY(call->plan->device != NULL)) status = issue_kernel(call, &k);
    else if (FL_LIKELY(ready_to_run(call))) {
        status = call->plan->kernel(&k);
        if (call->writes) fl_call_note_writes(call, status);
        if (fl_loss_any() && status == FL_OK) status = check_losses(call);
        fl_engine_direct_ops++;
    } else status = push_kernel(call, &k);
    if (views != stack) free(views);
    return status;
}

fl_status fl_call_run_flat(const fl_call *call)
{
    if (FL_UNLIKELY(!run_flat(call))) return fl_call_run_kernel(call);
    return fl_loss_any() ? check_losses(call) : FL_OK;
}

fl_status fl_call_run_into(fl_call *call, fl_tensor *target)
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

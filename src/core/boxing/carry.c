/*
** carry.c -- carrying out boxing plans.
**
** A plan, mostly the one that the choice of SBP has priced, and its compiled steps are kept per pair of metas. A part
** of what this rank already holds is a view of the same storage; the other steps are put into the engine as moves
** (move.h) and have memory of their own.
*/
#include "boxing.h"
#include "engine/engine.h"
#include "memory/device.h"
#include "move.h"
#include "pack.h"

#include <assert.h>
#include <stdlib.h>

void (*fl_boxing_observer)(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to);
fl_status (*fl_boxing_listener)(fl_tensor *out, fl_tensor *x, int priority);
bool fl_boxing_pretend;

/* ---- programs: plans with their moves ---- */

struct program {
    int refs;                 /* the table's, and one while it is carried out */
    const fl_meta *from, *to; /* owned */
    fl_box_plan plan;
    fl_move *moves[FL_MAX_BOX_STEPS];       /* owned; NULL: the step is a view, or this rank has no part in it */
    const fl_meta *after[FL_MAX_BOX_STEPS]; /* owned */
};

enum { PROGRAMS = 4096 };
static struct program *programs[PROGRAMS];

/* NULL is fine. */
static void program_unref(struct program *program)
{
    if (!program || --program->refs > 0) return;
    for (int i = 0; i < program->plan.count; i++) {
        fl_move_free(program->moves[i]);
        fl_meta_unref(program->after[i]);
    }
    fl_meta_unref(program->from);
    fl_meta_unref(program->to);
    free(program);
}

void fl_boxing_forget(void)
{
    for (int i = 0; i < PROGRAMS; i++) {
        program_unref(programs[i]);
        programs[i] = NULL;
    }
}

static bool is_view(fl_box_kind kind) { return kind == FL_BOX_SLICE || kind == FL_BOX_RELABEL; }

/* "an all-gather", "a reduce-scatter" */
static fl_status needs_peer(const struct program *program, int i)
{
    char a[FL_ND_SBP_TEXT], b[FL_ND_SBP_TEXT], shape[FL_SHAPE_TEXT];
    const char *name = fl_box_kind_name(program->plan.steps[i].kind);
    return fl_fail_prefix(FL_ERR_COMM, "boxing %s -> %s of %s%s needs %s %s, and ",
                          fl_nd_sbp_text(a, program->from->nd_sbp), fl_nd_sbp_text(b, program->to->nd_sbp),
                          fl_dtype_name(program->from->dtype), fl_shape_text(shape, &program->from->shape),
                          strchr("ae", name[0]) ? "an" : "a", name);
}

static fl_status plan_program(struct program *program, const fl_box_plan *plan)
{
    const fl_meta *from = program->from, *to = program->to;
    if (!plan)
        return fl_boxing_plan(&program->plan, from->dtype, &from->shape, from->placement, from->nd_sbp, to->placement,
                              to->nd_sbp);
    memcpy(&program->plan, plan, offsetof(fl_box_plan, steps) + (size_t)plan->count * sizeof *plan->steps);
    return FL_OK;
}

static fl_status program_compile(struct program *program, const fl_box_plan *plan)
{
    const fl_meta *from = program->from, *to = program->to;
    FL_TRY(plan_program(program, plan));
    for (int i = 0; i < program->plan.count; i++) {
        const fl_box_step *step = &program->plan.steps[i];
        bool last = i + 1 == program->plan.count;
        if (last) program->after[i] = fl_meta_ref(to);
        else FL_TRY(fl_meta_get(&program->after[i], from->dtype, &from->shape, step->placement, step->after, false));
        if (is_view(step->kind) || step->kind == FL_BOX_COPY || step->placement->type == FL_META) continue;
        fl_status status = fl_move_compile(&program->moves[i], &program->plan, i, from);
        if (status == FL_ERR_COMM && fl_boxing_pretend) continue;
        if (status != FL_OK) return status == FL_ERR_COMM ? needs_peer(program, i) : status;
    }
    return FL_OK;
}

/* Borrowed: the table may drop it at the next call. plan: NULL where there is none yet. */
static fl_status program_get(struct program **out, const fl_meta *from, const fl_meta *to, const fl_box_plan *plan)
{
    struct program **slot = &programs[(from->hash * 31 + to->hash) % PROGRAMS];
    if (FL_LIKELY(*slot && (*slot)->from == from && (*slot)->to == to)) {
        *out = *slot;
        return FL_OK;
    }
    struct program *p = calloc(1, sizeof *p);
    if (!p) return fl_fail(FL_ERR_MEMORY, "boxing: out of memory");
    p->refs = 1;
    p->from = fl_meta_ref(from);
    p->to = fl_meta_ref(to);
    fl_status status = program_compile(p, plan);
    if (status != FL_OK) {
        program_unref(p);
        return status;
    }
    program_unref(*slot);
    *out = *slot = p;
    return FL_OK;
}

/* ---- steps ---- */

/* The window of `to` within x: a view. */
static fl_status apply_slice(fl_tensor **out, fl_tensor *x, const fl_meta *to)
{
    if (to->local_numel == 0) return fl_tensor_empty(out, to);
    int64_t offset = x->offset;
    for (int i = 0; i < to->shape.ndim; i++) offset += (to->window.start[i] - x->meta->window.start[i]) * x->strides[i];
    return fl_tensor_view(out, x, to, x->strides, offset);
}

/* move NULL: this rank neither gives nor takes anything (or only pretends to). */
static fl_status apply_move(fl_tensor **out, fl_tensor *x, fl_move *move, const fl_meta *to)
{
    fl_tensor *part, *result;
    FL_TRY(fl_tensor_empty(&result, to));
    fl_status status = FL_OK;
    if (move) {
        status = fl_pack_part(&part, x);
        if (status == FL_OK) {
            status = fl_move_push(move, result, part);
            fl_tensor_unref(part);
        }
    } else if (fl_boxing_pretend && to->local_numel > 0)
        memset(fl_tensor_data(result), 0, (size_t)to->local_numel * fl_dtype_size(to->dtype));
    if (status == FL_OK) *out = result;
    else fl_tensor_unref(result);
    return status;
}

/* ---- devices ---- */

struct device_copy {
    const fl_device *device;
    int index;
    fl_queue queue;
    void *out;
    const void *in;
    size_t bytes;
};

static fl_status copy_run(void *payload)
{
    const struct device_copy *c = payload;
    FL_TRY(c->device->enter(c->index, c->queue));
    return c->device->copy(c->out, c->in, c->bytes);
}

/* Of the copy's direction; one side at least is FL_CUDA. */
static fl_queue copy_queue(fl_device_type to, fl_device_type from)
{
    return to != FL_CUDA ? FL_QUEUE_OUT : from != FL_CUDA ? FL_QUEUE_IN : FL_QUEUE_COMPUTE;
}

/* Bytes of in to out, of which one at least is on FL_CUDA. */
static fl_status push_copy(fl_tensor *out, fl_tensor *in)
{
    const fl_storage *far = in->storage->device == FL_CUDA ? in->storage : out->storage;
    struct device_copy c = {.index = far->device_index,
                            .out = fl_tensor_data(out),
                            .in = fl_tensor_data(in),
                            .bytes = (size_t)in->meta->local_numel * fl_dtype_size(in->meta->dtype)};
    FL_TRY(fl_device_get(&c.device, far->device));
    c.queue = copy_queue(out->storage->device, in->storage->device);
    fl_var *reads[] = {&in->storage->var}, *writes[] = {&out->storage->var};
    fl_task task = {.name = "copy",
                    .run = copy_run,
                    .payload = &c,
                    .payload_size = sizeof c,
                    .reads = reads,
                    .writes = writes,
                    .read_count = 1,
                    .write_count = 1,
                    .lane = c.device->lane(c.index, c.queue)};
    return fl_engine_push(&task);
}

/* x's part on the device of `to`. A copy gets memory that does not wait for computations of the device. */
static fl_status apply_copy(fl_tensor **out, fl_tensor *x, const fl_meta *to)
{
    fl_tensor *part = NULL, *result;
    FL_TRY(fl_tensor_empty_for(&result, to, copy_queue(to->placement->type, x->storage->device)));
    fl_status status = fl_pack_part(&part, x);
    if (status == FL_OK && to->local_numel) status = push_copy(result, part);
    if (status == FL_OK) *out = result;
    else fl_tensor_unref(result);
    fl_tensor_unref(part);
    return status;
}

/* m with its placement's CPUs. */
static fl_status meta_on_cpu(const fl_meta **out, const fl_meta *meta)
{
    const fl_placement *counterpart;
    FL_TRY(fl_placement_on_cpu(&counterpart, meta->placement));
    return fl_meta_get(out, meta->dtype, &meta->shape, counterpart, meta->nd_sbp, false);
}

/* A move between parts that lie on a device, by way of the CPUs. */
static fl_status apply_staged(fl_tensor **out, fl_tensor *x, fl_move *move, const fl_meta *to)
{
    const fl_meta *before = NULL, *after = NULL;
    fl_tensor *in = NULL, *moved = NULL;
    fl_status status = meta_on_cpu(&before, x->meta);
    if (status == FL_OK) status = meta_on_cpu(&after, to);
    if (status == FL_OK) status = apply_copy(&in, x, before);
    if (status == FL_OK) status = apply_move(&moved, in, move, after);
    if (status == FL_OK) status = apply_copy(out, moved, to);
    fl_tensor_unref(moved);
    fl_tensor_unref(in);
    fl_meta_unref(before);
    fl_meta_unref(after);
    return status;
}

static fl_status apply_on_device(fl_tensor **out, fl_tensor *x, fl_move *move, const fl_meta *to)
{
    const fl_device *device;
    bool direct = false;
    FL_TRY(fl_device_get(&device, to->placement->type));
    if (move && !fl_boxing_pretend) FL_TRY(fl_move_is_direct(&direct, move, device));
    if (direct) return apply_move(out, x, move, to);
    if (move && move->group) fl_move_counted.staged++;
    return apply_staged(out, x, move, to);
}

static fl_status apply_step(fl_tensor **out, fl_tensor *x, const struct program *program, int i)
{
    fl_box_kind kind = program->plan.steps[i].kind;
    const fl_meta *after = program->after[i];
    if (is_view(kind)) return apply_slice(out, x, after);
    if (after->placement->type == FL_META) return fl_tensor_empty(out, after);
    if (kind == FL_BOX_COPY) return apply_copy(out, x, after);
    if (after->placement->type == FL_CUDA) return apply_on_device(out, x, program->moves[i], after);
    return apply_move(out, x, program->moves[i], after);
}

static fl_status program_run(const struct program *program, fl_tensor **out, fl_tensor *x)
{
    if (program->plan.count == 0) return apply_slice(out, x, program->to);
    fl_tensor *now = fl_tensor_ref(x);
    for (int i = 0; i < program->plan.count; i++) {
        fl_tensor *next;
        fl_status status = apply_step(&next, now, program, i);
        fl_tensor_unref(now);
        FL_TRY(status);
        now = next;
    }
    *out = now;
    return FL_OK;
}

/* plan: NULL where none is there yet. */
static fl_status apply(fl_tensor **out, fl_tensor *x, const fl_meta *to, const fl_box_plan *plan, int priority)
{
    const fl_meta *from = x->meta;
    if (from == to) {
        *out = fl_tensor_ref(x);
        return FL_OK;
    }
    assert(from->dtype == to->dtype && fl_shape_equal(&from->shape, &to->shape));
    struct program *p = NULL;
    FL_TRY(program_get(&p, from, to, plan));
    if (FL_UNLIKELY(fl_boxing_observer != NULL)) fl_boxing_observer(&p->plan, from, to);
    p->refs++; /* its allocations may run finalizers, and these more programs */
    fl_status status = program_run(p, out, x);
    program_unref(p);
    if (FL_UNLIKELY(fl_boxing_listener != NULL) && status == FL_OK && (*out)->storage != x->storage) {
        status = fl_boxing_listener(*out, x, priority);
        if (status != FL_OK) fl_tensor_unref(*out);
    }
    return status;
}

fl_status fl_boxing_apply(fl_tensor **out, fl_tensor *x, const fl_meta *to) { return apply(out, x, to, NULL, 0); }

fl_status fl_boxing_apply_planned(fl_tensor **out, fl_tensor *x, const fl_meta *to, const fl_box_plan *plan)
{
    return apply(out, x, to, plan, 0);
}

fl_status fl_boxing_apply_with(fl_tensor **out, fl_tensor *x, const fl_meta *to, int priority)
{
    return apply(out, x, to, NULL, priority);
}

fl_status fl_boxing_report(const fl_meta *from, const fl_meta *to)
{
    struct program *p = NULL;
    if (!fl_boxing_observer) return FL_OK;
    FL_TRY(program_get(&p, from, to, NULL));
    fl_boxing_observer(&p->plan, from, to);
    return FL_OK;
}

fl_status fl_boxing_route(fl_box_route *out, const fl_meta *from, const fl_meta *to)
{
    struct program *p = NULL;
    *out = (fl_box_route){.placement = NULL};
    if (from == to) return FL_OK;
    FL_TRY(program_get(&p, from, to, NULL));
    const fl_box_step *step = &p->plan.steps[0];
    bool planned = from->placement->type == FL_META && fl_world_get()->planned;
    if (p->plan.count != 1 || step->kind != FL_BOX_ALL_REDUCE || (!p->moves[0] && !planned)) return FL_OK;
    *out = (fl_box_route){planned ? NULL : p->moves[0]->group, from->placement, from->dtype, step->axis, step->from};
    return FL_OK;
}

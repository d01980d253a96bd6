/*
** carry.c -- carrying out boxing plans.
**
** A plan and its compiled steps are kept per pair of metas. A part of what this rank already holds is a view of the
** same storage; the other steps are put into the engine as moves (move.h) and have memory of their own.
*/
#include "autograd/autograd.h"
#include "boxing.h"
#include "memory/device.h"
#include "dispatch/cast.h"
#include "move.h"
#include "engine/engine.h"

#include <assert.h>
#include <stdlib.h>

void (*fl_boxing_observer)(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to);
bool fl_boxing_pretend;

/* ---- programs: plans with their moves ---- */

typedef struct program {
    int refs;                 /* the table's, and one while it is carried out */
    const fl_meta *from, *to; /* owned */
    fl_box_plan plan;
    fl_move *moves[FL_MAX_BOX_STEPS];       /* owned; NULL: the step is a view, or this rank has no part in it */
    const fl_meta *after[FL_MAX_BOX_STEPS]; /* owned */
} program;

enum { PROGRAMS = 4096 };
static program *programs[PROGRAMS];

/* NULL is fine. */
static void program_unref(program *p)
{
    if (!p || --p->refs > 0) return;
    for (int i = 0; i < p->plan.count; i++) {
        fl_move_free(p->moves[i]);
        fl_meta_unref(p->after[i]);
    }
    fl_meta_unref(p->from);
    fl_meta_unref(p->to);
    free(p);
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
static fl_status needs_peer(const program *p, int i)
{
    char a[FL_ND_SBP_TEXT], b[FL_ND_SBP_TEXT], shape[FL_SHAPE_TEXT];
    const char *name = fl_box_kind_name(p->plan.steps[i].kind);
    return fl_fail_prefix(FL_ERR_COMM, "boxing %s -> %s of %s%s needs %s %s, and ", fl_nd_sbp_text(a, p->from->nd_sbp),
                          fl_nd_sbp_text(b, p->to->nd_sbp), fl_dtype_name(p->from->dtype),
                          fl_shape_text(shape, &p->from->shape), strchr("ae", name[0]) ? "an" : "a", name);
}

static fl_status program_compile(program *p)
{
    const fl_meta *from = p->from, *to = p->to;
    FL_TRY(
        fl_boxing_plan(&p->plan, from->dtype, &from->shape, from->placement, from->nd_sbp, to->placement, to->nd_sbp));
    for (int i = 0; i < p->plan.count; i++) {
        const fl_box_step *step = &p->plan.steps[i];
        bool last = i + 1 == p->plan.count;
        if (last) p->after[i] = fl_meta_ref(to);
        else FL_TRY(fl_meta_get(&p->after[i], from->dtype, &from->shape, step->placement, step->after, false));
        if (is_view(step->kind) || step->kind == FL_BOX_COPY) continue;
        fl_status status = fl_move_compile(&p->moves[i], &p->plan, i, from);
        if (status == FL_ERR_COMM && fl_boxing_pretend) continue;
        if (status != FL_OK) return status == FL_ERR_COMM ? needs_peer(p, i) : status;
    }
    return FL_OK;
}

/* Borrowed: the table may drop it at the next call. */
static fl_status program_get(program **out, const fl_meta *from, const fl_meta *to)
{
    program **slot = &programs[(from->hash * 31 + to->hash) % PROGRAMS];
    if (FL_LIKELY(*slot && (*slot)->from == from && (*slot)->to == to)) {
        *out = *slot;
        return FL_OK;
    }
    program *p = calloc(1, sizeof *p);
    if (!p) return fl_fail(FL_ERR_MEMORY, "boxing: out of memory");
    p->refs = 1;
    p->from = fl_meta_ref(from);
    p->to = fl_meta_ref(to);
    fl_status status = program_compile(p);
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

/* x without gaps: a move reads whole parts. */
static fl_status contiguous_part(fl_tensor **out, fl_tensor *x)
{
    bool enabled = fl_grad_enabled;
    if (x->contiguous) {
        *out = fl_tensor_ref(x);
        return FL_OK;
    }
    fl_grad_enabled = false;
    fl_status status = FL_CALL(out, contiguous, fl_of(x));
    fl_grad_enabled = enabled;
    return status;
}

/* move NULL: this rank neither gives nor takes anything (or only pretends to). */
static fl_status apply_move(fl_tensor **out, fl_tensor *x, fl_move *move, const fl_meta *to)
{
    fl_tensor *part, *result;
    FL_TRY(fl_tensor_empty(&result, to));
    fl_status status = FL_OK;
    if (move) {
        status = contiguous_part(&part, x);
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

typedef struct device_copy {
    const fl_device *device;
    int index;
    fl_queue queue;
    void *out;
    const void *in;
    size_t bytes;
} device_copy;

static fl_status copy_run(void *payload)
{
    const device_copy *c = payload;
    FL_TRY(c->device->enter(c->index, c->queue));
    return c->device->copy(c->out, c->in, c->bytes);
}

/* Of the copy's direction; one side is not on the CPU. */
static fl_queue copy_queue(fl_device_type to, fl_device_type from)
{
    return to == FL_CPU ? FL_QUEUE_OUT : from == FL_CPU ? FL_QUEUE_IN : FL_QUEUE_COMPUTE;
}

/* Bytes of in to out, which are not both on the CPU. */
static fl_status push_copy(fl_tensor *out, fl_tensor *in)
{
    const fl_storage *far = in->storage->device == FL_CPU ? out->storage : in->storage;
    device_copy c = {.index = far->device_index,
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

/* x's part on the device of `to`. What is copied in lies in memory that waits for nothing the device computes now. */
static fl_status apply_copy(fl_tensor **out, fl_tensor *x, const fl_meta *to)
{
    fl_tensor *part = NULL, *result;
    FL_TRY(fl_tensor_empty_for(&result, to, copy_queue(to->placement->type, x->storage->device)));
    fl_status status = contiguous_part(&part, x);
    if (status == FL_OK && to->local_numel) status = push_copy(result, part);
    if (status == FL_OK) *out = result;
    else fl_tensor_unref(result);
    fl_tensor_unref(part);
    return status;
}

/* m with its placement's CPUs. */
static fl_status meta_on_cpu(const fl_meta **out, const fl_meta *m)
{
    const fl_placement *counterpart;
    FL_TRY(fl_placement_on_cpu(&counterpart, m->placement));
    return fl_meta_get(out, m->dtype, &m->shape, counterpart, m->nd_sbp, false);
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

static fl_status apply_step(fl_tensor **out, fl_tensor *x, const program *p, int i)
{
    fl_box_kind kind = p->plan.steps[i].kind;
    if (is_view(kind)) return apply_slice(out, x, p->after[i]);
    if (kind == FL_BOX_COPY) return apply_copy(out, x, p->after[i]);
    if (p->after[i]->placement->type != FL_CPU) return apply_on_device(out, x, p->moves[i], p->after[i]);
    return apply_move(out, x, p->moves[i], p->after[i]);
}

static fl_status program_run(const program *p, fl_tensor **out, fl_tensor *x)
{
    if (p->plan.count == 0) return apply_slice(out, x, p->to);
    fl_tensor *now = fl_tensor_ref(x);
    for (int i = 0; i < p->plan.count; i++) {
        fl_tensor *next;
        fl_status status = apply_step(&next, now, p, i);
        fl_tensor_unref(now);
        FL_TRY(status);
        now = next;
    }
    *out = now;
    return FL_OK;
}

fl_status fl_boxing_apply(fl_tensor **out, fl_tensor *x, const fl_meta *to)
{
    const fl_meta *from = x->meta;
    if (from == to) {
        *out = fl_tensor_ref(x);
        return FL_OK;
    }
    assert(from->dtype == to->dtype && fl_shape_equal(&from->shape, &to->shape));
    program *p = NULL;
    FL_TRY(program_get(&p, from, to));
    if (FL_UNLIKELY(fl_boxing_observer != NULL)) fl_boxing_observer(&p->plan, from, to);
    p->refs++; /* memory it asks for may run finalizers, and these more programs */
    fl_status status = program_run(p, out, x);
    program_unref(p);
    return status;
}

/* ---- several at once ---- */

enum { TOGETHER = 64 };

/* What all-reduces that travel together have in common. */
typedef struct route {
    const fl_group *group; /* NULL: the plan is not one all-reduce among several ranks */
    const fl_placement *placement;
    fl_dtype dtype;
    int axis;
    fl_sbp partial;
} route;

static route route_of(const program *p)
{
    const fl_box_step *step = &p->plan.steps[0];
    if (p->plan.count != 1 || step->kind != FL_BOX_ALL_REDUCE || !p->moves[0]) return (route){.group = NULL};
    return (route){p->moves[0]->group, p->from->placement, p->from->dtype, step->axis, step->from};
}

static bool same_route(const route *a, const route *b)
{
    return a->group == b->group && a->placement == b->placement && a->dtype == b->dtype && a->axis == b->axis
        && a->partial == b->partial;
}

/* The local parts of xs one after the other, 1-D. */
static fl_status join_parts(fl_tensor **out, fl_tensor *const *xs, int count)
{
    fl_operand flat[TOGETHER];
    int made = 0;
    fl_status status = FL_OK;
    for (; made < count && status == FL_OK; made++) {
        fl_tensor *part, *line;
        fl_attrs to_line;
        fl_attrs_init(&to_line, FL_OP_REF(reshape));
        fl_attr_set_list(&to_line, 0, (const int64_t[]){-1}, 1);
        status = fl_to_local(&part, xs[made], NULL);
        if (status != FL_OK) break;
        status = FL_CALL_WITH(&line, &to_line, reshape, fl_of(part));
        fl_tensor_unref(part);
        if (status != FL_OK) break;
        flat[made] = fl_of(line);
    }
    if (status == FL_OK) status = fl_dispatch(out, FL_OP_REF(cat), flat, count, NULL);
    while (made-- > 0) fl_tensor_unref(flat[made].tensor);
    return status;
}

/* The joined parts as a tensor of their own that is partial along the same axis, reduced. */
static fl_status reduce_joined(fl_tensor **out, fl_tensor *joined, const route *r)
{
    fl_nd_sbp whole = fl_nd_sbp_fill(FL_B, r->placement->ndim), partial = whole;
    const fl_meta *reduced;
    fl_tensor *x;
    partial.at[r->axis] = r->partial;
    FL_TRY(fl_global_from_part(&x, joined, &joined->meta->shape, r->placement, partial));
    fl_status status = fl_meta_get(&reduced, joined->meta->dtype, &joined->meta->shape, r->placement, whole, false);
    if (status == FL_OK) {
        status = fl_boxing_apply(out, x, reduced);
        fl_meta_unref(reduced);
    }
    fl_tensor_unref(x);
    return status;
}

/* Views of the reduced line, one per tensor. */
static fl_status cut_apart(fl_tensor **out, fl_tensor *line, const fl_meta *const *to, int count)
{
    int64_t at = line->offset;
    for (int i = 0; i < count; i++) {
        FL_TRY(to[i]->local_numel ? fl_tensor_view(&out[i], line, to[i], to[i]->strides, at)
                                  : fl_tensor_empty(&out[i], to[i]));
        at += to[i]->local_numel;
    }
    return FL_OK;
}

static fl_status tell_observer(fl_tensor *const *xs, const fl_meta *const *to, int count)
{
    for (int i = 0; i < count; i++) {
        program *p = NULL;
        FL_TRY(program_get(&p, xs[i]->meta, to[i]));
        fl_boxing_observer(&p->plan, xs[i]->meta, to[i]);
    }
    return FL_OK;
}

static fl_status run_together(fl_tensor **out, fl_tensor *const *xs, const fl_meta *const *to, const route *r,
                              int count)
{
    fl_tensor *joined, *line;
    FL_TRY(join_parts(&joined, xs, count));
    fl_status status = reduce_joined(&line, joined, r);
    fl_tensor_unref(joined);
    FL_TRY(status);
    status = cut_apart(out, line, to, count);
    fl_tensor_unref(line);
    return status;
}

/* Unrecorded; whoever watches is told of every tensor, not of the line they travel in. */
static fl_status apply_together(fl_tensor **out, fl_tensor *const *xs, const fl_meta *const *to, const route *r,
                                int count)
{
    if (count == 1) return fl_boxing_apply(out, xs[0], to[0]);
    if (fl_boxing_observer) FL_TRY(tell_observer(xs, to, count));
    bool enabled = fl_grad_enabled;
    void (*observer)(const fl_box_plan *, const fl_meta *, const fl_meta *) = fl_boxing_observer;
    fl_grad_enabled = false;
    fl_boxing_observer = NULL;
    fl_status status = run_together(out, xs, to, r, count);
    fl_boxing_observer = observer;
    fl_grad_enabled = enabled;
    return status;
}

fl_status fl_boxing_apply_all(fl_tensor **out, fl_tensor *const *xs, const fl_meta *const *to, int count)
{
    route first = {.group = NULL}; /* of xs[start .. start + n), which travel together */
    int start = 0, n = 0;
    memset(out, 0, (size_t)count * sizeof *out);
    for (int i = 0; i <= count; i++) {
        program *p = NULL;
        route own = {.group = NULL};
        if (i < count && xs[i]->meta != to[i]) FL_TRY(program_get(&p, xs[i]->meta, to[i]));
        if (p) own = route_of(p);
        if (n > 0 && (n == TOGETHER || !same_route(&first, &own))) {
            FL_TRY(apply_together(out + start, xs + start, to + start, &first, n));
            n = 0;
        }
        if (i < count && !own.group) FL_TRY(fl_boxing_apply(&out[i], xs[i], to[i]));
        if (!own.group) continue;
        if (n++ == 0) {
            first = own;
            start = i;
        }
    }
    return FL_OK;
}

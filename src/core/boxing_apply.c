/*
** boxing_apply.c -- carrying out boxing plans whose steps need no peer.
**
** A part of what this rank already holds is a view of the same storage; only partials that must start from
** the identity get memory of their own.
*/
#include "boxing.h"
#include "cpu/cpu.h"

#include <assert.h>
#include <math.h>

/* The value that changes nothing: 0 of a sum, the lowest of a maximum, the highest of a minimum. */
static void identity_of(void *out, fl_dtype dtype, fl_sbp partial)
{
    bool sum = partial == FL_PSUM, max = partial == FL_PMAX;
    double limit = sum ? 0 : max ? -INFINITY : INFINITY;
    switch (dtype) {
    case FL_BOOL: *(uint8_t *)out = !sum && !max; break;
    case FL_UINT8: *(uint8_t *)out = sum || max ? 0 : UINT8_MAX; break;
    case FL_INT8: *(int8_t *)out = sum ? 0 : max ? INT8_MIN : INT8_MAX; break;
    case FL_INT32: *(int32_t *)out = sum ? 0 : max ? INT32_MIN : INT32_MAX; break;
    case FL_INT64: *(int64_t *)out = sum ? 0 : max ? INT64_MIN : INT64_MAX; break;
    case FL_FLOAT16: *(fl_float16 *)out = fl_float16_from_float((float)limit); break;
    case FL_BFLOAT16: *(fl_bfloat16 *)out = fl_bfloat16_from_float((float)limit); break;
    case FL_FLOAT32: *(float *)out = (float)limit; break;
    default: *(double *)out = limit; break;
    }
}

/* The part [start, start + size) of t, whose own local part begins at t_start. */
static fl_view part_of(const fl_tensor *t, const int64_t *t_start, const fl_window *window, int64_t numel)
{
    fl_view v = {.dtype = t->meta->dtype, .ndim = t->meta->shape.ndim, .size = window->size, .stride = t->strides,
                 .start = window->start, .logical = t->meta->shape.dims, .numel = numel};
    int64_t offset = 0;
    for (int i = 0; i < v.ndim; i++) offset += (window->start[i] - t_start[i]) * t->strides[i];
    v.data = (char *)fl_tensor_data(t) + offset * (int64_t)fl_dtype_size(v.dtype);
    v.contiguous = t->contiguous && numel == t->meta->local_numel;
    return v;
}

/* The window of `to` within x: a view. */
static fl_status apply_slice(fl_tensor **out, fl_tensor *x, const fl_meta *to)
{
    if (to->local_numel == 0) return fl_tensor_empty(out, to);
    int64_t offset = x->offset;
    for (int i = 0; i < to->shape.ndim; i++) offset += (to->window.start[i] - x->meta->window.start[i]) * x->strides[i];
    return fl_tensor_view(out, x, to, x->strides, offset);
}

/* The first P axis of `to` (of those the step makes) on which this rank is not the first: its identity fills what the
** rank does not keep. 0 when the rank is the first everywhere. */
static fl_sbp fill_of(const fl_box_step *step, const fl_meta *to)
{
    int coords[FL_MAX_HIERARCHY];
    fl_placement_coords(coords, to->placement, to->placement->my_index);
    for (int k = 0; k < to->nd_sbp.n; k++) {
        bool made = step->axis < 0 ? fl_sbp_is_partial(to->nd_sbp.at[k]) : k == step->axis;
        if (made && coords[k] > 0) return to->nd_sbp.at[k];
    }
    return 0;
}

/* B -> P and S -> P. Of S every rank keeps its own region, of B the first rank keeps all. */
static fl_status apply_fill(fl_tensor **out, fl_tensor *x, const fl_meta *to, const fl_box_step *step)
{
    if (to->local_numel == 0) return fl_tensor_empty(out, to);
    bool split = step->axis >= 0 && fl_sbp_is_split(step->from);
    fl_sbp fill = split ? step->to : fill_of(step, to);
    if (!fill) return apply_slice(out, x, to);
    if (to->placement->type != FL_CPU)
        return fl_fail(FL_ERR_MISSING, "boxing: the cuda plug-in is needed to make a partial tensor on a GPU");
    fl_tensor *whole;
    int64_t identity;
    FL_TRY(fl_tensor_wait(x));
    FL_TRY(fl_tensor_empty(&whole, to));
    identity_of(&identity, to->dtype, fill);
    fl_view target = part_of(whole, to->window.start, &to->window, to->local_numel);
    fl_status status = fl_cpu_fill(&target, &identity);
    if (status == FL_OK && split) {
        const fl_meta *meta = x->meta;
        fl_view own = part_of(whole, to->window.start, &meta->window, meta->local_numel);
        fl_view in = part_of(x, meta->window.start, &meta->window, meta->local_numel);
        status = fl_cpu_copy(&own, &in);
    }
    if (status != FL_OK) {
        fl_tensor_unref(whole);
        return status;
    }
    *out = whole;
    return FL_OK;
}

/* `last`: the meta after the last step; NULL before that. */
static fl_status apply_step(fl_tensor **out, fl_tensor *x, const fl_box_step *step, const fl_meta *last)
{
    const fl_meta *to = last;
    if (!last) FL_TRY(fl_meta_get(&to, x->meta->dtype, &x->meta->shape, step->placement, step->after, false));
    fl_status status = step->kind == FL_BOX_ZERO_FILL ? apply_fill(out, x, to, step) : apply_slice(out, x, to);
    if (!last) fl_meta_unref(to);
    return status;
}

/* "an all-gather", "a reduce-scatter" */
static fl_status needs_peer(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to)
{
    char a[FL_ND_SBP_TEXT], b[FL_ND_SBP_TEXT], shape[FL_SHAPE_TEXT];
    int i = 0;
    FL_TRY(fl_device_require(to->placement->type));
    while (plan->steps[i].kind <= FL_BOX_RELABEL) i++;
    const char *name = fl_box_kind_name(plan->steps[i].kind);
    return fl_fail(FL_ERR_COMM, "boxing %s -> %s of %s%s needs %s %s, and %s: nothing can be communicated",
                   fl_nd_sbp_text(a, from->nd_sbp), fl_nd_sbp_text(b, to->nd_sbp), fl_dtype_name(from->dtype), fl_shape_text(shape, &from->shape),
                   strchr("ae", name[0]) ? "an" : "a", name,
                   fl_world_get()->dry ? "this is a dry world (FLOW_WORLD)" : "this process has no transport");
}

fl_status fl_boxing_apply(fl_tensor **out, fl_tensor *x, const fl_meta *to)
{
    const fl_meta *from = x->meta;
    if (from == to) {
        *out = fl_tensor_ref(x);
        return FL_OK;
    }
    assert(from->dtype == to->dtype && fl_shape_equal(&from->shape, &to->shape));
    fl_box_plan plan;
    FL_TRY(fl_boxing_plan(&plan, from->dtype, &from->shape, from->placement, from->nd_sbp, to->placement, to->nd_sbp));
    if (!plan.local) return needs_peer(&plan, from, to);
    if (plan.count == 0) return apply_slice(out, x, to);
    fl_tensor *now = fl_tensor_ref(x);
    for (int i = 0; i < plan.count; i++) {
        fl_tensor *next;
        fl_status status = apply_step(&next, now, &plan.steps[i], i + 1 == plan.count ? to : NULL);
        fl_tensor_unref(now);
        FL_TRY(status);
        now = next;
    }
    *out = now;
    return FL_OK;
}

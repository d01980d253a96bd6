/*
** bucket.c -- gradients that are summed over the same ranks travel in one all-reduce.
**
** The parts are joined to one line, which is reduced and cut apart again: the results are views of it.
*/
#include "op/views.h"
#include "bucket.h"
#include "boxing/boxing.h"
#include "dispatch/to_global.h"
#include "dispatch/dispatch.h"
#include "dispatch/record.h"
#include "dispatch/tracer.h"

enum { TOGETHER = 64 };

int fl_bucket_reported;

static bool same_route(const fl_box_route *a, const fl_box_route *b)
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
        fl_attr_set_list(&to_line, FL_VIEW_SIZE, (const int64_t[]){-1}, 1);
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
static fl_status reduce_joined(fl_tensor **out, fl_tensor *joined, const fl_box_route *route)
{
    fl_nd_sbp whole = fl_nd_sbp_fill(FL_B, route->placement->ndim), partial = whole;
    const fl_meta *reduced;
    fl_tensor *x;
    partial.at[route->axis] = route->partial;
    FL_TRY(fl_global_from_part(&x, joined, &joined->meta->shape, route->placement, partial));
    fl_status status = fl_meta_get(&reduced, joined->meta->dtype, &joined->meta->shape, route->placement, whole, false);
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

static fl_status run_together(fl_tensor **out, fl_tensor *const *xs, const fl_meta *const *to,
                              const fl_box_route *route, int count)
{
    fl_tensor *joined, *line;
    FL_TRY(join_parts(&joined, xs, count));
    fl_status status = reduce_joined(&line, joined, route);
    fl_tensor_unref(joined);
    FL_TRY(status);
    status = cut_apart(out, line, to, count);
    fl_tensor_unref(line);
    return status;
}

/* Unrecorded; an observer sees every tensor, not the line that they are joined to. */
static fl_status apply_together(fl_tensor **out, fl_tensor *const *xs, const fl_meta *const *to,
                                const fl_box_route *route, int count)
{
    if (count == 1) return fl_boxing_apply(out, xs[0], to[0]);
    fl_status reported = FL_OK;
    for (int i = 0; i < count && reported == FL_OK; i++) {
        fl_bucket_reported = i;
        reported = fl_boxing_report(xs[i]->meta, to[i]);
    }
    fl_bucket_reported = 0;
    FL_TRY(reported);
    bool recording = fl_record_pause();
    void (*observer)(const fl_box_plan *, const fl_meta *, const fl_meta *) = fl_boxing_observer;
    fl_boxing_observer = NULL;
    fl_status status = run_together(out, xs, to, route, count);
    fl_boxing_observer = observer;
    fl_record_resume(recording);
    return status;
}

fl_status fl_bucket_box(fl_tensor **out, fl_tensor *const *xs, const fl_meta *const *to, int count)
{
    fl_box_route first = {.placement = NULL}; /* of xs[start .. start + n), which travel together */
    int start = 0, n = 0;
    memset(out, 0, (size_t)count * sizeof *out);
    for (int i = 0; i < count && fl_tracer_now; i++)
        FL_TRY(fl_to_global(&out[i], xs[i], to[i]->placement, to[i]->nd_sbp, NULL));
    if (fl_tracer_now) return FL_OK;
    for (int i = 0; i <= count; i++) {
        fl_box_route own = {.placement = NULL};
        if (i < count) FL_TRY(fl_boxing_route(&own, xs[i]->meta, to[i]));
        if (n > 0 && (n == TOGETHER || !same_route(&first, &own))) {
            FL_TRY(apply_together(out + start, xs + start, to + start, &first, n));
            n = 0;
        }
        if (i < count && !own.placement) FL_TRY(fl_boxing_apply(&out[i], xs[i], to[i]));
        if (!own.placement) continue;
        if (n++ == 0) {
            first = own;
            start = i;
        }
    }
    return FL_OK;
}

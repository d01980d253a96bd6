/*
** target.c -- see target.h.
*/
#include "target.h"

bool fl_overlaps_askew(const fl_tensor *a, const fl_tensor *b)
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

bool fl_is_nested(const fl_tensor *tensor)
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

bool fl_is_expanded(const fl_tensor *tensor)
{
    for (int i = 0; i < tensor->meta->shape.ndim; i++)
        if (tensor->strides[i] == 0 && tensor->meta->window.size[i] > 1) return true;
    return false;
}

fl_status fl_target_check_strides(const fl_op *op, const fl_tensor *target)
{
    const char *suffix = op->mutates ? "" : "_";
    if (!fl_is_nested(target))
        return fl_fail(
            FL_ERR_STATE,
            "%s%s: this tensor %s (several positions share one element), so it cannot be written in place; use clone() "
            "first",
            op->name, suffix, fl_is_expanded(target) ? "is expanded" : "has strides that overlap");
    if (target->moved_view)
        return fl_fail(FL_ERR_STATE,
                       "%s%s: this view of a split axis had to move data, so it is a copy; assign x[...] = v instead",
                       op->name, suffix);
    return FL_OK;
}

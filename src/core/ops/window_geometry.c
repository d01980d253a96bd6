/*
** window_geometry.c -- attributes of windows: see ops.h.
*/
#include "op/window_geometry.h"
#include "ops.h"

static const char *const AXES[] = {"", "two (rows, columns)", "three (depth, rows, columns)"};

fl_status fl_window_geometry_sizes(int64_t *sizes, const fl_infer *infer, int slot, const char *name, int64_t least,
                                   int count)
{
    const fl_attr *a = &infer->attrs->at[slot];
    if (a->count != 1 && a->count != count)
        return fl_infer_fail(infer, FL_ERR_VALUE, "%s must be one number%s%s, got %d", name, count > 1 ? " or " : "",
                             AXES[count - 1], a->count);
    fl_window_geometry_read(sizes, a, count);
    for (int d = 0; d < count; d++)
        if (sizes[d] < least || sizes[d] > INT32_MAX)
            return fl_infer_fail(infer, FL_ERR_VALUE, "%s must be between %lld and %d, got %lld", name,
                                 (long long)least, INT32_MAX, (long long)sizes[d]);
    return FL_OK;
}

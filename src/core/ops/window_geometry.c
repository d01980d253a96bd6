/*
** window_geometry.c -- attributes of windows: see ops.h.
*/
#include "op/window_geometry.h"
#include "ops.h"

fl_status fl_window_geometry_pair(int64_t pair[2], const fl_infer *infer, int slot, const char *name, int64_t least)
{
    const fl_attr *a = &infer->attrs->at[slot];
    if (a->count != 1 && a->count != 2)
        return fl_infer_fail(infer, FL_ERR_VALUE, "%s must be one number or two (rows, columns), got %d", name,
                             a->count);
    fl_window_geometry_read(pair, a);
    for (int d = 0; d < 2; d++)
        if (pair[d] < least || pair[d] > INT32_MAX)
            return fl_infer_fail(infer, FL_ERR_VALUE, "%s must be between %lld and %d, got %lld", name,
                                 (long long)least, INT32_MAX, (long long)pair[d]);
    return FL_OK;
}

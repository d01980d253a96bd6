/*
** line_view.h -- a kernel's operand with one axis moved to the end, so that its lines along the axis are rows.
*/
#ifndef FL_LINE_VIEW_H
#define FL_LINE_VIEW_H

#include "view.h"

/* `v` points into the struct: it is not to be copied. */
typedef struct fl_line_view {
    fl_view v;
    int64_t size[FL_MAX_NDIM], stride[FL_MAX_NDIM];
} fl_line_view;

static inline void fl_line_view_init(fl_line_view *lines, const fl_view *view, int axis)
{
    int count = 0;
    int64_t inner = 1;
    for (int i = 0; i <= view->ndim; i++) {
        int from = i < view->ndim ? i : axis;
        if (i == axis || from >= view->ndim) continue;
        lines->size[count] = view->size[from];
        lines->stride[count++] = view->stride[from];
    }
    lines->v = *view;
    lines->v.size = lines->size;
    lines->v.stride = lines->stride;
    lines->v.contiguous = true;
    for (int i = count - 1; i >= 0; i--) {
        if (lines->size[i] != 1 && lines->stride[i] != inner) lines->v.contiguous = false;
        inner *= lines->size[i];
    }
}

/* Elements of a line. */
static inline int64_t fl_line_length(const fl_line_view *lines)
{
    return lines->v.ndim ? lines->size[lines->v.ndim - 1] : 1;
}

#endif

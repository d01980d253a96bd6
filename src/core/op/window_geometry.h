/*
** window_geometry.h -- where the taps of convolution and pooling windows fall: shared by inference and the kernels of
** all devices.
**
** Sizes are (rows, columns) of pooling and (depth, rows, columns) of convolutions. Tap t of the window at position o
** lies at o * stride - padding + t * dilation of its axis; positions outside the axis are padding.
*/
#ifndef FL_WINDOW_GEOMETRY_H
#define FL_WINDOW_GEOMETRY_H

#include "view.h"

enum { FL_WINDOW_AXES = 3 };

typedef struct fl_window_geometry {
    int64_t size[FL_WINDOW_AXES], stride[FL_WINDOW_AXES], padding[FL_WINDOW_AXES], dilation[FL_WINDOW_AXES];
} fl_window_geometry;

/* Reads a checked attribute of one number for all of `count` axes, or one each. */
static inline void fl_window_geometry_read(int64_t *sizes, const fl_attr *attr, int count)
{
    for (int d = 0; d < count; d++) sizes[d] = attr->list[attr->count > 1 ? d : 0];
}

/* Elements that a window spans along axis d. */
static inline int64_t fl_window_geometry_span(const fl_window_geometry *geometry, int d)
{
    return (geometry->size[d] - 1) * geometry->dilation[d] + 1;
}

/* Positions of the window along axis d of n elements; not above 0 where it does not fit. With `ceil` a last window may
** reach over the end, but begins before it or in the padding before the axis. */
static inline int64_t fl_window_geometry_count(const fl_window_geometry *geometry, int d, int64_t n, bool ceil)
{
    int64_t room = n + 2 * geometry->padding[d] - fl_window_geometry_span(geometry, d), stride = geometry->stride[d];
    if (room < 0) return ceil && room + stride > 0 && geometry->padding[d] + n > 0 ? 1 : 0;
    int64_t count = (ceil ? room + stride - 1 : room) / stride + 1;
    return ceil && (count - 1) * stride >= n + geometry->padding[d] ? count - 1 : count;
}

/* The positions [*from, *to) out of `count` at which this tap lies on the axis of n elements. */
static inline void fl_window_geometry_range(int64_t *from, int64_t *to, const fl_window_geometry *geometry, int d,
                                            int64_t tap, int64_t n, int64_t count)
{
    int64_t stride = geometry->stride[d], before = geometry->padding[d] - tap * geometry->dilation[d], end = n + before;
    *from = before <= 0 ? 0 : (before + stride - 1) / stride;
    *to = end <= 0 ? 0 : (end + stride - 1) / stride;
    if (*to > count) *to = count;
    if (*from > *to) *from = *to;
}

#endif

/*
** axes.h -- the axes of a loop over several operands, simplified: what the planners of copies, reductions, elementwise
** launches and regions of boxing share, on the CPU and on devices.
**
** Operand 0 is the one that is written, if any. Most planners have strides in bytes, so that a run of elements can be
** moved as one wider element; they may be 0 or negative.
*/
#ifndef FL_AXES_H
#define FL_AXES_H

#include "shape.h"

enum { FL_LAYOUT_OPERANDS = 4, FL_LAYOUT_AXES = 2 * FL_MAX_NDIM };

typedef struct fl_axis {
    int64_t size, stride[FL_LAYOUT_OPERANDS];
} fl_axis;

typedef struct fl_layout {
    int count, operands;
    fl_axis axes[FL_LAYOUT_AXES]; /* outermost first */
} fl_layout;

static inline int64_t fl_layout_magnitude(int64_t value) { return value < 0 ? -value : value; }

static inline int64_t fl_layout_numel(const fl_layout *layout)
{
    int64_t n = 1;
    for (int i = 0; i < layout->count; i++) n *= layout->axes[i].size;
    return n;
}

/* Drops axes of size 1 and puts the others in the order of operand 0's falling strides. */
static inline void fl_layout_order(fl_layout *layout)
{
    int count = 0;
    for (int i = 0; i < layout->count; i++) {
        if (layout->axes[i].size == 1) continue;
        int64_t reach = fl_layout_magnitude(layout->axes[i].stride[0]);
        int at = count++;
        if (at == i && (at == 0 || fl_layout_magnitude(layout->axes[at - 1].stride[0]) >= reach))
            continue; /* is there */
        fl_axis axis = layout->axes[i];
        for (; at > 0 && fl_layout_magnitude(layout->axes[at - 1].stride[0]) < reach; at--)
            layout->axes[at] = layout->axes[at - 1];
        layout->axes[at] = axis;
    }
    layout->count = count;
}

/* True if the axis `inner` continues the axis `outer` in all operands. */
static inline bool fl_axis_continues(const fl_axis *outer, const fl_axis *inner, int operands)
{
    for (int o = 0; o < operands; o++)
        if (outer->stride[o] != inner->stride[o] * inner->size) return false;
    return true;
}

/* Adds an axis inside those that are there. One of size 1 is dropped; one that lies inside the last in all operands
** becomes one with it. */
static inline void fl_layout_add(fl_layout *layout, const fl_axis *axis)
{
    if (axis->size == 1) return;
    int64_t outer = 1;
    if (layout->count > 0 && fl_axis_continues(&layout->axes[layout->count - 1], axis, layout->operands))
        outer = layout->axes[--layout->count].size;
    fl_axis *added = &layout->axes[layout->count++];
    *added = *axis;
    added->size *= outer;
}

/* Makes one axis of neighbours that lie one inside the other in all operands. */
static inline void fl_layout_merge(fl_layout *layout)
{
    int count = layout->count;
    layout->count = 0;
    for (int i = 0; i < count; i++) fl_layout_add(layout, &layout->axes[i]);
}

/* No axis is left when there is just one element. */
static inline void fl_layout_simplify(fl_layout *layout)
{
    fl_layout_order(layout);
    fl_layout_merge(layout);
}

/* Cuts the longest axis but the last in two, or where there is no other the last one, at a multiple of `grain` if it is
** longer than that. offset[o]: bytes from the first half to the second. */
static inline void fl_layout_halve(fl_layout *first, fl_layout *second, int64_t *offset, int64_t grain)
{
    int cut = 0, last = first->count - 1;
    for (int i = 1; i < last; i++)
        if (first->axes[i].size > first->axes[cut].size) cut = i;
    if (first->axes[cut].size == 1) cut = last;
    fl_axis *axis = &first->axes[cut];
    int64_t whole = axis->size, half = whole / 2;
    if (cut == last && half > grain) half -= half % grain;
    for (int o = 0; o < first->operands; o++) offset[o] = half * axis->stride[o];
    axis->size = half;
    *second = *first;
    second->axes[cut].size = whole - half;
}

#endif

/*
** shape.h -- logical shapes, balanced splits, text for messages.
*/
#ifndef FL_SHAPE_H
#define FL_SHAPE_H

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_MAX_NDIM = 8 };

typedef struct fl_shape {
    int ndim;
    int64_t dims[FL_MAX_NDIM]; /* entries from ndim on are 0 */
} fl_shape;

/* Elements a shape may have: the bytes of any dtype and all offsets stay below 2^62. */
#define FL_MAX_NUMEL (INT64_C(1) << 59)

/* Checks sizes (none negative, ndim <= FL_MAX_NDIM, fewer than FL_MAX_NUMEL elements) and fills *out.
** `who` is the op's name for the message. */
FL_EXPORT fl_status fl_shape_make(fl_shape *out, const char *who, const int64_t *dims, int ndim);

FL_EXPORT bool fl_shape_equal(const fl_shape *a, const fl_shape *b);
FL_EXPORT int64_t fl_shape_numel(const fl_shape *shape);

/* Strides (in elements) of a contiguous tensor of these sizes; an axis of size 0 counts as 1. */
FL_EXPORT void fl_shape_strides(int64_t *strides, const int64_t *dims, int ndim);

/* Shape that a and b broadcast to; fails with "who: shapes [2, 3] and [4] do not broadcast". */
FL_EXPORT fl_status fl_shape_broadcast(fl_shape *out, const char *who, const fl_shape *a, const fl_shape *b);

/* "[2, 3]" into buffer; returns buffer. FL_SHAPE_TEXT bytes always suffice. */
enum { FL_SHAPE_TEXT = 192 };
FL_EXPORT const char *fl_shape_text(char *buffer, const fl_shape *shape);

/* Axis counted from the end when negative; *out in 0..ndim-1, or an error naming who, axis and shape. A 0-d tensor
** takes axis 0 and -1, as in PyTorch (callers treat it as having one axis of size 1). */
FL_EXPORT fl_status fl_shape_axis(int *out, const char *who, int64_t axis, const fl_shape *shape);

/* The part that piece `index` of `parts` holds of size n: the first n % parts pieces get one more. */
static inline void fl_split(int64_t *start, int64_t *size, int64_t n, int parts, int index)
{
    int64_t base = n / parts, extra = n % parts;
    *start = base * index + (index < extra ? index : extra);
    *size = base + (index < extra);
}

#endif

/*
** shape.c -- logical shapes: checks, strides, broadcasting, text.
*/
#include "shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *dims_text(char *buffer, const int64_t *dims, int ndim)
{
    size_t n = 0;
    buffer[n++] = '[';
    for (int i = 0; i < ndim; i++)
        n += (size_t)snprintf(buffer + n, FL_SHAPE_TEXT - n, i ? ", %" PRId64 : "%" PRId64, dims[i]);
    snprintf(buffer + n, FL_SHAPE_TEXT - n, "]");
    return buffer;
}

const char *fl_shape_text(char *buffer, const fl_shape *shape) { return dims_text(buffer, shape->dims, shape->ndim); }

fl_status fl_shape_make(fl_shape *out, const char *who, const int64_t *dims, int ndim)
{
    char text[FL_SHAPE_TEXT];
    if (ndim < 0) return fl_fail(FL_ERR_SHAPE, "%s: ndim is %d, it must not be negative", who, ndim);
    if (ndim > FL_MAX_NDIM)
        return fl_fail(FL_ERR_SHAPE, "%s: %d axes are too many, a tensor has at most %d", who, ndim, FL_MAX_NDIM);
    int64_t numel = 1; /* an empty axis counts as 1, so that strides stay in range too */
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0)
            return fl_fail(FL_ERR_SHAPE, "%s: size %" PRId64 " in shape %s is negative", who, dims[i],
                           dims_text(text, dims, ndim));
        if (__builtin_mul_overflow(numel, dims[i] ? dims[i] : 1, &numel) || numel >= FL_MAX_NUMEL)
            return fl_fail(FL_ERR_SHAPE, "%s: shape %s has too many elements (2^59 or more)", who,
                           dims_text(text, dims, ndim));
    }
    *out = (fl_shape){.ndim = ndim};
    for (int i = 0; i < ndim; i++) out->dims[i] = dims[i];
    return FL_OK;
}

bool fl_shape_equal(const fl_shape *a, const fl_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof a->dims[0]) == 0;
}

int64_t fl_shape_numel(const fl_shape *shape)
{
    int64_t numel = 1;
    for (int i = 0; i < shape->ndim; i++) numel *= shape->dims[i];
    return numel;
}

void fl_shape_strides(int64_t *strides, const int64_t *dims, int ndim)
{
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i] ? dims[i] : 1;
    }
}

fl_status fl_shape_broadcast(fl_shape *out, const char *who, const fl_shape *a, const fl_shape *b)
{
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t dims[FL_MAX_NDIM];
    for (int i = 0; i < ndim; i++) {
        int ia = i - (ndim - a->ndim), ib = i - (ndim - b->ndim);
        int64_t na = ia < 0 ? 1 : a->dims[ia], nb = ib < 0 ? 1 : b->dims[ib];
        if (na != nb && na != 1 && nb != 1) {
            char ta[FL_SHAPE_TEXT], tb[FL_SHAPE_TEXT];
            return fl_fail(FL_ERR_SHAPE, "%s: shapes %s and %s do not broadcast", who, fl_shape_text(ta, a),
                           fl_shape_text(tb, b));
        }
        dims[i] = na == 1 ? nb : na;
    }
    return fl_shape_make(out, who, dims, ndim);
}

/* Apart, so that its text takes no stack where nothing is wrong. */
static __attribute__((noinline)) fl_status fail_axis(const char *who, int64_t axis, const fl_shape *shape, int ndim)
{
    char text[FL_SHAPE_TEXT];
    return fl_fail(FL_ERR_SHAPE, "%s: axis %" PRId64 " is out of range for shape %s (%d to %d)", who, axis,
                   fl_shape_text(text, shape), -ndim, ndim - 1);
}

fl_status fl_shape_axis(int *out, const char *who, int64_t axis, const fl_shape *shape)
{
    int ndim = shape->ndim ? shape->ndim : 1;
    if (axis < -ndim || axis >= ndim) return fail_axis(who, axis, shape, ndim);
    *out = (int)(axis < 0 ? axis + ndim : axis);
    return FL_OK;
}

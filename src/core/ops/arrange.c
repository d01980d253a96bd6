/*
** arrange.c -- the axes and elements of one tensor arranged anew: bodies in permute, reshape, flip and diagonal.
**
** Results are views where those are; SBPs and gradients are theirs.
*/
#include "op/create.h"
#include "op/slicing.h"
#include "op/views.h"
#include "expr.h"

static const fl_shape *shape_of(const fl_operand *operand) { return &operand->tensor->meta->shape; }

/* Ends a body whose result is `result`. */
static fl_status end_with(fl_tensor **out, fl_expr *expr, fl_tensor *result)
{
    *out = fl_expr_take(expr, result);
    return fl_expr_end(expr);
}

static fl_status require_axes(const char *who, const fl_shape *shape, int least)
{
    char text[FL_SHAPE_TEXT];
    if (shape->ndim >= least) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: needs at least %d ax%s, x is %s", who, least, least == 1 ? "is" : "es",
                   fl_shape_text(text, shape));
}

static fl_tensor *flipped(fl_expr *expr, fl_tensor *x, const int64_t *axes, int count)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(flip));
    fl_attr_set_list(&a, FL_FLIP_AXES, axes, count);
    return EXPR_CALL(expr, &a, flip, fl_of(x));
}

static fl_tensor *exchanged(fl_expr *expr, fl_tensor *x, int axis0, int axis1)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(transpose));
    fl_attr_set(&a, FL_TRANSPOSE_AXIS0, axis0);
    fl_attr_set(&a, FL_TRANSPOSE_AXIS1, axis1);
    return EXPR_CALL(expr, &a, transpose, fl_of(x));
}

static fl_tensor *copied(fl_expr *expr, fl_tensor *x) { return EXPR_CALL(expr, NULL, clone, fl_of(x)); }

/* ---- axes in another order ---- */

enum { MOVE_SOURCE, MOVE_DESTINATION };

/* The order that puts axis from[i] at to[i] and leaves the others in theirs. */
static void moved_order(int64_t *order, const int *from, const int *to, int count, int ndim)
{
    uint32_t sources = 0;
    for (int j = 0; j < ndim; j++) order[j] = -1;
    for (int i = 0; i < count; i++) {
        order[to[i]] = from[i];
        sources |= 1u << from[i];
    }
    for (int j = 0, axis = 0; j < ndim; j++) {
        if (order[j] >= 0) continue;
        while (sources >> axis & 1u) axis++;
        order[j] = axis++;
    }
}

static fl_status body_movedim(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_attr *source = &attrs->at[MOVE_SOURCE], *destination = &attrs->at[MOVE_DESTINATION];
    const fl_shape *shape = shape_of(&in[0]);
    int from[FL_MAX_NDIM] = {0}, to[FL_MAX_NDIM] = {0};
    int64_t order[FL_MAX_NDIM];
    fl_expr c = {0};
    if (source->count != destination->count)
        return fl_fail(FL_ERR_VALUE, "movedim: source names %d axes and destination %d; there must be as many",
                       source->count, destination->count);
    if (shape->ndim == 0 && source->count == 1) { /* axis 0 of no axes */
        FL_TRY(fl_shape_axis(&from[0], "movedim", source->list[0], shape));
        FL_TRY(fl_shape_axis(&to[0], "movedim", destination->list[0], shape));
        return end_with(out, &c, expr_permuted(&c, in[0].tensor, order));
    }
    FL_TRY(fl_axes_in_order(from, "movedim", "source", source, shape));
    FL_TRY(fl_axes_in_order(to, "movedim", "destination", destination, shape));
    moved_order(order, from, to, source->count, shape->ndim);
    return end_with(out, &c, expr_permuted(&c, in[0].tensor, order));
}

FL_OP(movedim) = {
    .name = "movedim",
    .sig = "movedim(x, source: axes, destination: axes)",
    .nout = 1,
    .doc = "The axes of source at the positions of destination; the others keep their order.",
    .body = body_movedim,
    FL_SAMPLES("flow.randn(2, 3, 4), 0, 2", "flow.randn(2, 3, 4, 5), {0, -1}, {1, 0}", "flow.tensor(1.5), 0, 0"),
};

static fl_status body_matrix_transpose(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(require_axes("matrix_transpose", shape_of(&in[0]), 2));
    return end_with(out, &c, exchanged(&c, in[0].tensor, -2, -1));
}

FL_OP(matrix_transpose) = {
    .name = "matrix_transpose",
    .sig = "matrix_transpose(x)",
    .nout = 1,
    .doc = "Exchanges the last two axes; x.mT is the same.",
    .body = body_matrix_transpose,
    FL_SAMPLES("flow.randn(2, 3)", "flow.randn(2, 3, 4)"),
};

enum { ROT90_K, ROT90_AXES };

static fl_status body_rot90(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_attr *given = &attrs->at[ROT90_AXES];
    int axes[FL_MAX_NDIM] = {0, 1}, turns = (int)(attrs->at[ROT90_K].integer & 3);
    fl_tensor *x = in[0].tensor;
    fl_expr c = {0};
    FL_TRY(require_axes("rot90", shape_of(&in[0]), 2));
    if (given->given && given->count != 2)
        return fl_fail(FL_ERR_VALUE, "rot90: axes must be two axes, got %d", given->count);
    if (given->given) FL_TRY(fl_axes_in_order(axes, "rot90", "axes", given, shape_of(&in[0])));
    if (turns == 0) return end_with(out, &c, copied(&c, x));
    if (turns == 2) return end_with(out, &c, flipped(&c, x, (int64_t[]){axes[0], axes[1]}, 2));
    fl_tensor *mirrored = flipped(&c, x, (int64_t[]){turns == 1 ? axes[1] : axes[0]}, 1);
    return end_with(out, &c, exchanged(&c, mirrored, axes[0], axes[1]));
}

FL_OP(rot90) = {
    .name = "rot90",
    .sig = "rot90(x, k: int = 1, axes: axes = nil)",
    .nout = 1,
    .doc = "x turned k times by 90 degrees in the plane of two axes (0 and 1), from the first towards the second.",
    .body = body_rot90,
    FL_SAMPLES("flow.randn(2, 3)", "flow.randn(2, 3), 2", "flow.randn(2, 3, 4), -1, {1, 2}", "flow.randn(2, 3), 4"),
};

static fl_status body_flip_axis(fl_tensor **out, const char *who, const fl_operand *in, int axis)
{
    fl_expr c = {0};
    FL_TRY(require_axes(who, shape_of(&in[0]), axis + 1));
    return end_with(out, &c, flipped(&c, in[0].tensor, (int64_t[]){axis}, 1));
}

static fl_status body_fliplr(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return body_flip_axis(out, "fliplr", in, 1);
}
static fl_status body_flipud(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return body_flip_axis(out, "flipud", in, 0);
}

FL_OP(fliplr) = {
    .name = "fliplr",
    .sig = "fliplr(x)",
    .nout = 1,
    .doc = "A copy with the columns, axis 1, in reverse order.",
    .body = body_fliplr,
    FL_SAMPLES("flow.randn(2, 3)"),
};
FL_OP(flipud) = {
    .name = "flipud",
    .sig = "flipud(x)",
    .nout = 1,
    .doc = "A copy with the rows, axis 0, in reverse order.",
    .body = body_flipud,
    FL_SAMPLES("flow.randn(2, 3)", "flow.randn(4)"),
};

/* ---- other sizes ---- */

enum { UNFLATTEN_AXIS, UNFLATTEN_SIZES };

/* The one size that may be -1 follows from the size of the axis. */
static fl_status complete_sizes(int64_t *sizes, const fl_attr *given, int axis, int64_t size)
{
    char text[FL_SHAPE_TEXT];
    fl_shape asked = {given->count, {0}};
    int64_t known = 1;
    int open = -1;
    bool fits = given->count > 0;
    for (int i = 0; fits && i < given->count; i++) {
        asked.dims[i] = sizes[i] = given->list[i];
        if (sizes[i] == -1 && open < 0) open = i;
        else fits = sizes[i] >= 0 && !__builtin_mul_overflow(known, sizes[i], &known);
    }
    if (fits && open >= 0) fits = known > 0 && size % known == 0;
    if (fits && open >= 0) known *= sizes[open] = size / known;
    if (fits && known == size) return FL_OK;
    for (int i = 0; i < given->count; i++) asked.dims[i] = given->list[i];
    return fl_fail(FL_ERR_SHAPE, "unflatten: sizes %s do not multiply up to %lld, the size of axis %d",
                   fl_shape_text(text, &asked), (long long)size, axis);
}

static fl_status body_unflatten(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_attr *given = &attrs->at[UNFLATTEN_SIZES];
    const fl_shape *x = shape_of(&in[0]);
    int64_t sizes[FL_MAX_NDIM], dims[2 * FL_MAX_NDIM];
    int axis, count = 0;
    FL_TRY(require_axes("unflatten", x, 1));
    FL_TRY(fl_shape_axis(&axis, "unflatten", attrs->at[UNFLATTEN_AXIS].integer, x));
    FL_TRY(complete_sizes(sizes, given, axis, x->dims[axis]));
    for (int i = 0; i < x->ndim; i++) {
        if (i != axis) dims[count++] = x->dims[i];
        for (int k = 0; i == axis && k < given->count; k++) dims[count++] = sizes[k];
    }
    fl_shape shape;
    FL_TRY(fl_shape_make(&shape, "unflatten", dims, count));
    return fl_reshaped(out, in[0].tensor, shape.dims, shape.ndim);
}

FL_OP(unflatten) = {
    .name = "unflatten",
    .sig = "unflatten(x, axis: axis, sizes: sizes)",
    .nout = 1,
    .doc = "One axis as several of these sizes (one may be -1).",
    .body = body_unflatten,
    FL_SAMPLES("flow.randn(2, 6), 1, {2, 3}", "flow.randn(6, 2), 0, {3, -1}", "flow.randn(8), -1, {2, 2, 2}"),
};

enum { LIKE_X, LIKE_OTHER };

static fl_status body_expand_as(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(expand));
    fl_attr_set_list(&a, FL_VIEW_SIZE, shape_of(&in[LIKE_OTHER])->dims, shape_of(&in[LIKE_OTHER])->ndim);
    return end_with(out, &c, EXPR_CALL(&c, &a, expand, in[LIKE_X]));
}

static fl_status body_view_as(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(view));
    fl_attr_set_list(&a, FL_VIEW_SIZE, shape_of(&in[LIKE_OTHER])->dims, shape_of(&in[LIKE_OTHER])->ndim);
    return FL_CALL_WITH(out, &a, view, in[LIKE_X]);
}

static fl_status body_reshape_as(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_shape *other = shape_of(&in[LIKE_OTHER]);
    return fl_reshaped(out, in[LIKE_X].tensor, other->dims, other->ndim);
}

static const char *const reshape_as_samples[] = {"flow.randn(2, 6), flow.randn(3, 4)",
                                                 "flow.randn(4), flow.randn(2, 2)", NULL};
FL_OP(expand_as) = {
    .name = "expand_as",
    .sig = "expand_as(x, other)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY,
    .doc = "x expanded to the sizes of other, without copying.",
    .body = body_expand_as,
    FL_SAMPLES("flow.randn(3, 1), flow.randn(3, 4)", "flow.tensor(1.5), flow.randn(2)"),
};
FL_OP(view_as) = {
    .name = "view_as",
    .sig = "view_as(x, other)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY,
    .doc = "x with the sizes of other, always a view.",
    .body = body_view_as,
    .samples = reshape_as_samples,
};
FL_OP(reshape_as) = {
    .name = "reshape_as",
    .sig = "reshape_as(x, other)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY,
    .doc = "x with the sizes of other: a view if the strides allow it, else a copy.",
    .body = body_reshape_as,
    .samples = reshape_as_samples,
};

static fl_status body_narrow_copy(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(narrow));
    for (int i = FL_SLICE_AXIS; i <= FL_SLICE_LENGTH; i++) a.at[i] = attrs->at[i];
    return end_with(out, &c, copied(&c, EXPR_CALL(&c, &a, narrow, in[0])));
}

FL_OP(narrow_copy) = {
    .name = "narrow_copy",
    .sig = "narrow_copy(x, axis: axis, start: int, length: int)",
    .nout = 1,
    .doc = "As narrow, with storage of its own.",
    .body = body_narrow_copy,
    FL_SAMPLES("flow.randn(5, 3), 0, 1, 3", "flow.randn(5, 3), -1, -2, 2"),
};

/* ---- diagonals ---- */

/* x [..., n] on a diagonal of the axes axis0 and axis1 of a result with one more axis. */
static fl_status embedded(fl_tensor **out, const char *who, fl_tensor *x, const fl_attrs *attrs)
{
    const fl_shape *in = &x->meta->shape;
    fl_shape shape = {in->ndim + 1, {0}};
    int axis0, axis1;
    fl_attrs a;
    int64_t offset = attrs->at[FL_DIAGONAL_OFFSET].integer, limit = INT64_C(1) << 62;
    FL_TRY(require_axes(who, in, 1));
    if (in->ndim == FL_MAX_NDIM) return fl_fail(FL_ERR_SHAPE, "%s: a tensor has at most %d axes", who, FL_MAX_NDIM);
    if (offset < -limit || offset > limit)
        return fl_fail(FL_ERR_VALUE, "%s: offset %lld is out of range", who, (long long)offset);
    FL_TRY(fl_shape_axis(&axis0, who, attrs->at[FL_DIAGONAL_AXIS0].integer, &shape));
    FL_TRY(fl_shape_axis(&axis1, who, attrs->at[FL_DIAGONAL_AXIS1].integer, &shape));
    int64_t size = in->dims[in->ndim - 1] + (offset < 0 ? -offset : offset);
    for (int i = 0, j = 0; i < shape.ndim; i++) shape.dims[i] = i == axis0 || i == axis1 ? size : in->dims[j++];
    fl_attrs_init(&a, FL_OP_REF(diagonal_backward));
    fl_attr_set(&a, FL_DIAGONAL_OFFSET, offset);
    fl_attr_set(&a, FL_DIAGONAL_AXIS0, axis0);
    fl_attr_set(&a, FL_DIAGONAL_AXIS1, axis1);
    fl_attr_set_list(&a, FL_DIAGONAL_SIZES, shape.dims, shape.ndim);
    return FL_CALL_WITH(out, &a, diagonal_backward, fl_of(x));
}

static fl_status body_diag_embed(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return embedded(out, "diag_embed", in[0].tensor, attrs);
}

FL_OP(diag_embed) = {
    .name = "diag_embed",
    .sig = "diag_embed(x, offset: int = 0, axis0: axis = -2, axis1: axis = -1)",
    .nout = 1,
    .doc = "Zeros with the last axis of x on a diagonal of the axes axis0 and axis1 of the result.",
    .body = body_diag_embed,
    FL_SAMPLES("flow.randn(3)", "flow.randn(2, 3), 1", "flow.randn(2, 3), -1, 0, 2", "flow.randn(2, 3), 0, 2, 0"),
};

/* A vector as the diagonal of a matrix. */
static fl_status vector_diagonal(fl_tensor **out, const char *who, fl_tensor *x, int64_t offset)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(diag_embed));
    fl_attr_set(&a, FL_DIAGONAL_OFFSET, offset);
    return embedded(out, who, x, &a);
}

static fl_status body_diagflat(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *flat;
    FL_TRY(fl_reshaped(&flat, in[0].tensor, (int64_t[]){in[0].tensor->meta->numel}, 1));
    fl_status status = vector_diagonal(out, "diagflat", flat, attrs->at[FL_DIAGONAL_OFFSET].integer);
    fl_tensor_unref(flat);
    return status;
}

FL_OP(diagflat) = {
    .name = "diagflat",
    .sig = "diagflat(x, offset: int = 0)",
    .nout = 1,
    .doc = "A matrix of zeros with all elements of x on a diagonal.",
    .body = body_diagflat,
    FL_SAMPLES("flow.randn(3)", "flow.randn(2, 2), 1", "flow.tensor(1.5), -1"),
};

static fl_status body_diag(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *shape = shape_of(&in[0]);
    fl_attrs a;
    fl_expr c = {0};
    if (shape->ndim == 1) return vector_diagonal(out, "diag", in[0].tensor, attrs->at[FL_DIAGONAL_OFFSET].integer);
    if (shape->ndim != 2)
        return fl_fail(FL_ERR_SHAPE, "diag: takes a vector or a matrix, x is %s", fl_shape_text(text, shape));
    fl_attrs_init(&a, FL_OP_REF(diagonal));
    a.at[FL_DIAGONAL_OFFSET] = attrs->at[FL_DIAGONAL_OFFSET];
    return end_with(out, &c, copied(&c, EXPR_CALL(&c, &a, diagonal, in[0])));
}

FL_OP(diag) = {
    .name = "diag",
    .sig = "diag(x, diagonal: int = 0)",
    .nout = 1,
    .doc = "Of a vector the matrix with it on a diagonal, of a matrix a copy of that diagonal.",
    .body = body_diag,
    FL_SAMPLES("flow.randn(3)", "flow.randn(3), -1", "flow.randn(3, 4)", "flow.randn(3, 4), 1"),
};

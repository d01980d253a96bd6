/*
** windows.c -- views that read the same elements several times: unfold and as_strided.
**
** Both are index_select along one axis without its copy. Their gradients add what came from one element: the gradient
** of index_select, at positions that are made of aranges.
*/
#include "op/create.h"
#include "op/indexing.h"
#include "op/views.h"
#include "expr.h"

enum { UNFOLD_AXIS, UNFOLD_SIZE, UNFOLD_STEP };
enum { STRIDED_SIZE, STRIDED_STRIDE, STRIDED_OFFSET };

/* ---- positions ---- */

/* 0, step, 2 step, ... where x is, whole on every rank. */
static fl_tensor *steps(fl_expr *expr, const fl_meta *like, int64_t count, int64_t step)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(arange));
    a.at[FL_ARANGE_START] = (fl_attr){.given = true, .kind = FL_NUM_INT, .count = 1, .integer = 0};
    a.at[FL_ARANGE_STOP] = (fl_attr){.given = true, .kind = FL_NUM_INT, .count = 1, .integer = count};
    a.has_dtype = true;
    a.option_dtype = FL_INT64;
    a.has_placement = true;
    a.is_local = like->is_local;
    a.placement = like->placement;
    a.nd_sbp = fl_nd_sbp_fill(FL_B, like->placement->ndim);
    fl_tensor *numbers = fl_expr_call(expr, FL_OP_REF(arange), NULL, 0, &a);
    return EXPR_CALL(expr, NULL, mul, fl_of(numbers), fl_of_integer(step));
}

/* Positions of a view of these sizes and strides, in its order, as one list. */
static fl_tensor *positions_of(fl_expr *expr, const fl_meta *like, const fl_shape *sizes, const int64_t *strides,
                               int64_t offset)
{
    fl_shape one = {1, {1}};
    fl_tensor *all = EXPR_CALL(expr, NULL, add, fl_of(steps(expr, like, 1, 0)), fl_of_integer(offset));
    for (int i = 0; i < sizes->ndim && expr->status == FL_OK; i++) {
        fl_shape column = {2, {all->meta->numel, 1}}, list = {1, {all->meta->numel * sizes->dims[i]}};
        fl_tensor *next = steps(expr, like, sizes->dims[i], strides[i]);
        all = expr_reshape(expr, expr_add(expr, expr_reshape(expr, all, &column), next), &list);
    }
    return sizes->ndim == 0 ? expr_reshape(expr, all, &one) : all;
}

/* The sums of g's slices along the axis at the positions, on an axis of `size`. */
static fl_tensor *added_up(fl_expr *expr, fl_tensor *g, int axis, fl_tensor *positions, int64_t size,
                           const fl_meta *like)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(index_select_backward));
    fl_attr_set(&a, FL_INDEXED_AXIS, axis);
    fl_attr_set(&a, FL_INDEX_ADD_SIZE, size);
    if (like) fl_attr_set_like(&a, FL_INDEX_ADD_LIKE, like);
    return EXPR_CALL(expr, &a, index_select_backward, fl_of(g), fl_of(positions));
}

/* ---- unfold ---- */

static int64_t windows_of(int64_t size, int64_t length, int64_t step) { return (size - length) / step + 1; }

static fl_status infer_unfold(fl_infer *infer)
{
    const fl_shape *in = &infer->in[0].shape;
    const fl_attr *at = infer->attrs->at;
    char text[FL_SHAPE_TEXT];
    int axis;
    FL_TRY(fl_shape_axis(&axis, infer->name, at[UNFOLD_AXIS].integer, in));
    int64_t size = in->ndim ? in->dims[axis] : 1, length = at[UNFOLD_SIZE].integer, step = at[UNFOLD_STEP].integer;
    if (step < 1) return fl_infer_fail(infer, FL_ERR_VALUE, "step %lld must be at least 1", (long long)step);
    if (length < 0 || length > size)
        return fl_infer_fail(infer, FL_ERR_VALUE, "size %lld must be from 0 to %lld, the size of axis %d of %s",
                             (long long)length, (long long)size, axis, fl_shape_text(text, in));
    if (in->ndim == FL_MAX_NDIM) return fl_infer_fail(infer, FL_ERR_SHAPE, "a tensor has at most %d axes", FL_MAX_NDIM);
    infer->out[0] = infer->in[0];
    fl_shape *out = &infer->out[0].shape;
    if (in->ndim) out->dims[axis] = windows_of(size, length, step);
    out->dims[out->ndim++] = length;
    return FL_OK;
}

static void window_strides(int64_t *out, const int64_t *in, int ndim, const fl_attrs *attrs)
{
    int axis = fl_axis_of(&attrs->at[UNFOLD_AXIS], ndim);
    for (int i = 0; i < ndim; i++) out[i] = i == axis ? in[i] * attrs->at[UNFOLD_STEP].integer : in[i];
    out[ndim] = ndim ? in[axis] : 1;
}

static void view_unfold(fl_view_request *request)
{
    window_strides(request->strides, request->in->strides, request->in->meta->shape.ndim, request->attrs);
}

fl_status fl_move_unfold(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *out = &kernel->out[0];
    int64_t strides[FL_MAX_NDIM];
    fl_view from = kernel->in[0];
    if (out->numel == 0) return FL_OK;
    window_strides(strides, from.stride, from.ndim, kernel->attrs);
    from.ndim = out->ndim;
    from.size = out->size;
    from.stride = strides;
    from.numel = out->numel;
    from.contiguous = false;
    return mover->copy(out, &from);
}

static fl_status kernel_unfold(fl_kernel *kernel) { return fl_move_unfold(kernel, &fl_cpu_mover); }

/* The windows of a split axis overlap the parts of several ranks. */
static void sbp_unfold(fl_sigs *sigs)
{
    int ndim = sigs->in_logical[0].ndim, axis = fl_axis_of(&sigs->attrs->at[UNFOLD_AXIS], ndim);
    for (int i = 0; i < ndim; i++)
        if (i != axis) FL_SIG(sigs, NULL, FL_S(i), FL_S(i));
    fl_sbp_moves(sigs, false);
}

/* g [.., windows, .., size] with the windows and their elements as one axis, added up at their positions. */
static fl_status grad_unfold(fl_grad *g)
{
    const fl_meta *x = g->in_meta[0];
    const fl_shape *shape = &x->shape;
    int ndim = shape->ndim, axis = fl_axis_of(&g->attrs->at[UNFOLD_AXIS], ndim);
    int64_t step = g->attrs->at[UNFOLD_STEP].integer, length = g->attrs->at[UNFOLD_SIZE].integer;
    int64_t order[FL_MAX_NDIM] = {0};
    fl_expr c = {0};
    if (length == 0) return FL_OK; /* nothing was read */
    if (ndim == 0) {
        g->gin[0] = fl_expr_take(&c, expr_reshape(&c, g->gout[0], shape));
        return fl_expr_end(&c);
    }
    for (int i = 0, j = 0; i < ndim; i++) {
        order[j++] = i;
        if (i == axis) order[j++] = ndim;
    }
    fl_shape joined = *shape, sizes = {2, {windows_of(shape->dims[axis], length, step), length}};
    joined.dims[axis] = sizes.dims[0] * length;
    fl_tensor *lines = expr_reshape(&c, expr_permuted(&c, g->gout[0], order), &joined);
    fl_tensor *positions = positions_of(&c, x, &sizes, (int64_t[]){step, 1}, 0);
    g->gin[0] = fl_expr_take(&c, added_up(&c, lines, axis, positions, shape->dims[axis], x));
    return fl_expr_end(&c);
}

FL_OP(unfold) = {
    .name = "unfold",
    .sig = "unfold(x, axis: axis, size: int, step: int)",
    .nout = 1,
    .flags = FL_OP_VIEW | FL_OP_METHOD_ONLY,
    .doc = "All windows of that size along an axis, one every step positions, as the last axis of a view.",
    .infer = infer_unfold,
    .sbp = sbp_unfold,
    .view = view_unfold,
    .cpu = kernel_unfold,
    .grad = grad_unfold,
    FL_SAMPLES("flow.randn(7, 3), 0, 3, 2", "flow.randn(2, 6), 1, 2, 1", "flow.randn(2, 6), -1, 2, 4"),
};

/* ---- as_strided ---- */

static fl_status infer_as_strided(fl_infer *infer)
{
    const fl_attr *size = &infer->attrs->at[STRIDED_SIZE], *stride = &infer->attrs->at[STRIDED_STRIDE];
    if (size->count != stride->count)
        return fl_infer_fail(infer, FL_ERR_VALUE, "size has %d numbers and stride %d; there must be as many",
                             size->count, stride->count);
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_shape_make(&infer->out[0].shape, infer->name, size->list, size->count);
}

/* The first and last element that is read must be elements of x. */
static fl_status check_as_strided(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_tensor *x = in[0].tensor;
    const fl_attr *size = &attrs->at[STRIDED_SIZE], *stride = &attrs->at[STRIDED_STRIDE];
    int64_t last = attrs->at[STRIDED_OFFSET].integer, count = stride->count < size->count ? stride->count : size->count;
    bool fits = last >= 0, empty = false;
    for (int i = 0; fits && i < count; i++) {
        int64_t reach;
        empty |= size->list[i] == 0;
        fits = stride->list[i] >= 0;
        if (!fits) return fl_fail(FL_ERR_VALUE, "as_strided: stride %lld is negative", (long long)stride->list[i]);
        fits = size->list[i] <= 0
            || (!__builtin_mul_overflow(size->list[i] - 1, stride->list[i], &reach)
                && !__builtin_add_overflow(last, reach, &last));
    }
    if (empty || (fits && last < x->meta->numel)) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "as_strided: size, stride and offset reach beyond the %lld elements of x",
                   (long long)x->meta->numel);
}

static void view_as_strided(fl_view_request *request)
{
    const fl_attr *stride = &request->attrs->at[STRIDED_STRIDE];
    for (int i = 0; i < stride->count; i++) request->strides[i] = stride->list[i];
    if (request->out_meta->local_numel) request->offset = request->attrs->at[STRIDED_OFFSET].integer;
}

fl_status fl_move_as_strided(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *out = &kernel->out[0];
    fl_view from = kernel->in[0];
    if (out->numel == 0) return FL_OK;
    from.data = (char *)from.data + kernel->attrs->at[STRIDED_OFFSET].integer * (int64_t)fl_dtype_size(from.dtype);
    from.ndim = out->ndim;
    from.size = out->size;
    from.stride = kernel->attrs->at[STRIDED_STRIDE].list;
    from.numel = out->numel;
    from.contiguous = false;
    return mover->copy(out, &from);
}

static fl_status kernel_as_strided(fl_kernel *kernel) { return fl_move_as_strided(kernel, &fl_cpu_mover); }

/* Positions of x may be read more than once: their gradients add up. */
static fl_status grad_as_strided(fl_grad *g)
{
    const fl_meta *x = g->in_meta[0], *y = g->out_meta[0];
    fl_expr c = {0};
    fl_shape list = {1, {y->numel}};
    fl_tensor *positions = positions_of(&c, x, &y->shape, g->attrs->at[STRIDED_STRIDE].list,
                                        g->attrs->at[STRIDED_OFFSET].integer);
    fl_tensor *flat = added_up(&c, expr_reshape(&c, g->gout[0], &list), 0, positions, x->numel, NULL);
    g->gin[0] = fl_expr_take(&c, expr_reshape(&c, flat, &x->shape));
    return fl_expr_end(&c);
}

FL_OP(view_strided) = {
    .name = "view_strided",
    .sig = "view_strided(x, size: sizes, stride: ints, ~storage_offset: int = 0)",
    .nout = 1,
    .flags = FL_OP_VIEW | FL_OP_LOCAL_ONLY | FL_OP_HIDDEN,
    .doc = "as_strided of a contiguous tensor.",
    .infer = infer_as_strided,
    .check = check_as_strided,
    .view = view_as_strided,
    .cpu = kernel_as_strided,
    .grad = grad_as_strided,
};

/* A copy of x that is not in row-major order counts as x does. */
static fl_status body_as_strided(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *rows = EXPR_CALL(&c, NULL, contiguous, in[0]);
    *out = fl_expr_take(&c, EXPR_CALL(&c, attrs, view_strided, fl_of(rows)));
    return fl_expr_end(&c);
}

static const char *const as_strided_samples[] = {"flow.randn(9), {2, 3}, {3, 1}", "flow.randn(3, 4), {3, 3}, {1, 2}, 2",
                                                 "flow.randn(5), {}, {}, 3", NULL};
FL_OP(as_strided) = {
    .name = "as_strided",
    .sig = "as_strided(x, size: sizes, stride: ints, ~storage_offset: int = 0)",
    .nout = 1,
    .doc = "The elements of x in row-major order, seen with these sizes and strides from one of them on: a view of a "
           "contiguous tensor; all that is read must be elements of x.",
    .body = body_as_strided,
    .samples = as_strided_samples,
};

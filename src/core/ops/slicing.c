/*
** slicing.c -- views of some positions of an axis: narrow, slice, select, diagonal; and their gradients.
**
** Positions (start, index) are value attributes, checked at every call; lengths and axes are part of the plan. The
** gradient of such a view is zeros with g in its place, an op whose own gradient is the view again.
*/
#include "op/slicing.h"
#include "op/views.h"
#include "ops.h"

/* ---- intervals: narrow, slice, select ---- */

/* Every axis but `axis`; `dropped`: the axes after it move up. */
static void sbp_other_axes(fl_sigs *sigs, int axis, bool dropped)
{
    int map[FL_MAX_NDIM];
    for (int i = 0; i < sigs->in_logical[0].ndim; i++) map[i] = i == axis ? -1 : i - (dropped && i > axis);
    fl_sbp_map(sigs, map);
}

/* Fails unless an axis has `length` elements at start, start + step, ...: errors name axis and sizes. */
static fl_status check_interval(const char *who, const fl_tensor *x, int64_t axis_given, int64_t start, int64_t length,
                                int64_t step)
{
    int axis;
    char text[FL_SHAPE_TEXT];
    FL_TRY(fl_shape_axis(&axis, who, axis_given, &x->meta->shape));
    int64_t size = x->meta->shape.ndim ? x->meta->shape.dims[axis] : 1;
    if (start < -size || start > size)
        return fl_fail(FL_ERR_VALUE, "%s: start %lld is out of range for axis %d of %s", who, (long long)start, axis,
                       fl_shape_text(text, &x->meta->shape));
    if (start < 0) start += size;
    if (length > 0 && (length - 1 > (size - start - 1) / step || start >= size))
        return fl_fail(FL_ERR_VALUE, "%s: start %lld and length %lld exceed size %lld of axis %d of %s", who,
                       (long long)start, (long long)length, (long long)size, axis,
                       fl_shape_text(text, &x->meta->shape));
    return FL_OK;
}

static fl_status infer_interval(fl_infer *infer)
{
    int axis;
    char text[FL_SHAPE_TEXT];
    const fl_shape *in = &infer->in[0].shape;
    int64_t length = infer->attrs->at[FL_SLICE_LENGTH].integer;
    if (in->ndim == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "x has no axes");
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_SLICE_AXIS].integer, in));
    if (length < 0) return fl_infer_fail(infer, FL_ERR_VALUE, "length %lld is negative", (long long)length);
    if (length > in->dims[axis])
        return fl_infer_fail(infer, FL_ERR_VALUE, "length %lld exceeds size %lld of axis %d of %s", (long long)length,
                             (long long)in->dims[axis], axis, fl_shape_text(text, in));
    infer->out[0].dtype = infer->in[0].dtype;
    infer->out[0].shape = *in;
    infer->out[0].shape.dims[axis] = length;
    return FL_OK;
}

/* An interval of a split axis would lie on some ranks only, unless it is the whole axis. Values are only moved. */
static void sbp_interval(fl_sigs *sigs)
{
    int axis = fl_axis_of(&sigs->attrs->at[FL_SLICE_AXIS], sigs->in_logical[0].ndim);
    bool whole = sigs->attrs->at[FL_SLICE_LENGTH].integer == sigs->in_logical[0].dims[axis];
    sbp_other_axes(sigs, whole ? -1 : axis, false);
    fl_sbp_moves(sigs, false);
}

static int64_t from_front(int64_t position, int64_t size) { return position < 0 ? position + size : position; }

static void view_interval(fl_view_request *request, int64_t step)
{
    const fl_tensor *x = request->in;
    int ndim = x->meta->shape.ndim, axis = fl_axis_of(&request->attrs->at[FL_SLICE_AXIS], ndim);
    memcpy(request->strides, x->strides, sizeof request->strides);
    request->strides[axis] *= step;
    if (request->out_meta->local_numel)
        request->offset = from_front(request->attrs->at[FL_SLICE_START].integer, x->meta->shape.dims[axis])
            * x->strides[axis];
}

static fl_status check_narrow(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_interval("narrow", in[0].tensor, attrs->at[FL_SLICE_AXIS].integer, attrs->at[FL_SLICE_START].integer,
                          attrs->at[FL_SLICE_LENGTH].integer, 1);
}

static void view_narrow(fl_view_request *request) { view_interval(request, 1); }

/* Zeros of the input's shape with g in the place it was taken from. */
static fl_status put_back(fl_tensor **out, fl_tensor *g, const fl_meta *input, int axis, int64_t start, int64_t step)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(narrow_backward));
    int64_t size = input->shape.dims[axis];
    fl_attr_set(&attrs, FL_SLICE_AXIS, axis);
    fl_attr_set(&attrs, FL_SLICE_START, from_front(start, size));
    fl_attr_set(&attrs, FL_SLICE_SIZE, size);
    fl_attr_set(&attrs, FL_SLICE_STEP, step);
    return FL_CALL_WITH(out, &attrs, narrow_backward, fl_of(g));
}

/* Zeros but for the interval that was taken. */
static fl_status grad_narrow(fl_grad *g)
{
    const fl_meta *input = g->in_meta[0];
    int axis = fl_axis_of(&g->attrs->at[FL_SLICE_AXIS], input->shape.ndim);
    return put_back(&g->gin[0], g->gout[0], input, axis, g->attrs->at[FL_SLICE_START].integer, 1);
}

static const char *const narrow_samples[] = {"flow.randn(5, 3), 0, 1, 3", "flow.randn(5, 3), -1, -2, 2",
                                             "flow.randn(5, 3), 0, 5, 0", "flow.randn(4), 0, 0, 4", NULL};
FL_OP(narrow) = {
    .name = "narrow",
    .sig = "narrow(x, axis: axis, ~start: int, length: int)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "The positions start to start + length - 1 of an axis.",
    .infer = infer_interval,
    .check = check_narrow,
    .sbp = sbp_interval,
    .view = view_narrow,
    .cpu = fl_kernel_copy,
    .grad = grad_narrow,
    .samples = narrow_samples,
};

static fl_status infer_every(fl_infer *infer)
{
    if (infer->attrs->at[FL_SLICE_STEP].integer < 1)
        return fl_infer_fail(infer, FL_ERR_VALUE, "step %lld must be at least 1",
                             (long long)infer->attrs->at[FL_SLICE_STEP].integer);
    return infer_interval(infer);
}

static fl_status check_every(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int64_t step = attrs->at[FL_SLICE_STEP].integer < 1 ? 1 : attrs->at[FL_SLICE_STEP].integer;
    return check_interval("slice", in[0].tensor, attrs->at[FL_SLICE_AXIS].integer, attrs->at[FL_SLICE_START].integer,
                          attrs->at[FL_SLICE_LENGTH].integer, step);
}

static void view_every(fl_view_request *request) { view_interval(request, request->attrs->at[FL_SLICE_STEP].integer); }

/* As sbp_interval, for intervals with a step. */
static void sbp_every(fl_sigs *sigs)
{
    int axis = fl_axis_of(&sigs->attrs->at[FL_SLICE_AXIS], sigs->in_logical[0].ndim);
    sbp_other_axes(sigs, axis, false);
    fl_sbp_moves(sigs, false);
}

/* Zeros but for the positions that were taken. */
static fl_status grad_every(fl_grad *g)
{
    const fl_meta *input = g->in_meta[0];
    int axis = fl_axis_of(&g->attrs->at[FL_SLICE_AXIS], input->shape.ndim);
    return put_back(&g->gin[0], g->gout[0], input, axis, g->attrs->at[FL_SLICE_START].integer,
                    g->attrs->at[FL_SLICE_STEP].integer);
}

static const char *const every_samples[] = {"flow.randn(7, 3), 0, 1, 3, 2", "flow.randn(2, 7), 1, 0, 3, 3", NULL};
FL_OP(narrow_every) = {
    .name = "narrow_every",
    .sig = "narrow_every(x, axis: axis, ~start: int, length: int, step: int)",
    .nout = 1,
    .flags = FL_OP_VIEW | FL_OP_HIDDEN,
    .doc = "length positions of an axis: start, start + step, ...",
    .infer = infer_every,
    .check = check_every,
    .sbp = sbp_every,
    .view = view_every,
    .cpu = fl_kernel_copy,
    .grad = grad_every,
    .samples = every_samples,
};

/* start:stop:step as in Python: negative positions count from the end, positions outside are moved to the ends. */
static fl_status body_slice(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[0].tensor;
    int axis;
    if (x->meta->shape.ndim == 0) return fl_fail(FL_ERR_SHAPE, "slice: x has no axes");
    FL_TRY(fl_shape_axis(&axis, "slice", attrs->at[FL_SLICE_AXIS].integer, &x->meta->shape));
    int64_t size = x->meta->shape.dims[axis], step = attrs->at[FL_SLICE_STEP].integer;
    if (step < 1) return fl_fail(FL_ERR_VALUE, "slice: step %lld must be at least 1", (long long)step);
    int64_t start = attrs->at[FL_SLICE_START].given ? from_front(attrs->at[FL_SLICE_START].integer, size) : 0;
    int64_t stop = attrs->at[FL_SLICE_STOP].given ? from_front(attrs->at[FL_SLICE_STOP].integer, size) : size;
    start = start < 0 ? 0 : start > size ? size : start;
    stop = stop < start ? start : stop > size ? size : stop;
    fl_attrs a;
    fl_attrs_init(&a, step == 1 ? FL_OP_REF(narrow) : FL_OP_REF(narrow_every));
    fl_attr_set(&a, FL_SLICE_AXIS, axis);
    fl_attr_set(&a, FL_SLICE_START, start);
    fl_attr_set(&a, FL_SLICE_LENGTH, stop > start ? (stop - start - 1) / step + 1 : 0);
    if (step == 1) return FL_CALL_WITH(out, &a, narrow, in[0]);
    fl_attr_set(&a, FL_SLICE_STEP, step);
    return FL_CALL_WITH(out, &a, narrow_every, in[0]);
}

static const char *const slice_samples[] = {"flow.randn(7, 3), 0, 1, 6, 2", "flow.randn(5, 3), 0, -3",
                                            "flow.randn(5, 3), 1, nil, -1", "flow.randn(5), 0, 4, 2", NULL};
FL_OP(slice) = {
    .name = "slice",
    .sig = "slice(x, axis: axis, ~start: int = nil, ~stop: int = nil, ~step: int = 1)",
    .nout = 1,
    .doc = "The positions start, start + step, ... below stop of an axis; negative positions count from the end.",
    .body = body_slice,
    .samples = slice_samples,
};

static fl_status infer_select(fl_infer *infer)
{
    int axis;
    const fl_shape *in = &infer->in[0].shape;
    if (in->ndim == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "x has no axes");
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_SLICE_AXIS].integer, in));
    fl_reduce_shape(&infer->out[0].shape, in, 1u << axis, false);
    infer->out[0].dtype = infer->in[0].dtype;
    return FL_OK;
}

static fl_status check_select(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int axis;
    char text[FL_SHAPE_TEXT];
    const fl_shape *shape = &in[0].tensor->meta->shape;
    if (shape->ndim == 0) return fl_fail(FL_ERR_SHAPE, "select: x has no axes");
    FL_TRY(fl_shape_axis(&axis, "select", attrs->at[FL_SLICE_AXIS].integer, shape));
    int64_t size = shape->dims[axis], index = attrs->at[FL_SLICE_POSITION].integer;
    if (index >= -size && index < size) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "select: position %lld is out of range for axis %d of %s", (long long)index, axis,
                   fl_shape_text(text, shape));
}

static void view_select(fl_view_request *request)
{
    const fl_tensor *x = request->in;
    int ndim = x->meta->shape.ndim, axis = fl_axis_of(&request->attrs->at[FL_SLICE_AXIS], ndim);
    for (int i = 0, j = 0; i < ndim; i++)
        if (i != axis) request->strides[j++] = x->strides[i];
    if (request->out_meta->local_numel)
        request->offset = from_front(request->attrs->at[FL_SLICE_POSITION].integer, x->meta->shape.dims[axis])
            * x->strides[axis];
}

/* The axis of the position is gone; the others keep their splits. */
static void sbp_select(fl_sigs *sigs)
{
    sbp_other_axes(sigs, fl_axis_of(&sigs->attrs->at[FL_SLICE_AXIS], sigs->in_logical[0].ndim), true);
    fl_sbp_moves(sigs, false);
}

/* The gradient as an interval of length 1 among zeros. */
static fl_status grad_select(fl_grad *g)
{
    const fl_meta *input = g->in_meta[0];
    int axis = fl_axis_of(&g->attrs->at[FL_SLICE_AXIS], input->shape.ndim);
    fl_attrs attrs;
    fl_tensor *row;
    fl_attrs_init(&attrs, FL_OP_REF(unsqueeze));
    fl_attr_set(&attrs, FL_SQUEEZE_AXIS, axis);
    FL_TRY(FL_CALL_WITH(&row, &attrs, unsqueeze, fl_of(g->gout[0])));
    fl_status status = put_back(&g->gin[0], row, input, axis, g->attrs->at[FL_SLICE_POSITION].integer, 1);
    fl_tensor_unref(row);
    return status;
}

static const char *const select_samples[] = {"flow.randn(4, 3), 0, 2", "flow.randn(4, 3, 2), 1, -1",
                                             "flow.randn(5), 0, 0", NULL};
FL_OP(select) = {
    .name = "select",
    .sig = "select(x, axis: axis, ~index: int)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "One position of an axis; the axis is removed.",
    .infer = infer_select,
    .check = check_select,
    .sbp = sbp_select,
    .view = view_select,
    .cpu = fl_kernel_copy,
    .grad = grad_select,
    .samples = select_samples,
};

/* ---- diagonal ---- */

/* The two axes and the length of the diagonal `offset` columns to the right of the main one. */
struct diagonal {
    int axis0, axis1;
    int64_t offset, length;
};

static fl_status diagonal_of(struct diagonal *diagonal, const char *who, const fl_attrs *attrs, const fl_shape *shape)
{
    char text[FL_SHAPE_TEXT];
    if (shape->ndim < 2) return fl_fail(FL_ERR_SHAPE, "%s: needs two axes, x is %s", who, fl_shape_text(text, shape));
    FL_TRY(fl_shape_axis(&diagonal->axis0, who, attrs->at[FL_DIAGONAL_AXIS0].integer, shape));
    FL_TRY(fl_shape_axis(&diagonal->axis1, who, attrs->at[FL_DIAGONAL_AXIS1].integer, shape));
    if (diagonal->axis0 == diagonal->axis1)
        return fl_fail(FL_ERR_SHAPE, "%s: axis %d is named twice", who, diagonal->axis0);
    diagonal->offset = attrs->at[FL_DIAGONAL_OFFSET].integer;
    int64_t rows = shape->dims[diagonal->axis0], columns = shape->dims[diagonal->axis1];
    int64_t length;
    if (diagonal->offset >= 0)
        length = diagonal->offset >= columns    ? 0
            : rows < columns - diagonal->offset ? rows
                                                : columns - diagonal->offset;
    else length = diagonal->offset <= -rows ? 0 : columns < rows + diagonal->offset ? columns : rows + diagonal->offset;
    diagonal->length = length;
    return FL_OK;
}

static fl_status infer_diagonal(fl_infer *infer)
{
    struct diagonal d;
    const fl_shape *in = &infer->in[0].shape;
    FL_TRY(diagonal_of(&d, infer->name, infer->attrs, in));
    fl_reduce_shape(&infer->out[0].shape, in, 1u << d.axis0 | 1u << d.axis1, false);
    infer->out[0].shape.dims[infer->out[0].shape.ndim++] = d.length;
    infer->out[0].dtype = infer->in[0].dtype;
    return FL_OK;
}

/* Strides of the diagonal in memory laid out with these strides; the offset of its first element. */
static int64_t diagonal_strides(int64_t *out, const struct diagonal *diagonal, const int64_t *strides, int ndim)
{
    int n = 0;
    for (int i = 0; i < ndim; i++)
        if (i != diagonal->axis0 && i != diagonal->axis1) out[n++] = strides[i];
    out[n] = strides[diagonal->axis0] + strides[diagonal->axis1];
    if (diagonal->length == 0) return 0; /* the offset may be anything */
    return diagonal->offset >= 0 ? diagonal->offset * strides[diagonal->axis1]
                                 : -diagonal->offset * strides[diagonal->axis0];
}

static void view_diagonal(fl_view_request *request)
{
    struct diagonal d;
    const fl_meta *in = request->in->meta;
    if (diagonal_of(&d, "diagonal", request->attrs, &in->shape) != FL_OK) return;
    int64_t offset = diagonal_strides(request->strides, &d, request->in->strides, in->shape.ndim);
    if (request->out_meta->local_numel) request->offset = offset;
}

/* The two axes are walked together, so neither is split. */
static void sbp_diagonal(fl_sigs *sigs)
{
    struct diagonal d;
    int map[FL_MAX_NDIM];
    if (diagonal_of(&d, "diagonal", sigs->attrs, &sigs->in_logical[0]) != FL_OK) return;
    for (int i = 0, j = 0; i < sigs->in_logical[0].ndim; i++) map[i] = i == d.axis0 || i == d.axis1 ? -1 : j++;
    fl_sbp_map(sigs, map);
    fl_sbp_moves(sigs, false);
}

/* The gradient on the diagonal, zeros beside it. */
static fl_status grad_diagonal(fl_grad *g)
{
    const fl_shape *shape = &g->in_meta[0]->shape;
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(diagonal_backward));
    for (int i = FL_DIAGONAL_OFFSET; i <= FL_DIAGONAL_AXIS1; i++) attrs.at[i] = g->attrs->at[i];
    fl_attr_set_list(&attrs, FL_DIAGONAL_SIZES, shape->dims, shape->ndim);
    return FL_CALL_WITH(&g->gin[0], &attrs, diagonal_backward, fl_of(g->gout[0]));
}

static const char *const diagonal_samples[] = {"flow.randn(3, 4)",     "flow.randn(3, 4), 1",
                                               "flow.randn(4, 3), -2", "flow.randn(2, 3, 4), 0, 2, 0",
                                               "flow.randn(3, 3), 5",  NULL};
FL_OP(diagonal) = {
    .name = "diagonal",
    .sig = "diagonal(x, offset: int = 0, axis0: axis = 0, axis1: axis = 1)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "The diagonal of two axes, as the last axis of the result; offset > 0 is above the main diagonal.",
    .infer = infer_diagonal,
    .sbp = sbp_diagonal,
    .view = view_diagonal,
    .cpu = fl_kernel_copy,
    .grad = grad_diagonal,
    .samples = diagonal_samples,
};

/* ---- gradients of views: zeros with g in its place ---- */

static fl_status infer_narrow_backward(fl_infer *infer)
{
    if (infer->in[0].shape.ndim == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "x has no axes");
    int axis = fl_axis_of(&infer->attrs->at[FL_SLICE_AXIS], infer->in[0].shape.ndim);
    int64_t size = infer->attrs->at[FL_SLICE_SIZE].integer, step = infer->attrs->at[FL_SLICE_STEP].integer,
            length = infer->in[0].shape.dims[axis];
    if (step < 1 || length > size)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "%lld positions do not fit size %lld", (long long)length,
                             (long long)size);
    infer->out[0] = infer->in[0];
    infer->out[0].shape.dims[axis] = size;
    return FL_OK;
}

static fl_status check_narrow_backward(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_shape *shape = &in[0].tensor->meta->shape;
    int64_t start = attrs->at[FL_SLICE_START].integer, size = attrs->at[FL_SLICE_SIZE].integer,
            step = attrs->at[FL_SLICE_STEP].integer;
    int64_t length = shape->dims[fl_axis_of(&attrs->at[FL_SLICE_AXIS], shape->ndim)];
    if (start >= 0 && step >= 1 && (length == 0 || (start < size && length - 1 <= (size - start - 1) / step)))
        return FL_OK;
    return fl_fail(FL_ERR_VALUE, "narrow_backward: start %lld, length %lld and step %lld exceed size %lld",
                   (long long)start, (long long)length, (long long)step, (long long)size);
}

static fl_status zero_out(const fl_view *out)
{
    const int64_t zero = 0;
    return fl_cpu_fill(out, &zero);
}

/* Zeroes `count` positions of an axis. */
static fl_status zero_positions(const fl_view *out, int axis, int64_t from, int64_t count)
{
    int64_t sizes[FL_MAX_NDIM];
    fl_view part = *out;
    if (count <= 0) return FL_OK;
    memcpy(sizes, out->size, sizeof *sizes * (size_t)out->ndim);
    sizes[axis] = count;
    part.size = sizes;
    part.data = (char *)out->data + from * out->stride[axis] * (int64_t)fl_dtype_size(out->dtype);
    part.numel = out->numel / out->size[axis] * count;
    part.contiguous = out->contiguous && part.numel == out->numel;
    return zero_out(&part);
}

static fl_status kernel_narrow_backward(fl_kernel *kernel)
{
    const fl_view *g = &kernel->in[0], *out = &kernel->out[0];
    int axis = fl_axis_of(&kernel->attrs->at[FL_SLICE_AXIS], g->ndim);
    int64_t strides[FL_MAX_NDIM], step = kernel->attrs->at[FL_SLICE_STEP].integer;
    if (g->numel == 0) return zero_out(out);
    if (step == 1) { /* only what is beside g */
        int64_t start = kernel->attrs->at[FL_SLICE_START].integer, end = start + g->size[axis];
        FL_TRY(zero_positions(out, axis, 0, start));
        FL_TRY(zero_positions(out, axis, end, out->size[axis] - end));
    } else if (g->numel < out->numel) FL_TRY(zero_out(out));
    memcpy(strides, out->stride, sizeof *strides * (size_t)out->ndim);
    fl_view part = *g;
    part.data = (char *)out->data
        + kernel->attrs->at[FL_SLICE_START].integer * strides[axis] * (int64_t)fl_dtype_size(out->dtype);
    strides[axis] *= step;
    part.stride = strides;
    part.contiguous = out->contiguous && g->numel == out->numel;
    return fl_cpu_copy(&part, g);
}

/* The same axes as sbp_interval. The zeros around the values are neutral for a sum, not for a maximum or minimum. */
static void sbp_narrow_backward(fl_sigs *sigs)
{
    int axis = fl_axis_of(&sigs->attrs->at[FL_SLICE_AXIS], sigs->in_logical[0].ndim);
    sbp_other_axes(sigs, sigs->in_logical[0].dims[axis] == sigs->attrs->at[FL_SLICE_SIZE].integer ? -1 : axis, false);
    fl_sbp_moves(sigs, true);
}

/* The same interval of the gradient's gradient. */
static fl_status grad_narrow_backward(fl_grad *g)
{
    const fl_shape *shape = &g->in_meta[0]->shape;
    int axis = fl_axis_of(&g->attrs->at[FL_SLICE_AXIS], shape->ndim);
    bool plain = g->attrs->at[FL_SLICE_STEP].integer == 1;
    fl_attrs attrs;
    fl_attrs_init(&attrs, plain ? FL_OP_REF(narrow) : FL_OP_REF(narrow_every));
    fl_attr_set(&attrs, FL_SLICE_AXIS, axis);
    fl_attr_set(&attrs, FL_SLICE_START, g->attrs->at[FL_SLICE_START].integer);
    fl_attr_set(&attrs, FL_SLICE_LENGTH, shape->dims[axis]);
    if (plain) return FL_CALL_WITH(&g->gin[0], &attrs, narrow, fl_of(g->gout[0]));
    fl_attr_set(&attrs, FL_SLICE_STEP, g->attrs->at[FL_SLICE_STEP].integer);
    return FL_CALL_WITH(&g->gin[0], &attrs, narrow_every, fl_of(g->gout[0]));
}

static const char *const narrow_backward_samples[] = {"flow.randn(2, 3), 0, 1, 5, 2", "flow.randn(2, 3), 1, 1, 4, 1",
                                                      "flow.randn(0, 3), 0, 2, 4, 1", NULL};
FL_OP(narrow_backward) = {
    .name = "narrow_backward",
    .sig = "narrow_backward(x, axis: axis, ~start: int, size: int, step: int)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Zeros with x at the positions start, start + step, ... of an axis of that size.",
    .infer = infer_narrow_backward,
    .check = check_narrow_backward,
    .sbp = sbp_narrow_backward,
    .cpu = kernel_narrow_backward,
    .grad = grad_narrow_backward,
    .samples = narrow_backward_samples,
};

static fl_status infer_diagonal_backward(fl_infer *infer)
{
    const fl_attr *sizes = &infer->attrs->at[FL_DIAGONAL_SIZES];
    struct diagonal d;
    fl_shape expected, whole;
    FL_TRY(fl_shape_make(&whole, infer->name, sizes->list, sizes->count));
    FL_TRY(diagonal_of(&d, infer->name, infer->attrs, &whole));
    fl_reduce_shape(&expected, &whole, 1u << d.axis0 | 1u << d.axis1, false);
    expected.dims[expected.ndim++] = d.length;
    if (!fl_shape_equal(&expected, &infer->in[0].shape))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "g is no diagonal of that shape");
    infer->out[0].dtype = infer->in[0].dtype;
    infer->out[0].shape = whole;
    return FL_OK;
}

static fl_status kernel_diagonal_backward(fl_kernel *kernel)
{
    const fl_view *g = &kernel->in[0], *out = &kernel->out[0];
    struct diagonal d;
    fl_shape whole = {out->ndim, {0}};
    memcpy(whole.dims, out->logical, sizeof *whole.dims * (size_t)out->ndim);
    FL_TRY(zero_out(out));
    FL_TRY(diagonal_of(&d, "diagonal_backward", kernel->attrs, &whole));
    if (g->numel == 0) return FL_OK;
    int64_t strides[FL_MAX_NDIM];
    int64_t offset = diagonal_strides(strides, &d, out->stride, out->ndim);
    fl_view part = *g;
    part.data = (char *)out->data + offset * (int64_t)fl_dtype_size(out->dtype);
    part.stride = strides;
    part.contiguous = false;
    return fl_cpu_copy(&part, g);
}

/* As sbp_diagonal; its zeros are neutral for sums alone. */
static void sbp_diagonal_backward(fl_sigs *sigs)
{
    struct diagonal d;
    if (diagonal_of(&d, "diagonal_backward", sigs->attrs, &sigs->out_logical[0]) != FL_OK) return;
    for (int i = 0, j = 0; i < sigs->out_logical[0].ndim; i++)
        if (i != d.axis0 && i != d.axis1) FL_SIG(sigs, NULL, FL_S(j++), FL_S(i));
    fl_sbp_moves(sigs, true);
}

/* Linear in g; reading the diagonal is its transpose. */
static const char *const diagonal_backward_vjp[] = {"diagonal(g, offset, axis0, axis1)"};
static const char *const diagonal_backward_samples[] = {"flow.randn(3), 0, 0, 1, {3, 4}",
                                                        "flow.randn(3, 2), 0, 2, 0, {2, 3, 4}", NULL};
FL_OP(diagonal_backward) = {
    .name = "diagonal_backward",
    .sig = "diagonal_backward(x, offset: int, axis0: axis, axis1: axis, size: sizes)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Zeros of that size with x on a diagonal.",
    .infer = infer_diagonal_backward,
    .sbp = sbp_diagonal_backward,
    .cpu = kernel_diagonal_backward,
    .vjp = diagonal_backward_vjp,
    .samples = diagonal_backward_samples,
};

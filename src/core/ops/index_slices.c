/*
** index_slices.c -- slices of x along an axis that an index names: added to, replaced, filled; and x with one of its
** views replaced.
**
** Replacing and filling are index_write_, of equal positions the last stays. Adding is index_into_, in the order of the
** index; on devices and in 16 bits the gradient of index_select, then added to x. A tensor without axes counts as one
** with an axis of one position.
*/
#include "cpu/scatter.h"
#include "op/slicing.h"
#include "op/views.h"
#include "scatter.h"

enum { ADD_ALPHA = FL_INDEXED_AXIS + 1 };

/* ---- adding in place ---- */

static int axis_of(const fl_attrs *attrs, const fl_shape *shape)
{
    return fl_axis_of(&attrs->at[FL_INDEXED_AXIS], shape->ndim);
}

/* Sizes have been checked by who calls it. */
static fl_status infer_into(fl_infer *infer)
{
    const fl_shape *x = &infer->in[FL_WRITE_X].shape, *index = &infer->in[FL_WRITE_INDEX].shape,
                   *src = &infer->in[FL_WRITE_VALUE].shape;
    int axis;
    infer->name = "index_add_";
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_INDEXED_AXIS].integer, x));
    bool fits = x->ndim > 0 && index->ndim == 1 && src->ndim == x->ndim
        && fl_dtype_is_integer(infer->in[FL_WRITE_INDEX].dtype)
        && infer->in[FL_WRITE_VALUE].dtype == infer->in[FL_WRITE_X].dtype;
    for (int a = 0; fits && a < x->ndim; a++) fits = src->dims[a] == (a == axis ? index->dims[0] : x->dims[a]);
    if (!fits) return fl_infer_fail(infer, FL_ERR_SHAPE, "operands do not fit");
    return fl_require_foldable(infer);
}

static fl_status kernel_into(fl_kernel *kernel)
{
    return fl_cpu_scatter_slices(kernel, fl_axis_of(&kernel->attrs->at[FL_INDEXED_AXIS], kernel->out[0].ndim),
                                 FL_SCATTER_ADD);
}

/* Each part of x takes what belongs to it; and each rank may add a part of the slices to its partial sum. */
static void sbp_into(fl_sigs *sigs)
{
    const fl_shape *x = &sigs->in_logical[FL_WRITE_X];
    int axis = axis_of(sigs->attrs, x);
    for (int a = 0; a < x->ndim; a++) FL_SIG(sigs, NULL, FL_S(a), FL_B, a == axis ? FL_B : FL_S(a), FL_S(a));
    FL_SIG(sigs, NULL, FL_PSUM, FL_B, FL_PSUM, FL_PSUM);
    for (int a = 0; a < x->ndim; a++) FL_SIG(sigs, NULL, FL_PSUM, a == axis ? FL_S(0) : FL_B, FL_S(a), FL_PSUM);
}

static const char *const into_vjp[] = {"g", NULL, "index_select(g, axis, index)"};
static const char *const into_samples[] = {"flow.randn(4, 3), 0, flow.tensor{2, 0, 2}, flow.randn(3, 3)",
                                           "flow.randn(2, 5), -1, flow.tensor{4, 1}, flow.randn(2, 2)", NULL};
FL_OP(index_into_) = {
    .name = "index_into_",
    .sig = "index_into_(x, axis: axis, index, src)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_HOST_ONLY,
    .mutates = 1,
    .doc = "index_add_ of a src in the dtype of x.",
    .infer = infer_into,
    .sbp = sbp_into,
    .cpu = kernel_into,
    .vjp = into_vjp,
    .samples = into_samples,
};

/* ---- operands ---- */

/* Operands of one call: x with at least one axis (a view of x), the index as a list, the axis. */
struct slices {
    fl_tensor *x, *index;
    int axis;
};

static fl_status open_slices(struct slices *slices, fl_expr *expr, const char *who, fl_tensor *x, fl_tensor *index,
                             const fl_attrs *attrs)
{
    static const fl_shape one = {1, {1}};
    char text[FL_SHAPE_TEXT];
    if (!fl_dtype_is_integer(index->meta->dtype) || index->meta->shape.ndim > 1)
        return fl_fail(FL_ERR_DTYPE, "%s: index must be integers with one axis, got %s%s", who,
                       fl_dtype_name(index->meta->dtype), fl_shape_text(text, &index->meta->shape));
    FL_TRY(fl_shape_axis(&slices->axis, who, attrs->at[FL_INDEXED_AXIS].integer, &x->meta->shape));
    slices->x = x->meta->shape.ndim == 0 ? expr_reshape(expr, x, &one) : x;
    slices->index = index->meta->shape.ndim == 0 ? expr_reshape(expr, index, &one) : index;
    return expr->status;
}

/* source [.., numel of index, ..] as the slices need it; the dtype is that of x. */
static fl_status open_source(fl_tensor **out, const struct slices *slices, fl_expr *expr, const char *who,
                             fl_tensor *source)
{
    char ts[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    fl_shape want = slices->x->meta->shape;
    const fl_shape *got = &source->meta->shape;
    if (source->meta->dtype != slices->x->meta->dtype)
        return fl_fail(FL_ERR_DTYPE, "%s: source is %s and x %s: dtypes must be equal", who,
                       fl_dtype_name(source->meta->dtype), fl_dtype_name(slices->x->meta->dtype));
    want.dims[slices->axis] = slices->index->meta->numel;
    bool single = got->ndim == 0 && want.ndim == 1 && want.dims[0] == 1;
    if (!single && !fl_shape_equal(got, &want))
        return fl_fail(FL_ERR_SHAPE, "%s: source must be %s, as many slices of x as the index names, got %s", who,
                       fl_shape_text(tw, &want), fl_shape_text(ts, got));
    *out = single ? expr_reshape(expr, source, &want) : source;
    return expr->status;
}

/* The result of a worker is x, also where the slices were those of a view of it. */
static fl_status end_at(fl_tensor **out, fl_tensor *x, fl_expr *expr)
{
    fl_status status = fl_expr_end(expr);
    if (status == FL_OK) *out = fl_tensor_ref(x);
    return status;
}

/* Runs an op in place; its result is dropped. */
static void write_slices(fl_expr *expr, const struct slices *slices, fl_tensor *positions, fl_operand value)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(index_write_));
    fl_attr_set(&a, FL_INDEXED_AXIS, slices->axis);
    EXPR_CALL(expr, &a, index_write_, fl_of(slices->x), fl_of(positions), value);
}

/* ---- index_add ---- */

static void add_on_host(fl_expr *expr, const struct slices *slices, fl_tensor *source)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(index_into_));
    fl_attr_set(&a, FL_INDEXED_AXIS, slices->axis);
    EXPR_CALL(expr, &a, index_into_, fl_of(slices->x), fl_of(slices->index), fl_of(source));
}

/* The index repeated for every element of a slice, as scatter_add and its kin have it. */
static fl_tensor *element_index(fl_expr *expr, const struct slices *slices, fl_tensor *source)
{
    fl_shape line = {slices->x->meta->shape.ndim, {0}};
    for (int a = 0; a < line.ndim; a++) line.dims[a] = a == slices->axis ? slices->index->meta->numel : 1;
    return expr_expanded(expr, expr_reshape(expr, slices->index, &line), &source->meta->shape);
}

/* As scatter_add: integers have no other way on devices. */
static void add_elements(fl_expr *expr, const struct slices *slices, fl_tensor *source, const fl_attrs *attrs)
{
    fl_tensor *same = NULL;
    fl_tensor *index = element_index(expr, slices, source);
    if (index) expr->status = fl_scatter_add(&same, slices->x, index, source, attrs);
    fl_tensor_unref(same);
}

static void add_on_device(fl_expr *expr, const struct slices *slices, fl_tensor *source)
{
    const fl_meta *x = slices->x->meta;
    fl_tensor *same = NULL;
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(index_select_backward));
    fl_attr_set(&a, FL_INDEXED_AXIS, slices->axis);
    fl_attr_set(&a, FL_INDEX_ADD_SIZE, x->shape.dims[slices->axis]);
    fl_attr_set_like(&a, FL_INDEX_ADD_LIKE, x);
    fl_tensor *sum = EXPR_CALL(expr, &a, index_select_backward, fl_of(source), fl_of(slices->index));
    if (!sum) return;
    expr->status = fl_dispatch_inplace(&same, FL_OP_REF(add), (const fl_operand[]){fl_of(slices->x), fl_of(sum)}, 2,
                                       NULL);
    fl_tensor_unref(same);
}

static fl_tensor *scaled(fl_expr *expr, fl_tensor *source, const fl_attr *alpha)
{
    if (!source || fl_attr_number(alpha) == 1) return source;
    fl_operand factor = alpha->kind == FL_NUM_FLOAT ? fl_of_number(alpha->number) : fl_of_integer(alpha->integer);
    return expr_cast(expr, EXPR_CALL(expr, NULL, mul, fl_of(source), factor), source->meta->dtype);
}

static fl_status add_slices(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in, const fl_attrs *attrs)
{
    struct slices s;
    fl_tensor *source;
    fl_expr c = {0};
    if (x->meta->dtype == FL_BOOL) return fl_fail(FL_ERR_DTYPE, "%s: takes numbers, x is bool", who);
    c.status = open_slices(&s, &c, who, x, in[FL_WRITE_INDEX].tensor, attrs);
    if (c.status == FL_OK) c.status = open_source(&source, &s, &c, who, in[FL_WRITE_VALUE].tensor);
    if (c.status == FL_OK && !fl_dtype_is_float(x->meta->dtype) && attrs->at[ADD_ALPHA].kind == FL_NUM_FLOAT)
        c.status = fl_fail(FL_ERR_DTYPE, "%s: alpha must be an integer for %s", who, fl_dtype_name(x->meta->dtype));
    source = c.status == FL_OK ? scaled(&c, source, &attrs->at[ADD_ALPHA]) : NULL;
    if (source && fl_adds_in_place(s.x)) add_on_host(&c, &s, source);
    else if (source && fl_dtype_is_float(x->meta->dtype)) add_on_device(&c, &s, source);
    else if (source) add_elements(&c, &s, source, attrs);
    return end_at(out, x, &c);
}

static const char *const add_samples[] = {"flow.randn(4, 3), 0, flow.tensor{2, 0, 2}, flow.randn(3, 3)",
                                          "flow.randn(2, 5), -1, flow.tensor{4, 1}, flow.randn(2, 2), 0.5",
                                          "flow.tensor(1.5), 0, flow.tensor{0}, flow.randn(1)", NULL};
FL_IN_PLACE_PAIR(
    index_add, "x, axis: axis, index, source, ~alpha: scalar = 1",
    "x with alpha times the slices of source added at the positions of index along an axis, in the order of "
    "the index.",
    add_slices, add_samples);

/* ---- index_reduce ---- */

/* Attributes of index_reduce and of scatter_reduce after the axis; which words the first has. */
enum { REDUCE_HOW = FL_INDEXED_AXIS + 1, REDUCE_INCLUDES };
enum { SCATTER_SUM_WORD = 1 }; /* scatter_reduce has "sum" before the words of index_reduce */

static fl_status reduce_slices(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                               const fl_attrs *attrs)
{
    struct slices s;
    fl_tensor *source, *same = NULL;
    fl_expr c = {0};
    fl_attrs a;
    if (x->meta->dtype == FL_BOOL) return fl_fail(FL_ERR_DTYPE, "%s: takes numbers, x is bool", who);
    c.status = open_slices(&s, &c, who, x, in[FL_WRITE_INDEX].tensor, attrs);
    if (c.status == FL_OK) c.status = open_source(&source, &s, &c, who, in[FL_WRITE_VALUE].tensor);
    fl_attrs_init(&a, FL_OP_REF(scatter_reduce_));
    if (c.status == FL_OK) fl_attr_set(&a, FL_INDEXED_AXIS, s.axis);
    fl_attr_set(&a, REDUCE_HOW, attrs->at[REDUCE_HOW].integer + SCATTER_SUM_WORD);
    fl_attr_set(&a, REDUCE_INCLUDES, attrs->at[REDUCE_INCLUDES].integer);
    fl_tensor *index = c.status == FL_OK ? element_index(&c, &s, source) : NULL;
    if (index) c.status = FL_CALL_WITH(&same, &a, scatter_reduce_, fl_of(s.x), fl_of(index), fl_of(source));
    fl_tensor_unref(same);
    return end_at(out, x, &c);
}

static const char *const reduce_samples[] = {
    "flow.randn(4, 3), 0, flow.tensor{2, 0, 2}, flow.randn(3, 3), 'prod'",
    "flow.randn(2, 5), -1, flow.tensor{4, 1}, flow.randn(2, 2), 'mean', false",
    "flow.randn(4, 3), 0, flow.tensor{1, 3, 1}, flow.randn(3, 3), 'amax'",
    "flow.randn(4, 3), 0, flow.tensor{1, 3, 1}, flow.randn(3, 3), 'amin', false", NULL};
FL_IN_PLACE_PAIR(index_reduce, "x, axis: axis, index, source, reduce: prod|mean|amax|amin, include_self: bool = true",
                 "What the slices of source make together at the positions of index along an axis: product, mean, "
                 "largest or smallest; include_self: with the slice of x there.",
                 reduce_slices, reduce_samples);

/* ---- index_copy, index_fill ---- */

static fl_status copy_slices(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                             const fl_attrs *attrs)
{
    struct slices s;
    fl_tensor *source;
    fl_expr c = {0};
    c.status = open_slices(&s, &c, who, x, in[FL_WRITE_INDEX].tensor, attrs);
    if (c.status == FL_OK) c.status = open_source(&source, &s, &c, who, in[FL_WRITE_VALUE].tensor);
    if (c.status == FL_OK) write_slices(&c, &s, s.index, fl_of(source));
    return end_at(out, x, &c);
}

static const char *const copy_samples[] = {"flow.randn(4, 3), 0, flow.tensor{2, 0}, flow.randn(2, 3)",
                                           "flow.randn(2, 5), -1, flow.tensor{4, 1}, flow.randn(2, 2)",
                                           "flow.tensor(1.5), 0, flow.tensor{0}, flow.randn(1)", NULL};
FL_IN_PLACE_PAIR(index_copy, "x, axis: axis, index, source",
                 "x with the slices of source in place of those at the positions of index along an axis; of equal "
                 "positions the last is kept.",
                 copy_slices, copy_samples);

static fl_status fill_slices(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                             const fl_attrs *attrs)
{
    struct slices s;
    fl_attrs a;
    fl_expr c = {0};
    fl_operand value = in[FL_WRITE_VALUE];
    if (value.kind == FL_TENSOR && value.tensor->meta->shape.ndim > 0)
        return fl_fail(FL_ERR_SHAPE, "%s: value must be a number or a tensor without axes", who);
    FL_TRY(fl_require_fits(who, x->meta->dtype, &value));
    c.status = open_slices(&s, &c, who, x, in[FL_WRITE_INDEX].tensor, attrs);
    fl_attrs_init(&a, FL_OP_REF(wrap_index));
    if (c.status == FL_OK) fl_attr_set(&a, FL_WRAP_SIZE, s.x->meta->shape.dims[s.axis]);
    fl_tensor *positions = c.status == FL_OK ? EXPR_CALL(&c, &a, wrap_index, fl_of(s.index)) : NULL;
    if (value.kind == FL_TENSOR) value = fl_of(expr_cast(&c, value.tensor, x->meta->dtype));
    if (c.status == FL_OK) write_slices(&c, &s, positions, value);
    return end_at(out, x, &c);
}

static const char *const fill_samples[] = {"flow.randn(4, 3), 0, flow.tensor{2, 0}, 1.5",
                                           "flow.randn(2, 5), -1, flow.tensor{-1, 1}, flow.tensor(2.5)",
                                           "flow.tensor(1.5), 0, flow.tensor{0}, 3", NULL};
FL_IN_PLACE_PAIR(
    index_fill, "x, axis: axis, index, value|n",
    "x with one value everywhere at the positions of index along an axis; negative ones count from the end.",
    fill_slices, fill_samples);

/* ---- x with one of its views replaced ---- */

enum { REPLACED_X, REPLACED_SRC };

/* src among zeros as `back` puts it, where `back` puts true; x elsewhere. */
static fl_tensor *replaced(fl_expr *expr, fl_tensor *x, fl_tensor *src, const fl_op *back, const fl_attrs *attrs)
{
    fl_tensor *mask = expr_cast(expr, expr_ones(expr, src), FL_BOOL);
    fl_tensor *placed = fl_expr_call(expr, back, (const fl_operand[]){fl_of(src)}, 1, attrs);
    mask = fl_expr_call(expr, back, (const fl_operand[]){fl_of(mask)}, 1, attrs);
    return EXPR_CALL(expr, NULL, where, fl_of(mask), fl_of(placed), fl_of(x));
}

/* src has the shape of the view, which is as `like`, and the dtype of x. */
static fl_status check_replacement(const char *who, const fl_tensor *x, const fl_tensor *src, const fl_shape *like)
{
    char ts[FL_SHAPE_TEXT], tl[FL_SHAPE_TEXT];
    if (src->meta->dtype != x->meta->dtype)
        return fl_fail(FL_ERR_DTYPE, "%s: src is %s and x %s: dtypes must be equal", who,
                       fl_dtype_name(src->meta->dtype), fl_dtype_name(x->meta->dtype));
    if (fl_shape_equal(&src->meta->shape, like)) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: src must be %s, as what it replaces, got %s", who, fl_shape_text(tl, like),
                   fl_shape_text(ts, &src->meta->shape));
}

/* Concatenates the part of x before src, src, and the part of x behind it. */
static fl_status join_around(fl_tensor **out, fl_tensor *x, fl_tensor *src, int axis, int64_t start)
{
    enum { CAT_AXIS };
    fl_expr c = {0};
    fl_attrs a;
    fl_operand parts[3];
    int count = 0;
    int64_t size = x->meta->shape.dims[axis], end = start + src->meta->shape.dims[axis];
    if (start > 0) parts[count++] = fl_of(expr_narrowed(&c, x, axis, 0, start));
    parts[count++] = fl_of(src);
    if (end < size) parts[count++] = fl_of(expr_narrowed(&c, x, axis, end, size - end));
    fl_attrs_init(&a, FL_OP_REF(cat));
    fl_attr_set(&a, CAT_AXIS, axis);
    *out = fl_expr_take(&c, fl_expr_call(&c, FL_OP_REF(cat), parts, count, &a));
    return fl_expr_end(&c);
}

/* The positions start, start + step, ... of an axis become src. */
static fl_status replace_interval(fl_tensor **out, fl_tensor *x, fl_tensor *src, int axis, int64_t start, int64_t step)
{
    fl_expr c = {0};
    fl_attrs a;
    if (step == 1) return join_around(out, x, src, axis, start);
    fl_attrs_init(&a, FL_OP_REF(narrow_backward));
    fl_attr_set(&a, FL_SLICE_AXIS, axis);
    fl_attr_set(&a, FL_SLICE_START, start);
    fl_attr_set(&a, FL_SLICE_SIZE, x->meta->shape.dims[axis]);
    fl_attr_set(&a, FL_SLICE_STEP, step);
    *out = fl_expr_take(&c, replaced(&c, x, src, FL_OP_REF(narrow_backward), &a));
    return fl_expr_end(&c);
}

static fl_status require_axis(int *axis, const char *who, const fl_tensor *x, const fl_attr *given)
{
    if (x->meta->shape.ndim == 0) return fl_fail(FL_ERR_SHAPE, "%s: x has no axes", who);
    return fl_shape_axis(axis, who, given->integer, &x->meta->shape);
}

static fl_status body_select_scatter(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[REPLACED_X].tensor, *row;
    fl_shape like;
    int axis;
    char text[FL_SHAPE_TEXT];
    int64_t at = attrs->at[FL_SLICE_POSITION].integer;
    FL_TRY(require_axis(&axis, "select_scatter", x, &attrs->at[FL_SLICE_AXIS]));
    int64_t size = x->meta->shape.dims[axis];
    if (at < -size || at >= size)
        return fl_fail(FL_ERR_VALUE, "select_scatter: position %lld is out of range for axis %d of %s", (long long)at,
                       axis, fl_shape_text(text, &x->meta->shape));
    fl_reduce_shape(&like, &x->meta->shape, 1u << axis, false);
    FL_TRY(check_replacement("select_scatter", x, in[REPLACED_SRC].tensor, &like));
    fl_expr c = {0};
    row = expr_unsqueeze(&c, in[REPLACED_SRC].tensor, axis);
    if (row) c.status = replace_interval(out, x, row, axis, at < 0 ? at + size : at, 1);
    return fl_expr_end(&c);
}

FL_OP(select_scatter) = {
    .name = "select_scatter",
    .sig = "select_scatter(x, src, axis: axis, index: int)",
    .nout = 1,
    .doc = "x with src in the place of x:select(axis, index).",
    .body = body_select_scatter,
    FL_SAMPLES("flow.randn(4, 3), flow.randn(3), 0, 2", "flow.randn(4, 3), flow.randn(4), 1, -1"),
};

enum { INTERVAL_AXIS, INTERVAL_START, INTERVAL_STOP, INTERVAL_STEP };

static int64_t clamped(const fl_attr *given, int64_t otherwise, int64_t size)
{
    int64_t at = given->given ? given->integer : otherwise;
    if (at < 0) at += size;
    return at < 0 ? 0 : at > size ? size : at;
}

static fl_status body_slice_scatter(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[REPLACED_X].tensor;
    int axis;
    FL_TRY(require_axis(&axis, "slice_scatter", x, &attrs->at[INTERVAL_AXIS]));
    int64_t size = x->meta->shape.dims[axis], step = attrs->at[INTERVAL_STEP].integer;
    int64_t start = clamped(&attrs->at[INTERVAL_START], 0, size), stop = clamped(&attrs->at[INTERVAL_STOP], size, size);
    if (step < 1) return fl_fail(FL_ERR_VALUE, "slice_scatter: step %lld must be at least 1", (long long)step);
    fl_shape like = x->meta->shape;
    like.dims[axis] = stop > start ? (stop - start - 1) / step + 1 : 0;
    FL_TRY(check_replacement("slice_scatter", x, in[REPLACED_SRC].tensor, &like));
    return replace_interval(out, x, in[REPLACED_SRC].tensor, axis, start, step);
}

FL_OP(slice_scatter) = {
    .name = "slice_scatter",
    .sig = "slice_scatter(x, src, axis: axis = 0, start: int = nil, stop: int = nil, step: int = 1)",
    .nout = 1,
    .doc = "x with src in the place of x:slice(axis, start, stop, step).",
    .body = body_slice_scatter,
    FL_SAMPLES("flow.randn(5, 3), flow.randn(2, 3), 0, 1, 3", "flow.randn(4, 6), flow.randn(4, 3), 1, 0, 6, 2",
               "flow.randn(4), flow.randn(2), 0, -2"),
};

static fl_status body_diagonal_scatter(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[REPLACED_X].tensor;
    fl_attrs a;
    fl_expr c = {0};
    fl_attrs_init(&a, FL_OP_REF(diagonal));
    for (int i = FL_DIAGONAL_OFFSET; i <= FL_DIAGONAL_AXIS1; i++) a.at[i] = attrs->at[i];
    fl_tensor *line = EXPR_CALL(&c, &a, diagonal, fl_of(x));
    if (line) c.status = check_replacement("diagonal_scatter", x, in[REPLACED_SRC].tensor, &line->meta->shape);
    fl_attrs_init(&a, FL_OP_REF(diagonal_backward));
    for (int i = FL_DIAGONAL_OFFSET; i <= FL_DIAGONAL_AXIS1; i++) a.at[i] = attrs->at[i];
    fl_attr_set_list(&a, FL_DIAGONAL_SIZES, x->meta->shape.dims, x->meta->shape.ndim);
    if (c.status == FL_OK)
        *out = fl_expr_take(&c, replaced(&c, x, in[REPLACED_SRC].tensor, FL_OP_REF(diagonal_backward), &a));
    return fl_expr_end(&c);
}

FL_OP(diagonal_scatter) = {
    .name = "diagonal_scatter",
    .sig = "diagonal_scatter(x, src, offset: int = 0, axis0: axis = 0, axis1: axis = 1)",
    .nout = 1,
    .doc = "x with src in the place of x:diagonal(offset, axis0, axis1).",
    .body = body_diagonal_scatter,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(3)", "flow.randn(3, 4), flow.randn(3), 1",
               "flow.randn(2, 3, 4), flow.randn(3, 2), 0, 2, 0"),
};

/*
** take.c -- elements named by their number in row-major order, or by a mask: take, put, masked_scatter; elements along
** an axis after broadcasting, and repeated elements.
**
** All are index_select, gather and their counterparts that write, on x as one line where elements are numbered.
*/
#include "op/scan.h"
#include "dispatch/to_global.h"
#include "op/views.h"
#include "scatter.h"

enum { TAKE_X, TAKE_INDEX };

static fl_tensor *flat(fl_expr *expr, fl_tensor *x)
{
    fl_shape line = {1, {x ? x->meta->numel : 0}};
    return x ? expr_reshape(expr, x, &line) : NULL;
}

/* Positions from 0 on, whichever end they are counted from. */
static fl_tensor *wrapped(fl_expr *expr, fl_tensor *index, int64_t size)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(wrap_index));
    fl_attr_set(&a, FL_WRAP_SIZE, size);
    return EXPR_CALL(expr, &a, wrap_index, fl_of(index));
}

static fl_tensor *selected(fl_expr *expr, fl_tensor *x, int axis, fl_tensor *positions)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(index_select));
    fl_attr_set(&a, FL_INDEXED_AXIS, axis);
    return EXPR_CALL(expr, &a, index_select, fl_of(x), fl_of(positions));
}

static fl_status require_positions(const char *who, const fl_tensor *index)
{
    char text[FL_SHAPE_TEXT];
    if (fl_dtype_is_integer(index->meta->dtype)) return FL_OK;
    return fl_fail(FL_ERR_DTYPE, "%s: index must be integers, got %s%s", who, fl_dtype_name(index->meta->dtype),
                   fl_shape_text(text, &index->meta->shape));
}

static fl_status body_take(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[TAKE_X].tensor, *index = in[TAKE_INDEX].tensor;
    fl_expr c = {0};
    FL_TRY(require_positions("take", index));
    fl_tensor *positions = wrapped(&c, flat(&c, index), x->meta->numel);
    fl_tensor *taken = selected(&c, flat(&c, x), 0, positions);
    *out = fl_expr_take(&c, expr_reshape(&c, taken, &index->meta->shape));
    return fl_expr_end(&c);
}

FL_OP(take) = {
    .name = "take",
    .sig = "take(x, index)",
    .nout = 1,
    .doc =
        "The elements of x at positions in row-major order, in the shape of index; negative ones count from the end.",
    .body = body_take,
    FL_SAMPLES("flow.randn(3, 4), flow.tensor{{0, 11}, {-1, 5}}", "flow.randn(4), flow.tensor(2)"),
};

/* ---- take_along_axis ---- */

/* The shape of the index, of x, with the other axes broadcast together. */
static fl_status along_shapes(fl_shape *xs, fl_shape *is, int *axis, const fl_operand *in, const fl_attr *given)
{
    char tx[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    *xs = in[TAKE_X].tensor->meta->shape;
    *is = in[TAKE_INDEX].tensor->meta->shape;
    FL_TRY(fl_shape_axis(axis, "take_along_axis", given->integer, xs));
    bool fits = xs->ndim == is->ndim && xs->ndim > 0;
    for (int a = 0; fits && a < xs->ndim; a++) {
        if (a == *axis) continue;
        fits = xs->dims[a] == is->dims[a] || xs->dims[a] == 1 || is->dims[a] == 1;
        if (xs->dims[a] == 1) xs->dims[a] = is->dims[a];
        else is->dims[a] = xs->dims[a];
    }
    if (fits) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "take_along_axis: index %s and x %s must broadcast in all axes but %d",
                   fl_shape_text(ti, &in[TAKE_INDEX].tensor->meta->shape),
                   fl_shape_text(tx, &in[TAKE_X].tensor->meta->shape), *axis);
}

static fl_status body_take_along_axis(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_attr *given = &attrs->at[FL_INDEXED_AXIS];
    fl_shape xs, is;
    fl_attrs a;
    int axis;
    FL_TRY(require_positions("take_along_axis", in[TAKE_INDEX].tensor));
    if (!given->given) return FL_CALL(out, take, fl_of(in[TAKE_X].tensor), in[TAKE_INDEX]);
    FL_TRY(along_shapes(&xs, &is, &axis, in, given));
    fl_expr c = {0};
    fl_tensor *x = expr_expanded(&c, in[TAKE_X].tensor, &xs);
    fl_tensor *index = expr_expanded(&c, in[TAKE_INDEX].tensor, &is);
    fl_attrs_init(&a, FL_OP_REF(gather));
    fl_attr_set(&a, FL_INDEXED_AXIS, axis);
    index = index ? wrapped(&c, index, xs.dims[axis]) : NULL;
    *out = fl_expr_take(&c, EXPR_CALL(&c, &a, gather, fl_of(x), fl_of(index)));
    return fl_expr_end(&c);
}

FL_OP(take_along_axis) = {
    .name = "take_along_axis",
    .sig = "take_along_axis(x, index, axis: axis = nil)",
    .nout = 1,
    .doc = "gather with x and index broadcast in all other axes; without an axis, as take, in the shape of index.",
    .body = body_take_along_axis,
    FL_SAMPLES("flow.randn(3, 4), flow.tensor{{2}, {0}, {-1}}, 1", "flow.randn(3, 4), flow.tensor{{2, 0, 1, 1}}, 0",
               "flow.randn(1, 4), flow.tensor{{2}, {0}}, -1", "flow.randn(3, 4), flow.tensor{5, 0}"),
};

/* ---- writing ---- */

/* Ends work on `line`, the elements of x in order: x itself has them too, unless the line is a copy. */
static fl_status end_line(fl_tensor **out, fl_tensor *x, fl_tensor *line, fl_expr *expr)
{
    if (expr->status == FL_OK && (line->storage != x->storage || line->moved_view))
        EXPR_CALL(expr, NULL, copy_, fl_of(x), fl_of(expr_reshape(expr, line, &x->meta->shape)));
    fl_status status = fl_expr_end(expr);
    if (status == FL_OK) *out = fl_tensor_ref(x);
    return status;
}

/* The elements of x as one line that can be written to. */
static fl_tensor *writable_line(fl_expr *expr, fl_tensor *x)
{
    fl_tensor *line = flat(expr, x);
    return line && line->moved_view ? EXPR_CALL(expr, NULL, clone, fl_of(line)) : line;
}

enum { PUT_ACCUMULATE };

static fl_status check_source(const char *who, const fl_tensor *x, const fl_tensor *index, const fl_tensor *source)
{
    FL_TRY(require_positions(who, index));
    if (source->meta->dtype != x->meta->dtype)
        return fl_fail(FL_ERR_DTYPE, "%s: source is %s and x %s: dtypes must be equal", who,
                       fl_dtype_name(source->meta->dtype), fl_dtype_name(x->meta->dtype));
    if (source->meta->numel == index->meta->numel) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: source has %lld elements and index %lld; there must be as many", who,
                   (long long)source->meta->numel, (long long)index->meta->numel);
}

static fl_status put_elements(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                              const fl_attrs *attrs)
{
    fl_tensor *index = in[FL_WRITE_INDEX].tensor, *source = in[FL_WRITE_VALUE].tensor;
    fl_expr c = {0};
    FL_TRY(check_source(who, x, index, source));
    fl_tensor *line = writable_line(&c, x), *values = flat(&c, source);
    fl_tensor *positions = wrapped(&c, flat(&c, index), x->meta->numel);
    if (attrs->at[PUT_ACCUMULATE].integer)
        EXPR_CALL(&c, NULL, index_add_, fl_of(line), fl_of(positions), fl_of(values));
    else EXPR_CALL(&c, NULL, index_write_, fl_of(line), fl_of(positions), fl_of(values));
    return end_line(out, x, line, &c);
}

static const char *const put_samples[] = {"flow.randn(3, 4), flow.tensor{0, -1, 5}, flow.randn(3)",
                                          "flow.randn(3, 4), flow.tensor{{1}, {1}}, flow.randn(2, 1), true", NULL};
FL_IN_PLACE_PAIR(put, "x, index, source, accumulate: bool = false",
                 "x with the elements of source at positions in row-major order, or added to those there; of equal "
                 "positions the last is kept.",
                 put_elements, put_samples);

/* Element number i of x (from 0) whose mask is true becomes element i of source. */
static fl_status scatter_masked(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                                const fl_attrs *attrs)
{
    fl_tensor *mask = in[FL_WRITE_INDEX].tensor, *source = in[FL_WRITE_VALUE].tensor;
    fl_attrs a;
    fl_expr c = {0};
    if (mask->meta->dtype != FL_BOOL)
        return fl_fail(FL_ERR_DTYPE, "%s: mask must be bool, not %s", who, fl_dtype_name(mask->meta->dtype));
    if (source->meta->dtype != x->meta->dtype)
        return fl_fail(FL_ERR_DTYPE, "%s: source is %s and x %s: dtypes must be equal", who,
                       fl_dtype_name(source->meta->dtype), fl_dtype_name(x->meta->dtype));
    fl_attrs_init(&a, FL_OP_REF(cumsum));
    fl_attr_set(&a, FL_SCAN_AXIS, 0);
    mask = expr_expanded(&c, mask, &x->meta->shape);
    fl_tensor *ones = mask ? expr_cast(&c, flat(&c, mask), FL_INT64) : NULL;
    fl_tensor *numbers = EXPR_CALL(&c, &a, cumsum, fl_of(ones));
    fl_tensor *before = expr_mul(&c, EXPR_CALL(&c, NULL, sub, fl_of(numbers), fl_of_integer(1)), ones);
    fl_tensor *values = source->meta->numel ? selected(&c, flat(&c, source), 0, before) : NULL;
    if (values)
        EXPR_CALL(&c, NULL, copy_, fl_of(x),
                  fl_of(EXPR_CALL(&c, NULL, where, fl_of(mask), fl_of(expr_reshape(&c, values, &x->meta->shape)),
                                  fl_of(x))));
    fl_status status = fl_expr_end(&c);
    if (status == FL_OK) *out = fl_tensor_ref(x);
    return status;
}

static const char *const masked_samples[] = {
    "flow.randn(3, 4), flow.randn(3, 4):gt(0), flow.randn(12)",
    "flow.randn(3, 4), flow.tensor({true, false, true, true}), flow.randn(3, 4)", NULL};
FL_IN_PLACE_PAIR(masked_scatter, "x, mask, source",
                 "x with the elements of source, one after the other, where the mask (broadcast to x) is true.",
                 scatter_masked, masked_samples);

/* ---- repeat_interleave ---- */

enum { REPEAT_AXIS, REPEAT_TOTAL };

static fl_status repeat_each(fl_tensor **out, fl_tensor *x, int axis, int64_t repeats)
{
    fl_expr c = {0};
    fl_shape wide = x->meta->shape, joined = x->meta->shape;
    if (repeats < 0)
        return fl_fail(FL_ERR_VALUE, "repeat_interleave: repeats must not be negative, got %lld", (long long)repeats);
    if (wide.ndim == FL_MAX_NDIM)
        return fl_fail(FL_ERR_SHAPE, "repeat_interleave: takes tensors of %d axes at most", FL_MAX_NDIM - 1);
    for (int i = wide.ndim++; i > axis + 1; i--) wide.dims[i] = wide.dims[i - 1];
    wide.dims[axis + 1] = repeats;
    if (__builtin_mul_overflow(joined.dims[axis], repeats, &joined.dims[axis])) joined.dims[axis] = INT64_MAX;
    FL_TRY(fl_shape_make(&wide, "repeat_interleave",
                         (int64_t[FL_MAX_NDIM]){wide.dims[0], wide.dims[1], wide.dims[2], wide.dims[3], wide.dims[4],
                                                wide.dims[5], wide.dims[6], wide.dims[7]},
                         wide.ndim));
    fl_tensor *all = expr_expanded(&c, expr_unsqueeze(&c, x, axis + 1), &wide);
    *out = fl_expr_take(&c, expr_reshape(&c, all, &joined));
    return fl_expr_end(&c);
}

/* The sum of the repeats, which must not be negative; *first: of a single one its value. */
static fl_status read_repeats(int64_t *total, int64_t *first, fl_tensor *repeats)
{
    fl_tensor *here, *wide;
    fl_attrs a;
    FL_TRY(fl_meta_check_values(repeats->meta));
    fl_attrs_init(&a, FL_OP_REF(cast));
    fl_attr_set(&a, FL_CAST_DTYPE, FL_INT64);
    FL_TRY(FL_CALL_WITH(&wide, &a, cast, fl_of(repeats)));
    fl_status status = fl_host_whole(&here, wide);
    fl_tensor_unref(wide);
    FL_TRY(status);
    const int64_t *values = fl_tensor_data(here);
    int64_t step = here->meta->shape.ndim ? here->strides[0] : 0, n = here->meta->numel, lowest = 0;
    *total = 0;
    *first = n ? values[0] : 0;
    for (int64_t i = 0; i < n; i++) {
        *total += values[i * step];
        if (values[i * step] < lowest) lowest = values[i * step];
    }
    fl_tensor_unref(here);
    if (lowest == 0) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "repeat_interleave: repeats must not be negative, one is %lld", (long long)lowest);
}

/* Position t of the result is the number of intervals that end at or before t: 1 is added where each ends. */
static fl_tensor *repeated_positions(fl_expr *expr, fl_tensor *repeats, int64_t total)
{
    fl_attrs sum, place;
    int64_t size = total + 1;
    fl_attrs_init(&sum, FL_OP_REF(cumsum));
    fl_attr_set(&sum, FL_SCAN_AXIS, 0);
    fl_tensor *ends = EXPR_CALL(expr, &sum, cumsum, fl_of(expr_cast(expr, repeats, FL_INT64)));
    fl_attrs_init(&place, FL_OP_REF(gather_backward));
    fl_attr_set(&place, FL_INDEXED_AXIS, 0);
    fl_attr_set_list(&place, FL_GATHER_BACKWARD_SIZES, &size, 1);
    fl_tensor *ones = ends ? expr_ones(expr, ends) : NULL;
    fl_tensor *marks = EXPR_CALL(expr, &place, gather_backward, fl_of(ones), fl_of(ends));
    return expr_narrowed(expr, EXPR_CALL(expr, &sum, cumsum, fl_of(marks)), 0, 0, total);
}

static fl_status repeat_by(fl_tensor **out, fl_tensor *x, int axis, fl_tensor *repeats, const fl_attr *given)
{
    int64_t size = x->meta->shape.dims[axis], total = given->integer, first = 0;
    if (!fl_dtype_is_integer(repeats->meta->dtype) || repeats->meta->shape.ndim > 1)
        return fl_fail(FL_ERR_DTYPE, "repeat_interleave: repeats must be integers with one axis");
    if (repeats->meta->numel != size && repeats->meta->numel != 1)
        return fl_fail(FL_ERR_SHAPE, "repeat_interleave: there are %lld repeats for %lld positions of axis %d",
                       (long long)repeats->meta->numel, (long long)size, axis);
    bool single = repeats->meta->numel == 1 && size != 1;
    if (single || !given->given) FL_TRY(read_repeats(&total, &first, repeats));
    if (single) return repeat_each(out, x, axis, first);
    fl_expr c = {0};
    *out = fl_expr_take(&c, selected(&c, x, axis, repeated_positions(&c, flat(&c, repeats), total)));
    return fl_expr_end(&c);
}

static fl_status body_repeat_interleave(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_operand *repeats = &in[1];
    const fl_attr *given = &attrs->at[REPEAT_AXIS];
    fl_tensor *x = in[0].tensor;
    fl_expr c = {0};
    int axis = 0;
    if (!given->given || x->meta->shape.ndim == 0) x = flat(&c, x);
    if (given->given) c.status = fl_shape_axis(&axis, "repeat_interleave", given->integer, &in[0].tensor->meta->shape);
    if (c.status == FL_OK && repeats->kind == FL_TENSOR)
        c.status = repeat_by(out, x, axis, repeats->tensor, &attrs->at[REPEAT_TOTAL]);
    else if (c.status == FL_OK && repeats->kind == FL_NUM_INT) c.status = repeat_each(out, x, axis, repeats->integer);
    else if (c.status == FL_OK)
        c.status = fl_fail(FL_ERR_VALUE, "repeat_interleave: repeats must be a whole number or a tensor of them");
    return fl_expr_end(&c);
}

FL_OP(repeat_interleave) = {
    .name = "repeat_interleave",
    .sig = "repeat_interleave(x, repeats|n, axis: axis = nil, output_size: int = nil)",
    .nout = 1,
    .doc =
        "Each position of an axis (of all elements in order) that many times, one after the other; a tensor of repeats "
        "has one for each. output_size: their sum, so that it need not be read.",
    .body = body_repeat_interleave,
    FL_SAMPLES("flow.randn(2, 3), 2, 1", "flow.randn(2, 3), 3", "flow.randn(3, 2), flow.tensor{1, 0, 2}, 0, 3",
               "flow.randn(3, 2), flow.tensor{1, 0, 2}, 0"),
};

/*
** segments.c -- what the elements of each segment of an axis make together: segment_reduce.
**
** The segment of every position is found in the ends of the segments, which are sorted; positions that belong to none
** go to one more place, which is cut off. So nothing but the check of the lengths looks at their values.
*/
#include "dispatch/to_global.h"
#include "op/indexing.h"
#include "op/scan.h"
#include "op/search.h"
#include "expr.h"

#include <math.h>

enum { SEGMENT_DATA, SEGMENT_LENGTHS, SEGMENT_OFFSETS };
enum { SEGMENT_HOW, SEGMENT_AXIS, SEGMENT_UNSAFE, SEGMENT_INITIAL };
enum { HOW_SUM, HOW_MEAN, HOW_MAX, HOW_MIN, HOW_PROD };

struct segments {
    fl_tensor *data;    /* float32 or float64 */
    fl_tensor *lengths; /* int64 [..., count] */
    fl_tensor *index;   /* int64 [..., size of the axis]: the place of each position */
    int axis;
    int64_t count, places, first; /* places of the results; the first segment's */
};

/* ---- arguments ---- */

/* The operand with the places of segments has the axes of the data before the reduced one, and then this one. */
static fl_status check_bounds(const char *name, const fl_tensor *bounds, const fl_tensor *data, int axis)
{
    char tb[FL_SHAPE_TEXT], td[FL_SHAPE_TEXT];
    const fl_shape *b = &bounds->meta->shape, *d = &data->meta->shape;
    if (!fl_dtype_is_integer(bounds->meta->dtype))
        return fl_fail(FL_ERR_DTYPE, "segment_reduce: %s must be integers, they are %s", name,
                       fl_dtype_name(bounds->meta->dtype));
    bool fits = b->ndim == axis + 1;
    for (int i = 0; fits && i < axis; i++) fits = b->dims[i] == d->dims[i];
    if (fits) return FL_OK;
    return fl_fail(FL_ERR_SHAPE,
                   "segment_reduce: %s must have the axes of data before axis %d, and one of segments: they are %s, "
                   "data is %s",
                   name, axis, fl_shape_text(tb, b), fl_shape_text(td, d));
}

/* Lengths are not negative, and those of a line add up to the size of the axis. Without values nothing is checked. */
static fl_status check_lengths(fl_tensor *lengths, int64_t size)
{
    fl_tensor *here;
    fl_expr c = {0};
    fl_status status = FL_OK;
    if (lengths->meta->placement->type == FL_META) return FL_OK;
    fl_tensor *array = EXPR_CALL(&c, NULL, clone, fl_of(lengths));
    if (array) c.status = fl_host_whole(&here, array);
    FL_TRY(c.status == FL_OK ? FL_OK : fl_expr_end(&c));
    const fl_shape *shape = &here->meta->shape;
    const int64_t *values = fl_tensor_data(here);
    int64_t count = shape->dims[shape->ndim - 1], total = 0;
    for (int64_t i = 0; status == FL_OK && i < here->meta->numel; i++) {
        total = i % count == 0 ? values[i] : total + values[i];
        if (values[i] < 0)
            status = fl_fail(FL_ERR_VALUE, "segment_reduce: lengths must not be negative, one is %lld",
                             (long long)values[i]);
        else if (i % count == count - 1 && total != size)
            status = fl_fail(FL_ERR_VALUE,
                             "segment_reduce: lengths must add up to the %lld positions of the axis, they make %lld; "
                             "with unsafe = true the rest is left out",
                             (long long)size, (long long)total);
    }
    fl_tensor_unref(here);
    fl_status end = fl_expr_end(&c);
    return status == FL_OK ? end : status;
}

/* ---- places ---- */

static fl_tensor *summed_up(fl_expr *expr, fl_tensor *x)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cumsum));
    fl_attr_set(&a, FL_SCAN_AXIS, -1);
    return EXPR_CALL(expr, &a, cumsum, fl_of(x));
}

/* Counts the bounds at or before each position of the axis. */
static fl_tensor *bounds_before(fl_expr *expr, fl_tensor *bounds, int64_t size)
{
    fl_attrs a;
    if (!bounds || expr->status != FL_OK) return NULL;
    fl_shape lines = bounds->meta->shape;
    lines.dims[lines.ndim - 1] = size;
    fl_tensor *positions = expr_expanded(expr, expr_range(expr, bounds, 0, size, 1), &lines);
    fl_attrs_init(&a, FL_OP_REF(searchsorted_of));
    fl_attr_set(&a, FL_SEARCH_RIGHT, true);
    return EXPR_CALL(expr, &a, searchsorted_of, fl_of(bounds), fl_of(positions));
}

/* By lengths positions after the last segment belong to none, by offsets those before the first do not either. */
static void find_segments(fl_expr *expr, struct segments *segments, fl_tensor *lengths, fl_tensor *offsets)
{
    fl_tensor *bounds = expr_cast(expr, lengths ? lengths : offsets, FL_INT64);
    if (expr->status != FL_OK) return;
    int64_t n = bounds->meta->shape.dims[segments->axis], size = segments->data->meta->shape.dims[segments->axis];
    segments->first = lengths ? 0 : 1;
    segments->count = lengths ? n : n - 1;
    segments->places = n + 1;
    segments->lengths = lengths ? bounds
                                : expr_sub(expr, expr_narrowed(expr, bounds, segments->axis, 1, n - 1),
                                           expr_narrowed(expr, bounds, segments->axis, 0, n - 1));
    segments->index = bounds_before(expr, lengths ? summed_up(expr, bounds) : bounds, size);
}

/* x [..., n] with axes of size 1 for those of the data after the reduced one. */
static fl_tensor *beside_data(fl_expr *expr, const struct segments *segments, fl_tensor *x)
{
    if (!x || expr->status != FL_OK) return NULL;
    fl_shape shape = x->meta->shape;
    shape.ndim = segments->data->meta->shape.ndim;
    for (int i = segments->axis + 1; i < shape.ndim; i++) shape.dims[i] = 1;
    return expr_reshape(expr, x, &shape);
}

static fl_tensor *index_of_elements(fl_expr *expr, const struct segments *segments)
{
    return expr_expanded(expr, beside_data(expr, segments, segments->index), &segments->data->meta->shape);
}

/* ---- reductions ---- */

static fl_tensor *sums(fl_expr *expr, const struct segments *segments)
{
    fl_attrs a;
    fl_shape shape = segments->data->meta->shape;
    shape.dims[segments->axis] = segments->places;
    if (segments->axis == 0) { /* whole slices are added */
        fl_attrs_init(&a, FL_OP_REF(index_select_backward));
        fl_attr_set(&a, FL_INDEXED_AXIS, 0);
        fl_attr_set(&a, FL_INDEX_ADD_SIZE, segments->places);
        return EXPR_CALL(expr, &a, index_select_backward, fl_of(segments->data), fl_of(segments->index));
    }
    fl_attrs_init(&a, FL_OP_REF(gather_backward));
    fl_attr_set(&a, FL_INDEXED_AXIS, segments->axis);
    fl_attr_set_list(&a, FL_GATHER_BACKWARD_SIZES, shape.dims, shape.ndim);
    return EXPR_CALL(expr, &a, gather_backward, fl_of(segments->data), fl_of(index_of_elements(expr, segments)));
}

static fl_tensor *folds(fl_expr *expr, const struct segments *segments, int fold, double neutral)
{
    fl_attrs a;
    fl_shape shape = segments->data->meta->shape;
    shape.dims[segments->axis] = segments->places;
    fl_tensor *start = expr_add_number(expr, expr_zeros_of(expr, segments->data, &shape), neutral);
    fl_attrs_init(&a, FL_OP_REF(scatter_fold));
    fl_attr_set(&a, FL_INDEXED_AXIS, segments->axis);
    fl_attr_set(&a, FL_FOLD_REDUCE, fold);
    return EXPR_CALL(expr, &a, scatter_fold, fl_of(start), fl_of(index_of_elements(expr, segments)),
                     fl_of(segments->data));
}

/* The mean of no element is NaN, with an initial value that value. */
static fl_tensor *divided(fl_expr *expr, const struct segments *segments, fl_tensor *sum, bool has_initial)
{
    fl_tensor *counts = expr_cast(expr, segments->lengths, segments->data->meta->dtype);
    if (has_initial) counts = EXPR_CALL(expr, NULL, maximum, fl_of(counts), fl_of_integer(1));
    return expr_div(expr, sum, beside_data(expr, segments, counts));
}

/* If an element is equal to the initial value, its gradient is the element's. */
static fl_tensor *bounded(fl_expr *expr, fl_tensor *x, const fl_op *is_beyond, double initial)
{
    if (!x) return NULL;
    fl_operand number = fl_of_number(initial);
    fl_tensor *replaced = fl_expr_call(expr, is_beyond, (const fl_operand[]){fl_of(x), number}, 2, NULL);
    return EXPR_CALL(expr, NULL, where, fl_of(replaced), number, fl_of(x));
}

static fl_tensor *reduced(fl_expr *expr, const struct segments *segments, int64_t how, const fl_attr *initial)
{
    bool given = initial->given;
    double first = given ? initial->number : 0;
    fl_tensor *x = how == HOW_MAX ? folds(expr, segments, FL_FOLD_AMAX, -INFINITY)
        : how == HOW_MIN          ? folds(expr, segments, FL_FOLD_AMIN, INFINITY)
        : how == HOW_PROD         ? folds(expr, segments, FL_FOLD_PROD, 1)
                                  : sums(expr, segments);
    x = expr_narrowed(expr, x, segments->axis, segments->first, segments->count);
    if (given && how == HOW_PROD) x = expr_mul_number(expr, x, first);
    else if (given && how == HOW_MAX) x = bounded(expr, x, FL_OP_REF(lt), first);
    else if (given && how == HOW_MIN) x = bounded(expr, x, FL_OP_REF(gt), first);
    else if (given) x = expr_add_number(expr, x, first);
    return how == HOW_MEAN ? divided(expr, segments, x, given) : x;
}

static fl_status body_segment_reduce(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    struct segments s = {0};
    fl_tensor *data = in[SEGMENT_DATA].tensor;
    fl_tensor *lengths = in[SEGMENT_LENGTHS].kind == FL_TENSOR ? in[SEGMENT_LENGTHS].tensor : NULL;
    fl_tensor *offsets = in[SEGMENT_OFFSETS].kind == FL_TENSOR ? in[SEGMENT_OFFSETS].tensor : NULL;
    if (!lengths == !offsets)
        return fl_fail(FL_ERR_VALUE, "segment_reduce: takes lengths or offsets, got %s", lengths ? "both" : "neither");
    if (!fl_dtype_is_float(data->meta->dtype))
        return fl_fail(FL_ERR_DTYPE, "segment_reduce: takes a float tensor, data is %s; write data:to(\"float32\")",
                       fl_dtype_name(data->meta->dtype));
    FL_TRY(fl_shape_axis(&s.axis, "segment_reduce", attrs->at[SEGMENT_AXIS].integer, &data->meta->shape));
    FL_TRY(check_bounds(lengths ? "lengths" : "offsets", lengths ? lengths : offsets, data, s.axis));
    if (offsets && offsets->meta->shape.dims[s.axis] == 0)
        return fl_fail(FL_ERR_SHAPE, "segment_reduce: offsets must have one more entry than there are segments");
    s.data = expr_widen(&c, data);
    find_segments(&c, &s, lengths, offsets);
    if (c.status == FL_OK && lengths && !attrs->at[SEGMENT_UNSAFE].integer)
        c.status = check_lengths(s.lengths, data->meta->shape.dims[s.axis]);
    if (c.status == FL_OK) {
        fl_tensor *x = reduced(&c, &s, attrs->at[SEGMENT_HOW].integer, &attrs->at[SEGMENT_INITIAL]);
        *out = fl_expr_take(&c, expr_cast(&c, x, data->meta->dtype));
    }
    return fl_expr_end(&c);
}

FL_OP(segment_reduce) = {
    .name = "segment_reduce",
    .sig = "segment_reduce(data, reduce: sum|mean|max|min|prod, lengths?, offsets?, axis: axis = 0, "
           "unsafe: bool = false, initial: float = nil)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "What the elements of each segment of an axis make together. lengths: of the segments, one after the other; "
           "offsets: where each begins, and the last ends; initial: a value that takes part; unsafe: lengths are not "
           "checked.",
    .body = body_segment_reduce,
    FL_SAMPLES("flow.randn(5, 2), 'sum', {lengths = flow.tensor({2, 0, 3}), unsafe = true}",
               "flow.randn(5, 2), 'mean', {offsets = flow.tensor({0, 2, 5})}",
               "flow.randn(2, 4), 'max', {offsets = flow.tensor({{0, 1, 4}, {1, 3, 4}}), axis = 1}",
               "flow.randn(5), 'min', {lengths = flow.tensor({1, 4}), initial = 0.5, unsafe = true}",
               "flow.randn(5, 2), 'prod', {lengths = flow.tensor({2, 3}), initial = 2.5, unsafe = true}",
               "flow.randn(2, 3, 2), 'mean', {offsets = flow.tensor({{0, 1, 3}, {0, 0, 2}}), axis = 1, initial = 0}"),
};

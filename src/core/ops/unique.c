/*
** unique.c -- distinct elements, and counts of values: unique, unique_consecutive, bincount, histc.
**
** The number of distinct elements depends on the data: masked_select and nonzero count them, so they also raise the
** errors of the meta device and of captured functions.
*/
#include "op/views.h"
#include "op/create.h"
#include "op/indexing.h"
#include "op/reduce.h"
#include "op/scan.h"
#include "op/slicing.h"
#include "dispatch/to_global.h"
#include "expr.h"

/* ---- distinct rows of a list ---- */

enum { UNIQUE_VALUES, UNIQUE_INVERSE, UNIQUE_COUNTS };

static fl_tensor *expr_rows(fl_expr *expr, fl_tensor *x, fl_tensor *positions)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(index_select));
    fl_attr_set(&a, FL_INDEXED_AXIS, 0);
    return EXPR_CALL(expr, &a, index_select, fl_of(x), fl_of(positions));
}

/* 0, 1, 2, ... of as many rows as x has, as int64 */
static fl_tensor *expr_numbers(fl_expr *expr, fl_tensor *begins)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cumsum));
    fl_attr_set(&a, FL_SCAN_AXIS, 0);
    fl_tensor *ones = EXPR_CALL(expr, NULL, ones_like, fl_of(begins));
    return EXPR_CALL(expr, NULL, sub, fl_of(EXPR_CALL(expr, &a, cumsum, fl_of(ones))), fl_of_integer(1));
}

/* True where a row of x [n] or [n, m], n > 0, differs from the one before. */
static fl_tensor *row_begins(fl_expr *expr, fl_tensor *x)
{
    if (!x || expr->status != FL_OK) return NULL;
    int64_t n = x->meta->shape.dims[0];
    fl_tensor *differ = EXPR_CALL(expr, NULL, ne, fl_of(expr_narrowed(expr, x, 0, 1, n - 1)),
                                  fl_of(expr_narrowed(expr, x, 0, 0, n - 1)));
    fl_tensor *first = expr_narrowed(expr, x, 0, 0, 1);
    if (x->meta->shape.ndim > 1) {
        differ = expr_reduce(expr, FL_OP_REF(any), differ, 1u << 1, false);
        first = expr_reduce(expr, FL_OP_REF(any), first, 1u << 1, false);
    }
    if (first && first->meta->dtype != FL_BOOL) first = EXPR_CALL(expr, NULL, ne, fl_of(first), fl_of_integer(0));
    return expr_concatenated(expr, expr_ones(expr, first), differ, 0);
}

/* Distances between the positions of true elements, the last from the end. */
static fl_tensor *run_lengths(fl_expr *expr, fl_tensor *starts, int64_t n)
{
    if (!starts || expr->status != FL_OK) return NULL;
    int64_t count = starts->meta->shape.dims[0];
    if (count == 0) return starts;
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(full_like));
    fl_attr_set(&a, FL_FILL_VALUE, n);
    fl_tensor *end = EXPR_CALL(expr, &a, full_like, fl_of(expr_narrowed(expr, starts, 0, 0, 1)));
    fl_tensor *ends = count > 1 ? expr_concatenated(expr, expr_narrowed(expr, starts, 0, 1, count - 1), end, 0) : end;
    return expr_sub(expr, ends, starts);
}

/* In which run each row is; the run of sorted row i is that of row order[i]. */
static fl_tensor *expr_runs(fl_expr *expr, fl_tensor *begins, fl_tensor *order)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cumsum));
    fl_attr_set(&a, FL_SCAN_AXIS, 0);
    fl_tensor *runs = EXPR_CALL(expr, NULL, sub, fl_of(EXPR_CALL(expr, &a, cumsum, fl_of(begins))), fl_of_integer(1));
    if (!order) return runs;
    fl_attrs_init(&a, FL_OP_REF(scatter));
    fl_attr_set(&a, FL_INDEXED_AXIS, 0);
    return EXPR_CALL(expr, &a, scatter, fl_of(runs), fl_of(order), fl_of(runs));
}

/* Values and, where wanted, inverse and counts of the rows of x, which are in order by `order` (NULL: as they are). */
static void distinct(fl_expr *expr, fl_tensor *result[3], fl_tensor *x, fl_tensor *order, const bool wanted[3])
{
    fl_tensor *rows = order ? expr_rows(expr, x, order) : x, *begins = row_begins(expr, rows), *starts = NULL;
    if (expr->status != FL_OK) return;
    bool is_list = x->meta->shape.ndim == 1;
    if (!is_list || wanted[UNIQUE_COUNTS])
        starts = EXPR_CALL(expr, NULL, masked_select, fl_of(expr_numbers(expr, begins)), fl_of(begins));
    result[UNIQUE_VALUES] = is_list ? EXPR_CALL(expr, NULL, masked_select, fl_of(rows), fl_of(begins))
                                    : expr_rows(expr, rows, starts);
    if (wanted[UNIQUE_INVERSE]) result[UNIQUE_INVERSE] = expr_runs(expr, begins, order);
    if (wanted[UNIQUE_COUNTS]) result[UNIQUE_COUNTS] = run_lengths(expr, starts, x->meta->shape.dims[0]);
}

/* The order of rows [n, m] by their first column, of equal ones by the second, and so on. */
static fl_status rows_in_order(fl_tensor **out, fl_tensor *x)
{
    fl_tensor *order = NULL;
    int64_t columns = x->meta->shape.ndim > 1 ? x->meta->shape.dims[1] : 1;
    for (int64_t j = columns - 1; j >= 0; j--) {
        fl_expr c = {0};
        fl_attrs a;
        fl_attrs_init(&a, FL_OP_REF(select));
        fl_attr_set(&a, FL_SLICE_AXIS, 1);
        fl_attr_set(&a, FL_SLICE_POSITION, j);
        fl_tensor *column = x->meta->shape.ndim > 1 ? EXPR_CALL(&c, &a, select, fl_of(x)) : x;
        if (order) column = expr_rows(&c, column, order);
        fl_tensor *by = EXPR_CALL(&c, NULL, argsort, fl_of(column));
        fl_tensor *next = fl_expr_take(&c, order ? expr_rows(&c, order, by) : by);
        fl_tensor_unref(order);
        order = next;
        FL_TRY(fl_expr_end(&c));
    }
    *out = order;
    return FL_OK;
}

/* x as rows: all elements [n], or what lies at each position of an axis [n, m]. */
static fl_tensor *as_rows(fl_expr *expr, fl_tensor *x, const fl_attr *axis, int at)
{
    fl_attrs a;
    int64_t order[FL_MAX_NDIM];
    const fl_shape *shape = &x->meta->shape;
    if (!axis->given) return expr_reshape(expr, x, &(fl_shape){1, {x->meta->numel}});
    order[0] = at;
    for (int i = 0, k = 1; i < shape->ndim; i++)
        if (i != at) order[k++] = i;
    fl_attrs_init(&a, FL_OP_REF(permute));
    fl_attr_set_list(&a, FL_PERMUTE_AXES, order, shape->ndim);
    int64_t n = shape->dims[at];
    return expr_reshape(expr, EXPR_CALL(expr, &a, permute, fl_of(x)), &(fl_shape){2, {n, n ? x->meta->numel / n : 0}});
}

/* Rows of distinct values in the place of the axis. */
static fl_tensor *from_rows(fl_expr *expr, fl_tensor *rows, const fl_shape *x, int at)
{
    fl_attrs a;
    int64_t order[FL_MAX_NDIM];
    fl_shape shape = {.ndim = x->ndim, .dims = {0}};
    if (!rows || expr->status != FL_OK) return NULL;
    shape.dims[0] = rows->meta->shape.dims[0];
    for (int i = 0, k = 1; i < x->ndim; i++) {
        order[i] = i == at ? 0 : i < at ? i + 1 : i;
        if (i != at) shape.dims[k++] = x->dims[i];
    }
    fl_attrs_init(&a, FL_OP_REF(permute));
    fl_attr_set_list(&a, FL_PERMUTE_AXES, order, x->ndim);
    return EXPR_CALL(expr, &a, permute, fl_of(expr_reshape(expr, rows, &shape)));
}

static fl_status check_axis(int *at, const char *who, const fl_attr *axis, const fl_tensor *x)
{
    *at = 0;
    if (!axis->given) return FL_OK;
    if (x->meta->shape.ndim == 0) return fl_fail(FL_ERR_SHAPE, "%s: x has no axis", who);
    return fl_shape_axis(at, who, axis->integer, &x->meta->shape);
}

/* Results that are not wanted stay NULL. */
static fl_status unique_of(fl_tensor **out, const char *who, fl_tensor *x, const fl_attr *axis, bool sorts,
                           const bool wanted[3])
{
    fl_expr c = {0};
    fl_tensor *order = NULL, *result[3] = {NULL};
    int at;
    FL_TRY(check_axis(&at, who, axis, x));
    if (x->meta->numel > 0) FL_TRY(fl_meta_check_values(x->meta));
    fl_tensor *rows = as_rows(&c, x, axis, at);
    if (c.status != FL_OK) return fl_expr_end(&c);
    if (rows->meta->shape.dims[0] == 0) { /* nothing is distinct */
        result[UNIQUE_VALUES] = rows;
        result[UNIQUE_INVERSE] = result[UNIQUE_COUNTS] =
            expr_cast(&c, expr_reduce(&c, FL_OP_REF(sum), rows, axis->given ? 1u << 1 : 0, false), FL_INT64);
        if (!axis->given) result[UNIQUE_INVERSE] = result[UNIQUE_COUNTS] = expr_cast(&c, rows, FL_INT64);
    } else {
        if (sorts) c.status = rows_in_order(&order, rows);
        if (c.status == FL_OK) distinct(&c, result, rows, order, wanted);
    }
    if (axis->given) result[UNIQUE_VALUES] = from_rows(&c, result[UNIQUE_VALUES], &x->meta->shape, at);
    else if (wanted[UNIQUE_INVERSE]) result[UNIQUE_INVERSE] = expr_reshape(&c, result[UNIQUE_INVERSE], &x->meta->shape);
    for (int i = 0; i < 3; i++)
        if (wanted[i]) out[i] = fl_expr_take(&c, result[i]);
    fl_tensor_unref(order);
    return fl_expr_end(&c);
}

enum { UNIQUE_SORTED, UNIQUE_WANTS_INVERSE, UNIQUE_WANTS_COUNTS, UNIQUE_AXIS };
enum { RUNS_WANTS_INVERSE, RUNS_WANTS_COUNTS, RUNS_AXIS };

static fl_status body_unique(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const bool wanted[] = {true, attrs->at[UNIQUE_WANTS_INVERSE].integer != 0,
                           attrs->at[UNIQUE_WANTS_COUNTS].integer != 0};
    return unique_of(out, "unique", in[0].tensor, &attrs->at[UNIQUE_AXIS], true, wanted);
}
static fl_status body_unique_consecutive(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const bool wanted[] = {true, attrs->at[RUNS_WANTS_INVERSE].integer != 0, attrs->at[RUNS_WANTS_COUNTS].integer != 0};
    return unique_of(out, "unique_consecutive", in[0].tensor, &attrs->at[RUNS_AXIS], false, wanted);
}

FL_OP(unique) = {
    .name = "unique",
    .sig =
        "unique(x, sorted: bool = true, return_inverse: bool = false, return_counts: bool = false, axis: axis = nil)",
    .nout = 3,
    .flags = FL_OP_NO_GRAD | FL_OP_LOCAL_ONLY,
    .doc =
        "The distinct elements, or the distinct slices along an axis, always in order; where asked for, which of them "
        "each element is, and how often each occurs.",
    .body = body_unique,
    FL_SAMPLES("flow.tensor({3, 1, 2, 1, 3}), true, true, true",
               "flow.tensor({{1, 2}, {0, 5}, {1, 2}}), {axis = 0, return_counts = true}", "flow.zeros(0)"),
};

FL_OP(unique_consecutive) = {
    .name = "unique_consecutive",
    .sig = "unique_consecutive(x, return_inverse: bool = false, return_counts: bool = false, axis: axis = nil)",
    .nout = 3,
    .flags = FL_OP_NO_GRAD | FL_OP_LOCAL_ONLY,
    .doc = "The first of each run of equal elements, or of equal slices along an axis; where asked for, which run each "
           "element is in, and how long each is.",
    .body = body_unique_consecutive,
    FL_SAMPLES("flow.tensor({3, 1, 1, 2, 3, 3}), true, true", "flow.tensor({{1, 2}, {1, 2}, {0, 5}}), {axis = 0}"),
};

/* ---- bincount ---- */

/* Sums of weights at positions 0 .. size - 1. */
static fl_tensor *sums_at(fl_expr *expr, fl_tensor *weights, fl_tensor *positions, int64_t size)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(index_select_backward));
    fl_attr_set(&a, FL_INDEXED_AXIS, 0);
    fl_attr_set(&a, FL_INDEX_ADD_SIZE, size);
    return EXPR_CALL(expr, &a, index_select_backward, fl_of(weights), fl_of(positions));
}

/* Counts each of 0 .. size - 1 among the positions. */
static fl_tensor *counts_at(fl_expr *expr, fl_tensor *positions, int64_t size)
{
    fl_attrs a;
    fl_tensor *one = expr_range(expr, positions, 1, 1, 1);
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&a, FL_OP_REF(gather_backward));
    fl_attr_set(&a, FL_INDEXED_AXIS, 0);
    fl_attr_set_list(&a, FL_GATHER_BACKWARD_SIZES, &size, 1);
    return EXPR_CALL(expr, &a, gather_backward, fl_of(expr_expanded(expr, one, &positions->meta->shape)),
                     fl_of(positions));
}

/* The smallest and the largest of a list, which has elements, as numbers of the host. */
static fl_status range_of(int64_t range[2], fl_tensor *x)
{
    fl_tensor *host;
    const fl_op *const ops[] = {FL_OP_REF(min_all), FL_OP_REF(max_all)};
    for (int i = 0; i < 2; i++) {
        fl_expr c = {0};
        fl_tensor *extreme = expr_cast(&c, fl_expr_call(&c, ops[i], (const fl_operand[]){fl_of(x)}, 1, NULL), FL_INT64);
        if (c.status == FL_OK) c.status = fl_meta_check_values(x->meta);
        if (c.status == FL_OK) c.status = fl_host_whole(&host, extreme);
        if (c.status == FL_OK) {
            range[i] = *(const int64_t *)fl_tensor_data(host);
            fl_tensor_unref(host);
        }
        FL_TRY(fl_expr_end(&c));
    }
    return FL_OK;
}

static fl_status body_bincount(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char text[FL_SHAPE_TEXT];
    fl_tensor *x = in[0].tensor, *weights = in[1].kind == FL_TENSOR ? in[1].tensor : NULL;
    int64_t size = attrs->at[0].integer, range[2] = {0, -1};
    if (fl_dtype_is_float(x->meta->dtype) || x->meta->shape.ndim != 1)
        return fl_fail(FL_ERR_SHAPE, "bincount: takes a list of integers, x is %s%s", fl_dtype_name(x->meta->dtype),
                       fl_shape_text(text, &x->meta->shape));
    if (size < 0) return fl_fail(FL_ERR_VALUE, "bincount: minlength must be 0 or more, got %lld", (long long)size);
    if (weights && !fl_shape_equal(&weights->meta->shape, &x->meta->shape))
        return fl_fail(FL_ERR_SHAPE, "bincount: weights must have the shape of x, they are %s",
                       fl_shape_text(text, &weights->meta->shape));
    fl_tensor *positions = expr_cast(&c, x, FL_INT64);
    if (positions && x->meta->numel > 0) c.status = range_of(range, positions);
    FL_TRY(c.status == FL_OK ? FL_OK : fl_expr_end(&c));
    if (range[0] < 0) return fl_fail(FL_ERR_VALUE, "bincount: x has the negative element %lld", (long long)range[0]);
    if (range[1] >= size) size = range[1] + 1;
    if (weights && weights->meta->dtype != FL_FLOAT32) weights = expr_cast(&c, weights, FL_FLOAT64);
    *out = fl_expr_take(&c, weights ? sums_at(&c, weights, positions, size) : counts_at(&c, positions, size));
    return fl_expr_end(&c);
}

FL_OP(bincount) = {
    .name = "bincount",
    .sig = "bincount(x, weights?, minlength: int = 0)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD | FL_OP_LOCAL_ONLY,
    .doc =
        "How often each integer from 0 to the largest occurs in a list, or the sums of the weights of each; at least "
        "minlength of them.",
    .body = body_bincount,
    FL_SAMPLES("flow.tensor({3, 1, 0, 1})", "flow.tensor({3, 1, 0, 1}), flow.tensor({0.5, 1.0, 2.0, 0.25}), 6"),
};

/* ---- histc ---- */

enum { HISTC_BINS, HISTC_MIN, HISTC_MAX };

/* The bounds of the bins: those given, or where they are equal those of x, or where these are equal 1 around them. */
static void histc_bounds(fl_expr *expr, fl_tensor *bounds[2], fl_tensor *x, const fl_attrs *attrs)
{
    fl_attrs a;
    double low = attrs->at[HISTC_MIN].number, high = attrs->at[HISTC_MAX].number;
    bool own = low == high;
    fl_attrs_init(&a, FL_OP_REF(full_like));
    bounds[0] = EXPR_CALL(expr, NULL, min_all, fl_of(x));
    bounds[1] = EXPR_CALL(expr, NULL, max_all, fl_of(x));
    for (int i = 0; !own && i < 2; i++) {
        fl_attr_set_number(&a, FL_FILL_VALUE, i ? high : low);
        bounds[i] = EXPR_CALL(expr, &a, full_like, fl_of(bounds[i]));
    }
    if (!own) return;
    fl_tensor *same = EXPR_CALL(expr, NULL, eq, fl_of(bounds[0]), fl_of(bounds[1]));
    for (int i = 0; i < 2; i++)
        bounds[i] = EXPR_CALL(expr, NULL, where, fl_of(same), fl_of(expr_add_number(expr, bounds[i], i ? 1 : -1)),
                              fl_of(bounds[i]));
}

static fl_status body_histc(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_tensor *bounds[2], *x = in[0].tensor;
    int64_t bins = attrs->at[HISTC_BINS].integer;
    if (!fl_dtype_is_float(x->meta->dtype))
        return fl_fail(FL_ERR_DTYPE, "histc: takes a float tensor, x is %s; write x:to(\"float32\")",
                       fl_dtype_name(x->meta->dtype));
    if (bins < 1) return fl_fail(FL_ERR_VALUE, "histc: bins must be at least 1, got %lld", (long long)bins);
    if (attrs->at[HISTC_MIN].number > attrs->at[HISTC_MAX].number)
        return fl_fail(FL_ERR_VALUE, "histc: min = %g is larger than max = %g", attrs->at[HISTC_MIN].number,
                       attrs->at[HISTC_MAX].number);
    if (x->meta->numel == 0) { /* no element in any bin */
        fl_tensor *none = expr_sum(&c, x, (1u << x->meta->shape.ndim) - 1, false);
        fl_attrs_init(&a, FL_OP_REF(expand));
        fl_attr_set_list(&a, FL_VIEW_SIZE, &bins, 1);
        *out = fl_expr_take(&c, EXPR_CALL(&c, NULL, clone, fl_of(EXPR_CALL(&c, &a, expand, fl_of(none)))));
        return fl_expr_end(&c);
    }
    x = expr_widen(&c, expr_reshape(&c, x, &(fl_shape){1, {x->meta->numel}}));
    histc_bounds(&c, bounds, x, attrs);
    fl_tensor *in_range = EXPR_CALL(&c, NULL, logical_and, fl_of(EXPR_CALL(&c, NULL, ge, fl_of(x), fl_of(bounds[0]))),
                                    fl_of(EXPR_CALL(&c, NULL, le, fl_of(x), fl_of(bounds[1]))));
    fl_tensor *share = expr_div(&c, expr_sub(&c, x, bounds[0]), expr_sub(&c, bounds[1], bounds[0]));
    fl_tensor *place = expr_mul_number(&c, share, (double)bins);
    place = EXPR_CALL(&c, NULL, where, fl_of(in_range), fl_of(place), fl_of_integer(0));
    fl_tensor *at = EXPR_CALL(&c, NULL, minimum, fl_of(expr_cast(&c, place, FL_INT64)), fl_of_integer(bins - 1));
    fl_tensor *counts = sums_at(&c, expr_cast(&c, in_range, x ? x->meta->dtype : FL_FLOAT32), at, bins);
    *out = fl_expr_take(&c, expr_cast(&c, counts, in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

FL_OP(histc) = {
    .name = "histc",
    .sig = "histc(x, bins: int = 100, min: float = 0, max: float = 0)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc = "How many elements lie in each of `bins` equal intervals from min to max; min = max: from the smallest "
           "element to the largest. Others, and NaN, do not count.",
    .body = body_histc,
    FL_SAMPLES("flow.randn(20), 4, -1, 1", "flow.rand(3, 4), 5"),
};

/*
** selection.c -- what is picked out of sorted lines: medians, quantiles, the k-th value, the most frequent one.
**
** All but the last take elements by rank (ranked), without a sort where there is something faster. NaN comes last. The
** gradients go to the elements that were taken.
*/
#include "op/views.h"
#include "op/running.h"
#include "op/create.h"
#include "op/indexing.h"
#include "op/ranked.h"
#include "op/reduce.h"
#include "op/scan.h"
#include "expr.h"

#include <math.h>

/* A line of all elements where no axis is given; a 0-d tensor is a line of one. */
struct lines {
    fl_tensor *x;
    int axis;
    int64_t n;
};

static fl_status open_lines(struct lines *lines, fl_expr *expr, const char *who, fl_tensor *x, const fl_attr *axis)
{
    char text[FL_SHAPE_TEXT];
    lines->axis = 0;
    if (axis->given) FL_TRY(fl_shape_axis(&lines->axis, who, axis->integer, &x->meta->shape));
    if (!axis->given || x->meta->shape.ndim == 0) x = expr_reshape(expr, x, &(fl_shape){1, {x->meta->numel}});
    if (!x) return expr->status;
    lines->x = x;
    lines->n = x->meta->shape.dims[lines->axis];
    if (lines->n == 0)
        return fl_fail(FL_ERR_SHAPE, "%s: axis %d of %s is empty, so there is no result", who, lines->axis,
                       fl_shape_text(text, &x->meta->shape));
    return expr->status;
}

/* Values and their positions. */
struct picked {
    fl_tensor *from[2];
};

static struct picked both_of(const fl_expr *expr, fl_tensor *values)
{
    return (struct picked){{values, expr->status == FL_OK ? expr->owned[expr->count - 1] : NULL}};
}

/* The elements at the ranks int64 [..., k, ...] of each line, or (NULL) at one rank of all. */
static struct picked at_ranks(fl_expr *expr, const struct lines *lines, fl_tensor *ranks, int64_t rank)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(ranked));
    fl_attr_set(&a, FL_RANKED_AXIS, lines->axis);
    fl_attr_set(&a, FL_RANKED_RANK, rank);
    return both_of(expr, EXPR_CALL(expr, &a, ranked, fl_of(lines->x), fl_of(ranks)));
}

/* Counts the NaN of each line, with the axis of size 1. */
static fl_tensor *count_nan(fl_expr *expr, const struct lines *lines)
{
    fl_tensor *nan = EXPR_CALL(expr, NULL, ne, fl_of(lines->x), fl_of(lines->x));
    return expr_sum(expr, nan, 1u << lines->axis, true);
}

/* A result with the axis of size 1, as keepdim has it: all axes of x stay, or none does. */
static fl_tensor *shaped(fl_expr *expr, fl_tensor *picked, const fl_tensor *x, const fl_attr *axis, bool keepdim)
{
    fl_shape shape;
    int ndim = x->meta->shape.ndim;
    uint32_t mask = (1u << ndim) - 1;
    if (axis->given && ndim) mask = 1u << fl_axis_of(axis, ndim);
    fl_reduce_shape(&shape, &x->meta->shape, mask, keepdim);
    return expr_reshape(expr, picked, &shape);
}

static fl_tensor *integer_sub(fl_expr *expr, int64_t number, fl_tensor *x)
{
    return EXPR_CALL(expr, NULL, sub, fl_of_integer(number), fl_of(x));
}

/* ---- median ---- */

enum { MEDIAN_AXIS, MEDIAN_KEEPDIM };

/* The rank of the lower median; the first NaN, or the median of the others. */
static fl_tensor *median_rank(fl_expr *expr, const struct lines *lines, bool others)
{
    fl_tensor *nan = count_nan(expr, lines);
    fl_tensor *numbers = integer_sub(expr, lines->n, nan);
    if (!others) {
        fl_tensor *some = EXPR_CALL(expr, NULL, gt, fl_of(nan), fl_of_integer(0));
        return EXPR_CALL(expr, NULL, where, fl_of(some), fl_of(numbers), fl_of_integer((lines->n - 1) / 2));
    }
    fl_tensor *half = EXPR_CALL(expr, NULL, floor_divide,
                                fl_of(EXPR_CALL(expr, NULL, sub, fl_of(numbers), fl_of_integer(1))), fl_of_integer(2));
    return EXPR_CALL(expr, NULL, maximum, fl_of(half), fl_of_integer(0));
}

static fl_status median_of(fl_tensor **out, int nout, const char *who, fl_tensor *x, const fl_attrs *attrs, bool others)
{
    fl_expr c = {0};
    struct lines lines;
    static const fl_attr none = {0};
    const fl_attr *axis = nout == 2 ? &attrs->at[MEDIAN_AXIS] : &none;
    bool keepdim = nout == 2 && attrs->at[MEDIAN_KEEPDIM].integer != 0;
    fl_status status = open_lines(&lines, &c, who, x, axis);
    if (status == FL_OK) {
        fl_tensor *rank = fl_dtype_is_float(x->meta->dtype) ? median_rank(&c, &lines, others) : NULL;
        struct picked median = at_ranks(&c, &lines, rank, (lines.n - 1) / 2);
        for (int i = 0; i < nout; i++) out[i] = fl_expr_take(&c, shaped(&c, median.from[i], x, axis, keepdim));
    }
    fl_status ended = fl_expr_end(&c);
    return status == FL_OK ? ended : status;
}

#define MEDIAN(ident, others, doc_)                                                                        \
    static fl_status body_##ident##_all(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *a) \
    {                                                                                                      \
        return median_of(out, 1, #ident, in[0].tensor, a, others);                                         \
    }                                                                                                      \
    static fl_status body_##ident(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *a)       \
    {                                                                                                      \
        return median_of(out, 2, #ident, in[0].tensor, a, others);                                         \
    }                                                                                                      \
    FL_OP(ident##_all) = {                                                                                 \
        .name = #ident "_all",                                                                             \
        .sig = #ident "_all(x)",                                                                           \
        .nout = 1,                                                                                         \
        .flags = FL_OP_HIDDEN | FL_OP_BY_NAME,                                                             \
        .doc = doc_,                                                                                       \
        .body = body_##ident##_all,                                                                        \
        FL_SAMPLES("flow.randn(3, 4)", "flow.randint(0, 9, {7})"),                                         \
    };                                                                                                     \
    FL_OP(ident##_axis) = {                                                                                \
        .name = #ident "_axis",                                                                            \
        .sig = #ident "_axis(x, axis: axis, keepdim: bool = false)",                                       \
        .nout = 2,                                                                                         \
        .flags = FL_OP_HIDDEN | FL_OP_BY_NAME,                                                             \
        .doc = doc_,                                                                                       \
        .body = body_##ident,                                                                              \
        FL_SAMPLES("flow.randn(3, 4), 1", "flow.randn(5, 2), 0, true", "flow.randint(0, 9, {3, 5}), 1"),   \
    }

MEDIAN(median, false, "The lower median, and along an axis its positions; NaN where there is one.");
MEDIAN(nanmedian, true, "The lower median of what is not NaN, and along an axis its positions.");

/* ---- kthvalue ---- */

enum { KTH_K, KTH_AXIS, KTH_KEEPDIM };

static fl_status body_kthvalue(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    struct lines lines;
    fl_tensor *x = in[0].tensor;
    int64_t k = attrs->at[KTH_K].integer;
    fl_status status = open_lines(&lines, &c, "kthvalue", x, &attrs->at[KTH_AXIS]);
    if (status == FL_OK && (k < 1 || k > lines.n))
        status = fl_fail(FL_ERR_VALUE, "kthvalue: k is %lld, but the axis has %lld elements, from 1 on", (long long)k,
                         (long long)lines.n);
    if (status == FL_OK) {
        struct picked kth = at_ranks(&c, &lines, NULL, k - 1);
        for (int i = 0; i < 2; i++)
            out[i] =
                fl_expr_take(&c, shaped(&c, kth.from[i], x, &attrs->at[KTH_AXIS], attrs->at[KTH_KEEPDIM].integer != 0));
    }
    fl_status ended = fl_expr_end(&c);
    return status == FL_OK ? ended : status;
}

FL_OP(kthvalue) = {
    .name = "kthvalue",
    .sig = "kthvalue(x, k: int, axis: axis = -1, keepdim: bool = false)",
    .nout = 2,
    .doc = "The k-th smallest value along an axis, counted from 1, and its position.",
    .body = body_kthvalue,
    FL_SAMPLES("flow.randn(3, 5), 2", "flow.randn(5, 3), 5, 0, true"),
};

/* ---- mode ---- */

enum { MODE_AXIS, MODE_KEEPDIM };

static struct picked sorted_lines(fl_expr *expr, const struct lines *lines)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(sort));
    fl_attr_set(&a, FL_SORT_AXIS, lines->axis);
    return both_of(expr, EXPR_CALL(expr, &a, sort, fl_of(lines->x)));
}

/* The elements at positions int64 [..., k, ...] of each line. */
static fl_tensor *at_positions(fl_expr *expr, fl_tensor *x, int axis, fl_tensor *positions)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(gather));
    fl_attr_set(&a, FL_INDEXED_AXIS, axis);
    return EXPR_CALL(expr, &a, gather, fl_of(x), fl_of(positions));
}

/* In sorted lines, an element's place within its run of equal ones; the first of the farthest ends the longest run of
** the smallest value. */
static fl_tensor *places_in_runs(fl_expr *expr, const struct lines *lines, const struct picked *picked)
{
    fl_attrs a;
    fl_tensor *sorted = picked->from[0];
    fl_tensor *later = expr_narrowed(expr, sorted, lines->axis, 1, lines->n - 1);
    fl_tensor *earlier = expr_narrowed(expr, sorted, lines->axis, 0, lines->n - 1);
    fl_tensor *begins = EXPR_CALL(expr, NULL, ne, fl_of(later), fl_of(earlier));
    fl_tensor *first = expr_narrowed(expr, sorted, lines->axis, 0, 1);
    first = expr_ones(expr, EXPR_CALL(expr, NULL, isnan, fl_of(first)));
    begins = expr_concatenated(expr, first, begins, lines->axis);
    fl_attrs_init(&a, FL_OP_REF(cumsum));
    fl_attr_set(&a, FL_SCAN_AXIS, lines->axis);
    fl_tensor *numbers = EXPR_CALL(expr, &a, cumsum, fl_of(EXPR_CALL(expr, NULL, ones_like, fl_of(picked->from[1]))));
    fl_tensor *starts = EXPR_CALL(expr, NULL, where, fl_of(begins), fl_of(numbers), fl_of_integer(0));
    fl_attrs_init(&a, FL_OP_REF(cummax_of));
    fl_attr_set(&a, FL_RUNNING_AXIS, lines->axis);
    return expr_sub(expr, numbers, EXPR_CALL(expr, &a, cummax_of, fl_of(starts)));
}

static fl_status body_mode(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    struct lines lines;
    fl_tensor *x = in[0].tensor, *at;
    fl_status status = open_lines(&lines, &c, "mode", x, &attrs->at[MODE_AXIS]);
    if (status == FL_OK) {
        struct picked sorted = sorted_lines(&c, &lines);
        fl_attrs_init(&a, FL_OP_REF(argmax));
        fl_attr_set(&a, FL_REDUCE_AXIS, lines.axis);
        fl_attr_set(&a, FL_REDUCE_KEEPDIM, true);
        at = EXPR_CALL(&c, &a, argmax, fl_of(places_in_runs(&c, &lines, &sorted)));
        for (int i = 0; i < 2; i++)
            out[i] = fl_expr_take(&c,
                                  shaped(&c, at_positions(&c, sorted.from[i], lines.axis, at), x, &attrs->at[MODE_AXIS],
                                         attrs->at[MODE_KEEPDIM].integer != 0));
    }
    fl_status ended = fl_expr_end(&c);
    return status == FL_OK ? ended : status;
}

FL_OP(mode) = {
    .name = "mode",
    .sig = "mode(x, axis: axis = -1, keepdim: bool = false)",
    .nout = 2,
    .doc = "The most frequent value along an axis, the smallest of those that are equally frequent, and its last "
           "position.",
    .body = body_mode,
    FL_SAMPLES("flow.randint(0, 3, {4, 7})", "flow.randn(5, 3), 0, true"),
};

/* ---- quantiles ---- */

enum { QUANTILE_X, QUANTILE_Q };
enum { QUANTILE_AXIS, QUANTILE_KEEPDIM, QUANTILE_BETWEEN };
enum { LINEAR, LOWER, HIGHER, MIDPOINT, NEAREST };

/* The values at real ranks [..., k, ...] of the lines. */
static fl_tensor *between(fl_expr *expr, const struct lines *lines, fl_tensor *rank, int64_t how)
{
    fl_tensor *low = EXPR_CALL(expr, NULL, floor, fl_of(rank)), *high = EXPR_CALL(expr, NULL, ceil, fl_of(rank));
    if (how == HIGHER) low = high;
    else if (how == NEAREST) low = EXPR_CALL(expr, NULL, round, fl_of(rank));
    if (how != LINEAR && how != MIDPOINT) return at_ranks(expr, lines, expr_cast(expr, low, FL_INT64), 0).from[0];
    int64_t k = rank ? rank->meta->shape.dims[lines->axis] : 0;
    fl_tensor *ranks = expr_cast(expr, expr_concatenated(expr, low, high, lines->axis), FL_INT64);
    fl_tensor *both = at_ranks(expr, lines, ranks, 0).from[0];
    fl_tensor *below = expr_narrowed(expr, both, lines->axis, 0, k),
              *above = expr_narrowed(expr, both, lines->axis, k, k);
    if (how == MIDPOINT) return EXPR_CALL(expr, NULL, lerp, fl_of(below), fl_of(above), fl_of_number(0.5));
    return EXPR_CALL(expr, NULL, lerp, fl_of(below), fl_of(above), fl_of(expr_sub(expr, rank, low)));
}

/* The operand q as [1, ..., k, ..., 1] in the dtype of x. */
static fl_tensor *as_column(fl_expr *expr, const struct lines *lines, const fl_operand *fractions)
{
    fl_tensor *list;
    fl_attrs a;
    fl_shape shape = {.ndim = lines->x->meta->shape.ndim, .dims = {0}};
    for (int i = 0; i < shape.ndim; i++) shape.dims[i] = 1;
    if (fractions->kind == FL_TENSOR) {
        list = fractions->tensor;
        shape.dims[lines->axis] = list->meta->numel;
        return expr_reshape(expr, list, &shape);
    }
    fl_attrs_init(&a, FL_OP_REF(full_like));
    fl_attr_set_number(&a, FL_FILL_VALUE,
                       fractions->kind == FL_NUM_FLOAT ? fractions->number : (double)fractions->integer);
    list = expr_sum(expr, expr_narrowed(expr, lines->x, lines->axis, 0, 1), (1u << shape.ndim) - 1, true);
    return EXPR_CALL(expr, &a, full_like, fl_of(list));
}

static fl_status check_quantile(const char *who, const fl_operand *in)
{
    char text[FL_SHAPE_TEXT];
    const fl_operand *q = &in[QUANTILE_Q];
    fl_dtype dtype = in[QUANTILE_X].tensor->meta->dtype;
    if (!fl_dtype_is_float(dtype))
        return fl_fail(FL_ERR_DTYPE, "%s: takes a float tensor, x is %s; write x:to(\"float32\")", who,
                       fl_dtype_name(dtype));
    if (q->kind != FL_TENSOR) {
        double number = q->kind == FL_NUM_FLOAT ? q->number : (double)q->integer;
        if (number >= 0 && number <= 1) return FL_OK;
        return fl_fail(FL_ERR_VALUE, "%s: q must be from 0 to 1, got %g", who, number);
    }
    if (q->tensor->meta->dtype != dtype)
        return fl_fail(FL_ERR_DTYPE, "%s: q must be %s as x is, it is %s", who, fl_dtype_name(dtype),
                       fl_dtype_name(q->tensor->meta->dtype));
    if (q->tensor->meta->shape.ndim <= 1) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: q must be a number or a list of numbers, it is %s", who,
                   fl_shape_text(text, &q->tensor->meta->shape));
}

/* Several quantiles come along a first axis of their own. */
static fl_tensor *quantiles_first(fl_expr *expr, fl_tensor *picked, const struct lines *lines, const fl_operand *in,
                                  const fl_attrs *attrs)
{
    const fl_tensor *x = in[QUANTILE_X].tensor;
    const fl_attr *axis = &attrs->at[QUANTILE_AXIS];
    bool keepdim = attrs->at[QUANTILE_KEEPDIM].integer != 0;
    fl_attrs a;
    if (in[QUANTILE_Q].kind != FL_TENSOR || in[QUANTILE_Q].tensor->meta->shape.ndim == 0)
        return shaped(expr, picked, x, axis, keepdim);
    if (!picked || expr->status != FL_OK) return NULL;
    fl_shape shape, wide = {0};
    int ndim = x->meta->shape.ndim;
    uint32_t mask = axis->given && ndim ? 1u << fl_axis_of(axis, ndim) : (1u << ndim) - 1;
    fl_reduce_shape(&shape, &x->meta->shape, mask, keepdim);
    wide.ndim = shape.ndim + 1;
    wide.dims[0] = in[QUANTILE_Q].tensor->meta->numel;
    for (int i = 0; i < shape.ndim; i++) wide.dims[i + 1] = shape.dims[i];
    int64_t order[FL_MAX_NDIM] = {lines->axis};
    for (int i = 0, k = 1; i < lines->x->meta->shape.ndim; i++)
        if (i != lines->axis) order[k++] = i;
    fl_attrs_init(&a, FL_OP_REF(permute));
    fl_attr_set_list(&a, FL_PERMUTE_AXES, order, lines->x->meta->shape.ndim);
    return expr_reshape(expr, EXPR_CALL(expr, &a, permute, fl_of(picked)), &wide);
}

static fl_operand widened(fl_expr *expr, fl_operand operand)
{
    return operand.kind == FL_TENSOR ? fl_of(expr_widen(expr, operand.tensor)) : operand;
}

/* Positions q (n - 1), of numbers alone where NaN does not count; else a line with NaN is NaN. */
static fl_status quantile_of(fl_tensor **out, const char *who, const fl_operand *own, const fl_attrs *attrs,
                             bool others)
{
    fl_expr c = {0};
    struct lines lines;
    FL_TRY(check_quantile(who, own));
    const fl_operand in[] = {widened(&c, own[QUANTILE_X]), widened(&c, own[QUANTILE_Q])};
    if (c.status != FL_OK) return fl_expr_end(&c);
    fl_dtype dtype = in[QUANTILE_X].tensor->meta->dtype;
    fl_status status = open_lines(&lines, &c, who, in[QUANTILE_X].tensor, &attrs->at[QUANTILE_AXIS]);
    if (status == FL_OK) {
        fl_tensor *nan = expr_cast(&c, count_nan(&c, &lines), dtype), *q = as_column(&c, &lines, &in[QUANTILE_Q]);
        fl_tensor *some = EXPR_CALL(&c, NULL, gt, fl_of(nan), fl_of_integer(0));
        fl_tensor *last = EXPR_CALL(&c, NULL, sub, fl_of_integer(lines.n - 1), fl_of(nan));
        if (others) last = EXPR_CALL(&c, NULL, maximum, fl_of(last), fl_of_integer(0));
        else last = EXPR_CALL(&c, NULL, where, fl_of(some), fl_of_integer(lines.n - 1), fl_of(last));
        fl_tensor *rank = expr_mul(&c, q, last);
        if (!others) rank = EXPR_CALL(&c, NULL, where, fl_of(some), fl_of_number((double)(lines.n - 1)), fl_of(rank));
        fl_tensor *picked = between(&c, &lines, rank, attrs->at[QUANTILE_BETWEEN].integer);
        picked = quantiles_first(&c, picked, &lines, in, attrs);
        *out = fl_expr_take(&c, expr_cast(&c, picked, own[QUANTILE_X].tensor->meta->dtype));
    }
    fl_status ended = fl_expr_end(&c);
    return status == FL_OK ? ended : status;
}

static fl_status body_quantile(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return quantile_of(out, "quantile", in, attrs, false);
}
static fl_status body_nanquantile(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return quantile_of(out, "nanquantile", in, attrs, true);
}

#define QUANTILE(ident, doc_)                                                             \
    FL_OP(ident) = {                                                                      \
        .name = #ident,                                                                   \
        .sig = #ident "(x, q|n, axis: axis = nil, keepdim: bool = false, interpolation: " \
                      "linear|lower|higher|midpoint|nearest = linear)",                   \
        .nout = 1,                                                                        \
        .doc = doc_,                                                                      \
        .body = body_##ident,                                                             \
        FL_SAMPLES("flow.randn(3, 5), 0.3", "flow.randn(3, 5), 0.6, 1, true",             \
                   "flow.randn(5, 3), flow.tensor({0.2, 0.9}), 0",                        \
                   "flow.randn(3, 5), 0.3, {interpolation = 'nearest'}"),                 \
    }

QUANTILE(quantile,
         "The q-quantiles, q from 0 to 1, along an axis or of everything; NaN where there is one. Those of "
         "several q come along a first axis.");
QUANTILE(nanquantile, "The q-quantiles of what is not NaN, along an axis or of everything.");

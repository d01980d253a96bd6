/*
** search.c -- positions of values in sorted lines: searchsorted, bucketize, isin.
**
** A line is searched as a whole. There is one for all values, or one for each line of values.
*/
#include "op/search.h"
#include "cpu/search.h"
#include "cpu/stage.h"
#include "memory/scratch.h"
#include "op/indexing.h"
#include "op/reduce.h"
#include "expr.h"

#include <math.h>

/* ---- the kernel ---- */

static fl_status infer_search(fl_infer *infer)
{
    char ts[FL_SHAPE_TEXT], tv[FL_SHAPE_TEXT];
    const fl_spec *sorted = &infer->in[FL_SEARCH_SORTED], *values = &infer->in[FL_SEARCH_VALUES];
    infer->name = "searchsorted";
    if (sorted->dtype != values->dtype)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "both operands must have one dtype, they are %s and %s",
                             fl_dtype_name(sorted->dtype), fl_dtype_name(values->dtype));
    if (!fl_dtype_is_float(sorted->dtype) && sorted->dtype != FL_INT64)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "is computed in floats or int64, not in %s",
                             fl_dtype_name(sorted->dtype));
    bool fits = sorted->shape.ndim == 1 || (sorted->shape.ndim > 1 && sorted->shape.ndim == values->shape.ndim);
    for (int i = 0; fits && sorted->shape.ndim > 1 && i < sorted->shape.ndim - 1; i++)
        fits = sorted->shape.dims[i] == values->shape.dims[i];
    if (!fits)
        return fl_infer_fail(infer, FL_ERR_SHAPE,
                             "sorted_sequence must be one line, or have a line for each line of x: it is %s, x is %s",
                             fl_shape_text(ts, &sorted->shape), fl_shape_text(tv, &values->shape));
    infer->out[0].shape = values->shape;
    infer->out[0].dtype = FL_INT64;
    return FL_OK;
}

/* Values are searched one by one; lines go with their values. */
static void sbp_search(fl_sigs *sigs)
{
    int lines = sigs->in_logical[FL_SEARCH_SORTED].ndim - 1, ndim = sigs->in_logical[FL_SEARCH_VALUES].ndim;
    for (int i = 0; i < ndim; i++) {
        bool along = lines > 0 && i < lines;
        FL_SIG(sigs, NULL, along ? FL_S(i) : FL_B, FL_S(i), FL_S(i));
    }
}

static bool is_array(const fl_view *view) { return view->contiguous && view->dtype == fl_dtype_compute(view->dtype); }

static size_t copied_bytes(const fl_view *view)
{
    size_t bytes = (size_t)view->numel * fl_dtype_size(fl_dtype_compute(view->dtype));
    return is_array(view) ? 0 : (bytes + 63) & ~(size_t)63;
}

/* The elements as an array, at *scratch where they are none yet. */
static fl_status array_of(const void **array, const fl_view *view, char **scratch)
{
    int64_t strides[FL_MAX_NDIM];
    *array = view->data;
    if (is_array(view)) return FL_OK;
    fl_view copy = fl_view_array(view, *scratch, fl_dtype_compute(view->dtype), strides);
    *array = *scratch;
    *scratch += copied_bytes(view);
    return fl_cpu_copy(&copy, view);
}

static fl_status kernel_search(fl_kernel *kernel)
{
    const fl_view *sorted = &kernel->in[FL_SEARCH_SORTED], *values = &kernel->in[FL_SEARCH_VALUES];
    size_t bytes = copied_bytes(sorted) + copied_bytes(values);
    if (kernel->out[0].numel == 0) return FL_OK;
    char *scratch = bytes ? fl_scratch(FL_STAGE_SCRATCH, bytes) : NULL;
    if (bytes && !scratch)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory: %zu bytes of scratch space", kernel->name, bytes);
    fl_search s = {.out = kernel->out[0].data,
                   .n = sorted->size[sorted->ndim - 1],
                   .per_line = sorted->ndim > 1 ? values->size[values->ndim - 1] : 0,
                   .right = kernel->attrs->at[FL_SEARCH_RIGHT].integer != 0};
    FL_TRY(array_of(&s.sorted, sorted, &scratch));
    FL_TRY(array_of(&s.values, values, &scratch));
    fl_cpu_search(fl_dtype_compute(sorted->dtype), &s, values->numel);
    return FL_OK;
}

FL_OP(searchsorted_of) = {
    .name = "searchsorted_of",
    .sig = "searchsorted_of(sorted_sequence, x, right: bool = false)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "searchsorted of operands of one dtype: floats or int64.",
    .infer = infer_search,
    .sbp = sbp_search,
    .cpu = kernel_search,
    FL_SAMPLES("(flow.randn(6):sort()), flow.randn(3, 4)", "(flow.randn(3, 6):sort()), flow.randn(3, 4), true"),
};

/* ---- searchsorted, bucketize ---- */

enum { SORTED_OUT_INT32, SORTED_RIGHT, SORTED_SIDE };
enum { SORTED_SEQUENCE, SORTED_X, SORTED_SORTER };

/* The dtype in which values of two others are compared. */
static fl_dtype searched_dtype(fl_dtype one, fl_dtype other)
{
    fl_dtype dtype = fl_dtype_promote(one, other);
    if (!fl_dtype_is_float(dtype)) return FL_INT64;
    return dtype == FL_FLOAT64 ? FL_FLOAT64 : FL_FLOAT32;
}

static fl_tensor *expr_search(fl_expr *expr, fl_tensor *sorted, fl_tensor *x, bool right)
{
    fl_attrs a;
    if (!sorted || !x || expr->status != FL_OK) return NULL;
    fl_dtype dtype = searched_dtype(sorted->meta->dtype, x->meta->dtype);
    fl_attrs_init(&a, FL_OP_REF(searchsorted_of));
    fl_attr_set(&a, FL_SEARCH_RIGHT, right);
    return EXPR_CALL(expr, &a, searchsorted_of, fl_of(expr_cast(expr, sorted, dtype)),
                     fl_of(expr_cast(expr, x, dtype)));
}

static fl_status body_searchsorted(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *sorted = in[SORTED_SEQUENCE].tensor;
    if (in[SORTED_SORTER].kind == FL_TENSOR) {
        fl_attrs a;
        fl_attrs_init(&a, FL_OP_REF(gather));
        fl_attr_set(&a, FL_INDEXED_AXIS, -1);
        sorted = EXPR_CALL(&c, &a, gather, fl_of(sorted), in[SORTED_SORTER]);
    }
    bool right = attrs->at[SORTED_RIGHT].integer != 0 || attrs->at[SORTED_SIDE].integer != 0;
    fl_tensor *at = expr_search(&c, sorted, in[SORTED_X].tensor, right);
    *out = fl_expr_take(&c, attrs->at[SORTED_OUT_INT32].integer ? expr_cast(&c, at, FL_INT32) : at);
    return fl_expr_end(&c);
}

FL_OP(searchsorted) = {
    .name = "searchsorted",
    .sig = "searchsorted(sorted_sequence, x, out_int32: bool = false, right: bool = false, side: left|right = left, "
           "sorter?)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD | FL_OP_FUNCTION_ONLY,
    .doc = "Where values would be put into a sorted line so that it stays sorted: before equal elements, or with right "
           "after them. sorter: the order of a line that is not sorted.",
    .body = body_searchsorted,
    FL_SAMPLES("(flow.randn(6):sort()), flow.randn(3, 4)", "(flow.randn(3, 6):sort()), flow.randn(3, 4), true, true",
               "flow.tensor({1, 3, 3, 5}), flow.tensor({3, 0, 9}), {side = 'right'}"),
};

enum { BUCKETS_X, BUCKETS_BOUNDARIES };

static fl_status body_bucketize(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char text[FL_SHAPE_TEXT];
    const fl_shape *shape = &in[BUCKETS_BOUNDARIES].tensor->meta->shape;
    if (shape->ndim != 1)
        return fl_fail(FL_ERR_SHAPE, "bucketize: boundaries must be one line, they are %s", fl_shape_text(text, shape));
    fl_tensor *at = expr_search(&c, in[BUCKETS_BOUNDARIES].tensor, in[BUCKETS_X].tensor,
                                attrs->at[SORTED_RIGHT].integer != 0);
    *out = fl_expr_take(&c, attrs->at[SORTED_OUT_INT32].integer ? expr_cast(&c, at, FL_INT32) : at);
    return fl_expr_end(&c);
}

FL_OP(bucketize) = {
    .name = "bucketize",
    .sig = "bucketize(x, boundaries, out_int32: bool = false, right: bool = false)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc = "The number of the interval between sorted boundaries that each element lies in; at a boundary the one "
           "below it, or with right above it.",
    .body = body_bucketize,
    FL_SAMPLES("flow.randn(3, 4), flow.tensor({-1.0, 0.0, 1.0})"),
};

/* ---- isin ---- */

enum { ISIN_UNIQUE, ISIN_INVERT };

/* The line with its largest number in place of each NaN: nothing equals NaN, and a search needs a sorted line. */
static fl_tensor *without_nan(fl_expr *expr, fl_tensor *line)
{
    fl_tensor *nan = EXPR_CALL(expr, NULL, ne, fl_of(line), fl_of(line));
    fl_tensor *numbers = EXPR_CALL(expr, NULL, where, fl_of(nan), fl_of_number(-INFINITY), fl_of(line));
    fl_tensor *largest = expr_reduce(expr, FL_OP_REF(amax), numbers, 1, true);
    return EXPR_CALL(expr, NULL, where, fl_of(nan), fl_of(largest), fl_of(line));
}

/* `is`, but false everywhere if the line has no number. */
static fl_tensor *unless_all_nan(fl_expr *expr, fl_tensor *is, fl_tensor *line)
{
    fl_tensor *some = expr_reduce(expr, FL_OP_REF(any), EXPR_CALL(expr, NULL, eq, fl_of(line), fl_of(line)), 1, true);
    return EXPR_CALL(expr, NULL, logical_and, fl_of(is), fl_of(some));
}

/* The element at the place where a value would be put is the value, or it is none of them. */
/* One of the two is a number: isin(x, 3), and isin(3, test), which has no axes. */
static fl_status isin_number(fl_tensor **out, const fl_operand *in, bool invert)
{
    fl_expr c = {0};
    fl_tensor *is = EXPR_CALL(&c, NULL, eq, in[0], in[1]);
    int ndim = in[0].kind != FL_TENSOR && c.status == FL_OK ? is->meta->shape.ndim : 0;
    if (ndim > 0) is = expr_reduce(&c, FL_OP_REF(any), is, (uint32_t)((1ull << ndim) - 1), false);
    *out = fl_expr_take(&c, invert ? EXPR_CALL(&c, NULL, logical_not, fl_of(is)) : is);
    return fl_expr_end(&c);
}

static fl_status body_isin(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    bool invert = attrs->at[ISIN_INVERT].integer != 0;
    if (in[0].kind != FL_TENSOR || in[1].kind != FL_TENSOR) return isin_number(out, in, invert);
    fl_tensor *x = in[0].tensor, *test = in[1].tensor;
    int64_t n = test->meta->numel;
    fl_attrs a;
    if (n == 0) {
        fl_tensor *none = EXPR_CALL(&c, NULL, lt, in[0], in[0]);
        *out = fl_expr_take(&c, invert ? EXPR_CALL(&c, NULL, logical_not, fl_of(none)) : none);
        return fl_expr_end(&c);
    }
    fl_dtype dtype = searched_dtype(x->meta->dtype, test->meta->dtype);
    fl_tensor *flat = expr_reshape(&c, expr_cast(&c, x, dtype), &(fl_shape){1, {x->meta->numel}});
    fl_tensor *line = expr_reshape(&c, expr_cast(&c, test, dtype), &(fl_shape){1, {n}});
    bool has_nan = fl_dtype_is_float(dtype); /* perhaps */
    fl_tensor *sorted = EXPR_CALL(&c, NULL, sort, fl_of(has_nan ? without_nan(&c, line) : line));
    fl_tensor *at = EXPR_CALL(&c, NULL, minimum, fl_of(expr_search(&c, sorted, flat, false)), fl_of_integer(n - 1));
    fl_attrs_init(&a, FL_OP_REF(gather));
    fl_attr_set(&a, FL_INDEXED_AXIS, 0);
    fl_tensor *there = EXPR_CALL(&c, &a, gather, fl_of(sorted), fl_of(at));
    fl_tensor *is = EXPR_CALL(&c, NULL, eq, fl_of(there), fl_of(flat));
    if (has_nan) is = unless_all_nan(&c, is, line);
    if (invert) is = EXPR_CALL(&c, NULL, logical_not, fl_of(is));
    *out = fl_expr_take(&c, expr_reshape(&c, is, &x->meta->shape));
    return fl_expr_end(&c);
}

FL_OP(isin) = {
    .name = "isin",
    .sig = "isin(elements|n, test_elements|n, assume_unique: bool = false, invert: bool = false)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD | FL_OP_FUNCTION_ONLY,
    .doc = "True where an element is one of the test elements; invert: where it is none.",
    .body = body_isin,
    FL_SAMPLES("flow.randint(0, 9, {3, 4}), flow.tensor({1, 5, 7})",
               "flow.randn(3, 4):round(), flow.tensor({0.0, 1.0})", "flow.randint(0, 9, {3, 4}), 3",
               "3, flow.randint(0, 9, {3, 4})"),
};

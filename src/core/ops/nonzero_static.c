/*
** nonzero_static.c -- positions of nonzero elements, as many as a script says: nonzero whose shape does not depend on
** the data, so that it is part of captured functions and of programs on other devices.
*/
#include "op/views.h"
#include "op/scan.h"
#include "op/search.h"
#include "expr.h"

enum { STATIC_SIZE, STATIC_FILL };

/* The numbers in memory order of the first `size` nonzero elements; the number of elements where there are fewer. The
** i-th is where the count of those up to it reaches i. */
static fl_tensor *numbers_of_nonzero(fl_expr *expr, fl_tensor *x, int64_t size)
{
    fl_attrs scan, search;
    fl_tensor *is = EXPR_CALL(expr, NULL, ne, fl_of(x), fl_of_integer(0));
    fl_tensor *flat = expr_cast(expr, expr_reshape(expr, is, &(fl_shape){1, {x->meta->numel}}), FL_INT64);
    fl_attrs_init(&scan, FL_OP_REF(cumsum));
    fl_attr_set(&scan, FL_SCAN_AXIS, 0);
    fl_tensor *counts = EXPR_CALL(expr, &scan, cumsum, fl_of(flat));
    fl_attrs_init(&search, FL_OP_REF(searchsorted_of));
    return EXPR_CALL(expr, &search, searchsorted_of, fl_of(counts), fl_of(expr_range(expr, x, 1, size, 1)));
}

/* The position along one axis: of the number divided by what lies behind the axis, the rest. */
static fl_tensor *along_axis(fl_expr *expr, fl_tensor *numbers, int64_t behind, int64_t size)
{
    fl_tensor *at = EXPR_CALL(expr, NULL, floor_divide, fl_of(numbers), fl_of_integer(behind > 0 ? behind : 1));
    return EXPR_CALL(expr, NULL, remainder, fl_of(at), fl_of_integer(size > 0 ? size : 1));
}

static fl_status body_nonzero_static(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs stack;
    fl_operand columns[FL_MAX_NDIM];
    fl_tensor *x = in[0].tensor;
    const fl_shape *shape = &x->meta->shape;
    int64_t size = attrs->at[STATIC_SIZE].integer, behind = 1;
    if (size < 0) return fl_fail(FL_ERR_VALUE, "nonzero_static: size must be 0 or more, got %lld", (long long)size);
    if (shape->ndim == 0) { /* a row per element without columns */
        *out = fl_expr_take(&c, expr_cast(&c, expr_zeros_of(&c, x, &(fl_shape){2, {size, 0}}), FL_INT64));
        return fl_expr_end(&c);
    }
    fl_tensor *numbers = numbers_of_nonzero(&c, x, size);
    fl_tensor *found = EXPR_CALL(&c, NULL, lt, fl_of(numbers), fl_of_integer(x->meta->numel));
    fl_operand fill = fl_of_integer(attrs->at[STATIC_FILL].integer);
    for (int i = shape->ndim - 1; i >= 0; behind *= shape->dims[i--]) {
        fl_tensor *at = along_axis(&c, numbers, behind, shape->dims[i]);
        columns[i] = fl_of(EXPR_CALL(&c, NULL, where, fl_of(found), fl_of(at), fill));
    }
    fl_attrs_init(&stack, FL_OP_REF(stack));
    fl_attr_set(&stack, FL_JOINED_AXIS, 1);
    *out = fl_expr_take(&c, fl_expr_call(&c, FL_OP_REF(stack), columns, shape->ndim, &stack));
    return fl_expr_end(&c);
}

FL_OP(nonzero_static) = {
    .name = "nonzero_static",
    .sig = "nonzero_static(x, size: int, fill_value: int = -1)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc =
        "The positions of the first `size` nonzero elements, one row per element; rows of fill_value where there are "
        "fewer.",
    .body = body_nonzero_static,
    FL_SAMPLES("flow.tensor({{0, 2}, {3, 0}}), 3", "flow.randn(2, 3):gt(0), 2", "flow.zeros(0, 2), {size = 2}",
               "flow.randn(4, 2, 2), {size = 5, fill_value = 7}", "flow.tensor(3.0), 2"),
};

/*
** linalg_products.c -- products of vectors and matrices with shapes of their own: bodies in matmul, mul and sum.
**
** Their SBPs are those of the ops they are written in: split rows and columns stay split, a split axis that is summed
** over gives a partial sum.
*/
#include "linalg.h"
#include "op/reduce.h"
#include "op/views.h"

enum { PRODUCT_X, PRODUCT_Y };

/* "mv: takes a matrix [m, n] and a vector [n], got [2, 3] and [2]" */
static fl_status refuse(const char *who, const char *takes, const fl_operand *in)
{
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    return fl_fail(FL_ERR_SHAPE, "%s: takes %s, got %s and %s", who, takes,
                   fl_shape_text(tx, &in[PRODUCT_X].tensor->meta->shape),
                   fl_shape_text(ty, &in[PRODUCT_Y].tensor->meta->shape));
}

static const fl_shape *shape_of(const fl_operand *operand) { return &operand->tensor->meta->shape; }

/* matmul of operands with so many axes, of which the last of x is as long as axis 0 of y. */
static fl_status multiply(fl_tensor **out, const char *who, const char *takes, const fl_operand *in, int x_ndim,
                          int y_ndim)
{
    const fl_shape *x = shape_of(&in[PRODUCT_X]), *y = shape_of(&in[PRODUCT_Y]);
    if (x->ndim != x_ndim || y->ndim != y_ndim || x->dims[x_ndim - 1] != y->dims[0]) return refuse(who, takes, in);
    return FL_CALL(out, matmul, in[PRODUCT_X], in[PRODUCT_Y]);
}

static fl_status body_dot(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return multiply(out, "dot", "two vectors of one size", in, 1, 1);
}
static fl_status body_vdot(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return multiply(out, "vdot", "two vectors of one size", in, 1, 1);
}
static fl_status body_mv(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return multiply(out, "mv", "a matrix [m, n] and a vector [n]", in, 2, 1);
}
static fl_status body_mm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return multiply(out, "mm", "two matrices [m, k] and [k, n]", in, 2, 2);
}

FL_OP(dot) = {
    .name = "dot",
    .sig = "dot(x, y)",
    .nout = 1,
    .doc = "Sum of the products of two vectors' elements.",
    .body = body_dot,
    FL_SAMPLES("flow.rand(4), flow.rand(4)"),
};
FL_OP(vdot) = {
    .name = "vdot",
    .sig = "vdot(x, y)",
    .nout = 1,
    .doc = "dot; PyTorch's conjugates complex numbers, which there are none of.",
    .body = body_vdot,
    FL_SAMPLES("flow.rand(4), flow.rand(4)"),
};
FL_OP(mv) = {
    .name = "mv",
    .flags = FL_OP_LOW,
    .sig = "mv(x, y)",
    .nout = 1,
    .doc = "Product of a matrix and a vector.",
    .body = body_mv,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(4)"),
};
FL_OP(mm) = {
    .name = "mm",
    .flags = FL_OP_LOW,
    .sig = "mm(x, y)",
    .nout = 1,
    .doc = "Product of two matrices; matmul takes batches and vectors too.",
    .body = body_mm,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(4, 2)"),
};

/* ---- outer, inner, kron ---- */

static fl_status body_outer(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    if (shape_of(&in[PRODUCT_X])->ndim != 1 || shape_of(&in[PRODUCT_Y])->ndim != 1)
        return refuse("outer", "two vectors", in);
    *out = fl_expr_take(&c, expr_mul(&c, expr_unsqueeze(&c, in[PRODUCT_X].tensor, 1), in[PRODUCT_Y].tensor));
    return fl_expr_end(&c);
}

FL_OP(outer) = {
    .name = "outer",
    .sig = "outer(x, y)",
    .nout = 1,
    .doc = "Products of every element of a vector and every element of another.",
    .body = body_outer,
    FL_SAMPLES("flow.randn(3), flow.randn(4)", "flow.randint(-5, 5, {3}), flow.randn(4)"),
};

/* x [..., k] y [..., k] over the last axes of both: rows of x times rows of y. */
static fl_tensor *inner_product(fl_expr *expr, fl_tensor *x, fl_tensor *y)
{
    const fl_shape *xs = &x->meta->shape, *ys = &y->meta->shape;
    int64_t k = xs->dims[xs->ndim - 1], rows = 1, columns = 1;
    fl_shape shape = {0};
    for (int i = 0; i + 1 < xs->ndim; i++) rows *= shape.dims[shape.ndim++] = xs->dims[i];
    for (int i = 0; i + 1 < ys->ndim; i++) columns *= shape.dims[shape.ndim++] = ys->dims[i];
    fl_shape left = {2, {rows, k}}, right = {2, {columns, k}};
    fl_tensor *product = expr_gemm(expr, expr_reshape(expr, x, &left), expr_reshape(expr, y, &right), false, true);
    return expr_reshape(expr, product, &shape);
}

static fl_status body_inner(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    const fl_shape *x = shape_of(&in[PRODUCT_X]), *y = shape_of(&in[PRODUCT_Y]);
    if (x->ndim == 0 || y->ndim == 0) return FL_CALL(out, mul, in[PRODUCT_X], in[PRODUCT_Y]);
    if (x->dims[x->ndim - 1] != y->dims[y->ndim - 1]) return refuse("inner", "tensors with last axes of one size", in);
    if (x->ndim + y->ndim - 2 > FL_MAX_NDIM) return refuse("inner", "tensors of 10 axes together at most", in);
    if (x->ndim == 1 && y->ndim == 1) return FL_CALL(out, matmul, in[PRODUCT_X], in[PRODUCT_Y]);
    *out = fl_expr_take(&c, inner_product(&c, in[PRODUCT_X].tensor, in[PRODUCT_Y].tensor));
    return fl_expr_end(&c);
}

FL_OP(inner) = {
    .name = "inner",
    .sig = "inner(x, y)",
    .nout = 1,
    .doc = "Products summed over the last axes of both: [..., k] and [..., k].",
    .body = body_inner,
    FL_SAMPLES("flow.randn(2, 4), flow.randn(3, 4)", "flow.rand(4), flow.rand(4)",
               "flow.randn(2, 3), flow.tensor(2.0)"),
};

/* The sizes of x with one of size 1 before (after) each. */
static fl_shape spread(const fl_shape *x, int ndim, bool after)
{
    fl_shape shape = {2 * ndim, {0}};
    for (int i = 0; i < ndim; i++) {
        int own = i - (ndim - x->ndim);
        int64_t size = own < 0 ? 1 : x->dims[own];
        shape.dims[2 * i] = after ? size : 1;
        shape.dims[2 * i + 1] = after ? 1 : size;
    }
    return shape;
}

static fl_status body_kron(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    const fl_shape *x = shape_of(&in[PRODUCT_X]), *y = shape_of(&in[PRODUCT_Y]);
    int ndim = x->ndim > y->ndim ? x->ndim : y->ndim;
    if (2 * ndim > FL_MAX_NDIM) return refuse("kron", "tensors of 4 axes at most", in);
    fl_shape left = spread(x, ndim, true), right = spread(y, ndim, false), shape = {ndim, {0}};
    for (int i = 0; i < ndim; i++) shape.dims[i] = left.dims[2 * i] * right.dims[2 * i + 1];
    fl_tensor *all = expr_mul(&c, expr_reshape(&c, in[PRODUCT_X].tensor, &left),
                              expr_reshape(&c, in[PRODUCT_Y].tensor, &right));
    *out = fl_expr_take(&c, expr_reshape(&c, all, &shape));
    return fl_expr_end(&c);
}

FL_OP(kron) = {
    .name = "kron",
    .sig = "kron(x, y)",
    .nout = 1,
    .doc = "Kronecker product: every element of x times all of y, in blocks.",
    .body = body_kron,
    FL_SAMPLES("flow.randn(2, 3), flow.randn(3, 2)", "flow.randn(2), flow.randn(2, 2)"),
};

/* ---- tensordot ---- */

enum { TENSORDOT_X_AXES, TENSORDOT_Y_AXES };

/* x as a matrix: the axes summed over as columns (as rows), the others, appended to *shape, as rows (as columns). */
static fl_tensor *as_matrix(fl_expr *expr, fl_tensor *x, const int *axes, int count, bool columns, fl_shape *shape)
{
    int64_t order[FL_MAX_NDIM], inner = 1, outer = 1;
    uint32_t summed = 0;
    int ndim = x->meta->shape.ndim, own = ndim - count, at = columns ? 0 : count;
    for (int i = 0; i < count; i++) {
        order[(columns ? own : 0) + i] = axes[i];
        summed |= 1u << axes[i];
        inner *= x->meta->shape.dims[axes[i]];
    }
    for (int i = 0; i < ndim; i++) {
        if (summed >> i & 1u) continue;
        order[at++] = i;
        outer *= shape->dims[shape->ndim++] = x->meta->shape.dims[i];
    }
    fl_shape matrix = {2, {columns ? outer : inner, columns ? inner : outer}};
    return expr_reshape(expr, expr_permuted(expr, x, order), &matrix);
}

static fl_status body_tensordot(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_attr *xa = &attrs->at[TENSORDOT_X_AXES], *ya = &attrs->at[TENSORDOT_Y_AXES];
    const fl_shape *x = shape_of(&in[PRODUCT_X]), *y = shape_of(&in[PRODUCT_Y]);
    int x_axes[FL_MAX_NDIM] = {0}, y_axes[FL_MAX_NDIM] = {0};
    if (xa->count != ya->count)
        return fl_fail(FL_ERR_VALUE, "tensordot: %d axes of x and %d axes of y are summed over; there must be as many",
                       xa->count, ya->count);
    FL_TRY(fl_axes_in_order(x_axes, "tensordot", "x_axes", xa, x));
    FL_TRY(fl_axes_in_order(y_axes, "tensordot", "y_axes", ya, y));
    for (int i = 0; i < xa->count; i++)
        if (x->dims[x_axes[i]] != y->dims[y_axes[i]])
            return fl_fail(FL_ERR_SHAPE, "tensordot: axis %d of x has size %lld, axis %d of y has size %lld", x_axes[i],
                           (long long)x->dims[x_axes[i]], y_axes[i], (long long)y->dims[y_axes[i]]);
    if (x->ndim + y->ndim - 2 * xa->count > FL_MAX_NDIM)
        return refuse("tensordot", "tensors whose result has 8 axes at most", in);
    fl_expr c = {0};
    fl_shape shape = {0};
    fl_tensor *left = as_matrix(&c, in[PRODUCT_X].tensor, x_axes, xa->count, true, &shape);
    fl_tensor *right = as_matrix(&c, in[PRODUCT_Y].tensor, y_axes, ya->count, false, &shape);
    fl_tensor *product = EXPR_CALL(&c, NULL, matmul, fl_of(left), fl_of(right));
    *out = fl_expr_take(&c, expr_reshape(&c, product, &shape));
    return fl_expr_end(&c);
}

FL_OP(tensordot_axes) = {
    .name = "tensordot_axes",
    .sig = "tensordot_axes(x, y, x_axes: ints, y_axes: ints)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_HIDDEN,
    .doc = "Products summed over pairs of axes; the others follow one another.",
    .body = body_tensordot,
    FL_SAMPLES("flow.rand(2, 3, 4), flow.rand(4, 3, 5), {1, 2}, {1, 0}",
               "flow.randn(2, 3), flow.randn(3, 2), {0}, {1}"),
};

/* ---- along one axis ---- */

enum { ALONG_AXIS };

static fl_status along_axis(int *axis, fl_shape *shape, const char *who, const fl_operand *in, const fl_attrs *attrs)
{
    FL_TRY(fl_shape_broadcast(shape, who, shape_of(&in[PRODUCT_X]), shape_of(&in[PRODUCT_Y])));
    return fl_shape_axis(axis, who, attrs->at[ALONG_AXIS].integer, shape);
}

static fl_status body_vecdot(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int axis;
    fl_shape shape;
    fl_expr c = {0};
    FL_TRY(along_axis(&axis, &shape, "linalg.vecdot", in, attrs));
    if (shape.ndim == 0) return refuse("linalg.vecdot", "tensors with axes", in);
    fl_tensor *products = expr_mul(&c, in[PRODUCT_X].tensor, in[PRODUCT_Y].tensor);
    fl_tensor *sums = expr_sum(&c, products, 1u << axis, false);
    *out = fl_expr_take(&c, products ? expr_cast(&c, sums, products->meta->dtype) : NULL);
    return fl_expr_end(&c);
}

FL_OP(linalg_vecdot) = {
    .name = "linalg.vecdot",
    .flags = FL_OP_LOW,
    .sig = "linalg.vecdot(x, y, axis: axis = -1)",
    .nout = 1,
    .doc = "Products summed along an axis of tensors that broadcast, in the dtype of the products.",
    .body = body_vecdot,
    FL_SAMPLES("flow.randn(2, 4), flow.randn(4)", "flow.randn(3, 2), flow.randn(3, 2), 0"),
};

static fl_tensor *rolled(fl_expr *expr, fl_tensor *x, int64_t shift, int axis)
{
    fl_attrs a;
    int64_t along = axis;
    fl_attrs_init(&a, FL_OP_REF(roll));
    fl_attr_set_list(&a, FL_ROLL_SHIFTS, &shift, 1);
    fl_attr_set_list(&a, FL_ROLL_AXES, &along, 1);
    return EXPR_CALL(expr, &a, roll, fl_of(x));
}

/* x[i + 1] y[i + 2] - x[i + 2] y[i + 1], positions counted round. */
static fl_status cross_along(fl_tensor **out, const char *who, const fl_operand *in, int axis, const fl_shape *shape)
{
    fl_expr c = {0};
    const fl_shape *xs = shape_of(&in[PRODUCT_X]), *ys = shape_of(&in[PRODUCT_Y]);
    int from_end = shape->ndim - axis;
    if (xs->ndim < from_end || ys->ndim < from_end || xs->dims[xs->ndim - from_end] != 3
        || ys->dims[ys->ndim - from_end] != 3)
        return refuse(who, "tensors of size 3 along the axis", in);
    fl_tensor *x = in[PRODUCT_X].tensor, *y = in[PRODUCT_Y].tensor;
    int x_axis = xs->ndim - from_end, y_axis = ys->ndim - from_end;
    fl_tensor *before = expr_mul(&c, rolled(&c, x, -1, x_axis), rolled(&c, y, -2, y_axis));
    fl_tensor *after = expr_mul(&c, rolled(&c, x, -2, x_axis), rolled(&c, y, -1, y_axis));
    *out = fl_expr_take(&c, expr_sub(&c, before, after));
    return fl_expr_end(&c);
}

static fl_status body_linalg_cross(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int axis;
    fl_shape shape;
    FL_TRY(along_axis(&axis, &shape, "linalg.cross", in, attrs));
    return cross_along(out, "linalg.cross", in, axis, &shape);
}

FL_OP(linalg_cross) = {
    .name = "linalg.cross",
    .sig = "linalg.cross(x, y, axis: axis = -1)",
    .nout = 1,
    .doc = "Cross product of vectors of 3 elements along an axis.",
    .body = body_linalg_cross,
    FL_SAMPLES("flow.randn(2, 3), flow.randn(3)"),
};

/* Without an axis the first one of size 3. */
static fl_status body_cross(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int axis = 0;
    fl_shape shape;
    if (attrs->at[ALONG_AXIS].given) {
        FL_TRY(along_axis(&axis, &shape, "cross", in, attrs));
        return cross_along(out, "cross", in, axis, &shape);
    }
    FL_TRY(fl_shape_broadcast(&shape, "cross", shape_of(&in[PRODUCT_X]), shape_of(&in[PRODUCT_Y])));
    while (axis < shape.ndim && shape.dims[axis] != 3) axis++;
    if (axis == shape.ndim) return refuse("cross", "tensors with an axis of size 3", in);
    return cross_along(out, "cross", in, axis, &shape);
}

FL_OP(cross) = {
    .name = "cross",
    .sig = "cross(x, y, axis: axis = nil)",
    .nout = 1,
    .doc = "Cross product along an axis of size 3, without one along the first such axis.",
    .body = body_cross,
    FL_SAMPLES("flow.randn(2, 3), flow.randn(2, 3)", "flow.randn(3, 3), flow.randn(3, 3), 1"),
};

/*
** arithmetic.c -- forms of elementwise ops that take more than the rows of elementwise.def do: factors of an operand,
** decimals, other dtypes. They are written in these rows.
*/
#include "op/views.h"
#include "autograd/autograd.h"
#include "expr.h"

#include <math.h>

/* ---- alpha ---- */

enum { SCALED_ALPHA };

/* A multiple of integers is one by an integer. */
static fl_status require_whole_alpha(const char *who, const fl_operand *in, const fl_attr *alpha)
{
    for (int i = 0; i < 2; i++)
        if (in[i].kind == FL_NUM_FLOAT || (in[i].kind == FL_TENSOR && fl_dtype_is_float(in[i].tensor->meta->dtype)))
            return FL_OK;
    if (alpha->kind != FL_NUM_FLOAT) return FL_OK;
    return fl_fail(FL_ERR_DTYPE, "%s: alpha = %g is a float, but the operands are integers; convert one of them first",
                   who, alpha->number);
}

static fl_status scaled_add(fl_tensor **out, const char *who, const fl_op *op, fl_operand x, fl_operand y,
                            const fl_attr *alpha)
{
    fl_expr c = {0};
    const fl_operand in[] = {x, y};
    fl_operand by = alpha->kind == FL_NUM_FLOAT ? fl_of_number(alpha->number) : fl_of_integer(alpha->integer);
    FL_TRY(require_whole_alpha(who, in, alpha));
    if (y.kind == FL_TENSOR) y = fl_of(EXPR_CALL(&c, NULL, mul, y, by));
    else if (y.kind == FL_NUM_FLOAT || by.kind == FL_NUM_FLOAT)
        y = fl_of_number((y.kind == FL_NUM_FLOAT ? y.number : (double)y.integer) * fl_attr_number(alpha));
    else y = fl_of_integer((int64_t)((uint64_t)y.integer * (uint64_t)by.integer));
    *out = fl_expr_take(&c, fl_expr_call(&c, op, (const fl_operand[]){x, y}, 2, NULL));
    return fl_expr_end(&c);
}

static fl_status body_add_scaled(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return scaled_add(out, "add", FL_OP_REF(add), in[0], in[1], &attrs->at[SCALED_ALPHA]);
}
static fl_status body_sub_scaled(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return scaled_add(out, "sub", FL_OP_REF(sub), in[0], in[1], &attrs->at[SCALED_ALPHA]);
}
static fl_status body_rsub(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return scaled_add(out, "rsub", FL_OP_REF(sub), in[1], in[0], &attrs->at[SCALED_ALPHA]);
}

FL_OP(add_scaled) = {
    .name = "add_scaled",
    .sig = "add_scaled(x|n, y|n, alpha: scalar = 1)",
    .nout = 1,
    .flags = FL_OP_ELEMENTWISE | FL_OP_HIDDEN,
    .doc = "x + alpha * y.",
    .body = body_add_scaled,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(3, 4), 2", "flow.randn(2, 1, 4), flow.randn(3, 1), -0.5",
               "flow.randn(3, 4), 1.5, 2"),
};

FL_OP(sub_scaled) = {
    .name = "sub_scaled",
    .sig = "sub_scaled(x|n, y|n, alpha: scalar = 1)",
    .nout = 1,
    .flags = FL_OP_ELEMENTWISE | FL_OP_HIDDEN,
    .doc = "x - alpha * y.",
    .body = body_sub_scaled,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(3, 4), 2", "flow.randn(2, 1, 4), flow.randn(3, 1), -0.5",
               "flow.randn(3, 4), 1.5, 2"),
};

FL_OP(rsub) = {
    .name = "rsub",
    .sig = "rsub(x, y|n, alpha: scalar = 1)",
    .nout = 1,
    .doc = "y - alpha * x.",
    .body = body_rsub,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(3, 4)", "flow.randn(3, 4), 1.5", "flow.randn(3, 4), flow.randn(4), 2"),
};

/* ---- bounds ---- */

static fl_status body_clamp_to(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_operand x = in[0], min = in[1], max = in[2];
    if (min.kind == FL_NONE && max.kind == FL_NONE) return FL_CALL(out, clone, x);
    if (max.kind == FL_NONE) return FL_CALL(out, maximum, x, min);
    if (min.kind == FL_NONE) return FL_CALL(out, minimum, x, max);
    return FL_CALL(out, clamp_between, x, min, max);
}

FL_OP(clamp_to) = {
    .name = "clamp_to",
    .sig = "clamp_to(x, min|n?, max|n?)",
    .nout = 1,
    .flags = FL_OP_ELEMENTWISE | FL_OP_HIDDEN,
    .doc = "x, limited to [min, max]: tensors or numbers, of which one may be left out.",
    .body = body_clamp_to,
    FL_SAMPLES("flow.randn(3, 4), flow.randn(3, 4), flow.randn(4)", "flow.randn(3, 4), flow.randn(3, 1)",
               "flow.randn(3, 4), nil, flow.randn(2, 1, 4)", "flow.randn(3, 4), -0.5, flow.rand(3, 4)"),
};

/* ---- decimals ---- */

enum { ROUND_DECIMALS };
enum { ROUND_TO_SCALE, ROUND_TO_ABOVE };

/* The power of ten that scales x is exact up to 22 decimals; none are left of an integer. */
static fl_status body_round_decimals(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int64_t decimals = attrs->at[ROUND_DECIMALS].integer;
    fl_attrs a;
    if (decimals == 0 || (decimals > 0 && !fl_dtype_is_float(in[0].tensor->meta->dtype)))
        return FL_CALL(out, round, in[0]);
    fl_attrs_init(&a, FL_OP_REF(round_to));
    fl_attr_set_number(&a, ROUND_TO_SCALE, pow(10, (double)(decimals < 0 ? -decimals : decimals)));
    fl_attr_set_number(&a, ROUND_TO_ABOVE, decimals < 0);
    return FL_CALL_WITH(out, &a, round_to, in[0]);
}

FL_OP(round_decimals) = {
    .name = "round_decimals",
    .sig = "round_decimals(x, decimals: int = 0)",
    .nout = 1,
    .flags = FL_OP_ELEMENTWISE | FL_OP_HIDDEN,
    .doc = "x rounded to so many decimals; halves round to even.",
    .body = body_round_decimals,
    FL_SAMPLES("flow.randn(3, 4), 2", "flow.randn(3, 4) * 100, -1", "flow.randn(3, 4)"),
};

/* ---- other dtypes ---- */

static fl_operand as_double(fl_expr *expr, fl_operand operand)
{
    if (operand.kind == FL_TENSOR) return fl_of(expr_cast(expr, operand.tensor, FL_FLOAT64));
    return operand.kind == FL_NUM_FLOAT ? operand : fl_of_number((double)operand.integer);
}

static fl_status body_float_power(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    *out = fl_expr_take(&c, EXPR_CALL(&c, NULL, pow, as_double(&c, in[0]), as_double(&c, in[1])));
    return fl_expr_end(&c);
}

FL_OP(float_power) = {
    .name = "float_power",
    .sig = "float_power(x|n, y|n)",
    .nout = 1,
    .doc = "x to the power y, computed in float64.",
    .body = body_float_power,
    FL_SAMPLES("flow.rand(3, 4) + 0.5, flow.randn(3, 4)", "flow.randn(3, 4), 2", "2, flow.randn(3, 4)"),
};

/* ---- polygamma ---- */

enum { POLYGAMMA_N }; /* of polygamma and polygamma_of */

static fl_status body_polygamma(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(polygamma_of));
    fl_attr_set_number(&a, POLYGAMMA_N, (double)attrs->at[POLYGAMMA_N].integer);
    return FL_CALL_WITH(out, &a, polygamma_of, in[0]);
}

FL_OP(polygamma) = {
    .name = "polygamma",
    .sig = "polygamma(n: int, x)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY, /* x:polygamma(n) is polygamma_of */
    .doc = "The n-th derivative of digamma.",
    .body = body_polygamma,
    FL_SAMPLES("1, flow.rand(3, 4) + 0.5", "2, flow.rand(3, 4) * 3 + 0.5"),
};

/* ---- nan_to_num ---- */

enum { REPLACE_NAN, REPLACE_LARGEST, REPLACE_SMALLEST }; /* nan_to_num_of has the first two */

static double largest_of(fl_dtype dtype)
{
    switch (dtype) {
    case FL_FLOAT16: return 65504;
    case FL_BFLOAT16: return 0x1.fep127;
    case FL_FLOAT32: return 0x1.fffffep127;
    default: return 0x1.fffffffffffffp1023;
    }
}

static double number_or(const fl_attr *attr, double usual) { return attr->given ? fl_attr_number(attr) : usual; }

static fl_status body_nan_to_num(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    fl_dtype dtype = in[0].tensor->meta->dtype;
    if (!fl_dtype_is_float(dtype)) return FL_CALL(out, clone, in[0]);
    double most = number_or(&attrs->at[REPLACE_LARGEST], largest_of(dtype)),
           least = number_or(&attrs->at[REPLACE_SMALLEST], -largest_of(dtype));
    fl_attrs_init(&a, FL_OP_REF(nan_to_num_of));
    fl_attr_set_number(&a, REPLACE_NAN, number_or(&attrs->at[REPLACE_NAN], 0));
    fl_attr_set_number(&a, REPLACE_LARGEST, most);
    fl_tensor *y = EXPR_CALL(&c, &a, nan_to_num_of, in[0]);
    if (least != -most) {
        fl_tensor *lowest = EXPR_CALL(&c, NULL, eq, in[0], fl_of_number(-INFINITY));
        y = EXPR_CALL(&c, NULL, where, fl_of(lowest), fl_of_number(least), fl_of(y));
    }
    *out = fl_expr_take(&c, y);
    return fl_expr_end(&c);
}

FL_OP(nan_to_num) = {
    .name = "nan_to_num",
    .sig = "nan_to_num(x, nan: float = 0, posinf: float = nil, neginf: float = nil)",
    .nout = 1,
    .flags = FL_OP_ELEMENTWISE,
    .doc = "x with other numbers for NaN, infinity and negative infinity: as a rule 0 and the largest and smallest "
           "numbers of the dtype.",
    .body = body_nan_to_num,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1, 2, 3"),
};

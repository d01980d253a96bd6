/*
** resample.c -- lines along an axis in another size: the base of interpolate, adaptive averages and padding by elements
** of x are made of. Linear: the op and its adjoint are each other's gradients.
*/
#include "resample.h"
#include "cpu/resample.h"
#include "cpu/stage.h"

static fl_resample resample_of(const fl_attrs *attrs, int64_t n, int64_t size)
{
    return (fl_resample){.rule = (int)attrs->at[FL_RESAMPLE_RULE].integer,
                         .n = n,
                         .size = size,
                         .before = attrs->at[FL_RESAMPLE_BEFORE].integer,
                         .scale = attrs->at[FL_RESAMPLE_SCALE].number};
}

/* Of a line of n elements and one of `size`, forward and back. */
static fl_status check_sizes(fl_infer *infer, int64_t n, int64_t size)
{
    int axis;
    const fl_shape *x = &infer->in[0].shape;
    FL_TRY(fl_require_float(infer, 0));
    if (x->ndim == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "x has no axes");
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_RESAMPLE_AXIS].integer, x));
    if (n < 1 || size < 1 || n > INT32_MAX || size > INT32_MAX)
        return fl_infer_fail(infer, FL_ERR_VALUE, "sizes must be between 1 and %d, got %lld and %lld", INT32_MAX,
                             (long long)n, (long long)size);
    int64_t rule = infer->attrs->at[FL_RESAMPLE_RULE].integer;
    if (rule < 0 || rule >= FL_RESAMPLE_RULES)
        return fl_infer_fail(infer, FL_ERR_VALUE, "there is no rule %lld", (long long)rule);
    infer->out[0] = infer->in[0];
    return FL_OK;
}

static int64_t along(const fl_infer *infer)
{
    const fl_shape *x = &infer->in[0].shape;
    int64_t axis = infer->attrs->at[FL_RESAMPLE_AXIS].integer;
    if (axis < 0) axis += x->ndim;
    return axis >= 0 && axis < x->ndim ? x->dims[axis] : 1;
}

static fl_status resized(fl_infer *infer, int64_t size)
{
    fl_shape shape = infer->in[0].shape;
    shape.dims[fl_axis_of(&infer->attrs->at[FL_RESAMPLE_AXIS], shape.ndim)] = size;
    return fl_shape_make(&infer->out[0].shape, infer->name, shape.dims, shape.ndim);
}

static fl_status infer_resample(fl_infer *infer)
{
    int64_t size = infer->attrs->at[FL_RESAMPLE_SIZE].integer;
    FL_TRY(check_sizes(infer, along(infer), size));
    return resized(infer, size);
}

static fl_status infer_back(fl_infer *infer)
{
    int64_t length = infer->attrs->at[FL_RESAMPLE_LENGTH].integer;
    if (along(infer) != infer->attrs->at[FL_RESAMPLE_SIZE].integer)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "g must have size %lld along the axis, got %lld",
                             (long long)infer->attrs->at[FL_RESAMPLE_SIZE].integer, (long long)along(infer));
    FL_TRY(check_sizes(infer, length, along(infer)));
    return resized(infer, length);
}

/* Lines are wholes; linear in x. */
static void sbp_lines(fl_sigs *sigs)
{
    fl_sbp_except(sigs, 1u << fl_axis_of(&sigs->attrs->at[FL_RESAMPLE_AXIS], sigs->in_logical[0].ndim));
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

static fl_status kernel_resample(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[0], *y = &kernel->out[0];
    int axis = fl_axis_of(&kernel->attrs->at[FL_RESAMPLE_AXIS], x->ndim);
    fl_resample r = resample_of(kernel->attrs, x->size[axis], y->size[axis]);
    fl_stage s;
    if (y->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    FL_TRY(fl_cpu_resample(s.dtype, &r, fl_row_shape_of(x->size, x->ndim, axis), s.out[0], s.in[0]));
    return fl_stage_close(&s);
}

static fl_status kernel_back(fl_kernel *kernel)
{
    const fl_view *y = &kernel->in[0], *x = &kernel->out[0];
    int axis = fl_axis_of(&kernel->attrs->at[FL_RESAMPLE_AXIS], x->ndim);
    fl_resample r = resample_of(kernel->attrs, x->size[axis], y->size[axis]);
    fl_stage s;
    if (x->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    FL_TRY(fl_cpu_resample_back(s.dtype, &r, fl_row_shape_of(x->size, x->ndim, axis), s.out[0], s.in[0]));
    return fl_stage_close(&s);
}

/* Linear in x, with resample_back as the transpose. */
static fl_status grad_resample(fl_grad *g)
{
    fl_attrs a;
    const fl_shape *x = &g->in_meta[0]->shape;
    fl_attrs_init(&a, FL_OP_REF(resample_back));
    for (int i = 0; i <= FL_RESAMPLE_BEFORE; i++) a.at[i] = g->attrs->at[i];
    fl_attr_set(&a, FL_RESAMPLE_LENGTH, x->dims[fl_axis_of(&a.at[FL_RESAMPLE_AXIS], x->ndim)]);
    return FL_CALL_WITH(&g->gin[0], &a, resample_back, fl_of(g->gout[0]));
}

/* The transpose of the transpose. */
static fl_status grad_back(fl_grad *g)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(resample));
    for (int i = 0; i <= FL_RESAMPLE_BEFORE; i++) a.at[i] = g->attrs->at[i];
    return FL_CALL_WITH(&g->gin[0], &a, resample, fl_of(g->gout[0]));
}

#define RESAMPLE_ATTRS "axis: axis, size: int, rule: int, scale: float = 1, before: int = 0"

FL_OP(resample) = {
    .name = "resample",
    .sig = "resample(x, " RESAMPLE_ATTRS ")",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Lines of x along an axis in another size: each element a weighted sum, by a rule.",
    .infer = infer_resample,
    .sbp = sbp_lines,
    .cpu = kernel_resample,
    .grad = grad_resample,
    FL_SAMPLES("flow.randn(2, 3, 4), 1, 5, 4, 0.6", "flow.randn(3, 5), -1, 3, 8", "flow.randn(4, 2), 0, 7, 0, 1, 2",
               "flow.randn(5), 0, 3, 11, 1.6666", "flow.randn(2, 3), 1, 5, 7, 0.5"),
};

FL_OP(resample_back) = {
    .name = "resample_back",
    .sig = "resample_back(g, " RESAMPLE_ATTRS ", length: int)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradient of resample with respect to lines of `length` elements.",
    .infer = infer_back,
    .sbp = sbp_lines,
    .cpu = kernel_back,
    .grad = grad_back,
    FL_SAMPLES("flow.randn(2, 5, 4), 1, 5, 4, 0.6, 0, 3", "flow.randn(3, 3), -1, 3, 8, 1, 0, 5",
               "flow.randn(7, 2), 0, 7, 0, 1, 2, 4"),
};

fl_tensor *expr_resample(fl_expr *expr, fl_tensor *x, int axis, int64_t size, int rule, double scale, int64_t before)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&a, FL_OP_REF(resample));
    fl_attr_set(&a, FL_RESAMPLE_AXIS, axis);
    fl_attr_set(&a, FL_RESAMPLE_SIZE, size);
    fl_attr_set(&a, FL_RESAMPLE_RULE, rule);
    fl_attr_set_number(&a, FL_RESAMPLE_SCALE, scale);
    fl_attr_set(&a, FL_RESAMPLE_BEFORE, before);
    return EXPR_CALL(expr, &a, resample, fl_of(x));
}

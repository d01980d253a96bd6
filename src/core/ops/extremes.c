/*
** extremes.c -- largest and smallest elements over axes, and their positions.
**
** Over a split axis values become P(max) or P(min). Positions have a body there: first the extreme over all parts, then
** the lowest position at which any rank finds it.
*/
#include "reduce.h"

enum { EXTREME_VALUES, EXTREME_POSITIONS }; /* results of max_axis and min_axis */
enum { EXTREME_LARGEST, EXTREME_SMALLEST }; /* op->variant of max_all, min_all, max_axis, min_axis */

/* Users call max_all and max_axis "max". */
static const char *shown_name(const fl_op *op)
{
    if (!(op->flags & FL_OP_HIDDEN)) return op->name;
    return op->variant == EXTREME_LARGEST ? "max" : "min";
}

/* An extreme of nothing does not exist. */
static fl_status require_elements(const fl_infer *infer, uint32_t mask)
{
    const fl_shape *shape = &infer->in[0].shape;
    char text[FL_SHAPE_TEXT];
    for (int i = 0; i < shape->ndim; i++)
        if (mask >> i & 1u && shape->dims[i] == 0)
            return fl_fail(FL_ERR_SHAPE, "%s: axis %d of %s is empty, so there is no result", shown_name(infer->op), i,
                           fl_shape_text(text, shape));
    return FL_OK;
}

/* ---- extremes: values ---- */

static fl_status infer_extreme(fl_infer *infer)
{
    uint32_t mask;
    FL_TRY(fl_reduce_infer(infer, fl_reduce_usual, infer->in[0].dtype));
    FL_TRY(fl_reduce_axes(&mask, infer->name, &infer->attrs->at[FL_REDUCE_AXIS], &infer->in[0].shape));
    return require_elements(infer, mask);
}

static fl_status cpu_amax(fl_kernel *kernel)
{
    return fl_reduce_run(kernel, fl_reduce_usual, (fl_reduce_job){.fold = FL_FOLD_LARGEST});
}
static fl_status cpu_amin(fl_kernel *kernel)
{
    return fl_reduce_run(kernel, fl_reduce_usual, (fl_reduce_job){.fold = FL_FOLD_SMALLEST});
}

/* Equal extremes share the gradient. Values that exist once per line are summed before they are expanded. */
static fl_status share_gradient(fl_grad *g, uint32_t mask)
{
    fl_expr c = {0};
    fl_tensor *x = g->in[0].tensor;
    const fl_shape *shape = &x->meta->shape;
    fl_shape kept;
    fl_reduce_shape(&kept, shape, mask, true);
    fl_tensor *hit = EXPR_CALL(&c, NULL, eq, fl_of(x),
                               fl_of(expr_unreduce(&c, expr_whole(&c, g->out[0]), shape, mask)));
    fl_tensor *count = expr_whole(&c, expr_reduce(&c, FL_OP_REF(sum), hit, mask, true));
    fl_tensor *share = expr_div(&c, expr_reshape(&c, g->gout[0], &kept), count);
    return fl_reduce_end_grad(
        g, &c, EXPR_CALL(&c, NULL, where, fl_of(hit), fl_of(expr_unreduce(&c, share, shape, mask)), fl_of_integer(0)));
}

/* Elements that equal the extreme share its gradient evenly. */
static fl_status grad_extreme(fl_grad *g)
{
    uint32_t mask;
    FL_TRY(fl_reduce_grad_axes(&mask, g, fl_reduce_usual));
    return share_gradient(g, mask);
}

FL_OP(amax) = {
    .name = "amax",
    .sig = "amax(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "Largest values over axes, or over everything; NaN counts as the largest. Equal ones share the gradient "
           "evenly.",
    .nout = 1,
    .flags = FL_OP_FOLDS,
    .infer = infer_extreme,
    .sbp = fl_reduce_sbp_largest,
    .cpu = cpu_amax,
    .grad = grad_extreme,
    .saves_in = SAVES_X,
    .saves_out = SAVES_RESULT,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, true"),
};

FL_OP(amin) = {
    .name = "amin",
    .sig = "amin(x, axis: axes = nil, keepdim: bool = false)",
    .doc = "Smallest values over axes, or over everything; NaN counts as the smallest. Equal ones share the gradient "
           "evenly.",
    .nout = 1,
    .flags = FL_OP_FOLDS,
    .infer = infer_extreme,
    .sbp = fl_reduce_sbp_smallest,
    .cpu = cpu_amin,
    .grad = grad_extreme,
    .saves_in = SAVES_X,
    .saves_out = SAVES_RESULT,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(2, 3, 4), {0, 2}, true"),
};

static uint32_t all_axes(int ndim) { return (1u << ndim) - 1; }

static fl_status infer_extreme_of_all(fl_infer *infer)
{
    infer->out[0].shape = (fl_shape){0};
    infer->out[0].dtype = infer->in[0].dtype;
    return require_elements(infer, all_axes(infer->in[0].shape.ndim));
}

static fl_status cpu_max_all(fl_kernel *kernel)
{
    return fl_cpu_reduce(&kernel->out[0], &kernel->in[0], all_axes(kernel->in[0].ndim),
                         &(fl_reduce_job){.name = "max", .fold = FL_FOLD_LARGEST});
}

static fl_status cpu_min_all(fl_kernel *kernel)
{
    return fl_cpu_reduce(&kernel->out[0], &kernel->in[0], all_axes(kernel->in[0].ndim),
                         &(fl_reduce_job){.name = "min", .fold = FL_FOLD_SMALLEST});
}

/* As fl_reduce_sbp_largest, over all axes. */
static void sbp_max_all(fl_sigs *sigs)
{
    fl_reduce_sigs(sigs, all_axes(sigs->in_logical[0].ndim), false, FL_PMAX, NULL);
    fl_sbp_partial(sigs, 1, FL_PMAX);
}

static void sbp_min_all(fl_sigs *sigs)
{
    fl_reduce_sigs(sigs, all_axes(sigs->in_logical[0].ndim), false, FL_PMIN, NULL);
    fl_sbp_partial(sigs, 1, FL_PMIN);
}

static fl_status grad_extreme_of_all(fl_grad *g) { return share_gradient(g, all_axes(g->in_meta[0]->shape.ndim)); }

FL_OP(max_all) = {
    .name = "max_all",
    .sig = "max_all(x)",
    .doc = "The largest value; NaN counts as the largest. Equal ones share the gradient evenly.",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_BY_NAME,
    .variant = EXTREME_LARGEST,
    .infer = infer_extreme_of_all,
    .sbp = sbp_max_all,
    .cpu = cpu_max_all,
    .grad = grad_extreme_of_all,
    .saves_in = SAVES_X,
    .saves_out = SAVES_RESULT,
    FL_SAMPLES("flow.randn(3, 4)"),
};

FL_OP(min_all) = {
    .name = "min_all",
    .sig = "min_all(x)",
    .doc = "The smallest value; NaN counts as the smallest. Equal ones share the gradient evenly.",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_BY_NAME,
    .variant = EXTREME_SMALLEST,
    .infer = infer_extreme_of_all,
    .sbp = sbp_min_all,
    .cpu = cpu_min_all,
    .grad = grad_extreme_of_all,
    .saves_in = SAVES_X,
    .saves_out = SAVES_RESULT,
    FL_SAMPLES("flow.randn(3, 4)"),
};

/* ---- extremes: positions ---- */

/* Axes of an optional `axis` attribute. */
static fl_status axis_mask(uint32_t *mask, const char *who, const fl_attr *axis, const fl_shape *shape)
{
    int at;
    *mask = all_axes(shape->ndim);
    if (!axis->given) return FL_OK;
    FL_TRY(fl_shape_axis(&at, who, axis->integer, shape));
    if (shape->ndim) *mask = 1u << at;
    return FL_OK;
}

static fl_status infer_arg(fl_infer *infer)
{
    uint32_t mask;
    FL_TRY(axis_mask(&mask, shown_name(infer->op), &infer->attrs->at[FL_REDUCE_AXIS], &infer->in[0].shape));
    FL_TRY(require_elements(infer, mask));
    for (int i = 0; i < infer->nout; i++)
        fl_reduce_shape(&infer->out[i].shape, &infer->in[0].shape, mask,
                        infer->attrs->at[FL_REDUCE_KEEPDIM].integer != 0);
    infer->out[0].dtype = infer->in[0].dtype;
    infer->out[infer->nout - 1].dtype = FL_INT64;
    return FL_OK;
}

/* Over a split axis the extreme comes first, then the lowest position that any rank has for it. */
static fl_status arg_in_parts(fl_tensor **out, int nout, fl_tensor *x, const fl_attrs *attrs, bool largest)
{
    uint32_t mask;
    fl_expr c = {0};
    fl_attrs a;
    FL_TRY(axis_mask(&mask, "arg_find", &attrs->at[FL_REDUCE_AXIS], &x->meta->shape));
    bool keepdim = attrs->at[FL_REDUCE_KEEPDIM].integer != 0;
    fl_tensor *extreme = expr_whole(&c, expr_reduce(&c, largest ? FL_OP_REF(amax) : FL_OP_REF(amin), x, mask, keepdim));
    fl_attrs_init(&a, FL_OP_REF(arg_find));
    a.at[FL_REDUCE_AXIS] = attrs->at[FL_REDUCE_AXIS];
    a.at[FL_REDUCE_KEEPDIM] = attrs->at[FL_REDUCE_KEEPDIM];
    fl_attr_set(&a, FL_ARG_FIND_LARGEST, largest);
    out[nout - 1] = fl_expr_take(&c, EXPR_CALL(&c, &a, arg_find, fl_of(x), fl_of(extreme)));
    if (nout == 2) out[0] = fl_expr_take(&c, extreme);
    return fl_expr_end(&c);
}

static fl_status body_argmax(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return arg_in_parts(out, 1, in[0].tensor, attrs, true);
}

static fl_status body_argmin(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return arg_in_parts(out, 1, in[0].tensor, attrs, false);
}

static fl_status body_max_axis(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return arg_in_parts(out, 2, in[0].tensor, attrs, true);
}

static fl_status body_min_axis(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return arg_in_parts(out, 2, in[0].tensor, attrs, false);
}

/* Kept axes stay split; over a split reduced axis the positions are the lowest of all ranks. */
static void sbp_arg_with(fl_sigs *sigs, fl_body body)
{
    uint32_t mask;
    bool keepdim = sigs->attrs->at[FL_REDUCE_KEEPDIM].integer != 0;
    if (axis_mask(&mask, sigs->op->name, &sigs->attrs->at[FL_REDUCE_AXIS], &sigs->in_logical[0]) != FL_OK)
        return; /* inference has accepted it */
    fl_reduce_sigs(sigs, mask, keepdim, FL_B, NULL);
    for (int axis = 0; axis < sigs->in_logical[0].ndim; axis++) {
        if (!(mask >> axis & 1u)) continue;
        if (sigs->nout == 2) FL_SIG(sigs, body, FL_S(axis), FL_B, FL_PMIN);
        else FL_SIG(sigs, body, FL_S(axis), FL_PMIN);
    }
}

static void sbp_argmax(fl_sigs *sigs) { sbp_arg_with(sigs, body_argmax); }
static void sbp_argmin(fl_sigs *sigs) { sbp_arg_with(sigs, body_argmin); }
static void sbp_max_axis(fl_sigs *sigs) { sbp_arg_with(sigs, body_max_axis); }
static void sbp_min_axis(fl_sigs *sigs) { sbp_arg_with(sigs, body_min_axis); }

static fl_status run_arg(fl_kernel *kernel, bool largest)
{
    uint32_t mask;
    fl_shape shape = fl_reduce_logical_shape(&kernel->in[0]);
    FL_TRY(axis_mask(&mask, kernel->name, &kernel->attrs->at[FL_REDUCE_AXIS], &shape));
    return fl_cpu_arg_reduce(kernel->nout == 2 ? &kernel->out[0] : NULL, &kernel->out[kernel->nout - 1], &kernel->in[0],
                             mask, largest);
}

static fl_status cpu_arg_largest(fl_kernel *kernel) { return run_arg(kernel, true); }
static fl_status cpu_arg_smallest(fl_kernel *kernel) { return run_arg(kernel, false); }

FL_OP(argmax) = {
    .name = "argmax",
    .sig = "argmax(x, axis: axis = nil, keepdim: bool = false)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc = "Positions of the largest values, the lowest of equal ones; NaN counts as the largest.",
    .infer = infer_arg,
    .sbp = sbp_argmax,
    .cpu = cpu_arg_largest,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

FL_OP(argmin) = {
    .name = "argmin",
    .sig = "argmin(x, axis: axis = nil, keepdim: bool = false)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc = "Positions of the smallest values, the lowest of equal ones; NaN counts as the smallest.",
    .infer = infer_arg,
    .sbp = sbp_argmin,
    .cpu = cpu_arg_smallest,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

/* The gradient goes to the element at the position that was returned; equal ones get none. */
static fl_status grad_extreme_axis(fl_grad *g)
{
    const fl_shape *shape = &g->in_meta[0]->shape;
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(axis_scatter));
    if (!g->gout[0]) return FL_OK;
    fl_attr_set(&a, FL_PICK_AXIS, fl_axis_of(&g->attrs->at[FL_REDUCE_AXIS], shape->ndim));
    fl_attr_set(&a, FL_PICK_KEEPDIM, g->attrs->at[FL_REDUCE_KEEPDIM].integer);
    fl_attr_set_list(&a, FL_PICK_SIZES, shape->dims, shape->ndim);
    return FL_CALL_WITH(&g->gin[0], &a, axis_scatter, fl_of(g->gout[0]), fl_of(g->out[EXTREME_POSITIONS]));
}

FL_OP(max_axis) = {
    .name = "max_axis",
    .sig = "max_axis(x, axis: axis, keepdim: bool = false)",
    .nout = 2,
    .flags = FL_OP_HIDDEN | FL_OP_BY_NAME,
    .doc = "Largest values along an axis and their positions, the lowest of equal ones; NaN counts as the largest.",
    .variant = EXTREME_LARGEST,
    .infer = infer_arg,
    .sbp = sbp_max_axis,
    .cpu = cpu_arg_largest,
    .grad = grad_extreme_axis,
    .saves_out = 1u << EXTREME_POSITIONS,
    FL_SAMPLES("flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

FL_OP(min_axis) = {
    .name = "min_axis",
    .sig = "min_axis(x, axis: axis, keepdim: bool = false)",
    .nout = 2,
    .flags = FL_OP_HIDDEN | FL_OP_BY_NAME,
    .doc = "Smallest values along an axis and their positions, the lowest of equal ones; NaN counts as the smallest.",
    .variant = EXTREME_SMALLEST,
    .infer = infer_arg,
    .sbp = sbp_min_axis,
    .cpu = cpu_arg_smallest,
    .grad = grad_extreme_axis,
    .saves_out = 1u << EXTREME_POSITIONS,
    FL_SAMPLES("flow.randn(3, 4), 1", "flow.randn(3, 4), 0, true"),
};

/* ---- extremes: positions of a value that is known ---- */

static fl_status infer_arg_find(fl_infer *infer)
{
    FL_TRY(infer_arg(infer));
    if (infer->in[1].dtype != infer->in[0].dtype || !fl_shape_equal(&infer->in[1].shape, &infer->out[0].shape))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "value must have the dtype of x and the shape of the result");
    return FL_OK;
}

/* A rank without the value along its part gives the highest integer, so the lowest position over the ranks is the
** result. */
static void sbp_arg_find(fl_sigs *sigs)
{
    uint32_t mask;
    bool keepdim = sigs->attrs->at[FL_REDUCE_KEEPDIM].integer != 0;
    if (axis_mask(&mask, sigs->op->name, &sigs->attrs->at[FL_REDUCE_AXIS], &sigs->in_logical[0]) != FL_OK)
        return; /* inference has accepted it */
    for (int axis = 0; axis < sigs->in_logical[0].ndim; axis++) {
        fl_sbp line = FL_S(fl_reduce_axis_after(axis, mask, keepdim));
        if (mask >> axis & 1u) FL_SIG(sigs, NULL, FL_S(axis), FL_B, FL_PMIN);
        else FL_SIG(sigs, NULL, FL_S(axis), line, line);
    }
}

static fl_status cpu_arg_find(fl_kernel *kernel)
{
    uint32_t mask;
    fl_shape shape = fl_reduce_logical_shape(&kernel->in[0]);
    FL_TRY(axis_mask(&mask, kernel->name, &kernel->attrs->at[FL_REDUCE_AXIS], &shape));
    return fl_cpu_arg_find(kernel, mask, kernel->attrs->at[FL_ARG_FIND_LARGEST].integer != 0);
}

FL_OP(arg_find) = {
    .name = "arg_find",
    .sig = "arg_find(x, value, axis: axis = nil, keepdim: bool = false, largest: bool = true)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "Positions of the largest (smallest) values where they equal `value`, the largest (smallest) of all; "
           "elsewhere the highest integer.",
    .infer = infer_arg_find,
    .sbp = sbp_arg_find,
    .cpu = cpu_arg_find,
    FL_SAMPLES("flow.randn(3, 4):clamp(-1, 0.25), flow.full({3}, 0.25), 1",
               "flow.randn(3, 4):clamp(-0.5, 1), flow.full({1, 4}, -0.5), 0, true, false",
               "flow.randn(3, 4):clamp(-1, 0.25), flow.full({}, 0.25)"),
};

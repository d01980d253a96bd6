/*
** layer_norm.c -- layer normalisation over the last axes, forward and backward in one pass each.
**
** The hidden op keeps mean and 1 / deviation of every row; its gradient is one op that reads everything once.
*/
#include "op/layer_norm.h"
#include "cpu/rows.h"
#include "cpu/stage.h"
#include "expr.h"

/* Attributes of layer_norm; its operands are those of layer_norm_rows. */
enum { PUBLIC_SIZES, PUBLIC_EPS };

/* Number of leading axes, those that are not normalised; the first attribute counts the others. */
static int row_axes(const fl_attrs *attrs, const fl_shape *x)
{
    return x->ndim - (int)attrs->at[FL_LAYER_NORM_AXES].integer;
}

static int64_t row_length(const int64_t *size, int ndim, int leading)
{
    int64_t n = 1;
    for (int i = leading; i < ndim; i++) n *= size[i];
    return n;
}

/* Shapes of a value per row and of a value per column. */
struct norm_shapes {
    fl_shape rows, columns;
};

static fl_status infer_shapes(struct norm_shapes *out, const fl_infer *infer, int operand)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[operand].shape;
    int leading = row_axes(infer->attrs, x);
    FL_TRY(fl_require_float(infer, operand));
    if (leading < 0 || leading >= x->ndim)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "x %s has no %d last axes", fl_shape_text(text, x),
                             x->ndim - leading);
    *out = (struct norm_shapes){{leading, {0}}, {x->ndim - leading, {0}}};
    memcpy(out->rows.dims, x->dims, sizeof(int64_t) * (size_t)leading);
    memcpy(out->columns.dims, x->dims + leading, sizeof(int64_t) * (size_t)out->columns.ndim);
    return FL_OK;
}

/* Operands of the mask that are there have this shape. */
static fl_status require_shapes(const fl_infer *infer, uint32_t operands, const fl_shape *want)
{
    char got_text[FL_SHAPE_TEXT], want_text[FL_SHAPE_TEXT];
    for (int i = 0; i < infer->nin; i++) {
        if (!(operands >> i & 1u) || infer->in[i].kind == FL_NONE || fl_shape_equal(&infer->in[i].shape, want))
            continue;
        return fl_infer_fail(infer, FL_ERR_SHAPE, "operand %d must be %s, got %s", i, fl_shape_text(want_text, want),
                             fl_shape_text(got_text, &infer->in[i].shape));
    }
    return FL_OK;
}

static fl_status infer_rows(fl_infer *infer)
{
    struct norm_shapes shapes;
    FL_TRY(infer_shapes(&shapes, infer, FL_LAYER_NORM_X));
    FL_TRY(require_shapes(infer, 1u << FL_LAYER_NORM_WEIGHT | 1u << FL_LAYER_NORM_BIAS, &shapes.columns));
    FL_TRY(fl_infer_same(infer));
    for (int i = FL_LAYER_NORM_MEAN; i <= FL_LAYER_NORM_RSTD; i++) {
        infer->out[i].dtype = infer->in[FL_LAYER_NORM_X].dtype;
        infer->out[i].shape = shapes.rows;
    }
    return FL_OK;
}

/* (dy, x, mean, rstd, weight?) -> dx, dweight, dbias */
static fl_status infer_backward(fl_infer *infer)
{
    struct norm_shapes shapes;
    FL_TRY(infer_shapes(&shapes, infer, FL_LAYER_NORM_BACK_X));
    FL_TRY(require_shapes(infer, 1u << FL_LAYER_NORM_BACK_DY, &infer->in[FL_LAYER_NORM_BACK_X].shape));
    FL_TRY(require_shapes(infer, 1u << FL_LAYER_NORM_BACK_MEAN | 1u << FL_LAYER_NORM_BACK_RSTD, &shapes.rows));
    FL_TRY(require_shapes(infer, 1u << FL_LAYER_NORM_BACK_WEIGHT, &shapes.columns));
    infer->out[FL_LAYER_NORM_BACK_DX].dtype = infer->out[FL_LAYER_NORM_BACK_DWEIGHT].dtype =
        infer->out[FL_LAYER_NORM_BACK_DBIAS].dtype = infer->in[FL_LAYER_NORM_BACK_X].dtype;
    infer->out[FL_LAYER_NORM_BACK_DX].shape = infer->in[FL_LAYER_NORM_BACK_X].shape;
    infer->out[FL_LAYER_NORM_BACK_DWEIGHT].shape = infer->out[FL_LAYER_NORM_BACK_DBIAS].shape = shapes.columns;
    return FL_OK;
}

static fl_status kernel_rows(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_LAYER_NORM_X];
    int leading = x->ndim - (int)kernel->attrs->at[FL_LAYER_NORM_AXES].integer;
    fl_stage s;
    uint32_t narrow = fl_stage_narrow(kernel, 1u << FL_LAYER_NORM_X | FL_STAGE_RESULT(FL_LAYER_NORM_Y));
    FL_TRY(fl_stage_open(&s, kernel, narrow));
    fl_layer_norm a = {.n = row_length(x->size, x->ndim, leading),
                       .eps = kernel->attrs->at[FL_LAYER_NORM_EPS].number,
                       .weight = s.in[FL_LAYER_NORM_WEIGHT],
                       .bias = s.in[FL_LAYER_NORM_BIAS],
                       .mean = s.out[FL_LAYER_NORM_MEAN],
                       .rstd = s.out[FL_LAYER_NORM_RSTD]};
    FL_TRY(fl_cpu_layer_norm(narrow ? x->dtype : s.dtype, &a, kernel->out[FL_LAYER_NORM_MEAN].numel,
                             s.out[FL_LAYER_NORM_Y], s.in[FL_LAYER_NORM_X]));
    return fl_stage_close(&s);
}

static fl_status kernel_backward(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_LAYER_NORM_BACK_X];
    int leading = x->ndim - (int)kernel->attrs->at[FL_LAYER_NORM_AXES].integer;
    fl_stage s;
    uint32_t narrow = fl_stage_narrow(
        kernel, 1u << FL_LAYER_NORM_BACK_DY | 1u << FL_LAYER_NORM_BACK_X | FL_STAGE_RESULT(FL_LAYER_NORM_BACK_DX));
    FL_TRY(fl_stage_open(&s, kernel, narrow));
    fl_layer_norm a = {.n = row_length(x->size, x->ndim, leading),
                       .mean_in = s.in[FL_LAYER_NORM_BACK_MEAN],
                       .rstd_in = s.in[FL_LAYER_NORM_BACK_RSTD],
                       .weight = s.in[FL_LAYER_NORM_BACK_WEIGHT]};
    FL_TRY(fl_cpu_layer_norm_backward(narrow ? x->dtype : s.dtype, &a, kernel->in[FL_LAYER_NORM_BACK_MEAN].numel,
                                      s.out[FL_LAYER_NORM_BACK_DX], s.in[FL_LAYER_NORM_BACK_DY],
                                      s.in[FL_LAYER_NORM_BACK_X], s.out[FL_LAYER_NORM_BACK_DWEIGHT],
                                      s.out[FL_LAYER_NORM_BACK_DBIAS]));
    return fl_stage_close(&s);
}

/* A row is normalised as a whole, with the whole weight and bias: axes before the row may be split. Not linear in x,
** so nothing is partial. */
static void sbp_rows(fl_sigs *sigs)
{
    for (int i = 0; i < row_axes(sigs->attrs, &sigs->in[FL_LAYER_NORM_X].shape); i++)
        FL_SIG(sigs, NULL, FL_S(i), FL_B, FL_B, FL_S(i), FL_S(i), FL_S(i));
}

/* As sbp_rows; dweight and dbias are sums over the rows, so they are partial where rows are split. All three results
** are linear in dy. */
static void sbp_backward(fl_sigs *sigs)
{
    for (int i = 0; i < row_axes(sigs->attrs, &sigs->in[FL_LAYER_NORM_BACK_X].shape); i++)
        FL_SIG(sigs, NULL, FL_S(i), FL_S(i), FL_S(i), FL_S(i), FL_B, FL_S(i), FL_PSUM, FL_PSUM);
    FL_SIG(sigs, NULL, FL_PSUM, FL_B, FL_B, FL_B, FL_B, FL_PSUM, FL_PSUM, FL_PSUM);
}

/* ---- gradients ---- */

/* Mask of the normalised axes, and what a value per row must look like to broadcast over x. */
struct norm_axes {
    uint32_t normalised;
    fl_shape kept;
    double n;
};

static struct norm_axes axes_of(const fl_attrs *attrs, const fl_shape *x)
{
    int leading = row_axes(attrs, x);
    struct norm_axes a = {(1u << x->ndim) - (1u << leading), *x, 1};
    for (int i = leading; i < x->ndim; i++) {
        a.n *= (double)x->dims[i];
        a.kept.dims[i] = 1;
    }
    return a;
}

/* z = (x - mean) rstd */
static fl_tensor *normalised(fl_expr *expr, const struct norm_axes *axes, fl_tensor *x, fl_tensor *mean,
                             fl_tensor *rstd)
{
    return expr_mul(expr, expr_sub(expr, x, expr_reshape(expr, mean, &axes->kept)),
                    expr_reshape(expr, rstd, &axes->kept));
}

/* Gradient through the kept mean and rstd themselves: d mean = 1 / n, d rstd = -rstd^2 z / n. */
static fl_tensor *through_statistics(fl_expr *expr, const struct norm_axes *axes, const fl_grad *g)
{
    fl_tensor *x = g->in[FL_LAYER_NORM_X].tensor, *mean = g->out[FL_LAYER_NORM_MEAN],
              *rstd = g->out[FL_LAYER_NORM_RSTD], *sum = NULL;
    if (g->gout[FL_LAYER_NORM_MEAN])
        sum = expr_mul_number(expr, expr_reshape(expr, g->gout[FL_LAYER_NORM_MEAN], &axes->kept), 1 / axes->n);
    if (g->gout[FL_LAYER_NORM_RSTD]) {
        fl_tensor *scale = expr_mul(expr, g->gout[FL_LAYER_NORM_RSTD], expr_mul(expr, rstd, rstd));
        fl_tensor *part = expr_mul(expr, normalised(expr, axes, x, mean, rstd),
                                   expr_mul_number(expr, expr_reshape(expr, scale, &axes->kept), -1 / axes->n));
        sum = sum ? expr_add(expr, sum, part) : part;
    }
    return sum;
}

/* y by the fused op; the kept mean and rstd are results too, with gradients of their own in a second derivative. */
static fl_status grad_rows(fl_grad *g)
{
    fl_expr c = {0};
    struct norm_axes axes = axes_of(g->attrs, &g->in_meta[FL_LAYER_NORM_X]->shape);
    fl_tensor *dx = NULL, *dweight = NULL, *dbias = NULL;
    if (g->gout[FL_LAYER_NORM_Y]) {
        fl_attrs a;
        fl_attrs_init(&a, FL_OP_REF(layer_norm_backward));
        a.at[FL_LAYER_NORM_AXES] = g->attrs->at[FL_LAYER_NORM_AXES];
        dx = EXPR_CALL(&c, &a, layer_norm_backward, fl_of(g->gout[FL_LAYER_NORM_Y]), g->in[FL_LAYER_NORM_X],
                       fl_of(g->out[FL_LAYER_NORM_MEAN]), fl_of(g->out[FL_LAYER_NORM_RSTD]),
                       g->in[FL_LAYER_NORM_WEIGHT]);
        dweight = c.owned[FL_LAYER_NORM_BACK_DWEIGHT];
        dbias = c.owned[FL_LAYER_NORM_BACK_DBIAS];
    }
    fl_tensor *more = g->need[FL_LAYER_NORM_X] ? through_statistics(&c, &axes, g) : NULL;
    if (more) dx = dx ? expr_add(&c, dx, more) : more;
    if (g->need[FL_LAYER_NORM_X] && dx) g->gin[FL_LAYER_NORM_X] = fl_expr_take(&c, dx);
    if (g->need[FL_LAYER_NORM_WEIGHT] && dweight) g->gin[FL_LAYER_NORM_WEIGHT] = fl_expr_take(&c, dweight);
    if (g->need[FL_LAYER_NORM_BIAS] && dbias) g->gin[FL_LAYER_NORM_BIAS] = fl_expr_take(&c, dbias);
    return fl_expr_end(&c);
}

/* Adjoint of dx = rstd (a - m(a) - z m(a z)), dweight = sum dy z, dbias = sum dy, with a = dy weight, z = (x - mean)
** rstd and m the mean over a row; mean and rstd count as inputs of their own. h, hw, hb are the gradients of the three
** results. */
static fl_status grad_backward(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *dy = g->in[FL_LAYER_NORM_BACK_DY].tensor, *x = g->in[FL_LAYER_NORM_BACK_X].tensor,
              *mean = g->in[FL_LAYER_NORM_BACK_MEAN].tensor, *rstd = g->in[FL_LAYER_NORM_BACK_RSTD].tensor,
              *w = g->in[FL_LAYER_NORM_BACK_WEIGHT].tensor;
    fl_tensor *h = g->gout[FL_LAYER_NORM_BACK_DX], *hw = g->gout[FL_LAYER_NORM_BACK_DWEIGHT],
              *hb = g->gout[FL_LAYER_NORM_BACK_DBIAS], *d_dy = NULL, *dz = NULL, *d_rstd = NULL, *d_w = NULL;
    struct norm_axes axes = axes_of(g->attrs, &x->meta->shape);
    uint32_t row = axes.normalised;
    fl_tensor *r = expr_reshape(&c, rstd, &axes.kept), *z = normalised(&c, &axes, x, mean, rstd);
    bool weighted = g->in[FL_LAYER_NORM_BACK_WEIGHT].kind == FL_TENSOR;
    if (h) {
        fl_tensor *a = weighted ? expr_mul(&c, dy, w) : dy;
        fl_tensor *m_az = expr_mean(&c, expr_mul(&c, a, z), row, true),
                  *m_hz = expr_mean(&c, expr_mul(&c, h, z), row, true);
        fl_tensor *centred_a = expr_sub(&c, expr_sub(&c, a, expr_mean(&c, a, row, true)), expr_mul(&c, z, m_az));
        fl_tensor *centred_h = expr_sub(&c, expr_sub(&c, h, expr_mean(&c, h, row, true)), expr_mul(&c, z, m_hz));
        fl_tensor *da = expr_mul(&c, centred_h, r);
        d_dy = weighted ? expr_mul(&c, da, w) : da;
        if (weighted && g->need[FL_LAYER_NORM_BACK_WEIGHT])
            d_w = expr_mul(&c, da, dy); /* the tape sums it over the rows */
        dz = expr_neg(&c, expr_mul(&c, r, expr_add(&c, expr_mul(&c, h, m_az), expr_mul(&c, a, m_hz))));
        d_rstd = expr_sum(&c, expr_mul(&c, h, centred_a), row, true);
    }
    if (hw) {
        fl_tensor *part = expr_mul(&c, dy, hw), *part_dy = expr_mul(&c, z, hw);
        dz = dz ? expr_add(&c, dz, part) : part;
        d_dy = d_dy ? expr_add(&c, d_dy, part_dy) : part_dy;
    }
    if (hb) d_dy = d_dy ? expr_add(&c, d_dy, hb) : expr_add(&c, expr_mul_number(&c, dy, 0), hb);
    if (dz) {
        fl_tensor *dx = expr_mul(&c, dz, r), *through_r = expr_div(&c, expr_sum(&c, expr_mul(&c, dz, z), row, true), r);
        d_rstd = d_rstd ? expr_add(&c, d_rstd, through_r) : through_r;
        fl_tensor *d_mean = expr_reshape(&c, expr_neg(&c, expr_sum(&c, dx, row, true)), &mean->meta->shape);
        d_rstd = expr_reshape(&c, d_rstd, &rstd->meta->shape);
        if (g->need[FL_LAYER_NORM_BACK_X]) g->gin[FL_LAYER_NORM_BACK_X] = fl_expr_take(&c, dx);
        if (g->need[FL_LAYER_NORM_BACK_MEAN]) g->gin[FL_LAYER_NORM_BACK_MEAN] = fl_expr_take(&c, d_mean);
        if (g->need[FL_LAYER_NORM_BACK_RSTD]) g->gin[FL_LAYER_NORM_BACK_RSTD] = fl_expr_take(&c, d_rstd);
    }
    if (g->need[FL_LAYER_NORM_BACK_DY] && d_dy) g->gin[FL_LAYER_NORM_BACK_DY] = fl_expr_take(&c, d_dy);
    if (d_w) g->gin[FL_LAYER_NORM_BACK_WEIGHT] = fl_expr_take(&c, d_w);
    return fl_expr_end(&c);
}

/* ---- the public op ---- */

static fl_status check_sizes(const fl_tensor *x, const fl_attr *sizes, const fl_operand *in)
{
    static const char *const names[] = {"x", "weight", "bias"};
    char text[FL_META_TEXT], wanted[FL_SHAPE_TEXT];
    const fl_shape *shape = &x->meta->shape;
    fl_shape want = {sizes->count, {0}};
    for (int i = 0; i < sizes->count; i++) want.dims[i] = sizes->list[i];
    int leading = shape->ndim - want.ndim;
    if (want.ndim == 0 || leading < 0
        || memcmp(shape->dims + leading, want.dims, sizeof(int64_t) * (size_t)want.ndim) != 0)
        return fl_fail(FL_ERR_SHAPE, "layer_norm: the last sizes of x must be %s, x is %s",
                       fl_shape_text(wanted, &want), fl_meta_text(text, x->meta));
    FL_TRY(fl_require_float_tensor("layer_norm", "x", x));
    for (int i = 1; i < 3; i++) {
        if (in[i].kind != FL_TENSOR) continue;
        const fl_meta *m = in[i].tensor->meta;
        if (!fl_shape_equal(&m->shape, &want))
            return fl_fail(FL_ERR_SHAPE, "layer_norm: %s must be %s, got %s", names[i], fl_shape_text(wanted, &want),
                           fl_meta_text(text, m));
        if (!fl_dtype_is_float(m->dtype))
            return fl_fail(FL_ERR_DTYPE, "layer_norm: %s must be a float tensor, got %s", names[i],
                           fl_meta_text(text, m));
    }
    return FL_OK;
}

static fl_status body_layer_norm(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_tensor *results[3];
    FL_TRY(check_sizes(in[0].tensor, &attrs->at[PUBLIC_SIZES], in));
    fl_attrs_init(&a, FL_OP_REF(layer_norm_rows));
    fl_attr_set(&a, FL_LAYER_NORM_AXES, attrs->at[PUBLIC_SIZES].count);
    a.at[FL_LAYER_NORM_EPS] = attrs->at[PUBLIC_EPS];
    FL_TRY(FL_CALL_WITH(results, &a, layer_norm_rows, in[FL_LAYER_NORM_X], in[FL_LAYER_NORM_WEIGHT],
                        in[FL_LAYER_NORM_BIAS]));
    fl_tensor_unref(results[FL_LAYER_NORM_MEAN]);
    fl_tensor_unref(results[FL_LAYER_NORM_RSTD]);
    out[0] = results[FL_LAYER_NORM_Y];
    return FL_OK;
}

static const char *const layer_norm_samples[] = {"flow.randn(3, 5), 5, flow.randn(5), flow.randn(5)",
                                                 "flow.randn(2, 3, 4), {3, 4}", "flow.randn(6), {6}, flow.randn(6)",
                                                 "flow.randn(40, 20), 20, nil, flow.randn(20)", NULL};
FL_OP(layer_norm) = {
    .name = "layer_norm",
    .flags = FL_OP_WIDE,
    .sig = "layer_norm(x, sizes: sizes, weight?, bias?, ~eps: float = 1e-5)",
    .nout = 1,
    .doc = "x normalised to mean 0 and variance 1 over its last axes (of these sizes), times weight, plus bias.",
    .body = body_layer_norm,
    .samples = layer_norm_samples,
};

static const char *const rows_samples[] = {"flow.randn(3, 5), flow.randn(5), flow.randn(5), 1, 1e-5",
                                           "flow.randn(2, 3, 4), nil, nil, 2, 1e-5", NULL};
FL_OP(layer_norm_rows) = {
    .name = "layer_norm_rows",
    .sig = "layer_norm_rows(x, weight?, bias?, axes: int, ~eps: float)",
    .nout = 3,
    .flags = FL_OP_HIDDEN,
    .doc = "layer_norm over the last `axes` axes, and the mean and 1 / deviation of every row.",
    .saves_in = 1u << FL_LAYER_NORM_X | 1u << FL_LAYER_NORM_WEIGHT,
    .saves_out = 1u << FL_LAYER_NORM_MEAN | 1u << FL_LAYER_NORM_RSTD,
    .infer = infer_rows,
    .sbp = sbp_rows,
    .cpu = kernel_rows,
    .grad = grad_rows,
    .samples = rows_samples,
};

static const char *const backward_samples[] = {
    "flow.randn(3, 5), flow.randn(3, 5), flow.randn(3), flow.rand(3) + 0.5, flow.randn(5), 1",
    "flow.randn(2, 3, 4), flow.randn(2, 3, 4), flow.randn(2), flow.rand(2) + 0.5, nil, 2", NULL};
FL_OP(layer_norm_backward) = {
    .name = "layer_norm_backward",
    .sig = "layer_norm_backward(dy, x, mean, rstd, weight?, axes: int)",
    .nout = 3,
    .flags = FL_OP_HIDDEN,
    .doc = "Gradients of layer_norm_rows with respect to x, weight and bias.",
    .saves_in = (1u << FL_LAYER_NORM_BACK_OPERANDS) - 1,
    .infer = infer_backward,
    .sbp = sbp_backward,
    .cpu = kernel_backward,
    .grad = grad_backward,
    .samples = backward_samples,
};

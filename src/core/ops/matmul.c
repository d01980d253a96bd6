/*
** matmul.c -- matrix products: matmul, bmm, linear, and gemm, which their gradients need.
**
** All share one rule for which axis plays which part and one kernel. Operands are multiplied where they lie: a
** transpose is a stride, batch axes that a 2-D y does not have are rows of one large product. Gradients are those of
** product_grad.c.
*/
#include "products.h"
#include "cpu/row_product.h"

/* ---- inference ---- */

fl_status fl_product_infer_dtype(fl_infer *infer)
{
    fl_dtype x = infer->in[FL_PRODUCT_X].dtype;
    if (x == FL_BOOL) return fl_infer_fail(infer, FL_ERR_DTYPE, "does not take bool tensors; convert them first");
    for (int i = 1; i < infer->nin; i++)
        if (infer->in[i].kind == FL_TENSOR && fl_dtype_categories[infer->in[i].dtype] != fl_dtype_categories[x])
            return fl_infer_fail(infer, FL_ERR_DTYPE, "cannot multiply %s by %s; convert one of them", fl_dtype_name(x),
                                 fl_dtype_name(infer->in[i].dtype));
    infer->out[0].dtype = fl_infer_promote(infer);
    return FL_OK;
}

fl_status fl_product_infer(fl_infer *infer)
{
    const fl_shape *x = &infer->in[FL_PRODUCT_X].shape, *y = &infer->in[FL_PRODUCT_Y].shape;
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    fl_shape_text(tx, x);
    fl_shape_text(ty, y);
    if (x->ndim == 0 || y->ndim == 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes tensors with axes, got %s and %s", tx, ty);
    fl_product p = fl_product_for(infer->op->variant, infer->attrs, x->ndim, y->ndim);
    if (x->dims[p.xk] != y->dims[p.yk])
        return fl_infer_fail(infer, FL_ERR_SHAPE,
                             "%s and %s do not fit: axis %d of x has size %lld, axis %d of y has size %lld", tx, ty,
                             p.xk, (long long)x->dims[p.xk], p.yk, (long long)y->dims[p.yk]);
    fl_shape xb = {p.x_batch, {0}}, yb = {p.y_batch, {0}}, *out = &infer->out[0].shape;
    memcpy(xb.dims, x->dims, sizeof(int64_t) * (size_t)p.x_batch);
    memcpy(yb.dims, y->dims, sizeof(int64_t) * (size_t)p.y_batch);
    if (fl_shape_broadcast(out, infer->name, &xb, &yb) != FL_OK)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "batch axes of %s and %s do not broadcast", tx, ty);
    if (p.xm >= 0) out->dims[out->ndim++] = x->dims[p.xm];
    if (p.yn >= 0) out->dims[out->ndim++] = y->dims[p.yn];
    return fl_product_infer_dtype(infer);
}

static fl_status infer_bmm(fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[FL_PRODUCT_X].shape, *y = &infer->in[FL_PRODUCT_Y].shape;
    if (x->ndim != 3 || y->ndim != 3 || x->dims[0] != y->dims[0])
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes [b, m, k] and [b, k, n], got %s and %s", fl_shape_text(tx, x),
                             fl_shape_text(ty, y));
    return fl_product_infer(infer);
}

fl_status fl_linear_infer(fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT], tw[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[FL_LINEAR_X].shape, *w = &infer->in[FL_LINEAR_WEIGHT].shape,
                   *bias = &infer->in[FL_LINEAR_BIAS].shape;
    fl_shape_text(tx, x);
    fl_shape_text(tw, w);
    if (w->ndim != 2 || x->ndim == 0 || x->dims[x->ndim - 1] != w->dims[1])
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes x [..., in] and weight [out, in], got %s and %s", tx, tw);
    if (infer->in[FL_LINEAR_BIAS].kind == FL_TENSOR && (bias->ndim != 1 || bias->dims[0] != w->dims[0]))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "bias must be [%lld] for weight %s, got %s", (long long)w->dims[0],
                             tw, fl_shape_text(tx, bias));
    return fl_product_infer(infer);
}

/* ---- SBP ---- */

/* Operand's axis for a batch axis of the result, B where it is broadcast along it. */
static fl_sbp batch_split(const fl_sigs *sigs, int operand, int out_axis, int batch, int own_batch)
{
    int axis = out_axis - (batch - own_batch);
    return axis >= 0 && sigs->in_logical[operand].dims[axis] == sigs->out_logical[0].dims[out_axis] ? FL_S(axis) : FL_B;
}

void fl_product_sig(fl_sigs *sigs, fl_body body, fl_sbp x, fl_sbp y, fl_sbp bias, fl_sbp out)
{
    fl_sbp before = sigs->nout == 2 && fl_gelu_keeps_product(sigs->attrs) ? out : FL_B;
    if (sigs->nin == 3) FL_SIG(sigs, body, x, y, bias, out, before);
    else FL_SIG(sigs, body, x, y, out);
}

void fl_product_split(fl_sigs *sigs, const fl_product *product)
{
    bool bias = sigs->nin == 3 && sigs->in[FL_LINEAR_BIAS].kind == FL_TENSOR;
    for (int b = 0; b < product->batch; b++)
        fl_product_sig(sigs, NULL, batch_split(sigs, 0, b, product->batch, product->x_batch),
                       batch_split(sigs, 1, b, product->batch, product->y_batch), FL_B, FL_S(b));
    if (product->xm >= 0) fl_product_sig(sigs, NULL, FL_S(product->xm), FL_B, FL_B, FL_S(product->om));
    if (product->yn >= 0) fl_product_sig(sigs, NULL, FL_B, FL_S(product->yn), bias ? FL_S(0) : FL_B, FL_S(product->on));
}

/* Batch axes, rows of x and columns of y give parts of the result. Split along the contracted axis in both operands,
** the parts' products add up. Linear in each operand, but a bias beside a partial operand would be added once per
** rank. */
static void sbp_product(fl_sigs *sigs)
{
    fl_product p = fl_product_for(sigs->op->variant, sigs->attrs, sigs->in[FL_PRODUCT_X].shape.ndim,
                                  sigs->in[FL_PRODUCT_Y].shape.ndim);
    bool bias = sigs->nin == 3 && sigs->in[FL_LINEAR_BIAS].kind == FL_TENSOR;
    fl_product_split(sigs, &p);
    /* the rank that holds the first k adds the bias, so there must be one */
    if (!bias || sigs->in_logical[0].dims[p.xk] > 0) fl_product_sig(sigs, NULL, FL_S(p.xk), FL_S(p.yk), FL_B, FL_PSUM);
    if (bias) return;
    fl_sbp_partial(sigs, 1, FL_PSUM);
    fl_sbp_partial(sigs, 2, FL_PSUM);
}

/* ---- kernel ---- */

uint32_t fl_product_readable(const fl_kernel *kernel)
{
    uint32_t mask = 0;
    fl_dtype dtype = kernel->out[0].dtype;
    if (!fl_dtype_is_float(dtype)) dtype = FL_INT64;
    for (int i = 0; i < 2; i++)
        if (kernel->in[i].dtype == fl_dtype_compute(dtype)) mask |= 1u << i;
    return mask;
}

void fl_product_of_kernel(fl_gemm_axes *axes, const fl_stage *stage, void *result)
{
    const fl_kernel *k = stage->k;
    const fl_view *x = &k->in[FL_PRODUCT_X], *y = &k->in[FL_PRODUCT_Y];
    fl_product p = fl_product_for(k->variant, k->attrs, x->ndim, y->ndim);
    int64_t xs[FL_MAX_NDIM], ys[FL_MAX_NDIM];
    fl_stage_strides(xs, stage, FL_PRODUCT_X);
    fl_stage_strides(ys, stage, FL_PRODUCT_Y);
    axes->one = (fl_gemm){.m = p.xm < 0 ? 1 : x->size[p.xm],
                          .n = p.yn < 0 ? 1 : y->size[p.yn],
                          .k = x->size[p.xk],
                          .a = stage->in[FL_PRODUCT_X],
                          .b = stage->in[FL_PRODUCT_Y],
                          .c = result,
                          .a_row = p.xm < 0 ? 0 : xs[p.xm],
                          .a_col = xs[p.xk],
                          .b_row = ys[p.yk],
                          .b_col = p.yn < 0 ? 1 : ys[p.yn],
                          .alpha = 1};
    axes->one.c_row = axes->one.n;
    if (k->nin == 3 && stage->in[FL_LINEAR_BIAS] && x->start[p.xk] == 0) axes->one.bias = stage->in[FL_LINEAR_BIAS];
    axes->ndim = p.batch;
    memcpy(axes->size, k->out[0].size, sizeof(int64_t) * (size_t)p.batch);
    fl_product_batch_steps(axes->a_step, x, xs, p.batch, p.x_batch);
    fl_product_batch_steps(axes->b_step, y, ys, p.batch, p.y_batch);
}

static bool is_half(fl_dtype dtype) { return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16; }

/* A row by a matrix of 16 bits, or such a matrix by a column: the matrix is read as it lies. *done: it was that. */
static fl_status run_half_row(bool *done, fl_kernel *kernel)
{
    fl_stage s;
    fl_gemm row;
    fl_gemm_axes axes;
    if (!is_half(kernel->out[0].dtype)) return FL_OK;
    const fl_view *x = &kernel->in[FL_PRODUCT_X], *y = &kernel->in[FL_PRODUCT_Y];
    fl_product p = fl_product_for(kernel->variant, kernel->attrs, x->ndim, y->ndim);
    int64_t columns = p.yn < 0 ? 1 : y->size[p.yn];
    int matrix = kernel->out[0].numel == columns ? FL_PRODUCT_Y : FL_PRODUCT_X;
    if (kernel->in[matrix].ndim != 2 || (matrix == FL_PRODUCT_X && columns != 1)) return FL_OK;
    fl_dtype dtype = kernel->in[matrix].dtype;
    if (!is_half(dtype)) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1u << matrix));
    fl_product_of_kernel(&axes, &s, s.out[0]);
    if (!fl_row_product_suits(&row, &axes.one) || row.b != s.in[matrix]) return FL_OK;
    fl_gemm_run_row(FL_FLOAT32, dtype, &row);
    *done = true;
    return fl_stage_close(&s);
}

/* One product of bfloat16 matrices, where there is a kernel for them. */
static fl_status run_bfloat16(bool *done, fl_kernel *kernel)
{
    fl_stage s;
    fl_gemm_axes axes;
    if (kernel->in[FL_PRODUCT_X].dtype != FL_BFLOAT16 || kernel->in[FL_PRODUCT_Y].dtype != FL_BFLOAT16) return FL_OK;
    if (!fl_gemm_has_bfloat16()) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1u << FL_PRODUCT_X | 1u << FL_PRODUCT_Y));
    fl_product_of_kernel(&axes, &s, s.out[0]);
    *done = fl_gemm_run_bfloat16(&axes);
    return *done ? fl_stage_close(&s) : FL_OK;
}

fl_status fl_product_run(fl_kernel *kernel, double beta)
{
    fl_stage s;
    fl_gemm_axes axes;
    bool done = false;
    if (kernel->out[0].numel == 0) return FL_OK;
    if (beta == 0) FL_TRY(run_half_row(&done, kernel));
    if (beta == 0 && !done) FL_TRY(run_bfloat16(&done, kernel));
    if (done) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, fl_product_readable(kernel)));
    fl_product_of_kernel(&axes, &s, s.out[0]);
    axes.one.beta = beta;
    if (beta != 0) FL_TRY(fl_stage_load_result(&s, 0));
    FL_TRY(fl_gemm_run_axes(&axes, fl_dtype_is_float(kernel->out[0].dtype) ? s.dtype : FL_INT64, kernel->name));
    return fl_stage_close(&s);
}

static fl_status kernel_product(fl_kernel *kernel) { return fl_product_run(kernel, 0); }

int64_t fl_product_flops(const fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_PRODUCT_X], *y = &kernel->in[FL_PRODUCT_Y];
    fl_product p = fl_product_for(kernel->variant, kernel->attrs, x->ndim, y->ndim);
    return 2 * kernel->out[0].numel * x->size[p.xk];
}

/* ---- descriptors ---- */

static const char *const matmul_samples[] = {"flow.randn(3, 4), flow.randn(4, 5)",
                                             "flow.randn(2, 3, 4), flow.randn(4, 5)",
                                             "flow.randn(2, 1, 3, 4), flow.randn(5, 4, 2)",
                                             "flow.randn(4), flow.randn(4)",
                                             "flow.randn(4), flow.randn(2, 4, 3)",
                                             "flow.randn(2, 3, 4), flow.randn(4)",
                                             "flow.randn(3, 0), flow.randn(0, 2)",
                                             "flow.randint(-5, 5, {3, 4}), flow.randint(-5, 5, {4, 2})",
                                             NULL};
FL_OP(matmul) = {
    .name = "matmul",
    .flags = FL_OP_LOW,
    .sig = "matmul(x, y)",
    .nout = 1,
    .doc = "Matrix product over the last two axes; the axes before them broadcast; a 1-D x is a row, a 1-D y a column.",
    .saves_in = 1u << FL_PRODUCT_X | 1u << FL_PRODUCT_Y,
    .infer = fl_product_infer,
    .sbp = sbp_product,
    .cpu = kernel_product,
    .flops = fl_product_flops,
    .grad = fl_product_grad,
    .samples = matmul_samples,
};

static const char *const bmm_samples[] = {"flow.randn(3, 2, 4), flow.randn(3, 4, 5)", NULL};
FL_OP(bmm) = {
    .name = "bmm",
    .flags = FL_OP_LOW,
    .sig = "bmm(x, y)",
    .nout = 1,
    .doc = "Matrix products of a batch: [b, m, k] times [b, k, n].",
    .saves_in = 1u << FL_PRODUCT_X | 1u << FL_PRODUCT_Y,
    .infer = infer_bmm,
    .sbp = sbp_product,
    .cpu = kernel_product,
    .flops = fl_product_flops,
    .grad = fl_product_grad,
    .samples = bmm_samples,
};

static const char *const gemm_samples[] = {"flow.randn(4, 3), flow.randn(4, 5), true, false",
                                           "flow.randn(2, 3, 4), flow.randn(5, 4), false, true",
                                           "flow.randn(2, 4, 3), flow.randn(2, 5, 4), true, true",
                                           "flow.randn(2, 4, 3), flow.randn(4, 5), true, false", NULL};
FL_OP(gemm) = {
    .name = "gemm",
    .sig = "gemm(x, y, ta: bool = false, tb: bool = false)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_HIDDEN,
    .doc = "Matrix product of x and y, each optionally with its last two axes exchanged.",
    .saves_in = 1u << FL_PRODUCT_X | 1u << FL_PRODUCT_Y,
    .variant = FL_PRODUCT_GEMM,
    .infer = fl_product_infer,
    .sbp = sbp_product,
    .cpu = kernel_product,
    .flops = fl_product_flops,
    .grad = fl_product_grad,
    .samples = gemm_samples,
};

/* y = x W^T + b: dx = g W, dW = g^T x summed over all rows, db = g summed over all rows. */
static const char *const linear_vjp[] = {"gemm(g, weight)", "contract_rows(g, x)", "sum_to(g, bias)"};
const char *const fl_linear_samples[] = {"flow.randn(3, 4), flow.randn(5, 4), flow.randn(5)",
                                         "flow.randn(2, 3, 4), flow.randn(5, 4)",
                                         "flow.randn(4), flow.randn(3, 4), flow.randn(3)", NULL};
FL_OP(linear) = {
    .name = "linear",
    .sig = "linear(x, weight, bias?)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_FUNCTION_ONLY,
    .doc = "x times the transposed weight, plus bias: x [..., in], weight [out, in], bias [out].",
    .variant = FL_PRODUCT_LINEAR,
    .infer = fl_linear_infer,
    .sbp = sbp_product,
    .cpu = kernel_product,
    .flops = fl_product_flops,
    .vjp = linear_vjp,
    .grad = fl_linear_grad,
    .samples = fl_linear_samples,
};

/*
** matmul.c -- matrix products: matmul, bmm, linear, linear with an activation, and the two forms their gradients need.
**
** All share one rule for which axis plays which part and one kernel. Operands are multiplied where they lie: a
** transpose is a stride, batch axes that a 2-D y does not have are rows of one large product.
**
** An activation is applied to what a product has just written. Gradients are those of product_grad.c.
*/
#include "dispatch/record.h"
#include "cpu/elementwise.h"
#include "cpu/row_product.h"
#include "cpu/stage.h"
#include "expr.h"
#include "op/product.h"
#include "op/slicing.h"
#include "products.h"

/* ---- inference ---- */

/* All operands integers, or all floats. */
static fl_status infer_dtype(fl_infer *infer)
{
    fl_dtype x = infer->in[0].dtype;
    if (x == FL_BOOL) return fl_infer_fail(infer, FL_ERR_DTYPE, "does not take bool tensors; convert them first");
    for (int i = 1; i < infer->nin; i++)
        if (infer->in[i].kind == FL_TENSOR && fl_dtype_categories[infer->in[i].dtype] != fl_dtype_categories[x])
            return fl_infer_fail(infer, FL_ERR_DTYPE, "cannot multiply %s by %s; convert one of them", fl_dtype_name(x),
                                 fl_dtype_name(infer->in[i].dtype));
    infer->out[0].dtype = fl_infer_promote(infer);
    return FL_OK;
}

static fl_status infer_product(fl_infer *infer)
{
    const fl_shape *x = &infer->in[FL_PRODUCT_X].shape, *y = &infer->in[FL_PRODUCT_Y].shape;
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    fl_shape_text(tx, x);
    fl_shape_text(ty, y);
    if (x->ndim == 0 || y->ndim == 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes tensors with axes, got %s and %s", tx, ty);
    fl_product p = fl_product_for(infer->op, infer->attrs, x->ndim, y->ndim);
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
    return infer_dtype(infer);
}

static fl_status infer_bmm(fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[FL_PRODUCT_X].shape, *y = &infer->in[FL_PRODUCT_Y].shape;
    if (x->ndim != 3 || y->ndim != 3 || x->dims[0] != y->dims[0])
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes [b, m, k] and [b, k, n], got %s and %s", fl_shape_text(tx, x),
                             fl_shape_text(ty, y));
    return infer_product(infer);
}

static fl_status infer_linear(fl_infer *infer)
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
    return infer_product(infer);
}

static fl_status infer_activated(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return infer_linear(infer);
}

/* The product before the activation, or nothing. */
static fl_status infer_gelu_kept(fl_infer *infer)
{
    FL_TRY(infer_activated(infer));
    infer->out[FL_GELU_KEPT] = infer->out[FL_ACTIVATED];
    if (!fl_gelu_keeps_product(infer->attrs)) infer->out[FL_GELU_KEPT].shape = (fl_shape){1, {0}};
    return FL_OK;
}

static fl_status infer_contract(fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[FL_PRODUCT_X].shape, *y = &infer->in[FL_PRODUCT_Y].shape;
    int last = x->ndim - 1;
    if (x->ndim != y->ndim || last < 0 || memcmp(x->dims, y->dims, sizeof(int64_t) * (size_t)last) != 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes [..., p] and [..., q], got %s and %s", fl_shape_text(tx, x),
                             fl_shape_text(ty, y));
    infer->out[0].shape = (fl_shape){2, {x->dims[last], y->dims[last]}};
    return infer_dtype(infer);
}

/* The sum, operand 0, has the shape and dtype of the product of the others. One of 16 bits is not added to: it would be
** rounded with every product. */
static fl_status infer_added(fl_infer *infer, fl_status (*product)(fl_infer *))
{
    char have[FL_SHAPE_TEXT], want[FL_SHAPE_TEXT];
    fl_infer of = *infer;
    of.in = infer->in + 1;
    of.nin = infer->nin - 1;
    FL_TRY(product(&of));
    if (of.out[0].dtype != FL_FLOAT32 && of.out[0].dtype != FL_FLOAT64)
        return fl_infer_fail(infer, FL_ERR_DTYPE, "takes float32 or float64, the product is %s",
                             fl_dtype_name(of.out[0].dtype));
    if (infer->in[0].dtype != of.out[0].dtype || !fl_shape_equal(&infer->in[0].shape, &of.out[0].shape))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "the sum is %s%s, the product %s%s",
                             fl_dtype_name(infer->in[0].dtype), fl_shape_text(have, &infer->in[0].shape),
                             fl_dtype_name(of.out[0].dtype), fl_shape_text(want, &of.out[0].shape));
    infer->out[0] = infer->in[0];
    return FL_OK;
}

static fl_status infer_gemm_add(fl_infer *infer) { return infer_added(infer, infer_product); }
static fl_status infer_contract_add(fl_infer *infer) { return infer_added(infer, infer_contract); }

/* ---- SBP ---- */

/* Operand's axis for a batch axis of the result, B where it is broadcast along it. */
static fl_sbp batch_split(const fl_sigs *sigs, int operand, int out_axis, int batch, int own_batch)
{
    int axis = out_axis - (batch - own_batch);
    return axis >= 0 && sigs->in_logical[operand].dims[axis] == sigs->out_logical[0].dims[out_axis] ? FL_S(axis) : FL_B;
}

/* Of a product before its activation, which lies as the result does where it is kept. */
static void add_product(fl_sigs *sigs, fl_body body, fl_sbp x, fl_sbp y, fl_sbp bias, fl_sbp out)
{
    fl_sbp before = sigs->nout == 2 && fl_gelu_keeps_product(sigs->attrs) ? out : FL_B;
    if (sigs->nin == 3) FL_SIG(sigs, body, x, y, bias, out, before);
    else FL_SIG(sigs, body, x, y, out);
}

/* Every rank makes a part of the result. */
static void add_parts(fl_sigs *sigs, const fl_product *product)
{
    bool bias = sigs->nin == 3 && sigs->in[FL_LINEAR_BIAS].kind == FL_TENSOR;
    for (int b = 0; b < product->batch; b++)
        add_product(sigs, NULL, batch_split(sigs, 0, b, product->batch, product->x_batch),
                    batch_split(sigs, 1, b, product->batch, product->y_batch), FL_B, FL_S(b));
    if (product->xm >= 0) add_product(sigs, NULL, FL_S(product->xm), FL_B, FL_B, FL_S(product->om));
    if (product->yn >= 0) add_product(sigs, NULL, FL_B, FL_S(product->yn), bias ? FL_S(0) : FL_B, FL_S(product->on));
}

/* Batch axes, rows of x and columns of y give parts of the result. Split along the contracted axis in both operands,
** the parts' products add up. Linear in each operand, but a bias beside a partial operand would be added once per
** rank. */
static void sbp_product(fl_sigs *sigs)
{
    fl_product p = fl_product_for(sigs->op, sigs->attrs, sigs->in[FL_PRODUCT_X].shape.ndim,
                                  sigs->in[FL_PRODUCT_Y].shape.ndim);
    bool bias = sigs->nin == 3 && sigs->in[FL_LINEAR_BIAS].kind == FL_TENSOR;
    add_parts(sigs, &p);
    /* the rank that holds the first k adds the bias, so there must be one */
    if (!bias || sigs->in_logical[0].dims[p.xk] > 0) add_product(sigs, NULL, FL_S(p.xk), FL_S(p.yk), FL_B, FL_PSUM);
    if (bias) return;
    fl_sbp_partial(sigs, 1, FL_PSUM);
    fl_sbp_partial(sigs, 2, FL_PSUM);
}

/* An activation is not linear: partial sums are added up before it. */
static void sbp_activated(fl_sigs *sigs, fl_body body)
{
    fl_product p = fl_product_for(sigs->op, sigs->attrs, sigs->in[FL_PRODUCT_X].shape.ndim,
                                  sigs->in[FL_PRODUCT_Y].shape.ndim);
    add_parts(sigs, &p);
    if (sigs->in_logical[0].dims[p.xk] > 0) add_product(sigs, body, FL_S(p.xk), FL_S(p.yk), FL_B, FL_B);
}

static fl_status body_relu(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *sum = expr_whole(&c,
                                EXPR_CALL(&c, NULL, linear, in[FL_LINEAR_X], in[FL_LINEAR_WEIGHT], in[FL_LINEAR_BIAS]));
    out[0] = fl_expr_take(&c, EXPR_CALL(&c, NULL, relu, fl_of(sum)));
    return fl_expr_end(&c);
}

static fl_tensor *nothing_of(fl_expr *expr, fl_tensor *x)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(narrow));
    fl_attr_set(&a, FL_SLICE_AXIS, 0);
    fl_attr_set(&a, FL_SLICE_START, 0);
    fl_attr_set(&a, FL_SLICE_LENGTH, 0);
    return EXPR_CALL(expr, &a, narrow, fl_of(EXPR_CALL(expr, NULL, flatten, fl_of(x))));
}

static fl_tensor *expr_gelu(fl_expr *expr, fl_tensor *x, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(gelu));
    a.at[FL_GELU_APPROXIMATE] = attrs->at[FL_GELU_APPROXIMATE];
    return EXPR_CALL(expr, &a, gelu, fl_of(x));
}

static fl_status body_gelu_kept(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *sum = expr_whole(&c,
                                EXPR_CALL(&c, NULL, linear, in[FL_LINEAR_X], in[FL_LINEAR_WEIGHT], in[FL_LINEAR_BIAS]));
    fl_tensor *y = expr_gelu(&c, sum, attrs), *kept = fl_gelu_keeps_product(attrs) ? sum : nothing_of(&c, sum);
    out[FL_ACTIVATED] = fl_expr_take(&c, y);
    out[FL_GELU_KEPT] = fl_expr_take(&c, kept);
    return fl_expr_end(&c);
}

static void sbp_relu(fl_sigs *sigs) { sbp_activated(sigs, body_relu); }
static void sbp_gelu_kept(fl_sigs *sigs) { sbp_activated(sigs, body_gelu_kept); }

/* The sum runs over the rows, so split rows give partial sums; a split last axis of x or y is an axis of the result.
** Linear in each operand. */
static void sbp_contract(fl_sigs *sigs)
{
    int last = sigs->in[0].shape.ndim - 1;
    for (int i = 0; i < last; i++) FL_SIG(sigs, NULL, FL_S(i), FL_S(i), FL_PSUM);
    FL_SIG(sigs, NULL, FL_S(last), FL_B, FL_S(0));
    FL_SIG(sigs, NULL, FL_B, FL_S(last), FL_S(1));
    fl_sbp_partial(sigs, 1, FL_PSUM);
    fl_sbp_partial(sigs, 2, FL_PSUM);
}

/* Rows and columns of the sum are those of the product. */
static void sbp_gemm_add(fl_sigs *sigs)
{
    fl_product p = fl_product_for(sigs->op, sigs->attrs, sigs->in[1].shape.ndim, sigs->in[2].shape.ndim);
    FL_SIG(sigs, NULL, FL_S(0), FL_S(p.xm), FL_B, FL_S(0));
    FL_SIG(sigs, NULL, FL_S(1), FL_B, FL_S(p.yn), FL_S(1));
}

static void sbp_contract_add(fl_sigs *sigs)
{
    int last = sigs->in[1].shape.ndim - 1;
    FL_SIG(sigs, NULL, FL_S(0), FL_S(last), FL_B, FL_S(0));
    FL_SIG(sigs, NULL, FL_S(1), FL_B, FL_S(last), FL_S(1));
}

/* ---- kernel ---- */

/* Operands that can be read where they lie: of the dtype that is computed in. */
static uint32_t readable(const fl_kernel *kernel)
{
    uint32_t mask = 0;
    fl_dtype dtype = kernel->out[0].dtype;
    if (!fl_dtype_is_float(dtype)) dtype = FL_INT64;
    for (int i = 0; i < 2; i++)
        if (kernel->in[i].dtype == fl_dtype_compute(dtype)) mask |= 1u << i;
    return mask;
}

/* The product of k's operands where they lie after staging. */
static fl_gemm_axes product_of_kernel(const fl_stage *stage, void *result)
{
    const fl_kernel *k = stage->k;
    const fl_view *x = &k->in[FL_PRODUCT_X], *y = &k->in[FL_PRODUCT_Y];
    fl_product p = fl_product_for(k->op, k->attrs, x->ndim, y->ndim);
    int64_t xs[FL_MAX_NDIM], ys[FL_MAX_NDIM];
    fl_stage_strides(xs, stage, 0);
    fl_stage_strides(ys, stage, 1);
    fl_gemm_axes b = {.ndim = p.batch};
    b.one = (fl_gemm){.m = p.xm < 0 ? 1 : x->size[p.xm],
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
    b.one.c_row = b.one.n;
    if (k->nin == 3 && stage->in[FL_LINEAR_BIAS] && x->start[p.xk] == 0) b.one.bias = stage->in[FL_LINEAR_BIAS];
    memcpy(b.size, k->out[0].size, sizeof(int64_t) * (size_t)p.batch);
    fl_product_batch_steps(b.a_step, x, xs, p.batch, p.x_batch);
    fl_product_batch_steps(b.b_step, y, ys, p.batch, p.y_batch);
    return b;
}

static bool is_half(fl_dtype dtype) { return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16; }

/* A row by a matrix of 16 bits, or such a matrix by a column: the matrix is read as it lies. *done: it was that. */
static fl_status run_half_row(bool *done, fl_kernel *kernel)
{
    fl_stage s;
    fl_gemm row;
    const fl_view *x = &kernel->in[FL_PRODUCT_X], *y = &kernel->in[FL_PRODUCT_Y];
    fl_product p = fl_product_for(kernel->op, kernel->attrs, x->ndim, y->ndim);
    int64_t columns = p.yn < 0 ? 1 : y->size[p.yn];
    int matrix = kernel->out[0].numel == columns ? FL_PRODUCT_Y : FL_PRODUCT_X;
    if (kernel->in[matrix].ndim != 2 || (matrix == FL_PRODUCT_X && columns != 1)) return FL_OK;
    fl_dtype dtype = kernel->in[matrix].dtype;
    if (!is_half(dtype) || !is_half(kernel->out[0].dtype)) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1u << matrix));
    fl_gemm_axes b = product_of_kernel(&s, s.out[0]);
    if (!fl_row_product_suits(&row, &b.one) || row.b != s.in[matrix]) return FL_OK;
    fl_gemm_run_row(FL_FLOAT32, dtype, &row);
    *done = true;
    return fl_stage_close(&s);
}

/* One product of bfloat16 matrices, where there is a kernel for them. */
static fl_status run_bfloat16(bool *done, fl_kernel *kernel)
{
    fl_stage s;
    if (kernel->in[0].dtype != FL_BFLOAT16 || kernel->in[1].dtype != FL_BFLOAT16) return FL_OK;
    if (!fl_gemm_has_bfloat16()) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1u << FL_PRODUCT_X | 1u << FL_PRODUCT_Y));
    fl_gemm_axes b = product_of_kernel(&s, s.out[0]);
    *done = fl_gemm_run_bfloat16(&b);
    return *done ? fl_stage_close(&s) : FL_OK;
}

/* beta: 1 adds to the result. */
static fl_status run_product(fl_kernel *kernel, double beta)
{
    fl_stage s;
    bool done = false;
    if (kernel->out[0].numel == 0) return FL_OK;
    if (beta == 0) FL_TRY(run_half_row(&done, kernel));
    if (beta == 0 && !done) FL_TRY(run_bfloat16(&done, kernel));
    if (done) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, readable(kernel)));
    fl_gemm_axes b = product_of_kernel(&s, s.out[0]);
    b.one.beta = beta;
    FL_TRY(fl_gemm_run_axes(&b, fl_dtype_is_float(kernel->out[0].dtype) ? s.dtype : FL_INT64, kernel->op->name));
    return fl_stage_close(&s);
}

static fl_status kernel_product(fl_kernel *kernel) { return run_product(kernel, 0); }

/* activation: an elementwise op. `kept`: the result that holds the product before it, -1: none. */
static fl_status run_activated(fl_kernel *kernel, const fl_op *activation, const fl_ew_attr *attributes, int kept)
{
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, readable(kernel)));
    fl_gemm_axes b = product_of_kernel(&s, s.out[kept < 0 ? 0 : kept]);
    b.one.activation = fl_cpu_elementwise_flat(activation->row, s.dtype);
    b.one.attributes = attributes;
    b.one.activated = s.out[0];
    FL_TRY(fl_gemm_run_axes(&b, s.dtype, kernel->op->name));
    return fl_stage_close(&s);
}

static fl_status kernel_relu(fl_kernel *kernel) { return run_activated(kernel, FL_OP_REF(relu), NULL, -1); }

static fl_status kernel_gelu_kept(fl_kernel *kernel)
{
    fl_ew_attr form[FL_EW_ATTRS] = {
        {(double)kernel->attrs->at[FL_GELU_APPROXIMATE].integer, kernel->attrs->at[FL_GELU_APPROXIMATE].integer}};
    return run_activated(kernel, FL_OP_REF(gelu), form, fl_gelu_keeps_product(kernel->attrs) ? FL_GELU_KEPT : -1);
}

static fl_status run_contract(fl_kernel *kernel, double beta)
{
    const fl_view *x = &kernel->in[FL_PRODUCT_X], *y = &kernel->in[FL_PRODUCT_Y];
    int64_t xs[FL_MAX_NDIM], ys[FL_MAX_NDIM], rows, x_row, y_row;
    uint32_t as_is = readable(kernel);
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    for (int i = 0; i < 2; i++)
        if (!fl_product_rows(&rows, &x_row, &kernel->in[i], kernel->in[i].stride)) as_is &= ~(1u << i);
    FL_TRY(fl_stage_open(&s, kernel, as_is));
    fl_stage_strides(xs, &s, 0);
    fl_stage_strides(ys, &s, 1);
    fl_product_rows(&rows, &x_row, x, xs);
    fl_product_rows(&rows, &y_row, y, ys);
    fl_gemm_axes b = {.one = {.m = x->size[x->ndim - 1],
                              .n = y->size[y->ndim - 1],
                              .k = rows,
                              .a = s.in[FL_PRODUCT_X],
                              .b = s.in[FL_PRODUCT_Y],
                              .c = s.out[0],
                              .a_row = xs[x->ndim - 1],
                              .a_col = x_row,
                              .b_row = y_row,
                              .b_col = ys[y->ndim - 1],
                              .alpha = 1,
                              .beta = beta}};
    b.one.c_row = b.one.n;
    FL_TRY(fl_gemm_run_axes(&b, fl_dtype_is_float(kernel->out[0].dtype) ? s.dtype : FL_INT64, kernel->op->name));
    return fl_stage_close(&s);
}

static fl_status kernel_contract(fl_kernel *kernel) { return run_contract(kernel, 0); }

/* ---- products that are added to a sum ---- */

/* The call without operand 0, the sum, which is its result. */
static fl_kernel without_sum(const fl_kernel *kernel)
{
    fl_kernel product = *kernel;
    product.in = kernel->in + 1;
    product.nin = kernel->nin - 1;
    return product;
}

static fl_status kernel_gemm_add(fl_kernel *kernel)
{
    fl_kernel product = without_sum(kernel);
    return product.in[0].numel ? run_product(&product, 1) : FL_OK;
}

static fl_status kernel_contract_add(fl_kernel *kernel)
{
    fl_kernel product = without_sum(kernel);
    return product.in[0].numel ? run_contract(&product, 1) : FL_OK;
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
    .infer = infer_product,
    .sbp = sbp_product,
    .cpu = kernel_product,
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
    .infer = infer_product,
    .sbp = sbp_product,
    .cpu = kernel_product,
    .grad = fl_product_grad,
    .samples = gemm_samples,
};

/* y = x W^T + b: dx = g W, dW = g^T x summed over all rows, db = g summed over all rows. */
static const char *const linear_vjp[] = {"gemm(g, weight)", "contract_rows(g, x)", "sum_to(g, bias)"};
static const char *const linear_samples[] = {"flow.randn(3, 4), flow.randn(5, 4), flow.randn(5)",
                                             "flow.randn(2, 3, 4), flow.randn(5, 4)",
                                             "flow.randn(4), flow.randn(3, 4), flow.randn(3)", NULL};
FL_OP(linear) = {
    .name = "linear",
    .sig = "linear(x, weight, bias?)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_FUNCTION_ONLY,
    .doc = "x times the transposed weight, plus bias: x [..., in], weight [out, in], bias [out].",
    .variant = FL_PRODUCT_LINEAR,
    .infer = infer_linear,
    .sbp = sbp_product,
    .cpu = kernel_product,
    .vjp = linear_vjp,
    .grad = fl_linear_grad,
    .samples = linear_samples,
};

FL_OP(linear_relu) = {
    .name = "linear_relu",
    .sig = "linear_relu(x, weight, bias?)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_HIDDEN,
    .doc = "relu of linear, in one pass.",
    .saves_in = 1u << FL_LINEAR_X | 1u << FL_LINEAR_WEIGHT,
    .saves_out = 1u << FL_ACTIVATED,
    .variant = FL_PRODUCT_LINEAR,
    .infer = infer_activated,
    .sbp = sbp_relu,
    .cpu = kernel_relu,
    .grad = fl_linear_relu_grad,
    .samples = linear_samples,
};

static const char *const gelu_samples[] = {"flow.randn(3, 4), flow.randn(5, 4), flow.randn(5), 'tanh'",
                                           "flow.randn(2, 3, 4), flow.randn(5, 4)",
                                           "flow.randn(4), flow.randn(3, 4), flow.randn(3), 'none', false", NULL};
FL_OP(linear_gelu_kept) = {
    .name = "linear_gelu_kept",
    .nout = 2,
    .flags = FL_OP_LOW | FL_OP_HIDDEN,
    .sig = "linear_gelu_kept(x, weight, bias?, approximate: none|tanh = none, keep: bool = true)",
    .doc = "gelu of linear, in one pass, and the result of linear for the gradient (empty without `keep`).",
    .saves_in = 1u << FL_LINEAR_X | 1u << FL_LINEAR_WEIGHT | 1u << FL_LINEAR_BIAS,
    .saves_out = 1u << FL_GELU_KEPT,
    .variant = FL_PRODUCT_LINEAR,
    .infer = infer_gelu_kept,
    .sbp = sbp_gelu_kept,
    .cpu = kernel_gelu_kept,
    .grad = fl_linear_gelu_grad,
    .samples = gelu_samples,
};

static fl_status body_linear_gelu(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_attrs a;
    fl_tensor *results[2];
    const fl_op *op = FL_OP_REF(linear_gelu_kept);
    fl_attrs_init(&a, op);
    a.at[FL_GELU_APPROXIMATE] = attrs->at[FL_GELU_APPROXIMATE];
    fl_attr_set(&a, FL_GELU_KEEP, fl_record_wanted(op, in, nin));
    FL_TRY(fl_dispatch(results, op, in, nin, &a));
    fl_tensor_unref(results[FL_GELU_KEPT]);
    out[0] = results[FL_ACTIVATED];
    return FL_OK;
}

FL_OP(linear_gelu) = {
    .name = "linear_gelu",
    .sig = "linear_gelu(x, weight, bias?, approximate: none|tanh = none)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_HIDDEN,
    .doc = "gelu of linear, in one pass.",
    .body = body_linear_gelu,
    .samples = linear_samples,
};

/* out = x^T y over all rows: dx = y g^T, dy = x g. */
static const char *const contract_vjp[] = {"linear(y, g)", "gemm(x, g)"};
static const char *const contract_samples[] = {"flow.randn(2, 3, 4), flow.randn(2, 3, 5)",
                                               "flow.randn(3, 4), flow.randn(3, 2)", "flow.randn(4), flow.randn(5)",
                                               NULL};
FL_OP(contract_rows) = {
    .name = "contract_rows",
    .sig = "contract_rows(x, y)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Sum over all rows of the outer product of x's row [p] and y's row [q]: the gradient of a weight.",
    .infer = infer_contract,
    .sbp = sbp_contract,
    .cpu = kernel_contract,
    .vjp = contract_vjp,
    .samples = contract_samples,
};

/* Of local tensors: gradients of parts are summed over ranks before they are added to others. */
static const char *const gemm_add_samples[] = {"flow.zeros(4, 5), flow.randn(4, 3), flow.randn(3, 5)",
                                               "flow.ones(4, 5), flow.randn(3, 4), flow.randn(5, 3), true, true", NULL};
FL_OP(gemm_add) = {
    .name = "gemm_add",
    .sig = "gemm_add(sum, x, y, ta: bool = false, tb: bool = false)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD | FL_OP_HOST_ONLY,
    .mutates = 1,
    .doc = "Adds the product of two matrices to a sum of them.",
    .variant = FL_PRODUCT_GEMM,
    .infer = infer_gemm_add,
    .sbp = sbp_gemm_add,
    .cpu = kernel_gemm_add,
    .samples = gemm_add_samples,
};

static const char *const contract_add_samples[] = {"flow.ones(4, 5), flow.randn(2, 3, 4), flow.randn(2, 3, 5)", NULL};
FL_OP(contract_rows_add) = {
    .name = "contract_rows_add",
    .sig = "contract_rows_add(sum, x, y)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD | FL_OP_HOST_ONLY,
    .mutates = 1,
    .doc = "Adds contract_rows(x, y) to a sum of them.",
    .infer = infer_contract_add,
    .sbp = sbp_contract_add,
    .cpu = kernel_contract_add,
    .samples = contract_add_samples,
};

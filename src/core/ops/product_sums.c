/*
** product_sums.c -- products that are sums: contract_rows, the gradient of a weight, and products that are added to a
** sum of them.
*/
#include "products.h"
#include "ops.h"

/* ---- inference ---- */

static fl_status infer_contract(fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT], ty[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[FL_PRODUCT_X].shape, *y = &infer->in[FL_PRODUCT_Y].shape;
    int last = x->ndim - 1;
    if (x->ndim != y->ndim || last < 0 || memcmp(x->dims, y->dims, sizeof(int64_t) * (size_t)last) != 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes [..., p] and [..., q], got %s and %s", fl_shape_text(tx, x),
                             fl_shape_text(ty, y));
    infer->out[0].shape = (fl_shape){2, {x->dims[last], y->dims[last]}};
    return fl_product_infer_dtype(infer);
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

static fl_status infer_gemm_add(fl_infer *infer) { return infer_added(infer, fl_product_infer); }
static fl_status infer_contract_add(fl_infer *infer) { return infer_added(infer, infer_contract); }

/* ---- SBP ---- */

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

/* The sum lies as the product does: split as rows of x or columns of y, or partial, as products of split rows and of
** partial operands are. Each rank adds its product to its part of the sum. */
static void sbp_gemm_add(fl_sigs *sigs)
{
    fl_product p = fl_product_for(sigs->op->variant, sigs->attrs, sigs->in[1].shape.ndim, sigs->in[2].shape.ndim);
    FL_SIG(sigs, NULL, FL_S(0), FL_S(p.xm), FL_B, FL_S(0));
    FL_SIG(sigs, NULL, FL_S(1), FL_B, FL_S(p.yn), FL_S(1));
    FL_SIG(sigs, NULL, FL_PSUM, FL_S(p.xk), FL_S(p.yk), FL_PSUM);
    fl_sbp_partial(sigs, 1 | 2, FL_PSUM);
    fl_sbp_partial(sigs, 1 | 4, FL_PSUM);
}

static void sbp_contract_add(fl_sigs *sigs)
{
    int last = sigs->in[1].shape.ndim - 1;
    FL_SIG(sigs, NULL, FL_S(0), FL_S(last), FL_B, FL_S(0));
    FL_SIG(sigs, NULL, FL_S(1), FL_B, FL_S(last), FL_S(1));
    for (int i = 0; i < last; i++) FL_SIG(sigs, NULL, FL_PSUM, FL_S(i), FL_S(i), FL_PSUM);
    fl_sbp_partial(sigs, 1 | 2, FL_PSUM);
    fl_sbp_partial(sigs, 1 | 4, FL_PSUM);
}

/* ---- kernels ---- */

static fl_status run_contract(fl_kernel *kernel, double beta)
{
    const fl_view *x = &kernel->in[FL_PRODUCT_X], *y = &kernel->in[FL_PRODUCT_Y];
    int64_t xs[FL_MAX_NDIM], ys[FL_MAX_NDIM], rows, x_row, y_row;
    uint32_t as_is = fl_product_readable(kernel);
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
    if (beta != 0) FL_TRY(fl_stage_load_result(&s, 0));
    FL_TRY(fl_gemm_run_axes(&b, fl_dtype_is_float(kernel->out[0].dtype) ? s.dtype : FL_INT64, kernel->name));
    return fl_stage_close(&s);
}

static fl_status kernel_contract(fl_kernel *kernel) { return run_contract(kernel, 0); }

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
    return product.in[0].numel ? fl_product_run(&product, 1) : FL_OK;
}

static fl_status kernel_contract_add(fl_kernel *kernel)
{
    fl_kernel product = without_sum(kernel);
    return product.in[0].numel ? run_contract(&product, 1) : FL_OK;
}

static int64_t flops_contract(const fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_PRODUCT_X];
    int64_t columns = x->size[x->ndim - 1];
    return columns ? 2 * kernel->out[0].numel * (x->numel / columns) : 0;
}

static int64_t flops_gemm_add(const fl_kernel *kernel)
{
    fl_kernel product = without_sum(kernel);
    return fl_product_flops(&product);
}

static int64_t flops_contract_add(const fl_kernel *kernel)
{
    fl_kernel product = without_sum(kernel);
    return flops_contract(&product);
}

/* ---- descriptors ---- */

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
    .flops = flops_contract,
    .vjp = contract_vjp,
    .samples = contract_samples,
};

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
    .flops = flops_gemm_add,
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
    .flops = flops_contract_add,
    .samples = contract_add_samples,
};

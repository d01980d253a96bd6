/*
** matmul.cu -- matrix products: matmul, bmm, gemm, linear (with an activation too) and contract_rows, all as one
** batched product.
**
** Operands are multiplied where they lie: a transpose is a stride, a broadcast a step of 0, batch axes that y does not
** have are rows of one large product. cuBLASLt multiplies floats; operands that it cannot read are copied first.
*/
#include "gemm.h"
#include "operand.h"

extern "C" {
#include "core/op/product.h"
}

/* Batch axes: those of size 1 are dropped, neighbours that lie one inside the other in both operands become one. */
static void merge_batch(fl_cuda_gemm *gemm, int batch, const int64_t *size, const int64_t *a_step,
                        const int64_t *b_step)
{
    gemm->batch = 0;
    for (int i = 0; i < batch; i++) {
        int last = gemm->batch - 1;
        if (size[i] == 1) continue;
        bool inside = last >= 0 && gemm->a_step[last] == a_step[i] * size[i]
            && gemm->b_step[last] == b_step[i] * size[i];
        int at = inside ? last : gemm->batch++;
        gemm->size[at] = inside ? gemm->size[last] * size[i] : size[i];
        gemm->a_step[at] = a_step[i];
        gemm->b_step[at] = b_step[i];
    }
}

/* Batch axes that only A has, and that continue its rows, become rows. */
static void merge_rows(fl_cuda_gemm *gemm)
{
    for (; gemm->batch > 0 && gemm->b_step[gemm->batch - 1] == 0; gemm->batch--) {
        int last = gemm->batch - 1;
        if (gemm->m != 1 && gemm->a_step[last] != gemm->m * gemm->a_row) return;
        if (gemm->m == 1) gemm->a_row = gemm->a_step[last];
        gemm->m *= gemm->size[last];
    }
}

/* ---- operands that cuBLASLt cannot read ---- */

enum { MOST_CALLS = 16 };

/* One matrix of every product, with the axes its batch has. */
struct factor {
    char **data;
    int64_t *row, *col, *step;
    int64_t rows, cols;
};

/* Copies a factor, once where it is broadcast, into row-major memory. */
static fl_status make_plain(fl_cuda_operand *copy, const fl_cuda_gemm *gemm, factor f)
{
    int64_t size[FL_MAX_NDIM], stride[FL_MAX_NDIM], numel = f.rows * f.cols;
    fl_view v = {};
    for (int i = 0; i < gemm->batch; i++) {
        size[i] = f.step[i] == 0 ? 1 : gemm->size[i];
        stride[i] = f.step[i];
        numel *= size[i];
    }
    size[gemm->batch] = f.rows;
    stride[gemm->batch] = *f.row;
    size[gemm->batch + 1] = f.cols;
    stride[gemm->batch + 1] = *f.col;
    v.data = *f.data;
    v.dtype = gemm->dtype;
    v.ndim = gemm->batch + 2;
    v.size = size;
    v.stride = stride;
    v.numel = numel;
    FL_TRY(fl_cuda_operand_in(copy, &v, gemm->dtype, false));
    *f.data = copy->data;
    for (int i = 0; i < gemm->batch; i++) f.step[i] = size[i] == 1 ? 0 : copy->stride[i];
    *f.row = copy->stride[gemm->batch];
    *f.col = copy->stride[gemm->batch + 1];
    return FL_OK;
}

/* Products that one call cannot take are as many calls; beyond some, a copy that lets axes merge is cheaper. Steps of a
** call go forward. */
static bool needs_plain_batch(const fl_cuda_gemm *gemm)
{
    int64_t products = 1, longest = 1;
    bool backward = false;
    for (int i = 0; i < gemm->batch; i++) {
        products *= gemm->size[i];
        backward |= gemm->a_step[i] < 0 || gemm->b_step[i] < 0;
        if (gemm->size[i] > longest) longest = gemm->size[i];
    }
    return backward || products / longest > MOST_CALLS;
}

static fl_status run_cublas(bool *done, const fl_cuda_gemm *like)
{
    fl_cuda_gemm g = *like, merged;
    fl_cuda_operand a = {}, b = {};
    bool plain = needs_plain_batch(&g);
    fl_status status = FL_OK;
    if (plain || !fl_cublas_takes(g.a_row, g.a_col, g.m, g.k))
        status = make_plain(&a, &g, (factor){&g.a, &g.a_row, &g.a_col, g.a_step, g.m, g.k});
    if (status == FL_OK && (plain || !fl_cublas_takes(g.b_row, g.b_col, g.k, g.n)))
        status = make_plain(&b, &g, (factor){&g.b, &g.b_row, &g.b_col, g.b_step, g.k, g.n});
    merged = g;
    merge_batch(&merged, g.batch, g.size, g.a_step, g.b_step);
    if (status == FL_OK) status = fl_cublas_gemm(done, &merged);
    fl_cuda_operand_close(&b);
    fl_cuda_operand_close(&a);
    return status;
}

fl_status fl_cuda_gemm_run(const fl_cuda_gemm *gemm)
{
    bool done = false;
    if (fl_dtype_is_float(gemm->dtype) && gemm->k > 0 && fl_cublas_open()) FL_TRY(run_cublas(&done, gemm));
    return done ? FL_OK : fl_cuda_gemm_own(gemm);
}

/* ---- ops ---- */

/* Operands and result while an op is issued. */
struct factors {
    fl_cuda_operand x, y, bias, out, before;
};

static fl_status open_factors(factors *factors, const fl_kernel *kernel, bool x_as_is, bool y_as_is)
{
    fl_dtype dtype = kernel->out[0].dtype;
    FL_TRY(fl_cuda_operand_in(&factors->x, &kernel->in[FL_PRODUCT_X], dtype, x_as_is));
    FL_TRY(fl_cuda_operand_in(&factors->y, &kernel->in[FL_PRODUCT_Y], dtype, y_as_is));
    if (kernel->nin == 3) FL_TRY(fl_cuda_operand_in(&factors->bias, &kernel->in[FL_LINEAR_BIAS], dtype, false));
    if (kernel->nout == 2 && kernel->out[FL_GELU_KEPT].numel > 0)
        FL_TRY(fl_cuda_operand_out(&factors->before, &kernel->out[FL_GELU_KEPT], dtype));
    return fl_cuda_operand_out(&factors->out, &kernel->out[0], dtype);
}

static fl_status close_factors(factors *factors, const fl_kernel *kernel, fl_status status)
{
    fl_dtype dtype = kernel->out[0].dtype;
    if (status == FL_OK) status = fl_cuda_operand_store(&factors->out, &kernel->out[0], dtype);
    if (status == FL_OK && factors->before.data)
        status = fl_cuda_operand_store(&factors->before, &kernel->out[FL_GELU_KEPT], dtype);
    fl_cuda_operand_close(&factors->before);
    fl_cuda_operand_close(&factors->out);
    fl_cuda_operand_close(&factors->bias);
    fl_cuda_operand_close(&factors->y);
    fl_cuda_operand_close(&factors->x);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

/* The rank that holds the first k adds the bias. */
static fl_cuda_gemm gemm_of(const fl_kernel *kernel, const factors *factors, const fl_product *product)
{
    const fl_view *x = &kernel->in[FL_PRODUCT_X], *y = &kernel->in[FL_PRODUCT_Y];
    const int64_t *xs = factors->x.stride, *ys = factors->y.stride;
    int64_t a_step[FL_MAX_NDIM], b_step[FL_MAX_NDIM];
    fl_cuda_gemm g = {};
    g.dtype = kernel->out[0].dtype;
    g.m = product->xm < 0 ? 1 : x->size[product->xm];
    g.n = product->yn < 0 ? 1 : y->size[product->yn];
    g.k = x->size[product->xk];
    g.a = factors->x.data;
    g.b = factors->y.data;
    g.c = factors->out.data;
    g.before = factors->before.data;
    g.a_row = product->xm < 0 ? 0 : xs[product->xm];
    g.a_col = xs[product->xk];
    g.b_row = ys[product->yk];
    g.b_col = product->yn < 0 ? 1 : ys[product->yn];
    if (x->start[product->xk] == 0) g.bias = factors->bias.data;
    fl_product_batch_steps(a_step, x, xs, product->batch, product->x_batch);
    fl_product_batch_steps(b_step, y, ys, product->batch, product->y_batch);
    merge_batch(&g, product->batch, kernel->out[0].size, a_step, b_step);
    merge_rows(&g);
    return g;
}

static fl_status launch_activated(fl_kernel *kernel, fl_cuda_activation activation)
{
    fl_product p = fl_product_for(kernel->variant, kernel->attrs, kernel->in[FL_PRODUCT_X].ndim,
                                  kernel->in[FL_PRODUCT_Y].ndim);
    factors f = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_status status = open_factors(&f, kernel, true, true);
    if (status == FL_OK) {
        fl_cuda_gemm g = gemm_of(kernel, &f, &p);
        g.activation = activation;
        status = fl_cuda_gemm_run(&g);
    }
    return close_factors(&f, kernel, status);
}

static fl_status launch_product(fl_kernel *kernel) { return launch_activated(kernel, FL_CUDA_NONE); }
static fl_status launch_relu(fl_kernel *kernel) { return launch_activated(kernel, FL_CUDA_RELU); }

static fl_status launch_gelu(fl_kernel *kernel)
{
    return launch_activated(kernel, kernel->attrs->at[FL_GELU_APPROXIMATE].integer ? FL_CUDA_GELU_TANH : FL_CUDA_GELU);
}

static fl_status launch_contract(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_PRODUCT_X], *y = &kernel->in[FL_PRODUCT_Y];
    int64_t rows, row;
    factors f = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_status status = open_factors(&f, kernel, fl_product_rows(&rows, &row, x, x->stride),
                                    fl_product_rows(&rows, &row, y, y->stride));
    if (status == FL_OK) {
        fl_cuda_gemm g = {};
        g.dtype = kernel->out[0].dtype;
        g.m = x->size[x->ndim - 1];
        g.n = y->size[y->ndim - 1];
        g.a = f.x.data;
        g.b = f.y.data;
        g.c = f.out.data;
        fl_product_rows(&g.k, &g.a_col, x, f.x.stride);
        fl_product_rows(&g.k, &g.b_row, y, f.y.stride);
        g.a_row = f.x.stride[x->ndim - 1];
        g.b_col = f.y.stride[y->ndim - 1];
        status = fl_cuda_gemm_run(&g);
    }
    return close_factors(&f, kernel, status);
}

FL_CUDA_OP(matmul, launch_product);
FL_CUDA_OP(bmm, launch_product);
FL_CUDA_OP(gemm, launch_product);
FL_CUDA_OP(linear, launch_product);
FL_CUDA_OP(linear_relu, launch_relu);
FL_CUDA_OP(linear_gelu_kept, launch_gelu);
FL_CUDA_OP(contract_rows, launch_contract);

/*
** product_grad.c -- gradients of matrix products, which are products.
**
** That of a leaf is added to the sum of the leaf's gradients by the kernel, where there is such a sum (fl_grad.sum_of).
** Gradients of activations are ops of their own: what they are multiplied with comes out of a product of another node,
** so no product of this node could take them in.
*/
#include "autograd/autograd.h"
#include "expr.h"
#include "infer/infer.h"
#include "products.h"

/* ---- products that are added to a sum ---- */

/* Of fewer products per element a sum in one pass over memory is faster: 1.0 ms for 1024 x 1024 of 1 each, 1.2 ms added
** by the kernel; 1.15 and 1.0 ms of 8. */
enum { ADDED_FROM = 8 };

/* True if the product of matrices, or of all rows (contract), has the shape and dtype of the sum, and the kernel can
** add it. */
static bool fits(const fl_tensor *sum, const fl_tensor *x, const fl_tensor *y, bool contract, bool ta, bool tb)
{
    const fl_meta *m = sum->meta, *mx = x->meta, *my = y->meta;
    int last = mx->shape.ndim - 1;
    if (m->dtype != mx->dtype || m->dtype != my->dtype || (m->dtype != FL_FLOAT32 && m->dtype != FL_FLOAT64))
        return false;
    if (m->placement->type != FL_CPU || mx->placement != m->placement || my->placement != m->placement) return false;
    if (m->shape.ndim != 2 || mx->numel == 0 || sum->storage == x->storage || sum->storage == y->storage) return false;
    int64_t each = contract ? mx->numel / mx->shape.dims[last] : mx->shape.dims[!ta];
    if (each < ADDED_FROM) return false;
    if (contract) return m->shape.dims[0] == mx->shape.dims[last] && m->shape.dims[1] == my->shape.dims[last];
    return mx->shape.ndim == 2 && my->shape.ndim == 2 && m->shape.dims[0] == mx->shape.dims[ta]
        && m->shape.dims[1] == my->shape.dims[!tb];
}

/* The sum of the gradients of operand i that the product of x and y fits; NULL: there is none. */
static fl_tensor *sum_for(const fl_grad *g, int i, const fl_tensor *x, const fl_tensor *y, bool contract, bool ta,
                          bool tb)
{
    fl_tensor *sum = g->sum_of && x && y ? g->sum_of(g, i) : NULL;
    return sum && fits(sum, x, y, contract, ta, tb) ? sum : NULL;
}

/* True if the product lies as the sum does: nothing of global tensors is boxed for the sake of a sum. */
static bool lies_alike(const fl_tensor *sum, const fl_op *product, fl_tensor *x, fl_tensor *y, const fl_attrs *attrs)
{
    const fl_operand in[2] = {fl_of(x), fl_of(y)};
    return sum->meta->is_local || fl_infer_result(product, in, 2, attrs) == sum->meta;
}

/* The gradient of operand i as a product; NULL: it has been added to the sum of the operand's gradients. */
static fl_tensor *gradient_gemm(fl_expr *expr, fl_grad *g, int i, fl_tensor *x, fl_tensor *y, bool ta, bool tb)
{
    fl_tensor *sum = sum_for(g, i, x, y, false, ta, tb);
    fl_attrs a;
    if (!sum) return expr_gemm(expr, x, y, ta, tb);
    fl_attrs_init(&a, FL_OP_REF(gemm_add));
    fl_attr_set(&a, FL_GEMM_TRANSPOSES_X, ta);
    fl_attr_set(&a, FL_GEMM_TRANSPOSES_Y, tb);
    if (!lies_alike(sum, FL_OP_REF(gemm), x, y, &a)) return expr_gemm(expr, x, y, ta, tb);
    g->added |= 1u << i;
    EXPR_CALL(expr, &a, gemm_add, fl_of(sum), fl_of(x), fl_of(y));
    return NULL;
}

static fl_tensor *gradient_contract(fl_expr *expr, fl_grad *g, int i, fl_tensor *x, fl_tensor *y)
{
    fl_tensor *sum = sum_for(g, i, x, y, true, false, false);
    if (!sum || !lies_alike(sum, FL_OP_REF(contract_rows), x, y, NULL))
        return EXPR_CALL(expr, NULL, contract_rows, fl_of(x), fl_of(y));
    g->added |= 1u << i;
    EXPR_CALL(expr, NULL, contract_rows_add, fl_of(sum), fl_of(x), fl_of(y));
    return NULL;
}

/* ---- gradients ---- */

/* Gradients with respect to x[.., m, k] and y[.., k, n] with axes of size 1 where they had none. Extra leading axes are
** summed away by the tape. A 1-D y gets its gradient as a row. */
static fl_tensor *x_gradient(fl_expr *expr, fl_grad *grad, fl_tensor *y, fl_tensor *g, bool ta, bool tb)
{
    return ta ? gradient_gemm(expr, grad, FL_PRODUCT_X, y, g, tb, true)
              : gradient_gemm(expr, grad, FL_PRODUCT_X, g, y, false, !tb);
}

static fl_tensor *y_gradient(fl_expr *expr, fl_grad *grad, fl_tensor *x, fl_tensor *g, bool ta, bool tb, int y_ndim)
{
    bool rows = !ta && y_ndim == 2 && x->meta->shape.ndim > 2; /* all batch axes summed in one product */
    if (rows)
        return tb ? gradient_contract(expr, grad, FL_PRODUCT_Y, g, x)
                  : gradient_contract(expr, grad, FL_PRODUCT_Y, x, g);
    return tb || y_ndim == 1 ? gradient_gemm(expr, grad, FL_PRODUCT_Y, g, x, true, ta)
                             : gradient_gemm(expr, grad, FL_PRODUCT_Y, x, g, !ta, false);
}

/* out = x y: dx = g y^T, dy = x^T g, with a 1-D x as a row and a 1-D y as a column. */
fl_status fl_product_grad(fl_grad *g)
{
    fl_tensor *x = g->in[FL_PRODUCT_X].tensor, *y = g->in[FL_PRODUCT_Y].tensor, *out = g->gout[0];
    int x_ndim = x->meta->shape.ndim, y_ndim = y->meta->shape.ndim;
    bool gemm = g->op->variant == FL_PRODUCT_GEMM,
         ta = gemm && x_ndim > 1 && g->attrs->at[FL_GEMM_TRANSPOSES_X].integer,
         tb = gemm && y_ndim > 1 && g->attrs->at[FL_GEMM_TRANSPOSES_Y].integer;
    fl_expr c = {0};
    if (x_ndim == 1) {
        out = expr_unsqueeze(&c, out, out->meta->shape.ndim - (y_ndim > 1));
        x = expr_unsqueeze(&c, x, 0);
    }
    if (y_ndim == 1 && out) out = expr_unsqueeze(&c, out, out->meta->shape.ndim);
    if (y_ndim == 1) y = expr_unsqueeze(&c, y, 1);
    fl_tensor *dx = g->need[FL_PRODUCT_X] ? x_gradient(&c, g, y, out, ta, tb) : NULL;
    fl_tensor *dy = g->need[FL_PRODUCT_Y] ? y_gradient(&c, g, x, out, ta, tb, y_ndim) : NULL;
    if (dx) g->gin[FL_PRODUCT_X] = fl_expr_take(&c, dx);
    if (dy) g->gin[FL_PRODUCT_Y] = fl_expr_take(&c, dy);
    return fl_expr_end(&c);
}

/* Gradients of linear from that of its result. */
static void linear_gradients(fl_expr *expr, fl_grad *g, fl_tensor *dy)
{
    const fl_meta *bias = g->in_meta[FL_LINEAR_BIAS];
    fl_tensor *dx = g->need[FL_LINEAR_X] ? expr_gemm(expr, dy, g->in[FL_LINEAR_WEIGHT].tensor, false, false) : NULL;
    fl_tensor *dw = NULL;
    if (g->need[FL_LINEAR_WEIGHT] && dy)
        dw = gradient_contract(expr, g, FL_LINEAR_WEIGHT, dy, g->in[FL_LINEAR_X].tensor);
    fl_tensor *db = NULL;
    if (g->need[FL_LINEAR_BIAS]) {
        int rows = g->out_meta[0]->shape.ndim - bias->shape.ndim;
        db = rows > 0 ? expr_sum(expr, dy, (1u << rows) - 1, false) : dy;
    }
    if (dx) g->gin[FL_LINEAR_X] = fl_expr_take(expr, dx);
    if (dw) g->gin[FL_LINEAR_WEIGHT] = fl_expr_take(expr, dw);
    if (db) g->gin[FL_LINEAR_BIAS] = fl_expr_take(expr, db);
}

/* By the expressions, but for a gradient of the weight that is added to others. */
fl_status fl_linear_grad(fl_grad *g)
{
    fl_expr c = {0};
    fl_grad rest = *g;
    bool need[] = {g->need[FL_LINEAR_X], g->need[FL_LINEAR_WEIGHT], g->need[FL_LINEAR_BIAS]};
    if (need[FL_LINEAR_WEIGHT]) {
        fl_tensor *dw = gradient_contract(&c, g, FL_LINEAR_WEIGHT, g->gout[0], g->in[FL_LINEAR_X].tensor);
        if (dw) g->gin[FL_LINEAR_WEIGHT] = fl_expr_take(&c, dw);
        FL_TRY(fl_expr_end(&c));
        need[FL_LINEAR_WEIGHT] = false;
    }
    rest.need = need;
    return fl_vjp_eval(&rest);
}

/* The result is positive exactly where relu passed the product through. */
fl_status fl_linear_relu_grad(fl_grad *g)
{
    fl_expr c = {0};
    linear_gradients(&c, g, EXPR_CALL(&c, NULL, relu_backward, fl_of(g->gout[0]), fl_of(g->out[0])));
    return fl_expr_end(&c);
}

/* A product that was not kept is made again. */
static fl_tensor *gelu_gradient(fl_expr *expr, const fl_grad *g)
{
    fl_tensor *before = g->out[FL_GELU_KEPT];
    if (!fl_gelu_keeps_product(g->attrs))
        before = EXPR_CALL(expr, NULL, linear, g->in[FL_LINEAR_X], g->in[FL_LINEAR_WEIGHT], g->in[FL_LINEAR_BIAS]);
    return g->attrs->at[FL_GELU_APPROXIMATE].integer
        ? EXPR_CALL(expr, NULL, gelu_tanh_backward, fl_of(g->gout[0]), fl_of(before))
        : EXPR_CALL(expr, NULL, gelu_backward, fl_of(g->gout[0]), fl_of(before));
}

fl_status fl_linear_gelu_grad(fl_grad *g)
{
    fl_expr c = {0};
    fl_tensor *dy = g->gout[0] ? gelu_gradient(&c, g) : NULL,
              *kept = fl_gelu_keeps_product(g->attrs) ? g->gout[FL_GELU_KEPT] : NULL;
    if (kept) dy = dy ? expr_add(&c, dy, kept) : kept;
    if (dy) linear_gradients(&c, g, dy);
    return fl_expr_end(&c);
}

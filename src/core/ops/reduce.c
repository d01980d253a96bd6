/*
** reduce.c -- inference, signatures, kernels and gradients that reductions have in common: see reduce.h.
*/
#include "op/views.h"
#include "reduce.h"
#include "cpu/tiles.h"

/* ---- inference and kernels ---- */

fl_status fl_reduce_infer(fl_infer *infer, fl_reduce_slots at, fl_dtype dtype)
{
    uint32_t mask;
    FL_TRY(fl_reduce_axes(&mask, infer->name, &infer->attrs->at[at.axis], &infer->in[0].shape));
    fl_reduce_shape(&infer->out[0].shape, &infer->in[0].shape, mask, infer->attrs->at[at.keepdim].integer != 0);
    infer->out[0].dtype = dtype;
    return FL_OK;
}

fl_status fl_reduce_infer_float(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return fl_reduce_infer(infer, fl_reduce_usual, infer->in[0].dtype);
}

fl_shape fl_reduce_logical_shape(const fl_view *view)
{
    fl_shape shape = {.ndim = view->ndim};
    for (int i = 0; i < view->ndim; i++) shape.dims[i] = view->logical[i];
    return shape;
}

int64_t fl_reduce_count(const fl_shape *shape, uint32_t mask)
{
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++)
        if (mask >> i & 1u) count *= shape->dims[i];
    return count;
}

/* Elements of each result where they follow each other in row-major order; 0: they do not. */
static int64_t run_of(const fl_view *view, uint32_t mask)
{
    int64_t run = 1;
    int axis = view->ndim;
    while (axis > 0 && (mask >> (axis - 1) & 1u)) run *= view->size[--axis];
    return mask >> axis << axis == mask ? run : 0;
}

/* The operand is computed on the way, or else before. */
static fl_status reduce_source(fl_kernel *kernel, uint32_t mask, const fl_reduce_job *job)
{
    fl_view *x = &kernel->in[0];
    int64_t run = run_of(x, mask);
    if (run && fl_cpu_reduce_takes_tiles(x->numel, run, job)) {
        fl_tiles tiles;
        int slot;
        if (kernel->source->tiles(kernel->source, &tiles, &slot))
            return fl_cpu_reduce_tiles(&kernel->out[0], &tiles, slot, run, job);
    }
    x->data = kernel->source->data(kernel->source);
    if (!x->data) return FL_ERR_MEMORY; /* the message is there */
    return fl_cpu_reduce(&kernel->out[0], x, mask, job);
}

fl_status fl_reduce_run(fl_kernel *kernel, fl_reduce_slots at, fl_reduce_job job)
{
    uint32_t mask;
    fl_shape shape = fl_reduce_logical_shape(&kernel->in[0]);
    FL_TRY(fl_reduce_axes(&mask, kernel->name, &kernel->attrs->at[at.axis], &shape));
    job.name = kernel->name;
    job.logical_count = fl_reduce_count(&shape, mask);
    if (kernel->source) return reduce_source(kernel, mask, &job);
    return fl_cpu_reduce(&kernel->out[0], &kernel->in[0], mask, &job);
}

/* ---- SBP ---- */

int fl_reduce_axis_after(int axis, uint32_t mask, bool keepdim)
{
    return keepdim ? axis : axis - __builtin_popcount(mask & ((1u << axis) - 1));
}

void fl_reduce_sigs(fl_sigs *sigs, uint32_t mask, bool keepdim, fl_sbp partial, fl_body body)
{
    fl_sbp sig[1 + FL_MAX_OUT];
    bool nothing = body && fl_reduce_count(&sigs->in_logical[0], mask) == 0;
    if (nothing) partial = FL_B;
    for (int axis = 0; axis < sigs->in_logical[0].ndim; axis++) {
        bool reduced = mask >> axis & 1u;
        if (reduced && partial == FL_B && !body) continue;
        sig[0] = FL_S(axis);
        for (int i = 0; i < sigs->nout; i++)
            sig[1 + i] = reduced ? partial : FL_S(fl_reduce_axis_after(axis, mask, keepdim));
        fl_sig_add(sigs, reduced && !nothing ? body : NULL, sig);
    }
}

void fl_reduce_sbp(fl_sigs *sigs, fl_reduce_slots at, fl_sbp partial, fl_body body)
{
    uint32_t mask;
    if (fl_reduce_axes(&mask, sigs->op->name, &sigs->attrs->at[at.axis], &sigs->in_logical[0]) != FL_OK)
        return; /* inference has accepted them */
    fl_reduce_sigs(sigs, mask, sigs->attrs->at[at.keepdim].integer != 0, partial, body);
}

void fl_reduce_sbp_largest(fl_sigs *sigs)
{
    fl_reduce_sbp(sigs, fl_reduce_usual, FL_PMAX, NULL);
    fl_sbp_partial(sigs, 1, FL_PMAX);
}

void fl_reduce_sbp_smallest(fl_sigs *sigs)
{
    fl_reduce_sbp(sigs, fl_reduce_usual, FL_PMIN, NULL);
    fl_sbp_partial(sigs, 1, FL_PMIN);
}

/* ---- gradients ---- */

fl_tensor *expr_unreduce(fl_expr *expr, fl_tensor *tensor, const fl_shape *shape, uint32_t mask)
{
    fl_shape kept;
    fl_attrs sizes;
    fl_reduce_shape(&kept, shape, mask, true);
    fl_tensor *whole = expr_reshape(expr, tensor, &kept);
    if (expr->status != FL_OK) return NULL;
    fl_attrs_init(&sizes, FL_OP_REF(expand));
    fl_attr_set_list(&sizes, FL_VIEW_SIZE, shape->dims, shape->ndim);
    return EXPR_CALL(expr, &sizes, expand, fl_of(whole));
}

fl_status fl_reduce_grad_axes(uint32_t *mask, const fl_grad *g, fl_reduce_slots at)
{
    return fl_reduce_axes(mask, g->op->name, &g->attrs->at[at.axis], &g->in_meta[0]->shape);
}

fl_status fl_reduce_end_grad(fl_grad *g, fl_expr *expr, fl_tensor *result)
{
    g->gin[0] = fl_expr_take(expr, result);
    return fl_expr_end(expr);
}

fl_tensor *expr_zero_where(fl_expr *expr, fl_tensor *divisor, fl_tensor *tensor)
{
    fl_tensor *hit = EXPR_CALL(expr, NULL, eq, fl_of(divisor), fl_of_integer(0));
    return EXPR_CALL(expr, NULL, where, fl_of(hit), fl_of_integer(0), fl_of(tensor));
}

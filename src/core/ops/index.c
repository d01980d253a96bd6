/*
** index.c -- reading by tensors of positions or masks: x[index], masked_select, nonzero.
**
** A mask is turned into positions on the host, because the result's shape depends on it; everything else is
** index_select and its like. Positions may be negative (counted from the end): wrap_index makes them plain and names
** the first one out of range.
*/
#include "index.h"
#include "boxing/boxing.h"
#include "dispatch/to_global.h"
#include "op/indexing.h"
#include "op/views.h"
#include "cpu/indices.h"
#include "ops.h"

/* ---- positions ---- */

static fl_status infer_wrap(fl_infer *infer)
{
    if (!fl_dtype_is_integer(infer->in[0].dtype))
        return fl_fail(FL_ERR_DTYPE, "index: positions must be integers, a mask bool; this is %s",
                       fl_dtype_name(infer->in[0].dtype));
    FL_TRY(fl_infer_same(infer));
    infer->out[0].dtype = FL_INT64;
    return FL_OK;
}

static fl_status kernel_wrap(fl_kernel *kernel)
{
    int64_t *at = kernel->out[0].data, size = kernel->attrs->at[FL_WRAP_SIZE].integer;
    FL_TRY(fl_cpu_copy(&kernel->out[0], &kernel->in[0]));
    return fl_indices_wrap(at, kernel->out[0].numel, size);
}

/* Element by element, and not linear: a part of a sum is no index. */
static void sbp_each(fl_sigs *sigs) { fl_sbp_except(sigs, 0); }

static const char *const wrap_samples[] = {"flow.tensor({0, -1, 2}), 3",
                                           "flow.tensor({{-4, 3}}, {dtype = \"int8\"}), 4", NULL};
FL_OP(wrap_index) = {
    .name = "wrap_index",
    .sig = "wrap_index(index, ~size: int)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_BY_STEP | FL_OP_NO_GRAD,
    .doc = "Positions along an axis of that size; negative ones count from the end.",
    .infer = infer_wrap,
    .sbp = sbp_each,
    .cpu = kernel_wrap,
    .samples = wrap_samples,
};

/* x whole on every rank of the world: ranks outside of its placement count too, since the result's shape is theirs as
** well. In the dry world, without communication, on its placement alone. */
static fl_status whole_here(fl_tensor **out, fl_tensor *x, const char *who)
{
    const fl_placement *own = x->meta->placement, *all = fl_world_get()->dry ? own : fl_placement_everywhere(own);
    if (!all) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", who);
    fl_nd_sbp whole = fl_nd_sbp_fill(FL_B, all->ndim);
    if (x->meta->is_local || (all == own && fl_nd_sbp_equal(x->meta->nd_sbp, whole))) *out = fl_tensor_ref(x);
    else FL_TRY(fl_to_global(out, x, all, whole, NULL));
    return FL_OK;
}

/* x as a local bool tensor on the host, whole and contiguous; its values are there. */
static fl_status mask_here(fl_tensor **out, fl_tensor *x, const char *who)
{
    fl_tensor *mask, *next;
    fl_status status = fl_meta_check_values(x->meta);
    if (status != FL_OK) return fl_fail_prefix(status, "%s: ", who);
    FL_TRY(whole_here(&mask, x, who));
    if (x->meta->dtype != FL_BOOL || !mask->contiguous) {
        if (x->meta->dtype == FL_BOOL) status = FL_CALL(&next, clone, fl_of(mask));
        else status = FL_CALL(&next, ne, fl_of(mask), fl_of_integer(0));
        fl_tensor_unref(mask);
        FL_TRY(status);
        mask = next;
    }
    if (mask->meta->holds) status = fl_host_part(out, mask);
    else
        status = fl_fail(FL_ERR_SBP,
                         "%s: this rank holds no part of the tensor, so the number of elements is unknown here", who);
    fl_tensor_unref(mask);
    return status;
}

/* The positions of a mask `values` that is like `from`, beside that mask. */
static fl_status positions_new(fl_tensor **out, const fl_shape *shape, const uint8_t *values, const fl_meta *from,
                               bool columns)
{
    const fl_placement *p = from->placement, *host;
    const fl_meta *meta = NULL, *listed = NULL;
    fl_tensor *list = NULL;
    fl_status status = fl_placement_on_cpu(&host, p);
    if (status == FL_OK)
        status = fl_meta_get(&listed, FL_INT64, shape, host, fl_nd_sbp_fill(FL_B, p->ndim), from->is_local);
    if (status == FL_OK) status = fl_meta_get(&meta, FL_INT64, shape, p, fl_nd_sbp_fill(FL_B, p->ndim), from->is_local);
    if (status == FL_OK) status = fl_tensor_empty(&list, listed);
    if (status == FL_OK) {
        if (list->meta->holds) fl_mask_positions(fl_tensor_data(list), values, &from->shape, shape->dims[0], columns);
        status = fl_boxing_apply(out, list, meta);
    }
    fl_tensor_unref(list);
    if (listed) fl_meta_unref(listed);
    if (meta) fl_meta_unref(meta);
    return status;
}

fl_status fl_index_true(fl_tensor **out, fl_tensor *x, bool columns, const char *who)
{
    fl_tensor *mask;
    const fl_meta *from = x->meta;
    FL_TRY(mask_here(&mask, x, who));
    const uint8_t *values = fl_tensor_data(mask);
    fl_shape shape = {columns ? 2 : 1, {fl_mask_count(values, from->numel), columns ? from->shape.ndim : 0}};
    fl_status status = positions_new(out, &shape, values, from, columns);
    fl_tensor_unref(mask);
    return status;
}

static fl_status body_nonzero(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return fl_index_true(out, in[0].tensor, true, "nonzero");
}

static const char *const nonzero_samples[] = {"flow.tensor({{0, 2}, {3, 0}})", "flow.randn(4):gt(0)",
                                              "flow.tensor(3.0)", "flow.zeros(0, 2)", NULL};
FL_OP(nonzero) = {
    .name = "nonzero",
    .sig = "nonzero(x)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_BY_NAME | FL_OP_NO_GRAD | FL_OP_LOCAL_ONLY,
    .doc = "The positions of nonzero elements: one row per element, one column per axis.",
    .body = body_nonzero,
    .samples = nonzero_samples,
};

/* ---- small calls ---- */

fl_status fl_index_expand(fl_tensor **out, fl_tensor *x, const int64_t *sizes, int ndim)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(expand));
    fl_attr_set_list(&attrs, FL_VIEW_SIZE, sizes, ndim);
    return FL_CALL_WITH(out, &attrs, expand, fl_of(x));
}

/* The calls below replace *tensor by the result. */
static fl_status replace(fl_tensor **tensor, fl_status status, fl_tensor *next)
{
    FL_TRY(status);
    fl_tensor_unref(*tensor);
    *tensor = next;
    return FL_OK;
}

static fl_status selected(fl_tensor **out, fl_tensor *x, int axis, fl_tensor *positions)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(index_select));
    fl_attr_set(&attrs, FL_INDEXED_AXIS, axis);
    return FL_CALL_WITH(out, &attrs, index_select, fl_of(x), fl_of(positions));
}

fl_status fl_index_shape(fl_shape *out, const char *who, const fl_shape *shape, int axis, int count,
                         const fl_shape *middle)
{
    int ndim = shape->ndim - count + middle->ndim;
    int64_t dims[2 * FL_MAX_NDIM];
    for (int i = 0; i < ndim; i++)
        dims[i] = i < axis            ? shape->dims[i]
            : i < axis + middle->ndim ? middle->dims[i - axis]
                                      : shape->dims[i - middle->ndim + count];
    return fl_shape_make(out, who, dims, ndim);
}

fl_status fl_index_mask_axis(fl_tensor **x, fl_tensor **mask, int axis, const char *who)
{
    static const fl_shape one = {1, {1}};
    fl_shape shape;
    FL_TRY(fl_index_shape(&shape, who, &(*x)->meta->shape, axis, 0, &one));
    FL_TRY(fl_reshaped(mask, *mask, one.dims, 1));
    fl_status status = fl_reshaped(x, *x, shape.dims, shape.ndim);
    if (status != FL_OK) fl_tensor_unref(*mask);
    return status;
}

fl_status fl_index_check_mask(const char *who, const fl_tensor *x, const fl_tensor *mask, int axis)
{
    const fl_shape *xs = &x->meta->shape, *ms = &mask->meta->shape;
    bool fits = axis + ms->ndim <= xs->ndim && ms->ndim > 0;
    for (int i = 0; fits && i < ms->ndim; i++) fits = ms->dims[i] == xs->dims[axis + i];
    if (fits) return FL_OK;
    char x_text[FL_SHAPE_TEXT], mask_text[FL_SHAPE_TEXT];
    return fl_fail(FL_ERR_SHAPE, "%s: mask %s does not fit x %s from axis %d on", who, fl_shape_text(mask_text, ms),
                   fl_shape_text(x_text, xs), axis);
}

fl_status fl_index_merge(fl_tensor **out, fl_tensor *x, int axis, int count, const char *who)
{
    fl_shape shape, one = {1, {1}};
    for (int i = 0; i < count; i++) one.dims[0] *= x->meta->shape.dims[axis + i];
    FL_TRY(fl_index_shape(&shape, who, &x->meta->shape, axis, count, &one));
    return fl_reshaped(out, x, shape.dims, shape.ndim);
}

fl_status fl_index_positions(fl_tensor **out, fl_tensor *index, int64_t size, const char *who)
{
    if (index->meta->dtype == FL_BOOL) return fl_index_true(out, index, false, who);
    fl_tensor *wrapped;
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(wrap_index));
    fl_attr_set(&attrs, FL_WRAP_SIZE, size);
    FL_TRY(FL_CALL_WITH(&wrapped, &attrs, wrap_index, fl_of(index)));
    fl_status status = fl_reshaped(out, wrapped, (int64_t[]){index->meta->numel}, 1);
    fl_tensor_unref(wrapped);
    return status;
}

fl_status fl_index_axis(int *axis, const char *who, const fl_tensor *x, int64_t given)
{
    if (x->meta->shape.ndim == 0) return fl_fail(FL_ERR_SHAPE, "%s: x has no axes", who);
    return fl_shape_axis(axis, who, given, &x->meta->shape);
}

/* ---- reading ---- */

static fl_status take_masked(fl_tensor **out, fl_tensor *x, fl_tensor *mask, int axis, const char *who)
{
    fl_tensor *flat, *positions;
    FL_TRY(fl_index_check_mask(who, x, mask, axis));
    FL_TRY(fl_index_merge(&flat, x, axis, mask->meta->shape.ndim, who));
    fl_status status = fl_index_true(&positions, mask, false, who);
    if (status == FL_OK) {
        status = selected(out, flat, axis, positions);
        fl_tensor_unref(positions);
    }
    fl_tensor_unref(flat);
    return status;
}

static fl_status body_index(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[FL_TAKEN_X].tensor, *index = in[FL_TAKEN_INDEX].tensor, *positions, *taken;
    fl_shape shape;
    int axis;
    if (index->meta->dtype == FL_BOOL && index->meta->shape.ndim == 0) {
        axis = (int)attrs->at[FL_INDEXED_AXIS].integer;
        FL_TRY(fl_index_mask_axis(&x, &index, axis, "index"));
        fl_status status = take_masked(out, x, index, axis, "index");
        fl_tensor_unref(x);
        fl_tensor_unref(index);
        return status;
    }
    FL_TRY(fl_index_axis(&axis, "index", x, attrs->at[FL_INDEXED_AXIS].integer));
    if (index->meta->dtype == FL_BOOL) return take_masked(out, x, index, axis, "index");
    FL_TRY(fl_index_shape(&shape, "index", &x->meta->shape, axis, 1, &index->meta->shape));
    FL_TRY(fl_index_positions(&positions, index, x->meta->shape.dims[axis], "index"));
    fl_status status = selected(&taken, x, axis, positions);
    fl_tensor_unref(positions);
    FL_TRY(status);
    if (index->meta->shape.ndim == 1) {
        *out = taken;
        return FL_OK;
    }
    status = fl_reshaped(out, taken, shape.dims, shape.ndim);
    fl_tensor_unref(taken);
    return status;
}

static const char *const index_samples[] = {"flow.randn(4, 3), flow.tensor({0, 2, -1})",
                                            "flow.randn(2, 5), flow.tensor({{1, 0}, {4, 4}}), 1",
                                            "flow.randn(4, 3), flow.tensor(2)",
                                            "flow.randn(4, 3), flow.tensor({true, false, true, true})",
                                            "flow.randn(2, 2, 3), flow.tensor({{true, false}, {false, true}})",
                                            NULL};
FL_OP(index) = {
    .name = "index",
    .sig = "index(x, index, axis: axis = 0)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY,
    .doc = "x[index]: the elements at the positions of an integer tensor along an axis, or those where a mask is true.",
    .body = body_index,
    .samples = index_samples,
};

static fl_status body_masked_select(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[FL_TAKEN_X].tensor, *mask = in[FL_TAKEN_INDEX].tensor, *wide, *wide_mask;
    fl_shape shape;
    if (mask->meta->dtype != FL_BOOL)
        return fl_fail(FL_ERR_DTYPE, "masked_select: mask must be bool, not %s", fl_dtype_name(mask->meta->dtype));
    FL_TRY(fl_shape_broadcast(&shape, "masked_select", &x->meta->shape, &mask->meta->shape));
    FL_TRY(fl_index_expand(&wide, x, shape.dims, shape.ndim));
    fl_status status = fl_index_expand(&wide_mask, mask, shape.dims, shape.ndim);
    if (status == FL_OK && shape.ndim == 0) { /* one element: a list of one or none */
        fl_tensor *next;
        status = fl_reshaped(&next, wide, (int64_t[]){1}, 1);
        status = replace(&wide, status, next);
        if (status == FL_OK) {
            status = fl_reshaped(&next, wide_mask, (int64_t[]){1}, 1);
            status = replace(&wide_mask, status, next);
        }
        if (status != FL_OK) fl_tensor_unref(wide_mask);
    }
    if (status == FL_OK) {
        status = take_masked(out, wide, wide_mask, 0, "masked_select");
        fl_tensor_unref(wide_mask);
    }
    fl_tensor_unref(wide);
    return status;
}

static const char *const masked_select_samples[] = {"flow.randn(3, 4), flow.randn(3, 4):gt(0)",
                                                    "flow.randn(3, 4), flow.tensor({true, false, true, true})", NULL};
FL_OP(masked_select) = {
    .name = "masked_select",
    .sig = "masked_select(x, mask)",
    .nout = 1,
    .flags = FL_OP_LOCAL_ONLY,
    .doc = "The elements of x where the mask (broadcast to x) is true, as a 1-D tensor.",
    .body = body_masked_select,
    .samples = masked_select_samples,
};

/*
** index.c -- reading and writing by tensors of positions or masks: x[index], x[index] = v, nonzero.
**
** A mask is turned into positions on the host, because the result's shape depends on it; everything else is
** index_select and its like. Positions may be negative (counted from the end): wrap_index makes them plain and names
** the first one out of range.
*/
#include "boxing/boxing.h"
#include "dispatch/to_global.h"
#include "op/indexing.h"
#include "op/views.h"
#include "cpu/indices.h"
#include "cpu/pick.h"
#include "cpu/scatter.h"
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
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
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
        if (list->meta->holds) fl_mask_positions(fl_tensor_data(list), values, &from->shape, from->numel, columns);
        status = fl_boxing_apply(out, list, meta);
    }
    fl_tensor_unref(list);
    if (listed) fl_meta_unref(listed);
    if (meta) fl_meta_unref(meta);
    return status;
}

/* Positions of the true elements of a mask, where the mask is: [count] in memory order, or [count, ndim] with one
** column per axis. */
static fl_status true_positions(fl_tensor **out, fl_tensor *x, bool columns, const char *who)
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
    return true_positions(out, in[0].tensor, true, "nonzero");
}

static const char *const nonzero_samples[] = {"flow.tensor({{0, 2}, {3, 0}})", "flow.randn(4):gt(0)",
                                              "flow.tensor(3.0)", "flow.zeros(0, 2)", NULL};
FL_OP(nonzero) = {
    .name = "nonzero",
    .sig = "nonzero(x)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD | FL_OP_LOCAL_ONLY,
    .doc = "The positions of nonzero elements: one row per element, one column per axis.",
    .body = body_nonzero,
    .samples = nonzero_samples,
};

/* ---- small calls ---- */

static fl_status expanded(fl_tensor **out, fl_tensor *x, const int64_t *sizes, int ndim)
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

/* `shape` with `count` axes from `axis` on replaced by the axes of `middle`. */
static fl_status spliced(fl_shape *out, const char *who, const fl_shape *shape, int axis, int count,
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

/* A mask without axes has a new axis of x for itself. */
static fl_status with_mask_axis(fl_tensor **x, fl_tensor **mask, int axis, const char *who)
{
    static const fl_shape one = {1, {1}};
    fl_shape shape;
    FL_TRY(spliced(&shape, who, &(*x)->meta->shape, axis, 0, &one));
    FL_TRY(fl_reshaped(mask, *mask, one.dims, 1));
    fl_status status = fl_reshaped(x, *x, shape.dims, shape.ndim);
    if (status != FL_OK) fl_tensor_unref(*mask);
    return status;
}

/* The mask covers the axes of x from `axis` on. */
static fl_status check_mask(const char *who, const fl_tensor *x, const fl_tensor *mask, int axis)
{
    const fl_shape *xs = &x->meta->shape, *ms = &mask->meta->shape;
    bool fits = axis + ms->ndim <= xs->ndim && ms->ndim > 0;
    for (int i = 0; fits && i < ms->ndim; i++) fits = ms->dims[i] == xs->dims[axis + i];
    if (fits) return FL_OK;
    char x_text[FL_SHAPE_TEXT], mask_text[FL_SHAPE_TEXT];
    return fl_fail(FL_ERR_SHAPE, "%s: mask %s does not fit x %s from axis %d on", who, fl_shape_text(mask_text, ms),
                   fl_shape_text(x_text, xs), axis);
}

/* x with the axes a mask covers as one axis. */
static fl_status merged(fl_tensor **out, fl_tensor *x, int axis, int count, const char *who)
{
    fl_shape shape, one = {1, {1}};
    for (int i = 0; i < count; i++) one.dims[0] *= x->meta->shape.dims[axis + i];
    FL_TRY(spliced(&shape, who, &x->meta->shape, axis, count, &one));
    return fl_reshaped(out, x, shape.dims, shape.ndim);
}

/* Positions along one axis, from integers or a mask, as one list. */
static fl_status flat_positions(fl_tensor **out, fl_tensor *index, int64_t size, const char *who)
{
    if (index->meta->dtype == FL_BOOL) return true_positions(out, index, false, who);
    fl_tensor *wrapped;
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(wrap_index));
    fl_attr_set(&attrs, FL_WRAP_SIZE, size);
    FL_TRY(FL_CALL_WITH(&wrapped, &attrs, wrap_index, fl_of(index)));
    fl_status status = fl_reshaped(out, wrapped, (int64_t[]){index->meta->numel}, 1);
    fl_tensor_unref(wrapped);
    return status;
}

static fl_status indexed_axis(int *axis, const char *who, const fl_tensor *x, int64_t given)
{
    if (x->meta->shape.ndim == 0) return fl_fail(FL_ERR_SHAPE, "%s: x has no axes", who);
    return fl_shape_axis(axis, who, given, &x->meta->shape);
}

/* ---- reading ---- */

static fl_status take_masked(fl_tensor **out, fl_tensor *x, fl_tensor *mask, int axis, const char *who)
{
    fl_tensor *flat, *positions;
    FL_TRY(check_mask(who, x, mask, axis));
    FL_TRY(merged(&flat, x, axis, mask->meta->shape.ndim, who));
    fl_status status = true_positions(&positions, mask, false, who);
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
        FL_TRY(with_mask_axis(&x, &index, axis, "index"));
        fl_status status = take_masked(out, x, index, axis, "index");
        fl_tensor_unref(x);
        fl_tensor_unref(index);
        return status;
    }
    FL_TRY(indexed_axis(&axis, "index", x, attrs->at[FL_INDEXED_AXIS].integer));
    if (index->meta->dtype == FL_BOOL) return take_masked(out, x, index, axis, "index");
    FL_TRY(spliced(&shape, "index", &x->meta->shape, axis, 1, &index->meta->shape));
    FL_TRY(flat_positions(&positions, index, x->meta->shape.dims[axis], "index"));
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
    FL_TRY(expanded(&wide, x, shape.dims, shape.ndim));
    fl_status status = expanded(&wide_mask, mask, shape.dims, shape.ndim);
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

/* ---- writing ---- */

static fl_status require_positions(const fl_infer *infer, int operand)
{
    if (fl_dtype_is_integer(infer->in[operand].dtype)) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_DTYPE, "index must be a tensor of integers, not %s",
                         fl_dtype_name(infer->in[operand].dtype));
}

/* Rows of x along `axis`, at plain positions. */
static fl_status infer_index_write(fl_infer *infer)
{
    const fl_shape *x = &infer->in[FL_WRITE_X].shape, *index = &infer->in[FL_WRITE_INDEX].shape;
    int axis = fl_axis_of(&infer->attrs->at[FL_INDEXED_AXIS], x->ndim);
    infer->name = "index_put_";
    FL_TRY(require_positions(infer, FL_WRITE_INDEX));
    if (index->ndim != 1) return fl_infer_fail(infer, FL_ERR_SHAPE, "index must have one axis");
    if (infer->in[FL_WRITE_VALUE].kind == FL_TENSOR) {
        fl_shape rows, broadcast;
        char value[FL_SHAPE_TEXT], wanted[FL_SHAPE_TEXT];
        FL_TRY(spliced(&rows, infer->name, x, axis, 1, index));
        bool fits = fl_shape_broadcast(&broadcast, infer->name, &rows, &infer->in[FL_WRITE_VALUE].shape) == FL_OK
            && fl_shape_equal(&broadcast, &rows);
        if (!fits)
            return fl_infer_fail(infer, FL_ERR_SHAPE, "value %s does not broadcast to %s",
                                 fl_shape_text(value, &infer->in[FL_WRITE_VALUE].shape), fl_shape_text(wanted, &rows));
    }
    return fl_infer_same(infer);
}

/* A number, or a value of another dtype or in one element, is converted first. */
static fl_status kernel_index_write(fl_kernel *kernel)
{
    const fl_view *value = &kernel->in[FL_WRITE_VALUE], *out = &kernel->out[0];
    int axis = fl_axis_of(&kernel->attrs->at[FL_INDEXED_AXIS], out->ndim);
    int64_t number[1] = {0};
    fl_view one = {.data = number, .dtype = out->dtype, .contiguous = true, .numel = 1};
    if (value->data != value->scalar && value->dtype == out->dtype)
        return fl_cpu_write_slices(kernel, axis, value, "index_put_");
    if (value->data != value->scalar)
        return fl_cpu_write_rows(out, &kernel->in[FL_WRITE_INDEX], value, axis, "index_put_");
    FL_TRY(fl_cpu_copy(&one, value));
    return fl_cpu_write_slices(kernel, axis, &one, "index_put_");
}

/* Every rank writes the positions in its own window, so the index is whole. value is split along with x except along
** the indexed axis, where any entry may belong to any rank. Partial sums are overwritten by partial sums of value. */
static void sbp_index_write(fl_sigs *sigs)
{
    const fl_shape *x = &sigs->in_logical[FL_WRITE_X];
    int axis = fl_axis_of(&sigs->attrs->at[FL_INDEXED_AXIS], x->ndim);
    bool tensor = sigs->in[FL_WRITE_VALUE].kind == FL_TENSOR;
    for (int i = 0; i < x->ndim; i++) {
        int own = tensor ? i - (x->ndim - sigs->in_logical[FL_WRITE_VALUE].ndim) : -1;
        bool along = i != axis && own >= 0 && sigs->in_logical[FL_WRITE_VALUE].dims[own] == x->dims[i];
        FL_SIG(sigs, NULL, FL_S(i), FL_B, along ? FL_S(own) : FL_B, FL_S(i));
    }
    if (tensor && fl_sbp_sum_exact(sigs->in[FL_WRITE_VALUE].dtype, sigs->in[FL_WRITE_X].dtype))
        FL_SIG(sigs, NULL, FL_PSUM, FL_B, FL_PSUM, FL_PSUM);
}

/* What is overwritten has no gradient; each entry of value has that of its position. */
static const char *const index_write_vjp[] = {"index_zero(g, index, axis)", NULL, "index_select(g, axis, index)"};
static const char *const index_write_samples[] = {"flow.randn(4, 3), flow.tensor({2, 0}), flow.randn(2, 3), 0",
                                                  "flow.randn(2, 5), flow.tensor({4}), 1.5, 1",
                                                  "flow.randn(4, 3), flow.tensor({1, 3}), flow.randn(3), 0", NULL};
FL_OP(index_write_) = {
    .name = "index_write_",
    .sig = "index_write_(x, index, value|n, axis: axis)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .mutates = 1,
    .doc = "Writes value at the positions of index along an axis; of equal positions the last is kept.",
    .infer = infer_index_write,
    .sbp = sbp_index_write,
    .cpu = kernel_index_write,
    .vjp = index_write_vjp,
    .samples = index_write_samples,
};

static fl_status infer_index_zero(fl_infer *infer)
{
    FL_TRY(require_positions(infer, FL_WRITE_INDEX));
    return fl_infer_same(infer);
}

static fl_status kernel_index_zero(fl_kernel *kernel)
{
    FL_TRY(fl_cpu_copy(&kernel->out[0], &kernel->in[0]));
    if (kernel->out[0].numel == 0) return FL_OK;
    const int64_t none[1] = {0};
    fl_view zero = {.data = (void *)none, .dtype = kernel->out[0].dtype, .contiguous = true, .numel = 1};
    return fl_cpu_write_slices(kernel, fl_axis_of(&kernel->attrs->at[FL_INDEXED_AXIS], kernel->out[0].ndim), &zero,
                               "index_zero");
}

/* Zeros in every part are zeros of the sum. */
static void sbp_index_zero(fl_sigs *sigs)
{
    for (int i = 0; i < sigs->in_logical[0].ndim; i++) FL_SIG(sigs, NULL, FL_S(i), FL_B, FL_S(i));
    if (sigs->in[0].dtype != FL_BOOL) FL_SIG(sigs, NULL, FL_PSUM, FL_B, FL_PSUM);
}

/* A mask of positions is its own transpose. */
static const char *const index_zero_vjp[] = {"index_zero(g, index, axis)", NULL};
static const char *const index_zero_samples[] = {"flow.randn(4, 3), flow.tensor({2, 0}), 0",
                                                 "flow.randn(4, 3), flow.tensor({1}), 1", NULL};
FL_OP(index_zero) = {
    .name = "index_zero",
    .sig = "index_zero(x, index, axis: axis)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "x with zeros at the positions of index along an axis.",
    .infer = infer_index_zero,
    .sbp = sbp_index_zero,
    .cpu = kernel_index_zero,
    .vjp = index_zero_vjp,
    .samples = index_zero_samples,
};

static fl_status write_positions(fl_tensor *x, int axis, fl_tensor *positions, fl_operand value)
{
    fl_tensor *same;
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(index_write_));
    fl_attr_set(&attrs, FL_INDEXED_AXIS, axis);
    FL_TRY(FL_CALL_WITH(&same, &attrs, index_write_, fl_of(x), fl_of(positions), value));
    fl_tensor_unref(same);
    return FL_OK;
}

/* A single value as an element of `dtype` holds it: masked_fill refuses one of a higher category, writing converts. */
static fl_status held_by(fl_operand *value, fl_tensor **owned, fl_dtype dtype)
{
    if (value->kind == FL_TENSOR) {
        fl_attrs attrs;
        fl_attrs_init(&attrs, FL_OP_REF(cast));
        fl_attr_set(&attrs, FL_CAST_DTYPE, dtype);
        FL_TRY(FL_CALL_WITH(owned, &attrs, cast, *value));
        *value = fl_of(*owned);
    } else if (dtype == FL_BOOL) {
        value->integer = value->kind == FL_NUM_FLOAT ? value->number != 0 : value->integer != 0;
        value->kind = FL_NUM_BOOL;
    } else if (fl_dtype_is_integer(dtype) && value->kind == FL_NUM_FLOAT)
        *value = fl_of_integer((int64_t)value->number);
    return FL_OK;
}

/* One number wherever the mask is true. */
static fl_status fill_masked(fl_tensor *x, fl_tensor *mask, int axis, fl_operand value)
{
    fl_tensor *wide, *same, *cast = NULL;
    int64_t sizes[FL_MAX_NDIM];
    int ndim = x->meta->shape.ndim - axis;
    for (int i = 0; i < ndim; i++) sizes[i] = i < mask->meta->shape.ndim ? mask->meta->shape.dims[i] : 1;
    FL_TRY(held_by(&value, &cast, x->meta->dtype));
    fl_status status = fl_reshaped(&wide, mask, sizes, ndim);
    if (status == FL_OK) {
        fl_operand in[] = {fl_of(x), fl_of(wide), value};
        status = fl_dispatch_inplace(&same, FL_OP_REF(masked_fill), in, 3, NULL);
        fl_tensor_unref(wide);
    }
    fl_tensor_unref(cast);
    FL_TRY(status);
    fl_tensor_unref(same);
    return FL_OK;
}

/* A view whose data had to move to other ranks is no target of writes: its copy is. */
static fl_status written_apart(fl_tensor **flat)
{
    fl_tensor *copy;
    if (!(*flat)->moved_view) return FL_OK;
    FL_TRY(FL_CALL(&copy, clone, fl_of(*flat)));
    fl_tensor_unref(*flat);
    *flat = copy;
    return FL_OK;
}

/* A tensor of values where the mask is true: through x with the masked axes as one, which is mostly a view. */
static fl_status put_masked(fl_tensor *x, fl_tensor *mask, int axis, fl_operand value)
{
    fl_tensor *flat, *positions, *back = NULL, *same;
    FL_TRY(merged(&flat, x, axis, mask->meta->shape.ndim, "index_put_"));
    fl_status status = written_apart(&flat);
    if (status == FL_OK) status = true_positions(&positions, mask, false, "index_put_");
    if (status == FL_OK) {
        status = write_positions(flat, axis, positions, value);
        fl_tensor_unref(positions);
    }
    if (status == FL_OK && flat->storage != x->storage) { /* it was a copy */
        status = fl_reshaped(&back, flat, x->meta->shape.dims, x->meta->shape.ndim);
        if (status == FL_OK) {
            status = FL_CALL(&same, copy_, fl_of(x), fl_of(back));
            if (status == FL_OK) fl_tensor_unref(same);
            fl_tensor_unref(back);
        }
    }
    fl_tensor_unref(flat);
    return status;
}

/* A value shaped like the indexed region, with the axes of the index as one. */
static fl_status flat_value(fl_tensor **out, fl_tensor *value, const fl_shape *x, int axis, const fl_tensor *index)
{
    fl_shape region, rows, list = {1, {index->meta->numel}};
    fl_tensor *wide;
    FL_TRY(spliced(&region, "index_put_", x, axis, 1, &index->meta->shape));
    FL_TRY(spliced(&rows, "index_put_", x, axis, 1, &list));
    FL_TRY(expanded(&wide, value, region.dims, region.ndim));
    fl_status status = fl_reshaped(out, wide, rows.dims, rows.ndim);
    fl_tensor_unref(wide);
    return status;
}

static fl_status put_positions(fl_tensor *x, fl_tensor *index, int axis, fl_operand value)
{
    fl_tensor *positions, *flat = NULL;
    FL_TRY(flat_positions(&positions, index, x->meta->shape.dims[axis], "index_put_"));
    fl_status status = FL_OK;
    if (value.kind == FL_TENSOR && index->meta->shape.ndim != 1) {
        status = flat_value(&flat, value.tensor, &x->meta->shape, axis, index);
        value = fl_of(flat);
    }
    if (status == FL_OK) status = write_positions(x, axis, positions, value);
    fl_tensor_unref(flat);
    fl_tensor_unref(positions);
    return status;
}

static fl_status body_index_put(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[FL_WRITE_X].tensor, *index = in[FL_WRITE_INDEX].tensor;
    int axis = (int)attrs->at[FL_INDEXED_AXIS].integer;
    if (index->meta->dtype == FL_BOOL && index->meta->shape.ndim == 0) {
        fl_tensor *same;
        FL_TRY(with_mask_axis(&x, &index, axis, "index_put_"));
        fl_status status = body_index_put(&same, (const fl_operand[]){fl_of(x), fl_of(index), in[FL_WRITE_VALUE]}, 3,
                                          attrs);
        fl_tensor_unref(x);
        fl_tensor_unref(index);
        FL_TRY(status);
        fl_tensor_unref(same);
        *out = fl_tensor_ref(in[FL_WRITE_X].tensor);
        return FL_OK;
    }
    FL_TRY(indexed_axis(&axis, "index_put_", x, attrs->at[FL_INDEXED_AXIS].integer));
    FL_TRY(fl_require_fits("index_put_", x->meta->dtype, &in[FL_WRITE_VALUE]));
    if (index->meta->dtype == FL_BOOL) {
        bool single = in[FL_WRITE_VALUE].kind != FL_TENSOR || fl_tensor_is_scalar(in[FL_WRITE_VALUE].tensor);
        FL_TRY(check_mask("index_put_", x, index, axis));
        FL_TRY(single ? fill_masked(x, index, axis, in[FL_WRITE_VALUE])
                      : put_masked(x, index, axis, in[FL_WRITE_VALUE]));
    } else FL_TRY(put_positions(x, index, axis, in[FL_WRITE_VALUE]));
    *out = fl_tensor_ref(x);
    return FL_OK;
}

static const char *const index_put_samples[] = {
    "flow.randn(4, 3), flow.tensor({2, -4}), flow.randn(2, 3)",
    "flow.randn(4, 3), flow.tensor({{1}, {2}}), flow.randn(3)",
    "flow.randn(2, 5), flow.tensor({4, 0}), 1.5, 1",
    "flow.randn(4, 3), flow.tensor({true, false, true, true}), 0",
    "flow.randn(2, 2, 3), flow.tensor({{true, false}, {false, true}}), flow.randn(2, 3)",
    NULL};
FL_OP(index_put_) = {
    .name = "index_put_",
    .sig = "index_put_(x, index, value|n, axis: axis = 0)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .mutates = 1,
    .doc = "x[index] = value: writes at the positions of an integer tensor along an axis, or where a mask is true.",
    .body = body_index_put,
    .samples = index_put_samples,
};

/*
** index_put.c -- writing by tensors of positions or masks: x[index] = v.
**
** index_write_ writes rows at plain positions of one axis; index_put_ turns masks and positions of any shape into that.
** One number where a mask is true is masked_fill.
*/
#include "index.h"
#include "cpu/pick.h"
#include "cpu/scatter.h"
#include "op/indexing.h"
#include "op/views.h"

/* ---- rows at positions ---- */

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
        FL_TRY(fl_index_shape(&rows, infer->name, x, axis, 1, index));
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

/* Overwritten elements have no gradient; each entry of value has that of its position. */
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

/* ---- x[index] = v ---- */

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
    FL_TRY(fl_index_merge(&flat, x, axis, mask->meta->shape.ndim, "index_put_"));
    fl_status status = written_apart(&flat);
    if (status == FL_OK) status = fl_index_true(&positions, mask, false, "index_put_");
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
    FL_TRY(fl_index_shape(&region, "index_put_", x, axis, 1, &index->meta->shape));
    FL_TRY(fl_index_shape(&rows, "index_put_", x, axis, 1, &list));
    FL_TRY(fl_index_expand(&wide, value, region.dims, region.ndim));
    fl_status status = fl_reshaped(out, wide, rows.dims, rows.ndim);
    fl_tensor_unref(wide);
    return status;
}

static fl_status put_positions(fl_tensor *x, fl_tensor *index, int axis, fl_operand value)
{
    fl_tensor *positions, *flat = NULL;
    FL_TRY(fl_index_positions(&positions, index, x->meta->shape.dims[axis], "index_put_"));
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
        FL_TRY(fl_index_mask_axis(&x, &index, axis, "index_put_"));
        fl_status status = body_index_put(&same, (const fl_operand[]){fl_of(x), fl_of(index), in[FL_WRITE_VALUE]}, 3,
                                          attrs);
        fl_tensor_unref(x);
        fl_tensor_unref(index);
        FL_TRY(status);
        fl_tensor_unref(same);
        *out = fl_tensor_ref(in[FL_WRITE_X].tensor);
        return FL_OK;
    }
    FL_TRY(fl_index_axis(&axis, "index_put_", x, attrs->at[FL_INDEXED_AXIS].integer));
    FL_TRY(fl_require_fits("index_put_", x->meta->dtype, &in[FL_WRITE_VALUE]));
    if (index->meta->dtype == FL_BOOL) {
        bool single = in[FL_WRITE_VALUE].kind != FL_TENSOR || fl_tensor_is_scalar(in[FL_WRITE_VALUE].tensor);
        FL_TRY(fl_index_check_mask("index_put_", x, index, axis));
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

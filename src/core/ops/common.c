/*
** common.c -- what op families share: broadcasting, reduced shapes, SBP of one hierarchy axis.
*/
#include "op/views.h"
#include "ops.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum { MAX_OPERANDS = 16 }; /* inputs and outputs of the ops these rules serve */

fl_status fl_infer_fail(const fl_infer *infer, fl_status code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fl_fail(code, "%s: %s", infer->name, text);
}

/* Name of an operand in the signature; the last tensor parameter stands for all of a list. */
static const char *operand_name(const fl_op *op, int operand)
{
    const fl_signature *s = fl_op_signature(op);
    const char *name = "x";
    for (int i = 0; i < s->param_count; i++)
        if (s->params[i].is_tensor && s->params[i].slot <= operand) name = s->params[i].name;
    return name;
}

fl_status fl_require_float(const fl_infer *infer, int operand)
{
    const fl_spec *s = &infer->in[operand];
    if (s->kind == FL_NONE || fl_dtype_is_float(s->dtype)) return FL_OK;
    char shape[FL_SHAPE_TEXT];
    const char *name = operand_name(infer->op, operand);
    return fl_infer_fail(infer, FL_ERR_DTYPE, "takes a float tensor, %s is %s%s; write %s:to(\"float32\")", name,
                         fl_dtype_name(s->dtype), fl_shape_text(shape, &s->shape), name);
}

fl_status fl_require_float_tensor(const char *who, const char *name, const fl_tensor *tensor)
{
    char text[FL_META_TEXT];
    if (fl_dtype_is_float(tensor->meta->dtype)) return FL_OK;
    return fl_fail(FL_ERR_DTYPE, "%s: takes a float tensor, %s is %s; write %s:to(\"float32\")", who, name,
                   fl_meta_text(text, tensor->meta), name);
}

fl_status fl_require_shape(const fl_infer *infer, int operand, const char *what, const fl_shape *want)
{
    char wanted[FL_SHAPE_TEXT], have[FL_SHAPE_TEXT];
    const fl_spec *spec = &infer->in[operand];
    if (spec->kind == FL_NONE || fl_shape_equal(&spec->shape, want)) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_SHAPE, "%s must be %s, got %s", what, fl_shape_text(wanted, want),
                         fl_shape_text(have, &spec->shape));
}

/* ---- numbers in integer dtypes ---- */

fl_status fl_require_fits(const char *who, fl_dtype dtype, const fl_operand *value)
{
    if (value->kind <= FL_TENSOR || !fl_dtype_is_integer(dtype)) return FL_OK;
    const fl_integer_range *range = &fl_dtype_ranges[dtype];
    if (value->kind != FL_NUM_FLOAT) {
        if (value->integer >= range->lowest && value->integer <= range->highest) return FL_OK;
        return fl_fail(FL_ERR_VALUE, "%s: value %lld does not fit into %s", who, (long long)value->integer,
                       fl_dtype_name(dtype));
    }
    double whole = trunc(value->number);
    if (whole >= (double)range->lowest && (dtype == FL_INT64 ? whole < 0x1p63 : whole <= (double)range->highest))
        return FL_OK;
    if (value->number != value->number)
        return fl_fail(FL_ERR_VALUE, "%s: value nan does not fit into %s", who, fl_dtype_name(dtype));
    return fl_fail(FL_ERR_VALUE, "%s: value %g does not fit into %s", who, value->number, fl_dtype_name(dtype));
}

fl_status fl_require_attr_fits(const char *who, fl_dtype dtype, const fl_attr *value)
{
    fl_operand number = value->kind == FL_NUM_FLOAT ? fl_of_number(value->number) : fl_of_integer(value->integer);
    return fl_require_fits(who, dtype, &number);
}

/* ---- shapes ---- */

fl_status fl_infer_broadcast_shape(fl_infer *infer)
{
    fl_shape shape = infer->in[0].shape;
    for (int i = 1; i < infer->nin; i++)
        if (infer->in[i].kind == FL_TENSOR)
            FL_TRY(fl_shape_broadcast(&shape, infer->name, &shape, &infer->in[i].shape));
    infer->out[0].shape = shape;
    return FL_OK;
}

fl_status fl_infer_same(fl_infer *infer)
{
    infer->out[0].shape = infer->in[0].shape;
    infer->out[0].dtype = infer->in[0].dtype;
    return FL_OK;
}

fl_status fl_reduce_axes(uint32_t *mask, const char *who, const fl_attr *axes, const fl_shape *shape)
{
    if (!axes->given || axes->count == 0) {
        *mask = (1u << shape->ndim) - 1;
        return FL_OK;
    }
    uint32_t found = 0;
    for (int i = 0; i < axes->count; i++) {
        int axis;
        FL_TRY(fl_shape_axis(&axis, who, axes->list[i], shape));
        if (shape->ndim == 0) continue;
        if (found >> axis & 1u) return fl_fail(FL_ERR_SHAPE, "%s: axis %d is named twice", who, axis);
        found |= 1u << axis;
    }
    *mask = found;
    return FL_OK;
}

void fl_reduce_shape(fl_shape *out, const fl_shape *in, uint32_t mask, bool keepdim)
{
    fl_shape shape = {0};
    for (int i = 0; i < in->ndim; i++) {
        bool reduced = mask >> i & 1u;
        if (!reduced || keepdim) shape.dims[shape.ndim++] = reduced ? 1 : in->dims[i];
    }
    *out = shape;
}

fl_status fl_axes_in_order(int *axes, const char *who, const char *name, const fl_attr *attr, const fl_shape *shape)
{
    uint32_t seen = 0;
    for (int i = 0; i < attr->count; i++) {
        FL_TRY(fl_shape_axis(&axes[i], who, attr->list[i], shape));
        if (shape->ndim == 0 || seen >> axes[i] & 1u)
            return fl_fail(FL_ERR_SHAPE, "%s: %s names axis %d twice", who, name, axes[i]);
        seen |= 1u << axes[i];
    }
    return FL_OK;
}

/* ---- SBP of one hierarchy axis ---- */

/* The SBP of operand i if out[0] is S(axis): split there too, or B if it is broadcast along that axis. */
static fl_sbp broadcast_split(const fl_sigs *sigs, int i, int axis)
{
    if (sigs->in[i].kind != FL_TENSOR) return FL_B;
    const fl_shape *in = &sigs->in_logical[i], *out = &sigs->out_logical[0];
    int own = axis - (out->ndim - in->ndim);
    return own >= 0 && in->dims[own] == out->dims[axis] ? FL_S(own) : FL_B;
}

/* An element of the result depends on elements at its own position alone, so every axis may be split. */
void fl_sbp_elementwise(fl_sigs *sigs)
{
    fl_sbp sig[MAX_OPERANDS];
    assert(sigs->nin + sigs->nout <= MAX_OPERANDS);
    for (int axis = 0; axis < sigs->out_logical[0].ndim; axis++) {
        for (int i = 0; i < sigs->nin; i++) sig[i] = broadcast_split(sigs, i, axis);
        for (int i = 0; i < sigs->nout; i++) sig[sigs->nin + i] = FL_S(axis);
        fl_sig_add(sigs, NULL, sig);
    }
}

bool fl_sbp_sum_exact(fl_dtype from, fl_dtype to)
{
    if (from == FL_BOOL || to == FL_BOOL) return false;
    return from == to || (fl_dtype_is_float(from) && fl_dtype_is_float(to) && fl_dtype_promote(from, to) == to);
}

/* An integer keeps its value where the other dtype holds all that this one does: a 0-d int64 among int8 tensors becomes
** int8. */
static bool holds_integers(fl_dtype from, fl_dtype to)
{
    if (from == FL_BOOL) return true;
    bool is_signed = from != FL_UINT8;
    return to != FL_BOOL && (to == FL_UINT8 ? !is_signed : fl_dtype_size(from) + !is_signed <= fl_dtype_size(to));
}

/* True if max and min commute with the conversion: to a float, to integers that hold all values, of uint8 to bool (-1
** and 0 as bool are true and false). */
static bool order_exact(fl_dtype from, fl_dtype to)
{
    if (from == to || fl_dtype_is_float(to)) return true;
    if (from == FL_UINT8 && to == FL_BOOL) return true; /* no value is less than 0, which alone is false */
    return !fl_dtype_is_float(from) && holds_integers(from, to);
}

void fl_sbp_partial(fl_sigs *sigs, uint32_t operands, fl_sbp partial)
{
    fl_sbp sig[MAX_OPERANDS];
    bool (*survives)(fl_dtype from, fl_dtype to) = partial == FL_PSUM ? fl_sbp_sum_exact : order_exact;
    assert(sigs->nin + sigs->nout <= MAX_OPERANDS);
    for (int i = 0; i < sigs->nin; i++) {
        bool takes = operands >> i & 1u;
        if (takes && (sigs->in[i].kind != FL_TENSOR || !survives(sigs->in[i].dtype, sigs->out[0].dtype))) return;
        sig[i] = takes ? partial : FL_B;
    }
    for (int i = 0; i < sigs->nout; i++) sig[sigs->nin + i] = partial;
    fl_sig_add(sigs, NULL, sig);
}

void fl_sbp_linear(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

void fl_sbp_source(fl_sigs *sigs)
{
    for (int i = 0; i < sigs->out_logical[0].ndim; i++) FL_SIG(sigs, NULL, FL_S(i));
}

/* For ops that treat the lines along the axes of the mask as wholes: all other axes may be split. */
void fl_sbp_except(fl_sigs *sigs, uint32_t mask)
{
    fl_sbp sig[MAX_OPERANDS];
    assert(sigs->nin + sigs->nout <= MAX_OPERANDS);
    for (int axis = 0; axis < sigs->in_logical[0].ndim; axis++) {
        if (mask >> axis & 1u) continue;
        for (int i = 0; i < sigs->nin; i++) sig[i] = sigs->in[i].kind == FL_TENSOR ? FL_S(axis) : FL_B;
        for (int i = 0; i < sigs->nout; i++) sig[sigs->nin + i] = FL_S(axis);
        fl_sig_add(sigs, NULL, sig);
    }
}

void fl_attr_set_like(fl_attrs *attrs, int slot, const fl_meta *value)
{
    if (!value->is_local) fl_attr_set(attrs, slot, (int64_t)fl_nd_sbp_bits(value->nd_sbp));
}

bool fl_sbp_is_like(const fl_sigs *sigs, int slot, fl_sbp sbp)
{
    fl_nd_sbp like;
    if (!sigs->attrs->at[slot].given) return true;
    memcpy(&like, &sigs->attrs->at[slot].integer, sizeof like);
    return like.at[sigs->axis] == sbp;
}

/* ---- small calls ---- */

fl_status fl_reshaped(fl_tensor **out, fl_tensor *x, const int64_t *sizes, int ndim)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(reshape));
    fl_attr_set_list(&attrs, FL_VIEW_SIZE, sizes, ndim);
    return FL_CALL_WITH(out, &attrs, reshape, fl_of(x));
}

/* ---- copies through kernels ---- */

/* A contiguous view, with other sizes of the same number of elements. */
static fl_view reshaped(const fl_view *view, const fl_view *like, int64_t *strides)
{
    fl_view out = *view;
    fl_shape_strides(strides, like->size, like->ndim);
    out.ndim = like->ndim;
    out.size = like->size;
    out.stride = strides;
    return out;
}

static bool same_sizes(const fl_view *a, const fl_view *b)
{
    return a->ndim == b->ndim && memcmp(a->size, b->size, (size_t)a->ndim * sizeof a->size[0]) == 0;
}

const fl_mover fl_cpu_mover = {fl_cpu_copy, fl_cpu_fill};

fl_status fl_mover_copy(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *in = &kernel->in[0], *out = &kernel->out[0];
    if (same_sizes(in, out)) return mover->copy(out, in);
    int64_t strides[FL_MAX_NDIM];
    assert(in->numel == out->numel && (in->contiguous || out->contiguous));
    if (out->contiguous) {
        fl_view view = reshaped(out, in, strides);
        return mover->copy(&view, in);
    }
    fl_view view = reshaped(in, out, strides);
    return mover->copy(out, &view);
}

fl_status fl_kernel_copy(fl_kernel *kernel) { return fl_mover_copy(kernel, &fl_cpu_mover); }

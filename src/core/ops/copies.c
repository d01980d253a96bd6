/*
** copies.c -- ops that write copies of values: clone, rep, cat, stack, tril, and the writers in place.
**
** All are arranged so that fl_cpu_copy does the work: a result is seen as a few views, each of which is
** one copy. Results of kernels are freshly allocated and contiguous.
*/
#include "op/create.h"
#include "op/reduce.h"
#include "op/slicing.h"
#include "op/views.h"
#include "ops.h"

/* Attributes of rep and tile. */
enum { REP_REPEATS };
/* Sizes and strides of a copy with up to twice as many axes as a tensor has. */
struct layout {
    int64_t size[2 * FL_MAX_NDIM], out[2 * FL_MAX_NDIM], in[2 * FL_MAX_NDIM];
    int ndim;
};

static fl_view laid_out(const fl_view *whole, const struct layout *layout, const int64_t *strides)
{
    fl_view view = *whole;
    view.ndim = layout->ndim;
    view.size = layout->size;
    view.stride = strides;
    view.contiguous = false;
    view.numel = 1;
    for (int i = 0; i < layout->ndim; i++) view.numel *= layout->size[i];
    return view;
}

/* Elements stay at their positions; zeros that every part gets are zeros of the sum, the maximum and the minimum. */
static void sbp_any(fl_sigs *sigs)
{
    fl_sbp_except(sigs, 0);
    fl_sbp_moves(sigs, false);
}

static const char *const same_vjp[] = {"g"};

/* ---- clone, contiguous ---- */

static const char *const clone_samples[] = {"flow.randn(2, 3)", "flow.randn(3, 4):t()",
                                            "flow.randn(4, 6):narrow(1, 2, 3)", "flow.randn(3, 1):expand(3, 4)", NULL};
FL_OP(clone) = {
    .name = "clone",
    .sig = "clone(x)",
    .nout = 1,
    .doc = "A copy with storage of its own.",
    .infer = fl_infer_same,
    .sbp = sbp_any,
    .cpu = fl_kernel_copy,
    .vjp = same_vjp,
    .samples = clone_samples,
};

/* One rank's part may lie in order where another's does not, a single row of a transposed tensor for one: a copy on all
** of them, so that they record the same ops, and what is written to it reaches x on none. */
static fl_status body_contiguous(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[0].tensor;
    bool alone = x->meta->is_local || x->meta->placement->count == 1;
    if (!x->contiguous || !alone) return FL_CALL(out, clone, in[0]);
    *out = fl_tensor_ref(x);
    return FL_OK;
}

FL_OP(contiguous) = {
    .name = "contiguous",
    .sig = "contiguous(x)",
    .nout = 1,
    .doc = "The tensor itself if its elements lie in row-major order without gaps, else a copy in that order; on "
           "several ranks always a copy.",
    .body = body_contiguous,
    .samples = clone_samples,
};

/* ---- repetition ---- */

static fl_status infer_rep(fl_infer *infer)
{
    const fl_attr *repeats = &infer->attrs->at[REP_REPEATS];
    const fl_shape *in = &infer->in[0].shape;
    char text[FL_SHAPE_TEXT];
    int pad = repeats->count - in->ndim;
    if (pad < 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "got %d repeats for %s; one for each axis is needed", repeats->count,
                             fl_shape_text(text, in));
    int64_t dims[FL_MAX_NDIM];
    for (int i = 0; i < repeats->count; i++) {
        if (repeats->list[i] < 0)
            return fl_infer_fail(infer, FL_ERR_VALUE, "repeats must not be negative, one is %lld",
                                 (long long)repeats->list[i]);
        if (__builtin_mul_overflow(repeats->list[i], i < pad ? 1 : in->dims[i - pad], &dims[i]))
            return fl_infer_fail(infer, FL_ERR_SHAPE, "%s repeated %lld times is too large", fl_shape_text(text, in),
                                 (long long)repeats->list[i]);
    }
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_shape_make(&infer->out[0].shape, infer->name, dims, repeats->count);
}

/* out [r0, d0, r1, d1, ...] <- in [d0, d1, ...], not moving along the r axes */
fl_status fl_move_rep(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *in = &kernel->in[0], *out = &kernel->out[0];
    const int64_t *repeats = kernel->attrs->at[REP_REPEATS].list;
    struct layout l = {.ndim = 2 * out->ndim};
    if (out->numel == 0) return FL_OK;
    for (int i = 0; i < out->ndim; i++) {
        int own = i - (out->ndim - in->ndim);
        int64_t size = own < 0 ? 1 : in->size[own];
        l.size[2 * i] = repeats[i];
        l.out[2 * i] = out->stride[i] * size;
        l.size[2 * i + 1] = size;
        l.out[2 * i + 1] = out->stride[i];
        l.in[2 * i + 1] = own < 0 ? 0 : in->stride[own];
    }
    fl_view to = laid_out(out, &l, l.out), from = laid_out(in, &l, l.in);
    return mover->copy(&to, &from);
}

static fl_status kernel_rep(fl_kernel *kernel) { return fl_move_rep(kernel, &fl_cpu_mover); }

/* An axis that is not repeated keeps its split. Parts of a repeated one would lie in several places of the result. */
static void sbp_rep(fl_sigs *sigs)
{
    int map[FL_MAX_NDIM], pad = sigs->out_logical[0].ndim - sigs->in_logical[0].ndim;
    for (int i = 0; i < sigs->in_logical[0].ndim; i++)
        map[i] = sigs->attrs->at[REP_REPEATS].list[i + pad] == 1 ? i + pad : -1;
    fl_sbp_map(sigs, map);
    fl_sbp_moves(sigs, false);
}

/* g as [before, repeats, rest], summed over the repeats; takes over g. */
static fl_status sum_repeats(fl_tensor **g, int64_t before, int64_t repeats)
{
    fl_attrs attrs;
    fl_tensor *split, *sum;
    int64_t numel = (*g)->meta->numel, rest = numel / (before * repeats);
    fl_attrs_init(&attrs, FL_OP_REF(reshape));
    fl_attr_set_list(&attrs, FL_VIEW_SIZE, (int64_t[]){before, repeats, rest}, 3);
    FL_TRY(FL_CALL_WITH(&split, &attrs, reshape, fl_of(*g)));
    fl_attrs_init(&attrs, FL_OP_REF(sum));
    fl_attr_set_list(&attrs, FL_REDUCE_AXIS, (int64_t[]){1}, 1);
    fl_status status = FL_CALL_WITH(&sum, &attrs, sum, fl_of(split));
    fl_tensor_unref(split);
    FL_TRY(status);
    fl_tensor_unref(*g);
    *g = sum;
    return FL_OK;
}

/* The sum over the copies, one repeated axis after the other. */
static fl_status grad_rep(fl_grad *g)
{
    const fl_shape *in = &g->in_meta[0]->shape;
    const fl_attr *repeats = &g->attrs->at[REP_REPEATS];
    fl_tensor *sum = fl_tensor_ref(g->gout[0]);
    fl_status status = FL_OK;
    int64_t before = 1;
    fl_attrs attrs;
    if (g->in_meta[0]->numel == 0 || sum->meta->numel == 0) { /* nothing was copied */
        fl_tensor_unref(sum);
        return FL_OK;
    }
    for (int i = 0; i < repeats->count && status == FL_OK; i++) {
        int own = i - (repeats->count - in->ndim);
        if (repeats->list[i] != 1) status = sum_repeats(&sum, before, repeats->list[i]);
        before *= own < 0 ? 1 : in->dims[own];
    }
    if (status == FL_OK) {
        fl_attrs_init(&attrs, FL_OP_REF(reshape));
        fl_attr_set_list(&attrs, FL_VIEW_SIZE, in->dims, in->ndim);
        status = FL_CALL_WITH(&g->gin[0], &attrs, reshape, fl_of(sum));
    }
    fl_tensor_unref(sum);
    return status;
}

static const char *const rep_samples[] = {"flow.randn(2, 3), {2, 1}",       "flow.randn(3), {2, 2}",
                                          "flow.randn(2, 1, 3), {1, 4, 2}", "flow.tensor(1.5), {3}",
                                          "flow.randn(2, 2), {0, 1}",       NULL};
FL_OP(rep) = {
    .name = "rep",
    .sig = "rep(x, repeats: sizes)",
    .nout = 1,
    .doc = "repeats[i] copies along axis i; if there are more repeats than axes, new axes come first.",
    .infer = infer_rep,
    .sbp = sbp_rep,
    .cpu = kernel_rep,
    .grad = grad_rep,
    .samples = rep_samples,
};

static fl_status body_tile(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *given)
{
    const fl_attr *repeats = &given->at[REP_REPEATS];
    int64_t list[FL_MAX_NDIM];
    int ndim = in[0].tensor->meta->shape.ndim, pad = ndim > repeats->count ? ndim - repeats->count : 0;
    for (int i = 0; i < pad + repeats->count; i++) list[i] = i < pad ? 1 : repeats->list[i - pad];
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(rep));
    fl_attr_set_list(&attrs, REP_REPEATS, list, pad + repeats->count);
    return FL_CALL_WITH(out, &attrs, rep, in[0]);
}

static const char *const tile_samples[] = {"flow.randn(2, 3), {2}", "flow.randn(3), {2, 2}", NULL};
FL_OP(tile) = {
    .name = "tile",
    .sig = "tile(x, repeats: sizes)",
    .nout = 1,
    .doc = "As rep; fewer repeats than axes apply to the last axes.",
    .body = body_tile,
    .samples = tile_samples,
};

/* ---- cat, stack ---- */

static fl_status same_but_axis(const fl_infer *infer, int i, int axis)
{
    const fl_shape *first = &infer->in[0].shape, *other = &infer->in[i].shape;
    bool fits = first->ndim == other->ndim;
    for (int a = 0; fits && a < first->ndim; a++) fits = a == axis || first->dims[a] == other->dims[a];
    if (fits) return FL_OK;
    char x[FL_SHAPE_TEXT], y[FL_SHAPE_TEXT];
    if (axis < 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "xs[1] is %s and xs[%d] is %s: shapes must be equal",
                             fl_shape_text(x, first), i + 1, fl_shape_text(y, other));
    return fl_infer_fail(infer, FL_ERR_SHAPE, "xs[1] is %s and xs[%d] is %s: only axis %d may differ",
                         fl_shape_text(x, first), i + 1, fl_shape_text(y, other), axis);
}

static fl_status infer_cat(fl_infer *infer)
{
    int axis;
    if (infer->nin == 0) return fl_infer_fail(infer, FL_ERR_VALUE, "needs at least one tensor");
    fl_shape out = infer->in[0].shape;
    if (out.ndim == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "tensors without axes cannot be joined; use stack");
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_JOINED_AXIS].integer, &out));
    for (int i = 1; i < infer->nin; i++) {
        FL_TRY(same_but_axis(infer, i, axis));
        out.dims[axis] += infer->in[i].shape.dims[axis];
    }
    infer->out[0].dtype = fl_infer_promote(infer);
    return fl_shape_make(&infer->out[0].shape, infer->name, out.dims, out.ndim);
}

fl_status fl_move_cat(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *out = &kernel->out[0];
    int axis = fl_axis_of(&kernel->attrs->at[FL_JOINED_AXIS], out->ndim);
    char *data = out->data;
    for (int i = 0; i < kernel->nin; i++) {
        fl_view part = kernel->in[i];
        if (part.numel == 0) continue;
        part.data = data;
        part.dtype = out->dtype;
        part.stride = out->stride;
        part.contiguous = part.numel == out->numel;
        FL_TRY(mover->copy(&part, &kernel->in[i]));
        data += kernel->in[i].size[axis] * out->stride[axis] * (int64_t)fl_dtype_size(out->dtype);
    }
    return FL_OK;
}

static fl_status kernel_cat(fl_kernel *kernel) { return fl_move_cat(kernel, &fl_cpu_mover); }

/* All operands S(i) -> S(i), moved up by one from `inserted` on; not along `except`. */
static void sbp_joined(fl_sigs *sigs, int except, int inserted)
{
    fl_sbp sig[sigs->nin + 1];
    for (int axis = 0; axis < sigs->in_logical[0].ndim; axis++) {
        if (axis == except) continue;
        for (int i = 0; i < sigs->nin; i++) sig[i] = FL_S(axis);
        sig[sigs->nin] = FL_S(axis + (axis >= inserted));
        fl_sig_add(sigs, NULL, sig);
    }
    fl_sbp_moves(sigs, false);
}

/* Splits of all axes but the joined one. */
static void sbp_cat(fl_sigs *sigs)
{
    sbp_joined(sigs, fl_axis_of(&sigs->attrs->at[FL_JOINED_AXIS], sigs->out_logical[0].ndim), FL_MAX_NDIM);
}

/* Every operand gets its own interval of g. */
static fl_status grad_cat(fl_grad *g)
{
    int64_t start = 0;
    int axis = fl_axis_of(&g->attrs->at[FL_JOINED_AXIS], g->out_meta[0]->shape.ndim);
    for (int i = 0; i < g->nin; i++) {
        int64_t length = g->in_meta[i]->shape.dims[axis];
        fl_attrs attrs;
        fl_attrs_init(&attrs, FL_OP_REF(narrow));
        fl_attr_set(&attrs, FL_SLICE_AXIS, axis);
        fl_attr_set(&attrs, FL_SLICE_START, start);
        fl_attr_set(&attrs, FL_SLICE_LENGTH, length);
        if (g->need[i]) FL_TRY(FL_CALL_WITH(&g->gin[i], &attrs, narrow, fl_of(g->gout[0])));
        start += length;
    }
    return FL_OK;
}

static const char *const cat_samples[] = {"{flow.randn(2, 3), flow.randn(1, 3)}",
                                          "{flow.randn(2, 3), flow.randn(2, 2), flow.randn(2, 0)}, 1",
                                          "{flow.randn(3), flow.arange(2)}, -1", NULL};
FL_OP(cat) = {
    .name = "cat",
    .sig = "cat(xs..., axis: axis = 0)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "Concatenates tensors along an axis.",
    .infer = infer_cat,
    .sbp = sbp_cat,
    .cpu = kernel_cat,
    .grad = grad_cat,
    .samples = cat_samples,
};

static fl_status infer_stack(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    if (infer->nin == 0) return fl_infer_fail(infer, FL_ERR_VALUE, "needs at least one tensor");
    const fl_shape *in = &infer->in[0].shape;
    int64_t axis = infer->attrs->at[FL_JOINED_AXIS].integer;
    if (in->ndim == FL_MAX_NDIM) return fl_infer_fail(infer, FL_ERR_SHAPE, "a tensor has at most %d axes", FL_MAX_NDIM);
    if (axis < -(in->ndim + 1) || axis > in->ndim)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "axis %lld is out of range for %s (%d to %d)", (long long)axis,
                             fl_shape_text(text, in), -(in->ndim + 1), in->ndim);
    if (axis < 0) axis += in->ndim + 1;
    for (int i = 1; i < infer->nin; i++) FL_TRY(same_but_axis(infer, i, -1));
    fl_shape out = {in->ndim + 1, {0}};
    for (int i = 0; i < out.ndim; i++) out.dims[i] = i == axis ? infer->nin : in->dims[i - (i > axis)];
    infer->out[0].dtype = fl_infer_promote(infer);
    return fl_shape_make(&infer->out[0].shape, infer->name, out.dims, out.ndim);
}

fl_status fl_move_stack(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *out = &kernel->out[0];
    int axis = fl_axis_of(&kernel->attrs->at[FL_JOINED_AXIS], out->ndim);
    int64_t strides[FL_MAX_NDIM];
    for (int i = 0, j = 0; i < out->ndim; i++)
        if (i != axis) strides[j++] = out->stride[i];
    for (int i = 0; i < kernel->nin; i++) {
        fl_view part = kernel->in[i];
        part.data = (char *)out->data + i * out->stride[axis] * (int64_t)fl_dtype_size(out->dtype);
        part.dtype = out->dtype;
        part.stride = strides;
        part.contiguous = part.numel == out->numel;
        FL_TRY(mover->copy(&part, &kernel->in[i]));
    }
    return FL_OK;
}

static fl_status kernel_stack(fl_kernel *kernel) { return fl_move_stack(kernel, &fl_cpu_mover); }

/* The new axis is not split: each operand is one position of it. */
static void sbp_stack(fl_sigs *sigs)
{
    sbp_joined(sigs, -1, fl_axis_of(&sigs->attrs->at[FL_JOINED_AXIS], sigs->out_logical[0].ndim));
}

/* Every operand gets its own position of g. */
static fl_status grad_stack(fl_grad *g)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(select));
    fl_attr_set(&attrs, FL_SLICE_AXIS, fl_axis_of(&g->attrs->at[FL_JOINED_AXIS], g->out_meta[0]->shape.ndim));
    for (int i = 0; i < g->nin; i++) {
        fl_attr_set(&attrs, FL_SLICE_POSITION, i);
        if (g->need[i]) FL_TRY(FL_CALL_WITH(&g->gin[i], &attrs, select, fl_of(g->gout[0])));
    }
    return FL_OK;
}

static const char *const stack_samples[] = {"{flow.randn(2, 3), flow.randn(2, 3)}",
                                            "{flow.randn(2, 3), flow.randn(2, 3), flow.randn(2, 3)}, -1",
                                            "{flow.tensor(1.5), flow.tensor(2.5)}", NULL};
FL_OP(stack) = {
    .name = "stack",
    .sig = "stack(xs..., axis: axis = 0)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "Stacks tensors of one shape along a new axis.",
    .infer = infer_stack,
    .sbp = sbp_stack,
    .cpu = kernel_stack,
    .grad = grad_stack,
    .samples = stack_samples,
};

/* ---- writing in place ---- */

enum { COPY_X, COPY_SRC }; /* operands of copy_ */

static fl_status infer_copy_(fl_infer *infer)
{
    char from[FL_SHAPE_TEXT], to[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[COPY_X].shape, *src = &infer->in[COPY_SRC].shape;
    bool fits = src->ndim <= x->ndim;
    for (int i = 0; fits && i < src->ndim; i++)
        fits = src->dims[i] == 1 || src->dims[i] == x->dims[i + x->ndim - src->ndim];
    if (!fits)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "src %s does not broadcast to x %s", fl_shape_text(from, src),
                             fl_shape_text(to, x));
    return fl_infer_same(infer);
}

fl_status fl_move_copy_(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *src = &kernel->in[COPY_SRC], *out = &kernel->out[0];
    int64_t strides[FL_MAX_NDIM];
    int pad = out->ndim - src->ndim;
    for (int i = 0; i < out->ndim; i++)
        strides[i] = i < pad || src->logical[i - pad] != out->logical[i] ? 0 : src->stride[i - pad];
    fl_view from = *src;
    from.ndim = out->ndim;
    from.size = out->size;
    from.stride = strides;
    from.contiguous = src->contiguous && src->numel == out->numel;
    return mover->copy(out, &from);
}

static fl_status kernel_copy_(fl_kernel *kernel) { return fl_move_copy_(kernel, &fl_cpu_mover); }

/* x and src are split alike or are the same kind of partial: values are only moved. */
static void sbp_copy_(fl_sigs *sigs)
{
    fl_sbp_elementwise(sigs);
    fl_sbp_moves(sigs, false);
}

static const char *const copy_vjp[] = {NULL, "g"};
static const char *const copy_samples[] = {"flow.zeros(2, 3), flow.randn(2, 3)", "flow.zeros(2, 3), flow.randn(3)",
                                           "flow.zeros(3, 2):t(), flow.arange(6):reshape(2, 3)", NULL};
FL_OP(copy_) = {
    .name = "copy_",
    .sig = "copy_(x, src)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES | FL_OP_FETCHES,
    .mutates = 1,
    .doc = "Writes src into x, broadcast and converted; src may be on another device.",
    .infer = infer_copy_,
    .sbp = sbp_copy_,
    .cpu = kernel_copy_,
    .vjp = copy_vjp,
    .samples = copy_samples,
};

void fl_attr_bytes(int64_t bytes[1], fl_dtype dtype, const fl_attr *scalar)
{
    bool is_float = scalar->kind == FL_NUM_FLOAT;
    double number = is_float ? scalar->number : 0;
    int64_t integer = is_float ? 0 : scalar->integer;
    fl_view in = {.data = is_float ? (void *)&number : &integer,
                  .dtype = is_float ? FL_FLOAT64 : FL_INT64,
                  .contiguous = true,
                  .numel = 1};
    fl_view out = {.data = bytes, .dtype = dtype, .contiguous = true, .numel = 1};
    bytes[0] = 0;
    bool is_exact = is_float || (integer >= -(1 << 24) && integer <= 1 << 24);
    if (dtype == FL_FLOAT32 && is_exact)
        memcpy(bytes, &(float){is_float ? (float)number : (float)integer}, sizeof(float));
    else fl_cpu_copy(&out, &in);
}

static fl_status check_fill(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return fl_require_attr_fits("fill_", in[0].tensor->meta->dtype, &attrs->at[FL_FILL_VALUE]);
}

fl_view fl_view_part(const fl_view *view, const int64_t *begin, const int64_t *sizes)
{
    fl_view part = *view;
    int64_t offset = 0;
    part.numel = 1;
    for (int a = 0; a < view->ndim; a++) {
        offset += begin[a] * view->stride[a];
        part.numel *= sizes[a];
    }
    part.data = (char *)view->data + offset * (int64_t)fl_dtype_size(view->dtype);
    part.size = sizes;
    part.contiguous = view->contiguous && part.numel == view->numel;
    return part;
}

fl_status fl_move_fill(fl_kernel *kernel, const fl_mover *mover, int slot)
{
    int64_t value[1];
    fl_attr_bytes(value, kernel->out[0].dtype, &kernel->attrs->at[slot]);
    return mover->fill(&kernel->out[0], value);
}

fl_status fl_move_fill_integer(fl_kernel *kernel, const fl_mover *mover, int64_t value)
{
    int64_t bytes[1];
    fl_attr number = {.given = true, .kind = FL_NUM_INT, .count = 1, .integer = value};
    fl_attr_bytes(bytes, kernel->out[0].dtype, &number);
    return mover->fill(&kernel->out[0], bytes);
}

static fl_status kernel_fill_(fl_kernel *kernel) { return fl_move_fill(kernel, &fl_cpu_mover, FL_FILL_VALUE); }

/* Equal parts have the number as their maximum and minimum; their sum would be a multiple of it. */
static void sbp_fill_(fl_sigs *sigs)
{
    fl_sbp_except(sigs, 0);
    FL_SIG(sigs, NULL, FL_PMAX, FL_PMAX);
    FL_SIG(sigs, NULL, FL_PMIN, FL_PMIN);
}

static const char *const no_vjp[] = {NULL}; /* the old value is gone */
static const char *const fill_samples[] = {"flow.randn(2, 3), 1.5", "flow.arange(4), 7", "flow.randn(3, 4):t(), -1",
                                           NULL};
FL_OP(fill_) = {
    .name = "fill_",
    .sig = "fill_(x, ~value: scalar)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES,
    .mutates = 1,
    .doc = "Sets every element to a number.",
    .infer = fl_infer_same,
    .check = check_fill,
    .sbp = sbp_fill_,
    .cpu = kernel_fill_,
    .vjp = no_vjp,
    .samples = fill_samples,
};

static fl_status kernel_zero_(fl_kernel *kernel) { return fl_move_fill_integer(kernel, &fl_cpu_mover, 0); }

static const char *const zero_samples[] = {"flow.randn(2, 3)", "flow.arange(4)", NULL};
FL_OP(zero_) = {
    .name = "zero_",
    .sig = "zero_(x)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES,
    .mutates = 1,
    .doc = "Sets every element to 0.",
    .infer = fl_infer_same,
    .sbp = sbp_any,
    .cpu = kernel_zero_,
    .vjp = no_vjp,
    .samples = zero_samples,
};

/* ---- triangles ---- */

static fl_status infer_triangle(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    if (infer->in[0].shape.ndim < 2)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes matrices, x is %s", fl_shape_text(text, &infer->in[0].shape));
    return fl_infer_same(infer);
}

static fl_status keep_triangle(fl_kernel *kernel, bool lower)
{
    const fl_view *out = &kernel->out[0];
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_cpu_copy(out, &kernel->in[0]));
    fl_cpu_zero_triangle(out, kernel->attrs->at[FL_TRIANGLE_DIAGONAL].integer, lower);
    return FL_OK;
}

static fl_status kernel_tril(fl_kernel *kernel) { return keep_triangle(kernel, true); }
static fl_status kernel_triu(fl_kernel *kernel) { return keep_triangle(kernel, false); }

static fl_status check_diagonal(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int64_t limit = (int64_t)1 << 62, diagonal = attrs->at[FL_TRIANGLE_DIAGONAL].integer;
    if (diagonal > -limit && diagonal < limit) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "tril and triu: diagonal %lld is out of range", (long long)diagonal);
}

static const char *const tril_vjp[] = {"tril(g, diagonal)"}, *const triu_vjp[] = {"triu(g, diagonal)"};
static const char *const triangle_samples[] = {"flow.randn(3, 4)", "flow.randn(4, 3), 1", "flow.randn(2, 3, 3), -1",
                                               "flow.randn(3, 3), -10", NULL};
FL_OP(tril) = {
    .name = "tril",
    .sig = "tril(x, ~diagonal: int = 0)",
    .nout = 1,
    .doc = "The lower triangle of matrices, zeros elsewhere; diagonal > 0 keeps more.",
    .infer = infer_triangle,
    .check = check_diagonal,
    .sbp = sbp_any,
    .cpu = kernel_tril,
    .vjp = tril_vjp,
    .samples = triangle_samples,
};
FL_OP(triu) = {
    .name = "triu",
    .sig = "triu(x, ~diagonal: int = 0)",
    .nout = 1,
    .doc = "The upper triangle of matrices, zeros elsewhere; diagonal > 0 keeps less.",
    .infer = infer_triangle,
    .check = check_diagonal,
    .sbp = sbp_any,
    .cpu = kernel_triu,
    .vjp = triu_vjp,
    .samples = triangle_samples,
};

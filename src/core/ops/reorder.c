/*
** reorder.c -- copies with the positions along axes turned round or moved on: flip, roll.
**
** Both are copies between views: a flip reads with negative strides, a roll is two copies for every axis it moves
** along.
*/
#include "op/views.h"
#include "ops.h"

/* ---- flip ---- */

/* An empty list of axes turns nothing, so it is not one that is absent. */
static fl_status flipped_axes(uint32_t *mask, const fl_attr *axes, const fl_shape *shape)
{
    *mask = 0;
    return axes->count ? fl_reduce_axes(mask, "flip", axes, shape) : FL_OK;
}

static fl_status infer_flip(fl_infer *infer)
{
    uint32_t mask;
    FL_TRY(flipped_axes(&mask, &infer->attrs->at[FL_FLIP_AXES], &infer->in[0].shape));
    return fl_infer_same(infer);
}

/* Along a flipped axis elements change to other ranks; along the others they stay. Values are only moved. */
static void sbp_flip(fl_sigs *sigs)
{
    uint32_t mask;
    if (flipped_axes(&mask, &sigs->attrs->at[FL_FLIP_AXES], &sigs->in_logical[0]) != FL_OK)
        return; /* inference has accepted them */
    fl_sbp_except(sigs, mask);
    fl_sbp_moves(sigs, false);
}

fl_status fl_move_flip(fl_kernel *kernel, const fl_mover *mover)
{
    fl_view from = kernel->in[0];
    int64_t strides[FL_MAX_NDIM], offset = 0;
    const fl_attr *axes = &kernel->attrs->at[FL_FLIP_AXES];
    if (from.numel == 0) return FL_OK;
    for (int a = 0; a < from.ndim; a++) strides[a] = from.stride[a];
    for (int i = 0; i < axes->count && from.ndim; i++) {
        int64_t a = axes->list[i] < 0 ? axes->list[i] + from.ndim : axes->list[i];
        if (from.size[a] == 1) continue;
        offset += (from.size[a] - 1) * from.stride[a];
        strides[a] = -from.stride[a];
        from.contiguous = false;
    }
    from.stride = strides;
    from.data = (char *)from.data + offset * (int64_t)fl_dtype_size(from.dtype);
    return mover->copy(&kernel->out[0], &from);
}

static fl_status kernel_flip(fl_kernel *kernel) { return fl_move_flip(kernel, &fl_cpu_mover); }

/* A flip is its own inverse and its own transpose. */
static const char *const flip_vjp[] = {"flip(g, axes)"};
static const char *const flip_samples[] = {"flow.randn(3, 4), 0",      "flow.randn(3, 4), {-1, 0}",
                                           "flow.randn(2, 3, 5), {1}", "flow.randn(2, 3), {}",
                                           "flow.tensor(1.5), 0",      NULL};
FL_OP(flip) = {
    .name = "flip",
    .sig = "flip(x, axes: axes)",
    .nout = 1,
    .doc = "A copy with the positions along the axes in reverse order.",
    .infer = infer_flip,
    .sbp = sbp_flip,
    .cpu = kernel_flip,
    .vjp = flip_vjp,
    .samples = flip_samples,
};

/* ---- roll ---- */

/* The shift of each axis, from 0 to its size - 1; an axis named twice is shifted by the sum. */
static fl_status total_shifts(int64_t *shifts, const fl_attrs *attrs, const fl_shape *shape)
{
    const fl_attr *each = &attrs->at[FL_ROLL_SHIFTS], *axes = &attrs->at[FL_ROLL_AXES];
    for (int a = 0; a < shape->ndim; a++) shifts[a] = 0;
    if (each->count != axes->count)
        return fl_fail(FL_ERR_VALUE, "roll: there must be one shift for each axis, got %d for %d", each->count,
                       axes->count);
    for (int i = 0; i < axes->count; i++) {
        int a;
        FL_TRY(fl_shape_axis(&a, "roll", axes->list[i], shape));
        if (shape->ndim == 0 || shape->dims[a] == 0) continue;
        int64_t n = shape->dims[a], shift = each->list[i] % n;
        shifts[a] = (shifts[a] + shift + n) % n;
    }
    return FL_OK;
}

static fl_status infer_roll_axes(fl_infer *infer)
{
    const fl_attr *axes = &infer->attrs->at[FL_ROLL_AXES];
    for (int i = 0; i < axes->count; i++) {
        int axis;
        FL_TRY(fl_shape_axis(&axis, "roll", axes->list[i], &infer->in[0].shape));
    }
    return fl_infer_same(infer);
}

/* The shifts are in no plan's key. */
static fl_status check_roll_axes(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int64_t shifts[FL_MAX_NDIM];
    return total_shifts(shifts, attrs, &in[0].tensor->meta->shape);
}

/* As sbp_flip, for the axes that are rolled. */
static void sbp_roll_axes(fl_sigs *sigs)
{
    uint32_t mask = 0;
    const fl_attr *axes = &sigs->attrs->at[FL_ROLL_AXES];
    int ndim = sigs->in[0].shape.ndim;
    for (int i = 0; i < axes->count && ndim; i++)
        mask |= 1u << (axes->list[i] < 0 ? axes->list[i] + ndim : axes->list[i]);
    fl_sbp_except(sigs, mask);
    fl_sbp_moves(sigs, false);
}

/* The part that `wraps` names: bit a is set if it wraps round the end of axis a. */
static fl_status move_part(const fl_view *out, const fl_view *in, const int64_t *shifts, uint32_t wraps,
                           const fl_mover *mover)
{
    int64_t sizes[FL_MAX_NDIM], from[FL_MAX_NDIM], to[FL_MAX_NDIM];
    for (int a = 0; a < in->ndim; a++) {
        bool round = wraps >> a & 1u;
        int64_t stay = in->size[a] - shifts[a];
        sizes[a] = round ? shifts[a] : stay;
        from[a] = round ? stay : 0;
        to[a] = round ? 0 : shifts[a];
    }
    fl_view target = fl_view_part(out, to, sizes), source = fl_view_part(in, from, sizes);
    return mover->copy(&target, &source);
}

fl_status fl_move_roll(fl_kernel *kernel, const fl_mover *mover)
{
    const fl_view *in = &kernel->in[0];
    fl_shape shape = {.ndim = in->ndim};
    int64_t shifts[FL_MAX_NDIM];
    uint32_t moved = 0, wraps = 0;
    if (in->numel == 0) return FL_OK;
    for (int a = 0; a < in->ndim; a++) shape.dims[a] = in->logical[a];
    FL_TRY(total_shifts(shifts, kernel->attrs, &shape));
    for (int a = 0; a < in->ndim; a++)
        if (shifts[a]) moved |= 1u << a;
    do { /* all sets of moved axes */
        FL_TRY(move_part(&kernel->out[0], in, shifts, wraps, mover));
        wraps = (wraps - moved) & moved;
    } while (wraps);
    return FL_OK;
}

static fl_status kernel_roll_axes(fl_kernel *kernel) { return fl_move_roll(kernel, &fl_cpu_mover); }

/* The shifts the other way. */
static fl_status grad_roll_axes(fl_grad *g)
{
    const fl_shape *shape = &g->in_meta[0]->shape;
    int64_t shifts[FL_MAX_NDIM], axes[FL_MAX_NDIM];
    fl_attrs a;
    FL_TRY(total_shifts(shifts, g->attrs, shape));
    for (int i = 0; i < shape->ndim; i++) {
        shifts[i] = -shifts[i];
        axes[i] = i;
    }
    fl_attrs_init(&a, g->op);
    fl_attr_set_list(&a, FL_ROLL_SHIFTS, shifts, shape->ndim);
    fl_attr_set_list(&a, FL_ROLL_AXES, axes, shape->ndim);
    return FL_CALL_WITH(&g->gin[0], &a, roll_axes, fl_of(g->gout[0]));
}

static const char *const roll_axes_samples[] = {"flow.randn(3, 4), 1, 0", "flow.randn(3, 4), {-1, 6}, {1, 0}",
                                                "flow.randn(2, 3, 5), {2}, {-1}", NULL};
FL_OP(roll_axes) = {
    .name = "roll_axes",
    .sig = "roll_axes(x, ~shifts: ints, axes: axes)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "roll along axes.",
    .infer = infer_roll_axes,
    .check = check_roll_axes,
    .sbp = sbp_roll_axes,
    .cpu = kernel_roll_axes,
    .grad = grad_roll_axes,
    .samples = roll_axes_samples,
};

static fl_status body_roll(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_shape *shape = &in[0].tensor->meta->shape;
    fl_tensor *line, *rolled;
    fl_attrs a = *attrs;
    if (attrs->at[FL_ROLL_AXES].given) return FL_CALL_WITH(out, attrs, roll_axes, in[0]);
    if (attrs->at[FL_ROLL_SHIFTS].count != 1)
        return fl_fail(FL_ERR_VALUE, "roll: without axes there must be one shift, got %d",
                       attrs->at[FL_ROLL_SHIFTS].count);
    fl_attr_set_list(&a, FL_ROLL_AXES, (const int64_t[]){0}, 1);
    FL_TRY(fl_reshaped(&line, in[0].tensor, (const int64_t[]){in[0].tensor->meta->numel}, 1));
    fl_status status = FL_CALL_WITH(&rolled, &a, roll_axes, fl_of(line));
    fl_tensor_unref(line);
    FL_TRY(status);
    status = fl_reshaped(out, rolled, shape->dims, shape->ndim);
    fl_tensor_unref(rolled);
    return status;
}

static const char *const roll_samples[] = {"flow.randn(3, 4), 1, 0",
                                           "flow.randn(3, 4), 5",
                                           "flow.randn(2, 3, 5), {-1, 2}, {0, -1}",
                                           "flow.randn(3, 2):t(), {1, 1, 1}, {0, 0, 1}",
                                           "flow.tensor(1.5), 3",
                                           NULL};
FL_OP(roll) = {
    .name = "roll",
    .sig = "roll(x, shifts: ints, axes: axes = nil)",
    .nout = 1,
    .doc = "A copy with elements shifted along axes; elements shifted past the end reappear at the start. Without axes "
           "all elements are one line.",
    .body = body_roll,
    .samples = roll_samples,
};

/*
** views.c -- ops whose result shares the input's storage: other sizes, other strides.
**
** Each hook works on the local part: the input's local shape is its window, the result's local shape the window of the
** result's meta, which is why a signature may split an axis of a view. If a tensor cannot be viewed, the
** kernel copies. Views of some positions of an axis are in slicing.c.
*/
#include "op/views.h"
#include "ops.h"

/* Attributes of flatten, of transpose. */
enum { FLATTEN_START, FLATTEN_END };

/* ---- SBP of views ---- */

/* Partial values survive when nothing is converted; sums also on the way to a wider float. */
static bool survives(const fl_sigs *sigs, fl_sbp partial)
{
    for (int i = 0; i < sigs->nin; i++) {
        if (sigs->in[i].kind != FL_TENSOR) continue;
        fl_dtype from = sigs->in[i].dtype, to = sigs->out[0].dtype;
        if (partial == FL_PSUM ? !fl_sbp_sum_exact(from, to) : from != to) return false;
    }
    return true;
}

/* Each part moves its values alike, so partial values stay partial, of any kind; zeros that the op adds are neutral
** for sums alone. */
void fl_sbp_moves(fl_sigs *sigs, bool zeros)
{
    static const fl_sbp partials[] = {FL_PSUM, FL_PMAX, FL_PMIN};
    fl_sbp sig[sigs->nin + sigs->nout];
    for (int p = 0; p < (zeros ? 1 : 3); p++) {
        for (int i = 0; i < sigs->nin + sigs->nout; i++)
            sig[i] = i < sigs->nin && sigs->in[i].kind != FL_TENSOR ? FL_B : partials[p];
        if (survives(sigs, partials[p])) fl_sig_add(sigs, NULL, sig);
    }
}

void fl_sbp_map(fl_sigs *sigs, const int *map)
{
    for (int i = 0; i < sigs->in_logical[0].ndim; i++)
        if (map[i] >= 0) FL_SIG(sigs, NULL, FL_S(i), FL_S(map[i]));
}

/* ---- reshape and its relatives ---- */

static fl_status resolve_sizes(fl_shape *out, const fl_infer *infer, const fl_attr *sizes)
{
    char from[FL_SHAPE_TEXT], to[FL_SHAPE_TEXT];
    const fl_shape *in = &infer->in[0].shape;
    int64_t numel = fl_shape_numel(in), known = 1, dims[FL_MAX_NDIM] = {0};
    int unknown = -1;
    fl_shape asked = {sizes->count, {0}};
    for (int i = 0; i < sizes->count; i++) asked.dims[i] = dims[i] = sizes->list[i];
    for (int i = 0; i < sizes->count; i++) {
        if (dims[i] == -1 && unknown >= 0)
            return fl_infer_fail(infer, FL_ERR_SHAPE, "only one size can be -1, not %s", fl_shape_text(to, &asked));
        if (dims[i] == -1) unknown = i;
        else if (dims[i] < 0)
            return fl_infer_fail(infer, FL_ERR_SHAPE, "size %lld of %s is negative", (long long)dims[i],
                                 fl_shape_text(to, &asked));
        else if (__builtin_mul_overflow(known, dims[i], &known)) known = INT64_MAX;
    }
    if (unknown >= 0 && known == 0 && numel == 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "-1 in %s is ambiguous, because %s has no elements",
                             fl_shape_text(to, &asked), fl_shape_text(from, in));
    bool fits = unknown >= 0 ? known > 0 && numel % known == 0 : known == numel;
    if (!fits)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "%s with %lld elements cannot become %s", fl_shape_text(from, in),
                             (long long)numel, fl_shape_text(to, &asked));
    if (unknown >= 0) dims[unknown] = numel / known;
    return fl_shape_make(out, infer->name, dims, sizes->count);
}

static fl_status infer_reshape(fl_infer *infer)
{
    infer->out[0].dtype = infer->in[0].dtype;
    return resolve_sizes(&infer->out[0].shape, infer, &infer->attrs->at[FL_VIEW_SIZE]);
}

/* Sizes of a part, of an empty one as if it had a row: what the other ranks can view, it views too, so that all record
** the same. */
static void sizes_of_rows(int64_t *out, const fl_meta *meta)
{
    for (int i = 0; i < meta->shape.ndim; i++)
        out[i] = meta->window.size[i] || meta->numel == 0 ? meta->window.size[i] : 1;
}

/* The axes of which ranks hold different rows, a bit each: not those of one row, nor those split among one rank. */
static unsigned split_axes(const fl_meta *meta)
{
    unsigned mask = 0;
    for (int k = 0; k < meta->nd_sbp.n; k++) {
        fl_sbp s = meta->nd_sbp.at[k];
        if (fl_sbp_is_split(s) && meta->placement->hierarchy[k] > 1 && meta->shape.dims[s] > 1) mask |= 1u << s;
    }
    return mask;
}

/* Strides of the input's local part seen as the result's local sizes; request->possible says whether there are any.
** Walks from the last axis: a run of input axes that lie one inside the other can be cut anew in any way. All ranks
** must come to the same answer, whatever number of rows they have of a split axis: such an axis, of which the input and
** the result have equally many in the same order, is the first of its run, and its stride counts even for one row. */
static void view_reshape(fl_view_request *request)
{
    int64_t in[FL_MAX_NDIM], out[FL_MAX_NDIM];
    int in_axis = request->in->meta->shape.ndim - 1, out_axis = request->out_meta->shape.ndim - 1;
    sizes_of_rows(out, request->out_meta);
    request->offset = 0;
    if (request->out_meta->local_numel ? request->in->contiguous : request->out_meta->numel == 0) {
        fl_shape_strides(request->strides, out, out_axis + 1);
        return;
    }
    sizes_of_rows(in, request->in->meta);
    unsigned in_splits = split_axes(request->in->meta), out_splits = split_axes(request->out_meta);
    const int64_t *in_whole = request->in->meta->shape.dims, *out_whole = request->out_meta->shape.dims;
    int64_t run = 1, taken = 1, base = 1; /* elements of the run, those cut off so far, stride of its last axis */
    for (bool fresh = true; in_axis >= 0; in_axis--) {
        if (fresh) base = request->in->strides[in_axis];
        fresh = false;
        run *= in[in_axis];
        bool split = in_splits >> in_axis & 1;
        if (in_axis > 0 && !split && (in_whole[in_axis - 1] == 1 || request->in->strides[in_axis - 1] == run * base))
            continue;
        while (out_axis >= 0 && (taken < run || split || out_whole[out_axis] == 1)) {
            bool out_split = out_splits >> out_axis & 1;
            if (out_split && !split) break;
            split &= !out_split;
            request->strides[out_axis] = taken * base;
            taken *= out[out_axis--];
        }
        if (taken != run) {
            request->possible = false;
            return;
        }
        run = taken = 1;
        fresh = true;
    }
    while (out_axis >= 0) request->strides[out_axis--] = 1;
}

/* True if all parts of the two axes end at the same elements: both have equally many elements before them; when their
** sizes differ the parts must be equal, or a further split would cut them differently. */
static bool boundaries_agree(const fl_sigs *sigs, int in_axis, int out_axis)
{
    int64_t before_in = 1, before_out = 1, in_unit = 1, out_unit = 1;
    for (int a = 0; a < in_axis; a++) before_in *= sigs->in[0].shape.dims[a];
    for (int a = 0; a < out_axis; a++) before_out *= sigs->out[0].shape.dims[a];
    if (before_in != before_out) return false;
    for (int a = in_axis + 1; a < sigs->in[0].shape.ndim; a++) in_unit *= sigs->in[0].shape.dims[a];
    for (int a = out_axis + 1; a < sigs->out[0].shape.ndim; a++) out_unit *= sigs->out[0].shape.dims[a];
    int64_t in_size = sigs->in[0].shape.dims[in_axis], out_size = sigs->out[0].shape.dims[out_axis];
    if (in_size == out_size) return in_unit == out_unit;
    for (int part = 0; part < sigs->parts; part++) {
        int64_t in_start, out_start, size;
        fl_split(&in_start, &size, in_size, sigs->parts, part);
        fl_split(&out_start, &size, out_size, sigs->parts, part);
        if (in_start * in_unit != out_start * out_unit) return false;
    }
    return in_size * in_unit == out_size * out_unit;
}

/* An axis keeps its split as an axis of the result whose parts begin at the same elements. */
static void sbp_reshape(fl_sigs *sigs)
{
    int map[FL_MAX_NDIM];
    for (int i = 0; i < sigs->in_logical[0].ndim; i++) {
        map[i] = -1;
        for (int j = 0; j < sigs->out_logical[0].ndim; j++) {
            if (!boundaries_agree(sigs, i, j)) continue;
            bool same = sigs->in[0].shape.dims[i] == sigs->out[0].shape.dims[j];
            if (map[i] < 0 || same) map[i] = j;
            if (same) break;
        }
    }
    fl_sbp_map(sigs, map);
    fl_sbp_moves(sigs, false);
}

static const char *const back_to_x[] = {"reshape_to(g, x)"};

static const char *const reshape_samples[] = {"flow.randn(2, 3, 4), {6, 4}",
                                              "flow.randn(2, 3, 4):transpose(0, 2), {-1, 2}",
                                              "flow.randn(1, 5, 1), {5}",
                                              "flow.zeros(0, 3), {3, 0, 2}",
                                              "flow.tensor(3.5), {1, 1}",
                                              "flow.arange(24):reshape(4, 6), {2, 2, 6}",
                                              NULL};
FL_OP(reshape) = {
    .name = "reshape",
    .sig = "reshape(x, size: sizes)",
    .nout = 1,
    .flags = FL_OP_VIEW | FL_OP_REGROUPS,
    .doc = "The same elements with other sizes (one may be -1): a view if the strides allow it, else a copy.",
    .infer = infer_reshape,
    .sbp = sbp_reshape,
    .view = view_reshape,
    .cpu = fl_kernel_copy,
    .vjp = back_to_x,
    .samples = reshape_samples,
};

static const char *const view_samples[] = {"flow.randn(2, 3, 4), {6, 4}", "flow.randn(4, 6), {-1}",
                                           "flow.randn(4, 6):narrow(0, 1, 2), {2, 2, 3}", NULL};
FL_OP(view) = {
    .name = "view",
    .sig = "view(x, size: sizes)",
    .nout = 1,
    .flags = FL_OP_VIEW | FL_OP_VIEW_ONLY | FL_OP_METHOD_ONLY | FL_OP_REGROUPS,
    .doc =
        "The same elements with other sizes (one may be -1), always a view; an error if the strides do not allow it.",
    .infer = infer_reshape,
    .sbp = sbp_reshape,
    .view = view_reshape,
    .cpu = fl_kernel_copy,
    .vjp = back_to_x,
    .samples = view_samples,
};

static fl_status infer_flatten(fl_infer *infer)
{
    const fl_shape *in = &infer->in[0].shape;
    int first, last;
    FL_TRY(fl_shape_axis(&first, infer->name, infer->attrs->at[FLATTEN_START].integer, in));
    FL_TRY(fl_shape_axis(&last, infer->name, infer->attrs->at[FLATTEN_END].integer, in));
    if (first > last) return fl_infer_fail(infer, FL_ERR_SHAPE, "start_axis %d comes after end_axis %d", first, last);
    fl_shape out = {0};
    for (int i = 0; i < in->ndim; i++) {
        if (i > first && i <= last) out.dims[out.ndim - 1] *= in->dims[i];
        else out.dims[out.ndim++] = in->dims[i];
    }
    if (in->ndim == 0) out = (fl_shape){1, {1}};
    infer->out[0].dtype = infer->in[0].dtype;
    infer->out[0].shape = out;
    return FL_OK;
}

static const char *const flatten_samples[] = {"flow.randn(2, 3, 4)", "flow.randn(2, 3, 4), 1",
                                              "flow.randn(2, 3, 4, 5), 1, 2", "flow.tensor(2.5)", NULL};
FL_OP(flatten) = {
    .name = "flatten",
    .sig = "flatten(x, start_axis: axis = 0, end_axis: axis = -1)",
    .nout = 1,
    .flags = FL_OP_VIEW | FL_OP_REGROUPS,
    .doc = "Joins the axes from start_axis to end_axis into one.",
    .infer = infer_flatten,
    .sbp = sbp_reshape,
    .view = view_reshape,
    .cpu = fl_kernel_copy,
    .vjp = back_to_x,
    .samples = flatten_samples,
};

/* Bit mask of the axes that squeeze takes away: of an empty list none, unlike in sums. */
static fl_status squeezed_axes(uint32_t *mask, const char *who, const fl_attr *axes, const fl_shape *shape)
{
    FL_TRY(fl_reduce_axes(mask, who, axes, shape));
    if (axes->given && axes->count == 0) *mask = 0;
    for (int i = 0; i < shape->ndim; i++)
        if (shape->dims[i] != 1) *mask &= ~(1u << i);
    return FL_OK;
}

static fl_status infer_squeeze(fl_infer *infer)
{
    uint32_t mask;
    FL_TRY(squeezed_axes(&mask, infer->name, &infer->attrs->at[FL_SQUEEZE_AXIS], &infer->in[0].shape));
    fl_reduce_shape(&infer->out[0].shape, &infer->in[0].shape, mask, false);
    infer->out[0].dtype = infer->in[0].dtype;
    return FL_OK;
}

static void view_squeeze(fl_view_request *request)
{
    uint32_t mask;
    const fl_shape *shape = &request->in->meta->shape;
    if (squeezed_axes(&mask, "squeeze", &request->attrs->at[FL_SQUEEZE_AXIS], shape) != FL_OK)
        return; /* inference has accepted them */
    for (int i = 0, j = 0; i < shape->ndim; i++)
        if (!(mask >> i & 1u)) request->strides[j++] = request->in->strides[i];
}

/* Axes move up where those of size 1 before them are gone. */
static void sbp_squeeze(fl_sigs *sigs)
{
    int map[FL_MAX_NDIM];
    uint32_t mask;
    if (squeezed_axes(&mask, "squeeze", &sigs->attrs->at[FL_SQUEEZE_AXIS], &sigs->in_logical[0]) != FL_OK) return;
    for (int i = 0, j = 0; i < sigs->in_logical[0].ndim; i++) map[i] = mask >> i & 1u ? -1 : j++;
    fl_sbp_map(sigs, map);
    fl_sbp_moves(sigs, false);
}

static const char *const squeeze_samples[] = {"flow.randn(1, 3, 1, 2)", "flow.randn(1, 3, 1, 2), 2",
                                              "flow.randn(1, 3, 1), {0, -1}", "flow.randn(2, 3), 0", NULL};
FL_OP(squeeze) = {
    .name = "squeeze",
    .sig = "squeeze(x, axis: axes = nil)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "Removes axes of size 1: those given, or all.",
    .infer = infer_squeeze,
    .sbp = sbp_squeeze,
    .view = view_squeeze,
    .cpu = fl_kernel_copy,
    .vjp = back_to_x,
    .samples = squeeze_samples,
};

static fl_status infer_unsqueeze(fl_infer *infer)
{
    const fl_shape *in = &infer->in[0].shape;
    int64_t axis = infer->attrs->at[FL_SQUEEZE_AXIS].integer;
    if (in->ndim == FL_MAX_NDIM) return fl_infer_fail(infer, FL_ERR_SHAPE, "a tensor has at most %d axes", FL_MAX_NDIM);
    char text[FL_SHAPE_TEXT];
    if (axis < -(in->ndim + 1) || axis > in->ndim)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "axis %lld is out of range for %s (%d to %d)", (long long)axis,
                             fl_shape_text(text, in), -(in->ndim + 1), in->ndim);
    if (axis < 0) axis += in->ndim + 1;
    fl_shape out = {in->ndim + 1, {0}};
    for (int i = 0; i < out.ndim; i++) out.dims[i] = i == axis ? 1 : in->dims[i - (i > axis)];
    infer->out[0].dtype = infer->in[0].dtype;
    infer->out[0].shape = out;
    return FL_OK;
}

static void view_unsqueeze(fl_view_request *request)
{
    int ndim = request->out_meta->shape.ndim, axis = fl_axis_of(&request->attrs->at[FL_SQUEEZE_AXIS], ndim);
    for (int i = 0; i < ndim; i++) request->strides[i] = i == axis ? 1 : request->in->strides[i - (i > axis)];
}

/* Axes move by one where the new axis comes before them. */
static void sbp_unsqueeze(fl_sigs *sigs)
{
    int map[FL_MAX_NDIM], axis = fl_axis_of(&sigs->attrs->at[FL_SQUEEZE_AXIS], sigs->out_logical[0].ndim);
    for (int i = 0; i < sigs->in_logical[0].ndim; i++) map[i] = i + (i >= axis);
    fl_sbp_map(sigs, map);
    fl_sbp_moves(sigs, false);
}

static const char *const unsqueeze_samples[] = {"flow.randn(2, 3), 0", "flow.randn(2, 3), -1", "flow.randn(2, 3), 1",
                                                "flow.tensor(1.5), 0", NULL};
FL_OP(unsqueeze) = {
    .name = "unsqueeze",
    .sig = "unsqueeze(x, axis: axis)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "Inserts an axis of size 1.",
    .infer = infer_unsqueeze,
    .sbp = sbp_unsqueeze,
    .view = view_unsqueeze,
    .cpu = fl_kernel_copy,
    .vjp = back_to_x,
    .samples = unsqueeze_samples,
};

/* ---- permutations ---- */

/* order[j]: the input axis that becomes axis j. */
static fl_status permutation(int *order, const char *who, const fl_attr *axes, const fl_shape *shape)
{
    char text[FL_SHAPE_TEXT];
    if (axes->count != shape->ndim)
        return fl_fail(FL_ERR_SHAPE, "%s: %d axes given for %s, which has %d", who, axes->count,
                       fl_shape_text(text, shape), shape->ndim);
    uint32_t seen = 0;
    for (int j = 0; j < shape->ndim; j++) {
        FL_TRY(fl_shape_axis(&order[j], who, axes->list[j], shape));
        if (seen >> order[j] & 1u) return fl_fail(FL_ERR_SHAPE, "%s: axis %d is named twice", who, order[j]);
        seen |= 1u << order[j];
    }
    return FL_OK;
}

static void infer_order(fl_infer *infer, const int *order)
{
    const fl_shape *in = &infer->in[0].shape;
    infer->out[0].dtype = infer->in[0].dtype;
    infer->out[0].shape = (fl_shape){in->ndim, {0}};
    for (int j = 0; j < in->ndim; j++) infer->out[0].shape.dims[j] = in->dims[order[j]];
}

/* A split follows its axis to the new position. */
static void sbp_order(fl_sigs *sigs, const int *order)
{
    int map[FL_MAX_NDIM];
    for (int j = 0; j < sigs->in_logical[0].ndim; j++) map[order[j]] = j;
    fl_sbp_map(sigs, map);
    fl_sbp_moves(sigs, false);
}

static void view_order(fl_view_request *request, const int *order)
{
    for (int j = 0; j < request->out_meta->shape.ndim; j++) request->strides[j] = request->in->strides[order[j]];
}

static fl_status infer_permute(fl_infer *infer)
{
    int order[FL_MAX_NDIM];
    FL_TRY(permutation(order, infer->name, &infer->attrs->at[FL_PERMUTE_AXES], &infer->in[0].shape));
    infer_order(infer, order);
    return FL_OK;
}

/* Axes keep their splits under their new numbers. */
static void sbp_permute(fl_sigs *sigs)
{
    int order[FL_MAX_NDIM];
    if (permutation(order, "permute", &sigs->attrs->at[FL_PERMUTE_AXES], &sigs->in_logical[0]) == FL_OK)
        sbp_order(sigs, order);
}

static void view_permute(fl_view_request *request)
{
    int order[FL_MAX_NDIM];
    if (permutation(order, "permute", &request->attrs->at[FL_PERMUTE_AXES], &request->in->meta->shape) == FL_OK)
        view_order(request, order);
}

/* The inverse permutation. */
static fl_status grad_permute(fl_grad *g)
{
    int order[FL_MAX_NDIM];
    int64_t inverse[FL_MAX_NDIM];
    const fl_shape *shape = &g->in_meta[0]->shape;
    FL_TRY(permutation(order, "permute", &g->attrs->at[FL_PERMUTE_AXES], shape));
    for (int j = 0; j < shape->ndim; j++) inverse[order[j]] = j;
    fl_attrs attrs;
    fl_attrs_init(&attrs, g->op);
    fl_attr_set_list(&attrs, FL_PERMUTE_AXES, inverse, shape->ndim);
    return FL_CALL_WITH(&g->gin[0], &attrs, permute, fl_of(g->gout[0]));
}

static const char *const permute_samples[] = {"flow.randn(2, 3, 4), {2, 0, 1}", "flow.randn(2, 3), {-1, 0}",
                                              "flow.randn(2, 3, 4, 5), {0, 2, 1, 3}", NULL};
FL_OP(permute) = {
    .name = "permute",
    .sig = "permute(x, axes: axes)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "The axes in another order: axis j of the result is axis axes[j] of x.",
    .infer = infer_permute,
    .sbp = sbp_permute,
    .view = view_permute,
    .cpu = fl_kernel_copy,
    .grad = grad_permute,
    .samples = permute_samples,
};

/* The order that exchanges the axes of two attributes. */
static fl_status exchange(int *order, const char *who, const fl_attrs *attrs, const fl_shape *shape)
{
    int a, b;
    FL_TRY(fl_shape_axis(&a, who, attrs->at[FL_TRANSPOSE_AXIS0].integer, shape));
    FL_TRY(fl_shape_axis(&b, who, attrs->at[FL_TRANSPOSE_AXIS1].integer, shape));
    for (int i = 0; i < shape->ndim; i++) order[i] = i == a ? b : i == b ? a : i;
    return FL_OK;
}

static fl_status infer_transpose(fl_infer *infer)
{
    int order[FL_MAX_NDIM];
    FL_TRY(exchange(order, infer->name, infer->attrs, &infer->in[0].shape));
    infer_order(infer, order);
    return FL_OK;
}

/* As sbp_permute. */
static void sbp_transpose(fl_sigs *sigs)
{
    int order[FL_MAX_NDIM];
    if (exchange(order, "transpose", sigs->attrs, &sigs->in_logical[0]) == FL_OK) sbp_order(sigs, order);
}

static void view_transpose(fl_view_request *request)
{
    int order[FL_MAX_NDIM];
    if (exchange(order, "transpose", request->attrs, &request->in->meta->shape) == FL_OK) view_order(request, order);
}

/* An exchange is its own inverse. */
static const char *const transpose_vjp[] = {"transpose(g, axis0, axis1)"};
static const char *const transpose_samples[] = {"flow.randn(2, 3, 4), 0, 2", "flow.randn(2, 3), -1, -2",
                                                "flow.tensor(1.5), 0, 0", NULL};
FL_OP(transpose) = {
    .name = "transpose",
    .sig = "transpose(x, axis0: axis, axis1: axis)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "Exchanges two axes.",
    .infer = infer_transpose,
    .sbp = sbp_transpose,
    .view = view_transpose,
    .cpu = fl_kernel_copy,
    .vjp = transpose_vjp,
    .samples = transpose_samples,
};

static const int swapped[] = {1, 0}, unchanged[] = {0};
static const int *matrix_order(const fl_shape *shape) { return shape->ndim == 2 ? swapped : unchanged; }

static fl_status infer_t(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    if (infer->in[0].shape.ndim > 2)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes a matrix, x is %s; use transpose(axis0, axis1)",
                             fl_shape_text(text, &infer->in[0].shape));
    infer_order(infer, matrix_order(&infer->in[0].shape));
    return FL_OK;
}

static void sbp_t(fl_sigs *sigs) { sbp_order(sigs, matrix_order(&sigs->in_logical[0])); }
static void view_t(fl_view_request *request) { view_order(request, matrix_order(&request->in->meta->shape)); }

/* An exchange is its own inverse. */
static const char *const t_vjp[] = {"t(g)"};
static const char *const t_samples[] = {"flow.randn(2, 3)", "flow.randn(3)", "flow.tensor(1.5)", NULL};
FL_OP(t) = {
    .name = "t",
    .sig = "t(x)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "The transposed matrix; tensors of fewer than two axes are unchanged.",
    .infer = infer_t,
    .sbp = sbp_t,
    .view = view_t,
    .cpu = fl_kernel_copy,
    .vjp = t_vjp,
    .samples = t_samples,
};

/* ---- expand ---- */

static fl_status infer_expand(fl_infer *infer)
{
    const fl_attr *sizes = &infer->attrs->at[FL_VIEW_SIZE];
    const fl_shape *in = &infer->in[0].shape;
    char from[FL_SHAPE_TEXT], to[FL_SHAPE_TEXT];
    fl_shape asked = {sizes->count, {0}};
    for (int i = 0; i < asked.ndim; i++) asked.dims[i] = sizes->list[i];
    int pad = asked.ndim - in->ndim;
    if (pad < 0)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "%s has more axes than %s", fl_shape_text(from, in),
                             fl_shape_text(to, &asked));
    fl_shape out = asked;
    for (int i = 0; i < out.ndim; i++) {
        int64_t own = i < pad ? 1 : in->dims[i - pad];
        if (out.dims[i] == -1 && i >= pad) out.dims[i] = own;
        if (out.dims[i] < 0)
            return fl_infer_fail(infer, FL_ERR_SHAPE, "size %lld of %s is %s", (long long)out.dims[i],
                                 fl_shape_text(to, &asked),
                                 out.dims[i] == -1 ? "not allowed for a new axis" : "negative");
        if (own != 1 && own != out.dims[i])
            return fl_infer_fail(infer, FL_ERR_SHAPE, "%s cannot be expanded to %s: axis %d has size %lld",
                                 fl_shape_text(from, in), fl_shape_text(to, &asked), i - pad, (long long)own);
    }
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_shape_make(&infer->out[0].shape, infer->name, out.dims, out.ndim);
}

/* An axis is stretched when its logical sizes differ; the local ones may agree by chance. */
static void view_expand(fl_view_request *request)
{
    const fl_shape *in = &request->in->meta->shape, *out = &request->out_meta->shape;
    int pad = out->ndim - in->ndim;
    for (int i = 0; i < out->ndim; i++)
        request->strides[i] = i < pad || in->dims[i - pad] != out->dims[i] ? 0 : request->in->strides[i - pad];
}

/* An expanded axis has one element, which no split divides; the others keep their splits. */
static void sbp_expand(fl_sigs *sigs)
{
    int map[FL_MAX_NDIM], pad = sigs->out_logical[0].ndim - sigs->in_logical[0].ndim;
    for (int i = 0; i < sigs->in_logical[0].ndim; i++)
        map[i] = sigs->in_logical[0].dims[i] == sigs->out_logical[0].dims[i + pad] ? i + pad : -1;
    fl_sbp_map(sigs, map);
    fl_sbp_moves(sigs, false);
}

static const char *const expand_vjp[] = {"g"}; /* the tape sums it to x's shape */
static const char *const expand_samples[] = {"flow.randn(3, 1), {3, 4}", "flow.randn(3, 1), {2, -1, 4}",
                                             "flow.tensor(1.5), {2}", "flow.randn(4, 3, 1, 2), {2, 4, 3, 4, 2}", NULL};
FL_OP(expand) = {
    .name = "expand",
    .sig = "expand(x, size: sizes)",
    .nout = 1,
    .flags = FL_OP_VIEW,
    .doc = "Expands axes of size 1 without copying; -1 keeps a size, new axes come first.",
    .infer = infer_expand,
    .sbp = sbp_expand,
    .view = view_expand,
    .cpu = fl_kernel_copy,
    .vjp = expand_vjp,
    .samples = expand_samples,
};

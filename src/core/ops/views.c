/*
** views.c -- ops whose result shares the input's storage: other sizes, other strides, another offset.
**
** Each hook works on the local part: the input's local shape is its window, the result's local shape the window of the
** result's meta, which is why a signature may split an axis of a view. Positions (start, index) are value
** attributes, checked at every call; sizes and axes are part of the plan. Where a tensor cannot be viewed, the
** kernel copies.
*/
#include "ops.h"

static const int64_t *local_sizes(const fl_tensor *t) { return t->meta->window.size; }

/* ---- SBP of views ---- */

/* Partial values survive when nothing is converted; sums also on the way to a wider float. */
static bool survives(const fl_sigs *s, fl_sbp partial)
{
    for (int i = 0; i < s->nin; i++) {
        if (s->in[i].kind != FL_TENSOR) continue;
        fl_dtype from = s->in[i].dtype, to = s->out[0].dtype;
        if (partial == FL_PSUM ? !fl_sbp_sum_exact(from, to) : from != to) return false;
    }
    return true;
}

void fl_sbp_moves(fl_sigs *s, bool zeros)
{
    static const fl_sbp partials[] = {FL_PSUM, FL_PMAX, FL_PMIN};
    fl_sbp sig[s->nin + s->nout];
    for (int p = 0; p < (zeros ? 1 : 3); p++) {
        for (int i = 0; i < s->nin + s->nout; i++)
            sig[i] = i < s->nin && s->in[i].kind != FL_TENSOR ? FL_B : partials[p];
        if (survives(s, partials[p])) fl_sig_add(s, NULL, sig);
    }
}

void fl_sbp_map(fl_sigs *s, const int *map)
{
    for (int i = 0; i < s->in_logical[0].ndim; i++)
        if (map[i] >= 0) FL_SIG(s, NULL, FL_S(i), FL_S(map[i]));
}

/* ---- reshape and its relatives ---- */

static fl_status resolve_sizes(fl_shape *out, const fl_infer *c, const fl_attr *sizes)
{
    char from[FL_SHAPE_TEXT], to[FL_SHAPE_TEXT];
    const fl_shape *in = &c->in[0].shape;
    int64_t numel = fl_shape_numel(in), known = 1, dims[FL_MAX_NDIM] = {0};
    int unknown = -1;
    fl_shape asked = {sizes->count, {0}};
    for (int i = 0; i < sizes->count; i++) asked.dims[i] = dims[i] = sizes->list[i];
    for (int i = 0; i < sizes->count; i++) {
        if (dims[i] == -1 && unknown >= 0) return fl_infer_fail(c, FL_ERR_SHAPE, "only one size can be -1, not %s", fl_shape_text(to, &asked));
        if (dims[i] == -1) unknown = i;
        else if (dims[i] < 0) return fl_infer_fail(c, FL_ERR_SHAPE, "size %lld of %s is negative", (long long)dims[i], fl_shape_text(to, &asked));
        else if (__builtin_mul_overflow(known, dims[i], &known)) known = INT64_MAX;
    }
    if (unknown >= 0 && known == 0 && numel == 0)
        return fl_infer_fail(c, FL_ERR_SHAPE, "-1 in %s can be any size, because %s has no elements", fl_shape_text(to, &asked), fl_shape_text(from, in));
    bool fits = unknown >= 0 ? known > 0 && numel % known == 0 : known == numel;
    if (!fits)
        return fl_infer_fail(c, FL_ERR_SHAPE, "%s with %lld elements cannot become %s", fl_shape_text(from, in), (long long)numel, fl_shape_text(to, &asked));
    if (unknown >= 0) dims[unknown] = numel / known;
    return fl_shape_make(out, c->name, dims, sizes->count);
}

static fl_status infer_reshape(fl_infer *c)
{
    c->out[0].dtype = c->in[0].dtype;
    return resolve_sizes(&c->out[0].shape, c, &c->attrs->at[0]);
}

/* Strides of the input's local part seen as the result's local sizes; v->possible says whether there are any. Walks from
** the last axis: a run of input axes that lie one inside the other can be cut anew in any way. */
static void view_reshape(fl_view_request *v)
{
    const int64_t *in = local_sizes(v->in), *out = v->out_meta->window.size;
    int in_axis = v->in->meta->shape.ndim - 1, out_axis = v->out_meta->shape.ndim - 1;
    v->offset = 0;
    if (v->in->contiguous || v->out_meta->local_numel == 0) {
        fl_shape_strides(v->strides, out, out_axis + 1);
        return;
    }
    int64_t run = 1, taken = 1, base = 1; /* elements of the run, those cut off so far, stride of its last axis */
    for (bool fresh = true; in_axis >= 0; in_axis--) {
        if (fresh) base = v->in->strides[in_axis];
        fresh = false;
        run *= in[in_axis];
        if (in_axis > 0 && (in[in_axis - 1] == 1 || v->in->strides[in_axis - 1] == run * base)) continue;
        while (out_axis >= 0 && (taken < run || out[out_axis] == 1)) {
            v->strides[out_axis] = taken * base;
            taken *= out[out_axis--];
        }
        if (taken != run) {
            v->possible = false;
            return;
        }
        run = taken = 1;
        fresh = true;
    }
    while (out_axis >= 0) v->strides[out_axis--] = 1;
}

/* Do all parts of in axis i and out axis j end at the same elements? Both axes have equally many elements before
** them; when their sizes differ the parts must be equal, or a further split would cut them differently. */
static bool boundaries_agree(const fl_sigs *s, int i, int j)
{
    int64_t before_in = 1, before_out = 1, in_unit = 1, out_unit = 1;
    for (int a = 0; a < i; a++) before_in *= s->in[0].shape.dims[a];
    for (int a = 0; a < j; a++) before_out *= s->out[0].shape.dims[a];
    if (before_in != before_out) return false;
    for (int a = i + 1; a < s->in[0].shape.ndim; a++) in_unit *= s->in[0].shape.dims[a];
    for (int a = j + 1; a < s->out[0].shape.ndim; a++) out_unit *= s->out[0].shape.dims[a];
    int64_t in_size = s->in[0].shape.dims[i], out_size = s->out[0].shape.dims[j];
    if (in_size == out_size) return in_unit == out_unit;
    for (int part = 0; part < s->parts; part++) {
        int64_t in_start, out_start, size;
        fl_split(&in_start, &size, in_size, s->parts, part);
        fl_split(&out_start, &size, out_size, s->parts, part);
        if (in_start * in_unit != out_start * out_unit) return false;
    }
    return in_size * in_unit == out_size * out_unit;
}

static void sbp_reshape(fl_sigs *s)
{
    int map[FL_MAX_NDIM];
    for (int i = 0; i < s->in_logical[0].ndim; i++) {
        map[i] = -1;
        for (int j = 0; j < s->out_logical[0].ndim; j++) {
            if (!boundaries_agree(s, i, j)) continue;
            bool same = s->in[0].shape.dims[i] == s->out[0].shape.dims[j];
            if (map[i] < 0 || same) map[i] = j;
            if (same) break;
        }
    }
    fl_sbp_map(s, map);
    fl_sbp_moves(s, false);
}

static const char *const back_to_x[] = {"reshape_to(g, x)"};

static const char *const reshape_samples[] = {"flow.randn(2, 3, 4), {6, 4}", "flow.randn(2, 3, 4):transpose(0, 2), {-1, 2}", "flow.randn(1, 5, 1), {5}",
                                              "flow.zeros(0, 3), {3, 0, 2}", "flow.tensor(3.5), {1, 1}", "flow.arange(24):reshape(4, 6), {2, 2, 6}", NULL};
FL_OP(reshape) {
    .name = "reshape", .sig = "reshape(x, size: sizes)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "The same elements with other sizes (one may be -1): a view where the strides allow, else a copy.",
    .infer = infer_reshape, .sbp = sbp_reshape, .view = view_reshape, .cpu = fl_kernel_copy, .vjp = back_to_x, .samples = reshape_samples,
};

static const char *const view_samples[] = {"flow.randn(2, 3, 4), {6, 4}", "flow.randn(4, 6), {-1}", "flow.randn(4, 6):narrow(0, 1, 2), {2, 2, 3}", NULL};
FL_OP(view) {
    .name = "view", .sig = "view(x, size: sizes)", .nout = 1, .flags = FL_OP_VIEW | FL_OP_VIEW_ONLY | FL_OP_METHOD_ONLY,
    .doc = "The same elements with other sizes (one may be -1), always a view: an error where the strides do not allow it.",
    .infer = infer_reshape, .sbp = sbp_reshape, .view = view_reshape, .cpu = fl_kernel_copy, .vjp = back_to_x, .samples = view_samples,
};

static fl_status infer_flatten(fl_infer *c)
{
    const fl_shape *in = &c->in[0].shape;
    int first, last;
    FL_TRY(fl_shape_axis(&first, c->name, c->attrs->at[0].integer, in));
    FL_TRY(fl_shape_axis(&last, c->name, c->attrs->at[1].integer, in));
    if (first > last) return fl_infer_fail(c, FL_ERR_SHAPE, "start_axis %d comes after end_axis %d", first, last);
    fl_shape out = {0};
    for (int i = 0; i < in->ndim; i++) {
        if (i > first && i <= last) out.dims[out.ndim - 1] *= in->dims[i];
        else out.dims[out.ndim++] = in->dims[i];
    }
    if (in->ndim == 0) out = (fl_shape){1, {1}};
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = out;
    return FL_OK;
}

static const char *const flatten_samples[] = {"flow.randn(2, 3, 4)", "flow.randn(2, 3, 4), 1", "flow.randn(2, 3, 4, 5), 1, 2", "flow.tensor(2.5)", NULL};
FL_OP(flatten) {
    .name = "flatten", .sig = "flatten(x, start_axis: axis = 0, end_axis: axis = -1)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "Joins the axes from start_axis to end_axis into one.",
    .infer = infer_flatten, .sbp = sbp_reshape, .view = view_reshape, .cpu = fl_kernel_copy, .vjp = back_to_x, .samples = flatten_samples,
};

/* Bit mask of the axes that squeeze takes away. */
static fl_status squeezed_axes(uint32_t *mask, const char *who, const fl_attr *axes, const fl_shape *shape)
{
    FL_TRY(fl_reduce_axes(mask, who, axes, shape));
    for (int i = 0; i < shape->ndim; i++)
        if (shape->dims[i] != 1) *mask &= ~(1u << i);
    return FL_OK;
}

static fl_status infer_squeeze(fl_infer *c)
{
    uint32_t mask;
    FL_TRY(squeezed_axes(&mask, c->name, &c->attrs->at[0], &c->in[0].shape));
    fl_reduce_shape(&c->out[0].shape, &c->in[0].shape, mask, false);
    c->out[0].dtype = c->in[0].dtype;
    return FL_OK;
}

static void view_squeeze(fl_view_request *v)
{
    uint32_t mask;
    const fl_shape *shape = &v->in->meta->shape;
    if (squeezed_axes(&mask, "squeeze", &v->attrs->at[0], shape) != FL_OK) return; /* inference has accepted them */
    for (int i = 0, j = 0; i < shape->ndim; i++)
        if (!(mask >> i & 1u)) v->strides[j++] = v->in->strides[i];
}

static void sbp_squeeze(fl_sigs *s)
{
    int map[FL_MAX_NDIM];
    uint32_t mask;
    if (squeezed_axes(&mask, "squeeze", &s->attrs->at[0], &s->in_logical[0]) != FL_OK) return;
    for (int i = 0, j = 0; i < s->in_logical[0].ndim; i++) map[i] = mask >> i & 1u ? -1 : j++;
    fl_sbp_map(s, map);
    fl_sbp_moves(s, false);
}

static const char *const squeeze_samples[] = {"flow.randn(1, 3, 1, 2)", "flow.randn(1, 3, 1, 2), 2", "flow.randn(1, 3, 1), {0, -1}", "flow.randn(2, 3), 0", NULL};
FL_OP(squeeze) {
    .name = "squeeze", .sig = "squeeze(x, axis: axes = nil)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "Takes away axes of size 1: the ones named, or all.",
    .infer = infer_squeeze, .sbp = sbp_squeeze, .view = view_squeeze, .cpu = fl_kernel_copy, .vjp = back_to_x, .samples = squeeze_samples,
};

static fl_status infer_unsqueeze(fl_infer *c)
{
    const fl_shape *in = &c->in[0].shape;
    int64_t axis = c->attrs->at[0].integer;
    if (in->ndim == FL_MAX_NDIM) return fl_infer_fail(c, FL_ERR_SHAPE, "a tensor has at most %d axes", FL_MAX_NDIM);
    char text[FL_SHAPE_TEXT];
    if (axis < -(in->ndim + 1) || axis > in->ndim)
        return fl_infer_fail(c, FL_ERR_SHAPE, "axis %lld is out of range for %s (%d to %d)", (long long)axis, fl_shape_text(text, in), -(in->ndim + 1), in->ndim);
    if (axis < 0) axis += in->ndim + 1;
    fl_shape out = {in->ndim + 1, {0}};
    for (int i = 0; i < out.ndim; i++) out.dims[i] = i == axis ? 1 : in->dims[i - (i > axis)];
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = out;
    return FL_OK;
}

static void view_unsqueeze(fl_view_request *v)
{
    int ndim = v->out_meta->shape.ndim, axis = fl_axis_of(&v->attrs->at[0], ndim);
    for (int i = 0; i < ndim; i++) v->strides[i] = i == axis ? 1 : v->in->strides[i - (i > axis)];
}

static void sbp_unsqueeze(fl_sigs *s)
{
    int map[FL_MAX_NDIM], axis = fl_axis_of(&s->attrs->at[0], s->out_logical[0].ndim);
    for (int i = 0; i < s->in_logical[0].ndim; i++) map[i] = i + (i >= axis);
    fl_sbp_map(s, map);
    fl_sbp_moves(s, false);
}

static const char *const unsqueeze_samples[] = {"flow.randn(2, 3), 0", "flow.randn(2, 3), -1", "flow.randn(2, 3), 1", "flow.tensor(1.5), 0", NULL};
FL_OP(unsqueeze) {
    .name = "unsqueeze", .sig = "unsqueeze(x, axis: axis)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "Puts in an axis of size 1.",
    .infer = infer_unsqueeze, .sbp = sbp_unsqueeze, .view = view_unsqueeze, .cpu = fl_kernel_copy, .vjp = back_to_x, .samples = unsqueeze_samples,
};

/* ---- permutations ---- */

/* order[j]: the input axis that becomes axis j. */
static fl_status permutation(int *order, const char *who, const fl_attr *axes, const fl_shape *shape)
{
    char text[FL_SHAPE_TEXT];
    if (axes->count != shape->ndim)
        return fl_fail(FL_ERR_SHAPE, "%s: %d axes given for %s, which has %d", who, axes->count, fl_shape_text(text, shape), shape->ndim);
    uint32_t seen = 0;
    for (int j = 0; j < shape->ndim; j++) {
        FL_TRY(fl_shape_axis(&order[j], who, axes->list[j], shape));
        if (seen >> order[j] & 1u) return fl_fail(FL_ERR_SHAPE, "%s: axis %d is named twice", who, order[j]);
        seen |= 1u << order[j];
    }
    return FL_OK;
}

static void infer_order(fl_infer *c, const int *order)
{
    const fl_shape *in = &c->in[0].shape;
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = (fl_shape){in->ndim, {0}};
    for (int j = 0; j < in->ndim; j++) c->out[0].shape.dims[j] = in->dims[order[j]];
}

static void sbp_order(fl_sigs *s, const int *order)
{
    int map[FL_MAX_NDIM];
    for (int j = 0; j < s->in_logical[0].ndim; j++) map[order[j]] = j;
    fl_sbp_map(s, map);
    fl_sbp_moves(s, false);
}

static void view_order(fl_view_request *v, const int *order)
{
    for (int j = 0; j < v->out_meta->shape.ndim; j++) v->strides[j] = v->in->strides[order[j]];
}

static fl_status infer_permute(fl_infer *c)
{
    int order[FL_MAX_NDIM];
    FL_TRY(permutation(order, c->name, &c->attrs->at[0], &c->in[0].shape));
    infer_order(c, order);
    return FL_OK;
}

static void sbp_permute(fl_sigs *s)
{
    int order[FL_MAX_NDIM];
    if (permutation(order, "permute", &s->attrs->at[0], &s->in_logical[0]) == FL_OK) sbp_order(s, order);
}

static void view_permute(fl_view_request *v)
{
    int order[FL_MAX_NDIM];
    if (permutation(order, "permute", &v->attrs->at[0], &v->in->meta->shape) == FL_OK) view_order(v, order);
}

static fl_status grad_permute(fl_grad *g)
{
    int order[FL_MAX_NDIM];
    int64_t inverse[FL_MAX_NDIM];
    const fl_shape *shape = &g->in_meta[0]->shape;
    FL_TRY(permutation(order, "permute", &g->attrs->at[0], shape));
    for (int j = 0; j < shape->ndim; j++) inverse[order[j]] = j;
    fl_attrs attrs;
    fl_attrs_init(&attrs, g->op);
    fl_attr_set_list(&attrs, 0, inverse, shape->ndim);
    return FL_CALL_WITH(&g->gin[0], &attrs, permute, fl_of(g->gout[0]));
}

static const char *const permute_samples[] = {"flow.randn(2, 3, 4), {2, 0, 1}", "flow.randn(2, 3), {-1, 0}", "flow.randn(2, 3, 4, 5), {0, 2, 1, 3}", NULL};
FL_OP(permute) {
    .name = "permute", .sig = "permute(x, axes: axes)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "The axes in another order: axis j of the result is axis axes[j] of x.",
    .infer = infer_permute, .sbp = sbp_permute, .view = view_permute, .cpu = fl_kernel_copy, .grad = grad_permute, .samples = permute_samples,
};

/* The order that exchanges the axes of two attributes. */
static fl_status exchange(int *order, const char *who, const fl_attrs *attrs, const fl_shape *shape)
{
    int a, b;
    FL_TRY(fl_shape_axis(&a, who, attrs->at[0].integer, shape));
    FL_TRY(fl_shape_axis(&b, who, attrs->at[1].integer, shape));
    for (int i = 0; i < shape->ndim; i++) order[i] = i == a ? b : i == b ? a : i;
    return FL_OK;
}

static fl_status infer_transpose(fl_infer *c)
{
    int order[FL_MAX_NDIM];
    FL_TRY(exchange(order, c->name, c->attrs, &c->in[0].shape));
    infer_order(c, order);
    return FL_OK;
}

static void sbp_transpose(fl_sigs *s)
{
    int order[FL_MAX_NDIM];
    if (exchange(order, "transpose", s->attrs, &s->in_logical[0]) == FL_OK) sbp_order(s, order);
}

static void view_transpose(fl_view_request *v)
{
    int order[FL_MAX_NDIM];
    if (exchange(order, "transpose", v->attrs, &v->in->meta->shape) == FL_OK) view_order(v, order);
}

static const char *const transpose_vjp[] = {"transpose(g, axis0, axis1)"};
static const char *const transpose_samples[] = {"flow.randn(2, 3, 4), 0, 2", "flow.randn(2, 3), -1, -2", "flow.tensor(1.5), 0, 0", NULL};
FL_OP(transpose) {
    .name = "transpose", .sig = "transpose(x, axis0: axis, axis1: axis)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "Exchanges two axes.",
    .infer = infer_transpose, .sbp = sbp_transpose, .view = view_transpose, .cpu = fl_kernel_copy, .vjp = transpose_vjp, .samples = transpose_samples,
};

static const int swapped[] = {1, 0}, unchanged[] = {0};
static const int *matrix_order(const fl_shape *shape) { return shape->ndim == 2 ? swapped : unchanged; }

static fl_status infer_t(fl_infer *c)
{
    char text[FL_SHAPE_TEXT];
    if (c->in[0].shape.ndim > 2)
        return fl_infer_fail(c, FL_ERR_SHAPE, "takes a matrix, x is %s; use transpose(axis0, axis1)", fl_shape_text(text, &c->in[0].shape));
    infer_order(c, matrix_order(&c->in[0].shape));
    return FL_OK;
}

static void sbp_t(fl_sigs *s) { sbp_order(s, matrix_order(&s->in_logical[0])); }
static void view_t(fl_view_request *v) { view_order(v, matrix_order(&v->in->meta->shape)); }

static const char *const t_vjp[] = {"t(g)"};
static const char *const t_samples[] = {"flow.randn(2, 3)", "flow.randn(3)", "flow.tensor(1.5)", NULL};
FL_OP(t) {
    .name = "t", .sig = "t(x)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "The transposed matrix; fewer than two axes stay as they are.",
    .infer = infer_t, .sbp = sbp_t, .view = view_t, .cpu = fl_kernel_copy, .vjp = t_vjp, .samples = t_samples,
};

/* ---- expand ---- */

static fl_status infer_expand(fl_infer *c)
{
    const fl_attr *sizes = &c->attrs->at[0];
    const fl_shape *in = &c->in[0].shape;
    char from[FL_SHAPE_TEXT], to[FL_SHAPE_TEXT];
    fl_shape asked = {sizes->count, {0}};
    for (int i = 0; i < asked.ndim; i++) asked.dims[i] = sizes->list[i];
    int pad = asked.ndim - in->ndim;
    if (pad < 0) return fl_infer_fail(c, FL_ERR_SHAPE, "%s has more axes than %s", fl_shape_text(from, in), fl_shape_text(to, &asked));
    fl_shape out = asked;
    for (int i = 0; i < out.ndim; i++) {
        int64_t own = i < pad ? 1 : in->dims[i - pad];
        if (out.dims[i] == -1 && i >= pad) out.dims[i] = own;
        if (out.dims[i] < 0) return fl_infer_fail(c, FL_ERR_SHAPE, "size %lld of %s is not allowed for a new axis", (long long)out.dims[i], fl_shape_text(to, &asked));
        if (own != 1 && own != out.dims[i])
            return fl_infer_fail(c, FL_ERR_SHAPE, "%s cannot be expanded to %s: axis %d has size %lld", fl_shape_text(from, in), fl_shape_text(to, &asked), i - pad, (long long)own);
    }
    c->out[0].dtype = c->in[0].dtype;
    return fl_shape_make(&c->out[0].shape, c->name, out.dims, out.ndim);
}

/* An axis is stretched when its logical sizes differ; the local ones may agree by chance. */
static void view_expand(fl_view_request *v)
{
    const fl_shape *in = &v->in->meta->shape, *out = &v->out_meta->shape;
    int pad = out->ndim - in->ndim;
    for (int i = 0; i < out->ndim; i++) v->strides[i] = i < pad || in->dims[i - pad] != out->dims[i] ? 0 : v->in->strides[i - pad];
}

static void sbp_expand(fl_sigs *s)
{
    int map[FL_MAX_NDIM], pad = s->out_logical[0].ndim - s->in_logical[0].ndim;
    for (int i = 0; i < s->in_logical[0].ndim; i++)
        map[i] = s->in_logical[0].dims[i] == s->out_logical[0].dims[i + pad] ? i + pad : -1;
    fl_sbp_map(s, map);
    fl_sbp_moves(s, false);
}

static const char *const expand_vjp[] = {"g"}; /* the tape sums it to x's shape */
static const char *const expand_samples[] = {"flow.randn(3, 1), {3, 4}", "flow.randn(3, 1), {2, -1, 4}", "flow.tensor(1.5), {2}", "flow.randn(4, 3, 1, 2), {2, 4, 3, 4, 2}", NULL};
FL_OP(expand) {
    .name = "expand", .sig = "expand(x, size: sizes)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "Stretches axes of size 1 without copying; -1 keeps a size, new axes come first.",
    .infer = infer_expand, .sbp = sbp_expand, .view = view_expand, .cpu = fl_kernel_copy, .vjp = expand_vjp, .samples = expand_samples,
};

/* ---- intervals: narrow, slice, select ---- */

/* Every axis but `axis`; `dropped`: the axes after it move up. */
static void sbp_other_axes(fl_sigs *s, int axis, bool dropped)
{
    int map[FL_MAX_NDIM];
    for (int i = 0; i < s->in_logical[0].ndim; i++) map[i] = i == axis ? -1 : i - (dropped && i > axis);
    fl_sbp_map(s, map);
}

/* How many elements of an axis of `size` lie at start, start + step, ... and must: errors name axis and sizes. */
static fl_status check_interval(const char *who, const fl_tensor *x, int64_t axis_given, int64_t start, int64_t length, int64_t step)
{
    int axis;
    char text[FL_SHAPE_TEXT];
    FL_TRY(fl_shape_axis(&axis, who, axis_given, &x->meta->shape));
    int64_t size = x->meta->shape.ndim ? x->meta->shape.dims[axis] : 1;
    if (start < -size || start > size)
        return fl_fail(FL_ERR_VALUE, "%s: start %lld is out of range for axis %d of %s", who, (long long)start, axis, fl_shape_text(text, &x->meta->shape));
    if (start < 0) start += size;
    if (length > 0 && (length - 1 > (size - start - 1) / step || start >= size))
        return fl_fail(FL_ERR_VALUE, "%s: start %lld and length %lld exceed size %lld of axis %d of %s", who, (long long)start, (long long)length, (long long)size, axis,
                       fl_shape_text(text, &x->meta->shape));
    return FL_OK;
}

static fl_status infer_interval(fl_infer *c)
{
    int axis;
    char text[FL_SHAPE_TEXT];
    const fl_shape *in = &c->in[0].shape;
    int64_t length = c->attrs->at[2].integer;
    if (in->ndim == 0) return fl_infer_fail(c, FL_ERR_SHAPE, "x has no axes");
    FL_TRY(fl_shape_axis(&axis, c->name, c->attrs->at[0].integer, in));
    if (length < 0) return fl_infer_fail(c, FL_ERR_VALUE, "length %lld is negative", (long long)length);
    if (length > in->dims[axis])
        return fl_infer_fail(c, FL_ERR_VALUE, "length %lld exceeds size %lld of axis %d of %s", (long long)length, (long long)in->dims[axis], axis, fl_shape_text(text, in));
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = *in;
    c->out[0].shape.dims[axis] = length;
    return FL_OK;
}

static void sbp_interval(fl_sigs *s)
{
    int axis = fl_axis_of(&s->attrs->at[0], s->in_logical[0].ndim);
    bool whole = s->attrs->at[2].integer == s->in_logical[0].dims[axis];
    sbp_other_axes(s, whole ? -1 : axis, false);
    fl_sbp_moves(s, false);
}

static int64_t from_front(int64_t position, int64_t size) { return position < 0 ? position + size : position; }

static void view_interval(fl_view_request *v, int64_t step)
{
    const fl_tensor *x = v->in;
    int ndim = x->meta->shape.ndim, axis = fl_axis_of(&v->attrs->at[0], ndim);
    memcpy(v->strides, x->strides, sizeof v->strides);
    v->strides[axis] *= step;
    if (v->out_meta->local_numel) v->offset = from_front(v->attrs->at[1].integer, x->meta->shape.dims[axis]) * x->strides[axis];
}

static fl_status check_narrow(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_interval("narrow", in[0].tensor, attrs->at[0].integer, attrs->at[1].integer, attrs->at[2].integer, 1);
}

static void view_narrow(fl_view_request *v) { view_interval(v, 1); }

/* Zeros of the input's shape with g in the place it was taken from. */
static fl_status put_back(fl_tensor **out, fl_tensor *g, const fl_meta *input, int axis, int64_t start, int64_t step)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(narrow_backward));
    int64_t size = input->shape.dims[axis];
    fl_attr_set(&attrs, 0, axis);
    fl_attr_set(&attrs, 1, from_front(start, size));
    fl_attr_set(&attrs, 2, size);
    fl_attr_set(&attrs, 3, step);
    return FL_CALL_WITH(out, &attrs, narrow_backward, fl_of(g));
}

static fl_status grad_narrow(fl_grad *g)
{
    const fl_meta *input = g->in_meta[0];
    int axis = fl_axis_of(&g->attrs->at[0], input->shape.ndim);
    return put_back(&g->gin[0], g->gout[0], input, axis, g->attrs->at[1].integer, 1);
}

static const char *const narrow_samples[] = {"flow.randn(5, 3), 0, 1, 3", "flow.randn(5, 3), -1, -2, 2", "flow.randn(5, 3), 0, 5, 0", "flow.randn(4), 0, 0, 4", NULL};
FL_OP(narrow) {
    .name = "narrow", .sig = "narrow(x, axis: axis, ~start: int, length: int)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "The positions start to start + length - 1 of an axis.",
    .infer = infer_interval, .check = check_narrow, .sbp = sbp_interval, .view = view_narrow, .cpu = fl_kernel_copy, .grad = grad_narrow, .samples = narrow_samples,
};

static fl_status infer_every(fl_infer *c)
{
    if (c->attrs->at[3].integer < 1) return fl_infer_fail(c, FL_ERR_VALUE, "step %lld must be at least 1", (long long)c->attrs->at[3].integer);
    return infer_interval(c);
}

static fl_status check_every(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int64_t step = attrs->at[3].integer < 1 ? 1 : attrs->at[3].integer;
    return check_interval("slice", in[0].tensor, attrs->at[0].integer, attrs->at[1].integer, attrs->at[2].integer, step);
}

static void view_every(fl_view_request *v) { view_interval(v, v->attrs->at[3].integer); }

static void sbp_every(fl_sigs *s)
{
    int axis = fl_axis_of(&s->attrs->at[0], s->in_logical[0].ndim);
    sbp_other_axes(s, axis, false);
    fl_sbp_moves(s, false);
}

static fl_status grad_every(fl_grad *g)
{
    const fl_meta *input = g->in_meta[0];
    int axis = fl_axis_of(&g->attrs->at[0], input->shape.ndim);
    return put_back(&g->gin[0], g->gout[0], input, axis, g->attrs->at[1].integer, g->attrs->at[3].integer);
}

static const char *const every_samples[] = {"flow.randn(7, 3), 0, 1, 3, 2", "flow.randn(2, 7), 1, 0, 3, 3", NULL};
FL_OP(narrow_every) {
    .name = "narrow_every", .sig = "narrow_every(x, axis: axis, ~start: int, length: int, step: int)", .nout = 1, .flags = FL_OP_VIEW | FL_OP_HIDDEN,
    .doc = "The positions start, start + step, ... of an axis, length of them.",
    .infer = infer_every, .check = check_every, .sbp = sbp_every, .view = view_every, .cpu = fl_kernel_copy, .grad = grad_every, .samples = every_samples,
};

/* start:stop:step as in Python: negative positions count from the end, positions outside are moved to the ends. */
static fl_status body_slice(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[0].tensor;
    int axis;
    if (x->meta->shape.ndim == 0) return fl_fail(FL_ERR_SHAPE, "slice: x has no axes");
    FL_TRY(fl_shape_axis(&axis, "slice", attrs->at[0].integer, &x->meta->shape));
    int64_t size = x->meta->shape.dims[axis], step = attrs->at[3].integer;
    if (step < 1) return fl_fail(FL_ERR_VALUE, "slice: step %lld must be at least 1", (long long)step);
    int64_t start = attrs->at[1].given ? from_front(attrs->at[1].integer, size) : 0;
    int64_t stop = attrs->at[2].given ? from_front(attrs->at[2].integer, size) : size;
    start = start < 0 ? 0 : start > size ? size : start;
    stop = stop < start ? start : stop > size ? size : stop;
    fl_attrs a;
    fl_attrs_init(&a, step == 1 ? FL_OP_REF(narrow) : FL_OP_REF(narrow_every));
    fl_attr_set(&a, 0, axis);
    fl_attr_set(&a, 1, start);
    fl_attr_set(&a, 2, stop > start ? (stop - start - 1) / step + 1 : 0);
    if (step == 1) return FL_CALL_WITH(out, &a, narrow, in[0]);
    fl_attr_set(&a, 3, step);
    return FL_CALL_WITH(out, &a, narrow_every, in[0]);
}

static const char *const slice_samples[] = {"flow.randn(7, 3), 0, 1, 6, 2", "flow.randn(5, 3), 0, -3", "flow.randn(5, 3), 1, nil, -1", "flow.randn(5), 0, 4, 2", NULL};
FL_OP(slice) {
    .name = "slice", .sig = "slice(x, axis: axis, ~start: int = nil, ~stop: int = nil, ~step: int = 1)", .nout = 1,
    .doc = "The positions start, start + step, ... before stop of an axis; negative positions count from the end.",
    .body = body_slice, .samples = slice_samples,
};

static fl_status infer_select(fl_infer *c)
{
    int axis;
    const fl_shape *in = &c->in[0].shape;
    if (in->ndim == 0) return fl_infer_fail(c, FL_ERR_SHAPE, "x has no axes");
    FL_TRY(fl_shape_axis(&axis, c->name, c->attrs->at[0].integer, in));
    fl_reduce_shape(&c->out[0].shape, in, 1u << axis, false);
    c->out[0].dtype = c->in[0].dtype;
    return FL_OK;
}

static fl_status check_select(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int axis;
    char text[FL_SHAPE_TEXT];
    const fl_shape *shape = &in[0].tensor->meta->shape;
    if (shape->ndim == 0) return fl_fail(FL_ERR_SHAPE, "select: x has no axes");
    FL_TRY(fl_shape_axis(&axis, "select", attrs->at[0].integer, shape));
    int64_t size = shape->dims[axis], index = attrs->at[1].integer;
    if (index >= -size && index < size) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "select: index %lld is out of range for axis %d of %s", (long long)index, axis, fl_shape_text(text, shape));
}

static void view_select(fl_view_request *v)
{
    const fl_tensor *x = v->in;
    int ndim = x->meta->shape.ndim, axis = fl_axis_of(&v->attrs->at[0], ndim);
    for (int i = 0, j = 0; i < ndim; i++)
        if (i != axis) v->strides[j++] = x->strides[i];
    if (v->out_meta->local_numel) v->offset = from_front(v->attrs->at[1].integer, x->meta->shape.dims[axis]) * x->strides[axis];
}

static void sbp_select(fl_sigs *s)
{
    sbp_other_axes(s, fl_axis_of(&s->attrs->at[0], s->in_logical[0].ndim), true);
    fl_sbp_moves(s, false);
}

static fl_status grad_select(fl_grad *g)
{
    const fl_meta *input = g->in_meta[0];
    int axis = fl_axis_of(&g->attrs->at[0], input->shape.ndim);
    fl_attrs attrs;
    fl_tensor *row;
    fl_attrs_init(&attrs, FL_OP_REF(unsqueeze));
    fl_attr_set(&attrs, 0, axis);
    FL_TRY(FL_CALL_WITH(&row, &attrs, unsqueeze, fl_of(g->gout[0])));
    fl_status status = put_back(&g->gin[0], row, input, axis, g->attrs->at[1].integer, 1);
    fl_tensor_unref(row);
    return status;
}

static const char *const select_samples[] = {"flow.randn(4, 3), 0, 2", "flow.randn(4, 3, 2), 1, -1", "flow.randn(5), 0, 0", NULL};
FL_OP(select) {
    .name = "select", .sig = "select(x, axis: axis, ~index: int)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "One position of an axis, which is then gone.",
    .infer = infer_select, .check = check_select, .sbp = sbp_select, .view = view_select, .cpu = fl_kernel_copy, .grad = grad_select, .samples = select_samples,
};

/* ---- diagonal ---- */

/* The two axes and the length of the diagonal `offset` columns to the right of the main one. */
typedef struct diagonal {
    int axis0, axis1;
    int64_t offset, length;
} diagonal;

static fl_status diagonal_of(diagonal *d, const char *who, const fl_attrs *attrs, const fl_shape *shape)
{
    char text[FL_SHAPE_TEXT];
    if (shape->ndim < 2) return fl_fail(FL_ERR_SHAPE, "%s: needs two axes, x is %s", who, fl_shape_text(text, shape));
    FL_TRY(fl_shape_axis(&d->axis0, who, attrs->at[1].integer, shape));
    FL_TRY(fl_shape_axis(&d->axis1, who, attrs->at[2].integer, shape));
    if (d->axis0 == d->axis1) return fl_fail(FL_ERR_SHAPE, "%s: axis %d is named twice", who, d->axis0);
    d->offset = attrs->at[0].integer;
    int64_t rows = shape->dims[d->axis0], columns = shape->dims[d->axis1];
    int64_t length;
    if (d->offset >= 0) length = d->offset >= columns ? 0 : rows < columns - d->offset ? rows : columns - d->offset;
    else length = d->offset <= -rows ? 0 : columns < rows + d->offset ? columns : rows + d->offset;
    d->length = length;
    return FL_OK;
}

static fl_status infer_diagonal(fl_infer *c)
{
    diagonal d;
    const fl_shape *in = &c->in[0].shape;
    FL_TRY(diagonal_of(&d, c->name, c->attrs, in));
    fl_reduce_shape(&c->out[0].shape, in, 1u << d.axis0 | 1u << d.axis1, false);
    c->out[0].shape.dims[c->out[0].shape.ndim++] = d.length;
    c->out[0].dtype = c->in[0].dtype;
    return FL_OK;
}

/* Strides of the diagonal in memory laid out with these strides; the offset of its first element. */
static int64_t diagonal_strides(int64_t *out, const diagonal *d, const int64_t *strides, int ndim)
{
    int n = 0;
    for (int i = 0; i < ndim; i++)
        if (i != d->axis0 && i != d->axis1) out[n++] = strides[i];
    out[n] = strides[d->axis0] + strides[d->axis1];
    return d->offset >= 0 ? d->offset * strides[d->axis1] : -d->offset * strides[d->axis0];
}

static void view_diagonal(fl_view_request *v)
{
    diagonal d;
    const fl_meta *in = v->in->meta;
    if (diagonal_of(&d, "diagonal", v->attrs, &in->shape) != FL_OK) return;
    int64_t offset = diagonal_strides(v->strides, &d, v->in->strides, in->shape.ndim);
    if (v->out_meta->local_numel) v->offset = offset;
}

static void sbp_diagonal(fl_sigs *s)
{
    diagonal d;
    int map[FL_MAX_NDIM];
    if (diagonal_of(&d, "diagonal", s->attrs, &s->in_logical[0]) != FL_OK) return;
    for (int i = 0, j = 0; i < s->in_logical[0].ndim; i++) map[i] = i == d.axis0 || i == d.axis1 ? -1 : j++;
    fl_sbp_map(s, map);
    fl_sbp_moves(s, false);
}

static fl_status grad_diagonal(fl_grad *g)
{
    const fl_shape *shape = &g->in_meta[0]->shape;
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(diagonal_backward));
    for (int i = 0; i < 3; i++) attrs.at[i] = g->attrs->at[i];
    fl_attr_set_list(&attrs, 3, shape->dims, shape->ndim);
    return FL_CALL_WITH(&g->gin[0], &attrs, diagonal_backward, fl_of(g->gout[0]));
}

static const char *const diagonal_samples[] = {"flow.randn(3, 4)", "flow.randn(3, 4), 1", "flow.randn(4, 3), -2", "flow.randn(2, 3, 4), 0, 2, 0", "flow.randn(3, 3), 5", NULL};
FL_OP(diagonal) {
    .name = "diagonal", .sig = "diagonal(x, offset: int = 0, axis0: axis = 0, axis1: axis = 1)", .nout = 1, .flags = FL_OP_VIEW,
    .doc = "The diagonal of two axes, as the last axis of the result; offset > 0 lies above the main one.",
    .infer = infer_diagonal, .sbp = sbp_diagonal, .view = view_diagonal, .cpu = fl_kernel_copy, .grad = grad_diagonal, .samples = diagonal_samples,
};

/* ---- gradients of views: zeros with g in its place ---- */

static fl_status infer_narrow_backward(fl_infer *c)
{
    int axis = fl_axis_of(&c->attrs->at[0], c->in[0].shape.ndim);
    int64_t size = c->attrs->at[2].integer, step = c->attrs->at[3].integer, length = c->in[0].shape.dims[axis];
    if (step < 1 || length > size) return fl_infer_fail(c, FL_ERR_SHAPE, "%lld positions do not fit size %lld", (long long)length, (long long)size);
    c->out[0] = c->in[0];
    c->out[0].shape.dims[axis] = size;
    return FL_OK;
}

static fl_status check_narrow_backward(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_shape *shape = &in[0].tensor->meta->shape;
    int64_t start = attrs->at[1].integer, size = attrs->at[2].integer, step = attrs->at[3].integer;
    int64_t length = shape->dims[fl_axis_of(&attrs->at[0], shape->ndim)];
    if (start >= 0 && step >= 1 && (length == 0 || (start < size && length - 1 <= (size - start - 1) / step))) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "narrow_backward: start %lld, length %lld and step %lld exceed size %lld", (long long)start, (long long)length, (long long)step, (long long)size);
}

static fl_status zero_out(const fl_view *out)
{
    const int64_t zero = 0;
    return fl_cpu_fill(out, &zero);
}

static fl_status kernel_narrow_backward(fl_kernel *k)
{
    const fl_view *g = &k->in[0], *out = &k->out[0];
    int axis = fl_axis_of(&k->attrs->at[0], g->ndim);
    int64_t strides[FL_MAX_NDIM], step = k->attrs->at[3].integer;
    if (g->numel < out->numel) FL_TRY(zero_out(out));
    if (g->numel == 0) return FL_OK;
    memcpy(strides, out->stride, sizeof *strides * (size_t)out->ndim);
    fl_view part = *g;
    part.data = (char *)out->data + k->attrs->at[1].integer * strides[axis] * (int64_t)fl_dtype_size(out->dtype);
    strides[axis] *= step;
    part.stride = strides;
    part.contiguous = out->contiguous && g->numel == out->numel;
    return fl_cpu_copy(&part, g);
}

static void sbp_narrow_backward(fl_sigs *s)
{
    int axis = fl_axis_of(&s->attrs->at[0], s->in_logical[0].ndim);
    sbp_other_axes(s, s->in_logical[0].dims[axis] == s->attrs->at[2].integer ? -1 : axis, false);
    fl_sbp_moves(s, true);
}

/* The same interval of the gradient's gradient. */
static fl_status grad_narrow_backward(fl_grad *g)
{
    const fl_shape *shape = &g->in_meta[0]->shape;
    int axis = fl_axis_of(&g->attrs->at[0], shape->ndim);
    bool plain = g->attrs->at[3].integer == 1;
    fl_attrs attrs;
    fl_attrs_init(&attrs, plain ? FL_OP_REF(narrow) : FL_OP_REF(narrow_every));
    fl_attr_set(&attrs, 0, axis);
    fl_attr_set(&attrs, 1, g->attrs->at[1].integer);
    fl_attr_set(&attrs, 2, shape->dims[axis]);
    if (plain) return FL_CALL_WITH(&g->gin[0], &attrs, narrow, fl_of(g->gout[0]));
    fl_attr_set(&attrs, 3, g->attrs->at[3].integer);
    return FL_CALL_WITH(&g->gin[0], &attrs, narrow_every, fl_of(g->gout[0]));
}

static const char *const narrow_backward_samples[] = {"flow.randn(2, 3), 0, 1, 5, 2", "flow.randn(2, 3), 1, 1, 4, 1", "flow.randn(0, 3), 0, 2, 4, 1", NULL};
FL_OP(narrow_backward) {
    .name = "narrow_backward", .sig = "narrow_backward(x, axis: axis, ~start: int, size: int, step: int)", .nout = 1, .flags = FL_OP_HIDDEN,
    .doc = "Zeros with x at the positions start, start + step, ... of an axis of that size.",
    .infer = infer_narrow_backward, .check = check_narrow_backward, .sbp = sbp_narrow_backward, .cpu = kernel_narrow_backward, .grad = grad_narrow_backward, .samples = narrow_backward_samples,
};

static fl_status infer_diagonal_backward(fl_infer *c)
{
    const fl_attr *sizes = &c->attrs->at[3];
    diagonal d;
    fl_shape expected, whole;
    FL_TRY(fl_shape_make(&whole, c->name, sizes->list, sizes->count));
    FL_TRY(diagonal_of(&d, c->name, c->attrs, &whole));
    fl_reduce_shape(&expected, &whole, 1u << d.axis0 | 1u << d.axis1, false);
    expected.dims[expected.ndim++] = d.length;
    if (!fl_shape_equal(&expected, &c->in[0].shape)) return fl_infer_fail(c, FL_ERR_SHAPE, "g is no diagonal of that shape");
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = whole;
    return FL_OK;
}

static fl_status kernel_diagonal_backward(fl_kernel *k)
{
    const fl_view *g = &k->in[0], *out = &k->out[0];
    diagonal d;
    fl_shape whole = {out->ndim, {0}};
    memcpy(whole.dims, out->logical, sizeof *whole.dims * (size_t)out->ndim);
    FL_TRY(zero_out(out));
    FL_TRY(diagonal_of(&d, "diagonal_backward", k->attrs, &whole));
    if (g->numel == 0) return FL_OK;
    int64_t strides[FL_MAX_NDIM];
    int64_t offset = diagonal_strides(strides, &d, out->stride, out->ndim);
    fl_view part = *g;
    part.data = (char *)out->data + offset * (int64_t)fl_dtype_size(out->dtype);
    part.stride = strides;
    part.contiguous = false;
    return fl_cpu_copy(&part, g);
}

static void sbp_diagonal_backward(fl_sigs *s)
{
    diagonal d;
    if (diagonal_of(&d, "diagonal_backward", s->attrs, &s->out_logical[0]) != FL_OK) return;
    for (int i = 0, j = 0; i < s->out_logical[0].ndim; i++)
        if (i != d.axis0 && i != d.axis1) FL_SIG(s, NULL, FL_S(j++), FL_S(i));
    fl_sbp_moves(s, true);
}

static const char *const diagonal_backward_vjp[] = {"diagonal(g, offset, axis0, axis1)"};
static const char *const diagonal_backward_samples[] = {"flow.randn(3), 0, 0, 1, {3, 4}", "flow.randn(3, 2), 0, 2, 0, {2, 3, 4}", NULL};
FL_OP(diagonal_backward) {
    .name = "diagonal_backward", .sig = "diagonal_backward(x, offset: int, axis0: axis, axis1: axis, size: sizes)", .nout = 1, .flags = FL_OP_HIDDEN,
    .doc = "Zeros of that size with x on a diagonal.",
    .infer = infer_diagonal_backward, .sbp = sbp_diagonal_backward, .cpu = kernel_diagonal_backward, .vjp = diagonal_backward_vjp, .samples = diagonal_backward_samples,
};

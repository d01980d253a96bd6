/*
** embedding.c -- rows and elements picked by index: embedding, index_select, gather, and the sums that are their
** gradients.
**
** Indices are checked on the host, and every kernel works on windows: over a split axis a rank gives zeros for
** what it does not hold, so the parts add up.
*/
#include "op/indexing.h"
#include "cpu/indices.h"
#include "cpu/pick.h"
#include "cpu/scatter.h"
#include "ops.h"

/* ---- inference ---- */

static fl_status require_indices(const fl_infer *infer, int operand, const char *name)
{
    char text[FL_SHAPE_TEXT];
    const fl_spec *s = &infer->in[operand];
    if (fl_dtype_is_integer(s->dtype)) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_DTYPE, "%s must be integers, got %s%s", name, fl_dtype_name(s->dtype),
                         fl_shape_text(text, &s->shape));
}

static fl_status infer_embedding(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *indices = &infer->in[FL_EMBEDDING_INDICES].shape, *weight = &infer->in[FL_EMBEDDING_WEIGHT].shape;
    fl_shape *out = &infer->out[0].shape;
    FL_TRY(require_indices(infer, FL_EMBEDDING_INDICES, "indices"));
    if (weight->ndim != 2)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "weight must be [rows, width], got %s", fl_shape_text(text, weight));
    if (indices->ndim == FL_MAX_NDIM)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "indices %s have too many axes", fl_shape_text(text, indices));
    *out = *indices;
    out->dims[out->ndim++] = weight->dims[1];
    infer->out[0].dtype = infer->in[FL_EMBEDDING_WEIGHT].dtype;
    return FL_OK;
}

/* The gradients' operands belong together. */
static fl_status misfit(const fl_infer *infer)
{
    char tdy[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    return fl_infer_fail(infer, FL_ERR_SHAPE, "dy %s does not fit indices %s", fl_shape_text(tdy, &infer->in[0].shape),
                         fl_shape_text(ti, &infer->in[FL_TAKEN_INDEX].shape));
}

static fl_status infer_embedding_backward(fl_infer *infer)
{
    const fl_shape *dy = &infer->in[0].shape, *indices = &infer->in[FL_TAKEN_INDEX].shape;
    FL_TRY(fl_require_float(infer, 0));
    FL_TRY(require_indices(infer, FL_TAKEN_INDEX, "indices"));
    bool fits = dy->ndim == indices->ndim + 1;
    for (int i = 0; fits && i < indices->ndim; i++) fits = dy->dims[i] == indices->dims[i];
    if (!fits) return misfit(infer);
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_shape_make(&infer->out[0].shape, infer->name,
                         (const int64_t[]){infer->attrs->at[FL_EMBEDDING_ROWS].integer, dy->dims[dy->ndim - 1]}, 2);
}

static int axis_of(const fl_attrs *attrs, const fl_shape *shape)
{
    return fl_axis_of(&attrs->at[FL_INDEXED_AXIS], shape->ndim);
}

static fl_status infer_along(fl_infer *infer, int64_t size)
{
    int axis;
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_INDEXED_AXIS].integer, &infer->in[0].shape));
    FL_TRY(fl_infer_same(infer));
    if (infer->out[0].shape.ndim) infer->out[0].shape.dims[axis] = size;
    return FL_OK;
}

static fl_status infer_index_select(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *index = &infer->in[FL_TAKEN_INDEX].shape;
    FL_TRY(require_indices(infer, FL_TAKEN_INDEX, "index"));
    if (index->ndim > 1)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "index must be 1-D, got %s", fl_shape_text(text, index));
    if (infer->in[0].shape.ndim == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "x has no axes to select along");
    return infer_along(infer, fl_shape_numel(index));
}

static fl_status infer_select_backward(fl_infer *infer)
{
    const fl_shape *dy = &infer->in[0].shape, *index = &infer->in[FL_TAKEN_INDEX].shape;
    FL_TRY(fl_require_float(infer, 0));
    FL_TRY(require_indices(infer, FL_TAKEN_INDEX, "index"));
    FL_TRY(infer_along(infer, infer->attrs->at[FL_INDEX_ADD_SIZE].integer));
    bool fits = dy->ndim > 0 && index->ndim <= 1;
    if (!fits || dy->dims[axis_of(infer->attrs, dy)] != fl_shape_numel(index)) return misfit(infer);
    return FL_OK;
}

static fl_status infer_gather(fl_infer *infer)
{
    char tx[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[0].shape, *index = &infer->in[FL_TAKEN_INDEX].shape;
    int axis;
    FL_TRY(require_indices(infer, FL_TAKEN_INDEX, "index"));
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_INDEXED_AXIS].integer, x));
    bool fits = x->ndim == index->ndim;
    for (int i = 0; fits && i < x->ndim; i++) fits = i == axis || index->dims[i] <= x->dims[i];
    if (!fits)
        return fl_infer_fail(
            infer, FL_ERR_SHAPE,
            "index %s must have as many axes as x %s and, except along axis %d, at most the sizes of x",
            fl_shape_text(ti, index), fl_shape_text(tx, x), axis);
    infer->out[0].shape = *index;
    infer->out[0].dtype = infer->in[0].dtype;
    return FL_OK;
}

static fl_status infer_gather_backward(fl_infer *infer)
{
    if (infer->in[0].dtype == FL_BOOL) return fl_infer_fail(infer, FL_ERR_DTYPE, "dy must be numbers, got bool");
    FL_TRY(require_indices(infer, FL_TAKEN_INDEX, "index"));
    const fl_shape *index = &infer->in[FL_TAKEN_INDEX].shape;
    const fl_attr *sizes = &infer->attrs->at[FL_GATHER_BACKWARD_SIZES];
    int axis = axis_of(infer->attrs, index);
    bool fits = fl_shape_equal(&infer->in[0].shape, index) && index->ndim == sizes->count;
    for (int i = 0; fits && i < index->ndim; i++) fits = i == axis || index->dims[i] <= sizes->list[i];
    if (!fits) return misfit(infer);
    infer->out[0].dtype = infer->in[0].dtype;
    return fl_shape_make(&infer->out[0].shape, infer->name, sizes->list, sizes->count);
}

/* ---- SBP ---- */

/* The values partial (operand `values`), the indices whole. */
static void sbp_partial_values(fl_sigs *sigs, int values, bool extremes)
{
    fl_sbp_partial(sigs, 1u << values, FL_PSUM);
    if (extremes) fl_sbp_partial(sigs, 1u << values, FL_PMAX);
    if (extremes) fl_sbp_partial(sigs, 1u << values, FL_PMIN);
}

static bool can_sum(const fl_sigs *sigs) { return sigs->out[0].dtype != FL_BOOL; }

/* A part of the indices gives that part of the result, columns of weight give columns. If the rows of weight are
** split, an index finds its row on one rank and zeros on the others: a partial sum. Rows are only moved, so partial
** values stay what they are. */
static void sbp_embedding(fl_sigs *sigs)
{
    int ndim = sigs->in[FL_EMBEDDING_INDICES].shape.ndim;
    for (int i = 0; i < ndim; i++) FL_SIG(sigs, NULL, FL_S(i), FL_B, FL_S(i));
    FL_SIG(sigs, NULL, FL_B, FL_S(1), FL_S(ndim));
    if (can_sum(sigs)) FL_SIG(sigs, NULL, FL_B, FL_S(0), FL_PSUM);
    sbp_partial_values(sigs, FL_EMBEDDING_WEIGHT, true);
}

/* Every rank adds up the rows of dy that it has: partial sums. Columns are independent. With whole operands a rank
** may keep just the rows it holds of weight, without communication. Linear in dy. */
static void sbp_embedding_backward(fl_sigs *sigs)
{
    int ndim = sigs->in[FL_TAKEN_INDEX].shape.ndim;
    for (int i = 0; i < ndim; i++) FL_SIG(sigs, NULL, FL_S(i), FL_S(i), FL_PSUM);
    FL_SIG(sigs, NULL, FL_S(ndim), FL_B, FL_S(1));
    if (fl_sbp_is_like(sigs, FL_EMBEDDING_LIKE, FL_S(0))) FL_SIG(sigs, NULL, FL_B, FL_B, FL_S(0));
    sbp_partial_values(sigs, FL_TAKEN_DY, false);
}

/* As sbp_embedding, along any axis: the index is split along its own axis, or x along one that is not indexed; x
** split along the indexed axis gives zeros where a slice is elsewhere. */
static void sbp_index_select(fl_sigs *sigs)
{
    int axis = axis_of(sigs->attrs, &sigs->in[0].shape);
    for (int i = 0; i < sigs->in[0].shape.ndim; i++)
        if (i != axis) FL_SIG(sigs, NULL, FL_S(i), FL_B, FL_S(i));
    if (sigs->in[FL_TAKEN_INDEX].shape.ndim) FL_SIG(sigs, NULL, FL_B, FL_S(0), FL_S(axis));
    if (can_sum(sigs)) FL_SIG(sigs, NULL, FL_S(axis), FL_B, FL_PSUM);
    sbp_partial_values(sigs, FL_TAKEN_X, true);
}

/* As sbp_embedding_backward, along any axis. */
static void sbp_select_backward(fl_sigs *sigs)
{
    int axis = axis_of(sigs->attrs, &sigs->in[0].shape);
    for (int i = 0; i < sigs->in[0].shape.ndim; i++)
        if (i != axis) FL_SIG(sigs, NULL, FL_S(i), FL_B, FL_S(i));
    if (sigs->in[FL_TAKEN_INDEX].shape.ndim) FL_SIG(sigs, NULL, FL_S(axis), FL_S(0), FL_PSUM);
    if (fl_sbp_is_like(sigs, FL_INDEX_ADD_LIKE, FL_S(axis))) FL_SIG(sigs, NULL, FL_B, FL_B, FL_S(axis));
    sbp_partial_values(sigs, FL_TAKEN_DY, false);
}

/* Along an axis that x and index share in full both are split alike: position i reads position i. Any axis of index
** may be split beside a whole x. x split along the indexed axis gives zeros for elements of other ranks: a partial
** sum. */
static void sbp_gather(fl_sigs *sigs)
{
    int axis = axis_of(sigs->attrs, &sigs->in[0].shape);
    for (int i = 0; i < sigs->in[0].shape.ndim; i++) {
        if (i != axis && sigs->in_logical[0].dims[i] == sigs->in_logical[FL_TAKEN_INDEX].dims[i])
            FL_SIG(sigs, NULL, FL_S(i), FL_S(i), FL_S(i));
        FL_SIG(sigs, NULL, FL_B, FL_S(i), FL_S(i));
    }
    if (can_sum(sigs)) FL_SIG(sigs, NULL, FL_S(axis), FL_B, FL_PSUM);
    sbp_partial_values(sigs, FL_TAKEN_X, true);
}

/* As sbp_gather, turned round: parts of dy are added into zeros, so where dx is not split alike they are partial
** sums. Linear in dy. */
static void sbp_gather_backward(fl_sigs *sigs)
{
    int axis = axis_of(sigs->attrs, &sigs->in[0].shape);
    for (int i = 0; i < sigs->in[0].shape.ndim; i++) {
        if (i != axis && sigs->in_logical[0].dims[i] == sigs->out_logical[0].dims[i])
            FL_SIG(sigs, NULL, FL_S(i), FL_S(i), FL_S(i));
        FL_SIG(sigs, NULL, FL_S(i), FL_S(i), FL_PSUM);
    }
    if (fl_sbp_is_like(sigs, FL_GATHER_BACKWARD_LIKE, FL_S(axis))) FL_SIG(sigs, NULL, FL_B, FL_B, FL_S(axis));
    sbp_partial_values(sigs, FL_TAKEN_DY, false);
}

/* ---- kernels ---- */

static fl_status kernel_embedding(fl_kernel *kernel)
{
    const fl_view *weight = &kernel->in[FL_EMBEDDING_WEIGHT];
    const int64_t *index;
    FL_TRY(fl_indices_open(&index, kernel, FL_EMBEDDING_INDICES));
    fl_index_rule rule = {
        .who = "embedding", .param = "indices", .owner = "weight", .noun = "rows", .limit = weight->logical[0]};
    FL_TRY(fl_indices_check(index, &kernel->in[FL_EMBEDDING_INDICES], &rule));
    fl_view out = kernel->out[0];
    int64_t sizes[2] = {kernel->in[FL_EMBEDDING_INDICES].numel, weight->size[1]}, strides[2] = {weight->size[1], 1};
    out.ndim = 2;
    out.size = sizes;
    out.stride = strides;
    return fl_cpu_pick_along(&out, weight, 0, index, sizes[0]);
}

static fl_status kernel_index_select(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[0];
    int axis = fl_axis_of(&kernel->attrs->at[FL_INDEXED_AXIS], x->ndim);
    const int64_t *index;
    FL_TRY(fl_indices_open(&index, kernel, FL_TAKEN_INDEX));
    fl_index_rule rule = {.who = "index_select",
                          .param = "index",
                          .owner = "this axis of x",
                          .noun = "positions",
                          .limit = x->logical[axis]};
    FL_TRY(fl_indices_check(index, &kernel->in[FL_TAKEN_INDEX], &rule));
    return fl_cpu_pick_along(&kernel->out[0], x, axis, index, kernel->in[FL_TAKEN_INDEX].numel);
}

static fl_status kernel_embedding_backward(fl_kernel *kernel)
{
    return fl_cpu_add_along(kernel, 0, kernel->in[FL_TAKEN_INDEX].numel);
}

static fl_status kernel_select_backward(fl_kernel *kernel)
{
    return fl_cpu_add_along(kernel, fl_axis_of(&kernel->attrs->at[FL_INDEXED_AXIS], kernel->out[0].ndim),
                            kernel->in[FL_TAKEN_INDEX].numel);
}

static int gather_axis(const fl_kernel *kernel, int ndim)
{
    return ndim ? fl_axis_of(&kernel->attrs->at[FL_INDEXED_AXIS], ndim) : 0;
}
static fl_status kernel_gather(fl_kernel *kernel)
{
    return fl_cpu_gather(kernel, gather_axis(kernel, kernel->in[0].ndim));
}
static fl_status kernel_gather_backward(fl_kernel *kernel)
{
    return fl_cpu_gather_add(kernel, gather_axis(kernel, kernel->out[0].ndim));
}

/* ---- gradients ---- */

/* The transpose of picking: every row of g is added to the row of weight that it came from. The indices have no
** gradient. */
static fl_status grad_embedding(fl_grad *g)
{
    fl_attrs a;
    if (!g->need[FL_EMBEDDING_WEIGHT]) return FL_OK;
    fl_attrs_init(&a, FL_OP_REF(embedding_backward));
    fl_attr_set(&a, FL_EMBEDDING_ROWS, g->in_meta[FL_EMBEDDING_WEIGHT]->shape.dims[0]);
    fl_attr_set_like(&a, FL_EMBEDDING_LIKE, g->in_meta[FL_EMBEDDING_WEIGHT]);
    return FL_CALL_WITH(&g->gin[FL_EMBEDDING_WEIGHT], &a, embedding_backward, fl_of(g->gout[0]),
                        g->in[FL_EMBEDDING_INDICES]);
}

/* The transpose of picking slices. */
static fl_status grad_index_select(fl_grad *g)
{
    const fl_shape *x = &g->in_meta[FL_TAKEN_X]->shape;
    fl_attrs a;
    if (!g->need[FL_TAKEN_X]) return FL_OK;
    fl_attrs_init(&a, FL_OP_REF(index_select_backward));
    fl_attr_set(&a, FL_INDEXED_AXIS, g->attrs->at[FL_INDEXED_AXIS].integer);
    fl_attr_set(&a, FL_INDEX_ADD_SIZE, x->dims[axis_of(g->attrs, x)]);
    fl_attr_set_like(&a, FL_INDEX_ADD_LIKE, g->in_meta[FL_TAKEN_X]);
    return FL_CALL_WITH(&g->gin[FL_TAKEN_X], &a, index_select_backward, fl_of(g->gout[0]), g->in[FL_TAKEN_INDEX]);
}

fl_status fl_gather_gradient(fl_tensor **out, fl_tensor *dy, fl_operand positions, int64_t axis, const fl_meta *x)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(gather_backward));
    fl_attr_set(&a, FL_INDEXED_AXIS, axis);
    fl_attr_set_list(&a, FL_GATHER_BACKWARD_SIZES, x->shape.dims, x->shape.ndim);
    fl_attr_set_like(&a, FL_GATHER_BACKWARD_LIKE, x);
    return FL_CALL_WITH(out, &a, gather_backward, fl_of(dy), positions);
}

/* The transpose of picking elements. */
static fl_status grad_gather(fl_grad *g)
{
    if (!g->need[FL_TAKEN_X]) return FL_OK;
    return fl_gather_gradient(&g->gin[FL_TAKEN_X], g->gout[0], g->in[FL_TAKEN_INDEX],
                              g->attrs->at[FL_INDEXED_AXIS].integer, g->in_meta[FL_TAKEN_X]);
}

/* ---- descriptors ---- */

static const char *const embedding_samples[] = {"flow.randint(0, 7, {3, 2}), flow.randn(7, 4)",
                                                "flow.randint(0, 5, {6}):to('int32'), flow.randn(5, 3)",
                                                "flow.tensor(2), flow.randn(3, 2)", NULL};
FL_OP(embedding) = {
    .name = "embedding",
    .sig = "embedding(indices, weight)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "The rows of weight at the indices.",
    .saves_in = 1u << FL_EMBEDDING_INDICES,
    .infer = infer_embedding,
    .sbp = sbp_embedding,
    .cpu = kernel_embedding,
    .picks = 1u << FL_EMBEDDING_WEIGHT,
    .grad = grad_embedding,
    .samples = embedding_samples,
};

/* Linear in dy; picking the rows is its transpose. */
static const char *const embedding_backward_vjp[] = {"embedding(indices, g)", NULL};
static const char *const embedding_backward_samples[] = {"flow.randn(3, 2, 4), flow.randint(0, 5, {3, 2}), 5",
                                                         "flow.randn(2, 40), flow.tensor{1, 1}, 2", NULL};
FL_OP(embedding_backward) = {
    .name = "embedding_backward",
    .sig = "embedding_backward(dy, indices, rows: int, like: int = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Zeros [rows, width] with every row of dy added to the row at its index.",
    .infer = infer_embedding_backward,
    .sbp = sbp_embedding_backward,
    .cpu = kernel_embedding_backward,
    .vjp = embedding_backward_vjp,
    .samples = embedding_backward_samples,
};

static const char *const index_select_samples[] = {"flow.randn(4, 3), 0, flow.tensor{2, 0, 2}",
                                                   "flow.randn(2, 5, 3), 1, flow.tensor{4, 1}",
                                                   "flow.randn(2, 5), -1, flow.randint(0, 5, {7})",
                                                   "flow.randint(0, 9, {3, 2}), 0, flow.tensor{1}", NULL};
FL_OP(index_select) = {
    .name = "index_select",
    .sig = "index_select(x, axis: axis, index)",
    .nout = 1,
    .doc = "The slices of x at the positions of a 1-D index along the axis.",
    .saves_in = 1u << FL_TAKEN_INDEX,
    .infer = infer_index_select,
    .sbp = sbp_index_select,
    .cpu = kernel_index_select,
    .picks = 1u << FL_TAKEN_X,
    .grad = grad_index_select,
    .samples = index_select_samples,
};

/* Linear in dy; picking the slices is its transpose. */
static const char *const select_backward_vjp[] = {"index_select(g, axis, index)", NULL};
static const char *const select_backward_samples[] = {"flow.randn(3, 2), 0, flow.tensor{1, 3, 1}, 5",
                                                      "flow.randn(2, 3, 4), 1, flow.tensor{0, 2, 2}, 3", NULL};
FL_OP(index_select_backward) = {
    .name = "index_select_backward",
    .sig = "index_select_backward(dy, axis: axis, index, size: int, like: int = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Zeros of this size along the axis with every slice of dy added at its index.",
    .infer = infer_select_backward,
    .sbp = sbp_select_backward,
    .cpu = kernel_select_backward,
    .vjp = select_backward_vjp,
    .samples = select_backward_samples,
};

static const char *const gather_samples[] = {"flow.randn(3, 4), 1, flow.randint(0, 4, {3, 2})",
                                             "flow.randn(3, 4), 0, flow.randint(0, 3, {2, 4})",
                                             "flow.randn(2, 3, 4), 1, flow.randint(0, 3, {2, 5, 3})",
                                             "flow.randn(5), 0, flow.tensor{4, 4, 0}", NULL};
FL_OP(gather) = {
    .name = "gather",
    .sig = "gather(x, axis: axis, index)",
    .nout = 1,
    .doc = "For every element of index: the element of x at the same position, with the position along the axis "
           "replaced by that element.",
    .saves_in = 1u << FL_TAKEN_INDEX,
    .infer = infer_gather,
    .sbp = sbp_gather,
    .cpu = kernel_gather,
    .picks = 1u << FL_TAKEN_X,
    .grad = grad_gather,
    .samples = gather_samples,
};

/* Linear in dy; gather is its transpose. */
static const char *const gather_backward_vjp[] = {"gather(g, axis, index)", NULL};
static const char *const gather_backward_samples[] = {
    "flow.randn(3, 2), 1, flow.randint(0, 4, {3, 2}), {3, 4}",
    "flow.randn(2, 4), 0, flow.randint(0, 3, {2, 4}), {3, 5}",
    "flow.randint(-9, 9, {2, 4}), 1, flow.randint(0, 3, {2, 4}), {2, 3}", NULL};
FL_OP(gather_backward) = {
    .name = "gather_backward",
    .sig = "gather_backward(dy, axis: axis, index, sizes: sizes, like: int = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Zeros of these sizes with every element of dy added at its index along the axis.",
    .infer = infer_gather_backward,
    .sbp = sbp_gather_backward,
    .cpu = kernel_gather_backward,
    .vjp = gather_backward_vjp,
    .samples = gather_backward_samples,
};

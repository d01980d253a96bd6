/*
** sort.c -- elements along an axis in order: all of them, the first k, or those at some ranks.
**
** The order is that of sort_key.h on every device, equal elements by position: so there is only one result, and sort is
** stable.
*/
#include "cpu/indices.h"
#include "cpu/select.h"
#include "cpu/sort.h"
#include "cpu/stage.h"
#include "op/indexing.h"
#include "op/line_view.h"
#include "op/ranked.h"
#include "op/reduce.h"
#include "memory/scratch.h"
#include "expr.h"

/* ---- inference ---- */

/* Values and positions with `count` elements along the axis. */
static void infer_picked(fl_infer *infer, int axis, int64_t count)
{
    fl_shape shape = infer->in[0].shape;
    if (shape.ndim) shape.dims[axis] = count;
    infer->out[FL_SORTED_VALUES].shape = infer->out[FL_SORTED_POSITIONS].shape = shape;
    infer->out[FL_SORTED_VALUES].dtype = infer->in[0].dtype;
    infer->out[FL_SORTED_POSITIONS].dtype = FL_INT64;
}

static int64_t elements_along(const fl_shape *shape, int axis) { return shape->ndim ? shape->dims[axis] : 1; }

static fl_status infer_sort(fl_infer *infer)
{
    int axis;
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_SORT_AXIS].integer, &infer->in[0].shape));
    infer_picked(infer, axis, elements_along(&infer->in[0].shape, axis));
    return FL_OK;
}

static fl_status infer_topk(fl_infer *infer)
{
    const fl_shape *x = &infer->in[0].shape;
    int64_t k = infer->attrs->at[FL_TOPK_K].integer;
    char text[FL_SHAPE_TEXT];
    int axis;
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_TOPK_AXIS].integer, x));
    int64_t n = elements_along(x, axis);
    if (k < 0 || k > n)
        return fl_infer_fail(infer, FL_ERR_VALUE, "k is %lld, but axis %d of %s has %lld elements", (long long)k, axis,
                             fl_shape_text(text, x), (long long)n);
    infer_picked(infer, axis, k);
    if (!x->ndim && k == 0)
        infer->out[FL_SORTED_VALUES].shape = infer->out[FL_SORTED_POSITIONS].shape = (fl_shape){1, {0}};
    return FL_OK;
}

/* As many ranks for each line. */
static fl_status infer_ranked(fl_infer *infer)
{
    const fl_spec *x = &infer->in[FL_RANKED_X], *ranks = &infer->in[FL_RANKED_RANKS];
    int axis;
    FL_TRY(fl_shape_axis(&axis, infer->name, infer->attrs->at[FL_RANKED_AXIS].integer, &x->shape));
    if (x->shape.ndim == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "x must have at least one axis");
    infer_picked(infer, axis, 1);
    if (ranks->kind != FL_TENSOR) return FL_OK;
    fl_shape shape = x->shape;
    if (ranks->shape.ndim == shape.ndim) shape.dims[axis] = ranks->shape.dims[axis];
    if (ranks->dtype != FL_INT64 || !fl_shape_equal(&shape, &ranks->shape))
        return fl_infer_fail(infer, FL_ERR_SHAPE, "ranks must be int64 and as x is, but for axis %d", axis);
    infer_picked(infer, axis, shape.dims[axis]);
    return FL_OK;
}

/* The rank of all lines; those of an operand are checked when they are there. */
static fl_status check_ranked(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_shape *x = &in[FL_RANKED_X].tensor->meta->shape;
    int64_t rank = attrs->at[FL_RANKED_RANK].integer;
    int64_t n = elements_along(x, fl_axis_of(&attrs->at[FL_RANKED_AXIS], x->ndim));
    if (in[FL_RANKED_RANKS].kind == FL_TENSOR || (rank >= 0 && rank < n)) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "ranked: rank is %lld, but the axis has %lld elements", (long long)rank, (long long)n);
}

/* ---- SBP: lines stay whole ---- */

/* A line is ordered as a whole, so its own axis is not split. */
static void sbp_lines(fl_sigs *sigs, int slot)
{
    int ndim = sigs->in_logical[0].ndim;
    fl_sbp_except(sigs, ndim ? 1u << fl_axis_of(&sigs->attrs->at[slot], ndim) : 0);
}

static void sbp_sort(fl_sigs *sigs) { sbp_lines(sigs, FL_SORT_AXIS); }
static void sbp_topk(fl_sigs *sigs) { sbp_lines(sigs, FL_TOPK_AXIS); }
static void sbp_ranked(fl_sigs *sigs) { sbp_lines(sigs, FL_RANKED_AXIS); }

/* ---- kernels ---- */

/* Two results and up to two operands with their lines as rows: where they lie, or in scratch memory. */
struct line_rows {
    int count;
    fl_line_view lines[4];
    fl_view rows[4];
    int64_t strides[4][FL_MAX_NDIM];
};

enum { ROWS_VALUES, ROWS_POSITIONS, ROWS_X, ROWS_RANKS };

static size_t staged_bytes(const fl_line_view *lines)
{
    return lines->v.contiguous ? 0 : ((size_t)lines->v.numel * fl_dtype_size(lines->v.dtype) + 63) & ~(size_t)63;
}

static fl_status open_rows(struct line_rows *r, const fl_kernel *kernel, int axis)
{
    size_t bytes = 0;
    r->count = kernel->nin > FL_RANKED_RANKS && kernel->in[FL_RANKED_RANKS].data ? 4 : 3;
    for (int i = 0; i < r->count; i++) {
        fl_line_view_init(&r->lines[i], i < ROWS_X ? &kernel->out[i] : &kernel->in[i - ROWS_X], axis);
        bytes += staged_bytes(&r->lines[i]);
    }
    char *scratch = bytes ? fl_scratch(FL_STAGE_SCRATCH, bytes) : NULL;
    if (bytes && !scratch)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory: %zu bytes of scratch space", kernel->name, bytes);
    for (int i = 0; i < r->count; i++) {
        const fl_view *line = &r->lines[i].v;
        r->rows[i] = *line;
        if (line->contiguous) continue;
        r->rows[i] = fl_view_array(line, scratch, line->dtype, r->strides[i]);
        scratch += staged_bytes(&r->lines[i]);
        if (i >= ROWS_X) FL_TRY(fl_cpu_copy(&r->rows[i], line));
    }
    return FL_OK;
}

/* Results that were made in scratch memory go where they belong. */
static fl_status close_rows(const struct line_rows *r)
{
    for (int i = 0; i < ROWS_X; i++)
        if (!r->lines[i].v.contiguous) FL_TRY(fl_cpu_copy(&r->lines[i].v, &r->rows[i]));
    return FL_OK;
}

/* The first elements of each line along the axis, as many as the results have. */
static fl_status sort_lines(fl_kernel *kernel, int axis, bool descending)
{
    struct line_rows r;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(open_rows(&r, kernel, axis));
    fl_sort_rows s = {.x = r.rows[ROWS_X].data,
                      .values = r.rows[ROWS_VALUES].data,
                      .positions = r.rows[ROWS_POSITIONS].data,
                      .dtype = kernel->in[0].dtype,
                      .n = fl_line_length(&r.lines[ROWS_X]),
                      .k = fl_line_length(&r.lines[ROWS_VALUES]),
                      .descending = descending};
    s.rows = kernel->in[0].numel / s.n;
    FL_TRY(fl_cpu_sort_rows(kernel->name, &s));
    return close_rows(&r);
}

static fl_status kernel_sort(fl_kernel *kernel)
{
    return sort_lines(kernel, fl_axis_of(&kernel->attrs->at[FL_SORT_AXIS], kernel->in[0].ndim),
                      kernel->attrs->at[FL_SORT_DESCENDING].integer != 0);
}
static fl_status kernel_topk(fl_kernel *kernel)
{
    return sort_lines(kernel, fl_axis_of(&kernel->attrs->at[FL_TOPK_AXIS], kernel->in[0].ndim),
                      kernel->attrs->at[FL_TOPK_LARGEST].integer != 0);
}

/* Only quantile has ranks that data decide. */
static fl_status check_ranks(const fl_kernel *kernel, int64_t n)
{
    const int64_t *ranks;
    fl_index_rule rule = {
        .who = "quantile", .param = "index", .owner = "this axis of x", .noun = "positions", .limit = n};
    FL_TRY(fl_indices_open(&ranks, kernel, FL_RANKED_RANKS));
    return fl_indices_check(ranks, &kernel->in[FL_RANKED_RANKS], &rule);
}

/* By selection; a device sorts the lines. */
static fl_status kernel_ranked(fl_kernel *kernel)
{
    struct line_rows r;
    const fl_view *x = &kernel->in[FL_RANKED_X];
    int axis = fl_axis_of(&kernel->attrs->at[FL_RANKED_AXIS], x->ndim);
    bool has_ranks = kernel->in[FL_RANKED_RANKS].data != NULL;
    if (kernel->out[0].numel == 0) return FL_OK;
    if (has_ranks) FL_TRY(check_ranks(kernel, x->size[axis]));
    FL_TRY(open_rows(&r, kernel, axis));
    fl_select_rows s = {.x = r.rows[ROWS_X].data,
                        .values = r.rows[ROWS_VALUES].data,
                        .positions = r.rows[ROWS_POSITIONS].data,
                        .ranks = &kernel->attrs->at[FL_RANKED_RANK].integer,
                        .dtype = x->dtype,
                        .rows = x->numel / x->size[axis],
                        .n = x->size[axis],
                        .k = fl_line_length(&r.lines[ROWS_VALUES])};
    if (has_ranks) {
        s.ranks = r.rows[ROWS_RANKS].data;
        s.rank_step = s.k;
    }
    FL_TRY(fl_cpu_select_rows(kernel->name, &s));
    return close_rows(&r);
}

/* ---- gradients: back to the places of the values ---- */

/* Values were moved: each gradient returns to the position its value came from. */
static fl_status grad_lines(fl_grad *g, int slot)
{
    if (!g->gout[FL_SORTED_VALUES]) return FL_OK;
    return fl_gather_gradient(&g->gin[0], g->gout[FL_SORTED_VALUES], fl_of(g->out[FL_SORTED_POSITIONS]),
                              fl_axis_of(&g->attrs->at[slot], g->in_meta[0]->shape.ndim), g->in_meta[0]);
}

static fl_status grad_sort(fl_grad *g) { return grad_lines(g, FL_SORT_AXIS); }
static fl_status grad_topk(fl_grad *g) { return grad_lines(g, FL_TOPK_AXIS); }
static fl_status grad_ranked(fl_grad *g) { return grad_lines(g, FL_RANKED_AXIS); }

/* ---- descriptors ---- */

FL_OP(sort) = {
    .name = "sort",
    .sig = "sort(x, axis: axis = -1, descending: bool = false, stable: bool = false)",
    .nout = 2,
    .doc = "Values along the axis in order, and their positions. Equal values keep their order, stable or not; NaN "
           "counts as the largest.",
    .infer = infer_sort,
    .sbp = sbp_sort,
    .cpu = kernel_sort,
    .grad = grad_sort,
    .saves_out = 1u << FL_SORTED_POSITIONS,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 0, true", "flow.randn(2, 5, 3), 1",
               "flow.randint(0, 4, {3, 9}), -1, true", "flow.tensor(2.5)", "flow.zeros(3, 0)"),
};

FL_OP(topk) = {
    .name = "topk",
    .sig = "topk(x, k: int, axis: axis = -1, largest: bool = true, sorted: bool = true)",
    .nout = 2,
    .doc = "The k largest (smallest) values along the axis, in order, and their positions, the lowest of equal ones; "
           "sorted = false: in any order.",
    .infer = infer_topk,
    .sbp = sbp_topk,
    .cpu = kernel_topk,
    .grad = grad_topk,
    .saves_out = 1u << FL_SORTED_POSITIONS,
    FL_SAMPLES("flow.randn(3, 7), 2", "flow.randn(5, 4), 3, 0, false", "flow.randn(2, 5, 3), 4, 1",
               "flow.randint(0, 4, {3, 9}), 5, -1, false, false", "flow.tensor(2.5), 1", "flow.randn(3, 4), 0"),
};

FL_OP(ranked) = {
    .name = "ranked",
    .sig = "ranked(x, ranks?, axis: axis = -1, ~rank: int = 0)",
    .nout = 2,
    .flags = FL_OP_HIDDEN,
    .doc = "Of each line along the axis what sort has at its ranks, or at one rank: values and their positions.",
    .infer = infer_ranked,
    .check = check_ranked,
    .sbp = sbp_ranked,
    .cpu = kernel_ranked,
    .grad = grad_ranked,
    .saves_out = 1u << FL_SORTED_POSITIONS,
    FL_SAMPLES("flow.randn(3, 7), nil, 1, 3", "flow.randn(5, 3), flow.tensor{{4, 0, 2}, {1, 3, 3}}, 0",
               "flow.randint(0, 4, {2, 9}), flow.tensor{{0, 8, 4}, {3, 3, 1}}"),
};

static fl_status body_argsort(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *sorted[2];
    FL_TRY(fl_dispatch(sorted, FL_OP_REF(sort), in, nin, attrs));
    fl_tensor_unref(sorted[FL_SORTED_VALUES]);
    *out = sorted[FL_SORTED_POSITIONS];
    return FL_OK;
}

FL_OP(argsort) = {
    .name = "argsort",
    .sig = "argsort(x, axis: axis = -1, descending: bool = false, stable: bool = false)",
    .nout = 1,
    .flags = FL_OP_NO_GRAD,
    .doc = "The positions of the values in sorted order, as sort returns them.",
    .body = body_argsort,
    FL_SAMPLES("flow.randn(3, 4)", "flow.randn(3, 4), 0, true"),
};

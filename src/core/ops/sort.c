/*
** sort.c -- elements along an axis in order, all of them or the first k.
**
** The order is that of sort_key.h on every device, equal elements by position: so there is only one result, and sort is
** stable.
*/
#include "cpu/sort.h"
#include "cpu/stage.h"
#include "op/indexing.h"
#include "op/line_view.h"
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

/* ---- SBP: lines stay whole ---- */

/* A line is ordered as a whole, so its own axis is not split. */
static void sbp_lines(fl_sigs *sigs, int slot)
{
    int ndim = sigs->in_logical[0].ndim;
    fl_sbp_except(sigs, ndim ? 1u << fl_axis_of(&sigs->attrs->at[slot], ndim) : 0);
}

static void sbp_sort(fl_sigs *sigs) { sbp_lines(sigs, FL_SORT_AXIS); }
static void sbp_topk(fl_sigs *sigs) { sbp_lines(sigs, FL_TOPK_AXIS); }

/* ---- kernel ---- */

static size_t staged_bytes(const fl_line_view *lines)
{
    return lines->v.contiguous ? 0 : ((size_t)lines->v.numel * fl_dtype_size(lines->v.dtype) + 63) & ~(size_t)63;
}

/* Where the lines are as rows: in place, or in memory at *scratch, which moves on. `strides` belongs to the copy. */
static fl_view rows_of(const fl_line_view *lines, char **scratch, int64_t *strides)
{
    fl_view rows = lines->v;
    if (rows.contiguous) return rows;
    fl_shape_strides(strides, lines->size, rows.ndim);
    rows.data = *scratch;
    rows.stride = strides;
    rows.contiguous = true;
    *scratch += staged_bytes(lines);
    return rows;
}

/* The first elements of each line along the axis, as many as the results have. */
static fl_status sort_lines(fl_kernel *kernel, int axis, bool descending)
{
    fl_line_view lines[3];
    fl_view rows[3];
    int64_t strides[3][FL_MAX_NDIM];
    size_t bytes = 0;
    if (kernel->out[0].numel == 0) return FL_OK;
    for (int i = 0; i < 3; i++) {
        fl_line_view_init(&lines[i], i ? &kernel->out[i - 1] : &kernel->in[0], axis);
        bytes += staged_bytes(&lines[i]);
    }
    char *scratch = bytes ? fl_scratch(FL_STAGE_SCRATCH, bytes) : NULL;
    if (bytes && !scratch)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory: %zu bytes of scratch space", kernel->op->name, bytes);
    for (int i = 0; i < 3; i++) rows[i] = rows_of(&lines[i], &scratch, strides[i]);
    if (rows[0].data != kernel->in[0].data) FL_TRY(fl_cpu_copy(&rows[0], &lines[0].v));
    fl_sort_rows s = {.x = rows[0].data,
                      .values = rows[1].data,
                      .positions = rows[2].data,
                      .dtype = kernel->in[0].dtype,
                      .n = fl_line_length(&lines[0]),
                      .k = fl_line_length(&lines[1]),
                      .descending = descending};
    s.rows = kernel->in[0].numel / s.n;
    FL_TRY(fl_cpu_sort_rows(kernel->op->name, &s));
    for (int i = 1; i < 3; i++)
        if (rows[i].data != kernel->out[i - 1].data) FL_TRY(fl_cpu_copy(&lines[i].v, &rows[i]));
    return FL_OK;
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

/* ---- gradients: back to where the values came from ---- */

/* Values were moved: each gradient returns to the position its value came from. */
static fl_status grad_lines(fl_grad *g, int slot)
{
    if (!g->gout[FL_SORTED_VALUES]) return FL_OK;
    return fl_gather_gradient(&g->gin[0], g->gout[FL_SORTED_VALUES], fl_of(g->out[FL_SORTED_POSITIONS]),
                              fl_axis_of(&g->attrs->at[slot], g->in_meta[0]->shape.ndim), g->in_meta[0]);
}

static fl_status grad_sort(fl_grad *g) { return grad_lines(g, FL_SORT_AXIS); }
static fl_status grad_topk(fl_grad *g) { return grad_lines(g, FL_TOPK_AXIS); }

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

/*
** embedding.c -- rows and elements picked by index: embedding, index_select, gather, and the sums that are their
** gradients.
**
** Indices are checked on the host, and every kernel works on windows: over a split axis a rank gives zeros for
** what it does not hold, so the parts add up. The sums go through the indices in order, cut over
** columns, so they are the same for any team.
*/
#include "cpu/indices.h"
#include "cpu/rows.h"
#include "cpu/stage.h"
#include "ops.h"

static const double NS_PER_BYTE = 0.05, NS_PER_ADDITION = 0.1;

/* ---- inference ---- */

static fl_status require_indices(const fl_infer *c, int operand, const char *name)
{
    char text[FL_SHAPE_TEXT];
    const fl_spec *s = &c->in[operand];
    if (fl_dtype_is_integer(s->dtype)) return FL_OK;
    return fl_infer_fail(c, FL_ERR_DTYPE, "%s must be integers, got %s%s", name, fl_dtype_name(s->dtype),
                         fl_shape_text(text, &s->shape));
}

static fl_status infer_embedding(fl_infer *c)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *indices = &c->in[0].shape, *weight = &c->in[1].shape;
    fl_shape *out = &c->out[0].shape;
    FL_TRY(require_indices(c, 0, "indices"));
    if (weight->ndim != 2)
        return fl_infer_fail(c, FL_ERR_SHAPE, "weight must be [rows, width], got %s", fl_shape_text(text, weight));
    if (indices->ndim == FL_MAX_NDIM)
        return fl_infer_fail(c, FL_ERR_SHAPE, "indices %s have too many axes", fl_shape_text(text, indices));
    *out = *indices;
    out->dims[out->ndim++] = weight->dims[1];
    c->out[0].dtype = c->in[1].dtype;
    return FL_OK;
}

/* The gradients' operands belong together. */
static fl_status misfit(const fl_infer *c)
{
    char tdy[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    return fl_infer_fail(c, FL_ERR_SHAPE, "dy %s does not fit indices %s", fl_shape_text(tdy, &c->in[0].shape),
                         fl_shape_text(ti, &c->in[1].shape));
}

static fl_status infer_embedding_backward(fl_infer *c)
{
    const fl_shape *dy = &c->in[0].shape, *indices = &c->in[1].shape;
    FL_TRY(fl_require_float(c, 0));
    FL_TRY(require_indices(c, 1, "indices"));
    bool fits = dy->ndim == indices->ndim + 1;
    for (int i = 0; fits && i < indices->ndim; i++) fits = dy->dims[i] == indices->dims[i];
    if (!fits) return misfit(c);
    c->out[0].dtype = c->in[0].dtype;
    return fl_shape_make(&c->out[0].shape, c->name, (const int64_t[]){c->attrs->at[0].integer, dy->dims[dy->ndim - 1]},
                         2);
}

static int axis_of(const fl_attrs *attrs, const fl_shape *shape) { return fl_axis_of(&attrs->at[0], shape->ndim); }

static fl_status infer_along(fl_infer *c, int64_t size)
{
    int axis;
    FL_TRY(fl_shape_axis(&axis, c->name, c->attrs->at[0].integer, &c->in[0].shape));
    FL_TRY(fl_infer_same(c));
    if (c->out[0].shape.ndim) c->out[0].shape.dims[axis] = size;
    return FL_OK;
}

static fl_status infer_index_select(fl_infer *c)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *index = &c->in[1].shape;
    FL_TRY(require_indices(c, 1, "index"));
    if (index->ndim > 1) return fl_infer_fail(c, FL_ERR_SHAPE, "index must be 1-D, got %s", fl_shape_text(text, index));
    if (c->in[0].shape.ndim == 0) return fl_infer_fail(c, FL_ERR_SHAPE, "x has no axes to select along");
    return infer_along(c, fl_shape_numel(index));
}

static fl_status infer_index_add(fl_infer *c)
{
    const fl_shape *dy = &c->in[0].shape, *index = &c->in[1].shape;
    FL_TRY(fl_require_float(c, 0));
    FL_TRY(require_indices(c, 1, "index"));
    FL_TRY(infer_along(c, c->attrs->at[1].integer));
    bool fits = dy->ndim > 0 && index->ndim <= 1;
    if (!fits || dy->dims[axis_of(c->attrs, dy)] != fl_shape_numel(index)) return misfit(c);
    return FL_OK;
}

static fl_status infer_gather(fl_infer *c)
{
    char tx[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    const fl_shape *x = &c->in[0].shape, *index = &c->in[1].shape;
    int axis;
    FL_TRY(require_indices(c, 1, "index"));
    FL_TRY(fl_shape_axis(&axis, c->name, c->attrs->at[0].integer, x));
    bool fits = x->ndim == index->ndim;
    for (int i = 0; fits && i < x->ndim; i++) fits = i == axis || index->dims[i] <= x->dims[i];
    if (!fits)
        return fl_infer_fail(c, FL_ERR_SHAPE,
                             "index %s must have as many axes as x %s and, but for axis %d, sizes up to those of x",
                             fl_shape_text(ti, index), fl_shape_text(tx, x), axis);
    c->out[0].shape = *index;
    c->out[0].dtype = c->in[0].dtype;
    return FL_OK;
}

static fl_status infer_gather_backward(fl_infer *c)
{
    if (c->in[0].dtype == FL_BOOL) return fl_infer_fail(c, FL_ERR_DTYPE, "dy must be numbers, got bool");
    FL_TRY(require_indices(c, 1, "index"));
    const fl_shape *index = &c->in[1].shape;
    const fl_attr *sizes = &c->attrs->at[1];
    int axis = axis_of(c->attrs, index);
    bool fits = fl_shape_equal(&c->in[0].shape, index) && index->ndim == sizes->count;
    for (int i = 0; fits && i < index->ndim; i++) fits = i == axis || index->dims[i] <= sizes->list[i];
    if (!fits) return misfit(c);
    c->out[0].dtype = c->in[0].dtype;
    return fl_shape_make(&c->out[0].shape, c->name, c->attrs->at[1].list, c->attrs->at[1].count);
}

/* ---- SBP ---- */

/* The values partial (operand `values`), the indices whole. */
static void sbp_partial_values(fl_sigs *s, int values, bool extremes)
{
    fl_sbp_partial(s, 1u << values, FL_PSUM);
    if (extremes) fl_sbp_partial(s, 1u << values, FL_PMAX);
    if (extremes) fl_sbp_partial(s, 1u << values, FL_PMIN);
}

static bool can_sum(const fl_sigs *s) { return s->out[0].dtype != FL_BOOL; }

static void sbp_embedding(fl_sigs *s)
{
    int ndim = s->in[0].shape.ndim;
    for (int i = 0; i < ndim; i++) FL_SIG(s, NULL, FL_S(i), FL_B, FL_S(i));
    FL_SIG(s, NULL, FL_B, FL_S(1), FL_S(ndim));
    if (can_sum(s)) FL_SIG(s, NULL, FL_B, FL_S(0), FL_PSUM);
    sbp_partial_values(s, 1, true);
}

static void sbp_embedding_backward(fl_sigs *s)
{
    int ndim = s->in[1].shape.ndim;
    for (int i = 0; i < ndim; i++) FL_SIG(s, NULL, FL_S(i), FL_S(i), FL_PSUM);
    FL_SIG(s, NULL, FL_S(ndim), FL_B, FL_S(1));
    if (fl_sbp_is_like(s, 1, FL_S(0))) FL_SIG(s, NULL, FL_B, FL_B, FL_S(0));
    sbp_partial_values(s, 0, false);
}

static void sbp_index_select(fl_sigs *s)
{
    int axis = axis_of(s->attrs, &s->in[0].shape);
    for (int i = 0; i < s->in[0].shape.ndim; i++)
        if (i != axis) FL_SIG(s, NULL, FL_S(i), FL_B, FL_S(i));
    if (s->in[1].shape.ndim) FL_SIG(s, NULL, FL_B, FL_S(0), FL_S(axis));
    if (can_sum(s)) FL_SIG(s, NULL, FL_S(axis), FL_B, FL_PSUM);
    sbp_partial_values(s, 0, true);
}

static void sbp_index_add(fl_sigs *s)
{
    int axis = axis_of(s->attrs, &s->in[0].shape);
    for (int i = 0; i < s->in[0].shape.ndim; i++)
        if (i != axis) FL_SIG(s, NULL, FL_S(i), FL_B, FL_S(i));
    if (s->in[1].shape.ndim) FL_SIG(s, NULL, FL_S(axis), FL_S(0), FL_PSUM);
    if (fl_sbp_is_like(s, 2, FL_S(axis))) FL_SIG(s, NULL, FL_B, FL_B, FL_S(axis));
    sbp_partial_values(s, 0, false);
}

static void sbp_gather(fl_sigs *s)
{
    int axis = axis_of(s->attrs, &s->in[0].shape);
    for (int i = 0; i < s->in[0].shape.ndim; i++) {
        if (i != axis && s->in_logical[0].dims[i] == s->in_logical[1].dims[i])
            FL_SIG(s, NULL, FL_S(i), FL_S(i), FL_S(i));
        FL_SIG(s, NULL, FL_B, FL_S(i), FL_S(i));
    }
    if (can_sum(s)) FL_SIG(s, NULL, FL_S(axis), FL_B, FL_PSUM);
    sbp_partial_values(s, 0, true);
}

static void sbp_gather_backward(fl_sigs *s)
{
    int axis = axis_of(s->attrs, &s->in[0].shape);
    for (int i = 0; i < s->in[0].shape.ndim; i++) {
        if (i != axis && s->in_logical[0].dims[i] == s->out_logical[0].dims[i])
            FL_SIG(s, NULL, FL_S(i), FL_S(i), FL_S(i));
        FL_SIG(s, NULL, FL_S(i), FL_S(i), FL_PSUM);
    }
    if (fl_sbp_is_like(s, 2, FL_S(axis))) FL_SIG(s, NULL, FL_B, FL_B, FL_S(axis));
    sbp_partial_values(s, 0, false);
}

/* ---- picking slices ---- */

/* out[o, j, :] = x[o, index[j] - first, :], zeros outside [0, n). All in bytes: a slice is `slice` of them. */
typedef struct pick {
    char *out;
    const char *x;
    const int64_t *index;
    int64_t count, n, first, slice;
} pick;

static void pick_slices(void *context, int64_t begin, int64_t end)
{
    const pick *p = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i / p->count, at = p->index[i % p->count] - p->first;
        char *to = p->out + i * p->slice;
        if (at < 0 || at >= p->n) {
            memset(to, 0, (size_t)p->slice);
            continue;
        }
        const char *from = p->x + (outer * p->n + at) * p->slice;
        if (p->slice == 4) memcpy(to, from, 4);
        else memcpy(to, from, (size_t)p->slice);
    }
}

/* One slice of v along axis. */
static fl_view slice_of(const fl_view *v, int axis, int64_t at, int64_t *sizes)
{
    fl_view slice = *v;
    memcpy(sizes, v->size, sizeof(int64_t) * (size_t)v->ndim);
    sizes[axis] = 1;
    slice.size = sizes;
    slice.data = (char *)v->data + at * v->stride[axis] * (int64_t)fl_dtype_size(v->dtype);
    slice.numel = v->size[axis] ? v->numel / v->size[axis] : 0;
    slice.contiguous = false;
    return slice;
}

static fl_status pick_strided(const fl_view *out, const fl_view *x, int axis, const int64_t *index)
{
    int64_t sizes[FL_MAX_NDIM], zero = 0;
    for (int64_t j = 0; j < out->size[axis]; j++) {
        int64_t at = index[j] - x->start[axis];
        fl_view to = slice_of(out, axis, j, sizes),
                from = at >= 0 && at < x->size[axis] ? slice_of(x, axis, at, sizes) : *x;
        if (from.size == sizes) FL_TRY(fl_cpu_copy(&to, &from));
        else FL_TRY(fl_cpu_fill(&to, &zero));
    }
    return FL_OK;
}

/* x's slices along axis at the indices; out has `count` of them there. */
static fl_status pick_along(const fl_view *out, const fl_view *x, int axis, const int64_t *index, int64_t count)
{
    if (out->numel == 0) return FL_OK;
    if (!x->contiguous && x->numel) return pick_strided(out, x, axis, index);
    pick p = {out->data, x->data, index, count, x->size[axis], x->start[axis], (int64_t)fl_dtype_size(out->dtype)};
    int64_t outer = 1;
    for (int i = axis + 1; i < x->ndim; i++) p.slice *= x->size[i];
    for (int i = 0; i < axis; i++) outer *= x->size[i];
    fl_team_for(outer * count, 5 + (double)p.slice * NS_PER_BYTE, pick_slices, &p);
    return FL_OK;
}

static fl_status kernel_embedding(fl_kernel *k)
{
    const fl_view *weight = &k->in[1];
    const int64_t *index;
    FL_TRY(fl_indices_open(&index, k, 0));
    fl_index_rule rule = {
        .who = "embedding", .param = "indices", .owner = "weight", .noun = "rows", .limit = weight->logical[0]};
    FL_TRY(fl_indices_check(index, &k->in[0], &rule));
    fl_view out = k->out[0];
    int64_t sizes[2] = {k->in[0].numel, weight->size[1]}, strides[2] = {weight->size[1], 1};
    out.ndim = 2;
    out.size = sizes;
    out.stride = strides;
    return pick_along(&out, weight, 0, index, sizes[0]);
}

static fl_status kernel_index_select(fl_kernel *k)
{
    const fl_view *x = &k->in[0];
    int axis = fl_axis_of(&k->attrs->at[0], x->ndim);
    const int64_t *index;
    FL_TRY(fl_indices_open(&index, k, 1));
    fl_index_rule rule = {.who = "index_select",
                          .param = "index",
                          .owner = "this axis of x",
                          .noun = "positions",
                          .limit = x->logical[axis]};
    FL_TRY(fl_indices_check(index, &k->in[1], &rule));
    return pick_along(&k->out[0], x, axis, index, k->in[1].numel);
}

/* ---- adding slices ---- */

/* out[o, index[j] - first, :] += dy[o, j, :]; a unit of work is `columns` columns of one outer position. */
typedef struct add_job {
    char *out;
    const char *dy;
    const int64_t *index;
    int64_t count, n, first, inner, columns, units; /* units per outer position */
    int64_t item;
    void (*add)(void *y, const void *x, int64_t n);
} add_job;

static void add_columns(void *context, int64_t begin, int64_t end)
{
    const add_job *a = context;
    for (int64_t u = begin; u < end; u++) {
        int64_t outer = u / a->units, from = u % a->units * a->columns,
                columns = from + a->columns < a->inner ? a->columns : a->inner - from;
        for (int64_t j = 0; j < a->count; j++) {
            int64_t at = a->index[j] - a->first, source = (outer * a->count + j) * a->inner,
                    target = (outer * a->n + at) * a->inner;
            if (at >= 0 && at < a->n)
                a->add(a->out + (target + from) * a->item, a->dy + (source + from) * a->item, columns);
        }
    }
}

/* Sums dy's slices along axis into zeros; index is staged as operand 1. */
static fl_status add_along(fl_kernel *k, int axis, int64_t count)
{
    fl_stage s;
    const fl_view *out = &k->out[0];
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, k, 0));
    memset(s.out[0], 0, (size_t)out->numel * fl_dtype_size(s.dtype));
    add_job a = {.out = s.out[0],
                 .dy = s.in[0],
                 .index = s.in[1],
                 .count = count,
                 .n = out->size[axis],
                 .first = out->start[axis],
                 .inner = 1,
                 .columns = 64,
                 .item = (int64_t)fl_dtype_size(s.dtype),
                 .add = fl_row_kernels_of(s.dtype)->add};
    int64_t outer = 1;
    for (int i = axis + 1; i < out->ndim; i++) a.inner *= out->size[i];
    for (int i = 0; i < axis; i++) outer *= out->size[i];
    a.units = (a.inner + a.columns - 1) / a.columns;
    fl_team_for(outer * a.units, (double)count * (2 + (double)a.columns * NS_PER_ADDITION), add_columns, &a);
    return fl_stage_close(&s);
}

static fl_status kernel_embedding_backward(fl_kernel *k) { return add_along(k, 0, k->in[1].numel); }
static fl_status kernel_index_add(fl_kernel *k)
{
    return add_along(k, fl_axis_of(&k->attrs->at[0], k->out[0].ndim), k->in[1].numel);
}

/* ---- elements ---- */

/* Walks the elements of `index` in order: for each, where the element of `target` lies that has the same position but
** for the axis. Offsets are in elements of target; -1: the part does not hold it. */
typedef struct walk {
    const fl_view *index, *target;
    const int64_t *values, *strides; /* strides of the target */
    int axis;
} walk;

/* Offset of element i of the index but for the axis's own share. */
static int64_t walk_base(const walk *w, int64_t i)
{
    int64_t base = 0;
    for (int a = w->index->ndim - 1; a >= 0; a--) {
        int64_t at = i % w->index->size[a];
        i /= w->index->size[a];
        if (a != w->axis) base += (at + w->index->start[a] - w->target->start[a]) * w->strides[a];
    }
    return base;
}

static int64_t walk_to(const walk *w, int64_t base, int64_t i)
{
    if (w->target->ndim == 0) return 0;
    int64_t at = w->values[i] - w->target->start[w->axis];
    return at < 0 || at >= w->target->size[w->axis] ? -1 : base + at * w->strides[w->axis];
}

/* Elements along the last axis of the index, and how far the target moves for each. */
static int64_t walk_row(const walk *w, int64_t *step)
{
    int last = w->index->ndim - 1;
    *step = last >= 0 && last != w->axis ? w->strides[last] : 0;
    return last < 0 ? 1 : w->index->size[last];
}

typedef struct gather_job {
    walk w;
    char *out;
    const char *x;
    size_t item;
} gather_job;

static void gather_rows(void *context, int64_t begin, int64_t end)
{
    const gather_job *g = context;
    int64_t step, row = walk_row(&g->w, &step);
    for (int64_t r = begin; r < end; r++) {
        int64_t base = walk_base(&g->w, r * row);
        for (int64_t i = r * row; i < (r + 1) * row; i++, base += step) {
            int64_t at = walk_to(&g->w, base, i);
            char *to = g->out + (size_t)i * g->item;
            if (at < 0) memset(to, 0, g->item);
            else if (g->item == 4) memcpy(to, g->x + at * 4, 4);
            else memcpy(to, g->x + (size_t)at * g->item, g->item);
        }
    }
}

static fl_status kernel_gather(fl_kernel *k)
{
    const fl_view *x = &k->in[0], *index = &k->in[1];
    gather_job g = {.w = {.index = index,
                          .target = x,
                          .strides = x->stride,
                          .axis = x->ndim ? fl_axis_of(&k->attrs->at[0], x->ndim) : 0},
                    .out = k->out[0].data,
                    .x = x->data,
                    .item = fl_dtype_size(x->dtype)};
    FL_TRY(fl_indices_open(&g.w.values, k, 1));
    fl_index_rule rule = {.who = "gather",
                          .param = "index",
                          .owner = "this axis of x",
                          .noun = "positions",
                          .limit = x->ndim ? x->logical[g.w.axis] : 1};
    FL_TRY(fl_indices_check(g.w.values, index, &rule));
    if (index->numel == 0) return FL_OK;
    int64_t step, row = walk_row(&g.w, &step);
    fl_team_for(index->numel / row, 10 + 2 * (double)row, gather_rows, &g);
    return FL_OK;
}

static fl_status kernel_gather_backward(fl_kernel *k)
{
    fl_stage s;
    const fl_view *out = &k->out[0], *index = &k->in[1];
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, k, 0));
    fl_dtype dtype = fl_dtype_is_float(s.dtype) ? s.dtype : FL_INT64;
    int64_t strides[FL_MAX_NDIM], step;
    fl_shape_strides(strides, out->size, out->ndim);
    walk w = {.index = index,
              .target = out,
              .values = s.in[1],
              .strides = strides,
              .axis = out->ndim ? fl_axis_of(&k->attrs->at[0], out->ndim) : 0};
    fl_index_rule rule = {.who = "scatter_add",
                          .param = "index",
                          .owner = "this axis of x",
                          .noun = "positions",
                          .limit = out->ndim ? out->logical[w.axis] : 1};
    FL_TRY(fl_indices_check(w.values, index, &rule));
    memset(s.out[0], 0, (size_t)out->numel * fl_dtype_size(dtype));
    int64_t row = walk_row(&w, &step);
    for (int64_t first = 0; first < index->numel; first += row) {
        int64_t base = walk_base(&w, first);
        for (int64_t i = first; i < first + row; i++, base += step) {
            int64_t at = walk_to(&w, base, i);
            if (at < 0) continue;
            if (dtype == FL_FLOAT64) ((double *)s.out[0])[at] += ((const double *)s.in[0])[i];
            else if (dtype == FL_INT64) ((uint64_t *)s.out[0])[at] += ((const uint64_t *)s.in[0])[i]; /* wraps */
            else ((float *)s.out[0])[at] += ((const float *)s.in[0])[i];
        }
    }
    return fl_stage_close(&s);
}

/* ---- gradients ---- */

static fl_status grad_embedding(fl_grad *g)
{
    fl_attrs a;
    if (!g->need[1]) return FL_OK;
    fl_attrs_init(&a, FL_OP_REF(embedding_backward));
    fl_attr_set(&a, 0, g->in_meta[1]->shape.dims[0]);
    fl_attr_set_like(&a, 1, g->in_meta[1]);
    return FL_CALL_WITH(&g->gin[1], &a, embedding_backward, fl_of(g->gout[0]), g->in[0]);
}

static fl_status grad_index_select(fl_grad *g)
{
    const fl_shape *x = &g->in_meta[0]->shape;
    fl_attrs a;
    if (!g->need[0]) return FL_OK;
    fl_attrs_init(&a, FL_OP_REF(index_add));
    fl_attr_set(&a, 0, g->attrs->at[0].integer);
    fl_attr_set(&a, 1, x->dims[axis_of(g->attrs, x)]);
    fl_attr_set_like(&a, 2, g->in_meta[0]);
    return FL_CALL_WITH(&g->gin[0], &a, index_add, fl_of(g->gout[0]), g->in[1]);
}

static fl_status grad_gather(fl_grad *g)
{
    const fl_shape *x = &g->in_meta[0]->shape;
    fl_attrs a;
    if (!g->need[0]) return FL_OK;
    fl_attrs_init(&a, FL_OP_REF(gather_backward));
    fl_attr_set(&a, 0, g->attrs->at[0].integer);
    fl_attr_set_list(&a, 1, x->dims, x->ndim);
    fl_attr_set_like(&a, 2, g->in_meta[0]);
    return FL_CALL_WITH(&g->gin[0], &a, gather_backward, fl_of(g->gout[0]), g->in[1]);
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
    .doc = "The rows of weight that the indices name.",
    .saves_in = 1,
    .infer = infer_embedding,
    .sbp = sbp_embedding,
    .cpu = kernel_embedding,
    .grad = grad_embedding,
    .samples = embedding_samples,
};

static const char *const embedding_backward_vjp[] = {"embedding(indices, g)", NULL};
static const char *const embedding_backward_samples[] = {"flow.randn(3, 2, 4), flow.randint(0, 5, {3, 2}), 5",
                                                         "flow.randn(2, 40), flow.tensor{1, 1}, 2", NULL};
FL_OP(embedding_backward) = {
    .name = "embedding_backward",
    .sig = "embedding_backward(dy, indices, rows: int, like: int = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Zeros [rows, width] with every row of dy added to the row its index names.",
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
    .doc = "The slices of x along the axis that the 1-D index names.",
    .saves_in = 2,
    .infer = infer_index_select,
    .sbp = sbp_index_select,
    .cpu = kernel_index_select,
    .grad = grad_index_select,
    .samples = index_select_samples,
};

static const char *const index_add_vjp[] = {"index_select(g, axis, index)", NULL};
static const char *const index_add_samples[] = {"flow.randn(3, 2), 0, flow.tensor{1, 3, 1}, 5",
                                                "flow.randn(2, 3, 4), 1, flow.tensor{0, 2, 2}, 3", NULL};
FL_OP(index_add) = {
    .name = "index_add",
    .sig = "index_add(dy, axis: axis, index, size: int, like: int = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Zeros of this size along the axis with every slice of dy added where its index says.",
    .infer = infer_index_add,
    .sbp = sbp_index_add,
    .cpu = kernel_index_add,
    .vjp = index_add_vjp,
    .samples = index_add_samples,
};

static const char *const gather_samples[] = {"flow.randn(3, 4), 1, flow.randint(0, 4, {3, 2})",
                                             "flow.randn(3, 4), 0, flow.randint(0, 3, {2, 4})",
                                             "flow.randn(2, 3, 4), 1, flow.randint(0, 3, {2, 5, 3})",
                                             "flow.randn(5), 0, flow.tensor{4, 4, 0}", NULL};
FL_OP(gather) = {
    .name = "gather",
    .sig = "gather(x, axis: axis, index)",
    .nout = 1,
    .doc = "For every position of index the element of x there, but along the axis at the place the index names.",
    .saves_in = 2,
    .infer = infer_gather,
    .sbp = sbp_gather,
    .cpu = kernel_gather,
    .grad = grad_gather,
    .samples = gather_samples,
};

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
    .doc = "Zeros of these sizes with every element of dy added, along the axis, where its index says.",
    .infer = infer_gather_backward,
    .sbp = sbp_gather_backward,
    .cpu = kernel_gather_backward,
    .vjp = gather_backward_vjp,
    .samples = gather_backward_samples,
};

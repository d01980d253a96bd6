/*
** pick.c -- slices and elements picked by index, and the sums that are their gradients: see pick.h.
**
** Sums go through the indices in order and are cut over columns, so they are the same for any team.
*/
#include "pick.h"
#include "indices.h"
#include "rows.h"
#include "stage.h"

static const double NS_PER_BYTE = 0.05, NS_PER_ADDITION = 0.1;

/* ---- picking slices ---- */

/* out[o, j, :] = x[o, index[j] - first, :], zeros outside [0, n). A slice is `slice` bytes without gaps; neighbours
** along the axis are `step` bytes apart. */
struct pick {
    char *out;
    const fl_view *x;
    int axis;
    const int64_t *index;
    int64_t count, n, first, slice, step;
};

/* The first byte of outer position `outer` of x. */
static const char *outer_position(const struct pick *pick, int64_t outer)
{
    const fl_view *x = pick->x;
    int64_t at = 0;
    for (int i = pick->axis - 1; i >= 0; outer /= x->size[i], i--) at += outer % x->size[i] * x->stride[i];
    return (const char *)x->data + at * (int64_t)fl_dtype_size(x->dtype);
}

/* Slices from `begin` to `end`; `slice` is a constant where it is called, but for long ones. */
static inline __attribute__((always_inline)) void pick_each(const struct pick *pick, int64_t begin, int64_t end,
                                                            size_t slice)
{
    int64_t outer = begin / pick->count, j = begin % pick->count;
    char *to = pick->out + begin * (int64_t)slice;
    for (int64_t i = begin; i < end; outer++, j = 0) {
        const char *x = outer_position(pick, outer);
        int64_t stop = pick->count - j < end - i ? pick->count : j + end - i;
        i += stop - j;
        for (; j < stop; j++, to += slice) {
            int64_t at = pick->index[j] - pick->first;
            if (FL_LIKELY((uint64_t)at < (uint64_t)pick->n)) memcpy(to, x + at * pick->step, slice);
            else memset(to, 0, slice);
        }
    }
}

static void pick_slices(void *context, int64_t begin, int64_t end)
{
    const struct pick *p = context;
    switch (p->slice) {
    case 1: pick_each(p, begin, end, 1); break;
    case 2: pick_each(p, begin, end, 2); break;
    case 4: pick_each(p, begin, end, 4); break;
    case 8: pick_each(p, begin, end, 8); break;
    default: pick_each(p, begin, end, (size_t)p->slice);
    }
}

/* One slice of the view along the axis. */
static fl_view slice_of(const fl_view *view, int axis, int64_t at, int64_t *sizes)
{
    fl_view slice = *view;
    memcpy(sizes, view->size, sizeof(int64_t) * (size_t)view->ndim);
    sizes[axis] = 1;
    slice.size = sizes;
    slice.data = (char *)view->data + at * view->stride[axis] * (int64_t)fl_dtype_size(view->dtype);
    slice.numel = view->size[axis] ? view->numel / view->size[axis] : 0;
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

fl_status fl_cpu_pick_along(const fl_view *out, const fl_view *x, int axis, const int64_t *index, int64_t count)
{
    if (out->numel == 0) return FL_OK;
    int64_t item = (int64_t)fl_dtype_size(out->dtype), outer = 1, slice = 1;
    bool has_gaps = false;
    for (int i = x->ndim - 1; i > axis; slice *= x->size[i], i--) has_gaps |= x->stride[i] != slice && x->size[i] > 1;
    if (has_gaps && x->numel) return pick_strided(out, x, axis, index);
    struct pick p = {
        out->data, x, axis, index, count, x->size[axis], x->start[axis], slice * item, x->stride[axis] * item};
    for (int i = 0; i < axis; i++) outer *= x->size[i];
    fl_team_for(outer * count, 5 + (double)p.slice * NS_PER_BYTE, pick_slices, &p);
    return FL_OK;
}

/* ---- adding slices ---- */

/* out[o, index[j] - first, :] += dy[o, j, :]; a unit of work is `columns` columns of one outer position. */
struct add_job {
    char *out;
    const char *dy;
    const int64_t *index;
    int64_t count, n, first, inner, columns, units; /* units per outer position */
    int64_t item;
    void (*add)(void *y, const void *x, int64_t n);
};

static void add_columns(void *context, int64_t begin, int64_t end)
{
    const struct add_job *a = context;
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

/* Slices of one element each, which a call for every one would take longer than to add. */
#define ADD_ELEMENTS(name, T)                                                   \
    static void name(void *context, int64_t begin, int64_t end)                 \
    {                                                                           \
        const struct add_job *a = context;                                      \
        for (int64_t outer = begin; outer < end; outer++) {                     \
            T *out = (T *)a->out + outer * a->n;                                \
            const T *dy = (const T *)a->dy + outer * a->count;                  \
            for (int64_t j = 0; j < a->count; j++) {                            \
                int64_t at = a->index[j] - a->first;                            \
                if (FL_LIKELY((uint64_t)at < (uint64_t)a->n)) out[at] += dy[j]; \
            }                                                                   \
        }                                                                       \
    }
ADD_ELEMENTS(add_floats, float)
ADD_ELEMENTS(add_doubles, double)

fl_status fl_cpu_add_along(fl_kernel *kernel, int axis, int64_t count)
{
    fl_stage s;
    const fl_view *out = &kernel->out[0];
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 0));
    memset(s.out[0], 0, (size_t)out->numel * fl_dtype_size(s.dtype));
    struct add_job a = {.out = s.out[0],
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
    if (a.inner == 1) {
        fl_team_for(outer, 5 + 1.5 * (double)count, s.dtype == FL_FLOAT64 ? add_doubles : add_floats, &a);
        return fl_stage_close(&s);
    }
    a.units = (a.inner + a.columns - 1) / a.columns;
    fl_team_for(outer * a.units, (double)count * (2 + (double)a.columns * NS_PER_ADDITION), add_columns, &a);
    return fl_stage_close(&s);
}

/* ---- elements ---- */

/* Walks the elements of `index` in order: for each, where the element of `target` lies that has the same position but
** for the axis. Offsets are in elements of target. */
struct walk {
    const fl_view *index, *target;
    const int64_t *values, *strides; /* strides of the target */
    int axis;
};

/* Offset of element i of the index but for the axis's own share. */
static int64_t walk_base(const struct walk *walk, int64_t i)
{
    int64_t base = 0;
    for (int a = walk->index->ndim - 1; a >= 0; a--) {
        int64_t at = i % walk->index->size[a];
        i /= walk->index->size[a];
        if (a != walk->axis) base += (at + walk->index->start[a] - walk->target->start[a]) * walk->strides[a];
    }
    return base;
}

/* Elements along the last axis of the index, and how far the target moves for each. */
static int64_t walk_row(const struct walk *walk, int64_t *step)
{
    int last = walk->index->ndim - 1;
    *step = last >= 0 && last != walk->axis ? walk->strides[last] : 0;
    return last < 0 ? 1 : walk->index->size[last];
}

struct gather_job {
    struct walk w;
    char *out;
    const char *x;
    size_t item;
};

/* Rows of the index; `item` is a constant where it is called. */
static inline __attribute__((always_inline)) void gather_each(const struct gather_job *job, int64_t begin, int64_t end,
                                                              size_t item)
{
    const struct walk *w = &job->w;
    const bool axes = w->target->ndim > 0;
    const int64_t first = axes ? w->target->start[w->axis] : 0, held = axes ? w->target->size[w->axis] : 1;
    const int64_t place = axes ? w->strides[w->axis] * (int64_t)item : 0;
    int64_t step, row = walk_row(w, &step);
    step *= (int64_t)item;
    for (int64_t r = begin; r < end; r++) {
        const char *x = job->x + walk_base(w, r * row) * (int64_t)item;
        const int64_t *positions = w->values + r * row;
        char *to = job->out + r * row * (int64_t)item;
        for (int64_t i = 0; i < row; i++, x += step, to += item) {
            int64_t at = positions[i] - first;
            if (FL_LIKELY((uint64_t)at < (uint64_t)held)) memcpy(to, x + at * place, item);
            else memset(to, 0, item);
        }
    }
}

static void gather_rows(void *context, int64_t begin, int64_t end)
{
    const struct gather_job *g = context;
    switch (g->item) {
    case 1: gather_each(g, begin, end, 1); break;
    case 2: gather_each(g, begin, end, 2); break;
    case 4: gather_each(g, begin, end, 4); break;
    default: gather_each(g, begin, end, 8);
    }
}

fl_status fl_cpu_gather(fl_kernel *kernel, int axis)
{
    const fl_view *x = &kernel->in[0], *index = &kernel->in[1];
    struct gather_job g = {.w = {.index = index, .target = x, .strides = x->stride, .axis = axis},
                           .out = kernel->out[0].data,
                           .x = x->data,
                           .item = fl_dtype_size(x->dtype)};
    FL_TRY(fl_indices_open(&g.w.values, kernel, 1));
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

/* ---- one element per line ---- */

/* Calls per line: offsets in elements of its first element in `x`, of its index and of its single element. */
struct lines {
    const fl_view *x, *index, *one;
    int axis;
    int64_t width;
};

/* Line number i: addresses of its picked element in x and of the single element. false: the position is not on the
** line, so nothing is picked. */
static bool line_at(const struct lines *lines, int64_t i, char **in_x, char **in_one)
{
    int64_t x = 0, index = 0, one = 0;
    bool keepdim = lines->index->ndim == lines->x->ndim;
    for (int a = lines->x->ndim - 1; a >= 0; a--) {
        if (a == lines->axis) continue;
        int b = keepdim || a < lines->axis ? a : a - 1;
        int64_t at = i % lines->x->size[a];
        i /= lines->x->size[a];
        x += at * lines->x->stride[a];
        index += at * lines->index->stride[b];
        one += at * lines->one->stride[b];
    }
    int64_t picked = ((const int64_t *)lines->index->data)[index];
    if (lines->x->ndim) x += picked * lines->x->stride[lines->axis];
    *in_x = (char *)lines->x->data + x * lines->width;
    *in_one = (char *)lines->one->data + one * lines->width;
    return (uint64_t)picked < (uint64_t)(lines->x->ndim ? lines->x->size[lines->axis] : 1);
}

fl_status fl_cpu_axis_gather(const fl_view *out, const fl_view *x, const fl_view *index, int axis)
{
    struct lines l = {x, index, out, axis, (int64_t)fl_dtype_size(x->dtype)};
    for (int64_t i = 0; i < out->numel; i++) {
        char *in_x, *in_one;
        if (line_at(&l, i, &in_x, &in_one)) memcpy(in_one, in_x, (size_t)l.width);
        else memset(in_one, 0, (size_t)l.width);
    }
    return FL_OK;
}

fl_status fl_cpu_axis_scatter(const fl_view *out, const fl_view *line, const fl_view *index, int axis)
{
    struct lines l = {out, index, line, axis, (int64_t)fl_dtype_size(out->dtype)};
    if (out->numel == 0) return FL_OK; /* the data pointer may be NULL */
    memset(out->data, 0, (size_t)(out->numel * l.width));
    for (int64_t i = 0; i < index->numel; i++) {
        char *in_x, *in_one;
        if (line_at(&l, i, &in_x, &in_one)) memcpy(in_x, in_one, (size_t)l.width);
    }
    return FL_OK;
}

/* ---- rows written ---- */

/* The first element of row `at` of `value`, broadcast to rows of `out`, and its strides without `axis`. */
static fl_view row_of(const fl_view *value, const fl_view *row, const fl_view *out, int axis, int64_t at,
                      int64_t *strides)
{
    fl_view v = *row;
    int pad = out->ndim - value->ndim;
    int64_t offset = 0;
    for (int i = 0, j = 0; i < out->ndim; i++) {
        bool own = i >= pad && value->logical[i - pad] != 1;
        int64_t stride = own ? value->stride[i - pad] : 0;
        if (i == axis) offset = at * stride;
        else strides[j++] = stride;
    }
    v.data = (char *)value->data + offset * (int64_t)fl_dtype_size(value->dtype);
    v.dtype = value->dtype;
    v.stride = strides;
    return v;
}

/* The part of `out` at one position of `axis`. */
static fl_view row_view(const fl_view *out, int axis, int64_t *sizes, int64_t *strides)
{
    fl_view row = *out;
    row.ndim = out->ndim - 1;
    row.numel = 1;
    row.contiguous = false;
    for (int i = 0, j = 0; i < out->ndim; i++) {
        if (i == axis) continue;
        strides[j] = out->stride[i];
        row.numel *= sizes[j++] = out->size[i];
    }
    row.size = sizes;
    row.stride = strides;
    return row;
}

fl_status fl_cpu_write_rows(const fl_view *out, const fl_view *index, const fl_view *value, int axis, const char *who)
{
    int64_t sizes[FL_MAX_NDIM], strides[FL_MAX_NDIM], value_strides[FL_MAX_NDIM], position = 0;
    const int64_t zero = 0, size = out->logical[axis];
    fl_view row = row_view(out, axis, sizes, strides),
            at = {.data = &position, .dtype = FL_INT64, .contiguous = true, .numel = 1}, source = at;
    source.dtype = index->dtype;
    for (int64_t k = 0; k < index->numel; k++) {
        source.data = (char *)index->data + k * index->stride[0] * (int64_t)fl_dtype_size(index->dtype);
        FL_TRY(fl_cpu_copy(&at, &source));
        if (position < 0 || position >= size)
            return fl_fail(FL_ERR_VALUE, "%s: position %lld is out of range for axis %d of size %lld", who,
                           (long long)position, axis, (long long)size);
        int64_t local = position - out->start[axis];
        if (local < 0 || local >= out->size[axis]) continue;
        row.data = (char *)out->data + local * out->stride[axis] * (int64_t)fl_dtype_size(out->dtype);
        if (!value) FL_TRY(fl_cpu_fill(&row, &zero));
        else {
            fl_view from = row_of(value, &row, out, axis, k, value_strides);
            FL_TRY(fl_cpu_copy(&row, &from));
        }
    }
    return FL_OK;
}

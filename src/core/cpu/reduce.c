/*
** reduce.c -- the driver of all reductions.
**
** The kept axes give the results, the reduced ones the elements of each. If the elements of a result lie closer
** together than the results do, a result is folded run by run (ROWS); else a tile of results is folded row by
** row (columns). Elements of a result are folded in the order of memory, if no position is asked for. Dtypes other than
** int64, float and double, and strided rows, are converted through a buffer. Few but long results are cut into segments
** of a fixed size, whose totals are joined in order, so threads never change a result.
*/
#include "reduce.h"
#include "tiles.h"
#include "base/axes.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    PIECE = 16384,              /* elements of a run that are one unit of a segment */
    SEGMENT = 65536,            /* elements of a segment of one result, or of one tile of columns */
    SEGMENT_FROM = 2 * SEGMENT, /* smaller tensors are not cut */
    MANY_TASKS = 32,            /* enough results to keep every thread busy: not cut */
    BATCH = 512,                /* results whose totals lie on the stack */
    SHORT_RUN = 16              /* shorter runs are folded as columns */
};

struct layout {
    const char *data;
    fl_dtype dtype;
    fl_copy_through through;
    const fl_copy_kernels *copy;
    const fl_reduce_loops *loops;
    fl_layout kept, reduced;   /* strides in bytes */
    int64_t results, elements; /* positions of the kept and of the reduced axes */
    bool columns;
    int64_t element, width; /* bytes in memory, and of the type it is converted through */
};

/* ---- the layout ---- */

/* At least one axis, so that loops need not ask. Returns the number of positions. */
static int64_t close_axes(fl_layout *layout, int64_t element)
{
    if (layout->count == 0) layout->axes[layout->count++] = (fl_axis){.size = 1, .stride = {element}};
    return fl_layout_numel(layout);
}

static const fl_axis *innermost(const fl_layout *layout) { return &layout->axes[layout->count - 1]; }

static int64_t reach(const fl_axis *axis) { return axis->stride[0] ? fl_layout_magnitude(axis->stride[0]) : INT64_MAX; }

/* The reduced axes in the order of memory: long runs, and each line of the cache once. An axis along which elements are
** repeated comes first. */
static void order_as_stored(fl_layout *reduced)
{
    for (int i = 1; i < reduced->count; i++) {
        fl_axis axis = reduced->axes[i];
        int at = i;
        for (; at > 0 && reach(&reduced->axes[at - 1]) < reach(&axis); at--) reduced->axes[at] = reduced->axes[at - 1];
        reduced->axes[at] = axis;
    }
    if (reduced->count > 1) fl_layout_merge(reduced);
}

/* Sets the fields that do not depend on the axes. */
static void layout_open(struct layout *layout, const fl_view *in)
{
    layout->data = in->data;
    layout->dtype = in->dtype;
    layout->through = fl_copy_through_of(in->dtype);
    layout->copy = FL_BY_LEVEL(fl_copy_kernels);
    layout->loops = FL_BY_LEVEL(fl_reduce_loops);
    layout->element = (int64_t)fl_dtype_size(in->dtype);
    layout->width = layout->through == FL_THROUGH_FLOAT ? (int64_t)sizeof(float) : (int64_t)sizeof(double);
}

/* any_order: of the elements of a result. */
static void layout_axes(struct layout *layout, const fl_view *in, uint32_t mask, bool any_order)
{
    layout->kept.count = layout->reduced.count = 0;
    layout->kept.operands = layout->reduced.operands = 1;
    for (int i = 0; i < in->ndim; i++) {
        fl_axis axis = {.size = in->size[i], .stride = {in->stride[i] * layout->element}};
        fl_layout_add(mask >> i & 1u ? &layout->reduced : &layout->kept, &axis);
    }
    if (any_order) order_as_stored(&layout->reduced);
    layout->results = close_axes(&layout->kept, layout->element);
    layout->elements = close_axes(&layout->reduced, layout->element);
    const fl_axis *run = innermost(&layout->reduced), *tile = innermost(&layout->kept);
    layout->columns = tile->size > 1
        && (fl_layout_magnitude(run->stride[0]) > fl_layout_magnitude(tile->stride[0])
            || (run->size < SHORT_RUN && tile->size > run->size));
}

static void layout_init(struct layout *layout, const fl_view *in, uint32_t mask)
{
    layout_open(layout, in);
    layout_axes(layout, in, mask, false);
}

/* Address of position `index` of a list, relative to base. */
static const char *position(const fl_layout *layout, const char *base, int64_t index)
{
    for (int i = layout->count - 1; i > 0; i--) {
        base += index % layout->axes[i].size * layout->axes[i].stride[0];
        index /= layout->axes[i].size;
    }
    return base + index * layout->axes[0].stride[0];
}

/* True if elements `stride` bytes apart can be read in place. */
static bool is_plain(const struct layout *layout, int64_t stride)
{
    return stride == layout->element
        && (layout->dtype == FL_INT64 || layout->dtype == FL_FLOAT32 || layout->dtype == FL_FLOAT64);
}

/* ---- folding ---- */

struct fold_task {
    const fl_fold_loops *loops, *plain; /* over the type that is converted through; over the dtype, if it has some */
    double p;
};

static struct fold_task task_of(const struct layout *layout, fl_fold fold, double p)
{
    struct fold_task task = {.loops = &layout->loops->fold[layout->through][fold], .p = p};
    task.plain = layout->dtype == FL_BFLOAT16 ? &layout->loops->bfloat16[fold] : task.loops;
    return task;
}

/* True if elements `stride` bytes apart can be folded in place. */
static bool is_folded_plain(const struct layout *layout, const struct fold_task *task, int64_t stride)
{
    return is_plain(layout, stride) || (stride == layout->element && layout->dtype == FL_BFLOAT16 && task->plain->run);
}

static void fold_run(const struct layout *layout, const struct fold_task *task, fl_total *total, const char *x,
                     int64_t n, int64_t stride, double center)
{
    if (is_folded_plain(layout, task, stride)) {
        task->plain->run(total, x, n, center, task->p);
        return;
    }
    _Alignas(64) int64_t buffer[FL_REDUCE_BLOCK];
    for (int64_t i = 0; i < n; i += FL_REDUCE_BLOCK) {
        int64_t m = n - i < FL_REDUCE_BLOCK ? n - i : FL_REDUCE_BLOCK;
        layout->copy->load[layout->dtype](buffer, x + i * stride, stride, m);
        task->loops->run(total, buffer, m, center, task->p);
    }
}

static int64_t pieces_of_run(const struct layout *layout)
{
    return (innermost(&layout->reduced)->size + PIECE - 1) / PIECE;
}

/* One result: pieces [begin, end) of its runs. */
static void fold_pieces(const struct layout *layout, const struct fold_task *task, fl_total *total, const char *base,
                        int64_t begin, int64_t end, double center)
{
    const fl_layout *r = &layout->reduced;
    int64_t run = innermost(r)->size, stride = innermost(r)->stride[0], pieces = pieces_of_run(layout);
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i % pieces * PIECE, n = run - at < PIECE ? run - at : PIECE;
        fold_run(layout, task, total, position(r, base, i / pieces * run + at), n, stride, center);
    }
}

/* `columns` neighbouring results: rows [begin, end) of the reduced positions. */
static void fold_columns(const struct layout *layout, const struct fold_task *task, fl_total *totals, const char *base,
                         int64_t columns, int64_t begin, int64_t end, const double *centers)
{
    const fl_layout *r = &layout->reduced;
    int64_t inner = innermost(r)->size, stride = innermost(r)->stride[0],
            tile_stride = innermost(&layout->kept)->stride[0];
    bool plain = is_folded_plain(layout, task, tile_stride) && stride % layout->element == 0;
    _Alignas(64) int64_t buffer[FL_REDUCE_TILE];
    while (begin < end) {
        int64_t at = begin % inner, rows = inner - at < end - begin ? inner - at : end - begin;
        const char *x = position(r, base, begin);
        if (plain) task->plain->columns(totals, x, stride / layout->element, rows, columns, centers, task->p);
        else
            for (int64_t i = 0; i < rows; i++) {
                layout->copy->load[layout->dtype](buffer, x + i * stride, tile_stride, columns);
                task->loops->columns(totals, buffer, 0, 1, columns, centers, task->p);
            }
        begin += rows;
    }
}

/* ---- jobs ---- */

/* The state that threads share. A task is a batch of results (rows) or a tile of them (columns), of one segment. */
struct run_state {
    const struct layout *l;
    const fl_reduce_job *job;
    const fl_view *out;
    int64_t tasks;                          /* per segment */
    int64_t batch;                          /* results of a task (the last of a row of tiles has fewer) */
    int64_t tiles;                          /* of the innermost kept axis, columns only */
    int64_t units, segment_units, segments; /* pieces or rows of a result */
    fl_fold fold;                           /* of the phase that runs now */
    fl_total *partials;                     /* segments x results; NULL: one segment */
    double *centers;                        /* one per result, with partials */
};

/* This and plan_tasks are inlined: as calls they make the sum of a few elements 15 % slower. */
static inline __attribute__((always_inline)) fl_total identity(fl_fold fold, const struct layout *layout)
{
    bool integer = layout->through == FL_THROUGH_INT64;
    fl_total t = {.integer = 0}; /* the bits of 0.0 too */
    if (fold == FL_FOLD_PRODUCT) integer ? (void)(t.integer = 1) : (void)(t.number = 1);
    if (fold == FL_FOLD_LARGEST)
        integer ? (void)(t.integer = fl_dtype_ranges[layout->dtype].lowest) : (void)(t.number = -INFINITY);
    if (fold == FL_FOLD_SMALLEST || fold == FL_FOLD_SMALLEST_ABS)
        integer ? (void)(t.integer = fl_dtype_ranges[layout->dtype].highest) : (void)(t.number = INFINITY);
    return t;
}

/* First result and number of results of a task, and where the first one's elements begin. */
static const char *task_results(const struct run_state *state, int64_t task, int64_t *first, int64_t *count)
{
    const fl_layout *kept = &state->l->kept;
    if (!state->l->columns) {
        *first = task * state->batch;
        *count = state->l->results - *first < state->batch ? state->l->results - *first : state->batch;
        return NULL;
    }
    int64_t inner = innermost(kept)->size, at = task % state->tiles * state->batch;
    *first = task / state->tiles * inner + at;
    *count = inner - at < state->batch ? inner - at : state->batch;
    return position(kept, state->l->data, *first);
}

static void fold_results(const struct run_state *state, fl_fold fold, fl_total *totals, const double *centers,
                         int64_t task, int64_t segment)
{
    const struct layout *l = state->l;
    struct fold_task t = task_of(l, fold, state->job->p);
    int64_t first, count, begin = segment * state->segment_units, end = begin + state->segment_units;
    const char *base = task_results(state, task, &first, &count);
    if (end > state->units) end = state->units;
    for (int64_t i = 0; i < count; i++) totals[i] = identity(fold, l);
    if (l->columns) fold_columns(l, &t, totals, base, count, begin, end, centers);
    else if (state->units == 1 && l->kept.count == 1 && is_folded_plain(l, &t, innermost(&l->reduced)->stride[0])) {
        int64_t stride = l->kept.axes[0].stride[0];
        const char *x = l->data + first * stride;
        for (int64_t i = 0; i < count; i++, x += stride)
            t.plain->run(&totals[i], x, l->elements, centers ? centers[i] : 0, t.p);
    } else
        for (int64_t i = 0; i < count; i++)
            fold_pieces(l, &t, &totals[i], position(&l->kept, l->data, first + i), begin, end,
                        centers ? centers[i] : 0);
}

static void centers_of(double *centers, const fl_total *totals, int64_t n, const fl_reduce_job *job)
{
    for (int64_t i = 0; i < n; i++) {
        centers[i] = totals[i].number;
        if (job->center) job->center(&centers[i], job);
    }
}

/* Finishes n totals and stores them from result `first` on. */
static void store_results(const struct run_state *state, fl_total *totals, const double *centers, int64_t first,
                          int64_t n)
{
    if (state->job->finish)
        for (int64_t i = 0; i < n; i++) state->job->finish(&totals[i], centers ? centers[i] : 0, state->job);
    fl_copy_through from = state->l->through == FL_THROUGH_INT64 ? FL_THROUGH_INT64 : FL_THROUGH_DOUBLE;
    int64_t size = (int64_t)fl_dtype_size(state->out->dtype);
    state->l->copy->store[from][state->out->dtype]((char *)state->out->data + first * size, size, totals, n);
}

/* Whole results, one segment: every phase at once, while the elements are in the cache. */
static void whole_body(void *context, int64_t begin, int64_t end)
{
    const struct run_state *s = context;
    fl_total totals[BATCH];
    double centers[BATCH];
    for (int64_t task = begin; task < end; task++) {
        int64_t first, count;
        task_results(s, task, &first, &count);
        if (s->job->centered) {
            fold_results(s, s->job->first, totals, NULL, task, 0);
            centers_of(centers, totals, count, s->job);
        }
        fold_results(s, s->job->fold, totals, s->job->centered ? centers : NULL, task, 0);
        store_results(s, totals, s->job->centered ? centers : NULL, first, count);
    }
}

static void segment_body(void *context, int64_t begin, int64_t end)
{
    const struct run_state *s = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t task = i % s->tasks, segment = i / s->tasks, first, count;
        task_results(s, task, &first, &count);
        bool centered = s->job->centered && s->fold == s->job->fold;
        fold_results(s, s->fold, s->partials + segment * s->l->results + first, centered ? s->centers + first : NULL,
                     task, segment);
    }
}

static void join(fl_total *a, const fl_total *b, fl_fold fold, bool integer)
{
    switch (fold) {
    case FL_FOLD_PRODUCT:
        if (integer) a->integer = (int64_t)((uint64_t)a->integer * (uint64_t)b->integer);
        else a->number *= b->number;
        break;
    case FL_FOLD_LARGEST:
    case FL_FOLD_LARGEST_ABS:
        if (integer ? b->integer > a->integer : b->number > a->number || b->number != b->number) *a = *b;
        break;
    case FL_FOLD_SMALLEST:
    case FL_FOLD_SMALLEST_ABS:
        if (integer ? b->integer < a->integer : b->number < a->number || b->number != b->number) *a = *b;
        break;
    default:
        if (integer) a->integer = (int64_t)((uint64_t)a->integer + (uint64_t)b->integer);
        else a->number += b->number;
    }
}

/* One phase over all segments; the joined totals are the first `kept.total` partials. */
static void run_phase(struct run_state *state, fl_fold fold)
{
    int64_t results = state->l->results;
    state->fold = fold;
    fl_team_for(state->tasks * state->segments, (double)SEGMENT * 0.2, segment_body, state);
    for (int64_t k = 1; k < state->segments; k++)
        for (int64_t i = 0; i < results; i++)
            join(&state->partials[i], &state->partials[k * results + i], fold, state->l->through == FL_THROUGH_INT64);
}

static fl_status run_segments(struct run_state *state)
{
    int64_t results = state->l->results;
    size_t bytes = ((size_t)state->segments * sizeof(fl_total) + sizeof(double)) * (size_t)results;
    state->partials = malloc(bytes);
    if (!state->partials)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %zu bytes of partial results", state->job->name, bytes);
    state->centers = (double *)(state->partials + state->segments * results);
    if (state->job->centered) {
        run_phase(state, state->job->first);
        centers_of(state->centers, state->partials, results, state->job);
    }
    run_phase(state, state->job->fold);
    store_results(state, state->partials, state->job->centered ? state->centers : NULL, 0, results);
    free(state->partials);
    return FL_OK;
}

/* Cuts the work by the sizes alone. */
static inline __attribute__((always_inline)) void plan_tasks(struct run_state *state)
{
    const fl_layout *kept = &state->l->kept, *reduced = &state->l->reduced;
    int64_t inner = innermost(kept)->size, per_unit;
    if (state->l->columns) {
        state->batch = inner < FL_REDUCE_TILE ? inner : FL_REDUCE_TILE;
        state->tiles = (inner + state->batch - 1) / state->batch;
        state->tasks = state->l->results / inner * state->tiles;
        state->units = state->l->elements;
        per_unit = state->batch;
    } else {
        int64_t run = innermost(reduced)->size;
        state->batch = state->l->elements >= PIECE ? 1 : PIECE / (state->l->elements ? state->l->elements : 1);
        if (state->batch > BATCH) state->batch = BATCH;
        state->tasks = (state->l->results + state->batch - 1) / state->batch;
        state->units = state->l->elements ? state->l->elements / run * pieces_of_run(state->l) : 0;
        per_unit = run < PIECE ? run : PIECE;
    }
    state->segments = 1;
    state->segment_units = state->units;
    if (state->tasks >= MANY_TASKS || state->l->results * state->l->elements < SEGMENT_FROM) return;
    state->segment_units = per_unit < SEGMENT ? SEGMENT / per_unit : 1;
    state->segments = (state->units + state->segment_units - 1) / state->segment_units;
}

/* One result of a short run, as whole_body computes it: it sums a loss. */
static void reduce_run(const struct run_state *state, int64_t n)
{
    const struct layout *l = state->l;
    const fl_reduce_job *job = state->job;
    fl_total total = identity(job->centered ? job->first : job->fold, l);
    double center = 0;
    if (job->centered) {
        task_of(l, job->first, job->p).plain->run(&total, l->data, n, 0, job->p);
        centers_of(&center, &total, 1, job);
        total = identity(job->fold, l);
    }
    task_of(l, job->fold, job->p).plain->run(&total, l->data, n, center, job->p);
    store_results(state, &total, job->centered ? &center : NULL, 0, 1);
}

fl_status fl_cpu_reduce(const fl_view *out, const fl_view *in, uint32_t mask, const fl_reduce_job *job)
{
    fl_reduce_job own = *job;
    struct layout l;
    struct run_state s = {.l = &l, .job = &own, .out = out};
    assert(out->contiguous);
    if (out->numel == 0) return FL_OK;
    layout_open(&l, in);
    own.integer = l.through == FL_THROUGH_INT64;
    if (out->numel == 1 && in->contiguous && in->numel > 0 && in->numel <= FL_REDUCE_BLOCK && is_plain(&l, l.element)) {
        own.local_count = in->numel;
        reduce_run(&s, in->numel);
        return FL_OK;
    }
    layout_axes(&l, in, mask, true);
    own.local_count = l.elements;
    plan_tasks(&s);
    if (s.segments > 1) return run_segments(&s);
    fl_team_for(s.tasks, (double)s.batch * ((double)l.elements * 0.2 + 5), whole_body, &s);
    return FL_OK;
}

/* ---- of elements that come from tiles ---- */

/* Results are the runs of `run` consecutive elements, of `blocks` blocks each. */
struct tile_fold {
    struct run_state state;
    struct fold_task task;
    fl_total identity;
    fl_total *totals; /* one per block; NULL: a run is one block */
    int64_t run, blocks;
};

static void fold_elements(const struct tile_fold *fold, fl_total *total, const void *elements, int64_t n)
{
    *total = fold->identity;
    fold->task.loops->run(total, elements, n, 0, fold->task.p);
}

/* A sink of tiles: whole runs, or one block of a run. */
static void take_elements(void *context, int64_t first, int64_t n, const void *elements)
{
    const struct tile_fold *fold = context;
    if (fold->totals) {
        int64_t block = first / fold->run * fold->blocks + first % fold->run / FL_REDUCE_BLOCK;
        fold_elements(fold, &fold->totals[block], elements, n);
        return;
    }
    fl_total totals[FL_REDUCE_BLOCK / SHORT_RUN];
    const char *x = elements;
    for (int64_t i = 0; i < n / fold->run; i++, x += fold->run * fold->state.l->width)
        fold_elements(fold, &totals[i], x, fold->run);
    store_results(&fold->state, totals, NULL, first / fold->run, n / fold->run);
}

/* The total of a run, its blocks joined as fl_cpu_reduce joins them. */
static void join_blocks(const struct tile_fold *fold, fl_total *blocks)
{
    bool integer = fold->state.job->integer;
    int64_t in_segment = fold->state.segments > 1 ? fold->state.segment_units * (PIECE / FL_REDUCE_BLOCK)
                                                  : fold->blocks;
    for (int64_t at = 0; at < fold->blocks; at += in_segment) {
        for (int64_t i = at + 1; i < at + in_segment && i < fold->blocks; i++)
            join(&blocks[at], &blocks[i], fold->state.job->fold, integer);
        if (at) join(&blocks[0], &blocks[at], fold->state.job->fold, integer);
    }
}

bool fl_cpu_reduce_takes_tiles(int64_t total, int64_t run, const fl_reduce_job *job)
{
    return run >= SHORT_RUN && total > 0 && !job->centered && job->fold != FL_FOLD_PRODUCT;
}

fl_status fl_cpu_reduce_tiles(const fl_view *out, fl_tiles *tiles, int slot, int64_t run, const fl_reduce_job *job)
{
    fl_reduce_job own = *job;
    struct layout l;
    fl_dtype dtype = tiles->slots[slot].dtype;
    int64_t size[2] = {tiles->total / run, run}, stride[2] = {run, 1};
    layout_init(&l, &(fl_view){.dtype = dtype, .ndim = 2, .size = size, .stride = stride}, 2);
    own.local_count = run;
    own.integer = l.through == FL_THROUGH_INT64;
    struct tile_fold fold = {.state = {.l = &l, .job = &own, .out = out}, .run = run};
    fold.task = task_of(&l, job->fold, job->p);
    fold.identity = identity(job->fold, &l);
    fold.blocks = (run + FL_REDUCE_BLOCK - 1) / FL_REDUCE_BLOCK;
    plan_tasks(&fold.state);
    if (fold.blocks > 1) {
        size_t bytes = (size_t)(l.results * fold.blocks) * sizeof *fold.totals;
        fold.totals = malloc(bytes);
        if (!fold.totals)
            return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %zu bytes of partial results", job->name, bytes);
    }
    fl_dtype through = l.through == FL_THROUGH_INT64 ? FL_INT64
        : l.through == FL_THROUGH_FLOAT              ? FL_FLOAT32
                                                     : FL_FLOAT64;
    fl_tiles_consume(tiles, fl_tiles_convert(tiles, slot, through), run, take_elements, &fold);
    fl_tiles_run(tiles);
    for (int64_t i = 0; i < l.results && fold.totals; i++) {
        join_blocks(&fold, fold.totals + i * fold.blocks);
        store_results(&fold.state, fold.totals + i * fold.blocks, NULL, i, 1);
    }
    free(fold.totals);
    return FL_OK;
}

/* ---- positions of extremes ---- */

struct arg_state {
    const struct layout *l;
    const fl_arg_loops *loops;
    const fl_view *values, *positions;
};

/* One result: every run of its elements, in order. */
static void arg_one(const struct arg_state *state, void *best, int64_t *at, const char *base)
{
    const struct layout *l = state->l;
    const fl_layout *r = &l->reduced;
    int64_t run = innermost(r)->size, stride = innermost(r)->stride[0];
    _Alignas(64) int64_t buffer[FL_REDUCE_BLOCK];
    for (int64_t i = 0; i < l->elements; i += run) {
        const char *x = position(r, base, i);
        if (is_plain(l, stride)) state->loops->run(best, at, x, run, i);
        else
            for (int64_t j = 0; j < run; j += FL_REDUCE_BLOCK) {
                int64_t n = run - j < FL_REDUCE_BLOCK ? run - j : FL_REDUCE_BLOCK;
                l->copy->load[l->dtype](buffer, x + j * stride, stride, n);
                state->loops->run(best, at, buffer, n, i + j);
            }
    }
}

/* A tile of results, row by row. */
static void arg_tile(const struct arg_state *state, void *best, int64_t *at, const char *base, int64_t columns)
{
    const struct layout *l = state->l;
    int64_t stride = innermost(&l->kept)->stride[0];
    _Alignas(64) int64_t buffer[FL_REDUCE_TILE];
    for (int64_t i = 0; i < l->elements; i++) {
        const void *x = position(&l->reduced, base, i);
        if (!is_plain(l, stride)) {
            l->copy->load[l->dtype](buffer, x, stride, columns);
            x = buffer;
        }
        state->loops->row(best, at, x, columns, i);
    }
}

static void arg_body(void *context, int64_t begin, int64_t end)
{
    const struct arg_state *s = context;
    const struct layout *l = s->l;
    int64_t inner = innermost(&l->kept)->size, at[FL_REDUCE_TILE];
    _Alignas(64) int64_t best[FL_REDUCE_TILE]; /* of the type converted through */
    while (begin < end) {
        int64_t n = inner - begin % inner;
        if (n > end - begin) n = end - begin;
        if (n > FL_REDUCE_TILE) n = FL_REDUCE_TILE;
        for (int64_t i = 0; i < n; i++) at[i] = -1;
        if (l->columns) arg_tile(s, best, at, position(&l->kept, l->data, begin), n);
        else
            for (int64_t i = 0; i < n; i++)
                arg_one(s, (char *)best + i * l->width, &at[i], position(&l->kept, l->data, begin + i));
        if (s->positions) memcpy((int64_t *)s->positions->data + begin, at, (size_t)n * sizeof at[0]);
        if (s->values)
            l->copy->store[l->through][l->dtype]((char *)s->values->data + begin * l->element, l->element, best, n);
        begin += n;
    }
}

fl_status fl_cpu_arg_reduce(const fl_view *values, const fl_view *positions, const fl_view *in, uint32_t mask,
                            bool largest)
{
    struct layout l;
    struct arg_state s = {.l = &l, .values = values, .positions = positions};
    assert((!values || values->contiguous) && (!positions || positions->contiguous));
    layout_init(&l, in, mask);
    if (l.results == 0) return FL_OK;
    assert(l.elements > 0);
    s.loops = largest ? &l.loops->largest[l.through] : &l.loops->smallest[l.through];
    fl_team_for(l.results, (double)l.elements * 0.4 + 5, arg_body, &s);
    return FL_OK;
}

/* ---- positions of known values ---- */

/* Equal as numbers; NaN is equal to NaN. */
static bool same_number(fl_dtype dtype, const void *a, const void *b)
{
    double x, y;
    switch (dtype) {
    case FL_FLOAT16:
        x = fl_float16_to_float(*(const fl_float16 *)a), y = fl_float16_to_float(*(const fl_float16 *)b);
        break;
    case FL_BFLOAT16:
        x = fl_bfloat16_to_float(*(const fl_bfloat16 *)a), y = fl_bfloat16_to_float(*(const fl_bfloat16 *)b);
        break;
    case FL_FLOAT32: x = *(const float *)a, y = *(const float *)b; break;
    case FL_FLOAT64: x = *(const double *)a, y = *(const double *)b; break;
    default: return memcmp(a, b, fl_dtype_size(dtype)) == 0;
    }
    return x == y || (x != x && y != y);
}

/* A row-major position among the axes of mask of this rank's part, as one of the whole tensor. */
static int64_t whole_position(const fl_view *x, uint32_t mask, int64_t local)
{
    int64_t position = 0, extent = 1;
    for (int a = x->ndim - 1; a >= 0; a--) {
        if (!(mask >> a & 1u)) continue;
        position += (local % x->size[a] + x->start[a]) * extent;
        local /= x->size[a];
        extent *= x->logical[a];
    }
    return position;
}

/* Element number i, row-major, of a view. */
static const char *element(const fl_view *view, int64_t i)
{
    int64_t at = 0;
    for (int a = view->ndim - 1; a >= 0; a--) {
        at += i % view->size[a] * view->stride[a];
        i /= view->size[a];
    }
    return (const char *)view->data + at * (int64_t)fl_dtype_size(view->dtype);
}

fl_status fl_cpu_arg_find(fl_kernel *kernel, uint32_t mask, bool largest)
{
    const fl_view *x = &kernel->in[0], *value = &kernel->in[1];
    int64_t *positions = kernel->out[0].data, n = kernel->out[0].numel;
    size_t item = fl_dtype_size(x->dtype);
    for (int64_t i = 0; i < n; i++) positions[i] = INT64_MAX;
    if (n == 0 || x->numel == 0) return FL_OK; /* nothing of the lines lies here */
    char *found = malloc((size_t)n * item);
    if (!found) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", kernel->name);
    fl_view values = kernel->out[0];
    values.data = found;
    values.dtype = x->dtype;
    fl_status status = fl_cpu_arg_reduce(&values, &kernel->out[0], x, mask, largest);
    for (int64_t i = 0; i < n && status == FL_OK; i++)
        positions[i] = same_number(x->dtype, found + (size_t)i * item, element(value, i))
            ? whole_position(x, mask, positions[i])
            : INT64_MAX;
    free(found);
    return status;
}

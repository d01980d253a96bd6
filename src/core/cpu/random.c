/*
** random.c -- random elements of a part: see random.h.
**
** A part is walked as runs of neighbouring logical elements, runs in pieces, so any window of any SBP draws the values
** the whole tensor has. Uniforms of float16 and bfloat16 use as many of the word's bits as the format has, so that they
** stay below 1. float64 results hold float32's uniforms and normals.
*/
#include "random.h"

#include <stdlib.h>

enum {
    PIECE = 16384, /* elements of one unit of work */
    SCRAP = 1024   /* elements that go through a buffer on the stack */
};

/* ---- walking a part ---- */

/* One op's work. `draw` writes local elements at .. at + n - 1, which are logical ones from `first` on. */
struct work {
    const fl_random_kernels *kernels;
    fl_random_key key;
    void (*draw)(const struct work *work, int64_t at, uint64_t first, int64_t n);
    void *out;      /* contiguous, of `dtype` */
    const void *in; /* contiguous, or NULL */
    fl_dtype dtype;
    const fl_draw *drawn;  /* or NULL */
    fl_random_piece piece; /* or NULL, and its context */
    void *context;
    double cost;  /* nanoseconds of an element */
    int64_t base; /* integers: base + 0 .. span - 1; span 0: all 2^64 */
    uint64_t span;
    /* the window */
    int outer;      /* axes before the run's */
    int64_t run;    /* neighbouring logical elements */
    int64_t pieces; /* of a run */
    const fl_view *part;
};

/* Logical index of the first element of a run. */
static uint64_t run_start(const struct work *work, int64_t run)
{
    const fl_view *v = work->part;
    uint64_t index = 0, unit = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        int64_t at = v->start[i];
        if (i < work->outer) {
            at += run % v->size[i];
            run /= v->size[i];
        }
        index += (uint64_t)at * unit;
        unit *= (uint64_t)v->logical[i];
    }
    return index;
}

static void walk(void *context, int64_t begin, int64_t end)
{
    const struct work *w = context;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t r = unit / w->pieces, skip = unit % w->pieces * PIECE;
        int64_t n = w->run - skip < PIECE ? w->run - skip : PIECE;
        w->draw(w, r * w->run + skip, run_start(w, r) + (uint64_t)skip, n);
    }
}

static void walk_part(struct work *work, const fl_view *part)
{
    work->part = part;
    work->outer = part->ndim;
    work->run = 1;
    while (work->outer > 0) { /* whole axes join the run, and one more that need not be whole */
        int i = --work->outer;
        work->run *= part->size[i];
        if (part->size[i] != part->logical[i]) break;
    }
    work->pieces = (work->run + PIECE - 1) / PIECE;
    fl_team_for(part->numel / work->run * work->pieces, (double)work->run / (double)work->pieces * work->cost + 40,
                walk, work);
}

/* Fills `part`: in place when it is contiguous and of the dtype that `draw` writes, else through a buffer. */
static fl_status fill_part(fl_kernel *kernel, struct work *work, const fl_view *part)
{
    work->kernels = FL_BY_LEVEL(fl_random_kernels);
    work->key = (fl_random_key){kernel->seed, kernel->counter};
    if (work->cost == 0) work->cost = 0.8;
    if (part->numel == 0) return FL_OK;
    if (part->contiguous && part->dtype == work->dtype) {
        work->out = part->data;
        walk_part(work, part);
        return FL_OK;
    }
    int64_t strides[FL_MAX_NDIM];
    fl_view drawn = *part;
    fl_shape_strides(strides, part->size, part->ndim);
    drawn.dtype = work->dtype;
    drawn.stride = strides;
    drawn.contiguous = true;
    drawn.data = work->out = malloc((size_t)part->numel * fl_dtype_size(work->dtype));
    if (!work->out)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld random numbers", kernel->name,
                       (long long)part->numel);
    walk_part(work, part);
    fl_status status = fl_cpu_copy(part, &drawn);
    free(work->out);
    return status;
}

static void draw_piece(const struct work *work, int64_t at, uint64_t first, int64_t n)
{
    work->piece(work->context, work->out, at, first, n);
}

fl_status fl_cpu_random_fill(fl_kernel *kernel, fl_dtype dtype, double cost, fl_random_piece piece, void *context)
{
    struct work w = {.draw = draw_piece, .dtype = dtype, .piece = piece, .context = context, .cost = cost};
    return fill_part(kernel, &w, &kernel->out[0]);
}

fl_status fl_cpu_random_input(const void **data, void **copy, const fl_view *in, fl_dtype dtype, const char *who)
{
    *copy = NULL;
    *data = in->data;
    if (in->numel == 0 || (in->contiguous && in->dtype == dtype)) return FL_OK;
    int64_t strides[FL_MAX_NDIM];
    fl_view to = *in;
    fl_shape_strides(strides, in->size, in->ndim);
    to.dtype = dtype;
    to.stride = strides;
    to.contiguous = true;
    to.data = *copy = malloc((size_t)in->numel * fl_dtype_size(dtype));
    if (!*copy) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld elements", who, (long long)in->numel);
    *data = *copy;
    return fl_cpu_copy(&to, in);
}

/* ---- the elements that are drawn ---- */

/* Uniforms of float16 and bfloat16 stay below 1. */
static int bits_of(fl_dtype result) { return result == FL_FLOAT16 ? 11 : result == FL_BFLOAT16 ? 8 : 24; }

static uint32_t threshold_of(const fl_draw *draw) { return (uint32_t)(draw->low * 0x1p24 + 0.5); }

static void draw_floats(const fl_draw *draw, fl_dtype result, float *out, const float *in, uint64_t first, int64_t n)
{
    const fl_random_kernels *kernels = FL_BY_LEVEL(fl_random_kernels);
    float low = (float)draw->low, range = (float)draw->range;
    switch (draw->kind) {
    case FL_DRAW_UNIFORM: kernels->uniform(out, &draw->key, first, n, bits_of(result), low, range); break;
    case FL_DRAW_NORMAL: kernels->normal(out, &draw->key, first, n, low, range); break;
    case FL_DRAW_DROPOUT: kernels->dropout(out, in, &draw->key, first, n, threshold_of(draw), range); break;
    }
}

/* n <= SCRAP; low + range * (a float32 draw), in double precision. */
static void draw_doubles(const fl_draw *draw, double *out, const double *in, uint64_t first, int64_t n)
{
    const fl_random_kernels *kernels = FL_BY_LEVEL(fl_random_kernels);
    float floats[SCRAP];
    uint32_t words[SCRAP];
    if (draw->kind == FL_DRAW_DROPOUT) {
        uint32_t threshold = threshold_of(draw);
        kernels->words(words, &draw->key, first, n);
        for (int64_t i = 0; i < n; i++) out[i] = words[i] >> 8 >= threshold ? in[i] * draw->range : 0;
        return;
    }
    if (draw->kind == FL_DRAW_UNIFORM) kernels->uniform(floats, &draw->key, first, n, bits_of(FL_FLOAT64), 0, 1);
    else kernels->normal(floats, &draw->key, first, n, 0, 1);
    for (int64_t i = 0; i < n; i++) out[i] = floats[i] * draw->range + draw->low;
}

void fl_cpu_draw_elements(const fl_draw *draw, fl_dtype result, void *out, const void *in, uint64_t first, int64_t n)
{
    if (fl_draw_dtype(result) == FL_FLOAT32) {
        draw_floats(draw, result, out, in, first, n);
        return;
    }
    for (int64_t i = 0; i < n; i += SCRAP)
        draw_doubles(draw, (double *)out + i, in ? (const double *)in + i : NULL, first + (uint64_t)i,
                     n - i < SCRAP ? n - i : SCRAP);
}

static void draw_part(const struct work *work, int64_t at, uint64_t first, int64_t n)
{
    int64_t skip = at * (int64_t)fl_dtype_size(work->dtype);
    const char *in = work->in ? (const char *)work->in + skip : NULL;
    fl_cpu_draw_elements(work->drawn, work->part->dtype, (char *)work->out + skip, in, first, n);
}

fl_status fl_cpu_draw(fl_kernel *kernel, const fl_draw *draw)
{
    const fl_view *out = &kernel->out[0];
    struct work w = {.draw = draw_part, .dtype = fl_draw_dtype(out->dtype), .drawn = draw};
    void *copy = NULL;
    if (draw->kind == FL_DRAW_DROPOUT) FL_TRY(fl_cpu_random_input(&w.in, &copy, &kernel->in[0], w.dtype, kernel->name));
    fl_status status = fill_part(kernel, &w, out);
    free(copy);
    return status;
}

/* Element i: the high half of word i times span, an error of the probabilities below span * 2^-32. */
static void draw_integers(const struct work *work, int64_t at, uint64_t first, int64_t n)
{
    uint32_t scrap[SCRAP];
    for (int64_t i = 0; i < n; i += SCRAP) {
        int64_t count = n - i < SCRAP ? n - i : SCRAP;
        work->kernels->words(scrap, &work->key, first + (uint64_t)i, count);
        for (int64_t j = 0; j < count; j++)
            ((int64_t *)work->out)[at + i + j] = (int64_t)((uint64_t)work->base
                                                           + ((uint64_t)scrap[j] * work->span >> 32));
    }
}

/* Spans above 2^32: element i has 64 bits, words 2i and 2i + 1 of the op. */
static void draw_long_integers(const struct work *work, int64_t at, uint64_t first, int64_t n)
{
    uint32_t scrap[SCRAP];
    for (int64_t i = 0; i < n; i += SCRAP / 2) {
        int64_t count = n - i < SCRAP / 2 ? n - i : SCRAP / 2;
        work->kernels->words(scrap, &work->key, 2 * (first + (uint64_t)i), 2 * count);
        for (int64_t j = 0; j < count; j++) {
            uint64_t bits = scrap[2 * j] | (uint64_t)scrap[2 * j + 1] << 32;
            uint64_t scaled = work->span ? (uint64_t)((unsigned __int128)bits * work->span >> 64) : bits;
            ((int64_t *)work->out)[at + i + j] = (int64_t)((uint64_t)work->base + scaled);
        }
    }
}

fl_status fl_cpu_fill_random_integers(fl_kernel *kernel, int64_t low, int64_t high)
{
    uint64_t span = (uint64_t)high - (uint64_t)low;
    bool wide = span > (uint64_t)1 << 32;
    struct work w = {.draw = wide ? draw_long_integers : draw_integers, .dtype = FL_INT64, .base = low, .span = span};
    return fill_part(kernel, &w, &kernel->out[0]);
}

/* ---- permutations: positions 0 .. n - 1 sorted by their words, equal words by position ---- */

/* One pass of a stable radix sort by eight bits. */
static void sort_pass(uint32_t *to_words, int64_t *to, const uint32_t *words, const int64_t *from, int64_t n, int shift)
{
    int64_t starts[256] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++) starts[words[i] >> shift & 255]++;
    for (int b = 0; b < 256; b++) {
        int64_t count = starts[b];
        starts[b] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = starts[words[i] >> shift & 255]++;
        to_words[at] = words[i];
        to[at] = from[i];
    }
}

fl_status fl_cpu_randperm(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    if (out->numel == 0) return FL_OK;
    int64_t n = out->logical[0];
    fl_random_key key = {kernel->seed, kernel->counter};
    int64_t *order = malloc((size_t)n * 2 * (sizeof(int64_t) + sizeof(uint32_t)));
    if (!order) return fl_fail(FL_ERR_MEMORY, "randperm: out of memory for %lld positions", (long long)n);
    int64_t *other = order + n;
    uint32_t *words = (uint32_t *)(other + n), *other_words = words + n;
    FL_BY_LEVEL(fl_random_kernels)->words(words, &key, 0, n);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int shift = 0; shift < 32; shift += 16) {
        sort_pass(other_words, other, words, order, n, shift);
        sort_pass(words, order, other_words, other, n, shift + 8);
    }
    static const int64_t one = 1;
    fl_view part = *out;
    part.data = order + out->start[0];
    part.dtype = FL_INT64;
    part.stride = &one;
    fl_status status = fl_cpu_copy(out, &part);
    free(order);
    return status;
}

/* ---- bernoulli ---- */

static void draw_bernoulli(const struct work *work, int64_t at, uint64_t first, int64_t n)
{
    uint32_t scrap[SCRAP];
    const double *p = work->in, *one = work->context;
    for (int64_t i = 0; i < n; i += SCRAP) {
        int64_t count = n - i < SCRAP ? n - i : SCRAP;
        work->kernels->words(scrap, &work->key, first + (uint64_t)i, count);
        for (int64_t j = 0; j < count; j++)
            ((float *)work->out)[at + i + j] = (double)(scrap[j] >> 8) * 0x1p-24 < (one ? *one : p[at + i + j]) ? 1.0f
                                                                                                                : 0.0f;
    }
}

fl_status fl_cpu_bernoulli(fl_kernel *kernel, double one)
{
    const void *data = NULL;
    void *copy = NULL;
    bool each = one != one;
    fl_status status = FL_OK;
    if (each) FL_TRY(fl_cpu_random_input(&data, &copy, &kernel->in[0], FL_FLOAT64, kernel->name));
    const double *p = data;
    for (int64_t i = 0; each && i < kernel->in[0].numel && status == FL_OK; i++)
        if (!(p[i] >= 0 && p[i] <= 1))
            status = fl_fail(FL_ERR_VALUE, "bernoulli: probability %g is not between 0 and 1", p[i]);
    struct work w = {.draw = draw_bernoulli, .dtype = FL_FLOAT32, .in = p, .context = each ? NULL : &one};
    if (status == FL_OK) status = fill_part(kernel, &w, &kernel->out[0]);
    free(copy);
    return status;
}

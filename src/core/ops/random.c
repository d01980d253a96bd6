/*
** random.c -- random ops: what element i becomes depends only on seed, op counter and its logical index.
**
** A rank's part is walked as runs of neighbouring logical elements, runs in pieces, so any window of any SBP draws
** the values the whole tensor has. Uniforms of float16 and bfloat16 use as many of the word's bits as the
** format has, so that they stay below 1. float64 results hold float32's uniforms and normals.
*/
#include "value/random.h"
#include "cpu/random.h"
#include "ops.h"

#include <stdlib.h>

enum {
    PIECE = 16384, /* elements of one unit of work */
    SCRAP = 1024   /* elements that go through a buffer on the stack */
};

static const fl_random_kernels *level_kernels(void)
{
    static const fl_random_kernels *const tables[FL_LEVEL_COUNT] = {&fl_random_kernels_base,
#ifdef __x86_64__
                                                                    &fl_random_kernels_avx2, &fl_random_kernels_avx512
#endif
    };
    return tables[fl_cpu_level()];
}

/* ---- walking a part ---- */

/* One op's work. `draw` writes local elements at .. at + n - 1, which are logical ones from `first` on. */
typedef struct work {
    const fl_random_kernels *kernels;
    fl_random_key key;
    void (*draw)(const struct work *w, int64_t at, uint64_t first, int64_t n);
    void *out;      /* contiguous, of `dtype` */
    const void *in; /* contiguous, or NULL */
    fl_dtype dtype;
    double low, range; /* uniform: low and width; normal: mean and deviation */
    int bits;          /* of a uniform */
    int64_t base;      /* integers: base + 0 .. span - 1; span 0: all 2^64 */
    uint64_t span;
    uint32_t threshold; /* dropout */
    float scale;
    /* the window */
    int outer;      /* axes before the run's */
    int64_t run;    /* neighbouring logical elements */
    int64_t pieces; /* of a run */
    const fl_view *part;
} work;

/* Logical index of the first element of run r. */
static uint64_t run_start(const work *w, int64_t r)
{
    const fl_view *v = w->part;
    uint64_t index = 0, unit = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        int64_t at = v->start[i];
        if (i < w->outer) {
            at += r % v->size[i];
            r /= v->size[i];
        }
        index += (uint64_t)at * unit;
        unit *= (uint64_t)v->logical[i];
    }
    return index;
}

static void walk(void *context, int64_t begin, int64_t end)
{
    const work *w = context;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t r = unit / w->pieces, skip = unit % w->pieces * PIECE;
        int64_t n = w->run - skip < PIECE ? w->run - skip : PIECE;
        w->draw(w, r * w->run + skip, run_start(w, r) + (uint64_t)skip, n);
    }
}

static void walk_part(work *w, const fl_view *part)
{
    w->part = part;
    w->outer = part->ndim;
    w->run = 1;
    while (w->outer > 0) { /* whole axes join the run, and one more that need not be whole */
        int i = --w->outer;
        w->run *= part->size[i];
        if (part->size[i] != part->logical[i]) break;
    }
    w->pieces = (w->run + PIECE - 1) / PIECE;
    fl_team_for(part->numel / w->run * w->pieces, (double)w->run / (double)w->pieces * 0.8 + 40, walk, w);
}

/* Fills `part`: in place when it is contiguous and of the dtype that `draw` writes, else through a buffer. */
static fl_status fill_part(fl_kernel *k, work *w, const fl_view *part)
{
    w->kernels = level_kernels();
    w->key = (fl_random_key){k->seed, k->counter};
    if (part->numel == 0) return FL_OK;
    if (part->contiguous && part->dtype == w->dtype) {
        w->out = part->data;
        walk_part(w, part);
        return FL_OK;
    }
    int64_t strides[FL_MAX_NDIM];
    fl_view drawn = *part;
    fl_shape_strides(strides, part->size, part->ndim);
    drawn.dtype = w->dtype;
    drawn.stride = strides;
    drawn.contiguous = true;
    drawn.data = w->out = malloc((size_t)part->numel * fl_dtype_size(w->dtype));
    if (!w->out)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld random numbers", k->op->name, (long long)part->numel);
    walk_part(w, part);
    fl_status status = fl_cpu_copy(part, &drawn);
    free(w->out);
    return status;
}

/* in as contiguous elements of dtype: itself, or a copy that the caller frees (*copy). */
static fl_status contiguous_input(const void **data, void **copy, const fl_view *in, fl_dtype dtype, const char *who)
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

/* ---- what is drawn ---- */

static void draw_uniform(const work *w, int64_t at, uint64_t first, int64_t n)
{
    w->kernels->uniform((float *)w->out + at, &w->key, first, n, w->bits, (float)w->low, (float)w->range);
}

static void draw_normal(const work *w, int64_t at, uint64_t first, int64_t n)
{
    w->kernels->normal((float *)w->out + at, &w->key, first, n, (float)w->low, (float)w->range);
}

/* float64: low + range * (a float32 draw), in double precision. */
static void draw_double(const work *w, int64_t at, uint64_t first, int64_t n)
{
    float scrap[SCRAP];
    for (int64_t i = 0; i < n; i += SCRAP) {
        int64_t count = n - i < SCRAP ? n - i : SCRAP;
        if (w->bits) w->kernels->uniform(scrap, &w->key, first + (uint64_t)i, count, w->bits, 0, 1);
        else w->kernels->normal(scrap, &w->key, first + (uint64_t)i, count, 0, 1);
        for (int64_t j = 0; j < count; j++) ((double *)w->out)[at + i + j] = scrap[j] * w->range + w->low;
    }
}

static fl_status fill_floats(fl_kernel *k, bool normal, double low, double range)
{
    const fl_view *out = &k->out[0];
    bool is_double = out->dtype == FL_FLOAT64;
    int bits = out->dtype == FL_FLOAT16 ? 11 : out->dtype == FL_BFLOAT16 ? 8 : 24;
    work w = {.draw = is_double ? draw_double
                  : normal      ? draw_normal
                                : draw_uniform,
              .dtype = is_double ? FL_FLOAT64 : FL_FLOAT32,
              .low = low,
              .range = range,
              .bits = normal ? 0 : bits};
    return fill_part(k, &w, out);
}

/* Element i: the high half of word i times span, an error of the probabilities below span * 2^-32. */
static void draw_integers(const work *w, int64_t at, uint64_t first, int64_t n)
{
    uint32_t scrap[SCRAP];
    for (int64_t i = 0; i < n; i += SCRAP) {
        int64_t count = n - i < SCRAP ? n - i : SCRAP;
        w->kernels->words(scrap, &w->key, first + (uint64_t)i, count);
        for (int64_t j = 0; j < count; j++)
            ((int64_t *)w->out)[at + i + j] = (int64_t)((uint64_t)w->base + ((uint64_t)scrap[j] * w->span >> 32));
    }
}

/* Spans above 2^32: element i has 64 bits, words 2i and 2i + 1 of the op. */
static void draw_long_integers(const work *w, int64_t at, uint64_t first, int64_t n)
{
    uint32_t scrap[SCRAP];
    for (int64_t i = 0; i < n; i += SCRAP / 2) {
        int64_t count = n - i < SCRAP / 2 ? n - i : SCRAP / 2;
        w->kernels->words(scrap, &w->key, 2 * (first + (uint64_t)i), 2 * count);
        for (int64_t j = 0; j < count; j++) {
            uint64_t bits = scrap[2 * j] | (uint64_t)scrap[2 * j + 1] << 32;
            uint64_t scaled = w->span ? (uint64_t)((unsigned __int128)bits * w->span >> 64) : bits;
            ((int64_t *)w->out)[at + i + j] = (int64_t)((uint64_t)w->base + scaled);
        }
    }
}

static fl_status fill_integers(fl_kernel *k, int64_t low, int64_t high)
{
    uint64_t span = (uint64_t)high - (uint64_t)low;
    bool wide = span > (uint64_t)1 << 32;
    work w = {.draw = wide ? draw_long_integers : draw_integers, .dtype = FL_INT64, .base = low, .span = span};
    return fill_part(k, &w, &k->out[0]);
}

/* ---- sources and their likes ---- */

static fl_status require_float_result(const fl_infer *c)
{
    if (fl_dtype_is_float(c->out[0].dtype)) return FL_OK;
    return fl_infer_fail(c, FL_ERR_DTYPE, "takes a float dtype, not %s", fl_dtype_name(c->out[0].dtype));
}

static fl_status infer_source(fl_infer *c, int sizes_slot, fl_dtype otherwise)
{
    const fl_attr *sizes = &c->attrs->at[sizes_slot];
    c->out[0].dtype = c->attrs->has_dtype ? c->attrs->option_dtype : otherwise;
    return fl_shape_make(&c->out[0].shape, c->name, sizes->list, sizes->count);
}

static fl_status infer_float_source(fl_infer *c)
{
    FL_TRY(infer_source(c, 0, FL_FLOAT32));
    return require_float_result(c);
}

static fl_status infer_like(fl_infer *c)
{
    c->out[0].shape = c->in[0].shape;
    c->out[0].dtype = c->attrs->has_dtype ? c->attrs->option_dtype : c->in[0].dtype;
    return FL_OK;
}

static fl_status infer_float_like(fl_infer *c)
{
    FL_TRY(infer_like(c));
    return require_float_result(c);
}

static void sbp_source(fl_sigs *s)
{
    for (int i = 0; i < s->out_logical[0].ndim; i++) FL_SIG(s, NULL, FL_S(i));
}

static void sbp_same(fl_sigs *s) { fl_sbp_except(s, 0); }

static fl_status kernel_rand(fl_kernel *k) { return fill_floats(k, false, 0, 1); }
static fl_status kernel_randn(fl_kernel *k) { return fill_floats(k, true, 0, 1); }

enum {
    SOURCE = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY | FL_OP_RANDOM,
    LIKE = FL_OP_FUNCTION_ONLY | FL_OP_RANDOM | FL_OP_NO_GRAD
};

static const char *const rand_samples[] = {
    "2, 3", "{70}", "0, 2", "{2, 3}, {dtype = \"float64\"}", "{9}, {dtype = \"bfloat16\"}", NULL};
FL_OP(rand) = {
    .name = "rand",
    .sig = "rand(size: sizes, options)",
    .nout = 1,
    .flags = SOURCE,
    .doc = "Uniform random numbers in [0, 1).",
    .infer = infer_float_source,
    .sbp = sbp_source,
    .cpu = kernel_rand,
    .samples = rand_samples,
};
FL_OP(randn) = {
    .name = "randn",
    .sig = "randn(size: sizes, options)",
    .nout = 1,
    .flags = SOURCE,
    .doc = "Normal random numbers of mean 0 and variance 1.",
    .infer = infer_float_source,
    .sbp = sbp_source,
    .cpu = kernel_randn,
    .samples = rand_samples,
};

static const char *const like_samples[] = {"flow.randn(2, 3)", "flow.arange(4), {dtype = \"float32\"}", NULL};
FL_OP(rand_like) = {
    .name = "rand_like",
    .sig = "rand_like(x, options)",
    .nout = 1,
    .flags = LIKE,
    .doc = "Uniform random numbers in [0, 1) with the shape of x.",
    .infer = infer_float_like,
    .sbp = sbp_same,
    .cpu = kernel_rand,
    .samples = like_samples,
};
FL_OP(randn_like) = {
    .name = "randn_like",
    .sig = "randn_like(x, options)",
    .nout = 1,
    .flags = LIKE,
    .doc = "Normal random numbers with the shape of x.",
    .infer = infer_float_like,
    .sbp = sbp_same,
    .cpu = kernel_randn,
    .samples = like_samples,
};

/* ---- integers ---- */

/* low .. high - 1 is not empty and fits the dtype, as far as integers go. */
static fl_status check_bounds(const char *who, int64_t low, int64_t high, fl_dtype dtype)
{
    if (high <= low)
        return fl_fail(FL_ERR_VALUE, "%s: high %lld must be greater than low %lld", who, (long long)high,
                       (long long)low);
    int64_t least = dtype == FL_INT8            ? INT8_MIN
        : dtype == FL_INT32                     ? INT32_MIN
        : dtype == FL_UINT8 || dtype == FL_BOOL ? 0
                                                : INT64_MIN;
    int64_t most = dtype == FL_INT8 ? INT8_MAX
        : dtype == FL_INT32         ? INT32_MAX
        : dtype == FL_UINT8         ? UINT8_MAX
        : dtype == FL_BOOL          ? 1
                                    : INT64_MAX;
    if (low >= least && high - 1 <= most) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: %lld to %lld does not fit %s", who, (long long)low, (long long)high - 1,
                   fl_dtype_name(dtype));
}

static fl_status check_randint(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_bounds("randint", attrs->at[0].integer, attrs->at[1].integer,
                        attrs->has_dtype ? attrs->option_dtype : FL_INT64);
}

static fl_status check_randint_like(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_dtype dtype = attrs->has_dtype ? attrs->option_dtype : in[0].tensor->meta->dtype;
    return check_bounds("randint_like", attrs->at[0].integer, attrs->at[1].integer, dtype);
}

static fl_status infer_randint(fl_infer *c) { return infer_source(c, 2, FL_INT64); }

static fl_status kernel_randint(fl_kernel *k)
{
    return fill_integers(k, k->attrs->at[0].integer, k->attrs->at[1].integer);
}

static const char *const randint_samples[] = {"0, 10, {2, 3}", "-5, 5, {70}", "0, 2, {4}, {dtype = \"bool\"}",
                                              "-4000000000, 4000000000, {9}", NULL};
FL_OP(randint) = {
    .name = "randint",
    .sig = "randint(~low: int, ~high: int, size: sizes, options)",
    .nout = 1,
    .flags = SOURCE,
    .doc = "Random integers from low to high - 1.",
    .infer = infer_randint,
    .check = check_randint,
    .sbp = sbp_source,
    .cpu = kernel_randint,
    .samples = randint_samples,
};

static const char *const randint_like_samples[] = {"flow.arange(6), 0, 10", "flow.randn(2, 3), -2, 3", NULL};
FL_OP(randint_like) = {
    .name = "randint_like",
    .sig = "randint_like(x, ~low: int, ~high: int, options)",
    .nout = 1,
    .flags = LIKE,
    .doc = "Random integers from low to high - 1 with the shape and dtype of x.",
    .infer = infer_like,
    .check = check_randint_like,
    .sbp = sbp_same,
    .cpu = kernel_randint,
    .samples = randint_like_samples,
};

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

static fl_status kernel_randperm(fl_kernel *k)
{
    const fl_view *out = &k->out[0];
    if (out->numel == 0) return FL_OK;
    int64_t n = out->logical[0];
    fl_random_key key = {k->seed, k->counter};
    int64_t *order = malloc((size_t)n * 2 * (sizeof(int64_t) + sizeof(uint32_t)));
    if (!order) return fl_fail(FL_ERR_MEMORY, "randperm: out of memory for %lld positions", (long long)n);
    int64_t *other = order + n;
    uint32_t *words = (uint32_t *)(other + n), *other_words = words + n;
    level_kernels()->words(words, &key, 0, n);
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

static fl_status infer_randperm(fl_infer *c)
{
    if (c->attrs->at[0].integer < 0)
        return fl_infer_fail(c, FL_ERR_VALUE, "n %lld is negative", (long long)c->attrs->at[0].integer);
    c->out[0].dtype = c->attrs->has_dtype ? c->attrs->option_dtype : FL_INT64;
    return fl_shape_make(&c->out[0].shape, c->name, &c->attrs->at[0].integer, 1);
}

static const char *const randperm_samples[] = {"10", "0", "1", "300, {dtype = \"int32\"}", NULL};
FL_OP(randperm) = {
    .name = "randperm",
    .sig = "randperm(n: int, options)",
    .nout = 1,
    .flags = SOURCE,
    .doc = "The integers 0 to n - 1 in random order.",
    .infer = infer_randperm,
    .sbp = sbp_source,
    .cpu = kernel_randperm,
    .samples = randperm_samples,
};

/* ---- bernoulli ---- */

static void draw_bernoulli(const work *w, int64_t at, uint64_t first, int64_t n)
{
    uint32_t scrap[SCRAP];
    const double *p = w->in;
    for (int64_t i = 0; i < n; i += SCRAP) {
        int64_t count = n - i < SCRAP ? n - i : SCRAP;
        w->kernels->words(scrap, &w->key, first + (uint64_t)i, count);
        for (int64_t j = 0; j < count; j++)
            ((float *)w->out)[at + i + j] = (double)(scrap[j] >> 8) * 0x1p-24 < p[at + i + j] ? 1.0f : 0.0f;
    }
}

static fl_status kernel_bernoulli(fl_kernel *k)
{
    const void *data;
    void *copy;
    FL_TRY(contiguous_input(&data, &copy, &k->in[0], FL_FLOAT64, k->op->name));
    const double *p = data;
    fl_status status = FL_OK;
    for (int64_t i = 0; i < k->in[0].numel && status == FL_OK; i++)
        if (!(p[i] >= 0 && p[i] <= 1))
            status = fl_fail(FL_ERR_VALUE, "bernoulli: probability %g is not between 0 and 1", p[i]);
    work w = {.draw = draw_bernoulli, .dtype = FL_FLOAT32, .in = p};
    if (status == FL_OK) status = fill_part(k, &w, &k->out[0]);
    free(copy);
    return status;
}

static fl_status infer_float_operand(fl_infer *c)
{
    FL_TRY(fl_require_float(c, 0));
    return fl_infer_same(c);
}

static const char *const bernoulli_samples[] = {"flow.rand(2, 3)", "flow.rand(4, 3):t()",
                                                "flow.rand(70, {dtype = \"float64\"})", NULL};
FL_OP(bernoulli) = {
    .name = "bernoulli",
    .sig = "bernoulli(x)",
    .nout = 1,
    .flags = FL_OP_RANDOM | FL_OP_NO_GRAD,
    .doc = "1 with the probability that x has there, else 0.",
    .infer = infer_float_operand,
    .sbp = sbp_same,
    .cpu = kernel_bernoulli,
    .samples = bernoulli_samples,
};

/* ---- in place ---- */

static fl_status kernel_uniform_(fl_kernel *k)
{
    double low = k->attrs->at[0].number, high = k->attrs->at[1].number;
    return fill_floats(k, false, low, high - low);
}

static fl_status kernel_normal_(fl_kernel *k)
{
    return fill_floats(k, true, k->attrs->at[0].number, k->attrs->at[1].number);
}

static fl_status check_uniform_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (attrs->at[0].number <= attrs->at[1].number) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "uniform_: low %g must not be greater than high %g", attrs->at[0].number,
                   attrs->at[1].number);
}

static fl_status check_normal_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (attrs->at[1].number >= 0) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "normal_: std %g must not be negative", attrs->at[1].number);
}

static const char *const no_vjp[] = {NULL}; /* what was there is gone */
static const char *const uniform_samples[] = {"flow.zeros(2, 3)", "flow.zeros(70), -1, 2", "flow.zeros(3, 4):t(), 0, 5",
                                              NULL};
FL_OP(uniform_) = {
    .name = "uniform_",
    .sig = "uniform_(x, ~low: float = 0, ~high: float = 1)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES | FL_OP_RANDOM,
    .mutates = 1,
    .doc = "Fills x with uniform random numbers from low to high.",
    .infer = infer_float_operand,
    .check = check_uniform_,
    .sbp = sbp_same,
    .cpu = kernel_uniform_,
    .vjp = no_vjp,
    .samples = uniform_samples,
};
FL_OP(normal_) = {
    .name = "normal_",
    .sig = "normal_(x, ~mean: float = 0, ~std: float = 1)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES | FL_OP_RANDOM,
    .mutates = 1,
    .doc = "Fills x with normal random numbers.",
    .infer = infer_float_operand,
    .check = check_normal_,
    .sbp = sbp_same,
    .cpu = kernel_normal_,
    .vjp = no_vjp,
    .samples = uniform_samples,
};

/* ---- dropout ---- */

static void draw_dropout(const work *w, int64_t at, uint64_t first, int64_t n)
{
    w->kernels->dropout((float *)w->out + at, (const float *)w->in + at, &w->key, first, n, w->threshold, w->scale);
}

static void draw_dropout_double(const work *w, int64_t at, uint64_t first, int64_t n)
{
    uint32_t scrap[SCRAP];
    const double *in = (const double *)w->in + at;
    double *out = (double *)w->out + at;
    for (int64_t i = 0; i < n; i += SCRAP) {
        int64_t count = n - i < SCRAP ? n - i : SCRAP;
        w->kernels->words(scrap, &w->key, first + (uint64_t)i, count);
        for (int64_t j = 0; j < count; j++) out[i + j] = scrap[j] >> 8 >= w->threshold ? in[i + j] * w->range : 0;
    }
}

/* attributes: p, seed, counter */
static fl_status kernel_dropout(fl_kernel *k)
{
    const fl_view *in = &k->in[0], *out = &k->out[0];
    double p = k->attrs->at[0].number, kept = p < 1 ? 1 / (1 - p) : 0;
    bool is_double = out->dtype == FL_FLOAT64;
    work w = {.draw = is_double ? draw_dropout_double : draw_dropout,
              .dtype = is_double ? FL_FLOAT64 : FL_FLOAT32,
              .range = kept,
              .scale = (float)kept,
              .threshold = (uint32_t)(p * 0x1p24 + 0.5)};
    void *copy;
    k->seed = (uint64_t)k->attrs->at[1].integer;
    k->counter = (uint64_t)k->attrs->at[2].integer;
    FL_TRY(contiguous_input(&w.in, &copy, in, w.dtype, k->op->name));
    fl_status status = fill_part(k, &w, out);
    free(copy);
    return status;
}

static void sbp_dropout(fl_sigs *s)
{
    fl_sbp_except(s, 0);
    fl_sbp_partial(s, 1, FL_PSUM);
}

static const char *const dropout_apply_vjp[] = {"dropout_apply(g, p, seed, counter)"};
static const char *const dropout_apply_samples[] = {"flow.randn(4, 5), 0.5, 1, 2",
                                                    "flow.randn(70):narrow(0, 3, 60), 0.25, 7, 0",
                                                    "flow.randn(3, 4):t(), 1, 0, 0", NULL};
FL_OP(dropout_apply) = {
    .name = "dropout_apply",
    .sig = "dropout_apply(x, ~p: float, ~seed: int, ~counter: int)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Dropout with the mask of this seed and counter; its gradient has the same mask.",
    .infer = infer_float_operand,
    .sbp = sbp_dropout,
    .cpu = kernel_dropout,
    .vjp = dropout_apply_vjp,
    .samples = dropout_apply_samples,
};

static fl_status body_dropout(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *given)
{
    double p = given->at[0].number;
    char text[FL_META_TEXT];
    if (!fl_dtype_is_float(in[0].tensor->meta->dtype))
        return fl_fail(FL_ERR_DTYPE, "dropout: takes a float tensor, x is %s; write x:to(\"float32\")",
                       fl_meta_text(text, in[0].tensor->meta));
    if (!(p >= 0 && p <= 1)) return fl_fail(FL_ERR_VALUE, "dropout: p %g is not between 0 and 1", p);
    if (!given->at[1].integer || p == 0) {
        *out = fl_tensor_ref(in[0].tensor);
        return FL_OK;
    }
    fl_generator g = fl_dispatch_draw(in[0].tensor->meta);
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(dropout_apply));
    fl_attr_set_number(&attrs, 0, p);
    fl_attr_set(&attrs, 1, (int64_t)g.seed);
    fl_attr_set(&attrs, 2, (int64_t)g.counter);
    return FL_CALL_WITH(out, &attrs, dropout_apply, in[0]);
}

static const char *const dropout_samples[] = {"flow.randn(2, 3)", "flow.randn(2, 3), 0.2",
                                              "flow.randn(2, 3), 0.5, false", NULL};
FL_OP(dropout) = {
    .name = "dropout",
    .sig = "dropout(x, ~p: float = 0.5, ~training: bool = true)",
    .nout = 1,
    .doc = "Zeroes each element with probability p and scales the others by 1 / (1 - p); x itself when not training.",
    .body = body_dropout,
    .samples = dropout_samples,
};

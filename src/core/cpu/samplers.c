/*
** samplers.c -- random numbers of distributions: see samplers.h.
*/
#include "samplers.h"
#include "random.h"

#include <stdlib.h>

/* ---- one distribution ---- */

struct sample {
    fl_sampler kind;
    fl_random_key key;
    const double *parameter[2]; /* of all elements, or NULL */
    double fixed[2];
    int64_t wrong; /* atomic: 1 + an element whose parameters are none; 0: there is none */
};

enum { BATCH = 256 }; /* elements whose first words are made together */

static double sample_of(struct sample *sample, int64_t at, uint64_t element, const uint32_t *words)
{
    double a = sample->parameter[0] ? sample->parameter[0][at] : sample->fixed[0];
    double b = sample->parameter[1] ? sample->parameter[1][at] : sample->fixed[1];
    fl_sampler_stream stream = fl_sampler_begin(sample->key.seed, sample->key.counter, element);
    fl_sampler_take(&stream, words);
    double x = fl_sampler_draw(sample->kind, &stream, a, b);
    if (x != x) __atomic_store_n(&sample->wrong, at + 1, __ATOMIC_RELAXED);
    return x;
}

static void sample_piece(void *context, void *out, int64_t at, uint64_t first, int64_t n)
{
    struct sample *s = context;
    uint32_t words[4 * BATCH];
    for (int64_t i = 0; i < n; i += BATCH) {
        int64_t count = n - i < BATCH ? n - i : BATCH;
        uint64_t element = first + (uint64_t)i;
        FL_BY_LEVEL(fl_random_kernels)->words(words, &s->key, 4 * element, 4 * count);
        for (int64_t j = 0; j < count; j++)
            ((double *)out)[at + i + j] = sample_of(s, at + i + j, element + (uint64_t)j, words + 4 * j);
    }
}

/* `in` as it broadcasts to `out`. */
static fl_view broadcast(const fl_view *in, const fl_view *out, int64_t *strides)
{
    fl_view view = *out;
    for (int i = 0; i < out->ndim; i++) {
        int axis = i - (out->ndim - in->ndim);
        strides[i] = axis < 0 || (in->size[axis] == 1 && in->logical[axis] == 1) ? 0 : in->stride[axis];
    }
    view.data = in->data;
    view.dtype = in->dtype;
    view.stride = strides;
    view.contiguous = false;
    return view;
}

static fl_status parameter_of(const double **data, void **copy, const fl_kernel *kernel, int operand)
{
    int64_t strides[FL_MAX_NDIM];
    fl_view view = broadcast(&kernel->in[operand], &kernel->out[0], strides);
    const void *found;
    FL_TRY(fl_cpu_random_input(&found, copy, &view, FL_FLOAT64, kernel->name));
    *data = found;
    return FL_OK;
}

fl_status fl_cpu_sample(fl_kernel *kernel, fl_sampler kind, int operands, double a, double b, const char *expected)
{
    struct sample s = {.kind = kind, .key = {kernel->seed, kernel->counter}, .fixed = {a, b}};
    void *copies[2] = {NULL, NULL};
    fl_status status = FL_OK;
    if (kernel->out[0].numel == 0) return FL_OK;
    for (int i = 0; i < operands && status == FL_OK; i++) status = parameter_of(&s.parameter[i], &copies[i], kernel, i);
    if (status == FL_OK) status = fl_cpu_random_fill(kernel, FL_FLOAT64, 60, sample_piece, &s);
    if (status == FL_OK && s.wrong) {
        double first = s.parameter[0] ? s.parameter[0][s.wrong - 1] : a;
        double second = s.parameter[1] ? s.parameter[1][s.wrong - 1] : b;
        if (operands > 1)
            status = fl_fail(FL_ERR_VALUE, "%s: %s, got %g and %g", kernel->name, expected, first, second);
        else status = fl_fail(FL_ERR_VALUE, "%s: %s, got %g", kernel->name, expected, first);
    }
    free(copies[0]);
    free(copies[1]);
    return status;
}

/* ---- slopes ---- */

struct slopes {
    const double *shape, *x;
};

static void slope_piece(void *context, void *out, int64_t at, uint64_t first, int64_t n)
{
    const struct slopes *s = context;
    for (int64_t i = at; i < at + n; i++) ((double *)out)[i] = fl_sampler_gamma_slope(s->shape[i], s->x[i]);
}

fl_status fl_cpu_gamma_slope(fl_kernel *kernel)
{
    struct slopes s;
    void *copies[2] = {NULL, NULL};
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_status status = parameter_of(&s.shape, &copies[0], kernel, 0);
    if (status == FL_OK) status = parameter_of(&s.x, &copies[1], kernel, 1);
    if (status == FL_OK) status = fl_cpu_random_fill(kernel, FL_FLOAT64, 400, slope_piece, &s);
    free(copies[0]);
    free(copies[1]);
    return status;
}

/* ---- categories ---- */

struct choice {
    fl_random_key key;
    const double *weights; /* [rows, n] */
    int64_t *out;          /* [rows, count] */
    int64_t n, count, first_row;
    bool replacement;
    const char *name;
    int wrong; /* atomic: 1: a weight is none; 2: fewer than count are positive; 3: no memory */
};

/* The running sums of a row's weights; 0: one of them is none. */
static double sums_of(double *sums, const double *weights, int64_t n)
{
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(weights[i] >= 0) || weights[i] == INFINITY) return -1;
        sums[i] = total += weights[i];
    }
    return total;
}

/* The first position whose running sum is above x, of positive weight. */
static int64_t position_of(const double *sums, int64_t n, double x)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (sums[middle] > x) high = middle;
        else low = middle + 1;
    }
    return low;
}

struct key {
    double time;
    int64_t at;
};

static int by_time(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Without replacement: the categories in the order of exponential times with the weights as rates. */
static int race(const struct choice *choice, int64_t row, struct key *keys)
{
    const double *weights = choice->weights + row * choice->n;
    int64_t positive = 0;
    for (int64_t i = 0; i < choice->n; i++) {
        if (weights[i] == 0) continue;
        uint64_t element = (uint64_t)((choice->first_row + row) * choice->n + i);
        fl_sampler_stream s = fl_sampler_begin(choice->key.seed, choice->key.counter, element);
        keys[positive++] = (struct key){-log(fl_sampler_uniform(&s)) / weights[i], i};
    }
    if (positive < choice->count) return 2;
    qsort(keys, (size_t)positive, sizeof *keys, by_time);
    for (int64_t j = 0; j < choice->count; j++) choice->out[row * choice->count + j] = keys[j].at;
    return 0;
}

static int choose(const struct choice *choice, int64_t row, void *room)
{
    double *sums = room, total = sums_of(sums, choice->weights + row * choice->n, choice->n);
    if (total < 0 || total == INFINITY) return 1;
    if (total == 0) return 2;
    if (!choice->replacement) return race(choice, row, room);
    int64_t last = position_of(sums, choice->n, sums[choice->n - 1] * (1 - 0x1p-53)); /* the last of positive weight */
    for (int64_t j = 0; j < choice->count; j++) {
        uint64_t element = (uint64_t)((choice->first_row + row) * choice->count + j);
        fl_sampler_stream s = fl_sampler_begin(choice->key.seed, choice->key.counter, element);
        int64_t at = position_of(sums, choice->n, fl_sampler_uniform(&s) * total);
        choice->out[row * choice->count + j] = at > last ? last : at;
    }
    return 0;
}

static void choose_rows(void *context, int64_t begin, int64_t end)
{
    struct choice *c = context;
    void *room = malloc((size_t)c->n * (c->replacement ? sizeof(double) : sizeof(struct key)));
    for (int64_t row = begin; row < end; row++) {
        int wrong = room ? choose(c, row, room) : 3;
        if (wrong) __atomic_store_n(&c->wrong, wrong, __ATOMIC_RELAXED);
    }
    free(room);
}

static fl_status choice_status(const struct choice *choice)
{
    switch (choice->wrong) {
    case 0: return FL_OK;
    case 1: return fl_fail(FL_ERR_VALUE, "%s: weights must be finite and not negative", choice->name);
    case 2:
        return fl_fail(FL_ERR_VALUE, "%s: too few weights of a row are positive for %lld choices%s", choice->name,
                       (long long)choice->count, choice->replacement ? "" : " without replacement");
    default: return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld weights", choice->name, (long long)choice->n);
    }
}

fl_status fl_cpu_multinomial(fl_kernel *kernel)
{
    const fl_view *in = &kernel->in[0], *out = &kernel->out[0];
    struct choice c = {.key = {kernel->seed, kernel->counter}, .name = kernel->name};
    c.n = in->size[in->ndim - 1];
    c.count = out->size[out->ndim - 1];
    c.first_row = in->ndim == 2 ? in->start[0] : 0;
    c.replacement = kernel->attrs->at[FL_MULTINOMIAL_REPLACEMENT].integer != 0;
    if (out->numel == 0) return FL_OK;
    const void *weights;
    void *copy;
    FL_TRY(fl_cpu_random_input(&weights, &copy, in, FL_FLOAT64, kernel->name));
    c.weights = weights;
    int64_t *found = out->contiguous ? out->data : malloc((size_t)out->numel * sizeof *found);
    fl_status status = found ? FL_OK : fl_fail(FL_ERR_MEMORY, "%s: out of memory", kernel->name);
    if (status == FL_OK) {
        c.out = found;
        fl_team_for(out->numel / c.count, (double)c.n * (c.replacement ? 2 : 60) + (double)c.count * 40, choose_rows,
                    &c);
        status = choice_status(&c);
    }
    if (status == FL_OK && found != out->data) {
        int64_t strides[FL_MAX_NDIM];
        fl_view array = fl_view_array(out, found, FL_INT64, strides);
        status = fl_cpu_copy(out, &array);
    }
    if (found != out->data) free(found);
    free(copy);
    return status;
}

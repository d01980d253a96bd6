/*
** samplers.cu -- random numbers of distributions, by the formulas of core/op/samplers.h, and choices among categories.
**
** A thread makes one number from the stream of its logical index. Integers equal the CPU's but where a bound is met
** within rounding.
*/
#include "arrays.h"
#include "cuda/parts/convert.h"
#include "core/op/samplers.h"
#include "index.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 256, TEXT = 96 };

/* ---- one distribution ---- */

/* The place in the whole of a contiguous part's elements. */
struct window {
    int ndim;
    int64_t size[FL_MAX_NDIM], start[FL_MAX_NDIM], unit[FL_MAX_NDIM];
};

static window window_of(const fl_view *view)
{
    window w;
    int64_t unit = 1;
    w.ndim = view->ndim;
    for (int a = view->ndim - 1; a >= 0; a--) {
        w.size[a] = view->size[a];
        w.start[a] = view->start[a];
        w.unit[a] = unit;
        unit *= view->logical[a];
    }
    return w;
}

__device__ static uint64_t logical_index(const window &window, int64_t i)
{
    uint64_t index = 0;
    for (int a = window.ndim - 1; a >= 0; a--) {
        index += (uint64_t)(window.start[a] + i % window.size[a]) * (uint64_t)window.unit[a];
        i /= window.size[a];
    }
    return index;
}

struct sample {
    fl_sampler kind;
    uint64_t seed, counter;
    const double *parameter[2]; /* of all elements, or NULL */
    double fixed[2];
    fl_cuda_fault *fault; /* NULL: the parameters were checked */
};

/* Two parameters as floats in one number. */
__device__ static inline long long both(double a, double b)
{
    return (long long)((uint64_t)__float_as_uint((float)a) << 32 | __float_as_uint((float)b));
}

template<typename T>
__global__ void __launch_bounds__(THREADS)
    draw(T *out, int64_t first, int64_t n, sample s, const __grid_constant__ window w)
{
    int64_t i = first + (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    double a = s.parameter[0] ? s.parameter[0][i] : s.fixed[0], b = s.parameter[1] ? s.parameter[1][i] : s.fixed[1];
    fl_sampler_stream stream = fl_sampler_begin(s.seed, s.counter, logical_index(w, i));
    double x = fl_sampler_draw(s.kind, &stream, a, b);
    if (x != x && s.fault) fl_cuda_report(s.fault, i, both(a, b));
    out[i] = fl_convert<T>(x);
}

/* `in` as it broadcasts to `out`, as doubles. */
static fl_status open_parameter(fl_cuda_array *array, const fl_view *in, const fl_view *out)
{
    int64_t strides[FL_MAX_NDIM];
    fl_view view = *out;
    for (int i = 0; i < out->ndim; i++) {
        int axis = i - (out->ndim - in->ndim);
        strides[i] = axis < 0 || (in->size[axis] == 1 && in->logical[axis] == 1) ? 0 : in->stride[axis];
    }
    view.data = in->data;
    view.dtype = in->dtype;
    view.stride = strides;
    view.contiguous = false;
    return fl_cuda_array_open(array, &view, FL_FLOAT64);
}

/* Calls fill(view) with the result as an array. */
template<typename F>
static fl_status fill_result(fl_kernel *kernel, F &&fill)
{
    const fl_view *out = &kernel->out[0];
    fl_cuda_array array;
    FL_TRY(fl_cuda_array_room(&array, out, out->dtype));
    fill(&array.view);
    fl_status status = fl_cuda_array_store(out, &array);
    fl_cuda_array_close(&array);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

static fl_status draw_all(fl_kernel *kernel, const sample &sample)
{
    return fill_result(kernel, [&](const fl_view *part) {
        window w = window_of(part);
        fl_cuda_by_storage(part->dtype, [&](auto like) {
            typedef decltype(like) T;
            for (int64_t first = 0; first < part->numel; first += FL_INDEX_LIMIT) {
                int64_t n = part->numel - first < FL_INDEX_LIMIT ? part->numel - first : FL_INDEX_LIMIT;
                FL_LAUNCH((draw<T>), fl_blocks(n, THREADS), THREADS, 0, (T *)part->data, first, part->numel, sample, w);
            }
            return FL_OK;
        });
    });
}

static fl_status launch_fill(fl_kernel *kernel)
{
    const fl_attrs *attrs = kernel->attrs;
    if (kernel->out[0].numel == 0) return FL_OK;
    sample s = {};
    s.kind = (fl_sampler)kernel->variant;
    s.seed = kernel->seed;
    s.counter = kernel->counter;
    s.fixed[0] = attrs->at[FL_SAMPLER_FIRST].number;
    if (attrs->count > FL_SAMPLER_SECOND) s.fixed[1] = attrs->at[FL_SAMPLER_SECOND].number;
    return draw_all(kernel, s);
}

FL_CUDA_OP(exponential_, launch_fill);
FL_CUDA_OP(cauchy_, launch_fill);
FL_CUDA_OP(log_normal_, launch_fill);
FL_CUDA_OP(geometric_, launch_fill);

static void word_one(char *text, size_t size, const void *context, long long, long long bits)
{
    uint32_t word = (uint32_t)((uint64_t)bits >> 32);
    float a;
    memcpy(&a, &word, sizeof a);
    snprintf(text, size, "%s, got %g", (const char *)context, a);
}

static void word_two(char *text, size_t size, const void *context, long long, long long bits)
{
    uint32_t words[2] = {(uint32_t)((uint64_t)bits >> 32), (uint32_t)bits};
    float a[2];
    memcpy(a, words, sizeof a);
    snprintf(text, size, "%s, got %g and %g", (const char *)context, a[0], a[1]);
}

/* expected: as the CPU says it. */
static fl_status launch_parameters(fl_kernel *kernel, fl_sampler kind, int operands, const char *expected)
{
    char text[TEXT];
    fl_cuda_array arrays[2];
    sample s = {};
    fl_status status = FL_OK;
    int opened = 0;
    if (kernel->out[0].numel == 0) return FL_OK;
    s.kind = kind;
    s.seed = kernel->seed;
    s.counter = kernel->counter;
    snprintf(text, sizeof text, "%s: %s", kernel->name, expected);
    FL_TRY(fl_cuda_fault_new(&s.fault, operands > 1 ? word_two : word_one, text, sizeof text));
    for (; opened < operands && status == FL_OK; opened++) {
        status = open_parameter(&arrays[opened], &kernel->in[opened], &kernel->out[0]);
        if (status != FL_OK) break;
        s.parameter[opened] = (const double *)arrays[opened].view.data;
    }
    if (status == FL_OK) status = draw_all(kernel, s);
    for (int i = 0; i < opened; i++) fl_cuda_array_close(&arrays[i]);
    return status;
}

static fl_status launch_poisson(fl_kernel *kernel)
{
    return launch_parameters(kernel, FL_SAMPLER_POISSON, 1, "a rate must not be negative");
}
static fl_status launch_standard_gamma(fl_kernel *kernel)
{
    return launch_parameters(kernel, FL_SAMPLER_GAMMA, 1, "a shape must not be negative");
}
static fl_status launch_binomial(fl_kernel *kernel)
{
    return launch_parameters(kernel, FL_SAMPLER_BINOMIAL, 2,
                             "a count must not be negative and a probability between 0 and 1");
}

FL_CUDA_OP(poisson, launch_poisson);
FL_CUDA_OP(standard_gamma, launch_standard_gamma);
FL_CUDA_OP(binomial, launch_binomial);

/* ---- slopes ---- */

template<typename T>
__global__ void __launch_bounds__(THREADS) slope(T *out, const double *shape, const double *x, int64_t first, int64_t n)
{
    int64_t i = first + (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) out[i] = fl_convert<T>(fl_sampler_gamma_slope(shape[i], x[i]));
}

static fl_status launch_slope(fl_kernel *kernel)
{
    fl_cuda_array shape, x;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(open_parameter(&shape, &kernel->in[0], &kernel->out[0]));
    fl_status status = open_parameter(&x, &kernel->in[1], &kernel->out[0]);
    if (status == FL_OK) {
        status = fill_result(kernel, [&](const fl_view *part) {
            fl_cuda_by_float(part->dtype, [&](auto like) {
                typedef decltype(like) T;
                for (int64_t first = 0; first < part->numel; first += FL_INDEX_LIMIT) {
                    int64_t n = part->numel - first < FL_INDEX_LIMIT ? part->numel - first : FL_INDEX_LIMIT;
                    FL_LAUNCH((slope<T>), fl_blocks(n, THREADS), THREADS, 0, (T *)part->data,
                              (const double *)shape.view.data, (const double *)x.view.data, first, part->numel);
                }
                return FL_OK;
            });
        });
        fl_cuda_array_close(&x);
    }
    fl_cuda_array_close(&shape);
    return status;
}

FL_CUDA_OP(standard_gamma_slope, launch_slope);

/* ---- categories ---- */

struct choice {
    const double *weights; /* [rows, n] */
    int64_t *out;          /* [rows, count] */
    int64_t n, count, first_row;
    uint64_t seed, counter;
    fl_cuda_fault *fault;
};

static void word_choice(char *text, size_t size, const void *context, long long, long long what)
{
    const long long *count = (const long long *)context;
    if (what == 1) snprintf(text, size, "multinomial: weights must be finite and not negative");
    else
        snprintf(text, size, "multinomial: too few weights of a row are positive for %lld choices%s", count[0],
                 count[1] ? "" : " without replacement");
}

/* With replacement: the first position whose running sum, taken in order as on the CPU, is above a share of the total.
** */
__global__ void __launch_bounds__(THREADS) choose(choice c, int64_t total)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= total) return;
    int64_t row = at / c.count, last = 0, found = -1;
    const double *weights = c.weights + row * c.n;
    double all = 0, sum = 0;
    for (int64_t i = 0; i < c.n; i++) {
        if (!(weights[i] >= 0) || weights[i] == INFINITY) {
            fl_cuda_report(c.fault, row, 1);
            return;
        }
        all += weights[i];
        if (weights[i] > 0) last = i;
    }
    if (all == 0 || all == INFINITY) {
        fl_cuda_report(c.fault, row, all == 0 ? 2 : 1);
        return;
    }
    uint64_t element = (uint64_t)((c.first_row + row) * c.count + at % c.count);
    fl_sampler_stream s = fl_sampler_begin(c.seed, c.counter, element);
    double x = fl_sampler_uniform(&s) * all;
    for (int64_t i = 0; i < c.n && found < 0; i++) {
        sum += weights[i];
        if (sum > x) found = i;
    }
    c.out[at] = found < 0 ? last : found;
}

/* Without: a block of threads takes the positions of a row in the order of exponential times, one after the other. */
__global__ void __launch_bounds__(THREADS) race(choice c)
{
    __shared__ double times[THREADS];
    __shared__ int64_t places[THREADS];
    int64_t row = blockIdx.x;
    const double *weights = c.weights + row * c.n;
    double before = -1;
    int64_t before_at = -1;
    for (int64_t j = 0; j < c.count; j++) {
        double best = INFINITY;
        int64_t best_at = -1;
        for (int64_t i = threadIdx.x; i < c.n; i += THREADS) {
            if (!(weights[i] >= 0) || weights[i] == INFINITY) fl_cuda_report(c.fault, row, 1);
            if (!(weights[i] > 0)) continue;
            fl_sampler_stream s = fl_sampler_begin(c.seed, c.counter, (uint64_t)((c.first_row + row) * c.n + i));
            double time = -log(fl_sampler_uniform(&s)) / weights[i];
            bool later = time > before || (time == before && i > before_at);
            if (later && (best_at < 0 || time < best)) best = time, best_at = i;
        }
        times[threadIdx.x] = best;
        places[threadIdx.x] = best_at;
        __syncthreads();
        for (int half = THREADS / 2; half > 0; half /= 2) {
            if ((int)threadIdx.x < half) {
                int other = (int)threadIdx.x + half;
                double x = times[threadIdx.x], y = times[other];
                int64_t a = places[threadIdx.x], b = places[other];
                if (b >= 0 && (a < 0 || y < x || (y == x && b < a))) times[threadIdx.x] = y, places[threadIdx.x] = b;
            }
            __syncthreads();
        }
        before = times[0];
        before_at = places[0];
        if (threadIdx.x == 0) {
            if (before_at < 0) fl_cuda_report(c.fault, row, 2);
            c.out[row * c.count + j] = before_at < 0 ? 0 : before_at;
        }
        __syncthreads();
        if (before_at < 0) return;
    }
}

static fl_status launch_multinomial(fl_kernel *kernel)
{
    const fl_view *in = &kernel->in[0], *out = &kernel->out[0];
    fl_cuda_array weights;
    bool replacement = kernel->attrs->at[FL_MULTINOMIAL_REPLACEMENT].integer != 0;
    choice c = {};
    if (out->numel == 0) return FL_OK;
    c.n = in->size[in->ndim - 1];
    c.count = out->size[out->ndim - 1];
    c.first_row = in->ndim == 2 ? in->start[0] : 0;
    c.seed = kernel->seed;
    c.counter = kernel->counter;
    const long long context[2] = {(long long)c.count, replacement};
    FL_TRY(fl_cuda_fault_new(&c.fault, word_choice, context, sizeof context));
    FL_TRY(fl_cuda_array_open(&weights, in, FL_FLOAT64));
    c.weights = (const double *)weights.view.data;
    fl_status status = fill_result(kernel, [&](const fl_view *part) {
        c.out = (int64_t *)part->data;
        if (replacement) FL_LAUNCH(choose, fl_blocks(part->numel, THREADS), THREADS, 0, c, part->numel);
        else FL_LAUNCH(race, (unsigned)(part->numel / c.count), THREADS, 0, c);
    });
    fl_cuda_array_close(&weights);
    return status;
}

FL_CUDA_OP(multinomial, launch_multinomial);

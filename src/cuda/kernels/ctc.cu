/*
** ctc.cu -- connectionist temporal classification: the losses of sequences, their gradients, and a derivative of these.
**
** The sums over paths are those of the CPU (core/cpu/ctc.inc), a block for each sequence: a thread has every 256th
** place of the target, and the block goes from time to time. The probabilities of the places of a class are added up in
** the order of the places, those of the blank by a warp, so results do not depend on the order of threads. A derivative
** along a direction is carried along with every number (dual).
*/
#include "arrays.h"
#include "cuda/parts/block.cuh"
#include "index.h"

#include <limits.h>
#include <stdio.h>

extern "C" {
#include "core/op/ctc.h"
}

/* ---- numbers ---- */

/* A value and its derivative. */
struct dual {
    double re, im;
};

__device__ static inline dual operator+(dual a, dual b) { return {a.re + b.re, a.im + b.im}; }
__device__ static inline dual operator-(dual a, dual b) { return {a.re - b.re, a.im - b.im}; }

template<typename T>
struct number {
    __device__ static T of(double x) { return (T)x; }
    __device__ static T read(const T *x, const T *, int64_t at) { return x[at]; }
    __device__ static T real(T x) { return x; }
    __device__ static T result(T x) { return x; } /* as it is stored */
};
template<>
struct number<dual> {
    __device__ static dual of(double x) { return {x, 0}; }
    template<typename F>
    __device__ static dual read(const F *x, const F *direction, int64_t at)
    {
        return {(double)x[at], (double)direction[at]};
    }
    __device__ static double real(dual x) { return x.re; }
    __device__ static double result(dual x) { return x.im; }
};

__device__ static inline float exponential(float x) { return expf(x); }
__device__ static inline double exponential(double x) { return exp(x); }
__device__ static inline dual exponential(dual x)
{
    double y = exp(x.re);
    return {y, x.im * y};
}

/* log(1 + e^x), x <= 0 */
__device__ static inline float log1p_exp(float x) { return log1pf(expf(x)); }
__device__ static inline double log1p_exp(double x) { return log1p(exp(x)); }
__device__ static inline dual log1p_exp(dual x)
{
    double y = exp(x.re);
    return {log1p(y), x.im * (y / (1 + y))};
}

template<typename T>
__device__ static inline T log_add(T a, T b)
{
    bool first = number<T>::real(a) > number<T>::real(b);
    T high = first ? a : b, low = first ? b : a;
    return number<T>::real(low) == -INFINITY ? high : high + log1p_exp(low - high);
}

/* ---- sequences ---- */

enum { THREADS = 256 };

/* log_probs, direction, gradient [time, batch, classes]; targets [batch, width], or [width] where they are joined. */
template<typename F>
struct batch {
    int64_t time, batch, classes, width, blank;
    bool joined, zero_infinity;
    const F *log_probs, *direction;
    const int64_t *targets, *input_lengths, *target_lengths;
    F *losses, *gradient; /* gradient: zeros; losses NULL: not needed */
    void *sums;           /* for each time and two more, a number for each place of all targets */
    int *chains;          /* one for each label of all targets */
    fl_cuda_fault *fault;
};

/* One of them. */
template<typename T, typename F>
struct sequence {
    int64_t i, start, time, places;
    const int64_t *labels;
    T *alpha; /* [time][places]; then two rows for beta */
    int *chain;
};

/* The order of what may be wrong with a sequence is that of the CPU: its time, its length, its labels. */
__host__ __device__ static inline long long reports_of(int64_t width) { return 2 * width + 3; }
enum { BAD_TIME, BAD_LENGTH }; /* + labels that there are; + width + 1: label k */

/* All threads get the same answer. */
template<typename F>
__device__ static bool is_sound(const batch<F> &batch, int64_t i, int64_t start)
{
    int64_t time = batch.input_lengths[i], count = batch.target_lengths[i],
            room = batch.joined ? batch.width - start : batch.width;
    long long place = i * reports_of(batch.width);
    if (room < 0 || room > batch.width) return false; /* a sequence before it is not sound */
    if (time < 0 || time > batch.time) {
        if (threadIdx.x == 0) fl_cuda_report(batch.fault, place + BAD_TIME, time);
        return false;
    }
    if (count < 0 || count > room) {
        if (threadIdx.x == 0) fl_cuda_report(batch.fault, place + BAD_LENGTH + room, count);
        return false;
    }
    int bad = 0;
    for (int64_t k = threadIdx.x; k < count; k += THREADS) {
        int64_t label = batch.targets[start + k];
        if (label >= 0 && label < batch.classes) continue;
        fl_cuda_report(batch.fault, place + BAD_LENGTH + batch.width + 1 + k, label);
        bad = 1;
    }
    return !__syncthreads_or(bad);
}

/* Labels before those of sequence i. */
template<typename F>
__device__ static int64_t start_of(const batch<F> &batch, int64_t i)
{
    __shared__ long long shared[32];
    if (!batch.joined) return i * batch.width;
    long long sum = 0;
    for (int64_t k = threadIdx.x; k < i; k += THREADS) sum += batch.target_lengths[k];
    return fl_group_join(sum, THREADS, 0ll, shared, [](long long x, long long y) { return x + y; });
}

/* The class at a place of the target with blanks around its labels. */
template<typename T, typename F>
__device__ static inline int64_t class_at(const batch<F> &batch, const sequence<T, F> &sequence, int64_t place)
{
    return place & 1 ? sequence.labels[place >> 1] : batch.blank;
}

/* True if a path may step over the place before. */
template<typename T, typename F>
__device__ static inline bool skips(const sequence<T, F> &sequence, int64_t place)
{
    return place >= 2 && (place & 1) && sequence.labels[place >> 1] != sequence.labels[(place >> 1) - 1];
}

/* The logarithm of class `k` at time t. */
template<typename T, typename F>
__device__ static inline T log_at(const batch<F> &batch, const sequence<T, F> &sequence, int64_t t, int64_t k)
{
    return number<T>::read(batch.log_probs, batch.direction, (t * batch.batch + sequence.i) * batch.classes + k);
}

/* alpha[t][p]: log-probability of all beginnings of paths that are at place p at time t. Returns that of all paths. */
template<typename T, typename F>
__device__ static T forward(const batch<F> &batch, const sequence<T, F> &sequence)
{
    for (int64_t p = threadIdx.x; p < sequence.places; p += THREADS)
        sequence.alpha[p] = p < 2 ? log_at(batch, sequence, 0, class_at(batch, sequence, p)) : number<T>::of(-INFINITY);
    __syncthreads();
    for (int64_t t = 1; t < sequence.time; t++) {
        const T *before = sequence.alpha + (t - 1) * sequence.places;
        for (int64_t p = threadIdx.x; p < sequence.places; p += THREADS) {
            T sum = before[p];
            if (p > 0) sum = log_add(sum, before[p - 1]);
            if (skips(sequence, p)) sum = log_add(sum, before[p - 2]);
            sequence.alpha[t * sequence.places + p] = sum + log_at(batch, sequence, t, class_at(batch, sequence, p));
        }
        __syncthreads();
    }
    const T *last = sequence.alpha + (sequence.time - 1) * sequence.places;
    return sequence.places > 1 ? log_add(last[sequence.places - 1], last[sequence.places - 2]) : last[0];
}

/* The next label that is the same, plus one, times two; plus one if there is none before. Labels that are the blank
** have no chain. */
template<typename T, typename F>
__device__ static void link_labels(const batch<F> &batch, const sequence<T, F> &sequence)
{
    int64_t count = sequence.places >> 1;
    for (int64_t k = threadIdx.x; k < count; k += THREADS) {
        int64_t label = sequence.labels[k], next = k + 1, before = k - 1;
        while (next < count && sequence.labels[next] != label) next++;
        while (before >= 0 && sequence.labels[before] != label) before--;
        int link = next < count ? (int)(next + 1) << 1 : 0;
        sequence.chain[k] = label == batch.blank ? 0 : link | (before < 0);
    }
}

/* The gradient at time t from the probabilities of the places: a warp adds up the blank's, the others follow chains. */
template<typename T, typename F>
__device__ static void add_up(const batch<F> &batch, const sequence<T, F> &sequence, int64_t t, const T *places)
{
    F *gradient = batch.gradient + (t * batch.batch + sequence.i) * batch.classes;
    T sum = number<T>::of(0);
    if (threadIdx.x < 32) {
        for (int64_t p = threadIdx.x; p < sequence.places; p += 32)
            if (class_at(batch, sequence, p) == batch.blank) sum = sum + places[p];
        sum = fl_lanes_join(sum, 32, [](const T &x, const T &y) { return x + y; });
        if (threadIdx.x == 0) gradient[batch.blank] = (F)number<T>::result(number<T>::of(0) - sum);
        return;
    }
    for (int64_t k = threadIdx.x - 32; k < sequence.places >> 1; k += THREADS - 32) {
        if (!(sequence.chain[k] & 1)) continue;
        sum = number<T>::of(0);
        for (int64_t j = k; j >= 0; j = (sequence.chain[j] >> 1) - 1) sum = sum + places[2 * j + 1];
        gradient[sequence.labels[k]] = (F)number<T>::result(number<T>::of(0) - sum);
    }
}

/* Log-probability of all ends of paths that are at place p at time t - 1, from those at time t. */
template<typename T, typename F>
__device__ static T step_back(const batch<F> &batch, const sequence<T, F> &sequence, int64_t t, const T *now, int64_t p)
{
    T sum = now[p] + log_at(batch, sequence, t, class_at(batch, sequence, p));
    if (p + 1 < sequence.places)
        sum = log_add(sum, now[p + 1] + log_at(batch, sequence, t, class_at(batch, sequence, p + 1)));
    if (p + 2 < sequence.places && skips(sequence, p + 2))
        sum = log_add(sum, now[p + 2] + log_at(batch, sequence, t, class_at(batch, sequence, p + 2)));
    return sum;
}

/* The gradient: minus the probability of each class at each time, given that the path is one of the target's. Takes
** alpha's memory for the probabilities of the places. */
template<typename T, typename F>
__device__ static void backward(const batch<F> &batch, const sequence<T, F> &sequence, T total)
{
    T *now = sequence.alpha + sequence.time * sequence.places, *before = now + sequence.places;
    link_labels(batch, sequence);
    for (int64_t p = threadIdx.x; p < sequence.places; p += THREADS)
        now[p] = number<T>::of(p >= sequence.places - 2 ? 0 : -INFINITY);
    __syncthreads();
    for (int64_t t = sequence.time - 1; t >= 0; t--) {
        T *alpha = sequence.alpha + t * sequence.places;
        for (int64_t p = threadIdx.x; p < sequence.places; p += THREADS) {
            alpha[p] = exponential(alpha[p] + now[p] - total);
            if (t > 0) before[p] = step_back(batch, sequence, t, now, p);
        }
        __syncthreads();
        add_up(batch, sequence, t, alpha);
        T *swap = now;
        now = before;
        before = swap;
    }
}

template<typename T, typename F>
__global__ void __launch_bounds__(THREADS) sequences(const __grid_constant__ batch<F> b)
{
    sequence<T, F> s;
    s.i = blockIdx.x;
    s.start = start_of(b, s.i);
    if (!is_sound(b, s.i, s.start)) return;
    s.time = b.input_lengths[s.i];
    s.places = 2 * b.target_lengths[s.i] + 1;
    s.labels = b.targets + s.start;
    s.alpha = (T *)b.sums + (2 * s.start + s.i) * (b.time + 2);
    s.chain = b.chains + s.start;
    T total = s.time > 0 ? forward(b, s) : number<T>::of(s.places == 1 ? 0 : -INFINITY);
    bool possible = number<T>::real(total) != -INFINITY;
    if (b.losses && threadIdx.x == 0) b.losses[s.i] = (F)(possible || !b.zero_infinity ? -number<T>::real(total) : 0);
    if (possible && s.time > 0) backward(b, s, total);
    if (possible || b.zero_infinity) return;
    for (int64_t n = threadIdx.x; n < s.time * b.classes; n += THREADS)
        b.gradient[(n / b.classes * b.batch + s.i) * b.classes + n % b.classes] = (F)number<T>::result(
            number<T>::of(NAN));
}

/* ---- launching ---- */

struct ctc_words {
    int64_t time, classes, width;
};

static void word_ctc(char *text, size_t size, const void *context, long long place, long long value)
{
    const ctc_words *w = (const ctc_words *)context;
    long long i = place / reports_of(w->width), what = place % reports_of(w->width), label = what - w->width - 2;
    if (what == BAD_TIME) snprintf(text, size, FL_CTC_BAD_TIME, i, value, (long long)w->time);
    else if (label < 0) snprintf(text, size, FL_CTC_BAD_LENGTH, i, value, what - BAD_LENGTH);
    else snprintf(text, size, FL_CTC_BAD_LABEL, label, i, value, (long long)w->classes);
}

template<typename T, typename F>
static fl_status run_batch(batch<F> b, const char *name)
{
    int64_t labels = b.joined ? b.width : b.batch * b.width, places = 2 * labels + b.batch;
    size_t bytes = (size_t)(b.time * b.batch * b.classes) * sizeof(F);
    void *chains = NULL;
    FL_TRY(fl_cuda_malloc(&b.sums, (size_t)(places * (b.time + 2)) * sizeof(T)));
    fl_status status = fl_cuda_malloc(&chains, (size_t)(labels + 1) * sizeof(int));
    if (status == FL_OK) {
        b.chains = (int *)chains;
        if (bytes) cudaMemsetAsync(b.gradient, 0, bytes, fl_cuda_stream());
        FL_LAUNCH((sequences<T, F>), (unsigned)b.batch, THREADS, 0, b);
        status = fl_cuda_check(name);
        fl_cuda_free(chains);
    }
    fl_cuda_free(b.sums);
    return status;
}

/* The operands as arrays, losses only of ctc_rows. */
struct ctc_arrays {
    fl_cuda_array in[FL_CTC_DIRECTION + 1], losses, gradient;
    int open; /* of in */
    bool has_losses, has_gradient;
};

static fl_status open_arrays(ctc_arrays *arrays, fl_kernel *kernel, fl_dtype dtype)
{
    bool derived = kernel->nin > FL_CTC_DIRECTION;
    for (int i = 0; i < kernel->nin; i++, arrays->open++) {
        bool is_float = i == FL_CTC_LOG_PROBS || i == FL_CTC_DIRECTION;
        FL_TRY(fl_cuda_array_open(&arrays->in[i], &kernel->in[i], is_float ? dtype : FL_INT64));
    }
    FL_TRY(fl_cuda_array_room(&arrays->gradient, &kernel->out[derived ? 0 : FL_CTC_GRADIENT], dtype));
    arrays->has_gradient = true;
    if (derived) return FL_OK;
    FL_TRY(fl_cuda_array_room(&arrays->losses, &kernel->out[FL_CTC_LOSSES], dtype));
    arrays->has_losses = true;
    return FL_OK;
}

static void close_arrays(ctc_arrays *arrays)
{
    if (arrays->has_losses) fl_cuda_array_close(&arrays->losses);
    if (arrays->has_gradient) fl_cuda_array_close(&arrays->gradient);
    while (arrays->open > 0) fl_cuda_array_close(&arrays->in[--arrays->open]);
}

static fl_status store_results(const ctc_arrays *arrays, fl_kernel *kernel)
{
    FL_TRY(fl_cuda_array_store(&kernel->out[arrays->has_losses ? FL_CTC_GRADIENT : 0], &arrays->gradient));
    return arrays->has_losses ? fl_cuda_array_store(&kernel->out[FL_CTC_LOSSES], &arrays->losses) : FL_OK;
}

template<typename F>
static fl_status launch_typed(fl_kernel *kernel, const ctc_arrays *arrays)
{
    const fl_view *x = &kernel->in[FL_CTC_LOG_PROBS], *targets = &kernel->in[FL_CTC_TARGETS];
    batch<F> b = {};
    b.time = x->size[0];
    b.batch = x->size[1];
    b.classes = x->size[2];
    b.joined = targets->ndim == 1;
    b.width = targets->size[targets->ndim - 1];
    b.blank = kernel->attrs->at[FL_CTC_BLANK].integer;
    b.zero_infinity = kernel->attrs->at[FL_CTC_ZERO_INFINITY].integer != 0;
    b.log_probs = (const F *)arrays->in[FL_CTC_LOG_PROBS].view.data;
    b.targets = (const int64_t *)arrays->in[FL_CTC_TARGETS].view.data;
    b.input_lengths = (const int64_t *)arrays->in[FL_CTC_INPUT_LENGTHS].view.data;
    b.target_lengths = (const int64_t *)arrays->in[FL_CTC_TARGET_LENGTHS].view.data;
    b.gradient = (F *)arrays->gradient.view.data;
    ctc_words words = {b.time, b.classes, b.width};
    FL_TRY(fl_cuda_fault_new(&b.fault, word_ctc, &words, sizeof words));
    if (arrays->has_losses) {
        b.losses = (F *)arrays->losses.view.data;
        return run_batch<F>(b, kernel->name);
    }
    b.direction = (const F *)arrays->in[FL_CTC_DIRECTION].view.data;
    return run_batch<dual>(b, kernel->name);
}

static fl_status launch_ctc(fl_kernel *kernel)
{
    ctc_arrays a = {};
    fl_dtype dtype = fl_dtype_compute(kernel->out[0].dtype);
    if (kernel->in[FL_CTC_LOG_PROBS].size[1] == 0) return FL_OK;
    fl_status status = open_arrays(&a, kernel, dtype);
    if (status == FL_OK)
        status = dtype == FL_FLOAT64 ? launch_typed<double>(kernel, &a) : launch_typed<float>(kernel, &a);
    if (status == FL_OK) status = store_results(&a, kernel);
    close_arrays(&a);
    return status;
}

FL_CUDA_OP(ctc_rows, launch_ctc);
FL_CUDA_OP(ctc_curvature, launch_ctc);

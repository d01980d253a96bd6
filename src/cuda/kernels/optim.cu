/*
** optim.cu -- optimizer steps over all parameters in few launches, and gradient clipping.
**
** Tables of up to TENSORS tensors travel as a kernel's parameters. A block does one stretch of one tensor and finds it
** by bisection. Each element is computed alone by the CPU's formulas (optim_rules.inc) with correctly rounded
** operations, so steps equal the CPU's bit for bit. Tensors with a float16 or bfloat16 parameter and gradient are read
** and written as they are, states in float32 or the same dtype; operands in any other combination, or not contiguous,
** go through copies.
*/
#include "arrays.h"
#include "copies.h"
#include "core/op/optim.h"
#include "cuda/parts/convert.h"
#include "cuda/parts/fresh.h"
#include "index.h"

#include <math.h>
#include <stdlib.h>

enum {
    THREADS = 256,
    TENSORS = 64,
    GROUPS = FL_STEP_MAX_GROUPS,
    OPERANDS = GROUPS + 1,
    STRETCH = 4096,
    SUM_STRETCH = 8192,
    WARPS = THREADS / 32
};

/* ---- arithmetic that is never contracted ---- */

__device__ static inline float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ static inline float add(float a, float b) { return __fadd_rn(a, b); }
__device__ static inline float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ static inline float quotient(float a, float b) { return __fdiv_rn(a, b); }
__device__ static inline float root_of(float x) { return __fsqrt_rn(x); }
__device__ static inline double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ static inline double add(double a, double b) { return __dadd_rn(a, b); }
__device__ static inline double sub(double a, double b) { return __dsub_rn(a, b); }
__device__ static inline double quotient(double a, double b) { return __ddiv_rn(a, b); }
__device__ static inline double root_of(double x) { return __dsqrt_rn(x); }

/* The same as operators, for the formulas that the CPU has too. */
template<typename W>
struct exact {
    W v;
    exact() = default;
    __device__ exact(W value) : v(value) {}
    __device__ friend exact operator+(exact a, exact b) { return add(a.v, b.v); }
    __device__ friend exact operator-(exact a, exact b) { return sub(a.v, b.v); }
    __device__ friend exact operator-(exact a) { return -a.v; }
    __device__ friend exact operator*(exact a, exact b) { return mul(a.v, b.v); }
    __device__ friend exact operator/(exact a, exact b) { return quotient(a.v, b.v); }
    __device__ friend bool operator<(exact a, exact b) { return a.v < b.v; }
    __device__ friend bool operator>(exact a, exact b) { return a.v > b.v; }
    __device__ friend bool operator>=(exact a, exact b) { return a.v >= b.v; }
};
template<typename W>
__device__ static inline exact<W> root_of(exact<W> x)
{
    return root_of(x.v);
}
template<typename W>
__device__ static inline exact<W> size_of(exact<W> x)
{
    return x.v < 0 ? -x.v : x.v;
}

/* ---- formulas: p, g and the states of one element ---- */

template<typename W>
struct numbers {
#define X(name) exact<W> name;
    FL_STEP_NUMBERS(X)
#undef X
};

template<typename W>
static numbers<W> numbers_of(const fl_step &step)
{
    numbers<W> n;
#define X(name) n.name.v = (W)step.name;
    FL_STEP_NUMBERS(X)
#undef X
    return n;
}

#define REAL exact<W>
#define ROOT root_of
#define ABS size_of
#define FL_RULE(name)    \
    template<typename W> \
    __device__ static inline void rule_##name(exact<W>(&x)[GROUPS], const numbers<W> *n)
#define FL_NORM(name)    \
    template<typename W> \
    __device__ static inline void norm_##name(exact<W>(&value)[2], const exact<W>(&x)[GROUPS], const numbers<W> *n)
#define FL_TRUST(name)   \
    template<typename W> \
    __device__ static inline exact<W> trust_##name(exact<W> length, exact<W> change, const numbers<W> *n)
#include "core/op/optim_rules.inc"
#undef FL_RULE
#undef FL_NORM
#undef FL_TRUST

/* ---- steps: COUNT groups, of which the mask WRITES is changed. begin(sums) comes first; it is false when nothing is
** to be done; sums: two squares of the tensor, which a rule with a trust ratio has. ---- */

template<typename W, typename Trust>
__device__ static inline bool begin_with(numbers<W> &numbers, const void *sums, bool is_double, Trust trust)
{
    double length = is_double ? ((const double *)sums)[0] : (double)((const float *)sums)[0];
    double change = is_double ? ((const double *)sums)[1] : (double)((const float *)sums)[1];
    numbers.trust = trust(exact<W>((W)sqrt(length)), exact<W>((W)sqrt(change)), &numbers);
    return true;
}

/* Sets a rule's factors from the sums: trust_of<rule>::begin. */
template<int RULE>
struct trust_of {
    template<typename W>
    __device__ static bool begin(numbers<W> &, const void *, bool)
    {
        return true;
    }
};
#define X(name)                                                                                                \
    template<>                                                                                                 \
    struct trust_of<FL_RULE_##name> {                                                                          \
        template<typename W>                                                                                   \
        __device__ static bool begin(numbers<W> &n, const void *sums, bool is_double)                          \
        {                                                                                                      \
            return begin_with(n, sums, is_double, [](exact<W> length, exact<W> change, const numbers<W> *of) { \
                return trust_##name(length, change, of);                                                       \
            });                                                                                                \
        }                                                                                                      \
    };
FL_STEP_TRUSTED(X)
#undef X

#define X(name, groups, written, make, trust)                                                     \
    template<typename W>                                                                          \
    struct step_##name {                                                                          \
        enum { COUNT = groups, WRITES = written, TRUST = trust };                                 \
        fl_fresh<numbers<W>> fresh;                                                               \
        bool is_double; /* the sums */                                                            \
        __device__ bool begin(const void *sums)                                                   \
        {                                                                                         \
            fresh.value = fresh.get();                                                            \
            return trust_of<FL_RULE_##name>::begin(fresh.value, sums, is_double);                 \
        }                                                                                         \
        __device__ void operator()(exact<W> (&x)[GROUPS]) const { rule_##name(x, &fresh.value); } \
    };
FL_STEP_RULES(X)
#undef X

/* Gradients alone, by a factor from the norm. */
template<typename W>
struct clip_step {
    enum { COUNT = 1, WRITES = 1, TRUST = 0 };
    const void *norm;
    bool is_double;
    double most;
    W factor;
    __device__ bool begin(const void *)
    {
        double length = is_double ? *(const double *)norm : (double)*(const float *)norm, by = most / (length + 1e-6);
        factor = (W)by;
        return !(by >= 1);
    }
    __device__ void operator()(exact<W> (&x)[GROUPS]) const { x[0] = x[0] * exact<W>(factor); }
};

/* ---- tables ---- */

struct table {
    int count;
    uint32_t first[TENSORS]; /* blocks before this tensor's */
    int64_t numel[TENSORS];
    void *data[TENSORS][OPERANDS]; /* after the groups: the sums */
};

/* The tensor that a block belongs to. */
__device__ static int tensor_of(const table &table, uint32_t block)
{
    int low = 0, high = table.count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table.first[middle] <= block) low = middle;
        else high = middle;
    }
    return low;
}

/* ---- elementwise ---- */

template<typename T, int N, typename W>
__device__ static void load_pack(exact<W> (&x)[N][GROUPS], int group, const void *data, int64_t at)
{
    fl_pack<T, N> pack = *(const fl_pack<T, N> *)((const T *)data + at);
#pragma unroll
    for (int j = 0; j < N; j++) x[j][group].v = fl_load(pack.at[j]);
}

template<typename T, int N, typename W>
__device__ static void store_pack(void *data, int64_t at, const exact<W> (&x)[N][GROUPS], int group)
{
    fl_pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; j++) pack.at[j] = fl_store<T>(x[j][group].v);
    *(fl_pack<T, N> *)((T *)data + at) = pack;
}

/* N elements from `at` on. T: of p and g; S: of the states. */
template<typename T, typename S, int N, typename Step>
__device__ static void step_at(void *const *data, int64_t at, const Step &step)
{
    exact<typename fl_wide<T>::type> x[N][GROUPS];
#pragma unroll
    for (int g = 0; g < Step::COUNT; g++) {
        if (g < 2) load_pack<T, N>(x, g, data[g], at);
        else load_pack<S, N>(x, g, data[g], at);
    }
#pragma unroll
    for (int j = 0; j < N; j++) step(x[j]);
#pragma unroll
    for (int g = 0; g < Step::COUNT; g++) {
        if (!(Step::WRITES >> g & 1)) continue;
        if (g < 2) store_pack<T, N>(data[g], at, x, g);
        else store_pack<S, N>(data[g], at, x, g);
    }
}

template<typename T, typename S, typename Step>
__global__ void __launch_bounds__(THREADS) run_steps(const __grid_constant__ table t, Step step)
{
    enum { N = 16 / sizeof(T) };
    int i = tensor_of(t, blockIdx.x);
    if (!step.begin(t.data[i][GROUPS])) return;
    int64_t begin = (int64_t)(blockIdx.x - t.first[i]) * STRETCH,
            end = begin + STRETCH < t.numel[i] ? begin + STRETCH : t.numel[i], bulk = begin;
    void *data[GROUPS];
    uintptr_t bits = 0;
#pragma unroll
    for (int g = 0; g < Step::COUNT; g++) {
        data[g] = t.data[i][g];
        bits |= (uintptr_t)data[g];
    }
    if (bits % 16 == 0) bulk = end - (end - begin) % N;
    for (int64_t at = begin + threadIdx.x * N; at < bulk; at += THREADS * N) step_at<T, S, N>(data, at, step);
    for (int64_t at = bulk + threadIdx.x; at < end; at += THREADS) step_at<T, S, 1>(data, at, step);
}

/* ---- squares: a warp adds up one stretch as thirty-two sums side by side, as the CPU does; or counts
** what is infinite or NaN ---- */

template<typename T, bool NONFINITE>
__global__ void __launch_bounds__(THREADS)
    sum_squares(double *partial, const __grid_constant__ table t, uint32_t stretches)
{
    typedef typename fl_wide<T>::type W;
    uint32_t stretch = blockIdx.x * WARPS + threadIdx.x / 32;
    if (stretch >= stretches) return; /* a whole warp */
    int i = tensor_of(t, stretch), lane = threadIdx.x % 32;
    int64_t begin = (int64_t)(stretch - t.first[i]) * SUM_STRETCH,
            end = begin + SUM_STRETCH < t.numel[i] ? begin + SUM_STRETCH : t.numel[i];
    const T *x = (const T *)t.data[i][0];
    W sum = 0;
#pragma unroll 8
    for (int64_t at = begin + lane; at < end; at += 32) {
        W value = fl_load(x[at]);
        sum = add(sum, NONFINITE ? (W)(sub(value, value) != 0) : mul(value, value));
    }
    for (int half = 16; half > 0; half /= 2) sum = add(sum, __shfl_down_sync(0xffffffffu, sum, half));
    if (lane == 0) partial[stretch] = (double)sum;
}

/* One block: all partial sums in an order that depends on their number alone. */
template<typename T>
__global__ void __launch_bounds__(THREADS) sum_partial(T *out, const double *partial, int64_t count)
{
    __shared__ double sums[THREADS];
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < count; i += THREADS) sum += partial[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = (T)sums[0];
}

/* ---- operands ---- */

/* The tensors at one position of the lists, as they are read: T of p and g, S of the states. */
struct member {
    fl_cuda_array *arrays[GROUPS]; /* owned; NULL: the operand itself */
    void *data[OPERANDS];
    int64_t numel;
    fl_dtype dtype, state;
};

struct pack {
    fl_kernel *kernel;
    int members, groups;
    bool sums;    /* a list of them follows the groups; of contiguous pairs */
    member *list; /* owned */
};

static fl_view *operand(const pack *pack, int index, int group)
{
    return &pack->kernel->in[group * pack->members + index];
}

static void close_pack(pack *pack)
{
    for (int i = 0; i < pack->members; i++)
        for (int g = 0; g < GROUPS; g++) {
            if (!pack->list[i].arrays[g]) continue;
            fl_cuda_array_close(pack->list[i].arrays[g]);
            free(pack->list[i].arrays[g]);
        }
    free(pack->list);
}

/* True if the kernels can read the operands of this member in their own dtypes. */
static bool is_plain(const pack *pack, int index)
{
    fl_dtype dtype = operand(pack, index, 0)->dtype, state = pack->groups > 2 ? operand(pack, index, 2)->dtype : dtype;
    bool plain = state == dtype || state == fl_dtype_compute(dtype);
    for (int g = 0; g < pack->groups; g++) plain &= operand(pack, index, g)->dtype == (g < 2 ? dtype : state);
    return plain;
}

static fl_status open_operand(pack *pack, int index, int group, fl_dtype dtype)
{
    const fl_view *v = operand(pack, index, group);
    member *m = &pack->list[index];
    m->data[group] = v->data;
    if (v->numel == 0 || (v->contiguous && v->dtype == dtype)) return FL_OK;
    fl_cuda_array *array = (fl_cuda_array *)malloc(sizeof *array);
    if (!array) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", pack->kernel->name);
    fl_status status = fl_cuda_array_open(array, v, dtype);
    if (status != FL_OK) {
        free(array);
        return status;
    }
    m->arrays[group] = array;
    m->data[group] = array->view.data;
    return FL_OK;
}

static fl_status open_member(pack *pack, int index)
{
    member *m = &pack->list[index];
    bool plain = is_plain(pack, index);
    fl_dtype dtype = operand(pack, index, 0)->dtype;
    m->numel = operand(pack, index, 0)->numel;
    m->dtype = plain ? dtype : fl_dtype_compute(dtype);
    m->state = plain && pack->groups > 2 ? operand(pack, index, 2)->dtype : m->dtype;
    for (int g = 0; g < pack->groups; g++) FL_TRY(open_operand(pack, index, g, g < 2 ? m->dtype : m->state));
    if (pack->sums) m->data[GROUPS] = operand(pack, index, pack->groups)->data;
    return FL_OK;
}

static fl_status open_pack(pack *pack, fl_kernel *kernel, int members, int groups, bool sums)
{
    pack->kernel = kernel;
    pack->sums = sums;
    pack->members = members;
    pack->groups = groups;
    pack->list = (member *)calloc((size_t)members, sizeof *pack->list);
    if (!pack->list) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d tensors", kernel->name, members);
    fl_status status = FL_OK;
    for (int i = 0; i < members && status == FL_OK; i++) status = open_member(pack, i);
    if (status != FL_OK) close_pack(pack);
    return status;
}

static fl_status write_back(const pack *pack, unsigned written)
{
    for (int i = 0; i < pack->members; i++)
        for (int g = 0; g < pack->groups; g++)
            if (pack->list[i].arrays[g] && (written >> g & 1u))
                FL_TRY(fl_cuda_array_store(operand(pack, i, g), pack->list[i].arrays[g]));
    return FL_OK;
}

/* Calls launch(table, blocks) for the members of these dtypes, TENSORS at a time, cut into stretches. */
template<typename F>
static void each_table(const pack *pack, fl_dtype dtype, fl_dtype state, int64_t stretch, F &&launch)
{
    table t;
    uint32_t blocks = 0;
    t.count = 0;
    for (int i = 0; i < pack->members; i++) {
        const member *m = &pack->list[i];
        if (m->dtype != dtype || m->state != state || m->numel == 0) continue;
        t.first[t.count] = blocks;
        t.numel[t.count] = m->numel;
        memcpy(t.data[t.count++], m->data, sizeof m->data);
        blocks += (uint32_t)((m->numel + stretch - 1) / stretch);
        if (t.count < TENSORS) continue;
        launch(t, blocks);
        t.count = 0;
        blocks = 0;
    }
    if (t.count) launch(t, blocks);
}

/* Calls run(T, S) for every pair of dtypes that a pack may have. */
template<typename F>
static void each_pair(F &&run)
{
    run(0.0f, 0.0f, FL_FLOAT32, FL_FLOAT32);
    run(0.0, 0.0, FL_FLOAT64, FL_FLOAT64);
    run(__half(), __half(), FL_FLOAT16, FL_FLOAT16);
    run(__half(), 0.0f, FL_FLOAT16, FL_FLOAT32);
    run(__nv_bfloat16(), __nv_bfloat16(), FL_BFLOAT16, FL_BFLOAT16);
    run(__nv_bfloat16(), 0.0f, FL_BFLOAT16, FL_FLOAT32);
}

/* make(W): the step in the type that arithmetic is done in. */
template<typename F>
static fl_status run_pack(fl_kernel *kernel, int members, int groups, bool sums, unsigned written, F &&make)
{
    pack p;
    FL_TRY(open_pack(&p, kernel, members, groups, sums));
    each_pair([&](auto t_like, auto s_like, fl_dtype dtype, fl_dtype state) {
        typedef decltype(t_like) T;
        typedef decltype(s_like) S;
        auto step = make((typename fl_wide<T>::type)0);
        each_table(&p, dtype, state, STRETCH, [&](const table &table, uint32_t blocks) {
            FL_LAUNCH((run_steps<T, S, decltype(step)>), blocks, THREADS, 0, table, step);
        });
    });
    fl_status status = write_back(&p, written);
    close_pack(&p);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

/* ---- the ops ---- */

template<typename W, fl_step_rule RULE>
static void fill_numbers(void *out, const fl_kernel *kernel)
{
    *(numbers<W> *)out = numbers_of<W>(fl_step_of(RULE, kernel->attrs->at));
}

template<template<typename> class Step, fl_step_rule RULE>
static fl_status launch_step(fl_kernel *kernel)
{
    enum { COUNT = Step<float>::COUNT, TRUST = Step<float>::TRUST, WRITES = Step<float>::WRITES };
    const int members = kernel->nin / (COUNT + TRUST);
    const bool is_double = TRUST && members && kernel->in[COUNT * members].dtype == FL_FLOAT64;
    return run_pack(kernel, members, COUNT, TRUST, WRITES, [&](auto like) {
        typedef decltype(like) W;
        static_assert(sizeof(table) + sizeof(Step<W>) <= 4096, "more than a kernel's parameters may be");
        Step<W> step;
        step.fresh = fl_cuda_fresh<numbers<W>>(fill_numbers<W, RULE>, kernel);
        step.is_double = is_double;
        return step;
    });
}

#define X(name, groups, written, make, trust)                                                                      \
    static fl_status launch_##name(fl_kernel *kernel) { return launch_step<step_##name, FL_RULE_##name>(kernel); } \
    FL_CUDA_OP(name, launch_##name);
FL_STEP_RULES(X)
#undef X

/* ---- clipping by the total norm ---- */

static int64_t stretches_of(const pack *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->members; i++) n += (p->list[i].numel + SUM_STRETCH - 1) / SUM_STRETCH;
    return n;
}

template<bool NONFINITE>
static void launch_sums(const pack *pack, double *partial)
{
    each_pair([&](auto like, auto, fl_dtype dtype, fl_dtype state) {
        typedef decltype(like) T;
        if (state != dtype) return;
        each_table(pack, dtype, state, SUM_STRETCH, [&](const table &table, uint32_t stretches) {
            FL_LAUNCH((sum_squares<T, NONFINITE>), fl_blocks(stretches, WARPS), THREADS, 0, partial, table, stretches);
            partial += stretches;
        });
    });
}

template<bool NONFINITE>
static fl_status launch_total(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    void *partial = NULL;
    pack p;
    FL_TRY(open_pack(&p, kernel, kernel->nin, 1, false));
    int64_t stretches = stretches_of(&p);
    fl_status status = fl_cuda_malloc(&partial, sizeof(double) * (size_t)(stretches + 1));
    if (status == FL_OK) {
        launch_sums<NONFINITE>(&p, (double *)partial);
        if (out->dtype == FL_FLOAT64)
            FL_LAUNCH((sum_partial<double>), 1, THREADS, 0, (double *)out->data, (const double *)partial, stretches);
        else FL_LAUNCH((sum_partial<float>), 1, THREADS, 0, (float *)out->data, (const double *)partial, stretches);
        fl_cuda_free(partial);
    }
    close_pack(&p);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

/* xs: the gradients, then for each of them the same 0-d norm. */
static fl_status launch_clip(fl_kernel *kernel)
{
    int members = kernel->nin / FL_CLIP_GROUPS;
    const fl_view *norm = &kernel->in[members];
    double most = kernel->attrs->at[FL_CLIP_MAX_NORM].number;
    return run_pack(kernel, members, 1, false, 1u << FL_CLIP_GRADIENTS, [&](auto like) {
        return clip_step<decltype(like)>{norm->data, norm->dtype == FL_FLOAT64, most, 1};
    });
}

static fl_status launch_squares(fl_kernel *kernel) { return launch_total<false>(kernel); }
static fl_status launch_nonfinite(fl_kernel *kernel) { return launch_total<true>(kernel); }

FL_CUDA_OP(grad_norm_squares, launch_squares);
FL_CUDA_OP(grad_nonfinite, launch_nonfinite);
FL_CUDA_OP(clip_scale_, launch_clip);

/* ---- norms of each parameter and its update ---- */

#define X(name, groups, make)                                                                             \
    struct values_##name {                                                                                \
        enum { COUNT = groups };                                                                          \
        template<typename W>                                                                              \
        __device__ static void of(exact<W> (&value)[2], const exact<W> (&x)[GROUPS], const numbers<W> *n) \
        {                                                                                                 \
            norm_##name(value, x, n);                                                                     \
        }                                                                                                 \
    };
FL_STEP_NORMS(X)
#undef X

/* A warp adds up the squares of one stretch: two sums. */
template<typename Values, typename T, typename S, typename W>
__global__ void __launch_bounds__(THREADS)
    sum_norms(double *partial, const __grid_constant__ table t, uint32_t stretches, numbers<W> n)
{
    uint32_t stretch = blockIdx.x * WARPS + threadIdx.x / 32;
    if (stretch >= stretches) return; /* a whole warp */
    int i = tensor_of(t, stretch), lane = threadIdx.x % 32;
    int64_t begin = (int64_t)(stretch - t.first[i]) * SUM_STRETCH,
            end = begin + SUM_STRETCH < t.numel[i] ? begin + SUM_STRETCH : t.numel[i];
    W sums[2] = {0, 0};
    for (int64_t at = begin + lane; at < end; at += 32) {
        exact<W> x[GROUPS], value[2];
        x[0].v = fl_load(((const T *)t.data[i][0])[at]);
        x[1].v = fl_load(((const T *)t.data[i][1])[at]);
#pragma unroll
        for (int g = 2; g < Values::COUNT; g++) x[g].v = fl_load(((const S *)t.data[i][g])[at]);
        Values::of(value, x, &n);
        for (int k = 0; k < 2; k++) sums[k] = add(sums[k], mul(value[k].v, value[k].v));
    }
    for (int half = 16; half > 0; half /= 2)
        for (int k = 0; k < 2; k++) sums[k] = add(sums[k], __shfl_down_sync(0xffffffffu, sums[k], half));
    for (int k = 0; lane == 0 && k < 2; k++) partial[2 * (int64_t)stretch + k] = (double)sums[k];
}

/* The sums of the tensors of a table, in the order of their stretches. out: of the first of them; where: positions. */
struct places {
    int at[TENSORS];
};
template<typename T>
__global__ void __launch_bounds__(THREADS)
    add_norms(T *out, const double *partial, const __grid_constant__ table t, const __grid_constant__ places where)
{
    int i = (int)threadIdx.x / 2, k = (int)threadIdx.x % 2;
    if (i >= t.count) return;
    int64_t count = (t.numel[i] + SUM_STRETCH - 1) / SUM_STRETCH;
    double sum = 0;
    for (int64_t s = 0; s < count; s++) sum += partial[2 * (t.first[i] + s) + k];
    out[2 * where.at[i] + k] = (T)sum;
}

/* The indices of a table's members among all: each_table takes them in order. */
static places places_of(const pack *pack, const table &table)
{
    places where;
    int at = 0;
    for (int i = 0; i < table.count; i++) {
        while (pack->list[at].numel == 0 || pack->list[at].data[0] != table.data[i][0]
               || pack->list[at].data[1] != table.data[i][1])
            at++;
        where.at[i] = at++;
    }
    return where;
}

template<typename Values, typename Out>
static void launch_sums_of(const pack *pack, double *partial, Out *out, const fl_step &values)
{
    each_pair([&](auto t_like, auto s_like, fl_dtype dtype, fl_dtype state) {
        typedef decltype(t_like) T;
        typedef decltype(s_like) S;
        typedef typename fl_wide<T>::type W;
        const numbers<W> n = numbers_of<W>(values);
        each_table(pack, dtype, state, SUM_STRETCH, [&](const table &table, uint32_t stretches) {
            FL_LAUNCH((sum_norms<Values, T, S, W>), fl_blocks(stretches, WARPS), THREADS, 0, partial, table, stretches,
                      n);
            FL_LAUNCH((add_norms<Out>), 1, THREADS, 0, out, partial, table, places_of(pack, table));
        });
    });
}

template<typename Values>
static fl_status launch_norms(fl_kernel *kernel, const fl_step &values)
{
    const fl_view *out = &kernel->out[0];
    void *partial = NULL;
    pack p;
    FL_TRY(open_pack(&p, kernel, kernel->nin / Values::COUNT, Values::COUNT, false));
    fl_status status = fl_cuda_malloc(&partial, sizeof(double) * (size_t)(2 * stretches_of(&p) + 1));
    const double zero = 0;
    if (status == FL_OK) status = fl_cuda_fill_view(out, &zero);
    if (status == FL_OK) {
        if (out->dtype == FL_FLOAT64) launch_sums_of<Values>(&p, (double *)partial, (double *)out->data, values);
        else launch_sums_of<Values>(&p, (double *)partial, (float *)out->data, values);
    }
    if (partial) fl_cuda_free(partial);
    close_pack(&p);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

#define X(name, groups, make)                                                                           \
    static fl_status launch_##name(fl_kernel *kernel)                                                   \
    {                                                                                                   \
        return launch_norms<values_##name>(kernel, fl_step_of_norm(FL_NORM_##name, kernel->attrs->at)); \
    }                                                                                                   \
    FL_CUDA_OP(name, launch_##name);
FL_STEP_NORMS(X)
#undef X

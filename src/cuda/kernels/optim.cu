/*
** optim.cu -- optimizer steps over all parameters in few launches, and gradient clipping.
**
** Tables of up to TENSORS tensors travel as a kernel's parameters. A block does one stretch of one tensor and finds it
** by bisection. Each element is computed alone by correctly rounded operations in the order of cpu/optim.inc, so steps
** equal the CPU's bit for bit. Tensors with a float16 or bfloat16 parameter and gradient are read and written as they
** are, states in float32 or the same dtype; operands in any other combination, or not contiguous, go through copies.
*/
#include "arrays.h"
#include "core/op/optim.h"
#include "cuda/parts/convert.h"
#include "index.h"

#include <math.h>
#include <stdlib.h>

enum { THREADS = 256, TENSORS = 64, GROUPS = 4, STRETCH = 4096, SUM_STRETCH = 8192, WARPS = THREADS / 32 };

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

/* ---- steps: p, g and the states of one element; COUNT groups, of which the mask WRITES is changed. begin() is
** false when nothing is to be done. ---- */

template<typename W>
struct adam_step {
    enum { COUNT = 4, WRITES = 13 };
    W sign, decay, shrink, beta1, beta2, rest1, rest2, rate, root, eps;
    __device__ bool begin() { return true; }
    __device__ void operator()(W (&x)[GROUPS]) const
    {
        W gradient = add(mul(sign, x[1]), mul(decay, x[0]));
        x[2] = add(mul(beta1, x[2]), mul(rest1, gradient));
        x[3] = add(mul(beta2, x[3]), mul(rest2, mul(gradient, gradient)));
        x[0] = sub(mul(shrink, x[0]), mul(rate, quotient(x[2], add(mul(root_of(x[3]), root), eps))));
    }
};

template<typename W>
struct sgd_step {
    enum { COUNT = 2, WRITES = 1 };
    W sign, decay, rate;
    __device__ bool begin() { return true; }
    __device__ void operator()(W (&x)[GROUPS]) const
    {
        x[0] = sub(x[0], mul(rate, add(mul(sign, x[1]), mul(decay, x[0]))));
    }
};

template<typename W>
struct momentum_step {
    enum { COUNT = 3, WRITES = 5 };
    W sign, decay, rate, momentum, damping, ahead, along;
    bool first; /* the buffers' contents do not count yet */
    __device__ bool begin() { return true; }
    __device__ void operator()(W (&x)[GROUPS]) const
    {
        W gradient = add(mul(sign, x[1]), mul(decay, x[0]));
        x[2] = add(mul(momentum, first ? (W)0 : x[2]), mul(damping, gradient));
        x[0] = sub(x[0], mul(rate, add(mul(ahead, gradient), mul(along, x[2]))));
    }
};

/* Gradients alone, by a factor from the norm. */
template<typename W>
struct clip_step {
    enum { COUNT = 1, WRITES = 1 };
    const void *norm;
    bool is_double;
    double most;
    W factor;
    __device__ bool begin()
    {
        double length = is_double ? *(const double *)norm : (double)*(const float *)norm, by = most / (length + 1e-6);
        factor = (W)by;
        return !(by >= 1);
    }
    __device__ void operator()(W (&x)[GROUPS]) const { x[0] = mul(x[0], factor); }
};

/* ---- tables ---- */

typedef struct table {
    int count;
    uint32_t first[TENSORS]; /* blocks before this tensor's */
    int64_t numel[TENSORS];
    void *data[TENSORS][GROUPS];
} table;

/* The tensor that a block belongs to. */
__device__ static int tensor_of(const table &t, uint32_t block)
{
    int low = 0, high = t.count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (t.first[middle] <= block) low = middle;
        else high = middle;
    }
    return low;
}

/* ---- elementwise ---- */

template<typename T, int N, typename W>
__device__ static void load_pack(W (&x)[N][GROUPS], int group, const void *data, int64_t at)
{
    fl_pack<T, N> pack = *(const fl_pack<T, N> *)((const T *)data + at);
#pragma unroll
    for (int j = 0; j < N; j++) x[j][group] = fl_load(pack.at[j]);
}

template<typename T, int N, typename W>
__device__ static void store_pack(void *data, int64_t at, const W (&x)[N][GROUPS], int group)
{
    fl_pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; j++) pack.at[j] = fl_store<T>(x[j][group]);
    *(fl_pack<T, N> *)((T *)data + at) = pack;
}

/* N elements from `at` on. T: of p and g; S: of the states. */
template<typename T, typename S, int N, typename Step>
__device__ static void step_at(void *const *data, int64_t at, const Step &step)
{
    typename fl_wide<T>::type x[N][GROUPS];
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
    if (!step.begin()) return;
    int i = tensor_of(t, blockIdx.x);
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

/* ---- squares: a warp adds up one stretch as thirty-two sums side by side, as the CPU does ---- */

template<typename T>
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
        sum = add(sum, mul(value, value));
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

/* How the tensors at one position of the lists are read: T of p and g, S of the states. */
typedef struct member {
    fl_cuda_array *arrays[GROUPS]; /* owned; NULL: the operand itself */
    void *data[GROUPS];
    int64_t numel;
    fl_dtype dtype, state;
} member;

typedef struct pack {
    fl_kernel *kernel;
    int members, groups;
    member *list; /* owned */
} pack;

static fl_view *operand(const pack *p, int index, int group) { return &p->kernel->in[group * p->members + index]; }

static void close_pack(pack *p)
{
    for (int i = 0; i < p->members; i++)
        for (int g = 0; g < GROUPS; g++) {
            if (!p->list[i].arrays[g]) continue;
            fl_cuda_array_close(p->list[i].arrays[g]);
            free(p->list[i].arrays[g]);
        }
    free(p->list);
}

/* True if the kernels can read the operands of this member in their own dtypes. */
static bool is_plain(const pack *p, int index)
{
    fl_dtype dtype = operand(p, index, 0)->dtype, state = p->groups > 2 ? operand(p, index, 2)->dtype : dtype;
    bool plain = state == dtype || state == fl_dtype_compute(dtype);
    for (int g = 0; g < p->groups; g++) plain &= operand(p, index, g)->dtype == (g < 2 ? dtype : state);
    return plain;
}

static fl_status open_operand(pack *p, int index, int group, fl_dtype dtype)
{
    const fl_view *v = operand(p, index, group);
    member *m = &p->list[index];
    m->data[group] = v->data;
    if (v->numel == 0 || (v->contiguous && v->dtype == dtype)) return FL_OK;
    fl_cuda_array *array = (fl_cuda_array *)malloc(sizeof *array);
    if (!array) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", p->kernel->op->name);
    fl_status status = fl_cuda_array_open(array, v, dtype);
    if (status != FL_OK) {
        free(array);
        return status;
    }
    m->arrays[group] = array;
    m->data[group] = array->view.data;
    return FL_OK;
}

static fl_status open_member(pack *p, int index)
{
    member *m = &p->list[index];
    bool plain = is_plain(p, index);
    fl_dtype dtype = operand(p, index, 0)->dtype;
    m->numel = operand(p, index, 0)->numel;
    m->dtype = plain ? dtype : fl_dtype_compute(dtype);
    m->state = plain && p->groups > 2 ? operand(p, index, 2)->dtype : m->dtype;
    for (int g = 0; g < p->groups; g++) FL_TRY(open_operand(p, index, g, g < 2 ? m->dtype : m->state));
    return FL_OK;
}

static fl_status open_pack(pack *p, fl_kernel *kernel, int members, int groups)
{
    p->kernel = kernel;
    p->members = members;
    p->groups = groups;
    p->list = (member *)calloc((size_t)members, sizeof *p->list);
    if (!p->list) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d tensors", kernel->op->name, members);
    fl_status status = FL_OK;
    for (int i = 0; i < members && status == FL_OK; i++) status = open_member(p, i);
    if (status != FL_OK) close_pack(p);
    return status;
}

static fl_status write_back(const pack *p, unsigned written)
{
    for (int i = 0; i < p->members; i++)
        for (int g = 0; g < p->groups; g++)
            if (p->list[i].arrays[g] && (written >> g & 1u))
                FL_TRY(fl_cuda_array_store(operand(p, i, g), p->list[i].arrays[g]));
    return FL_OK;
}

/* Calls launch(table, blocks) for the members of these dtypes, TENSORS at a time, cut into stretches. */
template<typename F>
static void each_table(const pack *p, fl_dtype dtype, fl_dtype state, int64_t stretch, F &&launch)
{
    table t;
    uint32_t blocks = 0;
    t.count = 0;
    for (int i = 0; i < p->members; i++) {
        const member *m = &p->list[i];
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
static fl_status run_pack(fl_kernel *kernel, int members, int groups, unsigned written, F &&make)
{
    pack p;
    FL_TRY(open_pack(&p, kernel, members, groups));
    each_pair([&](auto t_like, auto s_like, fl_dtype dtype, fl_dtype state) {
        typedef decltype(t_like) T;
        typedef decltype(s_like) S;
        auto step = make((typename fl_wide<T>::type)0);
        each_table(&p, dtype, state, STRETCH, [&](const table &t, uint32_t blocks) {
            FL_LAUNCH((run_steps<T, S, decltype(step)>), blocks, THREADS, 0, t, step);
        });
    });
    fl_status status = write_back(&p, written);
    close_pack(&p);
    FL_TRY(status);
    return fl_cuda_check(kernel->op->name);
}

/* ---- the ops ---- */

static fl_status launch_adamw(fl_kernel *kernel)
{
    const fl_attr *a = kernel->attrs->at;
    double lr = a[FL_ADAM_LR].number, beta1 = a[FL_ADAM_BETA1].number, beta2 = a[FL_ADAM_BETA2].number,
           decay = a[FL_ADAM_DECAY].number, step = (double)a[FL_ADAM_STEP].integer;
    bool decoupled = a[FL_ADAM_DECOUPLED].integer;
    double sign = a[FL_ADAM_MAXIMIZE].integer ? -1 : 1, shrink = decoupled ? 1 - lr * decay : 1,
           rate = lr / (1 - pow(beta1, step)), root = 1 / sqrt(1 - pow(beta2, step));
    return run_pack(kernel, kernel->nin / FL_ADAM_GROUPS, FL_ADAM_GROUPS, kernel->op->mutates, [&](auto like) {
        typedef decltype(like) W;
        return adam_step<W>{
            (W)sign, (W)(decoupled ? 0 : decay), (W)shrink, (W)beta1, (W)beta2, (W)(1 - beta1), (W)(1 - beta2), (W)rate,
            (W)root, (W)a[FL_ADAM_EPS].number};
    });
}

static fl_status launch_sgd(fl_kernel *kernel)
{
    const fl_attr *a = kernel->attrs->at;
    return run_pack(kernel, kernel->nin / FL_PLAIN_GROUPS, FL_PLAIN_GROUPS, kernel->op->mutates, [&](auto like) {
        typedef decltype(like) W;
        return sgd_step<W>{(W)(a[FL_PLAIN_MAXIMIZE].integer ? -1 : 1), (W)a[FL_PLAIN_DECAY].number,
                           (W)a[FL_PLAIN_LR].number};
    });
}

static fl_status launch_momentum(fl_kernel *kernel)
{
    const fl_attr *a = kernel->attrs->at;
    bool nesterov = a[FL_SGD_NESTEROV].integer, first = a[FL_SGD_FIRST].integer;
    return run_pack(kernel, kernel->nin / FL_SGD_GROUPS, FL_SGD_GROUPS, kernel->op->mutates, [&](auto like) {
        typedef decltype(like) W;
        W momentum = (W)a[FL_SGD_MOMENTUM].number, damping = (W)(first ? 1 : 1 - a[FL_SGD_DAMPENING].number);
        return momentum_step<W>{(W)(a[FL_SGD_MAXIMIZE].integer ? -1 : 1),
                                (W)a[FL_SGD_DECAY].number,
                                (W)a[FL_SGD_LR].number,
                                momentum,
                                damping,
                                (W)(nesterov ? 1 : 0),
                                nesterov ? momentum : (W)1,
                                first};
    });
}

FL_CUDA_OP(adamw_step, launch_adamw);
FL_CUDA_OP(sgd_plain_step, launch_sgd);
FL_CUDA_OP(sgd_step, launch_momentum);

/* ---- clipping by the total norm ---- */

static int64_t stretches_of(const pack *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->members; i++) n += (p->list[i].numel + SUM_STRETCH - 1) / SUM_STRETCH;
    return n;
}

static void launch_sums(const pack *p, double *partial)
{
    each_pair([&](auto like, auto, fl_dtype dtype, fl_dtype state) {
        typedef decltype(like) T;
        if (state != dtype) return;
        each_table(p, dtype, state, SUM_STRETCH, [&](const table &t, uint32_t stretches) {
            FL_LAUNCH((sum_squares<T>), fl_blocks(stretches, WARPS), THREADS, 0, partial, t, stretches);
            partial += stretches;
        });
    });
}

static fl_status launch_squares(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    void *partial = NULL;
    pack p;
    FL_TRY(open_pack(&p, kernel, kernel->nin, 1));
    int64_t stretches = stretches_of(&p);
    fl_status status = fl_cuda_malloc(&partial, sizeof(double) * (size_t)(stretches + 1));
    if (status == FL_OK) {
        launch_sums(&p, (double *)partial);
        if (out->dtype == FL_FLOAT64)
            FL_LAUNCH((sum_partial<double>), 1, THREADS, 0, (double *)out->data, (const double *)partial, stretches);
        else FL_LAUNCH((sum_partial<float>), 1, THREADS, 0, (float *)out->data, (const double *)partial, stretches);
        fl_cuda_free(partial);
    }
    close_pack(&p);
    FL_TRY(status);
    return fl_cuda_check(kernel->op->name);
}

/* xs: the gradients, then for each of them the same 0-d norm. */
static fl_status launch_clip(fl_kernel *kernel)
{
    int members = kernel->nin / FL_CLIP_GROUPS;
    const fl_view *norm = &kernel->in[members];
    double most = kernel->attrs->at[FL_CLIP_MAX_NORM].number;
    return run_pack(kernel, members, 1, 1u << FL_CLIP_GRADIENTS, [&](auto like) {
        return clip_step<decltype(like)>{norm->data, norm->dtype == FL_FLOAT64, most, 1};
    });
}

FL_CUDA_OP(grad_norm_squares, launch_squares);
FL_CUDA_OP(clip_scale_, launch_clip);

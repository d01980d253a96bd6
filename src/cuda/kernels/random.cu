/*
** random.cu -- random ops: Philox4x32-10 keyed by seed, op counter and logical index, as core/random.h has it.
**
** A thread makes one block of four words and what becomes of them, so elements that lie in one block are neighbours in
** memory and are stored as one vector where that fits. Floats are made by the operations of cpu/random.lv.c, correctly
** rounded one by one and fused where they are fused there, so they equal the CPU's bit for bit. cuRAND's Philox gives
** the same words.
*/
#include "core/op/random.h"
#include "arrays.h"
#include "cuda/parts/convert.h"
#include "copies.h"
#include "cuda/parts/fresh.h"
#include "index.h"
#include "cuda/parts/philox.h"
#include "sort.h"

#include <stdio.h>

enum { THREADS = 256 };

struct random_key {
    uint64_t seed, counter;
};

/* ---- arithmetic that is never contracted ---- */

__device__ static inline float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ static inline float add(float a, float b) { return __fadd_rn(a, b); }
__device__ static inline double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ static inline double add(double a, double b) { return __dadd_rn(a, b); }

/* ---- normals ---- */

/* Natural logarithm of a normal float in (0, 1]; polynomial of Cephes' logf. */
__device__ static float logarithm(float u)
{
    uint32_t bits = __float_as_uint(u) + (0x3f800000u - 0x3f3504f3u);
    float exponent = (float)((int)(bits >> 23) - 127);
    float f = add(__uint_as_float((bits & 0x7fffffu) + 0x3f3504f3u), -1.0f), z = mul(f, f);
    float p = 7.0376836292e-2f;
    p = __fmaf_rn(p, f, -1.1514610310e-1f);
    p = __fmaf_rn(p, f, 1.1676998740e-1f);
    p = __fmaf_rn(p, f, -1.2420140846e-1f);
    p = __fmaf_rn(p, f, 1.4249322787e-1f);
    p = __fmaf_rn(p, f, -1.6668057665e-1f);
    p = __fmaf_rn(p, f, 2.0000714765e-1f);
    p = __fmaf_rn(p, f, -2.4999993993e-1f);
    p = __fmaf_rn(p, f, 3.3333331174e-1f);
    p = add(__fmaf_rn(z, -0.5f, mul(mul(p, z), f)), f);
    return __fmaf_rn(exponent, 0.69314718056f, p);
}

/* Cosine and sine of 2 pi times the word's highest 24 bits as a fraction. */
__device__ static void circle(float *cosine, float *sine, uint32_t word)
{
    uint32_t turn = word >> 8, quarter = (turn + (1u << 21)) >> 22;
    float x = mul((float)(int)(turn - (quarter << 22)), 3.74507028e-7f), z = mul(x, x); /* 2 pi / 2^24 */
    float s = __fmaf_rn(__fmaf_rn(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f);
    float c = __fmaf_rn(__fmaf_rn(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f);
    s = __fmaf_rn(mul(s, z), x, x);
    c = __fmaf_rn(mul(c, z), z, __fmaf_rn(z, -0.5f, 1.0f));
    bool odd = quarter & 1;
    *sine = __uint_as_float(__float_as_uint(odd ? c : s) ^ (quarter & 2) << 30);
    *cosine = __uint_as_float(__float_as_uint(odd ? s : c) ^ ((quarter + 1) & 2) << 30);
}

__device__ static void normal_pair(float *a, float *b, uint32_t word_a, uint32_t word_b)
{
    float cosine, sine, u = mul((float)(int)((word_a >> 8) + 1), 5.9604644775390625e-8f); /* 2^-24 */
    float radius = __fsqrt_rn(mul(-2.0f, logarithm(u)));
    circle(&cosine, &sine, word_b);
    *a = mul(radius, cosine);
    *b = mul(radius, sine);
}

/* ---- recipes: the elements made of a block. MADE elements, none of them picked by a number that is known only at run
** time, which would put them into memory; `at` is the local number of the first, those from low to high - 1 are
** written. ---- */

struct made_words {
    typedef uint32_t type;
    enum { MADE = 4 };
    __device__ void operator()(uint32_t *out, const uint32_t *word, int64_t, int, int) const
    {
        for (int j = 0; j < MADE; j++) out[j] = word[j];
    }
};

/* W: float, or double for float64 results, which hold float32's numbers, moved and stretched in double precision. */
template<typename W>
struct made_uniforms {
    typedef W type;
    enum { MADE = 4 };
    int shift;
    float scale;
    W low, range;
    __device__ void operator()(W *out, const uint32_t *word, int64_t, int, int) const
    {
        for (int j = 0; j < MADE; j++) out[j] = add(mul((W)mul((float)(int)(word[j] >> shift), scale), range), low);
    }
};

template<typename W>
struct made_normals {
    typedef W type;
    enum { MADE = 4 };
    W low, range;
    __device__ void operator()(W *out, const uint32_t *word, int64_t, int, int) const
    {
        float z[MADE];
        normal_pair(&z[0], &z[1], word[0], word[1]);
        normal_pair(&z[2], &z[3], word[2], word[3]);
        for (int j = 0; j < MADE; j++) out[j] = add(mul((W)z[j], range), low);
    }
};

/* The high half of word times span. */
struct made_integers {
    typedef int64_t type;
    enum { MADE = 4 };
    int64_t base;
    uint64_t span;
    __device__ void operator()(int64_t *out, const uint32_t *word, int64_t, int, int) const
    {
        for (int j = 0; j < MADE; j++) out[j] = (int64_t)((uint64_t)base + ((uint64_t)word[j] * span >> 32));
    }
};

/* Spans above 2^32: element i has words 2i and 2i + 1. */
struct made_long_integers {
    typedef int64_t type;
    enum { MADE = 2 };
    int64_t base;
    uint64_t span;
    __device__ void operator()(int64_t *out, const uint32_t *word, int64_t, int, int) const
    {
        for (int j = 0; j < MADE; j++) {
            uint64_t bits = word[2 * j] | (uint64_t)word[2 * j + 1] << 32;
            out[j] = (int64_t)((uint64_t)base + __umul64hi(bits, span));
        }
    }
};

template<typename T>
struct made_bernoulli {
    typedef float type;
    enum { MADE = 4 };
    const T *probability;
    fl_cuda_fault *fault;
    __device__ void operator()(float *out, const uint32_t *word, int64_t at, int low, int high) const
    {
#pragma unroll
        for (int j = 0; j < MADE; j++) {
            out[j] = 0;
            if (j < low || j >= high) continue;
            double p = (double)fl_load(probability[at + j]);
            if (!(p >= 0 && p <= 1)) fl_cuda_report(fault, at + j, __double_as_longlong(p));
            out[j] = (double)(word[j] >> 8) * 5.9604644775390625e-8 < p ? 1.0f : 0.0f;
        }
    }
};

template<typename T>
struct made_dropout {
    typedef typename fl_wide<T>::type type;
    enum { MADE = 4 };
    const T *in;
    type scale;
    uint32_t threshold;
    __device__ void operator()(type *out, const uint32_t *word, int64_t at, int low, int high) const
    {
        fl_pack<T, MADE> x = {};
        if (high - low == MADE && (uintptr_t)(in + at) % sizeof x == 0) x = *(const fl_pack<T, MADE> *)(in + at);
        else
#pragma unroll
            for (int j = 0; j < MADE; j++)
                if (j >= low && j < high) x.at[j] = in[at + j];
        for (int j = 0; j < MADE; j++)
            out[j] = word[j] >> 8 >= threshold ? mul((type)fl_load(x.at[j]), scale) : (type)0;
    }
};

/* ---- drawing a part ---- */

/* A part as runs of neighbouring logical elements. */
struct runs {
    int outer;           /* axes before the run's */
    int64_t run, blocks; /* elements of a run, blocks that it can touch */
    int64_t count;       /* runs */
    int64_t size[FL_MAX_NDIM], start[FL_MAX_NDIM],
        unit[FL_MAX_NDIM]; /* unit: logical elements from one position to the next */
    int64_t base;          /* logical index of the first element of the inner axes */
};

static void runs_of(runs *runs, const fl_view *view, int made)
{
    int64_t unit = 1;
    runs->outer = view->ndim;
    runs->run = 1;
    while (runs->outer > 0) { /* whole axes join the run, and one more that need not be whole */
        int a = --runs->outer;
        runs->run *= view->size[a];
        if (view->size[a] != view->logical[a]) break;
    }
    runs->base = 0;
    for (int a = view->ndim - 1; a >= 0; a--) {
        if (a >= runs->outer) runs->base += view->start[a] * unit;
        runs->size[a] = view->size[a];
        runs->start[a] = view->start[a];
        runs->unit[a] = unit;
        unit *= view->logical[a];
    }
    runs->count = view->numel / runs->run;
    runs->blocks = (runs->run + made - 2) / made + 1;
}

/* Logical index of the first element of run number i. */
__device__ static uint64_t run_start(const runs &runs, int64_t i)
{
    uint64_t index = (uint64_t)runs.base;
    for (int a = runs.outer - 1; a >= 0; a--) {
        index += (uint64_t)(runs.start[a] + i % runs.size[a]) * (uint64_t)runs.unit[a];
        i /= runs.size[a];
    }
    return index;
}

/* out: contiguous */
template<typename T, typename Recipe>
__global__ void __launch_bounds__(THREADS) draw(T *out, fl_fresh<random_key> fresh, Recipe recipe, int64_t first_unit,
                                                int64_t units, const __grid_constant__ runs r)
{
    enum { MADE = Recipe::MADE };
    int64_t unit = first_unit + (int64_t)blockIdx.x * THREADS + threadIdx.x, i = 0;
    uint32_t word[4];
    typename Recipe::type value[MADE];
    if (unit >= units) return;
    if (r.count > 1) {
        i = unit / r.blocks;
        unit -= i * r.blocks;
    }
    uint64_t start = run_start(r, i), block = start / MADE + (uint64_t)unit;
    int64_t from = (int64_t)(block * MADE - start),
            at = i * r.run + from; /* of the block's first element, in the run and here */
    if (from >= r.run) return;
    int low = from < 0 ? (int)-from : 0, high = from + MADE > r.run ? (int)(r.run - from) : (int)MADE;
    const random_key key = fresh.get();
    fl_philox_block(word, key.seed, key.counter, block);
    recipe(value, word, at, low, high);
    fl_pack<T, MADE> made;
#pragma unroll
    for (int j = 0; j < MADE; j++) made.at[j] = fl_convert<T>(value[j]);
    if (high - low == MADE && (uintptr_t)(out + at) % alignof(fl_pack<T, MADE>) == 0) fl_pack_store(out + at, made);
    else
#pragma unroll
        for (int j = 0; j < MADE; j++)
            if (j >= low && j < high) out[at + j] = made.at[j];
}

static void fill_key(void *out, const fl_kernel *kernel) { *(random_key *)out = {kernel->seed, kernel->counter}; }

/* Draws the contiguous view `part`. */
template<typename T, typename Recipe>
static void launch_draw(const fl_kernel *kernel, const fl_view *part, const Recipe &recipe)
{
    const fl_fresh<random_key> key = fl_cuda_fresh<random_key>(fill_key, kernel);
    runs r;
    runs_of(&r, part, Recipe::MADE);
    int64_t units = r.count * r.blocks;
    for (int64_t first = 0; first < units; first += FL_INDEX_LIMIT) {
        int64_t n = units - first < FL_INDEX_LIMIT ? units - first : FL_INDEX_LIMIT;
        FL_LAUNCH((draw<T, Recipe>), fl_blocks(n, THREADS), THREADS, 0, (T *)part->data, key, recipe, first, units, r);
    }
}

/* Calls fill(view) with the result as an array. */
template<typename F>
static fl_status fill_result(fl_kernel *kernel, F &&fill)
{
    const fl_view *out = &kernel->out[0];
    fl_cuda_array array;
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_array_room(&array, out, out->dtype));
    fill(&array.view);
    fl_status status = fl_cuda_array_store(out, &array);
    fl_cuda_array_close(&array);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

/* ---- floats ---- */

/* Bits of a uniform: as many as the format has, so that it stays below 1. */
static int uniform_bits(fl_dtype dtype) { return dtype == FL_FLOAT16 ? 11 : dtype == FL_BFLOAT16 ? 8 : 24; }

static fl_status fill_floats(fl_kernel *kernel, bool normal, double low, double range)
{
    return fill_result(kernel, [&](const fl_view *part) {
        int bits = uniform_bits(part->dtype);
        fl_cuda_by_float(part->dtype, [&](auto like) {
            typedef decltype(like) T;
            typedef typename fl_wide<T>::type W;
            if (normal) launch_draw<T>(kernel, part, made_normals<W>{(W)low, (W)range});
            else
                launch_draw<T>(kernel, part, made_uniforms<W>{32 - bits, 1.0f / (float)(1u << bits), (W)low, (W)range});
            return FL_OK;
        });
    });
}

static fl_status launch_rand(fl_kernel *kernel) { return fill_floats(kernel, false, 0, 1); }
static fl_status launch_randn(fl_kernel *kernel) { return fill_floats(kernel, true, 0, 1); }
static fl_status launch_uniform(fl_kernel *kernel)
{
    double low = kernel->attrs->at[FL_UNIFORM_LOW].number, high = kernel->attrs->at[FL_UNIFORM_HIGH].number;
    return fill_floats(kernel, false, low, high - low);
}
static fl_status launch_normal(fl_kernel *kernel)
{
    return fill_floats(kernel, true, kernel->attrs->at[FL_NORMAL_MEAN].number, kernel->attrs->at[FL_NORMAL_STD].number);
}

FL_CUDA_OP(rand, launch_rand);
FL_CUDA_OP(rand_like, launch_rand);
FL_CUDA_OP(randn, launch_randn);
FL_CUDA_OP(randn_like, launch_randn);
FL_CUDA_OP(uniform_, launch_uniform);
FL_CUDA_OP(normal_, launch_normal);

/* ---- integers ---- */

static fl_status launch_randint(fl_kernel *kernel)
{
    int64_t low = kernel->attrs->at[FL_RANDINT_LOW].integer;
    uint64_t span = (uint64_t)kernel->attrs->at[FL_RANDINT_HIGH].integer - (uint64_t)low;
    bool wide = span > (uint64_t)1 << 32;
    return fill_result(kernel, [&](const fl_view *part) {
        fl_cuda_by_storage(part->dtype, [&](auto like) {
            typedef decltype(like) T;
            if (wide) launch_draw<T>(kernel, part, made_long_integers{low, span});
            else launch_draw<T>(kernel, part, made_integers{low, span});
            return FL_OK;
        });
    });
}

FL_CUDA_OP(randint, launch_randint);
FL_CUDA_OP(randint_like, launch_randint);

static fl_status launch_random(fl_kernel *kernel)
{
    int64_t low, high;
    fl_random_range(&low, &high, kernel->attrs, kernel->out[0].dtype);
    uint64_t span = (uint64_t)high - (uint64_t)low;
    return fill_result(kernel, [&](const fl_view *part) {
        fl_cuda_by_storage(part->dtype, [&](auto like) {
            typedef decltype(like) T;
            if (span > (uint64_t)1 << 32) launch_draw<T>(kernel, part, made_long_integers{low, span});
            else launch_draw<T>(kernel, part, made_integers{low, span});
            return FL_OK;
        });
    });
}

FL_CUDA_OP(random_, launch_random);

/* out[i] = order[first + i] */
template<typename T>
__global__ void __launch_bounds__(THREADS) take_order(T *out, const uint32_t *order, uint32_t first, uint32_t n)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) out[i] = fl_convert<T>((int64_t)order[first + i]);
}

/* Positions sorted by their words, equal words by position; every rank sorts them all and takes its part. */
static fl_status launch_randperm(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    fl_cuda_sort sort;
    if (out->numel == 0) return FL_OK;
    int64_t n = out->logical[0], start = 0;
    FL_TRY(fl_cuda_sort_open(&sort, kernel->name, n));
    fl_view words = *out;
    words.data = sort.keys;
    words.size = &n;
    words.start = &start;
    words.numel = n;
    launch_draw<uint32_t>(kernel, &words, made_words());
    fl_status status = fl_cuda_sort_run(&sort, 32);
    fl_cuda_by_storage(out->dtype, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((take_order<T>), fl_blocks(out->numel, THREADS), THREADS, 0, (T *)out->data, sort.order,
                  (uint32_t)out->start[0], (uint32_t)out->numel);
        return FL_OK;
    });
    fl_cuda_sort_close(&sort);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

FL_CUDA_OP(randperm, launch_randperm);

/* ---- bernoulli, dropout ---- */

static void word_bernoulli(char *text, size_t size, const void *, long long, long long bits)
{
    double p;
    memcpy(&p, &bits, sizeof p);
    snprintf(text, size, "bernoulli: probability %g is not between 0 and 1", p);
}

/* Calls draw(like, values, view) with operand 0 as an array of the result's dtype, and the result as one. */
template<typename F>
static fl_status fill_from(fl_kernel *kernel, F &&fill)
{
    fl_cuda_array in;
    FL_TRY(fl_cuda_array_open(&in, &kernel->in[0], kernel->out[0].dtype));
    fl_status status = fill_result(kernel, [&](const fl_view *part) {
        fl_cuda_by_float(part->dtype, [&](auto like) {
            fill((const decltype(like) *)in.view.data, part);
            return FL_OK;
        });
    });
    fl_cuda_array_close(&in);
    return status;
}

/* 1 with one probability for all. */
struct made_trials {
    typedef float type;
    enum { MADE = 4 };
    double p;
    __device__ void operator()(float *out, const uint32_t *word, int64_t, int, int) const
    {
        for (int j = 0; j < MADE; j++) out[j] = (double)(word[j] >> 8) * 5.9604644775390625e-8 < p ? 1.0f : 0.0f;
    }
};

static fl_status launch_trials(fl_kernel *kernel)
{
    double p = kernel->attrs->at[FL_BERNOULLI_P].number;
    return fill_result(kernel, [&](const fl_view *part) {
        fl_cuda_by_storage(part->dtype, [&](auto like) {
            launch_draw<decltype(like)>(kernel, part, made_trials{p});
            return FL_OK;
        });
    });
}

static fl_status launch_bernoulli(fl_kernel *kernel)
{
    fl_cuda_fault *fault;
    if (kernel->attrs->at[FL_BERNOULLI_P].given) return launch_trials(kernel);
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_cuda_fault_new(&fault, word_bernoulli, NULL, 0));
    return fill_from(kernel, [&](auto *in, const fl_view *part) {
        typedef typename std::remove_cv<typename std::remove_pointer<decltype(in)>::type>::type T;
        launch_draw<T>(kernel, part, made_bernoulli<T>{in, fault});
    });
}

/* attributes: p, seed, counter */
static fl_status launch_dropout(fl_kernel *kernel)
{
    double p = kernel->attrs->at[FL_DROPOUT_P].number, kept = p < 1 ? 1 / (1 - p) : 0;
    uint32_t threshold = (uint32_t)(p * 16777216.0 + 0.5);
    kernel->seed = (uint64_t)kernel->attrs->at[FL_DROPOUT_SEED].integer;
    kernel->counter = (uint64_t)kernel->attrs->at[FL_DROPOUT_COUNTER].integer;
    return fill_from(kernel, [&](auto *in, const fl_view *part) {
        typedef typename std::remove_cv<typename std::remove_pointer<decltype(in)>::type>::type T;
        launch_draw<T>(kernel, part, made_dropout<T>{in, (typename fl_wide<T>::type)kept, threshold});
    });
}

FL_CUDA_OP(bernoulli, launch_bernoulli);
FL_CUDA_OP(bernoulli_, launch_trials);
FL_CUDA_OP(dropout_apply, launch_dropout);

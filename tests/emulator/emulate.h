/*
** emulate.h -- the part of CUDA that the plug-in's sources use, run on the CPU by g++.
**
** Types and declarations of the runtime are the toolkit's own headers; emulate_*.cc define the functions. The blocks of
** a launch run one after the other, so a static array is a block's shared memory. A thread runs until it waits for
** others and only then becomes a fiber: kernels without barriers cost a function call per thread. Every other block
** runs its threads in reverse order, half of the launches their blocks, so that dependence on one order is found.
**
** Errors that a GPU would punish, or not even notice, end the process with a message that names the launch: a barrier
** that some threads never reach, lanes that wait for others than those that wait for them, memory that is touched
** beyond its end, after it was freed or, if it is the GPU's, by the host. A build with CONFIG=checked looks at each
** access of kernels, too (emulate_check.cc).
**
** FLOW_CUDA_EMULATED=deferred: launches, copies and events wait in the queue of their stream and are executed at random
** moments (FLOW_CUDA_EMULATED_SEED) that respect only streams and events. Without it they are executed at once.
** FLOW_CUDA_EMULATED_DEVICES (2) is the number of GPUs, FLOW_CUDA_EMULATED_BYTES the memory of each (4
** GiB), FLOW_CUDA_EMULATED_COMPUTE (80) their compute capability, which decides the size of shared memory.
*/
#ifndef FL_EMULATE_H
#define FL_EMULATE_H

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <functional>
#include <limits>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>

#undef __shared__
#undef __launch_bounds__
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __grid_constant__
#define __shared__ static
#define __launch_bounds__(...)
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __grid_constant__

/* Of functions that are part of the emulation: their accesses are not checked. */
#define FL_EMULATED_UNSEEN __attribute__((no_sanitize("thread")))

/* ---- the place of a thread ---- */

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

/* ---- launches ---- */

/* A launch: `body` is what one thread does. Errors as CUDA's: seen by cudaGetLastError. */
void fl_emulate_launch(cudaStream_t stream, const void *kernel, dim3 grid, dim3 block, size_t shared,
                       std::function<void()> body, const char *file, int line);

/* A thread begins with these arguments. */
void fl_emulated_arguments(const void *data, size_t bytes);

/* The arguments are taken now, by value, as the GPU's are; the kernel, which may be one of several, lies beside
** them. */
template<typename F, typename... A>
static inline void fl_emulate(cudaStream_t stream, const void *kernel, dim3 grid, dim3 block, size_t shared,
                              const char *file, int line, F &&body, A... arguments)
{
    auto packed = std::make_tuple(body, arguments...);
    fl_emulate_launch(
        stream, kernel, grid, block, shared,
        [packed] {
            fl_emulated_arguments(&packed, sizeof packed);
            std::apply([](const auto &run, const auto &...given) { run(given...); }, packed);
        },
        file, line);
}

/* Dynamic shared memory of the running block; filled with 0xff before each block. Any GPU has FL_EMULATED_SHARED or
** less. */
enum { FL_EMULATED_SHARED = 227 << 10 };
void *fl_emulated_shared(void);

/* A stream begins with this: stand-ins for NVIDIA's libraries, which know nothing else of the emulation, issue with it
** what they do to device memory. */
typedef struct fl_emulated_stream {
    void (*issue)(cudaStream_t stream, std::function<void()> run);
    /* `run` when `ready` says so, which is asked again and again, also by a thread of its own: what other processes
    ** must have part in. Until then the stream stands still, and no other thread waits. */
    void (*issue_when)(cudaStream_t stream, std::function<bool()> ready, std::function<void()> run);
} fl_emulated_stream;

/* ---- asynchronous copies to shared memory (cp.async) ---- */

/* 16 bytes, zeros where there is nothing to read: they arrive when the thread waits for them, garbage is there until
** then. */
void fl_emulated_copy16(void *shared, const void *from, bool exists);

/* The copies since the last call are a group. */
void fl_emulated_copy_commit(void);

/* All groups of this thread but the last `but` are there. */
void fl_emulated_copy_wait(int but);

/* ---- barriers ---- */

/* All threads of the block arrive; returns the sum of what they brought. */
int fl_emulated_block_barrier(int value);

/* The lanes of `mask` that exist arrive with `size` bytes (at most 16); out gets what lane `source`, one of them,
** brought. */
void fl_emulated_exchange(void *out, const void *value, int size, unsigned mask, int source);

/* The lanes of `mask` arrive; bits of those whose predicate is true. */
unsigned fl_emulated_ballot(unsigned mask, bool predicate);

/* Lanes of this warp that exist and have not ended. */
unsigned __activemask(void);

static inline int fl_emulated_lane(void)
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}

static inline void __syncthreads(void) { fl_emulated_block_barrier(0); }
static inline int __syncthreads_count(int predicate) { return fl_emulated_block_barrier(predicate != 0); }
static inline int __syncthreads_or(int predicate) { return fl_emulated_block_barrier(predicate != 0) != 0; }
static inline int __syncthreads_and(int predicate) { return fl_emulated_block_barrier(predicate == 0) == 0; }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { fl_emulated_ballot(mask, false); }
static inline unsigned __ballot_sync(unsigned mask, int predicate) { return fl_emulated_ballot(mask, predicate != 0); }
static inline int __any_sync(unsigned mask, int predicate) { return fl_emulated_ballot(mask, predicate != 0) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return fl_emulated_ballot(mask, predicate == 0) == 0; }
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
static inline void __threadfence_system(void) {}

template<typename T>
static inline T fl_emulated_shuffle(unsigned mask, T value, int source)
{
    static_assert(sizeof(T) <= 16, "a shuffle moves at most 16 bytes");
    T out;
    fl_emulated_exchange((void *)&out, (const void *)&value, (int)sizeof(T), mask, source);
    return out;
}

/* The lanes of a segment of `width` lanes; beyond its borders a lane gets its own value. */
template<typename T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    int lane = fl_emulated_lane();
    return fl_emulated_shuffle(mask, value, lane / width * width + (source & (width - 1)));
}
template<typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    int lane = fl_emulated_lane();
    return fl_emulated_shuffle(mask, value, lane % width < (int)delta ? lane : lane - (int)delta);
}
template<typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    int lane = fl_emulated_lane();
    return fl_emulated_shuffle(mask, value, lane % width + (int)delta >= width ? lane : lane + (int)delta);
}
template<typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    int lane = fl_emulated_lane(), source = lane ^ bits;
    return fl_emulated_shuffle(mask, value, source >= lane / width * width + width ? lane : source);
}

template<typename T, typename F>
static inline T fl_emulated_combine(unsigned mask, T value, F &&combine)
{
    T sum = value;
    bool first = true;
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        T other = fl_emulated_shuffle(mask, value, lane);
        sum = first ? other : combine(sum, other);
        first = false;
    }
    return sum;
}
template<typename T>
static inline T __reduce_add_sync(unsigned mask, T x)
{
    return fl_emulated_combine(mask, x, [](T a, T b) { return (T)(a + b); });
}
template<typename T>
static inline T __reduce_max_sync(unsigned mask, T x)
{
    return fl_emulated_combine(mask, x, [](T a, T b) { return a > b ? a : b; });
}
template<typename T>
static inline T __reduce_min_sync(unsigned mask, T x)
{
    return fl_emulated_combine(mask, x, [](T a, T b) { return a < b ? a : b; });
}
template<typename T>
static inline unsigned __match_any_sync(unsigned mask, T x)
{
    unsigned same = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && fl_emulated_shuffle(mask, x, lane) == x) same |= 1u << lane;
    return same;
}

/* ---- atomics: threads are never interrupted ---- */

void fl_emulated_atomic_access(const void *place, size_t size);

template<typename T, typename F>
FL_EMULATED_UNSEEN static inline T fl_emulated_atomic(T *place, F &&change)
{
#ifdef __SANITIZE_THREAD__
    fl_emulated_atomic_access((const void *)place, sizeof *place);
#endif
    T old = *place;
    *place = change(old);
    return old;
}
template<typename T>
struct fl_emulated_same {
    typedef T type;
};
#define FL_EMULATED_ATOMIC(name, expression)                                      \
    template<typename T>                                                          \
    static inline T name(T *place, typename fl_emulated_same<T>::type x)          \
    {                                                                             \
        return fl_emulated_atomic(place, [=](T old) { return (T)(expression); }); \
    }
FL_EMULATED_ATOMIC(atomicAdd, old + x)
FL_EMULATED_ATOMIC(atomicSub, old - x)
FL_EMULATED_ATOMIC(atomicMax, old > x ? old : x)
FL_EMULATED_ATOMIC(atomicMin, old < x ? old : x)
FL_EMULATED_ATOMIC(atomicExch, x)
FL_EMULATED_ATOMIC(atomicAnd, old &x)
FL_EMULATED_ATOMIC(atomicOr, old | x)
FL_EMULATED_ATOMIC(atomicXor, old ^ x)
FL_EMULATED_ATOMIC(atomicInc, old >= x ? 0 : old + 1)
#undef FL_EMULATED_ATOMIC
template<typename T>
static inline T atomicCAS(T *place, typename fl_emulated_same<T>::type compare, typename fl_emulated_same<T>::type x)
{
    return fl_emulated_atomic(place, [=](T old) { return old == compare ? x : old; });
}

/* ---- memory ---- */

template<typename T>
static inline T __ldg(const T *place)
{
    return *place;
}
template<typename T>
static inline T __ldcs(const T *place)
{
    return *place;
}
template<typename T>
static inline T __ldca(const T *place)
{
    return *place;
}
template<typename T>
static inline T __ldcg(const T *place)
{
    return *place;
}
template<typename T>
static inline T __ldlu(const T *place)
{
    return *place;
}
template<typename T>
static inline void __stcs(T *place, typename fl_emulated_same<T>::type x)
{
    *place = x;
}
template<typename T>
static inline void __stcg(T *place, typename fl_emulated_same<T>::type x)
{
    *place = x;
}
template<typename T>
static inline void __stwb(T *place, typename fl_emulated_same<T>::type x)
{
    *place = x;
}
template<typename T>
static inline void __stwt(T *place, typename fl_emulated_same<T>::type x)
{
    *place = x;
}

/* ---- bits ---- */

template<typename To, typename From>
static inline To fl_emulated_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps the size");
    To to;
    memcpy(&to, &x, sizeof to);
    return to;
}
static inline int __float_as_int(float x) { return fl_emulated_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return fl_emulated_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return fl_emulated_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return fl_emulated_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return fl_emulated_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return fl_emulated_bits<double>(x); }
static inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
static inline double __hiloint2double(int high, int low)
{
    return __longlong_as_double((long long)high << 32 | (unsigned)low);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x)
{
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
static inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

/* ---- arithmetic ---- */

#define FL_EMULATED_EXTREMES(T)                             \
    static inline T max(T a, T b) { return a > b ? a : b; } \
    static inline T min(T a, T b) { return a < b ? a : b; }
FL_EMULATED_EXTREMES(int)
FL_EMULATED_EXTREMES(unsigned)
FL_EMULATED_EXTREMES(long)
FL_EMULATED_EXTREMES(unsigned long)
FL_EMULATED_EXTREMES(long long)
FL_EMULATED_EXTREMES(unsigned long long)
#undef FL_EMULATED_EXTREMES
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float normcdff(float x) { return 0.5f * erfcf(x * -0.70710678f); }
static inline double normcdf(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }
/* Newton's steps from Winitzki's approximation. */
static inline double erfinv(double x)
{
    if (!(fabs(x) < 1)) return fabs(x) == 1 ? copysign(INFINITY, x) : NAN;
    double l = log1p(-x * x), t = 2 / (M_PI * 0.147) + l / 2, y = copysign(sqrt(sqrt(t * t - l / 0.147) - t), x);
    for (int i = 0; i < 4; i++) y -= (erf(y) - x) * exp(y * y) * 0.886226925452758;
    return y;
}
static inline float erfinvf(float x) { return (float)erfinv(x); }
static inline float sinpif(float x) { return (float)sin(M_PI * x); }
static inline float cospif(float x) { return (float)cos(M_PI * x); }
static inline void sincospif(float x, float *s, float *c)
{
    *s = sinpif(x);
    *c = cospif(x);
}
static inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __double2float_rn(double x) { return (float)x; }

/* From float to an integer as the GPU does it: beyond its range the nearest end, NaN is 0 (of 64 bits: the lowest
** number). */
template<typename I, typename F>
static inline I fl_emulated_to_integer(F x, I nan)
{
    typedef std::numeric_limits<I> limits;
    if (x != x) return nan;
    if (x >= (F)limits::max()) return limits::max();
    return x <= (F)limits::min() ? limits::min() : (I)x;
}
static inline int __float2int_rz(float x) { return fl_emulated_to_integer<int>(truncf(x), 0); }
static inline int __float2int_rn(float x) { return fl_emulated_to_integer<int>(rintf(x), 0); }
static inline int __float2int_rd(float x) { return fl_emulated_to_integer<int>(floorf(x), 0); }
static inline int __float2int_ru(float x) { return fl_emulated_to_integer<int>(ceilf(x), 0); }
static inline unsigned __float2uint_rz(float x) { return fl_emulated_to_integer<unsigned>(truncf(x), 0); }
static inline long long __float2ll_rz(float x) { return fl_emulated_to_integer<long long>(truncf(x), INT64_MIN); }
static inline int __double2int_rz(double x) { return fl_emulated_to_integer<int>(trunc(x), 0); }
static inline long long __double2ll_rz(double x) { return fl_emulated_to_integer<long long>(trunc(x), INT64_MIN); }

/* The fast ones: glibc's headers declare functions of some of these names, so they are macros. */
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf((x), (y))
#define __fdividef(x, y) ((x) / (y))
#define __sincosf(x, s, c) sincosf((x), (s), (c))

#define __trap() __builtin_trap()
#define __nanosleep(ns) ((void)(ns))

/* The runtime's C++ conveniences that are in use. */
template<typename T>
static inline cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}
template<typename T>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T kernel, int threads,
                                                                        size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel, threads, shared);
}

#endif

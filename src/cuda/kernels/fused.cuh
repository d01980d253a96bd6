/*
** fused.cuh -- the fixed part of kernels that are compiled at run time: rows, operands, the walk over elements.
**
** A generated source (fused_source.cu) includes this, defines its rows with FL_ROW and a struct of two templates: what
** a group of G elements loads, and how it is computed and stored. All numbers are arguments of the kernel.
*/
#ifndef FL_CUDA_FUSED_CUH
#define FL_CUDA_FUSED_CUH

#include "cuda/kernels/elementwise_math.h"
#include "cuda/parts/divide.h"
#include "cuda/parts/values.h"

enum { FL_FUSED_THREADS = 256, FL_FUSED_GROUPS = 2 };

/* V values of 8 bytes: addresses, strides, numbers, attributes; A axes to be walked. */
template<int V, int A>
struct fl_fused_job {
    enum { AXES = A };
    int64_t value[V];
    uint32_t total; /* groups */
    uint32_t rest;  /* elements after the last group */
    fl_division size[A ? A : 1];
};

/* A row of elementwise.def that computes in C; W: the unsigned type that integers wrap in. */
#define FL_ROW(name, C, W, ...)                                       \
    __device__ static inline C name(C x, C y, C z, C p, C q)          \
    {                                                                 \
        typedef C T;                                                  \
        typedef W U;                                                  \
        int found = 0, *bad = &found;                                 \
        (void)x, (void)y, (void)z, (void)p, (void)q, (void)bad, U(0); \
        return (T)(__VA_ARGS__);                                      \
    }

template<typename C>
__device__ static inline C fl_number(int64_t bytes)
{
    C value;
    memcpy(&value, &bytes, sizeof value);
    return value;
}

/* G neighbours as they lie in memory. They are kept as words: taking elements out would wait for them, and nothing is
** computed before all groups are under way. */
template<typename S, int G>
struct fl_group {
    enum { BYTES = (int)sizeof(S) * G, UNIT = BYTES < 16 ? BYTES : 16 };
    typedef typename fl_words<UNIT>::type word;
    word words[BYTES / UNIT];
};

template<typename S, int G>
__device__ static inline void fl_group_load(fl_group<S, G> &group, int64_t base, int64_t element)
{
    typedef typename fl_group<S, G>::word word;
    const word *from = (const word *)((const S *)base + element);
#pragma unroll
    for (int i = 0; i < (int)(sizeof group / sizeof(word)); i++) group.words[i] = from[i];
}

template<typename S, int G>
__device__ static inline fl_pack<S, G> fl_group_elements(const fl_group<S, G> &group)
{
    fl_pack<S, G> pack;
    memcpy(&pack, &group, sizeof pack);
    return pack;
}

/* at[a]: position of group `index` along the walked axes. */
template<typename J>
__device__ static inline void fl_locate(uint32_t *at, const J &j, uint32_t index)
{
#pragma unroll
    for (int a = J::AXES - 1; a >= 0; a--) {
        uint32_t above = a > 0 ? fl_divide(index, j.size[a]) : 0;
        at[a] = index - above * j.size[a].divisor;
        index = above;
    }
}

/* Steps has loaded<G>, load(loaded<G> &, job, at, element) and compute(loaded<G>, job, element). */
template<typename Steps, int G, typename J>
__device__ static inline void fl_fused_run(const J &j)
{
    uint32_t step = gridDim.x * (FL_FUSED_THREADS * FL_FUSED_GROUPS);
    uint32_t first = blockIdx.x * (FL_FUSED_THREADS * FL_FUSED_GROUPS) + threadIdx.x;
    for (; first < j.total; first += step) {
        typename Steps::template loaded<G> o[FL_FUSED_GROUPS];
#pragma unroll
        for (int k = 0; k < FL_FUSED_GROUPS; k++) {
            uint32_t index = first + k * FL_FUSED_THREADS, at[J::AXES + 1];
            if (index >= j.total) continue;
            fl_locate(at, j, index);
            Steps::load(o[k], j, at, (int64_t)index * G);
        }
#pragma unroll
        for (int k = 0; k < FL_FUSED_GROUPS; k++) {
            uint32_t index = first + k * FL_FUSED_THREADS;
            if (index < j.total) Steps::compute(o[k], j, (int64_t)index * G);
        }
    }
    uint32_t tail = blockIdx.x * FL_FUSED_THREADS + threadIdx.x;
    if (tail < j.rest) { /* no axes are walked then */
        typename Steps::template loaded<1> o;
        uint32_t at[J::AXES + 1] = {0};
        int64_t element = (int64_t)j.total * G + tail;
        Steps::load(o, j, at, element);
        Steps::compute(o, j, element);
    }
}

#endif

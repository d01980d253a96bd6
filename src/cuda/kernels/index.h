/*
** index.h -- from a number of an element to its place: division by multiplication, axes as kernels take them.
**
** Kernels count in 32 bits. Tensors of more elements than FL_INDEX_LIMIT are cut into pieces, each a launch of its own;
** strides have 64 bits, so the memory behind them may be of any size.
*/
#ifndef FL_CUDA_INDEX_H
#define FL_CUDA_INDEX_H

#include "cuda/parts/cuda.h"
#include "cuda/parts/divide.h"

#include "core/base/axes.h"

#ifndef FL_INDEX_LIMIT
#define FL_INDEX_LIMIT (INT64_C(1) << 30)
#endif

static inline fl_division fl_division_of(int64_t divisor)
{
    uint32_t shift = 0;
    while ((int64_t)1 << shift < divisor) shift++;
    uint64_t excess = ((uint64_t)1 << shift) - (uint64_t)divisor;
    fl_division d = {(uint32_t)divisor, (uint32_t)((excess << 32) / (uint64_t)divisor + 1), shift};
    return d;
}

/* The same for n below 2^63, in twice the words: n / divisor = (high word of n * multiplier) >> shift; the divisor is
** at least 2. */
typedef struct fl_division_wide {
    uint64_t multiplier;
    int shift;
} fl_division_wide;

static inline fl_division_wide fl_division_wide_of(int64_t divisor)
{
    fl_division_wide d = {0, 0};
    while ((uint64_t)1 << (d.shift + 1) < (uint64_t)divisor) d.shift++;
    d.multiplier = (uint64_t)(((unsigned __int128)1 << (64 + d.shift)) / (uint64_t)divisor) + 1;
    return d;
}

__device__ static inline uint64_t fl_divide_wide(uint64_t n, const fl_division_wide &division)
{
    return (uint64_t)((unsigned __int128)n * division.multiplier >> 64) >> division.shift;
}

/* Axes as a kernel takes them: N operands, byte strides; MOST is how many there can be. */
template<int N, int MOST>
struct fl_walk {
    int count;
    fl_division size[MOST];
    int64_t stride[MOST][N];
};

template<int N, int MOST>
static inline void fl_walk_init(fl_walk<N, MOST> *walk, const fl_layout *layout)
{
    walk->count = layout->count;
    for (int i = 0; i < layout->count; i++) {
        walk->size[i] = fl_division_of(layout->axes[i].size);
        for (int o = 0; o < N; o++) walk->stride[i][o] = layout->axes[i].stride[o];
    }
}

/* Offsets in bytes of K elements in N operands. */
template<int K, int N, int MOST>
__device__ static inline void fl_walk_locate(int64_t (&offset)[K][N], const fl_walk<N, MOST> &walk,
                                             const uint32_t (&index)[K])
{
    uint32_t rest[K];
    for (int k = 0; k < K; k++) {
        rest[k] = index[k];
        for (int o = 0; o < N; o++) offset[k][o] = 0;
    }
    for (int i = walk.count - 1; i >= 0; i--) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            uint32_t above = i > 0 ? fl_divide(rest[k], walk.size[i]) : 0, at = rest[k] - above * walk.size[i].divisor;
            for (int o = 0; o < N; o++) offset[k][o] += (int64_t)at * walk.stride[i][o];
            rest[k] = above;
        }
    }
}

/* Calls launch(layout, offsets in bytes) for pieces that can be counted. */
template<typename F>
static inline void fl_each_piece(const fl_layout *layout, const int64_t *offset, F &&launch)
{
    if (fl_layout_numel(layout) <= FL_INDEX_LIMIT) return launch(layout, offset);
    fl_layout first = *layout, second;
    int64_t beyond[FL_LAYOUT_OPERANDS] = {0}; /* of the second half */
    fl_layout_halve(&first, &second, beyond, 64);
    for (int o = 0; o < FL_LAYOUT_OPERANDS; o++) beyond[o] += offset[o];
    fl_each_piece(&first, offset, launch);
    fl_each_piece(&second, beyond, launch);
}

/* Blocks of `threads` for n items, `each` per thread. */
static inline unsigned fl_blocks(int64_t n, int threads, int each = 1)
{
    return (unsigned)((n + (int64_t)threads * each - 1) / ((int64_t)threads * each));
}

#endif

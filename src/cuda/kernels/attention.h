/*
** attention.h -- the problem of attention, as the op describes it to the kernels.
*/
#ifndef FL_CUDA_ATTENTION_H
#define FL_CUDA_ATTENTION_H

#include "cuda/parts/cuda.h"

#include <type_traits>

enum { BATCH = FL_MAX_NDIM - 2 };

/* Rows of all heads; strides in elements. data NULL: absent. */
struct rows {
    char *data;
    int64_t row, stride[BATCH];
    bool vectors; /* rows begin at multiples of 16 bytes and are as long */
};

typedef enum mask_kind {
    MASK_NONE,
    MASK_BOOL,
    MASK_OWN,
    MASK_WIDE
} mask_kind; /* of the operands' type, of the type of scores */

struct attention {
    int batch;
    int64_t size[BATCH], start[BATCH], logical[BATCH];
    int64_t seen_keys; /* not masked for every query of this part: the first of `keys` */
    int64_t queries, keys, width, value_width, first_query, logical_queries;
    rows q, k, v, g, mask; /* mask: rows are queries */
    int64_t mask_col;
    mask_kind masked;
    bool causal, wide;                      /* wide: rows are longer than a tile (set by the launch) */
    double scale, keep;                     /* keep: factor of weights that are not dropped */
    uint32_t threshold;                     /* words below it drop; 0: nothing is dropped */
    const int64_t *key;                     /* seed and counter */
    char *out, *lse, *delta, *dq, *dk, *dv; /* contiguous; lse and delta in the type of scores */
    int64_t tiles;                          /* of rows, per head (set by the launch) */
};

/* The type of scores. */
static inline fl_dtype attention_wide(fl_dtype dtype) { return dtype == FL_FLOAT64 ? FL_FLOAT64 : FL_FLOAT32; }

/* out and lse. dtype: of q, k, v and out. */
fl_status fl_cuda_attention_forward(fl_dtype dtype, const attention *a, int64_t heads);

/* The same of float16 and bfloat16 at most 128 wide, where only causality hides keys and nothing is dropped; false:
** another problem, and nothing was launched. */
bool fl_cuda_attention_forward_halves(fl_dtype dtype, const attention *a, int64_t heads);

/* dq, dk and dv; fills delta. out: [heads, queries, value_width] of dtype, dlse: [heads, queries] of the type of scores
** or NULL. */
fl_status fl_cuda_attention_backward(fl_dtype dtype, const attention *a, int64_t heads, const void *out,
                                     const void *dlse);

/* The same on tensor cores, for the problems that this path is made for; false: it is not, and nothing was launched. */
bool fl_cuda_attention_backward_halves(fl_dtype dtype, const attention *a, int64_t heads, const void *out,
                                       const void *dlse);

/* Calls f(value of the type, width of tiles) for the narrowest tiles that rows fit in, narrower ones where shared
** memory does not suffice: f returns false then. */
template<typename T, typename F>
static inline void attention_by_width_of(const attention *a, F &&f)
{
    int64_t width = a->width > a->value_width ? a->width : a->value_width;
    if (width > 64 && f(T(), std::integral_constant<int, 128>())) return;
    if (width > 32 && f(T(), std::integral_constant<int, 64>())) return;
    f(T(), std::integral_constant<int, 32>());
}

template<typename F>
static inline void attention_by_width(fl_dtype dtype, const attention *a, F &&f)
{
    switch (dtype) {
    case FL_FLOAT16: return attention_by_width_of<__half>(a, f);
    case FL_BFLOAT16: return attention_by_width_of<__nv_bfloat16>(a, f);
    case FL_FLOAT64: f(0.0, std::integral_constant<int, 32>()); return;
    default: return attention_by_width_of<float>(a, f);
    }
}

#endif

/*
** cast.cu -- copies between different dtypes in the order of the output.
**
** If both sides are contiguous along the last axis a thread converts a group of elements, 16 bytes of the wider side
** or more; everything else goes element by element. An input with another order is for permute.cu.
*/
#include "cuda/parts/convert.h"
#include "permute.h"

enum { THREADS = 256, EACH = 4 };

typedef fl_walk<2, FL_LAYOUT_AXES> copy_walk;

/* Elements that a thread converts at once. */
static constexpr int group_of(int a, int b) { return a > 2 || b > 2 ? 4 : a == 2 || b == 2 ? 8 : 16; }

/* groups of G elements, then `rest` single ones at the end. */
template<typename To, typename From, int G>
static __global__ void __launch_bounds__(THREADS)
    cast_groups(char *out, const char *in, uint32_t groups, uint32_t rest, const __grid_constant__ copy_walk walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][2];
    if (index[0] >= groups) {
        uint32_t last = index[0] - groups;
        int64_t at = (int64_t)groups * G + last;
        if (last < rest) ((To *)out)[at] = fl_convert<To>(((const From *)in)[at]);
        return;
    }
    fl_walk_locate(offset, walk, index);
    fl_pack<From, G> from = *(const fl_pack<From, G> *)(in + offset[0][1]);
    fl_pack<To, G> to;
#pragma unroll
    for (int i = 0; i < G; i++) to.at[i] = fl_convert<To>(from.at[i]);
    *(fl_pack<To, G> *)(out + offset[0][0]) = to;
}

/* The dtype of the output is known at run time only, but is the same for all threads. */
template<typename From>
static __global__ void __launch_bounds__(THREADS)
    cast_elements(char *out, int out_dtype, const char *in, uint32_t total, const __grid_constant__ copy_walk walk)
{
    uint32_t index[EACH], first = blockIdx.x * (THREADS * EACH) + threadIdx.x;
    int64_t offset[EACH][2];
    From value[EACH];
    for (int k = 0; k < EACH; k++) index[k] = first + k * THREADS;
    fl_walk_locate(offset, walk, index);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (index[k] < total) value[k] = *(const From *)(in + offset[k][1]);
    fl_with_dtype(out_dtype, [&](auto like) {
        typedef decltype(like) To;
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (index[k] < total) *(To *)(out + offset[k][0]) = fl_convert<To>(value[k]);
    });
}

/* True if groups of g elements can be moved at once. A single axis may have elements left over. */
static bool takes_groups(const fl_layout *layout, const void *out, int64_t to, const void *in, int64_t from, int64_t g)
{
    if (layout->count == 0) return false;
    const fl_axis *last = &layout->axes[layout->count - 1];
    bool takes = last->stride[0] == to && last->stride[1] == from && last->size >= g
        && (layout->count == 1 || last->size % g == 0);
    int64_t out_unit = g * to < 16 ? g * to : 16, in_unit = g * from < 16 ? g * from : 16;
    takes &= (uintptr_t)out % (uintptr_t)out_unit == 0 && (uintptr_t)in % (uintptr_t)in_unit == 0;
    for (int i = 0; i < layout->count - 1; i++)
        takes &= layout->axes[i].stride[0] % out_unit == 0 && layout->axes[i].stride[1] % in_unit == 0;
    return takes;
}

template<typename To, typename From>
static bool launch_groups(const fl_layout *layout, char *out, const char *in)
{
    constexpr int G = group_of(sizeof(To), sizeof(From));
    if (!takes_groups(layout, out, sizeof(To), in, sizeof(From), G)) return false;
    fl_layout grouped = *layout;
    fl_axis *last = &grouped.axes[layout->count - 1];
    uint32_t rest = (uint32_t)(last->size % G);
    last->size /= G;
    last->stride[0] *= G;
    last->stride[1] *= G;
    int64_t groups = fl_layout_numel(&grouped);
    copy_walk walk;
    fl_walk_init(&walk, &grouped);
    FL_LAUNCH((cast_groups<To, From, G>), fl_blocks(groups + rest, THREADS), THREADS, 0, out, in, (uint32_t)groups,
              rest, walk);
    return true;
}

template<typename From>
static void launch_elements(const fl_layout *layout, char *out, fl_dtype out_dtype, const char *in)
{
    int64_t total = fl_layout_numel(layout);
    copy_walk walk;
    fl_walk_init(&walk, layout);
    FL_LAUNCH((cast_elements<From>), fl_blocks(total, THREADS, EACH), THREADS, 0, out, (int)out_dtype, in,
              (uint32_t)total, walk);
}

static void cast_piece(const fl_layout *layout, char *out, fl_dtype out_dtype, const char *in, fl_dtype in_dtype)
{
    fl_cuda_by_storage(in_dtype, [&](auto from) {
        typedef decltype(from) From;
        bool done = false;
        fl_cuda_by_storage(out_dtype, [&](auto to) {
            if constexpr (!std::is_same<decltype(to), From>::value)
                done = launch_groups<decltype(to), From>(layout, out, in);
            return FL_OK;
        });
        if (!done) launch_elements<From>(layout, out, out_dtype, in);
        return FL_OK;
    });
}

void fl_cuda_cast(const fl_layout *layout, char *out, fl_dtype out_dtype, const char *in, fl_dtype in_dtype)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    fl_each_piece(layout, zero, [&](const fl_layout *l, const int64_t *offset) {
        cast_piece(l, out + offset[0], out_dtype, in + offset[1], in_dtype);
    });
}

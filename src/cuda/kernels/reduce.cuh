/*
** reduce.cuh -- the engine of all reductions: any axes of a strided tensor, one read.
**
** The axes are sorted by their strides and merged. If the elements of a result lie closer together than the results
** do, a group of threads folds one result (rows); else neighbouring threads fold neighbouring results (columns). Few
** but long results are cut into segments whose totals a second kernel joins. The cuts depend on sizes and
** strides alone, there are no atomics: the same tensor always gives the same bits.
**
** A fold is a struct that is passed to the kernels:
**
**     X                            type its elements are converted to
**     Total                        what threads carry: plain data, whole words
**     enum { VECTORS }             0: loads of one element only (rare folds: fewer kernels to compile)
**     none()                       total of nothing
**     absorb<N, W>(t, x, place)    takes N elements, which lie in packs of W
**     join(a, b)                   total of both; a's elements were not all before b's
**     finish(t, result, offset)    stores result number `result` (row-major), whose elements begin at `offset`
*/
#ifndef FL_REDUCE_CUH
#define FL_REDUCE_CUH

#include "cuda/parts/block.cuh"
#include "index.h"

#include <stdlib.h>

/* The packs of a chunk: element k of pack p has offset[p] + k * stride from the tensor's first element, and
** number at[p] + k * step among the elements of its result, row-major in the user's order of axes. */
template<int PACKS>
struct fl_place {
    int64_t offset[PACKS], at[PACKS], stride, step;
};

/* ---- axes ---- */

/* Axes of one sort, innermost first. `other`: strides of the result (kept), of the position (reduced). */
typedef struct fl_reduce_axes {
    int count; /* at least 1 */
    int64_t total;
    fl_division size[FL_MAX_NDIM]; /* for fewer than 2^31 elements */
    fl_division_wide size_wide[FL_MAX_NDIM];
    int64_t sizes[FL_MAX_NDIM], stride[FL_MAX_NDIM], other[FL_MAX_NDIM];
} fl_reduce_axes;

/* Offsets of the elements i[k], and theirs by the other strides; i is used up. One loop over axes for all of them, not
** unrolled: a loop for each was most of a kernel's code. */
template<int K>
__device__ static inline void fl_axes_locate(int64_t (&offset)[K], int64_t (&other)[K], const fl_reduce_axes &axes,
                                             int64_t (&i)[K])
{
    int last = axes.count - 1;
#pragma unroll
    for (int k = 0; k < K; k++) offset[k] = other[k] = 0;
#pragma unroll 1
    for (int a = 0; a < last; a++) {
        int64_t above[K];
        if (axes.total >> 31) {
#pragma unroll
            for (int k = 0; k < K; k++) above[k] = (int64_t)fl_divide_wide((uint64_t)i[k], axes.size_wide[a]);
        } else {
#pragma unroll
            for (int k = 0; k < K; k++) above[k] = fl_divide((uint32_t)i[k], axes.size[a]);
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t at = i[k] - above[k] * axes.sizes[a];
            offset[k] += at * axes.stride[a];
            other[k] += at * axes.other[a];
            i[k] = above[k];
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        offset[k] += i[k] * axes.stride[last];
        other[k] += i[k] * axes.other[last];
    }
}

__device__ static inline int64_t fl_axes_locate(const fl_reduce_axes &axes, int64_t i, int64_t *other)
{
    int64_t offset[1], others[1], at[1] = {i};
    fl_axes_locate(offset, others, axes, at);
    *other = others[0];
    return offset[0];
}

/* From a layout of one or two operands, simplified: `other` is that of the second, 0 where there is none. */
static inline void fl_axes_of(fl_reduce_axes *axes, fl_layout *from)
{
    fl_layout_simplify(from);
    if (from->count == 0) from->axes[from->count++] = fl_axis{1, {}};
    axes->count = from->count;
    axes->total = fl_layout_numel(from);
    for (int i = 0; i < axes->count; i++) {
        const fl_axis *axis = &from->axes[axes->count - 1 - i];
        axes->sizes[i] = axis->size;
        axes->stride[i] = axis->stride[0];
        axes->other[i] = axis->stride[1];
        axes->size[i] = fl_division_of(axes->total >> 31 || axes->total == 0 ? 1 : axis->size);
        axes->size_wide[i] = fl_division_wide_of(axis->size > 1 ? axis->size : 2);
    }
}

/* ---- plans ---- */

typedef struct fl_reduce_plan {
    fl_reduce_axes kept, reduced;
    bool columns, vectors;
    bool shifts;            /* rows: one contiguous run, which may begin anywhere */
    int group;              /* rows: threads of a result */
    int wide, high;         /* columns: threads of a block along the results, along their elements */
    int64_t units, segment; /* rows: vectors of a result; columns: elements. Those of a segment */
    int segments;
} fl_reduce_plan;

enum {
    FL_REDUCE_THREADS = 256,
    FL_REDUCE_BUSY = 1 << 18, /* threads that keep a GPU busy */
    FL_REDUCE_SEGMENTS = 2048,
    FL_REDUCE_AHEAD = 8 /* totals of segments that a thread loads before it joins them */
};

/* Packs of WIDTH elements that a thread loads before it folds them: enough bytes under way, of small single elements
** too. */
template<typename T, int WIDTH>
struct fl_reduce_packs {
    static constexpr int COUNT = WIDTH > 1 ? (WIDTH >= 16 ? 2 : 4) : sizeof(T) > 2 ? 8 : 16;
};

static inline void fl_reduce_axes_of(fl_reduce_plan *plan, const fl_view *in, uint32_t mask, bool positions)
{
    int64_t result = 1, position = 1;
    fl_layout kept, reduced;
    kept.count = reduced.count = in->ndim;
    kept.operands = 2;
    reduced.operands = positions ? 2 : 1;
    memset(plan, 0, sizeof *plan);
    for (int i = in->ndim - 1; i >= 0; i--) {
        bool is_reduced = mask >> i & 1u;
        int64_t *other = is_reduced ? &position : &result;
        (is_reduced ? &reduced : &kept)->axes[i] = fl_axis{in->size[i], {in->stride[i], *other}};
        (is_reduced ? &kept : &reduced)->axes[i].size = 1;
        *other *= in->size[i];
    }
    fl_axes_of(&plan->kept, &kept);
    fl_axes_of(&plan->reduced, &reduced);
    plan->columns = plan->kept.total > 1 && llabs(plan->kept.stride[0]) < llabs(plan->reduced.stride[0]);
}

/* True if vectors of `width` elements can be loaded along the first axis of `along`. */
static inline bool fl_reduce_fits(const fl_reduce_plan *plan, const void *data, size_t item, int width)
{
    const fl_reduce_axes *along = plan->columns ? &plan->kept : &plan->reduced;
    if (along->stride[0] != 1 || along->sizes[0] % width || (uintptr_t)data % (item * (size_t)width)) return false;
    for (int i = 0; i < plan->kept.count; i++)
        if (!(plan->columns && i == 0) && plan->kept.stride[i] % width) return false;
    for (int i = 0; i < plan->reduced.count; i++)
        if (!(!plan->columns && i == 0) && plan->reduced.stride[i] % width) return false;
    return true;
}

static inline void fl_reduce_cut(fl_reduce_plan *plan, int64_t segments, int64_t least)
{
    if (segments > plan->units / least) segments = plan->units / least;
    if (segments > FL_REDUCE_SEGMENTS) segments = FL_REDUCE_SEGMENTS;
    if (segments < 1) segments = 1;
    plan->segment = (plan->units + segments - 1) / segments;
    plan->segments = plan->segment ? (int)((plan->units + plan->segment - 1) / plan->segment) : 1;
}

static inline void fl_reduce_plan_rows(fl_reduce_plan *plan, int width, int packs)
{
    int64_t results = plan->kept.total;
    plan->units = (plan->reduced.total + (plan->shifts ? 2 * width - 2 : width - 1)) / width;
    plan->group = fl_power_above((plan->units + 2 * packs - 1) / (2 * packs), 32);
    while (plan->group < 32 && plan->group < plan->units && results * plan->group < FL_REDUCE_BUSY) plan->group *= 2;
    bool long_rows = plan->units > 32 * 16, few = results * 32 < FL_REDUCE_BUSY && plan->units > 32 * packs;
    if (long_rows || few) plan->group = FL_REDUCE_THREADS;
    int64_t wanted = plan->group == FL_REDUCE_THREADS && results < FL_REDUCE_SEGMENTS ? FL_REDUCE_SEGMENTS / results
                                                                                      : 1;
    fl_reduce_cut(plan, wanted, 2 * packs * FL_REDUCE_THREADS);
}

static inline void fl_reduce_plan_columns(fl_reduce_plan *plan, int width, int packs)
{
    int64_t lines = plan->kept.total / width, n = plan->reduced.total;
    plan->units = n;
    plan->high = 1;
    while (plan->high < 8 && lines * plan->high < FL_REDUCE_BUSY && plan->high * packs < n) plan->high *= 2;
    plan->wide = fl_power_above(lines, FL_REDUCE_THREADS / plan->high);
    int narrow = fl_power_above(plan->kept.sizes[0] / width, 32);
    if (plan->high == 8 && narrow < 32) { /* rows of a few results: more of them side by side */
        plan->wide = narrow;
        plan->high = fl_power_above(n / packs, FL_REDUCE_THREADS / narrow);
    }
    while (plan->wide * plan->high < 32) plan->wide *= 2; /* whole warps */
    /* Half of the threads have enough loads under way, and need no second kernel. */
    int64_t threads = lines * plan->high;
    fl_reduce_cut(plan, 2 * threads >= FL_REDUCE_BUSY ? 1 : FL_REDUCE_BUSY / threads, 4 * packs * plan->high);
}

/* ---- kernels ---- */

/* Stores the total of a segment at [result][segment]; NULL: there is one segment, finish. */
template<typename F>
__device__ static inline void fl_reduce_put(const F &fold, const fl_reduce_plan &plan, void *partials, int64_t number,
                                            const typename F::Total &total)
{
    if (partials) {
        ((typename F::Total *)partials)[number * plan.segments + blockIdx.y] = total;
        return;
    }
    int64_t result, offset = fl_axes_locate(plan.kept, number, &result);
    fold.finish(total, result, offset);
}

/* The pack of WIDTH elements at unit q of a result; outside the row its elements are taken one by one. */
template<int WIDTH, typename T, typename F>
__device__ static inline void fl_reduce_one(typename F::Total &total, const F &fold, const fl_reduce_plan &plan,
                                            const T *x, int64_t base, int64_t q, int shift)
{
    int64_t e = q * WIDTH - shift, n = plan.reduced.total;
    typename F::X v[WIDTH];
    if (e >= 0 && e + WIDTH <= n) {
        fl_place<1> place;
        place.offset[0] = base + fl_axes_locate(plan.reduced, e, &place.at[0]);
        place.stride = plan.reduced.stride[0], place.step = plan.reduced.other[0];
        fl_pack<T, WIDTH> pack = *(const fl_pack<T, WIDTH> *)(x + place.offset[0]);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = (typename F::X)fl_load(pack.at[j]);
        fold.template absorb<WIDTH, WIDTH>(total, v, place);
        return;
    }
#pragma unroll 1
    for (int j = 0; j < WIDTH; j++) {
        if (e + j < 0 || e + j >= n) continue;
        typename F::X one[1];
        fl_place<1> place;
        place.offset[0] = base + fl_axes_locate(plan.reduced, e + j, &place.at[0]);
        place.stride = place.step = 0;
        one[0] = (typename F::X)fl_load(x[place.offset[0]]);
        fold.template absorb<1, 1>(total, one, place);
    }
}

/* Loads packs: pack k is at element first + k * step of a result that begins at `base`. Few are located at a time:
** addresses take registers. */
template<typename T, int WIDTH, int COUNT>
__device__ static inline void fl_reduce_fetch(fl_pack<T, WIDTH> (&packs)[COUNT], fl_place<COUNT> &place, const T *x,
                                              const fl_reduce_axes &axes, int64_t base, int64_t first, int64_t step)
{
    constexpr int EACH = COUNT > 8 ? 2 : COUNT < 4 ? COUNT : 4;
#pragma unroll
    for (int k = 0; k < COUNT; k += EACH) {
        int64_t element[EACH], offset[EACH], at[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) element[i] = first + (k + i) * step;
        fl_axes_locate(offset, at, axes, element);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            place.offset[k + i] = base + offset[i];
            place.at[k + i] = at[i];
            packs[k + i] = *(const fl_pack<T, WIDTH> *)(x + base + offset[i]);
        }
    }
}

/* Units q, q + group, ...: all inside the row. */
template<int WIDTH, int PACKS, typename T, typename F>
__device__ static inline void fl_reduce_chunk(typename F::Total &total, const F &fold, const fl_reduce_plan &plan,
                                              const T *x, int64_t base, int64_t q, int shift)
{
    fl_place<PACKS> place;
    fl_pack<T, WIDTH> packs[PACKS];
    typename F::X v[PACKS * WIDTH];
    place.stride = plan.reduced.stride[0], place.step = plan.reduced.other[0];
    fl_reduce_fetch(packs, place, x, plan.reduced, base, q * WIDTH - shift, (int64_t)plan.group * WIDTH);
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[k * WIDTH + j] = (typename F::X)fl_load(packs[k].at[j]);
    fold.template absorb<PACKS * WIDTH, WIDTH>(total, v, place);
}

template<typename T, int WIDTH, typename F>
__global__ void __launch_bounds__(FL_REDUCE_THREADS)
    fl_reduce_rows(const T *x, F fold, fl_reduce_plan p, void *partials)
{
    enum { PACKS = fl_reduce_packs<T, WIDTH>::COUNT };
    __shared__ typename F::Total shared[32];
    typename F::Total t = fold.none();
    int lane = fl_group_lane(p.group);
    int64_t number = fl_group_number(p.group);
    if (number < p.kept.total) {
        int64_t ignored, base = fl_axes_locate(p.kept, number, &ignored);
        int shift = WIDTH > 1 && p.shifts ? fl_row_shift(x + base) : 0;
        int64_t begin = blockIdx.y * p.segment, end = begin + p.segment, inside = (p.reduced.total + shift) / WIDTH;
        if (end > p.units) end = p.units;
        int64_t q = begin + lane;
        if (shift && q == 0) fl_reduce_one<WIDTH>(t, fold, p, x, base, q, shift), q += p.group;
        for (; q + (PACKS - 1) * p.group < (end < inside ? end : inside); q += PACKS * p.group)
            fl_reduce_chunk<WIDTH, PACKS>(t, fold, p, x, base, q, shift);
        for (; q < end; q += p.group) fl_reduce_one<WIDTH>(t, fold, p, x, base, q, shift);
    }
    t = fl_group_join(t, p.group, fold.none(), shared,
                      [&](const typename F::Total &a, const typename F::Total &b) { return fold.join(a, b); });
    if (number < p.kept.total && lane == 0) fl_reduce_put(fold, p, partials, number, t);
}

/* Rows r, r + step, ... (COUNT of them) of the WIDTH results beginning at base. */
template<int WIDTH, int COUNT, typename T, typename F>
__device__ static inline void fl_reduce_rows_of_columns(typename F::Total *total, const F &fold,
                                                        const fl_reduce_plan &plan, const T *x, int64_t base, int64_t r,
                                                        int step)
{
    fl_place<COUNT> place;
    fl_pack<T, WIDTH> packs[COUNT];
    place.stride = place.step = 0;
    fl_reduce_fetch(packs, place, x, plan.reduced, base, r, step);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        typename F::X v[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) v[k] = (typename F::X)fl_load(packs[k].at[j]);
        fold.template absorb<COUNT, 1>(total[j], v, place);
#pragma unroll
        for (int k = 0; k < COUNT; k++) place.offset[k]++; /* the next column; only used where WIDTH > 1 */
    }
}

/* threads [high][wide]: each has WIDTH neighbouring results. */
template<typename T, int WIDTH, typename F>
__global__ void __launch_bounds__(FL_REDUCE_THREADS)
    fl_reduce_columns(const T *x, F fold, fl_reduce_plan p, void *partials)
{
    typedef typename F::Total Total;
    enum { ROWS = fl_reduce_packs<T, WIDTH>::COUNT };
    FL_DYNAMIC_SHARED(Total, shared);
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    bool active = first < p.kept.total;
    Total t[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) t[j] = fold.none();
    if (active) {
        int64_t ignored, base = fl_axes_locate(p.kept, first, &ignored), begin = blockIdx.y * p.segment,
                         end = begin + p.segment;
        int step = (int)blockDim.y;
        if (end > p.units) end = p.units;
        for (; begin + ROWS * step <= end; begin += ROWS * step)
            fl_reduce_rows_of_columns<WIDTH, ROWS>(t, fold, p, x, base, begin + threadIdx.y, step);
#pragma unroll 1
        for (; begin < end; begin += step)
            if (begin + threadIdx.y < end)
                fl_reduce_rows_of_columns<WIDTH, 1>(t, fold, p, x, base, begin + threadIdx.y, step);
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        Total *mine = shared + threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll 1
        for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
            *mine = t[j];
            __syncthreads();
            if (threadIdx.y < half) t[j] = fold.join(t[j], mine[half * blockDim.x]);
            __syncthreads();
        }
    }
    if (!active || threadIdx.y > 0) return;
    Total results[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) results[j] = t[j];
#pragma unroll 1
    for (int j = 0; j < WIDTH; j++) fl_reduce_put(fold, p, partials, first + j, results[j]);
}

/* The totals of the segments of one result, by `group` threads; each loads several before it joins them. */
template<typename F>
__global__ void __launch_bounds__(FL_REDUCE_THREADS)
    fl_reduce_partials(F fold, fl_reduce_plan p, int group, const void *partials)
{
    typedef typename F::Total Total;
    __shared__ Total shared[32];
    int64_t number = fl_group_number(group);
    Total t = fold.none();
    const Total *from = (const Total *)partials + number * p.segments;
    for (int i = fl_group_lane(group); number < p.kept.total && i < p.segments; i += FL_REDUCE_AHEAD * group) {
        Total ahead[FL_REDUCE_AHEAD];
#pragma unroll
        for (int k = 0; k < FL_REDUCE_AHEAD; k++)
            ahead[k] = i + k * group < p.segments ? from[i + k * group] : fold.none();
#pragma unroll
        for (int k = 0; k < FL_REDUCE_AHEAD; k++) t = fold.join(t, ahead[k]);
    }
    t = fl_group_join(t, group, fold.none(), shared, [&](const Total &a, const Total &b) { return fold.join(a, b); });
    if (number < p.kept.total && fl_group_lane(group) == 0) fl_reduce_put(fold, p, NULL, number, t);
}

/* ---- launching ---- */

template<typename T, int WIDTH, typename F>
static inline void fl_reduce_launch_columns(const fl_reduce_plan &plan, const T *x, const F &fold, void *partials)
{
    dim3 grid(fl_blocks(plan.kept.total / WIDTH, plan.wide), (unsigned)plan.segments),
        block((unsigned)plan.wide, (unsigned)plan.high);
    size_t shared = plan.high > 1 ? sizeof(typename F::Total) * (size_t)(plan.wide * plan.high) : 0;
    FL_LAUNCH((fl_reduce_columns<T, WIDTH, F>), grid, block, shared, x, fold, plan, partials);
}

template<typename T, int WIDTH, typename F>
static inline void fl_reduce_launch_rows(const fl_reduce_plan &plan, const T *x, const F &fold, void *partials)
{
    dim3 grid(fl_blocks(plan.kept.total, FL_REDUCE_THREADS / plan.group), (unsigned)plan.segments);
    FL_LAUNCH((fl_reduce_rows<T, WIDTH, F>), grid, dim3(FL_REDUCE_THREADS), 0, x, fold, plan, partials);
}

/* A block has one result of many segments, or several of few. */
template<typename F>
static inline void fl_reduce_launch_partials(const fl_reduce_plan &plan, const F &fold, const void *partials)
{
    int group = plan.segments > 32 * FL_REDUCE_AHEAD ? FL_REDUCE_THREADS : 32;
    FL_LAUNCH((fl_reduce_partials<F>), dim3(fl_blocks(plan.kept.total, FL_REDUCE_THREADS / group)),
              dim3(FL_REDUCE_THREADS), 0, fold, plan, group, partials);
}

/* By vectors or by single elements. Columns carry a total for each element of a vector, so theirs are shorter. */
template<typename T, typename F>
static inline void fl_reduce_launch(const fl_reduce_plan &plan, const T *x, const F &fold, void *partials)
{
    enum { WIDTH = fl_vector<T>::WIDTH, NARROW = WIDTH > 8 ? 8 : WIDTH };
    if constexpr (F::VECTORS) {
        if (plan.vectors && plan.columns) return fl_reduce_launch_columns<T, NARROW>(plan, x, fold, partials);
        if (plan.vectors) return fl_reduce_launch_rows<T, WIDTH>(plan, x, fold, partials);
    }
    if (plan.columns) fl_reduce_launch_columns<T, 1>(plan, x, fold, partials);
    else fl_reduce_launch_rows<T, 1>(plan, x, fold, partials);
}

/* Gives the axes to threads; there are results. */
template<typename T, bool VECTORS>
static inline void fl_reduce_plan_cut(fl_reduce_plan *plan, const fl_view *in)
{
    enum { WIDTH = fl_vector<T>::WIDTH, NARROW = WIDTH > 8 ? 8 : WIDTH };
    int width = plan->columns ? NARROW : WIDTH;
    plan->shifts = VECTORS && !plan->columns && plan->reduced.count == 1 && plan->reduced.stride[0] == 1
        && plan->reduced.total >= 8 * width;
    plan->vectors = VECTORS && (plan->shifts || fl_reduce_fits(plan, in->data, sizeof(T), width));
    if (plan->vectors && plan->shifts && fl_reduce_fits(plan, in->data, sizeof(T), width)) plan->shifts = false;
    if (!plan->vectors) width = 1;
    int packs = !plan->vectors ? fl_reduce_packs<T, 1>::COUNT
        : plan->columns        ? fl_reduce_packs<T, NARROW>::COUNT
                               : fl_reduce_packs<T, WIDTH>::COUNT;
    if (plan->columns) fl_reduce_plan_columns(plan, width, packs);
    else fl_reduce_plan_rows(plan, width, packs);
}

/* Folds the axes of mask of `in`, whose elements are T. positions: the fold reads fl_place.at. */
template<typename T, typename F>
static inline fl_status fl_fold_axes(const fl_view *in, uint32_t mask, const F &fold, bool positions)
{
    fl_reduce_plan p;
    fl_reduce_axes_of(&p, in, mask, positions);
    if (p.kept.total == 0) return FL_OK;
    fl_reduce_plan_cut<T, F::VECTORS>(&p, in);
    void *partials = NULL;
    if (p.segments > 1)
        FL_TRY(fl_cuda_malloc(&partials, sizeof(typename F::Total) * (size_t)(p.kept.total * p.segments)));
    fl_reduce_launch(p, (const T *)in->data, fold, partials);
    if (!partials) return FL_OK;
    fl_reduce_launch_partials(p, fold, partials);
    fl_cuda_free(partials);
    return FL_OK;
}

#endif

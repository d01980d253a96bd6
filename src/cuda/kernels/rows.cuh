/*
** rows.cuh -- kernels over rows: the staging of operands, the distribution of rows to threads, and maps.
**
** A row that fits is held in registers by a group of threads (some lanes, a warp, or a block) and read once. Longer
** rows, and those along an axis that is not the last, are reduced first (reduce.cuh) and then mapped with what that
** gave.
*/
#ifndef FL_ROWS_CUH
#define FL_ROWS_CUH

#include "copies.h"
#include "folds.cuh"

/* ---- operands ---- */

/* Rows `stride` elements apart, each without gaps. */
typedef struct fl_rows_of {
    const void *data; /* NULL: absent operand */
    int64_t stride;
    void *owned; /* a copy, or NULL */
} fl_rows_of;

/* The axes from `leading` on are a row. True if they lie without gaps, and the rows at equal distances. */
static inline bool fl_rows_fit(int64_t *stride, const fl_view *view, int leading)
{
    int64_t run = 1, apart = 0, rows = 1;
    for (int i = view->ndim - 1; i >= leading; i--) {
        if (view->size[i] != 1 && view->stride[i] != run) return false;
        run *= view->size[i];
    }
    for (int i = leading - 1; i >= 0; i--) {
        if (view->size[i] == 1) continue;
        if (rows == 1) apart = view->stride[i];
        else if (view->stride[i] != apart * rows) return false;
        rows *= view->size[i];
    }
    *stride = apart;
    return true;
}

/* The operand as rows of `dtype`, copied if it is not that already. */
static inline fl_status fl_rows_open(fl_rows_of *rows, const fl_view *view, int leading, fl_dtype dtype)
{
    memset(rows, 0, sizeof *rows);
    rows->data = view->data;
    if (!view->data || view->numel == 0 || (view->dtype == dtype && fl_rows_fit(&rows->stride, view, leading)))
        return FL_OK;
    int64_t strides[FL_MAX_NDIM], run = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        strides[i] = run;
        run *= view->size[i];
        if (i >= leading) rows->stride = run;
    }
    if (leading == view->ndim) rows->stride = 1;
    FL_TRY(fl_cuda_malloc(&rows->owned, (size_t)view->numel * fl_dtype_size(dtype)));
    fl_view array = *view;
    array.data = rows->owned;
    array.dtype = dtype;
    array.stride = strides;
    array.contiguous = true;
    rows->data = rows->owned;
    return fl_cuda_copy_view(&array, view);
}

static inline void fl_rows_close(fl_rows_of *rows)
{
    if (rows->owned) fl_cuda_free(rows->owned);
}

/* An array as rows along one axis: element c of row (o, i) is at (o * n + c) * inner + i. */
typedef struct fl_row_shape {
    int64_t outer, n, inner;
} fl_row_shape;

static inline fl_row_shape fl_row_shape_of(const fl_view *view, int axis)
{
    fl_row_shape s = {1, view->ndim ? view->size[axis] : 1, 1};
    for (int i = 0; i < axis; i++) s.outer *= view->size[i];
    for (int i = axis + 1; i < view->ndim; i++) s.inner *= view->size[i];
    return s;
}

/* The operand as rows along an axis. `apart`: rows along the last axis (inner 1) may lie apart; else there are no gaps
** at all. */
static inline fl_status fl_rows_open_along(fl_rows_of *rows, const fl_view *view, int axis, const fl_row_shape *shape,
                                           bool apart, fl_dtype dtype)
{
    if (apart && shape->inner == 1) return fl_rows_open(rows, view, view->ndim ? axis : 0, dtype);
    FL_TRY(fl_rows_open(rows, view, 0, dtype));
    rows->stride = shape->n;
    return FL_OK;
}

/* ---- rows in registers ---- */

/* A row is given to `group` threads, each of which has `packs` vectors of it. */
typedef struct fl_row_plan {
    int group, packs, threads; /* threads of a block; packs 0: the row does not fit */
} fl_row_plan;

enum { FL_ROW_THREADS = 256, FL_ROW_MOST_THREADS = 1024, FL_ROW_MANY = 2048 };

/* Vectors of which the elements, converted, have that many bytes. */
template<typename T, int BYTES>
struct fl_row_most {
    enum { PACKS = BYTES / (int)(fl_vector<T>::WIDTH * sizeof(typename fl_wide<T>::type)) };
};

/* width: elements of a vector; most: vectors that a thread can hold. */
static inline fl_row_plan fl_row_plan_of(int64_t rows, int64_t n, int width, int most, bool aligned)
{
    int64_t units = aligned && n % width == 0 ? n / width : (n + 2 * width - 2) / width;
    fl_row_plan p = {1, 1, FL_ROW_THREADS};
    if (units <= 32 * most && (units <= 64 || rows >= FL_ROW_MANY)) {
        p.group = fl_power_above(units, 32);
        while (p.packs * 32 < units) p.packs *= 2;
        if (p.packs <= most) return p;
        p.packs = 1;
    }
    while (p.packs < most && units > (int64_t)p.packs * FL_ROW_THREADS) p.packs *= 2;
    int64_t threads = (units + p.packs - 1) / p.packs;
    p.threads = p.group = (int)(threads <= 64 ? 64 : (threads + 31) / 32 * 32);
    if (threads > FL_ROW_MOST_THREADS) p.packs = 0;
    return p;
}

static inline dim3 fl_row_grid(int64_t rows, const fl_row_plan &plan)
{
    return dim3(fl_blocks(rows, plan.group <= 32 ? plan.threads / plan.group : 1));
}

/* Calls f with the number of packs as a type: 1, 2, 4 ... MOST. */
template<int MOST, int N = 1, typename F>
static inline void fl_by_packs(int packs, F &&f)
{
    if (packs == N) return f(std::integral_constant<int, N>());
    if constexpr (N < MOST) fl_by_packs<MOST, N * 2>(packs, f);
}

/* ---- maps ---- */

/* The operands of maps of rows: op.begin(row) is the state of a row, op.at(state, a, b, c) its element c from those of
** the operands; OP::INPUTS: the number of a and b. */
template<typename T>
struct fl_map_operands {
    T *out; /* contiguous */
    const T *a, *b;
    int64_t a_stride, b_stride; /* between rows; inner 1 only */
    fl_row_shape shape;
};

enum { FL_MAP_PACKS = 4, FL_MAP_THREADS = 256 };

/* Rows without gaps: a group of threads has FL_MAP_PACKS vectors each of a row. */
template<typename T, typename OP>
__global__ void __launch_bounds__(FL_MAP_THREADS) fl_map_last(fl_map_operands<T> m, OP op, int group, int64_t pieces)
{
    enum { WIDTH = fl_vector<T>::WIDTH };
    typedef typename fl_wide<T>::type W;
    int64_t number = fl_group_number(group), n = m.shape.n, row = number, piece = 0;
    if (pieces > 1) row = blockIdx.x / (unsigned)pieces, piece = blockIdx.x % (unsigned)pieces; /* a group is a block */
    if (row >= m.shape.outer) return;
    T *out = m.out + row * n;
    const T *from_a = m.a + row * m.a_stride, *from_b = m.b + row * m.b_stride;
    int64_t first = (piece * FL_MAP_PACKS * group + fl_group_lane(group)) * WIDTH - fl_row_shift(out),
            apart = group * WIDTH;
    bool aligned_a = fl_is_aligned<T, WIDTH>(from_a + first), aligned_b = fl_is_aligned<T, WIDTH>(from_b + first);
    uint4 raw_a[FL_MAP_PACKS], raw_b[FL_MAP_PACKS];
    if (OP::INPUTS > 0) fl_row_fetch<FL_MAP_PACKS>(raw_a, from_a, first, apart, n);
    if (OP::INPUTS > 1) fl_row_fetch<FL_MAP_PACKS>(raw_b, from_b, first, apart, n);
    auto state = op.begin(row);
#pragma unroll
    for (int k = 0; k < FL_MAP_PACKS; k++) {
        int64_t e = first + k * apart;
        W a[WIDTH] = {}, b[WIDTH] = {};
        if (e >= n) break;
        if (OP::INPUTS > 0) fl_row_convert(a, raw_a[k], from_a, aligned_a, e, n, (W)0);
        if (OP::INPUTS > 1) fl_row_convert(b, raw_b[k], from_b, aligned_b, e, n, (W)0);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) a[j] = op.at(state, a[j], b[j], e + j);
        fl_row_store<1>(out, a, e, apart, n);
    }
}

/* Rows whose elements lie `inner` apart: a thread has as many elements as a vector, FL_MAP_THREADS apart in memory. */
template<typename T, typename OP>
__global__ void __launch_bounds__(FL_MAP_THREADS)
    fl_map_across(fl_map_operands<T> m, OP op, fl_division inner, fl_division n)
{
    enum { EACH = fl_vector<T>::WIDTH };
    typedef typename fl_wide<T>::type W;
    int64_t first = (int64_t)blockIdx.x * (FL_MAP_THREADS * EACH) + threadIdx.x,
            total = m.shape.outer * m.shape.n * m.shape.inner;
    T a[EACH], b[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + k * FL_MAP_THREADS;
        if (OP::INPUTS > 0 && i < total) a[k] = m.a[i];
        if (OP::INPUTS > 1 && i < total) b[k] = m.b[i];
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + k * FL_MAP_THREADS, line, outer;
        if (i >= total) return;
        if (total >> 31) line = i / m.shape.inner, outer = line / m.shape.n;
        else line = fl_divide((uint32_t)i, inner), outer = fl_divide((uint32_t)line, n);
        auto state = op.begin(outer * m.shape.inner + i - line * m.shape.inner);
        W x = OP::INPUTS > 0 ? (W)fl_load(a[k]) : (W)0, y = OP::INPUTS > 1 ? (W)fl_load(b[k]) : (W)0;
        m.out[i] = fl_store<T>(op.at(state, x, y, line - outer * m.shape.n));
    }
}

/* Rows along the last axis alone. */
template<typename T, typename OP>
static inline void fl_map_last_rows(const fl_map_operands<T> &operands, const OP &op)
{
    enum { WIDTH = fl_vector<T>::WIDTH };
    const fl_row_shape &s = operands.shape;
    if (s.outer * s.n == 0) return;
    bool aligned = (uintptr_t)operands.out % 16 == 0 && s.n % WIDTH == 0;
    int64_t units = aligned ? s.n / WIDTH : (s.n + 2 * WIDTH - 2) / WIDTH,
            wanted = (units + FL_MAP_PACKS - 1) / FL_MAP_PACKS;
    int threads = FL_MAP_THREADS, group = fl_power_above(wanted, 32);
    if (wanted > 32) threads = group = wanted < FL_MAP_THREADS ? (int)(wanted + 31) / 32 * 32 : (int)FL_MAP_THREADS;
    int64_t pieces = (wanted + group - 1) / group;
    FL_LAUNCH((fl_map_last<T, OP>), dim3(fl_blocks(s.outer * pieces, threads / group)), dim3((unsigned)threads), 0,
              operands, op, group, pieces);
}

template<typename T, typename OP>
static inline void fl_map_rows(const fl_map_operands<T> &operands, const OP &op)
{
    const fl_row_shape &s = operands.shape;
    int64_t total = s.outer * s.n * s.inner;
    if (s.inner == 1) return fl_map_last_rows(operands, op);
    if (total == 0) return;
    fl_division inner = fl_division_of(total >> 31 ? 1 : s.inner), n = fl_division_of(total >> 31 ? 1 : s.n);
    FL_LAUNCH((fl_map_across<T, OP>), dim3(fl_blocks(total, FL_MAP_THREADS, fl_vector<T>::WIDTH)), dim3(FL_MAP_THREADS),
              0, operands, op, inner, n);
}

/* A contiguous array that was brought into rows, as the reductions take it: [outer, n, inner]. */
static inline fl_view fl_rows_view(const fl_rows_of *rows, const fl_row_shape *shape, fl_dtype dtype, int64_t *sizes,
                                   int64_t *strides)
{
    fl_view v = {};
    sizes[0] = shape->outer, sizes[1] = shape->n, sizes[2] = shape->inner;
    strides[0] = shape->inner == 1 ? rows->stride : shape->n * shape->inner, strides[1] = shape->inner, strides[2] = 1;
    v.data = (void *)rows->data;
    v.dtype = dtype;
    v.ndim = 3;
    v.size = v.logical = sizes;
    v.stride = strides;
    v.numel = shape->outer * shape->n * shape->inner;
    return v;
}

/* Folds every row; results are numbered as rows are. */
template<typename T, typename F>
static inline fl_status fl_reduce_each_row(const fl_rows_of *rows, const fl_row_shape *shape, const F &fold,
                                           bool positions)
{
    int64_t sizes[3], strides[3];
    fl_view v = fl_rows_view(rows, shape, FL_FLOAT32, sizes, strides); /* its type is T */
    return fl_fold_axes<T>(&v, 2, fold, positions);
}

#endif

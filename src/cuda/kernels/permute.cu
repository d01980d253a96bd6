/*
** permute.cu -- copies whose input has its fastest axis elsewhere than the output.
**
** A block moves a tile through shared memory: it reads in the order of the input and writes in that of the output, so
** that both sides are runs. Three kernels: `transpose` exchanges two axes in accesses of 4 to 16 bytes, turning small
** squares in registers; `tiles` takes any permutation, any sizes and strides, one unit at a time; `cast_tiles` the
** same, one element at a time, which it converts.
*/
#include "permute.h"
#include "cuda/parts/convert.h"

enum { THREADS = 256 };

typedef fl_walk<2, FL_LAYOUT_AXES> copy_walk;

/* ---- exchanging two axes ---- */

/* out [batch, row, column] <- in [batch, column, row]: rows run along the input's fastest axis, columns along the
** output's. */
struct transpose_job {
    char *out;
    const char *in;
    int64_t out_row, in_column; /* byte strides */
    uint32_t rows, columns;
    fl_division row_tiles, column_tiles;
    copy_walk batch;
};

/* The side of a tile in units: long enough for runs of 128 bytes on both sides. */
__host__ __device__ static constexpr int tile_side(int unit, int access)
{
    return unit == 1 || (unit == 2 && access == 16) ? 128 : unit == 16 ? 32 : 64;
}

/* Squares of ACCESS bytes a row are turned in registers. In shared memory packs lie at column ^ row of their square, so
** that neither side meets a bank twice. */
template<typename T, int ACCESS>
static __global__ void __launch_bounds__(THREADS) transpose(const __grid_constant__ transpose_job j)
{
    constexpr int SQUARE = ACCESS / (int)sizeof(T), SIDE = tile_side(sizeof(T), ACCESS), SQUARES = SIDE / SQUARE;
    constexpr int EACH = SQUARES * SQUARES / THREADS;
    typedef fl_pack<T, SQUARE> pack;
    __shared__ pack tile[SIDE * SQUARES];
    uint32_t rest = fl_divide(blockIdx.x, j.column_tiles), column = (blockIdx.x - rest * j.column_tiles.divisor) * SIDE;
    uint32_t batch[1] = {fl_divide(rest, j.row_tiles)}, row = (rest - batch[0] * j.row_tiles.divisor) * SIDE;
    int64_t offset[1][2];
    fl_walk_locate(offset, j.batch, batch);
    const char *in = j.in + offset[0][1] + (int64_t)row * (int)sizeof(T) + column * j.in_column;
    char *out = j.out + offset[0][0] + (int64_t)column * (int)sizeof(T) + row * j.out_row;
    pack read[EACH][SQUARE];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int at = threadIdx.x + k * THREADS, r = at % SQUARES * SQUARE, c = at / SQUARES * SQUARE;
        if (row + r >= j.rows || column + c >= j.columns) continue;
#pragma unroll
        for (int i = 0; i < SQUARE; i++) read[k][i] = *(const pack *)(in + (c + i) * j.in_column + r * (int)sizeof(T));
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int at = threadIdx.x + k * THREADS, r = at % SQUARES, c = at / SQUARES;
#pragma unroll
        for (int i = 0; i < SQUARE; i++) {
            pack turned;
#pragma unroll
            for (int n = 0; n < SQUARE; n++) turned.at[n] = read[k][n].at[i];
            tile[(r * SQUARE + i) * SQUARES + (c ^ r)] = turned;
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH * SQUARE; k++) {
        int at = threadIdx.x + k * THREADS, c = at % SQUARES, r = at / SQUARES;
        if (row + r >= j.rows || column + c * SQUARE >= j.columns) continue;
        *(pack *)(out + r * j.out_row + c * ACCESS) = tile[r * SQUARES + (c ^ r / SQUARE)];
    }
}

/* The axis along which the input is contiguous, or -1. */
static int input_axis(const fl_cuda_copy_job *job)
{
    for (int i = 0; i < job->layout.count; i++)
        if (job->layout.axes[i].stride[1] == job->unit) return i;
    return -1;
}

/* Widest access that addresses, strides and the sizes of both axes allow. */
static int transpose_access(const fl_cuda_copy_job *job, int row)
{
    const fl_layout *l = &job->layout;
    int column = l->count - 1;
    int64_t bits = (int64_t)(uintptr_t)job->out | (int64_t)(uintptr_t)job->in | l->axes[row].size * job->unit
        | l->axes[column].size * job->unit;
    for (int i = 0; i < l->count; i++) {
        if (i != row) bits |= l->axes[i].stride[1];
        if (i != column) bits |= l->axes[i].stride[0];
    }
    int access = 16;
    while (bits % access != 0) access /= 2;
    return access;
}

template<typename T, int ACCESS>
static bool launch_transpose(const fl_cuda_copy_job *job, int row)
{
    constexpr int SIDE = tile_side(sizeof(T), ACCESS);
    fl_layout batch = job->layout;
    fl_axis rows = batch.axes[row], columns = batch.axes[batch.count - 1];
    int64_t row_tiles = (rows.size + SIDE - 1) / SIDE, column_tiles = (columns.size + SIDE - 1) / SIDE;
    batch.count--;
    for (int i = row; i < batch.count - 1; i++) batch.axes[i] = batch.axes[i + 1];
    batch.count--;
    int64_t tiles = fl_layout_numel(&batch) * row_tiles * column_tiles;
    bool mostly_full = rows.size * columns.size * 2 >= row_tiles * column_tiles * SIDE * SIDE;
    if (!mostly_full || tiles > FL_INDEX_LIMIT || rows.size > FL_INDEX_LIMIT || columns.size > FL_INDEX_LIMIT)
        return false;
    transpose_job t = {job->out,
                       job->in,
                       rows.stride[0],
                       columns.stride[1],
                       (uint32_t)rows.size,
                       (uint32_t)columns.size,
                       fl_division_of(row_tiles),
                       fl_division_of(column_tiles),
                       {}};
    fl_walk_init(&t.batch, &batch);
    FL_LAUNCH((transpose<T, ACCESS>), (unsigned)tiles, THREADS, 0, t);
    return true;
}

bool fl_cuda_transpose(const fl_cuda_copy_job *job)
{
    const fl_layout *l = &job->layout;
    int row = input_axis(job), column = l->count - 1;
    if (row < 0 || row == column || l->axes[column].stride[0] != job->unit) return false;
    int access = transpose_access(job, row);
    switch (job->unit) {
    case 1:
        return access >= 8 ? launch_transpose<uint8_t, 8>(job, row)
                           : access == 4 && launch_transpose<uint8_t, 4>(job, row);
    case 2:
        return access == 16 ? launch_transpose<uint16_t, 16>(job, row)
                            : access >= 4 && launch_transpose<uint16_t, 4>(job, row);
    case 4:
        return access == 16 ? launch_transpose<uint32_t, 16>(job, row)
                            : access == 8 && launch_transpose<uint32_t, 8>(job, row);
    case 8: return access == 16 && launch_transpose<uint64_t, 16>(job, row);
    default: return launch_transpose<uint4, 16>(job, row);
    }
}

/* ---- any permutation ---- */

enum { UNITS = 8 }; /* of a tile per thread */

/* An axis inside a tile, the fastest first. */
struct tile_axis {
    fl_division extent;
    int32_t stride; /* bytes */
    int32_t place;  /* units in shared memory */
    int32_t edge;   /* 1, 2: its last tile has only `left` positions; 0: all are whole */
    uint32_t left;
};

struct tile_job {
    char *out;
    const char *in;
    uint32_t tiles;
    int volume; /* units of a tile */
    int inside; /* axes inside a tile */
    tile_axis load[FL_LAYOUT_AXES], store[FL_LAYOUT_AXES];
    copy_walk steps;       /* over tiles */
    int edge_axis[2];      /* index among the steps, -1: none */
    uint32_t edge_last[2]; /* number of its last tile */
};

/* Every 32 units leave one free, so that columns do not fall into one bank. */
__device__ static inline int tile_place(int at) { return at + at / 32; }

/* Unit `at` of the tile: offset in bytes, place in shared memory, bit e of beyond: outside the last tile of edge e. */
struct tile_unit {
    int32_t offset, place;
    uint32_t beyond;
};
__device__ static inline tile_unit locate_unit(const tile_axis *axes, int count, uint32_t at)
{
    tile_unit u = {0, 0, 0};
    for (int i = 0; i < count; i++) {
        uint32_t above = fl_divide(at, axes[i].extent), own = at - above * axes[i].extent.divisor;
        u.offset += (int32_t)own * axes[i].stride;
        u.place += (int32_t)own * axes[i].place;
        if (axes[i].edge && own >= axes[i].left) u.beyond |= 1u << axes[i].edge;
        at = above;
    }
    u.place = tile_place(u.place);
    return u;
}

/* The bits of UNITS units, those of the store UNITS further up: [0] beyond the volume, [1] and [2] beyond an edge. */
__device__ static inline void note_beyond(uint32_t (&beyond)[3], uint32_t bits, int bit)
{
    for (int e = 0; e < 3; e++) beyond[e] |= (bits >> e & 1) << bit;
}

/* Threads of a multiprocessor: as many as the registers suffice for. */
static constexpr int resident_threads(int unit) { return unit == 16 ? 512 : unit == 8 ? 768 : 1024; }

/* The units of a tile as elements of another type. */
template<typename To, typename T>
__device__ static inline void store_units(char *out, const int32_t (&to)[UNITS], const T *tile,
                                          const int32_t (&place)[UNITS], uint32_t skip)
{
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        if (skip >> (k + UNITS) & 1) continue;
        if constexpr (std::is_same<To, T>::value) *(To *)(out + to[k]) = tile[place[k]];
        else *(To *)(out + to[k]) = fl_convert<To>(tile[place[k]]);
    }
}

/* The first element of a tile on both sides, and the units that it lacks (as note_beyond). */
struct tile_at {
    const char *in;
    char *out;
    uint32_t skip;
};

__device__ static inline tile_at locate_tile(const tile_job &job, uint32_t number, const uint32_t (&beyond)[3])
{
    tile_at t = {job.in, job.out, beyond[0]};
    for (int i = job.steps.count - 1; i >= 0; i--) {
        uint32_t above = fl_divide(number, job.steps.size[i]), own = number - above * job.steps.size[i].divisor;
        t.out += own * job.steps.stride[i][0];
        t.in += own * job.steps.stride[i][1];
        if (i == job.edge_axis[0] && own == job.edge_last[0]) t.skip |= beyond[1];
        if (i == job.edge_axis[1] && own == job.edge_last[1]) t.skip |= beyond[2];
        number = above;
    }
    return t;
}

template<typename T>
__device__ static inline void load_units(T (&value)[UNITS], const tile_at &tile, const int32_t (&from)[UNITS])
{
#pragma unroll
    for (int k = 0; k < UNITS; k++)
        if (!(tile.skip >> k & 1)) value[k] = *(const T *)(tile.in + from[k]);
}

/* A thread moves the same units of every tile, so it finds out only once where in a tile they lie. The next tile is
** under way while store(out, to, place, skip) brings one from shared memory to its place. */
template<typename T, int BLOCK, typename F>
__device__ static inline void move_tiles(const tile_job &job, T *tile, const F &store)
{
    int32_t from[UNITS], to[UNITS], place[UNITS];
    uint32_t beyond[3] = {0, 0, 0};
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        uint32_t at = threadIdx.x + k * BLOCK, outside = at >= (uint32_t)job.volume;
        tile_unit load = locate_unit(job.load, job.inside, at), unload = locate_unit(job.store, job.inside, at);
        from[k] = load.offset;
        to[k] = unload.offset;
        place[k] = unload.place;
        note_beyond(beyond, load.beyond | outside, k);
        note_beyond(beyond, unload.beyond | outside, k + UNITS);
    }
    T value[UNITS];
    tile_at next = locate_tile(job, blockIdx.x, beyond);
    load_units(value, next, from);
    for (uint32_t number = blockIdx.x; number < job.tiles; number += gridDim.x) {
        tile_at now = next;
#pragma unroll
        for (int k = 0; k < UNITS; k++)
            if (!(now.skip >> k & 1)) tile[tile_place(threadIdx.x + k * BLOCK)] = value[k];
        __syncthreads();
        if (number + gridDim.x < job.tiles) {
            next = locate_tile(job, number + gridDim.x, beyond);
            load_units(value, next, from);
        }
        store(now.out, to, place, now.skip);
        __syncthreads();
    }
}

static constexpr int tile_room(int block) { return block * UNITS + block * UNITS / 32; }

template<typename T, int BLOCK>
static __global__ void __launch_bounds__(BLOCK, resident_threads(sizeof(T)) / BLOCK)
    tiles(const __grid_constant__ tile_job j)
{
    __shared__ T tile[tile_room(BLOCK)];
    move_tiles<T, BLOCK>(j, tile,
                         [&](char *out, const int32_t(&to)[UNITS], const int32_t(&place)[UNITS], uint32_t skip) {
                             store_units<T>(out, to, tile, place, skip);
                         });
}

/* The dtype is the same for all, so a tile takes one way. */
template<typename From, int BLOCK>
static __global__ void __launch_bounds__(BLOCK, 768 / BLOCK)
    cast_tiles(const __grid_constant__ tile_job j, int out_dtype)
{
    __shared__ From tile[tile_room(BLOCK)];
    move_tiles<From, BLOCK>(
        j, tile, [&](char *out, const int32_t(&to)[UNITS], const int32_t(&place)[UNITS], uint32_t skip) {
            fl_with_dtype(out_dtype, [&](auto like) { store_units<decltype(like)>(out, to, tile, place, skip); });
        });
}

/* Axes by rising input strides; those that the input does not move along come last. */
static void input_order(int *order, const fl_layout *layout)
{
    for (int i = 0; i < layout->count; i++) {
        uint64_t own = (uint64_t)fl_layout_magnitude(layout->axes[i].stride[1]) - 1;
        int at = i;
        for (; at > 0 && (uint64_t)fl_layout_magnitude(layout->axes[order[at - 1]].stride[1]) - 1 > own; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Extends the tile along the first axes of `order` until they make a run of `target` units or the tile is full; beyond
** an axis that is not whole the run would end, so there it stops. Parts of an axis are made nearly equal. */
static void extend_tile(int64_t *extent, const fl_layout *layout, const int *order, int64_t target, int64_t most)
{
    int64_t run = 1, volume = 1;
    for (int i = 0; i < layout->count; i++) volume *= extent[i];
    for (int i = 0; i < layout->count; i++) {
        int64_t *own = &extent[order[i]], size = layout->axes[order[i]].size, wanted = target / run,
                room = *own * (most / volume);
        if (wanted > room) wanted = room;
        if (wanted > size) wanted = size;
        if (wanted > *own) {
            int64_t parts = (size + wanted - 1) / wanted, even = (size + parts - 1) / parts;
            volume = volume / *own * even;
            *own = even;
        }
        run *= *own;
        if (*own < size) return;
    }
}

/* Runs of at least 64 bytes on both sides where the sizes allow; then more of the output's and the input's until the
** tile is full. */
static void choose_tile(int64_t *extent, const fl_layout *layout, int unit, int64_t most)
{
    int in_order[FL_LAYOUT_AXES], out_order[FL_LAYOUT_AXES];
    int64_t side = unit <= 2 ? 64 : unit == 16 ? 16 : 32;
    for (int i = 0; i < layout->count; i++) {
        extent[i] = 1;
        out_order[i] = layout->count - 1 - i;
    }
    input_order(in_order, layout);
    extend_tile(extent, layout, in_order, side, most);
    extend_tile(extent, layout, out_order, side, most);
    extend_tile(extent, layout, out_order, most, most);
    extend_tile(extent, layout, in_order, most, most);
}

static tile_axis axis_in_tile(const tile_job *job, const fl_layout *layout, int axis, int64_t extent, int operand,
                              int32_t place)
{
    int edge = job->edge_axis[0] == axis ? 1 : job->edge_axis[1] == axis ? 2 : 0;
    return {fl_division_of(extent), (int32_t)layout->axes[axis].stride[operand], place, edge,
            (uint32_t)(layout->axes[axis].size % extent)};
}

/* The axes of the tile as `load` walks them, whose order is that of shared memory, and as `store` does. */
static void fill_tile_axes(tile_job *job, const fl_layout *layout, const int64_t *extent)
{
    int order[FL_LAYOUT_AXES], loads = 0, stores = 0;
    int32_t place[FL_LAYOUT_AXES], volume = 1;
    input_order(order, layout);
    for (int i = 0; i < layout->count; i++) {
        int axis = order[i];
        place[axis] = volume;
        volume *= (int32_t)extent[axis];
        if (extent[axis] > 1) job->load[loads++] = axis_in_tile(job, layout, axis, extent[axis], 1, place[axis]);
    }
    for (int axis = layout->count - 1; axis >= 0; axis--)
        if (extent[axis] > 1) job->store[stores++] = axis_in_tile(job, layout, axis, extent[axis], 0, place[axis]);
    job->volume = volume;
    job->inside = loads;
}

/* Fills the steps from tile to tile and the axes whose last tile is not whole: at most two, the last ones of either
** run. Returns how many tiles there are. */
static int64_t fill_tile_steps(tile_job *job, const fl_layout *layout, const int64_t *extent)
{
    fl_layout steps = *layout;
    int edges = 0;
    job->edge_axis[0] = job->edge_axis[1] = -1;
    for (int i = 0; i < layout->count; i++) {
        steps.axes[i].size = (layout->axes[i].size + extent[i] - 1) / extent[i];
        for (int o = 0; o < 2; o++) steps.axes[i].stride[o] *= extent[i];
        if (layout->axes[i].size % extent[i] == 0) continue;
        job->edge_axis[edges] = i;
        job->edge_last[edges++] = (uint32_t)steps.axes[i].size - 1;
    }
    int64_t count = fl_layout_numel(&steps);
    if (count <= FL_INDEX_LIMIT) fl_walk_init(&job->steps, &steps);
    return count;
}

/* Offsets inside a tile have 32 bits, and so have the sizes of its axes. */
static bool tile_fits(const fl_layout *layout, const int64_t *extent)
{
    int64_t reach[2] = {0, 0};
    for (int i = 0; i < layout->count; i++) {
        if (layout->axes[i].size > FL_INDEX_LIMIT) return false;
        for (int o = 0; o < 2 && extent[i] > 1; o++) {
            int64_t stride = fl_layout_magnitude(layout->axes[i].stride[o]);
            if (stride > INT32_MAX) return false;
            reach[o] += (extent[i] - 1) * stride;
        }
    }
    return reach[0] <= INT32_MAX && reach[1] <= INT32_MAX;
}

/* Fills the job but for its number of blocks, which is returned; 0: the tiles cannot be counted in 32 bits. */
static unsigned plan_tiles(tile_job *t, const fl_cuda_copy_job *job, int unit, int block)
{
    int64_t extent[FL_LAYOUT_AXES];
    choose_tile(extent, &job->layout, unit, block * UNITS);
    if (!tile_fits(&job->layout, extent)) return 0;
    int64_t count = fill_tile_steps(t, &job->layout, extent),
            most = (int64_t)fl_cuda_current()->processors * (2048 / block);
    if (count > FL_INDEX_LIMIT) return 0;
    fill_tile_axes(t, &job->layout, extent);
    t->out = job->out;
    t->in = job->in;
    t->tiles = (uint32_t)count;
    return (unsigned)(count < most ? count : most);
}

static constexpr int tile_threads(int unit) { return unit <= 2 ? 512 : 256; }

template<typename T>
static bool launch_tiles(const fl_cuda_copy_job *job)
{
    constexpr int BLOCK = tile_threads(sizeof(T));
    tile_job t;
    unsigned blocks = plan_tiles(&t, job, job->unit, BLOCK);
    if (blocks) FL_LAUNCH((tiles<T, BLOCK>), blocks, BLOCK, 0, t);
    return blocks > 0;
}

bool fl_cuda_permute_tiles(const fl_cuda_copy_job *job)
{
    bool done = false;
    fl_cuda_by_unit(job->unit, [&](auto like) { done = launch_tiles<decltype(like)>(job); });
    return done;
}

template<typename From>
static bool launch_cast(const fl_cuda_copy_job *job, fl_dtype out)
{
    constexpr int BLOCK = THREADS;
    int item = (int)fl_dtype_size(out);
    tile_job t;
    unsigned blocks = plan_tiles(&t, job, item < job->unit ? item : job->unit, BLOCK);
    if (blocks) FL_LAUNCH((cast_tiles<From, BLOCK>), blocks, BLOCK, 0, t, (int)out);
    return blocks > 0;
}

bool fl_cuda_cast_tiles(const fl_cuda_copy_job *job, fl_dtype out, fl_dtype in)
{
    bool done = false;
    fl_cuda_by_storage(in, [&](auto like) {
        done = launch_cast<decltype(like)>(job, out);
        return FL_OK;
    });
    return done;
}

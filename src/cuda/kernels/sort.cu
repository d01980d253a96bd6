/*
** sort.cu -- radix sort by eight bits at a time, lowest first.
**
** CUB sorts where its headers are. The kernels here do where they are not, and in the emulation. A pass of theirs
** counts the digits of every tile, adds the counts up over the tiles, and places the elements. Within a tile each warp
** has a stretch of its own and goes through it 32 elements at a time, so an element's rank among its like is found
** without atomics and the sort is stable.
*/
#include "sort.h"

#ifdef FL_CUDA_CUB
#include "cuda/runtime/runtime.h"

#include <cub/device/device_radix_sort.cuh>

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS) number(uint32_t *order, uint32_t n)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) order[i] = i;
}

static size_t own_words(int64_t) { return 0; }

/* other: as many keys and then places for the order, the second half of the memory. */
static fl_status sort_pairs(fl_cuda_sort *sort, uint32_t *other, int bits)
{
    uint32_t n = (uint32_t)sort->n;
    cub::DoubleBuffer<uint32_t> keys(sort->keys, other), order(sort->order, other + sort->n);
    size_t bytes = 0;
    void *work;
    if (!sort->ordered) FL_LAUNCH(number, (n + THREADS - 1) / THREADS, THREADS, 0, sort->order, n);
    if (bits == 0) return fl_cuda_check("sort");
    cudaError_t error = cub::DeviceRadixSort::SortPairs(NULL, bytes, keys, order, n, 0, bits, fl_cuda_stream());
    if (error == cudaSuccess) {
        FL_TRY(fl_cuda_malloc(&work, bytes));
        error = cub::DeviceRadixSort::SortPairs(work, bytes, keys, order, n, 0, bits, fl_cuda_stream());
        fl_cuda_free(work);
    }
    if (error != cudaSuccess) return fl_cuda_fail(error, "sort");
    sort->keys = keys.Current();
    sort->order = order.Current();
    return FL_OK;
}

#else

enum { THREADS = 256, WARPS = THREADS / 32, EACH = 8, TILE = THREADS * EACH, DIGITS = 256, DIGIT_BITS = 8 };

/* Sum of the values of the threads before this one, and of all; `shared` has room for one number per warp. */
__device__ static uint32_t sum_before(uint32_t value, uint32_t *shared, uint32_t *total)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = value, before = 0, all = 0;
    for (int d = 1; d < 32; d *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    __syncthreads();
    if (lane == 31) shared[warp] = sum;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) before += shared[w];
        all += shared[w];
    }
    *total = all;
    return before + sum - value;
}

/* counts[digit][tile] */
__global__ void __launch_bounds__(THREADS) count_digits(uint32_t *counts, const uint32_t *keys, uint32_t n, int shift)
{
    __shared__ uint32_t seen[DIGITS];
    seen[threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < EACH; k++) {
        uint32_t i = blockIdx.x * TILE + k * THREADS + threadIdx.x;
        if (i < n) atomicAdd(&seen[keys[i] >> shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    counts[threadIdx.x * gridDim.x + blockIdx.x] = seen[threadIdx.x];
}

/* Block d: the counts of digit d become what the tiles before have of it; totals[d] is what all have. */
__global__ void __launch_bounds__(THREADS) add_counts(uint32_t *counts, uint32_t *totals, uint32_t tiles)
{
    __shared__ uint32_t sums[WARPS];
    uint32_t *row = counts + (size_t)blockIdx.x * tiles, before = 0;
    for (uint32_t first = 0; first < tiles; first += THREADS) {
        uint32_t i = first + threadIdx.x, value = i < tiles ? row[i] : 0, all;
        uint32_t at = before + sum_before(value, sums, &all);
        if (i < tiles) row[i] = at;
        before += all;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = before;
}

/* Rank of each of the thread's elements among those of its warp with the same digit; seen[digit]: their number. */
__device__ static void rank_elements(uint32_t *rank, uint32_t *seen, const uint32_t *digit, int lane)
{
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        unsigned alike = __match_any_sync(0xffffffffu, digit[k]);
        uint32_t before = digit[k] < DIGITS ? seen[digit[k]] : 0;
        __syncwarp();
        if (digit[k] < DIGITS && lane == __ffs((int)alike) - 1) seen[digit[k]] = before + __popc(alike);
        __syncwarp();
        rank[k] = before + __popc(alike & ((1u << lane) - 1));
    }
}

/* order NULL: 0, 1, 2, ... */
__global__ void __launch_bounds__(THREADS)
    place(uint32_t *to_keys, uint32_t *to_order, const uint32_t *keys, const uint32_t *order, uint32_t n, int shift,
          const uint32_t *counts, const uint32_t *totals)
{
    __shared__ uint32_t sums[WARPS], seen[WARPS][DIGITS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t key[EACH], digit[EACH], rank[EACH], all, first = blockIdx.x * TILE + warp * (32 * EACH) + lane;
    for (int w = 0; w < WARPS; w++) seen[w][threadIdx.x] = 0;
    uint32_t start = sum_before(totals[threadIdx.x], sums, &all) + counts[threadIdx.x * gridDim.x + blockIdx.x];
    for (int k = 0; k < EACH; k++) {
        key[k] = first + 32 * k < n ? keys[first + 32 * k] : 0;
        digit[k] = first + 32 * k < n ? key[k] >> shift & (DIGITS - 1) : (uint32_t)DIGITS;
    }
    __syncthreads();
    rank_elements(rank, seen[warp], digit, lane);
    __syncthreads();
    for (int w = 0; w < WARPS; w++) { /* each thread for one digit: where the warps' elements begin */
        uint32_t count = seen[w][threadIdx.x];
        seen[w][threadIdx.x] = start;
        start += count;
    }
    __syncthreads();
    for (int k = 0; k < EACH; k++) {
        uint32_t i = first + 32 * k;
        if (i >= n) continue;
        uint32_t at = seen[warp][digit[k]] + rank[k];
        to_keys[at] = key[k];
        to_order[at] = order ? order[i] : i;
    }
}

__global__ void __launch_bounds__(THREADS) number(uint32_t *order, uint32_t n)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) order[i] = i;
}

static int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }

/* Of counts and totals, which lie behind the keys and the order. */
static size_t own_words(int64_t n) { return DIGITS * (size_t)tiles_of(n) + DIGITS; }

static fl_status sort_pairs(fl_cuda_sort *sort, uint32_t *other, int bits)
{
    uint32_t n = (uint32_t)sort->n, tiles = (uint32_t)tiles_of(sort->n), *order = sort->ordered ? sort->order : NULL;
    uint32_t *other_keys = other, *other_order = other + sort->n, *counts = (uint32_t *)sort->memory + 4 * sort->n,
             *totals = counts + (size_t)DIGITS * tiles;
    if (bits == 0 && !order) FL_LAUNCH(number, (n + THREADS - 1) / THREADS, THREADS, 0, sort->order, n);
    for (int shift = 0; shift < bits; shift += DIGIT_BITS) {
        FL_LAUNCH(count_digits, tiles, THREADS, 0, counts, sort->keys, n, shift);
        FL_LAUNCH(add_counts, DIGITS, THREADS, 0, counts, totals, tiles);
        FL_LAUNCH(place, tiles, THREADS, 0, other_keys, other_order, sort->keys, order, n, shift, counts, totals);
        uint32_t *keys = sort->keys;
        sort->keys = other_keys;
        other_keys = keys;
        order = other_order;
        other_order = sort->order;
        sort->order = order;
    }
    return fl_cuda_check("sort");
}
#endif

/* ---- memory: keys, order, the same again, words of the kernels here ---- */

fl_status fl_cuda_sort_open(fl_cuda_sort *sort, const char *who, int64_t n)
{
    if (n >= FL_CUDA_SORT_MOST)
        return fl_fail(FL_ERR_VALUE, "%s: a GPU sorts fewer than 2^31 elements, got %lld; use device \"cpu\"", who,
                       (long long)n);
    FL_TRY(fl_cuda_malloc(&sort->memory, (4 * (size_t)n + own_words(n)) * sizeof *sort->keys));
    sort->n = n;
    sort->ordered = false;
    sort->keys = (uint32_t *)sort->memory;
    sort->order = sort->keys + n;
    return FL_OK;
}

fl_status fl_cuda_sort_run(fl_cuda_sort *sort, int bits)
{
    uint32_t *memory = (uint32_t *)sort->memory;
    if (sort->n == 0) return FL_OK;
    FL_TRY(sort_pairs(sort, sort->keys == memory ? memory + 2 * sort->n : memory, bits));
    sort->ordered = true;
    return FL_OK;
}

void fl_cuda_sort_close(fl_cuda_sort *sort) { fl_cuda_free(sort->memory); }

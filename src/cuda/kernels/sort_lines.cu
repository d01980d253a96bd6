/*
** sort_lines.cu -- sort, topk and ranked: the elements of each line in order, all of them, the first k or those at
** some ranks.
**
** Short rows are sorted where a block has them in shared memory (bitonic; a position decides between equal keys, so it
** is stable all the same), or by radix in its registers, where CUB is. Of long rows the first few are selected digit by
** digit, then sorted like a short row; a row that would keep one block busy for long is cut into parts, and the first
** of all parts are candidates. All of a long row are sorted by radix (sort.h), all rows at once: the last and most
** significant key is the row.
*/
#include "core/op/ranked.h"
#include "core/op/reduce.h"
#include "index.h"
#include "cuda/parts/positions.h"
#include "operand.h"
#include "sort.h"

#ifdef FL_CUDA_CUB
#include <cub/block/block_radix_sort.cuh>
#endif

extern "C" {
#include "core/op/line_view.h"
#include "core/base/sort_key.h"
}

enum {
    THREADS = 256,
    SHORT = 2048,   /* elements that a block sorts in shared memory */
    FEWEST = 256,   /* more than that: in registers, if CUB is there */
    MOST = 4096,    /* the same for all of a row */
    FEW = 1024,     /* of a longer row: selected, not sorted */
    PART = 16384,   /* least elements of a part of a row */
    GROUP = 1 << 26 /* elements of rows that are sorted together, which bounds the memory it takes */
};

/* ---- keys ----
**
** of(&w, key): the element that has this key; false: it is one of several. */

template<int WIDTH, typename W, typename K>
__device__ static bool signed_of(W *word, K key)
{
    *word = (W)(key ^ (K)1 << (WIDTH - 1));
    return true;
}
template<int WIDTH, typename W, typename K>
__device__ static bool float_of(W *word, K key)
{
    uint64_t bits;
    bool alone = fl_sort_key_to_float(&bits, key, WIDTH);
    *word = (W)bits;
    return alone;
}

template<typename T>
struct element;
template<>
struct element<uint8_t> {
    typedef uint8_t word;
    typedef uint32_t key;
    __device__ static key key_of(word w) { return w; }
    __device__ static bool of(word *w, key k)
    {
        *w = (word)k;
        return true;
    }
};
template<>
struct element<int8_t> {
    typedef int8_t word;
    typedef uint32_t key;
    __device__ static key key_of(word w) { return (key)fl_sort_key_signed(w, 8); }
    __device__ static bool of(word *word, key k) { return signed_of<8>(word, k); }
};
template<>
struct element<int32_t> {
    typedef int32_t word;
    typedef uint32_t key;
    __device__ static key key_of(word w) { return (key)fl_sort_key_signed(w, 32); }
    __device__ static bool of(word *word, key k) { return signed_of<32>(word, k); }
};
template<>
struct element<int64_t> {
    typedef int64_t word;
    typedef uint64_t key;
    __device__ static key key_of(word w) { return fl_sort_key_signed(w, 64); }
    __device__ static bool of(word *word, key k) { return signed_of<64>(word, k); }
};
template<>
struct element<__half> {
    typedef uint16_t word;
    typedef uint32_t key;
    __device__ static key key_of(word w) { return (key)fl_sort_key_float(w, 16, FL_SORT_INFINITY_FLOAT16); }
    __device__ static bool of(word *word, key k) { return float_of<16>(word, k); }
};
template<>
struct element<__nv_bfloat16> {
    typedef uint16_t word;
    typedef uint32_t key;
    __device__ static key key_of(word w) { return (key)fl_sort_key_float(w, 16, FL_SORT_INFINITY_BFLOAT16); }
    __device__ static bool of(word *word, key k) { return float_of<16>(word, k); }
};
template<>
struct element<float> {
    typedef uint32_t word;
    typedef uint32_t key;
    __device__ static key key_of(word w) { return (key)fl_sort_key_float(w, 32, FL_SORT_INFINITY_FLOAT32); }
    __device__ static bool of(word *word, key k) { return float_of<32>(word, k); }
};
template<>
struct element<double> {
    typedef uint64_t word;
    typedef uint64_t key;
    __device__ static key key_of(word w) { return fl_sort_key_float(w, 64, FL_SORT_INFINITY_FLOAT64); }
    __device__ static bool of(word *word, key k) { return float_of<64>(word, k); }
};

/* Rows [rows, n], of which the first k go to values and positions [rows, k]. flip: turns keys around for descending
** order. */
template<typename E>
struct job {
    const typename E::word *x;
    typename E::word *values;
    int64_t *positions, rows, n, k;
    typename E::key flip;

    __device__ typename E::key key(int64_t row, int64_t at) const { return E::key_of(x[row * n + at]) ^ flip; }
    __device__ void put(int64_t row, int64_t place, int64_t at) const
    {
        values[row * k + place] = x[row * n + at];
        positions[row * k + place] = at;
    }
    /* For a known key, which saves most reads of x. */
    __device__ void put(int64_t row, int64_t place, int64_t at, typename E::key known) const
    {
        typename E::word word;
        if (!E::of(&word, known ^ flip)) word = x[row * n + at];
        values[row * k + place] = word;
        positions[row * k + place] = at;
    }
};

/* ---- in shared memory ---- */

/* Sorts `total` items, each `size` of them (a power of two) for themselves, by key and then by `at`; all threads
** call. */
template<typename K>
__device__ static void sort_shared(K *key, uint32_t *at, int size, int total)
{
    for (int run = 2; run <= size; run *= 2) {
        for (int apart = run / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (int pair = threadIdx.x; pair < total / 2; pair += THREADS) {
                int i = 2 * pair - (pair & (apart - 1)), j = i + apart;
                bool down = (i & (size - 1) & run) != 0, after = key[i] > key[j] || (key[i] == key[j] && at[i] > at[j]);
                if (after == down) continue;
                K k = key[i];
                uint32_t a = at[i];
                key[i] = key[j], at[i] = at[j];
                key[j] = k, at[j] = a;
            }
        }
    }
    __syncthreads();
}

/* A block has total / size rows. */
template<typename E>
__global__ void __launch_bounds__(THREADS) sort_short(const job<E> j, int size, int total)
{
    typedef typename E::key K;
    FL_DYNAMIC_SHARED(K, key);
    uint32_t *at = (uint32_t *)(key + total);
    int64_t first = (int64_t)blockIdx.x * (total / size);
    for (int i = threadIdx.x; i < total; i += THREADS) {
        int64_t row = first + i / size;
        int place = i & (size - 1);
        bool there = row < j.rows && place < j.n;
        key[i] = there ? j.key(row, place) : (K) ~(K)0;
        at[i] = there ? (uint32_t)place : UINT32_MAX;
    }
    sort_shared(key, at, size, total);
    for (int i = threadIdx.x; i < total; i += THREADS) {
        int64_t row = first + i / size;
        int place = i & (size - 1);
        if (row < j.rows && place < j.k) j.put(row, place, at[i], key[i]);
    }
}

/* ---- in registers ---- */

#ifdef FL_CUDA_CUB
/* A block has a row of at most BLOCK * EACH elements; thread t its elements t * EACH and so on, so that equal keys stay
** in order. Behind the row are keys as large as any. */
template<typename E, int BLOCK, int EACH>
__global__ void __launch_bounds__(BLOCK) sort_block(const job<E> j)
{
    typedef typename E::key K;
    typedef cub::BlockRadixSort<K, BLOCK, EACH, uint32_t> sorter;
    __shared__ typename sorter::TempStorage storage;
    int n = (int)j.n, k = (int)j.k;
    const typename E::word *x = j.x + blockIdx.x * j.n;
    K key[EACH];
    uint32_t at[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        at[i] = threadIdx.x * EACH + i;
        key[i] = (int)at[i] < n ? E::key_of(x[at[i]]) ^ j.flip : (K) ~(K)0;
    }
    sorter(storage).SortBlockedToStriped(key, at, 0, 8 * (int)sizeof(typename E::word));
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int place = i * BLOCK + threadIdx.x;
        if (place < k) j.put(blockIdx.x, place, at[i], key[i]);
    }
}

template<typename E>
static void launch_block(const job<E> &job)
{
    unsigned rows = (unsigned)job.rows;
    if (job.n <= 1024) FL_LAUNCH((sort_block<E, 128, 8>), rows, 128, 0, job);
    else if (job.n <= 2048) FL_LAUNCH((sort_block<E, 256, 8>), rows, 256, 0, job);
    else FL_LAUNCH((sort_block<E, 256, 16>), rows, 256, 0, job);
}
#endif

/* False: no such way for rows of these lengths. */
template<typename E>
static bool sort_in_registers(const job<E> &job)
{
#ifdef FL_CUDA_CUB
    bool fits = job.n > FEWEST && job.n <= (job.k > FEW ? MOST : SHORT) && job.rows < FL_CUDA_SORT_MOST;
    if (fits) launch_block(job);
    return fits;
#else
    return false;
#endif
}

/* ---- the first few of long rows ---- */

/* Candidates: `count` of each row with their positions; equal keys come by position. */
template<typename K>
struct candidates {
    K *key;
    uint32_t *at;
    int64_t count;
};

/* The source of a selection: elements of a row, or candidates. */
template<typename E>
struct from_row {
    job<E> j;
    __device__ typename E::key key(int64_t row, int64_t i) const { return j.key(row, i); }
    __device__ int64_t position(int64_t, int64_t i) const { return i; }
};
template<typename E>
struct from_candidates {
    candidates<typename E::key> c;
    __device__ typename E::key key(int64_t row, int64_t i) const { return c.key[row * c.count + i]; }
    __device__ int64_t position(int64_t row, int64_t i) const { return c.at[row * c.count + i]; }
};

/* The destination of a selection: results, or candidates of a part. */
template<typename E>
struct to_results {
    job<E> j;
    __device__ void put(int64_t row, int64_t, int64_t place, typename E::key key, int64_t position) const
    {
        j.put(row, place, position, key);
    }
};
template<typename E>
struct to_candidates {
    candidates<typename E::key> c;
    int64_t k;
    __device__ void put(int64_t row, int64_t part, int64_t place, typename E::key key, int64_t position) const
    {
        c.key[row * c.count + part * k + place] = key;
        c.at[row * c.count + part * k + place] = (uint32_t)position;
    }
};

/* The k-th smallest of the numbers that agree with `found` in the bits of `known`: digit by digit from the highest
** down. On return `found` is that number, *need how many of those equal to it are among the k, *equal how many there
** are. number(i, &v): false: i does not take part. */
template<typename K, typename F>
__device__ static void select_number(K *found, int *need, int64_t *equal, int bits, int64_t begin, int64_t end,
                                     const F &number)
{
    __shared__ uint32_t seen[256];
    __shared__ uint32_t digit, before;
    K value = 0, known = 0;
    int left = *need;
    uint32_t alike = 0;
    for (int shift = bits - 8; shift >= 0; shift -= 8) {
        __syncthreads();
        seen[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            K v;
            if (number(i, &v) && (v & known) == value) atomicAdd(&seen[(unsigned)(v >> shift) & 255u], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t sum = 0, d = 0;
            while (sum + seen[d] < (uint32_t)left) sum += seen[d++];
            digit = d;
            before = sum;
        }
        __syncthreads();
        left -= (int)before;
        alike = seen[digit];
        value |= (K)digit << shift;
        known |= (K)255 << shift;
    }
    *found = value;
    *need = left;
    *equal = alike;
}

/* Block (part, row): the first k of elements, cut into as many balanced parts as the grid is wide. */
template<typename E, typename From, typename To>
__global__ void __launch_bounds__(THREADS)
    select_first(const From from, const To to, int64_t rows, int64_t n, int k, int size)
{
    typedef typename E::key K;
    FL_DYNAMIC_SHARED(K, key);
    uint32_t *at = (uint32_t *)(key + size);
    __shared__ uint32_t count;
    int64_t part = blockIdx.x, parts = gridDim.x, begin = n / parts * part + (part < n % parts ? part : n % parts),
            end = begin + n / parts + (part < n % parts);
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        K last;
        uint32_t last_at = UINT32_MAX;
        int need = k;
        int64_t equal;
        select_number<K>(&last, &need, &equal, 8 * (int)sizeof(typename E::word), begin, end, [&](int64_t i, K *v) {
            *v = from.key(row, i);
            return true;
        });
        if (equal > need) /* of equal ones the lowest positions */
            select_number<uint32_t>(&last_at, &need, &equal, 32, begin, end, [&](int64_t i, uint32_t *v) {
                *v = (uint32_t)i;
                return from.key(row, i) == last;
            });
        if (threadIdx.x == 0) count = 0;
        for (int i = threadIdx.x; i < size; i += THREADS) key[i] = (K) ~(K)0, at[i] = UINT32_MAX;
        __syncthreads();
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            K v = from.key(row, i);
            if (v > last || (v == last && (uint32_t)i > last_at)) continue;
            uint32_t place = atomicAdd(&count, 1u);
            key[place] = v;
            at[place] = (uint32_t)i;
        }
        sort_shared(key, at, size, size);
        for (int i = threadIdx.x; i < k; i += THREADS) to.put(row, part, i, key[i], from.position(row, at[i]));
        __syncthreads();
    }
}

/* ---- all of long rows ---- */

/* Keys of the elements in the order so far (NULL: as they lie), bits from `shift` on. */
template<typename E>
__global__ void __launch_bounds__(THREADS)
    fill_keys(uint32_t *keys, const uint32_t *order, const job<E> j, int64_t first_row, uint32_t count, int shift)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) keys[i] = (uint32_t)(j.key(first_row, order ? order[i] : i) >> shift);
}

__global__ void __launch_bounds__(THREADS) fill_rows(uint32_t *keys, const uint32_t *order, uint32_t count, uint32_t n)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) keys[i] = order[i] / n;
}

/* order: of all elements from first_row on, row by row. */
template<typename E>
__global__ void __launch_bounds__(THREADS)
    put_sorted(const job<E> j, const uint32_t *order, int64_t first_row, uint32_t rows)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, n = (uint32_t)j.n, k = (uint32_t)j.k;
    if (i >= rows * k) return;
    uint32_t row = i / k, place = i - row * k;
    j.put(first_row + row, place, order[row * n + place] - row * n);
}

/* The same of one row whose keys are sorted. */
template<typename E>
__global__ void __launch_bounds__(THREADS)
    put_row(const job<E> j, const uint32_t *keys, const uint32_t *order, int64_t row)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < j.k) j.put(row, i, order[i], keys[i]);
}

template<typename E>
static fl_status sort_group(fl_cuda_sort *sort, const job<E> &job, int64_t first_row, int64_t rows)
{
    uint32_t count = (uint32_t)(rows * job.n);
    unsigned blocks = fl_blocks(count, THREADS);
    int bits = 8 * (int)sizeof(typename E::word);
    for (int shift = 0; shift < bits; shift += 32) {
        FL_LAUNCH((fill_keys<E>), blocks, THREADS, 0, sort->keys, sort->ordered ? sort->order : NULL, job, first_row,
                  count, shift);
        FL_TRY(fl_cuda_sort_run(sort, bits < 32 ? bits : 32));
    }
    if (rows > 1) {
        FL_LAUNCH(fill_rows, blocks, THREADS, 0, sort->keys, sort->order, count, (uint32_t)job.n);
        FL_TRY(fl_cuda_sort_run(sort, fl_cuda_bits(rows - 1)));
    }
    unsigned blocks_put = fl_blocks(rows * job.k, THREADS);
    if (rows == 1 && bits <= 32)
        FL_LAUNCH((put_row<E>), blocks_put, THREADS, 0, job, sort->keys, sort->order, first_row);
    else FL_LAUNCH((put_sorted<E>), blocks_put, THREADS, 0, job, sort->order, first_row, (uint32_t)rows);
    return FL_OK;
}

template<typename E>
static fl_status sort_long(const char *who, const job<E> &job)
{
    int64_t together = job.n < GROUP ? GROUP / job.n : 1;
    for (int64_t row = 0; row < job.rows; row += together) {
        fl_cuda_sort s;
        int64_t rows = job.rows - row < together ? job.rows - row : together;
        FL_TRY(fl_cuda_sort_open(&s, who, rows * job.n));
        fl_status status = sort_group(&s, job, row, rows);
        fl_cuda_sort_close(&s);
        FL_TRY(status);
    }
    return FL_OK;
}

/* ---- the choice of a method ---- */

static int power_of_two(int64_t n)
{
    int size = 2;
    while (size < n) size *= 2;
    return size;
}

template<typename E>
static void launch_short(const job<E> &job)
{
    int size = power_of_two(job.n), total = size < 2 * THREADS ? 2 * THREADS : size;
    FL_LAUNCH((sort_short<E>), fl_blocks(job.rows, total / size), THREADS,
              (size_t)total * (sizeof(typename E::key) + sizeof(uint32_t)), job, size, total);
}

template<typename E, typename From, typename To>
static void launch_select(const From &from, const To &to, const job<E> &job, int64_t n, int64_t parts)
{
    int size = power_of_two(job.k);
    dim3 grid((unsigned)parts, (unsigned)(job.rows < 65535 ? job.rows : 65535));
    FL_LAUNCH((select_first<E, From, To>), grid, THREADS, (size_t)size * (sizeof(typename E::key) + sizeof(uint32_t)),
              from, to, job.rows, n, (int)job.k, size);
}

/* Enough parts that all processors have work, none too small for it to be worth it. */
static int64_t parts_of(int64_t rows, int64_t n)
{
    int64_t parts = n / PART, wanted = 4 * (int64_t)fl_cuda_current()->processors / rows;
    if (parts > wanted) parts = wanted;
    return parts < 1 ? 1 : parts;
}

template<typename E>
static fl_status select_long(const job<E> &job)
{
    typedef typename E::key K;
    int64_t parts = parts_of(job.rows, job.n);
    from_row<E> row = {job};
    to_results<E> results = {job};
    if (parts == 1) {
        launch_select<E>(row, results, job, job.n, 1);
        return FL_OK;
    }
    candidates<K> c = {NULL, NULL, parts * job.k};
    void *memory;
    FL_TRY(fl_cuda_malloc(&memory, (size_t)(job.rows * c.count) * (sizeof(K) + sizeof(uint32_t))));
    c.key = (K *)memory;
    c.at = (uint32_t *)(c.key + job.rows * c.count);
    to_candidates<E> kept = {c, job.k};
    from_candidates<E> all = {c};
    launch_select<E>(row, kept, job, job.n, parts);
    launch_select<E>(all, results, job, c.count, 1);
    fl_cuda_free(memory);
    return FL_OK;
}

template<typename E>
static fl_status sort_rows(const char *who, const job<E> &job)
{
    if (job.n >= FL_CUDA_SORT_MOST)
        return fl_fail(FL_ERR_VALUE, "%s: a GPU sorts fewer than 2^31 elements, got %lld; use device \"cpu\"", who,
                       (long long)job.n);
    if (sort_in_registers(job)) return fl_cuda_check(who);
    if (job.n > SHORT && job.k > FEW) FL_TRY(sort_long(who, job));
    else if (job.n > SHORT) FL_TRY(select_long(job));
    else launch_short(job);
    return fl_cuda_check(who);
}

/* in, then values and positions: lines as rows, results where they belong at the end. */
static fl_status sort_lines(fl_kernel *kernel, int axis, bool descending)
{
    fl_line_view lines[3];
    fl_cuda_operand o[3] = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    for (int i = 0; i < 3; i++) fl_line_view_init(&lines[i], i ? &kernel->out[i - 1] : &kernel->in[0], axis);
    fl_status status = fl_cuda_operand_in(&o[0], &lines[0].v, kernel->in[0].dtype, false);
    for (int i = 1; i < 3 && status == FL_OK; i++)
        status = fl_cuda_operand_out(&o[i], &lines[i].v, kernel->out[i - 1].dtype);
    if (status == FL_OK)
        status = fl_cuda_by_dtype(kernel->in[0].dtype, [&](auto like) {
            typedef element<decltype(like)> E;
            int64_t n = fl_line_length(&lines[0]);
            job<E> j = {(const typename E::word *)o[0].data,
                        (typename E::word *)o[1].data,
                        (int64_t *)o[2].data,
                        kernel->in[0].numel / n,
                        n,
                        fl_line_length(&lines[1]),
                        0};
            if (descending) j.flip = (typename E::key)(~UINT64_C(0) >> (64 - 8 * sizeof(typename E::word)));
            return sort_rows(kernel->name, j);
        });
    for (int i = 1; i < 3 && status == FL_OK; i++)
        status = fl_cuda_operand_store(&o[i], &lines[i].v, kernel->out[i - 1].dtype);
    for (int i = 0; i < 3; i++) fl_cuda_operand_close(&o[i]);
    return status;
}

static int axis_at(const fl_kernel *kernel, int slot)
{
    return (int)(kernel->attrs->at[slot].integer + (kernel->attrs->at[slot].integer < 0 ? kernel->in[0].ndim : 0));
}
static fl_status launch_sort(fl_kernel *kernel)
{
    return sort_lines(kernel, axis_at(kernel, FL_SORT_AXIS), kernel->attrs->at[FL_SORT_DESCENDING].integer != 0);
}
static fl_status launch_topk(fl_kernel *kernel)
{
    return sort_lines(kernel, axis_at(kernel, FL_TOPK_AXIS), kernel->attrs->at[FL_TOPK_LARGEST].integer != 0);
}

/* ---- elements at ranks ---- */

/* Of sorted rows what is at the ranks [rows, k], or (NULL) at one rank of all. A rank that is none has been reported;
** it reads the first element. */
template<typename W>
__global__ void __launch_bounds__(THREADS)
    pick_ranks(W *values, int64_t *positions, const W *sorted, const int64_t *order, const int64_t *ranks, int64_t rank,
               int64_t total, int64_t k, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= total) return;
    uint64_t own = (uint64_t)(ranks ? ranks[i] : rank);
    int64_t from = i / k * n + (own < (uint64_t)n ? (int64_t)own : 0);
    values[i] = sorted[from];
    positions[i] = order[from];
}

/* Sorts all lines: a device does that fast enough for one kernel to serve all ranks. o: values, positions, x, ranks as
** rows. */
template<typename E>
static fl_status pick_sorted(fl_kernel *kernel, const fl_cuda_operand *operand, int64_t n, int64_t k)
{
    typedef typename E::word W;
    const fl_view *x = &kernel->in[FL_RANKED_X];
    void *memory;
    FL_TRY(fl_cuda_malloc(&memory, (size_t)x->numel * (sizeof(int64_t) + sizeof(W))));
    int64_t *order = (int64_t *)memory;
    job<E> j = {(const W *)operand[2].data, (W *)(order + x->numel), order, x->numel / n, n, n, 0};
    fl_status status = sort_rows(kernel->name, j);
    if (status == FL_OK) {
        int64_t total = kernel->out[0].numel;
        FL_LAUNCH((pick_ranks<W>), fl_blocks(total, THREADS), THREADS, 0, (W *)operand[0].data,
                  (int64_t *)operand[1].data, (const W *)j.values, (const int64_t *)order,
                  (const int64_t *)operand[3].data, kernel->attrs->at[FL_RANKED_RANK].integer, total, k, n);
        status = fl_cuda_check(kernel->name);
    }
    fl_cuda_free(memory);
    return status;
}

/* Only quantile has ranks that data decide. */
static fl_status check_ranks(const fl_view *ranks, int64_t n)
{
    fl_cuda_operand array = {};
    fl_status status = fl_cuda_operand_in(&array, ranks, FL_INT64, false);
    if (status == FL_OK && ranks->data)
        status = fl_cuda_check_positions("quantile", ranks, (const int64_t *)array.data, n);
    fl_cuda_operand_close(&array);
    return status;
}

static fl_status launch_ranked(fl_kernel *kernel)
{
    fl_line_view lines[4];
    fl_cuda_operand o[4] = {};
    const fl_view *x = &kernel->in[FL_RANKED_X], *ranks = &kernel->in[FL_RANKED_RANKS];
    int axis = axis_at(kernel, FL_RANKED_AXIS), count = ranks->data ? 4 : 3;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(check_ranks(ranks, x->size[axis]));
    if (x->numel == 0) return FL_OK; /* all ranks were reported */
    for (int i = 0; i < count; i++) fl_line_view_init(&lines[i], i < 2 ? &kernel->out[i] : &kernel->in[i - 2], axis);
    fl_status status = FL_OK;
    for (int i = 0; i < count && status == FL_OK; i++)
        status = i < 2 ? fl_cuda_operand_out(&o[i], &lines[i].v, kernel->out[i].dtype)
                       : fl_cuda_operand_in(&o[i], &lines[i].v, kernel->in[i - 2].dtype, false);
    if (status == FL_OK)
        status = fl_cuda_by_dtype(x->dtype, [&](auto like) {
            return pick_sorted<element<decltype(like)>>(kernel, o, x->size[axis], fl_line_length(&lines[0]));
        });
    for (int i = 0; i < 2 && status == FL_OK; i++)
        status = fl_cuda_operand_store(&o[i], &lines[i].v, kernel->out[i].dtype);
    for (int i = 0; i < 4; i++) fl_cuda_operand_close(&o[i]);
    return status;
}

FL_CUDA_OP(sort, launch_sort);
FL_CUDA_OP(topk, launch_topk);
FL_CUDA_OP(ranked, launch_ranked);

/*
** memory.cu -- device memory in the order of the queues, and pinned host memory.
**
** Memory comes from the driver's pool by cudaMallocAsync on the compute queue. Blocks up to 1 MiB are kept in size
** classes (8 per doubling) when they are released: the next owner issues to the same queue, so its ops come after those
** of the last owner, and an allocation costs no call of the driver. Larger blocks are kept by the driver's pool, until
** memory is short.
**
** Memory that another queue uses first, for a copy in, is allocated on that queue, and released in the order of the
** compute queue like all else: so copies do not wait for kernels. The pool gives them only memory whose last use is
** complete, or behind an event that they follow anyway; it adds no wait of its own.
*/
#include "runtime.h"
#include "core/base/size_class.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT = 512, SMALL = 1 << 20, CLASSES = 97, TEMPORARIES = 32, AHEAD = 64 << 20 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* Each block is the driver's, with just its bytes: uses of released memory and of bytes behind the end are found. */
static const bool EXACT = true;
static const int64_t CACHE_LIMIT = 0;
#else
static const bool EXACT = false;
static const int64_t CACHE_LIMIT = 256 << 20;
#endif

/* Blocks of one size that are not in use. */
struct stack {
    void **blocks;
    int count, room;
};

static bool stack_push(stack *stack, void *data)
{
    if (stack->count == stack->room) {
        int room = stack->room ? 2 * stack->room : 16;
        void **blocks = (void **)realloc(stack->blocks, (size_t)room * sizeof *blocks);
        if (!blocks) return false;
        stack->blocks = blocks;
        stack->room = room;
    }
    stack->blocks[stack->count++] = data;
    return true;
}

static void *stack_pop(stack *stack) { return stack->count ? stack->blocks[--stack->count] : NULL; }

/* ---- device memory ---- */

struct arena {
    cudaMemPool_t pool;
    stack small[CLASSES];
    size_t ahead;     /* bytes taken for other queues since `near` was recorded */
    cudaEvent_t near; /* in the compute queue */
    fl_memory_stats stats;
};
static arena arenas[FL_CUDA_DEVICES];

static int class_of(size_t bytes) { return fl_size_class(bytes ? (bytes + UNIT - 1) / UNIT : 1); }
static size_t class_bytes(int c) { return fl_size_class_units(c) * UNIT; }

/* The device is the current one. A process that has a GPU for itself lets the pool keep all it ever needed; others keep
** their share. */
fl_status fl_cuda_memory_open(int device)
{
    arena *a = &arenas[device];
    size_t available, total;
    FL_CUDA_TRY(cudaDeviceGetDefaultMemPool(&a->pool, device));
    FL_CUDA_TRY(cudaMemGetInfo(&available, &total));
    uint64_t keep = fl_cuda_processes() > 1 ? total / (size_t)fl_cuda_processes() / 2 : UINT64_MAX;
    FL_CUDA_TRY(cudaMemPoolSetAttribute(a->pool, cudaMemPoolAttrReleaseThreshold, &keep));
    int waits = 0;
    FL_CUDA_TRY(cudaMemPoolSetAttribute(a->pool, cudaMemPoolReuseAllowInternalDependencies, &waits));
    FL_CUDA_TRY(cudaEventCreateWithFlags(&a->near, cudaEventDisableTiming));
    return FL_OK;
}

static void format_bytes(char *text, size_t size, double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    int i = 0;
    for (; bytes >= 1024 && i < 3; i++) bytes /= 1024;
    snprintf(text, size, i ? "%.1f %s" : "%.0f %s", bytes, units[i]);
}

static fl_status out_of_memory(size_t bytes, int device)
{
    char asked[32], live[32], peak[32], left[32], whole[32];
    size_t available = 0, total = 0;
    cudaGetLastError();
    cudaMemGetInfo(&available, &total);
    format_bytes(asked, sizeof asked, (double)bytes);
    format_bytes(live, sizeof live, (double)arenas[device].stats.live_bytes);
    format_bytes(peak, sizeof peak, (double)arenas[device].stats.peak_bytes);
    format_bytes(left, sizeof left, (double)available);
    format_bytes(whole, sizeof whole, (double)total);
    return fl_fail(FL_ERR_MEMORY,
                   "cuda:%d: out of memory: %s asked for; this process has %s (at most %s so far); %s of %s are free",
                   device, asked, live, peak, left, whole);
}

static fl_status pool_take(void **out, size_t bytes, fl_cuda_queue *queue)
{
    cudaError_t error = cudaMallocAsync(out, bytes, queue->stream);
    if (error == cudaErrorMemoryAllocation) return out_of_memory(bytes, queue->device);
    if (error != cudaSuccess) return fl_cuda_fail(error, "cuda");
    arenas[queue->device].stats.system_allocations++;
    return FL_OK;
}

/* A kept block, its bytes like those of a new one where a use of unwritten bytes is detected. */
static void *take_kept(arena *arena, int c, cudaStream_t stream)
{
    void *data = stack_pop(&arena->small[c]);
    if (!data) return NULL;
    arena->stats.cached_bytes -= (int64_t)class_bytes(c);
#ifdef FL_EMULATED
    cudaMemsetAsync(data, 0xff, class_bytes(c), stream);
#else
    (void)stream;
#endif
    return data;
}

static void count_live(arena *arena, size_t bytes)
{
    fl_memory_stats *s = &arena->stats;
    s->allocations++;
    s->live_blocks++;
    s->live_bytes += (int64_t)bytes;
    if (s->live_bytes > s->peak_bytes) s->peak_bytes = s->live_bytes;
}

static void count_dead(arena *arena, size_t bytes)
{
    arena->stats.live_blocks--;
    arena->stats.live_bytes -= (int64_t)bytes;
}

static fl_status allocate_on(void **out, size_t bytes, fl_cuda_queue *queue)
{
    arena *a = &arenas[queue->device];
    void *data = NULL;
    if (bytes <= SMALL) {
        int c = class_of(bytes);
        data = take_kept(a, c, queue->stream);
        if (!data) FL_TRY(pool_take(&data, EXACT ? (bytes ? bytes : 1) : class_bytes(c), queue));
    } else FL_TRY(pool_take(&data, bytes, queue));
    count_live(a, bytes);
    *out = data;
    return FL_OK;
}

static void release_on(void *data, size_t bytes, fl_cuda_queue *queue)
{
    arena *a = &arenas[queue->device];
    count_dead(a, bytes);
    if (bytes <= SMALL) {
        int c = class_of(bytes);
        int64_t whole = (int64_t)class_bytes(c);
        if (a->stats.cached_bytes + whole <= CACHE_LIMIT && stack_push(&a->small[c], data)) {
            a->stats.cached_bytes += whole;
            return;
        }
    }
    cudaFreeAsync(data, queue->stream);
}

/* A queue of a device, open. */
static fl_status open_queue(fl_cuda_queue **out, int device, fl_queue kind)
{
    fl_cuda_queue *before = fl_cuda_queue_current();
    FL_TRY(fl_cuda_enter(device, kind));
    *out = fl_cuda_queue_current();
    if (before && before != *out) FL_TRY(fl_cuda_enter(before->device, before->kind));
    return FL_OK;
}

/* The copies of a queue are at most twice AHEAD before the compute queue, in whose order their memory comes back: its
** new ones wait for what was computed when AHEAD bytes less had been copied. */
static fl_status stay_near(fl_cuda_queue *queue, size_t bytes)
{
    arena *a = &arenas[queue->device];
    fl_cuda_queue *compute;
    FL_TRY(open_queue(&compute, queue->device, FL_QUEUE_COMPUTE));
    a->ahead += bytes;
    if (a->ahead < AHEAD) return FL_OK;
    a->ahead = 0;
    FL_CUDA_TRY(
        cudaStreamWaitEvent(queue->stream, a->near, 0)); /* at first it has never been recorded: nothing to wait for */
    FL_CUDA_TRY(cudaEventRecord(a->near, compute->stream));
    return FL_OK;
}

fl_status fl_cuda_allocate(void **data, size_t bytes, int device, fl_queue kind)
{
    fl_cuda_queue *q;
    FL_TRY(open_queue(&q, device, kind));
    if (kind == FL_QUEUE_COMPUTE) return allocate_on(data, bytes, q);
    FL_TRY(stay_near(q, bytes));
    FL_TRY(pool_take(data, bytes ? bytes : 1, q));
    count_live(&arenas[device], bytes);
    return FL_OK;
}

void fl_cuda_release(void *data, size_t bytes, int device, fl_queue kind)
{
    fl_cuda_queue *compute = fl_cuda_queue_of(device, FL_QUEUE_COMPUTE);
    if (!data) return;
    if (kind == FL_QUEUE_COMPUTE) {
        release_on(data, bytes, compute);
        return;
    }
    count_dead(&arenas[device], bytes);
    cudaFreeAsync(data, compute->stream);
}

/* ---- temporary memory ---- */

/* Blocks of the op that is being issued, with their sizes: fl_cuda_free gets no size. */
static struct {
    void *data;
    size_t bytes;
} temporaries[TEMPORARIES];
static int temporary_count;

extern "C" fl_status fl_cuda_malloc(void **data, size_t bytes)
{
    fl_cuda_queue *q = fl_cuda_queue_current();
    if (FL_UNLIKELY(fl_cuda_is_recording())) return fl_cuda_graph_malloc(data, bytes);
    bool kept = q->kind == FL_QUEUE_COMPUTE && temporary_count < TEMPORARIES;
    fl_status status = FL_ERR_MEMORY;
    for (int tried = 0; tried < 2 && status == FL_ERR_MEMORY; tried++) {
        if (tried) fl_cuda_trim(q->device);
        status = kept ? allocate_on(data, bytes, q) : pool_take(data, bytes ? bytes : 1, q);
    }
    if (status != FL_OK || !kept) return status;
    temporaries[temporary_count].data = *data;
    temporaries[temporary_count++].bytes = bytes;
    return FL_OK;
}

extern "C" void fl_cuda_free(void *data)
{
    fl_cuda_queue *q = fl_cuda_queue_current();
    if (!data) return;
    if (FL_UNLIKELY(fl_cuda_is_recording())) return fl_cuda_graph_free(data);
    for (int i = temporary_count - 1; i >= 0; i--)
        if (temporaries[i].data == data) {
            release_on(data, temporaries[i].bytes, q);
            temporaries[i] = temporaries[--temporary_count];
            return;
        }
    cudaFreeAsync(data, q->stream);
}

/* ---- pinned host memory ---- */

enum { PINNED_SMALLEST = 12, PINNED_CLASSES = 48 }; /* powers of two from 4 KiB on */
static const int64_t PINNED_LIMIT = (int64_t)512 << 20;

struct range {
    const char *start;
    size_t bytes;
};
static range *pinned; /* all blocks, in the order of their addresses */
static int pinned_count, pinned_room;
static stack pinned_kept[PINNED_CLASSES];
static int64_t pinned_kept_bytes;
static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

static int pinned_class(size_t bytes)
{
    int c = PINNED_SMALLEST;
    while (((size_t)1 << c) < bytes) c++;
    return c;
}

/* Number of blocks that start at or before the address. */
static int pinned_before(const void *address)
{
    int low = 0, high = pinned_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (pinned[middle].start <= (const char *)address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool pinned_note(const void *data, size_t bytes)
{
    if (pinned_count == pinned_room) {
        int room = pinned_room ? 2 * pinned_room : 64;
        range *more = (range *)realloc(pinned, (size_t)room * sizeof *more);
        if (!more) return false;
        pinned = more;
        pinned_room = room;
    }
    int at = pinned_before(data);
    memmove(&pinned[at + 1], &pinned[at], (size_t)(pinned_count - at) * sizeof *pinned);
    pinned[at].start = (const char *)data;
    pinned[at].bytes = bytes;
    pinned_count++;
    return true;
}

static void pinned_forget(const void *data)
{
    int at = pinned_before(data) - 1;
    memmove(&pinned[at], &pinned[at + 1], (size_t)(--pinned_count - at) * sizeof *pinned);
}

bool fl_cuda_is_pinned(const void *data)
{
    pthread_mutex_lock(&pinned_lock);
    int at = pinned_before(data) - 1;
    bool inside = at >= 0 && (const char *)data < pinned[at].start + pinned[at].bytes;
    pthread_mutex_unlock(&pinned_lock);
    return inside;
}

static fl_status pinned_new(void **data, size_t bytes)
{
    cudaError_t error = cudaHostAlloc(data, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return fl_fail(FL_ERR_MEMORY, "cuda: out of pinned host memory: %zu bytes asked for", bytes);
    }
    if (error != cudaSuccess) return fl_cuda_fail(error, "cuda");
    if (pinned_note(*data, bytes)) return FL_OK;
    cudaFreeHost(*data);
    return fl_fail(FL_ERR_MEMORY, "cuda: out of memory");
}

fl_status fl_cuda_host_allocate(void **data, size_t bytes)
{
    fl_status status = FL_OK;
    int c = pinned_class(bytes);
    if (!fl_cuda_queue_current()) FL_TRY(fl_cuda_enter(fl_cuda_own(), FL_QUEUE_COMPUTE));
    pthread_mutex_lock(&pinned_lock);
    *data = stack_pop(&pinned_kept[c]);
    if (*data) pinned_kept_bytes -= (int64_t)1 << c;
    else status = pinned_new(data, (size_t)1 << c);
    pthread_mutex_unlock(&pinned_lock);
    return status;
}

void fl_cuda_host_release(void *data, size_t bytes)
{
    int c = pinned_class(bytes);
    if (!data) return;
    pthread_mutex_lock(&pinned_lock);
    if (pinned_kept_bytes + ((int64_t)1 << c) <= PINNED_LIMIT && stack_push(&pinned_kept[c], data))
        pinned_kept_bytes += (int64_t)1 << c;
    else {
        pinned_forget(data);
        cudaFreeHost(data);
    }
    pthread_mutex_unlock(&pinned_lock);
}

/* ---- trimming, figures ---- */

/* Every queue is waited for: memory released there counts as free only when the queue has come to it. */
void fl_cuda_trim(int device)
{
    fl_cuda_queue *q;
    arena *a = &arenas[device];
    bool idle = true;
    if (open_queue(&q, device, FL_QUEUE_COMPUTE) != FL_OK) return;
    for (int c = 1; c < CLASSES; c++)
        while (a->small[c].count) cudaFreeAsync(stack_pop(&a->small[c]), q->stream);
    a->stats.cached_bytes = 0;
    for (int kind = 0; kind < FL_QUEUES; kind++) {
        q = fl_cuda_queue_of(device, (fl_queue)kind);
        if (q->stream) idle = fl_cuda_drain(q) == FL_OK && idle;
    }
    if (idle) cudaMemPoolTrimTo(a->pool, 0);
}

void fl_cuda_memory(fl_memory_stats *out, int device, bool reset_peak)
{
    arena *a = &arenas[device];
    uint64_t reserved = 0, used = 0;
    *out = a->stats;
    if (a->pool && cudaMemPoolGetAttribute(a->pool, cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess
        && cudaMemPoolGetAttribute(a->pool, cudaMemPoolAttrUsedMemCurrent, &used) == cudaSuccess)
        out->cached_bytes += (int64_t)(reserved - used);
    if (reset_peak) a->stats.peak_bytes = a->stats.live_bytes;
}

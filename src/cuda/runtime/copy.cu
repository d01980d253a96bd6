/*
** copy.cu -- copies between host and device that do not hold up the host.
**
** The GPU reaches pinned memory on its own. Bytes from or to other host memory go through pinned chunks that each queue
** has: on the way in they are put there when the copy is issued; on the way out they are brought to their target, they
** "land", when the engine finds the copy complete, which is before anybody may read the target.
*/
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 16 };
static const size_t CHUNK = 4 << 20;

/* Bytes on their way out. */
typedef struct fl_cuda_landing {
    struct fl_cuda_landing *next;
    char *out;
    const char *in; /* in a chunk */
    size_t bytes;
    uint64_t number; /* of the copy in its queue */
} fl_cuda_landing;

/* Pinned memory that is filled from its start; when full, it may be filled again after its event. */
struct chunk {
    char *data;
    size_t used;
    cudaEvent_t full;
    uint64_t number; /* of the last copy through it */
};

typedef struct fl_cuda_stage {
    chunk chunks[CHUNKS];
    int count, now;
} fl_cuda_stage;

/* ---- landing ---- */

void fl_cuda_land(fl_cuda_queue *queue)
{
    while (queue->landings && queue->landings->number <= queue->done) {
        fl_cuda_landing *l = queue->landings;
        memcpy(l->out, l->in, l->bytes);
        queue->landings = l->next;
        if (!queue->landings) queue->landings_end = &queue->landings;
        free(l);
    }
}

static bool has_landing_at(const fl_cuda_queue *queue, const char *data, size_t bytes)
{
    for (const fl_cuda_landing *l = queue->landings; l; l = l->next)
        if (l->out < data + bytes && data < l->out + l->bytes) return true;
    return false;
}

/* Nothing is under way to these bytes of pageable memory any more, except in the queue `but`, which keeps the order
** itself. */
static fl_status settle_host(const void *data, size_t bytes, const fl_cuda_queue *but)
{
    for (int i = 0; i < fl_cuda_count(); i++)
        for (int kind = 0; kind < FL_QUEUES; kind++) {
            fl_cuda_queue *q = fl_cuda_queue_of(i, (fl_queue)kind);
            if (!q->stream || q == but) continue;
            pthread_mutex_lock(&q->lock);
            bool busy = has_landing_at(q, (const char *)data, bytes);
            pthread_mutex_unlock(&q->lock);
            if (busy) FL_TRY(fl_cuda_drain(q));
        }
    return FL_OK;
}

/* ---- chunks ---- */

/* Waits until what went through the chunk is where it belongs. */
static fl_status empty_chunk(fl_cuda_queue *queue, chunk *chunk)
{
    fl_nccl_await(queue->stream, chunk->full);
    FL_CUDA_TRY(cudaEventSynchronize(chunk->full));
    pthread_mutex_lock(&queue->lock);
    if (queue->done < chunk->number) queue->done = chunk->number;
    fl_cuda_land(queue);
    pthread_mutex_unlock(&queue->lock);
    chunk->used = 0;
    return FL_OK;
}

static fl_status new_chunk(fl_cuda_stage *stage)
{
    chunk *c = &stage->chunks[stage->count];
    if (!c->full) FL_CUDA_TRY(cudaEventCreateWithFlags(&c->full, cudaEventDisableTiming));
    FL_TRY(fl_cuda_host_allocate((void **)&c->data, CHUNK));
    stage->now = stage->count++;
    return FL_OK;
}

/* Goes to the next chunk: the oldest one if it is free or all are there, else a new one. */
static fl_status next_chunk(fl_cuda_queue *queue)
{
    fl_cuda_stage *s = queue->stage;
    if (s->count) {
        chunk *c = &s->chunks[s->now];
        FL_CUDA_TRY(cudaEventRecord(c->full, queue->stream));
        c->number = queue->issued;
        chunk *oldest = &s->chunks[(s->now + 1) % s->count];
        bool is_free = oldest != c && cudaEventQuery(oldest->full) == cudaSuccess;
        cudaGetLastError();
        if (is_free || s->count == CHUNKS) {
            s->now = (s->now + 1) % s->count;
            return empty_chunk(queue, oldest);
        }
    }
    return new_chunk(s);
}

/* At least 1 and at most `wanted` bytes of pinned memory. */
static fl_status take_pinned(char **out, size_t *bytes, size_t wanted, fl_cuda_queue *queue)
{
    if (!queue->stage) queue->stage = (fl_cuda_stage *)calloc(1, sizeof *queue->stage);
    if (!queue->stage) return fl_fail(FL_ERR_MEMORY, "copy: out of memory");
    chunk *c = &queue->stage->chunks[queue->stage->now];
    if (!queue->stage->count || c->used == CHUNK) {
        FL_TRY(next_chunk(queue));
        c = &queue->stage->chunks[queue->stage->now];
    }
    *bytes = wanted < CHUNK - c->used ? wanted : CHUNK - c->used;
    *out = c->data + c->used;
    c->used += (*bytes + 63) / 64 * 64 < CHUNK - c->used ? (*bytes + 63) / 64 * 64 : CHUNK - c->used;
    return FL_OK;
}

/* ---- copies ---- */

static fl_status copy_in(char *out, const char *in, size_t bytes, fl_cuda_queue *queue)
{
    FL_TRY(settle_host(in, bytes, NULL));
    while (bytes) {
        char *pinned;
        size_t part;
        FL_TRY(take_pinned(&pinned, &part, bytes, queue));
        memcpy(pinned, in, part);
        FL_CUDA_TRY(cudaMemcpyAsync(out, pinned, part, cudaMemcpyHostToDevice, queue->stream));
        FL_TRY(fl_cuda_check("copy"));
        in += part, out += part, bytes -= part;
    }
    return FL_OK;
}

static fl_status copy_out(char *out, const char *in, size_t bytes, fl_cuda_queue *queue)
{
    FL_TRY(settle_host(out, bytes, queue));
    while (bytes) {
        char *pinned;
        size_t part;
        fl_cuda_landing *l = (fl_cuda_landing *)malloc(sizeof *l);
        if (!l) return fl_fail(FL_ERR_MEMORY, "copy: out of memory");
        fl_status status = take_pinned(&pinned, &part, bytes, queue);
        if (status == FL_OK) {
            cudaMemcpyAsync(pinned, in, part, cudaMemcpyDeviceToHost, queue->stream);
            status = fl_cuda_check("copy");
        }
        if (status != FL_OK) {
            free(l);
            return status;
        }
        *l = {NULL, out, pinned, part, queue->issued};
        pthread_mutex_lock(&queue->lock);
        *queue->landings_end = l;
        queue->landings_end = &l->next;
        pthread_mutex_unlock(&queue->lock);
        in += part, out += part, bytes -= part;
    }
    return FL_OK;
}

/* The GPU that the memory is on, -1: it is the host's. */
static int device_of(const void *data)
{
    cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, data) == cudaSuccess && attributes.type == cudaMemoryTypeDevice)
        return attributes.device;
    cudaGetLastError();
    return -1;
}

/* GPU memory of pools is not mapped by other GPUs: a copy between two names both. */
static fl_status copy_device(void *out, int to, const void *in, int from, size_t bytes, fl_cuda_queue *queue)
{
    if (to == from) FL_CUDA_TRY(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, queue->stream));
    else FL_CUDA_TRY(cudaMemcpyPeerAsync(out, to, in, from, bytes, queue->stream));
    return fl_cuda_check("copy");
}

fl_status fl_cuda_copy(void *out, const void *in, size_t bytes)
{
    fl_cuda_queue *q = fl_cuda_queue_current();
    if (bytes == 0) return FL_OK;
    int from = q->kind == FL_QUEUE_IN ? -1 : q->kind == FL_QUEUE_OUT ? q->device : device_of(in);
    int to = q->kind == FL_QUEUE_OUT ? -1 : q->kind == FL_QUEUE_IN ? q->device : device_of(out);
    if (from >= 0 && to >= 0) return copy_device(out, to, in, from, bytes, q);
    FL_TRY(fl_cuda_graph_refuse("a copy from or to the host"));
    if (from < 0 && !fl_cuda_is_pinned(in)) return copy_in((char *)out, (const char *)in, bytes, q);
    if (to < 0 && !fl_cuda_is_pinned(out)) return copy_out((char *)out, (const char *)in, bytes, q);
    FL_CUDA_TRY(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault, q->stream));
    return fl_cuda_check("copy");
}

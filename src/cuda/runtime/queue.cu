/*
** queue.cu -- streams as lanes of the engine: events, the ops in flight, and errors that end a device.
**
** A stream is made when its queue is first used. Its events are queried, never waited for: the engine polls. An error
** of a kernel is known only when a later call fails, so each queue keeps the last ops issued to it with the
** script's lines, and how many of them are complete for certain.
*/
#include "runtime.h"
extern "C" {
#include "core/engine/control.h"
}

#include <stdio.h>
#include <string.h>

static fl_cuda_queue queues[FL_CUDA_DEVICES][FL_QUEUES];
static fl_cuda_queue recorders[FL_CUDA_DEVICES]; /* they run nothing: graphs are recorded with them */
static thread_local fl_cuda_queue *current;
static thread_local int current_device = -1;

static char last_words[1024]; /* why no device of this process can be used any more; "" while they can */
static bool dead;             /* atomic: last_words is written */

fl_cuda_queue *fl_cuda_queue_of(int device, fl_queue kind) { return &queues[device][kind]; }
fl_cuda_queue *fl_cuda_queue_current(void) { return current; }
extern "C" cudaStream_t fl_cuda_stream(void) { return current->stream; }

/* ---- work in flight ---- */

static uint64_t oldest_in_flight(const fl_cuda_queue *queue)
{
    return queue->issued > queue->done + FL_CUDA_FLIGHT ? queue->issued - FL_CUDA_FLIGHT : queue->done;
}

/* "softmax (train.lua:41), add (train.lua:42)": the ops that may have failed, oldest first. */
static void list_flight(char *text, size_t size)
{
    int shown = 0, more = 0;
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < FL_CUDA_DEVICES * FL_QUEUES; i++) {
        const fl_cuda_queue *q = &queues[i / FL_QUEUES][i % FL_QUEUES];
        for (uint64_t n = oldest_in_flight(q); n < q->issued; n++) {
            const fl_cuda_issued *op = &q->flight[n % FL_CUDA_FLIGHT];
            if (length + 160 > size || shown == 8) {
                more++;
                continue;
            }
            length += (size_t)snprintf(text + length, size - length, "%s%s%s%s%s", shown++ ? ", " : "", op->what,
                                       op->line[0] ? " (" : "", op->line, op->line[0] ? ")" : "");
        }
    }
    if (more) snprintf(text + length, size - length, " and %d more", more);
}

static void note_issued(fl_cuda_queue *queue, const char *what)
{
    fl_cuda_issued *op = &queue->flight[queue->issued % FL_CUDA_FLIGHT];
    op->what = what;
    op->line[0] = '\0';
    if (fl_engine_where) fl_engine_where(op->line, sizeof op->line);
    queue->issued++;
}

/* ---- errors ---- */

/* True if the device is unusable after this error. */
static bool ends_device(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorContextIsDestroyed: return true;
    default: return false;
    }
}

static fl_status raise_last_words(void) { return fl_fail(FL_ERR_STATE, "%s", last_words); }

static fl_status end_device(cudaError_t error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char flight[768];
    pthread_mutex_lock(&lock);
    if (!dead) {
        list_flight(flight, sizeof flight);
        snprintf(last_words, sizeof last_words,
                 "cuda: %s (%s); this process cannot use the GPU any more; in flight: %s; FLOW_ENGINE=naive "
                 "tells the op",
                 cudaGetErrorString(error), cudaGetErrorName(error), flight[0] ? flight : "nothing");
        __atomic_store_n(&dead, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return raise_last_words();
}

fl_status fl_cuda_fail(cudaError_t error, const char *what)
{
    cudaGetLastError();
    if (__atomic_load_n(&dead, __ATOMIC_ACQUIRE)) return raise_last_words();
    if (ends_device(error)) return end_device(error);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidKernelImage
        || error == cudaErrorUnsupportedPtxVersion)
        return fl_fail(FL_ERR_MISSING,
                       "%s: this build has no code for the GPU (compute %d.%d): run make CUDA_ARCHS=all", what,
                       fl_cuda_current()->capability / 10, fl_cuda_current()->capability % 10);
    fl_status status = error == cudaErrorMemoryAllocation ? FL_ERR_MEMORY : FL_ERR_STATE;
    return fl_fail(status, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

extern "C" fl_status fl_cuda_check(const char *what)
{
    note_issued(current, what);
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? FL_OK : fl_cuda_fail(error, what);
}

/* ---- opening ---- */

/* This thread's calls of the runtime that name no stream are for the device. */
static fl_status use_device(int device)
{
    if (current_device == device) return FL_OK;
    FL_CUDA_TRY(cudaSetDevice(device));
    current_device = device;
    return FL_OK;
}

static fl_status open_queue(fl_cuda_queue *queue)
{
    const fl_cuda_device *d;
    if (FL_LIKELY(queue->stream != NULL)) return FL_OK;
    FL_TRY(fl_cuda_open(&d, queue->device));
    current_device = -1;
    FL_TRY(use_device(queue->device));
    queue->landings_end = &queue->landings;
    pthread_mutex_init(&queue->lock, NULL);
    FL_CUDA_TRY(
        cudaStreamCreateWithPriority(&queue->stream, cudaStreamNonBlocking, queue->kind == FL_QUEUE_COMPUTE ? 0 : -1));
    return FL_OK;
}

fl_status fl_cuda_drain(fl_cuda_queue *queue)
{
    uint64_t issued = queue->issued;
    FL_TRY(open_queue(queue));
    fl_nccl_await(queue->stream, NULL);
    FL_CUDA_TRY(cudaStreamSynchronize(queue->stream));
    pthread_mutex_lock(&queue->lock);
    if (queue->done < issued) queue->done = issued;
    fl_cuda_land(queue);
    pthread_mutex_unlock(&queue->lock);
    return FL_OK;
}

/* ---- functions that the engine calls ---- */

/* An event of q's device. The current queue may be of another one and about to launch: its device stays the current
** one. */
static fl_status make_event(cudaEvent_t *event, fl_cuda_queue *queue)
{
    FL_TRY(open_queue(queue));
    FL_TRY(use_device(queue->device));
    FL_CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    return current ? use_device(current->device) : FL_OK;
}

static fl_status stream_record(void *handle, int event)
{
    fl_cuda_queue *q = (fl_cuda_queue *)handle;
    if (FL_UNLIKELY(!q->events[event])) FL_TRY(make_event(&q->events[event], q));
    FL_CUDA_TRY(cudaEventRecord(q->events[event], q->stream));
    q->marks[event] = q->issued;
    return FL_OK;
}

static bool stream_reached(void *handle, int event)
{
    fl_cuda_queue *q = (fl_cuda_queue *)handle;
    uint64_t mark = q->marks[event];
    if (FL_UNLIKELY(current_device < 0))
        use_device(q->device); /* a thread of a lane: else the runtime opens the first GPU for it */
    cudaError_t error = cudaEventQuery(q->events[event]);
    if (FL_UNLIKELY(error != cudaSuccess)) {
        cudaGetLastError();
        if (error == cudaErrorNotReady) {
            fl_nccl_look();
            return false;
        }
        end_device(error);
        return true;
    }
    pthread_mutex_lock(&q->lock);
    if (q->done < mark) q->done = mark;
    if (q->landings) fl_cuda_land(q);
    pthread_mutex_unlock(&q->lock);
    return true;
}

static fl_status stream_errors(void *)
{
    if (FL_UNLIKELY(__atomic_load_n(&dead, __ATOMIC_ACQUIRE))) return raise_last_words();
    return fl_nccl_errors();
}

static fl_status stream_follow(void *handle, void *other, int event)
{
    fl_cuda_queue *q = (fl_cuda_queue *)handle, *leader = (fl_cuda_queue *)other;
    FL_TRY(open_queue(q));
    FL_CUDA_TRY(cudaStreamWaitEvent(q->stream, leader->events[event], 0));
    return FL_OK;
}

/* ---- queues ---- */

static fl_status give_lane(fl_cuda_queue *queue, int device, fl_queue kind)
{
    static const fl_stream_ops ops = {stream_record, stream_reached, stream_errors,
                                      stream_follow, fl_cuda_time,   fl_cuda_times};
    static const char *const names[FL_QUEUES] = {"compute", "copy in", "copy out", "comm"};
    char name[24];
    if (FL_LIKELY(queue->lane != 0)) return FL_OK;
    queue->device = device;
    queue->kind = kind;
    snprintf(name, sizeof name, "cuda:%d %s", device, names[kind]);
    return fl_engine_stream_new(&queue->lane, name, queue, &ops);
}

int fl_cuda_lane(int device, fl_queue kind)
{
    if (device < 0 || device >= fl_cuda_count()) return FL_LANE_CPU;
    fl_cuda_queue *q = fl_cuda_queue_of(device, kind);
    return give_lane(q, device, kind) == FL_OK ? q->lane : (int)FL_LANE_CPU;
}

fl_status fl_cuda_enter(int device, fl_queue kind)
{
    const fl_cuda_device *d;
    if (FL_UNLIKELY(device < 0 || device >= fl_cuda_count())) return fl_cuda_open(&d, device);
    fl_cuda_queue *q = fl_cuda_queue_of(device, kind);
    FL_TRY(give_lane(q, device, kind));
    FL_TRY(open_queue(q));
    FL_TRY(use_device(device));
    current = q;
    return FL_OK;
}

fl_status fl_cuda_enter_recorder(int device)
{
    fl_cuda_queue *q = &recorders[device];
    q->device = device;
    q->kind = FL_QUEUE_COMPUTE;
    FL_TRY(open_queue(q));
    FL_TRY(use_device(device));
    current = q;
    return FL_OK;
}

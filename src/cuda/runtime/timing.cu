/*
** timing.cu -- when the GPU ran an op, for the trace.
**
** Events with times stand before and behind an op. A clock of the device, an event whose host time is known, turns
** their distance into the host's time. It has a stream of its own, so that setting it anew waits for no op, and is set
** anew every second: a distance is a float of milliseconds.
*/
#include "runtime.h"
#include "core/base/clock.h"

static const uint64_t CLOCK_LIFE = 1000000000; /* ns */

struct device_clock {
    cudaStream_t stream; /* NULL: not made yet */
    cudaEvent_t event;
    uint64_t at; /* ns of the host's clock */
};
static device_clock clocks[FL_CUDA_DEVICES];

/* The queue's device is the current one. */
static fl_status set_clock(device_clock *clock)
{
    if (clock->stream && fl_now() - clock->at < CLOCK_LIFE) return FL_OK;
    if (!clock->stream) {
        FL_CUDA_TRY(cudaStreamCreateWithPriority(&clock->stream, cudaStreamNonBlocking, -1));
        FL_CUDA_TRY(cudaEventCreate(&clock->event));
    }
    FL_CUDA_TRY(cudaEventRecord(clock->event, clock->stream));
    FL_CUDA_TRY(cudaStreamSynchronize(clock->stream));
    clock->at = fl_now();
    return FL_OK;
}

fl_status fl_cuda_time(void *handle, int slot, bool end)
{
    fl_cuda_queue *q = (fl_cuda_queue *)handle;
    cudaEvent_t *event = &q->times[slot][end];
    FL_TRY(fl_cuda_enter(q->device, q->kind));
    if (!end) FL_TRY(set_clock(&clocks[q->device]));
    if (!*event) FL_CUDA_TRY(cudaEventCreate(event));
    FL_CUDA_TRY(cudaEventRecord(*event, q->stream));
    return FL_OK;
}

/* An event may lie before the clock. */
static bool moment(uint64_t *ns, const device_clock *clock, cudaEvent_t event)
{
    float ms;
    if (cudaEventElapsedTime(&ms, clock->event, event) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    *ns = clock->at + (uint64_t)(int64_t)((double)ms * 1e6);
    return true;
}

bool fl_cuda_times(void *handle, int slot, uint64_t *started, uint64_t *ended)
{
    const fl_cuda_queue *q = (const fl_cuda_queue *)handle;
    const device_clock *c = &clocks[q->device];
    return moment(started, c, q->times[slot][0]) && moment(ended, c, q->times[slot][1]);
}

/*
** runtime.h -- what the files of the CUDA runtime share: devices, queues, memory, faults.
**
** device.cu finds and opens devices; queue.cu has streams, events and what is in flight; graph.cu launches recorded
** once; timing.cu when ops ran; memory.cu device and pinned memory; copy.cu the copies between both sides; fault.cu
** what kernels report, graph_fault.cu those of graphs; library.cu opens the toolkit's libraries.
*/
#ifndef FL_CUDA_RUNTIME_H
#define FL_CUDA_RUNTIME_H

#include "cuda/parts/cuda.h"
extern "C" {
#include "core/engine/engine.h"
#include "core/memory/device.h"
#include "core/memory/device_graph.h"
}

#include <pthread.h>

enum { FL_CUDA_DEVICES = 16 };

/* ---- queues ---- */

enum { FL_CUDA_FLIGHT = 64, FL_CUDA_LINE = 64 };

typedef struct fl_cuda_issued {
    const char *what;        /* a constant */
    char line[FL_CUDA_LINE]; /* of the script; "" if unknown */
} fl_cuda_issued;

/* A stream of a device. Only the pusher issues to it; any thread may query whether an event is reached. */
typedef struct fl_cuda_queue {
    int device;
    fl_queue kind;
    int lane;            /* of the engine; 0: none yet */
    cudaStream_t stream; /* NULL: not opened yet */
    cudaEvent_t events[FL_STREAM_EVENTS];
    uint64_t marks[FL_STREAM_EVENTS];                 /* `issued` when the event was recorded */
    cudaEvent_t times[FL_STREAM_TIMES][2];            /* before and behind an op, for the trace */
    uint64_t issued;                                  /* ops so far */
    uint64_t done;                                    /* of these, known to be complete */
    fl_cuda_issued flight[FL_CUDA_FLIGHT];            /* op number n is at n % FL_CUDA_FLIGHT */
    struct fl_cuda_landing *landings, **landings_end; /* copies to pageable memory under way, oldest first (copy.cu) */
    struct fl_cuda_stage *stage;                      /* pinned memory that copies of this queue go through (copy.cu) */
    pthread_mutex_t lock;                             /* of done and landings */
} fl_cuda_queue;

fl_cuda_queue *fl_cuda_queue_of(int device, fl_queue kind);

/* The queue that this thread entered last. */
fl_cuda_queue *fl_cuda_queue_current(void);

/* Makes it this thread's queue, opening device and stream if they are not. */
fl_status fl_cuda_enter(int device, fl_queue kind);

/* Makes the stream that graphs of the device are recorded with this thread's queue. */
fl_status fl_cuda_enter_recorder(int device);

/* The lane of a queue. That of a device which does not exist is the CPU's: the op that runs there words the error. */
int fl_cuda_lane(int device, fl_queue kind);

/* fl_stream_ops.time and .times, of a fl_cuda_queue (timing.cu). */
fl_status fl_cuda_time(void *handle, int slot, bool end);
bool fl_cuda_times(void *handle, int slot, uint64_t *started, uint64_t *ended);

/* Waits until everything issued to the queue is complete. */
fl_status fl_cuda_drain(fl_cuda_queue *queue);

/* ---- errors ---- */

/* Words a failed call of the runtime: "what: message". An error after which the device can do nothing more is
** kept, with the ops in flight. */
fl_status fl_cuda_fail(cudaError_t error, const char *what);

#define FL_CUDA_TRY(call)                                               \
    do {                                                                \
        cudaError_t error_ = (call);                                    \
        if (error_ != cudaSuccess) return fl_cuda_fail(error_, "cuda"); \
    } while (0)

/* ---- devices ---- */

/* Opened at the first use: its context is made then. */
fl_status fl_cuda_open(const fl_cuda_device **out, int index);
int fl_cuda_count(void);

/* Reads from the driver how many there are. Errors name what is missing. */
fl_status fl_cuda_find(void);
int fl_cuda_own(void);       /* the one this rank uses by default */
int fl_cuda_processes(void); /* of this job on this host, per device, rounded up */

/* ---- graphs ---- */

fl_status fl_cuda_graph_begin(fl_device_graph **graph, int device);
fl_status fl_cuda_graph_end(fl_device_graph *graph, bool keep);
fl_status fl_cuda_graph_launch(fl_device_graph *graph);
void fl_cuda_graph_drop(fl_device_graph *graph);

/* True while a graph is recorded: temporary memory is the graph's then. */
bool fl_cuda_is_recording(void);
fl_status fl_cuda_graph_malloc(void **data, size_t bytes);
void fl_cuda_graph_free(void *data);

/* An error where a graph is recorded: "cuda: what cannot be part of a graph". */
fl_status fl_cuda_graph_refuse(const char *what);

/* fl_cuda_fault_new where a graph is recorded. */
fl_status fl_cuda_graph_fault(fl_cuda_fault **device, fl_cuda_word *word, const void *context, size_t bytes);

/* ---- faults of graphs ---- */

/* The text of a kernel's error. */
typedef struct fl_cuda_wording {
    fl_cuda_word *word;
    unsigned char context[FL_CUDA_FAULT_CONTEXT] __attribute__((aligned(16)));
} fl_cuda_wording;

/* Kernels of a graph that may report something. */
typedef struct fl_cuda_reports {
    int count;
    fl_cuda_fault *records; /* owned; device memory of FL_CUDA_REPORTS_BYTES; NULL: there were none */
    fl_cuda_wording at[FL_GRAPH_REPORTS];
} fl_cuda_reports;

enum { FL_CUDA_REPORTS_BYTES = (FL_GRAPH_REPORTS + 1) * sizeof(fl_cuda_fault) };

/* Issues what makes the records of new memory ready, ahead of the graph's first launch. Both kernels are loaded then:
** that is no part of a recording. */
fl_status fl_cuda_reports_clear(const fl_cuda_reports *reports);

/* The record of one more kernel; there are fewer than FL_GRAPH_REPORTS. */
fl_cuda_fault *fl_cuda_reports_add(fl_cuda_reports *reports, fl_cuda_word *word, const void *context, size_t bytes);

/* Issues, at the end of the graph, what moves a launch's reports to where `address` (device memory) says. */
fl_status fl_cuda_reports_move(const fl_cuda_reports *reports, const void *address);

/* The checks of a launch, which the task that is issued makes later; *address: the value for `address` above. */
fl_status fl_cuda_reports_launch(uint64_t *address, const fl_cuda_reports *reports, const fl_graph_report *whose);

/* ---- other ranks ---- */

extern const struct fl_device_comm fl_nccl; /* nccl.cu */

/* While the host waits for the GPU: ends collectives that will never be complete (a dead rank, the time-out, an error
** of NCCL). Cheap when there are none. */
void fl_nccl_look(void);

/* Looks until the event is reached, or NULL: the stream is through, while there are any. */
void fl_nccl_await(cudaStream_t stream, cudaEvent_t event);

/* Why values of collectives are missing that were ended so, at every wait from then on; FL_OK: none are. */
fl_status fl_nccl_errors(void);

/* ---- libraries that are opened by name ---- */

/* Major versions of the toolkit's libraries, this build's first: the driver certainly supports it. */
#define FL_CUDA_MAJORS                                          \
    {                                                           \
        CUDART_VERSION / 1000, CUDART_VERSION < 13000 ? 13 : 12 \
    }

/* lib<name>.so of the first of these versions that is found, or the file that the environment variable names; NULL:
** there is none. In the emulation only the variable counts. */
void *fl_cuda_library(const char *variable, const char *name, const int *majors, int count);

/* ---- memory ---- */

fl_status fl_cuda_memory_open(int device);
fl_status fl_cuda_allocate(void **data, size_t bytes, int device, fl_queue kind);
void fl_cuda_release(void *data, size_t bytes, int device, fl_queue kind);
void fl_cuda_trim(int device);
void fl_cuda_memory(fl_memory_stats *out, int device, bool reset_peak);
fl_status fl_cuda_host_allocate(void **data, size_t bytes);
void fl_cuda_host_release(void *data, size_t bytes);
bool fl_cuda_is_pinned(const void *data);

/* ---- copies ---- */

fl_status fl_cuda_copy(void *out, const void *in, size_t bytes);

/* Copies to pageable memory whose bytes have arrived in pinned memory are brought to their target. Under the queue's
** lock. */
void fl_cuda_land(fl_cuda_queue *queue);

#endif

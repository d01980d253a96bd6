/*
** device.h -- what a device other than the CPU registers: memory, queues, kernels, copies.
**
** Its plug-in is opened when a script first uses the device (plugin.h). Ops are issued by the script's thread into
** queues of the device; each queue is a lane of the engine (fl_engine_stream_new), so variables order them like all
** others and the script runs ahead.
*/
#ifndef FL_DEVICE_H
#define FL_DEVICE_H

#include "op/view.h"

typedef struct fl_memory_stats {
    int64_t live_bytes, peak_bytes, cached_bytes, limbo_bytes, live_blocks, allocations, system_allocations;
} fl_memory_stats;

typedef enum fl_queue { FL_QUEUE_COMPUTE, FL_QUEUE_IN, FL_QUEUE_OUT, FL_QUEUE_COMM, FL_QUEUES } fl_queue;

struct fl_tiles;

/* Launches of ops, recorded: a device's own. */
typedef struct fl_device_graph fl_device_graph;

typedef struct fl_device {
    const char *name; /* "cuda" */
    int count;        /* number that this process may use */
    int own;          /* the one this rank uses by default: rank on this host modulo count */
    void (*describe)(char *text, size_t size, int index); /* "NVIDIA H100, compute 9.0, 79.2 GiB"; opens nothing */
    /* Memory that ops pushed to `queue` from now on may use, and others after these. The error is worded here;
    ** FL_ERR_MEMORY is tried again after trimming and collecting. */
    fl_status (*allocate)(void **data, size_t bytes, int index, fl_queue queue);
    /* Ops already in the compute queue may still use it; no other queue does. `queue`: it was allocated for. */
    void (*release)(void *data, size_t bytes, int index, fl_queue queue);
    void (*trim)(int index); /* gives cached memory back to the system */
    void (*memory)(fl_memory_stats *out, int index,
                   bool reset_peak); /* figures of this process; the peak begins anew after them */
    int (*lane)(int index, fl_queue queue);
    fl_kernel_fn (*kernel)(const fl_op *op); /* NULL: there is none */
    /* The calls that follow on this thread issue to this queue. */
    fl_status (*enter)(int index, fl_queue queue);
    /* Issues a copy to the queue that was entered; one side may be host memory, of host_allocate or any other. */
    fl_status (*copy)(void *out, const void *in, size_t bytes);
    /* Host memory that copies reach without the processor; cached. */
    fl_status (*host_allocate)(void **data, size_t bytes);
    void (*host_release)(void *data, size_t bytes);
    /* Copies and fills of regions of parts: issued to the queue that was entered, all in device memory. */
    fl_status (*copy_view)(const fl_view *out, const fl_view *in);
    fl_status (*fill_view)(const fl_view *out, const void *value); /* value: host memory, of out's dtype */
    fl_status (*scratch)(void **data,
                         size_t bytes); /* in the order of the queue, until drop_scratch in the same queue */
    void (*drop_scratch)(void *data);   /* NULL is fine */
    /* Elementwise steps that cannot fail, in one pass where that is possible: issued to the queue that was entered.
    ** `tiles` is not planned (cpu/tiles.h), all it names is memory of the device or numbers; `name`: of the op whose
    ** result is asked for. NULL: nothing is deferred on the device. */
    fl_status (*tiles)(const struct fl_tiles *tiles, const char *name);
    /* Ops that this thread issues from now on are recorded in place of the queue that was entered; *graph NULL: in a
    ** new graph, else over the old recording. Ops that cannot be recorded fail. Until graph_end ops alone
    ** are called, whose operands stay where they are. NULL: the device has no graphs. */
    fl_status (*graph_begin)(fl_device_graph **graph, int index);
    /* keep false: the recording is dropped, as after an error, and the graph cannot be launched. */
    fl_status (*graph_end)(fl_device_graph *graph, bool keep);
    fl_status (*graph_launch)(fl_device_graph *graph); /* issued to the compute queue, which was entered */
    void (*graph_drop)(fl_device_graph *graph);        /* NULL is fine; launches under way go on */
    void *(*stream)(void); /* of the queue that was entered, as the device's own interface knows it: a cudaStream_t */
    const struct fl_device_comm *comm; /* device_comm.h; NULL: transfers between ranks go through host memory */
} fl_device;

/* The stream to which a kernel of the device issues its launches now; NULL: there is none. */
FL_EXPORT void *fl_device_stream(fl_device_type type);

/* The registered device of a type, opening its plug-in when it is not there yet. Error FL_ERR_MISSING names what is
** missing and what to do. FL_CPU and FL_META have none: *out is NULL, and the call does not fail. */
fl_status fl_device_get(const fl_device **out, fl_device_type type);

/* Number of devices of a type that this process may use: 0 if fl_device_get fails, 1 of FL_CPU and FL_META. */
int fl_device_count(fl_device_type type);

/* The kernel that an op has for devices of a type, *out NULL when there is none: FL_META has no kernels. Needs no such
** device to be there. */
fl_status fl_device_kernel_of(fl_kernel_fn *out, fl_device_type type, const fl_op *op);

/* The index that a placement means on this rank. */
static inline int fl_device_index(const fl_device *device, const fl_placement *placement)
{
    return placement->device_index >= 0 ? placement->device_index : device->own;
}

/* A plug-in has two entry points: fl_device_start sets *out, which lives until exit; fl_device_kernel finds kernels,
** also where the other one fails. */
#define FL_DEVICE_ENTRY "fl_device_start"
typedef fl_status fl_device_start_fn(const fl_device **out);
#define FL_DEVICE_KERNEL "fl_device_kernel"
typedef fl_kernel_fn fl_device_kernel_fn(const fl_op *op);

#endif

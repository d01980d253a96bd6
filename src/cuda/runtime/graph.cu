/*
** graph.cu -- CUDA graphs: what ops issue is recorded once and launched by one call.
**
** A stream that runs nothing is captured, one per device: the compute queue goes on meanwhile, so events of it may be
** recorded and queried as ever, also by other threads. Temporary memory that ops take while they are recorded stays
** with the graph. It is taken in the order of the compute queue, which also launches the graph, and given back in it.
**
** What cannot be part of a graph refuses to be recorded: kernels that report errors in their data (fault.cu), for a
** report belongs to one launch, and copies through host memory (copy.cu).
*/
#include "runtime.h"

#include <stdlib.h>

typedef struct block {
    void *data;
    size_t bytes;
    bool used; /* by the op that is recorded */
} block;

struct fl_device_graph {
    int device;
    cudaGraphExec_t exec; /* NULL: nothing was recorded yet */
    block *blocks;
    int count, room;
};

static fl_device_graph *recording; /* the script's thread records */

/* ---- memory ---- */

static fl_status block_new(fl_device_graph *graph, size_t bytes)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (graph->count == graph->room) {
        int room = graph->room ? 2 * graph->room : 8;
        block *more = (block *)realloc(graph->blocks, (size_t)room * sizeof *more);
        if (!more) return fl_fail(FL_ERR_MEMORY, "cuda: out of memory for a graph");
        graph->blocks = more;
        graph->room = room;
    }
    block *b = &graph->blocks[graph->count];
    *b = {NULL, bytes, false};
    /* the compute queue is not captured: memory taken there is no part of the graph */
    FL_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    fl_status status = fl_cuda_allocate(&b->data, bytes, graph->device, FL_QUEUE_COMPUTE);
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (status == FL_OK) graph->count++;
    fl_status entered = fl_cuda_enter_recorder(graph->device);
    return status == FL_OK ? entered : status;
}

static block *smallest_free(const fl_device_graph *graph, size_t bytes)
{
    block *best = NULL;
    for (block *b = graph->blocks; b < graph->blocks + graph->count; b++)
        if (!b->used && b->bytes >= bytes && (!best || b->bytes < best->bytes)) best = b;
    return best;
}

bool fl_cuda_is_recording(void) { return recording != NULL; }

fl_status fl_cuda_graph_malloc(void **data, size_t bytes)
{
    block *b = smallest_free(recording, bytes);
    if (!b) {
        FL_TRY(block_new(recording, bytes));
        b = &recording->blocks[recording->count - 1];
    }
    b->used = true;
    *data = b->data;
    return FL_OK;
}

void fl_cuda_graph_free(void *data)
{
    for (int i = 0; i < recording->count; i++)
        if (recording->blocks[i].data == data) recording->blocks[i].used = false;
}

fl_status fl_cuda_graph_refuse(const char *what)
{
    return recording ? fl_fail(FL_ERR_STATE, "cuda: %s cannot be part of a graph", what) : FL_OK;
}

/* ---- graphs ---- */

void fl_cuda_graph_drop(fl_device_graph *graph)
{
    if (!graph) return;
    if (graph->exec) cudaGraphExecDestroy(graph->exec);
    for (int i = 0; i < graph->count; i++)
        fl_cuda_release(graph->blocks[i].data, graph->blocks[i].bytes, graph->device, FL_QUEUE_COMPUTE);
    free(graph->blocks);
    free(graph);
}

static fl_status begin(fl_device_graph *graph)
{
    FL_TRY(fl_cuda_enter_recorder(graph->device));
    FL_CUDA_TRY(cudaStreamBeginCapture(fl_cuda_stream(), cudaStreamCaptureModeThreadLocal));
    recording = graph;
    return FL_OK;
}

fl_status fl_cuda_graph_begin(fl_device_graph **graph, int device)
{
    bool is_new = !*graph;
    if (is_new) *graph = (fl_device_graph *)calloc(1, sizeof **graph);
    if (!*graph) return fl_fail(FL_ERR_MEMORY, "cuda: out of memory for a graph");
    (*graph)->device = device;
    for (int i = 0; i < (*graph)->count; i++) (*graph)->blocks[i].used = false;
    fl_status status = begin(*graph);
    if (status == FL_OK) return FL_OK;
    fl_cuda_enter(device, FL_QUEUE_COMPUTE);
    if (is_new) {
        fl_cuda_graph_drop(*graph);
        *graph = NULL;
    }
    return status;
}

/* The launches that are under way keep what they were. */
static fl_status make_exec(fl_device_graph *graph, cudaGraph_t captured)
{
    cudaGraphExecUpdateResultInfo info;
    if (graph->exec && cudaGraphExecUpdate(graph->exec, captured, &info) == cudaSuccess) return FL_OK;
    cudaGetLastError();
    if (graph->exec) cudaGraphExecDestroy(graph->exec);
    graph->exec = NULL;
    FL_CUDA_TRY(cudaGraphInstantiate(&graph->exec, captured, 0));
    return FL_OK;
}

fl_status fl_cuda_graph_end(fl_device_graph *graph, bool keep)
{
    cudaGraph_t captured = NULL;
    cudaError_t error = cudaStreamEndCapture(fl_cuda_stream(), &captured);
    recording = NULL;
    FL_TRY(fl_cuda_enter(graph->device, FL_QUEUE_COMPUTE));
    cudaGetLastError();
    fl_status status = FL_OK;
    if (keep) status = error == cudaSuccess ? make_exec(graph, captured) : fl_cuda_fail(error, "cuda");
    if (captured) cudaGraphDestroy(captured);
    return status;
}

fl_status fl_cuda_graph_launch(fl_device_graph *graph)
{
    FL_CUDA_TRY(cudaGraphLaunch(graph->exec, fl_cuda_stream()));
    return fl_cuda_check("captured steps");
}

/*
** graph.cu -- CUDA graphs: the launches of ops are recorded once and repeated by one call.
**
** A stream that runs nothing is captured, one per device: the compute queue goes on meanwhile, so events of it may be
** recorded and queried as ever, also by other threads. Temporary memory that ops take while they are recorded stays
** with the graph. It is taken in the order of the compute queue, which also launches the graph, and given back in it.
**
** Numbers that are others at every launch (fresh.h) lie in one more block of the graph. A kernel before each launch has
** them as its parameters and stores them there: nothing on the host has to stay until it has run.
**
** Kernels may report errors in their data, a few in one graph: graph_fault.cu. Operations that cannot be part of a
** graph fail to be recorded: copies through host memory (copy.cu), libraries that wait for the stream.
*/
#include "cuda/parts/fresh.h"
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

struct block {
    void *data;
    size_t bytes;
    bool used; /* by the op that is recorded */
};

enum { CELLS = 128, WORDS = 1024, WORDS_AT_ONCE = 64, THREADS = 64 };

/* Numbers of a kernel that each launch renews. */
struct cell {
    fl_cuda_fill *fill;
    const fl_kernel *kernel;
    int word; /* its first in the block of all */
};

struct graph {
    fl_device_graph shown; /* first; renewed: number of cells */
    int device;
    cudaGraphExec_t exec; /* NULL: nothing was recorded yet */
    block *blocks;
    int count, room;
    cell cells[CELLS];
    int words;         /* of all cells */
    uint64_t *renewed; /* device memory for WORDS; NULL: there are no cells */
    bool is_full;      /* there are more numbers than cells or words: the recording has failed */
    fl_cuda_reports reports;
    int address; /* the index of the word with the address of a launch's reports; -1: there are none */
};

static graph *recording; /* the script's thread records */

/* ---- memory ---- */

/* The compute queue is not captured: memory taken there is no part of the graph. */
static fl_status allocate(void **data, size_t bytes, int device)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    FL_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    fl_status status = fl_cuda_allocate(data, bytes, device, FL_QUEUE_COMPUTE);
    cudaThreadExchangeStreamCaptureMode(&mode);
    fl_status entered = fl_cuda_enter_recorder(device);
    return status == FL_OK ? entered : status;
}

static fl_status block_new(graph *graph, size_t bytes)
{
    if (graph->count == graph->room) {
        int room = graph->room ? 2 * graph->room : 8;
        block *more = (block *)realloc(graph->blocks, (size_t)room * sizeof *more);
        if (!more) return fl_fail(FL_ERR_MEMORY, "cuda: out of memory for a graph");
        graph->blocks = more;
        graph->room = room;
    }
    block *b = &graph->blocks[graph->count];
    *b = {NULL, bytes, false};
    FL_TRY(allocate(&b->data, bytes, graph->device));
    graph->count++;
    return FL_OK;
}

static block *smallest_free(const graph *graph, size_t bytes)
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

/* ---- numbers that each launch renews ---- */

struct words {
    uint64_t at[WORDS_AT_ONCE];
};

__global__ void __launch_bounds__(THREADS) store_words(uint64_t *out, const __grid_constant__ words values, int count)
{
    for (int i = (int)threadIdx.x; i < count; i += THREADS) out[i] = values.at[i];
}

/* Room for so many more words. A recording for which there is none fails at its end. */
static bool has_room(graph *graph, int count)
{
    if (graph->shown.renewed < CELLS && graph->words + count <= WORDS
        && (graph->renewed
            || allocate((void **)&graph->renewed, WORDS * sizeof *graph->renewed, graph->device) == FL_OK))
        return true;
    graph->is_full = true;
    return false;
}

extern "C" const void *fl_cuda_renewed(size_t bytes, fl_cuda_fill *fill, const fl_kernel *kernel)
{
    graph *g = recording;
    const int count = (int)((bytes + sizeof *g->renewed - 1) / sizeof *g->renewed);
    if (!g || !has_room(g, count)) return NULL;
    g->cells[g->shown.renewed++] = {fill, kernel, g->words};
    g->words += count;
    return g->renewed + g->words - count;
}

/* reports: where those of this launch go. */
static void renew(const graph *graph, uint64_t reports)
{
    uint64_t values[WORDS + WORDS_AT_ONCE] = {0};
    if (graph->address >= 0) values[graph->address] = reports;
    for (int i = 0; i < graph->shown.renewed; i++)
        graph->cells[i].fill(&values[graph->cells[i].word], graph->cells[i].kernel);
    for (int from = 0; from < graph->words; from += WORDS_AT_ONCE) {
        words part;
        memcpy(part.at, values + from, sizeof part.at);
        FL_LAUNCH(store_words, 1, THREADS, 0, graph->renewed + from, part,
                  graph->words - from < WORDS_AT_ONCE ? graph->words - from : (int)WORDS_AT_ONCE);
    }
}

/* ---- reports of kernels ---- */

/* The records are cleared in the compute queue, which is not captured. */
static fl_status make_records(graph *graph)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    FL_TRY(allocate((void **)&graph->reports.records, FL_CUDA_REPORTS_BYTES, graph->device));
    FL_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    fl_status status = fl_cuda_enter(graph->device, FL_QUEUE_COMPUTE);
    if (status == FL_OK) status = fl_cuda_reports_clear(&graph->reports);
    cudaThreadExchangeStreamCaptureMode(&mode);
    FL_TRY(fl_cuda_enter_recorder(graph->device));
    return status;
}

fl_status fl_cuda_graph_fault(fl_cuda_fault **device, fl_cuda_word *word, const void *context, size_t bytes)
{
    graph *g = recording;
    if (g->shown.report_count == FL_GRAPH_REPORTS)
        return fl_cuda_graph_refuse("one more kernel that reports errors in its data");
    if (!g->reports.records) FL_TRY(make_records(g));
    *device = fl_cuda_reports_add(&g->reports, word, context, bytes);
    g->shown.report_count = g->reports.count;
    return FL_OK;
}

/* The end of a recording. */
static fl_status move_reports(graph *graph)
{
    if (!graph->reports.count) return FL_OK;
    if (!has_room(graph, 1)) return FL_OK; /* is_full says so */
    graph->address = graph->words++;
    return fl_cuda_reports_move(&graph->reports, graph->renewed + graph->address);
}

/* ---- graphs ---- */

void fl_cuda_graph_drop(fl_device_graph *handle)
{
    graph *g = (graph *)handle;
    if (!g) return;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    for (int i = 0; i < g->count; i++)
        fl_cuda_release(g->blocks[i].data, g->blocks[i].bytes, g->device, FL_QUEUE_COMPUTE);
    if (g->reports.records) fl_cuda_release(g->reports.records, FL_CUDA_REPORTS_BYTES, g->device, FL_QUEUE_COMPUTE);
    if (g->renewed) fl_cuda_release(g->renewed, WORDS * sizeof *g->renewed, g->device, FL_QUEUE_COMPUTE);
    free(g->blocks);
    free(g);
}

static fl_status begin(graph *graph)
{
    FL_TRY(fl_cuda_enter_recorder(graph->device));
    FL_CUDA_TRY(cudaStreamBeginCapture(fl_cuda_stream(), cudaStreamCaptureModeThreadLocal));
    recording = graph;
    return FL_OK;
}

fl_status fl_cuda_graph_begin(fl_device_graph **handle, int device)
{
    graph *g = (graph *)*handle;
    if (!g) g = (graph *)calloc(1, sizeof *g);
    if (!g) return fl_fail(FL_ERR_MEMORY, "cuda: out of memory for a graph");
    g->device = device;
    g->shown.renewed = g->shown.report_count = g->reports.count = g->words = 0;
    g->address = -1;
    g->is_full = false;
    for (int i = 0; i < g->count; i++) g->blocks[i].used = false;
    fl_status status = begin(g);
    if (status == FL_OK) {
        *handle = &g->shown;
        return FL_OK;
    }
    fl_cuda_enter(device, FL_QUEUE_COMPUTE);
    if (!*handle) fl_cuda_graph_drop(&g->shown);
    return status;
}

/* The launches that are under way keep what they were. */
static fl_status make_exec(graph *graph, cudaGraph_t captured)
{
    cudaGraphExecUpdateResultInfo info;
    if (graph->is_full) return fl_fail(FL_ERR_STATE, "cuda: a graph with more than %d numbers that change", (int)CELLS);
    if (graph->exec && cudaGraphExecUpdate(graph->exec, captured, &info) == cudaSuccess) return FL_OK;
    cudaGetLastError();
    if (graph->exec) cudaGraphExecDestroy(graph->exec);
    graph->exec = NULL;
    FL_CUDA_TRY(cudaGraphInstantiate(&graph->exec, captured, 0));
    return FL_OK;
}

fl_status fl_cuda_graph_end(fl_device_graph *handle, bool keep)
{
    graph *g = (graph *)handle;
    cudaGraph_t captured = NULL;
    const fl_status moved = keep ? move_reports(g) : FL_OK;
    cudaError_t error = cudaStreamEndCapture(fl_cuda_stream(), &captured);
    recording = NULL;
    FL_TRY(fl_cuda_enter(g->device, FL_QUEUE_COMPUTE));
    cudaGetLastError();
    fl_status status = FL_OK;
    if (keep && error != cudaSuccess) status = fl_cuda_fail(error, "cuda");
    else if (keep) status = moved == FL_OK ? make_exec(g, captured) : moved;
    if (captured) cudaGraphDestroy(captured);
    return status;
}

fl_status fl_cuda_graph_launch(fl_device_graph *handle)
{
    const graph *g = (const graph *)handle;
    uint64_t address = 0;
    if (g->reports.count) FL_TRY(fl_cuda_reports_launch(&address, &g->reports, handle->reports));
    if (g->words) renew(g, address);
    FL_CUDA_TRY(cudaGraphLaunch(g->exec, fl_cuda_stream()));
    return fl_cuda_check("captured steps");
}

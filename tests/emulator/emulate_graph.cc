/*
** emulate_graph.cc -- graphs: work issued to a stream while it is captured is noted, and done at each launch.
**
** Captured are launches, copies between memory that the GPU reaches, and memsets, of one stream. All else that is asked
** of a captured stream ends the process, and so does what CUDA forbids the thread meanwhile: to allocate, to wait, to
** query an event.
*/
#include "emulate_parts.h"

#include <memory>

typedef std::vector<std::function<void()>> nodes;

struct CUgraph_st {
    int device;
    std::shared_ptr<nodes> list;
};
struct CUgraphExec_st {
    int device;
    std::shared_ptr<const nodes> list; /* launches under way have what it was then */
};

static thread_local CUstream_st *captured; /* by this thread */
static thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal, captured_in;

void fl_emulated_unsafe(const char *what)
{
    if (captured && mode != cudaStreamCaptureModeRelaxed && captured_in != cudaStreamCaptureModeRelaxed)
        fl_emulated_broken("%s while this thread captures a stream", what);
}

void fl_emulated_not_captured(const CUstream_st *s, const char *what)
{
    if (s->captured) fl_emulated_broken("%s: the stream is captured", what);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *other)
{
    std::swap(*other, mode);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode how)
{
    LOCKED;
    fl_emulated_stream_of(s, "cudaStreamBeginCapture");
    if (captured || s->captured) fl_emulated_broken("cudaStreamBeginCapture: a stream is captured already");
    if (how == cudaStreamCaptureModeGlobal)
        fl_emulated_broken("capture in the global mode forbids calls of all threads");
    captured = s;
    captured_in = how;
    s->captured = new CUgraph_st{s->device, std::make_shared<nodes>()};
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    LOCKED;
    if (captured != s) fl_emulated_broken("cudaStreamEndCapture: this thread does not capture the stream");
    *out = s->captured;
    s->captured = NULL;
    captured = NULL;
    return cudaSuccess;
}

void fl_emulated_capture(CUstream_st *s, std::function<void()> run)
{
    if (captured != s) fl_emulated_broken("a thread issues to a stream that another one captures");
    s->captured->list->push_back(std::move(run));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    *out = new CUgraphExec_st{graph->device, graph->list};
    return cudaSuccess;
}

/* The nodes must be the same; their arguments may change. */
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *)
{
    LOCKED;
    if (exec->list->size() != graph->list->size()) return fl_emulated_fail(cudaErrorGraphExecUpdateFailure);
    exec->list = graph->list;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    LOCKED;
    fl_emulated_not_captured(fl_emulated_stream_of(s, "cudaGraphLaunch"), "cudaGraphLaunch");
    if (s->device != exec->device)
        fl_emulated_broken("a graph of GPU %d is launched on GPU %d", exec->device, s->device);
    std::shared_ptr<const nodes> list = exec->list;
    for (size_t i = 0; i < list->size(); i++) fl_emulated_issue(s, [list, i] { (*list)[i](); });
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

/* Launches under way go on. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

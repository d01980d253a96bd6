/*
** emulate_stream.cc -- streams and events: the work issued, the orders in which it may run, and its execution.
*/
#include "emulate_parts.h"

#include <random>
#include <vector>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct CUevent_st {
    CUstream_st *stream; /* NULL: never recorded */
    uint64_t position;
    double time; /* ms */
    int device;
};

static bool deferred;
static std::vector<CUstream_st *> &streams = fl_emulated_immortal<std::vector<CUstream_st *>>();
static std::mt19937 dice;

static void __attribute__((constructor)) read_environment(void)
{
    const char *mode = getenv("FLOW_CUDA_EMULATED");
    deferred = mode && !strcmp(mode, "deferred");
    dice.seed((unsigned)fl_emulated_setting("FLOW_CUDA_EMULATED_SEED", 1));
}

CUstream_st *fl_emulated_stream_of(cudaStream_t s, const char *what)
{
    if (!s) fl_emulated_broken("%s: the default stream is not ordered with those of the queues", what);
    return s;
}

/* As far as `position`, or until something is not ready: then false. */
static bool advance(CUstream_st *s, uint64_t position)
{
    while (s->done < position) {
        fl_emulated_item &head = s->queue.front();
        if (head.after && !advance(head.after, head.position)) return false;
        if (head.ready && !head.ready()) return false;
        fl_emulated_item next = std::move(head);
        s->queue.pop_front();
        if (next.run) next.run();
        s->done++;
    }
    return true;
}

static void advance_all(void)
{
    for (size_t i = 0; i < streams.size(); i++) advance(streams[i], streams[i]->issued);
}

/* The caller waits until the stream has come so far; the others go on meanwhile. */
void fl_emulated_finish(CUstream_st *s, uint64_t position)
{
    fl_emulated_not_captured(s, "a wait for the stream");
    fl_emulated_unsafe("a wait for a stream");
    while (!advance(s, position)) {
        advance_all();
        usleep(50);
    }
}

void fl_emulated_finish_all(void)
{
    for (size_t i = 0; i < streams.size(); i++) fl_emulated_finish(streams[i], streams[i]->issued);
}

/* Some stream gets a little further. */
static void stir(void)
{
    if (dice() % 3) return;
    CUstream_st *s = streams[dice() % streams.size()];
    uint64_t wanted = s->done + dice() % 4;
    advance(s, wanted < s->issued ? wanted : s->issued);
}

void fl_emulated_issue(CUstream_st *s, std::function<void()> run, CUstream_st *after, uint64_t position,
                       std::function<bool()> ready)
{
    if (s->captured && !after && !ready) return fl_emulated_capture(s, std::move(run));
    fl_emulated_not_captured(s, "a wait for another stream or process");
    s->queue.push_back({std::move(run), after, position, std::move(ready)});
    s->issued++;
    if (deferred) stir();
    else advance(s, s->issued);
}

/* ---- work that libraries issue ---- */

/* A GPU goes on while its process waits for another one: so do streams with something that waits for other
** processes. */
static void *keep_going(void *)
{
    for (;; usleep(300)) {
        LOCKED;
        for (size_t i = 0; i < streams.size(); i++) {
            CUstream_st *s = streams[i];
            for (size_t k = s->queue.size(); k > 0; k--)
                if (s->queue[k - 1].ready) {
                    advance(s, s->done + k);
                    break;
                }
        }
    }
    return NULL;
}

static void issue_of_library(cudaStream_t s, std::function<void()> run)
{
    LOCKED;
    fl_emulated_issue(fl_emulated_stream_of(s, "a library"), [run] {
        fl_emulated_rights open(true);
        run();
    });
}

static void issue_when(cudaStream_t s, std::function<bool()> ready, std::function<void()> run)
{
    static bool going;
    pthread_t thread;
    LOCKED;
    auto is_ready = [ready] {
        fl_emulated_rights open(true);
        return ready();
    };
    auto runs = [run] {
        fl_emulated_rights open(true);
        run();
    };
    fl_emulated_issue(fl_emulated_stream_of(s, "a library"), runs, NULL, 0, is_ready);
    if (going) return;
    going = pthread_create(&thread, NULL, keep_going, NULL) == 0 && pthread_detach(thread) == 0;
    if (!going) fl_emulated_broken("no thread for what other processes take part in");
}

void fl_emulate_launch(cudaStream_t stream, const void *, dim3 grid, dim3 threads_of_block, size_t shared,
                       std::function<void()> body, const char *file, int line)
{
    LOCKED;
    uint64_t count = (uint64_t)threads_of_block.x * threads_of_block.y * threads_of_block.z;
    if (shared > (size_t)fl_emulated_shared_limit()) {
        fl_emulated_fail(cudaErrorInvalidValue);
        return;
    }
    bool possible = grid.x && grid.y && grid.z && grid.x <= INT32_MAX && grid.y <= 65535 && grid.z <= 65535 && count
        && count <= FL_EMULATED_THREADS && threads_of_block.z <= 64;
    if (!possible) {
        fl_emulated_fail(cudaErrorInvalidConfiguration);
        return;
    }
    if (fl_emulated_stream_of(stream, file)->device != fl_emulated_device)
        fl_emulated_broken("%s:%d: a launch into a stream of GPU %d while GPU %d is the current one", file, line,
                           stream->device, fl_emulated_device);
    fl_emulated_launch l = {stream->device, grid, threads_of_block, shared, std::move(body), file, line};
    fl_emulated_issue(fl_emulated_stream_of(stream, file), [l] { fl_emulated_run_launch(l); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    LOCKED;
    *out = new CUstream_st{{issue_of_library, issue_when}, fl_emulated_device, {}, 0, 0, NULL};
    streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(out, flags);
}

/* Its struct stays: events remember it. */
cudaError_t cudaStreamDestroy(cudaStream_t s) { return cudaStreamSynchronize(s); }

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    LOCKED;
    fl_emulated_finish(fl_emulated_stream_of(s, "cudaStreamSynchronize"), s->issued);
    return cudaSuccess;
}

/* Repeated queries get a positive answer some time. */
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    LOCKED;
    fl_emulated_not_captured(s, "cudaStreamQuery");
    fl_emulated_unsafe("cudaStreamQuery");
    stir();
    if (s->done == s->issued) return cudaSuccess;
    advance(s, s->done + 1);
    return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    LOCKED;
    fl_emulated_finish_all();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    LOCKED;
    if (e->stream) fl_emulated_issue(fl_emulated_stream_of(s, "cudaStreamWaitEvent"), nullptr, e->stream, e->position);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *data)
{
    LOCKED;
    fl_emulated_not_captured(fl_emulated_stream_of(s, "cudaLaunchHostFunc"), "cudaLaunchHostFunc");
    fl_emulated_issue(s, [=] {
        fl_emulated_rights closed(false);
        function(data);
    });
    return cudaSuccess;
}

/* ---- events ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    *out = new CUevent_st{NULL, 0, 0, fl_emulated_device};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }

/* Queued work may still note its time in it. */
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    LOCKED;
    if (e->stream) fl_emulated_finish(e->stream, e->position);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    LOCKED;
    e->stream = fl_emulated_stream_of(s, "cudaEventRecord");
    if (e->device != s->device)
        fl_emulated_broken("cudaEventRecord: an event of GPU %d in a stream of GPU %d", e->device, s->device);
    fl_emulated_not_captured(s, "cudaEventRecord");
    e->position = s->issued + 1;
    fl_emulated_issue(s, [e] { e->time = now(); });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    LOCKED;
    fl_emulated_unsafe("cudaEventQuery");
    if (!e->stream || e->stream->done >= e->position) return cudaSuccess;
    advance(e->stream, e->stream->done + 1);
    return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    LOCKED;
    if (e->stream) fl_emulated_finish(e->stream, e->position);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    LOCKED;
    if (start->device != end->device)
        fl_emulated_broken("cudaEventElapsedTime: events of GPUs %d and %d", start->device, end->device);
    if (cudaEventQuery(start) != cudaSuccess || cudaEventQuery(end) != cudaSuccess)
        return fl_emulated_fail(cudaErrorNotReady);
    *ms = (float)(end->time - start->time);
    return cudaSuccess;
}

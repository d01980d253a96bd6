/*
** emulate.cc -- CUDA's runtime on the CPU: fibers, launches, streams, events, copies.
**
** One lock guards everything: kernels, copies and calls of the runtime run one at a time, whichever thread makes them.
** What breaks CUDA's rules in a way that a GPU would not report (a barrier that not all threads reach, a copy across
** the end of a block or from the wrong side) ends the process with a message: it is a defect of the plug-in.
*/
#include "emulate_parts.h"

#include <deque>
#include <random>
#include <string>
#include <vector>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

/* What lives until the end lives longer than static objects: others end later. */
template<typename T>
static T &immortal(void)
{
    return *new T();
}

std::recursive_mutex &fl_emulated_lock = immortal<std::recursive_mutex>();

void fl_emulated_broken(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "CUDA emulated: %s\n", text);
    abort();
}

/* ---- fibers ---- */

#ifdef __SANITIZE_ADDRESS__
enum { STACK_BYTES = 512 << 10, GUARD_BYTES = 4096 };
#else
enum { STACK_BYTES = 128 << 10, GUARD_BYTES = 4096 };
#endif

/* A place where execution can stop and go on: a stack of its own, or (the scheduler's) the caller's. */
struct fiber {
    char *stack;        /* NULL: the caller's */
    const void *bottom; /* what AddressSanitizer wants to know */
    size_t size;
    void *shadow;
#ifdef __x86_64__
    void *pointer; /* stack pointer while it is stopped */
#else
    ucontext_t context;
#endif
};

static void fiber_main(void);

#ifdef __x86_64__
/* Saves what a callee must keep, leaves the stack pointer in *from and goes on at `to`. */
extern "C" void fl_emulated_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden fl_emulated_switch\n"
        ".globl fl_emulated_switch\n"
        ".type fl_emulated_switch, @function\n"
        "fl_emulated_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size fl_emulated_switch, .-fl_emulated_switch\n");

/* The first switch pops six registers and returns into fiber_main, with the stack aligned as after a call. */
static void fiber_prepare(fiber *f)
{
    void **top = (void **)(f->stack + GUARD_BYTES + STACK_BYTES) - 2;
    top[0] = (void *)fiber_main;
    top[1] = NULL;
    for (int i = 1; i <= 6; i++) top[-i] = NULL;
    f->pointer = top - 6;
}
static void fiber_jump(fiber *from, fiber *to) { fl_emulated_switch(&from->pointer, to->pointer); }
#else
static void fiber_prepare(fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack + GUARD_BYTES;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
}
static void fiber_jump(fiber *from, fiber *to) { swapcontext(&from->context, &to->context); }
#endif

static fiber *fiber_new(void)
{
    fiber *f = (fiber *)calloc(1, sizeof *f);
    f->stack = (char *)mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == (char *)MAP_FAILED) fl_emulated_broken("no memory for the stack of a thread");
    mprotect(f->stack, GUARD_BYTES, PROT_NONE);
    f->bottom = f->stack + GUARD_BYTES;
    f->size = STACK_BYTES;
    fiber_prepare(f);
    return f;
}

static fiber scheduler, *running;

fl_emulated_now fl_emulated_running;
thread_local bool fl_emulated_in_kernel;

/* Calls AddressSanitizer before and after a switch to another stack. */
static void fiber_leave(fiber *from, const fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->shadow, to->bottom, to->size);
#else
    (void)from, (void)to;
#endif
}

static void fiber_arrive(fiber *at)
{
#ifdef __SANITIZE_ADDRESS__
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(at->shadow, &bottom, &size);
    if (at != &scheduler) scheduler.bottom = bottom, scheduler.size = size;
#else
    (void)at;
#endif
}

static void fiber_switch(fiber *to)
{
    fiber *from = running;
    fiber_leave(from, to);
    running = to;
    fl_emulated_running.stack = to->stack;
    fl_emulated_running.stack_bytes = GUARD_BYTES + STACK_BYTES;
    fiber_jump(from, to);
    fiber_arrive(from);
}

/* ---- a block ---- */

uint3 threadIdx FL_EMULATED_PLACE, blockIdx FL_EMULATED_PLACE;
dim3 blockDim FL_EMULATED_PLACE, gridDim FL_EMULATED_PLACE;

enum { MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / 32 };

enum wait { NOTHING, BLOCK, EXCHANGE, BALLOT };

struct thread {
    fiber *where; /* while it waits or is ready to go on */
    uint3 index;
    enum wait waits;
    bool ended;
    unsigned mask; /* of the lanes it waits with */
    int source;
    bool predicate;
    unsigned char value[16], result[16];
    unsigned votes;
};

/* The launch that runs. */
static struct {
    const std::function<void()> *body;
    const char *file;
    int line;
    int count; /* threads of a block */
    int begun, ended;
    bool reverse;
    int arrived, sum, total; /* of the block's barrier */
    int ready_first, ready_last;
    thread *ready[MAX_THREADS];
    unsigned alive[MAX_WARPS]; /* lanes that exist and have not ended */
} block;

static thread threads[MAX_THREADS];
static thread *self;
static std::vector<fiber *> &spare = immortal<std::vector<fiber *>>();
static unsigned char shared_bytes[FL_EMULATED_SHARED] __attribute__((aligned(128)));

void *fl_emulated_shared(void) { return shared_bytes; }

void fl_emulated_arguments(const void *data, size_t bytes)
{
    fl_emulated_running.arguments = data;
    fl_emulated_running.argument_bytes = bytes;
    fl_emulated_in_kernel = true;
}

static int number_of(const thread *t) { return (int)(t - threads); }

static void make_ready(thread *t)
{
    t->waits = NOTHING;
    block.ready[block.ready_last++ % MAX_THREADS] = t;
}

static void run_as(thread *t)
{
    self = t;
    threadIdx = t->index;
    fl_emulated_running.thread = number_of(t);
}

/* The running thread stops until make_ready. */
static void stop_here(void)
{
    thread *me = self;
    me->where = running;
    fl_emulated_in_kernel = false;
    fiber_switch(&scheduler);
    fl_emulated_in_kernel = true;
    run_as(me);
}

void fl_emulated_place(char *text, size_t size)
{
    if (!block.file) snprintf(text, size, "before any launch");
    else if (!block.count) snprintf(text, size, "after the launch at %s:%d", block.file, block.line);
    else
        snprintf(text, size, "%s:%d: block (%u, %u, %u), thread %d", block.file, block.line, blockIdx.x, blockIdx.y,
                 blockIdx.z, number_of(self));
}

static void begin_next(void)
{
    int n = block.begun++;
    run_as(&threads[block.reverse ? block.count - 1 - n : n]);
    (*block.body)();
    fl_emulated_in_kernel = false;
    self->ended = true;
    block.ended++;
    block.alive[number_of(self) / 32] &= ~(1u << number_of(self) % 32);
}

/* What a fiber does: begins threads as long as there are any, then waits in `spare` to be used again. A thread that
** stopped ends here too, maybe long after others have begun. */
static void fiber_main(void)
{
    fiber_arrive(running);
    for (;;) {
        while (block.begun < block.count) begin_next();
        spare.push_back(running);
        fiber_switch(&scheduler);
    }
}

static fiber *take_spare(void)
{
    if (spare.empty()) return fiber_new();
    fiber *f = spare.back();
    spare.pop_back();
    return f;
}

/* ---- barriers ---- */

static const char *const wait_names[] = {"nothing", "__syncthreads", "a shuffle", "a vote or __syncwarp"};

/* Nobody can go on. */
static void __attribute__((noreturn)) deadlock(void)
{
    char text[512];
    int length = 0, shown = 0, waiting = 0;
    for (int i = 0; i < block.count; i++) {
        if (threads[i].ended) continue;
        waiting++;
        if (shown++ < 3)
            length += snprintf(text + length, sizeof text - (size_t)length, "; thread %d waits at %s with lanes %08x",
                               i, wait_names[threads[i].waits], threads[i].mask);
    }
    fl_emulated_broken("%s:%d: block (%u, %u, %u): %d of %d threads have ended and %d wait for them or for lanes that "
                       "do something else%s",
                       block.file, block.line, blockIdx.x, blockIdx.y, blockIdx.z, block.ended, block.count, waiting,
                       text);
}

int fl_emulated_block_barrier(int value)
{
    block.sum += value;
    self->mask = 0;
    if (++block.arrived < block.count) {
        self->waits = BLOCK;
        stop_here();
        return block.total;
    }
    block.total = block.sum;
    block.arrived = block.sum = 0;
    fl_emulated_running.barriers++;
    for (int i = 0; i < block.count; i++)
        if (threads[i].waits == BLOCK) make_ready(&threads[i]);
    return block.total;
}

/* Gives each lane of the mask what it asked for. */
static void answer(thread *warp, unsigned mask, enum wait what)
{
    unsigned votes = 0;
    fl_emulated_running.meetings[number_of(warp) / 32]++;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && warp[i].predicate) votes |= 1u << i;
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        warp[i].votes = votes;
        if (what != EXCHANGE) continue;
        int source = warp[i].source & 31;
        if (!(mask >> source & 1))
            fl_emulated_broken(
                "%s:%d: lane %d shuffles with lanes %08x and asks for what lane %d has, which is none of them",
                block.file, block.line, i, mask, source);
        memcpy(warp[i].result, warp[source].value, sizeof warp[i].result);
    }
}

/* The running thread waits for the other lanes of the mask; the last one answers all. */
static void meet_lanes(unsigned mask, enum wait what)
{
    int n = number_of(self);
    thread *warp = &threads[n / 32 * 32];
    int lanes = block.count - n / 32 * 32;
    if (lanes < 32) mask &= (1u << lanes) - 1;
    if (!(mask >> n % 32 & 1))
        fl_emulated_broken("%s:%d: lane %d waits at %s with lanes %08x, not its own", block.file, block.line, n % 32,
                           wait_names[what], mask);
    self->mask = mask;
    self->waits = what;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && (warp[i].waits != what || warp[i].mask != mask)) {
            stop_here();
            return;
        }
    answer(warp, mask, what);
    self->waits = NOTHING;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && &warp[i] != self) make_ready(&warp[i]);
}

void fl_emulated_exchange(void *out, const void *value, int size, unsigned mask, int source)
{
    memcpy(self->value, value, (size_t)size);
    self->source = source;
    meet_lanes(mask, EXCHANGE);
    memcpy(out, self->result, (size_t)size);
}

unsigned fl_emulated_ballot(unsigned mask, bool predicate)
{
    self->predicate = predicate;
    meet_lanes(mask, BALLOT);
    return self->votes;
}

unsigned __activemask(void) { return block.alive[number_of(self) / 32]; }

/* ---- asynchronous copies ---- */

struct copy16 {
    void *shared;
    const void *from;
    bool exists;
    int group;
};

/* Of a thread: those under way, oldest first, and how many groups there were. */
struct copies {
    std::vector<copy16> under_way;
    int groups;
};
static copies *const copies_of = new copies[MAX_THREADS];
static bool has_copies; /* the block */

void fl_emulated_copy16(void *shared, const void *from, bool exists)
{
    copies *c = &copies_of[number_of(self)];
    if ((uintptr_t)shared % 16 || (exists && (uintptr_t)from % 16))
        fl_emulated_broken("%s:%d: an asynchronous copy from %p to %p: they must be multiples of 16", block.file,
                           block.line, from, shared);
    fl_emulated_access(shared, 16, true);
    if (exists) fl_emulated_access(from, 16, false);
    memset(shared, 0xff, 16);
    has_copies = true;
    c->under_way.push_back({shared, from, exists, c->groups});
}

void fl_emulated_copy_commit(void) { copies_of[number_of(self)].groups++; }

void fl_emulated_copy_wait(int but)
{
    copies *c = &copies_of[number_of(self)];
    size_t done = 0;
    for (; done < c->under_way.size() && c->under_way[done].group < c->groups - but; done++) {
        const copy16 &one = c->under_way[done];
        fl_emulated_access(one.shared, 16, true);
        if (one.exists) memcpy(one.shared, one.from, 16);
        else memset(one.shared, 0, 16);
    }
    c->under_way.erase(c->under_way.begin(), c->under_way.begin() + (ptrdiff_t)done);
}

static void forget_copies(void)
{
    for (int i = 0; has_copies && i < block.count; i++) {
        copies_of[i].under_way.clear();
        copies_of[i].groups = 0;
    }
    has_copies = false;
}

/* ---- a launch ---- */

static void number_threads(void)
{
    for (int i = 0; i < block.count; i++) {
        unsigned n = (unsigned)i;
        threads[i].index = make_uint3(n % blockDim.x, n / blockDim.x % blockDim.y, n / blockDim.x / blockDim.y);
    }
}

static void run_block(void)
{
    block.begun = block.ended = block.arrived = block.sum = block.ready_first = block.ready_last = 0;
    fl_emulated_running.barriers++;
    for (int i = 0; i < block.count; i++) {
        threads[i].waits = NOTHING;
        threads[i].ended = false;
        block.alive[i / 32] = 0xffffffffu >> (31 - i % 32);
    }
    forget_copies();
    while (block.ended < block.count) {
        if (block.begun < block.count) fiber_switch(take_spare());
        else if (block.ready_first == block.ready_last) deadlock();
        else fiber_switch(block.ready[block.ready_first++ % MAX_THREADS]->where);
    }
}

struct launch {
    int device;
    dim3 grid, threads;
    size_t shared;
    std::function<void()> body;
    const char *file;
    int line;
};

static void run_launch(const launch &l)
{
    static unsigned launches;
    fl_emulated_rights open(true);
    running = &scheduler;
    gridDim = l.grid;
    blockDim = l.threads;
    block.body = &l.body;
    block.file = l.file;
    block.line = l.line;
    fl_emulated_running.device = l.device;
    fl_emulated_running.shared_bytes = l.shared;
    block.count = (int)(blockDim.x * blockDim.y * blockDim.z);
    number_threads();
    uint64_t blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    launches++;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t n = launches & 2 ? blocks - 1 - i : i;
        blockIdx = make_uint3((unsigned)(n % gridDim.x), (unsigned)(n / gridDim.x % gridDim.y),
                              (unsigned)(n / gridDim.x / gridDim.y));
        block.reverse = (launches + i) & 1;
        memset(shared_bytes, 0xff, l.shared);
        run_block();
    }
    block.count = 0;
}

/* ---- streams ---- */

/* Something issued; `after`, if any, must have come so far before, and `ready`, if any, must say yes. */
struct item {
    std::function<void()> run;
    CUstream_st *after;
    uint64_t position;
    std::function<bool()> ready;
};

struct CUstream_st : fl_emulated_stream {
    int device;
    std::deque<item> queue;
    uint64_t issued, done;
};

struct CUevent_st {
    CUstream_st *stream; /* NULL: never recorded */
    uint64_t position;
    double time; /* ms */
    int device;
};

static bool deferred;
static std::vector<CUstream_st *> &streams = immortal<std::vector<CUstream_st *>>();
static std::mt19937 dice;
static thread_local cudaError_t last_error;
static thread_local int current_device;

static int from_environment(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static void __attribute__((constructor)) read_environment(void)
{
    const char *mode = getenv("FLOW_CUDA_EMULATED");
    deferred = mode && !strcmp(mode, "deferred");
    dice.seed((unsigned)from_environment("FLOW_CUDA_EMULATED_SEED", 1));
}

/* ---- what a device can ---- */

static int compute(void) { return from_environment("FLOW_CUDA_EMULATED_COMPUTE", 80); }

/* Most dynamic shared memory of a block, from the CUDA C++ Programming Guide's table of compute capabilities. */
static int shared_limit(void)
{
    switch (compute()) {
    case 75: return 64 << 10;
    case 86:
    case 89: return 99 << 10;
    case 90: return 227 << 10;
    default: return 163 << 10;
    }
}

static int device_count(void) { return from_environment("FLOW_CUDA_EMULATED_DEVICES", 2); }

static cudaError_t fail(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}

static CUstream_st *stream_of(cudaStream_t s, const char *what)
{
    if (!s) fl_emulated_broken("%s: the default stream is not ordered with those of the queues", what);
    return s;
}

/* As far as `position`, or until something is not ready: then false. */
static bool advance(CUstream_st *s, uint64_t position)
{
    while (s->done < position) {
        item &head = s->queue.front();
        if (head.after && !advance(head.after, head.position)) return false;
        if (head.ready && !head.ready()) return false;
        item next = std::move(head);
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
static void finish(CUstream_st *s, uint64_t position)
{
    while (!advance(s, position)) {
        advance_all();
        usleep(50);
    }
}

static void finish_all(void)
{
    for (size_t i = 0; i < streams.size(); i++) finish(streams[i], streams[i]->issued);
}

/* Some stream gets a little further. */
static void stir(void)
{
    if (dice() % 3) return;
    CUstream_st *s = streams[dice() % streams.size()];
    uint64_t wanted = s->done + dice() % 4;
    advance(s, wanted < s->issued ? wanted : s->issued);
}

static void issue(CUstream_st *s, std::function<void()> run, CUstream_st *after = NULL, uint64_t position = 0,
                  std::function<bool()> ready = nullptr)
{
    s->queue.push_back({std::move(run), after, position, std::move(ready)});
    s->issued++;
    if (deferred) stir();
    else advance(s, s->issued);
}

/* ---- what libraries issue ---- */

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
    issue(stream_of(s, "a library"), [run] {
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
    issue(stream_of(s, "a library"), runs, NULL, 0, is_ready);
    if (going) return;
    going = pthread_create(&thread, NULL, keep_going, NULL) == 0 && pthread_detach(thread) == 0;
    if (!going) fl_emulated_broken("no thread for what other processes take part in");
}

void fl_emulate_launch(cudaStream_t stream, const void *, dim3 grid, dim3 threads_of_block, size_t shared,
                       std::function<void()> body, const char *file, int line)
{
    LOCKED;
    uint64_t count = (uint64_t)threads_of_block.x * threads_of_block.y * threads_of_block.z;
    if (shared > (size_t)shared_limit()) {
        fail(cudaErrorInvalidValue);
        return;
    }
    bool possible = grid.x && grid.y && grid.z && grid.x <= INT32_MAX && grid.y <= 65535 && grid.z <= 65535 && count
        && count <= MAX_THREADS && threads_of_block.z <= 64;
    if (!possible) {
        fail(cudaErrorInvalidConfiguration);
        return;
    }
    if (stream_of(stream, file)->device != current_device)
        fl_emulated_broken("%s:%d: a launch into a stream of GPU %d while GPU %d is the current one", file, line,
                           stream->device, current_device);
    launch l = {stream->device, grid, threads_of_block, shared, std::move(body), file, line};
    issue(stream_of(stream, file), [l] { run_launch(l); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    LOCKED;
    *out = new CUstream_st{{issue_of_library, issue_when}, current_device, {}, 0, 0};
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
    finish(stream_of(s, "cudaStreamSynchronize"), s->issued);
    return cudaSuccess;
}

/* Who asks again and again is answered some time. */
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    LOCKED;
    stir();
    if (s->done == s->issued) return cudaSuccess;
    advance(s, s->done + 1);
    return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    LOCKED;
    finish_all();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    LOCKED;
    if (e->stream) issue(stream_of(s, "cudaStreamWaitEvent"), nullptr, e->stream, e->position);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *data)
{
    LOCKED;
    issue(stream_of(s, "cudaLaunchHostFunc"), [=] {
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
    *out = new CUevent_st{NULL, 0, 0, current_device};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }

/* What is queued may still note its time in it. */
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    LOCKED;
    if (e->stream) finish(e->stream, e->position);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    LOCKED;
    e->stream = stream_of(s, "cudaEventRecord");
    if (e->device != s->device)
        fl_emulated_broken("cudaEventRecord: an event of GPU %d in a stream of GPU %d", e->device, s->device);
    e->position = s->issued + 1;
    issue(s, [e] { e->time = now(); });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    LOCKED;
    if (!e->stream || e->stream->done >= e->position) return cudaSuccess;
    advance(e->stream, e->stream->done + 1);
    return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    LOCKED;
    if (e->stream) finish(e->stream, e->position);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    LOCKED;
    if (start->device != end->device)
        fl_emulated_broken("cudaEventElapsedTime: events of GPUs %d and %d", start->device, end->device);
    if (cudaEventQuery(start) != cudaSuccess || cudaEventQuery(end) != cudaSuccess) return fail(cudaErrorNotReady);
    *ms = (float)(end->time - start->time);
    return cudaSuccess;
}

/* ---- memory ---- */

static int64_t device_bytes(void)
{
    const char *text = getenv("FLOW_CUDA_EMULATED_BYTES");
    return text && *text ? atoll(text) : (int64_t)4 << 30;
}

static bool on_device(const void *address)
{
    size_t left;
    const fl_emulated_memory *m = fl_emulated_memory_find(address, &left);
    return m && m->device >= 0;
}

static bool is_pageable(const void *address)
{
    size_t left;
    return !fl_emulated_memory_find(address, &left);
}

static void check_range(const void *address, size_t bytes, bool device, const char *what)
{
    size_t left = 0;
    const fl_emulated_memory *m = fl_emulated_memory_find(address, &left);
    if (device && (!m || m->device < 0)) fl_emulated_broken("%s: %p is no device memory (any more)", what, address);
    if (m && left < bytes)
        fl_emulated_broken("%s: %zu bytes at %p, of which %zu belong to the block", what, bytes, address, left);
}

static void fill_device(void *data, int value, size_t bytes)
{
    fl_emulated_rights open(true);
    memset(data, value, bytes);
}

/* New memory has its pattern (NaN, -1) in the order of the stream: what another stream wrote before is lost. */
cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t s)
{
    LOCKED;
    CUstream_st *stream = stream_of(s, "cudaMallocAsync");
    int device = stream->device;
    if (fl_emulated_memory_used(device) + (int64_t)bytes > device_bytes()) finish(stream, stream->issued);
    void *data = fl_emulated_memory_used(device) + (int64_t)bytes > device_bytes()
        ? NULL
        : fl_emulated_memory_new(bytes, device);
    if (!data) return fail(cudaErrorMemoryAllocation);
    issue(stream, [=] { fill_device(data, 0xff, bytes); });
    *out = data;
    return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t, cudaStream_t s)
{
    return cudaMallocAsync(out, bytes, s);
}

cudaError_t cudaFreeAsync(void *data, cudaStream_t s)
{
    LOCKED;
    check_range(data, 0, true, "cudaFreeAsync");
    issue(stream_of(s, "cudaFreeAsync"), [=] { fl_emulated_memory_free(data); });
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    LOCKED;
    if (fl_emulated_memory_used(current_device) + (int64_t)bytes > device_bytes())
        return fail(cudaErrorMemoryAllocation);
    void *data = fl_emulated_memory_new(bytes, current_device);
    if (!data) return fail(cudaErrorMemoryAllocation);
    fill_device(data, 0xff, bytes);
    *out = data;
    return cudaSuccess;
}

cudaError_t cudaFree(void *data)
{
    LOCKED;
    finish_all();
    if (data) fl_emulated_memory_free(data);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    LOCKED;
    *out = fl_emulated_memory_new(bytes, -1);
    return *out ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *data) { return cudaFree(data); }

cudaError_t cudaHostGetDevicePointer(void **out, void *host, unsigned)
{
    *out = host;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    LOCKED;
    *total = (size_t)device_bytes();
    *available = *total - (size_t)fl_emulated_memory_used(current_device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    *pool = (cudaMemPool_t)(intptr_t)(device + 1);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void *value)
{
    LOCKED;
    *(uint64_t *)value = (uint64_t)fl_emulated_memory_used((int)(intptr_t)pool - 1);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *address)
{
    LOCKED;
    size_t left;
    const fl_emulated_memory *m = fl_emulated_memory_find(address, &left);
    memset(out, 0, sizeof *out);
    out->type = !m ? cudaMemoryTypeUnregistered : m->device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    out->device = m && m->device >= 0 ? m->device : current_device;
    return cudaSuccess;
}

/* ---- copies ---- */

static void check_kind(const void *out, const void *in, cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault) return;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (to_device != on_device(out) || from_device != on_device(in))
        fl_emulated_broken("a copy from %p to %p is said to be of kind %d", in, out, (int)kind);
}

/* Ranges are checked when the copy runs, too: the memory may have been freed by then. */
static void copy_now(void *out, const void *in, size_t bytes, bool to_device, bool from_device)
{
    check_range(out, bytes, to_device, "a copy's target");
    check_range(in, bytes, from_device, "a copy's source");
    fl_emulated_rights open(true);
    memmove(out, in, bytes);
}

/* Waits for no stream of ours: they are all non-blocking ones. */
cudaError_t cudaMemcpy(void *out, const void *in, size_t bytes, cudaMemcpyKind kind)
{
    LOCKED;
    check_kind(out, in, kind);
    copy_now(out, in, bytes, on_device(out), on_device(in));
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *out, const void *in, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
    LOCKED;
    stream_of(s, "cudaMemcpyAsync");
    check_kind(out, in, kind);
    bool to_device = on_device(out), from_device = on_device(in), waits = is_pageable(in) || is_pageable(out);
    issue(s, [=] { copy_now(out, in, bytes, to_device, from_device); });
    if (waits) finish(s, s->issued);
    return cudaSuccess;
}

/* Which GPU a block is on must be said right. */
cudaError_t cudaMemcpyPeerAsync(void *out, int to, const void *in, int from, size_t bytes, cudaStream_t s)
{
    LOCKED;
    size_t left;
    const fl_emulated_memory *target = fl_emulated_memory_find(out, &left),
                             *source = fl_emulated_memory_find(in, &left);
    if (!target || !source || target->device != to || source->device != from)
        fl_emulated_broken("a copy from %p to %p is said to be from GPU %d to GPU %d", in, out, from, to);
    return cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, s);
}

cudaError_t cudaMemcpy2DAsync(void *out, size_t out_pitch, const void *in, size_t in_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t s)
{
    for (size_t i = 0; i < height; i++) {
        cudaError_t error = cudaMemcpyAsync((char *)out + i * out_pitch, (const char *)in + i * in_pitch, width, kind,
                                            s);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *out, int value, size_t bytes, cudaStream_t s)
{
    LOCKED;
    issue(stream_of(s, "cudaMemsetAsync"), [=] {
        check_range(out, bytes, true, "cudaMemsetAsync");
        fill_device(out, value, bytes);
    });
    return cudaSuccess;
}

/* ---- devices and errors ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return *count ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break; /* few, so that loops over a grid are tried */
    case cudaDevAttrComputeCapabilityMajor: *value = compute() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = compute() % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_limit(); break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrL2CacheSize: *value = 40 << 20; break;
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    default: return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "emulated GPU");
    snprintf(out->uuid.bytes, sizeof out->uuid.bytes, "emulated %d", device); /* the same for all processes */
    out->totalGlobalMem = (size_t)device_bytes();
    out->major = compute() / 10;
    out->minor = compute() % 10;
    out->multiProcessorCount = 4;
    return device < device_count() ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 1, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks_of_one, const void *, int threads_of_block,
                                                          size_t)
{
    *blocks_of_one = 2048 / threads_of_block;
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    default: return "an error";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    default: return cudaGetErrorName(error);
    }
}

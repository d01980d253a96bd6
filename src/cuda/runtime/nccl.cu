/*
** nccl.cu -- collectives between the GPUs of several ranks by NCCL, which is opened for the first of them.
**
** Communicators do not block: a call returns at once, and while its result is out the ranks that take part are watched
** as in every wait for others (comm.h). A collective that was issued lies between two events; when the host waits for
** the GPU and the first has been reached and the second not, its communicator is looked at: after an error of NCCL, a
** death or the time-out it is aborted. The results of its collectives are then missing, and every wait reports it.
**
** FLOW_NCCL: 0: never; else the library to open instead of those that are looked for.
*/
#include "nccl_abi.h"
#include "runtime.h"

extern "C" {
#include "core/base/clock.h"
#include "core/ranks/device_comm.h"
#include "core/ranks/wait.h"
}

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if !defined FL_EMULATED && __has_include(<nccl.h>)
#include <nccl.h>
static_assert((int)ncclInProgress == FL_NCCL_IN_PROGRESS && (int)ncclRemoteError == FL_NCCL_REMOTE_ERROR,
              "results of nccl.h");
static_assert((int)ncclUint8 == FL_NCCL_UINT8 && (int)ncclInt64 == FL_NCCL_INT64
                  && (int)ncclBfloat16 == FL_NCCL_BFLOAT16,
              "types of nccl.h");
static_assert((int)ncclSum == FL_NCCL_SUM && (int)ncclMax == FL_NCCL_MAX && (int)ncclMin == FL_NCCL_MIN,
              "operations of nccl.h");
static_assert(sizeof(ncclUniqueId) == sizeof(fl_nccl_id), "ids of nccl.h");
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(fl_nccl_config, blocking), "configuration of nccl.h");
#endif

/* ---- the library ---- */

static struct {
#define FL_NCCL_FIELD(name, parameters) int(*name) parameters;
    FL_NCCL_FUNCTIONS(FL_NCCL_FIELD)
    const char *(*GetErrorString)(int result);
    bool tried;
    char missing[256]; /* why it cannot be used; "" when it can */
    int version;       /* 22809: 2.28.9 */
} nccl;

static void *open_library(void)
{
    static const int major = 2;
    return fl_cuda_library("FLOW_NCCL", "nccl", &major, 1);
}

static bool load_functions(void *library)
{
#define FL_NCCL_LOAD(name, parameters) \
    if (!(nccl.name = (decltype(nccl.name))dlsym(library, "nccl" #name))) return false;
    FL_NCCL_FUNCTIONS(FL_NCCL_LOAD)
    nccl.GetErrorString = (decltype(nccl.GetErrorString))dlsym(library, "ncclGetErrorString");
    return nccl.GetErrorString && nccl.GetVersion(&nccl.version) == FL_NCCL_SUCCESS;
}

static void find_library(void)
{
    const char *own = getenv("FLOW_NCCL");
    const char *name = own && *own ? own : "libnccl.so.2";
    nccl.tried = true;
    if (own && strcmp(own, "0") == 0) {
        snprintf(nccl.missing, sizeof nccl.missing, "FLOW_NCCL=0 forbids it");
        return;
    }
    void *library = open_library();
    if (!library)
        snprintf(nccl.missing, sizeof nccl.missing, "%s was not found; install NCCL or set LD_LIBRARY_PATH", name);
    else if (!load_functions(library)) snprintf(nccl.missing, sizeof nccl.missing, "%s is older than NCCL 2.14", name);
}

static fl_status nccl_open(void)
{
    if (!nccl.tried) find_library();
    return nccl.missing[0] ? fl_fail(FL_ERR_MISSING, "NCCL: %s", nccl.missing) : FL_OK;
}

static void nccl_describe(char *text, size_t size)
{
    snprintf(text, size, "NCCL %d.%d.%d", nccl.version / 10000, nccl.version / 100 % 100, nccl.version % 100);
}

/* ---- members ---- */

/* This rank in a communicator. */
struct member {
    fl_group *group;
    fl_nccl_comm *comm; /* NULL: aborted */
    bool given_up;      /* by the ranks together: none waits for another */
    uint64_t begun;     /* group->begun when it was made */
    char error[1024];   /* why it was aborted */
    struct member *next;
};

/* A collective that was issued and is not known to be complete. */
struct flight {
    member *owner;
    fl_collective collective;
    fl_wait wait; /* for the others, from the moment the GPU has come to it */
    cudaEvent_t begin, end;
};

enum { FLIGHTS = 512, LOOK_NS = 5000000 };
static flight flights[FLIGHTS]; /* in the order of the queue */
static uint64_t first, next;    /* those under way: first to next - 1, modulo FLIGHTS; atomic */
static member *members;         /* all, the aborted too */
static bool aborted;            /* atomic: some are */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all the above, and of every call of NCCL */

static bool is_other(const fl_group *group, int i) { return i != group->me; }

static fl_wait wait_for_others(const fl_group *group, const fl_collective *collective)
{
    fl_wait w = {};
    w.group = group;
    w.flags = FL_WAIT_DATA | FL_WAIT_DEVICE;
    w.collective = collective;
    w.missing = is_other;
    return w;
}

/* "all-reduce of float32[4], P -> B (train.lua:5): NCCL: .." */
static fl_status failed(const fl_collective *collective, int result)
{
    char text[FL_COLLECTIVE_TEXT];
    const char *where = collective->where;
    return fl_fail(FL_ERR_COMM, "%s%s%s%s: NCCL: %s", fl_collective_text(text, collective), where[0] ? " (" : "", where,
                   where[0] ? ")" : "", nccl.GetErrorString(result));
}

/* Waits until the call that gave `result` is through on the host. */
static fl_status settle(const member *member, const fl_collective *collective, int result)
{
    fl_wait w = wait_for_others(member->group, collective);
    while (result == FL_NCCL_IN_PROGRESS) {
        FL_TRY(fl_wait_step(&w));
        int asked = nccl.CommGetAsyncError(member->comm, &result);
        if (asked != FL_NCCL_SUCCESS) result = asked;
    }
    return result == FL_NCCL_SUCCESS ? FL_OK : failed(collective, result);
}

static void end_comm(member *member)
{
    if (member->comm) nccl.CommAbort(member->comm);
    member->comm = NULL;
}

/* The ranks go on without what its collectives should have brought. */
static void abort_member(member *member, const char *error)
{
    if (!member->comm) return;
    snprintf(member->error, sizeof member->error, "%s", error);
    member->group->broken = true;
    end_comm(member);
    __atomic_store_n(&aborted, true, __ATOMIC_RELEASE);
}

fl_status fl_nccl_errors(void)
{
    if (FL_LIKELY(!__atomic_load_n(&aborted, __ATOMIC_ACQUIRE))) return FL_OK;
    fl_status status = FL_OK;
    pthread_mutex_lock(&lock);
    for (const member *m = members; m && status == FL_OK; m = m->next)
        if (!m->comm && !m->given_up && m->begun == m->group->begun) status = fl_fail(FL_ERR_COMM, "%s", m->error);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- watching ---- */

static bool is_reached(cudaEvent_t event)
{
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaErrorNotReady) cudaGetLastError();
    return error != cudaErrorNotReady;
}

/* Removes what is complete; the oldest that is not, or NULL. */
static flight *oldest_flight(void)
{
    while (first < next) {
        flight *f = &flights[first % FLIGHTS];
        if (f->owner->comm && !is_reached(f->end)) return f;
        __atomic_store_n(&first, first + 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static fl_status look_at(flight *flight)
{
    int result = FL_NCCL_SUCCESS, asked = nccl.CommGetAsyncError(flight->owner->comm, &result);
    if (asked != FL_NCCL_SUCCESS) result = asked;
    if (result != FL_NCCL_SUCCESS && result != FL_NCCL_IN_PROGRESS) return failed(&flight->collective, result);
    return fl_wait_poll(&flight->wait);
}

static bool is_quiet(void)
{
    return __atomic_load_n(&first, __ATOMIC_RELAXED) == __atomic_load_n(&next, __ATOMIC_RELAXED);
}

void fl_nccl_look(void)
{
    static uint64_t looked;
    if (FL_LIKELY(is_quiet())) return;
    uint64_t t = fl_now();
    if (t - __atomic_load_n(&looked, __ATOMIC_RELAXED) < LOOK_NS || pthread_mutex_trylock(&lock)) return;
    __atomic_store_n(&looked, t, __ATOMIC_RELAXED);
    flight *f = oldest_flight();
    if (f && is_reached(f->begin) && look_at(f) != FL_OK) abort_member(f->owner, fl_message());
    pthread_mutex_unlock(&lock);
}

void fl_nccl_await(cudaStream_t stream, cudaEvent_t event)
{
    while (!is_quiet() && (event ? cudaEventQuery(event) : cudaStreamQuery(stream)) == cudaErrorNotReady) {
        cudaGetLastError();
        fl_nccl_look();
        usleep(20);
    }
}

/* ---- joining ---- */

/* The message that members exchange before they join. */
struct handshake {
    int version;
    char gpu[16], bus[16], host[40]; /* the same for all processes that use this GPU; host: this start of the machine */
    fl_nccl_id id;                   /* of the member that invites */
};
static_assert(sizeof(handshake) <= FL_DEVICE_HANDSHAKE, "a handshake holds what members show");

static void read_host(char *text, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(text, (int)size, file)) gethostname(text, size - 1);
    if (file) fclose(file);
}

static fl_status nccl_handshake(void *out, int index, bool inviting)
{
    handshake c;
    cudaDeviceProp properties;
    memset(&c, 0, sizeof c);
    FL_TRY(fl_cuda_enter(index, FL_QUEUE_COMM));
    FL_CUDA_TRY(cudaGetDeviceProperties(&properties, index));
    FL_CUDA_TRY(cudaDeviceGetPCIBusId(c.bus, sizeof c.bus, index));
    memcpy(c.gpu, properties.uuid.bytes, sizeof c.gpu);
    read_host(c.host, sizeof c.host);
    c.version = nccl.version;
    int result = inviting ? nccl.GetUniqueId(&c.id) : (int)FL_NCCL_SUCCESS;
    if (result != FL_NCCL_SUCCESS) return fl_fail(FL_ERR_COMM, "NCCL: %s", nccl.GetErrorString(result));
    memcpy(out, &c, sizeof c);
    return FL_OK;
}

static handshake handshake_at(const void *handshakes, int i)
{
    handshake c;
    memcpy(&c, (const char *)handshakes + (size_t)i * FL_DEVICE_HANDSHAKE, sizeof c);
    return c;
}

/* Instances of one GPU have the same address on their machine. */
static bool share_gpu(const handshake *a, const handshake *b)
{
    return memcmp(a->gpu, b->gpu, sizeof a->gpu) == 0
        || (memcmp(a->bus, b->bus, sizeof a->bus) == 0 && memcmp(a->host, b->host, sizeof a->host) == 0);
}

static fl_status nccl_compare(const void *handshakes, int count, const int *ranks)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            handshake a = handshake_at(handshakes, j), b = handshake_at(handshakes, i);
            if (share_gpu(&a, &b))
                return fl_fail(FL_ERR_MISSING, "NCCL: ranks %d and %d share a GPU", ranks[j], ranks[i]);
            if (a.version != b.version)
                return fl_fail(FL_ERR_MISSING, "NCCL: ranks %d and %d have versions %d and %d", ranks[j], ranks[i],
                               a.version, b.version);
        }
    return FL_OK;
}

static void nccl_leave(void *handle)
{
    member *m = (member *)handle;
    if (!m) return;
    pthread_mutex_lock(&lock);
    end_comm(m);
    m->given_up = true;
    pthread_mutex_unlock(&lock);
}

/* A member stays in the list, for what is under way and for its errors. */
static fl_status nccl_join(void **handle, fl_group *group, const void *handshakes, int index)
{
    fl_nccl_config config = FL_NCCL_CONFIG;
    fl_collective collective;
    FL_TRY(fl_cuda_enter(index, FL_QUEUE_COMM));
    member *m = (member *)calloc(1, sizeof *m);
    if (!m) return fl_fail(FL_ERR_MEMORY, "NCCL: out of memory");
    memset(&collective, 0, sizeof collective);
    snprintf(collective.name, sizeof collective.name, "joining of devices");
    collective.shape.ndim = -1;
    m->group = group;
    m->begun = group->begun;
    pthread_mutex_lock(&lock);
    int result = nccl.CommInitRankConfig(&m->comm, group->count, handshake_at(handshakes, 0).id, group->me, &config);
    fl_status status = m->comm || result != FL_NCCL_SUCCESS ? settle(m, &collective, result) : FL_OK;
    if (status != FL_OK && m->comm) nccl.CommAbort(m->comm);
    if (status == FL_OK) {
        m->next = members;
        members = m;
        *handle = m;
    } else free(m);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- collectives ---- */

/* The flight that is being issued: flights[next]. The lock is held from begin to end. */
static flight *issued(void) { return &flights[next % FLIGHTS]; }

static fl_status make_event(cudaEvent_t *event)
{
    if (!*event) FL_CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    return FL_OK;
}

static fl_status open_flight(member *member, const fl_collective *collective)
{
    flight *f = issued();
    FL_TRY(make_event(&f->begin));
    FL_TRY(make_event(&f->end));
    f->owner = member;
    f->collective = *collective;
    f->wait = wait_for_others(member->group, &f->collective);
    FL_CUDA_TRY(cudaEventRecord(f->begin, fl_cuda_stream()));
    return FL_OK;
}

/* There is room for one more. */
static void wait_for_room(void)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        oldest_flight();
        bool is_full = next - first == FLIGHTS;
        pthread_mutex_unlock(&lock);
        if (!is_full) return;
        fl_nccl_look();
        usleep(50);
    }
}

static fl_status nccl_begin(void *handle, const fl_collective *collective)
{
    member *m = (member *)handle;
    wait_for_room();
    pthread_mutex_lock(&lock);
    fl_status status = m->comm ? open_flight(m, collective) : fl_fail(FL_ERR_COMM, "%s", m->error);
    if (status != FL_OK) pthread_mutex_unlock(&lock);
    return status;
}

static fl_status nccl_end(void *handle, fl_status status)
{
    member *m = (member *)handle;
    if (status == FL_OK) status = fl_cuda_check("NCCL");
    if (status == FL_OK && cudaEventRecord(issued()->end, fl_cuda_stream()) != cudaSuccess)
        status = fl_cuda_check("NCCL");
    if (status == FL_OK) __atomic_store_n(&next, next + 1, __ATOMIC_RELAXED);
    else abort_member(m, fl_message());
    pthread_mutex_unlock(&lock);
    return status;
}

static int type_of(fl_dtype dtype)
{
    switch (dtype) {
    case FL_BOOL:
    case FL_UINT8: return FL_NCCL_UINT8;
    case FL_INT8: return FL_NCCL_INT8;
    case FL_INT32: return FL_NCCL_INT32;
    case FL_INT64: return FL_NCCL_INT64;
    case FL_FLOAT16: return FL_NCCL_FLOAT16;
    case FL_BFLOAT16: return FL_NCCL_BFLOAT16;
    case FL_FLOAT32: return FL_NCCL_FLOAT32;
    default: return FL_NCCL_FLOAT64;
    }
}

static int op_of(fl_reduce reduce)
{
    static const int ops[] = {FL_NCCL_SUM, FL_NCCL_MAX, FL_NCCL_MIN, FL_NCCL_PROD};
    return ops[reduce];
}

static fl_status settle_issued(const member *member, int result)
{
    return settle(member, &issued()->collective, result);
}

static fl_status nccl_all_reduce(void *handle, void *out, const void *in, int64_t count, fl_dtype dtype,
                                 fl_reduce reduce)
{
    member *m = (member *)handle;
    return settle_issued(
        m, nccl.AllReduce(in, out, (size_t)count, type_of(dtype), op_of(reduce), m->comm, fl_cuda_stream()));
}

static fl_status nccl_all_gather(void *handle, void *out, const void *in, int64_t count, fl_dtype dtype)
{
    member *m = (member *)handle;
    return settle_issued(m, nccl.AllGather(in, out, (size_t)count, type_of(dtype), m->comm, fl_cuda_stream()));
}

static fl_status nccl_reduce_scatter(void *handle, void *out, const void *in, int64_t count, fl_dtype dtype,
                                     fl_reduce reduce)
{
    member *m = (member *)handle;
    return settle_issued(
        m, nccl.ReduceScatter(in, out, (size_t)count, type_of(dtype), op_of(reduce), m->comm, fl_cuda_stream()));
}

/* The first result that is no success, and not only under way. */
static int worse(int result, int other)
{
    return result == FL_NCCL_SUCCESS || result == FL_NCCL_IN_PROGRESS ? other : result;
}

static fl_status nccl_exchange(void *handle, const fl_segment *sent, int sent_count, const fl_segment *received,
                               int received_count)
{
    member *m = (member *)handle;
    if (sent_count + received_count == 0) return FL_OK;
    int result = nccl.GroupStart();
    for (int i = 0; i < sent_count; i++)
        result = worse(result,
                       nccl.Send(sent[i].data, sent[i].bytes, FL_NCCL_UINT8, sent[i].peer, m->comm, fl_cuda_stream()));
    for (int i = 0; i < received_count; i++)
        result = worse(result,
                       nccl.Recv(received[i].data, received[i].bytes, FL_NCCL_UINT8, received[i].peer, m->comm,
                                 fl_cuda_stream()));
    return settle_issued(m, worse(result, nccl.GroupEnd()));
}

/* ---- putting together ---- */

enum { THREADS = 256, EACH = 4, SOURCES = 32 };

struct sources {
    const void *at[SOURCES];
    int count;
};

/* Whole numbers wrap. */
template<typename T>
__device__ static inline T add(T a, T b)
{
    return (T)((uint64_t)a + (uint64_t)b);
}
template<>
__device__ inline float add(float a, float b)
{
    return a + b;
}
template<>
__device__ inline double add(double a, double b)
{
    return a + b;
}

/* A NaN wins: it compares false with everything. */
template<fl_reduce REDUCE, typename W>
__device__ static inline W join_two(W a, W b)
{
    if (REDUCE == FL_REDUCE_MAX) return a > b || a != a ? a : b;
    if (REDUCE == FL_REDUCE_MIN) return a < b || a != a ? a : b;
    return add(a, b);
}

template<typename T, fl_reduce REDUCE>
static __global__ void __launch_bounds__(THREADS) join_all(T *out, const __grid_constant__ sources from, int64_t n)
{
    int64_t start = (int64_t)blockIdx.x * (THREADS * EACH) + threadIdx.x;
    typename fl_wide<T>::type total[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (start + k * THREADS < n) total[k] = fl_load(((const T *)from.at[0])[start + k * THREADS]);
    for (int i = 1; i < from.count; i++) {
        const T *in = (const T *)from.at[i];
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (start + k * THREADS < n) total[k] = join_two<REDUCE>(total[k], fl_load(in[start + k * THREADS]));
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (start + k * THREADS < n) out[start + k * THREADS] = fl_store<T>(total[k]);
}

template<typename T>
static void launch_join(void *out, const sources &from, int64_t n, fl_reduce reduce)
{
    unsigned blocks = (unsigned)((n + THREADS * EACH - 1) / (THREADS * EACH));
    if (reduce == FL_REDUCE_MAX) FL_LAUNCH((join_all<T, FL_REDUCE_MAX>), blocks, THREADS, 0, (T *)out, from, n);
    else if (reduce == FL_REDUCE_MIN) FL_LAUNCH((join_all<T, FL_REDUCE_MIN>), blocks, THREADS, 0, (T *)out, from, n);
    else FL_LAUNCH((join_all<T, FL_REDUCE_SUM>), blocks, THREADS, 0, (T *)out, from, n);
}

/* More than SOURCES are put together in turns, of which the first source is what there is so far. */
static fl_status nccl_combine(void *out, const void *const *ins, int count, int64_t n, fl_dtype dtype, fl_reduce reduce)
{
    for (int at = 0; at < count;) {
        sources from = {};
        if (at > 0) from.at[from.count++] = out;
        while (at < count && from.count < SOURCES) from.at[from.count++] = ins[at++];
        FL_TRY(fl_cuda_by_dtype(dtype, [&](auto like) {
            launch_join<decltype(like)>(out, from, n, reduce);
            return fl_cuda_check("joining of parts");
        }));
    }
    return FL_OK;
}

const fl_device_comm fl_nccl = {"NCCL",          nccl_open,           nccl_describe, nccl_handshake, nccl_compare,
                                nccl_join,       nccl_leave,          nccl_begin,    nccl_end,       nccl_all_reduce,
                                nccl_all_gather, nccl_reduce_scatter, nccl_exchange, nccl_combine};

/*
** fake_nccl.cc -- the part of NCCL's interface that the plug-in uses, for the emulation (FLOW_NCCL): data go between
** the processes through a file that all of them map and whose name is the unique id; nothing of it is left behind.
**
** It behaves like NCCL where that matters: collectives wait in their stream for the other members; calls of a
** communicator that does not block are in progress for a while; maxima and minima lose a NaN; sums of 16-bit floats are
** rounded at every step. It ends the process where members call different functions, or with other counts, types or
** operations.
**
** FLOW_FAKE_NCCL=hang:RANK:NUMBER: the GPU of that member (of every group) never comes to its collective of that
** number, from 1; fail:RANK:NUMBER: there it finds an error, with NUMBER 0 it cannot even join. With
** FLOW_FAKE_NCCL_LOG, a file to which each process appends the names of the functions it calls, tests see what was
** called.
*/
#include "../emulator/emulate.h"
#include "cuda/runtime/nccl_abi.h"

#include <fcntl.h>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int

namespace
{

enum { MOST_MEMBERS = 16, ASKED_BEFORE_DONE = 2 };
const size_t ROOM = (size_t)32 << 20; /* for one message */

/* The operation that a message belongs to: equal on both sides. */
struct envelope {
    uint64_t number; /* of the member's collectives, with the other one */
    int function, type, op;
    uint64_t count;
};

/* From one member to another: one message at a time. */
struct channel {
    uint64_t sent, received; /* atomic */
    envelope cover;
    uint64_t bytes;
    char data[ROOM];
};

struct segment {
    int joined; /* atomic */
    channel channels[];
};

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, EXCHANGE };
const char *const names[] = {"AllReduce", "AllGather", "ReduceScatter", "exchange"};

struct trouble {
    char kind[8];
    int rank, number;
};

/* The trouble that FLOW_FAKE_NCCL asks for. */
trouble asked_trouble(void)
{
    trouble t = {"", -1, -1};
    const char *text = getenv("FLOW_FAKE_NCCL");
    if (text && sscanf(text, "%7[a-z]:%d:%d", t.kind, &t.rank, &t.number) != 3) t.rank = -1;
    return t;
}

void __attribute__((noreturn)) broken(const std::string &text)
{
    fprintf(stderr, "fake NCCL: %s\n", text.c_str());
    abort();
}

void log_call(const char *name)
{
    const char *path = getenv("FLOW_FAKE_NCCL_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s\n", name);
    fclose(file);
}

struct communicator {
    int count, rank;
    segment *shared;
    std::string path;
    int operations = 0;                   /* so far */
    uint64_t numbers[MOST_MEMBERS] = {};  /* of operations with each member */
    bool aborted = false, failed = false; /* atomic */
    int questions = 0;                    /* that are still answered with "in progress" */

    channel *between(int from, int to) { return &shared->channels[from * count + to]; }
    bool fails(const char *kind, int number)
    {
        trouble t = asked_trouble();
        return t.rank == rank && t.number == number && !strcmp(t.kind, kind);
    }
    ~communicator() { munmap(shared, sizeof(segment) + sizeof(channel) * (size_t)count * (size_t)count); }
};

typedef std::shared_ptr<communicator> handle;
handle of(fl_nccl_comm *opaque) { return *(handle *)opaque; }

struct message {
    int peer;
    char *data;
    size_t bytes;
    envelope cover;
    bool done;
};

/* The work of one call, or of one group of sends and receives, in its stream. */
struct operation {
    handle comm;
    bool hangs = false;
    std::vector<message> sends, receives;
    std::function<void()> finish;

    void give(message &m)
    {
        channel *c = comm->between(comm->rank, m.peer);
        if (m.done || __atomic_load_n(&c->received, __ATOMIC_ACQUIRE) != c->sent) return;
        c->cover = m.cover;
        c->bytes = m.bytes;
        memcpy(c->data, m.data, m.bytes);
        __atomic_store_n(&c->sent, c->sent + 1, __ATOMIC_RELEASE);
        m.done = true;
    }

    bool ready()
    {
        bool all = true;
        if (__atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE)) return true;
        if (hangs || __atomic_load_n(&comm->failed, __ATOMIC_ACQUIRE)) return false;
        for (message &m : sends) {
            give(m);
            all = all && m.done;
        }
        for (message &m : receives) {
            channel *c = comm->between(m.peer, comm->rank);
            all = all && __atomic_load_n(&c->sent, __ATOMIC_ACQUIRE) != c->received;
        }
        return all;
    }

    void check(const channel *c, const message &m)
    {
        const envelope &a = c->cover, &b = m.cover;
        if (a.number == b.number && a.function == b.function && a.type == b.type && a.op == b.op && a.count == b.count
            && c->bytes == m.bytes)
            return;
        broken("rank " + std::to_string(m.peer) + " calls " + names[a.function] + " of " + std::to_string(a.count)
               + ", rank " + std::to_string(comm->rank) + " " + names[b.function] + " of " + std::to_string(b.count));
    }

    void run()
    {
        if (__atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE)) return;
        for (message &m : receives) {
            channel *c = comm->between(m.peer, comm->rank);
            check(c, m);
            memcpy(m.data, c->data, m.bytes);
            __atomic_store_n(&c->received, c->received + 1, __ATOMIC_RELEASE);
        }
        if (finish) finish();
    }
};

typedef std::shared_ptr<operation> work;

/* ---- arithmetic ---- */

size_t size_of(int type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return sizes[type];
}

template<typename T>
T combine(T a, T b, int op)
{
    if (op == FL_NCCL_MAX) return a > b ? a : b;
    if (op == FL_NCCL_MIN) return a < b ? a : b;
    return (T)((uint64_t)a + (uint64_t)b);
}
double combine(double a, double b, int op)
{
    return op == FL_NCCL_MAX ? fmax(a, b) : op == FL_NCCL_MIN ? fmin(a, b) : a + b;
}
float combine(float a, float b, int op)
{
    return op == FL_NCCL_MAX ? fmaxf(a, b) : op == FL_NCCL_MIN ? fminf(a, b) : a + b;
}
__half combine(__half a, __half b, int op) { return __float2half_rn(combine(__half2float(a), __half2float(b), op)); }
__nv_bfloat16 combine(__nv_bfloat16 a, __nv_bfloat16 b, int op)
{
    return __float2bfloat16_rn(combine(__bfloat162float(a), __bfloat162float(b), op));
}

template<typename T>
void combine_into(char *total, const char *more, size_t count, int op)
{
    for (size_t i = 0; i < count; i++) ((T *)total)[i] = combine(((T *)total)[i], ((const T *)more)[i], op);
}

void reduce_into(char *total, const char *more, size_t count, int type, int op)
{
    switch (type) {
    case FL_NCCL_INT8: return combine_into<int8_t>(total, more, count, op);
    case FL_NCCL_UINT8: return combine_into<uint8_t>(total, more, count, op);
    case FL_NCCL_INT32: return combine_into<int32_t>(total, more, count, op);
    case FL_NCCL_INT64: return combine_into<int64_t>(total, more, count, op);
    case FL_NCCL_FLOAT16: return combine_into<__half>(total, more, count, op);
    case FL_NCCL_BFLOAT16: return combine_into<__nv_bfloat16>(total, more, count, op);
    case FL_NCCL_FLOAT32: return combine_into<float>(total, more, count, op);
    case FL_NCCL_FLOAT64: return combine_into<double>(total, more, count, op);
    default: broken("type " + std::to_string(type));
    }
}

/* ---- issuing ---- */

thread_local int depth; /* of groups */
thread_local work group;
thread_local cudaStream_t group_stream;

/* This member's part of operation `number` of the communicator: does what was asked for to it. */
int issue(const work &w, cudaStream_t stream)
{
    const handle &comm = w->comm;
    int number = ++comm->operations;
    if (__atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE)) return FL_NCCL_INVALID_USAGE;
    w->hangs = comm->fails("hang", number);
    if (comm->fails("fail", number)) __atomic_store_n(&comm->failed, true, __ATOMIC_RELEASE);
    ((fl_emulated_stream *)stream)
        ->issue_when(
            stream, [w] { return w->ready(); }, [w] { w->run(); });
    comm->questions = ASKED_BEFORE_DONE;
    return FL_NCCL_IN_PROGRESS;
}

void add(std::vector<message> &list, communicator *comm, int peer, const void *data, size_t bytes, envelope cover,
         bool counts)
{
    if (bytes > ROOM) broken("a message of " + std::to_string(bytes) + " bytes");
    if (counts) comm->numbers[peer]++;
    cover.number = comm->numbers[peer];
    list.push_back({peer, (char *)data, bytes, cover, false});
}

typedef std::vector<std::vector<char>> parts;

/* A collective: bytes of `in` for each member, and what each member gave. */
work collective(const handle &comm, int function, const void *in, size_t step, size_t count, int type, int op,
                const std::shared_ptr<parts> &got)
{
    work w = std::make_shared<operation>();
    envelope cover = {0, function, type, op, count};
    w->comm = comm;
    got->resize((size_t)comm->count);
    for (int i = 0; i < comm->count; i++) {
        (*got)[(size_t)i].resize(count * size_of(type));
        if (i == comm->rank) continue;
        add(w->sends, comm.get(), i, (const char *)in + (size_t)i * step, count * size_of(type), cover, true);
        add(w->receives, comm.get(), i, (*got)[(size_t)i].data(), count * size_of(type), cover, false);
    }
    log_call(names[function]);
    return w;
}

int reduce(int function, const void *in, void *out, size_t step, size_t count, int type, int op, fl_nccl_comm *opaque,
           cudaStream_t stream)
{
    handle comm = of(opaque);
    std::shared_ptr<parts> got = std::make_shared<parts>();
    work w = collective(comm, function, in, step, count, type, op, got);
    w->finish = [=] {
        std::vector<char> total = (*got)[0];
        const char *own = (const char *)in + (size_t)comm->rank * step;
        for (int i = 0; i < comm->count; i++) {
            const char *part = i == comm->rank ? own : (*got)[(size_t)i].data();
            if (i == 0) memcpy(total.data(), part, total.size());
            else reduce_into(total.data(), part, count, type, op);
        }
        memcpy(out, total.data(), total.size());
    };
    return issue(w, stream);
}

bool is_alone(const std::vector<message> &list, int peer)
{
    for (const message &m : list)
        if (m.peer == peer) return false;
    return true;
}

/* A send or a receive, within a group. Messages between two members have numbers of their own, of either direction. */
int put(bool sends, void *data, size_t count, int type, int peer, fl_nccl_comm *opaque, cudaStream_t stream)
{
    handle comm = of(opaque);
    if (depth == 0) broken("a message outside of a group");
    if (!group) {
        group = std::make_shared<operation>();
        group->comm = comm;
        group_stream = stream;
    }
    std::vector<message> &list = sends ? group->sends : group->receives;
    if (count == 0 || peer == comm->rank || peer < 0 || peer >= comm->count || stream != group_stream
        || !is_alone(list, peer))
        return FL_NCCL_INVALID_ARGUMENT;
    add(list, comm.get(), peer, data, count * size_of(type), {0, EXCHANGE, type, 0, count}, false);
    list.back().cover.number = 0;
    return FL_NCCL_SUCCESS;
}

} // namespace

API ncclGetVersion(int *version) { return *version = 22809, FL_NCCL_SUCCESS; }

API ncclGetUniqueId(fl_nccl_id *id)
{
    static int made;
    const char *folder = getenv("TMPDIR");
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "%.60s/fake_nccl.%d.%d.%ld", folder && *folder ? folder : "/tmp",
             (int)getpid(), made++, t.tv_nsec);
    return FL_NCCL_SUCCESS;
}

/* The last one to join takes the name away. */
API ncclCommInitRankConfig(fl_nccl_comm **out, int count, fl_nccl_id id, int rank, fl_nccl_config *config)
{
    if (config->size < sizeof *config || config->magic != 0xcafebeef || config->blocking != 0 || rank < 0
        || rank >= count || count > MOST_MEMBERS)
        return FL_NCCL_INVALID_ARGUMENT;
    size_t bytes = sizeof(segment) + sizeof(channel) * (size_t)count * (size_t)count;
    int file = open(id.bytes, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) broken(std::string("cannot make ") + id.bytes);
    handle comm = std::make_shared<communicator>();
    comm->count = count;
    comm->rank = rank;
    comm->path = id.bytes;
    comm->shared = (segment *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (comm->shared == MAP_FAILED) broken("no room for a communicator");
    if (comm->fails("fail", 0)) comm->failed = true;
    if (__atomic_add_fetch(&comm->shared->joined, 1, __ATOMIC_ACQ_REL) == count) unlink(id.bytes);
    *out = (fl_nccl_comm *)new handle(comm);
    log_call("CommInitRankConfig");
    return FL_NCCL_IN_PROGRESS;
}

/* The process may go on using the handle of an aborted communicator by mistake: it is kept. */
API ncclCommAbort(fl_nccl_comm *opaque)
{
    __atomic_store_n(&of(opaque)->aborted, true, __ATOMIC_RELEASE);
    log_call("CommAbort");
    return FL_NCCL_SUCCESS;
}

API ncclCommGetAsyncError(fl_nccl_comm *opaque, int *result)
{
    handle comm = of(opaque);
    bool joined = __atomic_load_n(&comm->shared->joined, __ATOMIC_ACQUIRE) == comm->count;
    if (comm->failed) *result = FL_NCCL_REMOTE_ERROR;
    else *result = !joined || comm->questions-- > 0 ? (int)FL_NCCL_IN_PROGRESS : (int)FL_NCCL_SUCCESS;
    return FL_NCCL_SUCCESS;
}

API ncclAllReduce(const void *in, void *out, size_t count, int type, int op, fl_nccl_comm *comm, cudaStream_t stream)
{
    return reduce(ALL_REDUCE, in, out, 0, count, type, op, comm, stream);
}

API ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, fl_nccl_comm *comm,
                      cudaStream_t stream)
{
    return reduce(REDUCE_SCATTER, in, out, count * size_of(type), count, type, op, comm, stream);
}

API ncclAllGather(const void *in, void *out, size_t count, int type, fl_nccl_comm *opaque, cudaStream_t stream)
{
    handle comm = of(opaque);
    std::shared_ptr<parts> got = std::make_shared<parts>();
    size_t bytes = count * size_of(type);
    work w = collective(comm, ALL_GATHER, in, 0, count, type, 0, got);
    w->finish = [=] {
        for (int i = 0; i < comm->count; i++)
            memmove((char *)out + (size_t)i * bytes, i == comm->rank ? (const char *)in : (*got)[(size_t)i].data(),
                    bytes);
    };
    return issue(w, stream);
}

API ncclSend(const void *in, size_t count, int type, int peer, fl_nccl_comm *comm, cudaStream_t stream)
{
    return put(true, (void *)in, count, type, peer, comm, stream);
}

API ncclRecv(void *out, size_t count, int type, int peer, fl_nccl_comm *comm, cudaStream_t stream)
{
    return put(false, out, count, type, peer, comm, stream);
}

API ncclGroupStart(void) { return depth++, FL_NCCL_SUCCESS; }

API ncclGroupEnd(void)
{
    if (--depth > 0 || !group) return FL_NCCL_SUCCESS;
    work w = group;
    group = nullptr;
    log_call("exchange");
    return issue(w, group_stream);
}

extern "C" __attribute__((visibility("default"))) const char *ncclGetErrorString(int result)
{
    switch (result) {
    case FL_NCCL_INVALID_ARGUMENT: return "invalid argument";
    case FL_NCCL_INVALID_USAGE: return "invalid usage";
    case FL_NCCL_REMOTE_ERROR: return "remote process exited or there was a network error";
    default: return "unknown result code";
    }
}

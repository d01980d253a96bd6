/*
** emulate_block.cc -- a launch: its blocks one after the other, their threads, barriers and asynchronous copies.
*/
#include "emulate_parts.h"

#include <vector>

#include <stdio.h>

/* ---- threads ---- */

uint3 threadIdx FL_EMULATED_PLACE, blockIdx FL_EMULATED_PLACE;
dim3 blockDim FL_EMULATED_PLACE, gridDim FL_EMULATED_PLACE;

enum { MAX_WARPS = FL_EMULATED_THREADS / 32 };

enum wait { NOTHING, BLOCK, EXCHANGE, BALLOT };

struct thread {
    fl_emulated_fiber *where; /* while it waits or is ready to go on */
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
    thread *ready[FL_EMULATED_THREADS];
    unsigned alive[MAX_WARPS]; /* lanes that exist and have not ended */
} block;

static thread threads[FL_EMULATED_THREADS];
static thread *self;
static std::vector<fl_emulated_fiber *> &spare = fl_emulated_immortal<std::vector<fl_emulated_fiber *>>();
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
    block.ready[block.ready_last++ % FL_EMULATED_THREADS] = t;
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
    me->where = fl_emulated_fiber_now;
    fl_emulated_in_kernel = false;
    fl_emulated_fiber_switch(&fl_emulated_scheduler);
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

/* The body of a fiber: begins threads as long as there are any, then waits in `spare` to be used again. A thread that
** stopped ends here too, maybe long after others have begun. */
void fl_emulated_fiber_main(void)
{
    fl_emulated_fiber_arrive(fl_emulated_fiber_now);
    for (;;) {
        while (block.begun < block.count) begin_next();
        spare.push_back(fl_emulated_fiber_now);
        fl_emulated_fiber_switch(&fl_emulated_scheduler);
    }
}

static fl_emulated_fiber *take_spare(void)
{
    if (spare.empty()) return fl_emulated_fiber_new();
    fl_emulated_fiber *f = spare.back();
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
static copies *const copies_of = new copies[FL_EMULATED_THREADS];
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
        if (block.begun < block.count) fl_emulated_fiber_switch(take_spare());
        else if (block.ready_first == block.ready_last) deadlock();
        else fl_emulated_fiber_switch(block.ready[block.ready_first++ % FL_EMULATED_THREADS]->where);
    }
}

void fl_emulated_run_launch(const fl_emulated_launch &l)
{
    static unsigned launches;
    fl_emulated_rights open(true);
    fl_emulated_fiber_now = &fl_emulated_scheduler;
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

/*
** shared.c -- memory that all ranks of a host map: arenas, journals, channels.
**
** An arena is a memfd that its rank keeps open; peers find it as /proc/<pid>/fd/<fd> and know by a random cookie that
** it is the right one. It has no name, so it goes away with the last process that maps it, however that ends.
**
**     head       cookie, journal, directory of channels      one page
**     channels   this rank's side of each channel            up to 1 GiB; never freed
**     small      blocks below 2 MiB, in units of 512 bytes   as large as the machine's memory
**     large      blocks from 2 MiB on, in units of 2 MiB     three times that, so that rounding up costs no memory
**
** The file is sparse: only what was touched takes memory. Each word in it has one writer, the rank that owns the arena
** (save for the bytes of tensors, the two counters of the journal marked atomic, and a lock that the kernel releases),
** and is published by a release store, so a rank may die at any instruction and leaves nothing half locked.
*/
#define _GNU_SOURCE
#include "op/op.h"
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* since Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u /* since Linux 6.3 */
#endif

enum { LINE = 64, PAGE = 4096, SMALL_UNIT = 512, HUGE_PAGE = 2 << 20, CHANNEL_BUCKETS = 128 };
static const size_t CHANNELS_END = (size_t)1 << 30; /* of the arena */
static const size_t MAX_SMALL = (size_t)1 << 40;    /* of the small zone: units are counted in 32 bits */
static const size_t MAX_MAPPED = (size_t)1 << 45;   /* all arenas of a world together: address space */

/* What peers learn first; FL_SHARED_HANDSHAKE bytes at most. */
typedef struct handshake {
    char boot[40];          /* the kernel's boot id: which host */
    uint64_t pid_namespace; /* in which pids mean the same */
    uint64_t cookie, size;  /* of the arena; 0: there is none */
    uint64_t layout;        /* of what is shared: differs between programs that do not fit together */
    int32_t pid, fd;
} handshake;
_Static_assert(sizeof(handshake) <= FL_SHARED_HANDSHAKE, "a handshake fits");

/* The arena's first bytes. */
typedef struct head {
    uint64_t cookie;
    fl_journal journal;
    pthread_mutex_t lock;               /* of the host's first rank: fl_shared_lock */
    uint64_t channels[CHANNEL_BUCKETS]; /* by hash: offset of the newest side; 0: none */
} head;
_Static_assert(sizeof(head) <= PAGE, "the head is one page");

typedef struct peer {
    char *start; /* of its arena, mapped here; NULL: not */
    int pid;
    unsigned long long born; /* when the process started, as the kernel counts */
} peer;

/* ---- this process ---- */

static fl_journal private_journal;
fl_journal *fl_journal_own = &private_journal;

static struct {
    char *start; /* NULL: no arena */
    size_t size, channels_used;
    int fd, rank, world_size;
    bool left;   /* this is a forked child: the arena is its parent's */
    peer *peers; /* owned, [world_size] */
} own = {.fd = -1};

bool fl_shared_has(int rank) { return rank >= 0 && rank < own.world_size && own.peers[rank].start != NULL; }

uint64_t fl_shared_offset(const void *data) { return (uint64_t)((const char *)data - own.start); }

void *fl_shared_address(int rank, uint64_t offset) { return own.peers[rank].start + offset; }

bool fl_arena_owns(const void *data) { return (uintptr_t)data - (uintptr_t)own.start < own.size; }

static head *head_of(int rank) { return (head *)own.peers[rank].start; }

/* ---- free ranges ---- */

/* A zone is a row of equal units. Free ranges are kept by length, 8 bins per doubling; the tags of a range's
** first and last unit say how long it is, so that neighbours are found and joined without a search. */
enum { BINS = 240 };

typedef struct tag {
    uint32_t free;       /* at both ends of a free range: its length; 0 elsewhere */
    uint32_t prev, next; /* at its first unit: the others in its bin; 0: none */
} tag;

typedef struct zone {
    size_t unit, offset; /* bytes; of the zone in the arena */
    uint32_t units;
    tag *tags; /* owned (a mapping); unit i is tags[i + 1], taken tags stand at both ends */
    uint32_t bins[BINS];
    uint64_t filled[BINS / 64 + 1];
} zone;

static zone small_zone, large_zone;
static unsigned char *backed; /* owned: has this 2 MiB of the small zone its pages? */

static int bin_of(uint64_t length)
{
    if (length < 8) return (int)length;
    int shift = 60 - __builtin_clzll(length);
    return 8 * shift + (int)(length >> shift);
}

/* The first bin all of whose ranges have that length. */
static int bin_above(uint64_t length)
{
    if (length < 8) return (int)length;
    return bin_of(length + ((uint64_t)1 << (60 - __builtin_clzll(length))) - 1);
}

static void range_insert(zone *z, uint32_t at, uint32_t length)
{
    int b = bin_of(length);
    z->tags[at] = (tag){length, 0, z->bins[b]};
    z->tags[at + length - 1].free = length;
    if (z->bins[b]) z->tags[z->bins[b]].prev = at;
    z->bins[b] = at;
    z->filled[b / 64] |= (uint64_t)1 << b % 64;
}

static void range_remove(zone *z, uint32_t at)
{
    tag t = z->tags[at];
    int b = bin_of(t.free);
    z->tags[at].free = z->tags[at + t.free - 1].free = 0;
    if (t.next) z->tags[t.next].prev = t.prev;
    if (t.prev) z->tags[t.prev].next = t.next;
    else if (!(z->bins[b] = t.next)) z->filled[b / 64] &= ~((uint64_t)1 << b % 64);
}

/* A free range from the first bin that is filled from b on; 0: none. */
static uint32_t range_find(const zone *z, int b)
{
    for (int word = b / 64; word <= BINS / 64; word++) {
        uint64_t bits = z->filled[word];
        if (word == b / 64) bits &= ~(uint64_t)0 << b % 64;
        if (bits) return z->bins[64 * word + __builtin_ctzll(bits)];
    }
    return 0;
}

/* Position (from 1) of `length` units; 0: no room. */
static uint32_t zone_take(zone *z, uint32_t length)
{
    uint32_t at = range_find(z, bin_above(length));
    if (!at) return 0;
    uint32_t whole = z->tags[at].free;
    range_remove(z, at);
    if (whole > length) range_insert(z, at + length, whole - length);
    return at;
}

/* Joins what is given with its free neighbours: at and length of the range it lies in. */
static void zone_give(zone *z, uint32_t *at, uint32_t *length)
{
    uint32_t before = z->tags[*at - 1].free, after = z->tags[*at + *length].free;
    if (after) range_remove(z, *at + *length);
    if (before) range_remove(z, *at - before);
    *at -= before;
    *length += before + after;
    range_insert(z, *at, *length);
}

static bool zone_start(zone *z, size_t unit, size_t offset, size_t bytes)
{
    *z = (zone){.unit = unit, .offset = offset, .units = (uint32_t)(bytes / unit)};
    z->tags = mmap(NULL, (z->units + (size_t)2) * sizeof(tag), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (z->tags == MAP_FAILED) return false;
    range_insert(z, 1, z->units);
    return true;
}

static void zone_stop(zone *z)
{
    if (z->units && z->tags != MAP_FAILED) munmap(z->tags, (z->units + (size_t)2) * sizeof(tag));
    *z = (zone){0};
}

/* ---- the arena ---- */

static zone *zone_of(size_t bytes) { return bytes < HUGE_PAGE ? &small_zone : &large_zone; }

/* Gives fresh memory its pages now, as huge ones. Shared memory has those only where the system's administrator asked
** for them, but on request the kernel merges pages into one wherever there is one (measured: 64 MiB in 3 ms; touched
** page by page 19 ms, and again 15 ms in each peer). It does not begin with nothing, hence the first page. */
static void back_with_huge_pages(char *start, size_t bytes)
{
    static bool unknown; /* to this kernel */
    madvise(start, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes && !unknown; at += HUGE_PAGE)
        unknown = madvise(start + at, PAGE, MADV_POPULATE_READ) && errno == EINVAL;
    if (bytes && !unknown) unknown = madvise(start, bytes, MADV_COLLAPSE) && errno == EINVAL;
}

/* A small block shares its huge pages with others. */
static void back_small(size_t start, size_t end)
{
    for (size_t i = start / HUGE_PAGE; i * HUGE_PAGE < end; i++) {
        if (backed[i]) continue;
        back_with_huge_pages(own.start + small_zone.offset + i * HUGE_PAGE, HUGE_PAGE);
        backed[i] = 1;
    }
}

void *fl_arena_take(size_t bytes)
{
    if (!own.start || own.left || bytes == 0 || bytes > own.size) return NULL;
    zone *z = zone_of(bytes);
    uint32_t at = zone_take(z, (uint32_t)((bytes + z->unit - 1) / z->unit));
    if (!at) return NULL;
    size_t start = (at - 1) * z->unit;
    char *data = own.start + z->offset + start;
    if (z == &small_zone) back_small(start, start + bytes);
    else back_with_huge_pages(data, bytes / HUGE_PAGE * HUGE_PAGE); /* the rest does not fill one */
    return data;
}

/* Small blocks lie in huge pages that go back when all of one is free; large blocks go back at once. */
void fl_arena_give(void *data, size_t bytes)
{
    zone *z = zone_of(bytes);
    size_t start = fl_shared_offset(data) - z->offset, end = start + bytes;
    uint32_t at = (uint32_t)(start / z->unit) + 1, length = (uint32_t)((bytes + z->unit - 1) / z->unit);
    zone_give(z, &at, &length);
    size_t free_start = (at - 1) * z->unit, free_end = free_start + length * z->unit;
    start = start / HUGE_PAGE * HUGE_PAGE;
    if (start < free_start) start += HUGE_PAGE;
    end = (end + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (end > free_end) end -= HUGE_PAGE;
    if (start >= end) return;
    madvise(own.start + z->offset + start, end - start, MADV_REMOVE);
    if (z == &small_zone) memset(backed + start / HUGE_PAGE, 0, (end - start) / HUGE_PAGE);
}

/* ---- starting ---- */

/* Tells programs apart: what is shared, and how far code and data lie from each other. */
static uint64_t shared_layout(void)
{
    uint64_t distance = (uint64_t)((intptr_t)fl_shared_create - (intptr_t)&fl_journal_own);
    return distance ^ sizeof(fl_journal) << 48 ^ sizeof(fl_entry) << 32 ^ (uint64_t)FL_EAGER_BYTES << 16
        ^ (uint64_t)1 << 63;
}

/* Fills in where this process runs. */
static void handshake_place(handshake *c)
{
    struct stat s;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && fscanf(f, "%39s", c->boot) != 1) c->boot[0] = '\0';
    if (f) fclose(f);
    if (stat("/proc/self/ns/pid", &s) == 0) c->pid_namespace = s.st_ino;
    c->layout = shared_layout();
    c->pid = (int32_t)getpid();
}

/* Bytes of the small zone: the machine's memory, unless the address space or a limit on files allows only less. */
static size_t machine_bytes(int world_size)
{
    struct rlimit limit;
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE),
           most = MAX_MAPPED / (size_t)world_size;
    if (bytes > MAX_SMALL) bytes = MAX_SMALL;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < most) most = limit.rlim_cur;
    if (most < CHANNELS_END) return 0;
    most = (most - CHANNELS_END) / 4;
    return (bytes < most ? bytes : most) / HUGE_PAGE * HUGE_PAGE;
}

/* Maps an arena at an address where its huge pages can be mapped as such. Not dumped: a core file would fill it. */
static char *arena_map(int fd, size_t size)
{
    char *room = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return NULL;
    char *start = (char *)(((uintptr_t)room + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    char *mapped = mmap(start, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (start > room) munmap(room, (size_t)(start - room));
    munmap(start + size, (size_t)(room + HUGE_PAGE - start));
    if (mapped == MAP_FAILED) {
        munmap(start, size);
        return NULL;
    }
    madvise(start, size, MADV_DONTDUMP);
    return start;
}

/* A forked child keeps its tensors as they are now, in a copy of its own, and has nothing to do with the other
** ranks. */
static void in_child(void)
{
    if (!own.start || own.left) return;
    own.left = true;
    private_journal = *fl_journal_own;
    fl_journal_own = &private_journal;
    for (int i = 0; i < own.world_size; i++)
        if (own.peers[i].start && i != own.rank) munmap(own.peers[i].start, own.size);
    own.world_size = 0;
    void *copy = mmap(own.start, own.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, own.fd, 0);
    if (copy == MAP_FAILED) mprotect(own.start, own.size, PROT_READ);
    else madvise(own.start, own.size, MADV_DONTDUMP);
    close(own.fd);
}

static void fork_watch(void) { pthread_atfork(NULL, NULL, in_child); }

int fl_shared_memfd(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC); /* an older kernel */
    if (fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) != 0) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

static bool arena_make(size_t machine, uint64_t cookie)
{
    own.size = CHANNELS_END + 4 * machine;
    own.fd = fl_shared_memfd("flowlua");
    if (own.fd < 0 || ftruncate(own.fd, (off_t)own.size)) return false;
    own.start = arena_map(own.fd, own.size);
    if (!own.start) return false;
    own.channels_used = PAGE;
    if (!zone_start(&small_zone, SMALL_UNIT, CHANNELS_END, machine)) return false;
    if (!zone_start(&large_zone, HUGE_PAGE, CHANNELS_END + machine, 3 * machine)) return false;
    backed = calloc(machine / HUGE_PAGE, 1);
    if (!backed) return false;
    ((head *)own.start)->cookie = cookie;
    return true;
}

static void lock_make(pthread_mutex_t *lock)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(lock, &a);
    pthread_mutexattr_destroy(&a);
}

bool fl_shared_create(void *out, int rank, int world_size)
{
    static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
    handshake c = {.fd = -1};
    handshake_place(&c);
    memset(out, 0, FL_SHARED_HANDSHAKE);
    memcpy(out, &c, sizeof c);
    size_t machine = machine_bytes(world_size);
    if (own.start || world_size < 2 || machine == 0) return false;
    own.peers = calloc((size_t)world_size, sizeof *own.peers);
    if (!own.peers) return false;
    own.rank = rank;
    own.world_size = world_size;
    if (getrandom(&c.cookie, sizeof c.cookie, 0) != sizeof c.cookie || !arena_make(machine, c.cookie)) {
        fl_shared_stop();
        return false;
    }
    pthread_once(&fork_once, fork_watch);
    head *h = (head *)own.start;
    h->journal = *fl_journal_own;
    h->journal.rank = rank;
    h->journal.pid = c.pid;
    fl_journal_own = &h->journal;
    lock_make(&h->lock);
    own.peers[rank] = (peer){.start = own.start, .pid = c.pid};
    c.size = own.size;
    c.fd = own.fd;
    memcpy(out, &c, sizeof c);
    return true;
}

/* Opens what the handshake names, whatever that is by now; -1: it cannot be, or is not the arena. */
static int handshake_open(const handshake *c)
{
    char path[64];
    struct stat s;
    uint64_t cookie = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", c->pid, c->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode)
        && pread(fd, &cookie, sizeof cookie, offsetof(head, cookie)) == sizeof cookie && cookie == c->cookie)
        return fd;
    close(fd);
    return -1;
}

enum { BORN_FIELD = 22 }; /* of /proc/<pid>/stat, counted from 1 */

/* The state of a process as the kernel shows it ('R', 'S', 'Z'), 0 when there is none; *born: when it started. */
static char process_state(int pid, unsigned long long *born)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *at = strrchr(text, ')'); /* ends the name, field 2, which may hold anything */
    if (!at || at[1] != ' ') return 0;
    char state = at[2];
    for (int field = 2; field < BORN_FIELD && at; field++) at = strchr(at + 1, ' ');
    if (!at) return 0;
    *born = strtoull(at, NULL, 10);
    return state;
}

bool fl_shared_attach(int rank, const void *theirs, bool *same_host)
{
    handshake c, mine = {.fd = -1};
    memcpy(&c, theirs, sizeof c);
    handshake_place(&mine);
    *same_host = c.boot[0] && !memcmp(c.boot, mine.boot, sizeof c.boot) && c.pid_namespace == mine.pid_namespace;
    if (rank < 0 || rank >= own.world_size) return false;
    if (rank == own.rank) return own.start != NULL;
    if (!*same_host || c.size != own.size || c.layout != mine.layout) return false;
    int fd = handshake_open(&c);
    if (fd < 0) return false;
    peer p = {.pid = c.pid};
    if (process_state(c.pid, &p.born)) p.start = arena_map(fd, own.size);
    close(fd);
    if (!p.start) return false;
    madvise(p.start + CHANNELS_END, own.size - CHANNELS_END, MADV_HUGEPAGE);
    own.peers[rank] = p;
    return true;
}

void fl_shared_stop(void)
{
    if (fl_journal_own != &private_journal) private_journal = *fl_journal_own;
    fl_journal_own = &private_journal;
    for (int i = 0; i < own.world_size; i++)
        if (own.peers[i].start && i != own.rank) munmap(own.peers[i].start, own.size);
    if (own.start) munmap(own.start, own.size);
    if (own.fd >= 0) close(own.fd);
    zone_stop(&small_zone);
    zone_stop(&large_zone);
    free(backed);
    backed = NULL;
    free(own.peers);
    memset(&own, 0, sizeof own);
    own.fd = -1;
}

/* ---- the lock ---- */

enum { LOCK_SECONDS = 5 };

/* NULL: nothing is shared. */
static head *first_head(void)
{
    for (int i = 0; i < own.world_size; i++)
        if (own.peers[i].start) return head_of(i);
    return NULL;
}

bool fl_shared_lock(void)
{
    struct timespec until;
    head *first = first_head();
    if (!first) return false;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOCK_SECONDS;
    int why = pthread_mutex_timedlock(&first->lock, &until);
    return why == 0 || (why == EOWNERDEAD && pthread_mutex_consistent(&first->lock) == 0);
}

void fl_shared_unlock(void) { pthread_mutex_unlock(&first_head()->lock); }

/* ---- journals ---- */

const fl_journal *fl_journal_of(int rank) { return fl_shared_has(rank) ? &head_of(rank)->journal : NULL; }

fl_journal *fl_journal_first(void)
{
    head *first = first_head();
    return first ? &first->journal : fl_journal_own;
}

const char *fl_journal_op(const fl_journal *j)
{
    int64_t place = __atomic_load_n(&j->op, __ATOMIC_RELAXED);
    return place ? ((const fl_op *)((intptr_t)&fl_journal_own + place))->name : NULL;
}

/* A zombie has ended, and so has one whose pid has another process now. */
bool fl_rank_is_dead(int rank)
{
    if (!fl_shared_has(rank) || rank == own.rank) return false;
    unsigned long long born = 0;
    char state = process_state(own.peers[rank].pid, &born);
    return !state || state == 'Z' || state == 'X' || born != own.peers[rank].born;
}

/* ---- channels ---- */

/* What one member shows in one meeting. The sequence is written last and says that the rest is there: who waits for it
** has the beginning of the entry in the same cache line. */
typedef struct showing {
    _Alignas(LINE) fl_entry entry;
    _Alignas(LINE) unsigned char data[FL_EAGER_BYTES];
} showing;

enum { WORDS_BYTES = 1024 };

/* One member's side of a channel, in its arena. Peers read it. */
typedef struct side {
    uint64_t next; /* in the bucket: offset; 0: the last one */
    uint64_t hash;
    uint64_t gone_at;             /* the sequence at which this member gave up waiting; 0: never */
    int32_t gone;                 /* with which error; `words` say it */
    bool peer_gone;               /* because a member was through with the line: fl_comm_peer_gone */
    _Alignas(LINE) uint64_t left; /* counts its leaves */
    showing shows[2];             /* by the parity of the sequence */
    char words[WORDS_BYTES];
    int32_t count, ranks[]; /* of the group */
} side;

struct fl_channel {
    const fl_group *group; /* borrowed */
    uint64_t sequence, left;
    side *mine;
    side *sides[]; /* [group->count], in their arenas */
};

/* The side of a rank in the channel of a group; NULL: it has not opened it yet. */
static side *side_of(int rank, uint64_t hash, const int *ranks, int count)
{
    uint64_t offset = __atomic_load_n(&head_of(rank)->channels[hash % CHANNEL_BUCKETS], __ATOMIC_ACQUIRE);
    while (offset) {
        side *s = fl_shared_address(rank, offset);
        if (s->hash == hash && s->count == count && !memcmp(s->ranks, ranks, (size_t)count * sizeof *ranks)) return s;
        offset = s->next;
    }
    return NULL;
}

static side *side_find(int rank, const fl_group *g) { return side_of(rank, g->hash, g->ranks, g->count); }

/* Makes this rank's side and shows it to the others. */
static side *side_new(const fl_group *g)
{
    size_t bytes = (sizeof(side) + (size_t)g->count * sizeof(int32_t) + LINE - 1) / LINE * LINE;
    if (bytes > CHANNELS_END - own.channels_used) return NULL;
    side *s = (side *)(own.start + own.channels_used);
    own.channels_used += bytes;
    uint64_t *bucket = &head_of(own.rank)->channels[g->hash % CHANNEL_BUCKETS];
    s->next = *bucket;
    s->hash = g->hash;
    s->count = g->count;
    memcpy(s->ranks, g->ranks, (size_t)g->count * sizeof *g->ranks);
    __atomic_store_n(bucket, fl_shared_offset(s), __ATOMIC_RELEASE);
    return s;
}

/* This rank stops waiting with this thread's error: it is that of the others, who wait or come later, too. */
static fl_status give_up(side *mine, const fl_group *g, fl_status status)
{
    snprintf(mine->words, sizeof mine->words, "%s", fl_message());
    mine->gone = (int32_t)status;
    mine->peer_gone = fl_comm_peer_gone;
    __atomic_store_n(&mine->gone_at, g->sequence, __ATOMIC_RELEASE);
    return status;
}

/* FL_OK, or the error of a member that has given up since the group began to count. */
static fl_status look_for_gone(const fl_channel *c)
{
    for (int i = 0; i < c->group->count; i++) {
        const side *s = c->sides[i];
        uint64_t gone_at = __atomic_load_n(&s->gone_at, __ATOMIC_ACQUIRE);
        if (FL_LIKELY(gone_at <= c->group->begun)) continue;
        fl_comm_peer_gone |= s->peer_gone;
        return fl_fail((fl_status)s->gone, "%s", s->words);
    }
    return FL_OK;
}

/* The others see where this rank waits for them, once fl_group_meet has said for what. */
static void stand(const side *mine)
{
    if (fl_journal_own->meeting) __atomic_store_n(&fl_journal_own->channel, fl_shared_offset(mine), __ATOMIC_RELEASE);
}

static bool has_not_opened(const fl_group *g, int i) { return !side_find(g->ranks[i], g); }

fl_status fl_channel_open(fl_channel **out, fl_group *g)
{
    side *mine = side_find(own.rank, g);
    if (!mine) mine = side_new(g);
    fl_channel *c = mine ? calloc(1, sizeof *c + (size_t)g->count * sizeof *c->sides) : NULL;
    if (!c) return fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", g->count);
    c->group = g;
    c->mine = mine;
    fl_channel_reset(c, g->begun);
    stand(mine);
    fl_wait wait = {.group = g, .missing = has_not_opened};
    for (int i = 0; i < g->count; i++)
        while (!(c->sides[i] = side_find(g->ranks[i], g))) {
            fl_status status = fl_wait_step(&wait);
            if (status == FL_OK) continue;
            free(c);
            return give_up(mine, g, status);
        }
    *out = c;
    return FL_OK;
}

/* Copies the parts of an entry that are in use, save for the sequence, its first field. */
static void entry_copy(fl_entry *out, const fl_entry *e)
{
    memcpy(&out->fingerprint, &e->fingerprint, offsetof(fl_entry, error) - offsetof(fl_entry, fingerprint));
    if (e->flags & FL_ENTRY_POISONED) memcpy(out->error, e->error, sizeof e->error);
    else out->error[0] = '\0';
}

static bool has_not_entered(const fl_group *g, int i)
{
    uint64_t sequence = g->channel->sequence;
    return __atomic_load_n(&g->channel->sides[i]->shows[sequence & 1].entry.sequence, __ATOMIC_ACQUIRE) < sequence;
}

static bool has_not_left(const fl_group *g, int i)
{
    return __atomic_load_n(&g->channel->sides[i]->left, __ATOMIC_ACQUIRE) < g->channel->left;
}

enum { STEPS_PER_LOOK = 64 };

static fl_status wait_for_all(const fl_channel *c, bool (*missing)(const fl_group *, int), unsigned flags)
{
    fl_wait wait = {.group = c->group, .flags = flags, .missing = missing};
    for (int i = 0; i < c->group->count; i++)
        while (missing(c->group, i)) {
            fl_status status = fl_wait_step(&wait);
            if (status == FL_OK && wait.spins % STEPS_PER_LOOK == 0) status = look_for_gone(c);
            if (status == FL_OK) continue;
            fl_status gone = look_for_gone(c);
            return give_up(c->mine, c->group, gone != FL_OK ? gone : status);
        }
    return look_for_gone(c);
}

fl_status fl_channel_enter(fl_channel *c, const fl_entry *mine, const void *data, size_t bytes, unsigned flags)
{
    showing *s = &c->mine->shows[mine->sequence & 1];
    entry_copy(&s->entry, mine);
    if (bytes) memcpy(s->data, data, bytes);
    c->sequence = mine->sequence;
    __atomic_store_n(&s->entry.sequence, c->sequence, __ATOMIC_RELEASE);
    if (!(flags & FL_WAIT_IDLE)) stand(c->mine);
    return wait_for_all(c, has_not_entered, flags);
}

const fl_entry *fl_channel_entry(const fl_channel *c, int i) { return &c->sides[i]->shows[c->sequence & 1].entry; }

const void *fl_channel_data(const fl_channel *c, int i) { return c->sides[i]->shows[c->sequence & 1].data; }

fl_status fl_channel_leave(fl_channel *c)
{
    __atomic_store_n(&c->mine->left, ++c->left, __ATOMIC_RELEASE);
    return wait_for_all(c, has_not_left, FL_WAIT_DATA);
}

/* Read in the order in which fl_group_meet does not write it; what changed meanwhile is no wait. */
void fl_channel_standing(fl_standing *out, int rank)
{
    const fl_journal *j = &head_of(rank)->journal;
    *out = (fl_standing){.meeting = __atomic_load_n(&j->meeting, __ATOMIC_ACQUIRE)};
    uint64_t offset = __atomic_load_n(&j->channel, __ATOMIC_ACQUIRE);
    if (out->meeting && offset) {
        const side *s = fl_shared_address(rank, offset);
        out->hash = s->hash;
        out->ranks = s->ranks;
        out->count = s->count;
        out->sequence = j->sequence;
        out->collective = j->collective;
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (!offset || __atomic_load_n(&j->meeting, __ATOMIC_RELAXED) != out->meeting) out->meeting = 0;
}

bool fl_channel_lacks(const fl_standing *s, int rank)
{
    const side *theirs = side_of(rank, s->hash, s->ranks, s->count);
    return !theirs || __atomic_load_n(&theirs->shows[s->sequence & 1].entry.sequence, __ATOMIC_ACQUIRE) < s->sequence;
}

uint64_t fl_channel_counted(const fl_channel *c) { return c->left; }

void fl_channel_reset(fl_channel *c, uint64_t number)
{
    c->left = number;
    __atomic_store_n(&c->mine->left, number, __ATOMIC_RELEASE);
}

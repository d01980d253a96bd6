/*
** shared.c -- memory that all ranks of a host map: finding each other's arenas, the lock, dead ranks.
**
** Peers find an arena as /proc/<pid>/fd/<fd> and identify it by a random cookie.
*/
#define _GNU_SOURCE
#include "shared.h"
#include "journal.h"
#include "meet.h"
#include "shared_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The first message to peers; FL_SHARED_HANDSHAKE bytes at most. */
struct handshake {
    char boot[40];          /* the kernel's boot id: which host */
    uint64_t pid_namespace; /* in which pids mean the same */
    uint64_t cookie, size;  /* of the arena; 0: there is none */
    uint64_t layout;        /* of what is shared: differs between programs that do not fit together */
    int32_t pid, fd;
};
_Static_assert(sizeof(struct handshake) <= FL_SHARED_HANDSHAKE, "a handshake fits");

struct peer {
    char *start; /* of its arena, mapped here; NULL: not */
    int pid;
    unsigned long long born; /* when the process started, as the kernel counts */
};

static struct {
    int rank, world_size; /* 0 without an arena, and in a forked child */
    struct peer *peers;   /* owned, [world_size] */
} own;

bool fl_shared_has(int rank) { return rank >= 0 && rank < own.world_size && own.peers[rank].start != NULL; }

uint64_t fl_shared_offset(const void *data) { return (uint64_t)((const char *)data - own.peers[own.rank].start); }

void *fl_shared_address(int rank, uint64_t offset) { return own.peers[rank].start + offset; }

fl_shared_head *fl_shared_head_of(int rank) { return (fl_shared_head *)own.peers[rank].start; }

fl_shared_head *fl_shared_first_head(void)
{
    for (int i = 0; i < own.world_size; i++)
        if (own.peers[i].start) return fl_shared_head_of(i);
    return NULL;
}

int fl_shared_me(void) { return own.world_size ? own.rank : -1; }

/* ---- starting and ending ---- */

/* A number that differs between programs: sizes of shared structures, and the distance between code and data. */
static uint64_t shared_layout(void)
{
    uint64_t distance = (uint64_t)((intptr_t)fl_shared_create - (intptr_t)&fl_journal_own);
    return distance ^ sizeof(fl_journal) << 48 ^ sizeof(fl_entry) << 32 ^ (uint64_t)FL_EAGER_BYTES << 16
        ^ (uint64_t)1 << 63;
}

/* Fills in where this process runs. */
static void handshake_place(struct handshake *handshake)
{
    struct stat s;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && fscanf(f, "%39s", handshake->boot) != 1) handshake->boot[0] = '\0';
    if (f) fclose(f);
    if (stat("/proc/self/ns/pid", &s) == 0) handshake->pid_namespace = s.st_ino;
    handshake->layout = shared_layout();
    handshake->pid = (int32_t)getpid();
}

/* Unmaps the arenas of peers; its own stays. */
static void forget_peers(void)
{
    for (int i = 0; i < own.world_size; i++)
        if (own.peers[i].start && i != own.rank) fl_arena_unmap(own.peers[i].start);
    own.world_size = 0;
}

/* A forked child keeps its tensors as they are now, in a copy of its own, and has nothing to do with the other
** ranks. */
static void in_child(void)
{
    if (own.world_size == 0) return;
    fl_journal_move(NULL);
    forget_peers();
    fl_arena_leave();
}

static void fork_watch(void) { pthread_atfork(NULL, NULL, in_child); }

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

/* Lays out the arena's first page. */
static void head_make(fl_shared_head *head, const struct handshake *handshake, int rank)
{
    head->cookie = handshake->cookie;
    fl_journal_move(&head->journal);
    head->journal.rank = rank;
    head->journal.pid = handshake->pid;
    lock_make(&head->lock);
}

bool fl_shared_create(void *handshake, int rank, int world_size)
{
    static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
    const fl_arena *arena = fl_arena_own();
    struct handshake c = {.fd = -1};
    handshake_place(&c);
    memset(handshake, 0, FL_SHARED_HANDSHAKE);
    memcpy(handshake, &c, sizeof c);
    if (own.peers || world_size < 2 || getrandom(&c.cookie, sizeof c.cookie, 0) != sizeof c.cookie
        || !fl_arena_create(world_size))
        return false;
    own.peers = calloc((size_t)world_size, sizeof *own.peers);
    if (!own.peers) {
        fl_arena_stop();
        return false;
    }
    own.rank = rank;
    own.world_size = world_size;
    own.peers[rank] = (struct peer){.start = arena->start, .pid = c.pid};
    pthread_once(&fork_once, fork_watch);
    head_make(fl_shared_head_of(rank), &c, rank);
    c.size = arena->size;
    c.fd = arena->file;
    memcpy(handshake, &c, sizeof c);
    return true;
}

/* Opens what the handshake names, whatever that is by now; -1: it cannot be, or is not the arena. */
static int handshake_open(const struct handshake *handshake)
{
    char path[64];
    struct stat s;
    uint64_t cookie = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handshake->pid, handshake->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode)
        && pread(fd, &cookie, sizeof cookie, offsetof(fl_shared_head, cookie)) == sizeof cookie
        && cookie == handshake->cookie)
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

bool fl_shared_attach(int rank, const void *handshake, bool *same_host)
{
    struct handshake c, mine = {.fd = -1};
    memcpy(&c, handshake, sizeof c);
    handshake_place(&mine);
    *same_host = c.boot[0] && !memcmp(c.boot, mine.boot, sizeof c.boot) && c.pid_namespace == mine.pid_namespace;
    if (rank < 0 || rank >= own.world_size) return false;
    if (rank == own.rank) return true;
    if (!*same_host || c.size != fl_arena_own()->size || c.layout != mine.layout) return false;
    int fd = handshake_open(&c);
    if (fd < 0) return false;
    struct peer p = {.pid = c.pid};
    if (process_state(c.pid, &p.born)) p.start = fl_arena_map(fd);
    close(fd);
    if (!p.start) return false;
    own.peers[rank] = p;
    return true;
}

void fl_shared_stop(void)
{
    fl_journal_move(NULL);
    forget_peers();
    free(own.peers);
    own.peers = NULL;
    fl_arena_stop();
}

/* A zombie has ended, and so has one whose pid has another process now. */
bool fl_rank_is_dead(int rank)
{
    if (!fl_shared_has(rank) || rank == own.rank) return false;
    unsigned long long born = 0;
    char state = process_state(own.peers[rank].pid, &born);
    return !state || state == 'Z' || state == 'X' || born != own.peers[rank].born;
}

/* ---- the lock ---- */

enum { LOCK_SECONDS = 5 };

bool fl_shared_lock(void)
{
    struct timespec until;
    fl_shared_head *first = fl_shared_first_head();
    if (!first) return false;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOCK_SECONDS;
    int why = pthread_mutex_timedlock(&first->lock, &until);
    return why == 0 || (why == EOWNERDEAD && pthread_mutex_consistent(&first->lock) == 0);
}

void fl_shared_unlock(void) { pthread_mutex_unlock(&fl_shared_first_head()->lock); }

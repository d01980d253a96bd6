/*
** test_shared.c -- arenas, journals and channels, with real processes: forked, killed, meeting in groups.
*/
#define _GNU_SOURCE
#include "check.h"
#include "core/memory/arena.h"
#include "core/ranks/channel.h"
#include "core/ranks/journal.h"
#include "core/ranks/shared.h"
#include "core/memory/scratch.h"
#include "core/memory/storage.h"
#include "core/memory/testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HIDDEN(data) __asan_address_is_poisoned(data)
#else
#define HIDDEN(data) true
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum { MOST = 4 };

typedef struct random_state {
    uint64_t x;
} random_state;
static uint64_t next_random(random_state *r)
{
    r->x += 0x9e3779b97f4a7c15u;
    uint64_t z = (r->x ^ (r->x >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static size_t below(random_state *r, size_t n) { return (size_t)(next_random(r) % n); }

/* ---- ranks as processes ---- */

static int pipes[MOST][MOST][2]; /* [from][to] */
static int rank, ranks;
static pid_t pids[MOST];
static unsigned char handshakes[MOST][FL_SHARED_HANDSHAKE];

/* An all-gather through pipes, around shared memory. */
static bool exchange(void *all, const void *mine, size_t bytes)
{
    bool good = true;
    for (int i = 0; i < ranks; i++) good &= write(pipes[rank][i][1], mine, bytes) == (ssize_t)bytes;
    for (int i = 0; i < ranks; i++)
        good &= read(pipes[i][rank][0], (char *)all + (size_t)i * bytes, bytes) == (ssize_t)bytes;
    return good;
}

static void barrier(void)
{
    char all[MOST], mine = 1;
    CHECK(exchange(all, &mine, 1));
}

static void share(void)
{
    unsigned char handshake[FL_SHARED_HANDSHAKE];
    CHECK(fl_shared_create(handshake, rank, ranks));
    CHECK(exchange(handshakes, handshake, sizeof handshake));
    for (int i = 0; i < ranks; i++) {
        bool same_host = false;
        CHECK(fl_shared_attach(i, handshakes[i], &same_host) && same_host && fl_shared_has(i));
    }
}

static int run_rank(void (*body)(void))
{
    fl_world_set(ranks, rank);
    fl_comm_host_ranks = ranks;
    for (int i = 0; i < MOST; i++)
        for (int j = 0; j < MOST; j++) {
            if (i != rank) close(pipes[i][j][1]); /* so that the dead are not waited for */
            if (j != rank) close(pipes[i][j][0]);
        }
    alarm(60);
    body();
    fflush(stdout);
    return check_bad != 0;
}

static void start_ranks(int count, void (*body)(void))
{
    fflush(stdout);
    ranks = count;
    for (int i = 0; i < MOST; i++)
        for (int j = 0; j < MOST; j++) CHECK(pipe(pipes[i][j]) == 0);
    for (rank = 0; rank < count; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) _exit(run_rank(body));
    }
    for (int i = 0; i < MOST; i++)
        for (int j = 0; j < MOST; j++) close(pipes[i][j][0]), close(pipes[i][j][1]);
}

static bool ended_well(int i)
{
    int status = 0;
    return waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void with_ranks(int count, void (*body)(void))
{
    start_ranks(count, body);
    for (int i = 0; i < count; i++) CHECK(ended_well(i));
}

/* ---- without an arena ---- */

static void one_rank_has_no_arena(void)
{
    unsigned char handshake[FL_SHARED_HANDSHAKE];
    bool same_host = false;
    CHECK(!fl_shared_create(handshake, 0, 1));
    CHECK(!fl_shared_attach(0, handshake, &same_host) && same_host);
    CHECK(!fl_shared_has(0) && fl_arena_take(4096) == NULL && !fl_arena_owns(handshake) && !fl_arena_owns(NULL));
    CHECK(fl_journal_own != NULL && fl_journal_of(0) == NULL && !fl_rank_is_dead(0));
}

static void small_limits(void)
{
    unsigned char handshake[FL_SHARED_HANDSHAKE];
    struct rlimit limit = {64 * MIB, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0 && !fl_shared_create(handshake, 0, 2) && fl_arena_take(4096) == NULL);
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0 && fl_shared_create(handshake, 0, 2));
}
enum { SEAL_EXEC = 0x20 }; /* F_SEAL_EXEC, since Linux 6.3 */

static bool kernel_seals_exec(void)
{
    int fd = memfd_create("probe", 8 /* MFD_NOEXEC_SEAL */);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* No mapping of an arena is executable. */
static bool mapped_without_x(void)
{
    char line[512];
    int found = 0, executable = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:flowlua")) found++, executable += line[strcspn(line, " ") + 3] == 'x';
    if (maps) fclose(maps);
    return found > 0 && executable == 0;
}

static void looked_at(void)
{
    unsigned char handshake[FL_SHARED_HANDSHAKE];
    struct stat s;
    int arenas = 0;
    umask(0);
    CHECK(fl_shared_create(handshake, 0, 2) && mapped_without_x());
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *e; folder && (e = readdir(folder));) {
        char target[64] = "";
        int fd = atoi(e->d_name);
        if (readlinkat(dirfd(folder), e->d_name, target, sizeof target - 1) < 0 || !strstr(target, "memfd:flowlua"))
            continue;
        arenas++;
        CHECK(fstat(fd, &s) == 0 && (s.st_mode & 07777) == 0600 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
        int seals = fcntl(fd, F_GET_SEALS);
        if (seals >= 0 && seals & SEAL_EXEC)
            CHECK(fchmod(fd, 0700) != 0 && fstat(fd, &s) == 0 && (s.st_mode & 07777) == 0600);
        else CHECK(!kernel_seals_exec());
    }
    CHECK(arenas == 1);
    if (folder) closedir(folder);
}
static void an_arena_is_its_users_alone_and_data(void) { with_ranks(1, looked_at); }

static void a_limit_on_files_is_kept(void) { with_ranks(1, small_limits); }

/* ---- arenas and handshakes ---- */

static void see_each_other(void)
{
    share();
    uint64_t offsets[MOST], mine;
    int *block = fl_arena_take(64 * KIB);
    CHECK(block && fl_arena_owns(block) && fl_arena_owns(block + 1000) && !fl_arena_owns(offsets));
    mine = fl_shared_offset(block);
    CHECK(fl_shared_address(rank, mine) == block);
    CHECK(exchange(offsets, &mine, sizeof mine));
    for (int i = 0; i < ranks; i++) ((int *)fl_shared_address(i, offsets[i]))[rank] = 100 * i + rank;
    barrier();
    for (int i = 0; i < ranks; i++) CHECK(block[i] == 100 * rank + i);
    CHECK(!fl_shared_has(-1) && !fl_shared_has(ranks) && fl_journal_of(ranks) == NULL);
}
static void blocks_are_seen_by_peers(void) { with_ranks(3, see_each_other); }

static bool attaches(const unsigned char *handshake, bool *same_host)
{
    return fl_shared_attach(1 - rank, handshake, same_host);
}

/* A byte of a handshake that is wrong makes it another host's or nobody's, never a mapping of something else. */
static void try_bad_handshakes(void)
{
    unsigned char handshake[FL_SHARED_HANDSHAKE], bad[FL_SHARED_HANDSHAKE];
    bool same_host;
    CHECK(fl_shared_create(handshake, rank, ranks) && exchange(handshakes, handshake, sizeof handshake));
    memset(bad, 0, sizeof bad);
    CHECK(!attaches(bad, &same_host) && !same_host);
    int others = 0, strangers = 0;
    for (size_t i = 0; i < sizeof bad; i++) {
        memcpy(bad, handshakes[1 - rank], sizeof bad);
        bad[i] ^= 0x5a;
        if (attaches(bad, &same_host)) CHECK(bad[i] == 0x5a); /* behind the handshake's end */
        else if (same_host) strangers++;
        else others++;
    }
    CHECK(others >= 36 && strangers >= 24);
    barrier();
}
static void handshakes_that_do_not_fit(void) { with_ranks(2, try_bad_handshakes); }

static void refuse_to_be_opened(void)
{
    unsigned char handshake[FL_SHARED_HANDSHAKE];
    bool same_host = false, root = geteuid() == 0;
    CHECK(fl_shared_create(handshake, rank, ranks));
    if (rank == 1) CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    CHECK(exchange(handshakes, handshake, sizeof handshake));
    if (rank == 0 && root) CHECK(setresuid(65534, 65534, 65534) == 0);
    if (rank == 0) CHECK(!fl_shared_attach(1, handshakes[1], &same_host) && same_host && !fl_shared_has(1));
    barrier();
}
static void memory_that_cannot_be_opened(void) { with_ranks(2, refuse_to_be_opened); }

static void give_up(void)
{
    fl_journal_own->evaluations = 41;
    share();
    fl_journal_own->evaluations++;
    barrier();
    fl_shared_stop();
    CHECK(!fl_shared_has(0) && !fl_shared_has(1) && fl_arena_take(5000) == NULL && fl_journal_of(1 - rank) == NULL);
    CHECK(fl_journal_own->evaluations == 42);
    barrier();
    share(); /* and it can be had again */
    CHECK(fl_journal_own->evaluations == 42 && fl_arena_take(5000) != NULL);
    barrier();
}
static void sharing_can_be_given_up(void) { with_ranks(2, give_up); }

/* ---- the allocator ---- */

/* Bytes of memory that the arena holds. */
static size_t arena_memory(void)
{
    size_t bytes = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *e; folder && (e = readdir(folder));) {
        char target[64] = "";
        struct stat s;
        if (readlinkat(dirfd(folder), e->d_name, target, sizeof target - 1) < 0 || !strstr(target, "memfd:flowlua"))
            continue;
        if (fstat(atoi(e->d_name), &s) == 0) bytes += (size_t)s.st_blocks * 512;
    }
    if (folder) closedir(folder);
    return bytes;
}

typedef struct held {
    unsigned char *data;
    size_t bytes;
    unsigned char mark;
} held;

static size_t random_size(random_state *r)
{
    size_t small = 4096 + below(r, below(r, 4) ? 60 * KIB : 2 * MIB - 4096);
    return below(r, 10) ? small : 2 * MIB + below(r, 6 * MIB);
}

/* Marks both ends and some places between. */
static void mark(const held *h)
{
    for (size_t i = 0; i < h->bytes; i += 4093) h->data[i] = h->mark;
    h->data[h->bytes - 1] = h->mark;
}

static bool is_marked(const held *h)
{
    for (size_t i = 0; i < h->bytes; i += 4093)
        if (h->data[i] != h->mark) return false;
    return h->data[h->bytes - 1] == h->mark;
}

static bool overlaps(const held *a, const held *b)
{
    return a->data < b->data + b->bytes && b->data < a->data + a->bytes;
}

static void hold(held *all, int count, int k, random_state *r)
{
    held *h = &all[k];
    h->bytes = random_size(r);
    h->mark = (unsigned char)next_random(r);
    h->data = fl_arena_take(h->bytes);
    CHECK(h->data && fl_arena_owns(h->data) && fl_arena_owns(h->data + h->bytes - 1));
    CHECK((uintptr_t)h->data % (h->bytes < 2 * MIB ? 64 : 2 * MIB) == 0);
    for (int i = 0; i < count; i++) CHECK(i == k || !all[i].data || !overlaps(h, &all[i]));
    mark(h);
}

static void drop(held *h)
{
    CHECK(is_marked(h));
    fl_arena_give(h->data, h->bytes);
    h->data = NULL;
}

/* Memory that comes with a small block where nothing is. */
static size_t small_growth(void)
{
    size_t before = arena_memory();
    unsigned char *data = fl_arena_take(4096);
    data[0] = 1;
    size_t growth = arena_memory() - before;
    fl_arena_give(data, 4096);
    CHECK(growth >= 4096 && arena_memory() == before);
    return growth;
}

static void allocate_at_random(void)
{
    enum { COUNT = 40 };
    static held all[COUNT];
    random_state r = {7};
    share();
    size_t nothing = arena_memory(), growth = small_growth();
    held small = {fl_arena_take(2 * MIB - 512), 2 * MIB - 512, 0}, large = {fl_arena_take(30 * MIB), 30 * MIB, 0};
    CHECK(arena_memory() >= nothing + 30 * MIB || arena_memory() < nothing + 4 * MIB); /* at once or when touched */
    fl_arena_give(small.data, small.bytes), fl_arena_give(large.data, large.bytes);
    CHECK(small_growth() == growth);
    for (int i = 0; i < 1500; i++) {
        int k = (int)below(&r, COUNT);
        if (all[k].data) drop(&all[k]);
        else hold(all, COUNT, k, &r);
    }
    for (int k = 0; k < COUNT; k++)
        if (all[k].data) drop(&all[k]);
    CHECK(arena_memory() <= nothing);
    CHECK(fl_arena_take(small.bytes) == small.data
          && fl_arena_take(large.bytes) == large.data); /* all is one range again */
}
static void blocks_do_not_overlap(void) { with_ranks(2, allocate_at_random); }

static void fill_it(void)
{
    unsigned char handshake[FL_SHARED_HANDSHAKE];
    struct rlimit limit = {1024 * MIB + 4 * 16 * MIB, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0 && fl_shared_create(handshake, 0, 2));
    void *blocks[100], *small[100];
    int count = 0, smalls = 0;
    while (count < 100 && (blocks[count] = fl_arena_take(4 * MIB))) count++;
    while (smalls < 100 && (small[smalls] = fl_arena_take(MIB))) smalls++;
    CHECK(count == 12 && smalls == 16);
    CHECK(fl_arena_take(SIZE_MAX) == NULL && fl_arena_take(60 * MIB) == NULL && fl_arena_take(0) == NULL);
    fl_storage *s = NULL, *t = NULL;
    CHECK(fl_storage_new(&s, 4 * MIB, FL_CPU, -1) == FL_OK && !fl_arena_owns(s->data));
    memset(s->data, 1, s->bytes);
    fl_arena_give(blocks[5], 4 * MIB);
    CHECK(fl_storage_new(&t, 3 * MIB, FL_CPU, -1) == FL_OK && fl_arena_owns(t->data));
    fl_storage_unref(s), fl_storage_unref(t);
    fl_storage_trim();
    CHECK(fl_arena_take(4 * MIB) == blocks[5]);
}
static void a_full_arena_is_no_error(void) { with_ranks(1, fill_it); }

/* ---- storage ---- */

static fl_storage *take(size_t bytes)
{
    fl_storage *s = NULL;
    CHECK(fl_storage_new(&s, bytes, FL_CPU, -1) == FL_OK);
    return s;
}

static void use_storage(void)
{
    fl_storage *before = take(100000);
    share();
    CHECK(!fl_arena_owns(before->data));
    fl_storage_unref(before);
    fl_storage_trim();
    size_t nothing = arena_memory(), sizes[] = {3000, 4097, 5000, 100000, MIB + 1, 5 * MIB, 33 * MIB};
    for (int i = 0; i < 7; i++) {
        fl_storage *s = take(sizes[i]);
        unsigned char *data = s->data;
        CHECK(fl_arena_owns(data) == (sizes[i] >= 4096));
        memset(data, i, sizes[i]);
        CHECK(HIDDEN(data + sizes[i]));
        fl_storage_unref(s);
        CHECK(HIDDEN(data));
        s = take(sizes[i]);
        CHECK(s->data == data);
        fl_storage_unref(s);
    }
    CHECK(!fl_arena_owns(fl_scratch(0, 100000)) && !fl_arena_owns(fl_scratch(1, 5 * MIB)));
    fl_storage *kept = take(20000);
    memset(kept->data, 77, kept->bytes);
    fl_storage_trim();
    CHECK(arena_memory() <= nothing + 2 * MIB);
    for (size_t i = 0; i < kept->bytes; i++) CHECK(((unsigned char *)kept->data)[i] == 77);
    fl_storage_unref(kept);
    fl_storage_shutdown();
    CHECK(arena_memory() <= nothing);
}
static void storage_comes_from_the_arena(void) { with_ranks(2, use_storage); }

/* ---- forked children ---- */

static int child_of_a_rank(unsigned char *block, const fl_storage *s)
{
    if (fl_shared_has(0) || fl_shared_has(1) || fl_journal_of(0) || fl_arena_take(10000)) return 2;
    for (size_t i = 0; i < MIB; i++)
        if (block[i] != 55) return 3;
    memset(block, 66, MIB);
    memset(s->data, 66, s->bytes);
    fl_arena_give(block, MIB);
    fl_storage_unref((fl_storage *)s);
    fl_storage_trim();
    fl_storage *own = take(3 * MIB);
    if (fl_arena_owns(own->data)) return 4;
    fl_storage_unref(own);
    if (fl_journal_own->evaluations != 9) return 5;
    fl_journal_own->evaluations = 10;
    return check_bad ? 6 : 0;
}

static void fork_a_child(void)
{
    share();
    if (rank == 0) {
        int status = -1;
        unsigned char *block = fl_arena_take(MIB);
        fl_storage *s = take(3 * MIB);
        memset(block, 55, MIB), memset(s->data, 55, s->bytes);
        fl_journal_own->evaluations = 9;
        pid_t child = fork();
        if (child == 0) _exit(child_of_a_rank(block, s));
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0 || !printf("the child says %d\n", WEXITSTATUS(status)));
        int changed = 0;
        for (size_t i = 0; i < MIB; i++) changed += block[i] != 55;
        for (size_t i = 0; i < s->bytes; i++) changed += ((unsigned char *)s->data)[i] != 55;
        CHECK(changed == 0 && fl_journal_own->evaluations == 9);
    }
    barrier();
    CHECK(fl_journal_of(0)->evaluations == 9);
    barrier();
}
static void children_do_not_disturb(void) { with_ranks(2, fork_a_child); }

/* ---- journals ---- */

static void write_journals(void)
{
    share();
    fl_journal_own->meetings = 1000 + (uint64_t)rank;
    snprintf(fl_journal_own->message, sizeof fl_journal_own->message, "rank %d says so", rank);
    barrier();
    for (int i = 0; i < ranks; i++) {
        char wanted[64];
        const fl_journal *j = fl_journal_of(i);
        snprintf(wanted, sizeof wanted, "rank %d says so", i);
        if (!CHECK(j != NULL)) continue;
        CHECK(j->rank == i && j->meetings == 1000 + (uint64_t)i && (i == rank) == (j->pid == getpid()));
        CHECK(!strcmp(j->message, wanted) && fl_journal_op(j) == NULL);
    }
    CHECK(fl_journal_of(rank) == fl_journal_own);
    barrier();
}
static void journals_are_read_by_peers(void) { with_ranks(3, write_journals); }

/* ---- meetings ---- */

static fl_group *groups[64];
static int group_count;

/* The group of these ranks, opened. */
static fl_group *group_of(const int *members, int count)
{
    for (int i = 0; i < group_count; i++)
        if (groups[i]->count == count && !memcmp(groups[i]->ranks, members, (size_t)count * sizeof *members))
            return groups[i];
    fl_group *g = calloc(1, sizeof *g + (size_t)count * sizeof *members);
    if (!CHECK(g && group_count < 64)) _exit(1);
    g->count = count;
    g->hash = (uint64_t)count; /* groups of one size share a bucket, and the hash */
    memcpy(g->ranks, members, (size_t)count * sizeof *members);
    for (int i = 0; i < count; i++)
        if (members[i] == rank) g->me = i;
    CHECK(fl_channel_open(&g->channel, g) == FL_OK);
    return groups[group_count++] = g;
}

/* Some ranks in some order, the same on all. */
static int draw_members(int *members, random_state *r)
{
    int count = 1 + (int)below(r, (size_t)ranks);
    for (int i = 0; i < ranks; i++) members[i] = i;
    for (int i = 0; i < count; i++) {
        int k = i + (int)below(r, (size_t)(ranks - i)), moved = members[i];
        members[i] = members[k];
        members[k] = moved;
    }
    return count;
}

/* What a rank shows in its meeting, drawn from both. */
static size_t make_entry(fl_entry *e, unsigned char *data, const fl_group *g, int of)
{
    random_state r = {g->sequence * 1000 + (uint64_t)of};
    memset(e, 0, sizeof *e);
    e->sequence = g->sequence;
    e->fingerprint = next_random(&r);
    e->collective.shape.ndim = 2;
    e->collective.shape.dims[1] = (int64_t)below(&r, 1000);
    e->tag = next_random(&r);
    e->in = next_random(&r);
    e->out = next_random(&r);
    snprintf(e->collective.where, sizeof e->collective.where, "train.lua:%d", of);
    if (below(&r, 5) == 0) {
        e->flags = FL_ENTRY_POISONED;
        snprintf(e->error, sizeof e->error, "bad error %d", (int)below(&r, 1000));
    }
    e->bytes = (uint32_t)(below(&r, 3) ? below(&r, 64) : below(&r, FL_EAGER_BYTES + 1));
    for (size_t i = 0; i < e->bytes; i += 8) {
        uint64_t word = next_random(&r);
        memcpy(data + i, &word, e->bytes - i < 8 ? e->bytes - i : 8);
    }
    return e->bytes;
}

static bool entries_equal(const fl_entry *a, const fl_entry *b)
{
    return a->sequence == b->sequence && a->fingerprint == b->fingerprint && a->flags == b->flags
        && a->bytes == b->bytes && a->tag == b->tag && a->in == b->in && a->out == b->out
        && !memcmp(&a->collective, &b->collective, sizeof a->collective) && !strcmp(a->error, b->error);
}

static void meet_once(fl_group *g)
{
    static fl_entry mine, theirs;
    static unsigned char data[FL_EAGER_BYTES + 8];
    g->sequence++;
    size_t bytes = make_entry(&mine, data, g, rank);
    if (!CHECK(fl_channel_enter(g->channel, &mine, data, bytes, 0) == FL_OK)) _exit(1);
    for (int i = 0; i < g->count; i++) {
        make_entry(&theirs, data, g, g->ranks[i]);
        CHECK(entries_equal(fl_channel_entry(g->channel, i), &theirs));
        CHECK(!memcmp(fl_channel_data(g->channel, i), data, theirs.bytes));
    }
}

static uint64_t block_offsets[MOST];
static int *own_block;

static int *cell(int of, int k) { return (int *)fl_shared_address(of, block_offsets[of]) + 16 * k; }

/* Everybody writes into the blocks of all, then reads what the others wrote; the leaves keep the steps apart. */
static void write_to_peers(const fl_group *g)
{
    int stamp = (int)g->sequence * 8;
    for (int i = 0; i < g->count; i++) *cell(g->ranks[i], rank) = stamp + rank;
    CHECK(fl_channel_leave(g->channel) == FL_OK);
    for (int i = 0; i < g->count; i++) CHECK(own_block[16 * g->ranks[i]] == stamp + g->ranks[i]);
    for (int i = 0; i < g->count; i++) CHECK(*cell(g->ranks[i], rank) == stamp + rank);
    CHECK(fl_channel_leave(g->channel) == FL_OK);
}

static void meet_in_groups(void)
{
    random_state r = {99};
    int members[MOST];
    share();
    own_block = fl_arena_take(4096);
    uint64_t mine = fl_shared_offset(own_block);
    CHECK(exchange(block_offsets, &mine, sizeof mine));
    for (int i = 0; i < 1500 && !check_bad; i++) {
        int count = draw_members(members, &r), meetings = 1 + (int)below(&r, 4);
        bool inside = false;
        for (int k = 0; k < count; k++) inside |= members[k] == rank;
        for (int k = 0; k < meetings; k++) {
            bool writing = below(&r, 2);
            if (!inside) continue;
            fl_group *g = group_of(members, count);
            meet_once(g);
            if (writing) write_to_peers(g);
        }
    }
    barrier();
}
static void two_ranks_meet(void) { with_ranks(2, meet_in_groups); }
static void three_ranks_meet(void) { with_ranks(3, meet_in_groups); }
static void four_ranks_meet(void) { with_ranks(4, meet_in_groups); }

/* A member that is fast shows its next entry while another one still reads the last. */
static void run_ahead(void)
{
    static fl_entry e;
    int all[] = {0, 1};
    share();
    fl_group *g = group_of(all, 2);
    for (int i = 1; i <= 20; i++) {
        e = (fl_entry){.sequence = (uint64_t)i, .fingerprint = (uint64_t)(100 * i + rank)};
        CHECK(fl_channel_enter(g->channel, &e, &i, sizeof i, 0) == FL_OK);
        if (rank == 1) usleep(1000);
        const int *data = fl_channel_data(g->channel, 1 - rank);
        CHECK(fl_channel_entry(g->channel, 1 - rank)->fingerprint == (uint64_t)(100 * i + 1 - rank) && *data == i);
    }
    barrier();
}
static void the_last_entry_stays_valid(void) { with_ranks(2, run_ahead); }

static bool always(void) { return true; }

/* Ctrl-C while another member still writes here: this rank stays until it is through. */
static void stop_in_the_middle(void)
{
    static fl_entry e = {.sequence = 1};
    int all[] = {0, 1};
    share();
    fl_group *g = group_of(all, 2);
    CHECK(fl_channel_enter(g->channel, &e, NULL, 0, 0) == FL_OK);
    if (rank == 0) fl_comm_stopping = always;
    else sleep(4); /* longer than a meeting would be waited for */
    CHECK(fl_channel_leave(g->channel) == FL_OK);
    fl_comm_stopping = NULL;
    barrier();
}
static void an_interrupt_waits_for_the_data(void) { with_ranks(2, stop_in_the_middle); }

/* ---- ranks that die ---- */

static int *meeting; /* ranks that are about to meet; shared by all processes */

static void meet_until_an_error(void)
{
    static fl_entry e;
    int all[] = {0, 1, 2};
    fl_status status = FL_OK;
    share();
    fl_group *g = group_of(all, ranks);
    CHECK(!fl_rank_is_dead(0) && !fl_rank_is_dead(1) && !fl_rank_is_dead(2));
    barrier();
    __atomic_add_fetch(meeting, 1, __ATOMIC_RELEASE);
    while (status == FL_OK) {
        e.sequence++;
        status = fl_channel_enter(g->channel, &e, NULL, 0, 0);
        if (status == FL_OK) status = fl_channel_leave(g->channel);
    }
    CHECK(status == FL_ERR_COMM && strstr(fl_message(), "rank 1 has died"));
    CHECK(fl_rank_is_dead(1) && !fl_rank_is_dead(2 - rank));
    CHECK(fl_journal_of(1)->rank == 1); /* its memory is still there */
    char done = 1;                      /* lest the other one sees this one's end */
    CHECK(write(pipes[rank][2 - rank][1], &done, 1) == 1 && read(pipes[2 - rank][rank][0], &done, 1) == 1);
}

/* Killed anywhere, seen by all others though its parent has not asked for it yet (a zombie). */
static void the_dead_are_noticed(void)
{
    random_state r = {(uint64_t)getpid()};
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(meeting != MAP_FAILED);
    for (int i = 0; i < 6; i++) {
        *meeting = 0;
        start_ranks(3, meet_until_an_error);
        for (int wait = 0; wait < 20000 && __atomic_load_n(meeting, __ATOMIC_ACQUIRE) < 3; wait++) usleep(1000);
        usleep((useconds_t)below(&r, 5000));
        double start = seconds();
        kill(pids[1], SIGKILL);
        CHECK(ended_well(0) && ended_well(2));
        CHECK(seconds() - start < 2);
        CHECK(!ended_well(1));
    }
}

static void wait_to_open(void)
{
    int all[] = {0, 1};
    fl_group *g = calloc(1, sizeof *g + sizeof all);
    share();
    g->count = 2;
    g->hash = 5;
    memcpy(g->ranks, all, sizeof all);
    barrier();
    if (rank == 1) return;
    CHECK(fl_channel_open(&g->channel, g) == FL_ERR_COMM && g->channel == NULL);
    free(g);
}
static void a_group_is_not_opened_alone(void) { with_ranks(2, wait_to_open); }

/* ---- the lock ---- */

static void count_under_lock(void)
{
    share();
    volatile long *count = NULL;
    uint64_t offsets[MOST], mine = 0;
    void *block = rank == 0 ? fl_arena_take(4096) : NULL;
    if (block) mine = fl_shared_offset(block);
    CHECK(exchange(offsets, &mine, sizeof mine));
    count = fl_shared_address(0, offsets[0]);
    for (int i = 0; i < 20000; i++) {
        CHECK(fl_shared_lock());
        *count = *count + 1;
        fl_shared_unlock();
    }
    barrier();
    CHECK(*count == 20000l * ranks);
    if (rank != 0) return;
    CHECK(fl_shared_lock() && !fl_shared_lock()); /* this thread has it */
    fl_shared_unlock();
}
static void one_rank_has_the_lock(void) { with_ranks(3, count_under_lock); }

static void die_with_the_lock(void)
{
    share();
    if (rank == 1) CHECK(fl_shared_lock());
    barrier();
    if (rank == 1) kill(getpid(), SIGKILL);
    double start = seconds();
    for (int i = 0; i < 100; i++) {
        CHECK(fl_shared_lock());
        fl_shared_unlock();
    }
    CHECK(seconds() - start < 2);
}

static void the_dead_leave_the_lock(void)
{
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer takes EOWNERDEAD of a timed lock for a failure");
#endif
    start_ranks(3, die_with_the_lock);
    CHECK(ended_well(0) && ended_well(2) && !ended_well(1));
}

int main(void)
{
    alarm(120);
    RUN(one_rank_has_no_arena);
    RUN(a_limit_on_files_is_kept);
    RUN(an_arena_is_its_users_alone_and_data);
    RUN(blocks_are_seen_by_peers);
    RUN(handshakes_that_do_not_fit);
    RUN(memory_that_cannot_be_opened);
    RUN(sharing_can_be_given_up);
    RUN(blocks_do_not_overlap);
    RUN(a_full_arena_is_no_error);
    RUN(storage_comes_from_the_arena);
    RUN(children_do_not_disturb);
    RUN(journals_are_read_by_peers);
    RUN(two_ranks_meet);
    RUN(three_ranks_meet);
    RUN(four_ranks_meet);
    RUN(the_last_entry_stays_valid);
    RUN(an_interrupt_waits_for_the_data);
    RUN(the_dead_are_noticed);
    RUN(a_group_is_not_opened_alone);
    RUN(one_rank_has_the_lock);
    RUN(the_dead_leave_the_lock);
    return finish();
}

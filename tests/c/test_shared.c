/*
** test_shared.c -- the arenas of ranks, their handshakes and their lock, with real processes: forked and killed.
*/
#define _GNU_SOURCE
#include "ranks.h"
#include "core/memory/arena.h"
#include "core/ranks/journal.h"
#include "core/memory/scratch.h"
#include "core/memory/storage.h"
#include "core/memory/testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HIDDEN(data) __asan_address_is_poisoned(data)
#else
#define HIDDEN(data) true
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

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
    RUN(one_rank_has_the_lock);
    RUN(the_dead_leave_the_lock);
    return finish();
}

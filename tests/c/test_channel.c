/*
** test_channel.c -- journals and meetings of ranks, with real processes: in groups, interrupted and killed.
*/
#define _GNU_SOURCE
#include "ranks.h"
#include "core/memory/arena.h"
#include "core/ranks/channel.h"
#include "core/ranks/journal.h"

#include <signal.h>
#include <sys/mman.h>

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

/* Makes the entry of a rank in its meeting, drawn from both. */
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

int main(void)
{
    alarm(120);
    RUN(journals_are_read_by_peers);
    RUN(two_ranks_meet);
    RUN(three_ranks_meet);
    RUN(four_ranks_meet);
    RUN(the_last_entry_stays_valid);
    RUN(an_interrupt_waits_for_the_data);
    RUN(the_dead_are_noticed);
    RUN(a_group_is_not_opened_alone);
    return finish();
}

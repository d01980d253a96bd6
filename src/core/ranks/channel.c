/*
** channel.c -- channels: the sides that a group's members have in their arenas, behind the first page.
**
** A side has one writer, its rank, and is published by a release store, so a rank may die at any instruction and leaves
** nothing half locked.
*/
#include "channel.h"
#include "journal.h"
#include "shared.h"
#include "shared_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

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
    uint64_t offset = __atomic_load_n(&fl_shared_head_of(rank)->channels[hash % FL_CHANNEL_BUCKETS], __ATOMIC_ACQUIRE);
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
    fl_shared_head *head = fl_shared_head_of(fl_shared_me());
    uint64_t start = FL_ARENA_PAGE + head->channel_bytes, *bucket = &head->channels[g->hash % FL_CHANNEL_BUCKETS];
    if (bytes > FL_ARENA_RESERVED - start) return NULL;
    side *s = fl_shared_address(fl_shared_me(), start);
    head->channel_bytes += bytes;
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
    side *mine = side_find(fl_shared_me(), g);
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
    const fl_journal *j = &fl_shared_head_of(rank)->journal;
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

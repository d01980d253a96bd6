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

/* The message of one member in one meeting. The sequence is written last: once it is there, so is the rest. A reader
** that waits for it gets the beginning of the entry in the same cache line. */
struct showing {
    _Alignas(LINE) fl_entry entry;
    _Alignas(LINE) unsigned char data[FL_EAGER_BYTES];
};

enum { WORDS_BYTES = 1024 };

/* One member's side of a channel, in its arena. Peers read it. */
struct side {
    uint64_t next; /* in the bucket: offset; 0: the last one */
    uint64_t hash;
    uint64_t gone_at;             /* the sequence at which this member gave up waiting; 0: never */
    int32_t gone;                 /* its error; the text is in `words` */
    bool peer_gone;               /* because a member was through with the line: fl_comm_peer_gone */
    _Alignas(LINE) uint64_t left; /* counts its leaves */
    struct showing shows[2];      /* by the parity of the sequence */
    char words[WORDS_BYTES];
    int32_t count, ranks[]; /* of the group */
};

struct fl_channel {
    const fl_group *group; /* borrowed */
    uint64_t sequence, left;
    struct side *mine;
    struct side *sides[]; /* [group->count], in their arenas */
};

/* The side of a rank in the channel of a group; NULL: it has not opened it yet. */
static struct side *side_of(int rank, uint64_t hash, const int *ranks, int count)
{
    uint64_t offset = __atomic_load_n(&fl_shared_head_of(rank)->channels[hash % FL_CHANNEL_BUCKETS], __ATOMIC_ACQUIRE);
    while (offset) {
        struct side *s = fl_shared_address(rank, offset);
        if (s->hash == hash && s->count == count && !memcmp(s->ranks, ranks, (size_t)count * sizeof *ranks)) return s;
        offset = s->next;
    }
    return NULL;
}

static struct side *side_find(int rank, const fl_group *group)
{
    return side_of(rank, group->hash, group->ranks, group->count);
}

/* Makes this rank's side and shows it to the others. */
static struct side *side_new(const fl_group *group)
{
    size_t bytes = (sizeof(struct side) + (size_t)group->count * sizeof(int32_t) + LINE - 1) / LINE * LINE;
    fl_shared_head *head = fl_shared_head_of(fl_shared_me());
    uint64_t start = FL_ARENA_PAGE + head->channel_bytes, *bucket = &head->channels[group->hash % FL_CHANNEL_BUCKETS];
    if (bytes > FL_ARENA_RESERVED - start) return NULL;
    struct side *s = fl_shared_address(fl_shared_me(), start);
    head->channel_bytes += bytes;
    s->next = *bucket;
    s->hash = group->hash;
    s->count = group->count;
    memcpy(s->ranks, group->ranks, (size_t)group->count * sizeof *group->ranks);
    __atomic_store_n(bucket, fl_shared_offset(s), __ATOMIC_RELEASE);
    return s;
}

/* This rank stops waiting with this thread's error: it is that of the others, who wait or come later, too. */
static fl_status give_up(struct side *mine, const fl_group *group, fl_status status)
{
    snprintf(mine->words, sizeof mine->words, "%s", fl_message());
    mine->gone = (int32_t)status;
    mine->peer_gone = fl_comm_peer_gone;
    __atomic_store_n(&mine->gone_at, group->sequence, __ATOMIC_RELEASE);
    return status;
}

/* FL_OK, or the error of a member that has given up since the group began to count. */
static fl_status look_for_gone(const fl_channel *channel)
{
    for (int i = 0; i < channel->group->count; i++) {
        const struct side *s = channel->sides[i];
        uint64_t gone_at = __atomic_load_n(&s->gone_at, __ATOMIC_ACQUIRE);
        if (FL_LIKELY(gone_at <= channel->group->begun)) continue;
        fl_comm_peer_gone |= s->peer_gone;
        return fl_fail((fl_status)s->gone, "%s", s->words);
    }
    return FL_OK;
}

/* Writes into the journal that this rank waits here; fl_group_meet has written for which collective. */
static void stand(const struct side *mine)
{
    if (fl_journal_own->meeting) __atomic_store_n(&fl_journal_own->channel, fl_shared_offset(mine), __ATOMIC_RELEASE);
}

static bool has_not_opened(const fl_group *group, int i) { return !side_find(group->ranks[i], group); }

fl_status fl_channel_open(fl_channel **out, fl_group *group)
{
    struct side *mine = side_find(fl_shared_me(), group);
    if (!mine) mine = side_new(group);
    fl_channel *c = mine ? calloc(1, sizeof *c + (size_t)group->count * sizeof *c->sides) : NULL;
    if (!c) return fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", group->count);
    c->group = group;
    c->mine = mine;
    fl_channel_reset(c, group->begun);
    stand(mine);
    fl_wait wait = {.group = group, .missing = has_not_opened};
    for (int i = 0; i < group->count; i++)
        while (!(c->sides[i] = side_find(group->ranks[i], group))) {
            fl_status status = fl_wait_step(&wait);
            if (status == FL_OK) continue;
            free(c);
            return give_up(mine, group, status);
        }
    *out = c;
    return FL_OK;
}

/* Copies the parts of an entry that are in use, save for the sequence, its first field. */
static void entry_copy(fl_entry *out, const fl_entry *entry)
{
    memcpy(&out->fingerprint, &entry->fingerprint, offsetof(fl_entry, error) - offsetof(fl_entry, fingerprint));
    if (entry->flags & FL_ENTRY_POISONED) memcpy(out->error, entry->error, sizeof entry->error);
    else out->error[0] = '\0';
}

static bool has_not_entered(const fl_group *group, int i)
{
    uint64_t sequence = group->channel->sequence;
    return __atomic_load_n(&group->channel->sides[i]->shows[sequence & 1].entry.sequence, __ATOMIC_ACQUIRE) < sequence;
}

static bool has_not_left(const fl_group *group, int i)
{
    return __atomic_load_n(&group->channel->sides[i]->left, __ATOMIC_ACQUIRE) < group->channel->left;
}

enum { STEPS_PER_LOOK = 64 };

static fl_status wait_for_all(const fl_channel *channel, bool (*missing)(const fl_group *, int), unsigned flags)
{
    fl_wait wait = {.group = channel->group, .flags = flags, .missing = missing};
    for (int i = 0; i < channel->group->count; i++)
        while (missing(channel->group, i)) {
            fl_status status = fl_wait_step(&wait);
            if (status == FL_OK && wait.spins % STEPS_PER_LOOK == 0) status = look_for_gone(channel);
            if (status == FL_OK) continue;
            fl_status gone = look_for_gone(channel);
            return give_up(channel->mine, channel->group, gone != FL_OK ? gone : status);
        }
    return look_for_gone(channel);
}

#if defined(__x86_64__)
#define TO_OWN __attribute__((target("prfchw"))) /* without it a prefetch only reads */
#else
#define TO_OWN
#endif

/* The next meeting writes where the others have read in the one before. To ask for these lines now, while the script
** goes on, saves waiting for them then. */
TO_OWN static void own_next(const fl_channel *channel, size_t bytes)
{
    const struct showing *next = &channel->mine->shows[(channel->sequence + 1) & 1];
    __builtin_prefetch(&next->entry, 1);
    for (size_t at = 0; at < bytes; at += LINE) __builtin_prefetch(next->data + at, 1);
}

fl_status fl_channel_enter(fl_channel *channel, const fl_entry *mine, const void *data, size_t bytes, unsigned flags)
{
    struct showing *s = &channel->mine->shows[mine->sequence & 1];
    entry_copy(&s->entry, mine);
    if (bytes) memcpy(s->data, data, bytes);
    channel->sequence = mine->sequence;
    __atomic_store_n(&s->entry.sequence, channel->sequence, __ATOMIC_RELEASE);
    if (!(flags & FL_WAIT_IDLE)) stand(channel->mine);
    FL_TRY(wait_for_all(channel, has_not_entered, flags));
    own_next(channel, bytes);
    return FL_OK;
}

const fl_entry *fl_channel_entry(const fl_channel *channel, int i)
{
    return &channel->sides[i]->shows[channel->sequence & 1].entry;
}

const void *fl_channel_data(const fl_channel *channel, int i)
{
    return channel->sides[i]->shows[channel->sequence & 1].data;
}

fl_status fl_channel_leave(fl_channel *channel)
{
    __atomic_store_n(&channel->mine->left, ++channel->left, __ATOMIC_RELEASE);
    return wait_for_all(channel, has_not_left, FL_WAIT_DATA);
}

/* Read in the order in which fl_group_meet does not write it; a record that changed meanwhile is no wait. */
void fl_channel_standing(fl_standing *out, int rank)
{
    const fl_journal *j = &fl_shared_head_of(rank)->journal;
    *out = (fl_standing){.meeting = __atomic_load_n(&j->meeting, __ATOMIC_ACQUIRE)};
    uint64_t offset = __atomic_load_n(&j->channel, __ATOMIC_ACQUIRE);
    if (out->meeting && offset) {
        const struct side *s = fl_shared_address(rank, offset);
        out->hash = s->hash;
        out->ranks = s->ranks;
        out->count = s->count;
        out->sequence = j->sequence;
        out->collective = j->collective;
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (!offset || __atomic_load_n(&j->meeting, __ATOMIC_RELAXED) != out->meeting) out->meeting = 0;
}

bool fl_channel_lacks(const fl_standing *standing, int rank)
{
    const struct side *theirs = side_of(rank, standing->hash, standing->ranks, standing->count);
    return !theirs
        || __atomic_load_n(&theirs->shows[standing->sequence & 1].entry.sequence, __ATOMIC_ACQUIRE)
        < standing->sequence;
}

uint64_t fl_channel_counted(const fl_channel *channel) { return channel->left; }

void fl_channel_reset(fl_channel *channel, uint64_t number)
{
    channel->left = number;
    __atomic_store_n(&channel->mine->left, number, __ATOMIC_RELEASE);
}

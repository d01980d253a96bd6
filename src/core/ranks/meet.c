/*
** meet.c -- meetings: the entries of all members, compared.
**
** The entries are compared here and nowhere else; shared memory (channel.c) and the transport only
** carry the entries.
*/
#include "meet.h"
#include "channel.h"
#include "comm.h"
#include "journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const fl_entry *fl_group_entry(const fl_group *group, int i)
{
    return group->channel ? fl_channel_entry(group->channel, i) : &group->entries[i];
}

const void *fl_group_entry_data(const fl_group *group, int i)
{
    return group->channel ? fl_channel_data(group->channel, i) : group->data + (size_t)i * FL_EAGER_BYTES;
}

void fl_entry_poison(fl_entry *entry, const char *error)
{
    entry->flags |= FL_ENTRY_POISONED;
    snprintf(entry->error, sizeof entry->error, "%s", error);
}

void fl_entry_look_back(fl_entry *entry, fl_trail trail)
{
    entry->trail = trail;
    entry->past = trail.hash;
}

/* "rank 0 train.lua:41 all-reduce of float32[8, 6], P -> B" */
static const char *rank_at(char *buffer, size_t size, int rank, const fl_collective *collective)
{
    char text[FL_COLLECTIVE_TEXT];
    snprintf(buffer, size, "rank %d %s%s%s", rank, collective->where, collective->where[0] ? " " : "",
             fl_collective_text(text, collective));
    return buffer;
}

/* The error of member i, which does not run the program of the first one. Out of line: its text is no part of a
** meeting that goes well. */
static __attribute__((noinline)) fl_status fail_different(fl_group *group, int i, const fl_entry *mine)
{
    const fl_entry *first = fl_group_entry(group, 0), *e = fl_group_entry(group, i);
    char a[FL_COLLECTIVE_TEXT], b[FL_COLLECTIVE_TEXT];
    bool same = e->fingerprint == first->fingerprint && e->sequence == first->sequence;
    if (same && e->drawn == first->drawn) return fl_group_differs(group, i, mine);
    rank_at(a, sizeof a, group->ranks[0], &first->collective);
    rank_at(b, sizeof b, group->ranks[i], &e->collective);
    if (!same)
        return fl_fail(FL_ERR_COMM, "the ranks run different programs: %s, %s; is one of them inside `if rank == 0`?",
                       a, b);
    return fl_fail(
        FL_ERR_COMM,
        "the ranks have drawn different random numbers for global tensors: %s, %s; one of them may have drawn or "
        "seeded alone, or continued after an error (flow.manual_seed on all ranks makes them agree again)",
        a, b);
}

static bool is_same(const fl_entry *entry, const fl_entry *first)
{
    return entry->fingerprint == first->fingerprint && entry->sequence == first->sequence && entry->past == first->past
        && entry->drawn == first->drawn;
}

/* All members compare the same entries, so all of them fail or none. */
static fl_status check_entries(fl_group *group, const fl_entry *mine)
{
    group->shown = 0;
    for (int i = 0; i < group->count; i++) group->shown |= fl_group_entry(group, i)->flags;
    if (group->shown & FL_ENTRY_INTERRUPTED) return fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    const fl_entry *first = fl_group_entry(group, 0);
    for (int i = 1; i < group->count; i++)
        if (FL_UNLIKELY(!is_same(fl_group_entry(group, i), first))) return fail_different(group, i, mine);
    return FL_OK;
}

/* An error that another collective has passed on names its rank already. */
static bool names_rank(const char *error) { return strncmp(error, "rank ", 5) == 0; }

fl_status fl_group_poison(const fl_group *group)
{
    if (!(group->shown & FL_ENTRY_POISONED)) return FL_OK;
    for (int i = 0; i < group->count; i++) {
        const fl_entry *e = fl_group_entry(group, i);
        if (!(e->flags & FL_ENTRY_POISONED)) continue;
        return names_rank(e->error) ? fl_fail(FL_ERR_STATE, "%s", e->error)
                                    : fl_fail(FL_ERR_STATE, "rank %d: %s", group->ranks[i], e->error);
    }
    return FL_OK;
}

static void note_in_journal(const fl_entry *entry)
{
    fl_journal *j = fl_journal_own;
    j->collective = entry->collective;
    j->sequence = entry->sequence;
    __atomic_store_n(&j->meetings, j->meetings + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&j->meeting, j->meetings, __ATOMIC_RELEASE);
}

/* Before anything else is noted. */
static void note_end_in_journal(void)
{
    __atomic_store_n(&fl_journal_own->meeting, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&fl_journal_own->channel, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* First meeting of a group: opens its channel, or allocates its entries. */
static fl_status prepare(fl_group *group)
{
    if (group->local && !group->channel) return fl_channel_open(&group->channel, group);
    if (group->local || group->data) return FL_OK;
    if (!group->entries) group->entries = calloc((size_t)group->count, sizeof *group->entries);
    if (group->entries) group->data = malloc((size_t)group->count * FL_EAGER_BYTES);
    return group->entries && group->data
        ? FL_OK
        : fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", group->count);
}

static fl_status enter(fl_group *group, const fl_entry *mine, const void *data, size_t bytes, unsigned flags)
{
    FL_TRY(prepare(group));
    if (group->local) return fl_channel_enter(group->channel, mine, data, bytes, flags);
    FL_TRY(fl_comm_get()->meet(group, mine, data, bytes, flags));
    return group->opened ? FL_OK : fl_comm_get()->open(group);
}

static __attribute__((noinline)) fl_status fail_broken(const fl_collective *collective)
{
    char text[FL_COLLECTIVE_TEXT];
    return fl_fail(FL_ERR_COMM,
                   "%s: an earlier collective of these ranks failed before its end; they can no longer communicate",
                   fl_collective_at(text, collective));
}

fl_status fl_group_meet(fl_group *group, fl_entry *mine, const void *data, size_t bytes, unsigned flags)
{
    if (FL_UNLIKELY(group->broken)) return fail_broken(&mine->collective);
    mine->sequence = ++group->sequence;
    mine->bytes = (uint32_t)bytes;
    if (!(flags & FL_WAIT_IDLE) && fl_comm_is_stopping()) mine->flags |= FL_ENTRY_INTERRUPTED;
    note_in_journal(mine);
    fl_status status = enter(group, mine, data, bytes, flags);
    note_end_in_journal();
    if (status != FL_OK) {
        group->broken = true;
        return status;
    }
    group->opened = true;
    return check_entries(group, mine);
}

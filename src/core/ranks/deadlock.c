/*
** deadlock.c -- cycles in the wait-for graph of the ranks of one host.
**
** A rank communicates in one order, so while it waits in one meeting it enters no other: its meeting waits for those in
** which the members are that have not entered it. Meetings in a cycle of such waits last forever, however long the
** time-out. Each rank's journal names the meeting that it waits in; the waits that were read are valid when all of them
** still last at the end, for then there was a moment in which all of them did.
**
** The ranks in all cycles through one meeting are the same for each of them. Each writes into its journal that it has
** found the deadlock, and leaves when all have written it: so none of them finds the others gone.
*/
#include "deadlock.h"
#include "channel.h"
#include "journal.h"
#include "shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEADLOCK_WORDS = 900, NAMED_RANKS = 4, LISTED_RANKS = 8 };

/* A rank in the graph. */
struct node {
    fl_standing standing; /* count -1: not read yet */
    bool seen;            /* there is a path from this rank to it */
    bool back;            /* and one from it to this rank */
};

/* Communication lane. */
static struct {
    int world;
    struct node *nodes; /* [world] */
    int *queue;         /* [world]: the ranks seen, breadth first */
    int queued;
    uint64_t meeting;  /* of this rank, in a cycle of meetings; 0: in none */
    uint64_t *members; /* [world]: that of each rank in such a cycle with it; 0: it is in none */
    char words[DEADLOCK_WORDS];
} look;

/* Out of memory there is no look: the time-out ends the wait. */
static bool prepare(void)
{
    size_t world = (size_t)fl_world_get()->size;
    if (look.world) return true;
    if (!look.nodes) look.nodes = malloc(world * sizeof *look.nodes);
    if (!look.queue) look.queue = malloc(world * sizeof *look.queue);
    if (!look.members) look.members = malloc(world * sizeof *look.members);
    if (look.nodes && look.queue && look.members) look.world = (int)world;
    return look.world > 0;
}

static bool is_together(const struct node *node, const struct node *other)
{
    return node->standing.hash == other->standing.hash && node->standing.sequence == other->standing.sequence;
}

/* True if `node` waits for what `rank`, the other node, does: in the same meeting, or for that rank, which waits in
** another one. */
static bool leads_to(const struct node *node, int rank, const struct node *other)
{
    return other->standing.meeting && (is_together(node, other) || fl_channel_lacks(&node->standing, rank));
}

static void add(int rank)
{
    struct node *n = &look.nodes[rank];
    if (n->seen) return;
    n->seen = true;
    look.queue[look.queued++] = rank;
}

static void read_standing(int rank)
{
    struct node *n = &look.nodes[rank];
    if (n->standing.count < 0) fl_channel_standing(&n->standing, rank);
}

/* Finds the ranks to which a path leads; false: there are none. */
static bool follow(int me)
{
    for (int r = 0; r < look.world; r++) look.nodes[r] = (struct node){.standing.count = -1};
    look.queued = 0;
    read_standing(me);
    add(me);
    for (int k = 0; k < look.queued; k++) {
        const struct node *n = &look.nodes[look.queue[k]];
        if (!n->standing.meeting) return false;
        for (int i = 0; i < n->standing.count; i++) {
            int other = n->standing.ranks[i];
            if (other == look.queue[k] || !fl_shared_has(other)) continue;
            read_standing(other);
            if (leads_to(n, other, &look.nodes[other])) add(other);
        }
    }
    return look.queued > 1;
}

static bool leads_back(const struct node *node, int rank)
{
    for (int i = 0; i < node->standing.count; i++) {
        int other = node->standing.ranks[i];
        if (other != rank && fl_shared_has(other) && look.nodes[other].back
            && leads_to(node, other, &look.nodes[other]))
            return true;
    }
    return false;
}

/* Marks those from which a path leads back; false: they are all in this rank's meeting. */
static bool follow_back(int me)
{
    bool more = true, others = false;
    look.nodes[me].back = true;
    while (more) {
        more = false;
        for (int k = 1; k < look.queued; k++) {
            struct node *n = &look.nodes[look.queue[k]];
            if (n->back || !leads_back(n, look.queue[k])) continue;
            n->back = more = true;
            others = others || !is_together(n, &look.nodes[me]);
        }
    }
    return others;
}

static bool all_last(void)
{
    for (int r = 0; r < look.world; r++) {
        const struct node *n = &look.nodes[r];
        if (n->back && __atomic_load_n(&fl_journal_of(r)->meeting, __ATOMIC_ACQUIRE) != n->standing.meeting)
            return false;
    }
    return true;
}

/* ---- words ---- */

static void append(const char *text)
{
    size_t n = strlen(look.words);
    snprintf(look.words + n, sizeof look.words - n, "%s", text);
}

/* "rank 1 train.lua:41 all-reduce of float32[8, 6], P -> B among {1, 0}" */
static void append_rank(int rank, const fl_standing *standing)
{
    char text[FL_COLLECTIVE_TEXT + FL_WHERE_TEXT + 32], collective[FL_COLLECTIVE_TEXT];
    snprintf(text, sizeof text, "rank %d %s%s%s among {", rank, standing->collective.where,
             standing->collective.where[0] ? " " : "", fl_collective_text(collective, &standing->collective));
    append(text);
    for (int i = 0; i < standing->count && i < LISTED_RANKS; i++) {
        snprintf(text, sizeof text, i ? ", %d" : "%d", standing->ranks[i]);
        append(text);
    }
    append(standing->count > LISTED_RANKS ? ", ...}" : "}");
}

/* True if a lower rank of the cycles is in the same meeting. */
static bool is_named(int rank)
{
    for (int r = 0; r < rank; r++)
        if (look.nodes[r].back && is_together(&look.nodes[r], &look.nodes[rank])) return true;
    return false;
}

/* One rank for each meeting. */
static void word_cycles(void)
{
    int count = 0;
    look.words[0] = '\0';
    append("ranks wait for each other: ");
    for (int r = 0; r < look.world; r++) {
        if (!look.nodes[r].back || is_named(r) || count++ >= NAMED_RANKS) continue;
        append(count > 1 ? ", " : "");
        append_rank(r, &look.nodes[r].standing);
    }
    if (count > NAMED_RANKS) append(", ...");
    append("; their placements must list the same ranks in the same order, and their collectives must come in the same "
           "order");
}

/* ---- looking ---- */

/* Keeps the ranks in all cycles through this one's meeting. */
static void find_cycles(int me)
{
    look.meeting = 0;
    if (!follow(me) || !follow_back(me) || !all_last()) return;
    for (int r = 0; r < look.world; r++) look.members[r] = look.nodes[r].back ? look.nodes[r].standing.meeting : 0;
    look.meeting = look.members[me];
    word_cycles();
}

static bool all_know(void)
{
    for (int r = 0; r < look.world; r++)
        if (look.members[r] && __atomic_load_n(&fl_journal_of(r)->stuck, __ATOMIC_ACQUIRE) < look.members[r])
            return false;
    return true;
}

fl_status fl_deadlock_look(void)
{
    int me = fl_world_get()->rank;
    fl_journal *own = fl_journal_own;
    if (!own->meeting || !own->channel || !prepare()) return FL_OK;
    bool known = look.meeting == own->meeting;
    if (known && all_know()) return fl_fail(FL_ERR_COMM, "%s", look.words);
    find_cycles(me);
    if (look.meeting) __atomic_store_n(&own->stuck, look.meeting, __ATOMIC_RELEASE);
    return FL_OK;
}

/*
** group.c -- groups of ranks, interned: see group.h.
*/
#include "group.h"
#include "base/hash.h"
#include "channel.h"
#include "comm.h"
#include "shared.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256 };
static fl_group *groups[BUCKETS];
static uint64_t begun; /* the first sequence number of new groups */

static fl_group *group_new(const int *ranks, int count, uint64_t hash)
{
    fl_group *g = calloc(1, sizeof *g + (size_t)count * sizeof *ranks);
    if (!g) return NULL;
    g->count = count;
    g->hash = hash;
    g->sequence = g->begun = begun;
    g->me = -1;
    g->local = true;
    memcpy(g->ranks, ranks, (size_t)count * sizeof *ranks);
    for (int i = 0; i < count; i++) {
        if (ranks[i] == fl_world_get()->rank) g->me = i;
        g->local = g->local && fl_shared_has(ranks[i]);
    }
    return g;
}

fl_status fl_group_get(fl_group **out, const int *ranks, int count)
{
    if (!fl_comm_get())
        return fl_fail(FL_ERR_COMM, "%s: nothing can be communicated",
                       fl_world_get()->dry ? "this is a dry world (FLOW_WORLD)" : "this process has no transport");
    uint64_t hash = fl_hash_words((uint64_t)count, ranks, (size_t)count * sizeof *ranks);
    fl_group **bucket = &groups[hash % BUCKETS];
    for (fl_group *g = *bucket; g; g = g->next)
        if (g->hash == hash && g->count == count && memcmp(g->ranks, ranks, (size_t)count * sizeof *ranks) == 0) {
            *out = g;
            return FL_OK;
        }
    fl_group *g = group_new(ranks, count, hash);
    if (!g) return fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", count);
    g->next = *bucket;
    *out = *bucket = g;
    return FL_OK;
}

fl_status fl_group_world(fl_group **out)
{
    const fl_placement *all = fl_placement_all(FL_CPU);
    if (!all) return fl_fail(FL_ERR_MEMORY, "out of memory");
    return fl_group_get(out, all->ranks, all->count);
}

fl_status fl_group_session(fl_group **out)
{
    static fl_group *session;
    fl_group *world;
    FL_TRY(fl_group_world(&world));
    if (!session) session = group_new(world->ranks, world->count, fl_hash_mix(world->hash, 1));
    *out = session;
    return session ? FL_OK : fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", world->count);
}

uint64_t fl_comm_counted(void)
{
    uint64_t most = begun;
    for (int b = 0; b < BUCKETS; b++)
        for (const fl_group *g = groups[b]; g; g = g->next) {
            uint64_t left = g->channel ? fl_channel_counted(g->channel) : 0;
            if (g->sequence > most) most = g->sequence;
            if (left > most) most = left;
        }
    return most;
}

void fl_comm_reset(uint64_t number)
{
    const fl_comm *transport = fl_comm_get();
    begun = number;
    fl_history_reset();
    for (int b = 0; b < BUCKETS; b++)
        for (fl_group *g = groups[b]; g; g = g->next) {
            g->sequence = g->begun = number;
            g->broken = false;
            if (g->channel) fl_channel_reset(g->channel, number);
            if (transport->reset) transport->reset(g);
        }
}

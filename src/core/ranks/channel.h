/*
** channel.h -- where a group meets when all its members map each other's memory.
*/
#ifndef FL_CHANNEL_H
#define FL_CHANNEL_H

#include "meet.h"

typedef struct fl_channel fl_channel;

/* A failed wait ends its channel: every member that waits in it, then or later, gets the same error, word for word. */

/* The channel of a group whose members are all mapped here; `out` is &group->channel. Waits until every member has
** opened it. */
fl_status fl_channel_open(fl_channel **out, fl_group *group);

/* Publishes the entry with its data (copied) and returns when every member has entered its meeting of the same
** number (mine->sequence). */
fl_status fl_channel_enter(fl_channel *channel, const fl_entry *mine, const void *data, size_t bytes, unsigned flags);

/* The entry of member i; valid until this rank enters the next meeting, even if i has already entered it. */
const fl_entry *fl_channel_entry(const fl_channel *channel, int i);
const void *fl_channel_data(const fl_channel *channel, int i);

/* Waits until every member has called it after the last enter (and after each leave before): whatever was read or
** written in between is finished. Ctrl-C does not end that. May be called several times in one meeting: steps of an
** algorithm. */
fl_status fl_channel_leave(fl_channel *channel);

/* The meeting in which a rank waits, as written in its journal. */
typedef struct fl_standing {
    uint64_t meeting;        /* its number on that rank; 0: it waits in none, or in one that is not in shared memory */
    uint64_t hash, sequence; /* of the group, and of the meeting in it */
    const int32_t *ranks;    /* [count], of the group; in that rank's arena */
    int count;
    fl_collective collective;
} fl_standing;
void fl_channel_standing(fl_standing *out, int rank);

/* True if a member of that group has not entered that meeting. */
bool fl_channel_lacks(const fl_standing *standing, int rank);

/* Returns the number of leaves that this rank has counted. reset: it counts from `number` from now on, as all members
** do before they meet again. */
uint64_t fl_channel_counted(const fl_channel *channel);
void fl_channel_reset(fl_channel *channel, uint64_t number);

#endif

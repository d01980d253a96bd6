/*
** group.h -- groups: lists of ranks that enter collectives together.
*/
#ifndef FL_GROUP_H
#define FL_GROUP_H

#include "history.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Interned by the list of ranks, kept until exit. */
typedef struct fl_group {
    int count;
    int me;                     /* position of this rank in `ranks`; -1 outside */
    uint64_t hash;              /* of the ranks: the same on all members */
    uint64_t sequence;          /* meetings so far */
    uint64_t begun;             /* its first sequence number: fl_comm_reset */
    unsigned shown;             /* the flags of all entries of the last meeting, joined */
    bool local;                 /* all members map each other's memory */
    bool opened;                /* the transport has seen it */
    bool broken;                /* a meeting timed out: the sequence numbers of its members may differ */
    void *handle;               /* the transport's own (a communicator) */
    struct fl_channel *channel; /* channel.h's own; NULL unless local */
    struct fl_entry *entries;   /* owned; met across hosts: `count` entries */
    unsigned char *data;        /* owned; the data of the entries, FL_EAGER_BYTES each */
    fl_mark *mark;              /* the last meeting of all its members; NULL: not looked up yet, or there is none */
    struct fl_device_group *devices; /* owned; communication between devices of the members (device_group.h) */
    struct fl_group *next;
    int ranks[]; /* world ranks, in the order of the placement */
} fl_group;

/* The caller is a member or not; errors: FL_ERR_COMM when there is no transport (dry world), FL_ERR_MEMORY. */
fl_status fl_group_get(fl_group **out, const int *ranks, int count);

/* All ranks of the world. */
fl_status fl_group_world(fl_group **out);

/* The same ranks in a group of its own, which the failures of other groups don't touch (sessions). */
fl_status fl_group_session(fl_group **out);

/* ---- sessions: groups that are reset after every line ---- */

/* The highest number that a meeting of this rank, or a step of one, has had; those of the session aside. */
uint64_t fl_comm_counted(void);

/* After a line that may have failed: all groups, also future ones, are usable again and count on from `number`, which
** no rank has passed. All ranks call it at the same point, with nothing under way. */
void fl_comm_reset(uint64_t number);

#endif

/*
** meet.h -- meetings: every member of a group shows an entry and gets those of all others.
*/
#ifndef FL_MEET_H
#define FL_MEET_H

#include "group.h"
#include "site.h"
#include "wait.h"

#include <stddef.h>

enum { FL_EAGER_BYTES = 8192, FL_ERROR_TEXT = 256 };

#define FL_PRIVATE UINT64_MAX

enum {                           /* entry->flags */
       FL_ENTRY_POISONED = 1,    /* this rank's input is missing; the reason is in `error` */
       FL_ENTRY_INTERRUPTED = 2, /* Ctrl-C on this rank: all members stop here */
       FL_ENTRY_PRIVATE = 4      /* this rank's part lies outside of the shared arena and does not fit into `data` */
};

/* The entry of a rank in a meeting. */
typedef struct fl_entry {
    uint64_t sequence;    /* of the meetings of this group, from 1; set by fl_group_meet */
    uint64_t fingerprint; /* of collective and tag: equal on members that run the same program (fl_fingerprint) */
    uint32_t flags;
    uint32_t bytes; /* of the data shown with it; set by fl_group_meet */
    uint64_t tag;   /* a hash of all else that must be equal: placements, number of bytes */
    /* the random numbers of global tensors so far (fl_random_drawn): equal on all members; 0 in control messages,
    ** which bring ranks together again */
    uint64_t drawn;
    uint64_t past;    /* the ops of global tensors since these ranks met last (fl_trail): equal on all members */
    uint64_t in, out; /* offsets in this rank's arena that members read and write; FL_PRIVATE: none */
    fl_collective collective;  /* up to here one cache line: all that the others read when nothing is wrong */
    char error[FL_ERROR_TEXT]; /* of a poisoned input: "cross_entropy (train.lua:12): target[3] is 99" */
    fl_trail trail;            /* the ops that `past` hashes; stays on this rank */
} fl_entry;

/* Every member calls this for the same meeting; returns when all have entered. `bytes` (at most FL_EAGER_BYTES) of
** data go along. Errors, worded alike on all members: programs that differ, members that are missing after the time-out
** or have ended, Ctrl-C. Poison is no error here: see fl_group_poison. */
fl_status fl_group_meet(fl_group *group, fl_entry *mine, const void *data, size_t bytes, unsigned flags);

/* Puts into the entry the ops of this rank since the last meeting. */
void fl_entry_look_back(fl_entry *entry, fl_trail trail);

/* The entry of member i in the last meeting; valid until the next one of this group. */
const fl_entry *fl_group_entry(const fl_group *group, int i);
const void *fl_group_entry_data(const fl_group *group, int i);

/* FL_OK, or the error of the first member with a poisoned input, with its rank. */
fl_status fl_group_poison(const fl_group *group);

/* Puts into the entry that this rank's input is missing, with the reason. */
void fl_entry_poison(fl_entry *entry, const char *error);

/* Member i has run other ops than the first one since they met last, which all members have found: the error that names
** the first op in which they differ. The members meet for it. */
fl_status fl_group_differs(fl_group *group, int i, const fl_entry *mine);

#endif

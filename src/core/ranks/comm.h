/*
** comm.h -- ranks that work together: groups, meetings, control messages, and the table a transport fills.
**
** A collective is a meeting and then, unless a member reports an error, the transfer of data. In the meeting every
** member of the group shows an entry: the collective it enters, the line of the script, the error of a poisoned input.
** If entries differ, or a member does not enter, all members get an error that names both lines or the missing rank.
** On one host the meeting takes place in shared memory (channel.h), across hosts the transport carries it.
**
** World size 1 has no transport: collectives of one rank do nothing and are never requested. In the dry world they are
** an error. Everything here that communicates runs on the communication lane (fl_comm_run), in push order.
*/
#ifndef FL_COMM_H
#define FL_COMM_H

#include "base/dtype.h"
#include "base/reduce.h"
#include "history.h"
#include "value/placement.h"
#include "base/status.h"

#include <stddef.h>

/* ---- groups ---- */

/* Interned by the list of ranks, kept until exit. */
typedef struct fl_group {
    int count;
    int me;                          /* position of this rank in `ranks`; -1 outside */
    uint64_t hash;                   /* of the ranks: the same on all members */
    uint64_t sequence;               /* meetings so far */
    uint64_t begun;                  /* where it began to count: fl_comm_reset */
    bool local;                      /* all members map each other's memory */
    bool opened;                     /* the transport has seen it */
    bool broken;                     /* a meeting timed out: the sequence numbers of its members may differ */
    void *handle;                    /* the transport's own (a communicator) */
    struct fl_channel *channel;      /* channel.h's own; NULL unless local */
    struct fl_entry *entries;        /* owned; met across hosts: `count` entries */
    unsigned char *data;             /* owned; what came with them, FL_EAGER_BYTES each */
    fl_mark *mark;                   /* where all its members met last; NULL: not looked up yet, or there is none */
    struct fl_device_group *devices; /* owned; how the devices of the members communicate (device_group.h) */
    struct fl_group *next;
    int ranks[]; /* world ranks, in the order of the placement */
} fl_group;

/* The caller is a member or not; errors: FL_ERR_COMM when there is no transport (dry world), FL_ERR_MEMORY. */
fl_status fl_group_get(fl_group **out, const int *ranks, int count);

/* All ranks of the world. */
fl_status fl_group_world(fl_group **out);

/* The same ranks in a group of its own, which the failures of other groups don't touch (sessions). */
fl_status fl_group_session(fl_group **out);

/* ---- meetings ---- */

enum { FL_EAGER_BYTES = 8192, FL_WHERE_TEXT = 64, FL_COLLECTIVE_NAME = 24, FL_ERROR_TEXT = 256 };

#define FL_PRIVATE UINT64_MAX

enum {                           /* entry->flags */
       FL_ENTRY_POISONED = 1,    /* this rank's input is missing; the reason is in `error` */
       FL_ENTRY_INTERRUPTED = 2, /* Ctrl-C on this rank: all members stop here */
       FL_ENTRY_PRIVATE = 4      /* this rank's part lies outside of the shared arena and does not fit into `data` */
};

/* A collective in numbers; the text is made only for a message. */
typedef struct fl_collective {
    char name[FL_COLLECTIVE_NAME]; /* "all-reduce", "barrier"; "": nothing yet */
    fl_shape shape;                /* of the tensor; ndim -1: no tensor is concerned */
    uint8_t dtype;
    fl_nd_sbp from, to;
    char where[FL_WHERE_TEXT]; /* "train.lua:41"; not part of the fingerprint */
} fl_collective;

/* The entry of a rank in a meeting. */
typedef struct fl_entry {
    uint64_t sequence;    /* of the meetings of this group, from 1; set by fl_group_meet */
    uint64_t fingerprint; /* of collective and tag: equal on members that run the same program (fl_fingerprint) */
    uint32_t flags;
    uint32_t bytes; /* of the data shown with it; set by fl_group_meet */
    uint64_t tag;   /* what else must be equal: placements, number of bytes */
    /* the random numbers of global tensors so far (fl_random_drawn): equal on all members; 0 in control messages,
    ** which bring ranks together again */
    uint64_t drawn;
    uint64_t past;    /* the ops of global tensors since these ranks met last (fl_trail): equal on all members */
    uint64_t in, out; /* where in this rank's arena the members read and write; FL_PRIVATE: nowhere */
    fl_collective collective;  /* up to here one cache line: all that the others read when nothing is wrong */
    char error[FL_ERROR_TEXT]; /* of a poisoned input: "cross_entropy (train.lua:12): target[3] is 99" */
    fl_trail trail;            /* what `past` stands for; stays on this rank */
} fl_entry;

enum {
    FL_WAIT_IDLE = 1,  /* the others may take any time (a prompt): no time-out, no Ctrl-C, sleeps */
    FL_WAIT_DATA = 2,  /* all have met and data are moving, in memory of this rank too: Ctrl-C does not end that */
    FL_WAIT_DEVICE = 4 /* with DATA: they move between devices, for members too whose scripts have gone on or ended */
};

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

uint64_t fl_fingerprint(const fl_collective *collective, uint64_t tag);

/* Member i has run other ops than the first one since they met last, which all members have found: the error that names
** the first op in which they differ. The members meet for it. */
fl_status fl_group_differs(fl_group *group, int i, const fl_entry *mine);

/* "all-reduce of float32[8, 6], P -> B" */
enum { FL_COLLECTIVE_TEXT = 512 };
FL_EXPORT const char *fl_collective_text(char *buffer, const fl_collective *collective);

/* ---- waiting for others ---- */

/* One wait for other ranks: spins, then yields (at once when the host has more ranks than cores), then sleeps. */
typedef struct fl_wait {
    const fl_group *group;
    unsigned flags;                                /* FL_WAIT_IDLE, FL_WAIT_DATA, FL_WAIT_DEVICE */
    const fl_collective *collective;               /* what waits; NULL: the collective this rank entered last */
    bool (*missing)(const fl_group *group, int i); /* true if member i has not entered; NULL: unknown */
    int spins;                                     /* from here on the wait's own, 0 at first */
    uint64_t started, looked, interrupted, progress;
} fl_wait;

/* To be called between looks. An error ends the wait: time-out (worded with who is missing and where they are),
** a missing member that has ended, died or failed, Ctrl-C. */
FL_EXPORT fl_status fl_wait_step(fl_wait *wait);

/* The same without a pause, for callers that poll now and then: clock and deaths. */
FL_EXPORT fl_status fl_wait_poll(fl_wait *wait);

/* FLOW_TIMEOUT in seconds, 300 unless set. */
double fl_comm_timeout(void);

/* Ranks on this host, set by the transport: with more than cores, waits yield at once. */
extern int fl_comm_host_ranks;

/* ---- control messages (script's thread) ---- */

/* Runs `call` on the communication lane after everything queued there, and waits for it. */
fl_status fl_comm_run(const char *name, fl_status (*call)(void *context), void *context);

/* `bytes` from every member, in order, to all of them: all [count][bytes]. Any size. what names it in messages. */
fl_status fl_comm_share(fl_group *group, const char *what, void *all, const void *mine, size_t bytes, unsigned flags);

fl_status fl_comm_barrier(fl_group *group);

/* ---- sessions: lines of input that all ranks evaluate ---- */

/* True after Ctrl-C: the next meeting then stops all its members at the same point. NULL: no session. */
extern bool (*fl_comm_stopping)(void);

/* True if this rank stopped waiting because a missing member had finished the line (by its journal), or because another
** rank stopped for that reason. */
extern bool fl_comm_peer_gone;

/* The highest number that a meeting of this rank, or a step of one, has had; those of the session aside. */
uint64_t fl_comm_counted(void);

/* After a line that may have failed: all groups, also future ones, are usable again and count on from `number`, which
** no rank has passed. All ranks call it at the same point, with nothing under way. */
void fl_comm_reset(uint64_t number);

/* ---- the transport ---- */

/* Buffers are contiguous and this rank's own; counts and displacements in elements; `counts` and `starts` have
** group->count entries. A call is preceded by a meeting of the same group, so all members are there. Errors break the
** group. */
typedef struct fl_comm {
    const char *name;                   /* "mpi" */
    fl_status (*open)(fl_group *group); /* sets group->handle; all members are there */
    fl_status (*meet)(fl_group *group, const fl_entry *mine, const void *data, size_t bytes,
                      unsigned flags); /* fills group->entries, group->data */
    fl_status (*all_reduce)(fl_group *group, void *data, int64_t count, fl_dtype dtype,
                            fl_reduce reduce); /* in place */
    fl_status (*all_gather)(fl_group *group, void *out, const int64_t *counts, const int64_t *starts, const void *in,
                            fl_dtype dtype);
    fl_status (*reduce_scatter)(fl_group *group, void *out, const int64_t *counts, const void *in, fl_dtype dtype,
                                fl_reduce reduce);
    fl_status (*all_to_all)(fl_group *group, void *out, const int64_t *out_counts, const int64_t *out_starts,
                            const void *in, const int64_t *in_counts, const int64_t *in_starts, fl_dtype dtype);
    void (*reset)(fl_group *group); /* clears a meeting that failed half way, on this rank */
    void (*abort)(int code);        /* ends the whole job; does not return */
    void (*finish)(void);           /* the job has ended well on this rank: waits for the others */
} fl_comm;

/* The transport of this process, NULL when there is none. */
const fl_comm *fl_comm_get(void);

/* Called by a transport when it is ready; borrowed, NULL when it goes away. */
void fl_comm_register(const fl_comm *comm);

/* Ends the job because of this rank: with a transport all ranks, within seconds; otherwise exit(code). */
void fl_comm_abort(int code);

/* Set where this rank may not communicate (flow.on_rank, "@2" in a session): collectives are then an error with this
** text. */
extern const char *fl_comm_refusal; /* NULL, or what forbids it */

/* Asked on the script's thread before anything is queued: FL_OK, or the error of `collective` where it is forbidden. */
fl_status fl_comm_allowed(const fl_collective *collective);

#endif

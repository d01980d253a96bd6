/*
** comm.h -- ranks that work together: control messages, and the table a transport fills.
**
** A collective is a meeting and then, unless a member reports an error, the transfer of data. In the meeting every
** member of the group shows an entry: the collective it enters, the line of the script, the error of a poisoned input.
** If entries differ, or a member does not enter, all members get an error that names both lines or the missing rank.
** On one host the meeting takes place in shared memory (channel.h), across hosts the transport carries it.
**
** Groups are in group.h, what a rank enters in site.h, waits in wait.h, meetings in meet.h.
**
** World size 1 has no transport: collectives of one rank do nothing and are never requested. In the dry world they are
** an error. Everything here that communicates runs on the communication lane (fl_comm_run), in push order.
*/
#ifndef FL_COMM_H
#define FL_COMM_H

#include "base/reduce.h"
#include "group.h"
#include "meet.h"
#include "wait.h"

/* ---- control messages (script's thread) ---- */

/* Runs `call` on the communication lane after everything queued there, and waits for it. */
fl_status fl_comm_run(const char *name, fl_status (*call)(void *context), void *context);

/* `bytes` from every member, in order, to all of them: all [count][bytes]. Any size. what names it in messages. */
fl_status fl_comm_share(fl_group *group, const char *what, void *all, const void *mine, size_t bytes, unsigned flags);

fl_status fl_comm_barrier(fl_group *group);

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
    /* Pieces of messages between two ranks (message.h), in order, without a meeting; none of these waits. `data` is the
    ** transport's until the request is done; a piece is received with the size it was sent with, below 2^31 bytes. */
    fl_status (*send)(void **request, int to, const void *data, size_t bytes);
    fl_status (*receive)(void **request, int from, void *data, size_t bytes);
    fl_status (*find)(int *from, size_t *bytes,
                      bool *found); /* the next piece of rank *from; -1: of any, which it becomes */
    fl_status (*test)(bool *done, void **request);
    void (*drop)(void **request);
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
FL_OWN extern const char *fl_comm_refusal; /* NULL, or what forbids it */

/* Asked on the script's thread before anything is queued: FL_OK, or the error of `collective` where it is forbidden, to
** this rank or because a member of the group was set aside. */
fl_status fl_comm_allowed(const fl_collective *collective, const fl_group *group);

#endif

/*
** internal.h -- what the files of the MPI transport share. Only these files include mpi.h.
**
** MPI calls are non-blocking and polled, so that a wait can end with a time-out or because a rank has failed. Transfers
** still under way then cannot be cancelled, and their buffers belong to the caller: after a failed wait the transport
** refuses all further calls (fl_mpi_usable).
*/
#ifndef FL_MPI_INTERNAL_H
#define FL_MPI_INTERNAL_H

#include "ranks/comm.h"

#include <mpi.h>
#include <string.h>

/* group->handle: kept until exit. */
typedef struct fl_mpi_group {
    MPI_Comm comm;          /* of the members, in their order; MPI_COMM_NULL until all have met */
    int tag;                /* of its packets; tag + 1: of its notes */
    unsigned char *packets; /* owned; one packet per member, this rank's own is the one it sends */
    MPI_Request *requests;  /* owned; 2 * count */
} fl_mpi_group;

/* Words the failure of an MPI call: "mpi: MPI_Iallreduce: MPI_ERR_COUNT: invalid count argument". */
fl_status fl_mpi_fail(const char *call, int code);

#define MPI_TRY(call, arguments)                                                 \
    do {                                                                         \
        int code_ = call arguments;                                              \
        if (FL_UNLIKELY(code_ != MPI_SUCCESS)) return fl_mpi_fail(#call, code_); \
    } while (0)

/* ---- groups (group.c) ---- */

/* Called once at the start: makes the duplicate of the communicator of all ranks that packets travel on. */
fl_status fl_mpi_groups_init(MPI_Comm ranks);
extern MPI_Comm fl_mpi_messages;
extern int fl_mpi_message_tag; /* of messages between two ranks; above those of groups */

/* The handle of g without a communicator: needs no other member. */
fl_status fl_mpi_handle(fl_mpi_group **out, fl_group *group);

/* fl_comm's open: makes the communicator when there is none yet; all members call it. */
fl_status fl_mpi_open(fl_group *group);

/* Waits for all requests; data of g moves meanwhile. */
fl_status fl_mpi_wait(const fl_group *group, MPI_Request *requests, int count);

/* FL_OK, or the error that an earlier wait has failed. */
fl_status fl_mpi_usable(void);

/* ---- meetings (meet.c) ---- */

/* fl_comm's reset. Messages received late by then are dropped, requests that are still under way are left alone. */
void fl_mpi_reset(fl_group *group);

fl_status fl_mpi_meet(fl_group *group, const fl_entry *mine, const void *data, size_t bytes, unsigned flags);

/* ---- collectives (collective.c) ---- */

fl_status fl_mpi_all_reduce(fl_group *group, void *data, int64_t count, fl_dtype dtype, fl_reduce reduce);
fl_status fl_mpi_all_gather(fl_group *group, void *out, const int64_t *counts, const int64_t *starts, const void *in,
                            fl_dtype dtype);
fl_status fl_mpi_reduce_scatter(fl_group *group, void *out, const int64_t *counts, const void *in, fl_dtype dtype,
                                fl_reduce reduce);
fl_status fl_mpi_all_to_all(fl_group *group, void *out, const int64_t *out_counts, const int64_t *out_starts,
                            const void *in, const int64_t *in_counts, const int64_t *in_starts, fl_dtype dtype);

/* ---- messages between two ranks (message.c): see fl_comm ---- */

fl_status fl_mpi_send(void **request, int to, const void *data, size_t bytes);
fl_status fl_mpi_receive(void **request, int from, void *data, size_t bytes);
fl_status fl_mpi_find(int *from, size_t *bytes, bool *found);
fl_status fl_mpi_test(bool *done, void **request);
void fl_mpi_drop(void **request);

/* ---- by messages between pairs, in pieces (pairs.c) ---- */

/* The elements sent to and received from every member. */
typedef struct fl_mpi_pairs {
    const char *in;
    const int64_t *in_counts, *in_starts;
    char *out;
    const int64_t *out_counts, *out_starts;
    fl_dtype dtype;
} fl_mpi_pairs;

/* Elements that one MPI call may count: FLOW_MPI_LIMIT, else 2^31 - 1. */
int64_t fl_mpi_limit(void);

fl_status fl_mpi_exchange(fl_group *group, const fl_mpi_pairs *pairs);

/* Adds up what all members have at [starts[me], starts[me] + counts[me]) into out, in the order of the members; out may
** be that place of in. */
fl_status fl_mpi_reduce(fl_group *group, void *out, const void *in, const int64_t *counts, const int64_t *starts,
                        fl_dtype dtype, fl_reduce reduce);

#endif

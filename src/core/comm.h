/*
** comm.h -- collectives over a group of ranks: a table of functions that a transport fills.
**
** World size 1 has no transport: collectives of one rank do nothing and are never asked for. In the dry
** world asking is an error. Buffers are this rank's; counts and displacements in elements.
*/
#ifndef FL_COMM_H
#define FL_COMM_H

#include "dtype.h"
#include "placement.h"
#include "status.h"

typedef enum fl_reduce { FL_REDUCE_SUM, FL_REDUCE_MAX, FL_REDUCE_MIN } fl_reduce;

typedef struct fl_group {
    int count;
    const int *ranks;       /* world ranks, in the order of the placement */
} fl_group;

typedef struct fl_comm {
    const char *name;       /* "mpi", "nccl" */
    fl_status (*all_reduce)(void *data, int64_t count, fl_dtype dtype, fl_reduce reduce, const fl_group *group);
    fl_status (*all_gather)(void *out, const int64_t *counts, const int64_t *starts, const void *in, int64_t count, fl_dtype dtype, const fl_group *group);
    fl_status (*reduce_scatter)(void *out, const int64_t *counts, const void *in, fl_dtype dtype, fl_reduce reduce, const fl_group *group);
    fl_status (*all_to_all)(void *out, const int64_t *out_counts, const int64_t *out_starts, const void *in, const int64_t *in_counts, const int64_t *in_starts, fl_dtype dtype, const fl_group *group);
    fl_status (*broadcast)(void *data, int64_t count, fl_dtype dtype, int root, const fl_group *group);
    fl_status (*barrier)(const fl_group *group);
} fl_comm;

/* The transport of this process, NULL when there is none. */
const fl_comm *fl_comm_get(void);

/* Called by a transport when it is ready; borrowed, NULL when it goes away. */
void fl_comm_register(const fl_comm *comm);

#endif

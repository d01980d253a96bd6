/*
** group.c -- communicators of groups, and waiting for MPI's requests.
**
** A group gets its communicator when all its members are there, and keeps it until the end: nothing that runs late
** (caches, finalizers) ever communicates.
*/
#include "internal.h"

#include <stdlib.h>

MPI_Comm fl_mpi_messages = MPI_COMM_NULL;
int fl_mpi_message_tag = 32767; /* the least maximum of the standard */
static bool given_up;

/* ---- groups ---- */

fl_status fl_mpi_groups_init(MPI_Comm ranks)
{
    int *value, found;
    MPI_TRY(MPI_Comm_dup, (ranks, &fl_mpi_messages));
    MPI_TRY(MPI_Comm_set_errhandler, (fl_mpi_messages, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_get_attr, (fl_mpi_messages, MPI_TAG_UB, &value, &found));
    if (found) fl_mpi_message_tag = *value;
    return FL_OK;
}

fl_status fl_mpi_handle(fl_mpi_group **out, fl_group *group)
{
    *out = group->handle;
    if (*out) return FL_OK;
    fl_mpi_group *h = calloc(1, sizeof *h);
    if (!h) return fl_fail(FL_ERR_MEMORY, "mpi: out of memory for a group of %d ranks", group->count);
    h->comm = MPI_COMM_NULL;
    h->tag = (int)(group->hash % (uint64_t)(fl_mpi_message_tag / 2)) * 2;
    group->handle = *out = h;
    return FL_OK;
}

fl_status fl_mpi_open(fl_group *group)
{
    fl_mpi_group *h;
    MPI_Group world, members;
    FL_TRY(fl_mpi_usable());
    FL_TRY(fl_mpi_handle(&h, group));
    if (h->comm != MPI_COMM_NULL) return FL_OK;
    MPI_TRY(MPI_Comm_group, (fl_mpi_messages, &world));
    MPI_TRY(MPI_Group_incl, (world, group->count, group->ranks, &members));
    MPI_TRY(MPI_Comm_create_group, (fl_mpi_messages, members, h->tag, &h->comm));
    MPI_TRY(MPI_Comm_set_errhandler, (h->comm, MPI_ERRORS_RETURN));
    MPI_Group_free(&members);
    MPI_Group_free(&world);
    return FL_OK;
}

/* ---- waiting ---- */

enum { TESTS_PER_STEP = 16 }; /* polls of the network between two readings of the clock */

fl_status fl_mpi_usable(void)
{
    return given_up ? fl_fail(FL_ERR_COMM, "mpi: an earlier transfer did not finish; no more data can be sent") : FL_OK;
}

fl_status fl_mpi_wait(const fl_group *group, MPI_Request *requests, int count)
{
    fl_wait wait = {.group = group, .flags = FL_WAIT_DATA};
    for (;;) {
        for (int i = 0, done = 0; i < TESTS_PER_STEP; i++) {
            MPI_TRY(MPI_Testall, (count, requests, &done, MPI_STATUSES_IGNORE));
            if (done) return FL_OK;
        }
        fl_status status = fl_wait_step(&wait);
        if (status != FL_OK) {
            given_up = true; /* from now on fl_mpi_usable is an error */
            return status;
        }
    }
}

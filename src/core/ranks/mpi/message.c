/*
** message.c -- messages between two ranks: the pieces that core's message.c puts together.
**
** They travel on the duplicate of the world, behind a tag that no group uses.
*/
#include "internal.h"

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits where the caller keeps it");

static MPI_Request load(void *const *request)
{
    MPI_Request r;
    memcpy(&r, request, sizeof r);
    return r;
}

static void store(void **request, MPI_Request r) { memcpy(request, &r, sizeof r); }

fl_status fl_mpi_send(void **request, int to, const void *data, size_t bytes)
{
    MPI_Request r;
    FL_TRY(fl_mpi_usable());
    MPI_TRY(MPI_Isend, (data, (int)bytes, MPI_BYTE, to, fl_mpi_message_tag, fl_mpi_messages, &r));
    store(request, r);
    return FL_OK;
}

fl_status fl_mpi_receive(void **request, int from, void *data, size_t bytes)
{
    MPI_Request r;
    FL_TRY(fl_mpi_usable());
    MPI_TRY(MPI_Irecv, (data, (int)bytes, MPI_BYTE, from, fl_mpi_message_tag, fl_mpi_messages, &r));
    store(request, r);
    return FL_OK;
}

fl_status fl_mpi_find(int *from, size_t *bytes, bool *found)
{
    MPI_Status status;
    int there, size;
    FL_TRY(fl_mpi_usable());
    MPI_TRY(MPI_Iprobe, (*from < 0 ? MPI_ANY_SOURCE : *from, fl_mpi_message_tag, fl_mpi_messages, &there, &status));
    *found = there;
    if (!there) return FL_OK;
    MPI_TRY(MPI_Get_count, (&status, MPI_BYTE, &size));
    *from = status.MPI_SOURCE;
    *bytes = (size_t)size;
    return FL_OK;
}

fl_status fl_mpi_test(bool *done, void **request)
{
    MPI_Request r = load(request);
    int there;
    MPI_TRY(MPI_Test, (&r, &there, MPI_STATUS_IGNORE));
    store(request, r);
    *done = there;
    return FL_OK;
}

/* Cancels and releases a request; one that cannot be cancelled is left to MPI. */
void fl_mpi_drop(void **request)
{
    MPI_Request r = load(request);
    if (r == MPI_REQUEST_NULL) return;
    MPI_Cancel(&r);
    MPI_Request_free(&r);
    store(request, MPI_REQUEST_NULL);
}

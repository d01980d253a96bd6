/*
** start.c -- joining and leaving an Open MPI job.
**
** MPI is called by one thread at a time: the script's thread at the start and at the end, the communication lane in
** between. Errors come back as codes; only MPI_Abort ends a job.
*/
#include "base/plugin.h"
#include "ranks/launch.h"
#include "internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FL_PLUGIN

fl_status fl_mpi_fail(const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return fl_fail(FL_ERR_COMM, "mpi: %s: %s", call, text);
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

/* Open MPI looks for networks at its start: 0.2 s for nothing when all ranks share a host. What the user chose
** counts. */
static void choose_components(void)
{
    static const char *const choices[] = {"OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl"};
    const char *all = getenv("OMPI_COMM_WORLD_SIZE"), *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (!all || !here || strcmp(all, here) != 0) return;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (is_set(choices[i])) return;
    setenv("OMPI_MCA_pml", "ob1", 1);
    setenv("OMPI_MCA_btl", OMPI_MAJOR_VERSION < 5 ? "self,vader" : "self,sm", 1);
}

static fl_status gather(void *all, const void *mine, size_t bytes)
{
    MPI_TRY(MPI_Allgather, (mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD));
    return FL_OK;
}

/* What MPI_Abort does after it has printed words of its own, where this Open MPI lets others call it. */
int ompi_mpi_abort(MPI_Comm comm, int code) __attribute__((weak));

enum { ABORT_SECONDS = 2 };

/* A rank that cannot even report its end is ended by its alarm. */
static void abort_job(int code)
{
    signal(SIGALRM, SIG_DFL);
    alarm(ABORT_SECONDS);
    if (ompi_mpi_abort) ompi_mpi_abort(MPI_COMM_WORLD, code);
    MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}

enum { FINISH_NAP_MOST = 5000 }; /* microseconds */

/* The ranks meet before they finalize: mpirun may hang when the job is aborted while a rank waits in MPI_Finalize (PMIx
** 4.2 locks a mutex twice), and such a rank would use a core. */
static void finish(void)
{
    MPI_Request all;
    int there = MPI_Ibarrier(fl_mpi_messages, &all) != MPI_SUCCESS;
    for (useconds_t back_off = 20; !there; back_off += back_off < FINISH_NAP_MOST ? back_off / 8 : 0) {
        if (MPI_Test(&all, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
        if (!there) usleep(back_off);
    }
    MPI_Finalize();
}

static const fl_comm comm = {
    .name = "mpi",
    .open = fl_mpi_open,
    .meet = fl_mpi_meet,
    .all_reduce = fl_mpi_all_reduce,
    .all_gather = fl_mpi_all_gather,
    .reduce_scatter = fl_mpi_reduce_scatter,
    .all_to_all = fl_mpi_all_to_all,
    .reset = fl_mpi_reset,
    .abort = abort_job,
    .finish = finish,
};

FL_EXPORT fl_status fl_transport_start(fl_transport *out)
{
    int level;
    choose_components();
    setenv("OMPI_MCA_opal_signal", "", 1); /* crashes are reported by failure.c */
    MPI_TRY(MPI_Init_thread, (NULL, NULL, MPI_THREAD_SERIALIZED, &level));
    MPI_TRY(MPI_Comm_set_errhandler, (MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_size, (MPI_COMM_WORLD, &out->size));
    MPI_TRY(MPI_Comm_rank, (MPI_COMM_WORLD, &out->rank));
    FL_TRY(fl_mpi_groups_init());
    out->comm = &comm;
    out->gather = gather;
    return level >= MPI_THREAD_SERIALIZED
        ? FL_OK
        : fl_fail(FL_ERR_COMM, "mpi: this Open MPI was built without support for threads");
}

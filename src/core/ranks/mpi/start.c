/*
** start.c -- joining and leaving an Open MPI job.
**
** MPI is called by one thread at a time: the script's thread at the start and at the end, the communication lane in
** between. Errors come back as codes; only MPI_Abort ends a job. A host that has begun MPI itself keeps it: its
** communicator is duplicated and it ends MPI; where it lets one thread call, the communication lane has none.
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

/* Open MPI looks for networks at its start: 0.2 s for nothing when all ranks share a host. The user's own choice takes
** precedence. */
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

static bool begun_here; /* MPI, by this file */

static fl_status gather(void *all, const void *mine, size_t bytes)
{
    MPI_TRY(MPI_Allgather, (mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, fl_mpi_messages));
    return FL_OK;
}

/* The part of MPI_Abort after it has printed its own words, if this Open MPI exports it. */
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

enum { FINISH_BACK_OFF_MOST = 5000 }; /* microseconds */

/* The ranks meet before they finalize: mpirun may hang when the job is aborted while a rank waits in MPI_Finalize (PMIx
** 4.2 locks a mutex twice), and such a rank would use a core. */
static void finish(void)
{
    MPI_Request all;
    int over = 0;
    MPI_Finalized(&over);
    if (over || !begun_here) return;
    int there = MPI_Ibarrier(fl_mpi_messages, &all) != MPI_SUCCESS;
    for (useconds_t back_off = 20; !there; back_off += back_off < FINISH_BACK_OFF_MOST ? back_off / 8 : 0) {
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
    .send = fl_mpi_send,
    .receive = fl_mpi_receive,
    .find = fl_mpi_find,
    .test = fl_mpi_test,
    .drop = fl_mpi_drop,
    .reset = fl_mpi_reset,
    .abort = abort_job,
    .finish = finish,
};

/* MPI as the host has begun it, or begun now; *level: the level of thread support. */
static fl_status begin(int *level, const void *host_comm)
{
    int already = 0, over = 0;
    MPI_TRY(MPI_Initialized, (&already));
    MPI_TRY(MPI_Finalized, (&over));
    if (over) return fl_fail(FL_ERR_COMM, "mpi: it was ended in this process, and cannot be begun again");
    if (already) {
        MPI_TRY(MPI_Query_thread, (level));
        return FL_OK;
    }
    if (host_comm) return fl_fail(FL_ERR_COMM, "mpi: a communicator was given, but MPI_Init was not called");
    choose_components();
    setenv("OMPI_MCA_opal_signal", "", 1); /* crashes are reported by failure.c */
    MPI_TRY(MPI_Init_thread, (NULL, NULL, MPI_THREAD_SERIALIZED, level));
    begun_here = true;
    return *level >= MPI_THREAD_SERIALIZED
        ? FL_OK
        : fl_fail(FL_ERR_COMM, "mpi: this Open MPI was built without support for threads");
}

/* The processes of `comm` are the ranks; those of an earlier call are, when it is not the first one. */
static fl_status take_ranks(MPI_Comm ranks)
{
    int between = 0, like;
    if (ranks == MPI_COMM_NULL) return fl_fail(FL_ERR_COMM, "mpi: the communicator is MPI_COMM_NULL");
    MPI_TRY(MPI_Comm_test_inter, (ranks, &between));
    if (between) return fl_fail(FL_ERR_COMM, "mpi: the communicator is one between two groups");
    if (fl_mpi_messages == MPI_COMM_NULL) return fl_mpi_groups_init(ranks);
    MPI_TRY(MPI_Comm_compare, (ranks, fl_mpi_messages, &like));
    return like == MPI_IDENT || like == MPI_CONGRUENT
        ? FL_OK
        : fl_fail(FL_ERR_COMM, "mpi: this process has joined other ranks before, and stays one of them");
}

FL_EXPORT fl_status fl_transport_start(fl_transport *out)
{
    int level;
    FL_TRY(begin(&level, out->host_comm));
    if (begun_here) MPI_TRY(MPI_Comm_set_errhandler, (MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    FL_TRY(take_ranks(out->host_comm ? *(const MPI_Comm *)out->host_comm : MPI_COMM_WORLD));
    MPI_TRY(MPI_Comm_size, (fl_mpi_messages, &out->size));
    MPI_TRY(MPI_Comm_rank, (fl_mpi_messages, &out->rank));
    out->one_thread = !begun_here && level < MPI_THREAD_MULTIPLE;
    out->comm = &comm;
    out->gather = gather;
    return FL_OK;
}

/*
** launch.h -- a process that is one of several ranks joins them at its start and leaves them at its end.
**
** A launcher (mpirun) starts every rank with its place in the environment. The transport's plug-in is opened only then.
** Settings that equal results need are agreed on here: threads, CPU level, seed, shared memory.
*/
#ifndef FL_LAUNCH_H
#define FL_LAUNCH_H

#include "comm.h"

/* The interface of a transport's plug-in when it has joined the job. */
typedef struct fl_transport {
    const void *host_comm; /* given: the host's MPI_Comm; NULL: all that were launched */
    int size, rank;
    bool one_thread; /* it may be called only where the host calls */
    const fl_comm *comm;
    fl_status (*gather)(void *all, const void *mine,
                        size_t bytes); /* `bytes` of every rank, in order; during the start only */
} fl_transport;

/* The entry point of the plug-in, of type fl_transport_entry: called once, before any tensor exists. */
#define FL_TRANSPORT_ENTRY "fl_transport_start"
typedef fl_status (*fl_transport_entry)(fl_transport *out);

/* True if this process belongs to a job of a launcher, as a rank or as a program that a rank started. *ranks (may be
** NULL): number of ranks that the launcher started; 0 if only the transport can find out. */
bool fl_launched(int *ranks);

/* The process that started this rank: mpirun, or its daemon on another host. */
int fl_launcher(void);

/* Joins the other ranks: world, cores, threads, CPU level, seed, shared memory. Nothing happens when the process was
** not launched, alone, in a dry world, or when a rank started it (io.popen "flowlua ..."): such a program runs alone.
** Called once, before any tensor exists and before the team or the engine is used. */
fl_status fl_launch_join(void);

/* The same in a host's process, whose cores, streams and signals are left alone. comm: the host's MPI_Comm, whose
** processes are the ranks; NULL: all that the launcher started. chose_threads: the team keeps the size that the host
** chose; else it gets as many threads as the rank has cores. Error: a launcher started several processes that cannot be
** joined; Open MPI is not what the host uses. May be called again after fl_launch_leave_host, for the same ranks. */
fl_status fl_launch_join_host(const void *comm, bool chose_threads);

/* The same for all that the launcher started, for a module that a script loads into its host: where the launcher's
** processes cannot be joined, a warning is printed and this one runs alone. */
fl_status fl_launch_join_module(void);

/* This rank enters no collective any more. MPI is ended if it was begun here. */
void fl_launch_leave_host(void);

/* The script has ended well on this rank: waits for the others. */
void fl_launch_leave(void);

#endif

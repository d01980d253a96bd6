/*
** internal.h -- what the files of the MPI transport share. Only these files include mpi.h.
*/
#ifndef FL_MPI_INTERNAL_H
#define FL_MPI_INTERNAL_H

#include "../comm.h"

#include <mpi.h>

/* Words the failure of an MPI call: "mpi: MPI_Iallreduce: MPI_ERR_COUNT: invalid count argument". */
fl_status fl_mpi_fail(const char *call, int code);

#define MPI_TRY(call, arguments)                                                \
    do {                                                                        \
        int code_ = call arguments;                                             \
        if (FL_UNLIKELY(code_ != MPI_SUCCESS)) return fl_mpi_fail(#call, code_); \
    } while (0)

#endif

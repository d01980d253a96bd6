/*
** collective.c -- the collectives of a group: MPI's own where they do it well, messages between pairs otherwise.
**
** Which of the two is decided by counts that all members know, so all of them decide alike. What is sent to whom in an
** all-to-all only the two know: it always goes between pairs, and nothing is sent where there is nothing.
*/
#include "../cpu/combine.h"
#include "internal.h"

#include <stdlib.h>

/* From here on MPI's in-place reductions, which go through one rank, lose to pieces exchanged between all. */
enum { LARGE_BYTES = 1 << 20 };

/* ---- what MPI can do ---- */

static int64_t sum_of(const int64_t *counts, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += counts[i];
    return sum;
}

static bool is_half(fl_dtype dtype) { return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16; }

static bool mpi_reduces(int64_t count, fl_dtype dtype)
{
    return count <= fl_mpi_limit() && !is_half(dtype) && count * (int64_t)fl_dtype_size(dtype) < LARGE_BYTES;
}

/* ---- types and operations ---- */

/* A type of its own for every dtype that MPI reduces, so that an operation can tell them apart. */
static MPI_Datatype number_type(fl_dtype dtype)
{
    switch (dtype) {
    case FL_BOOL: return MPI_C_BOOL;
    case FL_UINT8: return MPI_UINT8_T;
    case FL_INT8: return MPI_INT8_T;
    case FL_INT32: return MPI_INT32_T;
    case FL_INT64: return MPI_INT64_T;
    case FL_FLOAT32: return MPI_FLOAT;
    default: return MPI_DOUBLE;
    }
}

static void combine(void *in, void *in_out, int count, MPI_Datatype type, fl_reduce reduce)
{
    const void *ins[] = {in, in_out};
    fl_dtype dtype = FL_BOOL;
    while (is_half(dtype) || number_type(dtype) != type) dtype++;
    fl_cpu_combine(dtype)(&in_out, 1, ins, 2, count, reduce, false);
}

static void op_sum(void *in, void *in_out, int *count, MPI_Datatype *type) { combine(in, in_out, *count, *type, FL_REDUCE_SUM); }
static void op_max(void *in, void *in_out, int *count, MPI_Datatype *type) { combine(in, in_out, *count, *type, FL_REDUCE_MAX); }
static void op_min(void *in, void *in_out, int *count, MPI_Datatype *type) { combine(in, in_out, *count, *type, FL_REDUCE_MIN); }
static void op_prod(void *in, void *in_out, int *count, MPI_Datatype *type) { combine(in, in_out, *count, *type, FL_REDUCE_PROD); }

/* Our own, because MPI's do otherwise than the kernels: whether a NaN wins is not defined there, and Open MPI's sums of
** 8-bit numbers stop at the highest where they should wrap. */
static fl_status operation(MPI_Op *out, fl_reduce reduce)
{
    static MPI_User_function *const functions[] = {
        [FL_REDUCE_SUM] = op_sum, [FL_REDUCE_MAX] = op_max, [FL_REDUCE_MIN] = op_min, [FL_REDUCE_PROD] = op_prod};
    static MPI_Op made[sizeof functions / sizeof *functions];
    static bool is_made[sizeof functions / sizeof *functions];
    if (!is_made[reduce]) MPI_TRY(MPI_Op_create, (functions[reduce], 1, &made[reduce]));
    is_made[reduce] = true;
    *out = made[reduce];
    return FL_OK;
}

/* ---- counts as MPI wants them ---- */

typedef struct int_lists { int *counts, *starts; } int_lists;

static fl_status to_ints(int_lists *out, const int64_t *counts, const int64_t *starts, int n)
{
    out->counts = malloc(2 * (size_t)n * sizeof(int));
    if (!out->counts) return fl_fail(FL_ERR_MEMORY, "mpi: out of memory for the counts of %d ranks", n);
    out->starts = out->counts + n;
    for (int i = 0; i < n; i++) {
        out->counts[i] = (int)counts[i];
        out->starts[i] = (int)starts[i];
    }
    return FL_OK;
}

/* MPI may look at the lists as long as the call is under way. */
static fl_status wait_and_free(const fl_group *g, MPI_Request request, int code, const char *call, int *lists)
{
    if (code != MPI_SUCCESS) return fl_mpi_fail(call, code);
    FL_TRY(fl_mpi_wait(g, &request, 1));
    free(lists);
    return FL_OK;
}

static MPI_Comm comm_of(const fl_group *g) { return ((fl_mpi_group *)g->handle)->comm; }

/* ---- the collectives ---- */

/* Balanced shares of count elements: what each member adds up. */
static void shares(int64_t *counts, int64_t *starts, int64_t count, int members)
{
    for (int i = 0; i < members; i++) {
        starts[i] = count / members * i + (count % members < i ? count % members : i);
        counts[i] = count / members + (i < count % members);
    }
}

/* Every member adds up its share, then all shares go to all. */
static fl_status all_reduce_pairs(fl_group *g, char *data, int64_t count, fl_dtype dtype, fl_reduce reduce)
{
    int64_t counts[g->count], starts[g->count], same_counts[g->count], same_starts[g->count];
    shares(counts, starts, count, g->count);
    FL_TRY(fl_mpi_reduce(g, data + starts[g->me] * (int64_t)fl_dtype_size(dtype), data, counts, starts, dtype, reduce));
    for (int i = 0; i < g->count; i++) {
        same_counts[i] = counts[g->me];
        same_starts[i] = starts[g->me];
    }
    fl_mpi_pairs p = {.in = data, .in_counts = same_counts, .in_starts = same_starts, .out = data, .out_counts = counts, .out_starts = starts, .dtype = dtype};
    return fl_mpi_exchange(g, &p);
}

fl_status fl_mpi_all_reduce(fl_group *g, void *data, int64_t count, fl_dtype dtype, fl_reduce reduce)
{
    MPI_Request request;
    MPI_Op op;
    FL_TRY(fl_mpi_open(g));
    if (count == 0) return FL_OK;
    if (!mpi_reduces(count, dtype)) return all_reduce_pairs(g, data, count, dtype, reduce);
    FL_TRY(operation(&op, reduce));
    MPI_TRY(MPI_Iallreduce, (MPI_IN_PLACE, data, (int)count, number_type(dtype), op, comm_of(g), &request));
    return fl_mpi_wait(g, &request, 1);
}

fl_status fl_mpi_all_gather(fl_group *g, void *out, const int64_t *counts, const int64_t *starts, const void *in, fl_dtype dtype)
{
    FL_TRY(fl_mpi_open(g));
    if (sum_of(counts, g->count) > fl_mpi_limit()) {
        int64_t same[g->count], none[g->count];
        for (int i = 0; i < g->count; i++) {
            same[i] = counts[g->me];
            none[i] = 0;
        }
        return fl_mpi_exchange(g, &(fl_mpi_pairs){.in = in, .in_counts = same, .in_starts = none, .out = out, .out_counts = counts,
                                                  .out_starts = starts, .dtype = dtype});
    }
    MPI_Request request;
    MPI_Datatype type = fl_mpi_element(dtype);
    int_lists l;
    FL_TRY(to_ints(&l, counts, starts, g->count));
    int code = MPI_Iallgatherv(in, l.counts[g->me], type, out, l.counts, l.starts, type, comm_of(g), &request);
    return wait_and_free(g, request, code, "MPI_Iallgatherv", l.counts);
}

fl_status fl_mpi_reduce_scatter(fl_group *g, void *out, const int64_t *counts, const void *in, fl_dtype dtype, fl_reduce reduce)
{
    int64_t starts[g->count];
    FL_TRY(fl_mpi_open(g));
    for (int i = 0; i < g->count; i++) starts[i] = sum_of(counts, i);
    if (!mpi_reduces(sum_of(counts, g->count), dtype)) return fl_mpi_reduce(g, out, in, counts, starts, dtype, reduce);
    MPI_Request request;
    MPI_Op op;
    int_lists l;
    FL_TRY(operation(&op, reduce));
    FL_TRY(to_ints(&l, counts, starts, g->count));
    int code = MPI_Ireduce_scatter(in, out, l.counts, number_type(dtype), op, comm_of(g), &request);
    return wait_and_free(g, request, code, "MPI_Ireduce_scatter", l.counts);
}

fl_status fl_mpi_all_to_all(fl_group *g, void *out, const int64_t *out_counts, const int64_t *out_starts, const void *in, const int64_t *in_counts, const int64_t *in_starts, fl_dtype dtype)
{
    return fl_mpi_exchange(g, &(fl_mpi_pairs){in, in_counts, in_starts, out, out_counts, out_starts, dtype});
}

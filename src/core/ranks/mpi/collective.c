/*
** collective.c -- the collectives of a group: small reductions by MPI, all else by messages between pairs.
**
** The choice depends on counts that are the same on all members, so all of them decide alike. MPI's
** non-blocking gathers are messages between pairs as well, and of an all-to-all between pairs nothing is sent where
** there is nothing.
*/
#include "cpu/combine.h"
#include "internal.h"

/* Bytes for each pair from which on messages between all pairs are faster than MPI's non-blocking reductions, which
** bring everything to one rank first (2 and 4 ranks on one host: equal at 16 KiB, 2.5 times at 4 MiB). */
enum { PAIR_BYTES = 32 << 10 };

/* ---- capabilities of MPI ---- */

static int64_t sum_of(const int64_t *counts, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += counts[i];
    return sum;
}

static bool is_half(fl_dtype dtype) { return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16; }

/* True if MPI reduces `count` elements over `members` ranks. Its order of the members is unspecified, which matters in
** a sum of floats. */
static bool mpi_reduces(int64_t count, fl_dtype dtype, int members, fl_reduce reduce)
{
    bool ordered = fl_dtype_is_float(dtype) && members > 2 && (reduce == FL_REDUCE_SUM || reduce == FL_REDUCE_PROD);
    return !ordered && count <= fl_mpi_limit() && !is_half(dtype)
        && count / members * (int64_t)fl_dtype_size(dtype) < PAIR_BYTES;
}

/* ---- types and operations ---- */

/* A type of its own for every dtype that MPI reduces, so that an operation can distinguish them. */
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

static void op_sum(void *in, void *in_out, int *count, MPI_Datatype *type)
{
    combine(in, in_out, *count, *type, FL_REDUCE_SUM);
}
static void op_max(void *in, void *in_out, int *count, MPI_Datatype *type)
{
    combine(in, in_out, *count, *type, FL_REDUCE_MAX);
}
static void op_min(void *in, void *in_out, int *count, MPI_Datatype *type)
{
    combine(in, in_out, *count, *type, FL_REDUCE_MIN);
}
static void op_prod(void *in, void *in_out, int *count, MPI_Datatype *type)
{
    combine(in, in_out, *count, *type, FL_REDUCE_PROD);
}

/* Our own, because MPI's differ from the kernels: the result for a NaN is not defined there, and Open MPI's sums of
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

/* ---- the collectives ---- */

static MPI_Comm comm_of(const fl_group *group) { return ((fl_mpi_group *)group->handle)->comm; }

/* Every member adds up its share, then all shares go to all. */
static fl_status all_reduce_pairs(fl_group *group, char *data, int64_t count, fl_dtype dtype, fl_reduce reduce)
{
    int64_t counts[group->count], starts[group->count], same_counts[group->count], same_starts[group->count];
    for (int i = 0; i < group->count; i++) fl_split(&starts[i], &counts[i], count, group->count, i);
    FL_TRY(fl_mpi_reduce(group, data + starts[group->me] * (int64_t)fl_dtype_size(dtype), data, counts, starts, dtype,
                         reduce));
    for (int i = 0; i < group->count; i++) {
        same_counts[i] = counts[group->me];
        same_starts[i] = starts[group->me];
    }
    fl_mpi_pairs p = {.in = data,
                      .in_counts = same_counts,
                      .in_starts = same_starts,
                      .out = data,
                      .out_counts = counts,
                      .out_starts = starts,
                      .dtype = dtype};
    return fl_mpi_exchange(group, &p);
}

fl_status fl_mpi_all_reduce(fl_group *group, void *data, int64_t count, fl_dtype dtype, fl_reduce reduce)
{
    MPI_Request request;
    MPI_Op op;
    FL_TRY(fl_mpi_open(group));
    if (count == 0) return FL_OK;
    if (!mpi_reduces(count, dtype, group->count, reduce)) return all_reduce_pairs(group, data, count, dtype, reduce);
    FL_TRY(operation(&op, reduce));
    MPI_TRY(MPI_Iallreduce, (MPI_IN_PLACE, data, (int)count, number_type(dtype), op, comm_of(group), &request));
    return fl_mpi_wait(group, &request, 1);
}

fl_status fl_mpi_all_gather(fl_group *group, void *out, const int64_t *counts, const int64_t *starts, const void *in,
                            fl_dtype dtype)
{
    int64_t same[group->count], none[group->count];
    for (int i = 0; i < group->count; i++) {
        same[i] = counts[group->me];
        none[i] = 0;
    }
    return fl_mpi_exchange(group, &(fl_mpi_pairs){in, same, none, out, counts, starts, dtype});
}

fl_status fl_mpi_reduce_scatter(fl_group *group, void *out, const int64_t *counts, const void *in, fl_dtype dtype,
                                fl_reduce reduce)
{
    int64_t starts[group->count];
    FL_TRY(fl_mpi_open(group));
    for (int i = 0; i < group->count; i++) starts[i] = sum_of(counts, i);
    if (!mpi_reduces(sum_of(counts, group->count), dtype, group->count, reduce))
        return fl_mpi_reduce(group, out, in, counts, starts, dtype, reduce);
    MPI_Request request;
    MPI_Op op;
    int whole_counts[group->count];
    for (int i = 0; i < group->count; i++) whole_counts[i] = (int)counts[i];
    FL_TRY(operation(&op, reduce));
    MPI_TRY(MPI_Ireduce_scatter, (in, out, whole_counts, number_type(dtype), op, comm_of(group), &request));
    return fl_mpi_wait(group, &request, 1);
}

fl_status fl_mpi_all_to_all(fl_group *group, void *out, const int64_t *out_counts, const int64_t *out_starts,
                            const void *in, const int64_t *in_counts, const int64_t *in_starts, fl_dtype dtype)
{
    return fl_mpi_exchange(group, &(fl_mpi_pairs){in, in_counts, in_starts, out, out_counts, out_starts, dtype});
}

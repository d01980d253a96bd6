/*
** pairs.c -- collectives made of messages between pairs, in pieces.
**
** Counts beyond 2^31 - 1 elements are pieces like any other, and float16 and bfloat16 are added up in float32 and
** rounded once. Every pair moves the same pieces in the same order and no rank starts a round before its own last one
** is done, so two rounds are never mixed up.
*/
#include "cpu/combine.h"
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXCHANGE_BYTES = 64 << 20, REDUCE_BYTES = 512 << 10, STAGE_BYTES = 16 << 20, REDUCE_LEAST = 4 << 10 };

int64_t fl_mpi_limit(void)
{
    static int64_t limit;
    if (limit) return limit;
    const char *text = getenv("FLOW_MPI_LIMIT");
    char *end;
    limit = INT_MAX;
    if (!text || !*text) return limit;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (!*end && !errno && n >= 1 && n <= INT_MAX) limit = n;
    else fl_warn("FLOW_MPI_LIMIT=%s is no number of elements from 1 to %d; using %d", text, INT_MAX, INT_MAX);
    return limit;
}

/* The type that moves an element of a dtype. */
static MPI_Datatype element_type(fl_dtype dtype)
{
    switch (fl_dtype_size(dtype)) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    default: return MPI_UINT64_T;
    }
}

/* ---- messages of one round ---- */

struct round {
    fl_group *group;
    fl_mpi_group *handle;
    MPI_Datatype type;
    int64_t item, piece, at; /* bytes of an element, elements of a piece, elements done before */
    int count;               /* requests so far */
    MPI_Request *requests;
};

/* The part of `count` elements that this round moves. */
static int in_round(const struct round *round, int64_t count)
{
    int64_t left = count - round->at;
    return (int)(left < 0 ? 0 : left < round->piece ? left : round->piece);
}

static fl_status receive(struct round *round, int from, void *data, int64_t count)
{
    int n = in_round(round, count);
    if (n) MPI_TRY(MPI_Irecv, (data, n, round->type, from, 0, round->handle->comm, &round->requests[round->count++]));
    return FL_OK;
}

/* data: of all rounds */
static fl_status send(struct round *round, int to, const char *data, int64_t count)
{
    int n = in_round(round, count);
    if (n)
        MPI_TRY(MPI_Isend,
                (data + round->at * round->item, n, round->type, to, 0, round->handle->comm,
                 &round->requests[round->count++]));
    return FL_OK;
}

static fl_status round_open(struct round *round, fl_group *group, fl_dtype dtype, int64_t piece_bytes)
{
    int64_t item = (int64_t)fl_dtype_size(dtype), piece = piece_bytes / item, limit = fl_mpi_limit();
    FL_TRY(fl_mpi_open(group));
    *round = (struct round){.group = group,
                            .handle = group->handle,
                            .type = element_type(dtype),
                            .item = item,
                            .piece = piece < limit ? piece : limit};
    round->requests = malloc(2 * (size_t)group->count * sizeof *round->requests);
    return round->requests ? FL_OK
                           : fl_fail(FL_ERR_MEMORY, "mpi: out of memory for the messages of %d ranks", group->count);
}

/* Ends a round and prepares the next. */
static fl_status round_wait(struct round *round)
{
    FL_TRY(fl_mpi_wait(round->group, round->requests, round->count));
    round->count = 0;
    round->at += round->piece;
    return FL_OK;
}

/* Requests that are under way keep their memory. */
static fl_status round_close(struct round *round, fl_status status)
{
    if (status == FL_OK) free(round->requests);
    return status;
}

static int64_t largest(const int64_t *counts, int n)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++) most = counts[i] > most ? counts[i] : most;
    return most;
}

/* ---- exchange ---- */

static fl_status exchange_round(struct round *round, const fl_mpi_pairs *pairs)
{
    int n = round->group->count, me = round->group->me;
    for (int k = 1; k < n; k++) {
        int from = (me - k + n) % n;
        FL_TRY(receive(round, from, pairs->out + (pairs->out_starts[from] + round->at) * round->item,
                       pairs->out_counts[from]));
    }
    for (int k = 1; k < n; k++) {
        int to = (me + k) % n;
        FL_TRY(send(round, to, pairs->in + pairs->in_starts[to] * round->item, pairs->in_counts[to]));
    }
    return round_wait(round);
}

fl_status fl_mpi_exchange(fl_group *group, const fl_mpi_pairs *pairs)
{
    struct round r;
    int me = group->me;
    int64_t out_most = largest(pairs->out_counts, group->count), in_most = largest(pairs->in_counts, group->count);
    int64_t most = out_most > in_most ? out_most : in_most;
    fl_status status = FL_OK;
    FL_TRY(round_open(&r, group, pairs->dtype, EXCHANGE_BYTES));
    char *out = pairs->out + pairs->out_starts[me] * r.item;
    const char *in = pairs->in + pairs->in_starts[me] * r.item;
    if (out != in && pairs->in_counts[me]) memcpy(out, in, (size_t)(pairs->in_counts[me] * r.item));
    while (status == FL_OK && r.at < most) status = exchange_round(&r, pairs);
    return round_close(&r, status);
}

/* ---- reductions ---- */

/* The buffer for pieces of the others: kept, because the next reduction needs it again. */
static char *stage(size_t bytes)
{
    static char *memory;
    static size_t size;
    if (bytes <= size) return memory;
    free(memory);
    memory = malloc(bytes);
    size = memory ? bytes : 0;
    return memory;
}

struct reduction {
    char *out, *staged;
    const char *in;
    const int64_t *counts, *starts;
    fl_combine_fn combine;
    fl_reduce reduce;
};

static fl_status reduce_round(struct round *round, const struct reduction *reduction)
{
    int n = round->group->count, me = round->group->me, mine = in_round(round, reduction->counts[me]);
    void *out = reduction->out + round->at * round->item;
    const void *ins[n];
    for (int i = 0; i < n; i++) ins[i] = reduction->staged + (int64_t)i * round->piece * round->item;
    for (int k = 1; k < n; k++) {
        int from = (me - k + n) % n;
        FL_TRY(receive(round, from, (void *)ins[from], reduction->counts[me]));
    }
    for (int k = 1; k < n; k++) {
        int to = (me + k) % n;
        FL_TRY(send(round, to, reduction->in + reduction->starts[to] * round->item, reduction->counts[to]));
    }
    ins[me] = reduction->in + (reduction->starts[me] + round->at) * round->item;
    FL_TRY(round_wait(round));
    if (mine) reduction->combine(&out, 1, ins, n, mine, reduction->reduce, false);
    return FL_OK;
}

fl_status fl_mpi_reduce(fl_group *group, void *out, const void *in, const int64_t *counts, const int64_t *starts,
                        fl_dtype dtype, fl_reduce reduce)
{
    struct round r;
    int64_t most = largest(counts, group->count), bytes = STAGE_BYTES / group->count;
    struct reduction d = {
        .out = out, .in = in, .counts = counts, .starts = starts, .combine = fl_cpu_combine(dtype), .reduce = reduce};
    if (bytes > REDUCE_BYTES) bytes = REDUCE_BYTES;
    if (bytes < REDUCE_LEAST) bytes = REDUCE_LEAST;
    fl_status status = round_open(&r, group, dtype, bytes);
    if (status != FL_OK) return status;
    d.staged = stage((size_t)(r.piece * r.item * group->count));
    if (!d.staged) status = fl_fail(FL_ERR_MEMORY, "mpi: out of memory for the pieces of %d ranks", group->count);
    while (status == FL_OK && r.at < most) status = reduce_round(&r, &d);
    return round_close(&r, status);
}

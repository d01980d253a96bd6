/*
** peer.c -- Open MPI's side of the benchmarks of several ranks: the cases of cases/ranks.lua with MPI's own collectives.
**
** Every rank reads the requests from a file of its own, "group case seconds" a line, so that ranks sleep while another
** side measures; rank 0 answers "seconds-per-call" or "error: why"; the line "end" ends it. `peer first` instead prints
** the time of CLOCK_MONOTONIC at which the first collective was done.
*/
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS = 8, RUNS = 4 };

static int rank, ranks;

/* ---- cases ---- */

typedef struct shape {
    float *in, *out;
    int n;                      /* floats on the larger side of a rank */
    MPI_Datatype columns;       /* one rank's columns of the n floats as rows of COLUMNS */
} shape;

typedef void collective(const shape *s);

static void all_reduce(const shape *s) { MPI_Allreduce(s->in, s->out, s->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

static void all_gather(const shape *s)
{
    MPI_Allgather(s->in, s->n / ranks, MPI_FLOAT, s->out, s->n / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(const shape *s)
{
    MPI_Reduce_scatter_block(s->in, s->out, s->n / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_to_all(const shape *s)
{
    MPI_Alltoall(s->in, s->n / ranks, MPI_FLOAT, s->out, s->n / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}

static void gather_columns(const shape *s)
{
    MPI_Allgather(s->in, s->n / ranks, MPI_FLOAT, s->out, 1, s->columns, MPI_COMM_WORLD);
}

static void rows_to_columns(const shape *s)
{
    MPI_Alltoall(s->in, 1, s->columns, s->out, s->n / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}

static const struct { const char *name; collective *run; } cases[] = {
    {"all_reduce", all_reduce}, {"all_gather", all_gather}, {"reduce_scatter", reduce_scatter},
    {"all_to_all", all_to_all}, {"gather_columns", gather_columns}, {"rows_to_columns", rows_to_columns},
};

/* `rows` pieces of COLUMNS / ranks neighbours, each one row below the last; the next rank's begin right beside. */
static MPI_Datatype column_type(int rows)
{
    MPI_Datatype pieces, type;
    int width = COLUMNS / ranks;
    MPI_Type_vector(rows, width, COLUMNS, MPI_FLOAT, &pieces);
    MPI_Type_create_resized(pieces, 0, width * (MPI_Aint)sizeof(float), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&pieces);
    return type;
}

/* "all_reduce_64k": its collective, with *bytes = 65536; NULL when there is none. */
static collective *find(const char *name, size_t *bytes)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].name);
        char *unit;
        if (strncmp(name, cases[i].name, n) || name[n] != '_') continue;
        *bytes = strtoul(name + n + 1, &unit, 10) << (*unit == 'm' ? 20 : 10);
        return cases[i].run;
    }
    return NULL;
}

/* ---- measuring, as timing.lua does ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Of the slowest rank. */
static double run(collective *body, const shape *s, long count)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double began = now();
    for (long i = 0; i < count; i++) body(s);
    double took = now() - began;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(collective *body, const shape *s, double seconds)
{
    long count = 1;
    double results[RUNS - 1];
    run(body, s, 1);
    double took = run(body, s, 1);
    while (took < seconds / RUNS / 2) {
        double more = seconds / RUNS / (took > 1e-7 ? took : 1e-7);
        count *= more < 2 ? 2 : more > 100 ? 100 : (long)more;
        took = run(body, s, count);
    }
    results[0] = took / (double)count;
    for (int i = 1; i < RUNS - 1; i++) results[i] = run(body, s, count) / (double)count;
    qsort(results, RUNS - 1, sizeof *results, compare);
    return results[(RUNS - 1) / 2];
}

static void answer(const char *name, double seconds)
{
    size_t bytes;
    collective *body = find(name, &bytes);
    shape s;
    if (!body) {
        if (rank == 0) printf("error: Open MPI has no %s\n", name);
        return;
    }
    s.n = (int)(bytes / sizeof(float));
    s.in = aligned_alloc(64, bytes);
    s.out = aligned_alloc(64, bytes);
    for (int i = 0; i < s.n; i++) s.in[i] = s.out[i] = 1;
    s.columns = column_type(s.n / COLUMNS);
    double took = measure(body, &s, seconds);
    if (rank == 0) printf("%.9g\n", took);
    MPI_Type_free(&s.columns);
    free(s.in);
    free(s.out);
}

static void first(void)
{
    float x = 1;
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%.9f\n", now());
}

int main(int argc, char **argv)
{
    char line[256], group[64], name[64];
    double seconds;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1 && strcmp(argv[1], "first") == 0) first();
    else while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        if (sscanf(line, "%63s %63s %lf", group, name, &seconds) == 3) answer(name, seconds);
        fflush(stdout);
    }
    MPI_Finalize();
}

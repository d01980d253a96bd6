/*
** ranks.c -- an MPI program that keeps its MPI: a sub-communicator, a second flow_open, another rank that leaves.
*/
#include <flow.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad;

#define OK(call)                                                                                        \
    do {                                                                                                \
        if ((call) != FLOW_OK) bad++, fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, flow_error()); \
    } while (0)
#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) bad++, fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, flow_error()); \
    } while (0)

/* The sum over all ranks of `each`, by a global tensor. */
static double sum_of(float each)
{
    const int64_t one[] = {1};
    flow_tensor *mine, *all, *sum;
    double value = -1;
    OK(flow_copy_in(&mine, &(flow_spec){.ndim = 1, .shape = one}, &each));
    OK(flow_from_local(&all, mine, "cpu", "S(0)"));
    OK(flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(all))));
    OK(flow_item(&value, sum));
    flow_unref(mine);
    flow_unref(all);
    flow_unref(sum);
    return value;
}

/* The ranks take the mean and the sum of a global tensor. */
static void differ(int rank)
{
    const int64_t one[] = {1};
    float each = 1;
    double value;
    flow_tensor *mine, *all, *result = NULL;
    OK(flow_copy_in(&mine, &(flow_spec){.ndim = 1, .shape = one}, &each));
    OK(flow_from_local(&all, mine, "cpu", "S(0)"));
    OK(flow_call(&result, 1, rank == 0 ? "mean" : "sum", FLOW_ARGS(flow_of(all))));
    CHECK(flow_item(&value, result) == FLOW_ERR_COMM && strstr(flow_error(), "run different programs: rank 0 mean"));
    CHECK(strstr(flow_error(), "P -> B); is one of them")); /* there is no line of a script to name */
    flow_unref(mine);
    flow_unref(all);
    flow_unref(result);
}

static char reported[512];
static bool keep(void *context, const char *message)
{
    snprintf(reported, sizeof reported, "%s", message);
    return *(bool *)context;
}

int main(int argc, char **argv)
{
    int level, rank, size, over;
    MPI_Comm some, all = MPI_COMM_WORLD;
    const char *mode = argc > 1 ? argv[1] : "single";
    bool ends = strcmp(mode, "ends") == 0;
    bool differs = strcmp(mode, "differ") == 0;
    int wanted = strcmp(mode, "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    flow_config config = {.context = &ends, .on_failure = keep};

    OK(flow_open(&config));
    CHECK(flow_join(&all) == FLOW_ERR_COMM && strstr(flow_error(), "MPI_Init was not called"));
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm none = MPI_COMM_NULL;
    CHECK(flow_join(&none) == FLOW_ERR_COMM);

    /* all but the last rank, in reverse order */
    MPI_Comm_split(MPI_COMM_WORLD, rank == size - 1, -rank, &some);
    if (rank < size - 1) {
        OK(flow_join(&some));
        CHECK(flow_world_size() == size - 1 && flow_rank() == size - 2 - rank);
        if (size > 2) CHECK(flow_join(&some) == FLOW_ERR_STATE);
        CHECK(sum_of((float)rank) == (size - 1) * (size - 2) / 2.0);
        OK(flow_close());
        CHECK(flow_world_size() == 1);
        OK(flow_open(&config));
        if (size > 2) CHECK(flow_join(&all) == FLOW_ERR_COMM && strstr(flow_error(), "stays one of them"));
        OK(flow_join(&some));
        CHECK(sum_of(1) == size - 1);
        if (differs) differ(flow_rank());
    }
    MPI_Barrier(MPI_COMM_WORLD);

    /* one rank leaves, the others meet without it */
    if (rank < size - 1 && size > 2 && !differs) {
        if (flow_rank() == 0) OK(flow_close());
        else {
            const int64_t one[] = {1};
            float each = 1;
            flow_tensor *mine, *together = NULL;
            OK(flow_copy_in(&mine, &(flow_spec){.ndim = 1, .shape = one}, &each));
            CHECK(flow_from_local(&together, mine, "cpu", "S(0)") == FLOW_ERR_COMM);
            CHECK(strstr(flow_error(), "rank 0 has ended") && strcmp(reported, flow_error()) == 0);
            flow_unref(mine);
            flow_close();
        }
    }
    MPI_Finalized(&over);
    CHECK(!over);
    MPI_Barrier(MPI_COMM_WORLD); /* the host's MPI works on */
    MPI_Comm_free(&some);
    if (!bad && rank == 0) printf("%d ranks, %s: fine\n", size, mode);
    MPI_Finalize();
    return bad != 0;
}

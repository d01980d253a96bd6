/* mpi.c -- an MPI program with its own decomposition trains on it: each rank has a slab of rows, of unequal sizes. */
#include <flow.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                    \
    if ((call) != FLOW_OK) {                                         \
        fprintf(stderr, "rank %d: %s\n", flow_rank(), flow_error()); \
        MPI_Abort(MPI_COMM_WORLD, 1);                                \
    }

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Comm ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(ranks, &rank);
    MPI_Comm_size(ranks, &size);
    /* rank r owns 8 + r rows of x and of y = x * (1, 2) */
    const int64_t rows = 8 + rank, first = 8 * rank + rank * (rank - 1) / 2;
    float *x = malloc(sizeof *x * (size_t)rows * 2), *y = malloc(sizeof *y * (size_t)rows);
    for (int64_t i = 0; i < rows; i++) {
        x[2 * i] = (float)((first + i) % 7) / 7;
        x[2 * i + 1] = (float)((first + i) % 5) / 5;
        y[i] = x[2 * i] + 2 * x[2 * i + 1];
    }
    flow_spec pairs = {.ndim = 2, .shape = (int64_t[]){rows, 2}}, column = {.ndim = 2, .shape = (int64_t[]){rows, 1}};
    flow_tensor *own_x, *own_y, *in, *want, *w, *out, *loss;
    flow_optimizer *adam;
    TRY(flow_open(NULL));
    TRY(flow_join(&ranks));
    TRY(flow_borrow(&own_x, &pairs, x, NULL, free, x));
    TRY(flow_borrow(&own_y, &column, y, NULL, free, y));
    TRY(flow_from_local(&in, own_x, "cpu", "S(0)")); /* the slabs, one after the other */
    TRY(flow_from_local(&want, own_y, "cpu", "S(0)"));
    TRY(flow_call(&w, 1, "zeros",
                  FLOW_ARGS(flow_ints((int64_t[]){1, 2}, 2), flow_named("placement", flow_text("cpu")),
                            flow_named("sbp", flow_text("B")), flow_named("requires_grad", flow_bool(true)))));
    TRY(flow_optimizer_new(&adam, "Adam", &w, 1, "lr=0.1"));
    for (int i = 0; i < 200; i++) {
        TRY(flow_call(&out, 1, "linear", FLOW_ARGS(flow_of(in), flow_of(w))));
        TRY(flow_call(&loss, 1, "mse_loss", FLOW_ARGS(flow_of(out), flow_of(want))));
        TRY(flow_zero_grad(adam));
        TRY(flow_backward(loss));
        TRY(flow_step(adam));
        flow_unref(out);
        flow_unref(loss);
    }
    float found[2];
    TRY(flow_read(w, found, sizeof found));
    if (rank == 0) printf("%d ranks, %d rows: w = %.2f %.2f\n", size, (int)flow_shape(in)[0], found[0], found[1]);
    flow_optimizer_free(adam);
    flow_tensor *all[] = {own_x, own_y, in, want, w};
    for (int i = 0; i < 5; i++) flow_unref(all[i]);
    TRY(flow_close());
    MPI_Comm_free(&ranks);
    return MPI_Finalize();
}

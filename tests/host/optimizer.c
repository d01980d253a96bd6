/*
** optimizer.c -- takes steps of an optimizer (its kind and options are the arguments) over two parameters, of which the
** second one has no gradient in the second step, and a frozen one; prints their elements after each step.
*/
#include <flow.h>

#include <stdio.h>
#include <stdlib.h>

enum { PARAMETERS = 3, STEPS = 4, MOST = 6 };

static void must(flow_status status)
{
    if (status == FLOW_OK) return;
    fprintf(stderr, "%s\n", flow_error());
    exit(1);
}

/* The parameters, element i of number k being (i + 1) / (k + 2). */
static void make(flow_tensor **params)
{
    const int64_t shapes[PARAMETERS][2] = {{2, 3}, {4}, {5}};
    for (int k = 0; k < PARAMETERS; k++) {
        float values[MOST];
        for (int i = 0; i < MOST; i++) values[i] = (float)(i + 1) / (float)(k + 2);
        flow_spec spec = {.ndim = k == 0 ? 2 : 1, .shape = shapes[k]};
        must(flow_copy_in(&params[k], &spec, values));
        must(flow_require_grad(params[k], k < 2));
    }
}

/* Gradients of the sum of the cubes, of the first parameter alone or of both. */
static void differentiate(flow_tensor **params, int count)
{
    for (int k = 0; k < count; k++) {
        flow_tensor *square, *cube, *sum;
        must(flow_call(&square, 1, "mul", FLOW_ARGS(flow_of(params[k]), flow_of(params[k]))));
        must(flow_call(&cube, 1, "mul", FLOW_ARGS(flow_of(square), flow_of(params[k]))));
        must(flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(cube))));
        must(flow_backward(sum, NULL));
        flow_unref(square);
        flow_unref(cube);
        flow_unref(sum);
    }
}

static void print(flow_tensor **params)
{
    const int sizes[PARAMETERS] = {6, 4, 5};
    for (int k = 0; k < PARAMETERS; k++) {
        float values[MOST];
        must(flow_read(params[k], values, sizeof *values * (size_t)sizes[k]));
        for (int i = 0; i < sizes[k]; i++) printf("%a ", (double)values[i]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    flow_tensor *params[PARAMETERS];
    flow_optimizer *optimizer;
    must(flow_open(NULL));
    make(params);
    must(flow_optimizer_new(&optimizer, argv[1], params, PARAMETERS, argc > 2 ? argv[2] : NULL));
    for (int step = 0; step < STEPS; step++) {
        must(flow_zero_grad(optimizer));
        differentiate(params, step == 1 ? 1 : 2);
        must(flow_step(optimizer));
        print(params);
    }
    flow_optimizer_free(optimizer);
    for (int k = 0; k < PARAMETERS; k++) flow_unref(params[k]);
    return flow_close();
}

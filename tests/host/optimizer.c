/*
** optimizer.c -- takes steps of optimizers over two parameters, of which the second one has no gradient in the second
** step, and a frozen one; prints their elements after each step, as tests/host/steps.lua does.
**
** Arguments: kind and options of each optimizer. With FIRST=sbp SECOND=sbp before them the parameters are global, on
** all ranks that the launcher has started, and rank 0 prints.
*/
#include <flow.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMETERS = 3, STEPS = 4, MOST = 6 };

static const int64_t shapes[PARAMETERS][2] = {{2, 3}, {4}, {5}};
static const int ndim[PARAMETERS] = {2, 1, 1};

static void must(flow_status status)
{
    if (status == FLOW_OK) return;
    fprintf(stderr, "%s\n", flow_error());
    exit(1);
}

/* A tensor that all ranks have goes over into parts of it. */
static void distribute(flow_tensor **tensor, const char *sbp)
{
    flow_tensor *whole, *parts;
    must(flow_from_local(&whole, *tensor, "cpu", "B"));
    must(flow_to_global(&parts, whole, NULL, sbp));
    flow_unref(whole);
    flow_unref(*tensor);
    *tensor = parts;
}

/* The parameters, element i of number k being (i + 1) / (k + 2). sbps: NULL, or of each. */
static void make(flow_tensor **params, const char *const *sbps)
{
    for (int k = 0; k < PARAMETERS; k++) {
        float values[MOST];
        for (int i = 0; i < MOST; i++) values[i] = (float)(i + 1) / (float)(k + 2);
        flow_spec spec = {.ndim = ndim[k], .shape = shapes[k]};
        must(flow_copy_in(&params[k], &spec, values));
        if (sbps) distribute(&params[k], sbps[k]);
        must(flow_require_grad(params[k], k < 2));
    }
}

/* Of global parameters every rank has rows of a batch of five, so that the gradients are sums over the ranks. */
static void spread(flow_tensor **cube, int k)
{
    const int64_t rows[] = {5, shapes[k][0], shapes[k][1]};
    flow_tensor *ones, *product;
    must(flow_call(&ones, 1, "ones",
                   FLOW_ARGS(flow_ints(rows, ndim[k] + 1), flow_named("placement", flow_text("cpu")),
                             flow_named("sbp", flow_text("S(0)")))));
    must(flow_call(&product, 1, "mul", FLOW_ARGS(flow_of(ones), flow_of(*cube))));
    flow_unref(ones);
    flow_unref(*cube);
    *cube = product;
}

/* Gradients of the sum of the cubes, of the first parameter alone or of both. */
static void differentiate(flow_tensor **params, int count, bool global)
{
    for (int k = 0; k < count; k++) {
        flow_tensor *square, *cube, *sum;
        must(flow_call(&square, 1, "mul", FLOW_ARGS(flow_of(params[k]), flow_of(params[k]))));
        must(flow_call(&cube, 1, "mul", FLOW_ARGS(flow_of(square), flow_of(params[k]))));
        if (global) spread(&cube, k);
        must(flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(cube))));
        must(flow_backward(sum));
        flow_unref(square);
        flow_unref(cube);
        flow_unref(sum);
    }
}

static void print(flow_tensor **params)
{
    for (int k = 0; k < PARAMETERS; k++) {
        float values[MOST];
        int count = (int)flow_numel(params[k]);
        must(flow_read(params[k], values, sizeof *values * (size_t)count));
        for (int i = 0; i < count && flow_rank() == 0; i++) printf("%a ", (double)values[i]);
    }
    if (flow_rank() == 0) printf("\n");
}

static void take_steps(const char *kind, const char *options, const char *const *sbps)
{
    flow_tensor *params[PARAMETERS];
    flow_optimizer *optimizer;
    make(params, sbps);
    must(flow_optimizer_new(&optimizer, kind, params, PARAMETERS, options));
    for (int step = 0; step < STEPS; step++) {
        must(flow_zero_grad(optimizer));
        differentiate(params, step == 1 ? 1 : 2, sbps != NULL);
        must(flow_step(optimizer));
        print(params);
    }
    flow_optimizer_free(optimizer);
    for (int k = 0; k < PARAMETERS; k++) flow_unref(params[k]);
}

int main(int argc, char **argv)
{
    const char *sbps[PARAMETERS] = {NULL, NULL, "B"};
    int at = 1;
    must(flow_open(NULL));
    if (argc > 2 && !strncmp(argv[1], "FIRST=", 6)) {
        sbps[0] = strchr(argv[1], '=') + 1;
        sbps[1] = strchr(argv[2], '=') + 1;
        at = 3;
        must(flow_join(NULL));
    }
    for (; at + 1 < argc; at += 2) take_steps(argv[at], argv[at + 1], sbps[0] ? sbps : NULL);
    return flow_close();
}

/*
** program.c -- runs the programs of the files it is given, on fixed inputs, and prints a line per result: its type and
** its sum; or what is wrong.
*/
#include <flow.h>

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16 };

/* A tensor like the input of this name: -3, -2, ... 3, -3, ... */
static flow_status make_input(flow_tensor **out, const flow_spec *spec)
{
    int64_t numel = 1;
    flow_tensor *floats;
    for (int i = 0; i < spec->ndim; i++) numel *= spec->shape[i];
    float *values = malloc(sizeof *values * (size_t)(numel + 1));
    for (int64_t i = 0; i < numel; i++) values[i] = (float)(i % 7 - 3);
    flow_spec like = {.ndim = spec->ndim, .shape = spec->shape};
    flow_status status = flow_copy_in(&floats, &like, values);
    free(values);
    if (status != FLOW_OK) return status;
    status = flow_call(out, 1, "cast", FLOW_ARGS(flow_of(floats), flow_text(spec->dtype)));
    flow_unref(floats);
    if (status != FLOW_OK || !spec->placement) return status;
    floats = *out;
    status = flow_from_local(out, floats, "cpu", spec->sbp);
    flow_unref(floats);
    return status;
}

static flow_status print_sum(flow_tensor *tensor)
{
    char text[128];
    double value = 0;
    flow_tensor *floats, *sum;
    flow_status status = flow_call(&floats, 1, "cast", FLOW_ARGS(flow_of(tensor), flow_text("float64")));
    if (status == FLOW_OK) status = flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(floats)));
    if (status != FLOW_OK) return status;
    status = flow_item(&value, sum);
    printf("%s %.4f\n", flow_describe(text, sizeof text, tensor), value);
    flow_unref(floats);
    flow_unref(sum);
    return status;
}

static flow_status run(const char *path)
{
    flow_program *program;
    flow_tensor *inputs[MOST] = {NULL}, *results[MOST] = {NULL};
    flow_status status = flow_program_open(&program, path, NULL);
    if (status != FLOW_OK) return status;
    int in = 0, out = 0;
    while (flow_program_name(program, FLOW_INPUTS, in)) in++;
    while (flow_program_name(program, FLOW_OUTPUTS, out)) out++;
    flow_spec spec;
    if (in > MOST || out > MOST) status = flow_fail(FLOW_ERR_VALUE, "too many");
    for (int i = 0; i < in && status == FLOW_OK; i++) {
        status = flow_program_input(&spec, program, i);
        if (status == FLOW_OK) status = make_input(&inputs[i], &spec);
    }
    for (int turn = 0; turn < 2 && status == FLOW_OK; turn++) {
        status = flow_program_run(results, out, program, inputs, in);
        for (int i = 0; i < out && results[i]; i++) {
            if (turn == 0 && status == FLOW_OK) status = print_sum(results[i]);
            flow_unref(results[i]);
            results[i] = NULL;
        }
    }
    for (int i = 0; i < in && i < MOST; i++) flow_unref(inputs[i]);
    flow_program_close(program);
    return status;
}

int main(int argc, char **argv)
{
    if (flow_open(NULL) != FLOW_OK) return 1;
    for (int i = 1; i < argc; i++)
        if (run(argv[i]) != FLOW_OK) printf("%s\n", flow_error());
    if (flow_tensor_count() != 0) printf("%d tensors left\n", (int)flow_tensor_count());
    return flow_close() != FLOW_OK;
}

/*
** load_ops.c -- a program with ops of its own from a shared object: that of examples/ops, and files that are none.
*/
#include <flow.h>
#include <stdio.h>

/* Prints the error of the file, or a signature. */
static void show(const char *path) { printf("%s\n", flow_load_ops(path) ? flow_error() : flow_signature("rms")); }

int main(int argc, char **argv)
{
    const float data[] = {3, 4, 1, 7}, ones[] = {1, 1};
    const int64_t sizes[] = {2, 2};
    float read[4] = {0};
    flow_tensor *x, *weight, *y, *grad;

    show(argv[1]);
    if (flow_open(NULL)) return 1;
    for (int i = 1; i < argc; i++) show(argv[i]);
    show(argv[1]); /* once more */
    show("");
    show(NULL);
    flow_spec rows = {.ndim = 2, .shape = sizes}, row = {.ndim = 1, .shape = sizes};
    if (flow_copy_in(&x, &rows, data) || flow_copy_in(&weight, &row, ones) || flow_require_grad(x, true)
        || flow_call(&y, 1, "rms", FLOW_ARGS(flow_of(x), flow_of(weight), flow_named("eps", flow_float(0))))
        || flow_read(y, read, sizeof read) || flow_backward_with(y, x, 0) || flow_grad(&grad, x)) {
        printf("%s\n", flow_error());
        return 1;
    }
    printf("%.4f %.4f\n", read[0], read[3]);
    if (flow_call(NULL, 0, "rms", FLOW_ARGS(flow_of(x), flow_of(x)))) printf("%s\n", flow_error());
    flow_tensor *all[] = {x, weight, y, grad};
    for (int i = 0; i < 4; i++) flow_unref(all[i]);
    return flow_close();
}

/* locale.c -- a program with a locale in which 0.5 is "0,5": options and defaults of ops have a point all the same. */
#include <flow.h>
#include <locale.h>
#include <stdio.h>

int main(void)
{
    const int64_t two[] = {2};
    float values[] = {1, -4};
    flow_tensor *x, *y, *sum;
    flow_optimizer *sgd, *none;
    if (!setlocale(LC_ALL, "de_DE.UTF-8") || flow_open(NULL)) return 1;
    flow_copy_in(&x, &(flow_spec){.ndim = 1, .shape = two}, values);
    flow_require_grad(x, true);
    if (flow_optimizer_new(&sgd, "SGD", &x, 1, "lr=0.5, weight_decay=2.5e-1")
        || flow_call(&y, 1, "leaky_relu", FLOW_ARGS(flow_of(x))) || flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(y)))
        || flow_backward(sum) || flow_step(sgd) || flow_read(x, values, sizeof values))
        printf("%s\n", flow_error());
    printf("%.3f %.3f\n", values[0], values[1]); /* 1 - 0.5 * (1 + 0.25), -4 - 0.5 * (0.01 - 1) */
    if (flow_optimizer_new(&none, "SGD", &x, 1, "lr=0,5")) printf("%s\n", flow_error());
    if (flow_set_lr(sgd, -0.5)) printf("%s\n", flow_error());
    return 0;
}

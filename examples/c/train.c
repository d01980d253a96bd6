/* train.c -- a line through noisy points: y = 2 x - 1, found by a layer with a gradient. */
#include <flow.h>

#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", flow_error());
    return 1;
}
#define TRY(call) \
    if ((call) != FLOW_OK) return fail()

enum { POINTS = 64, STEPS = 200 };

int main(void)
{
    float x[POINTS], y[POINTS];
    for (int i = 0; i < POINTS; i++) {
        x[i] = (float)i / POINTS;
        y[i] = 2 * x[i] - 1 + (i % 2 ? 0.01f : -0.01f);
    }
    const int64_t column[] = {POINTS, 1}, weight[] = {1, 1}, bias[] = {1};
    flow_spec points = {.ndim = 2, .shape = column};
    flow_tensor *in, *want, *w, *b, *out, *loss;
    flow_optimizer *adam;

    TRY(flow_open(NULL));
    TRY(flow_copy_in(&in, &points, x));
    TRY(flow_copy_in(&want, &points, y));
    TRY(flow_call(&w, 1, "zeros", FLOW_ARGS(flow_ints(weight, 2), flow_named("requires_grad", flow_bool(true)))));
    TRY(flow_call(&b, 1, "zeros", FLOW_ARGS(flow_ints(bias, 1), flow_named("requires_grad", flow_bool(true)))));
    TRY(flow_optimizer_new(&adam, "Adam", (flow_tensor *[]){w, b}, 2, "lr=0.1"));
    for (int i = 0; i < STEPS; i++) {
        TRY(flow_call(&out, 1, "linear", FLOW_ARGS(flow_of(in), flow_of(w), flow_of(b))));
        TRY(flow_call(&loss, 1, "mse_loss", FLOW_ARGS(flow_of(out), flow_of(want))));
        TRY(flow_zero_grad(adam));
        TRY(flow_backward(loss));
        TRY(flow_step(adam));
        flow_unref(out);
        flow_unref(loss);
    }
    double slope, offset;
    TRY(flow_item(&slope, w));
    TRY(flow_item(&offset, b));
    printf("y = %.2f x %+.2f\n", slope, offset);
    flow_optimizer_free(adam);
    flow_tensor *all[] = {in, want, w, b};
    for (int i = 0; i < 4; i++) flow_unref(all[i]);
    TRY(flow_close());
    return 0;
}

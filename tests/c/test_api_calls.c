/*
** test_api_calls.c -- ops, gradients and optimizers through the C interface: what a call gives back, wrong calls.
*/
#include "api.h"

static void test_calls(void)
{
    float read[3];
    flow_tensor *x = make(&matrix, six), *y, *pair[2], *list[] = {x, x, x};
    OK(flow_call(&y, 1, "sum", FLOW_ARGS(flow_of(x), flow_named("axis", flow_int(0)))));
    OK(flow_read(y, read, sizeof read));
    CHECK(read[0] == 5 && read[2] == 9);
    flow_unref(y);
    OK(flow_call(&y, 1, "sum", FLOW_ARGS(flow_of(x), flow_ints((int64_t[]){0, 1}, 2), flow_bool(true))));
    CHECK(flow_ndim(y) == 2 && item(y) == 21);
    flow_unref(y);
    OK(flow_call(&y, 1, "cat", FLOW_ARGS(flow_list(list, 3), flow_int(1))));
    CHECK(flow_shape(y)[1] == 9);
    flow_unref(y);
    OK(flow_call(&y, 1, "clamp", FLOW_ARGS(flow_of(x), flow_nothing(), flow_named("max", flow_float(2)))));
    flow_unref(y);
    OK(flow_call(pair, 2, "sort", FLOW_ARGS(flow_of(x))));
    CHECK_TEXT(flow_dtype(pair[1]), "int64");
    flow_unref(pair[0]);
    flow_unref(pair[1]);
    OK(flow_call(pair, 1, "sort", FLOW_ARGS(flow_of(x))));
    flow_unref(pair[0]);
    OK(flow_call(&y, 1, "ones",
                 FLOW_ARGS(flow_ints(two_three, 2), flow_named("dtype", flow_text("int64")),
                           flow_named("placement", flow_text("cpu {0}")), flow_named("sbp", flow_text("S(-1)")))));
    CHECK(flow_is_global(y));
    CHECK_TEXT(flow_dtype(y), "int64");
    flow_unref(y);
    OK(flow_call(&y, 1, "ones", FLOW_ARGS(flow_ints(two_three, 2), flow_named("dtype", flow_nothing()))));
    CHECK_TEXT(flow_dtype(y), "float32");
    flow_unref(y);
    OK(flow_call(&y, 1, "add_", FLOW_ARGS(flow_of(x), flow_float(0.5))));
    CHECK(y == x);
    flow_unref(y);
    CHECK_TEXT(flow_signature("matmul"), "matmul(x, y)");
    CHECK(flow_signature("no_such_op") == NULL && flow_signature(NULL) == NULL);
    flow_unref(x);
    CHECK(flow_tensor_count() == 0);
}

/* Results that an op leaves out are not among those that it gives. */
static void test_results_left_out(void)
{
    flow_tensor *x = make(&matrix, six), *got[3] = {NULL};
    OK(flow_call(got, 2, "unique", FLOW_ARGS(flow_of(x), flow_named("return_counts", flow_bool(true)))));
    CHECK_TEXT(flow_dtype(got[1]), "int64");
    CHECK(flow_ndim(got[1]) == 1);
    flow_unref(got[0]);
    flow_unref(got[1]);
    FAILS(flow_call(got, 2, "unique", FLOW_ARGS(flow_of(x))), FLOW_ERR_VALUE,
          "unique: with these arguments it has 1 result, 2 were asked for");
    flow_unref(x);
    CHECK(flow_tensor_count() == 0);
}

/* Results in a tensor that is there already, as {out = c} of scripts. */
static void test_out(void)
{
    float read[6];
    flow_tensor *x = make(&matrix, six), *c = make(&matrix, six), *v = make(&vector, six), *y = NULL;
#define CALL(count, op, ...) flow_call(&y, count, op, FLOW_ARGS(__VA_ARGS__))
    OK(CALL(1, "mul", flow_of(x), flow_int(2), flow_named("out", flow_of(c))));
    CHECK(y == c);
    flow_unref(y);
    OK(CALL(0, "add", flow_of(c), flow_of(x), flow_named("out", flow_of(c))));
    OK(CALL(0, "sum", flow_of(c), flow_int(0), flow_named("out", flow_of(v))));
    OK(flow_read(v, read, 12));
    CHECK(read[0] == 15 && read[2] == 27);
    OK(CALL(0, "max", flow_of(x), flow_of(c), flow_named("out", flow_of(x))));
    OK(CALL(1, "neg", flow_of(x), flow_named("out", flow_nothing())));
    CHECK(y != x);
    flow_unref(y);
    FAILS(CALL(1, "add_", flow_of(x), flow_of(c), flow_named("out", flow_of(c))), FLOW_ERR_VALUE,
          "add_: writes its operand, and takes no out");
    FAILS(CALL(1, "sort", flow_of(x), flow_named("out", flow_of(c))), FLOW_ERR_VALUE, "sort: takes no out");
    FAILS(CALL(1, "neg", flow_of(x), flow_named("out", flow_int(3))), FLOW_ERR_VALUE,
          "neg: out must be a tensor, got an integer");
    FAILS(CALL(1, "neg", flow_of(x), flow_named("out", flow_of(c)), flow_named("out", flow_of(c))), FLOW_ERR_VALUE,
          "neg: 'out' is given twice");
    FAILS(CALL(1, "neg", flow_of(x), flow_named("out", flow_of(v))), FLOW_ERR_SHAPE,
          "neg: out is float32[3] on cpu (local), the result is float32[2, 3] on cpu (local)");
    FAILS(CALL(1, "neg", flow_of(x), flow_named("outt", flow_of(v))), FLOW_ERR_VALUE,
          "neg: it has no argument 'outt'; did you mean 'out'?");
    FAILS(CALL(2, "neg", flow_of(x), flow_named("out", flow_of(c))), FLOW_ERR_VALUE,
          "neg: it has 1 result, 2 were asked for");
#undef CALL
    flow_unref(x);
    flow_unref(c);
    flow_unref(v);
    CHECK(flow_tensor_count() == 0);
}

/* max and min are several ops, as in scripts. */
static void test_max(void)
{
    float read[3];
    flow_tensor *x = make(&matrix, six), *y, *pair[2];
    OK(flow_call(&y, 1, "max", FLOW_ARGS(flow_of(x))));
    CHECK(flow_ndim(y) == 0 && item(y) == 6);
    flow_unref(y);
    OK(flow_call(&y, 1, "min", FLOW_ARGS(flow_of(x), flow_nothing())));
    CHECK(item(y) == 1);
    flow_unref(y);
    OK(flow_call(&y, 1, "nonzero", FLOW_ARGS(flow_of(x))));
    CHECK(flow_ndim(y) == 2 && flow_shape(y)[0] == 6 && flow_shape(y)[1] == 2);
    flow_unref(y);
    OK(flow_call(&y, 1, "median_all", FLOW_ARGS(flow_of(x))));
    CHECK(item(y) == 3);
    flow_unref(y);
    OK(flow_call(pair, 2, "max", FLOW_ARGS(flow_of(x), flow_int(0))));
    OK(flow_read(pair[0], read, sizeof read));
    CHECK(read[0] == 4 && read[2] == 6);
    CHECK_TEXT(flow_dtype(pair[1]), "int64");
    flow_unref(pair[0]);
    flow_unref(pair[1]);
    OK(flow_call(&y, 1, "min", FLOW_ARGS(flow_of(x), flow_named("axis", flow_int(1)))));
    CHECK(flow_numel(y) == 2);
    flow_unref(y);
    OK(flow_call(&y, 1, "max", FLOW_ARGS(flow_of(x), flow_of(x))));
    CHECK(flow_numel(y) == 6);
    flow_unref(y);
    CHECK_TEXT(flow_signature("max"), "max(x), max(x, axis: axis, keepdim: bool = false) or max(x, y)");
    CHECK(flow_call(&y, 1, "max", NULL, 0) == FLOW_ERR_VALUE);
    flow_unref(x);
    CHECK(flow_tensor_count() == 0);
}

/* Names that stand for several ops each. */
static void test_methods(void)
{
    flow_tensor *x = make(&matrix, six), *parts[4], *y;
    static const int64_t one_two[] = {1, 2}, one_one[] = {1, 1}, negative[] = {-1, 4};
    OK(flow_call(parts, 2, "split", FLOW_ARGS(flow_of(x), flow_int(2), flow_int(-1))));
    CHECK(flow_shape(parts[0])[1] == 2 && flow_shape(parts[1])[1] == 1);
    flow_unref(parts[0]);
    flow_unref(parts[1]);
    OK(flow_call(parts, 2, "split", FLOW_ARGS(flow_of(x), flow_ints(one_two, 2), flow_named("axis", flow_int(1)))));
    OK(flow_call(&y, 1, "sum", FLOW_ARGS(flow_of(parts[1]))));
    CHECK(flow_shape(parts[0])[1] == 1 && item(y) == 16);
    flow_unref(y);
    flow_unref(parts[0]);
    flow_unref(parts[1]);
    OK(flow_call(parts, 1, "chunk", FLOW_ARGS(flow_of(x), flow_int(2))));
    CHECK(flow_shape(parts[0])[0] == 1);
    flow_unref(parts[0]);
    flow_arg by_ones[] = {flow_of(x), flow_ints(one_one, 2), flow_int(1)};
    FAILS(flow_call(parts, 2, "split", by_ones, 3), FLOW_ERR_VALUE, "split: the sizes add up to 2, axis 1 has 3");
    flow_arg below[] = {flow_of(x), flow_ints(negative, 2), flow_int(1)};
    FAILS(flow_call(parts, 2, "split", below, 3), FLOW_ERR_VALUE, "split: size -1 is negative");
    FAILS(flow_call(parts, 4, "split", FLOW_ARGS(flow_of(x), flow_int(1), flow_int(1))), FLOW_ERR_VALUE,
          "split: it has 3 results, 4 were asked for");
    FAILS(flow_call(parts, 1, "split", FLOW_ARGS(flow_of(x), flow_int(1), flow_int(2))), FLOW_ERR_SHAPE,
          "split: axis 2 is out of range for shape [2, 3] (-2 to 1)");
    OK(flow_call(&y, 1, "to", FLOW_ARGS(flow_of(x), flow_text("float64"), flow_text("cpu"))));
    CHECK_TEXT(flow_dtype(y), "float64");
    flow_unref(y);
    OK(flow_call(&y, 1, "to", FLOW_ARGS(flow_of(x), flow_named("dtype", flow_text("int64")))));
    CHECK_TEXT(flow_dtype(y), "int64");
    flow_unref(y);
    CHECK(flow_call(&y, 1, "to", FLOW_ARGS(flow_of(x), flow_text("floot"))) != FLOW_OK);
    CHECK_TEXT(flow_signature("chunk"), "chunk(x, count: int, axis: axis = 0)");
    flow_unref(x);
    CHECK(flow_tensor_count() == 0);
}

static void test_bad_calls(void)
{
    flow_tensor *x = make(&matrix, six), *v = make(&vector, six), *y = NULL;
#define BAD(text, ...) FAILS(flow_call(&y, 1, __VA_ARGS__), FLOW_ERR_VALUE, text)
    BAD("flow_call: there is no op 'matmull'; did you mean 'matmul'?", "matmull", FLOW_ARGS(flow_of(x)));
    BAD("flow_call: 'item' is no op; call flow_item", "item", FLOW_ARGS(flow_of(x)));
    BAD("flow_call: 'backward' is no op; call flow_backward", "backward", FLOW_ARGS(flow_of(x)));
    BAD("to: unknown dtype 'flaot32'; did you mean 'float32'?", "to", FLOW_ARGS(flow_of(x), flow_text("flaot32")));
    BAD("to: unknown device 'gpu'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"", "to",
        FLOW_ARGS(flow_of(x), flow_text("gpu")));
    BAD("detach: too many arguments: detach(x)", "detach", FLOW_ARGS(flow_of(x), flow_int(1)));
    BAD("detach: x must be a tensor", "detach", NULL, 0);
    BAD("to: a dtype or a device is missing", "to", FLOW_ARGS(flow_of(x)));
    BAD("to: a dtype or a device must be a text", "to", FLOW_ARGS(flow_of(x), flow_int(3)));
    BAD("to: x must be a tensor", "to", FLOW_ARGS(flow_text("float64")));
    BAD("split: size must be an integer or a list of integers", "split", FLOW_ARGS(flow_of(x)));
    BAD("split: size must be at least 1, got 0", "split", FLOW_ARGS(flow_of(x), flow_int(0)));
    BAD("split: unknown argument 'sizes'", "split", FLOW_ARGS(flow_of(x), flow_named("sizes", flow_int(1))));
    BAD("split: 'size' is given twice", "split", FLOW_ARGS(flow_of(x), flow_int(1), flow_named("size", flow_int(1))));
    BAD("split: too many arguments: split(x, size: int or ints, axis: axis = 0)", "split",
        FLOW_ARGS(flow_of(x), flow_int(1), flow_int(0), flow_int(0)));
    BAD("chunk: count must be at least 1, got -1", "chunk", FLOW_ARGS(flow_of(x), flow_int(-1)));
    BAD("chunk: count must be an integer", "chunk", FLOW_ARGS(flow_of(x)));
    BAD("sum: the name of an argument is NULL or empty", "sum", FLOW_ARGS(flow_of(x), flow_named(NULL, flow_int(0))));
    BAD("flow_call: there is no op 'adamw_step'", "adamw_step", NULL, 0);
    BAD("flow_call: op is NULL", NULL, NULL, 0);
    BAD("sum: missing argument 'x': sum(x, axis: axes = nil, keepdim: bool = false)", "sum", NULL, 0);
    BAD("sum: it has no argument 'axes'; did you mean 'axis'?", "sum",
        FLOW_ARGS(flow_of(x), flow_named("axes", flow_int(0))));
    BAD("sum: 'axis' is given twice", "sum", FLOW_ARGS(flow_of(x), flow_int(0), flow_named("axis", flow_int(0))));
    BAD("sum: keepdim must be true or false, got an integer", "sum",
        FLOW_ARGS(flow_of(x), flow_named("keepdim", flow_int(0))));
    BAD("sum: axis must be an integer or a list of integers, got a number", "sum",
        FLOW_ARGS(flow_of(x), flow_float(0)));
    BAD("sum: argument 3 has no name, after one that has", "sum",
        FLOW_ARGS(flow_of(x), flow_named("axis", flow_int(0)), flow_bool(true)));
    BAD("sum: too many arguments: sum(x, axis: axes = nil, keepdim: bool = false)", "sum",
        FLOW_ARGS(flow_of(x), flow_int(0), flow_bool(true), flow_int(1)));
    BAD("matmul: y must be a tensor, got an integer", "matmul", FLOW_ARGS(flow_of(x), flow_int(3)));
    BAD("add: y must be a tensor or a number, got nothing", "add", FLOW_ARGS(flow_of(x), flow_of(NULL)));
    BAD("cat: xs must be a list of tensors, got a tensor", "cat", FLOW_ARGS(flow_of(x)));
    BAD("sum: axis is NULL", "sum", FLOW_ARGS(flow_of(x), flow_ints(NULL, 3)));
    BAD("cat: xs is NULL", "cat", FLOW_ARGS(flow_list(NULL, 2)));
    BAD("mse_loss: reduction is NULL", "mse_loss",
        FLOW_ARGS(flow_of(x), flow_of(x), flow_named("reduction", flow_text(NULL))));
    BAD("neg: x is NULL", "neg", FLOW_ARGS({.kind = FLOW_TENSOR}));
    BAD("cat: entry 0 of xs is NULL", "cat", FLOW_ARGS(flow_list(&y, 1)));
    BAD("mse_loss: reduction must be one of mean|sum|none, got 'avg'", "mse_loss",
        FLOW_ARGS(flow_of(x), flow_of(x), flow_named("reduction", flow_text("avg"))));
    BAD("ones: dtype must be a text, got an integer", "ones", FLOW_ARGS(flow_int(3), flow_named("dtype", flow_int(3))));
    BAD("ones: it has no argument 'dtyp'; did you mean 'dtype'?", "ones",
        FLOW_ARGS(flow_int(3), flow_named("dtyp", flow_text("int64"))));
#undef BAD
    FAILS(flow_call((flow_tensor *[2]){NULL}, 2, "add", FLOW_ARGS(flow_of(x), flow_of(x))), FLOW_ERR_VALUE,
          "add: it has 1 result, 2 were asked for");
    CHECK(flow_call(&y, 1, "matmul", FLOW_ARGS(flow_of(x), flow_of(x))) == FLOW_ERR_SHAPE);
    FAILS(flow_call(&y, -1, "neg", FLOW_ARGS(flow_of(x))), FLOW_ERR_VALUE, "neg: the number of out is -1");
    FAILS(flow_call(&y, 1, "neg", NULL, -1), FLOW_ERR_VALUE, "neg: the number of args is -1");
    CHECK(y == NULL);
    flow_unref(x);
    flow_unref(v);
    CHECK(flow_tensor_count() == 0);
}

static void test_gradients(void)
{
    float read[6];
    flow_tensor *x = make(&matrix, six), *y, *z, *grad;
    OK(flow_grad(&grad, x));
    CHECK(grad == NULL);
    OK(flow_require_grad(x, true));
    OK(flow_call(&y, 1, "mul", FLOW_ARGS(flow_of(x), flow_of(x))));
    OK(flow_call(&z, 1, "sum", FLOW_ARGS(flow_of(y))));
    OK(flow_backward(z));
    OK(flow_grad(&grad, x));
    OK(flow_read(grad, read, sizeof read));
    CHECK(read[5] == 12);
    OK(flow_set_grad(x, grad));
    OK(flow_set_grad(x, NULL));
    flow_unref(grad);
    OK(flow_grad(&grad, x));
    CHECK(grad == NULL);
    CHECK(flow_backward(z) == FLOW_ERR_STATE); /* the values that it needs were released */
    flow_unref(y);
    flow_unref(z);

    OK(flow_no_grad_begin());
    OK(flow_no_grad_begin());
    OK(flow_no_grad_end());
    OK(flow_call(&y, 1, "mul", FLOW_ARGS(flow_of(x), flow_int(2))));
    OK(flow_no_grad_end());
    FAILS(flow_no_grad_end(), FLOW_ERR_STATE, "flow_no_grad_end: no flow_no_grad_begin before it");
    CHECK(flow_backward_with(y, y, 0) == FLOW_ERR_STATE);
    flow_unref(y);
    OK(flow_call(&y, 1, "detach", FLOW_ARGS(flow_of(x))));
    CHECK(flow_backward_with(y, y, 0) == FLOW_ERR_STATE);
    flow_unref(y);
    flow_unref(x);
    CHECK(flow_tensor_count() == 0);
}

/* Of x and w, z = sum(x * x * w). */
static void test_gradients_as_values(void)
{
    float read[6];
    flow_tensor *x = make(&matrix, six), *w = make(&matrix, six), *other = make(&matrix, six), *y, *z, *sum,
                *out[2] = {0};
    OK(flow_require_grad(x, true));
    OK(flow_require_grad(w, true));
    OK(flow_require_grad(other, true));
    OK(flow_call(&y, 1, "mul", FLOW_ARGS(flow_of(x), flow_of(x))));
    OK(flow_call(&z, 1, "mul", FLOW_ARGS(flow_of(y), flow_of(w))));
    OK(flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(z))));
    flow_tensor *const both[] = {x, w}, *const unused[] = {x, other}, *const none[] = {x, NULL};

    FAILS(flow_gradients(out, sum, NULL, none, 2, 0), FLOW_ERR_VALUE, "flow_gradients: tensor 1 of xs is NULL");
    FAILS(flow_gradients(out, sum, NULL, both, 0, 0), FLOW_ERR_VALUE,
          "flow_gradients: xs must hold tensors, count is 0");
    FAILS(flow_gradients(out, sum, NULL, both, 2, 8), FLOW_ERR_VALUE,
          "flow_gradients: options are FLOW_RETAIN_GRAPH, FLOW_CREATE_GRAPH and FLOW_ALLOW_UNUSED, got 8");
    FAILS(flow_backward_with(sum, NULL, FLOW_ALLOW_UNUSED), FLOW_ERR_VALUE,
          "flow_backward_with: options are FLOW_RETAIN_GRAPH and FLOW_CREATE_GRAPH, got 4");
    CHECK(flow_gradients(out, sum, NULL, unused, 2, FLOW_RETAIN_GRAPH) == FLOW_ERR_STATE && !out[0] && !out[1]);

    OK(flow_gradients(out, sum, NULL, unused, 2, FLOW_RETAIN_GRAPH | FLOW_ALLOW_UNUSED));
    OK(flow_read(out[0], read, sizeof read));
    CHECK(read[2] == 2 * 3 * 3 && !out[1]);
    flow_unref(out[0]);

    OK(flow_gradients(out, z, w, both, 2, FLOW_CREATE_GRAPH)); /* 2 x w^2 and x^2 w */
    OK(flow_backward_with(out[0], other, FLOW_RETAIN_GRAPH));  /* of 2 x w^2, times x: 2 x w^2 and 4 x^2 w */
    OK(flow_backward_with(out[0], other, 0));
    flow_unref(out[0]);
    flow_unref(out[1]);
    OK(flow_grad(&out[0], x));
    OK(flow_read(out[0], read, sizeof read));
    CHECK(read[2] == 2 * 2 * 27);
    flow_unref(out[0]);

    OK(flow_gradients(out, sum, NULL, both, 2, 0));
    flow_unref(out[0]);
    flow_unref(out[1]);
    CHECK(flow_gradients(out, sum, NULL, both, 2, 0) == FLOW_ERR_STATE); /* the graph is gone */
    flow_tensor *all[] = {x, w, other, y, z, sum};
    for (int i = 0; i < 6; i++) flow_unref(all[i]);
    CHECK(flow_tensor_count() == 0);
}

static void test_optimizers(void)
{
    static const char *const kinds[] = {"SGD",     "SGD",     "Adam",    "AdamW",    "Adam",   "RMSprop",
                                        "RMSprop", "Adagrad", "Adagrad", "Adadelta", "Adamax", "NAdam",
                                        "RAdam",   "Rprop",   "ASGD",    "Lion",     "LAMB",   "LARS"};
    static const char *const options[] = {"lr=0.1",
                                          " momentum = 0.9 ,nesterov=true",
                                          "lr=0.1,beta1=0.8",
                                          NULL,
                                          "amsgrad=true, decoupled_weight_decay=true, weight_decay=0.1",
                                          "lr=0.1, alpha=0.9",
                                          "momentum=0.9, centered=true",
                                          "lr=0.1, initial_accumulator_value=0.5",
                                          "lr_decay=0.1",
                                          "rho=0.8",
                                          NULL,
                                          "momentum_decay=0.01",
                                          "lr=0.1",
                                          "eta_minus=0.3, step_size_max=10, lr=0.2",
                                          "lr=0.1, t0=1",
                                          "lr=0.1",
                                          "beta2=0.9, weight_decay=0.1",
                                          "trust_coefficient=0.1"};
    for (int k = 0; k < 18; k++) {
        flow_tensor *p = make(&vector, six), *idle = make(&vector, six), *y, *params[] = {p, idle};
        flow_optimizer *o;
        OK(flow_require_grad(p, true));
        OK(flow_require_grad(idle, true));
        OK(flow_optimizer_new(&o, kinds[k], params, 2, options[k]));
        FAILS(flow_step(o), FLOW_ERR_STATE, "flow_step: no parameter has a gradient; call flow_backward before");
        for (int i = 0; i < 3; i++) {
            OK(flow_call(&y, 1, "sum", FLOW_ARGS(flow_of(p))));
            OK(flow_backward(y));
            OK(flow_step(o));
            OK(flow_set_lr(o, 0.5));
            OK(flow_zero_grad(o));
            flow_unref(y);
        }
        float now[3], unmoved[3];
        OK(flow_read(p, now, sizeof now));
        OK(flow_read(idle, unmoved, sizeof unmoved));
        CHECK(now[0] < (k < 4 ? 0.5f : 1) && unmoved[0] == 1);
        FAILS(flow_set_lr(o, -1), FLOW_ERR_VALUE, "flow_set_lr: lr must be at least 0, got -1");
        flow_optimizer_free(o);
        flow_optimizer_free(NULL);
        flow_unref(p);
        flow_unref(idle);
    }
    flow_tensor *p = make(&vector, six), *twice[] = {p, p};
    flow_optimizer *o = NULL;
    OK(flow_optimizer_new(&o, "SGD", twice, 1, NULL));
    FAILS(flow_step(o), FLOW_ERR_STATE,
          "flow_step: no parameter has a gradient, and none requires one; call flow_require_grad");
    flow_optimizer_free(o);
    o = NULL;
#define BAD(text, kind, count, options) FAILS(flow_optimizer_new(&o, kind, twice, count, options), FLOW_ERR_VALUE, text)
    BAD("flow_optimizer_new: there is no optimizer 'Lamp'; there are SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, "
        "Adamax, "
        "NAdam, RAdam, Rprop, ASGD, Lion, LAMB, LARS",
        "Lamp", 1, NULL);
    BAD("flow_optimizer_new: it needs parameters, got 0", "SGD", 0, NULL);
    BAD("flow_optimizer_new: parameters 0 and 1 are the same", "SGD", 2, NULL);
    BAD("Adam: unknown option 'momentum'", "Adam", 1, "momentum=0.9");
    BAD("SGD: unknown option 'momentm'; did you mean 'momentum'?", "SGD", 1, "momentm=0.9");
    BAD("SGD: lr must be a number, got 'x'", "SGD", 1, "lr=x");
    BAD("SGD: lr=-1 is out of its range", "SGD", 1, "lr=-1");
    BAD("SGD: lr is given twice", "SGD", 1, "lr=0.1, momentum=0.9, lr=0.2");
    BAD("SGD: options are written \"lr=1e-3, weight_decay=0.1\", got 'lr'", "SGD", 1, "lr");
    BAD("SGD: nesterov needs momentum and no dampening", "SGD", 1, "nesterov=true");
    BAD("SGD: nesterov must be true or false, got '1'", "SGD", 1, "nesterov=1");
#undef BAD
    flow_unref(p);
    CHECK(o == NULL && flow_tensor_count() == 0);
}

int main(void)
{
    OK(flow_open(NULL));
    RUN(test_calls);
    RUN(test_results_left_out);
    RUN(test_out);
    RUN(test_max);
    RUN(test_methods);
    RUN(test_bad_calls);
    RUN(test_gradients);
    RUN(test_gradients_as_values);
    RUN(test_optimizers);
    OK(flow_close());
    return finish();
}

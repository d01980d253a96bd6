/*
** test_api.c -- the C interface: every function, wrong inputs, what is given back and when; but threads, tasks,
** mapped memory and DLPack are in test_api_host.c.
*/
#include "api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_opening(void)
{
    flow_tensor *t = NULL;
    FAILS(flow_empty(&t, &matrix), FLOW_ERR_STATE, "flow_empty: flow_open was not called, or flow_close since");
    FAILS(flow_open(&(flow_config){.threads = -1}), FLOW_ERR_VALUE, "flow_open: threads must not be negative, got -1");
    FAILS(flow_close(), FLOW_ERR_STATE, "flow_close: flow_open was not called, or flow_close since");
    for (int i = 0; i < 3; i++) {
        OK(flow_open(i == 1 ? &(flow_config){.threads = 1} : NULL));
        FAILS(flow_open(NULL), FLOW_ERR_STATE, "flow_open: it is open already in this process");
        CHECK(flow_rank() == 0 && flow_world_size() == 1);
        OK(flow_join(NULL)); /* no launcher: nobody to join */
        t = make(&matrix, six);
        FAILS(flow_join(NULL), FLOW_ERR_STATE, "flow_join: it joins before any tensor exists; there are 1");
        flow_unref(t);
        OK(flow_close());
    }
    CHECK(strlen(flow_version()) > 0);
    OK(flow_open(NULL));
}

static void test_making_and_reading(void)
{
    float read[6] = {0};
    char text[64];
    flow_tensor *t = make(&matrix, six), *same = flow_ref(t), *empty;
    CHECK(same == t && flow_tensor_count() == 1);
    flow_unref(same);
    CHECK_TEXT(flow_dtype(t), "float32");
    CHECK(flow_ndim(t) == 2 && flow_shape(t)[0] == 2 && flow_shape(t)[1] == 3 && flow_numel(t) == 6);
    CHECK(!flow_is_global(t) && flow_local_shape(t)[1] == 3 && flow_local_start(t)[1] == 0 && flow_strides(t)[0] == 3);
    CHECK_TEXT(flow_describe(text, sizeof text, t), "float32[2, 3] on cpu");
    OK(flow_read(t, read, sizeof read));
    CHECK(memcmp(read, six, sizeof six) == 0);
    FAILS(flow_read(t, read, 8), FLOW_ERR_VALUE, "flow_read: float32[2, 3] on cpu has 24 bytes, the buffer 8");
    double value;
    FAILS(flow_item(&value, t), FLOW_ERR_SHAPE, "flow_item: takes a tensor of one element, it has shape [2, 3]");
    flow_unref(t);
    flow_unref(NULL);
    CHECK(!flow_dtype(NULL) && !flow_ndim(NULL) && !flow_shape(NULL) && !flow_numel(NULL) && !flow_is_global(NULL));
    CHECK(!flow_local_shape(NULL) && !flow_local_start(NULL) && !flow_strides(NULL));
    CHECK_TEXT(flow_describe(text, sizeof text, NULL), "nothing");
    OK(flow_empty(&empty, &(flow_spec){.dtype = "int64", .device = "meta", .ndim = 1, .shape = three}));
    CHECK(flow_read(empty, read, 24) == FLOW_ERR_STATE);
    flow_unref(empty);
    CHECK(flow_tensor_count() == 0);
}

static void test_bad_specs(void)
{
    static const int64_t negative[] = {-1};
    static const struct {
        flow_spec spec;
        const char *text;
    } bad[] = {
        {{.dtype = "flaot32"}, "flow_empty: unknown dtype 'flaot32'; did you mean 'float32'?"},
        {{.dtype = "\x1b"}, "flow_empty: unknown dtype '\\x1b'"},
        {{.device = "gpu"}, "flow_empty: unknown device 'gpu'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\""},
        {{.device = "cpu:1"},
         "flow_empty: unknown device 'cpu:1'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\""},
        {{.ndim = 2}, "flow_empty: spec->shape is NULL"},
        {{.ndim = -1}, "flow_empty: ndim is -1, it must not be negative"},
        {{.ndim = 9, .shape = two_three}, "flow_empty: 9 axes are too many, a tensor has at most 8"},
        {{.ndim = 1, .shape = negative}, "flow_empty: size -1 in shape [-1] is negative"},
        {{.placement = "cpu"}, "flow_empty: placement and sbp go together; sbp is missing"},
        {{.sbp = "B"}, "flow_empty: placement and sbp go together; placement is missing"},
        {{.device = "cpu", .placement = "cpu", .sbp = "B"},
         "flow_empty: give a device (a local tensor) or a placement and an sbp (a global one), not both"},
        {{.placement = "cpu {0", .sbp = "B"},
         "flow_empty: 'cpu {0' is no placement; one is \"cpu\" (all ranks), \"cpu {0, 1}\" or \"cuda {{0, 1}, {2, "
         "3}}\""},
        {{.placement = "cpu {{0}, 1}", .sbp = "B"},
         "flow_empty: 'cpu {{0}, 1}' is no placement; one is \"cpu\" (all ranks), \"cpu {0, 1}\" or \"cuda {{0, 1}, "
         "{2, 3}}\""},
        {{.placement = "cpu {0}", .sbp = "T"},
         "flow_empty: 'T' is no sbp; one is \"S(0)\", \"B\", \"P\", \"P(max)\" or \"P(min)\", for each axis of the "
         "placement: \"S(0), B\""},
    };
    flow_tensor *t = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        FAILS(flow_empty(&t, &bad[i].spec),
              i == 13                ? FLOW_ERR_SBP
                  : i >= 5 && i <= 7 ? FLOW_ERR_SHAPE
                                     : FLOW_ERR_VALUE,
              bad[i].text);
    FAILS(
        flow_empty(&t, &(flow_spec){.placement = "cpu {0, 3}", .sbp = "B"}), FLOW_ERR_SBP,
        "flow_empty: rank 3 does not exist: the world has 1 rank; flow_join joins others, and \"cpu\" alone means all");
    CHECK(flow_empty(&t, &(flow_spec){.placement = "cpu", .sbp = "B, B"}) != FLOW_OK);
    FAILS(flow_empty(&t, NULL), FLOW_ERR_VALUE, "flow_empty: spec is NULL");
    static const int64_t large[] = {INT64_C(1) << 50};
    CHECK(flow_empty(&t, &(flow_spec){.ndim = 1, .shape = large}) == FLOW_ERR_MEMORY);
    CHECK(strncmp(flow_error(), "flow_empty: out of memory: ", 27) == 0);
    FAILS(flow_empty(NULL, &matrix), FLOW_ERR_VALUE, "flow_empty: out is NULL");
    CHECK(t == NULL && flow_tensor_count() == 0);
}

static void count_release(void *context) { ++*(int *)context; }

/* Memory of the host is used in place, and given back once, when the last that uses it is gone. */
static void test_borrowing(void)
{
    float data[6];
    int released = 0;
    flow_tensor *t, *view, *sum;
    memcpy(data, six, sizeof data);
    OK(flow_borrow(&t, &matrix, data, NULL, count_release, &released));
    OK(flow_call(NULL, 0, "mul_", FLOW_ARGS(flow_of(t), flow_int(2))));
    OK(flow_wait(t));
    CHECK(data[5] == 12);
    OK(flow_call(&view, 1, "transpose", FLOW_ARGS(flow_of(t), flow_int(0), flow_int(1))));
    flow_unref(t);
    CHECK(released == 0);
    OK(flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(view))));
    CHECK(item(sum) == 42);
    flow_unref(view);
    flow_unref(sum);
    OK(flow_sync());
    CHECK(released == 1);

    const int64_t columns[] = {1, 2};
    float read[6];
    OK(flow_borrow(&t, &matrix, data, columns, count_release, &released));
    OK(flow_read(t, read, sizeof read));
    CHECK(read[1] == data[2] && read[3] == data[1]);
    flow_unref(t);
    CHECK(released == 2);

    OK(flow_borrow(&t, &(flow_spec){.ndim = 2, .shape = two_three, .placement = "cpu {0}", .sbp = "S(1)"}, data, NULL,
                   count_release, &released));
    CHECK(flow_is_global(t));
    flow_unref(t);
    CHECK(released == 3);

    const int64_t negative[] = {-3, 1};
    CHECK(flow_borrow(&t, &matrix, (char *)data + 1, NULL, count_release, &released) == FLOW_ERR_VALUE);
    FAILS(flow_borrow(&t, &matrix, NULL, NULL, count_release, &released), FLOW_ERR_VALUE, "flow_borrow: data is NULL");
    FAILS(flow_borrow(&t, &matrix, data, negative, count_release, &released), FLOW_ERR_VALUE,
          "flow_borrow: stride -3 of axis 0 is negative");
    const int64_t far[] = {INT64_C(1) << 61, 1}, further[] = {INT64_MAX, 1}, sum_far[] = {INT64_MAX / 4, INT64_MAX / 8};
    FAILS(flow_borrow(&t, &matrix, data, far, count_release, &released), FLOW_ERR_VALUE,
          "flow_borrow: stride 2305843009213693952 of axis 0 is too large for size 2");
    CHECK(flow_borrow(&t, &matrix, data, further, count_release, &released) == FLOW_ERR_VALUE);
    CHECK(flow_borrow(&t, &matrix, data, sum_far, count_release, &released) == FLOW_ERR_VALUE);
    CHECK(released == 3 && flow_tensor_count() == 0);

    /* no step is made along an axis of one element, so its stride does not matter */
    OK(flow_borrow(&t, &(flow_spec){.ndim = 2, .shape = (int64_t[]){1, 3}}, data, further, NULL, NULL));
    OK(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(t), flow_int(1))));
    flow_unref(t);
}

/* Positions that share elements are read, and not written in place. */
static void test_overlaps(void)
{
    float data[6], read[6];
    const int64_t overlapping[] = {1, 1}, apart[] = {1, 2};
    flow_tensor *t, *row;
    memcpy(data, six, sizeof data);
    OK(flow_borrow(&t, &matrix, data, overlapping, NULL, NULL));
    FAILS(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(t), flow_int(1))), FLOW_ERR_STATE,
          "add_: this tensor has strides that overlap (several positions share one element), so it cannot be written "
          "in place; use clone() first");
    OK(flow_read(t, read, sizeof read));
    CHECK(read[2] == 3 && read[3] == 2 && data[1] == 2);
    OK(flow_call(&row, 1, "select", FLOW_ARGS(flow_of(t), flow_int(0), flow_int(1))));
    OK(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(row), flow_int(1))));
    OK(flow_sync());
    CHECK(data[0] == 1 && data[1] == 3 && data[3] == 5);
    flow_unref(row);
    flow_unref(t);
    OK(flow_borrow(&t, &matrix, data, apart, NULL, NULL));
    OK(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(t), flow_int(1))));
    flow_unref(t);
    OK(flow_sync());
    CHECK(flow_tensor_count() == 0);
}

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

static void test_global_tensors(void)
{
    float read[6];
    flow_tensor *local = make(&matrix, six), *whole, *moved, *part, *device;
    OK(flow_from_local(&whole, local, "cpu", "S(0)"));
    CHECK(flow_is_global(whole));
    OK(flow_to_global(&moved, whole, NULL, "B"));
    OK(flow_to_local(&part, moved));
    OK(flow_read(whole, read, sizeof read));
    CHECK(!flow_is_global(part) && memcmp(read, six, sizeof six) == 0);
    OK(flow_call(&device, 1, "to", FLOW_ARGS(flow_of(local), flow_text("cpu"))));
    CHECK(device == local);
    FAILS(flow_to_global(&moved, local, "cpu", "B"), FLOW_ERR_SBP,
          "flow_to_global: the tensor is local; flow_from_local takes one");
    FAILS(flow_call(&device, 1, "to", FLOW_ARGS(flow_of(whole), flow_text("cpu"))), FLOW_ERR_SBP,
          "to: the tensor is global; flow_to_global takes one");
    FAILS(flow_from_local(&whole, local, NULL, "B"), FLOW_ERR_VALUE, "flow_from_local: placement is NULL");
    flow_tensor *all[] = {local, whole, moved, part, device};
    for (int i = 0; i < 5; i++) flow_unref(all[i]);
    CHECK(flow_tensor_count() == 0);
}

/* ---- files ---- */

static void test_files(void)
{
    char path[] = "/tmp/test_api.XXXXXX";
    float read[6];
    flow_file *file = NULL;
    flow_tensor *t, *loaded;
    close(mkstemp(path));
    flow_tensor *tensors[] = {make(&vector, six), make(&matrix, six)};
    const char *const names[] = {"bias", "weight"}, *const same[] = {"w", "w"}, *const empty[] = {"", "w"};
    OK(flow_from_local(&t, tensors[1], "cpu", "S(0)"));
    flow_unref(tensors[1]);
    tensors[1] = t;
    OK(flow_save(path, names, tensors, 2));
    OK(flow_file_open(&file, path));
    CHECK(flow_file_name(file, 2) == NULL && flow_file_name(file, -1) == NULL && flow_file_name(NULL, 0) == NULL);
    CHECK_TEXT(flow_file_name(file, 1), "weight");
    OK(flow_file_read(&loaded, file, "weight", NULL));
    OK(flow_read(loaded, read, sizeof read));
    CHECK(!flow_is_global(loaded) && memcmp(read, six, sizeof six) == 0);
    flow_unref(loaded);
    OK(flow_file_read(&loaded, file, "weight", &(flow_spec){.placement = "cpu", .sbp = "S(-1)"}));
    CHECK(flow_is_global(loaded));
    flow_unref(loaded);
    FAILS(flow_file_read(&loaded, file, "weigth", NULL), FLOW_ERR_VALUE,
          "flow_file_read: the file has no tensor 'weigth'; did you mean 'weight'?");
    flow_file_close(file);
    flow_file_close(NULL);
    char wanted[128];
    flow_program *program = NULL;
    snprintf(wanted, sizeof wanted, "flow_program_open: %s: holds no program: p:save(path) writes one", path);
    FAILS(flow_program_open(&program, path, NULL), FLOW_ERR_IO, wanted);
    CHECK(flow_program_open(&program, path, "gpu") == FLOW_ERR_VALUE);
    CHECK(flow_program_open(&program, "/no/such/file", NULL) == FLOW_ERR_IO);
    FAILS(flow_program_run(NULL, 0, NULL, NULL, 0), FLOW_ERR_VALUE, "flow_program_run: program is NULL");
    CHECK(!flow_program_name(NULL, FLOW_INPUTS, 0) && !flow_program_weight(NULL, 0));
    flow_program_close(NULL);
    FAILS(flow_save(path, same, tensors, 2), FLOW_ERR_VALUE, "flow_save: two tensors are called 'w'");
    FAILS(flow_save(path, empty, tensors, 2), FLOW_ERR_VALUE, "flow_save: tensor 0 has no name");
    CHECK(flow_save("/no/such/folder/x.safetensors", names, tensors, 2) == FLOW_ERR_IO);
    CHECK(flow_file_open(&file, "/no/such/file") == FLOW_ERR_IO);
    CHECK(flow_file_open(&file, "/proc/self/exe") == FLOW_ERR_IO);
    flow_unref(tensors[0]);
    flow_unref(tensors[1]);
    remove(path);
    CHECK(flow_tensor_count() == 0);
}

/* ---- warnings ---- */

static char warned[256];
static void keep_warning(void *context, const char *message)
{
    CHECK(context == warned);
    snprintf(warned, sizeof warned, "%s", message);
}

static void test_warnings(void)
{
    OK(flow_close());
    setenv("FLOW_TIMEOUT", "soon", 1);
    OK(flow_open(&(flow_config){.warn = keep_warning, .context = warned}));
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_PROCID", "0", 1);
    FAILS(
        flow_join(NULL), FLOW_ERR_COMM,
        "flow_join: SLURM_STEP_NUM_TASKS is 4, but these processes cannot join each other and each runs alone as rank "
        "0 of 1; start them by mpirun, or by srun --mpi=pmix where Open MPI has PMIx");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_PROCID");
    unsetenv("FLOW_TIMEOUT");
    OK(flow_join(NULL));
    CHECK(flow_fail(FLOW_ERR_IO, "of the host") == FLOW_ERR_IO);
    CHECK_TEXT(flow_error(), "of the host");
}

/* Tensors that the host still holds may be given back afterwards. */
static void test_closing(void)
{
    float data[6];
    int released = 0;
    flow_tensor *t;
    OK(flow_borrow(&t, &matrix, data, NULL, count_release, &released));
    OK(flow_close());
    CHECK(released == 0);
    flow_unref(t);
    CHECK(released == 1 && flow_tensor_count() == 0);
}

int main(void)
{
    RUN(test_opening);
    RUN(test_making_and_reading);
    RUN(test_bad_specs);
    RUN(test_borrowing);
    RUN(test_overlaps);
    RUN(test_calls);
    RUN(test_results_left_out);
    RUN(test_out);
    RUN(test_max);
    RUN(test_methods);
    RUN(test_bad_calls);
    RUN(test_gradients);
    RUN(test_gradients_as_values);
    RUN(test_optimizers);
    RUN(test_global_tensors);
    RUN(test_files);
    RUN(test_warnings);
    RUN(test_closing);
    return finish();
}

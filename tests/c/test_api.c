/*
** test_api.c -- the C interface: opening, tensors, global ones, files, warnings; wrong inputs, what is given back and
** when. Ops, gradients and optimizers are in test_api_calls.c; threads, tasks, mapped memory and DLPack in
** test_api_host.c.
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
    RUN(test_global_tensors);
    RUN(test_files);
    RUN(test_warnings);
    RUN(test_closing);
    return finish();
}
/*
** test_api_host.c -- the C interface and its host: mapped memory, other threads, the host's tasks, DLPack.
*/
#include "api.h"
#include "threads.h"
#include "core/engine/team.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- mapped memory ---- */

/* As much of a DLManagedTensorVersioned as the test looks at. */
struct managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct managed *self);
    uint64_t flags;
    void *data;
    int32_t device[2], ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

static void test_mapping(void)
{
    void *data;
    flow_tensor *t = make(&matrix, six), *before;
    OK(flow_call(&before, 1, "mul", FLOW_ARGS(flow_of(t), flow_of(t))));
    OK(flow_map(&data, t, FLOW_READ | FLOW_WRITE));
    CHECK(((float *)data)[5] == 6);
    ((float *)data)[5] = 60;
    flow_tensor *view, *sum, *old;
    OK(flow_call(NULL, 0, "neg", FLOW_ARGS(flow_of(before))));
    FAILS(flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(t))), FLOW_ERR_STATE,
          "sum: x is mapped for writing by the host; call flow_unmap first");
    FAILS(flow_call(&sum, 1, "mul", FLOW_ARGS(flow_of(before), flow_of(t))), FLOW_ERR_STATE,
          "mul: y is mapped for writing by the host; call flow_unmap first");
    FAILS(flow_call(&view, 1, "t", FLOW_ARGS(flow_of(t))), FLOW_ERR_STATE,
          "t: x is mapped for writing by the host; call flow_unmap first");
    FAILS(flow_call(&sum, 1, "neg", FLOW_ARGS(flow_of(before), flow_named("out", flow_of(t)))), FLOW_ERR_STATE,
          "neg: out is mapped for writing by the host; call flow_unmap first");
    FAILS(flow_unmap(t, FLOW_READ), FLOW_ERR_STATE,
          "flow_unmap: the tensor is mapped with FLOW_READ | FLOW_WRITE, not with FLOW_READ");
    OK(flow_unmap(t, FLOW_READ | FLOW_WRITE));
    FAILS(flow_unmap(t, FLOW_READ | FLOW_WRITE), FLOW_ERR_STATE, "flow_unmap: the tensor is not mapped");
    for (int i = 0; i < 20; i++) OK(flow_map(&data, t, 1 + i % 3)); /* one tensor may have several */
    for (int i = 0; i < 20; i++) OK(flow_unmap(t, 1 + i % 3));
    OK(flow_map(&data, t, FLOW_READ));
    FAILS(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(t), flow_int(1))), FLOW_ERR_STATE,
          "add_: x is mapped for reading by the host; call flow_unmap first");
    OK(flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(t))));
    OK(flow_unmap(t, FLOW_READ));
    OK(flow_call(&old, 1, "sum", FLOW_ARGS(flow_of(before))));
    CHECK(item(sum) == 75 && item(old) == 91);
    FAILS(flow_map(&data, t, 0), FLOW_ERR_VALUE, "flow_map: access must be FLOW_READ, FLOW_WRITE or both, got 0");
    flow_tensor *all[] = {t, before, sum, old};
    for (int i = 0; i < 4; i++) flow_unref(all[i]);
    OK(flow_empty(&t, &(flow_spec){.device = "meta"}));
    CHECK(flow_map(&data, t, FLOW_READ) == FLOW_ERR_STATE);
    FAILS(flow_unmap(t, FLOW_READ), FLOW_ERR_STATE, "flow_unmap: the tensor is not mapped");
    flow_unref(t);
    CHECK(flow_tensor_count() == 0);
}

/* A large tensor that is written in place may wait for its value, and keeps its memory. */
static void test_written_in_place(void)
{
    const int64_t many[] = {100000};
    void *given, *before, *after;
    flow_tensor *t, *sum;
    OK(flow_call(&t, 1, "zeros", FLOW_ARGS(flow_ints(many, 1))));
    OK(flow_map(&before, t, FLOW_READ));
    OK(flow_unmap(t, FLOW_READ));
    OK(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(t), flow_int(1))));
    OK(flow_call(NULL, 0, "mul_", FLOW_ARGS(flow_of(t), flow_int(3))));
    OK(flow_map(&after, t, FLOW_READ));
    CHECK(after == before && ((float *)after)[99999] == 3);
    OK(flow_unmap(t, FLOW_READ));
    OK(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(t), flow_int(1))));
    OK(flow_call(&sum, 1, "sum", FLOW_ARGS(flow_of(t))));
    OK(flow_map(&after, t, FLOW_READ));
    CHECK(after == before && item(sum) == 400000);
    OK(flow_unmap(t, FLOW_READ));
    flow_unref(sum);

    OK(flow_to_dlpack(&given, t)); /* sharing memory does not require the tensor's value first */
    struct managed *m = given;
    OK(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(t), flow_int(1))));
    CHECK(m->data == before && ((float *)m->data)[99999] == 5);
    m->deleter(m);
    flow_unref(t);
    CHECK(flow_tensor_count() == 0);
}

/* ---- threads ---- */

static void *call_elsewhere(void *tensor)
{
    flow_tensor *t = NULL;
    FAILS(flow_call(&t, 1, "neg", FLOW_ARGS(flow_of(tensor))), FLOW_ERR_STATE,
          "flow_call: called on another thread than flow_open; one thread calls, flow_take_over makes it another");
    flow_unref(tensor); /* noted for the thread that calls */
    return NULL;
}

static void *take_over(void *unused)
{
    flow_tensor *x, *y;
    OK(flow_take_over());
    x = make(&matrix, six);
    OK(flow_call(&y, 1, "neg", FLOW_ARGS(flow_of(x))));
    flow_unref(x);
    flow_unref(y);
    return unused;
}

static void test_threads(void)
{
    pthread_t other;
    flow_tensor *t = make(&matrix, six);
    pthread_create(&other, NULL, call_elsewhere, t);
    pthread_join(other, NULL);
    CHECK(flow_tensor_count() == 1);
    OK(flow_sync());
    CHECK(flow_tensor_count() == 0);
    pthread_create(&other, NULL, take_over, NULL);
    pthread_join(other, NULL);
    CHECK(flow_sync() == FLOW_ERR_STATE);
    OK(flow_take_over());
    OK(flow_seed(7));
}

/* ---- tasks of the host ---- */

struct work {
    int runs, finished;
    flow_status status;
    flow_handle *handle;
};

static flow_status add_up(void *context, void *const *data)
{
    ((struct work *)context)->runs++;
    const float *in = data[0];
    float *out = data[1];
    for (int i = 0; i < 3; i++) out[i] = in[i] + in[3 + i];
    return FLOW_OK;
}

static flow_status refuse(void *context, void *const *data)
{
    flow_tensor *t = NULL;
    ((struct work *)context)->runs++;
    CHECK(data[0] != NULL);
    CHECK(flow_empty(&t, &vector) == FLOW_ERR_STATE); /* not on this thread */
    FAILS(flow_take_over(), FLOW_ERR_STATE,
          "flow_take_over: called on a thread of libflow's, as by a task; a thread of the host takes over");
    return flow_fail(FLOW_ERR_IO, "the disk is full");
}

static void note_end(void *context, flow_status status)
{
    struct work *work = context;
    work->finished++;
    work->status = status;
}

static void *complete_later(void *handle)
{
    flow_done(handle, FLOW_OK, NULL);
    return NULL;
}

static pthread_t completer;
static void begin(void *context, void *const *data, flow_handle *handle)
{
    ((struct work *)context)->runs++;
    ((float *)data[0])[0] = 40;
    pthread_create(&completer, NULL, complete_later, handle);
}

static void begin_and_fail(void *context, void *const *data, flow_handle *handle)
{
    (void)context, (void)data;
    flow_done(handle, FLOW_ERR_COMM, "the peer hung up");
}

/* The result of a task, and its message, unless NULL. */
struct outcome {
    flow_status status;
    const char *message;
};

static flow_status end_as(void *context, void *const *data)
{
    const struct outcome *o = context;
    (void)data;
    return o->message ? flow_fail(o->status, o->message) : o->status;
}

static void begin_and_end_as(void *context, void *const *data, flow_handle *handle)
{
    const struct outcome *o = context;
    (void)data;
    flow_done(handle, o->status, o->message);
}

/* Whatever a task returns becomes an error with its name and with words. */
static void failures_have_words(void)
{
    static const struct {
        struct outcome outcome;
        flow_status status;
        const char *message;
    } cases[] = {
        {{FLOW_ERR_VALUE, NULL},
         FLOW_ERR_VALUE,
         "fill: the task failed with status 3 (a value out of its range) and gave no message"},
        {{FLOW_ERR_VALUE, ""},
         FLOW_ERR_VALUE,
         "fill: the task failed with status 3 (a value out of its range) and gave no message"},
        {{(flow_status)77, NULL},
         FLOW_ERR_STATE,
         "fill: the task returned 77, which is no status, and gave no message"},
        {{(flow_status)-1, "it broke"}, FLOW_ERR_STATE, "fill: the task returned -1, which is no status: it broke"},
        {{(flow_status)77, "it broke"}, FLOW_ERR_STATE, "fill: the task returned 77, which is no status: it broke"},
        {{FLOW_ERR_INTERRUPTED, NULL}, FLOW_ERR_STATE, "fill: the task was interrupted and gave no message"},
        {{FLOW_ERR_INTERRUPTED, "it broke"}, FLOW_ERR_STATE, "fill: it broke"},
        {{FLOW_ERR_IO, "disk: full"}, FLOW_ERR_IO, "fill: disk: full"},
        {{FLOW_ERR_IO, "fill: full"}, FLOW_ERR_IO, "fill: full"},
    };
    flow_tensor *y = make(&vector, six);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        flow_task task = {.name = "fill", .writes = &y, .write_count = 1, .context = (void *)&cases[i / 2].outcome};
        if (i % 2) task.start = begin_and_end_as;
        else task.run = end_as;
        (void)flow_fail(FLOW_ERR_IO, "of another call");
        OK(flow_push(&task));
        FAILS(flow_wait(y), cases[i / 2].status, cases[i / 2].message);
    }
    flow_task task = {.name = "A Task of the host, whose name has many characters",
                      .run = end_as,
                      .context = (void *)&cases[7].outcome};
    task.writes = &y;
    task.write_count = 1;
    OK(flow_push(&task));
    FAILS(flow_wait(y), FLOW_ERR_IO, "A Task of the host, whose name has many: disk: full");
    flow_unref(y);
    flow_sync();
}

/* ---- priorities ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static char order[8];

static flow_status pass_gate(void *context, void *const *data)
{
    (void)context, (void)data;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return FLOW_OK;
}

static flow_status note_turn(void *context, void *const *data)
{
    (void)data;
    strcat(order, context);
    return FLOW_OK;
}

/* A gate that keeps the tasks' thread busy until all are pushed is the first of them. */
static void test_priorities(void)
{
    flow_task task = {.name = "turn", .run = pass_gate, .priority = 1};
    pthread_mutex_lock(&gate);
    OK(flow_push(&task));
    static const struct {
        const char *name;
        int priority;
    } turns[] = {{"a", -1}, {"b", 0}, {"c", 1}, {"d", -1}, {"e", 0}, {"f", 1}};
    task.run = note_turn;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        task.context = (void *)turns[i].name;
        task.priority = turns[i].priority;
        OK(flow_push(&task));
    }
    pthread_mutex_unlock(&gate);
    OK(flow_sync());
    CHECK(!strcmp(order, "cfbead"));
    task.priority = 2;
    FAILS(flow_push(&task), FLOW_ERR_VALUE, "flow_push: priority must be 1, 0 or -1, got 2");
}

/* A task is refused what an op is refused: memory that the host has mapped, and a result that has a gradient. */
static void refuses_what_ops_may_not(void)
{
    void *data;
    flow_tensor *c, *h;
    flow_task task = {.name = "late", .run = add_up, .reads = &c, .read_count = 1};
    OK(flow_empty(&c, &(flow_spec){.ndim = 1, .shape = (int64_t[]){2}}));
    OK(flow_map(&data, c, FLOW_WRITE));
    memset(data, 0, 2 * sizeof(float));
    FAILS(flow_push(&task), FLOW_ERR_STATE,
          "flow_push: a tensor of reads is mapped for writing by the host; call flow_unmap first");
    OK(flow_unmap(c, FLOW_WRITE));
    task = (flow_task){.name = "late", .run = add_up, .writes = &c, .write_count = 1};
    OK(flow_map(&data, c, FLOW_READ));
    FAILS(flow_push(&task), FLOW_ERR_STATE,
          "flow_push: a tensor of writes is mapped for reading by the host; call flow_unmap first");
    OK(flow_unmap(c, FLOW_READ));
    OK(flow_require_grad(c, true));
    OK(flow_call(&h, 1, "mul", FLOW_ARGS(flow_of(c), flow_float(2))));
    task.writes = &h;
    FAILS(flow_push(&task), FLOW_ERR_STATE,
          "flow_push: tensor 0 of writes requires grad, which a task has none for; flow_call \"detach\" gives one "
          "without");
    flow_unref(h);
    OK(flow_require_grad(c, false));
    OK(flow_call(&h, 1, "expand", FLOW_ARGS(flow_of(c), flow_ints((int64_t[]){3, 2}, 2))));
    FAILS(flow_push(&task), FLOW_ERR_STATE,
          "flow_push: tensor 0 of writes is expanded (several positions share one element); flow_call \"clone\" gives "
          "one that can be written");
    flow_unref(c);
    flow_unref(h);
    c = make(&vector, six);
    OK(flow_map(&data, c, FLOW_WRITE));
    FAILS(flow_save("/nowhere", (const char *const[]){"c"}, &c, 1), FLOW_ERR_STATE,
          "flow_save: a tensor of tensors is mapped for writing by the host; call flow_unmap first");
    OK(flow_unmap(c, FLOW_WRITE));
    flow_unref(c);
    OK(flow_copy_in(&c, &(flow_spec){.ndim = 1, .shape = three, .device = "meta"}, six));
    CHECK(flow_numel(c) == 3);
    flow_unref(c);
}

static void test_tasks(void)
{
    float read[3];
    struct work work = {0}, failing = {0}, starved = {0}, later = {0};
    flow_tensor *x = make(&matrix, six), *y = make(&vector, six), *z, *deferred;
    flow_task task = {.name = "add_up",
                      .run = add_up,
                      .finished = note_end,
                      .context = &work,
                      .reads = &x,
                      .writes = &y,
                      .read_count = 1,
                      .write_count = 1};
    OK(flow_push(&task));
    OK(flow_call(&z, 1, "mul", FLOW_ARGS(flow_of(y), flow_int(2)))); /* waits for the task */
    OK(flow_read(z, read, sizeof read));
    CHECK(read[0] == 10 && read[2] == 18);
    flow_unref(z);
    OK(flow_sync());
    CHECK(work.runs == 1 && work.finished == 1 && work.status == FLOW_OK);

    /* an input that does not exist yet, and is dropped at once */
    const int64_t large[] = {2, 60000};
    OK(flow_call(&z, 1, "ones", FLOW_ARGS(flow_ints(large, 2))));
    OK(flow_call(&deferred, 1, "add", FLOW_ARGS(flow_of(z), flow_int(1))));
    flow_unref(z);
    task.reads = &deferred;
    OK(flow_push(&task));
    flow_unref(deferred);
    OK(flow_read(y, read, sizeof read));
    CHECK(read[0] == 4);

    task = (flow_task){
        .name = "begin", .start = begin, .finished = note_end, .context = &later, .writes = &y, .write_count = 1};
    OK(flow_push(&task));
    OK(flow_read(y, read, sizeof read));
    pthread_join(completer, NULL);
    CHECK(read[0] == 40 && later.runs == 1 && later.finished == 1);

    task = (flow_task){
        .name = "refuse", .run = refuse, .finished = note_end, .context = &failing, .writes = &y, .write_count = 1};
    OK(flow_push(&task));
    task = (flow_task){.name = "add_up",
                       .run = add_up,
                       .finished = note_end,
                       .context = &starved,
                       .reads = &y,
                       .writes = &x,
                       .read_count = 1,
                       .write_count = 1};
    OK(flow_push(&task));
    FAILS(flow_read(y, read, sizeof read), FLOW_ERR_IO, "refuse: the disk is full");
    FAILS(flow_wait(x), FLOW_ERR_IO, "refuse: the disk is full");
    CHECK(failing.runs == 1 && failing.status == FLOW_ERR_IO);
    CHECK(starved.runs == 0 && starved.finished == 1 && starved.status == FLOW_ERR_IO);
    task = (flow_task){.name = "peer", .start = begin_and_fail, .writes = &x, .write_count = 1};
    OK(flow_push(&task));
    FAILS(flow_wait(x), FLOW_ERR_COMM, "peer: the peer hung up");
    flow_sync();

    failures_have_words();
    refuses_what_ops_may_not();
    FAILS(flow_push(&(flow_task){.name = "none"}), FLOW_ERR_VALUE,
          "flow_push: a task has either run or start; 'none' has none");
    FAILS(flow_push(&(flow_task){.run = add_up}), FLOW_ERR_VALUE, "flow_push: name is NULL");
    FAILS(flow_push(&(flow_task){.name = "", .run = add_up}), FLOW_ERR_VALUE, "flow_push: name is empty");
    flow_tensor *nothing = NULL;
    FAILS(flow_push(&(flow_task){.name = "x", .run = add_up, .reads = &nothing, .read_count = 1}), FLOW_ERR_VALUE,
          "flow_push: tensor 0 of reads is NULL");
    flow_done(NULL, FLOW_OK, NULL);
    flow_unref(x);
    flow_unref(y);
    OK(flow_sync());
    CHECK(flow_tensor_count() == 0);
}

/* ---- DLPack ---- */

static int deleted;
static void count_deleted(struct managed *self)
{
    CHECK(self->context == &deleted);
    deleted++;
}

static void *delete_elsewhere(void *managed)
{
    ((struct managed *)managed)->deleter(managed);
    return NULL;
}

/* As much of a DLManagedTensor as the test looks at: the layout before version 1. */
struct unversioned {
    void *data;
    int32_t device[2], ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void *context;
    void (*deleter)(struct unversioned *self);
};

static void count_unversioned(struct unversioned *self)
{
    CHECK(self->context == &deleted);
    deleted++;
}

static void test_dlpack_unversioned(void)
{
    float data[6];
    int64_t shape[] = {6};
    flow_tensor *t, *back;
    void *given;
    struct unversioned m = {data, {1, 0}, 1, 2, 32, 1, shape, NULL, 0, &deleted, count_unversioned};
    memcpy(data, six, sizeof data);
    deleted = 0;
    OK(flow_from_dlpack_unversioned(&t, &m));
    OK(flow_call(NULL, 0, "mul_", FLOW_ARGS(flow_of(t), flow_int(2))));
    OK(flow_to_dlpack_unversioned(&given, t));
    CHECK(data[5] == 12 && ((struct unversioned *)given)->data == data);
    CHECK(((struct unversioned *)given)->ndim == 1 && ((struct unversioned *)given)->shape[0] == 6);
    flow_unref(t);
    CHECK(deleted == 0);
    OK(flow_from_dlpack_unversioned(&back, given)); /* a tensor of ours comes back */
    flow_unref(back);
    CHECK(deleted == 1);
    m.code = 5;
    CHECK(flow_from_dlpack_unversioned(&t, &m) == FLOW_ERR_DTYPE && deleted == 1);
    CHECK(flow_from_dlpack_unversioned(&t, NULL) == FLOW_ERR_VALUE);
    FAILS(flow_to_dlpack_unversioned(&given, NULL), FLOW_ERR_VALUE, "flow_to_dlpack_unversioned: tensor is NULL");
}

static void test_dlpack(void)
{
    float data[6], read[6];
    int64_t shape[] = {2, 3}, backwards[] = {-3, 1};
    void *given;
    pthread_t other;
    flow_tensor *t;
    struct managed m = {.major = 1,
                        .context = &deleted,
                        .deleter = count_deleted,
                        .data = data,
                        .device = {1, 0},
                        .ndim = 2,
                        .code = 2,
                        .bits = 32,
                        .lanes = 1,
                        .shape = shape};
    memcpy(data, six, sizeof data);
    OK(flow_from_dlpack(&t, &m));
    OK(flow_call(NULL, 0, "mul_", FLOW_ARGS(flow_of(t), flow_int(2))));
    OK(flow_sync());
    CHECK(data[5] == 12 && deleted == 0);
    flow_unref(t);
    CHECK(deleted == 1);

    m.strides = backwards, m.byte_offset = 3 * sizeof(float); /* copied: the deleter is called at once */
    OK(flow_from_dlpack(&t, &m));
    OK(flow_read(t, read, sizeof read));
    CHECK(deleted == 2 && read[0] == 8 && read[3] == 2);

    OK(flow_to_dlpack(&given, t));
    CHECK(((struct managed *)given)->ndim == 2 && ((struct managed *)given)->shape[1] == 3);
    flow_unref(t);
    CHECK(flow_tensor_count() == 1);
    pthread_create(&other, NULL, delete_elsewhere, given);
    pthread_join(other, NULL);
    OK(flow_sync());
    CHECK(flow_tensor_count() == 0);

    int64_t far[] = {-(INT64_C(1) << 61), 1}, overlapping[] = {1, 1};
    m.strides = overlapping, m.byte_offset = 0;
    OK(flow_from_dlpack(&t, &m));
    CHECK(flow_call(NULL, 0, "add_", FLOW_ARGS(flow_of(t), flow_int(1))) == FLOW_ERR_STATE);
    flow_unref(t);
    CHECK(deleted == 3);
    m.strides = far;
    FAILS(flow_from_dlpack(&t, &m), FLOW_ERR_VALUE,
          "from_dlpack: stride -2305843009213693952 of axis 0 is too large for size 2");
    m.strides = NULL, m.shape = NULL;
    FAILS(flow_from_dlpack(&t, &m), FLOW_ERR_VALUE, "from_dlpack: the array has no shape");
    m.shape = shape, m.ndim = -1;
    FAILS(flow_from_dlpack(&t, &m), FLOW_ERR_SHAPE, "from_dlpack: ndim is -1, it must not be negative");
    m.ndim = 2, m.code = 5;
    CHECK(flow_from_dlpack(&t, &m) == FLOW_ERR_DTYPE);
    m.code = 2, m.device[0] = 7;
    CHECK(flow_from_dlpack(&t, &m) == FLOW_ERR_VALUE);
    m.device[0] = 1, m.major = 2;
    FAILS(flow_from_dlpack(&t, &m), FLOW_ERR_VALUE, "from_dlpack: the array is of DLPack 2.0, this is 1");
    CHECK(flow_from_dlpack(&t, NULL) == FLOW_ERR_VALUE && deleted == 3);
}

/* ---- the end ---- */

/* Nothing of libflow's runs after flow_close, and the next host does not get the threads of this one. */
static void test_threads_end(void)
{
    const int64_t large[] = {1000, 1000};
    flow_task task = {.name = "turn", .run = note_turn, .context = "g"};
    int before = fl_team_size();
    for (int i = 0; i < 3; i++) {
        flow_tensor *x, *y;
        OK(flow_open(&(flow_config){.threads = 3}));
        OK(flow_call(&x, 1, "ones", FLOW_ARGS(flow_ints(large, 2))));
        OK(flow_call(&y, 1, "exp", FLOW_ARGS(flow_of(x))));
        order[0] = '\0';
        OK(flow_push(&task));
        OK(flow_sync());
        CHECK(count_threads() > 2 && fl_team_size() == 3);
        flow_unref(x);
        flow_unref(y);
        OK(flow_close());
        for (int k = 0; k < 2000 && count_threads() > 1; k++) usleep(1000); /* a thread is listed a moment longer */
        CHECK(count_threads() == 1 && fl_team_size() == before);
    }
}

int main(void)
{
    OK(flow_open(NULL));
    RUN(test_mapping);
    RUN(test_written_in_place);
    RUN(test_threads);
    RUN(test_tasks);
    RUN(test_priorities);
    RUN(test_dlpack);
    RUN(test_dlpack_unversioned);
    OK(flow_close());
    RUN(test_threads_end);
    return finish();
}

/*
** task.c -- functions of the host among the ops: pushed with the variables they read and write.
**
** Tasks that occupy the thread of a lane (run) go to one thread. A task that begins something and returns (start) holds
** its thread until flow_done, so there are several for these, used in turn. Each has a lane per priority.
*/
#include "api.h"
#include "core/process.h"
#include "core/tasks.h"
#include "dispatch/mapped.h"
#include "dispatch/target.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAITING_THREADS = 4, LANE_SLOTS = 256 };

struct flow_handle {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    flow_status status;
    bool worded;
    char message[512];
};

/* The payload of a lane: a copy of the host's task, then its variables, then the addresses of its tensors. */
struct payload {
    flow_task task;
    fl_var **reads;
    void **data;
    int read_count;
};

/* ---- on the lane ---- */

void flow_done(flow_handle *handle, flow_status status, const char *message)
{
    if (!handle) return;
    pthread_mutex_lock(&handle->lock);
    handle->done = true;
    handle->status = status;
    handle->worded = message && *message;
    snprintf(handle->message, sizeof handle->message, "%s", message ? message : "");
    pthread_cond_signal(&handle->changed);
    pthread_mutex_unlock(&handle->lock);
}

static fl_status start_and_wait(const struct payload *payload)
{
    flow_handle handle = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    payload->task.start(payload->task.context, payload->data, &handle);
    pthread_mutex_lock(&handle.lock);
    while (!handle.done) pthread_cond_wait(&handle.changed, &handle.lock);
    pthread_mutex_unlock(&handle.lock);
    pthread_cond_destroy(&handle.changed);
    pthread_mutex_destroy(&handle.lock);
    if (handle.status != FLOW_OK && handle.worded) fl_fail((fl_status)handle.status, "%s", handle.message);
    return (fl_status)handle.status;
}

/* Runs the task; its error begins with its name. */
static fl_status call_task(const struct payload *p)
{
    uint64_t before = fl_failures();
    fl_status status = p->task.start ? start_and_wait(p) : (fl_status)p->task.run(p->task.context, p->data);
    if (status == FL_OK) return FL_OK;
    status = fl_fail_outside(status, before, p->task.name, "the task");
    if (status == FL_ERR_INTERRUPTED) status = FL_ERR_STATE; /* Ctrl-C is the script's */
    size_t n = strlen(p->task.name);
    bool named = strncmp(fl_message(), p->task.name, n) == 0 && fl_message()[n] == ':';
    return named ? status : fl_fail_prefix(status, "%s: ", p->task.name);
}

/* An input that is missing is the task's error. */
static fl_status check_reads(const struct payload *payload)
{
    char text[1024];
    fl_status status = FL_OK;
    for (int i = 0; i < payload->read_count && status == FL_OK; i++)
        status = fl_var_error(text, sizeof text, payload->reads[i]);
    return status == FL_OK ? FL_OK : fl_fail(status, "%s", text);
}

static fl_status run_task(void *given)
{
    struct payload *p = *(struct payload **)given;
    fl_status status = check_reads(p);
    if (status == FL_OK) status = call_task(p);
    char message[1024];
    snprintf(message, sizeof message, "%s", fl_message());
    if (p->task.finished) p->task.finished(p->task.context, (flow_status)status);
    free(p);
    return status == FL_OK ? FL_OK : fl_fail(status, "%s", message);
}

/* ---- pushing ---- */

/* The lanes, made at the first task. */
static fl_status lane_for(int *out, const flow_task *task)
{
    static int lanes[1 + WAITING_THREADS][FL_PRIORITIES], made; /* those of `run`, then those of `start` */
    static unsigned turn;
    for (; made <= WAITING_THREADS; made++) {
        char names[FL_PRIORITIES][24];
        for (int i = 0; i < FL_PRIORITIES; i++)
            snprintf(names[i], sizeof names[i], "host-%d%s", made, (const char *[]){" first", "", " last"}[i]);
        FL_TRY(fl_engine_lanes_new(lanes[made], (const char *[]){names[0], names[1], names[2]}, FL_PRIORITIES,
                                   LANE_SLOTS));
    }
    *out = lanes[task->start ? 1 + turn++ % WAITING_THREADS : 0][fl_priority_place(task->priority)];
    return FL_OK;
}

static fl_status check_tensors(flow_tensor *const *tensors, int count, const char *name, bool writes)
{
    char text[FL_META_TEXT];
    if (count < 0) return fl_fail(FL_ERR_VALUE, "flow_push: %d tensors in %s", count, name);
    if (count > 0) FL_TRY(fl_api_need(tensors, "flow_push", name));
    for (int i = 0; i < count; i++) {
        const fl_tensor *t = fl_api_in(tensors[i]);
        if (!t) return fl_fail(FL_ERR_VALUE, "flow_push: tensor %d of %s is NULL", i, name);
        if (t->meta->placement->type != FL_CPU)
            return fl_fail(FL_ERR_STATE, "flow_push: tensor %d of %s, %s, is not on the CPU", i, name,
                           fl_meta_placed_text(text, t->meta));
        FL_TRY(fl_mapped_check_task("flow_push", name, t, writes));
        if (writes && !fl_is_nested(t))
            return fl_fail(FL_ERR_STATE,
                           "flow_push: tensor %d of writes %s (several positions share one element); flow_call "
                           "\"clone\" gives one that can be written",
                           i, fl_is_expanded(t) ? "is expanded" : "has strides that overlap");
        if (writes && fl_requires_grad(t))
            return fl_fail(FL_ERR_STATE,
                           "flow_push: tensor %d of writes requires grad, which a task has none for; flow_call "
                           "\"detach\" gives one without",
                           i);
    }
    return FL_OK;
}

static fl_status check_task(const flow_task *task)
{
    FL_TRY(fl_api_need(task, "flow_push", "task"));
    FL_TRY(fl_api_need(task->name, "flow_push", "name"));
    if (!*task->name) return fl_fail(FL_ERR_VALUE, "flow_push: name is empty");
    if (!task->run == !task->start)
        return fl_fail(FL_ERR_VALUE, "flow_push: a task has either run or start; '%s' has %s", task->name,
                       task->run ? "both" : "none");
    FL_TRY(fl_priority_check("flow_push", task->priority));
    FL_TRY(check_tensors(task->reads, task->read_count, "reads", false));
    return check_tensors(task->writes, task->write_count, "writes", true);
}

static void list_vars(fl_var **out, flow_tensor *const *tensors, int count)
{
    for (int i = 0; i < count; i++) out[i] = &fl_api_in(tensors[i])->storage->var;
}

/* The payload, whose reads are set later; freed by run_task. */
static struct payload *new_payload(const flow_task *task)
{
    int reads = task->read_count, all = reads + task->write_count;
    struct payload *p = malloc(sizeof *p + (size_t)all * sizeof *p->data + (size_t)reads * sizeof *p->reads);
    if (!p) return NULL;
    p->task = *task;
    p->data = (void **)(p + 1);
    p->reads = (fl_var **)(p->data + all);
    for (int i = 0; i < all; i++) /* deferred values are computed, and get their places */
        p->data[i] = fl_tensor_data(fl_api_in(i < reads ? task->reads[i] : task->writes[i - reads]));
    return p;
}

/* vars: room for all variables. They are the engine's while it pushes; the lane may have freed the payload by then. */
static fl_status push(const flow_task *task, fl_var **vars)
{
    int lane, write_count = task->write_count, read_count = task->read_count;
    fl_var **reads = vars + write_count;
    list_vars(vars, task->writes, write_count);
    list_vars(reads, task->reads, read_count);
    fl_vars_once(reads, &read_count, vars, &write_count);
    FL_TRY(lane_for(&lane, task));
    struct payload *p = new_payload(task);
    if (!p) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", task->name);
    p->read_count = read_count;
    if (read_count) memcpy(p->reads, reads, (size_t)read_count * sizeof *reads);
    return fl_engine_push(&(fl_task){.name = task->name,
                                     .run = run_task,
                                     .payload = &p,
                                     .payload_size = sizeof p,
                                     .reads = reads,
                                     .read_count = read_count,
                                     .writes = vars,
                                     .write_count = write_count,
                                     .lane = lane,
                                     .flags = FL_TASK_NO_SKIP});
}

flow_status flow_push(const flow_task *task)
{
    FL_API_ENTER("flow_push");
    FL_API_TRY(check_task(task));
    size_t count = (size_t)task->read_count + (size_t)task->write_count + 1;
    fl_var **vars = malloc(count * sizeof *vars);
    if (!vars) return (flow_status)fl_fail(FL_ERR_MEMORY, "%s: out of memory", task->name);
    fl_status status = push(task, vars);
    free(vars);
    return fl_api_leave(status);
}

/*
** poison.c -- what happens to the variables of an op that fails or may not start.
**
** A failed op poisons what it writes. An op with a poisoned input does not run and passes the poison on,
** except that an op that updates its targets leaves them as they were and files the error instead: one
** bad batch must not destroy the model. Targets that never had a value are no such exception. Poison stays until a pure
** write replaces the value.
** Filed errors are what the script would not meet otherwise; fl_engine_wait_all raises them.
*/
#include "engine_internal.h"
#include "loss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILED = 32 };

static int64_t failures; /* atomic */

static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static struct filed {
    fl_poison *poison; /* owned */
    bool skipped;      /* an update was skipped: reported even if the poison has been */
} file[MAX_FILED];
static int filed_count;

/* ---- the counted object ---- */

static fl_poison *poison_ref(fl_poison *poison)
{
    __atomic_fetch_add(&poison->refs, 1, __ATOMIC_RELAXED);
    return poison;
}

void fl_poison_unref(fl_poison *poison)
{
    while (poison && __atomic_sub_fetch(&poison->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        fl_poison *cause = poison->cause;
        free(poison);
        poison = cause;
    }
}

/* Length of the name that the message begins with ("linalg.eig: the matrix has ...": 10), 0 when there is none. A
** kernel may serve several ops; its message has the name of the one called. That of a task of the host may be any. */
static size_t name_length(const char *message, const char *op)
{
    size_t n = strlen(op);
    bool own = strncmp(message, op, n) == 0 && message[n] == ':';
    if (!own) n = strspn(message, "abcdefghijklmnopqrstuvwxyz_0123456789.");
    return (own || n < FL_NAME_TEXT) && message[n] == ':' && message[n + 1] == ' ' ? n : 0;
}

/* Length of "rank 1" where the message begins so: it came from that rank, with its op and line. Else 0. */
static size_t origin_length(const char *message)
{
    static const char word[] = "rank ";
    size_t n = sizeof word - 1;
    if (strncmp(message, word, n) != 0) return 0;
    size_t digits = strspn(message + n, "0123456789");
    n += digits;
    return digits && n < FL_NAME_TEXT && message[n] == ':' && message[n + 1] == ' ' ? n : 0;
}

/* Never fails: without memory for the message there is a shared poison for that. cause: borrowed, or NULL. */
static fl_poison *poison_new(fl_status status, const char *op, const char *line, const char *message, fl_poison *cause)
{
    static fl_poison spare = {1, false, NULL, FL_ERR_MEMORY, "engine", {""}, {"out of memory for an error"}};
    size_t origin = origin_length(message), named = origin ? origin : name_length(message, op),
           rest = named ? named + 2 : 0;
    fl_poison *p = malloc(sizeof *p + strlen(message + rest) + 1);
    if (!p) return poison_ref(&spare);
    snprintf(p->op, sizeof p->op, "%.*s", named ? (int)named : FL_NAME_TEXT, named ? message : op);
    message += rest;
    p->refs = 1;
    p->reported = false;
    p->cause = cause ? poison_ref(cause) : NULL;
    p->status = status;
    if (origin) p->line[0] = '\0';
    else if (line) snprintf(p->line, sizeof p->line, "%s", line);
    else fl_line_now(p->line);
    strcpy(p->message, message);
    return p;
}

void fl_poison_put(fl_var *var, fl_poison *poison)
{
    if (poison) poison_ref(poison);
    fl_poison *before = __atomic_exchange_n(&var->poison, poison, __ATOMIC_ACQ_REL);
    if (FL_UNLIKELY((uintptr_t)before & 1)) fl_pending_unref(before);
    else fl_poison_unref(before);
}

fl_poison *fl_poison_of(const fl_var *var)
{
    fl_poison *p = __atomic_load_n(&var->poison, __ATOMIC_ACQUIRE);
    return FL_UNLIKELY((uintptr_t)p & 1) ? NULL : p;
}

/* The poison was raised, and with it what caused it. */
static void report(fl_poison *poison)
{
    for (; poison; poison = poison->cause) __atomic_store_n(&poison->reported, true, __ATOMIC_RELAXED);
}

fl_status fl_poison_raise(fl_poison *poison)
{
    report(poison);
    if (!poison->line[0]) return fl_fail(poison->status, "%s: %s", poison->op, poison->message);
    return fl_fail(poison->status, "%s (%s): %s", poison->op, poison->line, poison->message);
}

/* ---- the file ---- */

static bool is_unreported(const struct filed *filed, bool updates)
{
    return (filed->skipped && updates) || !__atomic_load_n(&filed->poison->reported, __ATOMIC_RELAXED);
}

static void file_error(fl_poison *poison, bool skipped)
{
    pthread_mutex_lock(&file_lock);
    if (filed_count == MAX_FILED) { /* drop what the script has met since */
        int kept = 0;
        for (int i = 0; i < MAX_FILED; i++) {
            if (is_unreported(&file[i], true)) file[kept++] = file[i];
            else fl_poison_unref(file[i].poison);
        }
        filed_count = kept;
    }
    if (filed_count < MAX_FILED) file[filed_count++] = (struct filed){poison_ref(poison), skipped};
    pthread_mutex_unlock(&file_lock);
}

fl_status fl_poison_raise_filed(bool updates)
{
    fl_status status = fl_poison_raise_lost();
    pthread_mutex_lock(&file_lock);
    for (int i = 0; i < filed_count; i++) {
        if (status == FL_OK && is_unreported(&file[i], updates)) status = fl_poison_raise(file[i].poison);
        fl_poison_unref(file[i].poison);
    }
    filed_count = 0;
    pthread_mutex_unlock(&file_lock);
    return status;
}

/* ---- lost memory ---- */

fl_poison *fl_poison_lost;
bool fl_losses;

fl_poison *fl_poison_prepare(fl_status status, const char *op)
{
    return poison_new(status, op, NULL, fl_message(), NULL);
}

/* Handlers of signals come here: nothing but atomic steps. The owner of the poison has a reference besides, so none is
** the last. */
static void put_if_empty(fl_poison **place, fl_poison *poison)
{
    fl_poison *none = NULL;
    poison_ref(poison);
    if (!__atomic_compare_exchange_n(place, &none, poison, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        __atomic_fetch_sub(&poison->refs, 1, __ATOMIC_RELAXED);
}

void fl_var_lose(fl_var *var, fl_poison *poison)
{
    put_if_empty(&var->poison, poison);
    put_if_empty(&fl_poison_lost, poison);
    __atomic_store_n(&fl_losses, true, __ATOMIC_RELEASE);
}

fl_status fl_loss_check(const fl_var *read)
{
    fl_poison *poison = fl_poison_of(read);
    return poison ? fl_poison_raise(poison) : FL_OK;
}

void fl_loss_pass(fl_var *computed, const fl_var *read)
{
    fl_poison *poison = fl_poison_of(read);
    if (poison) fl_poison_put(computed, poison);
}

fl_status fl_poison_raise_lost(void)
{
    fl_poison *poison = __atomic_exchange_n(&fl_poison_lost, NULL, __ATOMIC_ACQ_REL);
    if (!poison) return FL_OK;
    bool known = __atomic_load_n(&poison->reported, __ATOMIC_RELAXED);
    fl_status status = known ? FL_OK : fl_poison_raise(poison);
    fl_poison_unref(poison);
    return status;
}

/* ---- running under these rules ---- */

/* The first poisoned variable the task would read. */
static fl_poison *input_poison(const fl_task *task)
{
    fl_poison *p;
    for (int i = 0; i < task->read_count; i++)
        if ((p = fl_poison_of(task->reads[i]))) return p;
    for (int i = 0; i < task->update_count; i++)
        if ((p = fl_poison_of(task->writes[i]))) return p;
    if ((task->flags & (FL_TASK_UPDATES | FL_TASK_OVERWRITES)) != FL_TASK_UPDATES) return NULL;
    for (int i = 0; i < task->write_count; i++)
        if ((p = fl_poison_of(task->writes[i]))) return p;
    return NULL;
}

/* Of fl_var_give and of a writer that fails at that moment, one sees what the other has done. */
static bool was_given(const fl_var *var)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return __atomic_load_n(&var->given, __ATOMIC_RELAXED);
}

void fl_var_give(fl_var *var)
{
    __atomic_store_n(&var->given, true, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    fl_poison *poison = fl_poison_of(var);
    if (poison) file_error(poison, false);
}

static void mark_writes(const fl_task *task, fl_poison *poison)
{
    bool given = false;
    for (int i = 0; i < task->write_count; i++) {
        if (fl_poison_of(task->writes[i]) == poison) continue;
        fl_poison_put(task->writes[i], poison);
        given = given || (poison && was_given(task->writes[i]));
    }
    if (FL_UNLIKELY(given)) file_error(poison, false);
}

/* The task ran. Its targets are poisoned if an operand was, or is since its memory was lost meanwhile. */
static void pass_poison(const fl_task *task, fl_poison *input)
{
    if (fl_loss_any() && !input) input = input_poison(task);
    mark_writes(task, input);
}

/* True if nothing else would show the script that the task did not run. */
static bool goes_unnoticed(const fl_task *task)
{
    for (int i = 0; i < task->write_count; i++)
        if (!fl_poison_of(task->writes[i])) return true;
    return task->write_count == 0;
}

/* True if targets keep their values when the task does not run. */
static bool is_kept(const fl_task *task)
{
    return (task->flags & (FL_TASK_UPDATES | FL_TASK_UNSET)) == FL_TASK_UPDATES;
}

/* The task does not start because of the poison (borrowed). */
static void skip(const fl_task *task, fl_poison *poison)
{
    if (!is_kept(task)) mark_writes(task, poison);
}

/* After the error is filed, so that a reader of the count finds it. */
static void count_failure(void) { __atomic_fetch_add(&failures, 1, __ATOMIC_RELEASE); }

fl_poison *fl_poison_late(fl_status status, const char *op, const char *line, const char *message, fl_poison *cause)
{
    fl_poison *p = poison_new(status, op, line, message, cause);
    file_error(p, false);
    count_failure();
    return p;
}

/* The task ran and failed, perhaps because of the poison of its input (borrowed): returns its own, one reference. */
static fl_poison *fail(const fl_task *task, fl_status status, const char *line, fl_poison *input)
{
    fl_poison *p = poison_new(status, task->name, line, fl_message(), input);
    mark_writes(task, p);
    return p;
}

fl_status fl_task_run_here(const fl_task *task)
{
    fl_poison *input = input_poison(task);
    if (FL_UNLIKELY(input && !(task->flags & FL_TASK_NO_SKIP))) {
        skip(task, input);
        /* the error of an op issued to a device is raised where its value is needed, whenever it was found */
        return task == fl_issuing && !is_kept(task) ? FL_OK : fl_poison_raise(input);
    }
    fl_status status = task->run((void *)task->payload);
    if (FL_UNLIKELY(status != FL_OK)) {
        fl_poison *p = fail(task, status, task->line, input);
        report(p);
        fl_poison_unref(p);
        count_failure();
    } else pass_poison(task, input);
    return status;
}

void fl_task_run_queued(const fl_task *task, const char *line)
{
    fl_poison *input = input_poison(task);
    if (FL_UNLIKELY(input && !(task->flags & FL_TASK_NO_SKIP))) {
        skip(task, input);
        if (goes_unnoticed(task)) file_error(input, true);
        return;
    }
    fl_status status = task->run((void *)task->payload);
    if (FL_UNLIKELY(status != FL_OK)) {
        fl_poison *p = fail(task, status, line, input);
        if (!(task->flags & FL_TASK_QUIET)) file_error(p, false);
        fl_poison_unref(p);
        count_failure();
    } else pass_poison(task, input);
}

void fl_task_cancel(const fl_task *task, const char *line)
{
    fl_poison *p = poison_new(FL_ERR_STATE, task->name, line, "cancelled", NULL);
    skip(task, p);
    if (!(task->flags & FL_TASK_QUIET)) file_error(p, false);
    fl_poison_unref(p);
}

/* ---- variables ---- */

void fl_var_clear(fl_var *var)
{
    fl_engine_wait_idle(var);
    fl_poison_put(var, NULL);
}

fl_status fl_var_error(char *buffer, size_t size, const fl_var *var)
{
    const fl_poison *p = fl_poison_of(var);
    if (!p) return FL_OK;
    if (p->line[0]) snprintf(buffer, size, "%s (%s): %s", p->op, p->line, p->message);
    else snprintf(buffer, size, "%s: %s", p->op, p->message);
    return p->status;
}

void fl_var_poison(fl_var *var, const char *op)
{
    fl_engine_wait_idle(var);
    fl_poison *p = poison_new(FL_ERR_STATE, op, NULL, fl_message(), NULL);
    fl_poison_put(var, p);
    fl_poison_unref(p);
}

int64_t fl_poison_failures(void) { return __atomic_load_n(&failures, __ATOMIC_ACQUIRE); }

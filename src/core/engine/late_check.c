/*
** late_check.c -- checks that are made when an op has run on its device.
**
** An index out of range is found by the kernel that reads it, long after the op was issued. Until the check of such an
** op has run, what the op wrote and what is computed from that is pending: a variable keeps the set of checks it
** depends on where its poison would be. An op that only makes new values is issued all the same. Ops that cannot be
** undone wait for the checks first: an op of the host, a collective, and an update whose target would be spoiled by its
** operands. Such a wait ends when the checked op does, not when the device has done all its work: an event is recorded
** behind every op with a check. So the first wait of a training step is in the backward pass, for a kernel of the
** forward pass.
**
** Everything here runs on the pusher; only references are also given back by threads of lanes.
*/
#include "engine_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOGETHER = FL_TASK_CHECKS, TEXT = 512 };

struct check {      /* of one op */
    int refs;       /* atomic: the list's while it is open, and the sets' */
    bool open;      /* it has not run */
    fl_stamp stamp; /* of the op */
    fl_late_check *run;
    void *record;
    fl_poison *poison;  /* owned; when it is not open: NULL: nothing was wrong */
    struct check *next; /* in the list */
    const char *op;
    char line[FL_LINE_TEXT];
};

/* The checks that a variable depends on. Never changed, so variables share it. */
struct fl_pending_checks {
    int refs; /* atomic */
    int count;
    struct check *at[TOGETHER]; /* owned */
};

const fl_task *fl_issuing;

static struct check *oldest, *youngest; /* the list: open ones, and done ones behind an open one */
static int listed;
static int64_t made;
static struct {
    int count;
    struct check *at[TOGETHER];
} raised; /* by the op that is being issued; borrowed of the list */

/* ---- one check ---- */

static void check_unref(struct check *check)
{
    if (__atomic_sub_fetch(&check->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    fl_poison_unref(check->poison);
    free(check);
}

/* The op of the check is complete. */
static void run_check(struct check *check)
{
    char text[TEXT];
    if (!check->open) return;
    check->open = false;
    if (check->run(check->record, text, sizeof text))
        check->poison = fl_poison_late(FL_ERR_VALUE, check->op, check->line, text, NULL);
}

/* Runs the check if its op is known to be complete, without a query to the device. */
static void run_if_seen(struct check *check)
{
    if (check->open && fl_lanes[fl_stamp_lane(check->stamp)].seen >= fl_stamp_seq(check->stamp)) run_check(check);
}

static fl_status wait_and_run(struct check *check)
{
    if (!check->open) return FL_OK;
    FL_TRY(fl_engine_wait_stamp(check->stamp, true));
    run_check(check);
    return FL_OK;
}

static void drop_done(void)
{
    while (oldest && !oldest->open) {
        struct check *d = oldest;
        oldest = d->next;
        listed--;
        check_unref(d);
    }
    if (!oldest) youngest = NULL;
}

static fl_status make_room(void)
{
    for (struct check *d = oldest; d; d = d->next) run_if_seen(d);
    drop_done();
    if (listed < FL_MAX_PENDING) return FL_OK;
    FL_TRY(wait_and_run(oldest));
    drop_done();
    return FL_OK;
}

fl_status fl_engine_check_later(fl_late_check *run, void *record)
{
    return fl_engine_check_step_later(run, record, fl_issuing->name, fl_issuing->line);
}

fl_status fl_engine_check_step_later(fl_late_check *run, void *record, const char *op, const char *line)
{
    const fl_task *t = fl_issuing;
    assert(t && raised.count < TOGETHER);
    FL_TRY(make_room());
    struct check *d = calloc(1, sizeof *d);
    if (!d) return fl_fail(FL_ERR_MEMORY, "engine: out of memory for the report of a kernel");
    d->refs = 1;
    d->open = true;
    d->stamp = (fl_stamp)t->lane << 56 | fl_lanes[t->lane].pushed;
    d->op = op;
    d->run = run;
    d->record = record;
    if (line) snprintf(d->line, sizeof d->line, "%s", line);
    else fl_line_now(d->line);
    if (youngest) youngest->next = d;
    else oldest = d;
    youngest = d;
    listed++;
    made++;
    raised.at[raised.count++] = d;
    return FL_OK;
}

int64_t fl_engine_checks_made(void) { return made; }

void fl_pending_run_all(void)
{
    for (struct check *d = oldest; d; d = d->next) run_check(d);
    drop_done();
}

void fl_pending_run_done(void)
{
    for (struct check *d = oldest; d; d = d->next)
        if (fl_stamp_done(d->stamp)) run_check(d);
    drop_done();
}

/* ---- sets ---- */

static fl_pending_checks *pending_of(const fl_var *var)
{
    uintptr_t p = (uintptr_t)__atomic_load_n(&var->poison, __ATOMIC_ACQUIRE);
    return p & 1 ? (fl_pending_checks *)(p - 1) : NULL;
}

void fl_pending_unref(fl_poison *tagged)
{
    fl_pending_checks *set = (fl_pending_checks *)((uintptr_t)tagged - 1);
    if (__atomic_sub_fetch(&set->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    for (int i = 0; i < set->count; i++) check_unref(set->at[i]);
    free(set);
}

/* A poisoned variable stays poisoned: the task was not run. */
static void put_pending(fl_var *var, fl_pending_checks *set)
{
    if (fl_poison_of(var)) return;
    __atomic_fetch_add(&set->refs, 1, __ATOMIC_RELAXED);
    fl_poison_put(var, NULL);
    __atomic_store_n(&var->poison, (fl_poison *)((uintptr_t)set + 1), __ATOMIC_RELEASE);
}

static bool set_has(const fl_pending_checks *set, const struct check *check)
{
    for (int i = 0; i < set->count; i++)
        if (set->at[i] == check) return true;
    return false;
}

/* Adds an open check that is not there; the oldest makes room, which may take until its op is complete. *bad: the
** poison of one that failed. */
static fl_status set_add(fl_pending_checks *set, struct check *check, fl_poison **bad)
{
    if (set_has(set, check)) return FL_OK;
    if (set->count == TOGETHER) {
        FL_TRY(wait_and_run(set->at[0]));
        if (set->at[0]->poison) *bad = set->at[0]->poison;
        for (int i = 1; i < TOGETHER; i++) set->at[i - 1] = set->at[i];
        set->count--;
    }
    set->at[set->count++] = check;
    return FL_OK;
}

/* ---- variables ---- */

/* Checks that can run without a wait run; the variable is clean or poisoned as soon as that is certain. */
static void refresh(fl_var *var)
{
    const fl_pending_checks *set = pending_of(var);
    fl_poison *bad = NULL;
    int open = 0;
    if (FL_LIKELY(!set)) return;
    for (int i = 0; i < set->count; i++) {
        run_if_seen(set->at[i]);
        if (set->at[i]->poison && !bad) bad = set->at[i]->poison;
        open += set->at[i]->open;
    }
    if (bad || !open) fl_poison_put(var, bad);
}

fl_status fl_pending_settle(fl_var *var)
{
    const fl_pending_checks *set = pending_of(var);
    if (!set) return FL_OK;
    for (int i = 0; i < set->count; i++) FL_TRY(wait_and_run(set->at[i]));
    refresh(var);
    return FL_OK;
}

/* ---- tasks ---- */

/* True if the new values of the targets depend on the old ones. */
static bool reads_targets(const fl_task *task)
{
    return (task->flags & (FL_TASK_UPDATES | FL_TASK_OVERWRITES)) == FL_TASK_UPDATES;
}

/* Pending checks of tensors that are overwritten are dropped. */
static void forget_targets(const fl_task *task)
{
    for (int i = task->update_count; i < task->write_count; i++)
        if (FL_UNLIKELY(fl_is_pending(task->writes[i]))) fl_poison_put(task->writes[i], NULL);
}

fl_status fl_pending_settle_task(const fl_task *task)
{
    if (!reads_targets(task)) forget_targets(task);
    for (int i = 0; i < task->read_count; i++)
        if (FL_UNLIKELY(fl_is_pending(task->reads[i]))) FL_TRY(fl_pending_settle(task->reads[i]));
    for (int i = 0; i < task->write_count; i++)
        if (FL_UNLIKELY(fl_is_pending(task->writes[i]))) FL_TRY(fl_pending_settle(task->writes[i]));
    return FL_OK;
}

/* True if every check of the variable is also one of all targets: then an update adds no check to them. */
static bool targets_share(const fl_task *task, const fl_var *var)
{
    const fl_pending_checks *set = pending_of(var);
    for (int i = 0; i < task->write_count; i++) {
        const fl_pending_checks *own = pending_of(task->writes[i]);
        if (own == set) continue;
        for (int j = 0; j < set->count; j++)
            if (!own || !set_has(own, set->at[j])) return false;
    }
    return true;
}

fl_status fl_pending_before(const fl_task *task)
{
    raised.count = 0;
    if (FL_LIKELY(!oldest)) return fl_pending_settle_task(task);
    if (task->flags & FL_TASK_NO_SKIP) return fl_pending_settle_task(task);
    if (!reads_targets(task)) forget_targets(task);
    for (int i = 0; i < task->write_count; i++) refresh(task->writes[i]);
    for (int i = 0; i < task->read_count; i++) {
        fl_var *v = task->reads[i];
        refresh(v);
        if (task->flags & FL_TASK_UPDATES && fl_is_pending(v) && !targets_share(task, v)) FL_TRY(fl_pending_settle(v));
    }
    return FL_OK;
}

static fl_status add_all(fl_pending_checks *set, const fl_var *var, fl_poison **bad)
{
    const fl_pending_checks *own = pending_of(var);
    for (int i = 0; own && i < own->count; i++) FL_TRY(set_add(set, own->at[i], bad));
    return FL_OK;
}

/* Checks of what the task read and of what it updated. */
static fl_status collect(fl_pending_checks *set, const fl_task *task, fl_poison **bad)
{
    for (int i = 0; i < task->read_count; i++) FL_TRY(add_all(set, task->reads[i], bad));
    for (int i = 0; i < task->write_count; i++) FL_TRY(add_all(set, task->writes[i], bad));
    return FL_OK;
}

/* Sets among the task's variables: 2 when there are several; *set: the first. */
static int count_sets(const fl_task *task, fl_pending_checks **set)
{
    *set = NULL;
    for (int i = 0; i < task->read_count + task->write_count; i++) {
        fl_pending_checks *own = pending_of(i < task->read_count ? task->reads[i] : task->writes[i - task->read_count]);
        if (!own || own == *set) continue;
        if (*set) return 2;
        *set = own;
    }
    return *set != NULL;
}

/* The set with a reference, and its checks with one each; the caller's checks without one. */
static fl_pending_checks *set_new(const fl_pending_checks *checks)
{
    fl_pending_checks *set = malloc(sizeof *set);
    if (!set) return NULL;
    *set = *checks;
    set->refs = 1;
    for (int i = 0; i < set->count; i++) __atomic_fetch_add(&set->at[i]->refs, 1, __ATOMIC_RELAXED);
    return set;
}

static void set_unref(fl_pending_checks *set) { fl_pending_unref((fl_poison *)((uintptr_t)set + 1)); }

/* Write i of the task depends on `before` and on checks that the task made. Writes with the same checks share a set. */
static fl_status put_joined(const fl_task *task, int i, const fl_pending_checks *before)
{
    const unsigned own = task->checks ? task->checks[i] : ~0u;
    fl_pending_checks joined = *before, *set;
    fl_poison *bad = NULL;
    for (int k = 0; k < i && task->checks; k++)
        if (task->checks[k] == own && (set = pending_of(task->writes[k]))) {
            put_pending(task->writes[i], set);
            return FL_OK;
        }
    for (int k = 0; k < raised.count; k++)
        if (own >> k & 1) FL_TRY(set_add(&joined, raised.at[k], &bad));
    if (bad) fl_poison_put(task->writes[i], bad);
    if (bad || !joined.count) return FL_OK;
    if (!(set = set_new(&joined)))
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for the reports of kernels", task->name);
    put_pending(task->writes[i], set);
    set_unref(set);
    return FL_OK;
}

/* Sets for what the task wrote. */
static fl_status join_sets(const fl_task *task)
{
    fl_poison *bad = NULL;
    fl_pending_checks found = {0};
    fl_status status = collect(&found, task, &bad);
    fl_pending_checks *before = set_new(&found);
    if (!before) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for the reports of kernels", task->name);
    for (int i = 0; i < task->write_count && status == FL_OK; i++) {
        if (bad) fl_poison_put(task->writes[i], bad);
        else status = put_joined(task, i, before);
    }
    set_unref(before);
    return status;
}

fl_status fl_pending_after(const fl_task *task)
{
    fl_pending_checks *set;
    int event;
    if (FL_LIKELY(!oldest)) return FL_OK;
    if (raised.count) {
        FL_TRY(fl_stream_event(&event, &fl_lanes[task->lane], fl_stamp_seq(raised.at[0]->stamp)));
        return join_sets(task);
    }
    int sets = count_sets(task, &set);
    if (sets > 1) return join_sets(task);
    for (int i = 0; sets && i < task->write_count; i++)
        if (pending_of(task->writes[i]) != set) put_pending(task->writes[i], set);
    return FL_OK;
}

/*
** graph_fault.cu -- what kernels of a graph find wrong in their data.
**
** The records of the kernels are the graph's, and a launch may be issued before the one before it has run. So the last
** kernel of the graph moves what is in them to pinned memory of this launch, whose address each launch renews, and
** clears them. The checks of a launch read that memory when it is complete: nothing else is copied, nothing waits.
*/
#include "runtime.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { REPORTS = FL_GRAPH_REPORTS };

/* The report of a kernel in one launch, as in fl_cuda_fault. */
struct fl_cuda_reported {
    long long a, b;
};

/* A kernel's report of one launch. */
struct report {
    struct launch *launch;
    const fl_cuda_reported *reported;
    fl_cuda_wording wording;
};

/* The reports of one launch. */
struct launch {
    struct launch *next;        /* unused */
    int open;                   /* checks that have not run */
    fl_cuda_reported *reported; /* pinned */
    report reports[REPORTS];
};

static launch *unused;

__global__ void __launch_bounds__(REPORTS) clear_records(fl_cuda_fault *records)
{
    records[threadIdx.x] = {LLONG_MAX, 0, 0, &records[REPORTS].lock}; /* a flag that is not read */
}

/* out: where the address of the launch's memory is. */
__global__ void __launch_bounds__(REPORTS) move_records(fl_cuda_fault *records, fl_cuda_reported *const *out, int count)
{
    const int i = (int)threadIdx.x;
    if (i >= count) return;
    (*out)[i] = {records[i].a, records[i].b};
    records[i].a = LLONG_MAX;
}

fl_status fl_cuda_reports_clear(const fl_cuda_reports *reports)
{
    FL_LAUNCH(clear_records, 1, REPORTS, 0, reports->records);
    FL_LAUNCH(move_records, 1, REPORTS, 0, reports->records, (fl_cuda_reported *const *)NULL, 0);
    return fl_cuda_check("captured steps");
}

fl_cuda_fault *fl_cuda_reports_add(fl_cuda_reports *reports, fl_cuda_word *word, const void *context, size_t bytes)
{
    fl_cuda_wording *s = &reports->at[reports->count];
    assert(reports->count < REPORTS);
    s->word = word;
    if (bytes) memcpy(s->context, context, bytes);
    return &reports->records[reports->count++];
}

fl_status fl_cuda_reports_move(const fl_cuda_reports *reports, const void *address)
{
    FL_LAUNCH(move_records, 1, REPORTS, 0, reports->records, (fl_cuda_reported *const *)address, reports->count);
    return fl_cuda_check("captured steps");
}

/* ---- a launch ---- */

static fl_status launch_new(launch **out)
{
    launch *l = (launch *)calloc(1, sizeof *l);
    if (!l) return fl_fail(FL_ERR_MEMORY, "cuda: out of memory for the reports of kernels");
    fl_status status = fl_cuda_host_allocate((void **)&l->reported, REPORTS * sizeof *l->reported);
    if (status != FL_OK) {
        free(l);
        return status;
    }
    for (int i = 0; i < REPORTS; i++) {
        l->reports[i].launch = l;
        l->reports[i].reported = &l->reported[i];
    }
    *out = l;
    return FL_OK;
}

static void give_back(launch *launch)
{
    launch->next = unused;
    unused = launch;
}

static bool late_check(void *record, char *text, size_t size)
{
    const report *r = (const report *)record;
    const bool found = r->reported->a != LLONG_MAX;
    if (found) r->wording.word(text, size, r->wording.context, r->reported->a, r->reported->b);
    if (--r->launch->open == 0) give_back(r->launch);
    return found;
}

fl_status fl_cuda_reports_launch(uint64_t *address, const fl_cuda_reports *reports, const fl_graph_report *whose)
{
    launch *l = unused;
    if (l) unused = l->next;
    else FL_TRY(launch_new(&l));
    fl_status status = FL_OK;
    l->open = reports->count;
    for (int i = 0; i < reports->count; i++) {
        l->reported[i] = {LLONG_MAX, 0};
        l->reports[i].wording = reports->at[i];
        if (status == FL_OK)
            status = fl_engine_check_step_later(late_check, &l->reports[i], whose[i].op, whose[i].line);
        l->open -= status != FL_OK;
    }
    if (l->open == 0) give_back(l);
    *address = (uint64_t)l->reported;
    return status;
}

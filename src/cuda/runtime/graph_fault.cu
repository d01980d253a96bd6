/*
** graph_fault.cu -- what kernels of a graph find wrong in their data.
**
** The records of the kernels are the graph's, and a launch may be issued before the one before it has run. So the last
** kernel of the graph moves what they say to pinned memory of this launch, whose address each launch renews, and clears
** them. The checks of a launch read that memory when it is complete: nothing else is copied, and nothing waits.
*/
#include "runtime.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { REPORTS = FL_GRAPH_REPORTS };

/* What a kernel has reported in one launch, as in fl_cuda_fault. */
struct fl_cuda_told {
    long long a, b;
};

/* A kernel's report of one launch. */
typedef struct report {
    struct letter *letter;
    const fl_cuda_told *told;
    fl_cuda_suspicion suspicion;
} report;

/* The reports of one launch. */
typedef struct letter {
    struct letter *next; /* unused */
    int open;            /* checks that have not run */
    fl_cuda_told *told;  /* pinned */
    report reports[REPORTS];
} letter;

static letter *unused;

__global__ void __launch_bounds__(REPORTS) clear_records(fl_cuda_fault *records)
{
    records[threadIdx.x] = {LLONG_MAX, 0, 0, &records[REPORTS].lock}; /* the flag that nobody reads */
}

/* out: where the address of the launch's memory is. */
__global__ void __launch_bounds__(REPORTS) tell_records(fl_cuda_fault *records, fl_cuda_told *const *out, int count)
{
    const int i = (int)threadIdx.x;
    if (i >= count) return;
    (*out)[i] = {records[i].a, records[i].b};
    records[i].a = LLONG_MAX;
}

fl_status fl_cuda_suspects_clear(const fl_cuda_suspects *suspects)
{
    FL_LAUNCH(clear_records, 1, REPORTS, 0, suspects->records);
    FL_LAUNCH(tell_records, 1, REPORTS, 0, suspects->records, (fl_cuda_told *const *)NULL, 0);
    return fl_cuda_check("captured steps");
}

fl_cuda_fault *fl_cuda_suspects_add(fl_cuda_suspects *suspects, fl_cuda_word *word, const void *context, size_t bytes)
{
    fl_cuda_suspicion *s = &suspects->at[suspects->count];
    assert(suspects->count < REPORTS);
    s->word = word;
    if (bytes) memcpy(s->context, context, bytes);
    return &suspects->records[suspects->count++];
}

fl_status fl_cuda_suspects_tell(const fl_cuda_suspects *suspects, const void *address)
{
    FL_LAUNCH(tell_records, 1, REPORTS, 0, suspects->records, (fl_cuda_told *const *)address, suspects->count);
    return fl_cuda_check("captured steps");
}

/* ---- a launch ---- */

static fl_status letter_new(letter **out)
{
    letter *l = (letter *)calloc(1, sizeof *l);
    if (!l) return fl_fail(FL_ERR_MEMORY, "cuda: out of memory for the reports of kernels");
    fl_status status = fl_cuda_host_allocate((void **)&l->told, REPORTS * sizeof *l->told);
    if (status != FL_OK) {
        free(l);
        return status;
    }
    for (int i = 0; i < REPORTS; i++) {
        l->reports[i].letter = l;
        l->reports[i].told = &l->told[i];
    }
    *out = l;
    return FL_OK;
}

static void give_back(letter *l)
{
    l->next = unused;
    unused = l;
}

static bool late_check(void *record, char *text, size_t size)
{
    const report *r = (const report *)record;
    const bool found = r->told->a != LLONG_MAX;
    if (found) r->suspicion.word(text, size, r->suspicion.context, r->told->a, r->told->b);
    if (--r->letter->open == 0) give_back(r->letter);
    return found;
}

fl_status fl_cuda_suspects_launch(uint64_t *address, const fl_cuda_suspects *suspects, const fl_graph_report *whose)
{
    letter *l = unused;
    if (l) unused = l->next;
    else FL_TRY(letter_new(&l));
    fl_status status = FL_OK;
    l->open = suspects->count;
    for (int i = 0; i < suspects->count; i++) {
        l->told[i] = {LLONG_MAX, 0};
        l->reports[i].suspicion = suspects->at[i];
        if (status == FL_OK)
            status = fl_engine_check_step_later(late_check, &l->reports[i], whose[i].op, whose[i].line);
        l->open -= status != FL_OK;
    }
    if (l->open == 0) give_back(l);
    *address = (uint64_t)l->told;
    return status;
}

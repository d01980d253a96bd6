/*
** fault.cu -- what kernels find wrong in their data: an index out of range, a label that is none.
**
** A kernel that may find something gets a record in pinned memory, which host and GPU both see. The engine is told that
** the op is in doubt; it asks for the verdict when the op is complete, and the record is free again.
*/
#include "runtime.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { RECORDS = FL_MAX_DOUBTS + 8 };   /* an op has a few records before the engine hears of them */

/* What the host remembers of a record. */
typedef struct suspect {
    struct suspect *next;       /* free ones */
    fl_cuda_fault *fault;
    fl_cuda_word *word;
    unsigned char context[FL_CUDA_FAULT_CONTEXT] __attribute__((aligned(16)));
} suspect;

static suspect suspects[RECORDS], *unused;

static fl_status make_records(void)
{
    static fl_cuda_fault *records;      /* pinned; until exit */
    if (FL_LIKELY(records != NULL)) return FL_OK;
    FL_TRY(fl_cuda_host_allocate((void **)&records, RECORDS * sizeof *records));
    for (int i = 0; i < RECORDS; i++) {
        suspects[i].fault = &records[i];
        suspects[i].next = unused;
        unused = &suspects[i];
    }
    return FL_OK;
}

static void give_back(suspect *s)
{
    s->next = unused;
    unused = s;
}

static bool verdict(void *record, char *text, size_t size)
{
    suspect *s = (suspect *)record;
    const fl_cuda_fault *f = s->fault;
    int lowest = 0, count = f->count < FL_CUDA_FAULT_REPORTS ? (int)f->count : (int)FL_CUDA_FAULT_REPORTS;
    for (int i = 1; i < count; i++)
        if (f->reports[i].a < f->reports[lowest].a) lowest = i;
    if (count) s->word(text, size, s->context, f->reports[lowest].a, f->reports[lowest].b);
    give_back(s);
    return count > 0;
}

extern "C" fl_status fl_cuda_fault_new(fl_cuda_fault **device, fl_cuda_word *word, const void *context, size_t bytes)
{
    assert(bytes <= FL_CUDA_FAULT_CONTEXT);
    FL_TRY(make_records());
    suspect *s = unused;
    assert(s);
    unused = s->next;
    fl_cuda_fault *f = s->fault;
    f->lowest = LLONG_MAX;
    f->count = 0;
    s->word = word;
    if (bytes) memcpy(s->context, context, bytes);
    fl_status status = fl_engine_doubt(verdict, s);
    if (status == FL_OK) *device = f;
    else give_back(s);
    return status;
}

/*
** fault.cu -- errors that kernels find in their data: an index out of range, a label that is none.
**
** A kernel that may find something gets a record in its device's memory and a flag in pinned memory, which host and GPU
** share. The engine runs a late check when the op is complete. The record is read only if the flag is set.
**
** The initial record also lies in pinned memory: from there cudaMemcpy returns when the record is written. From
** pageable memory it may return before, and no queue waits for it. Kernels of a graph have records of the graph:
** graph_fault.cu.
*/
#include "runtime.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = FL_MAX_PENDING + 8 }; /* an op has a few records before the engine has its checks */

/* The host's side of a record. */
struct suspect {
    struct suspect **unused, *next; /* the list it goes back to */
    fl_cuda_fault *fault;           /* the device's */
    const fl_cuda_fault *clear;     /* pinned */
    unsigned *seen;
    fl_cuda_word *word;
    unsigned char context[FL_CUDA_FAULT_CONTEXT] __attribute__((aligned(16)));
};

static suspect *unused[FL_CUDA_DEVICES];

static fl_status clear_record(const suspect *suspect)
{
    *suspect->seen = 0;
    FL_CUDA_TRY(cudaMemcpy(suspect->fault, suspect->clear, sizeof *suspect->clear, cudaMemcpyHostToDevice));
    return FL_OK;
}

static void give_back(suspect *suspect)
{
    suspect->next = *suspect->unused;
    *suspect->unused = suspect;
}

/* Records of the current queue's device, kept until exit. */
static fl_status make_records(suspect **list)
{
    suspect *all = (suspect *)calloc(RECORDS, sizeof *all);
    fl_cuda_fault *records = NULL, *clear = NULL;
    unsigned *flags = NULL;
    if (!all) return fl_fail(FL_ERR_MEMORY, "cuda: out of memory for the reports of kernels");
    FL_CUDA_TRY(cudaMalloc((void **)&records, RECORDS * sizeof *records));
    FL_TRY(fl_cuda_host_allocate((void **)&clear, RECORDS * sizeof *clear));
    FL_TRY(fl_cuda_host_allocate((void **)&flags, RECORDS * sizeof *flags));
    for (int i = 0; i < RECORDS; i++) {
        suspect *s = &all[i];
        s->unused = list;
        s->fault = &records[i];
        s->clear = &clear[i];
        s->seen = &flags[i];
        clear[i] = {LLONG_MAX, 0, 0, s->seen};
        *s->seen = 0;
    }
    FL_CUDA_TRY(cudaMemcpy(records, clear, RECORDS * sizeof *records, cudaMemcpyHostToDevice));
    for (int i = 0; i < RECORDS; i++) give_back(&all[i]);
    return FL_OK;
}

static bool late_check(void *record, char *text, size_t size)
{
    suspect *s = (suspect *)record;
    fl_cuda_fault f;
    bool found = *s->seen && cudaMemcpy(&f, s->fault, sizeof f, cudaMemcpyDeviceToHost) == cudaSuccess;
    if (found) s->word(text, size, s->context, f.a, f.b);
    if (!found || clear_record(s) == FL_OK) give_back(s);
    return found;
}

extern "C" fl_status fl_cuda_fault_new(fl_cuda_fault **device, fl_cuda_word *word, const void *context, size_t bytes)
{
    assert(bytes <= FL_CUDA_FAULT_CONTEXT);
    if (FL_UNLIKELY(fl_cuda_is_recording())) return fl_cuda_graph_fault(device, word, context, bytes);
    suspect **list = &unused[fl_cuda_current()->index];
    if (FL_UNLIKELY(!*list)) FL_TRY(make_records(list));
    suspect *s = *list;
    *list = s->next;
    s->word = word;
    if (bytes) memcpy(s->context, context, bytes);
    fl_status status = fl_engine_check_later(late_check, s);
    if (status == FL_OK) *device = s->fault;
    else give_back(s);
    return status;
}

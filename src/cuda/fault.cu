/*
** fault.cu -- what kernels find wrong in their data: an index out of range, a label that is none.
**
** A kernel that may find something gets a record in pinned memory, which host and GPU both see. The records are used in
** turn. When the host has waited, those of ops that are complete are looked at: the first with something in it is the
** error of that wait.
*/
#include "runtime.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { RECORDS = 1024, OP_TEXT = 40 };

/* What the host remembers of a record. */
typedef struct suspect {
    fl_cuda_queue *queue;
    uint64_t number;            /* of the op in its queue */
    fl_cuda_word *word;
    char op[OP_TEXT], line[FL_CUDA_LINE];
    unsigned char context[FL_CUDA_FAULT_CONTEXT] __attribute__((aligned(16)));
} suspect;

static fl_cuda_fault *records;          /* pinned */
static suspect suspects[RECORDS];
static uint64_t first, next;            /* those in use: first to next - 1, modulo RECORDS */
static char found[512];                 /* the first fault nobody was told of yet; "" when there is none */

static bool is_complete(const suspect *s) { return __atomic_load_n(&s->queue->done, __ATOMIC_ACQUIRE) >= s->number; }

/* The text of a word function may begin with a name, that of the op or of the function it is part of. */
static void note_found(const suspect *s, const fl_cuda_fault *f)
{
    char text[384];
    int lowest = 0, count = f->count < FL_CUDA_FAULT_REPORTS ? (int)f->count : (int)FL_CUDA_FAULT_REPORTS;
    for (int i = 1; i < count; i++)
        if (f->reports[i].a < f->reports[lowest].a) lowest = i;
    s->word(text, sizeof text, s->context, f->reports[lowest].a, f->reports[lowest].b);
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    bool named = length > 0 && text[length] == ':';
    const char *name = named ? text : s->op, *rest = named ? text + length + 2 : text;
    if (!named) length = strlen(name);
    if (s->line[0]) snprintf(found, sizeof found, "%.*s (%s): %s", (int)length, name, s->line, rest);
    else snprintf(found, sizeof found, "%.*s: %s", (int)length, name, rest);
}

/* Looks at the records of complete ops; they may be used again. */
static void collect(void)
{
    while (first < next && is_complete(&suspects[first % RECORDS])) {
        const fl_cuda_fault *f = &records[first % RECORDS];
        if (f->count > 0 && !found[0]) note_found(&suspects[first % RECORDS], f);
        first++;
    }
}

fl_status fl_cuda_fault_scan(void)
{
    char text[sizeof found];
    if (FL_LIKELY(first == next && !found[0])) return FL_OK;
    collect();
    if (!found[0]) return FL_OK;
    memcpy(text, found, sizeof text);
    found[0] = '\0';
    return fl_fail(FL_ERR_VALUE, "%s", text);
}

/* Waits for the oldest op when all records are in use. */
static fl_status make_room(void)
{
    if (!records) FL_TRY(fl_cuda_host_allocate((void **)&records, RECORDS * sizeof *records));
    if (next - first < RECORDS) return FL_OK;
    collect();
    if (next - first < RECORDS) return FL_OK;
    FL_TRY(fl_cuda_drain(suspects[first % RECORDS].queue));
    collect();
    return FL_OK;
}

extern "C" fl_status fl_cuda_fault_new(fl_cuda_fault **device, const fl_kernel *k, fl_cuda_word *word, const void *context, size_t bytes)
{
    assert(bytes <= FL_CUDA_FAULT_CONTEXT);
    FL_TRY(make_room());
    suspect *s = &suspects[next % RECORDS];
    fl_cuda_fault *f = &records[next % RECORDS];
    f->lowest = LLONG_MAX;
    f->count = 0;
    s->queue = fl_cuda_queue_current();
    s->number = s->queue->issued + 1;   /* its op is counted when it has been issued */
    s->word = word;
    snprintf(s->op, sizeof s->op, "%s", k->op->name);
    s->line[0] = '\0';
    if (fl_engine_where) fl_engine_where(s->line, sizeof s->line);
    if (bytes) memcpy(s->context, context, bytes);
    next++;
    *device = f;
    return FL_OK;
}

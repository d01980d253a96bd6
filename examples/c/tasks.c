/* tasks.c -- functions of a program among the ops: one fills a tensor, ops use it, another one reports what they gave.
** Nobody waits for anything until flow_sync: each begins when what it reads is there and what it writes is not used. */
#include <flow.h>

#include <stdio.h>

#define TRY(call) \
    if ((call) != FLOW_OK) return fprintf(stderr, "%s\n", flow_error())

enum { SAMPLES = 1000, CHUNKS = 3 };

/* The next chunk of a signal, on a thread of libflow's; data[0] is the memory of the tensor that it writes. */
static flow_status record(void *context, void *const *data)
{
    int *chunk = context;
    float *signal = data[0];
    if (*chunk == CHUNKS) return flow_fail(FLOW_ERR_IO, "the signal is over");
    for (int i = 0; i < SAMPLES; i++) signal[i] = (float)(*chunk + i % 2);
    ++*chunk;
    return FLOW_OK;
}

static flow_status report(void *context, void *const *data)
{
    const float *mean = data[0];
    printf("chunk %d: %.1f\n", ++*(int *)context, mean[0]);
    return FLOW_OK;
}

/* On the same thread, when the function is complete, or was left out because of an error of what it reads. */
static void ended(void *context, flow_status status)
{
    printf("%d chunks, %s\n", *(int *)context, status == FLOW_OK ? "and one more" : "no more");
}

int main(void)
{
    const int64_t shape[] = {SAMPLES};
    int recorded = 0, reported = 0;
    flow_tensor *signal, *mean;
    flow_task recording = {.name = "record", .run = record, .context = &recorded, .writes = &signal, .write_count = 1};
    flow_task reporting = {.name = "report", .run = report, .context = &reported, .reads = &mean, .read_count = 1};
    reporting.priority = -1; /* recording goes first, where both could begin */

    TRY(flow_open(NULL));
    TRY(flow_empty(&signal, &(flow_spec){.ndim = 1, .shape = shape}));
    for (int i = 0; i < CHUNKS; i++) {
        TRY(flow_push(&recording));
        TRY(flow_call(&mean, 1, "mean", FLOW_ARGS(flow_of(signal))));
        TRY(flow_push(&reporting));
        flow_unref(mean);
    }
    TRY(flow_sync());
    recording.finished = ended; /* without a next chunk it fails: so does what needs the signal */
    TRY(flow_push(&recording));
    if (flow_wait(signal) != FLOW_OK) printf("%s\n", flow_error());
    flow_unref(signal);
    return flow_close();
}

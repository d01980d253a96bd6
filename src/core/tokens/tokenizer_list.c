/*
** tokenizer_list.c -- encoding many texts by several threads (see tokenizer.h).
**
** Texts are shared out in groups of some size, so that short ones are worth a thread; the ids of a seat lie one behind
** the other until all are there, and tensors are made by the caller's thread.
*/
#include "data/pool.h"
#include "tokenizer_parts.h"

#include <stdlib.h>

enum { GROUP = 1 << 15 }; /* bytes */

struct result {
    const fl_tokenizer_work *work; /* borrowed from the job */
    size_t first, count;           /* in the work's ids */
};

struct job {
    const fl_tokenizer *tokenizer;
    const fl_tokenizer_text *texts; /* borrowed */
    size_t count, *groups;          /* owned: the first text of each group, and count behind the last one */
    int64_t group_count;
    struct result *results;                 /* owned */
    fl_tokenizer_work *works[FL_POOL_MOST]; /* by seat; owned */
};

static void groups_make(struct job *job)
{
    size_t bytes = GROUP;
    for (size_t i = 0; i < job->count; i++) {
        if (bytes >= GROUP) {
            job->groups[job->group_count++] = i;
            bytes = 0;
        }
        bytes += job->texts[i].size + 64;
    }
    job->groups[job->group_count] = job->count;
}

static fl_status text_encode(struct job *job, size_t i, fl_tokenizer_work *work)
{
    struct result *r = &job->results[i];
    const fl_tokenizer_text *text = &job->texts[i];
    *r = (struct result){.work = work, .first = work->ids.count};
    fl_status status = fl_tokenizer_add_text(job->tokenizer, work, (const unsigned char *)text->data, text->size, true);
    r->count = work->ids.count - r->first;
    return status == FL_OK ? FL_OK : fl_fail_prefix(status, "encode: text %zu: ", i + 1);
}

static fl_status group_encode(void *context, int64_t item, int seat)
{
    struct job *job = context;
    if (!job->works[seat] && !(job->works[seat] = fl_tokenizer_work_new()))
        return fl_fail(FL_ERR_MEMORY, "encode: out of memory");
    for (size_t i = job->groups[item]; i < job->groups[item + 1]; i++) FL_TRY(text_encode(job, i, job->works[seat]));
    return FL_OK;
}

static fl_status tensors_make(fl_tensor **out, const struct job *job, bool add_special, fl_dtype dtype)
{
    for (size_t i = 0; i < job->count; i++) {
        const struct result *r = &job->results[i];
        fl_ids ids = {r->work->ids.list + r->first, r->count, 0};
        fl_status status = fl_tokenizer_ids_tensor(&out[i], job->tokenizer, &ids, add_special, dtype);
        if (status == FL_OK) continue;
        while (i-- > 0) fl_tensor_unref(out[i]);
        return status;
    }
    return FL_OK;
}

fl_status fl_tokenizer_encode_list(fl_tensor **out, fl_tokenizer *tokenizer, const fl_tokenizer_text *texts,
                                   size_t count, bool add_special, fl_dtype dtype)
{
    struct job job = {.tokenizer = tokenizer, .texts = texts, .count = count};
    int workers = fl_pool_workers(0);
    fl_status status = FL_OK;
    job.groups = malloc((count + 1) * sizeof *job.groups);
    job.results = malloc((count + 1) * sizeof *job.results);
    if (!job.groups || !job.results) status = fl_fail(FL_ERR_MEMORY, "encode: out of memory");
    if (status == FL_OK) {
        groups_make(&job);
        status = fl_pool_run(job.group_count, workers, group_encode, &job);
    }
    if (status == FL_OK) status = tensors_make(out, &job, add_special, dtype);
    for (int seat = 0; seat < workers; seat++) fl_tokenizer_work_free(job.works[seat]);
    free(job.groups);
    free(job.results);
    return status;
}

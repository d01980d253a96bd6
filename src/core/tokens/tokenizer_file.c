/*
** tokenizer_file.c -- encoding a large file by several threads (see tokenizer.h).
**
** The file is read in blocks, which are cut where no step of the tokenizer reaches across: between a letter or digit of
** ASCII and a space. Parts of a block are encoded at the same time, each with the work of its seat, and put in order.
** A file without such places, or a tokenizer for which they are not known, is encoded in one piece.
*/
#include "data/pool.h"
#include "file/open.h"
#include "tokenizer_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PART = 1 << 18, PARTS_MOST = 64 };

/* ---- places where a text may be cut ---- */

static bool is_alnum(unsigned char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); }

/* No token reaches across a cut, and none ends before one. */
static bool added_are_local(const fl_tokenizer *tokenizer, const char *cuts)
{
    for (int64_t id = 0; id < fl_tokenizer_size(tokenizer); id++) {
        const char *token;
        size_t size;
        if (!fl_tokenizer_token(tokenizer, id, &token, &size)) continue;
        bool named = false;
        for (size_t i = 0; i < tokenizer->plain.count && !named; i++) named = tokenizer->plain.tokens[i].id == id;
        for (size_t i = 0; i < tokenizer->normalized.count && !named; i++)
            named = tokenizer->normalized.tokens[i].id == id;
        if (!named) continue;
        if (size > 0 && is_alnum((unsigned char)token[size - 1])) return false;
        for (size_t i = 1; i < size; i++)
            if (is_alnum((unsigned char)token[i - 1]) && strchr(cuts, token[i])) return false;
    }
    return true;
}

const char *fl_tokenizer_cuts(const fl_tokenizer *tokenizer)
{
    bool cut = tokenizer->bpe.border.size > 0, plain = true;
    for (int i = 0; i < tokenizer->normalizer_count; i++) {
        const fl_normalize *n = &tokenizer->normalizers[i];
        if (!fl_normalize_is_local(n)) return "";
        plain &= n->kind == FL_NORMALIZE_NFC;
    }
    for (int i = 0; i < tokenizer->split_count; i++) {
        if (!fl_cut_is_local(&tokenizer->splits[i])) return "";
        cut |= fl_cut_cuts(&tokenizer->splits[i]);
        plain &= tokenizer->splits[i].kind == FL_CUT_SCAN || tokenizer->splits[i].kind == FL_CUT_CLASS;
    }
    const char *cuts = plain && tokenizer->split_count > 0 ? " \n" : " ";
    return cut && added_are_local(tokenizer, cuts) ? cuts : "";
}

/* ---- blocks ---- */

struct part {
    fl_span piece;
    fl_tokenizer_work *work; /* borrowed from the job; NULL until encoded */
    size_t first, count;     /* of its tokens in the work's ids */
};

struct job {
    const fl_tokenizer *tokenizer;
    const char *path, *cuts;
    int fd, workers;
    bool ended, begun;
    bool (*interrupted)(void);
    fl_text block;
    struct part parts[PARTS_MOST];
    int64_t part_count;
    fl_tokenizer_work *works[FL_POOL_MOST]; /* by seat; owned */
    fl_ids ids;
};

static fl_status block_fill(struct job *job, size_t wanted)
{
    FL_TRY(fl_text_reserve(&job->block, wanted));
    while (!job->ended && job->block.size < wanted) {
        ssize_t got = read(job->fd, job->block.data + job->block.size, wanted - job->block.size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fl_fail(FL_ERR_IO, "%s", strerror(errno));
        job->ended = got == 0;
        job->block.size += (size_t)got;
    }
    return FL_OK;
}

/* The last cut in [from, to), 0: there is none. */
static size_t last_cut(const struct job *job, size_t from, size_t to)
{
    const unsigned char *text = job->block.data;
    for (size_t at = to; at-- > from + 1;)
        if (text[at] < 128 && text[at] && strchr(job->cuts, text[at]) && is_alnum(text[at - 1])) return at;
    return 0;
}

/* Cuts the block; returns how much of it belongs to parts. */
static size_t block_cut(struct job *job)
{
    size_t done = 0, size = job->block.size;
    job->part_count = 0;
    while (done < size && job->part_count < PARTS_MOST) {
        size_t end = size, wanted = done + PART;
        if (wanted < size || !job->ended) end = last_cut(job, done, wanted < size ? wanted : size);
        if (end == 0 && wanted < size) end = last_cut(job, done, size);
        if (end == 0 && !job->ended) break;
        if (end == 0) end = size;
        job->parts[job->part_count++].piece = (fl_span){done, end};
        done = end;
    }
    return done;
}

static fl_status part_encode(void *context, int64_t item, int seat)
{
    struct job *job = context;
    struct part *part = &job->parts[item];
    if (!job->works[seat] && !(job->works[seat] = fl_tokenizer_work_new()))
        return fl_fail(FL_ERR_MEMORY, "out of memory");
    part->work = job->works[seat];
    part->first = part->work->ids.count;
    FL_TRY(fl_tokenizer_add_text(job->tokenizer, part->work, job->block.data + part->piece.begin,
                                 part->piece.end - part->piece.begin, item == 0 && !job->begun));
    part->count = part->work->ids.count - part->first;
    return FL_OK;
}

static fl_status parts_join(struct job *job)
{
    for (int64_t i = 0; i < job->part_count; i++) {
        const struct part *part = &job->parts[i];
        FL_TRY(fl_ids_reserve(&job->ids, part->count));
        if (part->count)
            memcpy(job->ids.list + job->ids.count, part->work->ids.list + part->first,
                   part->count * sizeof *job->ids.list);
        job->ids.count += part->count;
    }
    for (int seat = 0; seat < job->workers; seat++)
        if (job->works[seat]) job->works[seat]->ids.count = 0;
    return FL_OK;
}

static fl_status file_encode(struct job *job)
{
    size_t wanted = (size_t)PART * (size_t)(2 * job->workers < PARTS_MOST ? 2 * job->workers : PARTS_MOST);
    do {
        FL_TRY(block_fill(job, wanted));
        size_t done = block_cut(job);
        if (done == 0 && !job->ended) { /* no cut in all that was read */
            wanted = 2 * job->block.size;
            continue;
        }
        FL_TRY(fl_pool_run(job->part_count, job->workers, part_encode, job));
        FL_TRY(parts_join(job));
        job->begun = true;
        memmove(job->block.data, job->block.data + done, job->block.size - done);
        job->block.size -= done;
        if (job->interrupted && job->interrupted()) return fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    } while (!job->ended || job->block.size > 0);
    return FL_OK;
}

fl_status fl_tokenizer_encode_file(fl_tensor **out, fl_tokenizer *tokenizer, const char *path, bool add_special,
                                   fl_dtype dtype, int workers, bool (*interrupted)(void))
{
    int64_t size;
    workers = fl_pool_workers(workers);
    struct job *job = calloc(1, sizeof *job);
    if (!job) return fl_fail(FL_ERR_MEMORY, "encode_file: out of memory");
    *job = (struct job){.tokenizer = tokenizer,
                        .path = path,
                        .cuts = fl_tokenizer_cuts(tokenizer),
                        .workers = workers,
                        .interrupted = interrupted};
    fl_status status = fl_file_open(&job->fd, &size, "encode_file", path);
    if (status == FL_OK) {
        status = file_encode(job);
        close(job->fd);
        if (status != FL_OK && status != FL_ERR_INTERRUPTED) (void)fl_fail_prefix(status, "encode_file: %s: ", path);
        if (status == FL_OK) status = fl_tokenizer_ids_tensor(out, tokenizer, &job->ids, add_special, dtype);
    }
    for (int seat = 0; seat < FL_POOL_MOST; seat++) fl_tokenizer_work_free(job->works[seat]);
    fl_text_free(&job->block);
    fl_ids_free(&job->ids);
    free(job);
    return status;
}

/*
** select.lv.c -- elements of rows by rank, on one CPU level.
**
** Two elements of a sample that lie a little before and a little after the rank bound the keys to keep: a pass
** counts what is before them and between them, another one keeps the part with the rank, most often a few per cent;
** and so on with what is kept (Floyd and Rivest, 1975). If a sample misleads, the range of keys is halved instead, so
** the number of passes is bounded. Equal keys are distinguished by position in one more pass over the row: the result
** is that of a stable sort, whatever the sample was.
*/
#include "select.h"
#include "memory/scratch.h"
#include "sort_keys.h"
#include "stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 128, /* keys that are looked at together; a count of them fits into a key of 8 bits */
    FEW = 64,    /* keys of which each is compared with each */
    MOST_SAMPLED = 1024,
    CHUNK = 32768,  /* least elements of a row that a thread looks at, */
    CHUNKS = 256,   /* most parts of a row */
    MANY_ROWS = 16, /* rows of several chunks are cut for the team unless there are so many of them */
    KEPT = 16 << 20 /* bytes that a thread may keep for the next selection */
};

/* Bytes of a vector of keys. */
#if defined FL_LEVEL_avx512
#define LANE_BYTES 64
#elif defined FL_LEVEL_avx2
#define LANE_BYTES 32
#else
#define LANE_BYTES 16
#endif

static int64_t chunk_of(int64_t n) { return n <= CHUNK * (int64_t)CHUNKS ? CHUNK : (n + CHUNKS - 1) / CHUNKS; }

/* Elements of a sample of n > FEW elements. */
static int sample_of(int64_t n)
{
    double size = 2 * sqrt((double)n);
    if (size < FEW) return n < 4 * FEW ? (int)n / 4 : FEW;
    return size < MOST_SAMPLED ? (int)size : MOST_SAMPLED;
}

/* Element i of a sample of one of every `step` elements: no fixed one, so that no period of the data has it. */
static inline int64_t sampled(int i, int64_t step)
{
    uint32_t scattered = (uint32_t)i * UINT32_C(2654435769);
    return i * step + (int64_t)((scattered * (uint64_t)step) >> 32);
}

static inline int batch_size(int64_t first, int64_t end) { return end - first < BATCH ? (int)(end - first) : BATCH; }

enum part { BELOW, WITHIN, ABOVE }; /* of keys, by two limits */

/* Memory for kept keys, taken when it is needed. */
struct room {
    void *memory;
    bool is_own;
};

static void *room_open(struct room *room, size_t bytes)
{
    room->is_own = bytes > KEPT;
    room->memory = room->is_own ? malloc(bytes) : fl_scratch(FL_KERNEL_SCRATCH, bytes);
    return room->memory;
}

static void room_close(struct room *room)
{
    if (room->is_own) free(room->memory);
}

/* Numbers of the ranks, from the lowest rank on. */
static void order_ranks(int *order, const int64_t *ranks, int k)
{
    for (int i = 0; i < k; i++) {
        int j = i;
        for (; j > 0 && ranks[order[j - 1]] > ranks[i]; j--) order[j] = order[j - 1];
        order[j] = i;
    }
}

/* Rows of which each thread takes some. */
struct row_job {
    const fl_select_rows *rows;
    bool failed;
};

#define KEY uint8_t
#define NAME(function) function##_8
#include "select.inc"
#undef KEY
#undef NAME

#define KEY uint16_t
#define NAME(function) function##_16
#include "select.inc"
#undef KEY
#undef NAME

#define KEY uint32_t
#define NAME(function) function##_32
#include "select.inc"
#undef KEY
#undef NAME

#define KEY uint64_t
#define NAME(function) function##_64
#include "select.inc"

static fl_status select_rows(const char *who, const fl_select_rows *rows)
{
    static const fl_team_body by_size[] = {
        [1] = select_each_8, [2] = select_each_16, [4] = select_each_32, [8] = select_each_64};
    struct row_job job = {rows, false};
    fl_team_body body = by_size[fl_dtype_size(rows->dtype)];
    if (rows->n >= 2 * CHUNK && rows->rows < MANY_ROWS) body(&job, 0, rows->rows);
    else fl_team_for(rows->rows, (double)(rows->n * rows->k), body, &job);
    if (job.failed)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for rows of %lld elements", who, (long long)rows->n);
    return FL_OK;
}

fl_select_rows_fn *const FL_LV(fl_select_rows_of) = select_rows;

/*
** sort.lv.c -- sorting rows by radix, on one CPU level.
**
** An item is an element's key (sort_key.h) and its position; the key and position of most fit into one number. Many
** rows are sorted one by each thread, few long ones by the whole team. Work is cut by size, so threads never change a
** result, and a stable sort has but one.
*/
#include "sort.h"
#include "memory/scratch.h"
#include "sort_keys.h"
#include "stage.h"

#include <stdlib.h>

enum {
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS,
    CHUNK = 32768, /* items of a long row that one thread moves; the last chunk of a row has up to twice as many */
    MANY_CHUNKS = 2,
    MANY_ROWS = 16, /* rows of as many chunks are sorted by the team unless there are so many of them */
    FEW = 48,       /* items that are sorted by insertion */
    BATCH = 256,
    GLANCE = 32,    /* items of a batch that are looked at together */
    FIRST_FEW = 16, /* so many first ones are kept in order while others are looked at */
    ROOM = 256,     /* least items kept while the first k are looked for */
    KEPT = 64 << 20 /* bytes that a thread may keep for the next sort: new ones cost as much as a sort */
};

static int64_t chunks_of(int64_t n) { return n < CHUNK ? 1 : n / CHUNK; }

/* Items kept while the first k of n are looked for. */
static int64_t room_for(int64_t n, int64_t k)
{
    int64_t room = 2 * k > ROOM ? 2 * k : ROOM;
    return room < n ? room : n;
}

/* Memory for a long row; NULL if there is none. */
static char *room_new(size_t bytes) { return bytes <= KEPT ? fl_scratch(FL_KERNEL_SCRATCH, bytes) : malloc(bytes); }
static void room_release(char *memory, size_t bytes)
{
    if (bytes > KEPT) free(memory);
}

/* Rows sorted one by each thread. */
typedef struct row_job {
    const fl_sort_rows *rows;
    int64_t room;
    bool failed;
} row_job;

/* Counts become places, digit by digit and chunk by chunk. */
static void places(int64_t (*counts)[DIGITS], int64_t chunks)
{
    int64_t at = 0;
    for (int d = 0; d < DIGITS; d++)
        for (int64_t c = 0; c < chunks; c++) {
            int64_t count = counts[c][d];
            counts[c][d] = at;
            at += count;
        }
}

/* Keys of up to 32 bits and positions below 2^32 - 1. */
#define ITEM uint64_t
#define MAKE(key, at) ((key) << 32 | (uint64_t)(at))
#define KEY(item) ((item) >> 32)
#define AT(item) ((item)&UINT32_MAX)
#define BEFORE(a, b) ((a) < (b))
#define LAST UINT64_MAX
#define NAME(function) function##_narrow
#include "sort.inc"
#undef ITEM
#undef MAKE
#undef KEY
#undef AT
#undef BEFORE
#undef LAST
#undef NAME

typedef struct wide_item {
    uint64_t key, at;
} wide_item;

#define ITEM wide_item
#define MAKE(key, at) ((wide_item){(key), (uint64_t)(at)})
#define KEY(item) ((item).key)
#define AT(item) ((item).at)
#define BEFORE(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).at < (b).at))
#define LAST ((wide_item){UINT64_MAX, UINT64_MAX})
#define NAME(function) function##_wide
#include "sort.inc"

static fl_status sort_rows(const char *who, const fl_sort_rows *job)
{
    if (job->rows == 0 || job->k == 0) return FL_OK;
    bool narrow = fl_dtype_size(job->dtype) <= 4 && job->n < UINT32_MAX;
    return narrow ? sort_rows_narrow(who, job) : sort_rows_wide(who, job);
}

fl_sort_rows_fn *const FL_LV(fl_sort_rows_of) = sort_rows;

/*
** select.c -- elements of rows by rank: by selection, or by a sort where many ranks are asked for.
*/
#include "select.h"
#include "memory/scratch.h"
#include "sort.h"

#include <string.h>

enum {
    SORTED_TOGETHER = 1 << 18, /* elements of rows that are sorted by one call, at least a row */
    SORTED_SCRATCH = 2
};

/* The elements at the ranks of sorted rows. */
static void pick(const fl_select_rows *s, int64_t row, const fl_sort_rows *sorted)
{
    size_t size = fl_dtype_size(s->dtype);
    for (int64_t r = 0; r < sorted->rows; r++)
        for (int64_t i = 0; i < s->k; i++) {
            int64_t from = r * s->n + s->ranks[(row + r) * s->rank_step + i], to = (row + r) * s->k + i;
            memcpy(s->values + (size_t)to * size, sorted->values + (size_t)from * size, size);
            s->positions[to] = sorted->positions[from];
        }
}

static fl_status select_sorted(const char *who, const fl_select_rows *s)
{
    size_t size = fl_dtype_size(s->dtype);
    int64_t together = s->n < SORTED_TOGETHER ? SORTED_TOGETHER / s->n : 1;
    if (together > s->rows) together = s->rows;
    char *memory = fl_scratch(SORTED_SCRATCH, (size_t)(together * s->n) * (size + sizeof(int64_t)));
    if (!memory) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for rows of %lld elements", who, (long long)s->n);
    fl_sort_rows sorted = {.positions = (int64_t *)memory,
                           .values = memory + sizeof(int64_t) * (size_t)(together * s->n),
                           .dtype = s->dtype,
                           .n = s->n,
                           .k = s->n};
    for (int64_t row = 0; row < s->rows; row += together) {
        sorted.rows = s->rows - row < together ? s->rows - row : together;
        sorted.x = s->x + (size_t)(row * s->n) * size;
        FL_TRY(fl_cpu_sort_rows(who, &sorted));
        pick(s, row, &sorted);
    }
    return FL_OK;
}

fl_status fl_cpu_select_rows(const char *who, const fl_select_rows *s)
{
    if (s->rows == 0 || s->k == 0) return FL_OK;
    return s->k > FL_SELECT_RANKS ? select_sorted(who, s) : (*FL_BY_LEVEL(fl_select_rows_of))(who, s);
}

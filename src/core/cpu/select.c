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
static void pick(const fl_select_rows *rows, int64_t row, const fl_sort_rows *sorted)
{
    size_t size = fl_dtype_size(rows->dtype);
    for (int64_t r = 0; r < sorted->rows; r++)
        for (int64_t i = 0; i < rows->k; i++) {
            int64_t from = r * rows->n + rows->ranks[(row + r) * rows->rank_step + i], to = (row + r) * rows->k + i;
            memcpy(rows->values + (size_t)to * size, sorted->values + (size_t)from * size, size);
            rows->positions[to] = sorted->positions[from];
        }
}

static fl_status select_sorted(const char *who, const fl_select_rows *rows)
{
    size_t size = fl_dtype_size(rows->dtype);
    int64_t together = rows->n < SORTED_TOGETHER ? SORTED_TOGETHER / rows->n : 1;
    if (together > rows->rows) together = rows->rows;
    char *memory = fl_scratch(SORTED_SCRATCH, (size_t)(together * rows->n) * (size + sizeof(int64_t)));
    if (!memory) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for rows of %lld elements", who, (long long)rows->n);
    fl_sort_rows sorted = {.positions = (int64_t *)memory,
                           .values = memory + sizeof(int64_t) * (size_t)(together * rows->n),
                           .dtype = rows->dtype,
                           .n = rows->n,
                           .k = rows->n};
    for (int64_t row = 0; row < rows->rows; row += together) {
        sorted.rows = rows->rows - row < together ? rows->rows - row : together;
        sorted.x = rows->x + (size_t)(row * rows->n) * size;
        FL_TRY(fl_cpu_sort_rows(who, &sorted));
        pick(rows, row, &sorted);
    }
    return FL_OK;
}

fl_status fl_cpu_select_rows(const char *who, const fl_select_rows *rows)
{
    if (rows->rows == 0 || rows->k == 0) return FL_OK;
    return rows->k > FL_SELECT_RANKS ? select_sorted(who, rows) : (*FL_BY_LEVEL(fl_select_rows_of))(who, rows);
}

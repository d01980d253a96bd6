/*
** csv_codes.c -- texts of a column as numbers (see csv.h): a table of all texts that were met, by their hash.
*/
#include "base/hash.h"
#include "csv.h"

#include <stdlib.h>
#include <string.h>

struct table {
    fl_csv_word *words;  /* owned; their texts lie in the cells, or in the caller's names */
    int64_t *slots;      /* owned: the word that is there, -1: none */
    int64_t count, room; /* room: of words, half of the slots, a power of two */
};

static bool table_grow(struct table *table)
{
    int64_t room = table->room ? 2 * table->room : 64;
    fl_csv_word *words = realloc(table->words, sizeof *words * (size_t)room);
    int64_t *slots = malloc(sizeof *slots * (size_t)(2 * room));
    if (words) table->words = words;
    if (!words || !slots) {
        free(slots);
        return false;
    }
    memset(slots, -1, sizeof *slots * (size_t)(2 * room));
    for (int64_t i = 0; i < table->count; i++) {
        uint64_t at = fl_hash_bytes(FL_HASH_START, words[i].text, (size_t)words[i].size);
        while (slots[at & (uint64_t)(2 * room - 1)] >= 0) at++;
        slots[at & (uint64_t)(2 * room - 1)] = i;
    }
    free(table->slots);
    table->slots = slots;
    table->room = room;
    return true;
}

/* The number of a text: -1 where it is not there and is not to be added, -2 without memory. */
static int64_t table_find(struct table *table, const char *text, int64_t size, bool add)
{
    if (table->count == table->room && add && !table_grow(table)) return -2;
    if (table->room == 0) return -1;
    uint64_t at = fl_hash_bytes(FL_HASH_START, text, (size_t)size), mask = (uint64_t)(2 * table->room - 1);
    for (; table->slots[at & mask] >= 0; at++) {
        const fl_csv_word *word = &table->words[table->slots[at & mask]];
        if (word->size == size && memcmp(word->text, text, (size_t)size) == 0) return table->slots[at & mask];
    }
    if (!add) return -1;
    table->words[table->count] = (fl_csv_word){text, size};
    table->slots[at & mask] = table->count;
    return table->count++;
}

static int by_bytes(const void *a, const void *b)
{
    const fl_csv_word *x = *(const fl_csv_word *const *)a, *y = *(const fl_csv_word *const *)b;
    int order = memcmp(x->text, y->text, (size_t)(x->size < y->size ? x->size : y->size));
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* The words in order, in one block with their texts; the codes change with them. */
static bool words_sort(fl_csv_word **names, const struct table *table, int64_t *codes, int64_t rows)
{
    size_t bytes = sizeof(fl_csv_word) * ((size_t)table->count + 1);
    for (int64_t i = 0; i < table->count; i++) bytes += (size_t)table->words[i].size;
    const fl_csv_word **order = malloc(sizeof *order * ((size_t)table->count + 1));
    int64_t *places = malloc(sizeof *places * ((size_t)table->count + 1));
    fl_csv_word *sorted = malloc(bytes);
    if (order && places && sorted) {
        char *text = (char *)(sorted + table->count);
        for (int64_t i = 0; i < table->count; i++) order[i] = &table->words[i];
        qsort(order, (size_t)table->count, sizeof *order, by_bytes);
        for (int64_t i = 0; i < table->count; i++) {
            sorted[i] = (fl_csv_word){memcpy(text, order[i]->text, (size_t)order[i]->size), order[i]->size};
            text += sorted[i].size;
            places[order[i] - table->words] = i;
        }
        for (int64_t i = 0; i < rows; i++)
            if (codes[i] >= 0) codes[i] = places[codes[i]];
        *names = sorted;
    } else free(sorted);
    bool done = order && places && sorted;
    free(order);
    free(places);
    return done;
}

/* The code of each cell; false: out of memory. */
static bool cells_encode(struct table *table, int64_t *codes, const fl_csv *csv, const fl_csv_column *column, bool add)
{
    for (int64_t p = 0; p < csv->piece_count; p++) {
        const fl_csv_cells *cells = &column->cells[p];
        for (int64_t i = 0, start = 0; i < csv->pieces[p].rows; start = cells->ends[i++]) {
            const char *text = cells->bytes + start;
            int64_t size = cells->ends[i] - start, code = -1;
            if (!fl_csv_is_missing(&csv->dialect, text, size)) code = table_find(table, text, size, add);
            if (code < -1) return false;
            *codes++ = code;
        }
    }
    return true;
}

fl_status fl_csv_codes(fl_tensor **out, fl_csv_word **names, int64_t *count, const fl_csv *csv,
                       const fl_csv_column *column)
{
    fl_shape shape = {.ndim = 1, .dims = {csv->rows}};
    fl_tensor *tensor;
    struct table t = {0};
    bool given = *names != NULL;
    FL_TRY(fl_tensor_empty_local(&tensor, FL_INT64, &shape));
    int64_t *codes = csv->rows > 0 ? fl_tensor_data(tensor) : NULL;
    bool done = true;
    for (int64_t i = 0; i < *count && given && done; i++)
        done = table_find(&t, (*names)[i].text, (*names)[i].size, true) >= 0;
    done = done && cells_encode(&t, codes, csv, column, !given);
    if (done && !given) {
        done = words_sort(names, &t, codes, csv->rows);
        *count = t.count;
    }
    free(t.words);
    free(t.slots);
    if (done) *out = tensor;
    else fl_tensor_unref(tensor);
    return done ? FL_OK : fl_fail(FL_ERR_MEMORY, "csv: %s: out of memory", csv->text->path);
}

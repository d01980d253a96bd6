/*
** csv_cell.c -- cells and records (see csv_cell.h). A quote opens a cell only where the cell begins; within another one
** it is a character like others.
*/
#define _GNU_SOURCE /* rawmemchr */
#include "csv.h"
#include "csv_number.h"

#include <stdlib.h>
#include <string.h>

const char *fl_csv_line_end(const char *at) { return (const char *)rawmemchr(at, '\n') + 1; }

bool fl_csv_is_empty_line(const fl_csv_dialect *d, const char *at)
{
    if (d->comment && *at == d->comment) return true;
    return fl_csv_at_end(fl_csv_skip_blanks(d, at));
}

static const char *quoted_read(fl_csv_cell *out, const fl_csv_dialect *d, const char *at)
{
    const char *start = ++at;
    bool doubled = false;
    for (;; at += 2) { /* the index of records has found the closing quote */
        while (*at != d->quote) at++;
        if (at[1] != d->quote) break;
        doubled = true;
    }
    *out = (fl_csv_cell){start, at - start, true, doubled};
    at = fl_csv_skip_blanks(d, at + 1);
    if (fl_csv_at_mark(d, at) || (d->blanks && fl_csv_is_blank(d, at[-1]))) return at;
    out->start = at;
    return NULL;
}

const char *fl_csv_cell_read(fl_csv_cell *out, const fl_csv_dialect *d, const char *at)
{
    at = fl_csv_skip_blanks(d, at);
    if (*at == d->quote && d->quote) return quoted_read(out, d, at);
    const char *start = at;
    while (!fl_csv_at_mark(d, at)) at++;
    const char *end = at;
    while (end > start && fl_csv_is_blank(d, end[-1])) end--;
    *out = (fl_csv_cell){start, end - start, false, false};
    return d->blanks ? fl_csv_skip_blanks(d, at) : at;
}

/* The record of a line that has quotes, cell by cell. */
static const char *quoted_record_end(const char **quote, const fl_csv_dialect *d, const char *at, const char *end)
{
    for (bool begins = true; at < end; at++) {
        if (*at == '\n') return at + 1;
        if (*at == d->quote && begins) {
            *quote = at++;
            for (;; at += 2) {
                at = memchr(at, d->quote, (size_t)(end - at));
                if (!at || at + 1 == end) return NULL; /* the next byte says if it is the last */
                if (at[1] != d->quote) break;
            }
            *quote = NULL;
            begins = false;
        } else if (*at == d->delimiter || (d->blanks && *at == '\t')) begins = true;
        else if (!fl_csv_is_blank(d, *at)) begins = false;
    }
    return NULL;
}

const char *fl_csv_record_end(const char **quote, const fl_csv_dialect *d, const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    *quote = NULL;
    if (!newline) newline = end;
    if (d->quote && !(d->comment && *at == d->comment) && memchr(at, d->quote, (size_t)(newline - at)))
        return quoted_record_end(quote, d, at, end);
    return newline == end ? NULL : newline + 1;
}

/* ---- contents of cells ---- */

int64_t fl_csv_cell_write(char *out, const fl_csv_dialect *d, const fl_csv_cell *cell)
{
    if (!cell->doubled) {
        if (cell->size > 0) memcpy(out, cell->start, (size_t)cell->size);
        return cell->size;
    }
    int64_t size = 0;
    for (int64_t i = 0; i < cell->size; i++) {
        out[size++] = cell->start[i];
        i += cell->start[i] == d->quote;
    }
    return size;
}

char *fl_csv_cell_copy(const fl_csv_dialect *d, const fl_csv_cell *cell)
{
    char *copy = malloc((size_t)cell->size + 1);
    if (copy) copy[fl_csv_cell_write(copy, d, cell)] = '\0';
    return copy;
}

bool fl_csv_is_missing(const fl_csv_dialect *d, const char *text, int64_t size)
{
    if (size == 0) return true;
    for (int i = 0; i < d->missing_count; i++)
        if (d->missing[i].size == size && memcmp(d->missing[i].text, text, (size_t)size) == 0) return true;
    return false;
}

int fl_csv_boolean(const char *text, int64_t size)
{
    static const char *const words[] = {"false", "true", "False", "True", "FALSE", "TRUE"};
    for (int i = 0; i < 6 && (size == 4 || size == 5); i++)
        if ((int64_t)strlen(words[i]) == size && memcmp(words[i], text, (size_t)size) == 0) return i % 2;
    return -1;
}

int fl_csv_seen(const fl_csv_dialect *d, const fl_csv_cell *cell)
{
    fl_number number;
    if (fl_csv_is_missing(d, cell->start, cell->size)) return FL_SEEN_MISSING;
    if (fl_number_read(&number, cell->start, d->decimal, d->plain) == cell->start + cell->size)
        return number.is_integer ? FL_SEEN_INT : FL_SEEN_FLOAT;
    return fl_csv_boolean(cell->start, cell->size) >= 0 ? FL_SEEN_BOOL : FL_SEEN_TEXT;
}

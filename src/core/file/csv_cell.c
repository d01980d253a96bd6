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

bool fl_csv_is_empty_line(const fl_csv_dialect *dialect, const char *at)
{
    if (dialect->comment && *at == dialect->comment) return true;
    return fl_csv_at_end(fl_csv_skip_blanks(dialect, at));
}

static const char *quoted_read(fl_csv_cell *out, const fl_csv_dialect *dialect, const char *at)
{
    const char *start = ++at;
    bool doubled = false;
    for (;; at += 2) { /* the index of records has found the closing quote */
        while (*at != dialect->quote) at++;
        if (at[1] != dialect->quote) break;
        doubled = true;
    }
    *out = (fl_csv_cell){start, at - start, true, doubled};
    at = fl_csv_skip_blanks(dialect, at + 1);
    if (fl_csv_at_mark(dialect, at) || (dialect->blanks && fl_csv_is_blank(dialect, at[-1]))) return at;
    out->start = at;
    return NULL;
}

const char *fl_csv_cell_read(fl_csv_cell *out, const fl_csv_dialect *dialect, const char *at)
{
    at = fl_csv_skip_blanks(dialect, at);
    if (*at == dialect->quote && dialect->quote) return quoted_read(out, dialect, at);
    const char *start = at;
    while (!fl_csv_at_mark(dialect, at)) at++;
    const char *end = at;
    while (end > start && fl_csv_is_blank(dialect, end[-1])) end--;
    *out = (fl_csv_cell){start, end - start, false, false};
    return dialect->blanks ? fl_csv_skip_blanks(dialect, at) : at;
}

/* The record of a line that has quotes, cell by cell. */
static const char *quoted_record_end(const char **quote, const fl_csv_dialect *dialect, const char *at, const char *end)
{
    for (bool begins = true; at < end; at++) {
        if (*at == '\n') return at + 1;
        if (*at == dialect->quote && begins) {
            *quote = at++;
            for (;; at += 2) {
                at = memchr(at, dialect->quote, (size_t)(end - at));
                if (!at || at + 1 == end) return NULL; /* the next byte says if it is the last */
                if (at[1] != dialect->quote) break;
            }
            *quote = NULL;
            begins = false;
        } else if (*at == dialect->delimiter || (dialect->blanks && *at == '\t')) begins = true;
        else if (!fl_csv_is_blank(dialect, *at)) begins = false;
    }
    return NULL;
}

const char *fl_csv_record_end(const char **quote, const fl_csv_dialect *dialect, const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    *quote = NULL;
    if (!newline) newline = end;
    if (dialect->quote && !(dialect->comment && *at == dialect->comment)
        && memchr(at, dialect->quote, (size_t)(newline - at)))
        return quoted_record_end(quote, dialect, at, end);
    return newline == end ? NULL : newline + 1;
}

/* ---- contents of cells ---- */

int64_t fl_csv_cell_write(char *out, const fl_csv_dialect *dialect, const fl_csv_cell *cell)
{
    if (!cell->doubled) {
        if (cell->size > 0) memcpy(out, cell->start, (size_t)cell->size);
        return cell->size;
    }
    int64_t size = 0;
    for (int64_t i = 0; i < cell->size; i++) {
        out[size++] = cell->start[i];
        i += cell->start[i] == dialect->quote;
    }
    return size;
}

char *fl_csv_cell_copy(const fl_csv_dialect *dialect, const fl_csv_cell *cell)
{
    char *copy = malloc((size_t)cell->size + 1);
    if (copy) copy[fl_csv_cell_write(copy, dialect, cell)] = '\0';
    return copy;
}

bool fl_csv_is_missing(const fl_csv_dialect *dialect, const char *text, int64_t size)
{
    if (size == 0) return true;
    for (int i = 0; i < dialect->missing_count; i++)
        if (dialect->missing[i].size == size && memcmp(dialect->missing[i].text, text, (size_t)size) == 0) return true;
    return false;
}

int fl_csv_boolean(const char *text, int64_t size)
{
    static const char *const words[] = {"false", "true", "False", "True", "FALSE", "TRUE"};
    for (int i = 0; i < 6 && (size == 4 || size == 5); i++)
        if ((int64_t)strlen(words[i]) == size && memcmp(words[i], text, (size_t)size) == 0) return i % 2;
    return -1;
}

int fl_csv_seen(const fl_csv_dialect *dialect, const fl_csv_cell *cell)
{
    fl_number number;
    if (fl_csv_is_missing(dialect, cell->start, cell->size)) return FL_SEEN_MISSING;
    if (fl_number_read(&number, cell->start, dialect->decimal, dialect->plain) == cell->start + cell->size)
        return number.is_integer ? FL_SEEN_INT : FL_SEEN_FLOAT;
    return fl_csv_boolean(cell->start, cell->size) >= 0 ? FL_SEEN_BOOL : FL_SEEN_TEXT;
}

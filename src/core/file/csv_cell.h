/*
** csv_cell.h -- cells and records of a table in memory. The text ends in a newline, and behind it lie bytes of 0, so
** nothing here looks for its end.
*/
#ifndef FL_CSV_CELL_H
#define FL_CSV_CELL_H

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>

enum { FL_CSV_PADDING = 16 /* bytes behind the text that can be read */ };

typedef struct fl_csv_word {
    const char *text;
    int64_t size;
} fl_csv_word;

/* The notation of a file. */
typedef struct fl_csv_dialect {
    char delimiter, quote, comment, decimal; /* 0: none; delimiter ' ': blanks in any number */
    bool blanks;                             /* delimiter is ' ' */
    bool tab_is_blank;                       /* of the blanks around cells */
    const fl_csv_word *missing;
    int missing_count;
    locale_t plain; /* owned */
} fl_csv_dialect;

typedef struct fl_csv_cell {
    const char *start;
    int64_t size;
    bool quoted, doubled; /* doubled: quotes in it are written twice */
} fl_csv_cell;

static inline bool fl_csv_is_blank(const fl_csv_dialect *dialect, char c)
{
    return c == ' ' || (c == '\t' && dialect->tab_is_blank);
}

static inline const char *fl_csv_skip_blanks(const fl_csv_dialect *dialect, const char *at)
{
    while (fl_csv_is_blank(dialect, *at)) at++;
    return at;
}

static inline bool fl_csv_at_end(const char *at) { return *at == '\n' || (*at == '\r' && at[1] == '\n'); }

/* True where a cell can end. */
static inline bool fl_csv_at_mark(const fl_csv_dialect *dialect, const char *at)
{
    return *at == dialect->delimiter || fl_csv_at_end(at) || (dialect->blanks && *at == '\t');
}

/* The end of the line, behind its newline. */
const char *fl_csv_line_end(const char *at);

/* True of a line that holds no record: empty, blanks, or a comment. */
bool fl_csv_is_empty_line(const fl_csv_dialect *dialect, const char *at);

/* The cell that begins at `at`, and the mark that ends it; NULL: text follows its closing quote, where out->start then
** points. */
const char *fl_csv_cell_read(fl_csv_cell *out, const fl_csv_dialect *dialect, const char *at);

/* Behind the record that begins at `at`, whose text goes on to `end`; NULL: it does not end there, because of a quote
** that opened at *quote, or it has no newline (*quote NULL). */
const char *fl_csv_record_end(const char **quote, const fl_csv_dialect *dialect, const char *at, const char *end);

/* The text of the cell, with each of its quotes once: writes at most cell->size bytes and returns how many. */
int64_t fl_csv_cell_write(char *out, const fl_csv_dialect *dialect, const fl_csv_cell *cell);
char *fl_csv_cell_copy(const fl_csv_dialect *dialect,
                       const fl_csv_cell *cell); /* the caller frees; NULL: out of memory */

/* True of the text of a cell that holds nothing. */
bool fl_csv_is_missing(const fl_csv_dialect *dialect, const char *text, int64_t size);
/* The bits FL_SEEN_... of a cell. */
int fl_csv_seen(const fl_csv_dialect *dialect, const fl_csv_cell *cell);
/* true and false, in these spellings: true, True, TRUE. -1: neither. */
int fl_csv_boolean(const char *text, int64_t size);

#endif

/*
** csv_read.c -- columns of a table, pieces of it at once (see csv.h).
**
** Each piece is read from the file and its records cell by cell: a cell of a column of numbers goes to its row of the
** tensor; of a column of text it is copied behind the piece's others. A cell that does not fit the type of its column
** is only noted; when all pieces are through, such columns get a wider type and the pieces are read again for them.
** Pieces do not depend on the number of threads, and of several errors the first in the file is reported.
*/
#include "csv.h"
#include "csv_number.h"
#include "engine/team.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64 /* pieces between two looks for Ctrl-C */ };

/* The error in a piece, found by a thread of the team and worded by the caller. */
struct fault {
    enum { NO_FAULT, COUNT, QUOTE, TYPE, MISSING, CHANGED, SYSTEM } kind;
    fl_status status; /* of SYSTEM */
    int column;       /* of `columns` */
    int64_t offset, found;
    char text[FL_SHOWN_TEXT];
};

struct job {
    const fl_csv *csv;
    fl_csv_column *columns;
    int count;
    fl_csv_column **by_index; /* owned: the column for each one of the file; NULL: it is not read now */
    uint8_t *seen;            /* owned: [piece, count] */
    struct fault *faults;     /* owned: [piece] */
    int64_t first;            /* the piece that the team's range begins with */
};

/* A piece being read. */
struct work {
    const struct job *job;
    const fl_csv_piece *piece;
    int64_t index;
    const char *text;
    uint8_t *seen; /* [count] */
    struct fault *fault;
};

/* ---- places and errors ---- */

fl_status fl_csv_fail_quote(const fl_csv *csv, int64_t offset)
{
    int64_t line, column;
    FL_TRY(fl_text_file_place(&line, &column, csv->text, offset));
    return fl_fail(FL_ERR_IO,
                   "csv: %s:%" PRId64 ":%" PRId64 ": text after the closing quote of a cell; a quote within one is "
                   "written twice",
                   csv->text->path, line, column);
}

static bool is_digits(const char *text)
{
    text += *text == '-' || *text == '+';
    return *text && !text[strspn(text, "0123456789")];
}

/* The words for the type that the cell does not have. */
static const char *type_words(const fl_csv_column *column, const char *cell)
{
    switch (column->type) {
    case FL_CSV_BOOL: return "true or false";
    case FL_CSV_INT: return is_digits(cell) ? "a whole number of 64 bits" : "a whole number";
    case FL_CSV_TIME: return "a time, as 2024-01-31 or 2024-01-31T23:59:59Z";
    default: return "a number";
    }
}

static fl_status fault_fail(const struct job *job, const struct fault *fault)
{
    const fl_csv *csv = job->csv;
    const char *path = csv->text->path, *name = job->columns[fault->column].name;
    int64_t line, column;
    if (fault->kind == SYSTEM) return fl_fail(fault->status, "%s", fault->text);
    if (fault->kind == CHANGED) return fl_fail(FL_ERR_IO, "csv: %s: the file changed while it was read", path);
    if (fault->kind == QUOTE) return fl_csv_fail_quote(csv, fault->offset);
    FL_TRY(fl_text_file_place(&line, &column, csv->text, fault->offset));
    if (fault->kind == COUNT)
        return fl_fail(FL_ERR_IO, "csv: %s:%" PRId64 ": %" PRId64 " cells; line %" PRId64 "%s has %d", path, line,
                       fault->found, csv->header_line, csv->names ? ", the header," : "", csv->columns);
    if (fault->kind == MISSING)
        return fl_fail(FL_ERR_IO,
                       "csv: %s:%" PRId64 ":%" PRId64 ": column '%s' holds nothing here; give it a fill, or no type",
                       path, line, column, name);
    return fl_fail(FL_ERR_IO, "csv: %s:%" PRId64 ":%" PRId64 ": column '%s' holds '%s', not %s", path, line, column,
                   name, fault->text, type_words(&job->columns[fault->column], fault->text));
}

static bool fault_set(const struct work *work, int kind, const char *at, int64_t found)
{
    work->fault->kind = kind;
    work->fault->offset = work->piece->start + (at - work->text);
    work->fault->found = found;
    return false;
}

/* The error of this thread's last core call. */
static bool fault_take(const struct work *work, fl_status status)
{
    *work->fault = (struct fault){.kind = SYSTEM, .status = status};
    fl_text_clean(work->fault->text, sizeof work->fault->text, fl_message(), strlen(fl_message()), "");
    return false;
}

/* ---- cells ---- */

static bool fault_cell(const struct work *work, int kind, const fl_csv_column *column, const fl_csv_cell *cell)
{
    work->fault->column = (int)(column - work->job->columns);
    fl_text_clean(work->fault->text, 48, cell->start, (size_t)cell->size, "");
    return fault_set(work, kind, cell->start, 0);
}

static bool fill_fits(const fl_csv_column *column)
{
    return column->has_fill && (column->type == FL_CSV_FLOAT || column->type == FL_CSV_TIME || column->fill_is_integer);
}

static void store_float(const fl_csv_column *column, int64_t row, double value)
{
    if (column->single) ((float *)column->data)[row] = (float)value;
    else ((double *)column->data)[row] = value;
}

/* A cell that holds nothing. */
static bool store_missing(const struct work *work, const fl_csv_column *column, int64_t row, const fl_csv_cell *cell)
{
    work->seen[column - work->job->columns] |= FL_SEEN_MISSING;
    if (column->type == FL_CSV_FLOAT || column->type == FL_CSV_TIME)
        store_float(column, row, column->has_fill ? column->fill : (double)NAN);
    else if (!fill_fits(column)) return column->declared ? fault_cell(work, MISSING, column, cell) : true;
    else if (column->type == FL_CSV_INT) ((int64_t *)column->data)[row] = column->fill_integer;
    else ((uint8_t *)column->data)[row] = column->fill != 0;
    return true;
}

/* A cell as its column has it; one that does not fit is noted, or an error where the type is not ours to choose. */
static bool store_cell(const struct work *work, fl_csv_column *column, int64_t row, const fl_csv_cell *cell)
{
    const fl_csv_dialect *d = &work->job->csv->dialect;
    double seconds;
    if (column->type == FL_CSV_TIME && fl_time_read(&seconds, cell->start, cell->size)) {
        store_float(column, row, seconds);
        return true;
    }
    int seen = fl_csv_seen(d, cell);
    if (seen == FL_SEEN_MISSING) return store_missing(work, column, row, cell);
    fl_number number;
    work->seen[column - work->job->columns] |= (uint8_t)seen;
    if (seen & (FL_SEEN_INT | FL_SEEN_FLOAT)) fl_number_read(&number, cell->start, d->decimal, d->plain);
    if (seen == FL_SEEN_INT && column->type == FL_CSV_INT) ((int64_t *)column->data)[row] = number.integer;
    else if (seen & (FL_SEEN_INT | FL_SEEN_FLOAT) && column->type == FL_CSV_FLOAT)
        store_float(column, row, number.value);
    else if (seen == FL_SEEN_BOOL && column->type == FL_CSV_BOOL)
        ((uint8_t *)column->data)[row] = fl_csv_boolean(cell->start, cell->size) == 1;
    else if (seen == FL_SEEN_BOOL && column->type == FL_CSV_FLOAT && !column->declared)
        store_float(column, row, fl_csv_boolean(cell->start, cell->size));
    else if (column->declared && column->type == FL_CSV_BOOL && seen == FL_SEEN_INT && (number.integer & ~1) == 0)
        ((uint8_t *)column->data)[row] = number.integer != 0;
    else if (column->declared) return fault_cell(work, TYPE, column, cell);
    return true;
}

static bool store_text(const struct work *work, fl_csv_column *column, int64_t row, const fl_csv_cell *cell)
{
    fl_csv_cells *cells = &column->cells[work->index];
    if (cells->room - cells->size < cell->size) {
        int64_t room = 2 * (cells->room + cell->size) + 4096;
        char *grown = realloc(cells->bytes, (size_t)room);
        if (!grown)
            return fault_take(work, fl_fail(FL_ERR_MEMORY, "csv: %s: out of memory", work->job->csv->text->path));
        cells->bytes = grown;
        cells->room = room;
    }
    cells->size += fl_csv_cell_write(cells->bytes + cells->size, &work->job->csv->dialect, cell);
    cells->ends[row - work->piece->first_row] = cells->size;
    return true;
}

/* A cell that is a number its column has room for, the common case: its end; NULL: it is something else. */
static inline const char *number_cell(const struct work *work, fl_csv_column *column, int64_t row, const char *at)
{
    const fl_csv_dialect *d = &work->job->csv->dialect;
    fl_number number;
    if (column->type != FL_CSV_INT && column->type != FL_CSV_FLOAT) return NULL;
    at = fl_number_read(&number, fl_csv_skip_blanks(d, at), d->decimal, d->plain);
    if (!at || (column->type == FL_CSV_INT && !number.is_integer)) return NULL;
    if (!d->blanks) at = fl_csv_skip_blanks(d, at);
    if (!fl_csv_at_mark(d, at)) return NULL;
    if (column->type == FL_CSV_INT) ((int64_t *)column->data)[row] = number.integer;
    else {
        if (number.value != number.value) return NULL; /* may be a word for nothing */
        store_float(column, row, number.value);
    }
    work->seen[column - work->job->columns] |= number.is_integer ? FL_SEEN_INT : FL_SEEN_FLOAT;
    return d->blanks ? fl_csv_skip_blanks(d, at) : at;
}

static const char *any_cell(const struct work *work, fl_csv_column *column, int64_t row, const char *at)
{
    fl_csv_cell cell;
    at = fl_csv_cell_read(&cell, &work->job->csv->dialect, at);
    if (!at) {
        fault_set(work, QUOTE, cell.start, 0);
        return NULL;
    }
    if (!column) return at;
    bool is_text = column->type == FL_CSV_TEXT;
    if (!is_text && !column->declared && work->seen[column - work->job->columns] & FL_SEEN_TEXT)
        return at; /* once is enough */
    return (is_text ? store_text : store_cell)(work, column, row, &cell) ? at : NULL;
}

/* ---- pieces ---- */

/* More cells, or fewer, than there are columns. */
static const char *record_miscounted(const struct work *work, const char *start)
{
    const fl_csv_dialect *d = &work->job->csv->dialect;
    fl_csv_cell cell;
    int64_t cells = 0;
    for (const char *at = fl_csv_skip_blanks(d, start);; at += !d->blanks) {
        if (!(at = fl_csv_cell_read(&cell, d, at))) break;
        cells++;
        if (fl_csv_at_end(at)) break;
    }
    fault_set(work, COUNT, start, cells);
    return NULL;
}

/* Behind the record; NULL: there is an error. */
static const char *record_read(const struct work *work, int64_t row, const char *start)
{
    const fl_csv_dialect *d = &work->job->csv->dialect;
    int last = work->job->csv->columns - 1;
    const char *at = d->blanks ? fl_csv_skip_blanks(d, start) : start;
    for (int i = 0; i <= last; i++) {
        fl_csv_column *column = work->job->by_index[i];
        const char *end = column ? number_cell(work, column, row, at) : NULL;
        if (!end && !(end = any_cell(work, column, row, at))) return NULL;
        if (fl_csv_at_end(end) != (i == last)) return record_miscounted(work, start);
        at = end + (!d->blanks && i < last);
    }
    return at + 1 + (*at == '\r');
}

static bool piece_parse(const struct work *work, const char *end)
{
    const fl_csv_dialect *d = &work->job->csv->dialect;
    const char *at = work->text;
    for (int64_t row = 0; row < work->piece->rows; row++) {
        while (at < end && fl_csv_is_empty_line(d, at)) at = fl_csv_line_end(at);
        if (at >= end) return fault_set(work, CHANGED, at, 0);
        at = record_read(work, work->piece->first_row + row, at);
        if (!at) return false;
    }
    while (at < end && fl_csv_is_empty_line(d, at)) at = fl_csv_line_end(at);
    return at >= end || fault_set(work, CHANGED, at, 0);
}

/* Text of which cells are copied needs room for their ends, and nothing of an earlier pass. */
static bool cells_prepare(const struct work *work)
{
    for (int i = 0; i < work->job->count; i++) {
        fl_csv_column *column = &work->job->columns[i];
        if (work->job->by_index[column->index] != column || column->type != FL_CSV_TEXT) continue;
        fl_csv_cells *cells = &column->cells[work->index];
        cells->size = 0;
        cells->ends = malloc(sizeof *cells->ends * (size_t)work->piece->rows);
        if (!cells->ends)
            return fault_take(work, fl_fail(FL_ERR_MEMORY, "csv: %s: out of memory", work->job->csv->text->path));
    }
    return true;
}

static void pieces_read(void *context, int64_t begin, int64_t end)
{
    struct job *job = context;
    char *buffer = NULL;
    int64_t room = 0;
    for (int64_t i = job->first + begin; i < job->first + end; i++) {
        const fl_csv_piece *piece = &job->csv->pieces[i];
        struct work w = {job, piece, i, NULL, job->seen + i * job->count, &job->faults[i]};
        if (piece->bytes > room) {
            free(buffer);
            room = piece->bytes + piece->bytes / 4;
            buffer = malloc((size_t)room + FL_CSV_PADDING + 1);
        }
        fl_status status = buffer ? fl_text_file_read(job->csv->text, buffer, piece->start, piece->bytes)
                                  : fl_fail(FL_ERR_MEMORY, "csv: %s: out of memory", job->csv->text->path);
        if (status != FL_OK) {
            room = buffer ? room : 0;
            fault_take(&w, status);
            continue;
        }
        memset(buffer + piece->bytes, 0, FL_CSV_PADDING + 1);
        if (buffer[piece->bytes - 1] != '\n') buffer[piece->bytes] = '\n';
        w.text = buffer;
        if (cells_prepare(&w)) piece_parse(&w, buffer + piece->bytes);
    }
    free(buffer);
}

/* ---- columns ---- */

/* Reads all pieces for the columns in by_index. */
static fl_status pass_read(struct job *job, bool (*interrupted)(void))
{
    const fl_csv *csv = job->csv;
    for (job->first = 0; job->first < csv->piece_count; job->first += AT_ONCE) {
        int64_t left = csv->piece_count - job->first;
        fl_team_for(left < AT_ONCE ? left : AT_ONCE, 1e6, pieces_read, job);
        if (interrupted && interrupted()) return fl_fail(FL_ERR_INTERRUPTED, "interrupted");
        for (int64_t i = job->first; i < job->first + AT_ONCE && i < csv->piece_count; i++)
            if (job->faults[i].kind) return fault_fail(job, &job->faults[i]);
    }
    return FL_OK;
}

/* Widens the columns that the pass found cells of other types in: these are read again. */
static fl_status columns_widen(bool *again, struct job *job)
{
    const fl_csv *csv = job->csv;
    *again = false;
    for (int c = 0; c < job->count; c++) {
        fl_csv_column *column = &job->columns[c];
        for (int64_t i = 0; i < csv->piece_count; i++) column->seen |= job->seen[i * job->count + c];
        fl_csv_type type = column->declared ? column->type : fl_csv_type_for(column, column->seen);
        job->by_index[column->index] = type == column->type ? NULL : column;
        if (type == column->type) continue;
        column->type = type;
        *again = true;
        FL_TRY(fl_csv_column_prepare(csv, column));
    }
    return FL_OK;
}

static fl_status job_run(struct job *job, bool (*interrupted)(void))
{
    const fl_csv *csv = job->csv;
    for (int i = 0; i < job->count; i++) {
        fl_csv_column *column = &job->columns[i];
        column->declared = column->type != FL_CSV_GUESS;
        column->seen = csv->seen[column->index];
        if (!column->declared)
            column->type = column->seen & ~FL_SEEN_MISSING ? fl_csv_type_for(column, column->seen) : FL_CSV_INT;
        job->by_index[column->index] = column;
        FL_TRY(fl_csv_column_prepare(csv, column));
    }
    for (bool again = true; again;) {
        FL_TRY(pass_read(job, interrupted));
        FL_TRY(columns_widen(&again, job));
    }
    return FL_OK;
}

fl_status fl_csv_read(const fl_csv *csv, fl_csv_column *columns, int count, bool (*interrupted)(void))
{
    struct job job = {.csv = csv, .columns = columns, .count = count};
    job.by_index = calloc((size_t)csv->columns + 1, sizeof *job.by_index);
    job.seen = calloc((size_t)csv->piece_count * (size_t)count + 1, 1);
    job.faults = calloc((size_t)csv->piece_count + 1, sizeof *job.faults);
    fl_status status = job.by_index && job.seen && job.faults
        ? job_run(&job, interrupted)
        : fl_fail(FL_ERR_MEMORY, "csv: %s: out of memory", csv->text->path);
    for (int i = 0; i < count && status != FL_OK; i++) fl_csv_column_clear(&columns[i]);
    free(job.by_index);
    free(job.seen);
    free(job.faults);
    return status;
}

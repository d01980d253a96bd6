/*
** csv_open.c -- opening a table: the places of its records, its notation, the names of its columns (see csv.h).
*/
#include "csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 20,
    MAX_RECORD = 1 << 28, /* bytes: a quote that is not closed must not take all memory */
    SAMPLE = 200          /* records from which types are guessed */
};

/* The text from `offset` on, in a buffer that holds whole records. */
struct reader {
    fl_csv *csv;
    char *buffer; /* owned */
    int64_t room;
    int64_t offset, size; /* the part of the text in it */
    int64_t at;           /* in it: the next byte to read */
};

struct record {
    const char *start, *end; /* in the buffer, until the next one is read; start NULL: there is none */
    int64_t offset;          /* of end in the text */
};

static fl_status out_of_memory(const fl_csv *csv)
{
    return fl_fail(FL_ERR_MEMORY, "csv: %s: out of memory", csv->text->path);
}

/* The line of a byte of the text, counted from 1. */
static fl_status line_of(int64_t *line, const struct reader *reader, int64_t offset)
{
    int64_t column;
    return fl_text_file_place(line, &column, reader->csv->text, offset);
}

/* Moves what is left to the front and reads on; the buffer grows when one record fills it. */
static fl_status reader_fill(struct reader *reader)
{
    int64_t left = reader->size - reader->at, more = reader->csv->text->bytes - reader->offset - reader->size;
    if (reader->at > 0 && left > 0) memmove(reader->buffer, reader->buffer + reader->at, (size_t)left);
    reader->offset += reader->at;
    reader->at = 0;
    reader->size = left;
    if (reader->room - left < PIECE / 2) {
        char *grown = realloc(reader->buffer, (size_t)(2 * reader->room + PIECE + FL_CSV_PADDING));
        if (!grown) return out_of_memory(reader->csv);
        reader->buffer = grown;
        reader->room = 2 * reader->room + PIECE;
    }
    if (more > reader->room - left) more = reader->room - left;
    FL_TRY(fl_text_file_read(reader->csv->text, reader->buffer + left, reader->offset + left, more));
    reader->size += more;
    memset(reader->buffer + reader->size, 0, FL_CSV_PADDING);
    return FL_OK;
}

static fl_status unclosed_fail(struct reader *reader, const char *quote)
{
    int64_t line = 0;
    FL_TRY(line_of(&line, reader, reader->offset + (quote ? quote - reader->buffer : reader->at)));
    return quote
        ? fl_fail(FL_ERR_IO,
                  "csv: %s:%lld: the quote that opens here is not closed; without quotes in the file: quote = \"\"",
                  reader->csv->text->path, (long long)line)
        : fl_fail(FL_ERR_IO, "csv: %s:%lld: a line of more than %d bytes", reader->csv->text->path, (long long)line,
                  MAX_RECORD);
}

/* The next line or record, empty ones too. */
static fl_status any_next(struct record *out, struct reader *reader)
{
    for (;;) {
        const char *quote = NULL, *start = reader->buffer + reader->at;
        bool whole = reader->offset + reader->size == reader->csv->text->bytes; /* the buffer has the end of the text */
        const char *end = reader->at < reader->size
            ? fl_csv_record_end(&quote, &reader->csv->dialect, start, reader->buffer + reader->size)
            : NULL;
        if (!end && whole && reader->at < reader->size) { /* without a newline at the end of the file */
            reader->buffer[reader->size] = '\n';
            end = fl_csv_record_end(&quote, &reader->csv->dialect, start, reader->buffer + reader->size + 1);
            if (!end) return unclosed_fail(reader, quote);
        }
        if (!end && whole) {
            *out = (struct record){NULL, NULL, reader->offset + reader->at};
            return FL_OK;
        }
        if (end) {
            reader->at = end - reader->buffer < reader->size ? end - reader->buffer : reader->size;
            *out = (struct record){start, end, reader->offset + reader->at};
            return FL_OK;
        }
        if (reader->size - reader->at > MAX_RECORD) return unclosed_fail(reader, quote);
        FL_TRY(reader_fill(reader));
    }
}

static fl_status record_next(struct record *out, struct reader *reader)
{
    do FL_TRY(any_next(out, reader));
    while (out->start && fl_csv_is_empty_line(&reader->csv->dialect, out->start));
    return FL_OK;
}

static void reader_seek(struct reader *reader, int64_t offset)
{
    reader->offset = offset;
    reader->size = reader->at = 0;
}

/* ---- the notation ---- */

/* The candidate that stands most often outside of quotes in the first record; where there is none, blanks, if all
** that they separate are numbers. */
static char delimiter_find(const fl_csv_dialect *dialect, const struct record *record)
{
    static const char candidates[] = ",\t;|";
    int counts[4] = {0}, best = 0;
    bool quoted = false;
    for (const char *at = record->start; at < record->end; at++) {
        const char *found = strchr(candidates, *at);
        if (dialect->quote && *at == dialect->quote) quoted = !quoted;
        else if (!quoted && *at && found && !(*at == dialect->decimal)) counts[found - candidates]++;
    }
    for (int i = 1; i < 4; i++)
        if (counts[i] > counts[best]) best = i;
    if (counts[best] > 0) return candidates[best];
    fl_csv_dialect blanks = *dialect;
    fl_csv_cell cell;
    int numbers = 0;
    blanks.delimiter = ' ';
    blanks.blanks = blanks.tab_is_blank = true;
    const char *quote, *end = record->end + (record->end[-1] != '\n'); /* behind the text any_next has put a newline */
    if (fl_csv_record_end(&quote, &blanks, record->start, end) != end)
        return ','; /* a quote behind a blank stays open */
    for (const char *at = fl_csv_skip_blanks(dialect, record->start); at && !fl_csv_at_end(at); numbers++) {
        at = fl_csv_cell_read(&cell, &blanks, at);
        if (!at || !(fl_csv_seen(&blanks, &cell) & (FL_SEEN_INT | FL_SEEN_FLOAT))) return ',';
    }
    return numbers > 1 ? ' ' : ',';
}

static void delimiter_set(fl_csv_dialect *dialect, char delimiter)
{
    dialect->delimiter = delimiter;
    dialect->blanks = delimiter == ' ';
    dialect->tab_is_blank = delimiter != '\t';
}

/* ---- columns ---- */

/* The kinds of the cells of a record, and their number; names: the cells, copied. */
static fl_status record_look(int *count, uint8_t *seen, char **names, int most, const struct reader *reader,
                             const struct record *record)
{
    fl_csv_cell cell;
    const fl_csv *csv = reader->csv;
    const fl_csv_dialect *d = &csv->dialect;
    const char *at = fl_csv_skip_blanks(d, record->start);
    for (*count = 0;; at++) {
        at = fl_csv_cell_read(&cell, d, at);
        if (!at) return fl_csv_fail_quote(csv, reader->offset + (cell.start - reader->buffer));
        if (*count < most && seen) seen[*count] |= (uint8_t)fl_csv_seen(d, &cell);
        if (*count < most && names && !(names[*count] = fl_csv_cell_copy(d, &cell))) return out_of_memory(csv);
        ++*count;
        if (fl_csv_at_end(at)) return FL_OK;
        if (d->blanks) at--; /* it stands on the next cell */
    }
}

/* True if the first record is a header, judged by its types and those of the following records. */
static bool header_guess(const uint8_t *first, const uint8_t *rest, int columns)
{
    bool has_value = false;
    for (int i = 0; i < columns; i++) {
        bool other = rest[i] & (FL_SEEN_INT | FL_SEEN_FLOAT | FL_SEEN_BOOL) && !(rest[i] & FL_SEEN_TEXT);
        if (first[i] == FL_SEEN_TEXT && other) return true;
        has_value = has_value || first[i] & (FL_SEEN_INT | FL_SEEN_FLOAT | FL_SEEN_BOOL);
    }
    return !has_value;
}

static bool has_header(const fl_csv_options *options, const uint8_t *first, const fl_csv *csv)
{
    return options->header < 0 ? header_guess(first, csv->seen, csv->columns) : options->header;
}

/* Names and types, from the first records; *data: where the records after the header begin. */
static fl_status columns_find(int64_t *data, struct reader *reader, const fl_csv_options *options)
{
    fl_csv *csv = reader->csv;
    struct record record;
    int64_t begin = reader->offset + reader->at;
    int other;
    FL_TRY(record_next(&record, reader));
    *data = record.offset;
    if (!record.start) return fl_fail(FL_ERR_IO, "csv: %s: holds no records", csv->text->path);
    FL_TRY(line_of(&csv->header_line, reader, reader->offset + (record.start - reader->buffer)));
    FL_TRY(record_look(&csv->columns, NULL, NULL, 0, reader, &record));
    csv->seen = calloc((size_t)csv->columns + 1, 1);
    csv->names = calloc((size_t)csv->columns + 1, sizeof *csv->names);
    uint8_t *first = calloc((size_t)csv->columns + 1, 1);
    fl_status status = csv->seen && csv->names && first ? FL_OK : out_of_memory(csv);
    if (status == FL_OK) status = record_look(&other, first, csv->names, csv->columns, reader, &record);
    int64_t most = options->limit < 0 || options->limit > SAMPLE ? SAMPLE : options->limit;
    for (int64_t i = 0; i < most && status == FL_OK && record.start; i++) {
        status = record_next(&record, reader);
        if (status == FL_OK && record.start)
            status = record_look(&other, csv->seen, NULL, csv->columns, reader, &record);
    }
    if (status == FL_OK && !has_header(options, first, csv)) {
        for (int i = 0; i < csv->columns; i++) {
            csv->seen[i] |= first[i];
            free(csv->names[i]);
        }
        free(csv->names);
        csv->names = NULL;
        *data = begin;
    }
    free(first);
    return status;
}

/* ---- the places of records ---- */

static fl_status piece_add(fl_csv *csv, fl_csv_piece piece)
{
    if (csv->piece_count == csv->piece_room) {
        int64_t room = 2 * csv->piece_room + 16;
        fl_csv_piece *grown = realloc(csv->pieces, sizeof *grown * (size_t)room);
        if (!grown) return out_of_memory(csv);
        csv->pieces = grown;
        csv->piece_room = room;
    }
    csv->pieces[csv->piece_count++] = piece;
    return FL_OK;
}

static fl_status pieces_find(struct reader *reader, int64_t limit)
{
    fl_csv *csv = reader->csv;
    struct record record;
    fl_csv_piece piece = {.start = reader->offset};
    while (limit < 0 || csv->rows < limit) {
        FL_TRY(record_next(&record, reader));
        if (!record.start) break;
        csv->rows++;
        piece.rows++;
        piece.bytes = record.offset - piece.start;
        if (piece.bytes < PIECE) continue;
        FL_TRY(piece_add(csv, piece));
        piece = (fl_csv_piece){.start = record.offset, .first_row = csv->rows};
    }
    return piece.rows > 0 ? piece_add(csv, piece) : FL_OK;
}

static fl_status lines_skip(struct reader *reader, int64_t lines)
{
    struct record record = {.start = ""};
    char quote = reader->csv->dialect.quote;
    reader->csv->dialect.quote = 0;
    for (int64_t i = 0; i < lines && record.start; i++) FL_TRY(any_next(&record, reader));
    reader->csv->dialect.quote = quote;
    return FL_OK;
}

static fl_status table_find(struct reader *reader, const fl_csv_options *options)
{
    fl_csv_dialect *d = &reader->csv->dialect;
    struct record record;
    int64_t begin, data;
    delimiter_set(d, options->delimiter ? options->delimiter : ',');
    FL_TRY(lines_skip(reader, options->skip));
    begin = reader->offset + reader->at;
    if (!options->delimiter) {
        d->tab_is_blank = false; /* a record that is a lone tab is none */
        FL_TRY(record_next(&record, reader));
        if (record.start) delimiter_set(d, delimiter_find(d, &record));
        reader_seek(reader, begin);
    }
    FL_TRY(columns_find(&data, reader, options));
    reader_seek(reader, data);
    return pieces_find(reader, options->limit);
}

fl_status fl_csv_open(fl_csv **out, const char *path, const fl_csv_options *options)
{
    fl_csv *csv = calloc(1, sizeof *csv);
    if (!csv) return fl_fail(FL_ERR_MEMORY, "csv: %s: out of memory", path);
    struct reader reader = {.csv = csv};
    csv->dialect = (fl_csv_dialect){.quote = options->quote,
                                    .comment = options->comment,
                                    .decimal = options->decimal,
                                    .missing = options->missing,
                                    .missing_count = options->missing_count};
    fl_status status = fl_text_file_open(&csv->text, "csv", path);
    csv->dialect.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (status == FL_OK && !csv->dialect.plain) status = out_of_memory(csv);
    if (status == FL_OK) status = table_find(&reader, options);
    free(reader.buffer);
    if (status == FL_OK) *out = csv;
    else fl_csv_close(csv);
    return status;
}

void fl_csv_close(fl_csv *csv)
{
    if (!csv) return;
    for (int i = 0; i < csv->columns && csv->names; i++) free(csv->names[i]);
    free(csv->names);
    free(csv->seen);
    free(csv->pieces);
    if (csv->dialect.plain) freelocale(csv->dialect.plain);
    fl_text_file_close(csv->text);
    free(csv);
}

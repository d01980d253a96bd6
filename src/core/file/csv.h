/*
** csv.h -- tables of text with a delimiter: columns as tensors, or as text.
**
** fl_csv_open reads the file once for the offsets of its records, and guesses names and types from the first of them.
** fl_csv_read reads the columns that are asked for, pieces of a megabyte on all threads of the team. If a later record
** does not fit the type that was guessed, the column is read again, with a type that fits all. A piece is read from the
** file into memory of its thread, so files may be larger than memory.
*/
#ifndef FL_CSV_H
#define FL_CSV_H

#include "csv_cell.h"
#include "memory/tensor.h"
#include "text_file.h"

/* The type that a column is read as. */
typedef enum fl_csv_type {
    FL_CSV_GUESS,
    FL_CSV_BOOL,
    FL_CSV_INT,   /* int64 */
    FL_CSV_FLOAT, /* float64, or float32 where it is asked for */
    FL_CSV_TIME,  /* float64: seconds since the beginning of 1970 UTC; never guessed */
    FL_CSV_TEXT
} fl_csv_type;

/* The kinds of cells found in a column: bits. */
enum { FL_SEEN_BOOL = 1, FL_SEEN_INT = 2, FL_SEEN_FLOAT = 4, FL_SEEN_TEXT = 8, FL_SEEN_MISSING = 16 };

typedef struct fl_csv_options {
    char delimiter;             /* 0: found out; ' ': any number of blanks */
    char quote, comment;        /* 0: none */
    char decimal;               /* '.' or ',' */
    int header;                 /* 0 or 1: is the first record one; -1: found out */
    int64_t skip, limit;        /* lines before anything else; records at most, -1: all */
    const fl_csv_word *missing; /* cells that hold nothing, besides empty ones; borrowed while the table is open */
    int missing_count;
} fl_csv_options;

/* Some records that follow each other. */
typedef struct fl_csv_piece {
    int64_t start, bytes, first_row, rows, line; /* line: of its first byte, counted from 1 */
} fl_csv_piece;

typedef struct fl_csv {
    fl_text_file *text; /* owned */
    fl_csv_dialect dialect;
    int columns;
    char **names;  /* owned; NULL: the file has no header */
    uint8_t *seen; /* owned: of each column in the first records */
    int64_t rows;
    int64_t header_line;  /* of the record that gives the number of columns */
    fl_csv_piece *pieces; /* owned */
    int64_t piece_count, piece_room;
} fl_csv;

/* Opens a table; fl_csv_close frees *out. Errors: FL_ERR_IO, "csv: path:line: ...". */
fl_status fl_csv_open(fl_csv **out, const char *path, const fl_csv_options *options);
void fl_csv_close(fl_csv *csv); /* takes NULL */

/* The cells of a column within a piece: bytes one after the other, and where each ends. */
typedef struct fl_csv_cells {
    char *bytes;   /* owned */
    int64_t *ends; /* owned */
    int64_t size, room;
} fl_csv_cells;

typedef struct fl_csv_column {
    int index;        /* in the file */
    const char *name; /* in messages; borrowed */
    fl_csv_type type; /* to be read as; FL_CSV_GUESS becomes what was found */
    bool single;      /* float32 for float64 */
    bool has_fill;    /* for cells that hold nothing; else these are nan, and make integers and booleans floats */
    double fill;
    int64_t fill_integer; /* if it is a whole number, else integers ignore has_fill */
    bool fill_is_integer;
    fl_tensor *tensor;   /* owned: [rows], or NULL for text */
    fl_csv_cells *cells; /* owned: of each piece; NULL but for text */
    int64_t piece_count; /* of cells */
    /* the reader's own */
    bool declared;
    uint8_t seen;
    void *data;
} fl_csv_column;

/* Reads columns. On an error they hold nothing. Errors: "csv: path:line:column: ..."; interrupted (NULL: never) is
** asked now and then, and ends it with FL_ERR_INTERRUPTED. */
fl_status fl_csv_read(const fl_csv *csv, fl_csv_column *columns, int count, bool (*interrupted)(void));
void fl_csv_column_clear(fl_csv_column *column);

/* Categories: the number of each cell's text among `names`, -1 for what is missing or not among them. Without names
** they are all texts of the column, in the order of their bytes; *names is then owned by the caller, in one block. */
fl_status fl_csv_codes(fl_tensor **out, fl_csv_word **names, int64_t *count, const fl_csv *csv,
                       const fl_csv_column *column);

/* ---- between the files of this reader ---- */

/* The narrowest type for all that a column was seen to hold. */
fl_csv_type fl_csv_type_for(const fl_csv_column *column, int seen);
/* Gives a column memory for its type, in place of what it has. */
fl_status fl_csv_column_prepare(const fl_csv *csv, fl_csv_column *column);
/* Text follows a closing quote. */
fl_status fl_csv_fail_quote(const fl_csv *csv, int64_t offset);

#endif

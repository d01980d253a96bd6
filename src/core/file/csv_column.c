/*
** csv_column.c -- the type of a column and its memory (see csv.h).
*/
#include "csv.h"

#include <stdlib.h>

fl_csv_type fl_csv_type_for(const fl_csv_column *column, int seen)
{
    int numbers = seen & (FL_SEEN_INT | FL_SEEN_FLOAT);
    bool keeps_integers = !(seen & FL_SEEN_MISSING) || (column->has_fill && column->fill_is_integer);
    if (seen & FL_SEEN_TEXT || (seen & FL_SEEN_BOOL && numbers)) return FL_CSV_TEXT;
    if (numbers & FL_SEEN_FLOAT || !(numbers | (seen & FL_SEEN_BOOL)) || !keeps_integers) return FL_CSV_FLOAT;
    return numbers ? FL_CSV_INT : FL_CSV_BOOL;
}

fl_status fl_csv_column_prepare(const fl_csv *csv, fl_csv_column *column)
{
    fl_shape shape = {.ndim = 1, .dims = {csv->rows}};
    fl_dtype dtype = column->type == FL_CSV_BOOL ? FL_BOOL
        : column->type == FL_CSV_INT             ? FL_INT64
        : column->single                         ? FL_FLOAT32
                                                 : FL_FLOAT64;
    fl_csv_column_clear(column);
    if (column->type == FL_CSV_TEXT) {
        column->cells = calloc((size_t)csv->piece_count + 1, sizeof *column->cells);
        column->piece_count = csv->piece_count;
        return column->cells ? FL_OK : fl_fail(FL_ERR_MEMORY, "csv: %s: out of memory", csv->text->path);
    }
    FL_TRY(fl_tensor_empty_local(&column->tensor, dtype, &shape));
    column->data = csv->rows > 0 ? fl_tensor_data(column->tensor) : NULL;
    return FL_OK;
}

void fl_csv_column_clear(fl_csv_column *column)
{
    for (int64_t i = 0; i < column->piece_count && column->cells; i++) {
        free(column->cells[i].bytes);
        free(column->cells[i].ends);
    }
    free(column->cells);
    fl_tensor_unref(column->tensor);
    column->cells = NULL;
    column->tensor = NULL;
    column->data = NULL;
}

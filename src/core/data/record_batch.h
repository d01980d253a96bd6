/*
** record_batch.h -- rows of tensors from records: fields of one kind and shape, copied by a task of the engine.
*/
#ifndef FL_RECORD_BATCH_H
#define FL_RECORD_BATCH_H

#include "memory/tensor.h"
#include "record_set.h"

/* The destination of one column of a batch: rows of a contiguous tensor on the host. */
typedef struct fl_record_output {
    int column;
    bool numbers; /* float32, from integers and doubles */
    int64_t row_bytes;
    char *data;
} fl_record_output;

/* The tensor of a column as a batch of `rows`: tensors as they are, integers int64, numbers float32, booleans bool.
** Error where it cannot be one: strings, tensors of different shapes. who: begins the message. */
fl_status fl_record_output_new(fl_tensor **out, fl_record_output *output, const char *who, const fl_record_set *set,
                               int column, int64_t rows);

/* Reads the item at positions[row], of `rows`, copies what it has of the columns into row `row`, and asks for items
** that come. fields: all of them, as fl_record_set_read gives them; what is used of these beside is checked by
** fl_record_set_check. */
fl_status fl_record_output_row(const fl_record_output *outputs, int count, int64_t row, fl_record_field *fields,
                               const fl_record_set *set, const int64_t *positions, int64_t rows);

/* Fills the outputs, of these tensors, with the items at `positions` (copied, within the set's count), later: an error
** is the tensors'. */
fl_status fl_record_batch_fill(fl_tensor *const *tensors, const fl_record_output *outputs, int count,
                               fl_record_set *set, const int64_t *positions, int64_t rows);

#endif

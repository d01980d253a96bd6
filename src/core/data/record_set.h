/*
** record_set.h -- the records of one or several files as one dataset: a part of them, without those that are damaged.
**
** It does not change once it is open, so threads read it at the same time. It is counted, on any thread: a dataset
** holds it, and so does every batch that is still being made of it.
*/
#ifndef FL_RECORD_SET_H
#define FL_RECORD_SET_H

#include "file/record.h"
#include "source.h"

typedef struct fl_record_options {
    int64_t part_index,
        num_parts; /* 0 <= part_index < num_parts: parts are stretches that differ by one item at most */
    bool skip;     /* leave out damaged records: all are checked now; else each is an error when read */
    bool checksum; /* check it at every read */
    int workers;   /* threads that check, and that make a batch; 0: one per core */
} fl_record_options;

typedef struct fl_record_set {
    int refs;           /* atomic */
    fl_records **files; /* owned */
    int file_count;
    int64_t *starts;         /* owned, [file_count + 1]: number of records before each file */
    fl_record_schema schema; /* of all files */
    fl_record_options options;
    int64_t first, count; /* of the items: the part begins with record `first` of all files */
    int64_t *good;        /* owned: the record of each item; NULL: item i is record first + i */
    int64_t skipped;
} fl_record_set;

/* Files whose items have different fields are an error. */
fl_status fl_record_set_open(fl_record_set **out, const char *const *paths, int count, fl_record_options options);
fl_record_set *fl_record_set_ref(fl_record_set *set);
void fl_record_set_unref(fl_record_set *set); /* NULL is fine */

/* The file of item `position`, and its number there. */
const fl_records *fl_record_set_find(int64_t *number, const fl_record_set *set, int64_t position);

/* The fields of an item, of schema.count; values lie in the mapped file until the set is closed. */
fl_status fl_record_set_read(fl_record_field *fields, const fl_record_set *set, int64_t position);

/* The same, and copies values as fl_records_copy does. soon: the position of an item that
** will be read; -1: not known. */
fl_status fl_record_set_copy(fl_record_field *fields, void *const *to, const fl_record_set *set, int64_t position,
                             int64_t soon);

/* As fl_records_prefetch. */
void fl_record_set_prefetch(const fl_record_set *set, int64_t position);

/* Values of the item just read may be used if this is FL_OK when all were copied (fl_records_check). */
fl_status fl_record_set_check(const fl_record_set *set, int64_t position);

/* The column of this name; -1: there is none. */
int fl_record_set_column(const fl_record_set *set, const char *name);

/* The source of one field's bytes, a string in all items, with the integer field `label` (NULL: none) as labels and the
** string field "name", where there is one, in the items' names. Messages begin with `who`, a constant. */
fl_status fl_record_source_new(fl_item_source **out, const char *who, fl_record_set *set, const char *bytes,
                               const char *label);

#endif

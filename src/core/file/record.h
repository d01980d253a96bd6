/*
** record.h -- items of a dataset packed into one file: records with checksums, in chunks, and an index at the end.
**
**     head      64 bytes: magic, version, size and checksum of the metadata
**     metadata  text of the writer's choice (class names); padded to 64
**     chunks    each a multiple of 64 bytes: a head of 64 bytes (magic, bytes, number of its first record, how many)
**               and its records, of about FL_RECORD_CHUNK bytes together
**     tail      the schema, and for every record its place in the file, 8 bytes each; padded to 64
**     foot      64 bytes: magic, version, place, size and checksum of the tail
**
** A record is a head of 32 bytes (magic, checksum of the rest, bytes, its number in the file, fields), a description of
** each field (kind, dtype, axes, sizes, name) and their values, each padded to 8 bytes. Heads have checksums of their
** own. All numbers are little-endian, all checksums CRC-32C.
**
** The writer makes a temporary file and renames it at its end (replace.h). A file without a foot, the copy of a
** temporary one or one that was cut, can be read up to its last whole chunk.
**
** The reader maps the file and trusts nothing: a place that an index gives, a length, a name, a dtype, a shape is
** checked before anything is read by it, the checksum before a value is used.
*/
#ifndef FL_FILE_RECORD_H
#define FL_FILE_RECORD_H

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"

enum { FL_RECORD_FIELDS = 256, FL_RECORD_NAME = 255 /* bytes */, FL_RECORD_CHUNK = 1 << 20 };
#define FL_RECORD_METADATA (INT64_C(100) * 1000 * 1000) /* bytes at most, as of a header of safetensors */

typedef enum fl_record_kind {
    FL_RECORD_TENSOR = 1,
    FL_RECORD_INTEGER, /* int64_t */
    FL_RECORD_NUMBER,  /* double; in a schema: integers too */
    FL_RECORD_STRING,  /* bytes */
    FL_RECORD_BOOLEAN, /* a byte, 0 or 1 */
    FL_RECORD_KIND_END
} fl_record_kind;

/* "tensor", "integer", "number", "string", "boolean" */
const char *fl_record_kind_name(fl_record_kind kind);

/* A field of an item. Nothing is owned. */
typedef struct fl_record_field {
    const char *name; /* not terminated; of an item that is a list: empty */
    int name_bytes;
    fl_record_kind kind;
    fl_dtype dtype; /* of a tensor */
    fl_shape shape;
    const void *value;
    int64_t bytes;
} fl_record_field;

/* The schema of the items of a file: their fields, in this order. */
typedef struct fl_record_column {
    char name[FL_RECORD_NAME + 1];
    int name_bytes;
    fl_record_kind kind;
    fl_dtype dtype;
    bool fixed; /* tensors of this shape; else shapes differ and `shape` means nothing */
    fl_shape shape;
} fl_record_column;

typedef struct fl_record_schema {
    int count;                 /* 0: no item was seen */
    bool list;                 /* items are lists, their fields have no names */
    fl_record_column *columns; /* owned */
} fl_record_schema;

/* Makes the schema hold an item too: of the first its fields, of others that a shape is not fixed or an integer a
** number. Fields that do not fit are an error, "field 'x' is a string, not a float32 tensor as before", for the caller
** to complete. */
fl_status fl_record_schema_add(fl_record_schema *schema, const fl_record_field *fields, int count, bool list);

/* The same for all items of another file. */
fl_status fl_record_schema_merge(fl_record_schema *schema, const fl_record_schema *other);
void fl_record_schema_free(fl_record_schema *schema);

/* "a float32 tensor", "an integer" */
enum { FL_RECORD_TYPE = 64 };
const char *fl_record_type_text(char *buffer, fl_record_kind kind, fl_dtype dtype);

/* "field 'x'", of a list "field 2" (from 1): as messages name column `index`. Cleaned. */
enum { FL_RECORD_SHOWN = FL_SHOWN_TEXT + 16 };
const char *fl_record_column_text(char *buffer, const fl_record_schema *schema, int index);

/* ---- writing ---- */

typedef struct fl_record_writer fl_record_writer;

/* Makes a temporary file beside the target. */
fl_status fl_record_writer_new(fl_record_writer **out, const char *path, const char *metadata, size_t metadata_bytes);

/* Adds an item. The first decides which fields, in which order, all items have. */
fl_status fl_record_append(fl_record_writer *writer, const fl_record_field *fields, int count, bool list);

int64_t fl_record_writer_count(const fl_record_writer *writer);
int64_t fl_record_writer_bytes(const fl_record_writer *writer); /* written or about to be */

/* Writes what is left and puts the file in its place. Ends the writer only by fl_record_writer_free. */
fl_status fl_record_writer_finish(fl_record_writer *writer);

/* Drops the temporary file unless the writer has finished. NULL is fine. */
void fl_record_writer_free(fl_record_writer *writer);

/* ---- reading ---- */

typedef struct fl_records fl_records;

/* Opens a file and checks all of it but the records. recover: a file whose index is missing or damaged is read chunk
** by chunk, up to the last whole one, otherwise it is an error; records that are not found then fail when they are
** read. */
fl_status fl_records_open(fl_records **out, const char *path, bool recover);
void fl_records_close(fl_records *records); /* NULL is fine */

int64_t fl_records_count(const fl_records *records);
int64_t fl_records_bytes(const fl_records *records); /* of the file */
const char *fl_records_path(const fl_records *records);
const char *fl_records_metadata(size_t *bytes, const fl_records *records);
const fl_record_schema *fl_records_schema(const fl_records *records);

/* The fields of record `number`, in the schema's order, as many; values lie in the mapped file. Any thread.
** checksum: check it. Error FL_ERR_IO: "records: PATH: record 7 at byte 123456: ...". */
fl_status fl_records_read(fl_record_field *fields, const fl_records *records, int64_t number, bool checksum);

/* The same, and copies their values on the way: that of field i to to[i], where that is not NULL, of which the schema
** says how large it is. soon: the place of a record that will be read, the next but one for best, which is asked for
** meanwhile, or NULL. After an error anything may be there. */
fl_status fl_records_copy(fl_record_field *fields, void *const *to, const fl_records *records, int64_t number,
                          bool checksum, const void *soon);

/* The address of a record, not checked; NULL: not known. For fl_records_copy. */
const void *fl_records_place(const fl_records *records, int64_t number);

/* Prefetches the index entry of a record. */
void fl_records_prefetch(const fl_records *records, int64_t number);

/* For who has used values of a record without its checksum, or after it was checked: an error when the file has become
** shorter meanwhile, so that they may have been zeros. */
fl_status fl_records_check(const fl_records *records, int64_t number);

#endif

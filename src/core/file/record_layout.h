/*
** record_layout.h -- how the parts of a record file lie in it (record.h has the overview): shared by reader and writer.
**
** Every head begins with its magic and the CRC-32C of what it covers, taken with 0 in the place of the checksum.
*/
#ifndef FL_RECORD_LAYOUT_H
#define FL_RECORD_LAYOUT_H

#include "record.h"

enum { RECORD_VERSION = 1, RECORD_BLOCK = 64 /* alignment of parts in bytes */, RECORD_VALUE = 8 };

#define RECORD_FILE_MAGIC "\211flrec\r\n" /* a copy that changes line ends or strips bit 7 shows */
#define RECORD_FOOT_MAGIC "\211flend\r\n"
#define RECORD_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */
#define RECORD_MAGIC 0x44434552u       /* "RECD" */

typedef struct record_file_head {
    char magic[8];
    uint32_t version, crc; /* of these 64 bytes */
    uint64_t metadata_bytes;
    uint32_t metadata_crc, zero;
    uint64_t zeros[4];
} record_file_head;

typedef struct record_chunk_head {
    uint32_t magic, crc;   /* of these 64 bytes */
    uint64_t bytes, first; /* with this head and the padding; number of its first record */
    uint32_t count, zero;
    uint64_t zeros[4];
} record_chunk_head;

typedef struct record_head {
    uint32_t magic, crc;    /* of all of the record from `bytes` on */
    uint64_t bytes, number; /* with this head, a multiple of 8; in the file, from 0 */
    uint32_t fields, list;  /* list: 1, fields have no names */
} record_head;

typedef struct record_foot {
    char magic[8];
    uint32_t version, crc; /* of these 64 bytes */
    uint64_t tail, schema_bytes, count;
    uint32_t tail_crc, zero; /* of schema and index */
    uint64_t zeros[2];
} record_foot;

/* A field, followed by its sizes (int64_t each) and its name, padded. In a schema `bytes` is 1 where the shape is
** fixed. */
typedef struct record_description {
    uint8_t kind, dtype, ndim, name_bytes;
    uint32_t zero;
    uint64_t bytes;
} record_description;

_Static_assert(sizeof(record_file_head) == RECORD_BLOCK && sizeof(record_chunk_head) == RECORD_BLOCK
                   && sizeof(record_foot) == RECORD_BLOCK && sizeof(record_head) == 32
                   && sizeof(record_description) == 16,
               "the layout of files has no gaps");

static inline int64_t record_padded(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

static inline int64_t record_description_bytes(int ndim, int name_bytes)
{
    return (int64_t)sizeof(record_description) + 8 * ndim + record_padded(name_bytes, RECORD_VALUE);
}

/* Writes the description of a field, of record_description_bytes. */
void record_describe(unsigned char *at, const fl_record_field *field);

/* Reads one from [*at, end), which *at leaves behind; name points into it. NULL, or what is wrong, a constant. Values
** are not looked at, but that `bytes` is not negative. */
const char *record_described(fl_record_field *out, const unsigned char **at, const unsigned char *end);

/* The error in the bytes of a value, for the kind, dtype and shape of its field; NULL: nothing. */
const char *record_value_fault(const fl_record_field *field);

/* True if an item of these fields is one that the schema speaks of. */
bool record_fits(const fl_record_schema *schema, const fl_record_field *fields, int count, bool list);

#endif

/*
** record_write.c -- writer of record files (see record.h): a chunk is put together in memory and written when it is
** full; memory also holds the place of every record, for the index.
*/
#include "record_layout.h"
#include "replace.h"
#include "base/crc32c.h"

#include <stdlib.h>
#include <string.h>

struct fl_record_writer {
    fl_replacement file;
    fl_record_schema schema;
    unsigned char *chunk; /* owned: a head and the records so far */
    int64_t chunk_bytes, chunk_room;
    int64_t chunk_first; /* number of its first record */
    int64_t written;     /* bytes of the file */
    int64_t *places;     /* owned: of every record */
    int64_t count, places_room;
};

static fl_status no_memory(void) { return fl_fail(FL_ERR_MEMORY, "pack: out of memory"); }

/* ---- the file ---- */

static fl_status put(fl_record_writer *writer, const void *data, int64_t bytes)
{
    FL_TRY(fl_replacement_write(&writer->file, data, bytes, writer->written));
    writer->written += bytes;
    return FL_OK;
}

static fl_status put_padding(fl_record_writer *writer)
{
    static const unsigned char zeros[RECORD_BLOCK];
    return put(writer, zeros, record_padded(writer->written, RECORD_BLOCK) - writer->written);
}

static fl_status put_head(fl_record_writer *writer, const char *metadata, size_t bytes)
{
    record_file_head head = {.magic = RECORD_FILE_MAGIC, .version = RECORD_VERSION, .metadata_bytes = bytes};
    head.metadata_crc = fl_crc32c(0, metadata, bytes);
    head.crc = fl_crc32c(0, &head, sizeof head);
    FL_TRY(put(writer, &head, sizeof head));
    FL_TRY(put(writer, metadata, (int64_t)bytes));
    return put_padding(writer);
}

fl_status fl_record_writer_new(fl_record_writer **out, const char *path, const char *metadata, size_t metadata_bytes)
{
    if (metadata_bytes > FL_RECORD_METADATA)
        return fl_fail(FL_ERR_VALUE, "pack: metadata of %zu bytes is longer than 100 MB", metadata_bytes);
    fl_record_writer *w = calloc(1, sizeof *w);
    if (!w) return no_memory();
    fl_status status = fl_replacement_init(&w->file, "pack", path);
    if (status == FL_OK) status = fl_replacement_create(&w->file);
    if (status == FL_OK) status = put_head(w, metadata, metadata_bytes);
    if (status != FL_OK) fl_record_writer_free(w);
    else *out = w;
    return status;
}

/* ---- records ---- */

/* Room for so many bytes more in the chunk. */
static fl_status chunk_grow(fl_record_writer *writer, int64_t bytes)
{
    int64_t least = record_padded(writer->chunk_bytes + bytes, RECORD_BLOCK);
    if (least <= writer->chunk_room) return FL_OK;
    int64_t room = least + least / 2 > FL_RECORD_CHUNK ? least + least / 4 : FL_RECORD_CHUNK + FL_RECORD_CHUNK / 4;
    unsigned char *grown = realloc(writer->chunk, (size_t)room);
    if (!grown) return no_memory();
    writer->chunk = grown;
    writer->chunk_room = room;
    return FL_OK;
}

static fl_status places_grow(fl_record_writer *writer)
{
    if (writer->count < writer->places_room) return FL_OK;
    int64_t room = 2 * writer->places_room + 1024;
    int64_t *grown = realloc(writer->places, sizeof *grown * (size_t)room);
    if (!grown) return no_memory();
    writer->places = grown;
    writer->places_room = room;
    return FL_OK;
}

static fl_status chunk_put(fl_record_writer *writer)
{
    if (writer->count == writer->chunk_first) return FL_OK;
    int64_t bytes = record_padded(writer->chunk_bytes, RECORD_BLOCK);
    record_chunk_head head = {.magic = RECORD_CHUNK_MAGIC,
                              .bytes = (uint64_t)bytes,
                              .first = (uint64_t)writer->chunk_first,
                              .count = (uint32_t)(writer->count - writer->chunk_first)};
    head.crc = fl_crc32c(0, &head, sizeof head);
    memcpy(writer->chunk, &head, sizeof head);
    memset(writer->chunk + writer->chunk_bytes, 0, (size_t)(bytes - writer->chunk_bytes));
    FL_TRY(put(writer, writer->chunk, bytes));
    writer->chunk_bytes = sizeof head;
    writer->chunk_first = writer->count;
    return FL_OK;
}

/* Bytes of the record of an item: head, descriptions, values. -1: more than memory holds. */
static int64_t record_bytes(const fl_record_field *fields, int count)
{
    int64_t bytes = sizeof(record_head);
    for (int i = 0; i < count; i++) {
        if (fields[i].bytes > INT64_MAX / 4 - bytes) return -1;
        bytes += record_description_bytes(fields[i].kind == FL_RECORD_TENSOR ? fields[i].shape.ndim : 0,
                                          fields[i].name_bytes);
        bytes += record_padded(fields[i].bytes, RECORD_VALUE);
    }
    return bytes;
}

static void record_store(unsigned char *at, const fl_record_field *fields, int count, bool list, int64_t number,
                         int64_t bytes)
{
    record_head head = {RECORD_MAGIC, 0, (uint64_t)bytes, (uint64_t)number, (uint32_t)count, list};
    unsigned char *to = at + sizeof head;
    for (int i = 0; i < count; i++) {
        record_describe(to, &fields[i]);
        to += record_description_bytes(fields[i].kind == FL_RECORD_TENSOR ? fields[i].shape.ndim : 0,
                                       fields[i].name_bytes);
    }
    for (int i = 0; i < count; i++) {
        int64_t padded = record_padded(fields[i].bytes, RECORD_VALUE);
        if (fields[i].bytes) memcpy(to, fields[i].value, (size_t)fields[i].bytes);
        memset(to + fields[i].bytes, 0, (size_t)(padded - fields[i].bytes));
        to += padded;
    }
    memcpy(at, &head, sizeof head);
    head.crc = fl_crc32c(0, at + 8, (size_t)bytes - 8);
    memcpy(at, &head, sizeof head);
}

fl_status fl_record_append(fl_record_writer *writer, const fl_record_field *fields, int count, bool list)
{
    fl_status status = fl_record_schema_add(&writer->schema, fields, count, list);
    if (status != FL_OK) return fl_fail_prefix(status, "pack: item %lld: ", (long long)writer->count);
    int64_t bytes = record_bytes(fields, count);
    if (bytes < 0) return no_memory();
    if (writer->chunk_bytes == 0) writer->chunk_bytes = sizeof(record_chunk_head);
    if (writer->chunk_bytes + bytes > FL_RECORD_CHUNK) FL_TRY(chunk_put(writer));
    FL_TRY(chunk_grow(writer, bytes));
    FL_TRY(places_grow(writer));
    record_store(writer->chunk + writer->chunk_bytes, fields, count, list, writer->count, bytes);
    writer->places[writer->count++] = writer->written + writer->chunk_bytes;
    writer->chunk_bytes += bytes;
    return FL_OK;
}

int64_t fl_record_writer_count(const fl_record_writer *writer) { return writer->count; }
int64_t fl_record_writer_bytes(const fl_record_writer *writer) { return writer->written + writer->chunk_bytes; }

/* ---- the end ---- */

/* The schema as a list of descriptions, in the chunk's memory; its bytes in *bytes. */
static fl_status schema_store(fl_record_writer *writer, int64_t *bytes)
{
    const fl_record_schema *s = &writer->schema;
    uint32_t begin[2] = {(uint32_t)s->count, s->list};
    writer->chunk_bytes = 0;
    FL_TRY(chunk_grow(writer, 8 + s->count * record_description_bytes(FL_MAX_NDIM, FL_RECORD_NAME)));
    unsigned char *at = writer->chunk;
    memcpy(at, begin, 8);
    at += 8;
    for (int i = 0; i < s->count; i++) {
        const fl_record_column *c = &s->columns[i];
        fl_record_field field = {c->name, c->name_bytes, c->kind, c->dtype, c->shape, NULL, c->fixed};
        if (!c->fixed) field.shape.ndim = 0;
        record_describe(at, &field);
        at += record_description_bytes(field.shape.ndim, c->name_bytes);
    }
    *bytes = at - writer->chunk;
    return FL_OK;
}

fl_status fl_record_writer_finish(fl_record_writer *writer)
{
    record_foot foot = {.magic = RECORD_FOOT_MAGIC, .version = RECORD_VERSION, .count = (uint64_t)writer->count};
    int64_t schema_bytes, index_bytes = (int64_t)sizeof *writer->places * writer->count;
    FL_TRY(chunk_put(writer));
    FL_TRY(schema_store(writer, &schema_bytes));
    foot.tail = (uint64_t)writer->written;
    foot.schema_bytes = (uint64_t)schema_bytes;
    foot.tail_crc = fl_crc32c(fl_crc32c(0, writer->chunk, (size_t)schema_bytes), writer->places, (size_t)index_bytes);
    foot.crc = fl_crc32c(0, &foot, sizeof foot);
    FL_TRY(put(writer, writer->chunk, schema_bytes));
    FL_TRY(put(writer, writer->places, index_bytes));
    FL_TRY(put_padding(writer));
    FL_TRY(put(writer, &foot, sizeof foot));
    writer->chunk_bytes = 0;
    return fl_replacement_commit(&writer->file);
}

void fl_record_writer_free(fl_record_writer *writer)
{
    if (!writer) return;
    fl_replacement_drop(&writer->file);
    fl_record_schema_free(&writer->schema);
    free(writer->chunk);
    free(writer->places);
    free(writer);
}

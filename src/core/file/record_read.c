/*
** record_read.c -- reader of record files (see record.h).
**
** Another process may change the mapping at any moment: heads are copied before they are checked, and only the copy is
** used later.
*/
#include "record_layout.h"
#include "mapping.h"
#include "base/ahead.h"
#include "base/crc32c.h"

#include <stdlib.h>
#include <string.h>

/* The layout of a record whose fields are all as the schema has them: descriptions that are these bytes need not be
** read. */
struct layout {
    unsigned char *descriptions; /* owned; NULL: there is none, a field is a string or its shape not fixed */
    size_t described;            /* bytes of them */
    fl_record_field *fields;     /* owned, of schema.count; values: NULL */
    int64_t bytes;               /* of the record */
    bool has_bools;              /* so values are looked at */
};

struct fl_records {
    char *path; /* owned */
    fl_mapping map;
    fl_record_schema schema;
    int64_t count;
    int64_t metadata_bytes;
    int64_t data_start, data_end;
    const unsigned char *index; /* places, 8 bytes each: in the map, or own_index */
    uint64_t *own_index;        /* owned; of a file whose index is missing; 0: not found */
    struct layout layout;
};

static fl_status bad_file(const fl_records *records, const char *what)
{
    return fl_fail(FL_ERR_IO, "records: %s: %s", records->path, what);
}

/* A checksum of a head that has `crc` in it, of which `size` bytes were copied. */
static bool head_sound(void *head, uint32_t *crc, size_t size)
{
    uint32_t wanted = *crc;
    *crc = 0;
    uint32_t is = fl_crc32c(0, head, size);
    *crc = wanted;
    return is == wanted;
}

/* ---- records ---- */

static int64_t place_of(const fl_records *records, int64_t number)
{
    uint64_t place;
    memcpy(&place, records->index + 8 * number, sizeof place);
    return place > (uint64_t)records->data_end ? -1 : (int64_t)place;
}

/* The limit of a record: the place of the next one that was found, or the end of the data. */
static int64_t limit_of(const fl_records *records, int64_t number)
{
    for (int64_t next = number + 1; next < records->count; next++) {
        int64_t place = place_of(records, next);
        if (place != 0) return place;
    }
    return records->data_end;
}

/* Copies the head of the record at `place`, which must end by `limit`. NULL, or what is wrong. */
static const char *head_read(record_head *out, const fl_records *records, int64_t place, int64_t limit)
{
    if (place < records->data_start || place % RECORD_VALUE != 0 || limit > records->data_end
        || limit - place < (int64_t)sizeof *out)
        return "the index gives an impossible place for it";
    memcpy(out, records->map.data + place, sizeof *out);
    if (out->magic != RECORD_MAGIC) return "no record begins there";
    if (out->bytes < sizeof *out || out->bytes % RECORD_VALUE != 0 || out->bytes > (uint64_t)(limit - place))
        return "its length is impossible";
    return NULL;
}

/* The fields of a record whose head was read, from the mapping. NULL, or what is wrong. */
static const char *fields_read(fl_record_field *fields, const record_head *head, const unsigned char *record)
{
    const unsigned char *at = record + sizeof *head, *end = record + head->bytes;
    const char *fault = NULL;
    for (uint32_t i = 0; i < head->fields && !fault; i++) fault = record_described(&fields[i], &at, end);
    for (uint32_t i = 0; i < head->fields && !fault; i++) {
        if (fields[i].bytes > end - at) return "its values are cut off";
        fields[i].value = at;
        fault = record_value_fault(&fields[i]);
        at += record_padded(fields[i].bytes, RECORD_VALUE);
    }
    if (!fault && at != end) return "its length is not that of its values";
    return fault;
}

/* The fields of a record that lies as all do. NULL, or what is wrong. */
static const char *fields_of_layout(fl_record_field *fields, const fl_records *records, const unsigned char *record)
{
    const struct layout *layout = &records->layout;
    const unsigned char *at = record + sizeof(record_head) + layout->described;
    const char *fault = NULL;
    for (int i = 0; i < records->schema.count; i++) {
        fields[i] = layout->fields[i];
        fields[i].value = at;
        at += record_padded(fields[i].bytes, RECORD_VALUE);
        if (layout->has_bools && !fault) fault = record_value_fault(&fields[i]);
    }
    return fault;
}

static bool has_layout(const fl_records *records, const record_head *head, const unsigned char *record)
{
    const struct layout *layout = &records->layout;
    return head->bytes == (uint64_t)layout->bytes
        && memcmp(record + sizeof *head, layout->descriptions, layout->described) == 0;
}

static bool sum_sound(const record_head *head, const unsigned char *record)
{
    return fl_crc32c(0, record + 8, (size_t)head->bytes - 8) == head->crc;
}

/* The same of a record whose fields were read; copies what `to` asks for. With each part the same part of the record
** that is read soon is asked for. */
static bool copy_sound(void *const *to, const fl_record_field *fields, const record_head *head,
                       const unsigned char *record, const void *soon)
{
    const unsigned char *at = fields[0].value;
    uint32_t sum = fl_crc32c_copy(0, NULL, record + 8, (size_t)(at - record) - 8, soon);
    for (uint32_t i = 0; i < head->fields; i++) {
        int64_t padding = record_padded(fields[i].bytes, RECORD_VALUE) - fields[i].bytes;
        sum = fl_crc32c_copy(sum, to[i], fields[i].value, (size_t)fields[i].bytes,
                             fl_ahead_same(soon, record, fields[i].value));
        if (padding) sum = fl_crc32c(sum, (const unsigned char *)fields[i].value + fields[i].bytes, (size_t)padding);
    }
    return sum == head->crc;
}

enum { TOGETHER = 512 /* bytes that are copied while as many are asked for */ };

/* Copies a value, and asks for what lies at `soon`, with the last bytes for the first ones. */
static void copy_value(char *to, const char *value, size_t bytes, const char *soon)
{
    size_t at = bytes > FL_AHEAD_MOST ? bytes - FL_AHEAD_MOST : 0;
    memcpy(to, value, soon ? at : bytes);
    for (size_t size; soon && at < bytes; at += size, soon += size) {
        size = bytes - at < TOGETHER ? bytes - at : TOGETHER;
        fl_ahead_ask(soon, size);
        memcpy(to + at, value + at, size);
    }
}

/* The same without a checksum. */
static void copy_unchecked(void *const *to, const fl_record_field *fields, int count, const unsigned char *record,
                           const void *soon)
{
    if (soon) fl_ahead_ask(soon, (size_t)((const unsigned char *)fields[0].value - record));
    for (int i = 0; i < count; i++)
        if (to[i])
            copy_value(to[i], fields[i].value, (size_t)fields[i].bytes, fl_ahead_same(soon, record, fields[i].value));
}

static const char *broken_text = "the file has become shorter, or cannot be read there any more";

/* Without the byte where it begins: zeros may stand in the index as well. */
static fl_status broken_fail(const fl_records *records, int64_t number)
{
    return fl_fail(FL_ERR_IO, "records: %s: record %lld: %s", records->path, (long long)number, broken_text);
}

static const char *other_fields = "its fields are not those of the file";

/* The error in the structure of a record; NULL: none. */
static const char *structure_fault(fl_record_field *fields, const fl_records *records, const record_head *head,
                                   const unsigned char *record, int64_t number)
{
    const fl_record_schema *schema = &records->schema;
    if (head->number != (uint64_t)number) return "another record is in its place";
    if (head->fields == 0 || head->fields != (uint32_t)schema->count || head->list != schema->list) return other_fields;
    if (has_layout(records, head, record)) return fields_of_layout(fields, records, record);
    const char *fault = fields_read(fields, head, record);
    return fault || record_fits(schema, fields, schema->count, schema->list) ? fault : other_fields;
}

static const char *record_fault(fl_record_field *fields, void *const *to, const fl_records *records, int64_t number,
                                int64_t place, bool checksum, const void *soon)
{
    record_head head;
    if (place == 0) return "it is not found in its chunk";
    const char *fault = head_read(&head, records, place, limit_of(records, number));
    if (fault) return fault;
    const unsigned char *record = records->map.data + place;
    fault = structure_fault(fields, records, &head, record, number);
    if (checksum && (fault || !to ? !sum_sound(&head, record) : !copy_sound(to, fields, &head, record, soon)))
        return "its checksum is wrong, the file is damaged";
    if (to && !fault && !checksum) copy_unchecked(to, fields, records->schema.count, record, soon);
    return fault;
}

fl_status fl_records_copy(fl_record_field *fields, void *const *to, const fl_records *records, int64_t number,
                          bool checksum, const void *soon)
{
    int64_t place = place_of(records, number);
    const char *fault = record_fault(fields, to, records, number, place, checksum, soon);
    if (fl_mapping_broken(&records->map)) return broken_fail(records, number);
    if (!fault) return FL_OK;
    return fl_fail(FL_ERR_IO, "records: %s: record %lld at byte %lld: %s", records->path, (long long)number,
                   (long long)(place > 0 ? place : 0), fault);
}

fl_status fl_records_read(fl_record_field *fields, const fl_records *records, int64_t number, bool checksum)
{
    return fl_records_copy(fields, NULL, records, number, checksum, NULL);
}

void fl_records_prefetch(const fl_records *records, int64_t number) { fl_ahead_ask(records->index + 8 * number, 1); }

const void *fl_records_place(const fl_records *records, int64_t number)
{
    int64_t place = place_of(records, number);
    return place > 0 ? records->map.data + place : NULL;
}

fl_status fl_records_check(const fl_records *records, int64_t number)
{
    return fl_mapping_broken(&records->map) ? broken_fail(records, number) : FL_OK;
}

/* ---- head, metadata ---- */

static fl_status head_check(fl_records *records)
{
    record_file_head head;
    static const unsigned char mxnet[4] = {0x0a, 0x23, 0xd7, 0xce};
    int64_t size = records->map.size;
    if (size >= 4 && memcmp(records->map.data, mxnet, 4) == 0)
        return bad_file(records, "this is a RecordIO file of MXNet; flow.data.pack makes record files");
    if (size < (int64_t)sizeof head || memcmp(records->map.data, RECORD_FILE_MAGIC, 8) != 0)
        return bad_file(records, "not a record file, as flow.data.pack makes them");
    memcpy(&head, records->map.data, sizeof head);
    if (head.version != RECORD_VERSION)
        return fl_fail(FL_ERR_IO, "records: %s: version %u of the format is not known, only %d", records->path,
                       head.version, RECORD_VERSION);
    if (!head_sound(&head, &head.crc, sizeof head)) return bad_file(records, "the head of the file is damaged");
    if (head.metadata_bytes > FL_RECORD_METADATA || (int64_t)head.metadata_bytes > size - (int64_t)sizeof head)
        return bad_file(records, "the metadata is cut off");
    records->metadata_bytes = (int64_t)head.metadata_bytes;
    if (fl_crc32c(0, records->map.data + sizeof head, head.metadata_bytes) != head.metadata_crc)
        return bad_file(records, "the metadata is damaged");
    records->data_start = record_padded((int64_t)sizeof head + records->metadata_bytes, RECORD_BLOCK);
    return FL_OK;
}

/* ---- tail ---- */

/* Copies the foot and checks that it fits the file's size. */
static fl_status foot_read(record_foot *out, const fl_records *records)
{
    int64_t size = records->map.size, room = size - records->data_start - (int64_t)sizeof *out;
    if (room < 0 || memcmp(records->map.data + size - sizeof *out, RECORD_FOOT_MAGIC, 8) != 0)
        return bad_file(records, "the file has no index at its end: its writer has not finished, or it was cut");
    memcpy(out, records->map.data + size - sizeof *out, sizeof *out);
    if (out->version != RECORD_VERSION || !head_sound(out, &out->crc, sizeof *out))
        return bad_file(records, "the end of the file is damaged");
    int64_t tail_bytes = size - (int64_t)sizeof *out - (int64_t)out->tail;
    if (out->tail > (uint64_t)(size - (int64_t)sizeof *out) || (int64_t)out->tail < records->data_start
        || out->schema_bytes > (uint64_t)tail_bytes || out->count > (uint64_t)tail_bytes / 8
        || record_padded((int64_t)(out->schema_bytes + 8 * out->count), RECORD_BLOCK) != tail_bytes)
        return bad_file(records, "the end of the file gives an impossible place for the index");
    return FL_OK;
}

/* Fills the schema from its descriptions. */
static fl_status schema_read(fl_records *records, const unsigned char *at, int64_t bytes)
{
    uint32_t begin[2];
    fl_record_field fields[FL_RECORD_FIELDS];
    const unsigned char *end = at + bytes;
    if (bytes < (int64_t)sizeof begin) return bad_file(records, "the schema is cut off");
    memcpy(begin, at, sizeof begin);
    at += sizeof begin;
    if (begin[0] > FL_RECORD_FIELDS || begin[1] > 1) return bad_file(records, "the schema is damaged");
    for (uint32_t i = 0; i < begin[0]; i++) {
        const char *fault = record_described(&fields[i], &at, end);
        if (fault || fields[i].bytes > 1)
            return fl_fail(FL_ERR_IO, "records: %s: the schema: %s", records->path, fault ? fault : "it is damaged");
    }
    if (at != end) return bad_file(records, "the schema has bytes that belong to no field");
    if (begin[0] == 0) return FL_OK;
    fl_status status = fl_record_schema_add(&records->schema, fields, (int)begin[0], begin[1] == 1);
    if (status != FL_OK) return fl_fail_prefix(FL_ERR_IO, "records: %s: the schema: ", records->path);
    for (uint32_t i = 0; i < begin[0]; i++) records->schema.columns[i].fixed = fields[i].bytes == 1;
    return FL_OK;
}

/* ---- layout ---- */

static fl_record_field field_of(const fl_record_column *column)
{
    fl_record_field field = {.name = column->name, .name_bytes = column->name_bytes, .kind = column->kind};
    if (field.kind == FL_RECORD_TENSOR) {
        field.dtype = column->dtype;
        field.shape = column->shape;
        field.bytes = fl_shape_numel(&field.shape) * (int64_t)fl_dtype_size(field.dtype);
    } else field.bytes = field.kind == FL_RECORD_BOOLEAN ? 1 : 8;
    return field;
}

static bool has_bools(const fl_record_field *field)
{
    return field->kind == FL_RECORD_BOOLEAN || (field->kind == FL_RECORD_TENSOR && field->dtype == FL_BOOL);
}

/* False where a record of the schema would be longer than the file: it has none. */
static bool is_plausible(const fl_records *records)
{
    int64_t left = records->map.size;
    for (int i = 0; i < records->schema.count; i++) {
        const fl_record_column *c = &records->schema.columns[i];
        if (c->kind == FL_RECORD_STRING || !c->fixed) return false;
        if (c->kind == FL_RECORD_TENSOR && fl_shape_numel(&c->shape) > left) return false;
        left -= field_of(c).bytes;
    }
    return records->schema.count > 0;
}

/* Fills records->layout if the schema says all of it. */
static fl_status layout_make(fl_records *records)
{
    const fl_record_schema *schema = &records->schema;
    struct layout *layout = &records->layout;
    size_t most = sizeof(record_description) + 8 * FL_MAX_NDIM + record_padded(FL_RECORD_NAME, RECORD_VALUE);
    if (!is_plausible(records)) return FL_OK;
    layout->descriptions = malloc(most * (size_t)schema->count);
    layout->fields = calloc((size_t)schema->count, sizeof *layout->fields);
    if (!layout->descriptions || !layout->fields) return fl_fail(FL_ERR_MEMORY, "records: out of memory");
    layout->bytes = sizeof(record_head);
    for (int i = 0; i < schema->count; i++) {
        fl_record_field *field = &layout->fields[i];
        *field = field_of(&schema->columns[i]);
        record_describe(layout->descriptions + layout->described, field);
        layout->described += (size_t)record_description_bytes(field->shape.ndim, field->name_bytes);
        layout->bytes += record_padded(field->bytes, RECORD_VALUE);
        layout->has_bools |= has_bools(field);
    }
    layout->bytes += (int64_t)layout->described;
    return FL_OK;
}

/* Places go up, by what a record needs at least, and lie between head and tail. */
static fl_status index_check(const fl_records *records)
{
    int64_t least = records->data_start + (int64_t)sizeof(record_chunk_head);
    for (int64_t i = 0; i < records->count; i++) {
        int64_t place = place_of(records, i);
        if (place < least || place % RECORD_VALUE != 0 || place > records->data_end - (int64_t)sizeof(record_head))
            return fl_fail(FL_ERR_IO, "records: %s: the index gives an impossible place for record %lld", records->path,
                           (long long)i);
        least = place + (int64_t)sizeof(record_head);
    }
    return FL_OK;
}

static fl_status tail_read(fl_records *records)
{
    record_foot foot;
    FL_TRY(foot_read(&foot, records));
    const unsigned char *tail = records->map.data + foot.tail;
    if (fl_crc32c(0, tail, (size_t)(foot.schema_bytes + 8 * foot.count)) != foot.tail_crc)
        return bad_file(records, "the index is damaged");
    FL_TRY(schema_read(records, tail, (int64_t)foot.schema_bytes));
    if (foot.count > 0 && records->schema.count == 0) return bad_file(records, "the schema has no fields");
    records->count = (int64_t)foot.count;
    records->data_end = (int64_t)foot.tail;
    records->index = tail + foot.schema_bytes;
    return index_check(records);
}

/* ---- without an index ---- */

/* Notes the places of a chunk's records; those not found stay 0. Sound ones have a part in the schema. */
static fl_status chunk_walk(fl_records *records, const record_chunk_head *chunk, int64_t place, int64_t limit)
{
    record_head head;
    fl_record_field fields[FL_RECORD_FIELDS];
    for (uint32_t i = 0; i < chunk->count && !head_read(&head, records, place, limit); i++) {
        const unsigned char *record = records->map.data + place;
        uint64_t number = chunk->first + i;
        if (head.number == number) records->own_index[number] = (uint64_t)place;
        place += (int64_t)head.bytes;
        if (!sum_sound(&head, record) || head.fields > FL_RECORD_FIELDS || fields_read(fields, &head, record)) continue;
        fl_status status = fl_record_schema_add(&records->schema, fields, (int)head.fields, head.list == 1);
        if (status == FL_ERR_MEMORY) return status; /* one that does not fit fails when it is read */
    }
    return FL_OK;
}

/* Copies the head of a chunk at `place`; false: there is no whole one. */
static bool chunk_read(record_chunk_head *out, const fl_records *records, int64_t place)
{
    int64_t room = records->map.size - place;
    if (room < (int64_t)sizeof *out) return false;
    memcpy(out, records->map.data + place, sizeof *out);
    return out->magic == RECORD_CHUNK_MAGIC && head_sound(out, &out->crc, sizeof *out) && out->bytes >= sizeof *out
        && out->bytes % RECORD_BLOCK == 0 && out->bytes <= (uint64_t)room && out->first == (uint64_t)records->count
        && out->count <= out->bytes / sizeof(record_head);
}

/* Finds the records of whole chunks, from the first one on. */
static fl_status chunks_walk(fl_records *records)
{
    record_chunk_head chunk;
    int64_t place = records->data_start, room = 0;
    records->count = 0;
    records->data_end = records->map.size;
    fl_record_schema_free(&records->schema);
    for (; chunk_read(&chunk, records, place); place += (int64_t)chunk.bytes) {
        int64_t count = records->count + chunk.count;
        if (count > room) {
            room = 2 * count;
            uint64_t *grown = realloc(records->own_index, sizeof *grown * (size_t)room);
            if (!grown) return fl_fail(FL_ERR_MEMORY, "records: out of memory");
            records->own_index = grown;
        }
        if (chunk.count) memset(records->own_index + records->count, 0, sizeof(uint64_t) * chunk.count);
        FL_TRY(chunk_walk(records, &chunk, place + (int64_t)sizeof chunk, place + (int64_t)chunk.bytes));
        records->count = count;
    }
    records->data_end = place;
    records->index = (const unsigned char *)records->own_index;
    return FL_OK;
}

/* The index is missing or damaged, as the message says. */
static fl_status recover_records(fl_records *records, bool recover)
{
    char why[1024];
    strncpy(why, fl_message(), sizeof why - 1);
    why[sizeof why - 1] = '\0';
    FL_TRY(chunks_walk(records));
    if (recover) return FL_OK;
    return fl_fail(FL_ERR_IO, "%s; corrupt = \"skip\" reads the %lld records of its whole chunks", why,
                   (long long)records->count);
}

/* ---- files ---- */

static fl_status file_read(fl_records *records, bool recover)
{
    FL_TRY(fl_mapping_open(&records->map, "records", records->path));
    FL_TRY(head_check(records));
    fl_status status = tail_read(records);
    if (status == FL_ERR_IO) status = recover_records(records, recover);
    FL_TRY(status);
    FL_TRY(layout_make(records));
    return fl_mapping_broken(&records->map) ? bad_file(records, broken_text) : FL_OK;
}

fl_status fl_records_open(fl_records **out, const char *path, bool recover)
{
    fl_records *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(path))) {
        fl_records_close(r);
        return fl_fail(FL_ERR_MEMORY, "records: out of memory");
    }
    fl_status status = file_read(r, recover);
    if (status != FL_OK) fl_records_close(r);
    else *out = r;
    return status;
}

void fl_records_close(fl_records *records)
{
    if (!records) return;
    fl_mapping_close(&records->map);
    fl_record_schema_free(&records->schema);
    free(records->layout.descriptions);
    free(records->layout.fields);
    free(records->own_index);
    free(records->path);
    free(records);
}

int64_t fl_records_count(const fl_records *records) { return records->count; }
int64_t fl_records_bytes(const fl_records *records) { return records->map.size; }
const char *fl_records_path(const fl_records *records) { return records->path; }
const fl_record_schema *fl_records_schema(const fl_records *records) { return &records->schema; }

const char *fl_records_metadata(size_t *bytes, const fl_records *records)
{
    *bytes = (size_t)records->metadata_bytes;
    return (const char *)records->map.data + sizeof(record_file_head);
}

/*
** safetensors.c -- reader of safetensors files (see safetensors.h; the writer is safetensors_write.c).
*/
#include "open.h"
#include "safetensors.h"
#include "base/hash.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MAX_HEADER = 100 * 1000 * 1000, /* as in the reference implementation */
    MAX_VALUES = 4 * 1000 * 1000    /* what the parser makes of a header must fit in memory, too */
};
#define EXACT_INTEGER 9007199254740992.0 /* 2^53: JSON numbers are read as doubles */

const char *const fl_safetensors_dtypes[FL_DTYPE_COUNT] = {"BOOL", "U8",   "I8",  "I32", "I64",
                                                           "F16",  "BF16", "F32", "F64"};

static fl_status read_all(fl_safetensors *file, void *data, int64_t bytes, int64_t offset)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t got = pread(file->file, at, bytes > INT32_MAX ? INT32_MAX : (size_t)bytes, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fl_fail(FL_ERR_IO, "load: %s: %s", file->path, strerror(errno));
        if (got == 0) return fl_fail(FL_ERR_IO, "load: %s: the file ends early", file->path);
        at += got, offset += got, bytes -= got;
    }
    return FL_OK;
}

/* ---- header ---- */

/* What the JSON parser would let pass: NUL in strings, which cuts C strings short, and more values than memory is
** for. */
static fl_status header_scan(const fl_safetensors *file, const char *text, size_t size)
{
    size_t values = 1;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\0' || (in_string && size - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0))
            return fl_fail(FL_ERR_IO, "load: %s: the header contains a NUL", file->path);
        if (text[i] == '"') in_string = !in_string;
        else if (in_string && text[i] == '\\') i++;
        else if (!in_string) values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    if (values > MAX_VALUES) return fl_fail(FL_ERR_IO, "load: %s: the header has too many values", file->path);
    return FL_OK;
}

static fl_status header_parse(fl_safetensors *file, const char *text, size_t size)
{
    FL_TRY(header_scan(file, text, size));
    const char *end = NULL;
    file->header = cJSON_ParseWithLengthOpts(text, size, &end, false);
    if (!file->header)
        return fl_fail(FL_ERR_IO, "load: %s: the header is not JSON (is this a safetensors file?)", file->path);
    if (!cJSON_IsObject(file->header))
        return fl_fail(FL_ERR_IO, "load: %s: the header is not a JSON object", file->path);
    for (; end < text + size; end++)
        if (!memchr(" \t\r\n", *end, 4))
            return fl_fail(FL_ERR_IO, "load: %s: text after the header's JSON", file->path);
    return FL_OK;
}

/* A number of the header as an integer in 0 .. 2^53 - 1. */
static bool exact_integer(int64_t *out, const cJSON *item)
{
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 0 && value < EXACT_INTEGER) || value != (double)(int64_t)value) return false;
    *out = (int64_t)value;
    return true;
}

static fl_status entry_dtype(fl_safetensors *file, fl_safetensors_entry *entry, const cJSON *dtype)
{
    if (!cJSON_IsString(dtype))
        return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" has no dtype", file->path, file->shown);
    for (int d = 0; d < FL_DTYPE_COUNT; d++)
        if (strcmp(dtype->valuestring, fl_safetensors_dtypes[d]) == 0) {
            entry->dtype = (fl_dtype)d;
            return FL_OK;
        }
    return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" has the unknown dtype \"%.32s\"", file->path, file->shown,
                   dtype->valuestring);
}

static fl_status entry_shape(fl_safetensors *file, fl_safetensors_entry *entry, const cJSON *shape)
{
    int64_t dims[FL_MAX_NDIM];
    int ndim = 0;
    if (!cJSON_IsArray(shape))
        return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" has no shape", file->path, file->shown);
    for (const cJSON *size = shape->child; size; size = size->next) {
        if (ndim == FL_MAX_NDIM)
            return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" has more than %d axes", file->path, file->shown,
                           FL_MAX_NDIM);
        if (!exact_integer(&dims[ndim++], size))
            return fl_fail(FL_ERR_IO, "load: %s: a size of tensor \"%s\" is not a whole number", file->path,
                           file->shown);
    }
    fl_status status = fl_shape_make(&entry->shape, file->shown, dims, ndim);
    return status == FL_OK ? FL_OK : fl_fail_prefix(FL_ERR_IO, "load: %s: ", file->path);
}

static fl_status entry_offsets(fl_safetensors *file, fl_safetensors_entry *entry, const cJSON *offsets,
                               int64_t data_bytes)
{
    int64_t end;
    const cJSON *first = cJSON_IsArray(offsets) ? offsets->child : NULL;
    if (!first || !first->next || first->next->next || !exact_integer(&entry->start, first)
        || !exact_integer(&end, first->next))
        return fl_fail(FL_ERR_IO, "load: %s: the data_offsets of tensor \"%s\" are not two whole numbers", file->path,
                       file->shown);
    if (entry->start > end || end > data_bytes)
        return fl_fail(FL_ERR_IO,
                       "load: %s: the bytes of tensor \"%s\", %lld to %lld, are outside the %lld bytes of data",
                       file->path, file->shown, (long long)entry->start, (long long)end, (long long)data_bytes);
    entry->bytes = end - entry->start;
    int64_t numel = fl_shape_numel(&entry->shape), size = (int64_t)fl_dtype_size(entry->dtype);
    if (entry->bytes % size != 0 || entry->bytes / size != numel) {
        char text[FL_SHAPE_TEXT];
        return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\", %s%s, has %lld bytes", file->path, file->shown,
                       fl_dtype_name(entry->dtype), fl_shape_text(text, &entry->shape), (long long)entry->bytes);
    }
    return FL_OK;
}

static fl_status entry_read(fl_safetensors *file, const cJSON *item, int64_t data_bytes)
{
    fl_safetensors_entry *entry = &file->entries[file->count++];
    entry->name = item->string;
    fl_text_name(file->shown, entry->name);
    if (!cJSON_IsObject(item))
        return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" is not described by an object", file->path, file->shown);
    FL_TRY(entry_dtype(file, entry, cJSON_GetObjectItemCaseSensitive(item, "dtype")));
    FL_TRY(entry_shape(file, entry, cJSON_GetObjectItemCaseSensitive(item, "shape")));
    return entry_offsets(file, entry, cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), data_bytes);
}

static fl_status metadata_read(fl_safetensors *file, const cJSON *metadata)
{
    if (!cJSON_IsObject(metadata)) return fl_fail(FL_ERR_IO, "load: %s: __metadata__ is not an object", file->path);
    if (file->metadata) return fl_fail(FL_ERR_IO, "load: %s: the name \"__metadata__\" occurs twice", file->path);
    file->metadata = malloc(sizeof *file->metadata * (2 * (size_t)cJSON_GetArraySize(metadata) + 1));
    if (!file->metadata) return fl_fail(FL_ERR_MEMORY, "load: out of memory");
    for (const cJSON *item = metadata->child; item; item = item->next) {
        if (!cJSON_IsString(item))
            return fl_fail(FL_ERR_IO, "load: %s: \"%s\" of __metadata__ is not a string", file->path,
                           fl_text_name(file->shown, item->string));
        file->metadata[2 * file->metadata_count] = item->string;
        file->metadata[2 * file->metadata_count++ + 1] = item->valuestring;
    }
    return FL_OK;
}

/* ---- rules between entries ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fl_safetensors_entry *)a)->name, ((const fl_safetensors_entry *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const fl_safetensors_entry *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static fl_status entries_check(fl_safetensors *file, int64_t data_bytes)
{
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_name);
    for (int i = 1; i < file->count; i++)
        if (strcmp(file->entries[i - 1].name, file->entries[i].name) == 0)
            return fl_fail(FL_ERR_IO, "load: %s: the name \"%s\" occurs twice", file->path,
                           fl_text_name(file->shown, file->entries[i].name));
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_place);
    int64_t end = 0;
    for (int i = 0; i < file->count; i++) {
        const fl_safetensors_entry *entry = &file->entries[i];
        if (entry->start != end)
            return fl_fail(FL_ERR_IO, "load: %s: the bytes of tensor \"%s\" %s", file->path,
                           fl_text_name(file->shown, entry->name),
                           entry->start < end ? "overlap another tensor's" : "leave a hole before them");
        end += entry->bytes;
    }
    if (end != data_bytes)
        return fl_fail(FL_ERR_IO, "load: %s: %lld bytes belong to no tensor", file->path,
                       (long long)(data_bytes - end));
    return FL_OK;
}

static fl_status header_read(fl_safetensors *file, int64_t data_bytes)
{
    int count = cJSON_GetArraySize(file->header);
    file->entries = calloc((size_t)count + 1, sizeof *file->entries);
    if (!file->entries) return fl_fail(FL_ERR_MEMORY, "load: out of memory");
    for (const cJSON *item = file->header->child; item; item = item->next)
        FL_TRY(strcmp(item->string, "__metadata__") == 0 ? metadata_read(file, item)
                                                         : entry_read(file, item, data_bytes));
    return entries_check(file, data_bytes);
}

/* ---- files ---- */

static fl_status file_read(fl_safetensors *file)
{
    int64_t size = 0;
    unsigned char length_bytes[8];
    FL_TRY(fl_file_open(&file->file, &size, "load", file->path));
    if (size < 8)
        return fl_fail(FL_ERR_IO, "load: %s: %lld bytes are too few for a safetensors file", file->path,
                       (long long)size);
    FL_TRY(read_all(file, length_bytes, 8, 0));
    unsigned long long length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | length_bytes[i];
    if (length > MAX_HEADER)
        return fl_fail(FL_ERR_IO, "load: %s: a header of %llu bytes is longer than %d (is this a safetensors file?)",
                       file->path, length, MAX_HEADER);
    if (length > (uint64_t)size - 8)
        return fl_fail(FL_ERR_IO, "load: %s: the header of %llu bytes is cut off (is this a safetensors file?)",
                       file->path, length);
    char *text = malloc((size_t)length + 1);
    if (!text) return fl_fail(FL_ERR_MEMORY, "load: out of memory");
    fl_status status = read_all(file, text, (int64_t)length, 8);
    if (status == FL_OK) file->hash = fl_hash_bytes(FL_HASH_START ^ (uint64_t)size, text, (size_t)length);
    if (status == FL_OK) status = header_parse(file, text, (size_t)length);
    free(text);
    FL_TRY(status);
    file->data_start = 8 + (int64_t)length;
    return header_read(file, size - file->data_start);
}

fl_status fl_safetensors_open(fl_safetensors **out, const char *path)
{
    fl_safetensors *s = calloc(1, sizeof *s);
    if (s) s->file = -1;
    if (!s || !(s->path = strdup(path))) {
        fl_safetensors_close(s);
        return fl_fail(FL_ERR_MEMORY, "load: out of memory");
    }
    fl_status status = file_read(s);
    if (status != FL_OK) {
        fl_safetensors_close(s);
        return status;
    }
    *out = s;
    return FL_OK;
}

fl_status fl_safetensors_read(fl_safetensors *file, int index, void *data, int64_t first, int64_t bytes)
{
    return read_all(file, data, bytes, file->data_start + file->entries[index].start + first);
}

void fl_safetensors_close(fl_safetensors *file)
{
    if (!file) return;
    if (file->file >= 0) close(file->file);
    cJSON_Delete(file->header);
    free(file->entries);
    free(file->metadata);
    free(file->path);
    free(file);
}

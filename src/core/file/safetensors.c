/*
** safetensors.c -- reader of safetensors files (see safetensors.h; the writer is safetensors_write.c).
*/
#include "json.h"
#include "open.h"
#include "safetensors.h"
#include "base/hash.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MAX_HEADER = 100 * 1000 * 1000, /* as in the reference implementation */
    MAX_VALUES = 4 * 1000 * 1000    /* the parsed header must fit in memory, too */
};

const char *const fl_safetensors_dtypes[FL_DTYPE_COUNT] = {"BOOL", "U8",   "I8",  "I32", "I64",
                                                           "F16",  "BF16", "F32", "F64"};

static fl_status read_all(const fl_safetensors *file, void *data, int64_t bytes, int64_t offset)
{
    return fl_file_read(file->file, data, bytes, offset, "load", file->path);
}

/* ---- header ---- */

static fl_status header_parse(fl_safetensors *file, const char *text, size_t size)
{
    fl_json_limits limits = {.values = MAX_VALUES, .no_nul = true}; /* names are C strings */
    fl_status status = fl_json_read(&file->header, text, size, limits);
    if (status != FL_OK) return fl_fail_prefix(status, "load: %s: bad header: ", file->path);
    if (!json_is_object(file->header))
        return fl_fail(FL_ERR_IO, "load: %s: the header is not a JSON object", file->path);
    return FL_OK;
}

/* An integer that is not negative. */
static bool whole_number(int64_t *out, const json_t *item)
{
    *out = json_integer_value(item);
    return json_is_integer(item) && *out >= 0;
}

static fl_status entry_dtype(fl_safetensors *file, fl_safetensors_entry *entry, const json_t *dtype)
{
    const char *name = json_string_value(dtype);
    if (!name) return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" has no dtype", file->path, file->shown);
    for (int d = 0; d < FL_DTYPE_COUNT; d++)
        if (strcmp(name, fl_safetensors_dtypes[d]) == 0) {
            entry->dtype = (fl_dtype)d;
            return FL_OK;
        }
    return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" has the unknown dtype \"%.32s\"", file->path, file->shown, name);
}

static fl_status entry_shape(fl_safetensors *file, fl_safetensors_entry *entry, const json_t *shape)
{
    int64_t dims[FL_MAX_NDIM];
    size_t ndim = json_array_size(shape);
    if (!json_is_array(shape))
        return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" has no shape", file->path, file->shown);
    if (ndim > FL_MAX_NDIM)
        return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" has more than %d axes", file->path, file->shown,
                       FL_MAX_NDIM);
    for (size_t i = 0; i < ndim; i++)
        if (!whole_number(&dims[i], json_array_get(shape, i)))
            return fl_fail(FL_ERR_IO, "load: %s: a size of tensor \"%s\" is not a whole number", file->path,
                           file->shown);
    fl_status status = fl_shape_make(&entry->shape, file->shown, dims, (int)ndim);
    return status == FL_OK ? FL_OK : fl_fail_prefix(FL_ERR_IO, "load: %s: ", file->path);
}

static fl_status entry_offsets(fl_safetensors *file, fl_safetensors_entry *entry, const json_t *offsets,
                               int64_t data_bytes)
{
    int64_t end;
    if (json_array_size(offsets) != 2 || !whole_number(&entry->start, json_array_get(offsets, 0))
        || !whole_number(&end, json_array_get(offsets, 1)))
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

static fl_status entry_read(fl_safetensors *file, const char *name, const json_t *item, int64_t data_bytes)
{
    fl_safetensors_entry *entry = &file->entries[file->count++];
    entry->name = name;
    fl_text_name(file->shown, name);
    if (!json_is_object(item))
        return fl_fail(FL_ERR_IO, "load: %s: tensor \"%s\" is not described by an object", file->path, file->shown);
    FL_TRY(entry_dtype(file, entry, json_object_get(item, "dtype")));
    FL_TRY(entry_shape(file, entry, json_object_get(item, "shape")));
    return entry_offsets(file, entry, json_object_get(item, "data_offsets"), data_bytes);
}

static fl_status metadata_read(fl_safetensors *file, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return fl_fail(FL_ERR_IO, "load: %s: __metadata__ is not an object", file->path);
    file->metadata = malloc(sizeof *file->metadata * (2 * json_object_size(metadata) + 1));
    if (!file->metadata) return fl_fail(FL_ERR_MEMORY, "load: out of memory");
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return fl_fail(FL_ERR_IO, "load: %s: \"%s\" of __metadata__ is not a string", file->path,
                           fl_text_name(file->shown, key));
        file->metadata[2 * file->metadata_count] = key;
        file->metadata[2 * file->metadata_count++ + 1] = json_string_value(value);
    }
    return FL_OK;
}

/* ---- rules between entries ---- */

static int by_place(const void *a, const void *b)
{
    const fl_safetensors_entry *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void sort_by_place(fl_safetensors *file)
{
    for (int i = 1; i < file->count; i++)
        if (by_place(&file->entries[i - 1], &file->entries[i]) > 0) {
            qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_place);
            return;
        }
}

static fl_status entries_check(fl_safetensors *file, int64_t data_bytes)
{
    sort_by_place(file);
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
    const char *name;
    json_t *item;
    file->entries = calloc(json_object_size(file->header) + 1, sizeof *file->entries);
    if (!file->entries) return fl_fail(FL_ERR_MEMORY, "load: out of memory");
    json_object_foreach(file->header, name, item)
    {
        if (strcmp(name, "__metadata__") == 0) FL_TRY(metadata_read(file, item));
        else FL_TRY(entry_read(file, name, item, data_bytes));
    }
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
    if (status == FL_OK) file->hash = fl_hash_words(FL_HASH_START ^ (uint64_t)size, text, (size_t)length);
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
    json_decref(file->header);
    free(file->entries);
    free(file->metadata);
    free(file->path);
    free(file);
}

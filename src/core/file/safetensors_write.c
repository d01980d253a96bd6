/*
** safetensors_write.c -- writer of safetensors files (see safetensors.h).
**
** The header is padded with spaces to a multiple of 8, so that the data begins aligned. Integers are printed as
** integers, never through a double.
*/
#define _GNU_SOURCE /* fallocate */
#include "replace.h"
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fl_safetensors_writer {
    fl_replacement file;
    int64_t data_start, data_bytes;
};

/* ---- text ---- */

struct text {
    char *at;
    size_t size, room;
    bool failed; /* out of memory */
};

static void text_add(struct text *text, const char *bytes, size_t size)
{
    if (text->room - text->size < size && !text->failed) {
        size_t room = 2 * (text->size + size) + 256;
        char *at = realloc(text->at, room);
        text->failed = at == NULL;
        if (at) text->at = at, text->room = room;
    }
    if (text->failed) return;
    memcpy(text->at + text->size, bytes, size);
    text->size += size;
}

static void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void text_format(struct text *text, const char *format, ...)
{
    char buffer[64];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    text_add(text, buffer, (size_t)size);
}

static void text_string(struct text *text, const char *string)
{
    text_add(text, "\"", 1);
    for (; *string; string++) {
        if (*string == '"' || *string == '\\') text_format(text, "\\%c", *string);
        else if ((unsigned char)*string < 0x20) text_format(text, "\\u%04x", *string);
        else text_add(text, string, 1);
    }
    text_add(text, "\"", 1);
}

static void text_entry(struct text *text, const fl_safetensors_entry *entry)
{
    text_string(text, entry->name);
    text_format(text, ":{\"dtype\":\"%s\",\"shape\":[", fl_safetensors_dtypes[entry->dtype]);
    for (int i = 0; i < entry->shape.ndim; i++) text_format(text, "%s%" PRId64, i ? "," : "", entry->shape.dims[i]);
    text_format(text, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", entry->start, entry->start + entry->bytes);
}

/* Length (8 bytes, little end first), JSON, padding. */
static void text_header(struct text *text, const fl_safetensors_entry *entries, int count, const char *const *metadata,
                        int metadata_count)
{
    unsigned char length[8] = {0};
    text_add(text, (const char *)length, 8);
    text_add(text, "{", 1);
    for (int i = 0; i < metadata_count; i++) {
        text_format(text, "%s", i ? "," : "\"__metadata__\":{");
        text_string(text, metadata[2 * i]);
        text_add(text, ":", 1);
        text_string(text, metadata[2 * i + 1]);
    }
    if (metadata_count) text_format(text, "}%s", count ? "," : "");
    for (int i = 0; i < count; i++) {
        if (i) text_add(text, ",", 1);
        text_entry(text, &entries[i]);
    }
    text_add(text, "}", 1);
    while (!text->failed && text->size % 8 != 0) text_add(text, " ", 1);
    for (int i = 0; i < 8 && !text->failed; i++) text->at[i] = (char)((text->size - 8) >> (8 * i) & 0xff);
}

/* ---- files ---- */

/* Gives the file its size. Room on the disk is taken now where the file system can, so that a full one is known
** early. */
static fl_status file_reserve(const fl_safetensors_writer *writer)
{
    int64_t size = writer->data_start + writer->data_bytes;
    if (fallocate(writer->file.fd, 0, 0, size) == 0) return FL_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) return fl_replacement_fail(&writer->file, errno);
    return ftruncate(writer->file.fd, size) == 0 ? FL_OK : fl_replacement_fail(&writer->file, errno);
}

static fl_status writer_new(fl_safetensors_writer **out, const char *path)
{
    fl_safetensors_writer *w = calloc(1, sizeof *w);
    if (!w) return fl_fail(FL_ERR_MEMORY, "save: out of memory");
    fl_status status = fl_replacement_init(&w->file, "save", path);
    if (status != FL_OK) fl_safetensors_abandon(w);
    else *out = w;
    return status;
}

static fl_status header_write(fl_safetensors_writer *writer, const struct text *header)
{
    if (header->failed) return fl_fail(FL_ERR_MEMORY, "save: out of memory");
    if (header->size > 100 * 1000 * 1000)
        return fl_fail(FL_ERR_IO, "save: %s: the plain values take more than 100 MB", writer->file.path);
    FL_TRY(fl_replacement_create(&writer->file));
    writer->data_start = (int64_t)header->size;
    FL_TRY(file_reserve(writer));
    return fl_replacement_write(&writer->file, header->at, (int64_t)header->size, 0);
}

static void lay_out(fl_safetensors_writer *writer, fl_safetensors_entry *entries, int count)
{
    for (int i = 0; i < count; i++) {
        entries[i].start = writer->data_bytes;
        entries[i].bytes = fl_shape_numel(&entries[i].shape) * (int64_t)fl_dtype_size(entries[i].dtype);
        writer->data_bytes += entries[i].bytes;
    }
}

fl_status fl_safetensors_create(fl_safetensors_writer **out, const char *path, fl_safetensors_entry *entries, int count,
                                const char *const *metadata, int metadata_count)
{
    fl_safetensors_writer *w = NULL;
    FL_TRY(writer_new(&w, path));
    lay_out(w, entries, count);
    struct text header = {0};
    text_header(&header, entries, count, metadata, metadata_count);
    fl_status status = header_write(w, &header);
    free(header.at);
    if (status != FL_OK) {
        fl_safetensors_abandon(w);
        return status;
    }
    *out = w;
    return FL_OK;
}

void fl_safetensors_ticket_get(fl_safetensors_ticket *out, const fl_safetensors_writer *writer)
{
    *out = (fl_safetensors_ticket){writer->file.host, getpid(), writer->file.attempt, writer->data_start,
                                   writer->data_start + writer->data_bytes};
}

fl_status fl_safetensors_join(fl_safetensors_writer **out, const char *path, fl_safetensors_entry *entries, int count,
                              const fl_safetensors_ticket *ticket)
{
    fl_safetensors_writer *w = NULL;
    FL_TRY(writer_new(&w, path));
    w->data_start = ticket->data_start;
    lay_out(w, entries, count);
    fl_status status = fl_replacement_join(&w->file, ticket->host, ticket->pid, ticket->attempt, ticket->file_bytes);
    if (status == FL_OK && w->data_start + w->data_bytes != ticket->file_bytes)
        status = fl_fail(FL_ERR_IO, "save: %s is not the file of the other ranks", w->file.temporary);
    if (status != FL_OK) {
        fl_safetensors_abandon(w);
        return status;
    }
    *out = w;
    return FL_OK;
}

fl_status fl_safetensors_write(fl_safetensors_writer *writer, const fl_safetensors_entry *entry, const void *data,
                               int64_t first, int64_t bytes)
{
    return fl_replacement_write(&writer->file, data, bytes, writer->data_start + entry->start + first);
}

fl_status fl_safetensors_flush(fl_safetensors_writer *writer) { return fl_replacement_flush(&writer->file); }

fl_status fl_safetensors_commit(fl_safetensors_writer *writer)
{
    fl_status status = fl_replacement_commit(&writer->file);
    fl_safetensors_abandon(writer);
    return status;
}

void fl_safetensors_abandon(fl_safetensors_writer *writer)
{
    if (!writer) return;
    fl_replacement_drop(&writer->file);
    free(writer);
}

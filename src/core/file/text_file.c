/*
** text_file.c -- files of text (see text_file.h).
*/
#include "text_file.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 512, CHUNK = 1 << 20 };

static fl_status fail(const fl_text_file *text, const char *what)
{
    return fl_fail(FL_ERR_IO, "%s: %s: %s", text->who, text->path, what);
}

/* Fails if the first bytes are those of a file that is no text. */
static fl_status head_check(fl_text_file *text)
{
    unsigned char head[HEAD] = {0};
    int64_t size = text->bytes < HEAD ? text->bytes : HEAD;
    FL_TRY(fl_text_file_read(text, (char *)head, 0, size));
    if (size >= 2 && ((head[0] == 0xff && head[1] == 0xfe) || (head[0] == 0xfe && head[1] == 0xff)))
        return fail(text, "its text is UTF-16; convert it: iconv -f UTF-16 -t UTF-8 old > new");
    if (memcmp(head, "PK\3\4", 4) == 0)
        return fail(text, "a zip archive, as spreadsheets (.xlsx) and others are, not text; unpack or export it");
    const char *alone = memchr(head, '\r', (size_t)size);
    if (alone && !memchr(head, '\n', (size_t)size) && alone + 1 < (const char *)head + size)
        return fail(text, "its lines end in CR alone; convert it: tr '\\r' '\\n' < old > new");
    if (size > 0 && memchr(head, 0, (size_t)size)) return fail(text, "not a file of text: it has bytes of 0");
    if (memcmp(head, "\xef\xbb\xbf", 3) == 0) {
        text->start = 3;
        text->bytes -= 3;
    }
    return FL_OK;
}

static fl_status memory_take(fl_text_file *text)
{
    if (fl_stream_is_packed(text->stream)) return fl_stream_read_all(&text->memory, &text->bytes, text->stream, 1);
    text->bytes = fl_stream_bytes(text->stream);
    return FL_OK;
}

fl_status fl_text_file_open(fl_text_file **out, const char *who, const char *path)
{
    fl_text_file *text = calloc(1, sizeof *text);
    if (text) {
        text->who = strdup(who);
        text->path = strdup(path);
    }
    fl_status status = FL_OK;
    if (!text || !text->who || !text->path) status = fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", who, path);
    if (status == FL_OK) status = fl_stream_open(&text->stream, who, path);
    if (status == FL_OK) status = memory_take(text);
    if (status == FL_OK) status = head_check(text);
    if (status == FL_OK) *out = text;
    else fl_text_file_close(text);
    return status;
}

fl_status fl_text_file_read(const fl_text_file *text, char *data, int64_t offset, int64_t bytes)
{
    if (!text->memory) return fl_stream_read_at(text->stream, data, text->start + offset, bytes);
    memcpy(data, text->memory + text->start + offset, (size_t)bytes);
    return FL_OK;
}

fl_status fl_text_file_place(int64_t *line, int64_t *column, const fl_text_file *text, int64_t offset)
{
    char *chunk = malloc(CHUNK);
    int64_t start = 0;
    *line = 1;
    fl_status status = chunk ? FL_OK : fail(text, "out of memory");
    for (int64_t at = 0; at < offset && status == FL_OK; at += CHUNK) {
        int64_t size = offset - at < CHUNK ? offset - at : CHUNK;
        status = fl_text_file_read(text, chunk, at, size);
        for (const char *c = chunk; status == FL_OK && (c = memchr(c, '\n', (size_t)(chunk + size - c))); c++) {
            ++*line;
            start = at + (c - chunk) + 1;
        }
    }
    free(chunk);
    *column = offset - start + 1;
    return status;
}

void fl_text_file_close(fl_text_file *text)
{
    if (!text) return;
    fl_stream_close(text->stream);
    free(text->memory);
    free(text->who);
    free(text->path);
    free(text);
}

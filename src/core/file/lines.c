/*
** lines.c -- the index of lines (see lines.h).
*/
#include "lines.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

struct index {
    fl_lines *lines;
    int64_t room;
    int64_t begin; /* of the line that is read */
    bool empty;    /* it has nothing but blanks so far */
};

static fl_status out_of_memory(const fl_lines *lines)
{
    return fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", lines->text->who, lines->text->path);
}

static fl_status start_add(struct index *index)
{
    fl_lines *lines = index->lines;
    if (lines->count == index->room) {
        int64_t room = 2 * index->room + 1024;
        int64_t *grown = realloc(lines->starts, sizeof *grown * ((size_t)room + 1));
        if (!grown) return out_of_memory(lines);
        lines->starts = grown;
        index->room = room;
    }
    lines->starts[lines->count++] = index->begin;
    return FL_OK;
}

/* The bytes of a chunk, whose first is byte `offset` of the text. */
static fl_status chunk_index(struct index *index, const char *chunk, int64_t size, int64_t offset)
{
    for (const char *at = chunk, *end = chunk + size; at < end;) {
        while (index->empty && at < end && (*at == ' ' || *at == '\t' || *at == '\r')) at++;
        if (at == end) break;
        if (index->empty && *at != '\n') {
            index->empty = false;
            FL_TRY(start_add(index));
        }
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline) break;
        at = newline + 1;
        index->begin = offset + (at - chunk);
        index->empty = true;
    }
    return FL_OK;
}

fl_status fl_lines_open(fl_lines **out, const char *who, const char *path)
{
    fl_lines *lines = calloc(1, sizeof *lines);
    char *chunk = malloc(CHUNK);
    struct index index = {.lines = lines, .empty = true};
    fl_status status = lines && chunk ? fl_text_file_open(&lines->text, who, path)
                                      : fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", who, path);
    for (int64_t at = 0; status == FL_OK && at < lines->text->bytes; at += CHUNK) {
        int64_t size = lines->text->bytes - at < CHUNK ? lines->text->bytes - at : CHUNK;
        status = fl_text_file_read(lines->text, chunk, at, size);
        if (status == FL_OK) status = chunk_index(&index, chunk, size, at);
    }
    free(chunk);
    if (status == FL_OK) {
        int64_t *fitting = realloc(lines->starts, sizeof *fitting * ((size_t)lines->count + 1));
        if (fitting) lines->starts = fitting;
        if (lines->starts) lines->starts[lines->count] = lines->text->bytes;
        else status = out_of_memory(lines);
    }
    if (status == FL_OK) *out = lines;
    else fl_lines_close(lines);
    return status;
}

void fl_lines_close(fl_lines *lines)
{
    if (!lines) return;
    fl_text_file_close(lines->text);
    free(lines->starts);
    free(lines);
}

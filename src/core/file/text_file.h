/*
** text_file.h -- a file of text that is read in pieces, by several threads at once: from the file, or from memory
** where gzip has compressed it.
*/
#ifndef FL_TEXT_FILE_H
#define FL_TEXT_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_text_file {
    char *who, *path; /* owned: the beginning of messages */
    int64_t bytes;    /* without the mark at the beginning that says it is UTF-8 */
    /* the reader's own */
    struct fl_stream *stream;
    char *memory;  /* owned; NULL: read from the stream's file */
    int64_t start; /* behind the mark */
} fl_text_file;

/* Opens a regular file; fl_text_file_close frees *out. Error: its first bytes are UTF-16 or no text; the message says
** which. */
fl_status fl_text_file_open(fl_text_file **out, const char *who, const char *path);

/* Exactly these bytes, which lie in the file; any thread may call it. */
fl_status fl_text_file_read(const fl_text_file *text, char *data, int64_t offset, int64_t bytes);

/* Line and column of a byte, counted from 1: reads all before it. */
fl_status fl_text_file_place(int64_t *line, int64_t *column, const fl_text_file *text, int64_t offset);

void fl_text_file_close(fl_text_file *text); /* takes NULL */

#endif

/*
** lines.h -- the lines of a text file by their number: an index of where each begins, made in one pass. Empty lines,
** and those of blanks, have none.
*/
#ifndef FL_LINES_H
#define FL_LINES_H

#include "text_file.h"

typedef struct fl_lines {
    fl_text_file *text; /* owned */
    int64_t count;
    int64_t *starts; /* owned: [count + 1] */
} fl_lines;

/* fl_lines_close frees *out. */
fl_status fl_lines_open(fl_lines **out, const char *who, const char *path);
void fl_lines_close(fl_lines *lines); /* takes NULL */

#endif

/*
** open.h -- opening what is to be read, regular files only, so that no path blocks or never ends; and reading it.
*/
#ifndef FL_OPEN_H
#define FL_OPEN_H

#include "base/status.h"

#include <stdint.h>

/* Opens a regular file for reading; the caller closes *fd. size: its bytes now. Folders, pipes and devices are errors,
** and a pipe without a writer does not block. who: the first word of the message. */
fl_status fl_file_open(int *fd, int64_t *size, const char *who, const char *path);

/* The bytes from `offset` on; a file that has become shorter is an error. */
fl_status fl_file_read(int fd, void *data, int64_t bytes, int64_t offset, const char *who, const char *path);

#endif

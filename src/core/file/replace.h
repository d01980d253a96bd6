/*
** replace.h -- a file that takes the place of another, or of none, once all its bytes are on the disk.
**
** It is written beside its target and renamed at the end, so that a crash or a full disk leaves the old file as it was.
**
** A temporary file is called <target>.<host>.<pid>.<attempt>.tmp and locked while its writer lives, so that the next
** replacement in that folder can remove those of this host whose lock is free: what processes that were killed have
** left. Files of other hosts are left alone, because locks need not reach from host to host.
*/
#ifndef FL_REPLACE_H
#define FL_REPLACE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct fl_replacement {
    const char *who;        /* a constant: the first word of messages */
    char *path, *temporary; /* owned */
    int fd;
    bool joined; /* the temporary file is another process's */
    mode_t mode; /* of the target, taken over; 0: there is none */
    uint64_t host;
    int64_t attempt;
} fl_replacement;

/* Prepares *out, which fl_replacement_drop frees also after an error; no file is made yet. */
fl_status fl_replacement_init(fl_replacement *out, const char *who, const char *path);

/* Makes the temporary file, readable by whom the target was (a new target: as umask says). A target that exists and is
** not a regular file is an error. */
fl_status fl_replacement_create(fl_replacement *file);

/* Opens the temporary file that another process has made, by host, pid and attempt; it must have `bytes` bytes. This
** process only writes: the file is put in its place, or dropped, by the one that made it. */
fl_status fl_replacement_join(fl_replacement *file, uint64_t host, int64_t pid, int64_t attempt, int64_t bytes);

fl_status fl_replacement_write(const fl_replacement *file, const void *data, int64_t bytes, int64_t offset);

/* Flushes the bytes that this process has written to the disk. */
fl_status fl_replacement_flush(const fl_replacement *file);

/* Puts the file in its place: data to the disk, rename, folder to the disk. On an error the target is as it was. One
** that joined does nothing. Ended by fl_replacement_drop in either case. */
fl_status fl_replacement_commit(fl_replacement *file);

/* Ends it, and removes the temporary file unless it was put in its place or is another's. */
void fl_replacement_drop(fl_replacement *file);

/* A file of these bytes in the place of `path`: all of the above in one. */
fl_status fl_file_replace(const char *who, const char *path, const void *data, int64_t bytes);

/* "who: path: the system's message" */
fl_status fl_replacement_fail(const fl_replacement *file, int error);

#endif

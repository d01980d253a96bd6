/*
** mapping.h -- a file as memory: its pages are read when they are touched, so it may be larger than memory.
**
** A file that another process makes shorter takes its pages away, and touching them is SIGBUS; so is a page that the
** disk cannot give. The first mapping therefore installs a handler for SIGBUS: within a mapping it puts zeros in place
** of what is gone and notes that, so readers go on and ask fl_mapping_broken before they trust what they have read. All
** other bus errors it passes on to the handler that was there before.
*/
#ifndef FL_MAPPING_H
#define FL_MAPPING_H

#include "base/status.h"
#include "engine/var.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_mapping {
    const unsigned char *data; /* never NULL once open */
    int64_t size;
    struct fl_mapped_range *range;
} fl_mapping;

/* Maps a regular file for reading. who: the first word of the message. */
fl_status fl_mapping_open(fl_mapping *out, const char *who, const char *path);

/* Maps an open file for reading and writing; writes do not change the file, and fd may be closed. */
fl_status fl_mapping_open_copy(fl_mapping *out, int fd, int64_t size, const char *who, const char *path);

/* From now on the variable is lost with the file (fl_var_lose). Both are borrowed until fl_mapping_close. */
void fl_mapping_watch(fl_mapping *mapping, fl_var *var, fl_poison *poison);

/* True for memory of a file whose loss is watched: values read from it may turn out to be lost. Any thread. */
bool fl_mapping_is_watched(const void *data);

/* Some of what was read since it was opened were zeros in place of bytes that are gone. Any thread. */
bool fl_mapping_broken(const fl_mapping *mapping);

/* Unmaps it. {0} is fine. */
void fl_mapping_close(fl_mapping *mapping);

#endif

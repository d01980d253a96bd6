/*
** large_blocks.h -- live storages of FL_BLOCK_LARGE bytes and more, by the script's line that made them, and the errors
** that name those lines when memory is out.
*/
#ifndef FL_LARGE_BLOCKS_H
#define FL_LARGE_BLOCKS_H

#include "blocks.h"
#include "storage.h"

static inline bool fl_is_large(const fl_storage *storage) { return storage->bytes >= FL_BLOCK_LARGE; }

/* line: of the script, at which it was made. */
void fl_large_link(fl_storage *storage, const char *line);
void fl_large_unlink(fl_storage *storage);

/* FL_ERR_MEMORY for so many bytes of host memory. */
fl_status fl_memory_error(size_t bytes, int64_t live_blocks);

/* The device's error, with the lines that hold most of its memory. */
fl_status fl_device_memory_error(fl_device_type device, int index);

#endif

/*
** record_pack.h -- files as items of a record file: their bytes, a label, a name.
*/
#ifndef FL_RECORD_PACK_H
#define FL_RECORD_PACK_H

#include "file/record.h"

/* Appends {image = the bytes of the file, label = its label (labels NULL: none), name = its path} for each of `paths`,
** which lie below `root`, in their order. They are read by `workers` threads; 0: one per core. */
fl_status fl_record_pack_files(fl_record_writer *writer, const char *root, const char *const *paths,
                               const int64_t *labels, int64_t count, int workers);

#endif

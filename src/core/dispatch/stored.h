/*
** stored.h -- files of tensors, written and read by all ranks of the world together (file/safetensors.h).
*/
#ifndef FL_STORED_H
#define FL_STORED_H

#include "file/safetensors.h"
#include "memory/tensor.h"

typedef struct fl_save_job {
    const char *path;
    fl_safetensors_entry *entries; /* names, dtypes and shapes of the tensors */
    fl_tensor **tensors;           /* borrowed */
    const char **metadata;         /* key, value, ... */
    int count, metadata_count;
    bool differs;                  /* result: the ranks' metadata do; nothing was written */
    fl_safetensors_writer *writer; /* owned, while it is written */
} fl_save_job;

/* Every rank of the world calls it, with the same tensors; local ones are written by rank 0. failure: what has gone
** wrong on this rank before, which ends it on all; NULL: nothing. */
fl_status fl_save_together(fl_save_job *job, const char *failure);

/* Every rank of the world has opened a file, with this outcome: FL_OK where all have the same one. */
fl_status fl_load_agree(fl_status status, const fl_safetensors *reader, const char *path);

/* An entry as a local tensor on the CPU. */
fl_status fl_load_local(fl_tensor **out, fl_safetensors *file, int index);

/* As a global tensor, of which this rank reads its part alone. */
fl_status fl_load_global(fl_tensor **out, fl_safetensors *file, int index, const fl_placement *placement,
                         fl_nd_sbp nd_sbp);

#endif

/*
** safetensors.h -- tensors by name in one file: length of the header, header (JSON), bytes.
**
** The reader trusts nothing: every length, name, shape and offset is checked against the file before a byte is
** allocated for it, and the tensors' bytes must follow each other without holes or overlaps, as in the reference
** implementation (https://huggingface.co/docs/safetensors). The writer makes a temporary file beside the target and
** renames it once all bytes are on the disk, so a crash or a full disk leaves the old file as it was.
*/
#ifndef FL_SAFETENSORS_H
#define FL_SAFETENSORS_H

#include "dtype.h"
#include "shape.h"

typedef struct fl_safetensors_entry {
    const char *name;
    fl_dtype dtype;
    fl_shape shape;
    int64_t start, bytes;           /* where it lies in the data, set by open and by create */
} fl_safetensors_entry;

/* What the format calls each dtype. */
extern const char *const fl_safetensors_dtypes[FL_DTYPE_COUNT];

/* ---- reading ---- */

typedef struct fl_safetensors {
    fl_safetensors_entry *entries;  /* in the order of their bytes */
    int count;
    int metadata_count;
    const char **metadata;          /* key, value, key, value, ... */
    /* the reader's own */
    char *path;
    struct cJSON *header;
    int file;
    int64_t data_start;
} fl_safetensors;

/* Opens and checks a file. fl_safetensors_close frees *out. Errors: FL_ERR_IO naming the path and what is wrong. */
fl_status fl_safetensors_open(fl_safetensors **out, const char *path);

/* Reads `bytes` bytes of entry `index`, from byte `first` of that entry on. */
fl_status fl_safetensors_read(fl_safetensors *s, int index, void *data, int64_t first, int64_t bytes);

void fl_safetensors_close(fl_safetensors *s);

/* ---- writing ---- */

typedef struct fl_safetensors_writer fl_safetensors_writer;

/* Lays the entries out in their order (sets start and bytes), writes the header to a temporary file in the target's
** folder. metadata: key, value, ..., 2 * metadata_count strings. A target that exists and is not a regular file is an
** error. */
fl_status fl_safetensors_create(fl_safetensors_writer **out, const char *path, fl_safetensors_entry *entries, int count,
                                const char *const *metadata, int metadata_count);

/* Writes bytes of an entry, from byte `first` of that entry on. */
fl_status fl_safetensors_write(fl_safetensors_writer *w, const fl_safetensors_entry *entry, const void *data,
                               int64_t first, int64_t bytes);

/* Puts the file in its place: data to the disk, rename, folder to the disk. On an error the target is as it was. Ends
** the writer in either case. */
fl_status fl_safetensors_commit(fl_safetensors_writer *w);

/* Drops the temporary file and the writer. Takes NULL. */
void fl_safetensors_abandon(fl_safetensors_writer *w);

#endif

/*
** safetensors.h -- tensors by name in one file, a checkpoint: length of the header, header (JSON), bytes.
**
** The reader trusts nothing: every length, name, shape and offset is checked against the file before a byte is
** allocated for it, and the tensors' bytes must follow each other without holes or overlaps, as in the reference
** implementation (https://huggingface.co/docs/safetensors). The writer makes a temporary file beside the target and
** renames it once all bytes are on the disk, so a crash or a full disk leaves the old file as it was. Several processes
** write one file together: one makes it, of full size, the others join it; each writes bytes of its own.
*/
#ifndef FL_SAFETENSORS_H
#define FL_SAFETENSORS_H

#include "base/dtype.h"
#include "value/meta.h"
#include "base/shape.h"
#include "base/status.h"

typedef struct fl_safetensors_entry {
    const char *name;
    fl_dtype dtype;
    fl_shape shape;
    int64_t start, bytes; /* its place in the data, set by open and by create */
} fl_safetensors_entry;

/* The format's name of each dtype. */
FL_OWN extern const char *const fl_safetensors_dtypes[FL_DTYPE_COUNT];

/* Bytes that lie next to each other in the file, of a window of an entry: a window is so many stretches. */
int64_t fl_safetensors_stretch(const fl_safetensors_entry *entry, const fl_window *window);

enum { FL_SHORT_STRETCH = 4096 }; /* bytes: below, a request costs more than the copy */

/* ---- reading ---- */

typedef struct fl_safetensors {
    fl_safetensors_entry *entries; /* in the order of their bytes */
    int count;
    int metadata_count;
    const char **metadata; /* key, value, key, value, ... */
    uint64_t hash;         /* of header and size: distinguishes files, no protection against attacks */
    /* the reader's own */
    char *path;
    struct json_t *header;
    int file;
    int64_t data_start;
    char shown[FL_SHOWN_TEXT]; /* the name in a message */
} fl_safetensors;

/* Opens and checks a file. fl_safetensors_close frees *out. Errors: FL_ERR_IO naming the path and what is wrong. */
fl_status fl_safetensors_open(fl_safetensors **out, const char *path);

/* Reads `bytes` bytes of entry `index`, from byte `first` of that entry on. */
fl_status fl_safetensors_read(fl_safetensors *file, int index, void *data, int64_t first, int64_t bytes);

/* Reads the elements of a window of entry `index` (row-major, without gaps); between short stretches also what lies
** there. */
fl_status fl_safetensors_read_window(fl_safetensors *file, int index, void *data, const fl_window *window);

void fl_safetensors_close(fl_safetensors *file);

/* ---- writing ---- */

typedef struct fl_safetensors_writer fl_safetensors_writer;

/* By this another process finds the temporary file of a writer. */
typedef struct fl_safetensors_ticket {
    uint64_t host; /* host, pid and attempt make its name */
    int64_t pid, attempt;
    int64_t data_start, file_bytes;
} fl_safetensors_ticket;

/* Lays the entries out in their order (sets start and bytes), makes a temporary file of full size in the target's
** folder and writes the header. metadata: key, value, ..., 2 * metadata_count strings. A target that exists and is not
** a regular file is an error. */
fl_status fl_safetensors_create(fl_safetensors_writer **out, const char *path, fl_safetensors_entry *entries, int count,
                                const char *const *metadata, int metadata_count);

void fl_safetensors_ticket_get(fl_safetensors_ticket *out, const fl_safetensors_writer *writer);

/* Another process's writer of the same file, with entries of the same names, dtypes and shapes in the same order. It
** only writes: the file is put in its place, or dropped, by the process that made it. */
fl_status fl_safetensors_join(fl_safetensors_writer **out, const char *path, fl_safetensors_entry *entries, int count,
                              const fl_safetensors_ticket *ticket);

/* Writes bytes of an entry, from byte `first` of that entry on. */
fl_status fl_safetensors_write(fl_safetensors_writer *writer, const fl_safetensors_entry *entry, const void *data,
                               int64_t first, int64_t bytes);

/* Writes the elements of a window of an entry (data: row-major, without gaps), and touches no others. */
fl_status fl_safetensors_write_window(fl_safetensors_writer *writer, const fl_safetensors_entry *entry,
                                      const void *data, const fl_window *window);

/* Flushes the bytes that this process has written to the disk. */
fl_status fl_safetensors_flush(fl_safetensors_writer *writer);

/* Puts the file in its place: data to the disk, rename, folder to the disk. On an error the target is as it was. Ends
** the writer in either case. One that joined only ends. */
fl_status fl_safetensors_commit(fl_safetensors_writer *writer);

/* Ends the writer and drops the temporary file, unless it joined another's. Takes NULL. */
void fl_safetensors_abandon(fl_safetensors_writer *writer);

#endif

/*
** safetensors_window.c -- the part of an entry that one rank holds: read from or written to where it lies in the file.
**
** A window is a set of stretches of bytes: axes held whole from the last one on join into one stretch, the others are
** walked. A rank writes no byte of another rank's part.
*/
#include "safetensors.h"

#include <stdlib.h>

typedef fl_status stretch_fn(void *context, int64_t in_entry, int64_t in_part, int64_t bytes);

/* Axes 0 .. *outer - 1 are walked; the others make a stretch. */
static int64_t stretch_of(int *outer, const fl_safetensors_entry *entry, const fl_window *window)
{
    int64_t bytes = (int64_t)fl_dtype_size(entry->dtype);
    *outer = entry->shape.ndim;
    for (bool whole = true; *outer > 0 && whole; --*outer) {
        bytes *= window->size[*outer - 1];
        whole = window->size[*outer - 1] == entry->shape.dims[*outer - 1];
    }
    return bytes;
}

int64_t fl_safetensors_stretch(const fl_safetensors_entry *entry, const fl_window *window)
{
    int outer;
    return stretch_of(&outer, entry, window);
}

/* Calls visit for every stretch: bytes from the entry's beginning, from the part's beginning, and how many. */
static fl_status for_stretches(const fl_safetensors_entry *entry, const fl_window *window, stretch_fn *visit,
                               void *context)
{
    const fl_shape *shape = &entry->shape;
    int64_t first = 0, steps[FL_MAX_NDIM], at[FL_MAX_NDIM] = {0};
    for (int i = shape->ndim - 1; i >= 0; i--) {
        steps[i] = i + 1 < shape->ndim ? steps[i + 1] * shape->dims[i + 1] : (int64_t)fl_dtype_size(entry->dtype);
        first += window->start[i] * steps[i];
        if (window->size[i] == 0) return FL_OK;
    }
    int outer;
    int64_t run = stretch_of(&outer, entry, window);
    for (int64_t part = 0;; part += run) {
        FL_TRY(visit(context, first, part, run));
        int i = outer - 1;
        for (; i >= 0; i--) {
            first += steps[i];
            if (++at[i] < window->size[i]) break;
            first -= at[i] * steps[i];
            at[i] = 0;
        }
        if (i < 0) return FL_OK;
    }
}

enum { AHEAD = 256 * 1024 };

struct read_job {
    fl_safetensors *file;
    int index;
    char *data;
    char *ahead; /* owned; [AHEAD] bytes of the entry; NULL when stretches are long */
    int64_t ahead_first, ahead_bytes;
};

static fl_status read_stretch(void *context, int64_t in_entry, int64_t in_part, int64_t bytes)
{
    struct read_job *j = context;
    if (!j->ahead) return fl_safetensors_read(j->file, j->index, j->data + in_part, in_entry, bytes);
    if (in_entry < j->ahead_first || in_entry + bytes > j->ahead_first + j->ahead_bytes) {
        int64_t rest = j->file->entries[j->index].bytes - in_entry;
        j->ahead_first = in_entry;
        j->ahead_bytes = rest < AHEAD ? rest : AHEAD;
        FL_TRY(fl_safetensors_read(j->file, j->index, j->ahead, in_entry, j->ahead_bytes));
    }
    memcpy(j->data + in_part, j->ahead + (in_entry - j->ahead_first), (size_t)bytes);
    return FL_OK;
}

fl_status fl_safetensors_read_window(fl_safetensors *file, int index, void *data, const fl_window *window)
{
    const fl_safetensors_entry *entry = &file->entries[index];
    int outer;
    int64_t bytes = stretch_of(&outer, entry, window);
    struct read_job j = {file, index, data, NULL, 0, 0};
    if (outer > 0 && bytes < FL_SHORT_STRETCH) j.ahead = malloc(AHEAD); /* without it, it is only slower */
    fl_status status = for_stretches(entry, window, read_stretch, &j);
    free(j.ahead);
    return status;
}

struct write_job {
    fl_safetensors_writer *file;
    const fl_safetensors_entry *entry;
    const char *data;
};

static fl_status write_stretch(void *context, int64_t in_entry, int64_t in_part, int64_t bytes)
{
    const struct write_job *j = context;
    return fl_safetensors_write(j->file, j->entry, j->data + in_part, in_entry, bytes);
}

fl_status fl_safetensors_write_window(fl_safetensors_writer *writer, const fl_safetensors_entry *entry,
                                      const void *data, const fl_window *window)
{
    struct write_job j = {writer, entry, data};
    return for_stretches(entry, window, write_stretch, &j);
}

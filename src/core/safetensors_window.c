/*
** safetensors_window.c -- the part of an entry that one rank holds: read from or written to where it lies in the file.
**
** A window is a set of stretches of bytes: axes held whole from the last one on join into one stretch, the others are
** walked. A rank touches no byte of another rank's part.
*/
#include "safetensors.h"

typedef fl_status stretch_fn(void *context, int64_t in_entry, int64_t in_part, int64_t bytes);

/* Calls f for every stretch: bytes from the entry's beginning, from the part's beginning, and how many. */
static fl_status for_stretches(const fl_safetensors_entry *entry, const fl_window *window, stretch_fn *f, void *context)
{
    const fl_shape *shape = &entry->shape;
    int64_t run = (int64_t)fl_dtype_size(entry->dtype), first = 0, steps[FL_MAX_NDIM], at[FL_MAX_NDIM] = {0};
    for (int i = shape->ndim - 1; i >= 0; i--) {
        steps[i] = i + 1 < shape->ndim ? steps[i + 1] * shape->dims[i + 1] : run;
        first += window->start[i] * steps[i];
        if (window->size[i] == 0) return FL_OK;
    }
    int outer = shape->ndim;    /* axes 0 .. outer - 1 are walked */
    for (bool whole = true; outer > 0 && whole; outer--) {
        run *= window->size[outer - 1];
        whole = window->size[outer - 1] == shape->dims[outer - 1];
    }
    for (int64_t part = 0;; part += run) {
        FL_TRY(f(context, first, part, run));
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

typedef struct read_job {
    fl_safetensors *file;
    int index;
    char *data;
} read_job;

static fl_status read_stretch(void *context, int64_t in_entry, int64_t in_part, int64_t bytes)
{
    const read_job *j = context;
    return fl_safetensors_read(j->file, j->index, j->data + in_part, in_entry, bytes);
}

fl_status fl_safetensors_read_window(fl_safetensors *s, int index, void *data, const fl_window *window)
{
    read_job j = {s, index, data};
    return for_stretches(&s->entries[index], window, read_stretch, &j);
}

typedef struct write_job {
    fl_safetensors_writer *file;
    const fl_safetensors_entry *entry;
    const char *data;
} write_job;

static fl_status write_stretch(void *context, int64_t in_entry, int64_t in_part, int64_t bytes)
{
    const write_job *j = context;
    return fl_safetensors_write(j->file, j->entry, j->data + in_part, in_entry, bytes);
}

fl_status fl_safetensors_write_window(fl_safetensors_writer *w, const fl_safetensors_entry *entry, const void *data,
                                      const fl_window *window)
{
    write_job j = {w, entry, data};
    return for_stretches(entry, window, write_stretch, &j);
}

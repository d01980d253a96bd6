/*
** source.h -- the items that batches are made of: bytes of files or of records, each with a label and a name.
**
** Threads of the pool read a source at the same time, so nothing of it changes once it is made. It is counted, on any
** thread: a dataset holds it, and so does every batch that is still being made of it.
*/
#ifndef FL_SOURCE_H
#define FL_SOURCE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_ITEM_NAME = 4096, FL_ITEM_MOST = 1 << 30 /* bytes */ };

/* One item, filled anew by every read. Begins as {0}; fl_item_close frees what it holds. */
typedef struct fl_item {
    const unsigned char *bytes; /* of the source (mapped), or in `buffer`; valid until the next read into this item */
    size_t size;
    int64_t label;
    bool has_label;
    void *buffer; /* owned */
    size_t capacity;
    char name[FL_ITEM_NAME]; /* in messages: "photos/cat/1.jpg", "photos.rec: record 17" */
} fl_item;

typedef struct fl_item_source fl_item_source;

/* The functions of a kind of source. */
typedef struct fl_item_source_kind {
    /* Reads item `index`, 0 to count - 1, of which `name` is set first. Errors name it. Called on any thread. */
    fl_status (*read)(const fl_item_source *source, fl_item *item, int64_t index);
    /* Frees the source when it is not used any more. Called on any thread. */
    void (*free)(fl_item_source *source);
} fl_item_source_kind;

/* The beginning of what an implementation allocates. */
struct fl_item_source {
    const fl_item_source_kind *kind;
    int64_t count; /* of items */
};

void fl_item_source_free(fl_item_source *source); /* NULL is fine */

static inline fl_status fl_item_source_read(const fl_item_source *source, fl_item *item, int64_t index)
{
    return source->kind->read(source, item, index);
}

/* Grows item->buffer to so many bytes; FL_ERR_MEMORY. Its contents are lost. */
fl_status fl_item_room(fl_item *item, size_t bytes);
void fl_item_close(fl_item *item);

/* The source of files: "root/path" of each path (root NULL: the path itself). labels: one each, or NULL. All is copied.
** Messages begin with `who`, a constant. */
fl_status fl_files_source_new(fl_item_source **out, const char *who, const char *root, const char *const *paths,
                              const int64_t *labels, int64_t count);

#endif

/*
** source.c -- items, and the source of files.
*/
#include "source.h"
#include "file/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fl_item_source_free(fl_item_source *source)
{
    if (source) source->kind->free(source);
}

/* ---- items ---- */

fl_status fl_item_room(fl_item *item, size_t bytes)
{
    if (bytes <= item->capacity) return FL_OK;
    free(item->buffer);
    item->buffer = malloc(bytes + bytes / 4);
    item->capacity = item->buffer ? bytes + bytes / 4 : 0;
    return item->buffer ? FL_OK : fl_fail(FL_ERR_MEMORY, "%s: out of memory for %zu bytes", item->name, bytes);
}

void fl_item_close(fl_item *item)
{
    free(item->buffer);
    item->buffer = NULL;
    item->capacity = 0;
}

/* ---- files ---- */

struct files {
    fl_item_source source;
    const char *who;
    char *root;      /* owned; NULL: paths are whole */
    char *text;      /* owned: the paths, one after the other */
    size_t *starts;  /* owned: of each in text */
    int64_t *labels; /* owned; NULL: there are none */
};

static fl_status read_whole(const struct files *files, fl_item *item, int fd, size_t size)
{
    FL_TRY(fl_file_read(fd, item->buffer, (int64_t)size, 0, files->who, item->name));
    item->bytes = item->buffer;
    item->size = size;
    return FL_OK;
}

static fl_status files_read(const fl_item_source *source, fl_item *item, int64_t index)
{
    const struct files *files = (const struct files *)source;
    const char *path = files->text + files->starts[index];
    int fd;
    int64_t size;
    int length = snprintf(item->name, sizeof item->name, "%s%s%s", files->root ? files->root : "",
                          files->root ? "/" : "", path);
    if (length >= (int)sizeof item->name)
        return fl_fail(FL_ERR_IO, "%s: %s: a path of %d bytes is too long", files->who, path, length);
    item->has_label = files->labels != NULL;
    item->label = files->labels ? files->labels[index] : 0;
    FL_TRY(fl_file_open(&fd, &size, files->who, item->name));
    fl_status status = FL_OK;
    if (size > FL_ITEM_MOST)
        status = fl_fail(FL_ERR_IO, "%s: %s: %lld bytes are more than %d", files->who, item->name, (long long)size,
                         FL_ITEM_MOST);
    if (status == FL_OK) status = fl_item_room(item, (size_t)size + 1);
    if (status == FL_OK) status = read_whole(files, item, fd, (size_t)size);
    close(fd);
    return status;
}

static void files_free(fl_item_source *source)
{
    struct files *files = (struct files *)source;
    free(files->root);
    free(files->text);
    free(files->starts);
    free(files->labels);
    free(files);
}

static const fl_item_source_kind files_kind = {files_read, files_free};

static void copy_paths(struct files *files, const char *const *paths, int64_t count)
{
    size_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t size = strlen(paths[i]) + 1;
        memcpy(files->text + at, paths[i], size);
        files->starts[i] = at;
        at += size;
    }
}

fl_status fl_files_source_new(fl_item_source **out, const char *who, const char *root, const char *const *paths,
                              const int64_t *labels, int64_t count)
{
    size_t bytes = 1;
    for (int64_t i = 0; i < count; i++) bytes += strlen(paths[i]) + 1;
    struct files *files = calloc(1, sizeof *files);
    if (!files) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", who);
    files->source = (fl_item_source){&files_kind, count};
    files->who = who;
    files->root = root ? strdup(root) : NULL;
    files->text = malloc(bytes);
    files->starts = malloc(sizeof *files->starts * ((size_t)count + 1));
    files->labels = labels ? malloc(sizeof *labels * ((size_t)count + 1)) : NULL;
    if ((root && !files->root) || !files->text || !files->starts || (labels && !files->labels)) {
        files_free(&files->source);
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld paths", who, (long long)count);
    }
    copy_paths(files, paths, count);
    if (labels && count) memcpy(files->labels, labels, sizeof *labels * (size_t)count);
    *out = &files->source;
    return FL_OK;
}

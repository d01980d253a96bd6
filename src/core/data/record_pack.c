/*
** record_pack.c -- files as items of a record file (see record_pack.h): some at a time are read by the pool, and then
** appended in their order.
*/
#include "record_pack.h"
#include "pool.h"
#include "source.h"

#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 32 }; /* files that are in memory at a time */

struct reading {
    fl_item_source *source;
    int64_t first; /* of the source's items that are read now */
    fl_item items[TOGETHER];
};

static fl_status read_one(void *context, int64_t item, int seat)
{
    struct reading *r = context;
    (void)seat;
    return fl_item_source_read(r->source, &r->items[item], r->first + item);
}

static fl_status append(fl_record_writer *writer, const fl_item *item, const char *name)
{
    fl_record_field fields[3] = {
        {.name = "image",
         .name_bytes = 5,
         .kind = FL_RECORD_STRING,
         .value = item->bytes,
         .bytes = (int64_t)item->size},
    };
    int count = 1;
    if (item->has_label)
        fields[count++] = (fl_record_field){
            .name = "label", .name_bytes = 5, .kind = FL_RECORD_INTEGER, .value = &item->label, .bytes = 8};
    fields[count++] = (fl_record_field){
        .name = "name", .name_bytes = 4, .kind = FL_RECORD_STRING, .value = name, .bytes = (int64_t)strlen(name)};
    return fl_record_append(writer, fields, count, false);
}

static fl_status pack_some(fl_record_writer *writer, struct reading *reading, const char *const *paths, int64_t count,
                           int workers)
{
    FL_TRY(fl_pool_run(count, workers, read_one, reading));
    for (int64_t i = 0; i < count; i++) FL_TRY(append(writer, &reading->items[i], paths[reading->first + i]));
    return FL_OK;
}

fl_status fl_record_pack_files(fl_record_writer *writer, const char *root, const char *const *paths,
                               const int64_t *labels, int64_t count, int workers)
{
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading) return fl_fail(FL_ERR_MEMORY, "pack: out of memory");
    workers = fl_pool_workers(workers);
    fl_status status = fl_files_source_new(&reading->source, "pack", root, paths, labels, count);
    for (; status == FL_OK && reading->first < count; reading->first += TOGETHER) {
        int64_t left = count - reading->first;
        status = pack_some(writer, reading, paths, left < TOGETHER ? left : TOGETHER, workers);
    }
    for (int i = 0; i < TOGETHER; i++) fl_item_close(&reading->items[i]);
    fl_item_source_free(reading->source);
    free(reading);
    return status;
}

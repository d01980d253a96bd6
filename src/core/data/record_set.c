/*
** record_set.c -- files of records as one dataset (see record_set.h), and as a source of bytes.
*/
#include "record_set.h"
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fl_status no_memory(void) { return fl_fail(FL_ERR_MEMORY, "records: out of memory"); }

fl_record_set *fl_record_set_ref(fl_record_set *set)
{
    __atomic_add_fetch(&set->refs, 1, __ATOMIC_RELAXED);
    return set;
}

void fl_record_set_unref(fl_record_set *set)
{
    if (!set || __atomic_sub_fetch(&set->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
    for (int i = 0; i < set->file_count; i++) fl_records_close(set->files[i]);
    fl_record_schema_free(&set->schema);
    free(set->files);
    free(set->starts);
    free(set->good);
    free(set);
}

/* ---- reading ---- */

const fl_records *fl_record_set_find(int64_t *number, const fl_record_set *set, int64_t position)
{
    int64_t record = set->good ? set->good[position] : set->first + position;
    int low = 0, high = set->file_count - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (set->starts[middle] <= record) low = middle;
        else high = middle - 1;
    }
    *number = record - set->starts[low];
    return set->files[low];
}

fl_status fl_record_set_copy(fl_record_field *fields, void *const *to, const fl_record_set *set, int64_t position,
                             int64_t soon)
{
    int64_t number, number_soon;
    const fl_records *file = fl_record_set_find(&number, set, position);
    const fl_records *file_soon = soon < 0 ? NULL : fl_record_set_find(&number_soon, set, soon);
    return fl_records_copy(fields, to, file, number, set->options.checksum,
                           file_soon ? fl_records_place(file_soon, number_soon) : NULL);
}

fl_status fl_record_set_read(fl_record_field *fields, const fl_record_set *set, int64_t position)
{
    return fl_record_set_copy(fields, NULL, set, position, -1);
}

void fl_record_set_prefetch(const fl_record_set *set, int64_t position)
{
    int64_t number;
    const fl_records *file = fl_record_set_find(&number, set, position);
    fl_records_prefetch(file, number);
}

fl_status fl_record_set_check(const fl_record_set *set, int64_t position)
{
    int64_t number;
    const fl_records *file = fl_record_set_find(&number, set, position);
    return fl_records_check(file, number);
}

int fl_record_set_column(const fl_record_set *set, const char *name)
{
    for (int i = 0; i < set->schema.count && !set->schema.list; i++)
        if (strcmp(set->schema.columns[i].name, name) == 0) return i;
    return -1;
}

/* ---- opening ---- */

static fl_status open_files(fl_record_set *set, const char *const *paths, int count)
{
    set->files = calloc((size_t)count + 1, sizeof *set->files);
    set->starts = calloc((size_t)count + 1, sizeof *set->starts);
    if (!set->files || !set->starts) return no_memory();
    for (int i = 0; i < count; i++) {
        FL_TRY(fl_records_open(&set->files[i], paths[i], set->options.skip));
        set->file_count++;
        set->starts[i + 1] = set->starts[i] + fl_records_count(set->files[i]);
        fl_status status = fl_record_schema_merge(&set->schema, fl_records_schema(set->files[i]));
        if (status != FL_OK) return fl_fail_prefix(status, "records: %s does not fit %s: ", paths[i], paths[0]);
    }
    return FL_OK;
}

/* The first count % parts parts have one record more. */
static void take_part(fl_record_set *set)
{
    int64_t total = set->starts[set->file_count], parts = set->options.num_parts, index = set->options.part_index;
    int64_t base = total / parts, extra = total % parts;
    set->first = base * index + (index < extra ? index : extra);
    set->count = base + (index < extra);
}

/* ---- leaving out damaged records ---- */

enum { CHECKED_TOGETHER = 64 };

struct search {
    fl_record_set *set;
    unsigned char *bad; /* one for each record of the part */
};

static fl_status check_some(void *context, int64_t item, int seat)
{
    struct search *s = context;
    fl_record_field fields[FL_RECORD_FIELDS];
    int64_t begin = item * CHECKED_TOGETHER, end = begin + CHECKED_TOGETHER;
    (void)seat;
    for (int64_t i = begin; i < end && i < s->set->count; i++) {
        int64_t number;
        const fl_records *file = fl_record_set_find(&number, s->set, i);
        s->bad[i] = fl_records_read(fields, file, number, true) != FL_OK;
    }
    return FL_OK;
}

static fl_status keep_good(fl_record_set *set, const unsigned char *bad)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < set->count; i++) set->skipped += bad[i];
    if (set->skipped == 0) return FL_OK;
    int64_t *good = malloc(sizeof *good * (size_t)(set->count + 1));
    if (!good) return no_memory();
    for (int64_t i = 0; i < set->count; i++)
        if (!bad[i]) good[kept++] = set->first + i;
    set->good = good;
    set->count = kept;
    return FL_OK;
}

static fl_status leave_out_damaged(fl_record_set *set)
{
    struct search s = {set, calloc((size_t)set->count + 1, 1)};
    if (!s.bad) return no_memory();
    fl_status status = fl_pool_run((set->count + CHECKED_TOGETHER - 1) / CHECKED_TOGETHER, set->options.workers,
                                   check_some, &s);
    if (status == FL_OK) status = keep_good(set, s.bad);
    free(s.bad);
    return status;
}

fl_status fl_record_set_open(fl_record_set **out, const char *const *paths, int count, fl_record_options options)
{
    fl_record_set *set = calloc(1, sizeof *set);
    if (!set) return no_memory();
    set->refs = 1;
    set->options = options;
    set->options.workers = fl_pool_workers(options.workers);
    fl_status status = open_files(set, paths, count);
    if (status == FL_OK) {
        take_part(set);
        if (options.skip) status = leave_out_damaged(set);
    }
    if (status != FL_OK) fl_record_set_unref(set);
    else *out = set;
    return status;
}

/* ---- as a source ---- */

struct record_source {
    fl_item_source source;
    const char *who;
    fl_record_set *set;     /* owned: one reference */
    int bytes, label, name; /* columns; -1: none */
};

static fl_status source_read(const fl_item_source *source, fl_item *item, int64_t index)
{
    const struct record_source *s = (const struct record_source *)source;
    fl_record_field fields[FL_RECORD_FIELDS];
    int64_t number;
    const fl_records *file = fl_record_set_find(&number, s->set, index);
    snprintf(item->name, sizeof item->name, "%s: record %lld", fl_records_path(file), (long long)number);
    FL_TRY(fl_records_read(fields, file, number, s->set->options.checksum));
    if (s->name >= 0)
        snprintf(item->name, sizeof item->name, "%s: record %lld (%.*s)", fl_records_path(file), (long long)number,
                 (int)(fields[s->name].bytes < FL_SHOWN_TEXT ? fields[s->name].bytes : FL_SHOWN_TEXT),
                 (const char *)fields[s->name].value);
    if (fields[s->bytes].bytes > FL_ITEM_MOST)
        return fl_fail(FL_ERR_IO, "%s: %s: %lld bytes are more than %d", s->who, item->name,
                       (long long)fields[s->bytes].bytes, FL_ITEM_MOST);
    item->bytes = fields[s->bytes].value;
    item->size = (size_t)fields[s->bytes].bytes;
    item->has_label = s->label >= 0;
    item->label = 0;
    if (s->label >= 0) memcpy(&item->label, fields[s->label].value, sizeof item->label);
    return FL_OK;
}

static void source_free(fl_item_source *source)
{
    struct record_source *s = (struct record_source *)source;
    fl_record_set_unref(s->set);
    free(s);
}

static const fl_item_source_kind record_kind = {source_read, source_free};

/* The column of this name and kind. */
static fl_status find_column(int *out, const char *who, const fl_record_set *set, const char *name, fl_record_kind kind)
{
    char is[FL_RECORD_TYPE];
    *out = fl_record_set_column(set, name);
    if (*out < 0) return fl_fail(FL_ERR_VALUE, "%s: the records have no field '%s'", who, name);
    const fl_record_column *c = &set->schema.columns[*out];
    if (c->kind == kind) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: field '%s' of the records must be %s %s, it is %s", who, name,
                   kind == FL_RECORD_INTEGER ? "an" : "a", fl_record_kind_name(kind),
                   fl_record_type_text(is, c->kind, c->dtype));
}

fl_status fl_record_source_new(fl_item_source **out, const char *who, fl_record_set *set, const char *bytes,
                               const char *label)
{
    struct record_source made = {.source = {&record_kind, set->count}, .who = who, .label = -1};
    FL_TRY(find_column(&made.bytes, who, set, bytes, FL_RECORD_STRING));
    if (label) FL_TRY(find_column(&made.label, who, set, label, FL_RECORD_INTEGER));
    made.name = fl_record_set_column(set, "name");
    if (made.name >= 0 && set->schema.columns[made.name].kind != FL_RECORD_STRING) made.name = -1;
    struct record_source *source = malloc(sizeof *source);
    if (!source) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", who);
    made.set = fl_record_set_ref(set);
    *source = made;
    *out = &source->source;
    return FL_OK;
}

/*
** growing.h -- bytes and numbers that grow: passed between the steps of a tokenizer.
*/
#ifndef FL_GROWING_H
#define FL_GROWING_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes without a final 0. data: owned, by fl_text_free. */
typedef struct fl_text {
    unsigned char *data;
    size_t size, room;
} fl_text;

/* Bytes [begin, end) of a text. */
typedef struct fl_span {
    size_t begin, end;
} fl_span;

typedef struct fl_spans {
    fl_span *list; /* owned */
    size_t count, room;
} fl_spans;

/* Numbers of tokens. */
typedef struct fl_ids {
    int32_t *list; /* owned */
    size_t count, room;
} fl_ids;

/* Room for `more` entries of `width` bytes behind `count`. Error: FL_ERR_MEMORY, and nothing has changed. */
fl_status fl_grow(void **list, size_t *room, size_t count, size_t more, size_t width);

static inline fl_status fl_text_reserve(fl_text *text, size_t more)
{
    if (text->room - text->size >= more && text->data) return FL_OK;
    return fl_grow((void **)&text->data, &text->room, text->size, more, 1);
}

static inline fl_status fl_text_add(fl_text *text, const void *data, size_t size)
{
    FL_TRY(fl_text_reserve(text, size));
    if (size) memcpy(text->data + text->size, data, size);
    text->size += size;
    return FL_OK;
}

static inline fl_status fl_spans_add(fl_spans *pieces, size_t begin, size_t end)
{
    if (pieces->count == pieces->room)
        FL_TRY(fl_grow((void **)&pieces->list, &pieces->room, pieces->count, 1, sizeof *pieces->list));
    pieces->list[pieces->count++] = (fl_span){begin, end};
    return FL_OK;
}

static inline fl_status fl_ids_reserve(fl_ids *ids, size_t more)
{
    if (ids->room - ids->count >= more && ids->list) return FL_OK;
    return fl_grow((void **)&ids->list, &ids->room, ids->count, more, sizeof *ids->list);
}

static inline fl_status fl_ids_add(fl_ids *ids, int32_t id)
{
    FL_TRY(fl_ids_reserve(ids, 1));
    ids->list[ids->count++] = id;
    return FL_OK;
}

void fl_text_free(fl_text *text);
void fl_spans_free(fl_spans *pieces);
void fl_ids_free(fl_ids *ids);

#endif

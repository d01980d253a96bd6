/*
** growing.c -- growing (see growing.h).
*/
#include "growing.h"

#include <stdlib.h>

fl_status fl_grow(void **list, size_t *room, size_t count, size_t more, size_t width)
{
    size_t least = count + more, wanted = count + count / 2 + 32;
    if (wanted < least) wanted = least;
    void *grown = least < count || wanted > SIZE_MAX / 2 / width ? NULL : realloc(*list, wanted * width);
    if (!grown) return fl_fail(FL_ERR_MEMORY, "out of memory");
    *list = grown;
    *room = wanted;
    return FL_OK;
}

void fl_text_free(fl_text *text)
{
    free(text->data);
    *text = (fl_text){0};
}

void fl_spans_free(fl_spans *pieces)
{
    free(pieces->list);
    *pieces = (fl_spans){0};
}

void fl_ids_free(fl_ids *ids)
{
    free(ids->list);
    *ids = (fl_ids){0};
}

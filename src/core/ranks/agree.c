/*
** agree.c -- one control message that carries the outcome of every rank's part (see agree.h).
*/
#include "agree.h"
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 1024 }; /* of an error; a longer one is cut */

struct report {
    int32_t status;
    char message[TEXT];
};

/* reports [count][each] -> all [count][bytes], or the first error. */
static fl_status read_reports(void *all, const char *reports, int count, size_t bytes)
{
    size_t each = sizeof(struct report) + bytes;
    for (int i = 0; i < count; i++) {
        struct report r;
        memcpy(&r, reports + (size_t)i * each, sizeof r);
        if (r.status != FL_OK) return fl_fail((fl_status)r.status, "rank %d: %s", i, r.message);
    }
    for (int i = 0; i < count && bytes > 0; i++)
        memcpy((char *)all + (size_t)i * bytes, reports + (size_t)i * each + sizeof(struct report), bytes);
    return FL_OK;
}

int fl_agree_count(void) { return fl_comm_refusal ? 1 : fl_world_get()->size; }

int fl_agree_rank(void) { return fl_comm_refusal ? 0 : fl_world_get()->rank; }

fl_status fl_agree(const char *what, fl_status mine, void *all, const void *facts, size_t bytes)
{
    int count = fl_agree_count();
    if (count == 1) {
        if (mine == FL_OK && bytes > 0) memcpy(all, facts, bytes);
        return mine;
    }
    struct report own = {.status = mine};
    if (mine != FL_OK) snprintf(own.message, TEXT, "%s", fl_message());
    fl_group *world;
    fl_status status = fl_group_world(&world);
    if (status != FL_OK) return mine != FL_OK ? fl_fail(mine, "%s", own.message) : fl_fail_prefix(status, "%s: ", what);
    size_t each = sizeof own + bytes;
    char *buffer = calloc((size_t)count + 1, each); /* this rank's, then those of all ranks */
    if (!buffer) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", what);
    memcpy(buffer, &own, sizeof own);
    if (bytes > 0) memcpy(buffer + sizeof own, facts, bytes);
    status = fl_comm_share(world, what, buffer + each, buffer, each, 0);
    if (status == FL_OK) status = read_reports(all, buffer + each, count, bytes);
    free(buffer);
    return status;
}

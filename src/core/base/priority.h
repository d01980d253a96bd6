/*
** priority.h -- priorities of tasks among the ops and of collectives in captured steps: which goes first.
*/
#ifndef FL_PRIORITY_H
#define FL_PRIORITY_H

#include "status.h"

#include <stdbool.h>

enum { FL_PRIORITY_LAST = -1, FL_PRIORITY_FIRST = 1, FL_PRIORITIES = FL_PRIORITY_FIRST - FL_PRIORITY_LAST + 1 };

static inline bool fl_priority_is(int64_t value) { return value >= FL_PRIORITY_LAST && value <= FL_PRIORITY_FIRST; }

/* Its place in a list that begins with the highest. */
static inline int fl_priority_place(int priority) { return FL_PRIORITY_FIRST - priority; }

/* The error that `who` got something else, as a text. */
static inline fl_status fl_priority_fail(const char *who, const char *got)
{
    return fl_fail(FL_ERR_VALUE, "%s: priority must be 1, 0 or -1, got %s", who, got);
}

fl_status fl_priority_check(const char *who, int64_t value);

#endif

/*
** agree.h -- the ranks of the world succeed together or fail together.
**
** A step of one rank alone (opening a file, writing its part) can fail on one of them. They exchange the outcome
** before they continue, so that no rank waits for one that has failed, and all report the same error.
*/
#ifndef FL_AGREE_H
#define FL_AGREE_H

#include "base/status.h"

#include <stddef.h>

/* Called by every rank of the world with what became of its part of `what`; FL_OK when every part went well. Else the
** error of the first rank that failed, on all ranks, with the rank in front. `facts`, `bytes` of them, go to all ranks,
** in the order of ranks: all [fl_agree_count()][bytes]; NULL and 0 when there are none. A rank that is alone gets
** `mine`. Errors of its own: FL_ERR_COMM, FL_ERR_MEMORY. */
fl_status fl_agree(const char *what, fl_status mine, void *all, const void *facts, size_t bytes);

/* Number of ranks that exchange outcomes, and the index of this one: those of the world; inside flow.on_rank a rank is
** alone, 0 of 1. */
int fl_agree_count(void);
int fl_agree_rank(void);

#endif

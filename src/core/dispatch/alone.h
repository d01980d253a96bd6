/*
** alone.h -- while this rank runs what the others do not: flow.on_rank, "@2" in a session.
**
** It may not communicate, its ops are in no history, and its random numbers are not missing in the ranks' common
** sequence. On the script's thread; may be nested.
*/
#ifndef FL_ALONE_H
#define FL_ALONE_H

#include "value/random.h"

typedef struct fl_alone {
    const char *outside; /* fl_comm_refusal before */
    fl_generator before;
} fl_alone;

/* who: for messages; borrowed until the end. */
void fl_alone_begin(fl_alone *alone, const char *who);
void fl_alone_end(const fl_alone *alone);

#endif

/*
** shared_internal.h -- what the first page of an arena holds: shared.c, journal.c and channel.c lay it out.
*/
#ifndef FL_SHARED_INTERNAL_H
#define FL_SHARED_INTERNAL_H

#include "journal.h"
#include "memory/arena.h"

#include <pthread.h>

enum { FL_CHANNEL_BUCKETS = 128 };

/* Each word has one writer, the rank that owns the arena, save for the counters of the journal marked atomic and the
** lock, which the kernel releases. */
typedef struct fl_shared_head {
    uint64_t cookie; /* by which peers check that they opened the right file */
    fl_journal journal;
    pthread_mutex_t lock;                  /* of the host's first rank: fl_shared_lock */
    uint64_t channel_bytes;                /* taken behind the head so far; never given back */
    uint64_t channels[FL_CHANNEL_BUCKETS]; /* by hash: offset of the newest side; 0: none */
} fl_shared_head;
_Static_assert(sizeof(fl_shared_head) <= FL_ARENA_PAGE, "the head is one page");

/* Of a rank whose arena is mapped here. */
fl_shared_head *fl_shared_head_of(int rank);

/* The rank of this process as its peers count, -1 without an arena of its own. */
int fl_shared_me(void);

/* The journal goes on in `place`, where peers can read it; NULL: in private memory again. */
void fl_journal_move(fl_journal *place);

/* That of the first rank of this host that has an arena; NULL: nothing is shared. */
fl_shared_head *fl_shared_first_head(void);

#endif

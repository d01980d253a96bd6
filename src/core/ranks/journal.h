/*
** journal.h -- the state of each rank, readable by its peers on the host even when it is dead.
*/
#ifndef FL_JOURNAL_H
#define FL_JOURNAL_H

#include "site.h"

typedef enum fl_rank_state {
    FL_RANK_STARTING,
    FL_RANK_RUNNING,
    FL_RANK_ENDED,  /* the script is through */
    FL_RANK_FAILED, /* see `message` */
    FL_RANK_STOPPED /* the launcher ends it, because the job ends */
} fl_rank_state;

typedef struct fl_journal {
    int32_t rank, pid;
    int32_t state; /* fl_rank_state */
    int32_t reporter,
        reported;             /* atomic; of the host's first rank: which rank reports how the job failed (failure.c) */
    int64_t op;               /* of the last op dispatched: FL_JOURNAL_PLACE of its descriptor; 0: none yet */
    uint64_t ops;             /* dispatched so far: progress that a waiting peer can read */
    uint64_t meetings;        /* collectives entered so far, of all groups */
    uint64_t evaluations;     /* lines of a session that this rank has finished */
    fl_collective collective; /* the last collective entered */
    int32_t listens;          /* SIGUSR2 makes this rank write its line */
    uint32_t answers;         /* atomic: given so far */
    char line[FL_WHERE_TEXT]; /* the last answer */
    uint64_t meeting;         /* atomic; it waits there for the others: its number, of `meetings`; 0: it does not */
    uint64_t sequence;        /* of that meeting in its group */
    uint64_t
        /* atomic; offset of this rank's side of the channel it waits in; 0: it is not in shared memory, or the
        ** others may take any time */
        channel;
    uint64_t stuck;     /* atomic; its last meeting that it found to be in a deadlock */
    char message[1024]; /* when failed: the text after "rank 2": ": train.lua:31: attempt to ..." */
} fl_journal;

/* This rank's, never NULL (a private one when there is no arena). */
FL_OWN extern fl_journal *fl_journal_own;

/* The offset of a descriptor in the program: the same number on all ranks, wherever the program was loaded. */
#define FL_JOURNAL_PLACE(op) ((const char *)(op) - (const char *)&fl_journal_own)

/* Another rank's; NULL when it is on another host. */
const fl_journal *fl_journal_of(int rank);

/* That of the first rank on this host, which keeps what concerns them all. Never NULL: without shared memory this
** rank's. */
fl_journal *fl_journal_first(void);

/* The name of the last op that a journal's rank dispatched, NULL before the first. All ranks run the same program
** file, so a descriptor of the program lies at the same distance from its start. */
const char *fl_journal_op(const fl_journal *journal);

/* The place of a journal's rank: ", in all-gather of float32[8], S(0) -> B (train.lua:44); its last op is matmul"; ""
** when there is nothing in it. Async-signal-safe. */
enum { FL_RANK_PLACE_TEXT = FL_COLLECTIVE_TEXT + 64 };
const char *fl_rank_place_text(char *buffer, const fl_journal *journal);

#endif

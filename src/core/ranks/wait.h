/*
** wait.h -- waiting for other ranks: the time-out, deaths, Ctrl-C.
*/
#ifndef FL_WAIT_H
#define FL_WAIT_H

#include "group.h"
#include "site.h"

enum {
    FL_WAIT_IDLE = 1,   /* the others may take any time (a prompt): no time-out, no Ctrl-C, sleeps */
    FL_WAIT_DATA = 2,   /* all have met and data are moving, in memory of this rank too: Ctrl-C does not end that */
    FL_WAIT_DEVICE = 4, /* with DATA: they move between devices, for members too whose scripts have gone on or ended */
    FL_WAIT_PEER = 8    /* for a message of one rank, or for it to take one: no collective */
};

/* One wait for other ranks: spins, then yields (at once when the host has more ranks than cores), then sleeps. */
typedef struct fl_wait {
    const fl_group *group;
    unsigned flags;                                /* FL_WAIT_IDLE, FL_WAIT_DATA, FL_WAIT_DEVICE */
    const fl_collective *collective;               /* that waits; NULL: the collective this rank entered last */
    bool (*missing)(const fl_group *group, int i); /* true if member i has not entered; NULL: unknown */
    int spins;                                     /* from here on the wait's own, 0 at first */
    uint64_t started, looked, interrupted, progress;
} fl_wait;

/* To be called between looks. An error ends the wait: time-out (with the missing members and their places),
** a missing member that has ended, died or failed, Ctrl-C. */
FL_EXPORT fl_status fl_wait_step(fl_wait *wait);

/* The same without a pause, for callers that poll now and then: clock and deaths. */
FL_EXPORT fl_status fl_wait_poll(fl_wait *wait);

/* Ranks on this host, set by the transport: with more than cores, waits yield at once. */
FL_OWN extern int fl_comm_host_ranks;

/* ---- sessions: lines of input that all ranks evaluate ---- */

/* True after Ctrl-C: the next meeting then stops all its members at the same point. NULL: no session. */
FL_OWN extern bool (*fl_comm_stopping)(void);
static inline bool fl_comm_is_stopping(void) { return fl_comm_stopping && fl_comm_stopping(); }

/* True if this rank stopped waiting because a missing member had finished the line (by its journal), or because another
** rank stopped for that reason. */
FL_OWN extern bool fl_comm_peer_gone;

#endif

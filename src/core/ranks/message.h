/*
** message.h -- messages from one rank to another, outside of collectives.
**
** A message is a head, a few bytes that describe it, and a body, the bytes of a contiguous tensor on the CPU,
** or nothing. Messages between two ranks arrive in the order in which they were sent. An answer is a message too, and
** its head may be the text of an error. All of them travel on the communication lane. A wait for one rank ends with an
** error when that rank has died or ended, or after the time-out (wait.h).
*/
#ifndef FL_MESSAGE_H
#define FL_MESSAGE_H

#include "base/status.h"
#include "memory/tensor.h"

enum { FL_MESSAGE_HEAD = 1000 }; /* bytes at most */

/* A message to another rank: `name` is for messages ("kvstore push"), a constant. head, body: borrowed; body may be
** NULL. */
typedef struct fl_outgoing {
    const char *name;
    int to;
    const void *head;
    size_t head_bytes;
    fl_tensor *body;
} fl_outgoing;

/* Queues a message. The body is read when its writers are done; nothing is waited for. */
fl_status fl_message_send(const fl_outgoing *message);

/* Queues a message and the wait for its answer, whose body is written to `out` (NULL: it has none). The error of an
** answer poisons `out`; without one it is filed for the next sync. */
fl_status fl_message_fetch(const fl_outgoing *message, fl_tensor *out);

/* Sends a message, waits for its answer and gives its head; freed by the caller. */
fl_status fl_message_ask(char **answer, size_t *bytes, const fl_outgoing *message);

/* ---- ranks that serve ---- */

/* A message that has come. */
typedef struct fl_incoming {
    int from; /* -1: none came in the time */
    size_t head_bytes;
    uint64_t body_bytes; /* to be read by fl_message_read before the next message */
    char head[FL_MESSAGE_HEAD];
} fl_incoming;

/* The next message from any rank; waits for it for so many seconds at most. While other ranks make progress so does
** this one, for those who wait for it. */
fl_status fl_message_next(fl_incoming *message, double seconds);

/* The body of the last message of rank `from`. */
fl_status fl_message_read(int from, fl_tensor *out);

/* Sends an answer; failed: its head is the text of an error. */
fl_status fl_message_answer(const fl_outgoing *answer, bool failed);

/* The state of a rank. Those of other hosts always seem to run. */
typedef enum fl_peer_state { FL_PEER_RUNS, FL_PEER_ENDED, FL_PEER_DIED } fl_peer_state;
fl_peer_state fl_message_peer(int rank);

#endif

/*
** engine_internal.h -- what the files of the engine share: lanes, slots, poison, pending checks, profile.
**
** engine.c decides (push, waits, modes), lane.c executes (rings, threads, sleeping), poison.c handles the
** variables of an op that fails or is skipped, late_check.c those of one that may still fail on its device, profile.c
** keeps the times of ops.
** "The pusher" is the one thread that pushes and waits.
*/
#ifndef FL_ENGINE_INTERNAL_H
#define FL_ENGINE_INTERNAL_H

#include "control.h"
#include "engine.h"
#include "base/clock.h"

#include <pthread.h>

enum { FL_LINE_TEXT = 64, FL_SLOT_BYTES = 864 };

/* ---- poison ---- */

enum { FL_NAME_TEXT = 40 };
struct fl_poison {
    int refs;      /* atomic */
    bool reported; /* atomic: it was raised */
    struct fl_poison
        *cause; /* owned, or NULL: of an operand, on this rank, of a collective that was entered all the same */
    fl_status status;
    char op[FL_NAME_TEXT]; /* the subject of the message */
    char line[FL_LINE_TEXT];
    char message[];
};

/* Borrowed; NULL: the variable is clean, or pending. */
fl_poison *fl_poison_of(const fl_var *var);

/* Puts `poison` (borrowed; NULL: clean) in place of the variable's. */
void fl_poison_put(fl_var *var, fl_poison *poison);

/* Words the poison as this thread's error ("op (train.lua:41): message") and returns its status. */
fl_status fl_poison_raise(fl_poison *poison);

/* Raises the first filed error that was not raised yet, and empties the file; updates: or that an update was
** skipped for an error that was raised before. */
fl_status fl_poison_raise_filed(bool updates);

/* Runs a task on the calling thread under the rules of poison; returns its error, or a poisoned input's. */
fl_status fl_task_run_here(const fl_task *task);

/* The same for a queued task; errors that no result carries are filed. */
void fl_task_run_queued(const fl_task *task, const char *line);

/* Instead of running: the task's outputs are "cancelled". */
void fl_task_cancel(const fl_task *task, const char *line);

/* Failed ops so far. */
int64_t fl_poison_failures(void);

/* A failure that is known only now: returns its poison, one reference, and files it. cause: borrowed, or NULL. */
fl_poison *fl_poison_late(fl_status status, const char *op, const char *line, const char *message, fl_poison *cause);

/* Set when memory was lost (fl_var_lose) and no wait has seen it; atomic. */
FL_OWN extern fl_poison *fl_poison_lost;

/* Raises it unless it was raised before, and forgets it. */
fl_status fl_poison_raise_lost(void);

/* ---- pending checks ---- */

/* var->poison is a poison, or a set of pending checks with its lowest bit set (fl_is_pending). */
typedef struct fl_pending_checks fl_pending_checks;

/* The same for all that the task reads, also in its targets when it updates them; when not, they are not pending any
** more. */
fl_status fl_pending_settle_task(const fl_task *task);

/* Before a task is issued to a stream: what must be certain is waited for, what is certain by now is put into its
** variables. */
fl_status fl_pending_before(const fl_task *task);

/* After it: its targets are pending if an operand is, or the task itself (fl_engine_check_later). */
fl_status fl_pending_after(const fl_task *task);

/* All ops are complete: runs all checks. */
void fl_pending_run_all(void);

/* Runs the checks of the ops that are complete. */
void fl_pending_run_done(void);

void fl_pending_unref(fl_poison *tagged);

/* The task that is being issued to a stream, as the last of its lane; NULL: none is. */
FL_OWN extern const fl_task *fl_issuing;

/* ---- lanes ---- */

/* A stamp that a queued task waits for. */
typedef struct fl_need {
    fl_stamp stamp;
    int event; /* of an op of a stream, when a thread waits for it */
} fl_need;

/* A queued task with copies of all it needs. */
typedef struct fl_slot {
    fl_task task; /* payload and lists point into `bytes` or `block` */
    int need_count;
    fl_need *needs;  /* to be completed first, at most one per other lane; in `bytes` or `block` */
    uint64_t pushed; /* ns, when profiled; else 0 */
    char line[FL_LINE_TEXT];
    void *block; /* owned; for what does not fit into `bytes` */
    _Alignas(16) unsigned char bytes[FL_SLOT_BYTES];
} fl_slot;

/* A condition that threads sleep on: a sleeper takes a ticket, checks the condition once more, then sleeps until the
** next ring. */
typedef struct fl_wakeup {
    uint32_t rings;
    int sleepers;
} fl_wakeup;

/* An op of a stream that is timed: its line in the trace when it is complete. */
typedef struct fl_timed {
    const char *name;
    char line[FL_LINE_TEXT];
    uint64_t seq, pushed;
} fl_timed;

/* A lane that is a queue of a device: the events recorded in it, oldest first. */
typedef struct fl_stream {
    void *handle; /* the device's own */
    const fl_stream_ops *ops;
    int first, count; /* ring of events in use */
    uint64_t issuing; /* number of the op that is being issued; 0: none is */
    fl_timed
        *timed; /* owned; FL_STREAM_TIMES of them, made at the first one; op n of these is at n % FL_STREAM_TIMES */
    uint64_t timed_first, timed_next;  /* under way */
    uint64_t covers[FL_STREAM_EVENTS]; /* number of the last op before the event */
    uint64_t followed[FL_MAX_LANES];   /* this lane waits for op number.. of other streams already */
} fl_stream;

typedef struct fl_lane {
    _Alignas(64) uint64_t done;   /* atomic: ops completed */
    uint64_t wake_at;             /* atomic: the pusher sleeps until `done` reaches it; UINT64_MAX: it does not */
    fl_wakeup completed;          /* other lanes wait here */
    _Alignas(64) uint64_t tail;   /* atomic: ops published to the thread */
    bool quit;                    /* atomic */
    bool exited;                  /* atomic: the thread has left its loop */
    fl_wakeup work;               /* the lane's thread waits here */
    _Alignas(64) uint64_t pushed; /* from here on the pusher's own */
    uint64_t seen;                /* `done` as last read */
    fl_slot *ring;                /* owned; `size` slots, a power of two; made at the first queued op */
    uint64_t size;
    bool threaded;          /* false: driven by the pusher */
    bool running;           /* its thread exists */
    bool busy;              /* driven: an op of it is running now */
    fl_stream *stream;      /* owned; NULL: the host runs its ops */
    struct fl_lane *server; /* whose thread runs its ops; NULL: its own */
    struct fl_lane *next;   /* the lane of the same thread that comes after it; NULL: none */
    pthread_t thread;
    char name[24];
} fl_lane;

static inline fl_lane *fl_lane_server(fl_lane *lane) { return lane->server ? lane->server : lane; }

FL_OWN extern fl_lane fl_lanes[FL_MAX_LANES];
FL_OWN extern int fl_lane_count;
FL_OWN extern int64_t fl_driven_pending; /* ops queued on driven lanes */
FL_OWN extern bool fl_engine_cancelling; /* atomic: queued ops are cancelled instead of run */

static inline int fl_stamp_lane(fl_stamp stamp) { return (int)(stamp >> 56); }
static inline uint64_t fl_stamp_seq(fl_stamp stamp) { return stamp & 0xffffffffffffffull; }

/* The oldest event that covers op number seq of a stream; recorded now when there is none. */
fl_status fl_stream_event(int *event, fl_lane *lane, uint64_t seq);

/* True if the stream has completed its op number seq. Records an event behind it if there is none yet. */
bool fl_stream_reached(fl_lane *lane, uint64_t seq);

FL_OWN extern int64_t fl_stream_follows; /* waits of one stream for another */

/* Later issues to `lane` wait for op number seq of `other`; both are streams. */
fl_status fl_stream_follow(fl_lane *lane, fl_lane *other, uint64_t seq);

/* Around the issue of an op of a stream that the trace shall show. */
fl_status fl_stream_time_begin(fl_lane *lane, const char *name);
fl_status fl_stream_time_end(fl_lane *lane);

/* Hands the times of the ops that are known to be complete to the profile. */
void fl_stream_times(fl_lane *lane);

/* Pusher: true if `lane` has completed its op number seq. */
static inline bool fl_lane_reached(fl_lane *lane, uint64_t seq)
{
    if (FL_LIKELY(lane->seen >= seq)) return true;
    if (FL_UNLIKELY(lane->stream != NULL)) return fl_stream_reached(lane, seq);
    lane->seen = __atomic_load_n(&lane->done, __ATOMIC_ACQUIRE);
    return lane->seen >= seq;
}
static inline bool fl_stamp_done(fl_stamp stamp)
{
    return stamp == 0 || fl_lane_reached(&fl_lanes[fl_stamp_lane(stamp)], fl_stamp_seq(stamp));
}

/* Makes the ring and starts the thread when they are missing; a lane whose thread cannot start becomes driven. */
fl_status fl_lane_open(fl_lane *lane, const char *op);

/* Copies the task into the ring's next slot (there is room) and publishes it. */
fl_status fl_lane_put(fl_lane *lane, const fl_task *task, const fl_stamp *needs, int need_count);

/* Runs one ready op of a driven lane; false when there is none. */
bool fl_lanes_drive(void);

/* One step of waiting for op `seq` of `lane`: runs a driven op, spins or sleeps (at most 50 ms). True when
** it is complete. *spins counts from 0 and belongs to one wait. */
bool fl_lane_wait_step(fl_lane *lane, uint64_t seq, int *spins);

/* Ends the lane's thread, which has nothing left to do, by `deadline` (ns): false when it is stuck in an op. */
bool fl_lane_join(fl_lane *lane, uint64_t deadline);

/* Frees the ring of a lane without a thread. */
void fl_lane_close(fl_lane *lane);

/* ---- engine ---- */

/* interruptible: Ctrl-C and errors of a device end it; else they are left for the next wait. */
fl_status fl_engine_wait_stamp(fl_stamp stamp, bool interruptible);

/* fl_engine_wait_all without its errors: only FL_ERR_INTERRUPTED. */
fl_status fl_engine_wait_lanes(void);

/* ---- profile ---- */

void fl_profile_add(const char *name, const char *line, int lane, uint64_t pushed, uint64_t started, uint64_t ended);

/* ---- small things ---- */

/* The current line of the script, "" if unknown. */
static inline void fl_line_now(char *line)
{
    line[0] = '\0';
    if (fl_engine_where) fl_engine_where(line, FL_LINE_TEXT);
}

/* Sets fl_engine_direct anew (mode or profile have changed). */
void fl_engine_update_direct(void);

#endif

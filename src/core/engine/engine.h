/*
** engine.h -- asynchronous execution ordered by the variables functions read and write.
**
** Contract: two functions that share a variable at least one of them writes run in push order; push
** returns at once; fl_engine_wait_var and fl_engine_wait_all wait.
**
** Mechanism: executors are FIFO lanes. A dependency is a stamp (lane, sequence number), complete when
** the lane's done counter reaches it. The one thread that pushes (the thread that runs Lua) does all
** the bookkeeping in memory only it touches: no lock and no allocation per op. A wait always refers
** to an earlier push and lanes are FIFO in push order, so there is no deadlock. A full ring blocks the
** pusher, so a script cannot queue without bound.
**
** Lanes are threaded (their thread starts with the first queued op) or driven: a driven lane has no
** thread, the pusher runs its ready ops at pushes and in waits. The CPU lane is driven unless
** FLOW_ENGINE=queued: its ops use all cores anyway, so a hand-over to another thread would only cost
** its microseconds. FLOW_ENGINE=naive runs every op on the caller, waiting for what it needs.
**
** Lanes may share a thread, which gives tasks priorities: each lane keeps its order, so that its counter still says
** what is complete, and of their first tasks that could run the thread takes that of the lane named first.
**
** This header is for who pushes functions; control.h for who starts, watches and ends the engine.
*/
#ifndef FL_ENGINE_H
#define FL_ENGINE_H

#include "var.h"

#include <stddef.h>

enum { FL_MAX_LANES = FL_LANE_DEFERRED + 1 };

typedef enum fl_lane_id { FL_LANE_CPU, FL_LANE_IO, FL_LANE_COMM, FL_LANE_FIRST_FREE } fl_lane_id;

/* The function of a task. `payload` is the lane's own copy. An error poisons the variables it writes. */
typedef fl_status (*fl_exec)(void *payload);

enum {
    /* reads what it writes: not run when an input is poisoned; then targets stay clean and the error is filed for
    ** the next sync */
    FL_TASK_UPDATES = 1,
    FL_TASK_NO_SKIP = 2, /* runs even when an input is poisoned (collectives) */
    /* may run on the caller at once when everything it needs is complete, ahead of what its lane has queued; others
    ** keep the lane's order */
    FL_TASK_CHEAP = 4,
    /* may run on the caller when its lane has nothing queued, even if the lane has a thread: the lane's order is
    ** kept */
    FL_TASK_SHORT = 16,
    /* with UPDATES: writes all of its targets and does not read them, so that their own poison is no obstacle and gone
    ** afterwards */
    FL_TASK_OVERWRITES = 8,
    /* with UPDATES: its target has no value that could stay as it was, so it is missing where the task is not run */
    FL_TASK_UNSET = 64,
    /* its error matters only where its results are read: it is not filed (batches made ahead, which may never
    ** be taken) */
    FL_TASK_QUIET = 32
};

typedef struct fl_task {
    const char *name; /* op name, a constant */
    fl_exec run;
    const void *payload; /* copied when queued; a task that runs on the caller gets this block itself */
    size_t payload_size;
    fl_var *const *reads;
    fl_var *const *writes;
    int read_count, write_count; /* a variable is in one of the two lists, once */
    int update_count; /* the first of the writes, without FL_TASK_UPDATES: new values depend on the old ones, and are
                      ** missing where these are */
    const unsigned *checks; /* of each write: bits of the checks that the task makes later, in their order, which the
                            ** value depends on; NULL: on all */
    const char *line;       /* of the script, for errors; NULL: where it is now */
    int lane;
    unsigned flags;
} fl_task;

/* Runs or queues the task. Errors: that of a task that ran on the caller (its writes are poisoned too),
** of a poisoned input found on the spot, FL_ERR_MEMORY. */
fl_status fl_engine_push(const fl_task *task);

/* Extra threaded lane (tests, devices); errors when FL_LANE_DEFERRED exist. ring_size 0: default 1024. */
fl_status fl_engine_lane_new(int *lane, const char *name, int ring_size, bool threaded);

/* `count` threaded lanes that share a thread, the one of the highest priority first. */
fl_status fl_engine_lanes_new(int *lanes, const char *const *names, int count, int ring_size);

/* From now on the lane has no thread: the pusher drives it. Before anything was queued on it. */
void fl_engine_lane_drive(int lane);
bool fl_engine_lane_is_driven(int lane);

/* A queue of a device (a CUDA stream) as a lane: the pusher issues its ops at once, and they complete later, in order.
** Dependencies between two such lanes become events; the host waits only when it must. Events are numbered by the lane
** from 0 to FL_STREAM_EVENTS - 1 and reused in turn. */
enum { FL_STREAM_EVENTS = 64, FL_STREAM_TIMES = 128 };
typedef struct fl_stream_ops {
    fl_status (*record)(void *stream, int event);              /* marks the end of what was issued so far */
    bool (*reached)(void *stream, int event);                  /* does not wait; also true after an error */
    fl_status (*errors)(void *stream);                         /* why the device cannot be used any more; cheap */
    fl_status (*follow)(void *stream, void *other, int event); /* later issues to stream wait for other's event */
    /* For the trace; NULL: unknown. Marks begin and end of what is issued in between; when that is complete, its times
    ** in ns of CLOCK_MONOTONIC. Slots from 0 to FL_STREAM_TIMES - 1. */
    fl_status (*time)(void *stream, int slot, bool end);
    bool (*times)(void *stream, int slot, uint64_t *started, uint64_t *ended);
} fl_stream_ops;
FL_EXPORT fl_status fl_engine_stream_new(int *lane, const char *name, void *stream, const fl_stream_ops *ops);

/* An error in the data of an op on a stream is known only when the op has run. Called by its exec: the results of the
** op, and all results computed from them, are pending from then on, until a wait needs them. `run` is called once, by
** the pusher, when the op is complete: true if the op has failed, with the reason in `text` ("name: message", or the
** message alone). At most FL_MAX_PENDING are open at once: before there are more, the oldest is waited for. */
enum { FL_MAX_PENDING = 512 };
typedef bool fl_late_check(void *record, char *text, size_t size);
FL_EXPORT fl_status fl_engine_check_later(fl_late_check *run, void *record);

/* The same for one of several steps that the op consists of. op: a constant. At most FL_TASK_CHECKS for a task. */
enum { FL_TASK_CHECKS = 8 };
FL_EXPORT fl_status fl_engine_check_step_later(fl_late_check *run, void *record, const char *op, const char *line);

/* Checks that tasks have made later so far. */
int64_t fl_engine_checks_made(void);

/* True if it is known only later whether the variable has its value. */
static inline bool fl_is_pending(const fl_var *var)
{
    return (uintptr_t)__atomic_load_n(&var->poison, __ATOMIC_ACQUIRE) & 1;
}

/* Waits until it is certain whether the variable has its value: then it is clean or poisoned. Errors: of the wait. */
fl_status fl_pending_settle(fl_var *var);

/* Counts what was issued to `lane` (a stream) besides ops, so far: its stamp. */
fl_stamp fl_engine_issued(int lane);

/* Makes everything issued to `lane` (a stream) from now on wait for all that still touches the variable, which is
** forgotten. So its memory may be released in the lane's order. */
fl_status fl_engine_hand_over(fl_var *var, int lane);

/* Dispatch may run a ready op itself instead of pushing it: the mode is known and not queued, nothing is profiled. */
FL_OWN extern bool fl_engine_direct;

/* While on, fl_engine_direct is false: every op is a task. */
void fl_engine_watch(bool on);
FL_OWN extern int64_t fl_engine_direct_ops; /* ops it ran so */

#endif

/*
** control.h -- the engine as a whole: where the script is, waiting for everything, modes, counts, profiles, its end.
**
** For the host program and for those who only name a line or ask for the mode; engine.h is for who pushes functions.
*/
#ifndef FL_ENGINE_CONTROL_H
#define FL_ENGINE_CONTROL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The current line of the script: writes "train.lua:41" into buffer. Set by the host program; called when an op is
** queued, profiled or failed. */
FL_EXPORT extern void (*fl_engine_where)(char *buffer, size_t size);

/* Set by the host program; returns true after Ctrl-C: waits then return
** FL_ERR_INTERRUPTED and the engine stays usable. */
FL_OWN extern bool (*fl_engine_interrupted)(void);

/* Waits for everything; returns the first error filed since the last call: of queued ops that failed, unless it was
** raised already, and of updates and ops without outputs that were skipped. */
fl_status fl_engine_wait_all(void);

/* Computes all deferred values (var.h) that are still wanted. */
void fl_engine_compute_deferred(void);

/* The script is over: the first error of a queued op that was not raised yet. wait: after everything queued is
** done. */
fl_status fl_engine_end(bool wait);

/* Cancels what is queued ("cancelled" poison), joins the threads; < 1 s. The next push starts anew. false: a lane is
** still in an op, so nothing that ops use may be torn down: the process must end without exit. Libraries that ops use
** are torn down by exit before its handlers come to the engine, so the caller of exit stops the engine first. */
bool fl_engine_stop(void);

/* Ends the threads of parallel loops (team.h), after the engine's; the next loop starts them again. */
void fl_team_stop(void);

/* True while it does so: a long op may ask, on any thread, and end with an error. */
bool fl_engine_is_stopping(void);

typedef enum fl_engine_mode { FL_ENGINE_AUTO, FL_ENGINE_NAIVE, FL_ENGINE_QUEUED } fl_engine_mode;
fl_engine_mode fl_engine_mode_get(void);
void fl_engine_mode_set(fl_engine_mode mode); /* waits for all first */

typedef struct fl_engine_stats {
    int64_t inline_ops, queued_ops, waits, failed_ops;
    int64_t follows; /* waits of one stream for another */
    int lanes, threads;
} fl_engine_stats;
void fl_engine_stats_get(fl_engine_stats *out);

/* Profile ring: newest 65,536 ops. While on, dispatch too goes through fl_engine_push. A dump waits for all and, when
** the file is written, ends it. */
FL_OWN extern bool fl_engine_profiling;
fl_status fl_engine_profile_start(void);
fl_status fl_engine_profile_dump(const char *path); /* Chrome-trace JSON */

/* While profiling: reports work of the caller outside of tasks, from `started` (base/clock.h) until now. line: NULL:
** where the script is; steps: what it consists of, or NULL. The texts are copied. */
void fl_engine_profile_pass(const char *name, const char *line, const char *steps, uint64_t started);

#endif

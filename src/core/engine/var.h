/*
** var.h -- the variable that orders functions: every storage has one, and a task names those that it reads and writes.
*/
#ifndef FL_VAR_H
#define FL_VAR_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t fl_stamp; /* lane << 56 | sequence; 0: complete */

enum { FL_VAR_READERS = 4 };

/* Why a value is not there. Counted: poisoned variables share it. */
typedef struct fl_poison fl_poison;

/* Embedded in every storage. Zero-initialised is a fresh variable. Only the pushing thread touches
** the stamps and the version; `poison` is written by the thread that ran the op (with __atomic builtins). */
typedef struct fl_var {
    fl_stamp write;                 /* last write */
    fl_stamp reads[FL_VAR_READERS]; /* reads since, one per lane */
    uint8_t reader_count;
    bool given;        /* atomic: fl_var_give */
    bool exposed;      /* others look at its memory whenever they like: no write of it is put off */
    bool unset;        /* it has no value yet: made so (FL_OP_UNSET), and since then written in parts at most */
    uint32_t version;  /* bumped at every push that writes */
    fl_poison *poison; /* why the value is missing (or may be: late_check.c), or NULL */
} fl_var;

/* True when `var` may be read (no pending write) or written (nothing pending): the inline fast path of
** dispatch checks this, runs the kernel itself and calls fl_var_bump on what it wrote. */
static inline bool fl_var_readable(const fl_var *var) { return var->write == 0 && var->poison == NULL; }
static inline bool fl_var_writable(const fl_var *var)
{
    return var->write == 0 && var->reader_count == 0 && var->poison == NULL;
}
static inline void fl_var_bump(fl_var *var)
{
    var->version++;
    var->unset = false;
}

/* True when everything queued on it has completed; removes completed stamps, so that the checks above
** become true. */
bool fl_var_settle(fl_var *var);

/* Waits for the last writer (not for readers); then the poison as an error: message, op and line. */
fl_status fl_engine_wait_var(fl_var *var);

/* Waits for the last writer and for all readers: the memory may then be touched or freed. Not an error when
** poisoned. */
void fl_engine_wait_idle(fl_var *var);

/* ---- values that are computed when they are needed ---- */

/* The lane of stamps that no executor completes: `write` says that the value is not computed yet, a read that values
** not computed yet are computed from this one. Both complete when fl_var_computer is called with them, which whoever
** makes such stamps sets. */
enum { FL_LANE_DEFERRED = 96 }; /* after 32 of the host and those of 16 devices with 4 queues each */
static inline bool fl_stamp_is_deferred(fl_stamp stamp) { return stamp >> 56 == FL_LANE_DEFERRED; }
static inline bool fl_var_is_deferred(const fl_var *var) { return fl_stamp_is_deferred(var->write); }

/* Computes the value of `stamp`; all values, where it is a read or FL_STAMP_ALL. A failure poisons the variables. */
FL_OWN extern void (*fl_var_computer)(fl_stamp stamp);
#define FL_STAMP_ALL ((fl_stamp)FL_LANE_DEFERRED << 56 | 0xffffffffu)

/* Called before a task that writes the variable is pushed: values that need its old one are computed. */
FL_OWN extern void (*fl_var_before_write)(fl_var *var);

/* Notes, or forgets, that deferred values read the variable; false: all places for reads are taken. */
bool fl_var_mark_deferred_read(fl_var *var);
void fl_var_unmark_deferred_read(fl_var *var);

/* The reads and writes of a task as the engine takes them: each variable once, in the order of the lists, and not among
** the reads if it is written. The pushing thread. */
void fl_vars_once(fl_var **reads, int *read_count, fl_var **writes, int *write_count);

/* The script was given the variable, perhaps before its writer has run: if its value is missing, now or later, the next
** wait for everything raises the error, unless something has before. For writers whose errors are no news else
** (FL_TASK_QUIET). */
void fl_var_give(fl_var *var);

/* Drops the poison of the variable (zero_grad, an overwrite). */
void fl_var_clear(fl_var *var);

/* Why the value of the variable is missing, "op (train.lua:41): message", and the status of that error; FL_OK: it is
** not missing. Any thread that waits for its writer. */
fl_status fl_var_error(char *buffer, size_t size, const fl_var *var);

/* A poison of this thread's last message for memory that may be lost while it is used (file/mapping.h), one reference;
** given back with fl_poison_unref. */
fl_poison *fl_poison_prepare(fl_status status, const char *op);
void fl_poison_unref(fl_poison *poison);

/* The variable's memory is lost: poisons it. Values computed from it meanwhile are wrong and unmarked, so the next wait
** for any value raises the poison, too, if nothing has before. May be called in a handler of signals. */
void fl_var_lose(fl_var *var, fl_poison *poison);

/* Poisons the variable with this thread's last message. */
void fl_var_poison(fl_var *var, const char *op);

#endif

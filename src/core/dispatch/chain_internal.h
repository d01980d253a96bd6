/*
** chain_internal.h -- what the files of chains share: chain.c adds steps, chain_write.c sees to those that write in
** place, chain_compute.c computes them.
**
** A chain is a list of steps over local parts of one shape on one device. Its values are operands in memory (owned),
** numbers and results; a result is pending while its tensor lives and it is not computed.
**
** A result written in place has a home: the storage with the old value's block. All that is computed from the old value
** lies on the way to that result, so the block is free for it when its step has run.
*/
#ifndef FL_CHAIN_INTERNAL_H
#define FL_CHAIN_INTERNAL_H

#include "chain.h"
#include "chain_report.h"
#include "cpu/tiles.h"

enum {
    FL_CHAINS = 16,
    FL_CHAIN_MAX_VALUES = 56,
    FL_CHAIN_MAX_INPUTS = 8,
    FL_CHAIN_MAX_ROOM = FL_TILES_STEPS - FL_EW_MAX_IN - 2 /* steps of tiles, with conversions */
};

typedef enum fl_chain_role { FL_VALUE_UNUSED, FL_VALUE_INPUT, FL_VALUE_NUMBER, FL_VALUE_RESULT } fl_chain_role;

typedef struct fl_chain_value {
    uint8_t role;  /* fl_chain_role */
    bool pending;  /* a result that is not computed, whose tensor lives */
    bool kept;     /* to be stored when it is computed for another */
    bool computed; /* once already, without being stored */
    bool guessed;  /* kept because such results were computed twice before */
    fl_dtype dtype;
    uint64_t needs;              /* the values it is computed from and itself, a bit each */
    fl_storage *storage;         /* input: owned; pending: its tensor's */
    fl_storage *home;            /* pending, written in place: whose block it gets; owned */
    int64_t offset;              /* input: bytes */
    int64_t stride[FL_MAX_NDIM]; /* input: along the chain's axes, 0 where broadcast */
    int64_t number[1];
    /* a result: */
    const char *name;                         /* of the op */
    char line[FL_CHAIN_LINE];                 /* that called it, while passes are reported */
    uint8_t row, room, nin, in[FL_EW_MAX_IN]; /* room: steps of tiles that it may take */
    uint8_t lesson;                           /* index into fl_chain_lessons */
    fl_dtype compute;
    union {
        fl_ew_attr attributes[FL_EW_ATTRS]; /* of a row */
        struct {
            fl_draw draw;
            uint64_t first; /* logical index of the first element */
        };
    };
    bool draws; /* neither a row nor this: a cast */
} fl_chain_value;

typedef struct fl_chain {
    int count, inputs, patterns, room, ndim;
    bool open;               /* takes more steps */
    bool busy;               /* is being computed */
    const fl_device *device; /* NULL: the host */
    int device_index, lane;
    uint64_t pending, age; /* bits of values */
    int64_t size[FL_MAX_NDIM], numel;
    fl_chain_value values[FL_CHAIN_MAX_VALUES];
} fl_chain;

FL_OWN extern fl_chain fl_chains[FL_CHAINS];
FL_OWN extern int fl_chain_forcing; /* computations under way */

/* Remaining times that results of an op and shape (a hash of them) are stored although they are computed for another:
** set when one was computed twice and that cost much. A wrong guess costs a store, and guesses run out. */
FL_OWN extern uint8_t fl_chain_lessons[256];
enum { FL_CHAIN_LESSON = 8 };

/* True if the value's step and those of its operands take so long that storing it for a second use is cheaper. (By all
** steps that it needs, every late step of a long chain would be.) */
bool fl_chain_is_costly(const fl_chain *chain, const fl_chain_value *value);

/* ---- stamps of pending results ---- */

static inline fl_stamp fl_chain_stamp(const fl_chain *chain, int value)
{
    return (fl_stamp)FL_LANE_DEFERRED << 56 | (fl_stamp)(chain - fl_chains) << 8 | (fl_stamp)(value + 1);
}

/* The chain of a pending value's stamp. */
static inline fl_chain *fl_chain_of_stamp(fl_stamp stamp, int *value)
{
    *value = (int)(stamp & 0xff) - 1;
    return &fl_chains[stamp >> 8 & 0xffff];
}

/* ---- contents of a chain (chain.c) ---- */

/* Gives back what no pending result needs; a chain without any is empty. */
void fl_chain_tidy(fl_chain *chain);

/* The value is not pending any more. */
void fl_chain_set_done(fl_chain *chain, int value);

/* True if ops may be deferred now, of whatever kind. */
bool fl_chain_may_wait(void);

/* Counts the needs of the results anew: some operands may lie in memory now. */
void fl_chain_refresh_needs(fl_chain *chain);

/* The values, a bit each, that results are computed from, with themselves. */
uint64_t fl_chain_needed_by(const fl_chain *chain, uint64_t results);

/* The pending value of the chain that the tensor is as a whole, or -1. */
int fl_chain_pending_value(const fl_chain *chain, const fl_tensor *tensor);

/* ---- writing in place (chain_write.c) ---- */

/* True if the op that writes operand 0 may become a step. Results of the old value that are still wanted are computed
** first. */
bool fl_chain_make_writable(const fl_tensor *target);

/* True if nothing is computed from the storage's value, now or in a queue. */
bool fl_chain_is_unread(fl_storage *storage);

/* True if the chain's operands take much memory, without those that its results are written to. */
bool fl_chain_holds_much(const fl_chain *chain);

/* True if the values are computed from memory that may be lost meanwhile. The old value would be lost too; the op on
** its own writes nothing. */
bool fl_chain_may_lose(const fl_chain *chain, uint64_t values);

/* Before the step is added: `before` is the pending value that it writes, or -1 where the value is in memory. */
typedef struct fl_chain_target {
    fl_storage *storage, *home;
    int before;
} fl_chain_target;

/* False: there is no memory. */
bool fl_chain_target_open(fl_chain_target *target, const fl_chain *chain, const fl_tensor *tensor);

/* Value i is what is written. */
void fl_chain_target_close(fl_chain_target *target, fl_chain *chain, int i);

/* ---- computing (chain_compute.c) ---- */

/* The pending results that are computed from the variable's storage. */
uint64_t fl_chain_readers_of(const fl_chain *chain, const fl_var *var);

/* Computes pending results, a bit each; stores those of `also` with them, if there is memory for them. Results that
** fail are poisoned. */
void fl_chain_compute(fl_chain *chain, uint64_t wanted, uint64_t also);

/* The hooks of the engine: see var.h. */
void fl_chain_compute_stamp(fl_stamp stamp);
void fl_chain_before_write(fl_var *var);

#endif

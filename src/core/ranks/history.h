/*
** history.h -- the ops on global tensors that this rank has carried out, so that a collective can detect ranks that run
** different programs.
**
** Every set of ranks that placements name has one history: its ranks, and no others, carry out the ops of these
** placements. An op adds its name, attributes, numbers and metas to a rolling hash, sum of c[i] * BASE^(n - i): the
** hash of what came after op m is that of all n ops less BASE^(n - m) times that of the first m. So every group of
** ranks has a mark of its own in a history, where it met last, and a group that meets moves the marks of all groups
** within it.
**
** Local tensors, and what one rank does inside flow.on_rank, are in no history. For the script's thread, unless a
** contract names another.
*/
#ifndef FL_HISTORY_H
#define FL_HISTORY_H

#include "base/dtype.h"
#include "base/hash.h"
#include "value/placement.h"
#include "base/status.h"

#include <stdbool.h>

typedef struct fl_history fl_history;
typedef struct fl_mark fl_mark;

/* The ops of a group of ranks since its mark. Stays readable by other threads. */
typedef struct fl_trail {
    const fl_history *history; /* NULL: nothing is known */
    uint64_t from, to;         /* ops from + 1 to `to` */
    uint64_t hash_from;        /* of the history when it had `from` ops */
    uint64_t hash;             /* of these ops: equal on ranks that did the same */
} fl_trail;

/* Interned by the set of ranks, kept until exit. *out is NULL when there is no rank to compare with: one rank, a set
** without this rank, no transport. Errors: FL_ERR_MEMORY. */
fl_status fl_history_get(fl_history **out, const int *ranks, int count);

/* The mark of these ranks in the history; *out is NULL when that is, or has not all of them. Errors: FL_ERR_MEMORY. */
fl_status fl_history_mark(fl_mark **out, fl_history *history, const int *ranks, int count);

/* The ops since the ranks of the mark met last: they meet now. NULL is fine. */
fl_trail fl_history_meet(fl_mark *mark);

/* All ranks are together again, whatever ops they ran. */
void fl_history_reset(void);

/* ---- ops ---- */

/* Words an op for messages: "sum of float32[8, 4] S(0)". `what`: the plan. */
enum { FL_PAST_WHAT = 96, FL_PAST_WHERE = 64 };
typedef void fl_history_words(char *buffer, const void *what);

enum { FL_HISTORY_RECENT = 256, FL_HISTORY_LINE_BITS = 12 };
#define FL_HISTORY_BASE ((uint64_t)-0x217d106b) /* odd; fits the operand of an instruction */

/* Shown for fl_history_note alone. Written by the script's thread, read by others too: each word is atomic. */
struct fl_history {
    uint64_t count, hash;
    uint64_t context;                       /* of the last few ops */
    uint64_t recent[2 * FL_HISTORY_RECENT]; /* the hashes up to each of the last ops, then their contexts */
    fl_mark *marks;                         /* owned */
    fl_history *next;
    int rank_count, ranks[]; /* ascending */
};

/* The contexts whose words are kept; the lowest bit is 0 while they are not trusted. */
FL_OWN extern uint64_t fl_history_lines[1 << FL_HISTORY_LINE_BITS];

/* The first line to look for the words of a context: its upper bits, which depend on the last four ops. */
static inline size_t fl_history_line(uint64_t context) { return (size_t)(context >> (64 - FL_HISTORY_LINE_BITS)); }

/* Notes the words of the op in this context, unless they are kept: in place of those of another context. */
void fl_history_remember(uint64_t context, fl_history_words *words, const void *what);

/* An op: `content`, which is odd, is a hash that is the same on all ranks and identifies it but for its numbers,
** `numbers` a hash of those. Not inside flow.on_rank. Every op on global tensors comes here: some twenty
** instructions. */
static inline void fl_history_note(fl_history *history, uint64_t content, uint64_t numbers, fl_history_words *words,
                                   const void *what)
{
    uint64_t count = history->count, hash = history->hash * FL_HISTORY_BASE + (content ^ numbers),
             context = history->context << 16 ^ content;
    uint64_t *past = &history->recent[count % FL_HISTORY_RECENT];
    history->hash = hash;
    history->context = context;
    __atomic_store_n(&past[0], hash, __ATOMIC_RELAXED);
    __atomic_store_n(&past[FL_HISTORY_RECENT], context, __ATOMIC_RELAXED);
    __atomic_store_n(&history->count, count + 1, __ATOMIC_RELAXED);
    if (FL_UNLIKELY(fl_history_lines[fl_history_line(context)] != context)) fl_history_remember(context, words, what);
}

/* A point of the program that is no op: its description, in words that are kept, and a number, both the same on all
** ranks. Inside flow.on_rank nothing is noted. Errors: FL_ERR_MEMORY. */
fl_status fl_history_point(const int *ranks, int count, const char *what, uint64_t number);

/* ---- looking back (any thread) ---- */

/* The hashes of the trail's first, second, ... op up to each of those that are remembered: hashes[k] is that of the
** first
** *first + k. Returns how many; the newest are remembered. */
int fl_history_recall(uint64_t *first, uint64_t *hashes, const fl_trail *trail);

/* The words of op number `index` of the trail (from 1), and its line; "" if forgotten. */
void fl_history_recall_op(char what[FL_PAST_WHAT], char where[FL_PAST_WHERE], const fl_trail *trail, uint64_t index);

#endif

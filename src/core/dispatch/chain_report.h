/*
** chain_report.h -- what was computed in one pass, as the trace and flow.explain show it.
*/
#ifndef FL_CHAIN_REPORT_H
#define FL_CHAIN_REPORT_H

#include "base/status.h"
#include "op/op.h"

#include <stdbool.h>
#include <stdint.h>

enum { FL_CHAIN_LINE = 64 };

/* An op of the pass and the script's line that called it. */
typedef struct fl_chain_step {
    const char *op, *line;
} fl_chain_step;

typedef struct fl_chain_pass {
    const fl_chain_step *steps;
    int count, stored; /* steps; results that went to memory */
    int64_t numel;     /* of each step, on this rank */
} fl_chain_pass;

/* Set by an observer (flow.explain); NULL: none. */
FL_OWN extern void (*fl_chain_observer)(const fl_chain_pass *pass);

/* An op of a replay (program/replay.c). metas: of inputs, NULL where it is the number in `numbers`, then of results. */
typedef struct fl_replayed {
    const char *op, *line;
    int nin, nout;
    const fl_meta *const *metas;
    const fl_operand *numbers; /* of each input */
} fl_replayed;
FL_OWN extern void (*fl_replay_observer)(const fl_replayed *op);

/* True if passes are reported, so that steps need their lines. */
bool fl_chain_reports(void);

/* A pass that began at `started` (base/clock.h) is over. */
void fl_chain_report(const fl_chain_pass *pass, uint64_t started);

#endif

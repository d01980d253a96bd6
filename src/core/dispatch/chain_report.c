/*
** chain_report.c -- passes in the trace: see chain_report.h.
*/
#include "chain_report.h"
#include "engine/control.h"

#include <stdio.h>

void (*fl_chain_observer)(const fl_chain_pass *pass);
void (*fl_replay_observer)(const fl_replayed *op);

bool fl_chain_reports(void) { return fl_engine_profiling || fl_chain_observer; }

enum { NAME = 160, STEPS = 1024 }; /* bytes of texts */

/* "fused(mul, add, sum)"; the op alone where there is one. */
static void name_of(char *name, const fl_chain_pass *pass)
{
    if (pass->count == 1) {
        snprintf(name, NAME, "%s", pass->steps[0].op);
        return;
    }
    int used = snprintf(name, NAME, "fused(");
    for (int i = 0; i < pass->count && used < NAME - 24; i++)
        used += snprintf(name + used, (size_t)(NAME - used), i ? ", %s" : "%s", pass->steps[i].op);
    snprintf(name + used, (size_t)(NAME - used), used < NAME - 24 ? ")" : ", ...)");
}

/* "mul train.lua:3, add train.lua:4" */
static void steps_of(char *text, const fl_chain_pass *pass)
{
    *text = '\0';
    for (int i = 0, used = 0; i < pass->count && used < STEPS; i++)
        used += snprintf(text + used, (size_t)(STEPS - used), "%s%s %s", i ? ", " : "", pass->steps[i].op,
                         pass->steps[i].line);
}

void fl_chain_report(const fl_chain_pass *pass, uint64_t started)
{
    char name[NAME], steps[STEPS];
    if (fl_chain_observer) fl_chain_observer(pass);
    if (!fl_engine_profiling) return;
    name_of(name, pass);
    steps_of(steps, pass);
    fl_engine_profile_pass(name, pass->count == 1 ? pass->steps[0].line : NULL, pass->count == 1 ? NULL : steps,
                           started);
}

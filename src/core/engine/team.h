/*
** team.h -- the one team of threads for parallel loops inside kernels.
**
** One process has one pool: the BLAS is called serially from inside the team's loops. A kernel cuts its
** work by size, never by the number of threads, so results do not depend on the team.
*/
#ifndef FL_TEAM_H
#define FL_TEAM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Called with a range [begin, end) of chunks. */
typedef void (*fl_team_body)(void *context, int64_t begin, int64_t end);

/* Runs body over [0, count) in contiguous ranges, one per thread; serially when count * cost_ns (the
** estimated time of one unit) is too little to be worth waking the team. */
FL_EXPORT void fl_team_for(int64_t count, double cost_ns, fl_team_body body, void *context);

/* Threads of the team: FLOW_THREADS, else the cores this process may use. */
int fl_team_size(void);
void fl_team_set_size(int threads);

#endif

/*
** failure.h -- how a job ends when one of its ranks fails: all ranks, within seconds, with one report.
**
** The report names the rank and the script's line. It is reported by the rank that fails when it still can (an error,
** os.exit, a crash), by another one of its host when it was killed. The reporter is chosen in the
** journal of the host's first rank; ranks that fail only because another has failed come too late there. With one rank
** all of this does nothing.
*/
#ifndef FL_FAILURE_H
#define FL_FAILURE_H

#include <stdbool.h>

/* From now on this rank's end is watched: its crashes, signals and exits. `program` begins the report; borrowed. Called
** on the script's thread when the ranks have joined. */
void fl_failure_watch(const char *program);

/* Ends the job with `code` because this rank cannot go on. The message begins where a rank's error does ("train.lua:31:
** attempt to ..."); `details` follow it (lines: a traceback; NULL: none). The same message of all ranks is reported
** once. */
_Noreturn void fl_failure_end(int code, const char *message, const char *details);

/* The script ends with a code that is not 0. If all ranks do, nothing is reported. */
_Noreturn void fl_failure_exit(int code);

/* The script has come to its end on this rank. */
void fl_failure_none(void);

#endif

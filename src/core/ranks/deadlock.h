/*
** deadlock.h -- ranks of one host that wait for each other in meetings of different groups.
*/
#ifndef FL_DEADLOCK_H
#define FL_DEADLOCK_H

#include "base/status.h"

/* Called now and then by a rank that waits in a meeting. FL_OK, or the error that its meeting lacks a member that waits
** in another one, which lacks a member that waits in this one, directly or through more. All ranks in such meetings get
** this error. */
fl_status fl_deadlock_look(void);

#endif

/*
** dry_world.h -- one process that pretends to be a rank of many.
*/
#ifndef FL_DRY_WORLD_H
#define FL_DRY_WORLD_H

#include "base/status.h"

/* From now on this process is rank `rank` of `size` (tests, FLOW_WORLD): placements, inference, windows and this rank's
** kernels work, communication is an error. */
fl_status fl_world_set_dry(int size, int rank);

/* Forgets what was planned for the world before. */
void fl_world_changed(void);

#endif

/*
** testing.h -- functions of this layer that only tests call.
*/
#ifndef FL_VALUE_TESTING_H
#define FL_VALUE_TESTING_H

#include "base/status.h"

/* Number of interned metas. */
int64_t fl_meta_count(void);

#endif

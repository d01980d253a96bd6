/*
** precision.h -- how exactly products of float32 are computed: one setting of the process.
**
** highest  in float32
** high     a device may round operands to TF32 (10 bits of mantissa, float32's range)
** medium   as high: no product here is faster with less
**
** The CPU always computes in float32.
*/
#ifndef FL_PRECISION_H
#define FL_PRECISION_H

#include "base/status.h"

typedef enum fl_precision {
    FL_PRECISION_HIGHEST,
    FL_PRECISION_HIGH,
    FL_PRECISION_MEDIUM,
    FL_PRECISION_COUNT
} fl_precision;

FL_OWN extern const char *const fl_precision_names[FL_PRECISION_COUNT];

/* highest until it is set. Read when a kernel is issued. */
FL_EXPORT fl_precision fl_precision_get(void);

/* Waits for everything queued, so that what was called before is computed as it was then; fails as
** fl_engine_wait_all. */
fl_status fl_precision_set(fl_precision precision);

#endif

/*
** precision.c -- how exactly products of float32 are computed: see precision.h.
*/
#include "precision.h"
#include "control.h"

static fl_precision current;

const char *const fl_precision_names[FL_PRECISION_COUNT] = {"highest", "high", "medium"};

fl_precision fl_precision_get(void) { return current; }

fl_status fl_precision_set(fl_precision precision)
{
    if (precision == current) return FL_OK;
    FL_TRY(fl_engine_wait_all());
    current = precision;
    return FL_OK;
}

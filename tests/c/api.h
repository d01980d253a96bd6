/*
** api.h -- what tests of the C interface share.
*/
#ifndef FL_TEST_API_H
#define FL_TEST_API_H

#include "check.h"

#include "core/api/flow.h"

#include <math.h>

#define OK(call) CHECK_TEXT((call) == FLOW_OK ? "" : flow_error(), "")
#define FAILS(call, wanted, text)         \
    do {                                  \
        CHECK((call) == (wanted));        \
        CHECK_TEXT(flow_error(), (text)); \
    } while (0)

static const int64_t two_three[] = {2, 3}, three[] = {3};
static const flow_spec matrix = {.ndim = 2, .shape = two_three}, vector = {.ndim = 1, .shape = three};
static const float six[] = {1, 2, 3, 4, 5, 6};

static inline flow_tensor *make(const flow_spec *spec, const void *data)
{
    flow_tensor *t = NULL;
    OK(flow_copy_in(&t, spec, data));
    return t;
}

static inline double item(flow_tensor *tensor)
{
    double value = NAN;
    OK(flow_item(&value, tensor));
    return value;
}

#endif

/*
** indices.c -- integer operands that name positions: see indices.h.
*/
#include "indices.h"
#include "stage.h"
#include "memory/scratch.h"

#include <stdio.h>

fl_status fl_indices_array(const int64_t **out, const fl_view *v, const char *who, int slot)
{
    if (v->contiguous && v->dtype == FL_INT64) {
        *out = v->data;
        return FL_OK;
    }
    int64_t strides[FL_MAX_NDIM], *copy = fl_scratch(slot, sizeof(int64_t) * (size_t)v->numel + 64);
    if (!copy) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld indices", who, (long long)v->numel);
    fl_view array = fl_view_array(v, copy, FL_INT64, strides);
    *out = copy;
    return fl_cpu_copy(&array, v);
}

fl_status fl_indices_open(const int64_t **out, const fl_kernel *kernel, int operand)
{
    return fl_indices_array(out, &kernel->in[operand], kernel->name, FL_STAGE_SCRATCH);
}

/* "[2, 0]", the logical position of local element i; "" for a 0-d operand. */
static void position_text(char *out, size_t size, const fl_view *view, int64_t i)
{
    int64_t at[FL_MAX_NDIM];
    size_t used = 0;
    for (int a = view->ndim - 1; a >= 0; a--) {
        at[a] = view->start[a] + i % view->size[a];
        i /= view->size[a];
    }
    out[0] = 0;
    for (int a = 0; a < view->ndim; a++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld%s", a ? ", " : "[", (long long)at[a],
                                 a + 1 == view->ndim ? "]" : "");
}

/* True if all lie from 0 to last: no sign bit in v, nor in last - v. */
static bool all_within(const int64_t *values, int64_t n, int64_t last)
{
    uint64_t signs = 0;
#pragma omp simd reduction(| : signs)
    for (int64_t i = 0; i < n; i++) signs |= (uint64_t)values[i] | ((uint64_t)last - (uint64_t)values[i]);
    return (int64_t)signs >= 0;
}

fl_status fl_indices_check(const int64_t *values, const fl_view *view, const fl_index_rule *rule)
{
    int64_t i = 0;
    if (rule->limit > 0 && all_within(values, view->numel, rule->limit - 1)) return FL_OK;
    for (; i < view->numel; i++) {
        bool fits = (uint64_t)values[i] < (uint64_t)rule->limit || (rule->has_skip && values[i] == rule->skip);
        if (FL_UNLIKELY(!fits)) break;
    }
    if (i == view->numel) return FL_OK;
    char position[FL_SHAPE_TEXT];
    position_text(position, sizeof position, view, i);
    if (rule->limit == 0)
        return fl_fail(FL_ERR_VALUE, "%s: %s%s is %lld, but %s has no %s", rule->who, rule->param, position,
                       (long long)values[i], rule->owner, rule->noun);
    return fl_fail(FL_ERR_VALUE, "%s: %s%s is %lld, but %s has %lld %s (0 to %lld)", rule->who, rule->param, position,
                   (long long)values[i], rule->owner, (long long)rule->limit, rule->noun, (long long)rule->limit - 1);
}

fl_status fl_indices_wrap(int64_t *values, int64_t n, int64_t size)
{
    for (int64_t i = 0; i < n; i++) {
        if (values[i] < -size || values[i] >= size)
            return fl_fail(FL_ERR_VALUE,
                           "index: position %lld (element %lld of the index) is out of range for an axis of size %lld",
                           (long long)values[i], (long long)i, (long long)size);
        if (values[i] < 0) values[i] += size;
    }
    return FL_OK;
}

/* ---- masks ---- */

int64_t fl_mask_count(const uint8_t *mask, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += mask[i] != 0;
    return count;
}

/* Positions are written before it is known whether they count: no branch depends on the mask. */
static void mask_numbers(int64_t *to, const uint8_t *mask, int64_t count)
{
    for (int64_t i = 0, k = 0; k < count; i++) {
        to[k] = i;
        k += mask[i] != 0;
    }
}

/* Of a mask of several axes. */
static void mask_rows(int64_t *to, const uint8_t *mask, const fl_shape *shape, int64_t count)
{
    int last = shape->ndim - 1;
    int64_t at[FL_MAX_NDIM] = {0}, width = shape->dims[last];
    for (int64_t k = 0; k < count; mask += width) {
        for (int64_t j = 0; j < width && k < count; j++) {
            int64_t *row = to + k * shape->ndim;
            for (int a = 0; a < last; a++) row[a] = at[a];
            row[last] = j;
            k += mask[j] != 0;
        }
        for (int a = last - 1; a >= 0 && ++at[a] == shape->dims[a]; a--) at[a] = 0;
    }
}

void fl_mask_positions(int64_t *to, const uint8_t *mask, const fl_shape *shape, int64_t count, bool columns)
{
    if (!columns || shape->ndim == 1) mask_numbers(to, mask, count);
    else if (shape->ndim > 1) mask_rows(to, mask, shape, count);
}

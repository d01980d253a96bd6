/*
** region.c -- regions of parts: their views, their packed form, which peer gets which of them.
*/
#include "region.h"

#include <math.h>

int64_t fl_region_numel(const fl_region *region)
{
    int64_t n = 1;
    for (int i = 0; i < region->ndim; i++) n *= region->size[i];
    return n;
}

fl_view fl_region_view(const void *data, const fl_region *region, int64_t start, const int64_t *stride, fl_dtype dtype)
{
    return (fl_view){.data = (char *)data + start * (int64_t)fl_dtype_size(dtype),
                     .dtype = dtype,
                     .ndim = region->ndim,
                     .size = region->size,
                     .stride = stride,
                     .contiguous = region->ndim == 0 || (region->ndim == 1 && stride[0] == 1),
                     .numel = fl_region_numel(region)};
}

void fl_region_packed(int64_t *stride, const fl_region *region)
{
    fl_shape_strides(stride, region->size, region->ndim);
}

bool fl_region_is_packed(const fl_region *region, const int64_t *stride)
{
    int64_t step = 1;
    for (int i = region->ndim - 1; i >= 0; i--) {
        if (stride[i] != step) return false;
        step *= region->size[i];
    }
    return true;
}

int fl_region_together(const fl_region_list *list, int first, const fl_region **regions)
{
    int n = 0;
    for (int i = first; i < list->count; i++)
        if (i == first || (list->at[i].add && list->at[i].to == list->at[first].to)) regions[n++] = &list->at[i];
    return n;
}

int64_t fl_region_counts(int64_t *counts, int64_t *starts, const fl_region_list *list, int members)
{
    int64_t sum = 0;
    for (int i = 0; i < members; i++) counts[i] = 0;
    for (int k = 0; k < list->count; k++) counts[list->at[k].peer] += fl_region_numel(&list->at[k]);
    for (int i = 0; i < members; i++) {
        starts[i] = sum;
        sum += counts[i];
    }
    return sum;
}

void fl_reduce_identity(void *out, fl_dtype dtype, fl_sbp partial)
{
    bool sum = partial == FL_PSUM, max = partial == FL_PMAX;
    double limit = sum ? 0 : max ? -INFINITY : INFINITY;
    int64_t whole = sum ? 0 : max ? fl_dtype_ranges[dtype].lowest : fl_dtype_ranges[dtype].highest;
    switch (dtype) {
    case FL_BOOL:
    case FL_UINT8: *(uint8_t *)out = (uint8_t)whole; break;
    case FL_INT8: *(int8_t *)out = (int8_t)whole; break;
    case FL_INT32: *(int32_t *)out = (int32_t)whole; break;
    case FL_INT64: *(int64_t *)out = whole; break;
    case FL_FLOAT16: *(fl_float16 *)out = fl_float16_from_float((float)limit); break;
    case FL_BFLOAT16: *(fl_bfloat16 *)out = fl_bfloat16_from_float((float)limit); break;
    case FL_FLOAT32: *(float *)out = (float)limit; break;
    default: *(double *)out = limit; break;
    }
}

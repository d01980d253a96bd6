/*
** region.h -- what one rank takes out of another rank's part: a rectangle, seen from both parts.
**
** Parts are contiguous; offsets and strides count elements. A region has its place in the part of its source and
** in the part of its destination.
*/
#ifndef FL_REGION_H
#define FL_REGION_H

#include "op/op.h"
#include "value/placement.h"

typedef struct fl_region {
    int peer; /* position in the group: the source (pulls), the destination (pushes) */
    bool add; /* joins what an earlier pull has put there; false: the first */
    int ndim; /* axes left after those that lie together were merged */
    int64_t size[FL_MAX_NDIM];
    int64_t from, from_stride[FL_MAX_NDIM]; /* in the part of the source */
    int64_t to, to_stride[FL_MAX_NDIM];     /* in the part of the destination */
} fl_region;

typedef struct fl_region_list {
    fl_region *at; /* owned */
    int count, capacity;
} fl_region_list;

int64_t fl_region_numel(const fl_region *region);

/* A region where it lies: `start` and strides in elements of the part at `data`. */
fl_view fl_region_view(const void *data, const fl_region *region, int64_t start, const int64_t *stride, fl_dtype dtype);

/* The strides of a region whose elements lie one after the other. */
void fl_region_packed(int64_t *stride, const fl_region *region);

/* True if the strides are those. */
bool fl_region_is_packed(const fl_region *region, const int64_t *stride);

/* The number of pulls, from `first` on, that go to the same place: regions gets them. They have the same shape too:
** parts of one window. */
int fl_region_together(const fl_region_list *list, int first, const fl_region **regions);

/* counts: the elements that are sent to or received from each member; starts: their offsets in a packed buffer. Returns
** the sum of the counts. */
int64_t fl_region_counts(int64_t *counts, int64_t *starts, const fl_region_list *list, int members);

/* The value that changes nothing: 0 of a sum, the lowest of a maximum, the highest of a minimum. */
void fl_reduce_identity(void *out, fl_dtype dtype, fl_sbp partial);

#endif

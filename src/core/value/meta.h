/*
** meta.h -- what a tensor is, without its bytes: dtype, logical shape, placement, nd-SBP, local bit.
**
** Immutable and interned: equal metas are one pointer, so plans are keyed by pointers. A meta lives
** as long as something holds it (tensors, plans); then it is freed, so 10^6 shapes leave memory flat.
*/
#ifndef FL_META_H
#define FL_META_H

#include "base/dtype.h"
#include "placement.h"

/* The interval of every axis that a rank holds. A rank that holds nothing has size 0 everywhere. */
typedef struct fl_window {
    int64_t start[FL_MAX_NDIM];
    int64_t size[FL_MAX_NDIM];
} fl_window;

typedef struct fl_meta {
    int refs;
    fl_dtype dtype;
    bool is_local; /* a local tensor: placed on this rank alone, nd_sbp (B) */
    fl_nd_sbp nd_sbp;
    const fl_placement *placement;
    fl_shape shape; /* logical */
    int64_t numel;  /* logical */
    uint64_t hash;
    struct fl_meta *next; /* of its intern bucket */
    /* this rank's part */
    bool holds; /* this rank is in the placement */
    fl_window window;
    int64_t local_numel;
    int64_t strides[FL_MAX_NDIM]; /* of a contiguous local part, in elements */
} fl_meta;

/* Interned meta; the caller gets one reference. Errors: an SBP axis the tensor does not have,
** nd_sbp length != hierarchy, P(sum) of bool. */
fl_status fl_meta_get(const fl_meta **out, fl_dtype dtype, const fl_shape *shape, const fl_placement *placement,
                      fl_nd_sbp nd_sbp, bool is_local);

/* Meta of a local tensor on this rank's CPU. */
fl_status fl_meta_local(const fl_meta **out, fl_dtype dtype, const fl_shape *shape);

static inline const fl_meta *fl_meta_ref(const fl_meta *meta)
{
    ((fl_meta *)meta)->refs++;
    return meta;
}
void fl_meta_free(const fl_meta *meta); /* the last reference is gone */
static inline void fl_meta_unref(const fl_meta *meta)
{
    if (meta && --((fl_meta *)meta)->refs == 0) fl_meta_free(meta);
}

/* The window of position `index` of the placement (any rank's, not only this one's). */
void fl_meta_window(fl_window *out, const fl_meta *meta, int index);
void fl_window_of(fl_window *out, const fl_shape *shape, const fl_placement *placement, fl_nd_sbp nd_sbp, int index);

/* The logical index of the first element of this rank's part, where its elements follow each other in the whole; -1:
** they do not. */
int64_t fl_meta_first(const fl_meta *meta);

/* `float32[8, 6]`, and for a global tensor ` on placement("cpu", {0, 1}) as S(0)`. */
enum { FL_META_TEXT = 640 };
const char *fl_meta_text(char *buffer, const fl_meta *meta);

/* The same, with the device of a local tensor: `float32[8, 6] on cuda`. */
const char *fl_meta_placed_text(char *buffer, const fl_meta *meta);

/* FL_OK, or the error of reading values that tensors on FL_META do not have; without a name in front. */
fl_status fl_meta_check_values(const fl_meta *meta);

/* The same for a copy of them to `to`: on FL_META it needs none. */
fl_status fl_meta_check_copy(const fl_meta *meta, const fl_placement *to);

/* Recomputes what live metas say about this rank (after fl_world_set_dry). */
void fl_meta_refresh_all(void);

#endif

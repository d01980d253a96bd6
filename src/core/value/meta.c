/*
** meta.c -- interned metas.
**
** One hash table of chains that doubles when it holds more metas than buckets. A meta whose last reference
** goes leaves the table at once, so the table holds exactly what is alive.
*/
#include "meta.h"
#include "testing.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fl_meta **table;
static size_t bucket_count; /* a power of two, 0 before the first meta */
static int64_t meta_count;

/* ---- windows ---- */

void fl_window_of(fl_window *out, const fl_shape *shape, const fl_placement *placement, fl_nd_sbp nd_sbp, int index)
{
    *out = (fl_window){{0}, {0}};
    if (index < 0) return;
    int coords[FL_MAX_HIERARCHY];
    fl_placement_coords(coords, placement, index);
    for (int i = 0; i < shape->ndim; i++) out->size[i] = shape->dims[i];
    for (int k = 0; k < nd_sbp.n; k++) {
        int axis = nd_sbp.at[k];
        if (!fl_sbp_is_split(nd_sbp.at[k])) continue;
        int64_t start, size;
        fl_split(&start, &size, out->size[axis], placement->hierarchy[k], coords[k]);
        out->start[axis] += start;
        out->size[axis] = size;
    }
}

void fl_meta_window(fl_window *out, const fl_meta *meta, int index)
{
    fl_window_of(out, &meta->shape, meta->placement, meta->nd_sbp, index);
}

/* Computes this rank's part. */
static void refresh(fl_meta *meta)
{
    meta->holds = meta->placement->my_index >= 0;
    fl_meta_window(&meta->window, meta, meta->placement->my_index);
    meta->local_numel = meta->holds;
    for (int i = 0; i < meta->shape.ndim; i++) meta->local_numel *= meta->window.size[i];
    fl_shape_strides(meta->strides, meta->window.size, meta->shape.ndim);
}

void fl_meta_refresh_all(void)
{
    for (size_t b = 0; b < bucket_count; b++)
        for (fl_meta *m = table[b]; m; m = m->next) refresh(m);
}

/* ---- checks ---- */

/* Words the error of an sbp that splits an axis the tensor does not have. */
static fl_status fail_axis(fl_sbp sbp, fl_dtype dtype, const fl_shape *shape, const fl_placement *placement)
{
    char text[FL_SHAPE_TEXT], place[FL_PLACEMENT_TEXT], has[64];
    int last = shape->ndim - 1;
    if (last < 0) snprintf(has, sizeof has, "no axis; write \"B\"");
    else if (last == 0) snprintf(has, sizeof has, "axis 0 alone; write \"S(0)\"");
    else snprintf(has, sizeof has, "axes 0 to %d; write \"S(0)\" %s \"S(%d)\"", last, last == 1 ? "or" : "to", last);
    return fl_fail(FL_ERR_SBP, "sbp S(%d) on %s: %s%s has %s", sbp, fl_placement_text(place, placement),
                   fl_dtype_name(dtype), fl_shape_text(text, shape), has);
}

static fl_status check(fl_dtype dtype, const fl_shape *shape, const fl_placement *placement, fl_nd_sbp nd_sbp)
{
    fl_shape same;
    FL_TRY(fl_nd_sbp_check(nd_sbp, placement));
    FL_TRY(fl_shape_make(&same, "tensor", shape->dims, shape->ndim));
    for (int k = 0; k < nd_sbp.n; k++) {
        if (fl_sbp_is_split(nd_sbp.at[k]) && nd_sbp.at[k] >= shape->ndim)
            return fail_axis(nd_sbp.at[k], dtype, shape, placement);
        if (nd_sbp.at[k] == FL_PSUM && dtype == FL_BOOL)
            return fl_fail(
                FL_ERR_SBP,
                "sbp P: a bool tensor cannot be a partial sum; use P(max) or P(min), or convert it to a number");
    }
    return FL_OK;
}

/* ---- interning ---- */

static uint64_t meta_hash(fl_dtype dtype, const fl_shape *shape, const fl_placement *placement, fl_nd_sbp nd_sbp,
                          bool is_local)
{
    uint64_t h = fl_hash_mix(placement->hash, (uint64_t)dtype << 8 | (uint64_t)shape->ndim << 1 | is_local);
    h = fl_hash_mix(h, fl_nd_sbp_bits(nd_sbp));
    for (int i = 0; i < shape->ndim; i++) h = fl_hash_mix(h, (uint64_t)shape->dims[i]);
    return h;
}

/* False when there is no memory; the old table then still serves. */
static bool grow(void)
{
    size_t wider = bucket_count ? 2 * bucket_count : 256;
    fl_meta **buckets = calloc(wider, sizeof *buckets);
    if (!buckets) return bucket_count > 0;
    for (size_t b = 0; b < bucket_count; b++)
        for (fl_meta *m = table[b], *next; m; m = next) {
            next = m->next;
            m->next = buckets[m->hash & (wider - 1)];
            buckets[m->hash & (wider - 1)] = m;
        }
    free(table);
    table = buckets;
    bucket_count = wider;
    return true;
}

static fl_meta *find(uint64_t hash, fl_dtype dtype, const fl_shape *shape, const fl_placement *placement,
                     fl_nd_sbp nd_sbp, bool is_local)
{
    if (!bucket_count) return NULL;
    fl_meta *m = table[hash & (bucket_count - 1)];
    while (m
           && !(m->hash == hash && m->dtype == dtype && m->is_local == is_local && m->placement == placement
                && fl_nd_sbp_equal(m->nd_sbp, nd_sbp) && fl_shape_equal(&m->shape, shape)))
        m = m->next;
    return m;
}

fl_status fl_meta_get(const fl_meta **out, fl_dtype dtype, const fl_shape *shape, const fl_placement *placement,
                      fl_nd_sbp nd_sbp, bool is_local)
{
    uint64_t hash = meta_hash(dtype, shape, placement, nd_sbp, is_local);
    fl_meta *m = find(hash, dtype, shape, placement, nd_sbp, is_local);
    if (m) {
        *out = fl_meta_ref(m);
        return FL_OK;
    }
    FL_TRY(check(dtype, shape, placement, nd_sbp));
    m = calloc(1, sizeof *m);
    if (!m || ((size_t)meta_count >= bucket_count && !grow())) {
        free(m);
        return fl_fail(FL_ERR_MEMORY, "out of memory");
    }
    m->refs = 1;
    m->dtype = dtype;
    m->is_local = is_local;
    m->nd_sbp = nd_sbp;
    m->placement = placement;
    m->shape = *shape;
    m->numel = fl_shape_numel(shape);
    m->hash = hash;
    refresh(m);
    fl_meta **bucket = &table[hash & (bucket_count - 1)];
    m->next = *bucket;
    *bucket = m;
    meta_count++;
    *out = m;
    return FL_OK;
}

fl_status fl_meta_local(const fl_meta **out, fl_dtype dtype, const fl_shape *shape)
{
    return fl_meta_get(out, dtype, shape, fl_placement_local(FL_CPU, -1), fl_nd_sbp_fill(FL_B, 1), true);
}

void fl_meta_free(const fl_meta *meta)
{
    fl_meta **link = &table[meta->hash & (bucket_count - 1)];
    while (*link != meta) link = &(*link)->next;
    fl_meta *m = *link;
    *link = m->next;
    meta_count--;
    free(m);
}

int64_t fl_meta_count(void) { return meta_count; }

int64_t fl_meta_first(const fl_meta *meta)
{
    int64_t first = 0, unit = 1;
    bool whole = true; /* all axes after this one */
    for (int i = meta->shape.ndim - 1; i >= 0; i--) {
        int64_t size = meta->window.size[i];
        if (!whole && size != 1) return -1;
        whole = whole && size == meta->shape.dims[i];
        first += meta->window.start[i] * unit;
        unit *= meta->shape.dims[i];
    }
    return first;
}

const char *fl_meta_text(char *buffer, const fl_meta *meta)
{
    char shape[FL_SHAPE_TEXT], place[FL_PLACEMENT_TEXT], sbp[FL_ND_SBP_TEXT];
    fl_shape_text(shape, &meta->shape);
    if (meta->is_local) snprintf(buffer, FL_META_TEXT, "%s%s", fl_dtype_name(meta->dtype), shape);
    else
        snprintf(buffer, FL_META_TEXT, "%s%s on %s as %s", fl_dtype_name(meta->dtype), shape,
                 fl_placement_text(place, meta->placement), fl_nd_sbp_text(sbp, meta->nd_sbp));
    return buffer;
}

const char *fl_meta_placed_text(char *buffer, const fl_meta *meta)
{
    char device[FL_DEVICE_TEXT];
    fl_meta_text(buffer, meta);
    size_t n = strlen(buffer);
    if (meta->is_local)
        snprintf(buffer + n, FL_META_TEXT - n, " on %s", fl_placement_device_text(device, meta->placement));
    return buffer;
}

/* ---- FL_META ---- */

fl_status fl_meta_check_values(const fl_meta *meta)
{
    char text[FL_META_TEXT];
    if (FL_LIKELY(meta->placement->type != FL_META)) return FL_OK;
    if (fl_world_get()->planned)
        return fl_fail(
            FL_ERR_STATE,
            "%s has no values to read: --plan computes nothing (x:item() and x:totable() give NaN, 0 or false "
            "in their place)",
            fl_meta_placed_text(text, meta));
    return fl_fail(FL_ERR_STATE,
                   "%s has no values to read: on the meta device shapes are inferred and nothing is computed; run this "
                   "with device \"cpu\" or \"cuda\"",
                   fl_meta_placed_text(text, meta));
}

fl_status fl_meta_check_copy(const fl_meta *meta, const fl_placement *to)
{
    char text[FL_META_TEXT], where[FL_PLACEMENT_TEXT];
    bool copies = meta->placement->type == FL_META && to->type != FL_META;
    if (FL_LIKELY(!copies)) return FL_OK;
    fl_meta_placed_text(text, meta);
    if (to != fl_placement_local(to->type, to->device_index))
        return fl_fail(FL_ERR_STATE,
                       "%s has no values to copy to %s; make a tensor there: flow.empty_like(x, {placement = p, sbp = "
                       "s})",
                       text, fl_placement_text(where, to));
    fl_placement_device_text(where, to);
    return fl_fail(FL_ERR_STATE,
                   "%s has no values to copy to %s; make a tensor there: flow.empty_like(x, {device = \"%s\"})", text,
                   where, where);
}

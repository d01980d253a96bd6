/*
** site.c -- the collective that a rank enters, as text and as a fingerprint: see site.h.
*/
#include "site.h"
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

const char *fl_collective_text(char *buffer, const fl_collective *collective)
{
    if (collective->shape.ndim < 0) {
        snprintf(buffer, FL_COLLECTIVE_TEXT, "%s", collective->name);
        return buffer;
    }
    char shape[FL_SHAPE_TEXT], from[FL_ND_SBP_TEXT], to[FL_ND_SBP_TEXT];
    snprintf(buffer, FL_COLLECTIVE_TEXT, "%s of %s%s, %s -> %s", collective->name, fl_dtype_name(collective->dtype),
             fl_shape_text(shape, &collective->shape), fl_nd_sbp_text(from, collective->from),
             fl_nd_sbp_text(to, collective->to));
    return buffer;
}

const char *fl_collective_at(char *buffer, const fl_collective *collective)
{
    fl_collective_text(buffer, collective);
    size_t n = strlen(buffer);
    if (collective->where[0]) snprintf(buffer + n, FL_COLLECTIVE_TEXT - n, " (%s)", collective->where);
    return buffer;
}

uint64_t fl_fingerprint(const fl_collective *collective, uint64_t tag)
{
    uint64_t h = fl_hash_words(tag, collective->name, strlen(collective->name));
    if (collective->shape.ndim < 0) return h;
    h = fl_hash_words(fl_hash_mix(h, (uint64_t)collective->dtype), collective->shape.dims,
                      sizeof(int64_t) * (size_t)collective->shape.ndim);
    return fl_hash_mix(fl_hash_mix(h, fl_nd_sbp_bits(collective->from)), fl_nd_sbp_bits(collective->to));
}

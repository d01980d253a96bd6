/*
** parse.c -- dtypes, devices, placements and SBPs as hosts write them.
*/
#include "api.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DEVICES = 64, MAX_RANK = 1 << 20 };

fl_status fl_api_dtype(fl_dtype *out, const char *who, const char *text)
{
    char shown[FL_SHOWN_TEXT];
    fl_dtype dtype = fl_dtype_parse(text);
    const char *best = NULL;
    for (int d = 0, least = 99; dtype == FL_DTYPE_COUNT && d < FL_DTYPE_COUNT; d++) {
        int distance = fl_suggest_distance(text, fl_dtype_name((fl_dtype)d));
        if (distance < 0 || distance >= least) continue;
        least = distance;
        best = fl_dtype_name((fl_dtype)d);
    }
    if (dtype == FL_DTYPE_COUNT)
        return fl_fail(FL_ERR_VALUE, "%s: unknown dtype '%s'%s%s%s", who, fl_text_name(shown, text),
                       best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
    *out = dtype;
    return FL_OK;
}

/* A device's type at the start of a text; returns what follows, NULL: none. */
static const char *read_type(fl_device_type *type, const char *text)
{
    for (int i = 0; i < FL_DEVICE_TYPES; i++) {
        const char *name = fl_device_type_name((fl_device_type)i);
        size_t n = strlen(name);
        if (strncmp(text, name, n) != 0 || isalnum((unsigned char)text[n])) continue;
        *type = (fl_device_type)i;
        return text + n;
    }
    return NULL;
}

fl_status fl_api_device(const fl_placement **out, const char *who, const char *text)
{
    char shown[FL_SHOWN_TEXT], *end = NULL;
    fl_device_type type;
    long index = -1;
    const char *rest = read_type(&type, text);
    if (rest && type == FL_CUDA && rest[0] == ':' && isdigit((unsigned char)rest[1])) {
        index = strtol(rest + 1, &end, 10);
        rest = index < MAX_DEVICES ? end : NULL;
    }
    if (!rest || *rest)
        return fl_fail(FL_ERR_VALUE, "%s: unknown device '%s'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"",
                       who, fl_text_name(shown, text));
    *out = fl_placement_local(type, (int)index);
    return FL_OK;
}

/* ---- placements ---- */

/* Nested lists of ranks while they are read. */
struct reader {
    const char *at;
    int *ranks, count, capacity;
    int hierarchy[FL_MAX_HIERARCHY], ndim;
};

static const char *skip(const char *at)
{
    while (isspace((unsigned char)*at)) at++;
    return at;
}

/* A list at reader->at, which moves behind it; false: it is none, or no regular grid. */
static bool read_list(struct reader *reader, int depth)
{
    int n = 0;
    if (depth >= FL_MAX_HIERARCHY || *reader->at++ != '{') return false;
    if (reader->ndim <= depth) {
        if (reader->count > 0) return false;
        reader->ndim = depth + 1;
    }
    for (reader->at = skip(reader->at); *reader->at != '}'; n++) {
        if (n > 0 && *reader->at++ != ',') return false;
        reader->at = skip(reader->at);
        if (*reader->at == '{') {
            if (!read_list(reader, depth + 1)) return false;
        } else {
            char *end;
            long rank = strtol(reader->at, &end, 10);
            if (end == reader->at || rank < 0 || rank > MAX_RANK || depth + 1 != reader->ndim) return false;
            if (reader->count == reader->capacity) return false;
            reader->ranks[reader->count++] = (int)rank;
            reader->at = end;
        }
        reader->at = skip(reader->at);
    }
    reader->at++;
    if (!reader->hierarchy[depth]) reader->hierarchy[depth] = n;
    return n > 0 && reader->hierarchy[depth] == n;
}

/* Worded for hosts: the core speaks of scripts. */
static fl_status check_ranks(const char *who, const struct reader *reader, fl_device_type type)
{
    int size = fl_world_get()->size;
    for (int i = 0; i < reader->count && type != FL_META; i++)
        if (reader->ranks[i] >= size)
            return fl_fail(FL_ERR_SBP,
                           "%s: rank %d does not exist: the world has %d rank%s; flow_join joins others, and \"%s\" "
                           "alone means all",
                           who, reader->ranks[i], size, size == 1 ? "" : "s", fl_device_type_name(type));
    return FL_OK;
}

static fl_status read_ranks(const fl_placement **out, const char *who, const char *text, fl_device_type type,
                            const char *rest)
{
    char shown[FL_SHOWN_TEXT];
    int capacity = (int)strlen(rest);
    struct reader reader = {.at = rest, .ranks = malloc(sizeof(int) * (size_t)capacity), .capacity = capacity};
    fl_status status;
    if (!reader.ranks) status = fl_fail(FL_ERR_MEMORY, "%s: out of memory", who);
    else if (!read_list(&reader, 0) || *skip(reader.at))
        status = fl_fail(FL_ERR_VALUE,
                         "%s: '%s' is no placement; one is \"cpu\" (all ranks), \"cpu {0, 1}\" or "
                         "\"cuda {{0, 1}, {2, 3}}\"",
                         who, fl_text_name(shown, text));
    else if ((status = check_ranks(who, &reader, type)) == FL_OK) {
        status = fl_placement_get(out, type, reader.ranks, reader.count, reader.hierarchy, reader.ndim);
        if (status != FL_OK) fl_fail_prefix(status, "%s: ", who);
    }
    free(reader.ranks);
    return status;
}

fl_status fl_api_placement(const fl_placement **out, const char *who, const char *text)
{
    fl_device_type type = FL_CPU;
    const char *rest = read_type(&type, skip(text));
    if (rest && !*skip(rest)) {
        *out = fl_placement_all(type);
        return *out ? FL_OK : fl_fail(FL_ERR_MEMORY, "%s: out of memory", who);
    }
    return read_ranks(out, who, text, type, rest ? skip(rest) : text + strlen(text) - (*text != 0));
}

/* ---- SBPs ---- */

static fl_status bad_sbp(const char *who, const char *text)
{
    char shown[FL_SHOWN_TEXT];
    return fl_fail(FL_ERR_SBP,
                   "%s: '%s' is no sbp; one is \"S(0)\", \"B\", \"P\", \"P(max)\" or \"P(min)\", for each axis of the "
                   "placement: \"S(0), B\"",
                   who, fl_text_name(shown, text));
}

fl_status fl_api_sbp(fl_nd_sbp *out, const char *who, const char *text, const fl_placement *placement, int ndim)
{
    fl_nd_sbp nd_sbp = {0};
    const char *at = text;
    do {
        char word[FL_SBP_TEXT];
        at = skip(at);
        size_t n = strcspn(at, ","), used = n;
        while (used && isspace((unsigned char)at[used - 1])) used--;
        if (nd_sbp.n == FL_MAX_HIERARCHY || used >= sizeof word) return bad_sbp(who, text);
        memcpy(word, at, used);
        word[used] = '\0';
        if (!fl_sbp_parse(&nd_sbp.at[nd_sbp.n++], word, ndim)) return bad_sbp(who, text);
        at += n;
    } while (*at++ == ',');
    fl_status status = fl_nd_sbp_check(nd_sbp, placement);
    if (status != FL_OK) return fl_fail_prefix(status, "%s: ", who);
    *out = nd_sbp;
    return FL_OK;
}

/* ---- specs ---- */

fl_status fl_api_place_of(fl_api_place *out, const char *who, const char *device, const char *placement,
                          const char *sbp, int ndim)
{
    if (device && placement)
        return fl_fail(FL_ERR_VALUE,
                       "%s: give a device (a local tensor) or a placement and an sbp (a global one), not both", who);
    if (!placement != !sbp)
        return fl_fail(FL_ERR_VALUE, "%s: placement and sbp go together; %s is missing", who,
                       placement ? "sbp" : "placement");
    out->is_local = !placement;
    out->nd_sbp = fl_nd_sbp_fill(FL_B, 1);
    if (!placement) return fl_api_device(&out->placement, who, device ? device : "cpu");
    FL_TRY(fl_api_placement(&out->placement, who, placement));
    return fl_api_sbp(&out->nd_sbp, who, sbp, out->placement, ndim);
}

fl_status fl_api_meta(const fl_meta **out, const char *who, const flow_spec *spec)
{
    fl_dtype dtype = FL_FLOAT32;
    fl_shape shape;
    fl_api_place place;
    FL_TRY(fl_api_need(spec, who, "spec"));
    if (spec->ndim > 0) FL_TRY(fl_api_need(spec->shape, who, "spec->shape"));
    if (spec->dtype) FL_TRY(fl_api_dtype(&dtype, who, spec->dtype));
    FL_TRY(fl_shape_make(&shape, who, spec->shape, spec->ndim));
    FL_TRY(fl_api_place_of(&place, who, spec->device, spec->placement, spec->sbp, spec->ndim));
    fl_status status = fl_meta_get(out, dtype, &shape, place.placement, place.nd_sbp, place.is_local);
    return status == FL_OK ? FL_OK : fl_fail_prefix(status, "%s: ", who);
}

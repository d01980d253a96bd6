/*
** placement.c -- the world and interned placements.
**
** The placements of local tensors are objects of their own, beside the intern table: each means "this rank
** alone", so when the dry world changes its rank they follow it and local tensors stay valid.
*/
#include "placement.h"
#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_WORLD = 1 << 20, BUCKETS = 256, MAX_LOCAL_DEVICES = 64 };

static fl_world world = {1, 0, false, 1, false};
static fl_placement *buckets[BUCKETS];
static const fl_placement *all_ranks[FL_DEVICE_TYPES]; /* by device type; forgotten when the world changes */

static union local_placement {
    fl_placement placement;
    char bytes[sizeof(fl_placement) + sizeof(int)];
} locals[FL_DEVICE_TYPES][MAX_LOCAL_DEVICES + 1];

const char *fl_device_type_name(fl_device_type type)
{
    static const char *const names[] = {[FL_CPU] = "cpu", [FL_CUDA] = "cuda", [FL_META] = "meta"};
    return names[type];
}

/* ---- world ---- */

const fl_world *fl_world_get(void) { return &world; }

int fl_placement_index(const fl_placement *placement, int rank)
{
    for (int i = 0; i < placement->count; i++)
        if (placement->ranks[i] == rank) return i;
    return -1;
}

static fl_status world_set(const char *who, int64_t size, int64_t rank, bool dry)
{
    if (size < 1 || size > MAX_WORLD)
        return fl_fail(FL_ERR_VALUE, "%s: a world has 1 to %d ranks, not %lld", who, MAX_WORLD, (long long)size);
    if (rank < 0 || rank >= size)
        return fl_fail(FL_ERR_VALUE, "%s: rank %lld does not exist in a world of %lld (0 to %lld)", who,
                       (long long)rank, (long long)size, (long long)size - 1);
    world = (fl_world){(int)size, (int)rank, dry && size > 1, (int)size, false};
    memset(all_ranks, 0, sizeof all_ranks);
    for (int b = 0; b < BUCKETS; b++)
        for (fl_placement *p = buckets[b]; p; p = p->next) p->my_index = fl_placement_index(p, world.rank);
    for (int type = 0; type < FL_DEVICE_TYPES; type++)
        for (int i = 0; i <= MAX_LOCAL_DEVICES; i++) locals[type][i].placement.ranks[0] = world.rank;
    return FL_OK;
}

fl_status fl_world_set(int size, int rank) { return world_set("world", size, rank, false); }

fl_status fl_world_pretend(int size, int rank) { return world_set("dry world", size, rank, true); }

fl_status fl_world_plan(int size, int rank)
{
    FL_TRY(world_set("plan", size, rank, true));
    world.planned = true;
    return FL_OK;
}

fl_status fl_world_set_aside(int count)
{
    if (count < 1 || count >= world.size)
        return fl_fail(FL_ERR_VALUE, "%d of %d ranks cannot be set aside: one must be left", count, world.size);
    world.size -= count;
    memset(all_ranks, 0, sizeof all_ranks);
    return FL_OK;
}

/* Reads a whole number from the environment; *given is false when it is not set. */
static fl_status read_environment(int64_t *out, bool *given, const char *name)
{
    const char *text = getenv(name);
    *given = text != NULL && *text != 0;
    if (!*given) return FL_OK;
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != 0)
        return fl_fail(FL_ERR_VALUE, "%s=%s: a whole number is needed (FLOW_WORLD=4 FLOW_RANK=0)", name, text);
    return FL_OK;
}

fl_status fl_world_init(void)
{
    int64_t size = 1, rank = 0;
    bool has_size, has_rank;
    FL_TRY(read_environment(&size, &has_size, "FLOW_WORLD"));
    FL_TRY(read_environment(&rank, &has_rank, "FLOW_RANK"));
    if (has_rank && !has_size)
        return fl_fail(FL_ERR_VALUE, "FLOW_RANK=%lld: FLOW_WORLD (the number of ranks) is missing", (long long)rank);
    return has_size ? world_set("FLOW_WORLD", size, rank, true) : FL_OK;
}

/* ---- placements ---- */

static uint64_t placement_hash(fl_device_type type, const int *ranks, int count, const int *hierarchy, int ndim)
{
    uint64_t h = fl_hash_mix((uint64_t)type, (uint64_t)ndim);
    for (int i = 0; i < ndim; i++) h = fl_hash_mix(h, (uint64_t)hierarchy[i]);
    for (int i = 0; i < count; i++) h = fl_hash_mix(h, (uint64_t)ranks[i]);
    return h;
}

static fl_status fail_rank(int rank)
{
    char world_text[64] = "the world has one rank (0)";
    if (rank < 0) return fl_fail(FL_ERR_SBP, "placement: there is no rank %d: ranks count from 0", rank);
    if (world.size > 1)
        snprintf(world_text, sizeof world_text, "the world has %d ranks (0 to %d)", world.size, world.size - 1);
    return fl_fail(
        FL_ERR_SBP,
        "placement: rank %d does not exist: %s; start flowlua with --%s %d, or write flow.placement.all(\"cpu\")", rank,
        world_text, world.planned ? "plan" : "ranks", rank + 1);
}

static fl_status check_ranks(fl_device_type type, const int *ranks, int count)
{
    int limit = type == FL_META && !world.planned ? MAX_WORLD : world.size, most = 0;
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= limit) return fail_rank(ranks[i]);
        if (ranks[i] > most) most = ranks[i];
    }
    unsigned char *seen = calloc((size_t)most + 1, 1);
    if (!seen) return fl_fail(FL_ERR_MEMORY, "placement: out of memory");
    int twice = -1;
    for (int i = 0; i < count && twice < 0; i++)
        if (seen[ranks[i]]++) twice = ranks[i];
    free(seen);
    return twice < 0 ? FL_OK : fl_fail(FL_ERR_SBP, "placement: rank %d is named twice", twice);
}

static fl_status check_hierarchy(int count, const int *hierarchy, int ndim)
{
    if (count < 1) return fl_fail(FL_ERR_SBP, "placement: no rank is named");
    if (ndim < 1 || ndim > FL_MAX_HIERARCHY)
        return fl_fail(FL_ERR_SBP, "placement: a hierarchy has 1 to %d axes, not %d", FL_MAX_HIERARCHY, ndim);
    int64_t product = 1;
    for (int i = 0; i < ndim && product <= count; i++) product *= hierarchy[i] > 0 ? hierarchy[i] : 0;
    if (product == count) return FL_OK;
    char text[FL_PLACEMENT_TEXT] = "";
    size_t n = 0;
    for (int i = 0; i < ndim; i++) n += (size_t)snprintf(text + n, sizeof text - n, i ? " x %d" : "%d", hierarchy[i]);
    return fl_fail(FL_ERR_SBP, "placement: a hierarchy of %s does not hold %d ranks", text, count);
}

static bool placement_is(const fl_placement *placement, fl_device_type type, const int *ranks, int count,
                         const int *hierarchy, int ndim)
{
    return placement->type == type && placement->count == count && placement->ndim == ndim
        && memcmp(placement->hierarchy, hierarchy, (size_t)ndim * sizeof *hierarchy) == 0
        && memcmp(placement->ranks, ranks, (size_t)count * sizeof *ranks) == 0;
}

fl_status fl_placement_get(const fl_placement **out, fl_device_type type, const int *ranks, int count,
                           const int *hierarchy, int ndim)
{
    if (world.planned) type = FL_META;
    FL_TRY(check_hierarchy(count, hierarchy, ndim));
    FL_TRY(check_ranks(type, ranks, count));
    uint64_t hash = placement_hash(type, ranks, count, hierarchy, ndim);
    fl_placement **bucket = &buckets[hash % BUCKETS];
    for (fl_placement *p = *bucket; p; p = p->next)
        if (p->hash == hash && placement_is(p, type, ranks, count, hierarchy, ndim)) {
            *out = p;
            return FL_OK;
        }
    fl_placement *p = calloc(1, sizeof *p + (size_t)count * sizeof *ranks);
    if (!p) return fl_fail(FL_ERR_MEMORY, "placement: out of memory");
    p->type = type;
    p->device_index = -1;
    p->count = count;
    p->ndim = ndim;
    memcpy(p->hierarchy, hierarchy, (size_t)ndim * sizeof *hierarchy);
    memcpy(p->ranks, ranks, (size_t)count * sizeof *ranks);
    p->my_index = fl_placement_index(p, world.rank);
    p->hash = hash;
    p->next = *bucket;
    *out = *bucket = p;
    return FL_OK;
}

const fl_placement *fl_placement_local(fl_device_type type, int index)
{
    if (index < -1 || index >= MAX_LOCAL_DEVICES) index = -1;
    if (world.planned && type != FL_CPU) {
        type = FL_META;
        index = -1;
    }
    fl_placement *p = &locals[type][index + 1].placement;
    if (p->count == 0) {
        p->type = type;
        p->device_index = index;
        p->count = p->ndim = p->hierarchy[0] = 1;
        p->hash = fl_hash_mix(fl_hash_mix(0x6c6f63616cu, (uint64_t)type), (uint64_t)(index + 1));
        p->ranks[0] = world.rank;
    }
    return p;
}

fl_status fl_placement_on_cpu(const fl_placement **out, const fl_placement *placement)
{
    *out = placement;
    if (placement->type == FL_CPU) return FL_OK;
    if (placement != fl_placement_local(placement->type, placement->device_index))
        return fl_placement_get(out, FL_CPU, placement->ranks, placement->count, placement->hierarchy, placement->ndim);
    *out = fl_placement_local(FL_CPU, -1);
    return FL_OK;
}

const fl_placement *fl_placement_all(fl_device_type type)
{
    if (all_ranks[type]) return all_ranks[type];
    int *ranks = malloc((size_t)world.size * sizeof *ranks);
    if (!ranks) return NULL;
    for (int i = 0; i < world.size; i++) ranks[i] = i;
    if (fl_placement_get(&all_ranks[type], type, ranks, world.size, &world.size, 1) != FL_OK) all_ranks[type] = NULL;
    free(ranks);
    return all_ranks[type];
}

const fl_placement *fl_placement_everywhere(const fl_placement *own)
{
    return own->count == world.size ? own : fl_placement_all(own->type);
}

void fl_placement_coords(int *coords, const fl_placement *placement, int index)
{
    for (int k = placement->ndim - 1; k >= 0; k--) {
        coords[k] = index % placement->hierarchy[k];
        index /= placement->hierarchy[k];
    }
}

/* ---- text ---- */

/* Appends to a fixed buffer; n past the end: the text did not fit. */
struct text {
    char *at;
    size_t n, size;
};

static void text_add(struct text *text, const char *format, int value)
{
    text->n += (size_t)snprintf(text->n < text->size ? text->at + text->n : NULL,
                                text->n < text->size ? text->size - text->n : 0, format, value);
}

/* Ranks from *next on, as nested lists of hierarchy axes axis.. */
static void add_ranks(struct text *text, const fl_placement *placement, int axis, int *next)
{
    text_add(text, "{", 0);
    for (int i = 0; i < placement->hierarchy[axis] && text->n < text->size; i++) {
        if (i) text_add(text, ", ", 0);
        if (axis + 1 < placement->ndim) add_ranks(text, placement, axis + 1, next);
        else text_add(text, "%d", placement->ranks[(*next)++]);
    }
    text_add(text, "}", 0);
}

const char *fl_placement_device_text(char *buffer, const fl_placement *placement)
{
    const char *type = fl_device_type_name(placement->type);
    if (placement->device_index < 0) snprintf(buffer, FL_DEVICE_TEXT, "%s", type);
    else snprintf(buffer, FL_DEVICE_TEXT, "%s:%d", type, placement->device_index);
    return buffer;
}

const char *fl_placement_text(char *buffer, const fl_placement *placement)
{
    struct text t = {buffer, 0, FL_PLACEMENT_TEXT};
    int next = 0;
    text_add(&t, "placement(\"", 0);
    text_add(&t, fl_device_type_name(placement->type), 0);
    if (placement->device_index >= 0) text_add(&t, ":%d", placement->device_index);
    text_add(&t, "\", ", 0);
    size_t head = t.n;
    add_ranks(&t, placement, 0, &next);
    text_add(&t, ")", 0);
    if (t.n < t.size) return buffer;
    t.n = head; /* too long: first and last ranks, and the hierarchy */
    text_add(&t, "{%d", placement->ranks[0]);
    text_add(&t, ", %d, ..., ", placement->ranks[1]);
    text_add(&t, "%d}", placement->ranks[placement->count - 1]);
    for (int k = 0; k < placement->ndim; k++) text_add(&t, k ? ", %d" : ", hierarchy {%d", placement->hierarchy[k]);
    text_add(&t, "})", 0);
    return buffer;
}

fl_status fl_nd_sbp_check(fl_nd_sbp nd_sbp, const fl_placement *placement)
{
    char sbp[FL_ND_SBP_TEXT], place[FL_PLACEMENT_TEXT], fit[FL_ND_SBP_SOURCE];
    if (nd_sbp.n == placement->ndim) return FL_OK;
    return fl_fail(FL_ERR_SBP, "sbp %s: %s has %d hierarchy %s, and each needs one sbp; write sbp = %s",
                   fl_nd_sbp_text(sbp, nd_sbp), fl_placement_text(place, placement), placement->ndim,
                   placement->ndim == 1 ? "axis" : "axes",
                   fl_nd_sbp_source(fit, fl_nd_sbp_fit(nd_sbp, placement->ndim)));
}

/*
** move.c -- compiling a boxing step: which member takes which region from which other.
**
** The geometry follows from the windows of all members before and after the step, which every rank can compute
** alone; so nothing about it is ever exchanged.
*/
#include "move.h"
#include "base/axes.h"

#include <assert.h>
#include <stdlib.h>

/* The effect of a step on one tensor. */
struct geometry {
    const fl_shape *shape;
    const fl_box_step *step;
    const fl_placement *p, *q; /* before, after */
    fl_nd_sbp before;
    int mine; /* position of this rank in q (p and q of a collective are the same) */
};

void fl_move_free(fl_move *move)
{
    if (!move) return;
    fl_engine_wait_idle(&move->busy);
    free(move->pulls.at);
    free(move->pushes.at);
    free(move);
}

static fl_status out_of_memory(void) { return fl_fail(FL_ERR_MEMORY, "boxing: out of memory"); }

/* ---- regions ---- */

/* The intersection of two windows, as offsets and strides in both parts, with axes merged that are contiguous in both;
** false: it is empty. */
static bool intersect(fl_region *region, const fl_window *has, const fl_window *wants, int ndim)
{
    int64_t from[FL_MAX_NDIM], to[FL_MAX_NDIM];
    fl_layout l = {.operands = 2};
    *region = (fl_region){0};
    fl_shape_strides(from, has->size, ndim);
    fl_shape_strides(to, wants->size, ndim);
    for (int i = 0; i < ndim; i++) {
        int64_t start = has->start[i] > wants->start[i] ? has->start[i] : wants->start[i];
        int64_t end_a = has->start[i] + has->size[i], end_b = wants->start[i] + wants->size[i];
        fl_axis axis = {.size = (end_a < end_b ? end_a : end_b) - start, .stride = {to[i], from[i]}};
        if (axis.size <= 0) return false;
        region->from += (start - has->start[i]) * from[i];
        region->to += (start - wants->start[i]) * to[i];
        fl_layout_add(&l, &axis);
    }
    region->ndim = l.count;
    for (int i = 0; i < l.count; i++) {
        region->size[i] = l.axes[i].size;
        region->to_stride[i] = l.axes[i].stride[0];
        region->from_stride[i] = l.axes[i].stride[1];
    }
    return true;
}

static fl_status add_region(fl_region_list *list, const fl_region *region)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 4;
        fl_region *grown = realloc(list->at, sizeof *grown * (size_t)capacity);
        if (!grown) return out_of_memory();
        list->at = grown;
        list->capacity = capacity;
    }
    list->at[list->count++] = *region;
    return FL_OK;
}

/* Adds the region that `wants` takes from `has`; it joins an earlier region at the same place of the part. */
static fl_status add_overlap(fl_region_list *list, int peer, const fl_window *has, const fl_window *wants, int ndim)
{
    fl_region r;
    if (!intersect(&r, has, wants, ndim)) return FL_OK;
    r.peer = peer;
    for (int i = 0; i < list->count; i++) r.add |= list->at[i].to == r.to;
    return add_region(list, &r);
}

/* ---- collectives along one hierarchy axis ---- */

/* Position in the placement of the member with this coordinate on the step's axis, beside this rank. */
static int member(const struct geometry *geometry, int coordinate)
{
    int coords[FL_MAX_HIERARCHY], index = 0;
    fl_placement_coords(coords, geometry->q, geometry->mine);
    coords[geometry->step->axis] = coordinate;
    for (int k = 0; k < geometry->q->ndim; k++) index = index * geometry->q->hierarchy[k] + coords[k];
    return index;
}

static fl_status axis_group(fl_group **out, const struct geometry *geometry)
{
    int count = geometry->q->hierarchy[geometry->step->axis], *ranks = malloc((size_t)count * sizeof *ranks);
    if (!ranks) return out_of_memory();
    for (int c = 0; c < count; c++) ranks[c] = geometry->q->ranks[member(geometry, c)];
    fl_status status = fl_group_get(out, ranks, count);
    free(ranks);
    return status;
}

/* Adds the regions that member `wants` takes from all others. */
static fl_status axis_pulls(fl_region_list *list, const struct geometry *geometry, int wants)
{
    fl_window target, source;
    fl_window_of(&target, geometry->shape, geometry->q, geometry->step->after, member(geometry, wants));
    for (int c = 0; c < geometry->q->hierarchy[geometry->step->axis]; c++) {
        fl_window_of(&source, geometry->shape, geometry->p, geometry->before, member(geometry, c));
        FL_TRY(add_overlap(list, c, &source, &target, geometry->shape->ndim));
    }
    return FL_OK;
}

/* ---- exchanges between any two placements ---- */

/* All ranks of p, then those of q that are not among them. */
static fl_status exchange_group(fl_group **out, const struct geometry *geometry)
{
    int count = geometry->p->count, *ranks = malloc((size_t)(geometry->p->count + geometry->q->count) * sizeof *ranks);
    if (!ranks) return out_of_memory();
    memcpy(ranks, geometry->p->ranks, (size_t)count * sizeof *ranks);
    for (int i = 0; i < geometry->q->count; i++)
        if (fl_placement_index(geometry->p, geometry->q->ranks[i]) < 0) ranks[count++] = geometry->q->ranks[i];
    fl_status status = fl_group_get(out, ranks, count);
    free(ranks);
    return status;
}

/* Adds the regions that this position of q takes from its sources in p. A source's position in p is its position in the
** group. */
static fl_status exchange_pulls(fl_region_list *list, const struct geometry *geometry, int target_index)
{
    fl_window target, source;
    if (fl_box_identity(geometry->q, geometry->step->after, target_index)) return FL_OK;
    fl_window_of(&target, geometry->shape, geometry->q, geometry->step->after, target_index);
    for (int s = 0; s < geometry->p->count; s++) {
        if (!fl_box_is_source(geometry->p, geometry->before, s, geometry->q, target_index)) continue;
        fl_window_of(&source, geometry->shape, geometry->p, geometry->before, s);
        FL_TRY(add_overlap(list, s, &source, &target, geometry->shape->ndim));
    }
    return FL_OK;
}

/* Position in q of member i of an exchange's group; -1: it takes nothing. */
static int target_of(const struct geometry *geometry, const fl_group *group, int i)
{
    return fl_placement_index(geometry->q, group->ranks[i]);
}

/* ---- compiling ---- */

/* The reduction of the parts of a step's source; an exchange has partials of one kind at most. */
static fl_reduce reduce_of(const struct geometry *geometry)
{
    fl_sbp kind = geometry->step->axis >= 0 ? geometry->step->from : FL_PSUM;
    for (int k = 0; k < geometry->p->ndim && geometry->step->axis < 0; k++)
        if (fl_sbp_is_partial(geometry->before.at[k]) && geometry->p->hierarchy[k] > 1) kind = geometry->before.at[k];
    return kind == FL_PMAX ? FL_REDUCE_MAX : kind == FL_PMIN ? FL_REDUCE_MIN : FL_REDUCE_SUM;
}

/* Regions that members of the group pull: member `wants` of a collective or an exchange. */
static fl_status pulls_of(fl_region_list *list, const struct geometry *geometry, const fl_group *group, int wants)
{
    if (geometry->step->kind != FL_BOX_EXCHANGE) return axis_pulls(list, geometry, wants);
    int t = target_of(geometry, group, wants);
    return t < 0 ? FL_OK : exchange_pulls(list, geometry, t);
}

/* Finds the regions that others take from this rank, in the order of those who take them. */
static fl_status find_pushes(fl_move *move, const struct geometry *geometry)
{
    fl_status status = FL_OK;
    for (int i = 0; i < move->group->count && status == FL_OK; i++) {
        fl_region_list theirs = {0};
        status = pulls_of(&theirs, geometry, move->group, i);
        for (int k = 0; k < theirs.count && status == FL_OK; k++) {
            if (theirs.at[k].peer != move->group->me) continue;
            theirs.at[k].peer = i;
            status = add_region(&move->pushes, &theirs.at[k]);
        }
        free(theirs.at);
    }
    return status;
}

static fl_status compile_shared(fl_move *move, const struct geometry *geometry)
{
    FL_TRY(geometry->step->kind == FL_BOX_EXCHANGE ? exchange_group(&move->group, geometry)
                                                   : axis_group(&move->group, geometry));
    if (move->kind == FL_BOX_ALL_REDUCE) return FL_OK;
    FL_TRY(pulls_of(&move->pulls, geometry, move->group, move->group->me));
    return find_pushes(move, geometry);
}

/* B -> P and S -> P: the elements that this rank keeps, within the identity. Of S every rank keeps its own region, of B
** the first rank keeps all. */
static fl_status compile_fill(fl_move *move, const struct geometry *geometry)
{
    fl_window target, own;
    int k = geometry->step->axis, coords[FL_MAX_HIERARCHY];
    fl_placement_coords(coords, geometry->q, geometry->mine);
    bool split = k >= 0 && fl_sbp_is_split(geometry->step->from);
    move->filled = k < 0         ? fl_box_identity(geometry->q, geometry->step->after, geometry->mine)
        : split || coords[k] > 0 ? geometry->step->to
                                 : 0;
    if (move->filled && !split) return FL_OK;
    fl_window_of(&target, geometry->shape, geometry->q, geometry->step->after, geometry->mine);
    fl_window_of(&own, geometry->shape, geometry->p, geometry->before,
                 fl_placement_index(geometry->p, geometry->q->ranks[geometry->mine]));
    return add_overlap(&move->pulls, 0, &own, &target, geometry->shape->ndim);
}

static int64_t part_numel(const struct geometry *geometry, const fl_placement *placement, fl_nd_sbp nd_sbp)
{
    fl_window w;
    int64_t n = 1;
    int index = fl_placement_index(placement, fl_world_get()->rank);
    if (index < 0) return 0;
    fl_window_of(&w, geometry->shape, placement, nd_sbp, index);
    for (int i = 0; i < geometry->shape->ndim; i++) n *= w.size[i];
    return n;
}

static void describe(fl_move *move, const struct geometry *geometry, const fl_meta *from)
{
    strncpy(move->collective.name, fl_box_kind_name(move->kind), FL_COLLECTIVE_NAME - 1);
    move->collective.shape = from->shape;
    move->collective.dtype = (uint8_t)from->dtype;
    move->collective.from = geometry->before;
    move->collective.to = geometry->step->after;
    move->tag = geometry->p->hash * 31 + geometry->q->hash;
    move->fingerprint = fl_fingerprint(&move->collective, move->tag);
}

/* Finds the entry of the history where the members of the move's group leave their mark. */
static fl_status find_mark(fl_move *move, const fl_placement *from, const fl_placement *to)
{
    const fl_group *g = move->group;
    const struct {
        const int *ranks;
        int count;
    } sets[] = {{from->ranks, from->count}, {to->ranks, to->count}, {g ? g->ranks : NULL, g ? g->count : 0}};
    for (int i = 0; i < 3 && g && !move->mark; i++) {
        fl_history *h;
        FL_TRY(fl_history_get(&h, sets[i].ranks, sets[i].count));
        FL_TRY(fl_history_mark(&move->mark, h, g->ranks, g->count));
    }
    return FL_OK;
}

fl_status fl_move_compile(fl_move **out, const fl_box_plan *plan, int i, const fl_meta *from)
{
    const fl_box_step *step = &plan->steps[i];
    struct geometry g = {&from->shape,
                         step,
                         i ? plan->steps[i - 1].placement : from->placement,
                         step->placement,
                         i ? plan->steps[i - 1].after : from->nd_sbp,
                         step->placement->my_index};
    *out = NULL;
    if (g.mine < 0 && (step->kind != FL_BOX_EXCHANGE || g.p->my_index < 0)) return FL_OK;
    fl_move *m = calloc(1, sizeof *m);
    if (!m) return out_of_memory();
    *m = (fl_move){.kind = step->kind, .dtype = from->dtype, .reduce = reduce_of(&g)};
    m->in_numel = part_numel(&g, g.p, g.before);
    m->out_numel = part_numel(&g, g.q, step->after);
    describe(m, &g, from);
    fl_status status = step->kind == FL_BOX_ZERO_FILL ? compile_fill(m, &g) : compile_shared(m, &g);
    if (status == FL_OK) status = find_mark(m, g.p, g.q);
    if (step->kind == FL_BOX_EXCHANGE && g.mine >= 0) m->filled = fl_box_identity(g.q, step->after, g.mine);
    if (status == FL_OK) *out = m;
    else fl_move_free(m);
    return status;
}

/* ---- parts that are no balanced split ---- */

/* Positions that differ only on axes that split: they hold parts of the same copy of the whole, or of the same
** partial. */
static bool same_copy(const fl_meta *whole, int i, int j)
{
    int a[FL_MAX_HIERARCHY], b[FL_MAX_HIERARCHY];
    fl_placement_coords(a, whole->placement, i);
    fl_placement_coords(b, whole->placement, j);
    for (int k = 0; k < whole->placement->ndim; k++)
        if (!fl_sbp_is_split(whole->nd_sbp.at[k]) && a[k] != b[k]) return false;
    return true;
}

static int64_t window_numel(const fl_window *window, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) n *= window->size[i];
    return n;
}

static fl_status find_parts(fl_move *move, const fl_meta *whole, const fl_window *windows, bool back)
{
    int mine = whole->placement->my_index, ndim = whole->shape.ndim;
    fl_window own, other;
    fl_meta_window(&own, whole, mine);
    for (int i = 0; i < whole->placement->count; i++) {
        if (!same_copy(whole, mine, i)) continue;
        fl_meta_window(&other, whole, i);
        FL_TRY(add_overlap(&move->pulls, i, back ? &other : &windows[i], back ? &windows[mine] : &own, ndim));
        FL_TRY(add_overlap(&move->pushes, i, back ? &own : &windows[mine], back ? &windows[i] : &other, ndim));
    }
    for (int k = 0; k < move->pulls.count; k++) move->pulls.at[k].add = false;
    for (int k = 0; k < move->pushes.count; k++) move->pushes.at[k].add = false;
    move->in_numel = back ? window_numel(&own, ndim) : window_numel(&windows[mine], ndim);
    move->out_numel = back ? window_numel(&windows[mine], ndim) : window_numel(&own, ndim);
    return FL_OK;
}

fl_status fl_move_compile_parts(fl_move **out, const fl_meta *whole, const fl_window *windows, bool back)
{
    fl_move *m = calloc(1, sizeof *m);
    if (!m) return out_of_memory();
    *m = (fl_move){.kind = FL_BOX_EXCHANGE, .dtype = whole->dtype};
    strncpy(m->collective.name, back ? "global to local" : "local to global", FL_COLLECTIVE_NAME - 1);
    m->collective.shape = whole->shape;
    m->collective.dtype = (uint8_t)whole->dtype;
    m->collective.from = m->collective.to = whole->nd_sbp;
    m->tag = whole->placement->hash;
    m->fingerprint = fl_fingerprint(&m->collective, m->tag);
    fl_status status = fl_group_get(&m->group, whole->placement->ranks, whole->placement->count);
    if (status == FL_OK) status = find_mark(m, whole->placement, whole->placement);
    if (status == FL_OK) status = find_parts(m, whole, windows, back);
    if (status == FL_OK) *out = m;
    else fl_move_free(m);
    return status;
}

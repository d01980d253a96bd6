/*
** plan.c -- planning the way from one (placement, nd-SBP) to another.
**
** On one placement every hierarchy axis is converted by one collective among the ranks that differ only
** in that axis. That is possible while no later axis splits the tensor axis in question (the parts of such
** a group would not line up) and no later axis holds a partial of another kind (reductions of different
** kinds do not commute). The order of the axes is the cheapest one that never keeps more copies than
** source or destination do: a shortest path over the sets of axes already converted. If there is no
** such order, and between placements, the intersections of the windows are exchanged point to point.
*/
#include "boxing.h"

#include <assert.h>
#include <stdlib.h>

/* The tensor to move. */
struct job {
    const fl_shape *shape;
    int64_t item;       /* bytes of an element */
    bool is_order_seen; /* sums are rounded, and depend on their order */
};

static const char *const kind_names[] = {"slice",          "zero fill",  "copy",       "relabelling", "all-reduce",
                                         "reduce-scatter", "all-gather", "all-to-all", "exchange"};

const char *fl_box_kind_name(fl_box_kind kind) { return kind_names[kind]; }

static bool is_local_kind(fl_box_kind kind) { return kind <= FL_BOX_RELABEL; }

/* ---- one step along one hierarchy axis ---- */

static fl_box_kind kind_of(fl_sbp from, fl_sbp to)
{
    if (fl_sbp_is_partial(from)) return fl_sbp_is_split(to) ? FL_BOX_REDUCE_SCATTER : FL_BOX_ALL_REDUCE;
    if (fl_sbp_is_split(from) && fl_sbp_is_split(to)) return FL_BOX_ALL_TO_ALL;
    if (fl_sbp_is_split(from)) return to == FL_B ? FL_BOX_ALL_GATHER : FL_BOX_ZERO_FILL;
    return fl_sbp_is_split(to) ? FL_BOX_SLICE : to == FL_PSUM ? FL_BOX_ZERO_FILL : FL_BOX_RELABEL;
}

/* Part of n that a rank does not hold, at most: it may hold the smallest part. */
static int64_t missing(int64_t n, int parts) { return n - n / parts; }

/* The most any rank receives when one split axis becomes another; size: of the group's tensor. */
static int64_t all_to_all_elements(const int64_t *size, int64_t numel, int from_axis, int to_axis, int parts)
{
    int64_t most = 0;
    if (numel == 0) return 0;
    for (int r = 0; r < parts; r++) {
        int64_t start, had, gets;
        fl_split(&start, &had, size[from_axis], parts, r);
        fl_split(&start, &gets, size[to_axis], parts, r);
        int64_t received = (size[from_axis] - had) * gets * (numel / size[from_axis] / size[to_axis]);
        if (received > most) most = received;
    }
    return most;
}

/* Bytes of converting hierarchy axis `axis` of `state`, for the busiest rank. The group of coordinate 0 on all
** other axes has the largest parts. */
static int64_t step_bytes(const struct job *job, const fl_placement *placement, fl_nd_sbp state, int axis, fl_sbp to)
{
    fl_sbp from = state.at[axis];
    int parts = placement->hierarchy[axis];
    fl_window group;
    state.at[axis] = FL_B;
    fl_window_of(&group, job->shape, placement, state, 0);
    int64_t numel = 1;
    for (int i = 0; i < job->shape->ndim; i++) numel *= group.size[i];
    if (numel == 0 || parts == 1) return 0;
    switch (kind_of(from, to)) {
    case FL_BOX_ALL_REDUCE: return 2 * missing(numel, parts) * job->item;
    case FL_BOX_REDUCE_SCATTER: return numel / group.size[to] * missing(group.size[to], parts) * job->item;
    case FL_BOX_ALL_GATHER: return numel / group.size[from] * missing(group.size[from], parts) * job->item;
    case FL_BOX_ALL_TO_ALL: return all_to_all_elements(group.size, numel, from, to, parts) * job->item;
    default: return 0;
    }
}

static void plan_add(fl_box_plan *plan, fl_box_step step)
{
    assert(plan->count < FL_MAX_BOX_STEPS);
    plan->steps[plan->count++] = step;
    plan->bytes += step.bytes;
    plan->local = plan->local && is_local_kind(step.kind);
}

/* Converts one hierarchy axis and moves *state on. Partials of one kind become another's by way of B. */
static void add_conversion(fl_box_plan *plan, const struct job *job, const fl_placement *placement, fl_nd_sbp *state,
                           int axis, fl_sbp to)
{
    fl_sbp from = state->at[axis];
    bool trivial = placement->hierarchy[axis] == 1 || fl_shape_numel(job->shape) == 0;
    if (!trivial && fl_sbp_is_partial(from) && fl_sbp_is_partial(to)) {
        add_conversion(plan, job, placement, state, axis, FL_B);
        from = FL_B;
    }
    fl_box_step step = {.kind = trivial ? FL_BOX_RELABEL : kind_of(from, to),
                        .axis = axis,
                        .from = from,
                        .to = to,
                        .placement = placement};
    step.bytes = trivial ? 0 : step_bytes(job, placement, *state, axis, to);
    if (step.kind == FL_BOX_ALL_TO_ALL && step.bytes == 0) step.kind = FL_BOX_SLICE; /* each rank has its new part */
    state->at[axis] = to;
    step.after = *state;
    plan_add(plan, step);
}

/* ---- the order of the axes on one placement ---- */

static bool can_convert(const fl_placement *placement, fl_nd_sbp state, int axis, fl_sbp to)
{
    fl_sbp from = state.at[axis];
    for (int l = axis + 1; l < state.n; l++) {
        fl_sbp later = state.at[l];
        if (placement->hierarchy[l] == 1) continue;
        if (fl_sbp_is_split(later) && (later == from || later == to)) return false;
        if (!fl_sbp_is_partial(later)) continue;
        if ((fl_sbp_is_partial(from) && from != later) || (fl_sbp_is_partial(to) && to != later)) return false;
    }
    return true;
}

static bool is_sum(const fl_placement *placement, fl_nd_sbp nd_sbp, int axis)
{
    return nd_sbp.at[axis] == FL_PSUM && placement->hierarchy[axis] > 1;
}

/* True if a sum along this axis would come before one along a later axis. */
static bool sums_too_early(const struct job *job, const fl_placement *placement, fl_nd_sbp state, fl_nd_sbp to,
                           int axis)
{
    if (!job->is_order_seen || !is_sum(placement, state, axis)) return false;
    for (int l = axis + 1; l < state.n; l++)
        if (is_sum(placement, state, l) && to.at[l] != FL_PSUM) return true;
    return false;
}

/* The number of ranks that hold (or share in) the same element. */
static int64_t copies(const fl_placement *placement, fl_nd_sbp nd_sbp)
{
    int64_t n = 1;
    for (int k = 0; k < nd_sbp.n; k++)
        if (!fl_sbp_is_split(nd_sbp.at[k])) n *= placement->hierarchy[k];
    return n;
}

/* Cheapest ways from a source to each set of axes already converted (bit mask; best < 0: there is none). */
struct routes {
    int64_t best[1 << FL_MAX_HIERARCHY];
    signed char last[1 << FL_MAX_HIERARCHY]; /* axis converted last */
    unsigned all;                            /* mask of the axes that differ */
};

static fl_nd_sbp mixed(fl_nd_sbp from, fl_nd_sbp to, unsigned converted)
{
    for (int k = 0; k < to.n; k++)
        if (converted >> k & 1) from.at[k] = to.at[k];
    return from;
}

static int64_t conversion_bytes(const struct job *job, const fl_placement *placement, fl_nd_sbp state, int axis,
                                fl_sbp to)
{
    bool two = fl_sbp_is_partial(state.at[axis]) && fl_sbp_is_partial(to);
    return step_bytes(job, placement, state, axis, two ? FL_B : to);
}

/* Sets have larger masks than their subsets, so one pass in order of the masks finds every shortest path. */
static void find_routes(struct routes *routes, const struct job *job, const fl_placement *placement, fl_nd_sbp from,
                        fl_nd_sbp to)
{
    int64_t most = copies(placement, from) > copies(placement, to) ? copies(placement, from) : copies(placement, to);
    routes->all = 0;
    for (int k = 0; k < to.n; k++) routes->all |= (unsigned)(from.at[k] != to.at[k]) << k;
    memset(routes->best, -1, (routes->all + 1) * sizeof *routes->best);
    routes->best[0] = 0;
    for (unsigned done = 0; done < routes->all; done++) {
        if (routes->best[done] < 0) continue;
        fl_nd_sbp state = mixed(from, to, done);
        for (int k = 0; k < to.n; k++) {
            unsigned next = done | 1u << k;
            if (next == done || !(routes->all >> k & 1) || !can_convert(placement, state, k, to.at[k])) continue;
            if (copies(placement, mixed(from, to, next)) > most || sums_too_early(job, placement, state, to, k))
                continue;
            int64_t bytes = routes->best[done] + conversion_bytes(job, placement, state, k, to.at[k]);
            if (routes->best[next] >= 0 && routes->best[next] <= bytes) continue;
            routes->best[next] = bytes;
            routes->last[next] = (signed char)k;
        }
    }
}

/* Appends the steps that lead to the set `converted`. */
static void add_route(fl_box_plan *plan, const struct routes *routes, const struct job *job,
                      const fl_placement *placement, fl_nd_sbp *state, fl_nd_sbp to, unsigned converted)
{
    int order[FL_MAX_HIERARCHY], n = 0;
    for (unsigned set = converted; set; set &= ~(1u << routes->last[set])) order[n++] = routes->last[set];
    while (n-- > 0) add_conversion(plan, job, placement, state, order[n], to.at[order[n]]);
}

/* ---- exchange of windows ---- */

static bool same_device(const fl_placement *p, const fl_placement *q)
{
    return p->type == q->type && p->device_index == q->device_index;
}

/* The index of a position's part of the tensor (from its coordinates on S and P axes) and of its copy (on B axes). */
static void locate(int *part, int *replica, const fl_placement *placement, fl_nd_sbp sbp, int index)
{
    int coords[FL_MAX_HIERARCHY];
    *part = *replica = 0;
    fl_placement_coords(coords, placement, index);
    for (int k = 0; k < placement->ndim; k++) {
        int *key = sbp.at[k] == FL_B ? replica : part;
        *key = *key * placement->hierarchy[k] + coords[k];
    }
}

static int replica_count(const fl_placement *placement, fl_nd_sbp sbp)
{
    int n = 1;
    for (int k = 0; k < placement->ndim; k++) n *= sbp.at[k] == FL_B ? placement->hierarchy[k] : 1;
    return n;
}

fl_sbp fl_box_identity(const fl_placement *placement, fl_nd_sbp sbp, int index)
{
    int coords[FL_MAX_HIERARCHY];
    fl_placement_coords(coords, placement, index);
    for (int k = placement->ndim - 1; k >= 0; k--)
        if (fl_sbp_is_partial(sbp.at[k]) && coords[k] > 0) return sbp.at[k];
    return 0;
}

bool fl_box_is_source(const fl_placement *from, fl_nd_sbp sbp, int source, const fl_placement *to, int target)
{
    int part, replica, own_part, own_replica, own = fl_placement_index(from, to->ranks[target]);
    locate(&part, &replica, from, sbp, source);
    if (own >= 0) locate(&own_part, &own_replica, from, sbp, own);
    return replica == (own >= 0 && own_part == part ? own_replica : target % replica_count(from, sbp));
}

/* One side of an exchange, per position of the placement. */
struct side {
    const fl_placement *p;
    fl_nd_sbp sbp;
    fl_window *windows;
    bool *identity;      /* a partial that holds nothing but the identity: not first on a P axis */
    int *part, *replica; /* see locate */
    bool partial;
};

static void side_free(struct side *side)
{
    free(side->windows);
    free(side->identity);
    free(side->part);
    free(side->replica);
}

static fl_status side_init(struct side *side, const struct job *job, const fl_placement *placement, fl_nd_sbp sbp)
{
    size_t n = (size_t)placement->count;
    *side = (struct side){.p = placement, .sbp = sbp};
    side->windows = calloc(n, sizeof *side->windows);
    side->identity = calloc(n, sizeof *side->identity);
    side->part = calloc(n, sizeof *side->part);
    side->replica = calloc(n, sizeof *side->replica);
    if (!side->windows || !side->identity || !side->part || !side->replica) {
        side_free(side);
        return fl_fail(FL_ERR_MEMORY, "boxing: out of memory");
    }
    for (int k = 0; k < placement->ndim; k++)
        side->partial = side->partial || (fl_sbp_is_partial(sbp.at[k]) && placement->hierarchy[k] > 1);
    for (int i = 0; i < placement->count; i++) {
        fl_window_of(&side->windows[i], job->shape, placement, sbp, i);
        side->identity[i] = fl_box_identity(placement, sbp, i) != 0;
        locate(&side->part[i], &side->replica[i], placement, sbp, i);
    }
    return FL_OK;
}

static int64_t overlap(const fl_window *a, const fl_window *b, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        int64_t start = a->start[i] > b->start[i] ? a->start[i] : b->start[i];
        int64_t ea = a->start[i] + a->size[i], eb = b->start[i] + b->size[i], end = ea < eb ? ea : eb;
        if (end <= start) return 0;
        n *= end - start;
    }
    return n;
}

/* Most elements that one rank receives or sends. Every wanted part comes from the rank itself if it has it, else from
** one of its copies in turn. Elements that stay on a rank count when they change the device. */
static int64_t exchange_elements(const struct job *job, const struct side *from, const struct side *to, int64_t *sent)
{
    int64_t most = 0;
    int replicas = replica_count(from->p, from->sbp);
    bool same = same_device(from->p, to->p);
    memset(sent, 0, (size_t)from->p->count * sizeof *sent);
    for (int t = 0; t < to->p->count; t++) {
        int64_t received = 0;
        int own = fl_placement_index(from->p, to->p->ranks[t]);
        if (to->identity[t]) continue;
        for (int s = 0; s < from->p->count; s++) {
            bool has_part = own >= 0 && from->part[own] == from->part[s];
            if (from->replica[s] != (has_part ? from->replica[own] : t % replicas)) continue; /* fl_box_is_source */
            if (s == own && same) continue;
            int64_t n = overlap(&from->windows[s], &to->windows[t], job->shape->ndim);
            received += n;
            sent[s] += n;
        }
        if (received > most) most = received;
    }
    for (int s = 0; s < from->p->count; s++)
        if (sent[s] > most) most = sent[s];
    return most;
}

/* Every rank holds the same numbers before and after: the same windows, and partials of one kind over all ranks. */
static bool same_parts(const struct side *from, const struct side *to)
{
    const fl_placement *p = from->p, *q = to->p;
    fl_sbp kind = 0;
    if (p->count != q->count || !same_device(p, q) || from->partial != to->partial) return false;
    for (int k = 0; k < p->ndim + q->ndim; k++) {
        fl_sbp s = k < p->ndim ? from->sbp.at[k] : to->sbp.at[k - p->ndim];
        int parts = k < p->ndim ? p->hierarchy[k] : q->hierarchy[k - p->ndim];
        if (!from->partial || parts == 1) continue;
        if (!fl_sbp_is_partial(s) || (kind && s != kind)) return false;
        kind = s;
    }
    for (int i = 0; i < p->count; i++)
        if (p->ranks[i] != q->ranks[i] || memcmp(&from->windows[i], &to->windows[i], sizeof(fl_window)) != 0)
            return false;
    return true;
}

/* Appends one exchange, or a local step if every rank already has its elements. */
static fl_status add_exchange(fl_box_plan *plan, const struct job *job, const fl_placement *from_place,
                              fl_nd_sbp from_sbp, const fl_placement *to_place, fl_nd_sbp to_sbp)
{
    struct side from, to;
    FL_TRY(side_init(&from, job, from_place, from_sbp));
    fl_status status = side_init(&to, job, to_place, to_sbp);
    if (status != FL_OK) {
        side_free(&from);
        return status;
    }
    fl_box_step step = {.kind = FL_BOX_EXCHANGE,
                        .axis = -1,
                        .from = from_sbp.at[0],
                        .to = to_sbp.at[0],
                        .placement = to_place,
                        .after = to_sbp};
    int64_t *sent = malloc((size_t)from_place->count * sizeof *sent);
    if (!sent) status = fl_fail(FL_ERR_MEMORY, "boxing: out of memory");
    else if (same_parts(&from, &to)) step.kind = FL_BOX_RELABEL;
    else {
        step.bytes = exchange_elements(job, &from, &to, sent) * job->item;
        if (step.bytes == 0 && !from.partial && same_device(from_place, to_place))
            step.kind = to.partial ? FL_BOX_ZERO_FILL : FL_BOX_SLICE;
    }
    if (status == FL_OK) plan_add(plan, step);
    free(sent);
    side_free(&from);
    side_free(&to);
    return status;
}

/* ---- exchanges with collectives around them ---- */

/* sbp with its partials (or broadcasts) split instead, where an axis can be: the last hierarchy axis first, each along
** the tensor axis with the most elements left that no later axis splits. Axes that cannot be split become B. */
static fl_nd_sbp spread(const struct job *job, const fl_placement *placement, fl_nd_sbp sbp, bool partials)
{
    for (int k = placement->ndim - 1; k >= 0; k--) {
        if (placement->hierarchy[k] == 1 || (partials ? !fl_sbp_is_partial(sbp.at[k]) : sbp.at[k] != FL_B)) continue;
        fl_window left;
        fl_window_of(&left, job->shape, placement, sbp, 0);
        int64_t most = 1;
        fl_sbp choice = FL_B;
        for (int i = 0; i < job->shape->ndim; i++) {
            if (left.size[i] <= most || !can_convert(placement, sbp, k, FL_S(i))) continue;
            most = left.size[i];
            choice = FL_S(i);
        }
        sbp.at[k] = choice;
    }
    return sbp;
}

static void add_conversions(fl_box_plan *plan, const struct job *job, const fl_placement *placement, fl_nd_sbp state,
                            fl_nd_sbp to)
{
    for (int k = placement->ndim - 1; k >= 0; k--)
        if (state.at[k] != to.at[k]) add_conversion(plan, job, placement, &state, k, to.at[k]);
}

/* Partials of different kinds, which no single exchange can put together. */
static bool mixes_partials(const fl_placement *placement, fl_nd_sbp sbp)
{
    fl_sbp kind = 0;
    for (int k = 0; k < placement->ndim; k++) {
        if (!fl_sbp_is_partial(sbp.at[k]) || placement->hierarchy[k] == 1) continue;
        if (kind && kind != sbp.at[k]) return true;
        kind = sbp.at[k];
    }
    return false;
}

/* Sums along several axes, which an exchange would not add up axis by axis. */
static bool sums_nested(const struct job *job, const fl_placement *placement, fl_nd_sbp sbp)
{
    int sums = 0;
    for (int k = 0; k < placement->ndim; k++) sums += is_sum(placement, sbp, k);
    return job->is_order_seen && sums > 1;
}

/* Appends the cheapest of four ways: straight; partials reduced and scattered first, so that every element is sent
** once; broadcasts sent as parts and gathered there, so that no rank sends the same to many; both. */
static fl_status add_moves(fl_box_plan *plan, const struct job *job, const fl_placement *from_place, fl_nd_sbp from,
                           const fl_placement *to_place, fl_nd_sbp to)
{
    fl_nd_sbp reduced = spread(job, from_place, from, true), parts = spread(job, to_place, to, false);
    fl_box_plan best = {.count = -1};
    for (int way = 0; way < 4; way++) {
        fl_nd_sbp first = way & 1 ? reduced : from, second = way & 2 ? parts : to;
        if (mixes_partials(from_place, first)) continue;
        if ((way & 1 && fl_nd_sbp_equal(reduced, from)) || (way & 2 && fl_nd_sbp_equal(parts, to))) continue;
        fl_box_plan candidate = *plan;
        add_conversions(&candidate, job, from_place, from, first);
        FL_TRY(add_exchange(&candidate, job, from_place, first, to_place, second));
        if (sums_nested(job, from_place, first) && !candidate.local) continue;
        add_conversions(&candidate, job, to_place, second, to);
        if (best.count < 0 || candidate.bytes < best.bytes) best = candidate;
    }
    assert(best.count >= 0); /* once partials are reduced, none is left that could be mixed or nested */
    *plan = best;
    return FL_OK;
}

/* No order of collectives leads to `to`: converts some of the axes, whatever is cheapest, and exchanges the rest. */
static fl_status plan_nested(fl_box_plan *plan, const struct routes *routes, const struct job *job,
                             const fl_placement *placement, fl_nd_sbp from, fl_nd_sbp to)
{
    fl_box_plan best = {.count = -1};
    for (unsigned set = 0; set < routes->all; set++) {
        if (routes->best[set] < 0 || (best.count >= 0 && plan->bytes + routes->best[set] >= best.bytes)) continue;
        fl_box_plan candidate = *plan;
        fl_nd_sbp state = from;
        add_route(&candidate, routes, job, placement, &state, to, set);
        FL_TRY(add_moves(&candidate, job, placement, state, placement, to));
        if (best.count < 0 || candidate.bytes < best.bytes) best = candidate;
    }
    *plan = best;
    return FL_OK;
}

/* ---- the planner ---- */

static bool same_ranks(const fl_placement *p, const fl_placement *q)
{
    return p == q
        || (p->count == q->count && p->ndim == q->ndim
            && memcmp(p->hierarchy, q->hierarchy, (size_t)p->ndim * sizeof *p->hierarchy) == 0
            && memcmp(p->ranks, q->ranks, (size_t)p->count * sizeof *p->ranks) == 0);
}

static bool empty_tensor(const fl_shape *shape) { return fl_shape_numel(shape) == 0; }

/* From one SBP to another on the ranks of one placement. */
static fl_status plan_here(fl_box_plan *out, const struct job *job, const fl_placement *placement, fl_nd_sbp state,
                           fl_nd_sbp to_sbp)
{
    for (int k = 0; k < placement->ndim; k++) /* nothing moves along these */
        if (state.at[k] != to_sbp.at[k] && (empty_tensor(job->shape) || placement->hierarchy[k] == 1))
            add_conversion(out, job, placement, &state, k, to_sbp.at[k]);
    if (fl_nd_sbp_equal(state, to_sbp)) return FL_OK;
    struct routes r;
    find_routes(&r, job, placement, state, to_sbp);
    if (r.best[r.all] < 0) return plan_nested(out, &r, job, placement, state, to_sbp);
    add_route(out, &r, job, placement, &state, to_sbp, r.all);
    return FL_OK;
}

/* The same ranks' other device: every rank copies what it has. */
static void add_copy(fl_box_plan *plan, const struct job *job, const fl_placement *placement, fl_nd_sbp sbp)
{
    fl_window w;
    int64_t numel = 1;
    fl_window_of(&w, job->shape, placement, sbp, 0);
    for (int i = 0; i < job->shape->ndim; i++) numel *= w.size[i];
    plan_add(plan,
             (fl_box_step){.kind = FL_BOX_COPY,
                           .axis = -1,
                           .from = sbp.at[0],
                           .to = sbp.at[0],
                           .placement = placement,
                           .after = sbp,
                           .bytes = numel * job->item});
}

/* Between ranks of different devices data goes from CPU to CPU. */
static fl_status plan_by_cpus(fl_box_plan *out, const struct job *job, const fl_placement *from, fl_nd_sbp from_sbp,
                              const fl_placement *to, fl_nd_sbp to_sbp)
{
    const fl_placement *p, *q;
    FL_TRY(fl_placement_on_cpu(&p, from));
    FL_TRY(fl_placement_on_cpu(&q, to));
    if (p != from) add_copy(out, job, p, from_sbp);
    if (same_ranks(p, q)) FL_TRY(plan_here(out, job, p, from_sbp, to_sbp));
    else FL_TRY(add_moves(out, job, p, from_sbp, q, to_sbp));
    if (q != to) add_copy(out, job, to, to_sbp);
    return FL_OK;
}

fl_box_plan *fl_box_plan_copy(const fl_box_plan *plan)
{
    size_t size = offsetof(fl_box_plan, steps) + (size_t)plan->count * sizeof *plan->steps;
    fl_box_plan *copy = malloc(size);
    return copy ? memcpy(copy, plan, size) : NULL;
}

/* A step of the tensor as a whole that moves no bytes. */
static void add_whole(fl_box_plan *out, fl_box_kind kind, fl_nd_sbp from, const fl_placement *to, fl_nd_sbp to_sbp)
{
    plan_add(out,
             (fl_box_step){
                 .kind = kind, .axis = -1, .from = from.at[0], .to = to_sbp.at[0], .placement = to, .after = to_sbp});
}

fl_status fl_boxing_plan(fl_box_plan *out, fl_dtype dtype, const fl_shape *shape, const fl_placement *from,
                         fl_nd_sbp from_sbp, const fl_placement *to, fl_nd_sbp to_sbp)
{
    struct job j = {shape, (int64_t)fl_dtype_size(dtype), fl_dtype_is_float(dtype)};
    *out = (fl_box_plan){.local = true};
    if (to->type == FL_META && from->type != FL_META) { /* there are no bytes to come */
        add_whole(out, FL_BOX_COPY, from_sbp, to, to_sbp);
        return FL_OK;
    }
    if (same_ranks(from, to) && same_device(from, to)) return plan_here(out, &j, to, from_sbp, to_sbp);
    if (empty_tensor(shape)) {
        add_whole(out, FL_BOX_RELABEL, from_sbp, to, to_sbp);
        return FL_OK;
    }
    if (!same_device(from, to)) {
        if (same_ranks(from, to) && fl_nd_sbp_equal(from_sbp, to_sbp)) {
            add_copy(out, &j, to, to_sbp);
            return FL_OK;
        }
        return plan_by_cpus(out, &j, from, from_sbp, to, to_sbp);
    }
    return add_moves(out, &j, from, from_sbp, to, to_sbp);
}

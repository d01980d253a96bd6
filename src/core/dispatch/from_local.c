/*
** from_local.c -- local tensors of the ranks put together to a global one.
**
** The ranks exchange the facts of their parts (dtype, shape, a hash of the data) and all check the same facts, so that
** all of them fail or none. Parts that are no balanced split are moved into one, in one exchange.
*/
#include "record.h"
#include "dispatch.h"
#include "base/hash.h"
#include "boxing/boxing.h"
#include "ranks/comm.h"
#include "listener.h"
#include "to_global.h"
#include "boxing/move.h"
#include "boxing/pack.h"

#include <stdio.h>
#include <stdlib.h>

/* The facts of a rank's part that it sends to the others. */
struct part_facts {
    int32_t dtype, ndim;
    int64_t dims[FL_MAX_NDIM];
    uint64_t hash;             /* of the data; 0: not taken */
    char error[FL_ERROR_TEXT]; /* why there are no data to hash; "": there are */
};

/* The parts of all positions of a placement. */
struct parts {
    const fl_placement *p;
    fl_nd_sbp sbp;
    const struct part_facts **at; /* by position */
    fl_window *windows;           /* by position: where each part lies in the whole */
    fl_shape whole;
    fl_dtype dtype;
};

/* ---- the places of parts ---- */

static int index_of(const fl_placement *placement, const int *coords)
{
    int index = 0;
    for (int k = 0; k < placement->ndim; k++) index = index * placement->hierarchy[k] + coords[k];
    return index;
}

/* Position that `index` becomes when its coordinates on the hierarchy axes for which keep() is false are 0. */
static int project(const struct parts *all, int index, int axis)
{
    int coords[FL_MAX_HIERARCHY];
    fl_placement_coords(coords, all->p, index);
    for (int k = 0; k < all->p->ndim; k++)
        if (all->sbp.at[k] != FL_S(axis)) coords[k] = 0;
    return index_of(all->p, coords);
}

static fl_status check_errors(const struct parts *all)
{
    for (int i = 0; i < all->p->count; i++)
        if (all->at[i]->error[0]) return fl_fail(FL_ERR_STATE, "rank %d: %s", all->p->ranks[i], all->at[i]->error);
    return FL_OK;
}

static fl_status check_alike(const struct parts *all)
{
    char a[FL_SHAPE_TEXT], b[FL_SHAPE_TEXT];
    const struct part_facts *first = all->at[0];
    for (int i = 1; i < all->p->count; i++) {
        const struct part_facts *f = all->at[i];
        int r0 = all->p->ranks[0], r = all->p->ranks[i];
        if (f->dtype != first->dtype)
            return fl_fail(FL_ERR_DTYPE, "to_global: rank %d has %s, rank %d has %s; all parts must have one dtype", r0,
                           fl_dtype_name((fl_dtype)first->dtype), r, fl_dtype_name((fl_dtype)f->dtype));
        if (f->ndim == first->ndim) continue;
        fl_shape x = {first->ndim, {0}}, y = {f->ndim, {0}};
        memcpy(x.dims, first->dims, sizeof x.dims);
        memcpy(y.dims, f->dims, sizeof y.dims);
        return fl_fail(FL_ERR_SHAPE,
                       "to_global: rank %d has %s, rank %d has %s; all parts must have the same number of axes", r0,
                       fl_shape_text(a, &x), r, fl_shape_text(b, &y));
    }
    return FL_OK;
}

/* Along each tensor axis the parts follow one another in the order of the hierarchy axes that split it; on all other
** coordinates a part is as long as its neighbours. */
static fl_status place_axis(struct parts *all, int axis)
{
    char text[FL_ND_SBP_TEXT];
    int64_t total = 0;
    for (int i = 0; i < all->p->count; i++) {
        int counterpart = project(all, i, axis);
        int64_t size = all->at[i]->dims[axis];
        if (size != all->at[counterpart]->dims[axis])
            return fl_fail(FL_ERR_SHAPE,
                           "to_global: with %s the parts of ranks %d and %d must have equal sizes along axis %d; they "
                           "have %lld and %lld",
                           fl_nd_sbp_text(text, all->sbp), all->p->ranks[counterpart], all->p->ranks[i], axis,
                           (long long)all->at[counterpart]->dims[axis], (long long)size);
        if (counterpart != i) all->windows[i].start[axis] = all->windows[counterpart].start[axis];
        else {
            all->windows[i].start[axis] = total;
            total += size;
        }
        all->windows[i].size[axis] = size;
    }
    all->whole.dims[axis] = total;
    return FL_OK;
}

/* Copies of one part have equal data. */
static fl_status check_copies(const struct parts *all)
{
    char text[FL_ND_SBP_TEXT];
    for (int i = 0; i < all->p->count; i++) {
        int coords[FL_MAX_HIERARCHY];
        fl_placement_coords(coords, all->p, i);
        for (int k = 0; k < all->p->ndim; k++)
            if (all->sbp.at[k] == FL_B) coords[k] = 0;
        int counterpart = index_of(all->p, coords);
        if (all->at[i]->hash == all->at[counterpart]->hash) continue;
        return fl_fail(FL_ERR_VALUE,
                       "to_global: ranks %d and %d hold different data, but %s requires equal data; use another sbp "
                       "(S, P), or {check = false} to accept the difference",
                       all->p->ranks[counterpart], all->p->ranks[i], fl_nd_sbp_text(text, all->sbp));
    }
    return FL_OK;
}

static fl_status place_parts(struct parts *all)
{
    char text[FL_ND_SBP_TEXT];
    FL_TRY(check_alike(all));
    all->dtype = (fl_dtype)all->at[0]->dtype;
    all->whole.ndim = all->at[0]->ndim;
    for (int k = 0; k < all->p->ndim; k++)
        if (fl_sbp_is_split(all->sbp.at[k]) && all->sbp.at[k] >= all->whole.ndim)
            return fl_fail(FL_ERR_SBP, "to_global: %s splits axis %d, the parts have %d axes",
                           fl_nd_sbp_text(text, all->sbp), all->sbp.at[k], all->whole.ndim);
    for (int axis = 0; axis < all->whole.ndim; axis++) FL_TRY(place_axis(all, axis));
    return check_copies(all);
}

static bool is_balanced(const struct parts *all)
{
    for (int i = 0; i < all->p->count; i++) {
        fl_window w;
        fl_window_of(&w, &all->whole, all->p, all->sbp, i);
        for (int a = 0; a < all->whole.ndim; a++)
            if (w.size[a] != all->windows[i].size[a] || w.start[a] != all->windows[i].start[a]) return false;
    }
    return true;
}

/* ---- telling each other ---- */

/* Equal data, equal hash; 0 is kept for "not taken". */
static fl_status hash_of(uint64_t *out, fl_tensor *local)
{
    fl_tensor *whole, *host;
    FL_TRY(fl_host_part(&host, local));
    fl_status status = FL_CALL_UNRECORDED(&whole, contiguous, fl_of(host));
    fl_tensor_unref(host);
    FL_TRY(status);
    status = fl_tensor_wait(whole);
    if (status == FL_OK) {
        size_t bytes = (size_t)whole->meta->local_numel * fl_dtype_size(whole->meta->dtype);
        *out = fl_hash_words(FL_HASH_START, fl_tensor_data(whole), bytes) | 1;
    }
    fl_tensor_unref(whole);
    return status;
}

/* "tensor of float32[2] B": data that a script gave. */
static void word_data(char *buffer, const void *what)
{
    const fl_meta *m = what;
    char shape[FL_SHAPE_TEXT], sbp[FL_ND_SBP_TEXT];
    snprintf(buffer, FL_PAST_WHAT, "tensor of %s%s %s", fl_dtype_name(m->dtype), fl_shape_text(shape, &m->shape),
             fl_nd_sbp_text(sbp, m->nd_sbp));
}

fl_status fl_global_note_data(fl_tensor *local, const fl_meta *whole)
{
    fl_history *h;
    uint64_t data;
    FL_TRY(fl_history_get(&h, whole->placement->ranks, whole->placement->count));
    if (!h) return FL_OK;
    FL_TRY(hash_of(&data, local));
    fl_history_note(h, whole->hash | 1, data, word_data, whole);
    return FL_OK;
}

/* Exchanges the facts of all members of g; freed by the caller. */
static fl_status exchange_facts(struct part_facts **out, fl_group *group, const struct part_facts *mine)
{
    struct part_facts *all = malloc((size_t)group->count * sizeof *all);
    if (!all) return fl_fail(FL_ERR_MEMORY, "to_global: out of memory");
    fl_status status = fl_comm_share(group, "local to global", all, mine, sizeof *mine, 0);
    if (status == FL_OK) *out = all;
    else free(all);
    return status;
}

static void parts_free(struct parts *all)
{
    free(all->at);
    free(all->windows);
}

/* facts: by position in `group`. */
static fl_status parts_init(struct parts *all, const struct part_facts *facts, const fl_group *group,
                            const fl_placement *placement, fl_nd_sbp sbp)
{
    *all = (struct parts){.p = placement, .sbp = sbp};
    all->at = calloc((size_t)placement->count, sizeof *all->at);
    all->windows = calloc((size_t)placement->count, sizeof *all->windows);
    fl_status status = all->at && all->windows ? FL_OK : fl_fail(FL_ERR_MEMORY, "to_global: out of memory");
    for (int i = 0; i < placement->count && status == FL_OK; i++)
        for (int m = 0; m < group->count; m++)
            if (group->ranks[m] == placement->ranks[i]) all->at[i] = &facts[m];
    if (status == FL_OK) status = check_errors(all);
    if (status == FL_OK) status = place_parts(all);
    if (status != FL_OK) parts_free(all);
    return status;
}

static struct part_facts facts_of(const fl_tensor *local)
{
    struct part_facts f = {.dtype = (int32_t)local->meta->dtype, .ndim = local->meta->shape.ndim};
    memcpy(f.dims, local->meta->shape.dims, sizeof(int64_t) * (size_t)f.ndim);
    return f;
}

/* ---- moving parts into a balanced split and back ---- */

static fl_status push_packed(fl_move *move, fl_tensor *out, fl_tensor *in)
{
    fl_tensor *part;
    FL_TRY(fl_pack_part(&part, in));
    fl_status status = fl_move_push(move, out, part);
    fl_tensor_unref(part);
    return status;
}

/* back: from the balanced split to the ranks' own parts. *out: uninitialised, takes what this rank gets. */
static fl_status move_parts(fl_tensor *out, fl_tensor *in, const struct parts *all, const fl_meta *whole, bool back)
{
    fl_move *move = NULL;
    if (whole->placement->my_index < 0) return FL_OK;
    fl_status status = fl_move_compile_parts(&move, whole, all->windows, back);
    if (status == FL_OK) status = push_packed(move, out, in);
    fl_move_free(move);
    return status;
}

/* The ranks' own parts of a gradient that lies in the balanced split. */
static fl_status give_back(fl_tensor **out, fl_tensor *grad, const fl_meta *part, const fl_placement *placement,
                           fl_nd_sbp sbp)
{
    fl_group *group;
    struct part_facts mine = {.dtype = (int32_t)part->dtype, .ndim = part->shape.ndim}, *facts;
    struct parts all;
    memcpy(mine.dims, part->shape.dims, sizeof mine.dims);
    FL_TRY(fl_listener_refuse("a gradient is given back to parts of unequal sizes"));
    FL_TRY(fl_tensor_empty_local(out, grad->meta->dtype, &part->shape));
    fl_status status = fl_group_get(&group, placement->ranks, placement->count);
    if (status == FL_OK && placement->my_index >= 0) status = exchange_facts(&facts, group, &mine);
    if (status == FL_OK && placement->my_index >= 0) {
        status = parts_init(&all, facts, group, placement, sbp);
        if (status == FL_OK) {
            status = move_parts(*out, grad, &all, grad->meta, true);
            parts_free(&all);
        }
        free(facts);
    }
    if (status != FL_OK) fl_tensor_unref(*out);
    return status;
}

/* ---- the op ---- */

static fl_status from_local_grad(fl_grad *g)
{
    const fl_meta *whole = g->out_meta[0];
    fl_nd_sbp sbp = fl_nd_sbp_reduced(whole->nd_sbp);
    fl_tensor *boxed;
    FL_TRY(fl_to_global(&boxed, g->gout[0], whole->placement, sbp, NULL));
    fl_status status;
    if (g->in_meta[1]) /* the part had to move */
        status = give_back(&g->gin[0], boxed, g->in_meta[0], whole->placement, sbp);
    else status = fl_to_local(&g->gin[0], boxed, NULL);
    fl_tensor_unref(boxed);
    return status;
}

static fl_status from_local_again(fl_tensor **out, fl_tensor *x, const fl_attrs *attrs)
{
    fl_shape logical = {attrs->at[FL_FROM_LOCAL_SHAPE].count, {0}};
    memcpy(logical.dims, attrs->at[FL_FROM_LOCAL_SHAPE].list, sizeof(int64_t) * (size_t)logical.ndim);
    return fl_global_from_part(out, x, &logical, attrs->placement, attrs->nd_sbp);
}

/* in[0]: the rank's own tensor; in[1]: its part of the balanced split, where that is another. */
static fl_status body_from_local(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    char have[FL_META_TEXT], want[FL_SHAPE_TEXT];
    fl_tensor *local = in[1].kind == FL_TENSOR ? in[1].tensor : in[0].tensor;
    fl_shape logical = {attrs->at[FL_FROM_LOCAL_SHAPE].count, {0}}, part = {logical.ndim, {0}};
    const fl_meta *meta;
    if (!local->meta->is_local)
        return fl_fail(FL_ERR_SBP, "to_global: the tensor is already global (%s)", fl_meta_text(have, local->meta));
    memcpy(logical.dims, attrs->at[FL_FROM_LOCAL_SHAPE].list, sizeof(int64_t) * (size_t)logical.ndim);
    fl_status status = fl_meta_get(&meta, local->meta->dtype, &logical, attrs->placement, attrs->nd_sbp, false);
    if (status != FL_OK) return fl_fail_prefix(status, "to_global: ");
    memcpy(part.dims, meta->window.size, sizeof(int64_t) * (size_t)part.ndim);
    if (!meta->holds) status = fl_tensor_empty(out, meta);
    else if (fl_shape_equal(&part, &local->meta->shape))
        status = fl_tensor_view(out, local, meta, local->strides, local->offset);
    else
        status = fl_fail(FL_ERR_SHAPE, "to_global: this rank's part must be %s, the tensor is %s",
                         fl_shape_text(want, &part), fl_meta_text(have, local->meta));
    fl_meta_unref(meta);
    return status;
}

FL_OP(from_local) = {
    .name = "from_local",
    .sig = "from_local(x, part?, grad_sbp: int = nil, shape: ints = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_BY_STEP | FL_OP_VIEW,
    .doc = "The ranks' local parts put together.",
    .body = body_from_local,
    .replay = from_local_again,
    .grad = from_local_grad,
};

/* part: where the tensor's own had to move; else NULL. */
static fl_status from_local(fl_tensor **out, fl_tensor *local, fl_tensor *part, const fl_shape *logical,
                            const fl_placement *placement, fl_nd_sbp nd_sbp)
{
    fl_attrs attrs;
    fl_to_global_attrs(&attrs, FL_OP_REF(from_local), placement, nd_sbp, NULL);
    fl_attr_set_list(&attrs, FL_FROM_LOCAL_SHAPE, logical->dims, logical->ndim);
    return FL_CALL_WITH(out, &attrs, from_local, fl_of(local), fl_of(part));
}

fl_status fl_global_from_part(fl_tensor **out, fl_tensor *local, const fl_shape *logical, const fl_placement *placement,
                              fl_nd_sbp nd_sbp)
{
    return from_local(out, local, NULL, logical, placement, nd_sbp);
}

/* The parts are known, and not all where a balanced split would have them. */
static fl_status global_from_moved(fl_tensor **out, fl_tensor *local, const struct parts *all)
{
    const fl_meta *meta;
    fl_tensor *part = NULL;
    FL_TRY(fl_meta_get(&meta, all->dtype, &all->whole, all->p, all->sbp, false));
    fl_shape size = {all->whole.ndim, {0}};
    memcpy(size.dims, meta->window.size, sizeof(int64_t) * (size_t)size.ndim);
    fl_status status = fl_tensor_empty_local(&part, all->dtype, &size);
    if (status == FL_OK) status = move_parts(part, local, all, meta, false);
    if (status == FL_OK) status = from_local(out, local, part, &all->whole, all->p, all->sbp);
    fl_tensor_unref(part);
    fl_meta_unref(meta);
    return status;
}

/* A rank outside of the placement: the logical tensor, and no part of it. */
static fl_status global_outside(fl_tensor **out, const struct parts *all)
{
    const fl_meta *meta;
    FL_TRY(fl_meta_get(&meta, all->dtype, &all->whole, all->p, all->sbp, false));
    fl_status status = fl_tensor_empty(out, meta);
    fl_meta_unref(meta);
    return status;
}

/* Parts on devices that are no balanced split are moved by the CPUs; every rank of the world calls this. */
static fl_status put_together_on_cpus(fl_tensor **out, fl_tensor *local, const fl_placement *placement, fl_nd_sbp sbp)
{
    const fl_placement *cpus;
    fl_tensor *here, *whole;
    FL_TRY(fl_placement_get(&cpus, FL_CPU, placement->ranks, placement->count, placement->hierarchy, placement->ndim));
    FL_TRY(fl_to_device(&here, local, fl_placement_local(FL_CPU, -1)));
    fl_status status = fl_local_to_global(&whole, here, cpus, sbp, false);
    fl_tensor_unref(here);
    FL_TRY(status);
    status = fl_to_global(out, whole, placement, sbp, NULL);
    fl_tensor_unref(whole);
    return status;
}

static bool has(const fl_placement *placement, fl_nd_sbp sbp, bool (*is)(fl_sbp))
{
    for (int k = 0; k < placement->ndim; k++)
        if (placement->hierarchy[k] > 1 && is(sbp.at[k])) return true;
    return false;
}

static bool is_split(fl_sbp sbp) { return fl_sbp_is_split(sbp); }
static bool is_broadcast(fl_sbp sbp) { return sbp == FL_B; }

static fl_status put_together(fl_tensor **out, fl_tensor *local, const fl_placement *placement, fl_nd_sbp sbp,
                              bool check)
{
    fl_group *world;
    struct part_facts mine = facts_of(local), *facts;
    FL_TRY(fl_listener_refuse("the ranks tell each other the sizes of their parts (to_global of a local tensor)"));
    FL_TRY(fl_group_world(&world));
    bool hashes = check && placement->my_index >= 0 && has(placement, sbp, is_broadcast);
    if (hashes && hash_of(&mine.hash, local) != FL_OK) snprintf(mine.error, sizeof mine.error, "%s", fl_message());
    FL_TRY(exchange_facts(&facts, world, &mine));
    struct parts all;
    fl_status status = parts_init(&all, facts, world, placement, sbp);
    if (status == FL_OK) {
        bool balanced = is_balanced(&all);
        if (!balanced && placement->type == FL_CUDA) status = put_together_on_cpus(out, local, placement, sbp);
        else if (placement->my_index < 0) status = global_outside(out, &all);
        else if (balanced) status = fl_global_from_part(out, local, &all.whole, placement, sbp);
        else status = global_from_moved(out, local, &all);
        parts_free(&all);
    }
    free(facts);
    return status;
}

/* Without bytes: no rank is asked, each part is as large as this one. */
static fl_status put_together_meta(fl_tensor **out, fl_tensor *local, const fl_placement *placement, fl_nd_sbp sbp)
{
    fl_shape whole = local->meta->shape;
    FL_TRY(fl_nd_sbp_check(sbp, placement));
    for (int k = 0; k < placement->ndim; k++) {
        if (!fl_sbp_is_split(sbp.at[k]) || sbp.at[k] >= whole.ndim) continue;
        int64_t *size = &whole.dims[sbp.at[k]];
        if (__builtin_mul_overflow(*size, placement->hierarchy[k], size)) *size = INT64_MAX; /* too large for a meta */
    }
    return fl_global_from_part(out, local, &whole, placement, sbp);
}

fl_status fl_local_to_global(fl_tensor **out, fl_tensor *local, const fl_placement *placement, fl_nd_sbp nd_sbp,
                             bool check)
{
    char have[FL_META_TEXT];
    const fl_world *world = fl_world_get();
    if (!local->meta->is_local)
        return fl_fail(FL_ERR_SBP, "to_global: the tensor is already global (%s)", fl_meta_text(have, local->meta));
    if (fl_meta_check_copy(local->meta, placement) != FL_OK) return fl_fail_prefix(FL_ERR_STATE, "to_global: ");
    if (local->meta->placement->type != placement->type && placement->my_index >= 0) {
        fl_tensor *there;
        FL_TRY(fl_to_device(&there, local, fl_placement_local(placement->type, -1)));
        fl_status status = fl_local_to_global(out, there, placement, nd_sbp, check);
        fl_tensor_unref(there);
        return status;
    }
    if (placement->type == FL_META) return put_together_meta(out, local, placement, nd_sbp);
    bool exchange = world->size > 1 && (check || has(placement, nd_sbp, is_split));
    if (!exchange) return fl_global_from_part(out, local, &local->meta->shape, placement, nd_sbp);
    if (!fl_comm_get())
        return fl_fail(FL_ERR_COMM,
                       "to_global: the ranks must exchange the shapes of their parts, and %s; "
                       "make the tensor with placement and sbp, or box a broadcast one",
                       world->dry ? "this is a dry world (FLOW_WORLD)" : "there is no transport");
    return put_together(out, local, placement, nd_sbp, check);
}

/*
** sbp_choose.c -- which of an op's signatures is taken, for any number of hierarchy axes.
**
** Axis k is asked with the shapes left after the axes before it, so the candidates form a tree. The tensor axes that a
** signature splits are one logical axis, so it is taken only where the same interval is left of each of them. Every
** leaf is priced by the boxing it would need; the best one costs least, then has the fewest empty parts, then keeps
** most inputs as they are (wholly, then counting hierarchy axes), then the largest input, then comes first in the op's
** list. The tree is complete for three axes; on further ones only signatures that keep some input as it is are followed
** (where there are any): seven axes would make millions of leaves.
*/
#include "infer_internal.h"
#include "op/outside.h"

#include <assert.h>
#include <stdlib.h>

enum { PRICE_BUCKETS = 256, COMPLETE_AXES = 3 };

/* Signatures of one hierarchy axis: `count` rows of `width` SBPs. */
struct fl_sig_list {
    fl_sbp *rows;
    fl_body *bodies;
    int width, count, capacity;
    bool failed;
};

struct score {
    int64_t bytes;
    int empty_parts, kept;
    int kept_axes;        /* pairs of input and hierarchy axis that stay */
    int64_t largest_kept; /* bytes */
};

/* The boxing of an input that a leaf needs, with its price. */
struct priced {
    struct priced *next; /* of its bucket */
    uint64_t wanted;     /* bits of the nd-SBP */
    int input;
    fl_box_plan *plan; /* owned; NULL when it has been chosen */
};

struct search {
    const fl_infer *shapes;
    const fl_meta *const *in;
    const fl_placement *placement;
    bool in_place;
    int nin, width;          /* width: inputs and outputs */
    const fl_shape *logical; /* width entries */
    fl_spec *left;           /* (hierarchy axes + 1) x width: shapes left before each axis */
    fl_nd_sbp *now, *best;   /* width entries */
    fl_body body_at[FL_MAX_HIERARCHY], best_body;
    int empty_parts[FL_MAX_HIERARCHY + 1];
    struct score best_score;
    int leaf, best_leaf;    /* leaves are counted in order; best_leaf < 0: none yet */
    fl_candidate_fn report; /* second pass: every leaf is reported */
    fl_signature_fn list;   /* instead of choosing: every leaf of any inputs is reported */
    void *context;
    struct priced *prices[PRICE_BUCKETS];
    struct fl_sig_list lists[FL_MAX_HIERARCHY];
};

/* ---- signatures of one axis ---- */

static bool list_reserve(struct fl_sig_list *list)
{
    if (list->count < list->capacity) return true;
    int capacity = list->capacity ? 2 * list->capacity : 16;
    fl_sbp *rows = realloc(list->rows, (size_t)capacity * (size_t)list->width * sizeof *rows);
    if (rows) list->rows = rows;
    fl_body *bodies = realloc(list->bodies, (size_t)capacity * sizeof *bodies);
    if (bodies) list->bodies = bodies;
    if (!rows || !bodies) return false;
    list->capacity = capacity;
    return true;
}

void fl_sig_add(fl_sigs *sigs, fl_body body, const fl_sbp *in_out)
{
    struct fl_sig_list *list = sigs->list;
    if (!list_reserve(list)) {
        list->failed = true;
        return;
    }
    memcpy(list->rows + (size_t)list->count * (size_t)list->width, in_out, (size_t)list->width * sizeof *in_out);
    list->bodies[list->count++] = body;
}

/* An input may become partial only from B, beside an input of the candidate that is partial already and stays so. */
static bool may_become_partial(const struct search *search, const fl_sbp *row, int i, int axis)
{
    if (search->in[i]->nd_sbp.at[axis] != FL_B) return false;
    for (int j = 0; j < search->nin; j++)
        if (search->in[j] && search->in[j]->nd_sbp.at[axis] == row[i] && row[j] == row[i]) return true;
    return false;
}

static bool splits(const struct search *search, const fl_sbp *row, int i)
{
    return search->left[i].kind == FL_TENSOR && fl_sbp_is_split(row[i]);
}

/* Hierarchy axes before `axis`, a bit each, that have cut tensor axis `cut` of operand i. An axis of one rank cuts
** nothing. */
static uint32_t cut_by(const struct search *search, int i, fl_sbp cut, int axis)
{
    uint32_t mask = 0;
    for (int k = 0; k < axis; k++)
        if (search->now[i].at[k] == cut && search->placement->hierarchy[k] > 1) mask |= 1u << k;
    return mask;
}

/* True if the same interval is left of all tensor axes that the row splits, on every rank. After gather's (B, S(i)) ->
** S(i) the index is cut and x is whole, so (S(i), S(i)) -> S(i) would pair other positions. Equal sizes need equal
** cuts; where sizes differ (groups of channels) the op lists the row only for parts of equal size, and these agree
** after equal cuts too. */
static bool intervals_agree(const struct search *search, const fl_sbp *row, int axis)
{
    int first = -1;
    if (search->shapes->op->flags & FL_OP_REGROUPS) return true;
    for (int i = 0; i < search->width; i++) {
        if (!splits(search, row, i)) continue;
        if (first < 0) first = i;
        else if (cut_by(search, i, row[i], axis) != cut_by(search, first, row[first], axis)) return false;
    }
    return true;
}

/* A row that some inputs could be given for: no split of an axis that is not there, no P(sum) of bool, no intervals
** that differ. */
static bool is_legal(const struct search *search, const fl_sbp *row, int axis)
{
    for (int i = 0; i < search->width; i++) {
        const fl_spec *spec = &search->left[i];
        if (spec->kind != FL_TENSOR) continue;
        if (fl_sbp_is_split(row[i]) && row[i] >= spec->shape.ndim) return false;
        if (row[i] == FL_PSUM && spec->dtype == FL_BOOL) return false;
    }
    return intervals_agree(search, row, axis);
}

static bool is_allowed(const struct search *search, const fl_sbp *row, fl_body body, int axis)
{
    const fl_op *op = search->shapes->op;
    if (!is_legal(search, row, axis)) return false;
    if (search->list) return true;
    if (search->in_place && (body || row[search->nin] != search->in[0]->nd_sbp.at[axis])) return false;
    for (int i = 0; i < search->nin; i++) {
        if (search->left[i].kind != FL_TENSOR) continue;
        fl_sbp actual = search->in[i]->nd_sbp.at[axis];
        if (row[i] == actual) continue;
        if (fl_op_writes(op, i, search->nin, search->in_place)) return false;
        if (fl_sbp_is_partial(row[i]) && !may_become_partial(search, row, i, axis)) return false;
    }
    return true;
}

/* ---- leaves ---- */

static fl_status price(struct priced **out, const struct search *search, int i, fl_nd_sbp wanted)
{
    const fl_meta *m = search->in[i];
    fl_box_plan plan;
    FL_TRY(fl_boxing_plan(&plan, m->dtype, &m->shape, m->placement, m->nd_sbp, search->placement, wanted));
    struct priced *p = malloc(sizeof *p);
    if (p) *p = (struct priced){.wanted = fl_nd_sbp_bits(wanted), .input = i, .plan = fl_box_plan_copy(&plan)};
    if (p && p->plan) {
        *out = p;
        return FL_OK;
    }
    free(p);
    return fl_fail(FL_ERR_MEMORY, "%s: out of memory while inferring the SBP", search->shapes->name);
}

/* Input i as `wanted`: priced when it is asked for the first time. */
static fl_status find_price(struct priced **out, struct search *search, int i, fl_nd_sbp wanted)
{
    uint64_t bits = fl_nd_sbp_bits(wanted);
    struct priced **bucket = &search->prices[fl_hash_mix(bits, (uint64_t)i << 4) % PRICE_BUCKETS];
    for (*out = *bucket; *out; *out = (*out)->next)
        if ((*out)->wanted == bits && (*out)->input == i) return FL_OK;
    FL_TRY(price(out, search, i, wanted));
    (*out)->next = *bucket;
    *bucket = *out;
    return FL_OK;
}

static fl_status score_of(struct score *out, struct search *search)
{
    *out = (struct score){.empty_parts = search->empty_parts[search->placement->ndim]};
    for (int i = 0; i < search->nin; i++) {
        const fl_meta *m = search->in[i];
        if (!m) continue;
        for (int k = 0; k < search->placement->ndim; k++) out->kept_axes += m->nd_sbp.at[k] == search->now[i].at[k];
        if (fl_nd_sbp_equal(m->nd_sbp, search->now[i])) {
            int64_t size = m->numel * (int64_t)fl_dtype_size(m->dtype);
            out->kept++;
            if (size > out->largest_kept) out->largest_kept = size;
            continue;
        }
        struct priced *p;
        FL_TRY(find_price(&p, search, i, search->now[i]));
        out->bytes += p->plan->bytes;
        if (search->best_leaf >= 0 && !search->report && out->bytes > search->best_score.bytes)
            return FL_OK; /* cannot win any more */
    }
    return FL_OK;
}

static bool is_better(const struct score *a, const struct score *b)
{
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->empty_parts != b->empty_parts) return a->empty_parts < b->empty_parts;
    if (a->kept != b->kept) return a->kept > b->kept;
    if (a->kept_axes != b->kept_axes) return a->kept_axes > b->kept_axes;
    return a->largest_kept > b->largest_kept;
}

/* The body of the current leaf: that of the first hierarchy axis that needs one. */
static fl_body leaf_body(const struct search *search)
{
    fl_body body = NULL;
    for (int k = 0; k < search->placement->ndim && !body; k++) body = search->body_at[k];
    return body;
}

/* Reports a leaf: the tensor operands alone. */
static fl_status list_leaf(struct search *search)
{
    fl_nd_sbp tensors[FL_MAX_PARAMS + FL_MAX_OUT];
    int nin = 0, nout = search->width - search->nin;
    for (int i = 0; i < search->nin; i++)
        if (search->left[i].kind == FL_TENSOR) tensors[nin++] = search->now[i];
    memcpy(tensors + nin, search->now + search->nin, (size_t)nout * sizeof *tensors);
    search->list(search->context, tensors, nin, nout, leaf_body(search) != NULL);
    return FL_OK;
}

static fl_status visit_leaf(struct search *search)
{
    struct score now;
    if (search->list) return list_leaf(search);
    int leaf = search->leaf++;
    FL_TRY(score_of(&now, search));
    if (search->report) {
        fl_candidate candidate = {search->now, now.bytes, now.empty_parts, now.kept, leaf == search->best_leaf};
        search->report(search->context, &candidate, search->nin, search->width - search->nin);
    } else if (search->best_leaf < 0 || is_better(&now, &search->best_score)) {
        search->best_score = now;
        search->best_leaf = leaf;
        memcpy(search->best, search->now, (size_t)search->width * sizeof *search->now);
        search->best_body = leaf_body(search);
    }
    return FL_OK;
}

/* ---- the tree ---- */

/* Takes `row` on `axis`: SBPs of the leaf to come, shapes left for the next axis, empty parts so far (of a tensor
** without elements none counts). */
static void descend(struct search *search, int axis, const fl_sbp *row)
{
    const fl_spec *left = search->left + (size_t)axis * (size_t)search->width;
    fl_spec *next = search->left + (size_t)(axis + 1) * (size_t)search->width;
    int parts = search->placement->hierarchy[axis];
    search->empty_parts[axis + 1] = search->empty_parts[axis];
    for (int i = 0; i < search->width; i++) {
        next[i] = left[i];
        search->now[i].at[axis] = left[i].kind == FL_TENSOR ? row[i] : FL_B;
        if (left[i].kind != FL_TENSOR || !fl_sbp_is_split(row[i])) continue;
        int64_t start, n = left[i].shape.dims[row[i]];
        fl_split(&start, &next[i].shape.dims[row[i]], n, parts, 0);
        if (n < parts && fl_shape_numel(&left[i].shape) > 0) search->empty_parts[axis + 1] += parts - (int)n;
    }
}

static fl_status list_signatures(struct search *search, int axis)
{
    const fl_infer *c = search->shapes;
    const fl_spec *left = search->left + (size_t)axis * (size_t)search->width;
    struct fl_sig_list *list = &search->lists[axis];
    fl_sigs sigs = {c->op,
                    c->attrs,
                    left,
                    left + search->nin,
                    search->nin,
                    search->width - search->nin,
                    search->placement->hierarchy[axis],
                    search->logical,
                    search->logical + search->nin,
                    list,
                    axis};
    list->width = search->width;
    list->count = 0;
    if (c->op->sbp) c->op->sbp(&sigs);
    if (!list_reserve(list)) list->failed = true;
    if (list->failed) return fl_fail(FL_ERR_MEMORY, "%s: out of memory while inferring the SBP", c->name);
    memset(list->rows + (size_t)list->count * (size_t)list->width, FL_B, (size_t)list->width);
    list->bodies[list->count++] = NULL;
    return FL_OK;
}

static const fl_sbp *row_of(const struct fl_sig_list *list, int r)
{
    return list->rows + (size_t)r * (size_t)list->width;
}

static bool keeps_an_input(const struct search *search, const fl_sbp *row, int axis)
{
    for (int i = 0; i < search->nin; i++)
        if (search->in[i] && search->in[i]->nd_sbp.at[axis] == row[i]) return true;
    return false;
}

/* This deep only signatures that keep an input are followed; all-B, the last one, always is. */
static bool is_narrow(const struct search *search, int axis)
{
    const struct fl_sig_list *list = &search->lists[axis];
    if (search->list) return false;
    for (int r = 0; axis >= COMPLETE_AXES && r < list->count - 1; r++)
        if (is_allowed(search, row_of(list, r), list->bodies[r], axis) && keeps_an_input(search, row_of(list, r), axis))
            return true;
    return false;
}

static fl_status visit(struct search *search, int axis)
{
    if (axis == search->placement->ndim) return visit_leaf(search);
    FL_TRY(list_signatures(search, axis));
    const struct fl_sig_list *list = &search->lists[axis];
    bool narrow = is_narrow(search, axis);
    for (int r = 0; r < list->count; r++) {
        const fl_sbp *row = row_of(list, r);
        if (!is_allowed(search, row, list->bodies[r], axis)) continue;
        if (narrow && r < list->count - 1 && !keeps_an_input(search, row, axis)) continue;
        search->body_at[axis] = list->bodies[r];
        descend(search, axis, row);
        FL_TRY(visit(search, axis + 1));
    }
    return FL_OK;
}

/* Only an operand that is written in place can rule out every candidate. */
static fl_status fail_to_choose(const struct search *search)
{
    const fl_infer *c = search->shapes;
    char name[FL_OPERAND_NAME], text[FL_META_TEXT];
    if (search->in_place)
        return fl_fail(FL_ERR_SBP, "%s: x is %s and cannot hold the result in place; assign it instead: x = x:%s(...)",
                       c->name, fl_meta_text(text, search->in[0]), c->op->name);
    int i = 0;
    while (i < search->nin - 1 && !(search->in[i] && fl_op_writes(c->op, i, search->nin, false))) i++;
    return fl_fail(FL_ERR_SBP,
                   "%s: %s is %s and cannot be updated in that sbp; convert it with to_global first, or assign the "
                   "result of an op",
                   c->name, fl_operand_name(name, c->op, i),
                   search->in[i] ? fl_meta_text(text, search->in[i]) : "a number");
}

static void prices_free(struct priced *priced)
{
    while (priced) {
        struct priced *next = priced->next;
        free(priced->plan);
        free(priced);
        priced = next;
    }
}

static void search_free(struct search *search)
{
    for (int b = 0; b < PRICE_BUCKETS; b++) prices_free(search->prices[b]);
    for (int k = 0; k < FL_MAX_HIERARCHY; k++) {
        free(search->lists[k].rows);
        free(search->lists[k].bodies);
    }
    free(search->left);
    free(search->now);
    free((void *)search->logical);
    free(search);
}

static void search_begin(struct search *search)
{
    const fl_infer *c = search->shapes;
    fl_shape *logical = (fl_shape *)search->logical;
    search->best = search->now + search->width;
    search->best_leaf = -1;
    for (int i = 0; i < search->width; i++) {
        search->left[i] = i < search->nin ? c->in[i] : c->out[i - search->nin];
        logical[i] = search->left[i].shape;
        search->now[i] = fl_nd_sbp_fill(FL_B, search->placement->ndim);
    }
}

/* A search over these operands and results; NULL: out of memory. */
static struct search *search_new(const fl_infer *shapes, const fl_placement *placement)
{
    struct search *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->shapes = shapes;
    s->placement = placement;
    s->nin = shapes->nin;
    s->width = shapes->nin + shapes->nout;
    size_t width = (size_t)s->width, levels = (size_t)placement->ndim + 1;
    s->left = malloc(levels * width * sizeof *s->left);
    s->now = malloc(2 * width * sizeof *s->now);
    s->logical = malloc(width * sizeof *s->logical);
    if (s->left && s->now && s->logical) {
        search_begin(s);
        return s;
    }
    search_free(s);
    return NULL;
}

/* ---- the check of debug builds ---- */

#ifndef NDEBUG
/* The row-major index in the whole tensor of element number i of a window, which is row-major too. */
static int64_t whole_position(const fl_shape *shape, const fl_window *window, int64_t i)
{
    int64_t position = 0, extent = 1;
    for (int a = shape->ndim - 1; a >= 0; a--) {
        position += (window->start[a] + i % window->size[a]) * extent;
        i /= window->size[a];
        extent *= shape->dims[a];
    }
    return position;
}

/* The result of an op that regroups axes holds the elements that the input holds: some thousand of them are
** compared. */
static void check_regrouped(const struct search *search, int rank)
{
    enum { COMPARED = 4096 };
    fl_window in, out;
    int64_t held = 1, kept = 1;
    fl_window_of(&in, &search->logical[0], search->placement, search->best[0], rank);
    fl_window_of(&out, &search->logical[1], search->placement, search->best[1], rank);
    for (int a = 0; a < search->logical[0].ndim; a++) held *= in.size[a];
    for (int a = 0; a < search->logical[1].ndim; a++) kept *= out.size[a];
    assert(held == kept);
    for (int64_t i = 0; i < held; i += 1 + held / COMPARED)
        assert(whole_position(&search->logical[0], &in, i) == whole_position(&search->logical[1], &out, i));
}

/* Tensor axes that hierarchy axis k splits together are the same interval of their tensors on this rank, in proportion
** where their sizes differ; tensors of a list that differ in size (gradients) have nothing to do with each other, nor
** has an operand with a row per part. */
static void check_axis(const struct search *search, int k, int rank)
{
    int64_t size = -1, start = 0, whole = 0;
    bool apart = fl_op_signature(search->shapes->op)->variadic || search->shapes->op->flags & FL_OP_PER_PART;
    for (int i = 0; i < search->width; i++) {
        fl_nd_sbp so_far = search->best[i];
        fl_window w;
        if (search->left[i].kind != FL_TENSOR || !fl_sbp_is_split(so_far.at[k])) continue;
        int axis = so_far.at[k];
        so_far.n = (uint8_t)(k + 1);
        fl_window_of(&w, &search->logical[i], search->placement, so_far, rank);
        if (size < 0) {
            size = w.size[axis];
            start = w.start[axis];
            whole = search->logical[i].dims[axis];
        }
        if (apart && whole != search->logical[i].dims[axis]) continue;
        assert(w.start[axis] * whole == start * search->logical[i].dims[axis]
               && w.size[axis] * whole == size * search->logical[i].dims[axis]);
    }
}

/* The windows of all operands correspond on every rank, whatever the rows promised. */
static void check_windows(const struct search *search)
{
    for (int rank = 0; rank < search->placement->count; rank++) {
        if (search->shapes->op->flags & FL_OP_REGROUPS) check_regrouped(search, rank);
        else
            for (int k = 0; k < search->placement->ndim; k++) check_axis(search, k, rank);
    }
}
#endif

/* ---- the search ---- */

/* Hands over what the best leaf says, with the boxings that were priced for it. */
static fl_status take_best(fl_choice *choice, struct search *search)
{
    memcpy(choice->in_sbp, search->best, (size_t)search->nin * sizeof *search->best);
    memcpy(choice->out_sbp, search->best + search->nin, (size_t)search->shapes->nout * sizeof *search->best);
    choice->body = search->best_body;
    for (int i = 0; i < search->nin && choice->boxings; i++) {
        struct priced *p;
        choice->boxings[i] = NULL;
        if (!search->in[i] || fl_nd_sbp_equal(search->in[i]->nd_sbp, search->best[i])) continue;
        FL_TRY(find_price(&p, search, i, search->best[i]));
        choice->boxings[i] = p->plan;
        p->plan = NULL;
    }
    return FL_OK;
}

fl_status fl_infer_choose(fl_choice *choice, const fl_infer *shapes, const fl_meta *const *in,
                          const fl_placement *placement, bool in_place, fl_candidate_fn report, void *context)
{
    struct search *s = search_new(shapes, placement);
    if (!s) return fl_fail(FL_ERR_MEMORY, "%s: out of memory while inferring the SBP", shapes->name);
    s->in = in;
    s->in_place = in_place;
    fl_status status = visit(s, 0);
    if (status == FL_OK && s->best_leaf < 0) status = fail_to_choose(s);
    if (status == FL_OK && report) {
        s->report = report;
        s->context = context;
        s->leaf = 0;
        status = visit(s, 0);
    }
#ifndef NDEBUG
    if (status == FL_OK) check_windows(s);
#endif
    if (status == FL_OK) status = take_best(choice, s);
    search_free(s);
    return status;
}

fl_status fl_infer_signatures(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                              const int *hierarchy, int ndim, fl_signature_fn report, void *context)
{
    fl_spec specs[FL_MAX_PARAMS];
    fl_placement grid = {.ndim = ndim};
    if (nin > FL_MAX_PARAMS)
        return fl_fail(FL_ERR_VALUE, "%s: at most %d operands can be listed", op->name, FL_MAX_PARAMS);
    memcpy(grid.hierarchy, hierarchy, (size_t)ndim * sizeof *hierarchy);
    for (int i = 0; i < nin; i++) fl_spec_of(&specs[i], &in[i]);
    fl_infer c = {.op = op, .name = op->name, .attrs = attrs, .in = specs, .nin = nin, .nout = op->nout};
    for (int i = 0; i < op->nout; i++) c.out[i].kind = FL_TENSOR;
    FL_TRY(fl_op_infer(&c));
    struct search *s = search_new(&c, &grid);
    if (!s) return fl_fail(FL_ERR_MEMORY, "%s: out of memory while listing signatures", op->name);
    s->list = report;
    s->context = context;
    fl_status status = visit(s, 0);
    search_free(s);
    return status;
}

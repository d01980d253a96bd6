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

typedef struct score {
    int64_t bytes;
    int empty_parts, kept;
    int kept_axes;        /* pairs of input and hierarchy axis that stay */
    int64_t largest_kept; /* bytes */
} score;

/* The boxing of an input that a leaf needs, with its price. */
typedef struct priced {
    struct priced *next; /* of its bucket */
    uint64_t wanted;     /* bits of the nd-SBP */
    int input;
    fl_box_plan *plan; /* owned; NULL when it has been chosen */
} priced;

typedef struct search {
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
    score best_score;
    int leaf, best_leaf;    /* leaves are counted in order; best_leaf < 0: none yet */
    fl_candidate_fn report; /* second pass: every leaf is reported */
    fl_signature_fn list;   /* instead of choosing: every leaf of any inputs is reported */
    void *context;
    priced *prices[PRICE_BUCKETS];
    struct fl_sig_list lists[FL_MAX_HIERARCHY];
} search;

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
static bool may_become_partial(const search *s, const fl_sbp *row, int i, int axis)
{
    if (s->in[i]->nd_sbp.at[axis] != FL_B) return false;
    for (int j = 0; j < s->nin; j++)
        if (s->in[j] && s->in[j]->nd_sbp.at[axis] == row[i] && row[j] == row[i]) return true;
    return false;
}

static bool splits(const search *s, const fl_sbp *row, int i)
{
    return s->left[i].kind == FL_TENSOR && fl_sbp_is_split(row[i]);
}

/* Hierarchy axes before `axis`, a bit each, that have cut tensor axis `cut` of operand i. An axis of one rank cuts
** nothing. */
static uint32_t cut_by(const search *s, int i, fl_sbp cut, int axis)
{
    uint32_t mask = 0;
    for (int k = 0; k < axis; k++)
        if (s->now[i].at[k] == cut && s->placement->hierarchy[k] > 1) mask |= 1u << k;
    return mask;
}

/* True if the same interval is left of all tensor axes that the row splits, on every rank. After gather's (B, S(i)) ->
** S(i) the index is cut and x is whole, so (S(i), S(i)) -> S(i) would pair other positions. Equal sizes need equal
** cuts; where sizes differ (groups of channels) the op lists the row only for parts of equal size, and these agree
** after equal cuts too. */
static bool intervals_agree(const search *s, const fl_sbp *row, int axis)
{
    int first = -1;
    if (s->shapes->op->flags & FL_OP_REGROUPS) return true;
    for (int i = 0; i < s->width; i++) {
        if (!splits(s, row, i)) continue;
        if (first < 0) first = i;
        else if (cut_by(s, i, row[i], axis) != cut_by(s, first, row[first], axis)) return false;
    }
    return true;
}

/* A row that some inputs could be given for: no split of an axis that is not there, no P(sum) of bool, no intervals
** that differ. */
static bool is_legal(const search *s, const fl_sbp *row, int axis)
{
    for (int i = 0; i < s->width; i++) {
        const fl_spec *spec = &s->left[i];
        if (spec->kind != FL_TENSOR) continue;
        if (fl_sbp_is_split(row[i]) && row[i] >= spec->shape.ndim) return false;
        if (row[i] == FL_PSUM && spec->dtype == FL_BOOL) return false;
    }
    return intervals_agree(s, row, axis);
}

static bool is_allowed(const search *s, const fl_sbp *row, fl_body body, int axis)
{
    const fl_op *op = s->shapes->op;
    if (!is_legal(s, row, axis)) return false;
    if (s->list) return true;
    if (s->in_place && (body || row[s->nin] != s->in[0]->nd_sbp.at[axis])) return false;
    for (int i = 0; i < s->nin; i++) {
        if (s->left[i].kind != FL_TENSOR) continue;
        fl_sbp actual = s->in[i]->nd_sbp.at[axis];
        if (row[i] == actual) continue;
        if (fl_op_writes(op, i, s->nin, s->in_place)) return false;
        if (fl_sbp_is_partial(row[i]) && !may_become_partial(s, row, i, axis)) return false;
    }
    return true;
}

/* ---- leaves ---- */

static fl_status price(priced **out, const search *s, int i, fl_nd_sbp wanted)
{
    const fl_meta *m = s->in[i];
    fl_box_plan plan;
    FL_TRY(fl_boxing_plan(&plan, m->dtype, &m->shape, m->placement, m->nd_sbp, s->placement, wanted));
    priced *p = malloc(sizeof *p);
    if (p) *p = (priced){.wanted = fl_nd_sbp_bits(wanted), .input = i, .plan = fl_box_plan_copy(&plan)};
    if (p && p->plan) {
        *out = p;
        return FL_OK;
    }
    free(p);
    return fl_fail(FL_ERR_MEMORY, "%s: out of memory while inferring the SBP", s->shapes->name);
}

/* Input i as `wanted`: priced when it is asked for the first time. */
static fl_status find_price(priced **out, search *s, int i, fl_nd_sbp wanted)
{
    uint64_t bits = fl_nd_sbp_bits(wanted);
    priced **bucket = &s->prices[fl_hash_mix(bits, (uint64_t)i << 4) % PRICE_BUCKETS];
    for (*out = *bucket; *out; *out = (*out)->next)
        if ((*out)->wanted == bits && (*out)->input == i) return FL_OK;
    FL_TRY(price(out, s, i, wanted));
    (*out)->next = *bucket;
    *bucket = *out;
    return FL_OK;
}

static fl_status score_of(score *out, search *s)
{
    *out = (score){.empty_parts = s->empty_parts[s->placement->ndim]};
    for (int i = 0; i < s->nin; i++) {
        const fl_meta *m = s->in[i];
        if (!m) continue;
        for (int k = 0; k < s->placement->ndim; k++) out->kept_axes += m->nd_sbp.at[k] == s->now[i].at[k];
        if (fl_nd_sbp_equal(m->nd_sbp, s->now[i])) {
            int64_t size = m->numel * (int64_t)fl_dtype_size(m->dtype);
            out->kept++;
            if (size > out->largest_kept) out->largest_kept = size;
            continue;
        }
        priced *p;
        FL_TRY(find_price(&p, s, i, s->now[i]));
        out->bytes += p->plan->bytes;
        if (s->best_leaf >= 0 && !s->report && out->bytes > s->best_score.bytes) return FL_OK; /* cannot win any more */
    }
    return FL_OK;
}

static bool is_better(const score *a, const score *b)
{
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->empty_parts != b->empty_parts) return a->empty_parts < b->empty_parts;
    if (a->kept != b->kept) return a->kept > b->kept;
    if (a->kept_axes != b->kept_axes) return a->kept_axes > b->kept_axes;
    return a->largest_kept > b->largest_kept;
}

/* The body of the leaf at hand: that of the first hierarchy axis that needs one. */
static fl_body leaf_body(const search *s)
{
    fl_body body = NULL;
    for (int k = 0; k < s->placement->ndim && !body; k++) body = s->body_at[k];
    return body;
}

/* Reports a leaf: the tensor operands alone. */
static fl_status list_leaf(search *s)
{
    fl_nd_sbp tensors[FL_MAX_PARAMS + FL_MAX_OUT];
    int nin = 0, nout = s->width - s->nin;
    for (int i = 0; i < s->nin; i++)
        if (s->left[i].kind == FL_TENSOR) tensors[nin++] = s->now[i];
    memcpy(tensors + nin, s->now + s->nin, (size_t)nout * sizeof *tensors);
    s->list(s->context, tensors, nin, nout, leaf_body(s) != NULL);
    return FL_OK;
}

static fl_status visit_leaf(search *s)
{
    score now;
    if (s->list) return list_leaf(s);
    int leaf = s->leaf++;
    FL_TRY(score_of(&now, s));
    if (s->report) {
        fl_candidate candidate = {s->now, now.bytes, now.empty_parts, now.kept, leaf == s->best_leaf};
        s->report(s->context, &candidate, s->nin, s->width - s->nin);
    } else if (s->best_leaf < 0 || is_better(&now, &s->best_score)) {
        s->best_score = now;
        s->best_leaf = leaf;
        memcpy(s->best, s->now, (size_t)s->width * sizeof *s->now);
        s->best_body = leaf_body(s);
    }
    return FL_OK;
}

/* ---- the tree ---- */

/* Takes `row` on `axis`: SBPs of the leaf to come, shapes left for the next axis, empty parts so far (of a tensor
** without elements none counts). */
static void descend(search *s, int axis, const fl_sbp *row)
{
    const fl_spec *left = s->left + (size_t)axis * (size_t)s->width;
    fl_spec *next = s->left + (size_t)(axis + 1) * (size_t)s->width;
    int parts = s->placement->hierarchy[axis];
    s->empty_parts[axis + 1] = s->empty_parts[axis];
    for (int i = 0; i < s->width; i++) {
        next[i] = left[i];
        s->now[i].at[axis] = left[i].kind == FL_TENSOR ? row[i] : FL_B;
        if (left[i].kind != FL_TENSOR || !fl_sbp_is_split(row[i])) continue;
        int64_t start, n = left[i].shape.dims[row[i]];
        fl_split(&start, &next[i].shape.dims[row[i]], n, parts, 0);
        if (n < parts && fl_shape_numel(&left[i].shape) > 0) s->empty_parts[axis + 1] += parts - (int)n;
    }
}

static fl_status list_signatures(search *s, int axis)
{
    const fl_infer *c = s->shapes;
    const fl_spec *left = s->left + (size_t)axis * (size_t)s->width;
    struct fl_sig_list *list = &s->lists[axis];
    fl_sigs sigs = {c->op,
                    c->attrs,
                    left,
                    left + s->nin,
                    s->nin,
                    s->width - s->nin,
                    s->placement->hierarchy[axis],
                    s->logical,
                    s->logical + s->nin,
                    list,
                    axis};
    list->width = s->width;
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

static bool keeps_an_input(const search *s, const fl_sbp *row, int axis)
{
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] && s->in[i]->nd_sbp.at[axis] == row[i]) return true;
    return false;
}

/* This deep only signatures that keep an input are followed; all-B, the last one, always is. */
static bool is_narrow(const search *s, int axis)
{
    const struct fl_sig_list *list = &s->lists[axis];
    if (s->list) return false;
    for (int r = 0; axis >= COMPLETE_AXES && r < list->count - 1; r++)
        if (is_allowed(s, row_of(list, r), list->bodies[r], axis) && keeps_an_input(s, row_of(list, r), axis))
            return true;
    return false;
}

static fl_status visit(search *s, int axis)
{
    if (axis == s->placement->ndim) return visit_leaf(s);
    FL_TRY(list_signatures(s, axis));
    const struct fl_sig_list *list = &s->lists[axis];
    bool narrow = is_narrow(s, axis);
    for (int r = 0; r < list->count; r++) {
        const fl_sbp *row = row_of(list, r);
        if (!is_allowed(s, row, list->bodies[r], axis)) continue;
        if (narrow && r < list->count - 1 && !keeps_an_input(s, row, axis)) continue;
        s->body_at[axis] = list->bodies[r];
        descend(s, axis, row);
        FL_TRY(visit(s, axis + 1));
    }
    return FL_OK;
}

/* Only an operand that is written in place can rule out every candidate. */
static fl_status fail_to_choose(const search *s)
{
    const fl_infer *c = s->shapes;
    char name[FL_OPERAND_NAME], text[FL_META_TEXT];
    if (s->in_place)
        return fl_fail(FL_ERR_SBP, "%s: x is %s and cannot hold the result in place; assign it instead: x = x:%s(...)",
                       c->name, fl_meta_text(text, s->in[0]), c->op->name);
    int i = 0;
    while (i < s->nin - 1 && !(s->in[i] && fl_op_writes(c->op, i, s->nin, false))) i++;
    return fl_fail(FL_ERR_SBP,
                   "%s: %s is %s and cannot be updated in that sbp; convert it with to_global first, or assign the "
                   "result of an op",
                   c->name, fl_operand_name(name, c->op, i), s->in[i] ? fl_meta_text(text, s->in[i]) : "a number");
}

static void prices_free(priced *p)
{
    while (p) {
        priced *next = p->next;
        free(p->plan);
        free(p);
        p = next;
    }
}

static void search_free(search *s)
{
    for (int b = 0; b < PRICE_BUCKETS; b++) prices_free(s->prices[b]);
    for (int k = 0; k < FL_MAX_HIERARCHY; k++) {
        free(s->lists[k].rows);
        free(s->lists[k].bodies);
    }
    free(s->left);
    free(s->now);
    free((void *)s->logical);
    free(s);
}

static void search_begin(search *s)
{
    const fl_infer *c = s->shapes;
    fl_shape *logical = (fl_shape *)s->logical;
    s->best = s->now + s->width;
    s->best_leaf = -1;
    for (int i = 0; i < s->width; i++) {
        s->left[i] = i < s->nin ? c->in[i] : c->out[i - s->nin];
        logical[i] = s->left[i].shape;
        s->now[i] = fl_nd_sbp_fill(FL_B, s->placement->ndim);
    }
}

/* A search over these operands and results; NULL: out of memory. */
static search *search_new(const fl_infer *shapes, const fl_placement *placement)
{
    search *s = calloc(1, sizeof *s);
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
/* Where element number i of a window lies in the whole tensor, both row-major. */
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
static void check_regrouped(const search *s, int rank)
{
    enum { COMPARED = 4096 };
    fl_window in, out;
    int64_t held = 1, kept = 1;
    fl_window_of(&in, &s->logical[0], s->placement, s->best[0], rank);
    fl_window_of(&out, &s->logical[1], s->placement, s->best[1], rank);
    for (int a = 0; a < s->logical[0].ndim; a++) held *= in.size[a];
    for (int a = 0; a < s->logical[1].ndim; a++) kept *= out.size[a];
    assert(held == kept);
    for (int64_t i = 0; i < held; i += 1 + held / COMPARED)
        assert(whole_position(&s->logical[0], &in, i) == whole_position(&s->logical[1], &out, i));
}

/* Tensor axes that hierarchy axis k splits together are the same interval of their tensors on this rank, in proportion
** where their sizes differ; tensors of a list that differ in size (gradients) have nothing to do with each other. */
static void check_axis(const search *s, int k, int rank)
{
    int64_t size = -1, start = 0, whole = 0;
    for (int i = 0; i < s->width; i++) {
        fl_nd_sbp so_far = s->best[i];
        fl_window w;
        if (s->left[i].kind != FL_TENSOR || !fl_sbp_is_split(so_far.at[k])) continue;
        int axis = so_far.at[k];
        so_far.n = (uint8_t)(k + 1);
        fl_window_of(&w, &s->logical[i], s->placement, so_far, rank);
        if (size < 0) {
            size = w.size[axis];
            start = w.start[axis];
            whole = s->logical[i].dims[axis];
        }
        if (fl_op_signature(s->shapes->op)->variadic && whole != s->logical[i].dims[axis]) continue;
        assert(w.start[axis] * whole == start * s->logical[i].dims[axis]
               && w.size[axis] * whole == size * s->logical[i].dims[axis]);
    }
}

/* The windows of all operands correspond on every rank, whatever the rows promised. */
static void check_windows(const search *s)
{
    for (int rank = 0; rank < s->placement->count; rank++) {
        if (s->shapes->op->flags & FL_OP_REGROUPS) check_regrouped(s, rank);
        else
            for (int k = 0; k < s->placement->ndim; k++) check_axis(s, k, rank);
    }
}
#endif

/* ---- the search ---- */

/* Hands over what the best leaf says, with the boxings that were priced for it. */
static fl_status take_best(fl_choice *choice, search *s)
{
    memcpy(choice->in_sbp, s->best, (size_t)s->nin * sizeof *s->best);
    memcpy(choice->out_sbp, s->best + s->nin, (size_t)s->shapes->nout * sizeof *s->best);
    choice->body = s->best_body;
    for (int i = 0; i < s->nin && choice->boxings; i++) {
        priced *p;
        choice->boxings[i] = NULL;
        if (!s->in[i] || fl_nd_sbp_equal(s->in[i]->nd_sbp, s->best[i])) continue;
        FL_TRY(find_price(&p, s, i, s->best[i]));
        choice->boxings[i] = p->plan;
        p->plan = NULL;
    }
    return FL_OK;
}

fl_status fl_infer_choose(fl_choice *choice, const fl_infer *shapes, const fl_meta *const *in,
                          const fl_placement *placement, bool in_place, fl_candidate_fn report, void *context)
{
    search *s = search_new(shapes, placement);
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
    FL_TRY(op->infer(&c));
    search *s = search_new(&c, &grid);
    if (!s) return fl_fail(FL_ERR_MEMORY, "%s: out of memory while listing signatures", op->name);
    s->list = report;
    s->context = context;
    fl_status status = visit(s, 0);
    search_free(s);
    return status;
}

/*
** test_boxing.c -- boxing plans, and the steps that need no peer.
**
** Every pair of nd-SBPs is planned on 1-D, 2-D and 3-D hierarchies with sizes that do not divide, and each
** plan is checked step by step against the windows of all ranks: elements of a rank after a step were held by
** the ranks it talks to, and no rank receives more than the step says.
*/
#include "core/boxing/boxing.h"
#include "core/value/testing.h"
#include "core/dispatch/dry_world.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_RANKS = 12 };
static const fl_sbp kinds[] = {FL_S(0), FL_S(1), FL_B, FL_PSUM, FL_PMAX, FL_PMIN};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const fl_placement *place(int ndim, const int *hierarchy, int first)
{
    int ranks[MAX_RANKS], count = 1;
    const fl_placement *p = NULL;
    for (int k = 0; k < ndim; k++) count *= hierarchy[k];
    for (int i = 0; i < count; i++) ranks[i] = first + i;
    CHECK(fl_placement_get(&p, FL_CPU, ranks, count, hierarchy, ndim) == FL_OK);
    return p;
}
#define PLACE(...) place((int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__}, 0)

static fl_nd_sbp nd_of(int ndim, int number)
{
    fl_nd_sbp s = {(uint8_t)ndim, {0}};
    for (int k = 0; k < ndim; k++, number /= KINDS) s.at[k] = kinds[number % KINDS];
    return s;
}

static int64_t volume(const fl_window *w, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) n *= w->size[i];
    return n;
}

static int64_t overlap(const fl_window *a, const fl_window *b, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        int64_t lo = a->start[i] > b->start[i] ? a->start[i] : b->start[i];
        int64_t ea = a->start[i] + a->size[i], eb = b->start[i] + b->size[i];
        n *= (ea < eb ? ea : eb) > lo ? (ea < eb ? ea : eb) - lo : 0;
    }
    return n;
}

/* A collective on one axis leaves the others alone. */
static bool same_but(fl_nd_sbp a, fl_nd_sbp b, int axis)
{
    for (int k = 0; k < a.n; k++)
        if (k != axis && a.at[k] != b.at[k]) return false;
    return true;
}

/* A collective on one hierarchy axis: the group's parts make up what each member then holds. */
static bool collective_is_sound(const fl_box_step *step, fl_nd_sbp before, const fl_shape *shape, int64_t item)
{
    const fl_placement *p = step->placement;
    int64_t most = 0;
    if (!same_but(before, step->after, step->axis)) return false;
    if (before.at[step->axis] != step->from || step->after.at[step->axis] != step->to) return false;
    for (int r = 0; r < p->count; r++) {
        fl_window had, has, other;
        int mine[FL_MAX_HIERARCHY], theirs[FL_MAX_HIERARCHY];
        int64_t covered = 0, group = 0;
        fl_placement_coords(mine, p, r);
        fl_window_of(&had, shape, p, before, r);
        fl_window_of(&has, shape, p, step->after, r);
        for (int s = 0; s < p->count; s++) {
            bool member = true;
            fl_placement_coords(theirs, p, s);
            for (int k = 0; k < p->ndim; k++) member = member && (k == step->axis || mine[k] == theirs[k]);
            fl_window_of(&other, shape, p, before, s);
            if (!member) continue;
            if (fl_sbp_is_split(step->from)) covered += overlap(&other, &has, shape->ndim);
            else if (memcmp(&other, &had, sizeof had) != 0) return false;
            group += volume(&other, shape->ndim);
        }
        if (!fl_sbp_is_split(step->from)) covered = overlap(&had, &has, shape->ndim), group = volume(&had, shape->ndim);
        if (!fl_sbp_is_partial(step->to) && covered != volume(&has, shape->ndim)) return false;
        int parts = p->hierarchy[step->axis];
        int64_t moved = volume(&has, shape->ndim) - overlap(&had, &has, shape->ndim);
        if (step->kind == FL_BOX_ALL_REDUCE) moved = 2 * (group - group / parts);
        if (step->kind == FL_BOX_REDUCE_SCATTER) moved = group - volume(&has, shape->ndim);
        if (step->kind <= FL_BOX_RELABEL) moved = 0;
        if (moved > most) most = moved;
    }
    return most * item == step->bytes;
}

/* Partials of another kind on a later axis must be gone before an axis is reduced or made partial. */
static bool order_is_legal(const fl_box_step *step, fl_nd_sbp before)
{
    for (int l = step->axis + 1; l < before.n; l++) {
        if (step->placement->hierarchy[l] == 1) continue;
        fl_sbp later = before.at[l];
        if (fl_sbp_is_split(later) && (later == step->from || later == step->to)) return false;
        if (fl_sbp_is_partial(later)
            && ((fl_sbp_is_partial(step->from) && step->from != later)
                || (fl_sbp_is_partial(step->to) && step->to != later)))
            return false;
    }
    return true;
}

static int64_t copies(const fl_placement *p, fl_nd_sbp s)
{
    int64_t n = 1;
    for (int k = 0; k < s.n; k++) n *= fl_sbp_is_split(s.at[k]) ? 1 : p->hierarchy[k];
    return n;
}

static bool plan_is_sound(const fl_placement *p, const fl_shape *shape, fl_nd_sbp from, fl_nd_sbp to)
{
    fl_box_plan plan;
    fl_nd_sbp state = from;
    int64_t bytes = 0, most = copies(p, from) > copies(p, to) ? copies(p, from) : copies(p, to);
    bool local = true, exchanges = false;
    if (fl_boxing_plan(&plan, FL_FLOAT32, shape, p, from, p, to) != FL_OK) return false;
    for (int i = 0; i < plan.count; i++) {
        const fl_box_step *step = &plan.steps[i];
        exchanges = exchanges || step->axis < 0;
        if (step->axis >= 0 && p->hierarchy[step->axis] > 1
            && (!order_is_legal(step, state) || !collective_is_sound(step, state, shape, 4)))
            return false;
        local = local && step->kind <= FL_BOX_RELABEL;
        bytes += step->bytes;
        state = step->after;
        if (!exchanges && copies(p, state) > most) return false;
    }
    return fl_nd_sbp_equal(state, to) && bytes == plan.bytes && local == plan.local && (bytes == 0) == local;
}

static void check_all_pairs(const fl_placement *p, const fl_shape *shape)
{
    int n = 1, bad = 0;
    for (int k = 0; k < p->ndim; k++) n *= KINDS;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            if (plan_is_sound(p, shape, nd_of(p->ndim, a), nd_of(p->ndim, b))) continue;
            char from[FL_ND_SBP_TEXT], to[FL_ND_SBP_TEXT];
            fl_nd_sbp_text(from, nd_of(p->ndim, a));
            fl_nd_sbp_text(to, nd_of(p->ndim, b));
            if (bad++ < 5) printf("plan %s -> %s\n", from, to);
        }
    CHECK(bad == 0);
}

static const fl_shape uneven = {2, {7, 5}}, thin = {2, {2, 3}};

static void every_pair_1d(void)
{
    check_all_pairs(PLACE(1), &uneven);
    check_all_pairs(PLACE(2), &uneven);
    check_all_pairs(PLACE(4), &uneven);
    check_all_pairs(PLACE(4), &thin);
}

static void every_pair_2d(void)
{
    check_all_pairs(PLACE(2, 2), &uneven);
    check_all_pairs(PLACE(2, 3), &uneven);
    check_all_pairs(PLACE(3, 2), &thin);
    check_all_pairs(PLACE(1, 4), &uneven);
    check_all_pairs(PLACE(4, 1), &uneven);
}

static void every_pair_3d(void)
{
    check_all_pairs(PLACE(2, 2, 2), &uneven);
    check_all_pairs(PLACE(2, 1, 3), &uneven);
}

/* ---- known plans ---- */

typedef struct known {
    const char *from, *to; /* one SBP per hierarchy axis, between commas */
    const char *steps;     /* kinds, joined by " + " */
    int64_t bytes;
} known;

static fl_nd_sbp read_nd(const char *text)
{
    fl_nd_sbp s = {0};
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok(copy, ", "); word; word = strtok(NULL, ", ")) CHECK(fl_sbp_parse(&s.at[s.n++], word, 0));
    return s;
}

static void check_known_of(fl_dtype dtype, const fl_placement *p, const fl_shape *shape, const known *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fl_box_plan plan;
        char steps[256] = "";
        CHECK(fl_boxing_plan(&plan, dtype, shape, p, read_nd(rows[i].from), p, read_nd(rows[i].to)) == FL_OK);
        for (int k = 0; k < plan.count; k++)
            strcat(strcat(steps, k ? " + " : ""), fl_box_kind_name(plan.steps[k].kind));
        CHECK_TEXT(steps, rows[i].steps);
        if (plan.bytes != rows[i].bytes)
            printf("%s -> %s: %lld bytes\n", rows[i].from, rows[i].to, (long long)plan.bytes);
        CHECK(plan.bytes == rows[i].bytes);
    }
}

static void check_known(const fl_placement *p, const fl_shape *shape, const known *rows, size_t n)
{
    check_known_of(FL_FLOAT32, p, shape, rows, n);
}

static void known_costs_1d(void)
{
    static const fl_shape shape = {2, {8, 6}}; /* 192 bytes */
    static const known rows[] = {
        {"S(0)", "S(0)", "", 0},
        {"S(0)", "B", "all-gather", 144},
        {"P", "B", "all-reduce", 288},
        {"P", "S(0)", "reduce-scatter", 144},
        {"P(max)", "S(0)", "reduce-scatter", 144},
        {"B", "S(1)", "slice", 0},
        {"B", "P", "zero fill", 0},
        {"S(0)", "P", "zero fill", 0},
        {"B", "P(max)", "relabelling", 0},
        {"S(0)", "P(min)", "zero fill", 0},
        {"P", "P(max)", "all-reduce + relabelling", 288},
        {"S(0)", "S(1)", "all-to-all", 48}, /* 2 of 6 columns: 6 rows come from others */
        {"S(1)", "S(0)", "all-to-all", 40}, /* 2 rows: 5 columns come from others */
    };
    check_known(PLACE(4), &shape, rows, sizeof rows / sizeof *rows);
}

static void known_costs_uneven(void)
{
    static const fl_shape shape = {1, {5}};
    static const known rows[] = {
        {"S(0)", "B", "all-gather", 16},
        {"P", "B", "all-reduce", 32},
        {"P", "S(0)", "reduce-scatter", 16},
    };
    check_known(PLACE(4), &shape, rows, sizeof rows / sizeof *rows);
    static const fl_shape two = {1, {2}};
    static const known few[] = {{"S(0)", "B", "all-gather", 8}};
    check_known(PLACE(4), &two, few, 1);
    static const fl_shape single = {2, {1, 1}};
    static const known none[] = {{"S(0)", "S(1)", "slice", 0}};
    check_known(PLACE(4), &single, none, 1);
}

static void known_costs_2d(void)
{
    static const fl_shape shape = {2, {8, 8}}; /* 256 bytes on 2 x 2 */
    static const known rows[] = {
        {"S(0), B", "B, S(1)", "slice + all-gather", 64}, /* slice first: never the whole tensor */
        {"P, B", "B, S(0)", "slice + all-reduce", 128},
        {"P, P", "S(0), B", "all-reduce + reduce-scatter", 384}, /* floats: the inner sum first */
        {"S(0), S(1)", "B, B", "all-gather + all-gather", 192},
        {"S(0), B", "S(1), S(0)", "all-to-all + slice", 64},   /* slicing first would nest the splits */
        {"S(0), B", "B, S(0)", "exchange", 128},               /* not by way of the whole tensor */
        {"S(0), S(0)", "B, S(0)", "exchange", 128},            /* a rank may hold none of what it wants */
        {"P(max), P", "B, B", "all-reduce + all-reduce", 512}, /* the inner sum first */
        {"B, S(0)", "S(1), S(0)", "slice", 0},
    };
    check_known(PLACE(2, 2), &shape, rows, sizeof rows / sizeof *rows);
    static const known exact[] = {{"P, P", "S(0), B", "reduce-scatter + all-reduce", 256}};
    check_known_of(FL_INT32, PLACE(2, 2), &shape, exact, 1);
    fl_box_plan plan;
    CHECK(fl_boxing_plan(&plan, FL_FLOAT32, &shape, PLACE(2, 2), read_nd("P(max), P"), PLACE(2, 2), read_nd("B, B"))
          == FL_OK);
    CHECK(plan.steps[0].axis == 1 && plan.steps[1].axis == 0);
}

static void empty_tensors_move_nothing(void)
{
    static const fl_shape shape = {2, {0, 6}};
    static const known rows[] = {{"S(1)", "B", "relabelling", 0}, {"P", "S(0)", "relabelling", 0}};
    check_known(PLACE(4), &shape, rows, sizeof rows / sizeof *rows);
}

/* ---- other placements ---- */

static fl_box_plan plan_between(const fl_placement *p, const char *from, const fl_placement *q, const char *to,
                                const fl_shape *shape)
{
    fl_box_plan plan;
    CHECK(fl_boxing_plan(&plan, FL_FLOAT32, shape, p, read_nd(from), q, read_nd(to)) == FL_OK);
    CHECK(plan.count > 0 && fl_nd_sbp_equal(plan.steps[plan.count - 1].after, read_nd(to))
          && plan.steps[plan.count - 1].placement == q);
    return plan;
}

static void other_placements(void)
{
    static const fl_shape shape = {2, {8, 6}};
    const fl_placement *low = PLACE(4), *high = place(1, (int[]){4}, 4), *one = PLACE(1), *square = PLACE(2, 2);
    fl_box_plan plan = plan_between(low, "S(0)", high, "S(0)", &shape);
    CHECK(plan.count == 1 && plan.steps[0].kind == FL_BOX_EXCHANGE && plan.bytes == 48 && !plan.local);
    plan = plan_between(low, "B", high, "B", &shape); /* every copy serves one */
    CHECK(plan.count == 1 && plan.bytes == 192);
    plan = plan_between(low, "P", high, "S(0)", &shape);
    CHECK(plan.bytes == 192);
    plan = plan_between(low, "P", high, "B", &shape); /* reduced before it is sent: not four times the tensor */
    CHECK(plan.steps[0].kind == FL_BOX_REDUCE_SCATTER && plan.bytes < 4 * 192);
    plan = plan_between(one, "B", low, "B", &shape); /* parts are sent once and gathered there */
    CHECK(plan.count == 2 && plan.steps[1].kind == FL_BOX_ALL_GATHER && plan.bytes == 144 + 144);
    plan = plan_between(low, "S(0)", square, "S(0), S(0)", &shape); /* 2 + 2 + 2 + 2 both */
    CHECK(plan.local && plan.steps[0].kind == FL_BOX_RELABEL);
    plan = plan_between(low, "P", square, "P, P", &shape);
    CHECK(plan.local && plan.steps[0].kind == FL_BOX_RELABEL);
    plan = plan_between(low, "B", square, "S(0), S(1)", &shape);
    CHECK(plan.local && plan.steps[0].kind == FL_BOX_SLICE);
    plan = plan_between(low, "B", one, "B", &shape);
    CHECK(plan.local && plan.bytes == 0);
    plan = plan_between(low, "S(0)", one, "B", &shape);
    CHECK(!plan.local && plan.bytes == 144);
}

/* ---- execution of local plans, rank by rank in the dry world ---- */

static double value_at(int64_t i, int64_t j) { return (double)(i * 10 + j) - 12; }

/* This rank's part of the logical tensor x[i, j] = value_at(i, j) as S or B. */
static fl_tensor *part(fl_dtype dtype, const fl_shape *shape, const fl_placement *p, fl_nd_sbp sbp)
{
    const fl_meta *m = NULL;
    fl_tensor *t = NULL;
    CHECK(fl_meta_get(&m, dtype, shape, p, sbp, false) == FL_OK);
    CHECK(fl_tensor_empty(&t, m) == FL_OK);
    for (int64_t i = 0; i < m->window.size[0]; i++)
        for (int64_t j = 0; j < m->window.size[1]; j++) {
            double v = value_at(m->window.start[0] + i, m->window.start[1] + j);
            int64_t at = i * m->window.size[1] + j;
            if (dtype == FL_FLOAT32) ((float *)fl_tensor_data(t))[at] = (float)v;
            else ((int8_t *)fl_tensor_data(t))[at] = (int8_t)v;
        }
    fl_meta_unref(m);
    return t;
}

static double read_part(const fl_tensor *t, int64_t i, int64_t j)
{
    int64_t at = i * t->strides[0] + j * t->strides[1];
    return t->meta->dtype == FL_FLOAT32 ? ((float *)fl_tensor_data(t))[at] : ((int8_t *)fl_tensor_data(t))[at];
}

static double combine(double a, double b, fl_sbp kind)
{
    return kind == FL_PSUM ? a + b : kind == FL_PMAX ? (a > b ? a : b) : a < b ? a : b;
}

/* Boxes on every rank and reduces the partials by hand (one kind of partial): the logical tensor comes out. */
static void check_execution(const fl_placement *p, fl_dtype dtype, const char *from, const char *to, fl_sbp kind)
{
    double total[7][5];
    int seen[7][5] = {{0}};
    for (int r = 0; r < p->count; r++) {
        CHECK(fl_world_set_dry(MAX_RANKS, r) == FL_OK);
        fl_tensor *x = part(dtype, &uneven, p, read_nd(from)), *y = NULL;
        const fl_meta *m = NULL;
        CHECK(fl_meta_get(&m, dtype, &uneven, p, read_nd(to), false) == FL_OK);
        if (!CHECK(fl_boxing_apply(&y, x, m) == FL_OK)) return;
        CHECK(y->meta == m);
        for (int64_t i = 0; i < m->window.size[0]; i++)
            for (int64_t j = 0; j < m->window.size[1]; j++) {
                double *sum = &total[m->window.start[0] + i][m->window.start[1] + j];
                int *count = &seen[m->window.start[0] + i][m->window.start[1] + j];
                *sum = (*count)++ ? combine(*sum, read_part(y, i, j), kind) : read_part(y, i, j);
            }
        fl_tensor_unref(x), fl_tensor_unref(y);
        fl_meta_unref(m);
    }
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 5; j++) CHECK(seen[i][j] > 0 && total[i][j] == value_at(i, j));
}

static void local_steps(void)
{
    static const fl_dtype dtypes[] = {FL_FLOAT32, FL_INT8};
    for (int d = 0; d < 2; d++) {
        check_execution(PLACE(3), dtypes[d], "B", "S(0)", FL_PMAX);
        check_execution(PLACE(3), dtypes[d], "B", "P", FL_PSUM);
        check_execution(PLACE(3), dtypes[d], "B", "P(max)", FL_PMAX);
        check_execution(PLACE(3), dtypes[d], "S(0)", "P", FL_PSUM);
        check_execution(PLACE(8), dtypes[d], "S(1)", "P", FL_PSUM); /* empty parts */
        check_execution(PLACE(3), dtypes[d], "S(1)", "P(max)", FL_PMAX);
        check_execution(PLACE(3), dtypes[d], "S(1)", "P(min)", FL_PMIN);
        check_execution(PLACE(2, 3), dtypes[d], "B, S(1)", "S(0), P", FL_PSUM);
        check_execution(PLACE(2, 3), dtypes[d], "B, B", "P, P", FL_PSUM);
        check_execution(PLACE(2, 3), dtypes[d], "S(0), B", "P, P", FL_PSUM);
        check_execution(PLACE(2, 3), dtypes[d], "B, B", "S(1), S(1)", FL_PMAX);
    }
    CHECK(fl_world_set_dry(MAX_RANKS, 0) == FL_OK);
}

static void slices_share_storage(void)
{
    fl_tensor *x = part(FL_FLOAT32, &uneven, PLACE(2), fl_nd_sbp_fill(FL_B, 1)), *y = NULL, *z = NULL;
    const fl_meta *m = NULL;
    CHECK(fl_meta_get(&m, FL_FLOAT32, &uneven, x->meta->placement, fl_nd_sbp_fill(FL_S(1), 1), false) == FL_OK);
    CHECK(fl_boxing_apply(&y, x, m) == FL_OK && y->storage == x->storage && y->strides[0] == 5 && !y->contiguous);
    CHECK(fl_boxing_apply(&z, x, x->meta) == FL_OK && z == x);
    fl_tensor_unref(x), fl_tensor_unref(y), fl_tensor_unref(z);
    fl_meta_unref(m);
}

static void peers_are_errors(void)
{
    static const fl_shape shape = {2, {8, 6}};
    static const struct {
        const char *from, *to, *message;
    } rows[] = {
        {"S(0)", "B",
         "boxing S(0) -> B of float32[8, 6] needs an all-gather, and this is a dry world (FLOW_WORLD): nothing can be "
         "communicated"},
        {"P", "S(0)",
         "boxing P -> S(0) of float32[8, 6] needs a reduce-scatter, and this is a dry world (FLOW_WORLD): nothing can "
         "be communicated"},
    };
    for (int i = 0; i < 2; i++) {
        const fl_meta *from = NULL, *to = NULL;
        fl_tensor *x = NULL, *y = NULL;
        CHECK(fl_meta_get(&from, FL_FLOAT32, &shape, PLACE(2), read_nd(rows[i].from), false) == FL_OK);
        CHECK(fl_meta_get(&to, FL_FLOAT32, &shape, PLACE(2), read_nd(rows[i].to), false) == FL_OK);
        CHECK(fl_tensor_empty(&x, from) == FL_OK);
        CHECK(fl_boxing_apply(&y, x, to) == FL_ERR_COMM && y == NULL);
        CHECK_TEXT(fl_message(), rows[i].message);
        fl_tensor_unref(x);
        fl_meta_unref(from), fl_meta_unref(to);
    }
}

static void nothing_is_left(void)
{
    fl_boxing_forget(); /* plans keep their metas */
    CHECK(fl_meta_count() == 0 && fl_tensor_count() == 0);
}

int main(void)
{
    if (fl_world_set_dry(MAX_RANKS, 0) != FL_OK) return 1;
    RUN(every_pair_1d);
    RUN(every_pair_2d);
    RUN(every_pair_3d);
    RUN(known_costs_1d);
    RUN(known_costs_uneven);
    RUN(known_costs_2d);
    RUN(empty_tensors_move_nothing);
    RUN(other_placements);
    RUN(local_steps);
    RUN(slices_share_storage);
    RUN(peers_are_errors);
    RUN(nothing_is_left);
    return finish();
}

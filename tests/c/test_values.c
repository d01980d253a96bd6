/*
** test_values.c -- dtypes, shapes, placements, SBPs and metas.
*/
#include "check.h"
#include "core/dispatch/dry_world.h"
#include "core/value/meta.h"
#include "core/value/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- dtypes ---- */

static void dtype_names_and_sizes(void)
{
    static const struct {
        const char *name;
        size_t size;
    } rows[] = {
        {"bool", 1},    {"uint8", 1},    {"int8", 1},    {"int32", 4},   {"int64", 8},
        {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
    };
    for (int d = 0; d < FL_DTYPE_COUNT; d++) {
        CHECK_TEXT(fl_dtype_name((fl_dtype)d), rows[d].name);
        CHECK(fl_dtype_parse(rows[d].name) == (fl_dtype)d);
        CHECK(fl_dtype_size((fl_dtype)d) == rows[d].size);
    }
    CHECK(fl_dtype_parse("float") == FL_DTYPE_COUNT && fl_dtype_parse("") == FL_DTYPE_COUNT);
}

static void promotion(void)
{
    /* one letter per dtype: b u c i l h n f d */
    static const char letters[] = "bucilhnfd";
    static const char *const table[] = {
        "bucilhnfd", "uuiilhnfd", "cicilhnfd", "iiiilhnfd", "lllllhnfd",
        "hhhhhhffd", "nnnnnfnfd", "ffffffffd", "ddddddddd",
    };
    for (int a = 0; a < FL_DTYPE_COUNT; a++)
        for (int b = 0; b < FL_DTYPE_COUNT; b++)
            CHECK(letters[fl_dtype_promote((fl_dtype)a, (fl_dtype)b)] == table[a][b]);
}

static void half_round_trips(void)
{
    for (unsigned h = 0; h < 65536; h++) {
        float f = fl_float16_to_float((fl_float16)h), b = fl_bfloat16_to_float((fl_bfloat16)h);
        if (isnan(f)) CHECK(isnan(fl_float16_to_float(fl_float16_from_float(f))) && (h & 0x7c00) == 0x7c00);
        else CHECK(fl_float16_from_float(f) == h);
        if (isnan(b)) CHECK(isnan(fl_bfloat16_to_float(fl_bfloat16_from_float(b))));
        else CHECK(fl_bfloat16_from_float(b) == h);
    }
    CHECK(fl_float16_to_float(0x3c00) == 1.0f && fl_float16_to_float(0x0001) == 0x1p-24f
          && fl_float16_to_float(0x7bff) == 65504.0f);
    CHECK(fl_float16_to_float(0xfc00) == -INFINITY);
}

/* Between two neighbours the nearer one is taken, and half way the even one. */
static void half_rounding(void)
{
    for (unsigned h = 0; h < 0x7c00; h++) {
        double low = fl_float16_to_float((fl_float16)h);
        double high = h == 0x7bff ? 65536.0 : fl_float16_to_float((fl_float16)(h + 1));
        float middle = (float)((low + high) / 2);
        CHECK(fl_float16_from_float(middle) == (h & 1 ? h + 1 : h));
        CHECK(fl_float16_from_float(nextafterf(middle, 0)) == h);
        CHECK(fl_float16_from_float(nextafterf(middle, INFINITY)) == h + 1);
    }
    for (unsigned h = 0; h < 0x7f7f; h++) {
        uint32_t bits = h << 16 | 0x8000u, below = bits - 1, above = bits + 1;
        float middle, under, over;
        memcpy(&middle, &bits, 4), memcpy(&under, &below, 4), memcpy(&over, &above, 4);
        CHECK(fl_bfloat16_from_float(middle) == (h & 1 ? h + 1 : h));
        CHECK(fl_bfloat16_from_float(under) == h && fl_bfloat16_from_float(over) == h + 1);
    }
    CHECK(fl_float16_from_float(1e30f) == 0x7c00 && fl_float16_from_float(-1e30f) == 0xfc00);
}

/* ---- shapes ---- */

static fl_shape shape_of(int ndim, const int64_t *dims)
{
    fl_shape s;
    if (fl_shape_make(&s, "test", dims, ndim) != FL_OK) abort();
    return s;
}
#define SHAPE(...) shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static void shapes(void)
{
    fl_shape s, a = SHAPE(2, 1, 3), b = SHAPE(4, 3), c = SHAPE(2, 3), d = SHAPE(4), none = SHAPE(0, 3),
                ones = SHAPE(1, 1);
    char text[FL_SHAPE_TEXT];
    CHECK_TEXT(fl_shape_text(text, &a), "[2, 1, 3]");
    CHECK(fl_shape_broadcast(&s, "add", &a, &b) == FL_OK);
    CHECK_TEXT(fl_shape_text(text, &s), "[2, 4, 3]");
    CHECK(fl_shape_broadcast(&s, "add", &c, &d) == FL_ERR_SHAPE);
    CHECK_TEXT(fl_message(), "add: shapes [2, 3] and [4] do not broadcast");
    CHECK(fl_shape_broadcast(&s, "add", &none, &ones) == FL_OK && s.dims[0] == 0);
    CHECK(fl_shape_make(&s, "zeros", NULL, 0) == FL_OK && s.ndim == 0 && fl_shape_numel(&s) == 1);
    CHECK_TEXT(fl_shape_text(text, &s), "[]");
    CHECK(fl_shape_make(&s, "zeros", (int64_t[]){2, -3}, 2) == FL_ERR_SHAPE);
    CHECK_TEXT(fl_message(), "zeros: size -3 in shape [2, -3] is negative");
    CHECK(fl_shape_make(&s, "zeros", (int64_t[]){1ll << 31, 1ll << 31}, 2) == FL_ERR_SHAPE);
    CHECK_TEXT(fl_message(), "zeros: shape [2147483648, 2147483648] has too many elements (2^59 or more)");
    CHECK(fl_shape_make(&s, "zeros", (int64_t[]){INT64_MAX, INT64_MAX, 0}, 3) == FL_ERR_SHAPE);
    CHECK(fl_shape_make(&s, "zeros", (int64_t[9]){0}, 9) == FL_ERR_SHAPE);
    CHECK_TEXT(fl_message(), "zeros: 9 axes are too many, a tensor has at most 8");
    fl_shape widest = shape_of(8, (int64_t[]){0, ((int64_t)1 << 59) - 1, 1, 1, 1, 1, 1, 1});
    CHECK(strlen(fl_shape_text(text, &widest)) < FL_SHAPE_TEXT);
}

static void axes(void)
{
    int axis;
    fl_shape s = SHAPE(2, 3), scalar = {0};
    CHECK(fl_shape_axis(&axis, "sum", -1, &s) == FL_OK && axis == 1);
    CHECK(fl_shape_axis(&axis, "sum", 2, &s) == FL_ERR_SHAPE);
    CHECK_TEXT(fl_message(), "sum: axis 2 is out of range for shape [2, 3] (-2 to 1)");
    CHECK(fl_shape_axis(&axis, "sum", -1, &scalar) == FL_OK && axis == 0);
    CHECK(fl_shape_axis(&axis, "sum", 1, &scalar) == FL_ERR_SHAPE);
    int64_t strides[3];
    fl_shape_strides(strides, (int64_t[]){2, 0, 3}, 3);
    CHECK(strides[0] == 3 && strides[1] == 3 && strides[2] == 1);
}

static void balanced_splits(void)
{
    for (int n = 0; n < 40; n++)
        for (int parts = 1; parts < 12; parts++) {
            int64_t next = 0;
            for (int i = 0; i < parts; i++) {
                int64_t start, size;
                fl_split(&start, &size, n, parts, i);
                CHECK(start == next && size == n / parts + (i < n % parts));
                next = start + size;
            }
            CHECK(next == n);
        }
}

/* ---- the world and placements ---- */

static const fl_placement *place(const int *ranks, int count, const int *hierarchy, int ndim)
{
    const fl_placement *p = NULL;
    CHECK(fl_placement_get(&p, FL_CPU, ranks, count, hierarchy, ndim) == FL_OK);
    return p;
}
#define PLACE(count, ndim, hierarchy, ...) place((int[]){__VA_ARGS__}, count, hierarchy, ndim)

static void check_world(const char *size, const char *rank, const char *message)
{
    if (size) setenv("FLOW_WORLD", size, 1);
    else unsetenv("FLOW_WORLD");
    if (rank) setenv("FLOW_RANK", rank, 1);
    else unsetenv("FLOW_RANK");
    CHECK((fl_world_init() == FL_OK) == (message == NULL));
    if (message) CHECK_TEXT(fl_message(), message);
    unsetenv("FLOW_WORLD");
    unsetenv("FLOW_RANK");
}

static void world(void)
{
    check_world(NULL, NULL, NULL);
    CHECK(fl_world_get()->size == 1 && fl_world_get()->rank == 0 && !fl_world_get()->dry);
    check_world("4", "3", NULL);
    CHECK(fl_world_get()->size == 4 && fl_world_get()->rank == 3 && fl_world_get()->dry);
    check_world("4", "4", "FLOW_WORLD: rank 4 does not exist in a world of 4 (0 to 3)");
    check_world("0", "0", "FLOW_WORLD: a world has 1 to 1048576 ranks, not 0");
    check_world("four", NULL, "FLOW_WORLD=four: a whole number is needed (FLOW_WORLD=4 FLOW_RANK=0)");
    check_world("2", "1x", "FLOW_RANK=1x: a whole number is needed (FLOW_WORLD=4 FLOW_RANK=0)");
    check_world(NULL, "1", "FLOW_RANK=1: FLOW_WORLD (the number of ranks) is missing");
    CHECK(fl_world_set_dry(3, -1) == FL_ERR_VALUE);
    CHECK(fl_world_get()->size == 4); /* an error changes nothing */
    CHECK(fl_world_set_dry(1, 0) == FL_OK && !fl_world_get()->dry);
}

static void placements(void)
{
    char text[FL_PLACEMENT_TEXT];
    const fl_placement *p = NULL;
    int four[] = {4}, square[] = {2, 2}, bad[] = {2, 3};
    CHECK(fl_world_set_dry(4, 2) == FL_OK);
    CHECK(PLACE(4, 1, four, 0, 1, 2, 3) == fl_placement_all(FL_CPU));
    const fl_placement *q = PLACE(4, 2, square, 3, 2, 0, 1);
    CHECK(q == PLACE(4, 2, square, 3, 2, 0, 1) && q != PLACE(4, 2, square, 0, 1, 2, 3));
    CHECK(q != PLACE(4, 1, four, 3, 2, 0, 1));
    CHECK(q->my_index == 1 && q->ranks[0] == 3);
    CHECK_TEXT(fl_placement_text(text, q), "placement(\"cpu\", {{3, 2}, {0, 1}})");
    int coords[2];
    fl_placement_coords(coords, q, 2);
    CHECK(coords[0] == 1 && coords[1] == 0);
    CHECK(fl_placement_get(&p, FL_CPU, (int[]){0, 5}, 2, (int[]){2}, 1) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(),
               "placement: rank 5 does not exist: the world has 4 ranks (0 to 3); start flowlua with --ranks 6, or "
               "write flow.placement.all(\"cpu\")");
    CHECK(fl_placement_get(&p, FL_CPU, (int[]){0, -1}, 2, (int[]){2}, 1) == FL_ERR_SBP);
    CHECK(fl_placement_get(&p, FL_CPU, (int[]){0, 1, 1}, 3, (int[]){3}, 1) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(), "placement: rank 1 is named twice");
    CHECK(fl_placement_get(&p, FL_CPU, (int[]){0, 1, 2, 3}, 4, bad, 2) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(), "placement: a hierarchy of 2 x 3 does not hold 4 ranks");
    CHECK(fl_placement_get(&p, FL_CPU, NULL, 0, (int[]){0}, 1) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(), "placement: no rank is named");
    CHECK(p == NULL);
    CHECK(fl_world_set_dry(1, 0) == FL_OK);
    CHECK(fl_placement_get(&p, FL_CPU, (int[]){1}, 1, (int[]){1}, 1) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(),
               "placement: rank 1 does not exist: the world has one rank (0); start flowlua with --ranks 2, or write "
               "flow.placement.all(\"cpu\")");
}

static void long_placement_text(void)
{
    char text[FL_PLACEMENT_TEXT];
    int ranks[1024], hierarchy[] = {4, 256};
    for (int i = 0; i < 1024; i++) ranks[i] = i;
    CHECK(fl_world_set_dry(1024, 0) == FL_OK);
    CHECK_TEXT(fl_placement_text(text, place(ranks, 1024, hierarchy, 2)),
               "placement(\"cpu\", {0, 1, ..., 1023}, hierarchy {4, 256})");
    CHECK(fl_world_set_dry(1, 0) == FL_OK);
}

/* Local tensors follow the dry world's rank. */
static void local_placement(void)
{
    fl_shape s = SHAPE(3);
    const fl_meta *m, *again;
    CHECK(fl_meta_local(&m, FL_FLOAT32, &s) == FL_OK);
    CHECK(fl_world_set_dry(4, 3) == FL_OK);
    CHECK(fl_placement_local(FL_CPU, -1)->ranks[0] == 3 && m->holds && m->local_numel == 3);
    CHECK(fl_meta_local(&again, FL_FLOAT32, &s) == FL_OK && again == m);
    CHECK(fl_placement_local(FL_CUDA, 1) != fl_placement_local(FL_CUDA, 0));
    CHECK(fl_world_set_dry(1, 0) == FL_OK);
    fl_meta_unref(again);
    fl_meta_unref(m);
}

static void sbp_text(void)
{
    static const struct {
        const char *text;
        int ndim;
        fl_sbp sbp;
        const char *printed;
    } good[] = {
        {"S(0)", 0, FL_S(0), "S(0)"},     {"S(-1)", 3, FL_S(2), "S(2)"},
        {"S(7)", 2, FL_S(7), "S(7)"},     {"B", 0, FL_B, "B"},
        {"P", 0, FL_PSUM, "P"},           {"P(sum)", 0, FL_PSUM, "P"},
        {"P(max)", 0, FL_PMAX, "P(max)"}, {"P(min)", 0, FL_PMIN, "P(min)"},
    };
    static const char *const bad[] = {"",      "S",     "S(", "S(1",     "S()", "S(8)",
                                      "S(-1)", "S(0)x", "b",  "P(prod)", "BB",  "S(99999999999)"};
    char text[FL_SBP_TEXT], all[FL_ND_SBP_TEXT];
    fl_sbp s;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(fl_sbp_parse(&s, good[i].text, good[i].ndim) && s == good[i].sbp);
        CHECK_TEXT(fl_sbp_text(text, s), good[i].printed);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!fl_sbp_parse(&s, bad[i], 0));
    fl_nd_sbp nd = {2, {FL_S(0), FL_B}};
    CHECK_TEXT(fl_nd_sbp_text(all, nd), "(S(0), B)");
    CHECK_TEXT(fl_nd_sbp_text(all, fl_nd_sbp_fill(FL_PMAX, 1)), "P(max)");
    CHECK(fl_nd_sbp_equal(fl_nd_sbp_fill(FL_B, 2), (fl_nd_sbp){2, {FL_B, FL_B}}));
}

/* ---- metas ---- */

static const fl_meta *global(fl_dtype dtype, fl_shape shape, const fl_placement *p, fl_nd_sbp sbp)
{
    const fl_meta *m = NULL;
    CHECK(fl_meta_get(&m, dtype, &shape, p, sbp, false) == FL_OK);
    return m;
}

static void interning(void)
{
    char text[FL_META_TEXT];
    int two[] = {2};
    CHECK(fl_world_set_dry(2, 1) == FL_OK);
    const fl_placement *p = PLACE(2, 1, two, 0, 1);
    int64_t before = fl_meta_count();
    const fl_meta *a = global(FL_FLOAT32, SHAPE(8, 6), p, fl_nd_sbp_fill(FL_S(0), 1));
    const fl_meta *b = global(FL_FLOAT32, SHAPE(8, 6), p, fl_nd_sbp_fill(FL_S(0), 1));
    const fl_meta *c = global(FL_FLOAT32, SHAPE(8, 6), p, fl_nd_sbp_fill(FL_S(1), 1));
    CHECK(a == b && a != c && a->refs == 2 && fl_meta_count() == before + 2);
    CHECK(a->holds && a->window.start[0] == 4 && a->window.size[0] == 4 && a->local_numel == 24 && a->strides[0] == 6);
    CHECK(c->window.start[1] == 3 && c->strides[0] == 3);
    CHECK_TEXT(fl_meta_text(text, a), "float32[8, 6] on placement(\"cpu\", {0, 1}) as S(0)");
    fl_meta_unref(a), fl_meta_unref(b), fl_meta_unref(c);
    CHECK(fl_meta_count() == before);
    fl_shape s = SHAPE(3);
    CHECK(fl_meta_local(&a, FL_BOOL, &s) == FL_OK);
    CHECK_TEXT(fl_meta_text(text, a), "bool[3]");
    fl_meta_unref(a);
    CHECK(fl_world_set_dry(1, 0) == FL_OK);
}

static void meta_errors(void)
{
    int two[] = {2};
    const fl_meta *m = NULL;
    CHECK(fl_world_set_dry(2, 0) == FL_OK);
    const fl_placement *p = PLACE(2, 1, two, 0, 1);
    fl_shape matrix = SHAPE(4, 2), row = SHAPE(4), scalar = {0};
    CHECK(fl_meta_get(&m, FL_FLOAT32, &matrix, p, fl_nd_sbp_fill(FL_S(3), 1), false) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(),
               "sbp S(3) on placement(\"cpu\", {0, 1}): float32[4, 2] has axes 0 to 1; write \"S(0)\" or \"S(1)\"");
    CHECK(fl_meta_get(&m, FL_FLOAT32, &row, p, fl_nd_sbp_fill(FL_S(1), 1), false) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(), "sbp S(1) on placement(\"cpu\", {0, 1}): float32[4] has axis 0 alone; write \"S(0)\"");
    CHECK(fl_meta_get(&m, FL_FLOAT32, &scalar, p, fl_nd_sbp_fill(FL_S(0), 1), false) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(), "sbp S(0) on placement(\"cpu\", {0, 1}): float32[] has no axis; write \"B\"");
    CHECK(fl_meta_get(&m, FL_FLOAT32, &row, p, fl_nd_sbp_fill(FL_B, 2), false) == FL_ERR_SBP);
    CHECK_TEXT(
        fl_message(),
        "sbp (B, B): placement(\"cpu\", {0, 1}) has 1 hierarchy axis, and each needs one sbp; write sbp = \"B\"");
    CHECK(fl_meta_get(&m, FL_BOOL, &row, p, fl_nd_sbp_fill(FL_PSUM, 1), false) == FL_ERR_SBP);
    CHECK(m == NULL);
    CHECK(fl_world_set_dry(1, 0) == FL_OK);
}

/* Every rank's window of nested splits, on every rank: parts tile the axis in the order of the coordinates. */
static void nested_windows(void)
{
    int hierarchy[] = {2, 3}, ranks[] = {0, 1, 2, 3, 4, 5};
    static const int64_t start[] = {0, 2, 3, 4, 6, 7}, size[] = {2, 1, 1, 2, 1, 1}; /* 8 = 4 + 4, 4 = 2 + 1 + 1 */
    for (int rank = 0; rank < 6; rank++) {
        CHECK(fl_world_set_dry(6, rank) == FL_OK);
        const fl_placement *p = place(ranks, 6, hierarchy, 2);
        const fl_meta *m = global(FL_INT64, SHAPE(8, 5), p, (fl_nd_sbp){2, {FL_S(0), FL_S(0)}});
        CHECK(m->window.start[0] == start[rank] && m->window.size[0] == size[rank] && m->window.size[1] == 5);
        for (int r = 0; r < 6; r++) {
            fl_window w;
            fl_meta_window(&w, m, r);
            CHECK(w.start[0] == start[r] && w.size[0] == size[r]);
        }
        const fl_meta *cross = global(FL_INT64, SHAPE(8, 5), p, (fl_nd_sbp){2, {FL_S(1), FL_S(0)}});
        CHECK(cross->window.start[1] == (rank < 3 ? 0 : 3) && cross->window.size[0] == (rank % 3 < 2 ? 3 : 2));
        fl_meta_unref(m), fl_meta_unref(cross);
    }
    CHECK(fl_world_set_dry(1, 0) == FL_OK);
}

static void ranks_outside(void)
{
    int one[] = {1};
    CHECK(fl_world_set_dry(3, 2) == FL_OK);
    const fl_placement *p = PLACE(1, 1, one, 1);
    const fl_meta *m = global(FL_FLOAT32, (fl_shape){0}, p, fl_nd_sbp_fill(FL_B, 1));
    CHECK(!m->holds && m->local_numel == 0 && m->numel == 1);
    CHECK(fl_world_set_dry(3, 1) == FL_OK); /* live metas follow */
    CHECK(m->holds && m->local_numel == 1);
    fl_meta_unref(m);
    CHECK(fl_world_set_dry(1, 0) == FL_OK);
}

static long resident_pages(void)
{
    long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &total, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident;
}

static void a_million_metas(void)
{
    int64_t before = fl_meta_count();
    long pages = resident_pages();
    const fl_meta *held[1000] = {0};
    for (int64_t i = 0; i < 1000000; i++) {
        fl_shape s = SHAPE(i, i % 7);
        const fl_meta **slot = &held[i % 1000];
        fl_meta_unref(*slot);
        if (fl_meta_local(slot, FL_FLOAT32, &s) != FL_OK) CHECK(!"meta");
    }
    CHECK(fl_meta_count() == before + 1000);
    for (int i = 0; i < 1000; i++) fl_meta_unref(held[i]);
    CHECK(fl_meta_count() == before);
#ifndef __SANITIZE_ADDRESS__
    CHECK((resident_pages() - pages) * sysconf(_SC_PAGESIZE) < 16 << 20);
#endif
    (void)pages;
}

int main(void)
{
    RUN(dtype_names_and_sizes);
    RUN(promotion);
    RUN(half_round_trips);
    RUN(half_rounding);
    RUN(shapes);
    RUN(axes);
    RUN(balanced_splits);
    RUN(world);
    RUN(placements);
    RUN(long_placement_text);
    RUN(local_placement);
    RUN(sbp_text);
    RUN(interning);
    RUN(meta_errors);
    RUN(nested_windows);
    RUN(ranks_outside);
    RUN(a_million_metas);
    return finish();
}

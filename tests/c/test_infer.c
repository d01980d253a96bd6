/*
** test_infer.c -- plans: the SBP that is chosen, placements that do not fit, the plan cache.
**
** The ops are made up here, with signatures of their own, so that only inference is under test.
*/
#include "dispatch/dry_world.h"
#include "check.h"
#include "core/infer/infer.h"
#include "core/value/testing.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- ops ---- */

static fl_status broadcast_infer(fl_infer *c)
{
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = c->in[0].shape;
    for (int i = 1; i < c->nin; i++) {
        if (c->in[i].kind != FL_TENSOR) continue;
        c->out[0].dtype = fl_dtype_promote(c->out[0].dtype, c->in[i].dtype);
        FL_TRY(fl_shape_broadcast(&c->out[0].shape, c->name, &c->out[0].shape, &c->in[i].shape));
    }
    return FL_OK;
}

static fl_status broken_infer(fl_infer *c)
{
    FL_TRY(broadcast_infer(c));
    c->out[0].dtype = (fl_dtype)77;
    return FL_OK;
}

/* S(i) wherever an operand has that axis, and P beside P. */
static void add_sbp(fl_sigs *s)
{
    int ndim = s->out_logical[0].ndim;
    for (int axis = 0; axis < ndim; axis++) {
        fl_sbp row[3] = {FL_B, FL_B, FL_S(axis)};
        for (int i = 0; i < 2; i++) {
            int own = axis - (ndim - s->in_logical[i].ndim);
            if (own >= 0 && s->in_logical[i].dims[own] == s->out_logical[0].dims[axis]) row[i] = FL_S(own);
        }
        fl_sig_add(s, NULL, row);
    }
    FL_SIG(s, NULL, FL_PSUM, FL_PSUM, FL_PSUM);
}

static const fl_op add_op = {.name = "add",
                             .sig = "add(x, y|n)",
                             .nout = 1,
                             .infer = broadcast_infer,
                             .sbp = add_sbp,
                             .flags = FL_OP_ELEMENTWISE};

static fl_status matmul_infer(fl_infer *c)
{
    c->out[0].dtype = c->in[0].dtype;
    return fl_shape_make(&c->out[0].shape, c->name, (int64_t[]){c->in[0].shape.dims[0], c->in[1].shape.dims[1]}, 2);
}

static void matmul_sbp(fl_sigs *s)
{
    FL_SIG(s, NULL, FL_S(0), FL_B, FL_S(0));
    FL_SIG(s, NULL, FL_B, FL_S(1), FL_S(1));
    FL_SIG(s, NULL, FL_S(1), FL_S(0), FL_PSUM);
    FL_SIG(s, NULL, FL_PSUM, FL_B, FL_PSUM);
    FL_SIG(s, NULL, FL_B, FL_PSUM, FL_PSUM);
}

static const fl_op matmul_op = {
    .name = "matmul", .sig = "matmul(x, y)", .nout = 1, .infer = matmul_infer, .sbp = matmul_sbp};

static void relu_sbp(fl_sigs *s)
{
    for (int axis = 0; axis < s->out_logical[0].ndim; axis++) FL_SIG(s, NULL, FL_S(axis), FL_S(axis));
}

static const fl_op relu_op = {
    .name = "relu", .sig = "relu(x)", .nout = 1, .infer = broadcast_infer, .sbp = relu_sbp, .flags = FL_OP_ELEMENTWISE};

static const fl_op broken_op = {
    .name = "broken", .sig = "broken(x)", .nout = 1, .infer = broken_infer, .sbp = relu_sbp};

static fl_status softmax_body(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return fl_fail(FL_ERR_STATE, "never called here");
}

/* softmax(x, axis): along a split axis it is written in other ops. */
static void softmax_sbp(fl_sigs *s)
{
    for (int axis = 0; axis < s->out_logical[0].ndim; axis++)
        FL_SIG(s, axis == s->attrs->at[0].integer ? softmax_body : NULL, FL_S(axis), FL_S(axis));
}

static const fl_op softmax_op = {
    .name = "softmax", .sig = "softmax(x, axis: axis)", .nout = 1, .infer = broadcast_infer, .sbp = softmax_sbp};
static const fl_op scale_op = {.name = "scale",
                               .sig = "scale(x, ~by: scalar = 1, times: int = 1)",
                               .nout = 1,
                               .infer = broadcast_infer,
                               .sbp = relu_sbp};

static fl_status source_infer(fl_infer *c)
{
    c->out[0].dtype = c->attrs->has_dtype ? c->attrs->option_dtype : FL_FLOAT32;
    return fl_shape_make(&c->out[0].shape, c->name, c->attrs->at[0].list, c->attrs->at[0].count);
}

static const fl_op zeros_op = {.name = "zeros",
                               .sig = "zeros(size: sizes, options)",
                               .nout = 1,
                               .infer = source_infer,
                               .flags = FL_OP_SOURCE | FL_OP_ZEROS};
static const fl_op randn_op = {
    .name = "randn", .sig = "randn(size: sizes, options)", .nout = 1, .infer = source_infer, .flags = FL_OP_SOURCE};

static fl_status nothing_infer(fl_infer *c) { return FL_OK; }

static void step_sbp(fl_sigs *s)
{
    for (int axis = 0; axis < s->in_logical[0].ndim; axis++) FL_SIG(s, NULL, FL_S(axis), FL_S(axis));
}

static const fl_op step_op = {.name = "step",
                              .sig = "step(xs...)",
                              .nout = 0,
                              .infer = nothing_infer,
                              .sbp = step_sbp,
                              .groups = 2,
                              .mutates = 1};
static const fl_op fill_op = {.name = "masked_select",
                              .sig = "masked_select(x, mask)",
                              .nout = 1,
                              .infer = broadcast_infer,
                              .sbp = add_sbp,
                              .flags = FL_OP_LOCAL_ONLY};

/* ---- operands ---- */

enum { MAX_TENSORS = 64 };
static fl_tensor tensors[MAX_TENSORS]; /* only their metas are looked at */
static int tensor_count;

static void drop_tensors(void)
{
    while (tensor_count > 0) fl_meta_unref(tensors[--tensor_count].meta);
    fl_infer_clear();
}

static const fl_placement *place(int ndim, const int *hierarchy)
{
    int ranks[16], count = 1;
    const fl_placement *p = NULL;
    for (int k = 0; k < ndim; k++) count *= hierarchy[k];
    for (int i = 0; i < count; i++) ranks[i] = i;
    CHECK(fl_placement_get(&p, FL_CPU, ranks, count, hierarchy, ndim) == FL_OK);
    return p;
}
#define PLACE(...) place((int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

static fl_nd_sbp read_nd(const char *text)
{
    fl_nd_sbp s = {0};
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok(copy, ", "); word; word = strtok(NULL, ", ")) CHECK(fl_sbp_parse(&s.at[s.n++], word, 0));
    return s;
}

static fl_operand operand(fl_dtype dtype, int ndim, const int64_t *dims, const fl_placement *p, const char *sbp)
{
    fl_shape shape;
    fl_tensor *t = &tensors[tensor_count++];
    CHECK(fl_shape_make(&shape, "test", dims, ndim) == FL_OK);
    if (p) CHECK(fl_meta_get(&t->meta, dtype, &shape, p, read_nd(sbp), false) == FL_OK);
    else CHECK(fl_meta_local(&t->meta, dtype, &shape) == FL_OK);
    return fl_of(t);
}
#define DIMS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }
#define FLOATS(p, sbp, ...) operand(FL_FLOAT32, DIMS(__VA_ARGS__), p, sbp)
#define LOCAL(...) operand(FL_FLOAT32, DIMS(__VA_ARGS__), NULL, NULL)

static fl_status plan_of(const fl_plan **out, const fl_op *op, fl_operand x, fl_operand y)
{
    return fl_infer_plan(out, op, (fl_operand[]){x, y}, y.kind == FL_NONE ? 1 : 2, NULL, false);
}

/* "x sbp, y sbp -> out sbp" of the plan. */
static const char *describe(const fl_plan *plan)
{
    static char text[512];
    char one[FL_ND_SBP_TEXT];
    text[0] = 0;
    for (int i = 0; i < plan->nin; i++)
        if (plan->in[i]) strcat(strcat(text, i ? " " : ""), fl_nd_sbp_text(one, plan->in[i]->nd_sbp));
    if (plan->nout) strcat(strcat(text, " -> "), fl_nd_sbp_text(one, plan->out[0]->nd_sbp));
    return text;
}

static void check_choice(const fl_op *op, fl_operand x, fl_operand y, const char *wanted)
{
    const fl_plan *plan;
    if (!CHECK(plan_of(&plan, op, x, y) == FL_OK)) printf("%s\n", fl_message());
    else CHECK_TEXT(describe(plan), wanted);
}

/* ---- the choice ---- */

static void sums(void)
{
    const fl_placement *p = PLACE(4);
    check_choice(&add_op, FLOATS(p, "S(0)", 8, 6), FLOATS(p, "S(1)", 8, 6), "S(0) S(0) -> S(0)");
    check_choice(&add_op, FLOATS(p, "S(1)", 8, 6), FLOATS(p, "S(0)", 8, 6),
                 "S(0) S(0) -> S(0)"); /* 40 bytes; to S(1) 48 */
    check_choice(&add_op, FLOATS(p, "S(1)", 6, 8), FLOATS(p, "S(0)", 6, 8), "S(1) S(1) -> S(1)");
    /* a tie: the op's order */
    check_choice(&add_op, FLOATS(p, "S(1)", 8, 8), FLOATS(p, "S(0)", 8, 8), "S(0) S(0) -> S(0)");
    check_choice(&add_op, FLOATS(p, "S(0)", 8, 6), FLOATS(p, "B", 8, 6), "S(0) S(0) -> S(0)");
    check_choice(&add_op, FLOATS(p, "B", 8, 6), FLOATS(p, "B", 8, 6), "B B -> B");
    check_choice(&add_op, FLOATS(p, "S(1)", 8, 6), FLOATS(p, "B", 6), "S(1) S(0) -> S(1)");
    check_choice(&add_op, FLOATS(p, "S(0)", 8, 6), FLOATS(p, "B", 6), "S(0) B -> S(0)");
    check_choice(&add_op, FLOATS(p, "P", 8, 6), FLOATS(p, "P", 8, 6), "P P -> P");
    check_choice(&add_op, FLOATS(p, "P", 8, 6), FLOATS(p, "B", 8, 6), "P P -> P");
    check_choice(&add_op, FLOATS(p, "P", 8, 6), FLOATS(p, "S(0)", 8, 6), "S(0) S(0) -> S(0)"); /* S never becomes P */
    check_choice(&relu_op, FLOATS(p, "P", 8, 6), fl_of(NULL), "S(0) -> S(0)");
    /* S(0) moves more: whole rows to two ranks */
    check_choice(&relu_op, FLOATS(p, "P", 2, 6), fl_of(NULL), "S(1) -> S(1)");
    drop_tensors();
}

static void matrix_products(void)
{
    const fl_placement *p = PLACE(4);
    check_choice(&matmul_op, FLOATS(p, "S(0)", 8, 6), FLOATS(p, "B", 6, 4), "S(0) B -> S(0)");
    check_choice(&matmul_op, FLOATS(p, "B", 8, 6), FLOATS(p, "S(1)", 6, 4), "B S(1) -> S(1)");
    check_choice(&matmul_op, FLOATS(p, "S(1)", 8, 6), FLOATS(p, "S(0)", 6, 4), "S(1) S(0) -> P");
    check_choice(&matmul_op, FLOATS(p, "S(1)", 8, 6), FLOATS(p, "B", 6, 4),
                 "S(1) S(0) -> P"); /* slices y, moves nothing */
    check_choice(&matmul_op, FLOATS(p, "B", 8, 6), FLOATS(p, "B", 6, 4), "B B -> B");
    check_choice(&matmul_op, FLOATS(p, "P", 8, 6), FLOATS(p, "B", 6, 4), "P B -> P");
    const fl_placement *q = PLACE(2, 2);
    check_choice(&matmul_op, FLOATS(q, "S(0), B", 8, 6), FLOATS(q, "B, S(1)", 6, 4),
                 "(S(0), B) (B, S(1)) -> (S(0), S(1))");
    check_choice(&matmul_op, FLOATS(q, "S(0), S(1)", 8, 6), FLOATS(q, "B, S(0)", 6, 4),
                 "(S(0), S(1)) (B, S(0)) -> (S(0), P)");
    check_choice(&matmul_op, FLOATS(q, "S(0), S(0)", 8, 6), FLOATS(q, "B, B", 6, 4),
                 "(S(0), S(0)) (B, B) -> (S(0), S(0))");
    drop_tensors();
}

/* Past three axes only part of the tree is searched; a signature without boxing is found all the same. */
static void deep_hierarchies(void)
{
    const fl_placement *p = PLACE(2, 1, 2, 2, 2);
    check_choice(&add_op, FLOATS(p, "S(0), B, S(1), S(0), B", 8, 6), FLOATS(p, "S(0), B, B, S(0), S(1)", 8, 6),
                 "(S(0), B, S(1), S(0), S(1)) (S(0), B, S(1), S(0), S(1)) -> (S(0), B, S(1), S(0), S(1))");
    check_choice(&relu_op, FLOATS(p, "S(0), B, S(0), S(1), P", 8, 6), fl_of(NULL),
                 "(S(0), B, S(0), S(1), S(0)) -> (S(0), B, S(0), S(1), S(0))");
    drop_tensors();
}

/* A scalar has no axis to split, a short axis makes empty parts. */
static void edges(void)
{
    const fl_placement *p = PLACE(4);
    fl_operand scalar = operand(FL_FLOAT32, 0, NULL, p, "B");
    check_choice(&add_op, scalar, scalar, "B B -> B");
    check_choice(&add_op, FLOATS(p, "S(0)", 2, 8), FLOATS(p, "B", 2, 8),
                 "S(0) S(0) -> S(0)"); /* empty parts beat moving */
    check_choice(&add_op, FLOATS(p, "S(0)", 0, 8), FLOATS(p, "S(1)", 0, 8), "S(0) S(0) -> S(0)");
    CHECK(fl_world_set_dry(1, 0) == FL_OK); /* world size 1 takes the same way */
    const fl_placement *one = PLACE(1);
    check_choice(&add_op, FLOATS(one, "S(0)", 8, 6), FLOATS(one, "B", 8, 6), "S(0) S(0) -> S(0)");
    CHECK(fl_world_set_dry(16, 0) == FL_OK);
    drop_tensors();
}

static void numbers_and_bodies(void)
{
    const fl_placement *p = PLACE(4);
    const fl_plan *plan;
    fl_attrs attrs;
    check_choice(&add_op, FLOATS(p, "S(1)", 8, 6), fl_of_number(2), "S(1) -> S(1)");
    fl_operand x = FLOATS(p, "S(1)", 8, 6), y = FLOATS(p, "S(0)", 8, 6);
    fl_attrs_init(&attrs, &softmax_op);
    fl_attr_set(&attrs, 0, 1);
    CHECK(fl_infer_plan(&plan, &softmax_op, &x, 1, &attrs, false) == FL_OK && plan->body == softmax_body
          && !plan->kernel && !plan->boxes);
    CHECK(fl_infer_plan(&plan, &softmax_op, &y, 1, &attrs, false) == FL_OK && !plan->body);
    drop_tensors();
}

/* An op from outside whose inference is wrong is an error, whatever number it left as a dtype. */
static void no_dtype(void)
{
    const fl_plan *plan;
    fl_operand x = FLOATS(PLACE(4), "S(0)", 8, 6);
    CHECK(fl_infer_plan(&plan, &broken_op, &x, 1, NULL, false) == FL_ERR_DTYPE);
    CHECK(strcmp(fl_message(), "broken: its inference gives result 0 no dtype") == 0);
    drop_tensors();
}

/* ---- in place ---- */

static void in_place(void)
{
    const fl_placement *p = PLACE(4);
    const fl_plan *plan;
    fl_operand s0 = FLOATS(p, "S(0)", 8, 6), s1 = FLOATS(p, "S(1)", 8, 6), partial = FLOATS(p, "P", 8, 6),
               row = FLOATS(p, "B", 6);
    fl_operand whole = operand(FL_INT32, DIMS(8, 6), p, "S(0)");
    CHECK(fl_infer_plan(&plan, &add_op, (fl_operand[]){s1, s0}, 2, NULL, true) == FL_OK);
    CHECK_TEXT(describe(plan), "S(1) S(1) -> S(1)");
    CHECK(plan->out[0] == s1.tensor->meta);
    CHECK(fl_infer_plan(&plan, &add_op, (fl_operand[]){s1, s0}, 2, NULL, false) == FL_OK); /* another plan */
    CHECK(fl_infer_plan(&plan, &relu_op, &partial, 1, NULL, true) == FL_ERR_SBP);
    CHECK_TEXT(
        fl_message(),
        "relu_: x is float32[8, 6] on placement(\"cpu\", {0, 1, 2, 3}) as P and cannot hold the result in place; "
        "assign it instead: x = x:relu(...)");
    CHECK(fl_infer_plan(&plan, &add_op, (fl_operand[]){row, s0}, 2, NULL, true) == FL_ERR_SHAPE);
    CHECK_TEXT(fl_message(),
               "add_: x is float32[6] on placement(\"cpu\", {0, 1, 2, 3}) as B and the result has shape [8, 6]; write "
               "x = x:add(...)");
    CHECK(fl_infer_plan(&plan, &add_op, (fl_operand[]){whole, s0}, 2, NULL, true) == FL_ERR_DTYPE);
    drop_tensors();
}

/* An op over lists decides for every position on its own; updated tensors keep their SBP. */
static void lists(void)
{
    const fl_placement *p = PLACE(4);
    const fl_plan *plan;
    fl_operand in[] = {FLOATS(p, "S(0)", 8), FLOATS(p, "B", 8), FLOATS(p, "B", 8), FLOATS(p, "S(0)", 8)};
    CHECK(fl_infer_plan(&plan, &step_op, in, 4, NULL, false) == FL_OK);
    CHECK_TEXT(describe(plan), "S(0) B S(0) B");
    CHECK(fl_infer_plan(&plan, &step_op, in, 3, NULL, false) == FL_ERR_VALUE);
    in[1] = FLOATS(p, "P", 8);
    CHECK(fl_infer_plan(&plan, &step_op, in, 4, NULL, false) == FL_ERR_SBP);
    CHECK(strstr(fl_message(), "cannot be updated in that sbp") != NULL);
    CHECK(fl_infer_plan(&plan, &step_op, NULL, 0, NULL, false) == FL_OK && plan->nin == 0);
    drop_tensors();
}

/* ---- placements ---- */

static void placements_that_do_not_fit(void)
{
    const fl_placement *p = PLACE(2), *q = PLACE(2, 2);
    const fl_plan *plan;
    CHECK(plan_of(&plan, &add_op, FLOATS(p, "S(0)", 3), LOCAL(3)) == FL_ERR_SBP);
    CHECK_TEXT(
        fl_message(),
        "add: y is a local tensor (float32[3]) and x is global (float32[3] on placement(\"cpu\", {0, 1}) as S(0)); "
        "write y:to_global{placement = x.placement, sbp = \"B\"}");
    CHECK(plan_of(&plan, &add_op, LOCAL(3), FLOATS(q, "S(0), B", 3)) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(),
               "add: x is a local tensor (float32[3]) and y is global (float32[3] on placement(\"cpu\", {{0, 1}, {2, "
               "3}}) as (S(0), B)); "
               "write x:to_global{placement = y.placement, sbp = {\"B\", \"B\"}}");
    CHECK(plan_of(&plan, &add_op, FLOATS(p, "B", 3), FLOATS(q, "B, B", 3)) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(),
               "add: y is float32[3] on placement(\"cpu\", {{0, 1}, {2, 3}}) as (B, B) and x is float32[3] on "
               "placement(\"cpu\", {0, 1}) as B; "
               "write y:to_global{placement = x.placement, sbp = \"B\"}");
    CHECK(plan_of(&plan, &add_op, LOCAL(3, 2), LOCAL(4)) == FL_ERR_SHAPE);
    CHECK_TEXT(fl_message(), "add: shapes [3, 2] and [4] do not broadcast");
    CHECK(plan_of(&plan, &add_op, LOCAL(3), LOCAL(2, 3)) == FL_OK && plan->out[0]->is_local && !plan->boxes
          && plan->runs);
    drop_tensors();
}

static void source_attrs(fl_attrs *a, const fl_op *op, const fl_placement *p, const char *sbp)
{
    fl_attrs_init(a, op);
    fl_attr_set_list(a, 0, (int64_t[]){8, 6}, 2);
    a->has_placement = p != NULL;
    a->placement = p;
    if (p) a->nd_sbp = read_nd(sbp);
}

static void new_tensors(void)
{
    char text[FL_META_TEXT];
    const fl_plan *plan;
    fl_attrs a;
    source_attrs(&a, &randn_op, PLACE(2), "S(1)");
    CHECK(fl_infer_plan(&plan, &randn_op, NULL, 0, &a, false) == FL_OK);
    CHECK_TEXT(fl_meta_text(text, plan->out[0]), "float32[8, 6] on placement(\"cpu\", {0, 1}) as S(1)");
    source_attrs(&a, &randn_op, PLACE(2), "P");
    CHECK(fl_infer_plan(&plan, &randn_op, NULL, 0, &a, false) == FL_ERR_SBP);
    CHECK_TEXT(fl_message(), "randn: a new tensor must be S or B, not P; use x:to_global{sbp = \"P\"}");
    source_attrs(&a, &zeros_op, PLACE(2), "P");
    CHECK(fl_infer_plan(&plan, &zeros_op, NULL, 0, &a, false) == FL_OK);
    source_attrs(&a, &zeros_op, PLACE(2), "S(2)");
    CHECK(fl_infer_plan(&plan, &zeros_op, NULL, 0, &a, false) == FL_ERR_SBP);
    CHECK_TEXT(
        fl_message(),
        "zeros: sbp S(2) on placement(\"cpu\", {0, 1}): float32[8, 6] has axes 0 to 1; write \"S(0)\" or \"S(1)\"");
    source_attrs(&a, &zeros_op, NULL, NULL);
    CHECK(fl_infer_plan(&plan, &zeros_op, NULL, 0, &a, false) == FL_OK && plan->out[0]->is_local);
    a.has_dtype = true;
    a.option_dtype = FL_INT64;
    CHECK(fl_infer_plan(&plan, &zeros_op, NULL, 0, &a, false) == FL_OK && plan->out[0]->dtype == FL_INT64);
    fl_attr_set_list(&a, 0, (int64_t[]){8}, 1);
    CHECK(fl_infer_plan(&plan, &zeros_op, NULL, 0, &a, false) == FL_OK && plan->out[0]->shape.ndim == 1);
    fl_attr_set_list(&a, 0, NULL, 0);
    CHECK(fl_infer_plan(&plan, &zeros_op, NULL, 0, &a, false) == FL_OK && plan->out[0]->shape.ndim == 0);
    check_choice(&fill_op, FLOATS(PLACE(2), "S(0)", 8), FLOATS(PLACE(2), "B", 8), "B B -> B");
    drop_tensors();
}

/* ---- contents of a plan ---- */

static void plans(void)
{
    const fl_placement *p = PLACE(4);
    const fl_plan *plan;
    fl_operand ints = operand(FL_INT32, DIMS(3), NULL, NULL), halves = operand(FL_FLOAT16, DIMS(3), NULL, NULL);
    CHECK(plan_of(&plan, &add_op, ints, fl_of_integer(1)) == FL_OK && plan->number_dtype == FL_INT32);
    CHECK(plan_of(&plan, &add_op, ints, fl_of_number(1)) == FL_OK && plan->number_dtype == FL_FLOAT32);
    CHECK(plan_of(&plan, &add_op, halves, fl_of_number(1)) == FL_OK && plan->number_dtype == FL_FLOAT32);
    CHECK(plan_of(&plan, &add_op, ints, halves) == FL_OK && !plan->boxes);
    CHECK(plan_of(&plan, &add_op, FLOATS(p, "S(0)", 8, 6), FLOATS(p, "B", 8, 6)) == FL_OK && plan->boxes);
    CHECK(plan->in[1]->nd_sbp.at[0] == FL_S(0) && plan->runs);
    CHECK(fl_world_set_dry(16, 9) == FL_OK);
    CHECK(plan_of(&plan, &add_op, FLOATS(p, "S(0)", 8, 6), FLOATS(p, "B", 8, 6)) == FL_OK && !plan->runs);
    CHECK(fl_world_set_dry(16, 0) == FL_OK);
    drop_tensors();
}

/* ---- explain ---- */

typedef struct report {
    int candidates, chosen;
    int64_t bytes;
} report;

static void note_candidate(void *context, const fl_candidate *candidate, int nin, int nout)
{
    report *r = context;
    r->candidates++;
    if (!candidate->chosen) return;
    r->chosen++;
    r->bytes = candidate->bytes;
    CHECK(nin == 2 && nout == 1 && candidate->in_out[2].at[0] == FL_S(0) && candidate->kept == 1);
}

static void candidates(void)
{
    const fl_placement *p = PLACE(4);
    fl_operand in[] = {FLOATS(p, "S(0)", 8, 6), FLOATS(p, "S(1)", 8, 6)};
    fl_spec specs[2];
    const fl_meta *metas[] = {in[0].tensor->meta, in[1].tensor->meta};
    fl_nd_sbp in_sbp[2], out_sbp[1];
    fl_box_plan *boxings[2];
    fl_choice choice = {in_sbp, out_sbp, boxings, NULL};
    report r = {0};
    for (int i = 0; i < 2; i++) fl_spec_of(&specs[i], &in[i]);
    fl_infer c = {.op = &add_op, .name = "add", .in = specs, .nin = 2, .nout = 1};
    c.out[0] = specs[0];
    CHECK(fl_infer_choose(&choice, &c, metas, p, false, note_candidate, &r) == FL_OK);
    CHECK(r.candidates == 3 && r.chosen == 1 && r.bytes == 40); /* S(0), S(1), B; P is not reachable */
    CHECK(!boxings[0] && boxings[1] && boxings[1]->count == 1 && boxings[1]->bytes == r.bytes);
    free(boxings[1]);
    drop_tensors();
}

/* ---- the cache ---- */

static fl_infer_stats stats(void)
{
    fl_infer_stats s;
    fl_infer_stats_get(&s);
    return s;
}

static void hits_and_misses(void)
{
    const fl_plan *a, *b;
    fl_attrs attrs;
    fl_operand x = LOCAL(16), y = LOCAL(16);
    fl_infer_stats before = stats();
    CHECK(plan_of(&a, &add_op, x, y) == FL_OK && plan_of(&b, &add_op, y, x) == FL_OK && a == b
          && stats().hits == before.hits + 1);
    for (int i = 0; i < 100; i++) { /* numbers and value attributes are not in the key, shape attributes are */
        CHECK(plan_of(&b, &add_op, x, fl_of_number(i)) == FL_OK);
        fl_attrs_init(&attrs, &scale_op);
        fl_attr_set_number(&attrs, 0, i * 0.1);
        CHECK(fl_infer_plan(&b, &scale_op, &x, 1, &attrs, false) == FL_OK);
    }
    CHECK(stats().misses == before.misses + 3 && stats().hits == before.hits + 1 + 2 * 99);
    fl_attr_set(&attrs, 0, 7); /* another kind of number */
    CHECK(fl_infer_plan(&b, &scale_op, &x, 1, &attrs, false) == FL_OK && stats().misses == before.misses + 4);
    fl_attr_set(&attrs, 1, 2);
    CHECK(fl_infer_plan(&b, &scale_op, &x, 1, &attrs, false) == FL_OK && stats().misses == before.misses + 5);
    CHECK(stats().size == 5);
    drop_tensors();
    CHECK(stats().size == 0);
}

static const fl_plan *plan_for_size(int64_t n)
{
    const fl_plan *plan = NULL;
    fl_operand x = LOCAL(n);
    if (fl_infer_plan(&plan, &relu_op, &x, 1, NULL, false) != FL_OK) CHECK(!"plan");
    fl_meta_unref(tensors[--tensor_count].meta);
    return plan;
}

static void least_recently_used(void)
{
    fl_infer_clear();
    for (int64_t i = 0; i < FL_INFER_CAPACITY; i++) plan_for_size(i);
    for (int64_t i = 0; i < 100; i++) plan_for_size(2 * i); /* used again: the even ones of the first 200 */
    CHECK(stats().size == FL_INFER_CAPACITY);
    for (int64_t i = 0; i < 100; i++) plan_for_size(FL_INFER_CAPACITY + i); /* 100 must go: the odd ones */
    CHECK(stats().size == FL_INFER_CAPACITY);
    int64_t before = stats().misses;
    for (int64_t i = 0; i < 100; i++) plan_for_size(2 * i);
    for (int64_t i = 200; i < 300; i++) plan_for_size(i);
    CHECK(stats().misses == before);
    for (int64_t i = 0; i < 100; i++) plan_for_size(2 * i + 1);
    CHECK(stats().misses == before + 100);
    drop_tensors();
}

static void a_million_plans(void)
{
    for (int64_t i = 0; i < 1000000; i++) plan_for_size(i);
    CHECK(stats().size == FL_INFER_CAPACITY);
    CHECK(fl_meta_count() == FL_INFER_CAPACITY); /* in and out of a plan are one meta */
    drop_tensors();
    CHECK(fl_meta_count() == 0);
}

/* The world's change empties the cache, because plans depend on this rank's parts. */
static void world_change(void)
{
    plan_for_size(3);
    CHECK(stats().size == 1);
    CHECK(fl_world_set_dry(16, 1) == FL_OK && stats().size == 0);
    CHECK(fl_world_set_dry(16, 0) == FL_OK);
}

int main(void)
{
    if (fl_world_set_dry(16, 0) != FL_OK) return 1;
    RUN(sums);
    RUN(matrix_products);
    RUN(deep_hierarchies);
    RUN(edges);
    RUN(numbers_and_bodies);
    RUN(no_dtype);
    RUN(in_place);
    RUN(lists);
    RUN(placements_that_do_not_fit);
    RUN(new_tensors);
    RUN(plans);
    RUN(candidates);
    RUN(hits_and_misses);
    RUN(least_recently_used);
    RUN(a_million_plans);
    RUN(world_change);
    return finish();
}

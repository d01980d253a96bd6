/*
** common.c -- a step that computes what an earlier one has computed, from the same values, goes: its result is the
** other's. Random steps, results and gradients that are left, and what is written in place are not looked at.
*/
#include "base/hash.h"
#include "passes.h"

#include <stdlib.h>
#include <string.h>

struct common {
    fl_program *program;
    int *writes, *written; /* by slot: number in all, and so far */
    bool *kept;            /* by slot: a result, or a gradient that is left */
    int *same_as;          /* by slot: the one with its value, mostly itself */
    uint64_t *keys;        /* by step: op and operands with the number of writes to them; 0: not looked at */
};

static bool is_pure(const struct common *common, const fl_step *step)
{
    if ((step->kind != FL_STEP_KERNEL && step->kind != FL_STEP_FLAT) || step->nout != 1) return false;
    if (step->draw >= 0 || step->live >= 0 || step->history) return false;
    for (int i = 0; i < step->nin; i++)
        if (step->operands[i].slot >= 0 && step->operands[i].written) return false;
    int out = step->operands[step->nin].slot;
    return out >= 0 && common->writes[out] == 1 && !fl_slot_is_outside(&common->program->slots[out]);
}

static uint64_t key_of(const struct common *common, const fl_step *step)
{
    uint64_t h = fl_hash_mix(FL_HASH_START, (uintptr_t)step->op);
    for (int i = 0; i < step->nin; i++) {
        const fl_program_operand *o = &step->operands[i];
        h = fl_hash_mix(h, (uint64_t)o->slot);
        if (o->slot >= 0) h = fl_hash_mix(fl_hash_mix(h, (uint64_t)common->written[o->slot]), (uint64_t)o->offset);
    }
    return h | 1;
}

static bool same_view(const fl_program_operand *a, const fl_program_operand *b)
{
    return a->slot == b->slot && a->meta == b->meta && a->offset == b->offset
        && memcmp(a->strides, b->strides, sizeof *a->strides * (size_t)a->meta->shape.ndim) == 0;
}

static bool same_attrs(const fl_attrs *a, const fl_attrs *b)
{
    return a->count == b->count && memcmp(a, b, offsetof(fl_attrs, at) + sizeof *a->at * (size_t)a->count) == 0;
}

/* The steps have one key. */
static bool give_the_same(const fl_step *a, const fl_step *b)
{
    if (a->op != b->op || a->nin != b->nin || a->device_index != b->device_index) return false;
    if (a->operands[a->nin].meta != b->operands[b->nin].meta || !same_attrs(a->kernel.attrs, b->kernel.attrs))
        return false;
    for (int i = 0; i < a->nin; i++) {
        const fl_view *x = &a->kernel.in[i], *y = &b->kernel.in[i];
        bool numbers = a->operands[i].slot < 0 && b->operands[i].slot < 0;
        if (numbers ? x->dtype != y->dtype || x->scalar[0] != y->scalar[0] || (x->data == NULL) != (y->data == NULL)
                    : !same_view(&a->operands[i], &b->operands[i]))
            return false;
    }
    return true;
}

/* The slot with what the step computes; -1: it is the first. */
static int earlier(const struct common *common, int n)
{
    const fl_program *p = common->program;
    for (int k = n - 1; k >= 0; k--)
        if (common->keys[k] == common->keys[n] && give_the_same(&p->steps[k], &p->steps[n]))
            return p->steps[k].operands[p->steps[k].nin].slot;
    return -1;
}

static void look_at(struct common *common, int n)
{
    fl_step *step = &common->program->steps[n];
    for (int i = 0; i < step->nin + step->nout; i++)
        if (step->operands[i].slot >= 0) step->operands[i].slot = common->same_as[step->operands[i].slot];
    bool pure = is_pure(common, step);
    if (pure) common->keys[n] = key_of(common, step);
    for (int i = 0; i < step->nin + step->nout; i++)
        if (step->operands[i].slot >= 0 && step->operands[i].written) common->written[step->operands[i].slot]++;
    int out = pure ? step->operands[step->nin].slot : -1, same = pure && !common->kept[out] ? earlier(common, n) : -1;
    if (same < 0) return;
    common->same_as[out] = same;
    common->program->slots[same].moved |= common->program->slots[out].moved;
    common->keys[n] = 0;
    fl_step_forget(step);
}

static void note_kept(const struct common *common)
{
    const fl_program *p = common->program;
    for (int i = 0; i < p->result_count; i++) common->kept[p->results[i].slot] = true;
    for (int i = 0; i < p->leaf_count; i++)
        if (p->leaves[i].changes && p->leaves[i].after.slot >= 0) common->kept[p->leaves[i].after.slot] = true;
    for (int n = 0; n < p->step_count; n++)
        for (int i = 0; i < p->steps[n].nin + p->steps[n].nout; i++) {
            const fl_program_operand *o = &p->steps[n].operands[i];
            if (o->slot >= 0 && o->written) common->writes[o->slot]++;
        }
}

fl_status fl_pass_common(fl_program *program)
{
    size_t slots = (size_t)program->slot_count + 1, steps = (size_t)program->step_count + 1;
    struct common c = {program,
                       calloc(slots, sizeof *c.writes),
                       calloc(slots, sizeof *c.written),
                       calloc(slots, sizeof *c.kept),
                       calloc(slots, sizeof *c.same_as),
                       calloc(steps, sizeof *c.keys)};
    fl_status status = c.writes && c.written && c.kept && c.same_as && c.keys ? FL_OK : fl_program_out_of_memory();
    if (status == FL_OK) {
        note_kept(&c);
        for (int i = 0; i < program->slot_count; i++) c.same_as[i] = i;
        for (int n = 0; n < program->step_count; n++) look_at(&c, n);
    }
    free(c.writes);
    free(c.written);
    free(c.kept);
    free(c.same_as);
    free(c.keys);
    return status;
}

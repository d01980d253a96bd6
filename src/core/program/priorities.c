/*
** priorities.c -- a boxing in which ranks meet goes ahead of others that have a lower priority (to_global's option).
**
** It goes directly ahead of the first one that it overtakes: as far as its operand is there, past none of its own
** priority or a higher one, and while it costs no more memory than collectives.c may take. All of its ranks have to do
** the same, and not one asks another: each decides by what all have. These are the ops on tensors of the ranks' own
** placement, which all of them carry out in the same order. The rest of a rank's list may be missing in another's:
** local tensors, tensors of other ranks, boxing in which no ranks meet, kernels of a part without elements. Therefore:
** - a boxing overtakes those that begin and end on the ranks that it begins and ends on itself. Others are passed,
**   whatever their priority: one that goes ahead of another at whose place all its ranks are, is between the same two
**   for everybody.
** - bytes are those of the first rank's part, which is the largest, of what boxing among these ranks has made.
** - an op of which this rank has no element is known by its note (fl_step.used), and the host's place of
**   a kernel that this rank has no part in (absent) is passed like that kernel.
** - a function with a local tensor as an argument keeps the script's order: its shape may make one rank record the
**   function while others replay it, and what is recorded is carried out in that order. So does one that is not strict:
**   where it is cut into pieces depends on what a rank reads.
** - this is the first pass: the others look at bytes of this rank's parts and at results that this rank uses.
** Work of one rank alone between the boxings, such as a write into its part or a function of the host, is not visible
** to the others: if it stops a boxing there, the next meeting is an error. A replay notes what overtakes and what is
** overtaken in the history. If ranks follow different orders after all (one captures a function and another does not),
** each of these meetings is an error, also where all shapes are equal.
*/
#include "boxing/boxing.h"
#include "passes.h"

#include <stdlib.h>
#include <string.h>

struct pass {
    fl_program *program;
    const fl_meta **boxed; /* by slot: the meta of boxing's result there, borrowed; NULL: none */
    int *seen;             /* by slot: the last sum in which it was counted */
    int sum;               /* the number of the one that is made now */
};

fl_status fl_step_find_meeting(fl_step *box)
{
    fl_box_plan plan;
    const fl_meta *from = box->operands[0].meta, *to = box->operands[1].meta;
    FL_TRY(fl_boxing_plan(&plan, from->dtype, &from->shape, from->placement, from->nd_sbp, to->placement, to->nd_sbp));
    box->meets = !plan.local;
    return FL_OK;
}

static bool same_ranks(const fl_placement *a, const fl_placement *b)
{
    if (a->count != b->count) return false;
    if (a == b || memcmp(a->ranks, b->ranks, sizeof *a->ranks * (size_t)a->count) == 0) return true;
    for (int i = 0; i < a->count; i++)
        if (fl_placement_index(b, a->ranks[i]) < 0) return false;
    return true;
}

/* A boxing in which the ranks of p meet, and no others. */
static bool meets_among(const fl_step *step, const fl_placement *placement)
{
    return step->kind == FL_STEP_BOX && step->meets && same_ranks(step->operands[0].meta->placement, placement)
        && same_ranks(step->operands[1].meta->placement, placement);
}

/* A rank that has no element of a result makes no kernel of its step, but has the slot. */
static bool writes(const fl_step *step, int slot)
{
    for (int i = 0; i < step->used_written; i++)
        if (step->used[i] == slot) return true;
    for (int i = 0; i < step->nin + step->nout; i++)
        if (step->operands[i].written && step->operands[i].slot == slot) return true;
    return false;
}

/* ---- memory ---- */

static size_t bytes_of_first_part(const fl_meta *meta)
{
    fl_window w;
    size_t bytes = fl_dtype_size(meta->dtype);
    fl_meta_window(&w, meta, 0);
    for (int i = 0; i < meta->shape.ndim; i++) bytes *= (size_t)w.size[i];
    return bytes;
}

/* Two and a half of the largest tensor that boxing among these ranks makes, as in collectives.c. */
static size_t limit_among(const struct pass *pass, const fl_placement *ranks)
{
    size_t largest = 0;
    for (int i = 0; i < pass->program->slot_count; i++) {
        if (!pass->boxed[i] || !same_ranks(pass->boxed[i]->placement, ranks)) continue;
        size_t bytes = bytes_of_first_part(pass->boxed[i]);
        if (bytes > largest) largest = bytes;
    }
    return 2 * largest + largest / 2;
}

/* Bytes of slot i, where boxing has made it among these ranks and it was not counted in this sum. */
static size_t bytes_boxed_at(struct pass *pass, int i, const fl_placement *ranks)
{
    const fl_meta *boxed = i >= 0 && pass->seen[i] != pass->sum ? pass->boxed[i] : NULL;
    if (!boxed || !same_ranks(boxed->placement, ranks)) return 0;
    pass->seen[i] = pass->sum;
    return bytes_of_first_part(boxed);
}

/* Of all that the step uses. */
static size_t bytes_boxed_for(struct pass *pass, const fl_step *step, const fl_placement *ranks)
{
    size_t bytes = 0;
    for (int i = 0; i < step->nin + step->nout; i++)
        if (step->operands[i].slot >= 0 && !step->operands[i].meta->is_local)
            bytes += bytes_boxed_at(pass, step->operands[i].slot, ranks);
    for (int i = 0; i < step->used_count; i++) bytes += bytes_boxed_at(pass, step->used[i], ranks);
    return bytes;
}

/* ---- the order ---- */

/* The first boxing that boxing n goes ahead of; n: none. */
static int first_overtaken(struct pass *pass, int n)
{
    const fl_step *steps = pass->program->steps, *box = &steps[n];
    const fl_placement *ranks = box->operands[0].meta->placement;
    size_t held = bytes_of_first_part(box->operands[1].meta), limit = limit_among(pass, ranks);
    int first = n;
    pass->sum++;
    for (int k = n - 1; k >= 0; k--) {
        const fl_step *step = &steps[k];
        if ((step->kind == FL_STEP_HOST && !step->absent) || writes(step, box->operands[0].slot)) break;
        if (meets_among(step, ranks)) {
            if (step->priority >= box->priority) break;
            first = k;
        } else {
            held += bytes_boxed_for(pass, step, ranks);
            if (held > limit) break;
        }
    }
    return first;
}

static void overtake(struct pass *pass, int n)
{
    fl_step *steps = pass->program->steps;
    const fl_placement *ranks = steps[n].operands[0].meta->placement;
    int first = meets_among(&steps[n], ranks) ? first_overtaken(pass, n) : n;
    if (first == n) return;
    for (int k = first; k <= n; k++) steps[k].displaced |= meets_among(&steps[k], ranks);
    const fl_step box = steps[n];
    memmove(&steps[first + 1], &steps[first], sizeof *steps * (size_t)(n - first));
    steps[first] = box;
}

static fl_status look_at_boxings(struct pass *pass)
{
    const fl_program *p = pass->program;
    for (int n = 0; n < p->step_count; n++) {
        fl_step *step = &p->steps[n];
        if (step->kind != FL_STEP_BOX) continue;
        FL_TRY(fl_step_find_meeting(step));
        for (int k = n - 1; k >= 0 && !step->turn; k--)
            if (meets_among(&p->steps[k], step->operands[0].meta->placement)) step->turn = p->steps[k].turn + 1;
        if (step->meets) pass->boxed[step->operands[1].slot] = step->operands[1].meta;
    }
    return FL_OK;
}

/* True if boxings differ in priority, and the program determines one order for all ranks. */
static bool has_priorities(const fl_program *program)
{
    bool some = false;
    if (!program->strict) return false;
    for (int i = 0; i < program->slot_count; i++)
        if (program->slots[i].role == FL_SLOT_INPUT && program->slots[i].meta->is_local) return false;
    for (int n = 0; n < program->step_count; n++) some |= program->steps[n].priority != 0;
    return some;
}

fl_status fl_pass_priorities(fl_program *program)
{
    struct pass pass = {.program = program};
    if (!has_priorities(program)) return FL_OK;
    pass.boxed = calloc((size_t)program->slot_count + 1, sizeof *pass.boxed);
    pass.seen = calloc((size_t)program->slot_count + 1, sizeof *pass.seen);
    fl_status status = pass.boxed && pass.seen ? look_at_boxings(&pass) : fl_program_out_of_memory();
    for (int n = 0; n < program->step_count && status == FL_OK; n++)
        if (program->steps[n].kind == FL_STEP_BOX) overtake(&pass, n);
    free(pass.boxed);
    free(pass.seen);
    return status;
}

fl_status fl_step_note_turn(const fl_step *box)
{
    const fl_placement *ranks = box->operands[0].meta->placement;
    return fl_history_point(ranks->ranks, ranks->count, "a boxing in the order of priorities", (uint64_t)box->turn);
}

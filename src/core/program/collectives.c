/*
** collectives.c -- boxing begins as soon as its input is there, ahead of kernels that then run beside it: a weight
** that is stored in parts is gathered while the layer before is computed.
**
** Boxings in which ranks meet keep their order, which all ranks have in common (priorities.c). The draws before a
** meeting, and the ops that the history notes, stay ahead of it, so that a replay and a call that is recorded meet
** alike.
*/
#include "engine/engine.h"
#include "passes.h"

#include <stdlib.h>
#include <string.h>

struct pass {
    fl_program *program;
    fl_step *moved; /* the steps of one range, in their new order */
    int moved_count, moved_room;
    size_t limit; /* bytes that boxing may have made where one begins, its own too */
    int *seen;    /* by slot: the last boxing on whose way a step used it, as one more than its number */
    bool *boxed;  /* by slot: boxing makes it */
};

static bool is_kernel(const fl_step *step)
{
    return step->kind == FL_STEP_KERNEL || step->kind == FL_STEP_FLAT || (step->kind == FL_STEP_BOX && !step->meets);
}

static bool touches(const fl_step *kernel, const fl_step *box)
{
    for (int i = 0; i < kernel->nin + kernel->nout; i++) {
        const fl_program_operand *o = &kernel->operands[i];
        if (o->slot < 0) continue;
        if (o->slot == box->operands[1].slot || (o->written && o->slot == box->operands[0].slot)) return true;
    }
    return false;
}

/* True if the boxing may begin before this step is run. */
static bool may_pass(const fl_step *step, const fl_step *box)
{
    if (step->kind == FL_STEP_PASSED || step->kind == FL_STEP_DRAW) return true;
    return is_kernel(step) && step->live < 0 && !touches(step, box);
}

/* Bytes that boxing has made for the step and that were not seen on the way of boxing n. */
static size_t bytes_boxed_for(struct pass *pass, const fl_step *step, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < step->nin + step->nout; i++) {
        int slot = step->operands[i].slot;
        if (slot < 0 || !pass->boxed[slot] || pass->seen[slot] == n + 1) continue;
        pass->seen[slot] = n + 1;
        bytes += pass->program->slots[slot].bytes;
    }
    return bytes;
}

/* The first of the steps that boxing n may go ahead of. */
static int first_passed(struct pass *pass, int n)
{
    const fl_step *steps = pass->program->steps, *box = &steps[n];
    size_t held = pass->program->slots[box->operands[1].slot].bytes;
    int first = n;
    for (int k = n - 1; k >= 0 && may_pass(&steps[k], box); k--) {
        if (!is_kernel(&steps[k])) continue;
        held += bytes_boxed_for(pass, &steps[k], n);
        if (held > pass->limit) break;
        first = k;
    }
    return first;
}

static fl_status put(struct pass *pass, const fl_step *step)
{
    FL_TRY(fl_program_reserve((void **)&pass->moved, sizeof *pass->moved, &pass->moved_room, pass->moved_count));
    pass->moved[pass->moved_count++] = *step;
    return FL_OK;
}

/* Steps `first` to n in a new order: draws and notes, boxing n, kernels. */
static fl_status put_ahead(struct pass *pass, int first, int n)
{
    fl_program *p = pass->program;
    pass->moved_count = 0;
    for (int k = first; k < n; k++) {
        fl_step note, *step = &p->steps[k];
        if (!is_kernel(step)) FL_TRY(put(pass, step));
        else if (fl_step_take_note(&note, step)) FL_TRY(put(pass, &note));
    }
    FL_TRY(put(pass, &p->steps[n]));
    for (int k = first; k < n; k++)
        if (is_kernel(&p->steps[k])) FL_TRY(put(pass, &p->steps[k]));
    return FL_OK;
}

/* Moves boxing n; returns in *n where the steps behind it begin. */
static fl_status move_ahead(struct pass *pass, int *n)
{
    fl_program *p = pass->program;
    int first = first_passed(pass, *n), past = *n + 1;
    if (first == *n) return FL_OK;
    FL_TRY(put_ahead(pass, first, *n));
    int added = pass->moved_count - (past - first);
    for (int i = 0; i < added; i++)
        FL_TRY(fl_program_reserve((void **)&p->steps, sizeof *p->steps, &p->step_room, p->step_count + i));
    memmove(&p->steps[past + added], &p->steps[past], sizeof *p->steps * (size_t)(p->step_count - past));
    memcpy(&p->steps[first], pass->moved, sizeof *p->steps * (size_t)pass->moved_count);
    p->step_count += added;
    *n += added;
    return FL_OK;
}

/* True if the boxing runs while the caller goes on. */
static bool runs_beside(const fl_meta *to)
{
    return to->placement->type != FL_CPU || !fl_engine_lane_is_driven(FL_LANE_COMM);
}

/* Finds the boxings in which ranks meet, and how much may be made ahead. */
static fl_status look_at_boxings(struct pass *pass)
{
    fl_program *p = pass->program;
    size_t largest = 0;
    for (int n = 0; n < p->step_count; n++) {
        fl_step *step = &p->steps[n];
        if (step->kind != FL_STEP_BOX) continue;
        FL_TRY(fl_step_find_meeting(step));
        size_t bytes = p->slots[step->operands[1].slot].bytes;
        step->ahead = step->meets && runs_beside(step->operands[1].meta);
        pass->boxed[step->operands[1].slot] = true;
        if (bytes > largest) largest = bytes;
    }
    pass->limit = 2 * largest + largest / 2; /* a layer's weights while the one before is computed, not all weights */
    return FL_OK;
}

fl_status fl_pass_collectives(fl_program *program)
{
    struct pass pass = {.program = program};
    pass.seen = calloc((size_t)program->slot_count + 1, sizeof *pass.seen);
    pass.boxed = calloc((size_t)program->slot_count + 1, sizeof *pass.boxed);
    fl_status status = pass.seen && pass.boxed ? look_at_boxings(&pass) : fl_program_out_of_memory();
    for (int n = 0; n < program->step_count && status == FL_OK; n++)
        if (program->steps[n].kind == FL_STEP_BOX && program->steps[n].ahead) status = move_ahead(&pass, &n);
    free(pass.moved);
    free(pass.seen);
    free(pass.boxed);
    return status;
}

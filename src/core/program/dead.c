/*
** dead.c -- steps whose results nothing uses are left out. Draws, collectives and notes in the rank's history stay.
*/
#include "passes.h"

#include <stdlib.h>
#include <string.h>

void fl_pass_count_uses(const fl_program *program, int *uses)
{
    for (int n = 0; n < program->step_count; n++)
        for (int i = 0; i < program->steps[n].nin + program->steps[n].nout; i++)
            if (program->steps[n].operands[i].slot >= 0) uses[program->steps[n].operands[i].slot]++;
    for (int i = 0; i < program->result_count; i++) uses[program->results[i].slot]++;
    for (int i = 0; i < program->leaf_count; i++)
        if (program->leaves[i].changes && program->leaves[i].after.slot >= 0) uses[program->leaves[i].after.slot]++;
}

static void want(bool *wanted, const fl_program_operand *operand)
{
    if (operand->slot >= 0) wanted[operand->slot] = true;
}

/* True if the step computes what a later step needs, or writes memory outside the program. */
static bool is_needed(const fl_program *program, const fl_step *step, const bool *wanted)
{
    if (step->kind != FL_STEP_KERNEL && step->kind != FL_STEP_FLAT) return true;
    for (int i = 0; i < step->nin + step->nout; i++) {
        const fl_program_operand *o = &step->operands[i];
        if (o->slot < 0 || !o->written) continue;
        if (wanted[o->slot] || fl_slot_is_outside(&program->slots[o->slot])) return true;
    }
    return step->live >= 0;
}

void fl_step_forget(fl_step *step)
{
    for (int i = 0; i < step->nin + step->nout; i++)
        if (step->operands[i].slot >= 0) fl_meta_unref(step->operands[i].meta);
    step->nin = step->nout = 0;
    step->kind = FL_STEP_PASSED;
}

bool fl_step_take_note(fl_step *note, fl_step *step)
{
    if (!step->history) return false;
    *note = *step;
    note->kind = FL_STEP_PASSED;
    note->noted = step->nin + step->nout;
    note->nin = note->nout = 0;
    step->history = NULL;
    return true;
}

fl_status fl_pass_dead(fl_program *program)
{
    bool *wanted = calloc((size_t)program->slot_count + 1, sizeof *wanted);
    if (!wanted) return fl_program_out_of_memory();
    for (int i = 0; i < program->result_count; i++) want(wanted, &program->results[i]);
    for (int i = 0; i < program->leaf_count; i++)
        if (program->leaves[i].changes) want(wanted, &program->leaves[i].after);
    for (int n = program->step_count - 1; n >= 0; n--) {
        fl_step *step = &program->steps[n];
        if (!is_needed(program, step, wanted)) fl_step_forget(step);
        for (int i = 0; i < step->nin + step->nout; i++)
            if (!step->operands[i].whole) want(wanted, &step->operands[i]);
    }
    int kept = 0;
    for (int n = 0; n < program->step_count; n++)
        if (program->steps[n].kind != FL_STEP_PASSED || program->steps[n].history)
            program->steps[kept++] = program->steps[n];
    program->step_count = kept;
    free(wanted);
    return FL_OK;
}

/*
** passes.h -- what is done to a recorded program before it is made ready to run. None changes a value.
**
** FLOW_PASSES=-activation,-collectives,-common,-dead,-fusion,-graphs,-parts,-place,-recompute leaves out those that it
** names.
*/
#ifndef FL_PROGRAM_PASSES_H
#define FL_PROGRAM_PASSES_H

#include "cpu/tiles.h"
#include "dispatch/chain_report.h"
#include "program_internal.h"

/* Elementwise steps that run in one pass over memory. */
typedef struct fl_fused {
    fl_tiles tiles; /* not planned; an operand in memory has its data set like a view's */
    int draw_count;
    struct {
        fl_draw *draw;
        int number; /* of the program's draws */
    } draws[FL_TILES_STEPS];
    int fold;            /* the slot of `tiles` that the step's kernel, a reduction, takes its operand from; -1: none */
    const fl_meta *from; /* of that operand */
    fl_chain_pass pass;  /* as it is reported */
    int first_retired;   /* of fl_program.retired: the steps that it consists of, pass.count of them */
} fl_fused;

/* The slot and the offset that stand in the data of a template's operand. */
static inline void *fl_fused_mark(int slot, int64_t offset)
{
    return (void *)((uintptr_t)(slot + 1) << 36 | (uintptr_t)offset);
}
static inline int fl_fused_slot(const void *mark) { return (int)((uintptr_t)mark >> 36) - 1; }
static inline int64_t fl_fused_offset(const void *mark)
{
    return (int64_t)((uintptr_t)mark & ((UINT64_C(1) << 36) - 1));
}

/* False where FLOW_PASSES leaves it out. */
typedef enum fl_pass {
    FL_PASS_ACTIVATION,
    FL_PASS_COLLECTIVES,
    FL_PASS_COMMON,
    FL_PASS_DEAD,
    FL_PASS_FUSION,
    FL_PASS_GRAPHS,
    FL_PASS_PARTS,
    FL_PASS_PLACE,
    FL_PASS_RECOMPUTE,
    FL_PASSES
} fl_pass;
bool fl_pass_is_on(fl_pass pass);

/* Nothing but the note in the history is left of the step. */
void fl_step_forget(fl_step *step);

/* The step's note in the history as a step of its own, where the step itself goes elsewhere; false: it has none. */
bool fl_step_take_note(fl_step *note, fl_step *step);

/* Counts the uses of each slot by operands, results and remaining gradients. uses: zeros, one per slot. */
void fl_pass_count_uses(const fl_program *program, int *uses);

/* A product and its activation become one step. */
fl_status fl_pass_activation(fl_program *program);

/* Boxing begins as soon as what it moves is there. */
fl_status fl_pass_collectives(fl_program *program);

/* Finds out if ranks meet in the boxing: the same on all ranks. */
fl_status fl_step_find_meeting(fl_step *box);

/* Boxing goes ahead of such of a lower priority. For the list as it was recorded: other passes leave another one on
** each rank. */
fl_status fl_pass_priorities(fl_program *program);

/* In a replay, before a boxing that has not its place in the script's order: where a rank meets it that follows another
** order, that is an error. */
fl_status fl_step_note_turn(const fl_step *box);

/* Steps that compute what an earlier one has computed go. */
fl_status fl_pass_common(fl_program *program);

/* Steps whose results nothing uses go. */
fl_status fl_pass_dead(fl_program *program);

/* A sum of parts padded with zeros is written part by part. */
fl_status fl_pass_parts(fl_program *program);

/* Results that are cheap are computed again after the step where most memory is in use. */
fl_status fl_pass_recompute(fl_program *program);

/* Elementwise steps of one shape, and a reduction that takes what they give, become one step. */
fl_status fl_pass_fusion(fl_program *program);

#endif

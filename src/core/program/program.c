/*
** program.c -- the memory of programs, and what they say of themselves.
*/
#include "graphs.h"
#include "passes.h"

#include "dispatch/dispatch.h"
#include "dispatch/target.h"

#include <stdlib.h>

fl_status fl_program_out_of_memory(void) { return fl_fail(FL_ERR_MEMORY, "capture: out of memory for the program"); }

enum { POOL_BLOCK = 16 << 10 };

void *fl_program_take(fl_program *program, size_t bytes)
{
    fl_pool_block *block = program->pool;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > POOL_BLOCK ? bytes : POOL_BLOCK;
        block = malloc(sizeof *block + size);
        if (!block) return NULL;
        *block = (fl_pool_block){program->pool, 0, size};
        program->pool = block;
    }
    void *at = block->bytes + block->used;
    block->used += bytes;
    return memset(at, 0, bytes);
}

fl_status fl_program_reserve(void **list, size_t size, int *room, int count)
{
    if (count < *room) return FL_OK;
    int more = *room ? 2 * *room : 32;
    void *grown = realloc(*list, size * (size_t)more);
    if (!grown) return fl_program_out_of_memory();
    *list = grown;
    *room = more;
    return FL_OK;
}

static void operand_drop(fl_program_operand *operand)
{
    if (operand->slot >= 0) fl_meta_unref(operand->meta);
}

static void step_drop(fl_step *step)
{
    for (int i = 0; i < step->nin + step->nout; i++) operand_drop(&step->operands[i]);
    fl_meta_unref(step->drawn_for);
}

void fl_program_free(fl_program *program)
{
    if (!program) return;
    for (int i = 0; i < program->step_count; i++) step_drop(&program->steps[i]);
    for (int i = 0; i < program->retired_count; i++) step_drop(&program->retired[i]);
    fl_graphs_drop(program);
    for (int i = 0; i < program->slot_count; i++) {
        fl_tensor_unref(program->slots[i].tensor);
        fl_tensor_unref(program->slots[i].kept);
        fl_var_clear(&program->slots[i].var);
        fl_meta_unref(program->slots[i].meta);
    }
    for (int i = 0; i < program->leaf_count; i++) {
        fl_tensor_unref(program->leaves[i].leaf);
        fl_meta_unref(program->leaves[i].before);
        if (program->leaves[i].changes) operand_drop(&program->leaves[i].after);
    }
    for (int i = 0; i < program->flag_count; i++) fl_tensor_unref(program->flags[i].leaf);
    for (int i = 0; i < program->result_count; i++) operand_drop(&program->results[i]);
    fl_storage_unref(program->block);
    for (fl_pool_block *next, *b = program->pool; b; b = next) {
        next = b->next;
        free(b);
    }
    free(program->slots);
    free(program->steps);
    free(program->retired);
    free(program->leaves);
    free(program->flags);
    free(program->draws);
    free(program);
}

void fl_program_facts_get(fl_program_facts *out, const fl_program *program) { *out = program->facts; }

/* ---- arguments ---- */

/* The elements from the first to the last of the tensor's memory that it uses. */
static int64_t span_of(const fl_tensor *tensor)
{
    int64_t span = 1;
    for (int i = 0; i < tensor->meta->shape.ndim; i++) span += (tensor->meta->window.size[i] - 1) * tensor->strides[i];
    return tensor->meta->local_numel ? span : 0;
}

fl_status fl_program_copy_argument(fl_tensor **out, fl_tensor *tensor)
{
    const fl_meta *meta;
    fl_tensor *line, *same;
    const fl_shape shape = {1, {span_of(tensor)}};
    if (tensor->contiguous || !fl_is_nested(tensor))
        return fl_dispatch_unrecorded(out, FL_OP_REF(clone), &(fl_operand){FL_TENSOR, {tensor}}, 1);
    const fl_placement *device = fl_placement_local(tensor->meta->placement->type, tensor->storage->device_index);
    FL_TRY(fl_meta_get(&meta, tensor->meta->dtype, &shape, device, fl_nd_sbp_fill(FL_B, 1), true));
    fl_status status = fl_tensor_empty(&line, meta);
    fl_meta_unref(meta);
    FL_TRY(status);
    status = fl_tensor_view(out, line, tensor->meta, tensor->strides, 0);
    fl_tensor_unref(line);
    FL_TRY(status);
    const fl_operand in[2] = {fl_of(*out), fl_of(tensor)};
    FL_TRY(fl_dispatch_unrecorded(&same, FL_OP_REF(copy_), in, 2));
    fl_tensor_unref(same);
    return FL_OK;
}

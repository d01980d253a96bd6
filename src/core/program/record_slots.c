/*
** record_slots.c -- memory becomes slots while a program is recorded.
**
** A slot is known by the storage that it stands for while the program is recorded. Storages are held until then, so
** that an address means one of them; those without other references are released from time to time.
*/
#include "recording.h"

#include <stdlib.h>

/* ---- the slot of a storage ---- */

static fl_recorded_storage *known_place(const fl_storage *storage)
{
    size_t mask = ((size_t)1 << fl_recording_now.known_bits) - 1,
           i = fl_hash_slot((uintptr_t)storage, fl_recording_now.known_bits);
    while (fl_recording_now.known[i].storage && fl_recording_now.known[i].storage != storage) i = (i + 1) & mask;
    return &fl_recording_now.known[i];
}

int fl_recording_find(const fl_storage *storage)
{
    const fl_recorded_storage *k = known_place(storage);
    return k->storage ? k->slot : -1;
}

/* Only we hold what a step has made: no op will ask for it again. */
static bool is_over(const fl_recorded_storage *known)
{
    return known->storage->refs == 1 && !fl_slot_is_outside(&fl_recording_now.program->slots[known->slot]);
}

/* A table of 2^bits places, without the entries that are over. */
fl_status fl_recording_rebuild(int bits)
{
    fl_recorded_storage *old = fl_recording_now.known, *table = calloc((size_t)1 << bits, sizeof *table);
    size_t places = old ? (size_t)1 << fl_recording_now.known_bits : 0;
    if (!table) return fl_program_out_of_memory();
    fl_recording_now.known = table;
    fl_recording_now.known_bits = bits;
    fl_recording_now.known_count = 0;
    for (size_t i = 0; i < places; i++) {
        if (!old[i].storage) continue;
        if (is_over(&old[i])) {
            fl_storage_unref(old[i].storage);
            continue;
        }
        *known_place(old[i].storage) = old[i];
        fl_recording_now.known_count++;
    }
    free(old);
    return FL_OK;
}

static fl_status known_add(fl_storage *storage, int slot)
{
    if (2 * (fl_recording_now.known_count + 1) > 1 << fl_recording_now.known_bits) {
        FL_TRY(fl_recording_rebuild(fl_recording_now.known_bits));
        if (4 * (fl_recording_now.known_count + 1) > 1 << fl_recording_now.known_bits)
            FL_TRY(fl_recording_rebuild(fl_recording_now.known_bits + 1));
    }
    *known_place(storage) = (fl_recorded_storage){fl_storage_ref(storage), slot};
    fl_recording_now.known_count++;
    return FL_OK;
}

fl_status fl_recording_add(int *out, fl_slot_role role, fl_tensor *tensor, int index)
{
    fl_program *p = fl_recording_now.program;
    FL_TRY(fl_program_reserve((void **)&p->slots, sizeof *p->slots, &p->slot_room, p->slot_count));
    fl_slot *s = &p->slots[p->slot_count];
    *s = (fl_slot){.role = role, .index = index, .first = -1, .last = -1, .bytes = tensor->storage->bytes};
    FL_TRY(known_add(tensor->storage, p->slot_count));
    s->meta = fl_meta_ref(tensor->meta);
    if (role == FL_SLOT_INPUT) s->origin = tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype);
    *out = p->slot_count++;
    return role == FL_SLOT_BOUND ? fl_tensor_detach(&s->tensor, tensor) : FL_OK;
}

fl_status fl_recording_slot(int *out, fl_tensor *tensor)
{
    *out = fl_recording_find(tensor->storage);
    return *out >= 0 ? FL_OK : fl_recording_add(out, FL_SLOT_BOUND, tensor, -1);
}

/* ---- operands ---- */

fl_status fl_recording_operand(fl_program_operand *out, fl_tensor *tensor)
{
    int64_t *strides = fl_program_take(fl_recording_now.program, sizeof *strides * FL_MAX_NDIM);
    int slot;
    if (!strides) return fl_program_out_of_memory();
    FL_TRY(fl_recording_slot(&slot, tensor));
    memcpy(strides, tensor->strides, sizeof *strides * FL_MAX_NDIM);
    const int64_t origin = fl_recording_now.program->slots[slot].origin;
    *out = (fl_program_operand){.slot = slot,
                                .offset = tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype) - origin,
                                .moved_view = tensor->moved_view,
                                .meta = fl_meta_ref(tensor->meta),
                                .strides = strides};
    return FL_OK;
}

/* The step reads or writes its operand. Data that no step has made, and that a step reads, were put there by hand: they
** are kept. */
fl_status fl_recording_use(const fl_program_operand *operand, fl_tensor *tensor, int step)
{
    fl_slot *s = &fl_recording_now.program->slots[operand->slot];
    if (s->first < 0) s->first = step;
    s->last = step;
    if (!operand->whole && !s->written && !fl_slot_is_outside(s)) {
        s->role = FL_SLOT_BOUND;
        FL_TRY(fl_tensor_detach(&s->tensor, tensor));
    }
    const bool replaced_before = s->replaced && s->replaced <= step;
    s->read |= !operand->whole && !replaced_before;
    if (operand->whole && !s->replaced) s->replaced = step + 1;
    s->written |= operand->written;
    return FL_OK;
}

fl_status fl_recording_flag(fl_tensor *tensor)
{
    fl_program *p = fl_recording_now.program;
    const int slot = fl_recording_find(tensor->storage);
    if (slot < 0 || p->slots[slot].role != FL_SLOT_BOUND || !fl_autograd_is_leaf(tensor)) return FL_OK;
    for (int i = p->slots[slot].flag; i; i = p->flags[i - 1].next)
        if (p->flags[i - 1].leaf == tensor) return FL_OK;
    FL_TRY(fl_program_reserve((void **)&p->flags, sizeof *p->flags, &p->flag_room, p->flag_count));
    p->flags[p->flag_count++] = (fl_program_flag){fl_tensor_ref(tensor), false, p->slots[slot].flag};
    p->slots[slot].flag = p->flag_count;
    return FL_OK;
}

bool fl_recording_is_whole(const fl_tensor *tensor)
{
    size_t bytes = (size_t)tensor->meta->local_numel * fl_dtype_size(tensor->meta->dtype);
    return tensor->contiguous && bytes == tensor->storage->bytes;
}

/*
** piece_values.c -- values of a call that is answered: deferred, given, released.
**
** A result that is put off is a tensor whose storage has a deferred write (var.h): an access to its data has the piece
** run first. When it has run, the tensor gets the storage of the value.
*/
#include "piece_run.h"

#include "dispatch/chain.h"

/* ---- values that are put off ---- */

/* The number of no chain (chain_internal.h). */
static const fl_stamp PUT_OFF = (fl_stamp)FL_LANE_DEFERRED << 56 | 0xfffffffe;

static void (*compute_chain)(fl_stamp stamp);
static void (*drop_chain)(fl_storage *storage);
static fl_status (*read_values)(void);

/* A failure has poisoned what was put off. */
static void compute(fl_stamp stamp)
{
    if (stamp == PUT_OFF || stamp == FL_STAMP_ALL) read_values();
    if (stamp != PUT_OFF) compute_chain(stamp);
}

static void drop(fl_storage *storage)
{
    if (storage->var.write != PUT_OFF) drop_chain(storage);
}

void fl_values_start(fl_status (*read)(void))
{
    fl_chain_start();
    read_values = read;
    if (fl_var_computer == compute) return;
    compute_chain = fl_var_computer;
    drop_chain = fl_storage_dropped;
    fl_var_computer = compute;
    fl_storage_dropped = drop;
}

/* ---- values of the path ---- */

fl_status fl_values_add(fl_tensor *tensor)
{
    FL_TRY(fl_program_reserve((void **)&fl_piece_now.values, sizeof *fl_piece_now.values, &fl_piece_now.room,
                              fl_piece_now.count));
    fl_piece_now.values[fl_piece_now.count++] = fl_tensor_ref(tensor);
    return FL_OK;
}

int fl_value_find(const fl_tensor *tensor)
{
    for (int i = fl_piece_now.count - 1; i >= 0; i--)
        if (fl_piece_now.values[i] == tensor) return i;
    return -1;
}

void fl_values_cut(int count)
{
    while (fl_piece_now.count > count) fl_tensor_unref(fl_piece_now.values[--fl_piece_now.count]);
}

/* A tensor that stands for the value until it is there. */
static fl_status put_off(fl_tensor **out, const fl_piece_value *value, int id)
{
    if (value->base != id) {
        FL_TRY(fl_tensor_view(out, fl_piece_now.values[value->base], value->meta, value->strides, value->offset));
        (*out)->moved_view = value->moved_view;
    } else if (value->meta->local_numel == 0) FL_TRY(fl_tensor_empty(out, value->meta));
    else {
        FL_TRY(fl_program_reserve((void **)&fl_piece_now.pending, sizeof *fl_piece_now.pending,
                                  &fl_piece_now.pending_room, fl_piece_now.pending_count));
        FL_TRY(fl_tensor_deferred(out, value->meta, value->device_index, PUT_OFF));
        fl_piece_now.pending[fl_piece_now.pending_count++] = fl_storage_ref((*out)->storage);
    }
    (*out)->requires_grad = value->requires_grad;
    fl_status status = value->has_node ? fl_autograd_set_spent(*out) : FL_OK;
    if (status == FL_OK && value->link)
        status = fl_autograd_set_view(*out, value->view_of < 0 ? value->view_base : fl_piece_now.values[value->view_of],
                                      value->link);
    if (status != FL_OK) fl_tensor_unref(*out);
    return status;
}

fl_status fl_values_give(fl_piece *piece, int past)
{
    while (fl_piece_now.count < past) {
        const fl_piece_value *v = fl_piece_value_of(piece, fl_piece_now.count);
        fl_tensor *t = v->outside;
        if (!t) FL_TRY(put_off(&t, v, fl_piece_now.count));
        fl_status status = fl_values_add(t);
        if (!v->outside) fl_tensor_unref(t);
        FL_TRY(status);
    }
    return FL_OK;
}

void fl_value_move(fl_tensor *to, const fl_tensor *from)
{
    fl_storage_ref(from->storage);
    fl_storage_unref(to->storage);
    to->storage = from->storage;
}

void fl_value_become(fl_tensor *to, fl_tensor *from)
{
    fl_value_move(to, from);
    to->offset = from->offset;
    to->contiguous = from->contiguous;
    to->moved_view = from->moved_view;
    memcpy(to->strides, from->strides, sizeof to->strides);
    fl_autograd_move(to, from);
}

void fl_values_end_pending(void)
{
    for (int i = 0; i < fl_piece_now.pending_count; i++)
        if (fl_piece_now.pending[i]->var.write == PUT_OFF) fl_piece_now.pending[i]->var.write = 0;
}

void fl_values_lose(fl_piece *piece)
{
    for (int id = piece->first; id < fl_piece_now.count; id++) {
        const fl_piece_value *v = fl_piece_value_of(piece, id);
        fl_tensor *empty;
        if (v->outside || v->base != id || !fl_piece_now.values[id]) continue;
        if (fl_piece_now.values[id]->storage->var.write != PUT_OFF) continue;
        if (fl_tensor_empty(&empty, v->meta) != FL_OK) continue;
        fl_var_poison(&empty->storage->var, "capture");
        for (int k = id + 1; k < fl_piece_now.count; k++)
            if (fl_piece_now.values[k] && fl_piece_value_of(piece, k)->base == id)
                fl_value_move(fl_piece_now.values[k], empty);
        fl_value_move(fl_piece_now.values[id], empty);
        fl_tensor_unref(empty);
    }
}
/* ---- holders of values ---- */

/* Views of the value that only the path holds, each of which holds it. */
static int own_views(int id)
{
    int count = 0;
    fl_view_link *link;
    for (int i = 0; i < fl_piece_now.count; i++) {
        const fl_tensor *t = fl_piece_now.values[i];
        count += t && i != id && t->refs == 1 && fl_autograd_base_of(&link, t) == fl_piece_now.values[id];
    }
    return count;
}

bool fl_value_is_held(fl_piece *piece, int base, int others)
{
    const fl_storage *s = fl_piece_now.values[base]->storage;
    int own = others;
    for (int i = base; i < fl_piece_now.count; i++) {
        if (!fl_piece_now.values[i] || fl_piece_value_of(piece, i)->base != base) continue;
        if (fl_piece_now.values[i]->refs > 1 && fl_piece_now.values[i]->refs > 1 + own_views(i)) return true;
        own += fl_piece_now.values[i]->storage == s;
    }
    return s->refs > own;
}

bool fl_value_is_made(fl_piece *piece, int id)
{
    const fl_piece_value *v = fl_piece_value_of(piece, id);
    return fl_piece_now.values[id] && !v->outside && v->base == id && id >= fl_piece_now.of->root->value_count;
}

void fl_values_release(fl_piece *piece)
{
    for (int id = fl_piece_now.of->root->value_count; id < fl_piece_now.count; id++) {
        if (!fl_value_is_made(piece, id)) continue;
        int others = 0;
        for (int i = 0; i < fl_piece_now.pending_count; i++)
            others += fl_piece_now.pending[i] == fl_piece_now.values[id]->storage;
        if (fl_value_is_held(piece, id, others)) continue;
        for (int k = fl_piece_now.count - 1; k >= id; k--) {
            if (!fl_piece_now.values[k] || fl_piece_value_of(piece, k)->base != id) continue;
            fl_tensor_unref(fl_piece_now.values[k]);
            fl_piece_now.values[k] = NULL;
        }
    }
}

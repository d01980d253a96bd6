/*
** tally.c -- counting ops, moves and memory of a planned script.
*/
#include "tally.h"
#include "autograd/autograd.h"
#include "autograd/bucket.h"
#include "base/hash.h"
#include "engine/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing array. */
struct list {
    void *at;
    int64_t count, room;
};

/* A piece of memory: a storage on FL_META, from when it is made. Its index lies in the storage. */
struct block {
    int64_t bytes;
    uint8_t tag, live; /* live: bit 0, it is; bit 1, it was when the stretch began */
};

/* A block is made or freed: its index, or the same inverted. */
typedef int64_t event;

static struct tally {
    bool counts;     /* inside the stretch */
    bool incomplete; /* out of memory */
    int ranks_per_host;
    int64_t memory, collect_from;  /* live bytes at which garbage is collected: at first all of a rank's memory */
    struct list ops, moves, metas; /* fl_tally_op, fl_tally_move, const fl_meta * (owned) */
    struct list blocks, events;    /* of the process; of the stretch */
    int64_t live_before;           /* blocks made before the stretch */
} tally;

/* Room for one more item; NULL: out of memory, which is remembered. */
static void *add(struct list *list, size_t size)
{
    if (list->count == list->room) {
        int64_t room = list->room ? 2 * list->room : 64;
        void *grown = realloc(list->at, (size_t)room * size);
        if (!grown) {
            tally.incomplete = true;
            return NULL;
        }
        list->at = grown;
        list->room = room;
    }
    return (char *)list->at + (size_t)list->count++ * size;
}

static fl_status complete(void) { return tally.incomplete ? fl_fail(FL_ERR_MEMORY, "plan: out of memory") : FL_OK; }

/* ---- ops ---- */

static void note_meta(const fl_meta *meta)
{
    const fl_meta *const *metas = tally.metas.at;
    if (meta->is_local) return;
    for (int64_t i = tally.metas.count - 1; i >= 0; i--)
        if (metas[i] == meta) return;
    const fl_meta **slot = add(&tally.metas, sizeof *slot);
    if (slot) *slot = fl_meta_ref(meta);
}

static bool costs_alike(const fl_tally_op *a, const fl_op *op, const fl_cost *cost)
{
    return a->op == op && a->each.dtype == cost->dtype && a->each.flops == cost->flops && a->each.bytes == cost->bytes;
}

static void count_op(const fl_op *op, const fl_cost *cost)
{
    fl_tally_op *ops = tally.ops.at;
    for (int64_t i = tally.ops.count - 1; i >= 0; i--)
        if (costs_alike(&ops[i], op, cost)) {
            ops[i].count++;
            return;
        }
    fl_tally_op *slot = add(&tally.ops, sizeof *slot);
    if (slot) *slot = (fl_tally_op){op, *cost, 1};
}

/* A leaf that requires grad is a parameter, wherever an op meets it. */
static void look_at_operand(const fl_tensor *tensor)
{
    if (tensor->requires_grad && fl_autograd_is_leaf(tensor)) fl_tally_tag_tensor(tensor, FL_TALLY_PARAMETER);
    if (tally.counts) note_meta(tensor->meta);
}

static void note_op(const fl_call *call)
{
    fl_cost cost;
    if (call->out[0]->meta->placement->type != FL_META) return;
    for (int i = 0; i < call->nin; i++)
        if (call->tensors[i]) look_at_operand(call->tensors[i]);
    if (!tally.counts) return;
    for (int i = 0; i < call->nout; i++) note_meta(call->out[i]->meta);
    if (fl_cost_of(&cost, call) != FL_OK) tally.incomplete = true;
    else if (cost.bytes || cost.flops) count_op(call->op, &cost);
}

/* ---- moves ---- */

/* The ranks that work with this one in the step: their number, and true if they are on several hosts. */
static void look_at_group(fl_tally_move *move, const fl_box_step *step, const fl_placement *from)
{
    const fl_placement *p = step->placement;
    int mine = p->my_index >= 0 ? p->my_index : 0, coords[FL_MAX_HIERARCHY], own[FL_MAX_HIERARCHY], host = -1;
    fl_placement_coords(own, p, mine);
    for (int i = 0; i < p->count; i++) {
        bool together = true;
        fl_placement_coords(coords, p, i);
        for (int k = 0; k < p->ndim; k++)
            together = together && (step->axis < 0 || k == step->axis || coords[k] == own[k]);
        if (!together) continue;
        int on = p->ranks[i] / tally.ranks_per_host;
        move->network = move->network || (host >= 0 && on != host);
        host = on;
        move->ranks++;
    }
    for (int i = 0; step->axis < 0 && i < from->count; i++)
        move->network = move->network || from->ranks[i] / tally.ranks_per_host != host;
}

static void count_move(const fl_tally_move *move)
{
    fl_tally_move *moves = tally.moves.at;
    for (int64_t i = tally.moves.count - 1; i >= 0; i--) {
        fl_tally_move *m = &moves[i];
        if (m->kind != move->kind || m->axis != move->axis || m->ranks != move->ranks || m->bytes != move->bytes
            || m->network != move->network || m->joined != move->joined || strcmp(m->line, move->line)
            || strcmp(m->tensor, move->tensor))
            continue;
        m->count++;
        return;
    }
    fl_tally_move *slot = add(&tally.moves, sizeof *slot);
    if (!slot) return;
    *slot = *move;
    slot->count = 1;
}

static void describe(fl_tally_move *move, const fl_meta *from, const fl_meta *to)
{
    char shape[FL_SHAPE_TEXT], before[FL_ND_SBP_TEXT], after[FL_ND_SBP_TEXT];
    snprintf(move->tensor, sizeof move->tensor, "%s%s %s -> %s", fl_dtype_name(from->dtype),
             fl_shape_text(shape, &from->shape), fl_nd_sbp_text(before, from->nd_sbp),
             fl_nd_sbp_text(after, to->nd_sbp));
    if (fl_engine_where) fl_engine_where(move->line, sizeof move->line);
}

static bool takes_part(const fl_placement *from, const fl_placement *to)
{
    return from->my_index >= 0 || to->my_index >= 0;
}

static void note_boxing(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to)
{
    if (!tally.counts || from->is_local || from->placement->type != FL_META) return;
    note_meta(from);
    note_meta(to);
    for (int i = 0; i < plan->count; i++) {
        const fl_box_step *step = &plan->steps[i];
        fl_tally_move move = {
            .kind = step->kind, .axis = step->axis, .bytes = step->bytes, .joined = fl_bucket_reported > 0};
        if (step->bytes == 0 || !takes_part(from->placement, step->placement)) continue;
        look_at_group(&move, step, from->placement);
        describe(&move, from, to);
        count_move(&move);
    }
}

/* ---- memory ---- */

static int64_t index_in(const fl_storage *storage)
{
    int64_t index;
    memcpy(&index, storage->small, sizeof index);
    return index;
}

static void note_event(event e)
{
    event *slot = tally.counts ? add(&tally.events, sizeof *slot) : NULL;
    if (slot) *slot = e;
}

/* Collects garbage at a limit, as a full allocator does. If that frees little, the next limit is a tenth higher. */
static void make_room(void)
{
    if (fl_storage_live <= tally.collect_from || !fl_storage_collect) return;
    tally.collect_from = INT64_MAX; /* finalizers may allocate */
    fl_storage_collect();
    tally.collect_from = fl_storage_live + fl_storage_live / 10;
    if (tally.collect_from < tally.memory) tally.collect_from = tally.memory;
}

static void note_storage(fl_storage *storage, bool made)
{
    if (made) {
        make_room();
        int64_t index = tally.blocks.count;
        struct block *b = add(&tally.blocks, sizeof *b);
        if (b) *b = (struct block){(int64_t)storage->bytes, FL_TALLY_TEMPORARY, 1};
        else index = -1;
        memcpy(storage->small, &index, sizeof index);
        if (b) note_event(index);
        return;
    }
    int64_t index = index_in(storage);
    if (index < 0) return;
    ((struct block *)tally.blocks.at)[index].live &= 2;
    note_event(~index);
}

static fl_status note_boxed(fl_tensor *out, fl_tensor *x, int priority)
{
    fl_tally_tag_tensor(out, FL_TALLY_BOXED);
    return FL_OK;
}

void fl_tally_tag_tensor(const fl_tensor *tensor, fl_tally_tag tag)
{
    if (tensor->storage->device != FL_META) return;
    int64_t index = index_in(tensor->storage);
    struct block *b = index < 0 ? NULL : (struct block *)tally.blocks.at + index;
    if (b && tag > b->tag) b->tag = (uint8_t)tag;
}

/* Blocks that are there at the beginning come first; a block that is still a temporary then is one of those kept. */
fl_status fl_tally_memory_get(fl_tally_memory *out)
{
    fl_tally_memory now = {0};
    const struct block *blocks = tally.blocks.at;
    const event *events = tally.events.at;
    for (int64_t i = 0; i < tally.live_before; i++)
        if (blocks[i].live & 2) now.of[blocks[i].tag] += blocks[i].bytes;
    for (int t = 0; t < FL_TALLY_TAGS; t++) now.peak += now.of[t];
    *out = now;
    for (int64_t i = 0; i < tally.events.count; i++) {
        bool made = events[i] >= 0;
        const struct block *b = &blocks[made ? events[i] : ~events[i]];
        now.of[b->tag] += made ? b->bytes : -b->bytes;
        now.peak += made ? b->bytes : -b->bytes;
        if (now.peak > out->peak) *out = now;
    }
    return complete();
}

/* ---- the stretch ---- */

fl_status fl_tally_open(int ranks_per_host, int64_t memory)
{
    tally.memory = tally.collect_from = memory;
    tally.ranks_per_host = ranks_per_host;
    fl_cost_watch = note_op;
    fl_boxing_observer = note_boxing;
    fl_boxing_listener = note_boxed;
    fl_storage_meta_watch = note_storage;
    return FL_OK;
}

static void note_kept(void)
{
    struct block *blocks = tally.blocks.at;
    tally.live_before = tally.blocks.count;
    for (int64_t i = 0; i < tally.blocks.count; i++) {
        blocks[i].live = blocks[i].live & 1 ? 3 : 0;
        if (!blocks[i].live) continue;
        if (blocks[i].tag < FL_TALLY_KEPT) blocks[i].tag = FL_TALLY_KEPT;
    }
}

void fl_tally_begin(void)
{
    const fl_meta **metas = tally.metas.at;
    for (int64_t i = 0; i < tally.metas.count; i++) fl_meta_unref(metas[i]);
    tally.ops.count = tally.moves.count = tally.metas.count = tally.events.count = 0;
    tally.counts = true;
    note_kept();
}

fl_status fl_tally_ops(const fl_tally_op **ops, int64_t *count)
{
    *ops = tally.ops.at;
    *count = tally.ops.count;
    return complete();
}

fl_status fl_tally_moves(const fl_tally_move **moves, int64_t *count)
{
    *moves = tally.moves.at;
    *count = tally.moves.count;
    return complete();
}

/* ---- kinds of ranks ---- */

/* Elements of a rank's part; -1: it has none because it is not in the placement. */
static int64_t part_of(const fl_meta *meta, int rank)
{
    fl_window window;
    int64_t numel = 1;
    int index = fl_placement_index(meta->placement, rank);
    if (index < 0) return -1;
    fl_window_of(&window, &meta->shape, meta->placement, meta->nd_sbp, index);
    for (int i = 0; i < meta->shape.ndim; i++) numel *= window.size[i];
    return numel;
}

static uint64_t look_at_rank(int64_t *elements, int rank)
{
    const fl_meta *const *metas = tally.metas.at;
    uint64_t hash = 0;
    *elements = 0;
    for (int64_t i = 0; i < tally.metas.count; i++) {
        int64_t part = part_of(metas[i], rank);
        hash = fl_hash_mix(hash, (uint64_t)part);
        if (part > 0) *elements += part;
    }
    return hash;
}

void fl_tally_kinds_free(fl_tally_kind *kinds, int count)
{
    for (int i = 0; i < count; i++) free(kinds[i].ranks);
    free(kinds);
}

fl_status fl_tally_kinds(fl_tally_kind **out, int *count)
{
    int size = fl_world_get()->size;
    fl_tally_kind *kinds = calloc((size_t)size, sizeof *kinds);
    uint64_t *hashes = calloc((size_t)size, sizeof *hashes);
    bool good = kinds && hashes;
    *count = 0;
    for (int r = 0; r < size && good; r++) {
        int64_t elements;
        int k = 0;
        uint64_t hash = look_at_rank(&elements, r);
        while (k < *count && hashes[k] != hash) k++;
        if (k == *count) {
            hashes[k] = hash;
            kinds[k] = (fl_tally_kind){r, 0, elements, malloc(sizeof(int) * (size_t)size)};
            ++*count;
        }
        good = kinds[k].ranks != NULL;
        if (good) kinds[k].ranks[kinds[k].count++] = r;
    }
    free(hashes);
    *out = kinds;
    if (good) return FL_OK;
    fl_tally_kinds_free(kinds, *count);
    return fl_fail(FL_ERR_MEMORY, "plan: out of memory");
}

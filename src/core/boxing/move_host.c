/*
** move_host.c -- carrying out a compiled boxing step: the meeting, then the data.
**
** Parts of at most FL_EAGER_BYTES go along with the meeting itself, so a small collective is one meeting and nothing
** else. Larger parts are read where they are, in the shared memory of their owners; then no rank continues before all
** have finished reading. A large all-reduce is shared out: every member adds up its share of the elements and writes it
** into the results of all. If memory is not shared, or a part happens to lie outside of the shared arena, the
** transport moves packed buffers.
*/
#include "cpu/combine.h"
#include "move.h"
#include "value/random.h"
#include "memory/arena.h"
#include "ranks/channel.h"
#include "ranks/shared.h"
#include "engine/team.h"
#include "memory/scratch.h"
#include "engine/control.h"
#include "engine/engine.h"

enum { STREAM_BYTES = 4 << 20, SHORT_BYTES = 256 << 10, PIECE = 16384, SHORT_ROW = 256, STAGED = 8192 };

/* The payload of a task. */
struct transfer {
    const fl_move *move;
    const char *in;
    char *out;
    const fl_var *var;    /* of in, which may be poisoned */
    fl_progress progress; /* shown to others */
    char where[FL_WHERE_TEXT];
};

/* ---- copying regions ---- */

static void fill(char *out, int64_t n, size_t item, const void *value)
{
    for (int64_t i = 0; i < n; i++) memcpy(out + (size_t)i * item, value, item);
}

/* A walk over the rows (innermost runs) of a region. */
struct rows {
    int64_t at[FL_MAX_NDIM], from, to, length;
    int outer; /* axes outside of the row */
};

static struct rows rows_of(const fl_region *region)
{
    int last = region->ndim - 1;
    struct rows w = {.from = region->from, .to = region->to, .outer = region->ndim, .length = 1};
    if (region->ndim && region->from_stride[last] == 1 && region->to_stride[last] == 1) {
        w.outer = last;
        w.length = region->size[last];
    }
    return w;
}

static bool next_row(struct rows *rows, const fl_region *region)
{
    for (int i = rows->outer - 1; i >= 0; i--) {
        rows->from += region->from_stride[i];
        rows->to += region->to_stride[i];
        if (++rows->at[i] < region->size[i]) return true;
        rows->at[i] = 0;
        rows->from -= region->size[i] * region->from_stride[i];
        rows->to -= region->size[i] * region->to_stride[i];
    }
    return false;
}

/* A region out of the part that has it, into its place in the target's part. (A copy that converts nothing cannot
** fail.) */
static void copy_region(char *out, const char *in, const fl_region *region, fl_dtype dtype)
{
    fl_view target = fl_region_view(out, region, region->to, region->to_stride, dtype),
            source = fl_region_view(in, region, region->from, region->from_stride, dtype);
    (void)fl_cpu_copy(&target, &source);
}

/* Returns where the next one is packed. */
static char *pack_region(char *packed, const char *in, const fl_region *region, fl_dtype dtype)
{
    fl_region packing = *region;
    packing.to = 0;
    fl_region_packed(packing.to_stride, region);
    copy_region(packed, in, &packing, dtype);
    return packed + (size_t)fl_region_numel(region) * fl_dtype_size(dtype);
}

/* The same region of several parts, ins[i] at its beginning and laid out as regions[i], added up into out: row by
** row. */
static void combine_rows(char *out, const char *const *ins, const fl_region *const *regions, int count,
                         const fl_move *move, bool stream)
{
    size_t item = fl_dtype_size(move->dtype);
    fl_combine_fn combine = fl_cpu_combine(move->dtype);
    struct rows walks[count];
    const void *rows_in[count];
    for (int k = 0; k < count; k++) walks[k] = rows_of(regions[k]);
    for (bool more = true; more;) {
        void *row = out + (size_t)walks[0].to * item;
        for (int k = 0; k < count; k++) rows_in[k] = ins[k] + (size_t)walks[k].from * item;
        combine(&row, 1, rows_in, count, walks[0].length, move->reduce, stream);
        for (int k = 0; k < count; k++) more = next_row(&walks[k], regions[k]);
    }
}

/* The axes of the region from `axis` on, `length` steps of that axis from `start` on; rows: where the axes outside
** are. */
static fl_region piece_of(const fl_region *region, const struct rows *rows, int axis, int64_t start, int64_t length)
{
    fl_region piece = {.ndim = region->ndim - axis,
                       .from = rows->from + start * region->from_stride[axis],
                       .to = rows->to + start * region->to_stride[axis]};
    for (int i = 0; i < piece.ndim; i++) {
        piece.size[i] = region->size[axis + i];
        piece.from_stride[i] = region->from_stride[axis + i];
        piece.to_stride[i] = region->to_stride[axis + i];
    }
    piece.size[0] = length;
    return piece;
}

/* The pieces at one place, packed into stage, added up there and put into out. */
static void combine_piece(char *out, const char *const *ins, const fl_region *pieces, int count, const fl_move *move,
                          char *stage)
{
    const void *packed[count];
    void *sum = stage;
    int64_t n = fl_region_numel(&pieces[0]);
    char *end = stage;
    for (int k = 0; k < count; k++) {
        packed[k] = end;
        end = pack_region(end, ins[k], &pieces[k], move->dtype);
    }
    fl_cpu_combine(move->dtype)(&sum, 1, packed, count, n, move->reduce, false);
    fl_region back = pieces[0];
    back.from = 0;
    fl_region_packed(back.from_stride, &back);
    copy_region(out, stage, &back, move->dtype);
}

/* Many short rows: as many of them at once as make STAGED elements. */
static void combine_staged(char *out, const char *const *ins, const fl_region *const *regions, int count,
                           const fl_move *move, char *stage)
{
    const fl_region *r = regions[0];
    struct rows walks[count];
    fl_region pieces[count];
    int64_t inner = 1;
    int axis = r->ndim - 1;
    while (axis > 0 && inner * r->size[axis] <= STAGED) inner *= r->size[axis--];
    int64_t step = STAGED / inner;
    for (int k = 0; k < count; k++)
        walks[k] = (struct rows){.from = regions[k]->from, .to = regions[k]->to, .outer = axis};
    for (bool more = true; more;) {
        for (int64_t at = 0; at < r->size[axis]; at += step) {
            int64_t length = r->size[axis] - at < step ? r->size[axis] - at : step;
            for (int k = 0; k < count; k++) pieces[k] = piece_of(regions[k], &walks[k], axis, at, length);
            combine_piece(out, ins, pieces, count, move, stage);
        }
        for (int k = 0; k < count; k++) more = next_row(&walks[k], regions[k]);
    }
}

static void combine_regions(char *out, const char *const *ins, const fl_region *const *regions, int count,
                            const fl_move *move, bool stream)
{
    bool brief = rows_of(regions[0]).length < SHORT_ROW && regions[0]->ndim > 0;
    char *stage = brief ? fl_scratch(2, (size_t)count * STAGED * fl_dtype_size(move->dtype)) : NULL;
    if (stage) combine_staged(out, ins, regions, count, move, stage);
    else combine_rows(out, ins, regions, count, move, stream);
}

/* ---- pulling out of the others' parts ---- */

/* The part of member i that the pulls read. */
static const char *part_of(const fl_move *move, int i)
{
    const fl_entry *e = fl_group_entry(move->group, i);
    return e->bytes ? fl_group_entry_data(move->group, i) : fl_shared_address(move->group->ranks[i], e->in);
}

/* Regions of one place are put in at once; they come from parts of one window, so they have the same rows. */
static void pull_all(const fl_move *move, char *out, const char *const *parts)
{
    const fl_region_list *list = &move->pulls;
    size_t item = fl_dtype_size(move->dtype);
    for (int k = 0; k < list->count; k++) {
        const fl_region *regions[list->count];
        const char *ins[list->count];
        if (list->at[k].add) continue;
        int n = fl_region_together(list, k, regions);
        for (int i = 0; i < n; i++) ins[i] = parts[regions[i]->peer];
        bool stream = (size_t)fl_region_numel(regions[0]) * item >= STREAM_BYTES;
        if (n == 1) copy_region(out, ins[0], regions[0], move->dtype);
        else combine_regions(out, ins, regions, n, move, stream);
    }
}

static void prefill(const fl_move *move, char *out)
{
    int64_t identity;
    if (!move->filled) return;
    fl_reduce_identity(&identity, move->dtype, move->filled);
    fill(out, move->out_numel, fl_dtype_size(move->dtype), &identity);
}

/* ---- in shared memory ---- */

/* Everybody's whole part, shown in the meeting, added up here. */
static void all_reduce_shown(const fl_move *move, char *out)
{
    int count = move->group->count;
    const void *ins[count];
    void *outs[1] = {out};
    for (int i = 0; i < count; i++) ins[i] = fl_group_entry_data(move->group, i);
    fl_cpu_combine(move->dtype)(outs, 1, ins, count, move->in_numel, move->reduce, false);
}

/* A part of the work that threads share: pieces of PIECE elements of the same stretch of all parts. */
struct stretch {
    const fl_move *move;
    fl_combine_fn combine;
    int64_t start, count; /* in elements of the parts */
    bool stream;
};

/* Pieces [begin, end) added up into the results of all members. */
static void combine_pieces(void *context, int64_t begin, int64_t end)
{
    const struct stretch *s = context;
    const fl_group *g = s->move->group;
    int64_t item = (int64_t)fl_dtype_size(s->move->dtype), at = begin * PIECE,
            stop = end * PIECE < s->count ? end * PIECE : s->count;
    const void *ins[g->count];
    void *outs[g->count];
    for (int i = 0; i < g->count; i++) {
        const fl_entry *e = fl_group_entry(g, i);
        ins[i] = (const char *)fl_shared_address(g->ranks[i], e->in) + (s->start + at) * item;
        outs[i] = (char *)fl_shared_address(g->ranks[i], e->out) + (s->start + at) * item;
    }
    s->combine(outs, g->count, ins, g->count, stop - at, s->move->reduce, s->stream);
}

/* This member's share of the elements, in whole cache lines. */
static void all_reduce_share(const fl_move *move)
{
    const fl_group *g = move->group;
    int64_t item = (int64_t)fl_dtype_size(move->dtype), line = 64 / item, lines = (move->in_numel + line - 1) / line,
            first, n;
    fl_split(&first, &n, lines, g->count, g->me);
    int64_t start = first * line, end = (first + n) * line < move->in_numel ? (first + n) * line : move->in_numel;
    struct stretch s = {move, fl_cpu_combine(move->dtype), start, end - start, move->in_numel * item >= STREAM_BYTES};
    fl_team_for((s.count + PIECE - 1) / PIECE, PIECE * 0.1 * (double)(item * g->count), combine_pieces, &s);
}

static fl_status move_shared(const fl_move *move, char *out)
{
    const fl_group *g = move->group;
    bool all_shown = true;
    const char *parts[g->count];
    int i = 0;
    do {
        all_shown = all_shown && fl_group_entry(g, i)->in == FL_PRIVATE;
        parts[i] = part_of(move, i);
    } while (++i < g->count);
    if (move->kind == FL_BOX_ALL_REDUCE && all_shown) all_reduce_shown(move, out);
    else if (move->kind == FL_BOX_ALL_REDUCE) all_reduce_share(move);
    else pull_all(move, out, parts);
    return all_shown ? FL_OK : fl_channel_leave(g->channel);
}

/* ---- through the transport ---- */

/* Received regions lie one after the other: each becomes a part of its own whose strides are those of its packed
** form. */
static void unpack(const fl_move *move, char *out, const char *packed, const int64_t *starts)
{
    int members = move->group->count;
    size_t item = fl_dtype_size(move->dtype);
    fl_move as_packed = *move;
    fl_region regions[move->pulls.count + 1];
    const char *parts[members];
    int64_t used[members];
    for (int i = 0; i < members; i++) {
        parts[i] = packed + (size_t)starts[i] * item;
        used[i] = 0;
    }
    for (int k = 0; k < move->pulls.count; k++) {
        fl_region *r = &regions[k];
        *r = move->pulls.at[k];
        r->from = used[r->peer];
        fl_region_packed(r->from_stride, r);
        used[r->peer] += fl_region_numel(r);
    }
    as_packed.pulls.at = regions;
    pull_all(&as_packed, out, parts);
}

/* Memory of this thread for what is sent and received. */
struct buffers {
    char *sent, *received;
};

/* Allocated before the meeting: a rank that gets none must report that there. */
static fl_status take_buffers(struct buffers *buffers, const fl_move *move)
{
    int members = move->group->count;
    int64_t counts[members], starts[members];
    size_t item = fl_dtype_size(move->dtype);
    *buffers = (struct buffers){NULL, NULL};
    if (move->kind == FL_BOX_ALL_REDUCE) return FL_OK;
    if (move->kind != FL_BOX_ALL_GATHER) {
        buffers->sent = fl_scratch(0, (size_t)fl_region_counts(counts, starts, &move->pushes, members) * item + 1);
        if (!buffers->sent) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for the buffers", move->collective.name);
    }
    if (move->kind == FL_BOX_REDUCE_SCATTER) return FL_OK;
    buffers->received = fl_scratch(1, (size_t)fl_region_counts(counts, starts, &move->pulls, members) * item + 1);
    return buffers->received ? FL_OK
                             : fl_fail(FL_ERR_MEMORY, "%s: out of memory for the buffers", move->collective.name);
}

static void pack_all(const fl_move *move, char *sent, const char *in)
{
    for (int i = 0; i < move->group->count; i++)
        for (int k = 0; k < move->pushes.count; k++)
            if (move->pushes.at[k].peer == i) sent = pack_region(sent, in, &move->pushes.at[k], move->dtype);
}

static fl_status move_packed(const fl_move *move, char *out, const char *in, const struct buffers *buffers)
{
    fl_group *g = move->group;
    const fl_comm *comm = fl_comm_get();
    int64_t out_counts[g->count], out_starts[g->count], in_counts[g->count], in_starts[g->count];
    if (!g->handle) FL_TRY(comm->open(g));
    if (move->kind == FL_BOX_ALL_REDUCE) {
        if (move->in_numel) memcpy(out, in, (size_t)move->in_numel * fl_dtype_size(move->dtype));
        return comm->all_reduce(g, out, move->in_numel, move->dtype, move->reduce);
    }
    fl_region_counts(in_counts, in_starts, &move->pushes, g->count);
    fl_region_counts(out_counts, out_starts, &move->pulls, g->count);
    if (move->kind != FL_BOX_ALL_GATHER) pack_all(move, buffers->sent, in);
    if (move->kind == FL_BOX_REDUCE_SCATTER)
        return comm->reduce_scatter(g, out, in_counts, buffers->sent, move->dtype, move->reduce);
    if (move->kind == FL_BOX_ALL_GATHER)
        FL_TRY(comm->all_gather(g, buffers->received, out_counts, out_starts, in, move->dtype));
    else
        FL_TRY(comm->all_to_all(g, buffers->received, out_counts, out_starts, buffers->sent, in_counts, in_starts,
                                move->dtype));
    unpack(move, out, buffers->received, out_starts);
    return FL_OK;
}

/* ---- one step ---- */

/* Fills this member's entry: a small part goes along, a larger one is given by its address. Returns the bytes that go
** along. */
static size_t address(fl_entry *entry, const struct transfer *transfer)
{
    const fl_move *m = transfer->move;
    size_t bytes = (size_t)m->in_numel * fl_dtype_size(m->dtype);
    if (!m->group->local) return 0;
    if (bytes <= FL_EAGER_BYTES) return bytes;
    bool whole = m->kind == FL_BOX_ALL_REDUCE;
    if (!fl_arena_owns(transfer->in) || (whole && !fl_arena_owns(transfer->out))) entry->flags |= FL_ENTRY_PRIVATE;
    else entry->in = fl_shared_offset(transfer->in);
    if (whole && entry->in != FL_PRIVATE) entry->out = fl_shared_offset(transfer->out);
    return 0;
}

/* All members come to the same answer: they have seen the same entries. */
static bool is_shared(const fl_group *group) { return group->local && !(group->shown & FL_ENTRY_PRIVATE); }

fl_progress fl_move_progress(const fl_move *move)
{
    return (fl_progress){.drawn = fl_random_drawn(), .trail = fl_history_meet(move->mark)};
}

void fl_move_entry(fl_entry *entry, const fl_move *move, const char *where, const fl_progress *progress,
                   const fl_var *in)
{
    char error[FL_ERROR_TEXT];
    entry->flags = 0;
    entry->error[0] = '\0';
    entry->collective = move->collective;
    entry->tag = move->tag;
    entry->drawn = progress->drawn;
    fl_entry_look_back(entry, progress->trail);
    entry->fingerprint = move->fingerprint;
    memcpy(entry->collective.where, where, FL_WHERE_TEXT);
    entry->in = entry->out = FL_PRIVATE;
    if (fl_var_error(error, sizeof error, in) != FL_OK) fl_entry_poison(entry, error);
}

/* A meeting of this step. buffers: takes the buffers of the transport; NULL: none are needed. */
static fl_status meet(fl_entry *mine, const struct transfer *transfer, size_t shown, struct buffers *buffers)
{
    fl_group *g = transfer->move->group;
    if (buffers && take_buffers(buffers, transfer->move) != FL_OK) fl_entry_poison(mine, fl_message());
    FL_TRY(fl_group_meet(g, mine, transfer->in, shown, 0));
    return fl_group_poison(g);
}

static fl_status run_with_others(const struct transfer *transfer)
{
    const fl_move *m = transfer->move;
    fl_entry mine;
    struct buffers b;
    fl_move_entry(&mine, m, transfer->where, &transfer->progress, transfer->var);
    size_t shown = address(&mine, transfer);
    FL_TRY(meet(&mine, transfer, shown, m->group->local ? NULL : &b));
    bool shared = is_shared(m->group);
    if (m->group->local && !shared) FL_TRY(meet(&mine, transfer, shown, &b)); /* now all members need buffers */
    prefill(m, transfer->out);
    fl_status status = shared ? move_shared(m, transfer->out) : move_packed(m, transfer->out, transfer->in, &b);
    if (status != FL_OK) m->group->broken = true;
    return status;
}

static fl_status run_alone(const struct transfer *transfer)
{
    prefill(transfer->move, transfer->out);
    pull_all(transfer->move, transfer->out, &transfer->in);
    return FL_OK;
}

static fl_status run_transfer(void *payload)
{
    const struct transfer *t = payload;
    return t->move->group ? run_with_others(t) : run_alone(t);
}

/* Poison of one member is that of all: the collective is entered all the same, so that the others get the error. */
fl_status fl_move_push(fl_move *move, fl_tensor *out, fl_tensor *in)
{
    if (out->storage->device == FL_CUDA) return fl_move_push_device(move, out, in);
    bool alone = !move->group, brief = move->in_numel * (int64_t)fl_dtype_size(move->dtype) <= SHORT_BYTES;
    struct transfer t; /* set field by field: clearing it takes longer than all else here */
    t.move = move;
    t.in = fl_tensor_data(in);
    t.out = fl_tensor_data(out);
    t.var = &in->storage->var;
    t.where[0] = 0;
    fl_var *reads[] = {&in->storage->var, &move->busy}, *writes[] = {&out->storage->var};
    fl_task task = {.name = move->collective.name,
                    .run = run_transfer,
                    .payload = &t,
                    .payload_size = sizeof t,
                    .reads = reads,
                    .writes = writes,
                    .read_count = 2,
                    .write_count = 1,
                    .lane = alone ? FL_LANE_CPU : FL_LANE_COMM};
    if (!alone) FL_TRY(fl_comm_allowed(&move->collective, move->group));
    if (!alone) t.progress = fl_move_progress(move);
    if (!alone && fl_engine_where) fl_engine_where(t.where, sizeof t.where);
    task.flags = alone ? FL_TASK_CHEAP : FL_TASK_NO_SKIP | (brief ? FL_TASK_SHORT : 0);
    return fl_engine_push(&task);
}

/*
** move_host.c -- carrying out a compiled boxing step: the meeting, then the data.
**
** Parts of at most FL_EAGER_BYTES are shown in the meeting itself, so a small collective is one meeting and nothing
** else. Larger parts are read where they are, in the shared memory of their owners; then nobody goes on before all have
** finished reading. A large all-reduce is shared out: every member adds up its share of the elements and writes it
** into everybody's result. Where memory is not shared, or a part happens to lie outside of the shared arena, the
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
#include "engine/engine.h"

enum { STREAM_BYTES = 4 << 20, SHORT_BYTES = 256 << 10, PIECE = 16384, SHORT_ROW = 256, STAGED = 8192 };

/* What a task carries. */
typedef struct transfer {
    const fl_move *move;
    const char *in;
    char *out;
    const fl_var *var;    /* of in: poisoned? */
    fl_progress progress; /* shown to others */
    char where[FL_WHERE_TEXT];
} transfer;

/* ---- copying regions ---- */

static void fill(char *out, int64_t n, size_t item, const void *value)
{
    for (int64_t i = 0; i < n; i++) memcpy(out + (size_t)i * item, value, item);
}

/* A walk over the rows (innermost runs) of a region. */
typedef struct rows {
    int64_t at[FL_MAX_NDIM], from, to, length;
    int outer; /* axes outside of the row */
} rows;

static rows rows_of(const fl_region *r)
{
    int last = r->ndim - 1;
    rows w = {.from = r->from, .to = r->to, .outer = r->ndim, .length = 1};
    if (r->ndim && r->from_stride[last] == 1 && r->to_stride[last] == 1) {
        w.outer = last;
        w.length = r->size[last];
    }
    return w;
}

static bool next_row(rows *w, const fl_region *r)
{
    for (int i = w->outer - 1; i >= 0; i--) {
        w->from += r->from_stride[i];
        w->to += r->to_stride[i];
        if (++w->at[i] < r->size[i]) return true;
        w->at[i] = 0;
        w->from -= r->size[i] * r->from_stride[i];
        w->to -= r->size[i] * r->to_stride[i];
    }
    return false;
}

/* A region out of the part that has it, into its place in the target's part. (A copy that converts nothing cannot
** fail.) */
static void copy_region(char *out, const char *in, const fl_region *r, fl_dtype dtype)
{
    fl_view target = fl_region_view(out, r, r->to, r->to_stride, dtype),
            source = fl_region_view(in, r, r->from, r->from_stride, dtype);
    (void)fl_cpu_copy(&target, &source);
}

/* Returns where the next one is packed. */
static char *pack_region(char *packed, const char *in, const fl_region *r, fl_dtype dtype)
{
    fl_region packing = *r;
    packing.to = 0;
    fl_region_packed(packing.to_stride, r);
    copy_region(packed, in, &packing, dtype);
    return packed + (size_t)fl_region_numel(r) * fl_dtype_size(dtype);
}

/* The same region of several parts, ins[i] at its beginning and laid out as regions[i], added up into out: row by
** row. */
static void combine_rows(char *out, const char *const *ins, const fl_region *const *regions, int count,
                         const fl_move *m, bool stream)
{
    size_t item = fl_dtype_size(m->dtype);
    fl_combine_fn combine = fl_cpu_combine(m->dtype);
    rows walks[count];
    const void *rows_in[count];
    for (int k = 0; k < count; k++) walks[k] = rows_of(regions[k]);
    for (bool more = true; more;) {
        void *row = out + (size_t)walks[0].to * item;
        for (int k = 0; k < count; k++) rows_in[k] = ins[k] + (size_t)walks[k].from * item;
        combine(&row, 1, rows_in, count, walks[0].length, m->reduce, stream);
        for (int k = 0; k < count; k++) more = next_row(&walks[k], regions[k]);
    }
}

/* The axes of r from `axis` on, `length` steps of that axis from `start` on; w: where the axes outside of them are. */
static fl_region piece_of(const fl_region *r, const rows *w, int axis, int64_t start, int64_t length)
{
    fl_region piece = {.ndim = r->ndim - axis,
                       .from = w->from + start * r->from_stride[axis],
                       .to = w->to + start * r->to_stride[axis]};
    for (int i = 0; i < piece.ndim; i++) {
        piece.size[i] = r->size[axis + i];
        piece.from_stride[i] = r->from_stride[axis + i];
        piece.to_stride[i] = r->to_stride[axis + i];
    }
    piece.size[0] = length;
    return piece;
}

/* The pieces at one place, packed into stage, added up there and put into out. */
static void combine_piece(char *out, const char *const *ins, const fl_region *pieces, int count, const fl_move *m,
                          char *stage)
{
    const void *packed[count];
    void *sum = stage;
    int64_t n = fl_region_numel(&pieces[0]);
    char *end = stage;
    for (int k = 0; k < count; k++) {
        packed[k] = end;
        end = pack_region(end, ins[k], &pieces[k], m->dtype);
    }
    fl_cpu_combine(m->dtype)(&sum, 1, packed, count, n, m->reduce, false);
    fl_region back = pieces[0];
    back.from = 0;
    fl_region_packed(back.from_stride, &back);
    copy_region(out, stage, &back, m->dtype);
}

/* Many short rows: as many of them at once as make STAGED elements. */
static void combine_staged(char *out, const char *const *ins, const fl_region *const *regions, int count,
                           const fl_move *m, char *stage)
{
    const fl_region *r = regions[0];
    rows walks[count];
    fl_region pieces[count];
    int64_t inner = 1;
    int axis = r->ndim - 1;
    while (axis > 0 && inner * r->size[axis] <= STAGED) inner *= r->size[axis--];
    int64_t step = STAGED / inner;
    for (int k = 0; k < count; k++) walks[k] = (rows){.from = regions[k]->from, .to = regions[k]->to, .outer = axis};
    for (bool more = true; more;) {
        for (int64_t at = 0; at < r->size[axis]; at += step) {
            int64_t length = r->size[axis] - at < step ? r->size[axis] - at : step;
            for (int k = 0; k < count; k++) pieces[k] = piece_of(regions[k], &walks[k], axis, at, length);
            combine_piece(out, ins, pieces, count, m, stage);
        }
        for (int k = 0; k < count; k++) more = next_row(&walks[k], regions[k]);
    }
}

static void combine_regions(char *out, const char *const *ins, const fl_region *const *regions, int count,
                            const fl_move *m, bool stream)
{
    bool brief = rows_of(regions[0]).length < SHORT_ROW && regions[0]->ndim > 0;
    char *stage = brief ? fl_scratch(2, (size_t)count * STAGED * fl_dtype_size(m->dtype)) : NULL;
    if (stage) combine_staged(out, ins, regions, count, m, stage);
    else combine_rows(out, ins, regions, count, m, stream);
}

/* ---- pulling out of the others' parts ---- */

/* Where the pulls find the part of member i. */
static const char *part_of(const fl_move *m, int i)
{
    const fl_entry *e = fl_group_entry(m->group, i);
    return e->bytes ? fl_group_entry_data(m->group, i) : fl_shared_address(m->group->ranks[i], e->in);
}

/* Regions of one place are put in at once; they come from parts of one window, so they have the same rows. */
static void pull_all(const fl_move *m, char *out, const char *const *parts)
{
    const fl_region_list *list = &m->pulls;
    size_t item = fl_dtype_size(m->dtype);
    for (int k = 0; k < list->count; k++) {
        const fl_region *regions[list->count];
        const char *ins[list->count];
        if (list->at[k].add) continue;
        int n = fl_region_together(list, k, regions);
        for (int i = 0; i < n; i++) ins[i] = parts[regions[i]->peer];
        bool stream = (size_t)fl_region_numel(regions[0]) * item >= STREAM_BYTES;
        if (n == 1) copy_region(out, ins[0], regions[0], m->dtype);
        else combine_regions(out, ins, regions, n, m, stream);
    }
}

static void prefill(const fl_move *m, char *out)
{
    int64_t identity;
    if (!m->filled) return;
    fl_reduce_identity(&identity, m->dtype, m->filled);
    fill(out, m->out_numel, fl_dtype_size(m->dtype), &identity);
}

/* ---- in shared memory ---- */

/* Everybody's whole part, shown in the meeting, added up here. */
static void all_reduce_shown(const fl_move *m, char *out)
{
    int count = m->group->count;
    const void *ins[count];
    void *outs[1] = {out};
    for (int i = 0; i < count; i++) ins[i] = fl_group_entry_data(m->group, i);
    fl_cpu_combine(m->dtype)(outs, 1, ins, count, m->in_numel, m->reduce, false);
}

/* A part of the work that threads share: pieces of PIECE elements of the same stretch of all parts. */
typedef struct stretch {
    const fl_move *move;
    fl_combine_fn combine;
    int64_t start, count; /* in elements of the parts */
    bool stream;
} stretch;

/* Pieces [begin, end) added up into everybody's result. */
static void combine_pieces(void *context, int64_t begin, int64_t end)
{
    const stretch *s = context;
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
static void all_reduce_share(const fl_move *m)
{
    const fl_group *g = m->group;
    int64_t item = (int64_t)fl_dtype_size(m->dtype), line = 64 / item, lines = (m->in_numel + line - 1) / line, first,
            n;
    fl_split(&first, &n, lines, g->count, g->me);
    int64_t start = first * line, end = (first + n) * line < m->in_numel ? (first + n) * line : m->in_numel;
    stretch s = {m, fl_cpu_combine(m->dtype), start, end - start, m->in_numel * item >= STREAM_BYTES};
    fl_team_for((s.count + PIECE - 1) / PIECE, PIECE * 0.1 * (double)(item * g->count), combine_pieces, &s);
}

static fl_status move_shared(const fl_move *m, char *out)
{
    const fl_group *g = m->group;
    bool all_shown = true;
    const char *parts[g->count];
    int i = 0;
    do {
        all_shown = all_shown && fl_group_entry(g, i)->in == FL_PRIVATE;
        parts[i] = part_of(m, i);
    } while (++i < g->count);
    if (m->kind == FL_BOX_ALL_REDUCE && all_shown) all_reduce_shown(m, out);
    else if (m->kind == FL_BOX_ALL_REDUCE) all_reduce_share(m);
    else pull_all(m, out, parts);
    return all_shown ? FL_OK : fl_channel_leave(g->channel);
}

/* ---- through the transport ---- */

/* Received regions lie one after the other: each becomes a part of its own whose strides are those of its packed
** form. */
static void unpack(const fl_move *m, char *out, const char *packed, const int64_t *starts)
{
    int members = m->group->count;
    size_t item = fl_dtype_size(m->dtype);
    fl_move as_packed = *m;
    fl_region regions[m->pulls.count + 1];
    const char *parts[members];
    int64_t used[members];
    for (int i = 0; i < members; i++) {
        parts[i] = packed + (size_t)starts[i] * item;
        used[i] = 0;
    }
    for (int k = 0; k < m->pulls.count; k++) {
        fl_region *r = &regions[k];
        *r = m->pulls.at[k];
        r->from = used[r->peer];
        fl_region_packed(r->from_stride, r);
        used[r->peer] += fl_region_numel(r);
    }
    as_packed.pulls.at = regions;
    pull_all(&as_packed, out, parts);
}

/* Memory of this thread for what is sent and received. */
typedef struct buffers {
    char *sent, *received;
} buffers;

/* Asked for before the meeting: a rank without them must say so there. */
static fl_status take_buffers(buffers *b, const fl_move *m)
{
    int members = m->group->count;
    int64_t counts[members], starts[members];
    size_t item = fl_dtype_size(m->dtype);
    *b = (buffers){NULL, NULL};
    if (m->kind == FL_BOX_ALL_REDUCE) return FL_OK;
    if (m->kind != FL_BOX_ALL_GATHER) {
        b->sent = fl_scratch(0, (size_t)fl_region_counts(counts, starts, &m->pushes, members) * item + 1);
        if (!b->sent) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for the buffers", m->collective.name);
    }
    if (m->kind == FL_BOX_REDUCE_SCATTER) return FL_OK;
    b->received = fl_scratch(1, (size_t)fl_region_counts(counts, starts, &m->pulls, members) * item + 1);
    return b->received ? FL_OK : fl_fail(FL_ERR_MEMORY, "%s: out of memory for the buffers", m->collective.name);
}

static void pack_all(const fl_move *m, char *sent, const char *in)
{
    for (int i = 0; i < m->group->count; i++)
        for (int k = 0; k < m->pushes.count; k++)
            if (m->pushes.at[k].peer == i) sent = pack_region(sent, in, &m->pushes.at[k], m->dtype);
}

static fl_status move_packed(const fl_move *m, char *out, const char *in, const buffers *b)
{
    fl_group *g = m->group;
    const fl_comm *comm = fl_comm_get();
    int64_t out_counts[g->count], out_starts[g->count], in_counts[g->count], in_starts[g->count];
    if (!g->handle) FL_TRY(comm->open(g));
    if (m->kind == FL_BOX_ALL_REDUCE) {
        if (m->in_numel) memcpy(out, in, (size_t)m->in_numel * fl_dtype_size(m->dtype));
        return comm->all_reduce(g, out, m->in_numel, m->dtype, m->reduce);
    }
    fl_region_counts(in_counts, in_starts, &m->pushes, g->count);
    fl_region_counts(out_counts, out_starts, &m->pulls, g->count);
    if (m->kind != FL_BOX_ALL_GATHER) pack_all(m, b->sent, in);
    if (m->kind == FL_BOX_REDUCE_SCATTER) return comm->reduce_scatter(g, out, in_counts, b->sent, m->dtype, m->reduce);
    if (m->kind == FL_BOX_ALL_GATHER) FL_TRY(comm->all_gather(g, b->received, out_counts, out_starts, in, m->dtype));
    else FL_TRY(comm->all_to_all(g, b->received, out_counts, out_starts, b->sent, in_counts, in_starts, m->dtype));
    unpack(m, out, b->received, out_starts);
    return FL_OK;
}

/* ---- one step ---- */

/* What this member shows: its part when it is small, else where it lies. Returns the bytes of data to show. */
static size_t address(fl_entry *e, const transfer *t)
{
    const fl_move *m = t->move;
    size_t bytes = (size_t)m->in_numel * fl_dtype_size(m->dtype);
    if (!m->group->local) return 0;
    if (bytes <= FL_EAGER_BYTES) return bytes;
    bool whole = m->kind == FL_BOX_ALL_REDUCE;
    if (!fl_arena_owns(t->in) || (whole && !fl_arena_owns(t->out))) e->flags |= FL_ENTRY_PRIVATE;
    else e->in = fl_shared_offset(t->in);
    if (whole && e->in != FL_PRIVATE) e->out = fl_shared_offset(t->out);
    return 0;
}

/* All members come to the same answer: they have seen the same entries. */
static bool is_shared(const fl_group *g)
{
    for (int i = 0; i < g->count; i++)
        if (fl_group_entry(g, i)->flags & FL_ENTRY_PRIVATE) return false;
    return g->local;
}

fl_progress fl_move_progress(const fl_move *m)
{
    return (fl_progress){.drawn = fl_random_drawn(), .trail = fl_history_meet(m->mark)};
}

void fl_move_entry(fl_entry *e, const fl_move *m, const char *where, const fl_progress *progress, const fl_var *in)
{
    char error[FL_ERROR_TEXT];
    e->flags = 0;
    e->error[0] = '\0';
    e->collective = m->collective;
    e->tag = m->tag;
    e->drawn = progress->drawn;
    fl_entry_look_back(e, progress->trail);
    e->fingerprint = m->fingerprint;
    memcpy(e->collective.where, where, FL_WHERE_TEXT);
    e->in = e->out = FL_PRIVATE;
    if (fl_var_error(error, sizeof error, in)) fl_entry_poison(e, error);
}

/* A meeting of this step. b: takes the buffers of the transport; NULL: none are needed. */
static fl_status meet(fl_entry *mine, const transfer *t, size_t shown, buffers *b)
{
    fl_group *g = t->move->group;
    if (b && take_buffers(b, t->move) != FL_OK) fl_entry_poison(mine, fl_message());
    FL_TRY(fl_group_meet(g, mine, t->in, shown, 0));
    return fl_group_poison(g);
}

static fl_status run_with_others(const transfer *t)
{
    const fl_move *m = t->move;
    fl_entry mine;
    buffers b;
    fl_move_entry(&mine, m, t->where, &t->progress, t->var);
    size_t shown = address(&mine, t);
    FL_TRY(meet(&mine, t, shown, m->group->local ? NULL : &b));
    bool shared = is_shared(m->group);
    if (m->group->local && !shared) FL_TRY(meet(&mine, t, shown, &b)); /* now everybody needs buffers */
    prefill(m, t->out);
    fl_status status = shared ? move_shared(m, t->out) : move_packed(m, t->out, t->in, &b);
    if (status != FL_OK) m->group->broken = true;
    return status;
}

static fl_status run_alone(const transfer *t)
{
    prefill(t->move, t->out);
    pull_all(t->move, t->out, &t->in);
    return FL_OK;
}

static fl_status run_transfer(void *payload)
{
    const transfer *t = payload;
    return t->move->group ? run_with_others(t) : run_alone(t);
}

/* Poison of a collective is everybody's: it is entered all the same, so that the others learn of it. */
fl_status fl_move_push(fl_move *m, fl_tensor *out, fl_tensor *in)
{
    if (out->storage->device != FL_CPU) return fl_move_push_device(m, out, in);
    bool alone = !m->group, brief = m->in_numel * (int64_t)fl_dtype_size(m->dtype) <= SHORT_BYTES;
    transfer t = {.move = m, .in = fl_tensor_data(in), .out = fl_tensor_data(out), .var = &in->storage->var};
    fl_var *reads[] = {&in->storage->var, &m->busy}, *writes[] = {&out->storage->var};
    fl_task task = {.name = m->collective.name,
                    .run = run_transfer,
                    .payload = &t,
                    .payload_size = sizeof t,
                    .reads = reads,
                    .writes = writes,
                    .read_count = 2,
                    .write_count = 1,
                    .lane = alone ? FL_LANE_CPU : FL_LANE_COMM};
    if (!alone) FL_TRY(fl_comm_allowed(&m->collective));
    if (!alone) t.progress = fl_move_progress(m);
    if (!alone && fl_engine_where) fl_engine_where(t.where, sizeof t.where);
    task.flags = alone ? FL_TASK_CHEAP : FL_TASK_NO_SKIP | (brief ? FL_TASK_SHORT : 0);
    return fl_engine_push(&task);
}

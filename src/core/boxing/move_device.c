/*
** move_device.c -- carrying out a compiled boxing step between devices.
**
** The ranks meet as for every collective (move_host.c), on the communication lane, so that the order of all collectives
** is one; the script waits for that meeting, not for its device. Poison, or a program that differs, ends it there:
** nothing moves. Else the script's thread issues the step to the communication queue of its device and goes on.
** Everything that could fail on one rank alone is done before the meeting.
**
** The pieces that a member takes of this rank's part, and those that this rank gets, are packed by the device if they
** are not contiguous. Sums are left to the library; regions of an exchange that add, and maxima and minima of floats,
** in which a NaN must win, are combined here, in the order of the ranks, as on the CPU.
*/
#include "ranks/device_group.h"
#include "engine/engine_internal.h"
#include "move.h"
#include "value/random.h"

#include <assert.h>
#include <stdio.h>

enum { ALIGNMENT = 256 };

fl_move_counts fl_move_counted;

typedef enum method {
    METHOD_ALONE,  /* no other rank is concerned */
    METHOD_REDUCE, /* the library's all-reduce */
    METHOD_SHARES, /* an all-reduce in two exchanges: every member puts a share together */
    METHOD_GATHER,
    METHOD_SCATTER, /* the library's all-gather and reduce-scatter: all parts have one size */
    METHOD_REGIONS  /* everything else */
} method;

/* A step as it is issued. */
struct transfer {
    const fl_move *move;
    const fl_device *device;
    void *handle;
    method method;
    int members, me;
    size_t item;
    char *out;
    const char *in;
    char *sent, *received, *stage; /* owned scratch; NULL: not needed */
};

/* ---- the choice of a method ---- */

static bool is_float(fl_dtype dtype) { return dtype >= FL_FLOAT16; }

/* True if the library's reduction gives the result of ours. Its extremes lose a NaN. */
static bool reduces(const fl_move *move) { return move->reduce == FL_REDUCE_SUM || !is_float(move->dtype); }

/* One region of one size from or for each member. */
static bool is_even(const fl_region_list *list, int members)
{
    if (list->count != members) return false;
    for (int i = 0; i < members; i++)
        if (list->at[i].peer != i || fl_region_numel(&list->at[i]) != fl_region_numel(&list->at[0])) return false;
    return true;
}

static method method_of(const fl_move *move)
{
    if (!move->group) return METHOD_ALONE;
    if (move->kind == FL_BOX_ALL_REDUCE) return reduces(move) ? METHOD_REDUCE : METHOD_SHARES;
    if (move->kind == FL_BOX_ALL_GATHER && is_even(&move->pulls, move->group->count)) return METHOD_GATHER;
    if (move->kind == FL_BOX_REDUCE_SCATTER && reduces(move) && is_even(&move->pushes, move->group->count))
        return METHOD_SCATTER;
    return METHOD_REGIONS;
}

/* ---- contiguous regions ---- */

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static size_t bytes_of(const struct transfer *transfer, const fl_region *region)
{
    return (size_t)fl_region_numel(region) * transfer->item;
}

/* Regions of an even list that follow one another in the part: it can be sent or received as it is. */
static bool is_line(const fl_region_list *list, bool from)
{
    for (int i = 0; i < list->count; i++) {
        const fl_region *r = &list->at[i];
        if ((from ? r->from : r->to) != i * fl_region_numel(r)
            || !fl_region_is_packed(r, from ? r->from_stride : r->to_stride))
            return false;
    }
    return true;
}

static int count_of(const fl_region_list *list, int peer)
{
    int n = 0;
    for (int i = 0; i < list->count; i++) n += list->at[i].peer == peer;
    return n;
}

/* True if the region is all that goes to its member, in one piece. */
static bool sends_directly(const struct transfer *transfer, const fl_region *region)
{
    return count_of(&transfer->move->pushes, region->peer) == 1 && fl_region_is_packed(region, region->from_stride);
}

/* True if the region is all that comes from its member, in one piece, and is not added to anything. */
static bool receives_directly(const struct transfer *transfer, const fl_region *region)
{
    const fl_region_list *list = &transfer->move->pulls;
    const fl_region *same[list->count];
    if (region->add || count_of(list, region->peer) != 1 || !fl_region_is_packed(region, region->to_stride))
        return false;
    return fl_region_together(list, (int)(region - list->at), same) == 1;
}

/* Bytes in scratch for what goes to (or comes from) one member; 0: it needs none. */
static size_t scratch_for(const struct transfer *transfer, int peer, bool pushes)
{
    const fl_region_list *list = pushes ? &transfer->move->pushes : &transfer->move->pulls;
    size_t bytes = 0;
    if (peer == transfer->me) return 0;
    for (int k = 0; k < list->count; k++) {
        const fl_region *r = &list->at[k];
        if (r->peer != peer) continue;
        if (pushes ? sends_directly(transfer, r) : receives_directly(transfer, r)) return 0;
        bytes += bytes_of(transfer, r);
    }
    return aligned(bytes);
}

/* ---- scratch ---- */

static size_t all_scratch(const struct transfer *transfer, bool pushes)
{
    size_t bytes = 0;
    for (int i = 0; i < transfer->members; i++) bytes += scratch_for(transfer, i, pushes);
    return bytes;
}

/* This rank's region where several join, and what they give, when these do not lie together. */
static size_t stage_bytes(const struct transfer *transfer)
{
    size_t most = 0;
    for (int k = 0; k < transfer->move->pulls.count; k++)
        if (transfer->move->pulls.at[k].add && aligned(bytes_of(transfer, &transfer->move->pulls.at[k])) > most)
            most = aligned(bytes_of(transfer, &transfer->move->pulls.at[k]));
    return 2 * most;
}

static size_t share_bytes(const struct transfer *transfer)
{
    int64_t start, n;
    fl_split(&start, &n, transfer->move->in_numel, transfer->members, transfer->me);
    return aligned((size_t)n * transfer->item);
}

static fl_status take(const struct transfer *transfer, char **data, size_t bytes)
{
    return bytes ? transfer->device->scratch((void **)data, bytes) : FL_OK;
}

static fl_status take_scratch(struct transfer *transfer)
{
    const fl_move *m = transfer->move;
    switch (transfer->method) {
    case METHOD_GATHER:
        return take(transfer, &transfer->received,
                    is_line(&m->pulls, false) ? 0 : (size_t)m->out_numel * transfer->item);
    case METHOD_SCATTER:
        return take(transfer, &transfer->sent, is_line(&m->pushes, true) ? 0 : (size_t)m->in_numel * transfer->item);
    case METHOD_SHARES: return take(transfer, &transfer->received, (size_t)transfer->members * share_bytes(transfer));
    case METHOD_REGIONS:
        FL_TRY(take(transfer, &transfer->sent, all_scratch(transfer, true)));
        FL_TRY(take(transfer, &transfer->received, all_scratch(transfer, false)));
        return take(transfer, &transfer->stage, stage_bytes(transfer));
    default: return FL_OK;
    }
}

static void drop_scratch(struct transfer *transfer)
{
    transfer->device->drop_scratch(transfer->stage);
    transfer->device->drop_scratch(transfer->received);
    transfer->device->drop_scratch(transfer->sent);
    transfer->stage = transfer->received = transfer->sent = NULL;
}

/* ---- regions on the device ---- */

/* A region of the part `in` to one of the part `out`; each lies there as its strides say. */
static fl_status copy(const struct transfer *transfer, char *out, int64_t to, const int64_t *to_stride, const char *in,
                      int64_t from, const int64_t *from_stride, const fl_region *region)
{
    fl_view target = fl_region_view(out, region, to, to_stride, transfer->move->dtype),
            source = fl_region_view(in, region, from, from_stride, transfer->move->dtype);
    return transfer->device->copy_view(&target, &source);
}

static fl_status pack(const struct transfer *transfer, char *packed, const fl_region *region)
{
    int64_t stride[FL_MAX_NDIM];
    fl_region_packed(stride, region);
    return copy(transfer, packed, 0, stride, transfer->in, region->from, region->from_stride, region);
}

static fl_status prefill(const struct transfer *transfer)
{
    int64_t identity, stride = 1;
    const fl_region whole = {.ndim = 1, .size = {transfer->move->out_numel}};
    if (!transfer->move->filled || !transfer->move->out_numel) return FL_OK;
    fl_reduce_identity(&identity, transfer->move->dtype, transfer->move->filled);
    fl_view view = fl_region_view(transfer->out, &whole, 0, &stride, transfer->move->dtype);
    return transfer->device->fill_view(&view, &identity);
}

/* Regions of one place, regions[i] within parts[its peer], put together. */
static fl_status join_regions(const struct transfer *transfer, const fl_region *const *regions, int count,
                              const char *const *parts)
{
    const fl_region *first = regions[0];
    const void *ins[count];
    char *stage = transfer->stage;
    int64_t stride[FL_MAX_NDIM];
    fl_region_packed(stride, first);
    for (int i = 0; i < count; i++) {
        const fl_region *r = regions[i];
        ins[i] = parts[r->peer] + r->from * (int64_t)transfer->item;
        if (fl_region_is_packed(r, r->from_stride)) continue;
        FL_TRY(copy(transfer, stage, 0, stride, parts[r->peer], r->from, r->from_stride, r));
        ins[i] = stage;
        stage += aligned(bytes_of(transfer, r));
    }
    bool direct = fl_region_is_packed(first, first->to_stride);
    char *result = direct ? transfer->out + first->to * (int64_t)transfer->item : stage;
    FL_TRY(transfer->device->comm->combine(result, ins, count, fl_region_numel(first), transfer->move->dtype,
                                           transfer->move->reduce));
    return direct ? FL_OK : copy(transfer, transfer->out, first->to, first->to_stride, result, 0, stride, first);
}

/* Copies the received pulls, and this rank's own, to their places; regions[k] is pull k in its buffer. */
static fl_status deliver(const struct transfer *transfer, fl_region *regions, const char *const *parts)
{
    const fl_region_list *pulls = &transfer->move->pulls, list = {.at = regions, .count = pulls->count};
    for (int k = 0; k < list.count; k++) {
        const fl_region *r = &regions[k], *same[list.count];
        if (r->add) continue;
        int n = fl_region_together(&list, k, same);
        if (n > 1) FL_TRY(join_regions(transfer, same, n, parts));
        else if (r->peer == transfer->me || !receives_directly(transfer, &pulls->at[k]))
            FL_TRY(copy(transfer, transfer->out, r->to, r->to_stride, parts[r->peer], r->from, r->from_stride, r));
    }
    return FL_OK;
}

/* The pulls where they lie when they have been received into scratch. */
static void locate(const struct transfer *transfer, fl_region *regions)
{
    const fl_region_list *pulls = &transfer->move->pulls;
    int64_t used[transfer->members];
    memset(used, 0, sizeof used);
    for (int k = 0; k < pulls->count; k++) {
        fl_region *r = &regions[k];
        *r = pulls->at[k];
        if (r->peer == transfer->me) continue;
        r->from = used[r->peer];
        fl_region_packed(r->from_stride, r);
        used[r->peer] += fl_region_numel(r);
    }
}

/* ---- the ways ---- */

static fl_status go_alone(const struct transfer *transfer)
{
    fl_region regions[transfer->move->pulls.count + 1];
    FL_TRY(prefill(transfer));
    locate(transfer, regions);
    return deliver(transfer, regions, &transfer->in);
}

static fl_status go_gather(const struct transfer *transfer)
{
    const fl_region_list *pulls = &transfer->move->pulls;
    char *received = transfer->received ? transfer->received : transfer->out;
    int64_t n = fl_region_numel(&pulls->at[0]);
    FL_TRY(transfer->device->comm->all_gather(transfer->handle, received, transfer->in, n, transfer->move->dtype));
    for (int i = 0; i < pulls->count && transfer->received; i++) {
        int64_t stride[FL_MAX_NDIM];
        fl_region_packed(stride, &pulls->at[i]);
        FL_TRY(copy(transfer, transfer->out, pulls->at[i].to, pulls->at[i].to_stride, received, i * n, stride,
                    &pulls->at[i]));
    }
    return FL_OK;
}

static fl_status go_scatter(const struct transfer *transfer)
{
    const fl_region_list *pushes = &transfer->move->pushes;
    size_t bytes = bytes_of(transfer, &pushes->at[0]);
    for (int i = 0; i < pushes->count && transfer->sent; i++)
        FL_TRY(pack(transfer, transfer->sent + (size_t)i * bytes, &pushes->at[i]));
    return transfer->device->comm->reduce_scatter(transfer->handle, transfer->out,
                                                  transfer->sent ? transfer->sent : transfer->in,
                                                  fl_region_numel(&pushes->at[0]), transfer->move->dtype,
                                                  transfer->move->reduce);
}

/* The start of member i's share of the elements in a part; returns its bytes. */
static size_t share_of(size_t *start, const struct transfer *transfer, int i)
{
    int64_t first, n;
    fl_split(&first, &n, transfer->move->in_numel, transfer->members, i);
    *start = (size_t)first * transfer->item;
    return (size_t)n * transfer->item;
}

/* Each member sends every other its share, or the result of its own. */
static fl_status exchange_shares(const struct transfer *transfer, bool results)
{
    fl_segment sent[transfer->members], received[transfer->members];
    int sends = 0, receives = 0;
    size_t start, own, mine = share_of(&own, transfer, transfer->me);
    for (int i = 0; i < transfer->members; i++) {
        size_t bytes = share_of(&start, transfer, i);
        if (i == transfer->me) continue;
        if (results ? mine : bytes)
            sent[sends++] = (fl_segment){i, results ? transfer->out + own : (char *)transfer->in + start,
                                         results ? mine : bytes};
        if (results ? bytes : mine)
            received[receives++] = (fl_segment){i,
                                                results ? transfer->out + start
                                                        : transfer->received + (size_t)i * share_bytes(transfer),
                                                results ? bytes : mine};
    }
    return transfer->device->comm->exchange(transfer->handle, sent, sends, received, receives);
}

static fl_status go_shares(const struct transfer *transfer)
{
    const void *ins[transfer->members];
    size_t own, mine = share_of(&own, transfer, transfer->me);
    FL_TRY(exchange_shares(transfer, false));
    for (int i = 0; i < transfer->members; i++)
        ins[i] = i == transfer->me ? transfer->in + own : transfer->received + (size_t)i * share_bytes(transfer);
    if (mine)
        FL_TRY(transfer->device->comm->combine(transfer->out + own, ins, transfer->members,
                                               (int64_t)(mine / transfer->item), transfer->move->dtype,
                                               transfer->move->reduce));
    return exchange_shares(transfer, true);
}

/* The segment that goes to member i: packed at `scratch`, or in place. */
static fl_status address_push(fl_segment *segment, const struct transfer *transfer, int i, char *scratch)
{
    const fl_region_list *pushes = &transfer->move->pushes;
    bool packs = scratch_for(transfer, i, true) > 0;
    *segment = (fl_segment){.peer = i, .data = scratch};
    for (int k = 0; k < pushes->count; k++) {
        const fl_region *r = &pushes->at[k];
        if (r->peer != i) continue;
        if (packs) FL_TRY(pack(transfer, scratch + segment->bytes, r));
        else segment->data = (char *)transfer->in + r->from * (int64_t)transfer->item;
        segment->bytes += bytes_of(transfer, r);
    }
    return FL_OK;
}

static void address_pull(fl_segment *segment, const struct transfer *transfer, int i, char *scratch)
{
    const fl_region_list *pulls = &transfer->move->pulls;
    bool direct = scratch_for(transfer, i, false) == 0;
    *segment = (fl_segment){.peer = i, .data = scratch};
    for (int k = 0; k < pulls->count; k++) {
        const fl_region *r = &pulls->at[k];
        if (r->peer != i) continue;
        if (direct) segment->data = transfer->out + r->to * (int64_t)transfer->item;
        segment->bytes += bytes_of(transfer, r);
    }
}

static fl_status go_regions(const struct transfer *transfer)
{
    fl_segment sent[transfer->members], received[transfer->members];
    const char *parts[transfer->members];
    fl_region regions[transfer->move->pulls.count + 1];
    char *send_at = transfer->sent, *receive_at = transfer->received;
    int sends = 0, receives = 0;
    for (int i = 0; i < transfer->members; i++) {
        parts[i] = i == transfer->me ? transfer->in : receive_at;
        if (i == transfer->me) continue;
        FL_TRY(address_push(&sent[sends], transfer, i, send_at));
        address_pull(&received[receives], transfer, i, receive_at);
        sends += sent[sends].bytes > 0;
        receives += received[receives].bytes > 0;
        send_at += scratch_for(transfer, i, true);
        receive_at += scratch_for(transfer, i, false);
    }
    FL_TRY(prefill(transfer));
    FL_TRY(transfer->device->comm->exchange(transfer->handle, sent, sends, received, receives));
    locate(transfer, regions);
    return deliver(transfer, regions, parts);
}

static fl_status go(const struct transfer *transfer)
{
    const fl_move *m = transfer->move;
    switch (transfer->method) {
    case METHOD_ALONE: return go_alone(transfer);
    case METHOD_REDUCE:
        return m->in_numel ? transfer->device->comm->all_reduce(transfer->handle, transfer->out, transfer->in,
                                                                m->in_numel, m->dtype, m->reduce)
                           : FL_OK;
    case METHOD_SHARES: return go_shares(transfer);
    case METHOD_GATHER: return go_gather(transfer);
    case METHOD_SCATTER: return go_scatter(transfer);
    default: return go_regions(transfer);
    }
}

/* ---- the meeting ---- */

struct meeting {
    fl_group *group;
    fl_entry entry;
    char poison[FL_ERROR_TEXT + 32]; /* whose input is missing and why; "": no input is */
};

static fl_status meet_here(void *context)
{
    struct meeting *at = context;
    char none[1] = {0};
    FL_TRY(fl_group_meet(at->group, &at->entry, none, 0, 0));
    if (fl_group_poison(at->group) != FL_OK) snprintf(at->poison, sizeof at->poison, "%s", fl_message());
    return FL_OK;
}

/* obstacle: FL_OK, or what this rank could not do for the step; all members fail with it, as with a missing input. */
static fl_status meet(struct meeting *at, const fl_move *move, const fl_var *in, fl_status obstacle)
{
    char where[FL_WHERE_TEXT] = "", error[FL_ERROR_TEXT];
    snprintf(error, sizeof error, "%s", obstacle == FL_OK ? "" : fl_message());
    *at = (struct meeting){.group = move->group};
    if (fl_engine_where) fl_engine_where(where, sizeof where);
    fl_progress progress = fl_move_progress(move);
    fl_move_entry(&at->entry, move, where, &progress, in);
    if (obstacle != FL_OK) fl_entry_poison(&at->entry, error);
    return fl_comm_run(move->collective.name, meet_here, at);
}

fl_status fl_move_is_direct(bool *direct, const fl_move *move, const fl_device *device)
{
    static const fl_var clean;
    void *handle;
    struct meeting at;
    *direct = true;
    if (!move->group) return FL_OK;
    FL_TRY(fl_comm_allowed(&move->collective, move->group));
    if (!fl_device_group_known(move->group)) FL_TRY(meet(&at, move, &clean, FL_OK));
    FL_TRY(fl_device_group_get(&handle, move->group, device));
    *direct = handle != NULL;
    return FL_OK;
}

/* ---- one step ---- */

static fl_status run_trip(void *payload)
{
    const struct transfer *t = payload;
    const fl_device_comm *comm = t->device->comm;
    FL_TRY(t->device->enter(t->device->own, t->handle ? FL_QUEUE_COMM : FL_QUEUE_COMPUTE));
    if (!t->handle) return go(t);
    fl_collective collective = t->move->collective;
    if (fl_engine_where) fl_engine_where(collective.where, sizeof collective.where);
    FL_TRY(comm->begin(t->handle, &collective));
    return comm->end(t->handle, go(t));
}

static fl_status push(struct transfer *transfer, fl_move *move, fl_var *out, fl_var *in)
{
    fl_var *reads[] = {in, &move->busy};
    fl_task task = {.name = move->collective.name,
                    .run = run_trip,
                    .payload = transfer,
                    .payload_size = sizeof *transfer,
                    .reads = reads,
                    .writes = &out,
                    .read_count = 2,
                    .write_count = 1,
                    .flags = transfer->handle ? FL_TASK_NO_SKIP : 0,
                    .lane = transfer->device->lane(transfer->device->own,
                                                   transfer->handle ? FL_QUEUE_COMM : FL_QUEUE_COMPUTE)};
    return fl_engine_push(&task);
}

/* Nothing moves: the input of some rank is poisoned, so the output is. */
static void poison_output(const struct meeting *at, fl_var *out, const fl_var *in)
{
    fl_poison *p = fl_poison_late(FL_ERR_STATE, at->entry.collective.name, at->entry.collective.where, at->poison,
                                  fl_poison_of(in));
    fl_poison_put(out, p);
    fl_poison_unref(p);
    fl_var_bump(out);
}

/* The input must have been checked before the meeting. */
static fl_status meet_and_push(struct transfer *transfer, fl_move *move, fl_var *out, fl_var *in)
{
    struct meeting at;
    fl_status status = fl_pending_settle(in);
    if (status == FL_OK) status = transfer->device->enter(transfer->device->own, FL_QUEUE_COMM);
    if (status == FL_OK) status = take_scratch(transfer);
    status = meet(&at, move, in, status);
    if (status == FL_OK && at.poison[0]) poison_output(&at, out, in);
    else if (status == FL_OK) status = push(transfer, move, out, in);
    if (transfer->device->enter(transfer->device->own, FL_QUEUE_COMM) == FL_OK) drop_scratch(transfer);
    return status;
}

fl_status fl_move_push_device(fl_move *move, fl_tensor *out, fl_tensor *in)
{
    struct transfer t = {.move = move,
                         .method = method_of(move),
                         .members = move->group ? move->group->count : 1,
                         .me = move->group ? move->group->me : 0,
                         .item = fl_dtype_size(move->dtype),
                         .out = fl_tensor_data(out),
                         .in = fl_tensor_data(in)};
    FL_TRY(fl_device_get(&t.device, out->storage->device));
    if (!move->group) return push(&t, move, &out->storage->var, &in->storage->var);
    FL_TRY(fl_comm_allowed(&move->collective, move->group));
    FL_TRY(fl_device_group_get(&t.handle, move->group, t.device));
    assert(t.handle);
    fl_move_counted.direct++;
    return meet_and_push(&t, move, &out->storage->var, &in->storage->var);
}

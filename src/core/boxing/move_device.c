/*
** move_device.c -- carrying out a compiled boxing step between devices.
**
** The ranks meet as for every collective (move_host.c), on the communication lane, so that the order of all collectives
** is one; the script waits for that meeting, not for its device. Poison, or a program that differs, ends it there:
** nothing moves. Else the script's thread issues the step to the communication queue of its device and goes on.
** Everything that could fail on one rank alone is done before the meeting.
**
** What a member takes of this rank's part and what this one gets is packed by the device where it does not lie
** together. Sums are left to the library; regions of an exchange that add, and maxima and minima of floats, in which a
** NaN must win, are put together here, in the order of the ranks, as on the CPU.
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
typedef struct transfer {
    const fl_move *move;
    const fl_device *device;
    void *handle;
    method method;
    int members, me;
    size_t item;
    char *out;
    const char *in;
    char *sent, *received, *stage; /* owned scratch; NULL: not needed */
} transfer;

/* ---- which method ---- */

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

/* ---- what lies together ---- */

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static size_t bytes_of(const transfer *t, const fl_region *region) { return (size_t)fl_region_numel(region) * t->item; }

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
static bool sends_directly(const transfer *t, const fl_region *region)
{
    return count_of(&t->move->pushes, region->peer) == 1 && fl_region_is_packed(region, region->from_stride);
}

/* True if the region is all that comes from its member, in one piece, and is not added to anything. */
static bool receives_directly(const transfer *t, const fl_region *region)
{
    const fl_region_list *list = &t->move->pulls;
    const fl_region *same[list->count];
    if (region->add || count_of(list, region->peer) != 1 || !fl_region_is_packed(region, region->to_stride))
        return false;
    return fl_region_together(list, (int)(region - list->at), same) == 1;
}

/* Bytes in scratch for what goes to (or comes from) one member; 0: it needs none. */
static size_t scratch_for(const transfer *t, int peer, bool pushes)
{
    const fl_region_list *list = pushes ? &t->move->pushes : &t->move->pulls;
    size_t bytes = 0;
    if (peer == t->me) return 0;
    for (int k = 0; k < list->count; k++) {
        const fl_region *r = &list->at[k];
        if (r->peer != peer) continue;
        if (pushes ? sends_directly(t, r) : receives_directly(t, r)) return 0;
        bytes += bytes_of(t, r);
    }
    return aligned(bytes);
}

/* ---- scratch ---- */

static size_t all_scratch(const transfer *t, bool pushes)
{
    size_t bytes = 0;
    for (int i = 0; i < t->members; i++) bytes += scratch_for(t, i, pushes);
    return bytes;
}

/* This rank's region where several join, and what they give, when these do not lie together. */
static size_t stage_bytes(const transfer *t)
{
    size_t most = 0;
    for (int k = 0; k < t->move->pulls.count; k++)
        if (t->move->pulls.at[k].add && aligned(bytes_of(t, &t->move->pulls.at[k])) > most)
            most = aligned(bytes_of(t, &t->move->pulls.at[k]));
    return 2 * most;
}

static size_t share_bytes(const transfer *t)
{
    int64_t start, n;
    fl_split(&start, &n, t->move->in_numel, t->members, t->me);
    return aligned((size_t)n * t->item);
}

static fl_status take(const transfer *t, char **data, size_t bytes)
{
    return bytes ? t->device->scratch((void **)data, bytes) : FL_OK;
}

static fl_status take_scratch(transfer *t)
{
    const fl_move *m = t->move;
    switch (t->method) {
    case METHOD_GATHER: return take(t, &t->received, is_line(&m->pulls, false) ? 0 : (size_t)m->out_numel * t->item);
    case METHOD_SCATTER: return take(t, &t->sent, is_line(&m->pushes, true) ? 0 : (size_t)m->in_numel * t->item);
    case METHOD_SHARES: return take(t, &t->received, (size_t)t->members * share_bytes(t));
    case METHOD_REGIONS:
        FL_TRY(take(t, &t->sent, all_scratch(t, true)));
        FL_TRY(take(t, &t->received, all_scratch(t, false)));
        return take(t, &t->stage, stage_bytes(t));
    default: return FL_OK;
    }
}

static void drop_scratch(transfer *t)
{
    t->device->drop_scratch(t->stage);
    t->device->drop_scratch(t->received);
    t->device->drop_scratch(t->sent);
    t->stage = t->received = t->sent = NULL;
}

/* ---- regions on the device ---- */

/* A region of the part `in` to one of the part `out`; each lies there as its strides say. */
static fl_status copy(const transfer *t, char *out, int64_t to, const int64_t *to_stride, const char *in, int64_t from,
                      const int64_t *from_stride, const fl_region *region)
{
    fl_view target = fl_region_view(out, region, to, to_stride, t->move->dtype),
            source = fl_region_view(in, region, from, from_stride, t->move->dtype);
    return t->device->copy_view(&target, &source);
}

static fl_status pack(const transfer *t, char *packed, const fl_region *region)
{
    int64_t stride[FL_MAX_NDIM];
    fl_region_packed(stride, region);
    return copy(t, packed, 0, stride, t->in, region->from, region->from_stride, region);
}

static fl_status prefill(const transfer *t)
{
    int64_t identity, stride = 1;
    const fl_region whole = {.ndim = 1, .size = {t->move->out_numel}};
    if (!t->move->filled || !t->move->out_numel) return FL_OK;
    fl_reduce_identity(&identity, t->move->dtype, t->move->filled);
    fl_view view = fl_region_view(t->out, &whole, 0, &stride, t->move->dtype);
    return t->device->fill_view(&view, &identity);
}

/* Regions of one place, regions[i] within parts[its peer], put together. */
static fl_status join_regions(const transfer *t, const fl_region *const *regions, int count, const char *const *parts)
{
    const fl_region *first = regions[0];
    const void *ins[count];
    char *stage = t->stage;
    int64_t stride[FL_MAX_NDIM];
    fl_region_packed(stride, first);
    for (int i = 0; i < count; i++) {
        const fl_region *r = regions[i];
        ins[i] = parts[r->peer] + r->from * (int64_t)t->item;
        if (fl_region_is_packed(r, r->from_stride)) continue;
        FL_TRY(copy(t, stage, 0, stride, parts[r->peer], r->from, r->from_stride, r));
        ins[i] = stage;
        stage += aligned(bytes_of(t, r));
    }
    bool direct = fl_region_is_packed(first, first->to_stride);
    char *result = direct ? t->out + first->to * (int64_t)t->item : stage;
    FL_TRY(t->device->comm->combine(result, ins, count, fl_region_numel(first), t->move->dtype, t->move->reduce));
    return direct ? FL_OK : copy(t, t->out, first->to, first->to_stride, result, 0, stride, first);
}

/* What was received, and this rank's own, to where it belongs; regions[k] is pull k where it lies now. */
static fl_status deliver(const transfer *t, fl_region *regions, const char *const *parts)
{
    const fl_region_list *pulls = &t->move->pulls, list = {.at = regions, .count = pulls->count};
    for (int k = 0; k < list.count; k++) {
        const fl_region *r = &regions[k], *same[list.count];
        if (r->add) continue;
        int n = fl_region_together(&list, k, same);
        if (n > 1) FL_TRY(join_regions(t, same, n, parts));
        else if (r->peer == t->me || !receives_directly(t, &pulls->at[k]))
            FL_TRY(copy(t, t->out, r->to, r->to_stride, parts[r->peer], r->from, r->from_stride, r));
    }
    return FL_OK;
}

/* The pulls where they lie when they have been received into scratch. */
static void locate(const transfer *t, fl_region *regions)
{
    const fl_region_list *pulls = &t->move->pulls;
    int64_t used[t->members];
    memset(used, 0, sizeof used);
    for (int k = 0; k < pulls->count; k++) {
        fl_region *r = &regions[k];
        *r = pulls->at[k];
        if (r->peer == t->me) continue;
        r->from = used[r->peer];
        fl_region_packed(r->from_stride, r);
        used[r->peer] += fl_region_numel(r);
    }
}

/* ---- the ways ---- */

static fl_status go_alone(const transfer *t)
{
    fl_region regions[t->move->pulls.count + 1];
    FL_TRY(prefill(t));
    locate(t, regions);
    return deliver(t, regions, &t->in);
}

static fl_status go_gather(const transfer *t)
{
    const fl_region_list *pulls = &t->move->pulls;
    char *received = t->received ? t->received : t->out;
    int64_t n = fl_region_numel(&pulls->at[0]);
    FL_TRY(t->device->comm->all_gather(t->handle, received, t->in, n, t->move->dtype));
    for (int i = 0; i < pulls->count && t->received; i++) {
        int64_t stride[FL_MAX_NDIM];
        fl_region_packed(stride, &pulls->at[i]);
        FL_TRY(copy(t, t->out, pulls->at[i].to, pulls->at[i].to_stride, received, i * n, stride, &pulls->at[i]));
    }
    return FL_OK;
}

static fl_status go_scatter(const transfer *t)
{
    const fl_region_list *pushes = &t->move->pushes;
    size_t bytes = bytes_of(t, &pushes->at[0]);
    for (int i = 0; i < pushes->count && t->sent; i++) FL_TRY(pack(t, t->sent + (size_t)i * bytes, &pushes->at[i]));
    return t->device->comm->reduce_scatter(t->handle, t->out, t->sent ? t->sent : t->in,
                                           fl_region_numel(&pushes->at[0]), t->move->dtype, t->move->reduce);
}

/* Where member i's share of the elements lies in a part; its bytes. */
static size_t share_of(size_t *start, const transfer *t, int i)
{
    int64_t first, n;
    fl_split(&first, &n, t->move->in_numel, t->members, i);
    *start = (size_t)first * t->item;
    return (size_t)n * t->item;
}

/* Each member sends every other its share, or the result of its own. */
static fl_status exchange_shares(const transfer *t, bool results)
{
    fl_segment sent[t->members], received[t->members];
    int sends = 0, receives = 0;
    size_t start, own, mine = share_of(&own, t, t->me);
    for (int i = 0; i < t->members; i++) {
        size_t bytes = share_of(&start, t, i);
        if (i == t->me) continue;
        if (results ? mine : bytes)
            sent[sends++] = (fl_segment){i, results ? t->out + own : (char *)t->in + start, results ? mine : bytes};
        if (results ? bytes : mine)
            received[receives++] = (fl_segment){i, results ? t->out + start : t->received + (size_t)i * share_bytes(t),
                                                results ? bytes : mine};
    }
    return t->device->comm->exchange(t->handle, sent, sends, received, receives);
}

static fl_status go_shares(const transfer *t)
{
    const void *ins[t->members];
    size_t own, mine = share_of(&own, t, t->me);
    FL_TRY(exchange_shares(t, false));
    for (int i = 0; i < t->members; i++) ins[i] = i == t->me ? t->in + own : t->received + (size_t)i * share_bytes(t);
    if (mine)
        FL_TRY(t->device->comm->combine(t->out + own, ins, t->members, (int64_t)(mine / t->item), t->move->dtype,
                                        t->move->reduce));
    return exchange_shares(t, true);
}

/* What goes to member i: packed at `scratch`, or where it lies. */
static fl_status address_push(fl_segment *segment, const transfer *t, int i, char *scratch)
{
    const fl_region_list *pushes = &t->move->pushes;
    bool packs = scratch_for(t, i, true) > 0;
    *segment = (fl_segment){.peer = i, .data = scratch};
    for (int k = 0; k < pushes->count; k++) {
        const fl_region *r = &pushes->at[k];
        if (r->peer != i) continue;
        if (packs) FL_TRY(pack(t, scratch + segment->bytes, r));
        else segment->data = (char *)t->in + r->from * (int64_t)t->item;
        segment->bytes += bytes_of(t, r);
    }
    return FL_OK;
}

static void address_pull(fl_segment *segment, const transfer *t, int i, char *scratch)
{
    const fl_region_list *pulls = &t->move->pulls;
    bool direct = scratch_for(t, i, false) == 0;
    *segment = (fl_segment){.peer = i, .data = scratch};
    for (int k = 0; k < pulls->count; k++) {
        const fl_region *r = &pulls->at[k];
        if (r->peer != i) continue;
        if (direct) segment->data = t->out + r->to * (int64_t)t->item;
        segment->bytes += bytes_of(t, r);
    }
}

static fl_status go_regions(const transfer *t)
{
    fl_segment sent[t->members], received[t->members];
    const char *parts[t->members];
    fl_region regions[t->move->pulls.count + 1];
    char *send_at = t->sent, *receive_at = t->received;
    int sends = 0, receives = 0;
    for (int i = 0; i < t->members; i++) {
        parts[i] = i == t->me ? t->in : receive_at;
        if (i == t->me) continue;
        FL_TRY(address_push(&sent[sends], t, i, send_at));
        address_pull(&received[receives], t, i, receive_at);
        sends += sent[sends].bytes > 0;
        receives += received[receives].bytes > 0;
        send_at += scratch_for(t, i, true);
        receive_at += scratch_for(t, i, false);
    }
    FL_TRY(prefill(t));
    FL_TRY(t->device->comm->exchange(t->handle, sent, sends, received, receives));
    locate(t, regions);
    return deliver(t, regions, parts);
}

static fl_status go(const transfer *t)
{
    const fl_move *m = t->move;
    switch (t->method) {
    case METHOD_ALONE: return go_alone(t);
    case METHOD_REDUCE:
        return m->in_numel ? t->device->comm->all_reduce(t->handle, t->out, t->in, m->in_numel, m->dtype, m->reduce)
                           : FL_OK;
    case METHOD_SHARES: return go_shares(t);
    case METHOD_GATHER: return go_gather(t);
    case METHOD_SCATTER: return go_scatter(t);
    default: return go_regions(t);
    }
}

/* ---- the meeting ---- */

typedef struct meeting {
    fl_group *group;
    fl_entry entry;
    char poison[FL_ERROR_TEXT + 32]; /* whose input is missing and why; "": no input is */
} meeting;

static fl_status meet_here(void *context)
{
    meeting *at = context;
    char none[1] = {0};
    FL_TRY(fl_group_meet(at->group, &at->entry, none, 0, 0));
    if (fl_group_poison(at->group) != FL_OK) snprintf(at->poison, sizeof at->poison, "%s", fl_message());
    return FL_OK;
}

/* obstacle: FL_OK, or what this rank could not do for the step; all members fail with it, as with a missing input. */
static fl_status meet(meeting *at, const fl_move *move, const fl_var *in, fl_status obstacle)
{
    char where[FL_WHERE_TEXT] = "", error[FL_ERROR_TEXT];
    snprintf(error, sizeof error, "%s", obstacle == FL_OK ? "" : fl_message());
    *at = (meeting){.group = move->group};
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
    meeting at;
    *direct = true;
    if (!move->group) return FL_OK;
    FL_TRY(fl_comm_allowed(&move->collective));
    if (!fl_device_group_known(move->group)) FL_TRY(meet(&at, move, &clean, FL_OK));
    FL_TRY(fl_device_group_get(&handle, move->group, device));
    *direct = handle != NULL;
    return FL_OK;
}

/* ---- one step ---- */

static fl_status run_trip(void *payload)
{
    const transfer *t = payload;
    const fl_device_comm *comm = t->device->comm;
    FL_TRY(t->device->enter(t->device->own, t->handle ? FL_QUEUE_COMM : FL_QUEUE_COMPUTE));
    if (!t->handle) return go(t);
    fl_collective collective = t->move->collective;
    if (fl_engine_where) fl_engine_where(collective.where, sizeof collective.where);
    FL_TRY(comm->begin(t->handle, &collective));
    return comm->end(t->handle, go(t));
}

static fl_status push(transfer *t, fl_move *move, fl_var *out, fl_var *in)
{
    fl_var *reads[] = {in, &move->busy};
    fl_task task = {.name = move->collective.name,
                    .run = run_trip,
                    .payload = t,
                    .payload_size = sizeof *t,
                    .reads = reads,
                    .writes = &out,
                    .read_count = 2,
                    .write_count = 1,
                    .flags = t->handle ? FL_TASK_NO_SKIP : 0,
                    .lane = t->device->lane(t->device->own, t->handle ? FL_QUEUE_COMM : FL_QUEUE_COMPUTE)};
    return fl_engine_push(&task);
}

/* Nothing moves: the output is missing as the input of some rank was. */
static void spoil(const meeting *at, fl_var *out, const fl_var *in)
{
    fl_poison *p = fl_poison_late(FL_ERR_STATE, at->entry.collective.name, at->entry.collective.where, at->poison,
                                  fl_poison_of(in));
    fl_poison_put(out, p);
    fl_poison_unref(p);
    fl_var_bump(out);
}

/* Whether the input is there must be certain before the meeting. */
static fl_status meet_and_push(transfer *t, fl_move *move, fl_var *out, fl_var *in)
{
    meeting at;
    fl_status status = fl_pending_settle(in);
    if (status == FL_OK) status = t->device->enter(t->device->own, FL_QUEUE_COMM);
    if (status == FL_OK) status = take_scratch(t);
    status = meet(&at, move, in, status);
    if (status == FL_OK && at.poison[0]) spoil(&at, out, in);
    else if (status == FL_OK) status = push(t, move, out, in);
    if (t->device->enter(t->device->own, FL_QUEUE_COMM) == FL_OK) drop_scratch(t);
    return status;
}

fl_status fl_move_push_device(fl_move *move, fl_tensor *out, fl_tensor *in)
{
    transfer t = {.move = move,
                  .method = method_of(move),
                  .members = move->group ? move->group->count : 1,
                  .me = move->group ? move->group->me : 0,
                  .item = fl_dtype_size(move->dtype),
                  .out = fl_tensor_data(out),
                  .in = fl_tensor_data(in)};
    FL_TRY(fl_device_get(&t.device, out->storage->device));
    if (!move->group) return push(&t, move, &out->storage->var, &in->storage->var);
    FL_TRY(fl_comm_allowed(&move->collective));
    FL_TRY(fl_device_group_get(&t.handle, move->group, t.device));
    assert(t.handle);
    fl_move_counted.direct++;
    return meet_and_push(&t, move, &out->storage->var, &in->storage->var);
}

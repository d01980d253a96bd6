/*
** stream.c -- queues of a device as lanes.
**
** The pusher issues ops to a stream at once; they complete later and in order. An event is reached when everything
** issued before it is complete. Events are recorded only on demand (another stream, a wait of the host), so ops
** that follow one another in one stream cost none.
*/
#define _GNU_SOURCE
#include "engine_internal.h"

#include <assert.h>
#include <stdlib.h>

int64_t fl_stream_follows;

/* The ring's slot of event number i, counted from the oldest. */
static int slot_of(const fl_stream *stream, int i) { return (stream->first + i) % FL_STREAM_EVENTS; }

/* Ops that lie before an event recorded now: not the one that is being issued, which may wait for earlier ones
** meanwhile. */
static uint64_t issued_so_far(const fl_lane *lane)
{
    return lane->stream->issuing ? lane->stream->issuing - 1 : lane->pushed;
}

/* An event that is dropped for room is covered by the newer ones. */
fl_status fl_stream_event(int *event, fl_lane *lane, uint64_t seq)
{
    fl_stream *s = lane->stream;
    assert(seq <= issued_so_far(lane));
    for (int i = 0; i < s->count; i++)
        if (s->covers[slot_of(s, i)] >= seq) {
            *event = slot_of(s, i);
            return FL_OK;
        }
    if (s->count == FL_STREAM_EVENTS) {
        s->first = slot_of(s, 1);
        s->count--;
    }
    int fresh = slot_of(s, s->count);
    FL_TRY(s->ops->record(s->handle, fresh));
    s->covers[fresh] = issued_so_far(lane);
    s->count++;
    *event = fresh;
    return FL_OK;
}

bool fl_stream_reached(fl_lane *lane, uint64_t seq)
{
    fl_stream *s = lane->stream;
    int event;
    if (fl_stream_event(&event, lane, seq) != FL_OK) return true; /* the device has failed: no wait for it */
    if (!s->ops->reached(s->handle, event)) return false;
    lane->seen = lane->done = s->covers[event];
    while (s->count && s->covers[s->first] <= lane->done) {
        s->first = slot_of(s, 1);
        s->count--;
    }
    return true;
}

fl_status fl_stream_follow(fl_lane *lane, fl_lane *other, uint64_t seq)
{
    int event, from = (int)(other - fl_lanes);
    assert(lane->stream && other->stream);
    if (lane->stream->followed[from] >= seq || other->seen >= seq) return FL_OK;
    FL_TRY(fl_stream_event(&event, other, seq));
    FL_TRY(lane->stream->ops->follow(lane->stream->handle, other->stream->handle, event));
    lane->stream->followed[from] = other->stream->covers[event];
    fl_stream_follows++;
    return FL_OK;
}

/* ---- times for the trace ---- */

static fl_timed *timed_at(const fl_stream *stream, uint64_t n) { return &stream->timed[n % FL_STREAM_TIMES]; }

void fl_stream_times(fl_lane *lane)
{
    fl_stream *s = lane->stream;
    for (; s->timed_first < s->timed_next; s->timed_first++) {
        const fl_timed *op = timed_at(s, s->timed_first);
        uint64_t started, ended;
        if (op->seq > lane->seen) return;
        if (!s->ops->times(s->handle, (int)(s->timed_first % FL_STREAM_TIMES), &started, &ended)) continue;
        fl_profile_add(op->name, op->line, (int)(lane - fl_lanes), op->pushed < started ? op->pushed : started, started,
                       ended);
    }
}

/* A slot for one more: the oldest op is waited for when there is none. */
static fl_status room_for_timed(fl_lane *lane)
{
    fl_stream *s = lane->stream;
    if (!s->timed) s->timed = calloc(FL_STREAM_TIMES, sizeof *s->timed);
    if (!s->timed) return fl_fail(FL_ERR_MEMORY, "profile: out of memory for lane '%s'", lane->name);
    if (s->timed_next - s->timed_first < FL_STREAM_TIMES) return FL_OK;
    FL_TRY(fl_engine_wait_stamp((fl_stamp)(lane - fl_lanes) << 56 | timed_at(s, s->timed_first)->seq, true));
    fl_stream_times(lane);
    return FL_OK;
}

fl_status fl_stream_time_begin(fl_lane *lane, const char *name)
{
    fl_stream *s = lane->stream;
    if (!s->ops->time) return FL_OK;
    FL_TRY(room_for_timed(lane));
    fl_timed *op = timed_at(s, s->timed_next);
    op->name = name;
    op->seq = lane->pushed;
    op->pushed = fl_now();
    fl_line_now(op->line);
    return s->ops->time(s->handle, (int)(s->timed_next % FL_STREAM_TIMES), false);
}

fl_status fl_stream_time_end(fl_lane *lane)
{
    fl_stream *s = lane->stream;
    if (!s->ops->time) return FL_OK;
    FL_TRY(s->ops->time(s->handle, (int)(s->timed_next % FL_STREAM_TIMES), true));
    s->timed_next++;
    return FL_OK;
}

fl_status fl_engine_stream_new(int *lane, const char *name, void *handle, const fl_stream_ops *ops)
{
    fl_stream *s = calloc(1, sizeof *s);
    if (!s) return fl_fail(FL_ERR_MEMORY, "engine: out of memory for lane '%s'", name);
    fl_status status = fl_engine_lane_new(lane, name, 0, false);
    if (status != FL_OK) {
        free(s);
        return status;
    }
    s->handle = handle;
    s->ops = ops;
    fl_lanes[*lane].stream = s;
    return FL_OK;
}

/*
** message.c -- messages from one rank to another: see message.h.
**
** The transport moves a message in pieces that do not wait (comm.h): an envelope with the head, then the body. One lane
** sends and receives, so the pieces of a message follow one another. An error while a piece is under way leaves it to
** the transport, and the ranks can exchange no more messages.
*/
#define _GNU_SOURCE
#include "message.h"
#include "base/clock.h"
#include "comm.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "engine/loss.h"
#include "file/mapping.h"
#include "journal.h"
#include "shared.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BODY_PIECE = 64 << 20 };

struct envelope {
    uint32_t head_bytes, failed; /* failed: the head of an answer is an error */
    uint64_t body_bytes;
    char head[FL_MESSAGE_HEAD];
};
enum { ENVELOPE_BYTES = offsetof(struct envelope, head) };

static bool broken; /* communication lane; a piece was left under way */

/* ---- pieces ---- */

static bool is_missing(const fl_group *group, int i) { return true; }

static fl_status usable(const char *name)
{
    return broken ? fl_fail(FL_ERR_COMM, "%s: an earlier message did not get through; no more can be sent", name)
                  : FL_OK;
}

/* Until the transport is through with a piece; `wait` is for the rank at its other end. */
static fl_status finish_piece(void *request, fl_wait *wait)
{
    bool done = false;
    for (;;) {
        FL_TRY(fl_comm_get()->test(&done, &request));
        if (done) return FL_OK;
        fl_status status = fl_wait_step(wait);
        if (status == FL_OK) continue;
        broken = true;
        fl_comm_get()->drop(&request);
        return status;
    }
}

static fl_status send_piece(int to, const void *data, size_t bytes, fl_wait *wait)
{
    void *request;
    FL_TRY(fl_comm_get()->send(&request, to, data, bytes));
    return finish_piece(request, wait);
}

static fl_status receive_piece(int from, void *data, size_t bytes, fl_wait *wait)
{
    void *request;
    FL_TRY(fl_comm_get()->receive(&request, from, data, bytes));
    return finish_piece(request, wait);
}

static fl_status move_body(fl_status (*move)(int peer, void *data, size_t bytes, fl_wait *wait), int peer, char *data,
                           uint64_t bytes, fl_wait *wait)
{
    for (uint64_t at = 0; at < bytes; at += BODY_PIECE)
        FL_TRY(move(peer, data + at, bytes - at < BODY_PIECE ? (size_t)(bytes - at) : (size_t)BODY_PIECE, wait));
    return FL_OK;
}

static fl_status send_body_piece(int to, void *data, size_t bytes, fl_wait *wait)
{
    return send_piece(to, data, bytes, wait);
}

/* ---- one message on the lane ---- */

/* The request and the answer of a task. The envelope, of which only the used bytes are copied, comes last. */
struct job {
    fl_group *peer; /* the other rank alone */
    fl_collective site;
    char *body, *out;
    const fl_var *body_var;
    uint64_t out_bytes;
    bool answered;
    char **answer; /* receives the head of the answer, or NULL */
    size_t *answer_bytes;
    struct envelope envelope;
};

static fl_wait wait_of(const struct job *job)
{
    return (fl_wait){.group = job->peer, .flags = FL_WAIT_PEER, .collective = &job->site, .missing = is_missing};
}

static fl_status receive_envelope(struct envelope *out, int from, fl_wait *wait)
{
    size_t bytes = 0;
    for (bool found = false; !found;) {
        FL_TRY(fl_comm_get()->find(&from, &bytes, &found));
        if (!found) FL_TRY(fl_wait_step(wait));
    }
    if (bytes < ENVELOPE_BYTES || bytes > sizeof *out)
        return fl_fail(FL_ERR_COMM, "rank %d runs another version of flowlua", from);
    return receive_piece(from, out, bytes, wait);
}

static fl_status keep_answer(const struct job *job, const struct envelope *answer)
{
    char *copy = malloc(answer->head_bytes + 1);
    if (!copy) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", job->site.name);
    memcpy(copy, answer->head, answer->head_bytes);
    copy[answer->head_bytes] = 0;
    *job->answer = copy;
    *job->answer_bytes = answer->head_bytes;
    return FL_OK;
}

static fl_status take_answer(const struct job *job)
{
    struct envelope answer;
    int from = job->peer->ranks[0];
    fl_wait wait = wait_of(job);
    FL_TRY(receive_envelope(&answer, from, &wait));
    if (answer.failed) return fl_fail(FL_ERR_COMM, "%.*s", (int)answer.head_bytes, answer.head);
    if (answer.body_bytes != job->out_bytes)
        return fl_fail(FL_ERR_COMM, "%s: rank %d answers with %llu bytes, %llu were expected", job->site.name, from,
                       (unsigned long long)answer.body_bytes, (unsigned long long)job->out_bytes);
    FL_TRY(move_body(receive_piece, from, job->out, answer.body_bytes, &wait));
    return job->answer ? keep_answer(job, &answer) : FL_OK;
}

static fl_status send_message(struct job *job, char *body, fl_wait *wait)
{
    int to = job->peer->ranks[0];
    FL_TRY(send_piece(to, &job->envelope, ENVELOPE_BYTES + job->envelope.head_bytes, wait));
    return move_body(send_body_piece, to, body, job->envelope.body_bytes, wait);
}

/* A body whose file may be cut while it is sent is copied first: nothing is sent where a part is lost. */
static fl_status send_copied(struct job *job, fl_wait *wait)
{
    char *copy = malloc(job->envelope.body_bytes + 1);
    if (!copy) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", job->site.name);
    memcpy(copy, job->body, job->envelope.body_bytes);
    fl_status status = fl_loss_check(job->body_var);
    if (status == FL_OK) status = send_message(job, copy, wait);
    if (!broken) free(copy); /* else the transport may read it still */
    return status;
}

static fl_status run_job(void *payload)
{
    struct job *job = payload;
    fl_wait wait = wait_of(job);
    FL_TRY(usable(job->site.name));
    FL_TRY(fl_mapping_is_watched(job->body) ? send_copied(job, &wait) : send_message(job, job->body, &wait));
    return job->answered ? take_answer(job) : FL_OK;
}

/* ---- tasks of the script's thread ---- */

static uint64_t bytes_of(const fl_tensor *tensor)
{
    return (uint64_t)tensor->meta->local_numel * fl_dtype_size(tensor->meta->dtype);
}

static fl_status check_tensor(const char *name, const fl_tensor *tensor)
{
    if (!tensor || (tensor->meta->is_local && tensor->contiguous && tensor->storage->device == FL_CPU)) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: a message takes a contiguous tensor on the CPU", name);
}

static fl_status job_open(struct job *job, const fl_outgoing *message, fl_tensor *out)
{
    if (!fl_comm_get() || fl_comm_refusal)
        return fl_fail(FL_ERR_COMM, "%s: there are no other ranks here to send messages to", message->name);
    FL_TRY(check_tensor(message->name, message->body));
    FL_TRY(check_tensor(message->name, out));
    if (message->head_bytes > FL_MESSAGE_HEAD)
        return fl_fail(FL_ERR_VALUE, "%s: a message begins with %d bytes at most, not %zu", message->name,
                       FL_MESSAGE_HEAD, message->head_bytes);
    memset(job, 0, offsetof(struct job, envelope));
    FL_TRY(fl_group_get(&job->peer, &message->to, 1));
    snprintf(job->site.name, sizeof job->site.name, "%s", message->name);
    job->site.shape.ndim = -1;
    if (fl_engine_where) fl_engine_where(job->site.where, FL_WHERE_TEXT);
    job->envelope.head_bytes = (uint32_t)message->head_bytes;
    job->envelope.failed = 0;
    job->envelope.body_bytes = message->body ? bytes_of(message->body) : 0;
    if (message->head_bytes) memcpy(job->envelope.head, message->head, message->head_bytes);
    if (message->body && !(job->body = fl_tensor_data(message->body))) return fl_tensor_wait(message->body);
    if (message->body) job->body_var = &message->body->storage->var;
    job->out_bytes = out ? bytes_of(out) : 0;
    if (out && !(job->out = fl_tensor_data(out))) return fl_tensor_wait(out);
    return FL_OK;
}

static fl_status push(const struct job *job, const char *name, fl_tensor *body, fl_tensor *out)
{
    fl_var *reads[] = {body ? &body->storage->var : NULL}, *writes[] = {out ? &out->storage->var : NULL};
    fl_task task = {.name = name,
                    .run = run_job,
                    .payload = job,
                    .payload_size = offsetof(struct job, envelope) + ENVELOPE_BYTES + job->envelope.head_bytes,
                    .reads = reads,
                    .writes = writes,
                    .read_count = body != NULL,
                    .write_count = out != NULL,
                    .lane = FL_LANE_COMM};
    return fl_engine_push(&task);
}

fl_status fl_message_send(const fl_outgoing *message)
{
    struct job job;
    FL_TRY(job_open(&job, message, NULL));
    return push(&job, message->name, message->body, NULL);
}

fl_status fl_message_fetch(const fl_outgoing *message, fl_tensor *out)
{
    struct job job;
    FL_TRY(job_open(&job, message, out));
    job.answered = true;
    return push(&job, message->name, message->body, out);
}

fl_status fl_message_ask(char **answer, size_t *bytes, const fl_outgoing *message)
{
    struct job job;
    FL_TRY(job_open(&job, message, NULL));
    if (message->body) FL_TRY(fl_tensor_wait(message->body));
    job.answered = true;
    job.answer = answer;
    job.answer_bytes = bytes;
    return fl_comm_run(message->name, run_job, &job);
}

fl_status fl_message_answer(const fl_outgoing *answer, bool failed)
{
    struct job job;
    FL_TRY(job_open(&job, answer, NULL));
    job.envelope.failed = failed;
    return push(&job, answer->name, answer->body, NULL);
}

/* ---- ranks that serve ---- */

enum { YIELDS = 500, BACK_OFF_US = 100 };

/* A rank that waits for this one goes on waiting while any other rank works. */
static void show_progress(void)
{
    static uint64_t before;
    uint64_t sum = 0;
    for (int r = 0; r < fl_world_get()->started; r++) {
        const fl_journal *j = r == fl_world_get()->rank ? NULL : fl_journal_of(r);
        if (j) sum += j->ops + j->meetings;
    }
    fl_journal_own->meetings += sum != before;
    before = sum;
}

struct next_job {
    fl_incoming *out;
    double seconds;
};

static fl_status take_next(void *context)
{
    struct next_job *job = context;
    struct envelope envelope;
    uint64_t end = fl_now() + (uint64_t)(job->seconds * 1e9);
    size_t bytes = 0;
    bool found = false;
    int from = -1;
    job->out->from = -1;
    for (int looks = 0;; looks++) {
        FL_TRY(fl_comm_get()->find(&from, &bytes, &found));
        if (found) break;
        if (fl_now() > end) return FL_OK;
        if (looks < YIELDS) sched_yield();
        else usleep(BACK_OFF_US);
    }
    fl_group peer = {.count = 1};
    struct job receive = {.peer = &peer, .site = {.name = "message", .shape = {.ndim = -1}}};
    fl_wait wait = {.group = &peer, .flags = FL_WAIT_PEER, .collective = &receive.site};
    FL_TRY(receive_envelope(&envelope, from, &wait));
    job->out->from = from;
    job->out->head_bytes = envelope.head_bytes;
    job->out->body_bytes = envelope.body_bytes;
    memcpy(job->out->head, envelope.head, envelope.head_bytes);
    return FL_OK;
}

fl_status fl_message_next(fl_incoming *message, double seconds)
{
    struct next_job job = {message, seconds};
    if (!fl_comm_get()) return fl_fail(FL_ERR_COMM, "message: there are no other ranks");
    show_progress();
    return fl_comm_run("message", take_next, &job);
}

static fl_status read_body(void *context)
{
    struct job *job = context;
    fl_wait wait = wait_of(job);
    return move_body(receive_piece, job->peer->ranks[0], job->out, job->out_bytes, &wait);
}

fl_status fl_message_read(int from, fl_tensor *out)
{
    struct job job;
    fl_outgoing message = {.name = "message", .to = from};
    FL_TRY(job_open(&job, &message, out));
    fl_engine_wait_idle(&out->storage->var);
    return fl_comm_run(message.name, read_body, &job);
}

fl_peer_state fl_message_peer(int rank)
{
    const fl_journal *j = fl_journal_of(rank);
    if (!j) return FL_PEER_RUNS;
    if (__atomic_load_n(&j->state, __ATOMIC_ACQUIRE) == FL_RANK_ENDED) return FL_PEER_ENDED;
    return fl_rank_is_dead(rank) ? FL_PEER_DIED : FL_PEER_RUNS;
}

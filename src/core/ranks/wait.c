/*
** wait.c -- waiting for other ranks: pauses, the time-out, members that have ended, died or failed.
**
** Every transport waits by fl_wait_step, so that how a wait ends, and how its error is worded, is decided here alone.
*/
#define _GNU_SOURCE
#include "wait.h"
#include "base/clock.h"
#include "base/locale.h"
#include "deadlock.h"
#include "journal.h"
#include "shared.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int fl_comm_host_ranks = 1;
bool (*fl_comm_stopping)(void);
bool fl_comm_peer_gone;

enum { SPINS = 4000, YIELDS = 20000, LOOK_EVERY = 64, GRACE_SECONDS = 3, LOOK_NS = 5000000, IDLE_LOOK_NS = 200000000 };

/* FLOW_TIMEOUT in seconds, 300 unless set. */
static double timeout_seconds(void)
{
    static double seconds;
    if (seconds > 0) return seconds;
    const char *text = getenv("FLOW_TIMEOUT");
    char *end;
    double given = text && *text ? fl_plain_number(text, &end) : 0;
    if (text && *text && (*end || !(given > 0))) {
        if (fl_world_get()->rank == 0) fl_warn("FLOW_TIMEOUT=%s is no number of seconds above 0; using 300", text);
        given = 0;
    }
    return seconds = given > 0 ? given : 300;
}

static bool oversubscribed(void)
{
    static int answer = -1;
    if (answer < 0) answer = fl_comm_host_ranks > sysconf(_SC_NPROCESSORS_ONLN);
    return answer;
}

static const char *waiting_at(char *buffer, const fl_wait *wait)
{
    return fl_collective_at(buffer, wait->collective ? wait->collective : &fl_journal_own->collective);
}

/* FL_OK if a missing member may still come; else an error with its state. */
static fl_status look_at(const fl_wait *wait, int rank)
{
    const fl_journal *j = fl_journal_of(rank);
    char mine[FL_COLLECTIVE_TEXT], where[FL_RANK_PLACE_TEXT];
    if (!j || rank == fl_world_get()->rank) return FL_OK;
    int state = __atomic_load_n(&j->state, __ATOMIC_ACQUIRE);
    waiting_at(mine, wait);
    if (state == FL_RANK_FAILED)
        return fl_fail(FL_ERR_COMM, "%s: rank %d%s%s", mine, rank, j->message[0] == ':' ? " failed" : "", j->message);
    bool ended = state == FL_RANK_ENDED;
    if (ended && wait->flags & FL_WAIT_DEVICE) return FL_OK;
    if (!ended && (state == FL_RANK_STOPPED || !fl_rank_is_dead(rank))) return FL_OK;
    fl_rank_place_text(where, j);
    if (!ended) return fl_fail(FL_ERR_COMM, "%s: rank %d has died%s", mine, rank, where);
    if (wait->flags & FL_WAIT_PEER) return fl_fail(FL_ERR_COMM, "%s: rank %d has ended", mine, rank);
    return fl_fail(FL_ERR_COMM, "%s: rank %d has ended%s; all ranks must call it", mine, rank, where);
}

enum { ANSWER_MS = 300 };

/* Asks the members that are missing for the line of their scripts. A rank that runs a kernel or waits does not
** answer. */
static void ask_for_lines(const fl_wait *wait, uint32_t *answers)
{
    bool open = true;
    for (int i = 0; i < wait->group->count && wait->missing; i++) {
        const fl_journal *j = wait->missing(wait->group, i) ? fl_journal_of(wait->group->ranks[i]) : NULL;
        if (!j || !j->listens) continue;
        answers[i] = __atomic_load_n(&j->answers, __ATOMIC_ACQUIRE);
        kill(j->pid, SIGUSR2);
    }
    for (int ms = 0; ms < ANSWER_MS && open; ms++) {
        open = false;
        usleep(1000);
        for (int i = 0; i < wait->group->count && wait->missing; i++) {
            const fl_journal *j = wait->missing(wait->group, i) ? fl_journal_of(wait->group->ranks[i]) : NULL;
            open = open || (j && j->listens && __atomic_load_n(&j->answers, __ATOMIC_ACQUIRE) == answers[i]);
        }
    }
}

static fl_status time_out(const fl_wait *wait)
{
    char mine[FL_COLLECTIVE_TEXT], where[FL_RANK_PLACE_TEXT], text[1024] = "";
    uint32_t answers[wait->group->count];
    size_t n = 0;
    waiting_at(mine, wait);
    ask_for_lines(wait, answers);
    for (int i = 0; i < wait->group->count && wait->missing && n < sizeof text; i++) {
        if (!wait->missing(wait->group, i)) continue;
        const fl_journal *j = fl_journal_of(wait->group->ranks[i]);
        bool answered = j && j->listens && __atomic_load_n(&j->answers, __ATOMIC_ACQUIRE) != answers[i];
        n += (size_t)snprintf(text + n, sizeof text - n, "%srank %d%s%s%s", n ? "; " : "", wait->group->ranks[i],
                              answered ? ", at " : "", answered ? j->line : "", j ? fl_rank_place_text(where, j) : "");
    }
    if (n && wait->flags & FL_WAIT_PEER)
        return fl_fail(FL_ERR_COMM, "%s: after %g s no answer of %s (FLOW_TIMEOUT sets the seconds)", mine,
                       timeout_seconds(), text);
    if (n && wait->flags & FL_WAIT_DEVICE)
        return fl_fail(FL_ERR_COMM,
                       "%s: after %g s the devices have not moved their data; this one waits for %s (FLOW_TIMEOUT sets "
                       "the seconds)",
                       mine, timeout_seconds(), text);
    if (!n)
        return fl_fail(FL_ERR_COMM,
                       "%s: after %g s the data of some rank is still missing (FLOW_TIMEOUT sets the seconds)", mine,
                       timeout_seconds());
    return fl_fail(FL_ERR_COMM,
                   "%s: after %g s still missing: %s. All ranks must call it: is it inside `if rank == 0`? "
                   "(FLOW_TIMEOUT sets the seconds)",
                   mine, timeout_seconds(), text);
}

/* FL_OK when missing member i may still come: not when its rank has ended, nor when it is through with the line of a
** session that this rank still evaluates. */
static fl_status look_at_missing(const fl_wait *wait, int i)
{
    char mine[FL_COLLECTIVE_TEXT];
    int rank = wait->group->ranks[i];
    const fl_journal *j = fl_journal_of(rank);
    bool gone_on = j && !(wait->flags & FL_WAIT_DEVICE)
        && __atomic_load_n(&j->evaluations, __ATOMIC_ACQUIRE) > fl_journal_own->evaluations;
    fl_status status = FL_OK;
    if (!gone_on) status = look_at(wait, rank);
    else if (fl_comm_is_stopping()) status = fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    else
        status = fl_fail(FL_ERR_COMM, "%s: rank %d has finished this line; all ranks must call it",
                         waiting_at(mine, wait), rank);
    if (status == FL_OK || !wait->missing(wait->group, i)) return FL_OK; /* it came before that */
    fl_comm_peer_gone |= gone_on;
    return status;
}

/* True if the missing members make progress elsewhere: then they are not timed out. */
static uint64_t progress_of_missing(const fl_wait *wait)
{
    uint64_t sum = 0;
    for (int i = 0; i < wait->group->count && wait->missing; i++) {
        const fl_journal *j = wait->missing(wait->group, i) ? fl_journal_of(wait->group->ranks[i]) : NULL;
        if (j) sum += j->ops + j->meetings;
    }
    return sum;
}

/* The slow part of a step: clock, deaths, Ctrl-C. */
static fl_status poll_peers(fl_wait *wait)
{
    uint64_t t = fl_now();
    if (!wait->started) wait->started = wait->looked = t;
    if (t - wait->looked < (wait->flags & FL_WAIT_IDLE ? IDLE_LOOK_NS : LOOK_NS)) return FL_OK;
    wait->looked = t;
    if (wait->missing && !(wait->flags & (FL_WAIT_IDLE | FL_WAIT_DATA | FL_WAIT_PEER)))
        FL_TRY(fl_deadlock_look()); /* first: a rank that found the deadlock earlier has ended by now */
    for (int i = 0; i < wait->group->count && wait->missing; i++)
        if (wait->missing(wait->group, i)) FL_TRY(look_at_missing(wait, i));
    uint64_t progress = progress_of_missing(wait);
    if (progress != wait->progress) wait->started = t;
    wait->progress = progress;
    double seconds = (double)(t - wait->started) * 1e-9;
    if (!(wait->flags & (FL_WAIT_IDLE | FL_WAIT_DATA)) && fl_comm_is_stopping()) {
        if (!wait->interrupted) wait->interrupted = t;
        if (t - wait->interrupted > GRACE_SECONDS * 1000000000ull) return fl_fail(FL_ERR_INTERRUPTED, "interrupted");
    }
    return !(wait->flags & FL_WAIT_IDLE) && seconds > timeout_seconds() ? time_out(wait) : FL_OK;
}

fl_status fl_wait_poll(fl_wait *wait) { return poll_peers(wait); }

/* Microseconds to sleep: ever longer at a prompt, short in the middle of work. */
static void back_off(const fl_wait *wait)
{
    int most = wait->flags & FL_WAIT_IDLE ? 10000 : 200, want = (wait->spins - YIELDS) / 4 + 50;
    usleep((useconds_t)(want < most ? want : most));
}

fl_status fl_wait_step(fl_wait *wait)
{
    int n = wait->spins++;
    if (n < SPINS && !oversubscribed()) {
        fl_pause();
        return FL_OK;
    }
    if (n < YIELDS) sched_yield();
    else {
        back_off(wait);
        return poll_peers(wait);
    }
    return n % LOOK_EVERY ? FL_OK : poll_peers(wait);
}

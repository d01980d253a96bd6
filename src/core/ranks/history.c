/*
** history.c -- histories, marks, and what is remembered of the last ops.
**
** An op costs a multiplication and a few stores. Asking for its line would cost a hundred times that, so lines are
** kept by context, a hash of the op and the few before it, and one that was the same in its context TRUSTED times is
** not read again: a loop reads it in its first passes.
*/
#include "history.h"
#include "comm.h"
#include "engine/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRUSTED = 8, ASKED_MOST = 100, LINES = 1 << FL_HISTORY_LINE_BITS, WORDS = (FL_PAST_WHAT + FL_PAST_WHERE) / 8 };

typedef struct past {
    uint64_t hash, context;
} past;

struct fl_mark {
    fl_history *history;
    uint64_t count, hash;   /* of the history when these ranks met last */
    fl_mark *next;          /* of the history */
    int rank_count, *ranks; /* owned; ascending */
};

static fl_history *histories;

/* The words of ops by the context they stood in. */
uint64_t fl_history_lines[LINES];
static struct {
    uint8_t same, asked;
} line_looks[LINES];
static uint64_t line_words[LINES][WORDS];

#define LOAD(place) __atomic_load_n((place), __ATOMIC_RELAXED)
#define STORE(place, value) __atomic_store_n((place), (value), __ATOMIC_RELAXED)

/* ---- sets of ranks ---- */

static int compare_ranks(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void sort_ranks(int *out, const int *ranks, int count)
{
    memcpy(out, ranks, (size_t)count * sizeof *out);
    qsort(out, (size_t)count, sizeof *out, compare_ranks);
}

static bool same_set(const int *a, int a_count, const int *b, int b_count)
{
    return a_count == b_count && memcmp(a, b, (size_t)a_count * sizeof *a) == 0;
}

/* True if all of inner are in outer; both rise. */
static bool is_within(const int *inner, int inner_count, const int *outer, int outer_count)
{
    for (int i = 0, j = 0; i < inner_count; i++, j++) {
        while (j < outer_count && outer[j] < inner[i]) j++;
        if (j == outer_count || outer[j] != inner[i]) return false;
    }
    return true;
}

/* ---- histories and marks ---- */

fl_status fl_history_get(fl_history **out, const int *ranks, int count)
{
    bool concerned = false;
    for (int i = 0; i < count; i++) concerned = concerned || ranks[i] == fl_world_get()->rank;
    *out = NULL;
    if (count < 2 || !concerned || !fl_comm_get()) return FL_OK;
    fl_history *h = calloc(1, sizeof *h + (size_t)count * sizeof *ranks);
    if (!h) return fl_fail(FL_ERR_MEMORY, "out of memory for the history of %d ranks", count);
    h->rank_count = count;
    sort_ranks(h->ranks, ranks, count);
    for (fl_history *other = histories; other; other = other->next)
        if (same_set(h->ranks, count, other->ranks, other->rank_count)) {
            free(h);
            *out = other;
            return FL_OK;
        }
    h->next = histories;
    *out = histories = h;
    return FL_OK;
}

/* A new group has met where one that holds all of it has. */
static void set_mark(fl_mark *mark)
{
    for (const fl_mark *m = mark->history->marks; m; m = m->next)
        if (m->count > mark->count && is_within(mark->ranks, mark->rank_count, m->ranks, m->rank_count)) {
            mark->count = m->count;
            mark->hash = m->hash;
        }
}

fl_status fl_history_mark(fl_mark **out, fl_history *history, const int *ranks, int count)
{
    *out = NULL;
    if (!history) return FL_OK;
    fl_mark *mark = calloc(1, sizeof *mark);
    int *sorted = malloc((size_t)count * sizeof *sorted);
    if (!mark || !sorted) {
        free(mark);
        free(sorted);
        return fl_fail(FL_ERR_MEMORY, "out of memory for the history of %d ranks", count);
    }
    sort_ranks(sorted, ranks, count);
    for (fl_mark *m = history->marks; m && !*out; m = m->next)
        if (same_set(sorted, count, m->ranks, m->rank_count)) *out = m;
    if (*out || !is_within(sorted, count, history->ranks, history->rank_count)) {
        free(mark);
        free(sorted);
        return FL_OK;
    }
    *mark = (fl_mark){.history = history, .ranks = sorted, .rank_count = count};
    set_mark(mark);
    mark->next = history->marks;
    *out = history->marks = mark;
    return FL_OK;
}

static uint64_t power(uint64_t exponent)
{
    uint64_t result = 1;
    for (uint64_t square = FL_HISTORY_BASE; exponent; exponent >>= 1, square *= square)
        if (exponent & 1) result *= square;
    return result;
}

fl_trail fl_history_meet(fl_mark *mark)
{
    if (!mark) return (fl_trail){0};
    fl_history *h = mark->history;
    fl_trail t = {.history = h, .from = mark->count, .to = h->count, .hash_from = mark->hash};
    t.hash = h->hash - mark->hash * power(t.to - t.from) + (t.to - t.from);
    for (fl_mark *m = h->marks; m; m = m->next)
        if (m == mark || is_within(m->ranks, m->rank_count, mark->ranks, mark->rank_count)) {
            m->count = h->count;
            m->hash = h->hash;
        }
    return t;
}

void fl_history_reset(void)
{
    for (fl_history *h = histories; h; h = h->next)
        for (fl_mark *m = h->marks; m; m = m->next) {
            m->count = h->count;
            m->hash = h->hash;
        }
}

/* ---- ops ---- */

/* Each context has two places, so that two of a loop with the same first one do not drive each other out at every
** pass. Returns the one where it is, trusted or not; else the second. */
static size_t find_line(uint64_t context)
{
    size_t first = fl_history_line(context);
    return (LOAD(&fl_history_lines[first]) | 1) == context ? first : first ^ 1;
}

/* The line of a context: the one that has it, else a free one, else either of the two by turns. */
static size_t claim_line(uint64_t context)
{
    static size_t turn;
    size_t found = find_line(context);
    if ((fl_history_lines[found] | 1) == context) return found;
    if (!fl_history_lines[found ^ 1]) return found ^ 1;
    return fl_history_lines[found] ? found ^ (turn ^= 1) : found;
}

void fl_history_remember(uint64_t context, fl_history_words *words, const void *what)
{
    size_t line = claim_line(context);
    uint64_t *to = line_words[line];
    if (fl_history_lines[line] == context) return;
    union {
        uint64_t words[WORDS];
        struct {
            char what[FL_PAST_WHAT], where[FL_PAST_WHERE];
        } text;
    } u = {{0}};
    words(u.text.what, what);
    if (fl_engine_where) fl_engine_where(u.text.where, FL_PAST_WHERE);
    bool known = fl_history_lines[line] == (context & ~(uint64_t)1),
         same = known && memcmp(to, u.words, sizeof u.words) == 0;
    line_looks[line].asked = known ? line_looks[line].asked + 1 : 1;
    line_looks[line].same = same ? line_looks[line].same + 1 : 0;
    bool trusted = line_looks[line].same == TRUSTED || line_looks[line].asked == ASKED_MOST;
    STORE(&fl_history_lines[line], 0);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (int i = 0; i < WORDS; i++) STORE(&to[i], u.words[i]);
    __atomic_store_n(&fl_history_lines[line], trusted ? context : context & ~(uint64_t)1, __ATOMIC_RELEASE);
}

static void word_point(char *buffer, const void *what) { snprintf(buffer, FL_PAST_WHAT, "%s", (const char *)what); }

fl_status fl_history_point(const int *ranks, int count, const char *what, uint64_t number)
{
    fl_history *h;
    FL_TRY(fl_history_get(&h, ranks, count));
    if (!h || fl_comm_refusal) return FL_OK;
    uint64_t content = fl_hash_bytes(FL_HASH_START, what, strlen(what)) | 1;
    fl_history_note(h, content, fl_hash_mix(0, number), word_point, what);
    return FL_OK;
}

/* ---- looking back ---- */

/* The record of op number n (from 0), unless it is forgotten or being written. */
static bool recall(past *out, const fl_history *history, uint64_t n)
{
    const uint64_t *at = &history->recent[n % FL_HISTORY_RECENT];
    *out = (past){LOAD(&at[0]), LOAD(&at[FL_HISTORY_RECENT])};
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return LOAD(&history->count) < n + FL_HISTORY_RECENT;
}

int fl_history_recall(uint64_t *first, uint64_t *hashes, const fl_trail *trail)
{
    uint64_t count = trail->to - trail->from, n = count < FL_HISTORY_RECENT ? count : FL_HISTORY_RECENT;
    int kept = 0;
    *first = 0;
    for (uint64_t index = count - n + 1; n > 0 && index <= count; index++) {
        past p;
        if (!recall(&p, trail->history, trail->from + index - 1)) {
            kept = 0;
            continue;
        }
        if (!kept) *first = index;
        hashes[kept++] = p.hash - trail->hash_from * power(index);
    }
    return kept;
}

void fl_history_recall_op(char what[FL_PAST_WHAT], char where[FL_PAST_WHERE], const fl_trail *trail, uint64_t index)
{
    uint64_t copy[WORDS];
    past p;
    memset(what, 0, FL_PAST_WHAT);
    memset(where, 0, FL_PAST_WHERE);
    if (index < 1 || index > trail->to - trail->from || !recall(&p, trail->history, trail->from + index - 1)) return;
    size_t line = find_line(p.context);
    const uint64_t *context = &fl_history_lines[line];
    if ((__atomic_load_n(context, __ATOMIC_ACQUIRE) | 1) != p.context) return;
    for (int i = 0; i < WORDS; i++) copy[i] = LOAD(&line_words[line][i]);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if ((LOAD(context) | 1) != p.context) return;
    memcpy(what, copy, FL_PAST_WHAT);
    memcpy(where, (const char *)copy + FL_PAST_WHAT, FL_PAST_WHERE);
}

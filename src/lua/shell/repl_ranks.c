/*
** repl_ranks.c -- a session over several ranks: lines travel to all of them, and what becomes of them travels back.
**
** Ranks meet twice a line, in a group of the session's own: rank 0 hands the line out, and all report its outcome. In
** between a rank may fail, or stop by Ctrl-C, while others wait for it in a collective: they read in its journal that
** it is through with the line and stop too (a rank on another host, which has no journal here, is waited for until the
** time-out). Then nothing is under way, so all groups are reset and the next line works.
**
** Ctrl-C comes to rank 0 alone, which passes the signal on to the ranks of its host; a rank elsewhere stops in the next
** collective. Output of the other ranks is marked "[2] " line by line.
*/
#define _GNU_SOURCE
#include "core/process.h"
#include "lua/bind/state.h"
#include "repl.h"
#include "shell.h"

#include <errno.h>
#include <lauxlib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fl_group *session; /* NULL: one rank */

/* `bytes` of every rank in order, owned by the caller; NULL: the reason is in fl_message. */
static void *share(const char *what, const void *mine, size_t bytes)
{
    char *all = malloc((size_t)session->count * bytes + 1);
    if (!all) fl_fail(FL_ERR_MEMORY, "session: out of memory");
    else if (fl_comm_share(session, what, all, mine, bytes, FL_WAIT_IDLE) != FL_OK) {
        free(all);
        all = NULL;
    }
    return all;
}

/* ---- Ctrl-C ---- */

/* The identity of a rank; by the host it is decided whether its process can be reached. */
struct hello {
    int32_t pid;
    char host[60];
};

static int *peers; /* processes of this host's other ranks; owned, [peer_count] */
static int peer_count;

static void pass_to_peers(void)
{
    for (int i = 0; i < peer_count; i++) kill(peers[i], SIGINT);
}

static fl_status meet_peers(void)
{
    struct hello mine = {.pid = (int32_t)getpid()};
    gethostname(mine.host, sizeof mine.host - 1);
    struct hello *all = share("session", &mine, sizeof mine);
    if (!all) return FL_ERR_COMM;
    peers = calloc((size_t)session->count, sizeof *peers);
    for (int i = 1; peers && session->me == 0 && i < session->count; i++)
        if (strcmp(all[i].host, mine.host) == 0) peers[peer_count++] = all[i].pid;
    free(all);
    fl_lua_pass_interrupt = pass_to_peers;
    fl_lua_interrupt_arm(NULL); /* from now on Ctrl-C ends no rank */
    fl_lua_interrupt_disarm();
    return peers ? FL_OK : fl_fail(FL_ERR_MEMORY, "session: out of memory");
}

/* ---- output of the ranks beside rank 0 ---- */

static struct {
    int file;
    bool inside; /* of a line: it has its mark */
} output = {.file = STDOUT_FILENO};

static bool write_all(const char *text, size_t n)
{
    for (ssize_t done; n > 0; text += done, n -= (size_t)done) {
        done = write(output.file, text, n);
        if (done < 0 && errno == EINTR) done = 0;
        if (done < 0) return false;
    }
    return true;
}

/* One line, or a part of it, in one piece. */
static bool write_line(const char *text, size_t n)
{
    char mark[24] = "", *line = malloc(n + sizeof mark);
    if (!line) return false;
    if (!output.inside) snprintf(mark, sizeof mark, "[%d] ", session->me);
    size_t marked = strlen(mark);
    memcpy(line, mark, marked);
    memcpy(line + marked, text, n);
    bool good = write_all(line, marked + n);
    output.inside = text[n - 1] != '\n';
    free(line);
    return good;
}

static ssize_t write_marked(void *context, const char *text, size_t size)
{
    for (const char *at = text, *end = text + size, *next; at < end; at = next) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        next = newline ? newline + 1 : end;
        if (!write_line(at, (size_t)(next - at))) return 0;
    }
    return (ssize_t)size;
}

/* Marks the output of this process, in C and in Lua, from now on. */
static fl_status mark_output(lua_State *L)
{
    fflush(stdout);
    output.file = fl_terminal_join();
    FILE *marked = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_marked});
    if (!marked) return fl_fail(FL_ERR_MEMORY, "session: out of memory");
    setvbuf(marked, NULL, _IOLBF, BUFSIZ);
    stdout = marked;
    lua_getglobal(L, "io");
    lua_getfield(L, -1, "stdout");
    luaL_Stream *stream = luaL_testudata(L, -1, LUA_FILEHANDLE);
    if (stream && stream->closef) stream->f = marked;
    lua_pop(L, 2);
    return FL_OK;
}

/* Before rank 0 shows a prompt. */
static void finish_output(void)
{
    fflush(stdout);
    if (session && session->me != 0 && output.inside) write_line("\n", 1);
}

/* ---- starting and stopping ---- */

/* The only rank of a launcher is its child; processes that it starts have other input. */
static bool alone_on_terminal(void)
{
    if (isatty(STDIN_FILENO)) return true;
    return fl_launched(NULL) && getpgrp() == getpid() && fl_terminal_is_there();
}

fl_status fl_lua_on_terminal(bool *there)
{
    *there = !fl_comm_get() && alone_on_terminal();
    if (!fl_comm_get()) return FL_OK;
    FL_TRY(fl_group_session(&session));
    bool mine = session->me == 0 && fl_terminal_is_there(), *all = share("session", &mine, sizeof mine);
    if (!all) return FL_ERR_COMM;
    *there = all[0];
    free(all);
    return FL_OK;
}

fl_status fl_session_start(lua_State *L)
{
    bool there;
    FL_TRY(fl_lua_on_terminal(&there));
    if (session) FL_TRY(meet_peers());
    if (session && session->me != 0) return mark_output(L);
    return there ? fl_terminal_take() : FL_OK;
}

void fl_session_stop(void)
{
    if (session) signal(SIGINT, SIG_DFL);
    fl_lua_pass_interrupt = NULL;
    fl_terminal_give_back();
}

/* ---- lines ---- */

enum { SHORT_TEXT = 2000 }; /* longer ones travel after the message */

struct line_message {
    fl_line line;
    int64_t size;
    char text[SHORT_TEXT];
};

static fl_status push_long_text(lua_State *L, const char *mine, size_t size)
{
    char *text = mine ? NULL : calloc(1, size);
    if (!mine && !text) return fl_fail(FL_ERR_MEMORY, "session: out of memory");
    char *all = share("line", mine ? mine : text, size);
    if (all && !mine) lua_pushlstring(L, all, size);
    free(text);
    free(all);
    return all ? FL_OK : FL_ERR_COMM;
}

fl_status fl_session_share(lua_State *L, fl_line *line)
{
    if (!session) return FL_OK;
    struct line_message mine = {.line = *line};
    size_t size = 0;
    const char *text = session->me == 0 && !line->end ? lua_tolstring(L, -1, &size) : NULL;
    mine.size = (int64_t)size;
    if (text && size <= SHORT_TEXT) memcpy(mine.text, text, size);
    struct line_message *all = share("prompt", &mine, sizeof mine);
    if (!all) return FL_ERR_COMM;
    *line = all[0].line;
    size = (size_t)all[0].size;
    if (session->me != 0 && size <= SHORT_TEXT) lua_pushlstring(L, all[0].text, size);
    free(all);
    return size <= SHORT_TEXT ? FL_OK : push_long_text(L, text, size);
}

/* ---- outcomes ---- */

struct outcome_message {
    int32_t outcome;
    int64_t size;
    uint64_t counted; /* fl_comm_counted */
    fl_generator generator;
    char text[SHORT_TEXT];
};

/* The outcomes of all ranks. */
struct outcomes {
    int count;
    struct outcome_message *messages; /* owned */
    char *texts;                      /* owned; when one is long: `each` bytes per rank */
    size_t each;
};

static const char *text_of(const struct outcomes *outcomes, int rank)
{
    return outcomes->texts ? outcomes->texts + (size_t)rank * outcomes->each : outcomes->messages[rank].text;
}

static bool is_same(const struct outcomes *outcomes, int a, int b)
{
    const struct outcome_message *x = &outcomes->messages[a], *y = &outcomes->messages[b];
    return x->outcome == y->outcome && x->size == y->size
        && memcmp(text_of(outcomes, a), text_of(outcomes, b), (size_t)x->size) == 0;
}

static int count_of(const struct outcomes *outcomes, fl_outcome outcome)
{
    int n = 0;
    for (int i = 0; i < outcomes->count; i++) n += outcomes->messages[i].outcome == (int32_t)outcome;
    return n;
}

/* "ranks 0-2, 5: ", of all ranks with the same message as `first`. */
static void print_who(FILE *to, const struct outcomes *outcomes, int first)
{
    int n = 0;
    for (int i = first; i < outcomes->count; i++) n += is_same(outcomes, first, i);
    fputs(n == 1 ? "rank " : "ranks ", to);
    for (int i = first, end; i < outcomes->count; i = end + 1) {
        for (end = i; end < outcomes->count && is_same(outcomes, first, end); end++) continue;
        if (end == i) continue;
        fprintf(to, i == first ? "%d" : ", %d", i);
        if (end - i > 1) fprintf(to, "-%d", end - 1);
    }
    fputs(":", to);
}

static void print_text(FILE *to, const char *text, size_t size, bool is_answer)
{
    if (!is_answer) {
        fl_style_print_error(to, text, size);
        return;
    }
    fwrite(text, 1, size, to);
    fputc('\n', to);
}

/* The texts of one kind of outcome, equal ones once, with their ranks unless these are plain. */
static void print_texts(FILE *to, const struct outcomes *outcomes, fl_outcome outcome, bool plain)
{
    for (int i = 0; i < outcomes->count; i++) {
        bool printed = outcomes->messages[i].outcome != (int32_t)outcome;
        for (int j = 0; j < i && !printed; j++) printed = is_same(outcomes, j, i);
        if (printed) continue;
        const char *text = text_of(outcomes, i);
        size_t size = (size_t)outcomes->messages[i].size;
        if (!plain) {
            print_who(to, outcomes, i);
            fputc(outcome == FL_ANSWERED && memchr(text, '\n', size) ? '\n' : ' ', to);
        }
        print_text(to, text, size, outcome == FL_ANSWERED);
    }
}

/* In one write: mpirun passes on what rank 0 prints to stdout through another pipe, and would put it into a line that
** comes in parts. */
static void print_errors(const struct outcomes *outcomes, fl_outcome outcome, bool plain)
{
    char *text = NULL;
    size_t size = 0;
    FILE *whole = open_memstream(&text, &size);
    print_texts(whole ? whole : stderr, outcomes, outcome, plain);
    if (whole && fclose(whole) == 0) fwrite(text, 1, size, stderr);
    free(text);
}

/* Ctrl-C is reported once, for all. */
static void print_interrupt(const struct outcomes *outcomes)
{
    int i = 0;
    while (outcomes->messages[i].outcome != FL_INTERRUPTED) i++;
    fl_style_print_error(stderr, text_of(outcomes, i), (size_t)outcomes->messages[i].size);
}

static bool all_say_the_same(const struct outcomes *outcomes)
{
    for (int i = 1; i < outcomes->count; i++)
        if (!is_same(outcomes, 0, i)) return false;
    return true;
}

/* True for a rank that stopped because of another one, when that one has a message. */
static void print_outcomes(const struct outcomes *outcomes, const fl_line *line)
{
    int failed = count_of(outcomes, FL_FAILED), interrupted = count_of(outcomes, FL_INTERRUPTED);
    bool plain = all_say_the_same(outcomes);
    print_texts(stdout, outcomes, FL_ANSWERED, line->at >= 0);
    fflush(stdout);
    if (interrupted) print_interrupt(outcomes);
    print_errors(outcomes, FL_FAILED, plain);
    if (!failed && !interrupted) print_errors(outcomes, FL_DESERTED, plain);
}

static fl_status gather_texts(struct outcomes *outcomes, const char *text, size_t size)
{
    for (int i = 0; i < outcomes->count; i++)
        if ((size_t)outcomes->messages[i].size > outcomes->each) outcomes->each = (size_t)outcomes->messages[i].size;
    if (outcomes->each <= SHORT_TEXT) return FL_OK;
    char *mine = calloc(1, outcomes->each);
    if (!mine) return fl_fail(FL_ERR_MEMORY, "session: out of memory");
    if (size) memcpy(mine, text, size);
    outcomes->texts = share("line", mine, outcomes->each);
    free(mine);
    return outcomes->texts ? FL_OK : FL_ERR_COMM;
}

static fl_status gather(struct outcomes *outcomes, fl_outcome outcome, const char *text, size_t size)
{
    struct outcome_message mine = {
        .outcome = outcome, .size = (int64_t)size, .counted = fl_comm_counted(), .generator = *fl_generator_current()};
    if (size && size <= SHORT_TEXT) memcpy(mine.text, text, size);
    outcomes->count = session->count;
    outcomes->messages = share("line", &mine, sizeof mine);
    return outcomes->messages ? gather_texts(outcomes, text, size) : FL_ERR_COMM;
}

/* Makes the state of all ranks equal after a line that may have failed half way on some. */
static void reset(const struct outcomes *outcomes)
{
    uint64_t number = 0;
    for (int i = 0; i < outcomes->count; i++)
        if (outcomes->messages[i].counted > number) number = outcomes->messages[i].counted;
    fl_comm_reset(number);
    if (count_of(outcomes, FL_DONE) + count_of(outcomes, FL_ANSWERED) == outcomes->count) return;
    fl_engine_wait_all(); /* its error has been reported */
    fl_random_agree(outcomes->messages[0].generator);
}

static fl_status nothing(void *context) { return FL_OK; }

static fl_status finish_alone(const fl_line *line, fl_outcome outcome, const char *text, size_t size)
{
    struct outcome_message message = {.outcome = outcome, .size = (int64_t)size};
    struct outcomes o = {.count = 1, .messages = &message, .texts = (char *)text};
    print_outcomes(&o, line);
    return FL_OK;
}

fl_status fl_session_finish(lua_State *L, const fl_line *line, fl_outcome mine)
{
    size_t size = 0;
    const char *text = mine != FL_DONE ? lua_tolstring(L, -1, &size) : NULL;
    struct outcomes o = {0};
    finish_output();
    if (!session) return finish_alone(line, mine, text, size);
    FL_TRY(fl_comm_run("line", nothing, NULL)); /* collectives that are queued still take place */
    __atomic_store_n(&fl_journal_own->evaluations, fl_journal_own->evaluations + 1, __ATOMIC_RELEASE);
    fl_status status = gather(&o, mine, text, size);
    if (status == FL_OK) {
        if (session->me == 0) print_outcomes(&o, line);
        reset(&o);
    }
    free(o.messages);
    free(o.texts);
    lua_settop(L, 0);
    return status;
}

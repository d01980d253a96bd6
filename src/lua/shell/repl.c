/*
** repl.c -- the interactive session: history, completion, input over several lines, values printed at once.
**
** Lines come from the line editor (editor.c), or are read without one if input is no terminal. Ctrl-C clears what is
** typed or stops what runs; Ctrl-D and quit end. Over several ranks rank 0 reads, and all evaluate what it has read
** (repl_ranks.c).
*/
#include "core/process.h"
#include "lua/bind/modules.h"
#include "lua/bind/state.h"
#include "repl.h"
#include "shell.h"

#include <ctype.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_LIMIT = 1 << 16, PROMPT_LIMIT = 256 };

#define LONG_TIME 0.1 /* seconds */

/* ---- reading lines ---- */

/* Reads without an editor. Input from a file or a pipe is echoed, so that the output reads like the session it is. */
static bool plain_read(lua_State *L, const char *prompt)
{
    luaL_Buffer b;
    int c;
    for (; *prompt; prompt++)
        if (*prompt != '\1') fputc(*prompt, stdout);
    fflush(stdout);
    luaL_buffinit(L, &b);
    while ((c = getchar()) != EOF && c != '\n') luaL_addchar(&b, (char)c);
    luaL_pushresult(&b);
    size_t n = lua_rawlen(L, -1);
    if (c == EOF && n == 0) {
        lua_pop(L, 1);
        return false;
    }
    if (!isatty(STDIN_FILENO)) {
        fwrite(lua_tostring(L, -1), 1, n, stdout);
        fputc('\n', stdout);
        fflush(stdout);
    }
    return true;
}

/* _PROMPT or _PROMPT2, if the user has set it; else ours, in bold. */
static const char *prompt_text(lua_State *L, bool first)
{
    static char text[PROMPT_LIMIT];
    char plain[32] = ">";
    lua_getglobal(L, first ? "_PROMPT" : "_PROMPT2");
    bool given = !lua_isnil(L, -1);
    if (given) snprintf(text, sizeof text, "%s", luaL_tolstring(L, -1, NULL));
    lua_pop(L, given ? 2 : 1);
    if (given) return text;
    if (!first) strcpy(plain, ">>");
    else if (fl_comm_get()) snprintf(plain, sizeof plain, "flow[%d ranks]>", fl_world_get()->size);
    snprintf(text, sizeof text, "\1%s\1%s\1%s\1 ", fl_style_begin(stdout, FL_BOLD), plain, fl_style_end(stdout));
    return text;
}

static bool read_line(lua_State *L, bool first, bool editing, bool *cancelled)
{
    const char *prompt = prompt_text(L, first);
    *cancelled = false;
    return editing ? fl_editor_read(L, prompt, cancelled) : plain_read(L, prompt);
}

/* ---- compiling ---- */

static bool message_ends(lua_State *L, const char *end)
{
    size_t n, m = strlen(end);
    const char *message = lua_tolstring(L, -1, &n);
    return n >= m && strcmp(message + n - m, end) == 0;
}

static bool is_incomplete(lua_State *L, int status) { return status == LUA_ERRSYNTAX && message_ends(L, "<eof>"); }

/* Compiles head, word and tail put together; pushes the function or the message. */
static int load_parts(lua_State *L, const char *head, size_t head_size, const char *word, const char *tail,
                      size_t tail_size)
{
    lua_pushlstring(L, head, head_size);
    lua_pushstring(L, word);
    lua_pushlstring(L, tail, tail_size);
    lua_concat(L, 3);
    int status = luaL_loadbuffer(L, lua_tostring(L, -1), lua_rawlen(L, -1), "=stdin");
    lua_remove(L, -2);
    return status;
}

static bool is_compiled(lua_State *L, const char *word, const char *text, size_t size)
{
    int status = load_parts(L, "", 0, word, text, size);
    lua_pop(L, 1);
    return status == LUA_OK;
}

/* A block of statements whose last lines are an expression, as "x = 3" and "x" in a pasted block: pushes what has its
** value. */
static bool compile_answer(lua_State *L, const char *text, size_t n)
{
    while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
    for (size_t at = n; at > 0 && n - at < LINE_LIMIT; at--) {
        if (text[at - 1] != '\n' || !is_compiled(L, "return ", text + at, n - at) || !is_compiled(L, "", text, at))
            continue;
        if (load_parts(L, text, at, "return ", text + at, n - at) == LUA_OK) return true;
        lua_pop(L, 1);
    }
    return false;
}

/* Compiles the text at index 1 as an expression, else as statements; *more: it goes on in the next line. */
static int compile(lua_State *L, bool *more)
{
    size_t n;
    const char *text = lua_tolstring(L, 1, &n);
    int status = load_parts(L, "", 0, "return ", text, n);
    *more = is_incomplete(L, status);
    if (status == LUA_OK) return status;
    lua_pop(L, 1);
    status = load_parts(L, "", 0, "", text, n);
    bool answers = status != LUA_OK && compile_answer(L, text, n);
    if (answers) {
        lua_remove(L, -2);
        status = LUA_OK;
    }
    *more = status != LUA_OK && (*more || is_incomplete(L, status));
    return status;
}

/* The start of the expression at the end of the text: names, '.', ':', and brackets with their contents. */
static const char *last_expression(const char *text, size_t n)
{
    int depth = 0;
    const char *at = text + n;
    for (; at > text && at[-1] != '\n'; at--) {
        char c = at[-1];
        if (c == ')' || c == ']' || c == '}') depth++;
        else if (c == '(' || c == '[' || c == '{') depth--;
        else if (depth == 0 && !isalnum((unsigned char)c) && !strchr("_.:", c)) break;
        if (depth < 0) break;
    }
    return at;
}

/* Does the text at index 1 end with a method's name, as "x:mean"? Pushes what to write. */
static bool lacks_call(lua_State *L)
{
    if (!message_ends(L, "function arguments expected near <eof>")) return false;
    size_t n;
    const char *text = lua_tolstring(L, 1, &n);
    while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
    const char *start = last_expression(text, n);
    lua_pushlstring(L, start, n - (size_t)(start - text));
    lua_pushfstring(L, "%s is a method without its call: write %s()", lua_tostring(L, -1), lua_tostring(L, -1));
    return true;
}

/* ---- reading an input ---- */

typedef enum read_result { READ_END, READ_NOTHING, READ_CHUNK, READ_ERROR } read_result;

static void push_exit(lua_State *L)
{
    lua_getglobal(L, "os");
    lua_getfield(L, -1, "exit");
    lua_remove(L, -2);
}

/* True if the text at index 1 is quit, exit, quit() or exit(), and the user has not defined that name. */
static bool asks_to_quit(lua_State *L)
{
    const char *text = lua_tostring(L, 1);
    text += strspn(text, " \t");
    size_t n = strcspn(text, " \t\n();"), rest = n + strspn(text + n, " \t\n;");
    if (strncmp(text + rest, "()", 2) == 0) rest += 2 + strspn(text + rest + 2, " \t\n;");
    if (text[rest] || n != 4 || (strncmp(text, "quit", n) != 0 && strncmp(text, "exit", n) != 0)) return false;
    lua_pushlstring(L, text, n);
    lua_pushglobaltable(L);
    lua_insert(L, -2);
    lua_rawget(L, -2);
    push_exit(L);
    bool free = lua_isnil(L, -2) || lua_rawequal(L, -1, -2);
    lua_pop(L, 3);
    return free;
}

static void replace_text(lua_State *L, const char *format, const char *text)
{
    lua_pushfstring(L, format, text);
    lua_replace(L, 1);
}

/* Takes "@2" or "@*" off the text at index 1. false: it is neither; the error is pushed. */
static bool read_target(lua_State *L, fl_line *line)
{
    const char *text = lua_tostring(L, 1);
    char *end;
    text += strspn(text, " \t");
    int size = fl_comm_get() ? fl_world_get()->size : 1;
    line->at = FL_AT_ALL;
    if (*text != '@') return true;
    long rank = strtol(text + 1, &end, 10);
    if (text[1] == '*') {
        line->at = FL_AT_EACH;
        end = (char *)text + 2;
    } else if (text[1] < '0' || text[1] > '9') {
        lua_pushliteral(
            L, "@ takes a rank or *: \"@2 x\" evaluates x on rank 2 alone, \"@* x\" shows the answers of all ranks");
        return false;
    } else if (rank >= size) {
        lua_pushfstring(L, "@%d: there is no rank %d, the world has %d", (int)rank, (int)rank, size);
        return false;
    } else line->at = (int)rank;
    replace_text(L, "%s", end);
    return true;
}

/* Appends the line on top, after an end of line, to the texts at indices 1 and 2. */
static void append_line(lua_State *L)
{
    for (int i = 1; i <= 2; i++) {
        lua_pushvalue(L, i);
        lua_pushliteral(L, "\n");
        lua_pushvalue(L, 3);
        lua_concat(L, 3);
        lua_replace(L, i);
    }
    lua_settop(L, 2);
}

/* Reads on until the text at index 1 compiles. An error message is left on the stack. */
static read_result read_rest(lua_State *L, fl_line *line, bool editing)
{
    bool cancelled, more;
    if (!read_target(L, line)) return READ_ERROR;
    if (asks_to_quit(L)) return READ_END;
    if (lua_tostring(L, 1)[0] == '=') replace_text(L, "return %s", lua_tostring(L, 1) + 1); /* "= x" as in old Lua */
    for (;;) {
        if (compile(L, &more) == LUA_OK) return READ_CHUNK;
        if (lacks_call(L) || !more || lua_rawlen(L, 1) > LINE_LIMIT) return READ_ERROR;
        lua_settop(L, 2);
        if (!read_line(L, false, editing, &cancelled)) return READ_END;
        if (cancelled) return READ_NOTHING;
        append_line(L);
    }
}

/* Reads an input, at index 1: the text to evaluate; at 2: as it was typed, one entry of the history. */
static read_result read_chunk(lua_State *L, fl_line *line, bool editing)
{
    bool cancelled;
    lua_settop(L, 0);
    if (!read_line(L, true, editing, &cancelled)) return READ_END;
    if (cancelled) return READ_NOTHING;
    lua_pushvalue(L, 1);
    read_result r = read_rest(L, line, editing);
    if (editing && r != READ_NOTHING) fl_editor_remember(lua_tostring(L, 2));
    if (r == READ_CHUNK) lua_settop(L, 1);
    return r;
}

/* ---- running ---- */

static void print_error(lua_State *L)
{
    size_t size;
    const char *message = lua_tolstring(L, -1, &size);
    fflush(stdout);
    fl_style_print_error(stderr, message, size);
}

/* Calls the module `inspect` with the values 1..n. */
static void inspect(lua_State *L, const char *function, int results)
{
    fl_lua_push_module(L, "inspect");
    lua_getfield(L, -1, function);
    lua_replace(L, -2);
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, results);
}

/* Prints the values 1..n; the first becomes _. */
static int show_values(lua_State *L)
{
    lua_pushvalue(L, 1);
    lua_setglobal(L, "_");
    lua_pushboolean(L, fl_style_has_colours(stdout));
    lua_insert(L, 1);
    inspect(L, "show", 0);
    return 0;
}

/* The values 1..n as a text, for rank 0 to print. */
static int text_of_values(lua_State *L)
{
    inspect(L, "texts", 1);
    return 1;
}

/* Runs the text on the stack; leaves the answer or the error there. */
static fl_outcome run_text(lua_State *L, const fl_line *line)
{
    bool more;
    int status = compile(L, &more);
    lua_remove(L, 1);
    if (status == LUA_OK) status = fl_lua_protected_call(L, 0, LUA_MULTRET);
    int n = lua_gettop(L);
    if (status == LUA_OK && n == 0) return FL_DONE;
    if (status == LUA_OK) {
        luaL_checkstack(L, LUA_MINSTACK, "too many results to print");
        lua_pushcfunction(L, line->at == FL_AT_ALL ? show_values : text_of_values);
        lua_insert(L, 1);
        status = fl_lua_protected_call(L, n, line->at == FL_AT_ALL ? 0 : 1);
    }
    if (status == LUA_OK) return line->at == FL_AT_ALL ? FL_DONE : FL_ANSWERED;
    if (!lua_isstring(L, -1)) lua_pushliteral(L, "(error message is not a string)");
    return fl_lua_was_interrupted() ? FL_INTERRUPTED : fl_comm_peer_gone ? FL_DESERTED : FL_FAILED;
}

/* Alone on its rank: communicates nothing, and its random numbers are not missing in the ranks' common sequence. */
static fl_outcome run_alone(lua_State *L, const fl_line *line)
{
    static char who[16];
    if (!fl_comm_get()) return run_text(L, line);
    if (line->at != fl_world_get()->rank) return FL_DONE;
    fl_alone alone;
    snprintf(who, sizeof who, "@%d", line->at);
    fl_alone_begin(&alone, who);
    fl_outcome outcome = run_text(L, line);
    fl_alone_end(&alone);
    return outcome;
}

static fl_outcome run_line(lua_State *L, const fl_line *line)
{
    fl_comm_peer_gone = false;
    return line->at >= 0 ? run_alone(L, line) : run_text(L, line);
}

/* The next line that rank 0 can compile; its text is pushed. */
static void read_statement(lua_State *L, fl_line *line, bool editing)
{
    read_result r;
    while ((r = read_chunk(L, line, editing)) == READ_NOTHING || r == READ_ERROR)
        if (r == READ_ERROR) print_error(L);
    line->end = r == READ_END;
}

/* The time of an input, if it was long enough to be noticed. */
static void print_time(double seconds)
{
    if (seconds < LONG_TIME || !fl_style_on_terminal()) return;
    fputs(fl_style_begin(stdout, FL_DIM), stdout);
    if (seconds < 60) printf("%.*f s", seconds < 10 ? 2 : 1, seconds);
    else printf("%d min %d s", (int)seconds / 60, (int)seconds % 60);
    printf("%s\n", fl_style_end(stdout));
}

/* reads: this is the rank that does */
static fl_status run_session(lua_State *L, bool reads, bool editing)
{
    for (;;) {
        fl_line line = {.at = FL_AT_ALL};
        lua_settop(L, 0);
        if (reads) read_statement(L, &line, editing);
        FL_TRY(fl_session_share(L, &line));
        if (line.end) return FL_OK;
        double begun = fl_now_seconds();
        FL_TRY(fl_session_finish(L, &line, run_line(L, &line)));
        if (reads) print_time(fl_now_seconds() - begun);
    }
}

/* Sets the globals of a session, unless a script before it has taken the name. */
static void set_globals(lua_State *L)
{
    static const char *const names[] = {"nn", "optim", "data", "quit", "exit"};
    lua_pushglobaltable(L);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lua_pushstring(L, names[i]);
        bool taken = lua_rawget(L, -2) != LUA_TNIL;
        lua_pop(L, 1);
        if (taken) continue;
        lua_pushstring(L, names[i]);
        if (i < 3) fl_lua_push_module(L, names[i]);
        else push_exit(L);
        lua_rawset(L, -3);
    }
    lua_pop(L, 1);
}

static void print_greeting(void)
{
    printf("flowlua %s  %s\n", FL_VERSION, LUA_COPYRIGHT);
    if (fl_comm_get())
        printf("All %d ranks evaluate a line; \"@1 x\" asks rank 1 alone, \"@* x\" shows every rank's answer.\n",
               fl_world_get()->size);
    printf("help() says what there is, Tab completes names, quit ends.\n");
}

fl_status fl_lua_repl(lua_State *L, bool greet)
{
    bool reads = fl_world_get()->rank == 0 || !fl_comm_get(), editing = false;
    fl_status status = fl_session_start(L);
    set_globals(L);
    fl_lua_in_session = true;
    fl_style_open();
    if (reads && greet) print_greeting();
    if (reads && status == FL_OK) editing = fl_editor_open(L);
    if (status == FL_OK) status = run_session(L, reads, editing);
    lua_settop(L, 0);
    if (reads) fputc('\n', stdout);
    fflush(stdout);
    if (editing) fl_editor_close();
    fl_session_stop();
    return status;
}

/*
** repl.c -- the interactive session: history, completion, input over several lines, values printed at once.
**
** Lines are edited by libedit, opened only here so that scripts start fast; without it, or when input is no
** terminal, lines are read plainly. Ctrl-C clears the line being typed or stops the one that runs; Ctrl-D ends.
** Over several ranks rank 0 reads, and all evaluate what it has read (repl_ranks.c).
*/
#include "repl.h"
#include "../core/comm.h"
#include "../core/random.h"

#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if __has_include(<histedit.h>)
#include <histedit.h>
#define HAVE_EDITLINE 1
#endif

enum { LINE_LIMIT = 1 << 16, HISTORY_LIMIT = 1000 };

static lua_State *session;          /* for the completion callback */
static const char *prompt_now;

/* ---- the line editor ---- */

#ifdef HAVE_EDITLINE

static struct {
    void *library;
    EditLine *line;
    History *history;
    char path[4096];                /* of the history file; "" when there is no home */
    bool cancelled;                 /* Ctrl-C */
    EditLine *(*init)(const char *, FILE *, FILE *, FILE *);
    void (*end)(EditLine *);
    int (*set)(EditLine *, int, ...);
    const char *(*gets)(EditLine *, int *);
    const LineInfo *(*info)(EditLine *);
    int (*insert)(EditLine *, const char *);
    void (*resize)(EditLine *);
    History *(*history_init)(void);
    void (*history_end)(History *);
    int (*history_do)(History *, HistEvent *, int, ...);
} edit;

static char *give_prompt(EditLine *line)
{
    (void)line;
    return (char *)prompt_now;
}

static unsigned char on_cancel(EditLine *line, int key)
{
    edit.cancelled = true;
    fputs("^C\n", stdout);
    return CC_NEWLINE;
}

static unsigned char on_end(EditLine *line, int key)
{
    const LineInfo *info = edit.info(line);
    return info->lastchar == info->buffer ? CC_EOF : CC_ERROR;
}

/* Prints the candidates (a list on the stack) in columns under the line. */
static void print_candidates(lua_State *L, int count)
{
    size_t width = 0, length;
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, -1, i);
        lua_tolstring(L, -1, &length);
        if (length > width) width = length;
        lua_pop(L, 1);
    }
    int columns = 80 / (int)(width + 2), rows;
    if (columns < 1) columns = 1;
    rows = (count + columns - 1) / columns;
    fputc('\n', stdout);
    for (int row = 0; row < rows; row++) {
        for (int i = row + 1; i <= count; i += rows) {
            lua_rawgeti(L, -1, i);
            printf("%-*s", (int)(width + 2), lua_tostring(L, -1));
            lua_pop(L, 1);
        }
        fputc('\n', stdout);
    }
    fflush(stdout);
}

/* Length of what all candidates begin with. */
static size_t common_prefix(lua_State *L, int count)
{
    size_t n = 0;
    lua_rawgeti(L, -1, 1);
    const char *first = lua_tolstring(L, -1, &n);
    for (int i = 2; i <= count; i++) {
        lua_rawgeti(L, -2, i);
        const char *other = lua_tostring(L, -1);
        size_t same = 0;
        while (same < n && other[same] == first[same]) same++;
        n = same;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return n;
}

/* What Tab inserts: the rest of the common prefix; pushes it. False: nothing new. */
static bool push_insertion(lua_State *L, int count, size_t typed)
{
    size_t n = common_prefix(L, count);
    if (n <= typed) return false;
    lua_rawgeti(L, -1, 1);
    lua_pushlstring(L, lua_tostring(L, -1) + typed, n - typed);
    lua_remove(L, -2);
    return true;
}

static int complete_line(lua_State *L)
{
    const char *line = lua_tostring(L, 1);
    size_t end = (size_t)lua_tointeger(L, 2), start = fl_lua_complete(L, line, end);
    int count = (int)lua_rawlen(L, -1);
    if (count == 0) return 0;
    if (push_insertion(L, count, end - start)) return 1;
    if (count > 1) print_candidates(L, count);
    lua_pushliteral(L, "");
    return 1;
}

static unsigned char on_tab(EditLine *line, int key)
{
    const LineInfo *info = edit.info(line);
    lua_State *L = session;
    int top = lua_gettop(L);
    if (info->cursor == info->buffer) {
        edit.insert(line, "    ");
        return CC_REFRESH;
    }
    lua_pushcfunction(L, complete_line);
    lua_pushlstring(L, info->buffer, (size_t)(info->lastchar - info->buffer));
    lua_pushinteger(L, info->cursor - info->buffer);
    unsigned char result = CC_ERROR;
    if (lua_pcall(L, 2, 1, 0) == LUA_OK && lua_isstring(L, -1)) {
        const char *text = lua_tostring(L, -1);
        result = *text ? CC_REFRESH : CC_REDISPLAY;
        if (*text && edit.insert(line, text) != 0) result = CC_ERROR;
    }
    lua_settop(L, top);
    return result;
}

static bool find_functions(void)
{
    edit.library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!edit.library) return false;
    const struct { void **at; const char *name; } wanted[] = {
        {(void **)&edit.init, "el_init"}, {(void **)&edit.end, "el_end"}, {(void **)&edit.set, "el_set"}, {(void **)&edit.gets, "el_gets"},
        {(void **)&edit.info, "el_line"}, {(void **)&edit.insert, "el_insertstr"}, {(void **)&edit.resize, "el_resize"},
        {(void **)&edit.history_init, "history_init"},
        {(void **)&edit.history_end, "history_end"}, {(void **)&edit.history_do, "history"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!(*wanted[i].at = dlsym(edit.library, wanted[i].name))) return false;
    return true;
}

static void open_history(void)
{
    HistEvent event;
    const char *home = getenv("HOME");
    edit.history = edit.history_init();
    if (!edit.history) return;
    edit.history_do(edit.history, &event, H_SETSIZE, HISTORY_LIMIT);
    edit.history_do(edit.history, &event, H_SETUNIQUE, 1);
    edit.set(edit.line, EL_HIST, edit.history_do, edit.history);
    if (!home || snprintf(edit.path, sizeof edit.path, "%s/.flowlua_history", home) >= (int)sizeof edit.path) edit.path[0] = 0;
    if (edit.path[0]) edit.history_do(edit.history, &event, H_LOAD, edit.path);
}

static bool editor_open(void)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !find_functions()) return false;
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8"); /* the editor would drop what is not ASCII */
    edit.line = edit.init("flowlua", stdin, stdout, stderr);
    if (!edit.line) return false;
    edit.set(edit.line, EL_EDITOR, "emacs");
    edit.set(edit.line, EL_PROMPT, give_prompt);
    edit.set(edit.line, EL_ADDFN, "flow-complete", "complete the word", on_tab);
    edit.set(edit.line, EL_ADDFN, "flow-cancel", "clear the line", on_cancel);
    edit.set(edit.line, EL_ADDFN, "flow-end", "end of input on an empty line", on_end);
    edit.set(edit.line, EL_BIND, "\t", "flow-complete", NULL);
    edit.set(edit.line, EL_BIND, "^C", "flow-cancel", NULL);
    edit.set(edit.line, EL_BIND, "^D", "flow-end", NULL);
    edit.set(edit.line, EL_BIND, "^R", "em-inc-search-prev", NULL);
    edit.set(edit.line, EL_SETTY, "-d", "-isig", NULL); /* Ctrl-C arrives as a key while a line is typed */
    open_history();
    return true;
}

static void editor_close(void)
{
    HistEvent event;
    if (edit.history && edit.path[0]) edit.history_do(edit.history, &event, H_SAVE, edit.path);
    if (edit.line) edit.end(edit.line);
    if (edit.history) edit.history_end(edit.history);
}

/* The next line, pushed without its newline; false at the end of input. */
static bool editor_read(lua_State *L, bool *cancelled)
{
    HistEvent event;
    int count = 0;
    edit.cancelled = false;
    edit.resize(edit.line);
    const char *line = edit.gets(edit.line, &count);
    *cancelled = edit.cancelled;
    if (*cancelled) {
        lua_pushliteral(L, "");
        return true;
    }
    if (!line || count <= 0) return false;
    size_t n = (size_t)count;
    if (edit.history && n > 1) edit.history_do(edit.history, &event, H_ENTER, line);
    if (line[n - 1] == '\n') n--;
    lua_pushlstring(L, line, n);
    return true;
}

#else
static bool editor_open(void) { return false; }
static void editor_close(void) {}
static bool editor_read(lua_State *L, bool *cancelled) { return false; }
#endif

static bool plain_read(lua_State *L)
{
    luaL_Buffer b;
    int c;
    fputs(prompt_now, stdout);
    fflush(stdout);
    luaL_buffinit(L, &b);
    while ((c = getchar()) != EOF && c != '\n') luaL_addchar(&b, (char)c);
    luaL_pushresult(&b);
    if (c != EOF || lua_rawlen(L, -1) > 0) return true;
    lua_pop(L, 1);
    return false;
}

/* ---- reading a statement ---- */

typedef enum read_result { READ_END, READ_NOTHING, READ_CHUNK, READ_ERROR } read_result;

static const char *prompt_text(lua_State *L, bool first)
{
    static char text[2][64];
    lua_getglobal(L, first ? "_PROMPT" : "_PROMPT2");
    const char *given = luaL_tolstring(L, -1, NULL);
    bool is_nil = lua_isnil(L, -2);
    if (!is_nil) snprintf(text[first], sizeof text[first], "%s", given);
    else if (!first) strcpy(text[first], ">> ");
    else if (fl_comm_get()) snprintf(text[first], sizeof text[first], "flow[%d ranks]> ", fl_world_get()->size);
    else strcpy(text[first], "> ");
    lua_pop(L, 2);
    return text[first];
}

static bool read_line(lua_State *L, bool first, bool editing, bool *cancelled)
{
    prompt_now = prompt_text(L, first);
    *cancelled = false;
    return editing ? editor_read(L, cancelled) : plain_read(L);
}

static bool is_incomplete(lua_State *L, int status)
{
    static const char mark[] = "<eof>";
    size_t n;
    if (status != LUA_ERRSYNTAX) return false;
    const char *message = lua_tolstring(L, -1, &n);
    return n >= sizeof mark - 1 && strcmp(message + n - (sizeof mark - 1), mark) == 0;
}

/* Compiles the text at index 1 as an expression, else as a statement; *more: it goes on in the next line. */
static int compile(lua_State *L, bool *more)
{
    size_t n;
    const char *text = lua_tolstring(L, 1, &n);
    const char *expression = lua_pushfstring(L, "return %s", text);
    int status = luaL_loadbuffer(L, expression, strlen(expression), "=stdin");
    lua_remove(L, 2);
    *more = is_incomplete(L, status);
    if (status == LUA_OK) return status;
    lua_pop(L, 1);
    status = luaL_loadbuffer(L, text, n, "=stdin");
    *more = status != LUA_OK && (*more || is_incomplete(L, status));
    return status;
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
        lua_pushliteral(L, "@ takes a rank or *: \"@2 x\" evaluates x on rank 2 alone, \"@* x\" shows the answers of all ranks");
        return false;
    } else if (rank >= size) {
        lua_pushfstring(L, "@%d: there is no rank %d, the world has %d", (int)rank, (int)rank, size);
        return false;
    } else line->at = (int)rank;
    replace_text(L, "%s", end);
    return true;
}

/* Reads lines until they compile; their text or an error message is left on the stack. */
static read_result read_chunk(lua_State *L, fl_line *line, bool editing)
{
    bool cancelled, more;
    lua_settop(L, 0);
    if (!read_line(L, true, editing, &cancelled)) return READ_END;
    if (cancelled) return READ_NOTHING;
    if (!read_target(L, line)) return READ_ERROR;
    if (lua_tostring(L, 1)[0] == '=') replace_text(L, "return %s", lua_tostring(L, 1) + 1); /* "= x" as in old Lua */
    for (;;) {
        int status = compile(L, &more);
        if (status == LUA_OK) {
            lua_settop(L, 1);
            return READ_CHUNK;
        }
        if (!more || lua_rawlen(L, 1) > LINE_LIMIT) return READ_ERROR;
        lua_settop(L, 1);
        if (!read_line(L, false, editing, &cancelled)) return READ_END;
        if (cancelled) return READ_NOTHING;
        lua_pushliteral(L, "\n");
        lua_insert(L, -2);
        lua_concat(L, 3);
    }
}

/* ---- running ---- */

static void print_error(lua_State *L)
{
    const char *message = lua_tostring(L, -1);
    fflush(stdout);
    fprintf(stderr, "%s\n", message ? message : "(error message is not a string)");
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
    inspect(L, "show", 0);
    return 0;
}

/* The values 1..n as a text, for rank 0 to print. */
static int text_of_values(lua_State *L)
{
    inspect(L, "texts", 1);
    return 1;
}

/* Runs the text on the stack; what is left there is the answer or the error. */
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
    return fl_lua_was_interrupted() ? FL_INTERRUPTED : fl_comm_deserted ? FL_DESERTED : FL_FAILED;
}

/* Alone on its rank: communicates nothing, and its random numbers are not missing in the ranks' common sequence. */
static fl_outcome run_alone(lua_State *L, const fl_line *line)
{
    static char who[16];
    if (!fl_comm_get()) return run_text(L, line);
    if (line->at != fl_world_get()->rank) return FL_DONE;
    fl_generator *generator = fl_generator_current(), before = *generator;
    snprintf(who, sizeof who, "@%d", line->at);
    fl_comm_forbidden = who;
    fl_outcome outcome = run_text(L, line);
    fl_comm_forbidden = NULL;
    *generator = before;
    return outcome;
}

static fl_outcome run_line(lua_State *L, const fl_line *line)
{
    fl_comm_deserted = false;
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

static fl_status run_session(lua_State *L, bool editing)
{
    for (;;) {
        fl_line line = {.at = FL_AT_ALL};
        lua_settop(L, 0);
        if (fl_world_get()->rank == 0 || !fl_comm_get()) read_statement(L, &line, editing);
        FL_TRY(fl_session_share(L, &line));
        if (line.end) return FL_OK;
        FL_TRY(fl_session_finish(L, &line, run_line(L, &line)));
    }
}

static void print_greeting(void)
{
    printf("flowlua %s  %s\n", FL_VERSION, LUA_COPYRIGHT);
    if (fl_comm_get()) printf("All %d ranks evaluate a line; \"@1 x\" asks rank 1 alone, \"@* x\" shows every rank's answer.\n", fl_world_get()->size);
}

fl_status fl_lua_repl(lua_State *L, bool greet)
{
    bool first = fl_world_get()->rank == 0 || !fl_comm_get(), editing = false;
    fl_status status = fl_session_start(L);
    session = L;
    fl_lua_in_session = true;
    if (first && greet) print_greeting();
    if (first && status == FL_OK) editing = editor_open();
    if (status == FL_OK) status = run_session(L, editing);
    lua_settop(L, 0);
    if (first) fputc('\n', stdout);
    fflush(stdout);
    if (editing) editor_close();
    fl_session_stop();
    return status;
}

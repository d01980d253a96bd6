/*
** editor.c -- the line editor: libedit, opened at run time and only here, so that scripts start fast.
**
** The input is one line; a pasted block (bracketed paste: the terminal marks its begin and end) and an entry of the
** history may have several, edited together: Up and Down move in them before they move in the history. A function of
** ours cannot call one of libedit's, so it pushes keys that are bound to it: sequences which no keyboard sends.
*/
#include "lua/bind/modules.h"
#include "repl.h"

#if __has_include(<histedit.h>)

#include <dlfcn.h>
#include <histedit.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LIMIT = 1000, CTRL_C = 3 };

#define KEY_END "\033[901~"      /* ed-move-to-end */
#define KEY_CANCEL "\033[902~"   /* flow-cancel */
#define KEY_PREVIOUS "\033[903~" /* ed-prev-history */
#define KEY_NEXT "\033[904~"     /* ed-next-history */

static lua_State *session; /* for the completion */

static struct {
    void *library;
    EditLine *line;
    History *history;
    const char *prompt;
    char path[4096]; /* of the history file; "" when there is no home */
    bool cancelled;  /* Ctrl-C */
    EditLine *(*init)(const char *, FILE *, FILE *, FILE *);
    void (*end)(EditLine *);
    int (*set)(EditLine *, int, ...);
    const char *(*gets)(EditLine *, int *);
    int (*getc)(EditLine *, wchar_t *);
    void (*push)(EditLine *, const char *);
    const LineInfo *(*info)(EditLine *);
    const LineInfoW *(*wide_info)(EditLine *);
    int (*insert)(EditLine *, const char *);
    int (*insert_wide)(EditLine *, const wchar_t *);
    int (*move)(EditLine *, int);
    void (*resize)(EditLine *);
    History *(*history_init)(void);
    void (*history_end)(History *);
    int (*history_do)(History *, HistEvent *, int, ...);
} edit;

static char *give_prompt(EditLine *line)
{
    (void)line;
    return (char *)edit.prompt;
}

/* ---- keys ---- */

/* The cursor is at the end, and so below all lines. */
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

/* The start of the line of the input that contains `at`. */
static const wchar_t *line_start(const wchar_t *buffer, const wchar_t *at)
{
    while (at > buffer && at[-1] != L'\n') at--;
    return at;
}

static const wchar_t *line_end(const wchar_t *at, const wchar_t *last)
{
    while (at < last && *at != L'\n') at++;
    return at;
}

/* To the same column of the line that begins at `start`. */
static unsigned char move_to_line(EditLine *line, const LineInfoW *info, const wchar_t *start)
{
    ptrdiff_t column = info->cursor - line_start(info->buffer, info->cursor),
              length = line_end(start, info->lastchar) - start;
    edit.move(line, (int)(start + (column < length ? column : length) - info->cursor));
    return CC_CURSOR;
}

static unsigned char on_up(EditLine *line, int key)
{
    const LineInfoW *info = edit.wide_info(line);
    const wchar_t *start = line_start(info->buffer, info->cursor);
    if (start > info->buffer) return move_to_line(line, info, line_start(info->buffer, start - 1));
    edit.push(line, KEY_PREVIOUS);
    return CC_NORM;
}

static unsigned char on_down(EditLine *line, int key)
{
    const LineInfoW *info = edit.wide_info(line);
    const wchar_t *end = line_end(info->cursor, info->lastchar);
    if (end < info->lastchar) return move_to_line(line, info, end + 1);
    edit.push(line, KEY_NEXT);
    return CC_NORM;
}

/* ---- pasting ---- */

struct pasted {
    wchar_t *text; /* owned, ends with a 0 */
    size_t length, room;
};

static bool paste_add(struct pasted *pasted, wchar_t character)
{
    if (pasted->length + 2 > pasted->room) {
        size_t room = pasted->room ? 2 * pasted->room : 1024;
        wchar_t *text = realloc(pasted->text, room * sizeof *text);
        if (!text) return false;
        pasted->text = text;
        pasted->room = room;
    }
    pasted->text[pasted->length++] = character;
    pasted->text[pasted->length] = 0;
    return true;
}

/* Takes the mark off that ends a paste. */
static bool paste_ends(struct pasted *pasted)
{
    static const wchar_t mark[] = L"\033[201~";
    size_t n = wcslen(mark);
    if (pasted->length < n || wcscmp(pasted->text + pasted->length - n, mark) != 0) return false;
    pasted->text[pasted->length -= n] = 0;
    return true;
}

/* Reads all up to the mark. False: no memory, no more input, or Ctrl-C, for a terminal may fail to send the mark. */
static bool paste_read(EditLine *line, struct pasted *pasted)
{
    wchar_t c;
    while (edit.getc(line, &c) == 1 && c != CTRL_C) {
        if (c != 0 && !paste_add(pasted, c == L'\r' ? L'\n' : c)) return false;
        if (c == L'~' && paste_ends(pasted)) return true;
    }
    return false;
}

/* The block becomes part of the input as it is: no key in it acts. */
static unsigned char on_paste(EditLine *line, int key)
{
    struct pasted p = {0};
    unsigned char result = CC_ERROR;
    if (paste_read(line, &p)) result = p.length == 0 || edit.insert_wide(line, p.text) == 0 ? CC_REFRESH : CC_ERROR;
    free(p.text);
    return result;
}

/* ---- completion ---- */

/* The results of complete.lua, by stack index. */
enum { TYPED = 1, WORDS, START, HIDDEN, NOTES };

static const char *word_at(lua_State *L, int i, size_t *length)
{
    lua_rawgeti(L, WORDS, i);
    const char *word = lua_tolstring(L, -1, length);
    lua_pop(L, 1); /* the list keeps it */
    return word;
}

/* Words with a note each: one a line. */
static void print_notes(lua_State *L, int count, int width, size_t hidden)
{
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, NOTES, i);
        printf("%-*s  %s%s%s\n", width, word_at(L, i, NULL) + hidden, fl_style_begin(stdout, FL_DIM),
               lua_tostring(L, -1), fl_style_end(stdout));
        lua_pop(L, 1);
    }
}

static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static void print_columns(lua_State *L, int count, int width, size_t hidden)
{
    int columns = (terminal_width() + 1) / (width + 2);
    if (columns < 1) columns = 1;
    int rows = (count + columns - 1) / columns;
    for (int row = 1; row <= rows; row++)
        for (int i = row; i <= count; i += rows)
            printf("%-*s%s", width, word_at(L, i, NULL) + hidden, i + rows <= count ? "  " : "\n");
}

/* Prints the words under the line, without what they all have in front of the name. */
static void print_words(lua_State *L, int count)
{
    size_t hidden = (size_t)lua_tointeger(L, HIDDEN), width = 0, length;
    for (int i = 1; i <= count; i++) {
        word_at(L, i, &length);
        if (length - hidden > width) width = length - hidden;
    }
    fputc('\n', stdout);
    if (lua_istable(L, NOTES)) print_notes(L, count, (int)width, hidden);
    else print_columns(L, count, (int)width, hidden);
    fflush(stdout);
}

/* Length of what all words begin with. */
static size_t common_length(lua_State *L, int count)
{
    size_t n;
    const char *first = word_at(L, 1, &n);
    for (int i = 2; i <= count; i++) {
        const char *other = word_at(L, i, NULL);
        size_t same = 0;
        while (same < n && other[same] == first[same]) same++;
        n = same;
    }
    return n;
}

/* (text up to the cursor) -> what Tab inserts; "": it has printed the words; nil: there are none */
static int complete_text(lua_State *L)
{
    fl_lua_push_module(L, "complete");
    lua_pushvalue(L, TYPED);
    lua_call(L, 1, 4);
    int count = (int)lua_rawlen(L, WORDS);
    if (count == 0) return 0;
    size_t typed = lua_rawlen(L, TYPED) + 1 - (size_t)lua_tointeger(L, START), common = common_length(L, count);
    if (common > typed) {
        lua_pushlstring(L, word_at(L, 1, NULL) + typed, common - typed);
        return 1;
    }
    if (count > 1) print_words(L, count);
    lua_pushliteral(L, "");
    return 1;
}

/* True if only blanks precede the cursor in its line. */
static bool is_at_margin(const LineInfo *info)
{
    const char *at = info->cursor;
    while (at > info->buffer && (at[-1] == ' ' || at[-1] == '\t')) at--;
    return at == info->buffer || at[-1] == '\n';
}

static unsigned char on_tab(EditLine *line, int key)
{
    const LineInfo *info = edit.info(line);
    lua_State *L = session;
    int top = lua_gettop(L);
    if (is_at_margin(info)) return edit.insert(line, "    ") == 0 ? CC_REFRESH : CC_ERROR;
    lua_pushcfunction(L, complete_text);
    lua_pushlstring(L, info->buffer, (size_t)(info->cursor - info->buffer));
    unsigned char result = CC_ERROR;
    if (lua_pcall(L, 1, 1, 0) == LUA_OK && lua_isstring(L, -1)) {
        const char *text = lua_tostring(L, -1);
        result = *text ? CC_REFRESH : CC_REDISPLAY;
        if (*text && edit.insert(line, text) != 0) result = CC_ERROR;
    }
    lua_settop(L, top);
    return result;
}

/* ---- history ---- */

static void save_history(void)
{
    HistEvent event;
    if (edit.history && edit.path[0]) edit.history_do(edit.history, &event, H_SAVE, edit.path);
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
    if (!home || snprintf(edit.path, sizeof edit.path, "%s/.flowlua_history", home) >= (int)sizeof edit.path)
        edit.path[0] = 0;
    if (edit.path[0]) edit.history_do(edit.history, &event, H_LOAD, edit.path);
    atexit(save_history); /* os.exit ends a session too */
}

void fl_editor_remember(const char *text)
{
    HistEvent event;
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n') n--;
    if (!edit.history || n == 0) return;
    char *entry = malloc(n + 2);
    if (!entry) return;
    memcpy(entry, text, n);
    memcpy(entry + n, "\n", 2);
    edit.history_do(edit.history, &event, H_ENTER, entry);
    free(entry);
}

/* ---- opening, reading, closing ---- */

static bool find_functions(void)
{
    edit.library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!edit.library) return false;
    const struct {
        void **at;
        const char *name;
    } wanted[] = {
        {(void **)&edit.init, "el_init"},
        {(void **)&edit.end, "el_end"},
        {(void **)&edit.set, "el_set"},
        {(void **)&edit.gets, "el_gets"},
        {(void **)&edit.getc, "el_wgetc"},
        {(void **)&edit.push, "el_push"},
        {(void **)&edit.info, "el_line"},
        {(void **)&edit.wide_info, "el_wline"},
        {(void **)&edit.insert, "el_insertstr"},
        {(void **)&edit.insert_wide, "el_winsertstr"},
        {(void **)&edit.move, "el_cursor"},
        {(void **)&edit.resize, "el_resize"},
        {(void **)&edit.history_init, "history_init"},
        {(void **)&edit.history_end, "history_end"},
        {(void **)&edit.history_do, "history"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!(*wanted[i].at = dlsym(edit.library, wanted[i].name))) return false;
    return true;
}

static void bind_keys(EditLine *line)
{
    static const struct {
        const char *name, *about;
        unsigned char (*f)(EditLine *, int);
    } functions[] = {
        {"flow-complete", "complete the word", on_tab},
        {"flow-cancel", "clear the input", on_cancel},
        {"flow-end", "end of input on an empty line", on_end},
        {"flow-paste", "insert a pasted block", on_paste},
        {"flow-up", "the line above, or the previous input", on_up},
        {"flow-down", "the line below, or the next input", on_down},
    };
    static const struct {
        const char *key, *function;
    } keys[] = {
        {"\t", "flow-complete"},
        {"^D", "flow-end"},
        {"^R", "em-inc-search-prev"},
        {"\033[200~", "flow-paste"},
        {"\033[A", "flow-up"},
        {"\033OA", "flow-up"},
        {"^P", "flow-up"},
        {"\033[B", "flow-down"},
        {"\033OB", "flow-down"},
        {"^N", "flow-down"},
        {KEY_END, "ed-move-to-end"},
        {KEY_CANCEL, "flow-cancel"},
        {KEY_PREVIOUS, "ed-prev-history"},
        {KEY_NEXT, "ed-next-history"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        edit.set(line, EL_ADDFN, functions[i].name, functions[i].about, functions[i].f);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        edit.set(line, EL_BIND, keys[i].key, keys[i].function, NULL);
    edit.set(line, EL_BIND, "-s", "^C", KEY_END KEY_CANCEL, NULL);
}

bool fl_editor_open(lua_State *L)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !find_functions()) return false;
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8"); /* the editor would drop what is not ASCII */
    edit.line = edit.init("flowlua", stdin, stdout, stderr);
    if (!edit.line) return false;
    session = L;
    edit.set(edit.line, EL_EDITOR, "emacs");
    edit.set(edit.line, EL_PROMPT_ESC, give_prompt, '\1');
    bind_keys(edit.line);
    edit.set(edit.line, EL_SETTY, "-d", "-isig", NULL); /* Ctrl-C arrives as a key while a line is typed */
    open_history();
    return true;
}

void fl_editor_close(void)
{
    save_history();
    if (edit.line) edit.end(edit.line);
    if (edit.history) edit.history_end(edit.history);
    edit.line = NULL;
    edit.history = NULL;
}

/* Switches the terminal's marks around pasted text on or off. */
static void mark_pasted(bool on)
{
    if (!fl_style_has_codes()) return;
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

bool fl_editor_read(lua_State *L, const char *prompt, bool *cancelled)
{
    int count = 0;
    edit.prompt = prompt;
    edit.cancelled = false;
    edit.resize(edit.line);
    mark_pasted(true);
    const char *text = edit.gets(edit.line, &count);
    mark_pasted(false);
    *cancelled = edit.cancelled;
    if (*cancelled) count = 0;
    else if (!text || count <= 0) return false;
    size_t n = (size_t)count;
    if (n > 0 && text[n - 1] == '\n') n--;
    lua_pushlstring(L, text, n);
    return true;
}

#else
bool fl_editor_open(lua_State *L) { return false; }
void fl_editor_close(void) {}
bool fl_editor_read(lua_State *L, const char *prompt, bool *cancelled) { return false; }
void fl_editor_remember(const char *text) {}
#endif

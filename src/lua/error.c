/*
** error.c -- the one place that raises, and the words that help: where, what, did you mean.
*/
#include "binding.h"

#include <stdio.h>
#include <string.h>

/* Our own modules are loaded with chunk names that begin so; a user wants the line in his script. */
static const char own_chunk[] = "=flow.";

bool fl_lua_is_own(const lua_Debug *ar) { return strncmp(ar->source, own_chunk, sizeof own_chunk - 1) == 0; }

/* Finds the nearest level that runs a line of the user's; else the nearest Lua line at all. */
static bool find_line(lua_State *L, lua_Debug *found)
{
    lua_Debug ar;
    bool any = false;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "l", &ar);
        if (ar.currentline <= 0) continue;
        lua_getinfo(L, "S", &ar);
        if (!any || !fl_lua_is_own(&ar)) *found = ar;
        any = true;
        if (!fl_lua_is_own(&ar)) return true;
    }
    return any;
}

bool fl_lua_in_script(lua_State *L)
{
    lua_Debug ar;
    return find_line(L, &ar) && !fl_lua_is_own(&ar);
}

/* Every queued op and every collective asks for this: it is written without printf. */
void fl_lua_where(lua_State *L, char *buffer, size_t size)
{
    lua_Debug ar;
    char digits[16], *d = digits + sizeof digits;
    buffer[0] = 0;
    if (!L || !find_line(L, &ar)) return;
    *--d = 0;
    for (int line = ar.currentline; line > 0; line /= 10) *--d = (char)('0' + line % 10);
    *--d = ':';
    size_t name = strlen(ar.short_src), number = strlen(d);
    if (number >= size) return;
    if (name > size - 1 - number) name = size - 1 - number;
    memcpy(buffer, ar.short_src, name);
    memcpy(buffer + name, d, number + 1);
}

__attribute__((noreturn)) int fl_lua_error(lua_State *L, fl_status status)
{
    lua_Debug ar;
    fl_lua_current = L;
    if (status == FL_ERR_INTERRUPTED) fl_lua_interrupt_raised();
    if (find_line(L, &ar) && !fl_lua_is_own(&ar)) lua_pushfstring(L, "%s:%d: %s", ar.short_src, ar.currentline, fl_message());
    else lua_pushstring(L, fl_message());
    lua_error(L);
    __builtin_unreachable();
}

const char *fl_lua_type_name(lua_State *L, int index)
{
    if (fl_lua_box(L, index)) return "tensor";
    if (lua_type(L, index) == LUA_TNONE) return "nothing";
    if (lua_type(L, index) == LUA_TNUMBER && lua_tonumber(L, index) != lua_tonumber(L, index)) return "nan";
    return luaL_typename(L, index);
}

/* ---- did you mean ---- */

enum { WORD_LIMIT = 40 };

/* Edits (insert, delete, replace, swap neighbours) between a and b, or a large number when they are far apart. */
static int edit_distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n >= WORD_LIMIT || m >= WORD_LIMIT || n - m > 3 || m - n > 3) return WORD_LIMIT;
    int rows[3][WORD_LIMIT];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= m; j++) last[j] = j;
    for (int i = 1; i <= n; i++) {
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
        }
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

void fl_suggest_offer(fl_suggestion *s, const char *name)
{
    int distance = edit_distance(s->word, name), limit = (int)strlen(s->word) / 3;
    if (distance > (limit < 1 ? 1 : limit > 3 ? 3 : limit)) return;
    if (!s->best || distance < s->distance || (distance == s->distance && strcmp(name, s->best) < 0)) {
        s->best = name;
        s->distance = distance;
    }
}

const char *fl_suggest_text(char *buffer, const fl_suggestion *s)
{
    buffer[0] = 0;
    if (s->best) snprintf(buffer, FL_SUGGEST_TEXT, "; did you mean '%s'?", s->best);
    return buffer;
}

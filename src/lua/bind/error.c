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

/* Pushes the name under which the table at `index` holds the value at `value`; false, and nothing pushed: it does
** not. */
static bool push_name_in(lua_State *L, int index, int value)
{
    lua_pushnil(L);
    while (lua_next(L, index)) {
        bool found = lua_type(L, -2) == LUA_TSTRING && lua_rawequal(L, -1, value);
        lua_pop(L, 1);
        if (found) return true;
    }
    return false;
}

/* flow:ones(3) for flow.ones(3), flow.sbp:split(0): words the error for a function of ours that got the table that
** holds it as its first argument; false: it did not. Of a callable table (flow:placement(...)) that is its second
** one. */
static bool word_colon(lua_State *L)
{
    bool worded = false;
    lua_Debug ar;
    int top = lua_gettop(L), value = top + 2, table = lua_istable(L, 1) ? 1 : 0;
    if (!table || !lua_checkstack(L, 8) || !lua_getstack(L, 0, &ar) || !fl_lua_push_flow(L)) return false;
    lua_getinfo(L, "nf", &ar);
    bool method = strcmp(ar.namewhat, "method") == 0 || *ar.namewhat == 0;
    bool of_flow = lua_rawequal(L, 1, top + 1);
    if (lua_rawequal(L, 2, top + 1) && top >= 2) {
        table = 2, of_flow = true;
        lua_pushvalue(L, 1);
        value = lua_gettop(L);
    }
    if (method && push_name_in(L, table, value)) {
        const char *name = *ar.namewhat ? ar.name : lua_tostring(L, -1),
                   *owner = NULL; /* one function may have two names */
        if (!of_flow && push_name_in(L, top + 1, 1)) owner = lua_tostring(L, -1);
        worded = of_flow || owner;
        if (worded)
            fl_fail(FL_ERR_VALUE, "flow.%s%s%s is a function: write flow.%s%s%s(...), with a dot", owner ? owner : "",
                    owner ? "." : "", name, owner ? owner : "", owner ? "." : "", name);
    }
    lua_settop(L, top);
    return worded;
}

void fl_lua_refuse_colon(lua_State *L)
{
    if (lua_istable(L, 1) && word_colon(L)) fl_lua_error(L, FL_ERR_VALUE);
}

__attribute__((noreturn)) int fl_lua_error(lua_State *L, fl_status status)
{
    lua_Debug ar;
    fl_lua_current = L;
    if (status == FL_ERR_INTERRUPTED) fl_lua_interrupt_raised();
    if (status == FL_ERR_VALUE) word_colon(L);
    if (find_line(L, &ar) && !fl_lua_is_own(&ar))
        lua_pushfstring(L, "%s:%d: %s", ar.short_src, ar.currentline, fl_message());
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

const char *fl_lua_push_colon(lua_State *L, const char *object, const char *method)
{
    lua_Debug ar;
    bool field = lua_getstack(L, 0, &ar) && lua_getinfo(L, "n", &ar) && strcmp(ar.namewhat, "field") == 0;
    return field ? lua_pushfstring(L, "; a method is called with a colon: %s:%s()", object, method)
                 : lua_pushliteral(L, "");
}

/* ---- did you mean ---- */

enum { WORD_LIMIT = 40, FAR = 99 };

static char folded(char c) { return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

/* Letters that are mistaken for each other: vowels, digits, neighbours on the keyboard. */
static bool alike(char a, char b)
{
    static const char *const rows[] = {"qwertyuiop", "asdfghjkl", "zxcvbnm"};
    if (strchr("aeiouy", a) && strchr("aeiouy", b)) return true;
    if (a >= '0' && a <= '9' && b >= '0' && b <= '9') return true;
    for (int i = 0; i < 3; i++) {
        const char *p = strchr(rows[i], a), *q = strchr(rows[i], b);
        if (p && q) return p - q == 1 || q - p == 1;
    }
    return false;
}

/* Edits between a and b: one for a letter too many or missing, neighbours swapped or a letter like it, two for another
** letter; FAR when the lengths differ too much. Capitals count as small letters. */
static int edit_distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n >= WORD_LIMIT || m >= WORD_LIMIT || n - m > 3 || m - n > 3) return FAR;
    int rows[3][WORD_LIMIT];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= m; j++) last[j] = j;
    for (int i = 1; i <= n; i++) {
        char c = folded(a[i - 1]);
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            char d = folded(b[j - 1]);
            int best = last[j - 1] + (c == d ? 0 : alike(c, d) ? 1 : 2);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && c == folded(b[j - 2]) && folded(a[i - 2]) == d && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

/* One edit for every three letters; a word with another first letter is hardly the one that was meant. */
static int distance_limit(const char *word, const char *name)
{
    int length = (int)strlen(word), limit = length / 3;
    bool same_start = folded(word[0]) == folded(name[0]);
    if (!same_start && length < 5) return 0;
    if (!same_start) return 1;
    return limit < 1 ? 1 : limit > 3 ? 3 : limit;
}

void fl_suggest_offer(fl_suggestion *s, const char *name)
{
    bool renamed = fl_lua_is_renamed(s->word, name);
    int distance = renamed ? -1 : edit_distance(s->word, name);
    if (!renamed && distance > distance_limit(s->word, name)) return;
    if (!s->best || distance < s->distance || (distance == s->distance && strcmp(name, s->best) < 0)) {
        s->best = name;
        s->distance = distance;
    }
}

const char *fl_suggest_text(char *buffer, const fl_suggestion *s)
{
    const char *advice = s->place ? fl_lua_advice(s->place, s->word) : NULL;
    buffer[0] = 0;
    if (advice && *advice) snprintf(buffer, FL_SUGGEST_TEXT, "; %s", advice);
    else if (!advice && s->best && s->distance < 0)
        snprintf(buffer, FL_SUGGEST_TEXT, "; it is called '%s' here", s->best);
    else if (!advice && s->best) snprintf(buffer, FL_SUGGEST_TEXT, "; did you mean '%s'?", s->best);
    return buffer;
}

/* ---- strict tables and objects ---- */

/* Pushes "; it has a, b" of the public names of the table at 1 in the order of their letters; "" where there are
** none. */
static const char *push_names(lua_State *L)
{
    const char *names[16];
    int n = 0;
    lua_pushnil(L);
    while (n < 16 && lua_next(L, 1)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING || lua_tostring(L, -1)[0] == '_') continue;
        int at = n++;
        for (; at > 0 && strcmp(names[at - 1], lua_tostring(L, -1)) > 0; at--) names[at] = names[at - 1];
        names[at] = lua_tostring(L, -1); /* kept alive by the table */
    }
    lua_pushstring(L, n > 0 ? "; it has " : "");
    for (int i = 0; i < n; i++) {
        lua_pushfstring(L, "%s%s", i > 0 ? ", " : "", names[i]);
        lua_concat(L, 2);
    }
    return lua_tostring(L, -1);
}

/* __index; upvalue 1 is what the table is called. */
static int unknown_field(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    const char *key = luaL_tolstring(L, 2, NULL);
    fl_suggestion s = {.word = key};
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING && lua_tostring(L, -2)[0] != '_') fl_suggest_offer(&s, lua_tostring(L, -2));
        lua_pop(L, 1);
    }
    char hint[FL_SUGGEST_TEXT];
    fl_suggest_text(hint, &s);
    FL_RAISE(L, "%s has no '%s'%s", lua_tostring(L, lua_upvalueindex(1)), key, *hint ? hint : push_names(L));
}

void fl_lua_set_strict(lua_State *L, const char *name)
{
    lua_pushstring(L, name);
    lua_pushcclosure(L, unknown_field, 1);
    lua_setfield(L, -2, "__index");
}

static int refuse_field(lua_State *L)
{
    FL_RAISE(L, "%s has no field that can be assigned, got '%s'", lua_tostring(L, lua_upvalueindex(1)),
             luaL_tolstring(L, 2, NULL));
}

void fl_lua_set_constant(lua_State *L, const char *what)
{
    lua_pushstring(L, what);
    lua_pushcclosure(L, refuse_field, 1);
    lua_setfield(L, -2, "__newindex");
}

void fl_lua_set_object(lua_State *L, const char *what)
{
    fl_lua_set_constant(L, what);
    if (lua_getfield(L, -1, "__index") == LUA_TNIL) {
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_setfield(L, -4, "__index");
        lua_replace(L, -2);
    }
    lua_createtable(L, 0, 1);
    fl_lua_set_strict(L, what);
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

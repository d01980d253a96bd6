/*
** where.c -- the line of the user's script that runs now, for errors, queued ops and other ranks.
*/
#include "errors.h"

#include <string.h>

/* Our own modules are loaded with chunk names that begin so; a message has the line of the script. */
static const char own_chunk[] = "=flow.";

bool fl_lua_is_own(const lua_Debug *ar) { return strncmp(ar->source, own_chunk, sizeof own_chunk - 1) == 0; }

/* Every queued op and every collective asks. So the source is not asked of C functions, and found is not copied. */
bool fl_lua_find_line(lua_State *L, lua_Debug *found)
{
    lua_Debug own;
    bool any = false;
    for (int level = 0; lua_getstack(L, level, found); level++) {
        lua_getinfo(L, "l", found);
        if (found->currentline <= 0) continue;
        lua_getinfo(L, "S", found);
        if (!fl_lua_is_own(found)) return true;
        if (!any) own = *found;
        any = true;
    }
    if (any) *found = own;
    return any;
}

bool fl_lua_in_script(lua_State *L)
{
    lua_Debug ar;
    return fl_lua_find_line(L, &ar) && !fl_lua_is_own(&ar);
}

/* Called for every queued op and every collective: so without printf. */
void fl_lua_where(lua_State *L, char *buffer, size_t size)
{
    lua_Debug ar;
    char digits[16], *d = digits + sizeof digits;
    buffer[0] = 0;
    if (!L || !fl_lua_find_line(L, &ar)) return;
    *--d = 0;
    for (int line = ar.currentline; line > 0; line /= 10) *--d = (char)('0' + line % 10);
    *--d = ':';
    size_t name = strlen(ar.short_src), number = strlen(d);
    if (number >= size) return;
    if (name > size - 1 - number) name = size - 1 - number;
    memcpy(buffer, ar.short_src, name);
    memcpy(buffer + name, d, number + 1);
}

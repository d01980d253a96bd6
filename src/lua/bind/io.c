/*
** io.c -- flow._io: functions of the system for the Lua modules.
**
** IDX files, text as numbers, folders, the clock and the terminal; checkpoint.c adds files of tensors, json.c JSON,
** data_readers.c NumPy's files.
** Everything that must be closed or freed belongs to a userdata before a Lua error can happen.
*/
#include "core/process.h"
#include "arguments.h"
#include "members.h"
#include "tensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

/* _io.idx(path) -> tensor */
static int io_idx(lua_State *L)
{
    const char *path = fl_lua_check_path(L, 1, "idx");
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_idx_read(&box->tensor, path));
    fl_lua_account(L);
    return 1;
}

static int file_close(lua_State *L)
{
    luaL_Stream *stream = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    return luaL_fileresult(L, fclose(stream->f) == 0, NULL);
}

/* _io.reader(who, path) -> Lua's handle of a regular file, open for reading */
static int io_reader(lua_State *L)
{
    const char *who = luaL_checkstring(L, 1), *path = fl_lua_check_path(L, 2, who);
    int fd;
    int64_t size;
    luaL_Stream *stream = lua_newuserdatauv(L, sizeof *stream, 0);
    *stream = (luaL_Stream){NULL, NULL}; /* closed */
    luaL_setmetatable(L, LUA_FILEHANDLE);
    FL_CHECK(L, fl_file_open(&fd, &size, who, path));
    if (!(stream->f = fdopen(fd, "rb"))) {
        close(fd);
        FL_RAISE(L, "%s: %s: out of memory", who, path);
    }
    stream->closef = file_close;
    return 1;
}

/* _io.write(who, path, text): a file of these bytes, in the place of what is there */
static int io_write(lua_State *L)
{
    size_t size;
    const char *who = luaL_checkstring(L, 1), *path = fl_lua_check_path(L, 2, who);
    const char *text = luaL_checklstring(L, 3, &size);
    FL_CHECK(L, fl_file_replace(who, path, text, (int64_t)size));
    return 0;
}

/* _io.exists(who, path) -> true if there is anything of this name; an error where that cannot be seen */
static int io_exists(lua_State *L)
{
    const char *who = luaL_checkstring(L, 1), *path = fl_lua_check_path(L, 2, who);
    bool exists = access(path, F_OK) == 0;
    if (!exists && errno != ENOENT && errno != ENOTDIR) FL_RAISE(L, "%s: %s: %s", who, path, strerror(errno));
    lua_pushboolean(L, exists);
    return 1;
}

static int folder_close(lua_State *L)
{
    DIR **folder = luaL_checkudata(L, 1, "flow.folder");
    if (*folder) closedir(*folder);
    *folder = NULL;
    return 0;
}

/* _io.entries(who, folder) -> files, folders: two lists of names, unordered, without hidden ones and links; nil,
** message when the folder cannot be read. */
static int io_entries(lua_State *L)
{
    const char *path = fl_lua_check_path(L, 2, luaL_checkstring(L, 1));
    DIR **folder = lua_newuserdatauv(L, sizeof *folder, 0);
    *folder = NULL;
    luaL_setmetatable(L, "flow.folder");
    if (!(*folder = opendir(path))) return luaL_fileresult(L, 0, path);
    lua_newtable(L);
    lua_newtable(L);
    int counts[2] = {0, 0};
    for (struct dirent *entry; (entry = readdir(*folder));) {
        struct stat info;
        if (entry->d_name[0] == '.' || fstatat(dirfd(*folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) continue;
        bool is_folder = S_ISDIR(info.st_mode);
        lua_pushstring(L, entry->d_name);
        lua_rawseti(L, is_folder ? -2 : -3, ++counts[is_folder]);
    }
    closedir(*folder);
    *folder = NULL;
    return 2;
}

/* _io.clean(text) -> the text as messages show what comes from outside: escapes for control characters (but for those
** in `keep`),
** 1000 bytes at most */
static int io_clean(lua_State *L)
{
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    char buffer[1024];
    lua_pushlstring(L, buffer, fl_text_clean(buffer, sizeof buffer, text, size, luaL_optstring(L, 2, "")));
    return 1;
}

/* _io.hash(text) -> 16 digits (FNV-1a, 64 bits): recognises a file, no protection against attacks. */
static int io_hash(lua_State *L)
{
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)fl_hash_bytes(FL_HASH_START, text, size));
    lua_pushstring(L, digits);
    return 1;
}

/* ---- text as numbers ---- */

/* Characters of the text; -1 when it is not UTF-8. */
static int64_t utf8_count(const unsigned char *text, size_t size)
{
    const unsigned char *at = text, *end = text + size;
    int64_t count = 0;
    int32_t code;
    for (size_t length; at < end; at += length, count++)
        if ((length = fl_utf8_next(&code, at, (size_t)(end - at))) == 0) return -1;
    return count;
}

/* The code of the character at *at, which moves on: a byte, or a code point of text that is UTF-8. */
static int32_t character_next(const unsigned char **at, const unsigned char *end, bool bytes)
{
    int32_t code = 0;
    if (bytes) return *(*at)++;
    *at += fl_utf8_next(&code, *at, (size_t)(end - *at));
    return code;
}

/* Pushes the list of distinct characters, in order of their codes, and writes their numbers, from 0, into `ids`. */
static int push_characters(lua_State *L, int32_t *ids, const unsigned char *text, size_t size, bool bytes)
{
    for (int i = 0; i < FL_CODE_POINTS; i++) ids[i] = -1;
    for (const unsigned char *at = text; at < text + size;) ids[character_next(&at, text + size, bytes)] = 0;
    int count = 0;
    lua_newtable(L);
    for (int code = 0; code < FL_CODE_POINTS; code++) {
        if (ids[code] < 0) continue;
        char byte = (char)code;
        if (bytes) lua_pushlstring(L, &byte, 1);
        else lua_pushfstring(L, "%U", (long)code);
        ids[code] = count++;
        lua_rawseti(L, -2, count);
    }
    return count;
}

/* _io.characters(text) -> list of the distinct characters (bytes, when the text is not UTF-8), tensor of their
** positions in it, counted from 0: uint8 while they fit, else int32. */
static int io_characters(lua_State *L)
{
    size_t size;
    const unsigned char *text = (const unsigned char *)luaL_checklstring(L, 1, &size);
    int64_t length = utf8_count(text, size);
    bool bytes = length < 0;
    if (bytes) length = (int64_t)size;
    int32_t *ids = lua_newuserdatauv(L, sizeof *ids * FL_CODE_POINTS, 0);
    int count = push_characters(L, ids, text, size, bytes);
    fl_box *box = fl_lua_new_box(L);
    fl_shape shape = {.ndim = 1, .dims = {length}};
    FL_CHECK(L, fl_tensor_empty_local(&box->tensor, count <= 256 ? FL_UINT8 : FL_INT32, &shape));
    void *out = length > 0 ? fl_tensor_data(box->tensor) : NULL;
    const unsigned char *at = text;
    for (int64_t i = 0; i < length; i++) {
        int32_t id = ids[character_next(&at, text + size, bytes)];
        if (count <= 256) ((uint8_t *)out)[i] = (uint8_t)id;
        else ((int32_t *)out)[i] = id;
    }
    fl_lua_account(L);
    return 2;
}

/* _io.shuffled(count, seed, epoch, first, n) -> tensor of what comes at positions first .. first + n - 1 */
static int io_shuffled(lua_State *L)
{
    fl_shuffle shuffle;
    lua_Integer count = luaL_checkinteger(L, 1), first = luaL_checkinteger(L, 4), n = luaL_checkinteger(L, 5);
    luaL_argcheck(L, first >= 0 && n >= 0 && n <= count && first <= count - n, 4, "positions out of range");
    fl_shuffle_init(&shuffle, count, (uint64_t)luaL_checkinteger(L, 2), (uint64_t)luaL_checkinteger(L, 3));
    fl_box *box = fl_lua_new_box(L);
    fl_shape shape = {.ndim = 1, .dims = {n}};
    FL_CHECK(L, fl_tensor_empty_local(&box->tensor, FL_INT64, &shape));
    int64_t *out = n > 0 ? fl_tensor_data(box->tensor) : NULL;
    for (lua_Integer i = 0; i < n; i++) out[i] = fl_shuffle_at(&shuffle, first + i);
    return 1;
}

/* ---- clock, terminal, words ---- */

/* _io.clock() -> seconds since some moment in the past */
static int io_clock(lua_State *L)
{
    lua_pushnumber(L, fl_now_seconds());
    return 1;
}

/* _io.terminal_width() -> columns of standard output, nil when it is not a terminal */
static int io_terminal_width(lua_State *L)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO)) return 0;
    lua_pushinteger(L, ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80);
    return 1;
}

/* _io.suggest(word, names[, place[, elsewhere]]) -> "; did you mean 'x'?" or "" */
static int io_suggest(lua_State *L)
{
    fl_suggestion s = {.word = luaL_checkstring(L, 1),
                       .place = luaL_optstring(L, 3, NULL),
                       .elsewhere = luaL_optstring(L, 4, NULL)};
    luaL_checktype(L, 2, LUA_TTABLE);
    char text[FL_SUGGEST_TEXT];
    for (lua_Integer i = 1; lua_rawgeti(L, 2, i) == LUA_TSTRING; i++) {
        fl_suggest_offer(&s, lua_tostring(L, -1));
        lua_pop(L, 1); /* the list keeps the string */
    }
    lua_pushstring(L, fl_suggest_text(text, &s));
    return 1;
}

/* _io.called() -> what messages call the function of our modules that the script called, or ""; the same of the
** innermost one that runs */
static int io_called(lua_State *L)
{
    fl_lua_push_called(L);
    lua_insert(L, -2);
    return 2;
}

static const luaL_Reg functions[] = {
    {"idx", io_idx},
    {"reader", io_reader},
    {"write", io_write},
    {"exists", io_exists},
    {"entries", io_entries},
    {"clean", io_clean},
    {"hash", io_hash},
    {"characters", io_characters},
    {"shuffled", io_shuffled},
    {"clock", io_clock},
    {"called", io_called},
    {"terminal_width", io_terminal_width},
    {"suggest", io_suggest},
    {"print_style", fl_lua_print_style},
    {NULL, NULL},
};

void fl_lua_open_io(lua_State *L, int flow)
{
    luaL_newmetatable(L, "flow.folder");
    lua_pushcfunction(L, folder_close);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    fl_lua_push_names(L);
    lua_setfield(L, -2, "names");
    fl_lua_open_checkpoint(L, lua_gettop(L));
    fl_lua_open_json(L, lua_gettop(L));
    fl_lua_open_pack(L, lua_gettop(L));
    fl_lua_open_records(L, lua_gettop(L));
    fl_lua_open_loader(L, lua_gettop(L));
    fl_lua_open_readers(L, lua_gettop(L));
    fl_lua_open_tokens(L, lua_gettop(L));
    fl_lua_open_images(L, lua_gettop(L));
    lua_setfield(L, flow, "_io");
}

/*
** ranks.c -- several ranks as the program starts them (--ranks N), and the script they all read from one standard
** input.
*/
#define _GNU_SOURCE
#include "core/process.h"
#include "shell.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- --ranks N ---- */

/* Options of mpirun: every rank chooses its cores itself. */
static const char *const mpirun_words[] = {"mpirun", "--oversubscribe", "--bind-to", "none"};
enum { MPIRUN_WORDS = sizeof mpirun_words / sizeof *mpirun_words, MORE_WORDS = 6 };

/* Without shared memory only mpirun's output names the rank that was killed; otherwise it adds nothing to our
** report. */
static bool mpirun_may_speak(void)
{
    const char *shared = getenv("FLOW_SHARED");
    return shared && strcmp(shared, "0") == 0;
}

/* True if the shell finds a program of this name. */
static bool in_path(const char *name)
{
    char path[FL_PLUGIN_PATH];
    for (const char *at = getenv("PATH"); at && *at;) {
        int length = (int)strcspn(at, ":");
        if (snprintf(path, sizeof path, "%.*s/%s", length, at, name) < (int)sizeof path && access(path, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* mpirun searches for the program that starts ranks on other hosts even where none is needed, and fails in containers
** that lack it. */
static void stay_on_this_host(void)
{
    if (!in_path("ssh") && !in_path("rsh")) setenv("OMPI_MCA_plm", "isolated", 0);
}

/* A rank that ends waits two seconds for mpirun to note that it has finalized, and goes. On a machine so busy that
** mpirun has not run by then, it would take this for an end without MPI_Finalize and end the job with status 1, without
** a word. Ranks that are gone too early are reported by the others (failure.c). */
static void allow_late_mpirun(void) { setenv("OMPI_MCA_orte_allowed_exit_without_sync", "1", 0); }

/* argv without the words [skip, skip + skipped), behind mpirun and its options. */
static char **command_line(char **argv, int skip, int skipped, char *ranks, char *program)
{
    int argc = 0, n = 0;
    while (argv[argc]) argc++;
    char **words = calloc((size_t)(MPIRUN_WORDS + MORE_WORDS + argc), sizeof *words);
    if (!words) return NULL;
    for (int i = 0; i < MPIRUN_WORDS; i++) words[n++] = (char *)mpirun_words[i];
    if (!mpirun_may_speak()) words[n++] = "-q";
    if (geteuid() == 0) words[n++] = "--allow-run-as-root";
    words[n++] = "-n";
    words[n++] = ranks;
    words[n++] = program;
    for (int i = 1; i < argc; i++)
        if (i < skip || i >= skip + skipped) words[n++] = argv[i];
    return words;
}

/* mpirun waits for the end of a standard input that cannot be read, and for a stream that is held for one that is
** closed. */
static void open_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int mode = fcntl(fd, F_GETFL) & O_ACCMODE, null;
        if (mode == O_RDWR || mode == (fd == STDIN_FILENO ? O_RDONLY : O_WRONLY)) continue;
        null = open("/dev/null", O_RDWR);
        if (null < 0) continue;
        dup2(null, fd);
        close(null);
    }
}

fl_status fl_lua_start_ranks(char **argv, int skip, int skipped, int ranks)
{
    char path[FL_PLUGIN_PATH], count[16];
    if (fl_launched(NULL))
        return fl_fail(FL_ERR_STATE, "--ranks %d: this process already runs under mpirun; leave out --ranks or mpirun",
                       ranks);
    if (!fl_plugin_find(path, "mpi"))
        return fl_fail(
            FL_ERR_MISSING,
            "--ranks needs flowlua-mpi.so, which was not built: install the package libopenmpi-dev and run make");
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return fl_fail(FL_ERR_IO, "--ranks: /proc/self/exe cannot be read: %s", strerror(errno));
    path[n] = '\0';
    snprintf(count, sizeof count, "%d", ranks);
    char **words = command_line(argv, skip, skipped, count, path);
    if (!words) return fl_fail(FL_ERR_MEMORY, "--ranks: out of memory");
    fflush(NULL);
    stay_on_this_host();
    allow_late_mpirun();
    open_streams();
    execvp(words[0], words);
    int why = errno;
    free(words);
    if (why == ENOENT)
        return fl_fail(FL_ERR_MISSING, "--ranks needs mpirun, which was not found: install the package openmpi-bin");
    return fl_fail(FL_ERR_IO, "--ranks: mpirun cannot be started: %s", strerror(why));
}

/* ---- standard error ---- */

/* file:write(...), of which the first upvalue is Lua's. io.stderr has no buffer, and what other ranks write would come
** between the arguments: they go as one. Mistakes are found here, where the script's call is the one that is
** reported. */
static int file_write(lua_State *L)
{
    luaL_Stream *file = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    int count = lua_gettop(L);
    bool joins = file->f == stderr && count > 2;
    if (!file->closef) return luaL_error(L, "attempt to use a closed file");
    for (int i = 2; i <= count; i++) {
        if (lua_type(L, i) != LUA_TNUMBER) luaL_checkstring(L, i);
        else joins = joins && lua_isinteger(L, i); /* Lua writes floats shorter than it prints them */
    }
    if (joins) lua_concat(L, count - 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

void fl_lua_join_errors(lua_State *L)
{
    luaL_getmetatable(L, LUA_FILEHANDLE);
    lua_getfield(L, -1, "__index");
    lua_getfield(L, -1, "write");
    lua_pushcclosure(L, file_write, 1);
    lua_setfield(L, -2, "write");
    lua_pop(L, 2);
}

/* ---- the script on standard input ---- */

/* All there is to read; *out is owned by the caller. */
static fl_status read_all(char **out, int64_t *size)
{
    size_t room = 1 << 16, used = 0;
    char *text = malloc(room);
    while (text) {
        used += fread(text + used, 1, room - used, stdin);
        if (used < room) break;
        char *grown = realloc(text, room *= 2);
        if (!grown) free(text);
        text = grown;
    }
    *out = text;
    *size = (int64_t)used;
    return text ? FL_OK : fl_fail(FL_ERR_MEMORY, "stdin: out of memory");
}

/* Replaces standard input by this text. */
static fl_status put_back(const char *text, int64_t size)
{
    int file = fl_arena_memfd("stdin");
    bool good = file >= 0;
    for (int64_t at = 0; good && at < size;) {
        ssize_t n = write(file, text + at, (size_t)(size - at));
        good = n > 0;
        at += n;
    }
    good = good && lseek(file, 0, SEEK_SET) == 0 && dup2(file, STDIN_FILENO) >= 0;
    int why = errno;
    if (file >= 0) close(file);
    clearerr(stdin);
    return good ? FL_OK : fl_fail(FL_ERR_IO, "stdin: the script cannot be stored: %s", strerror(why));
}

/* Every rank shows `size` bytes, of which those of rank 0 count. */
static fl_status take_from_first(fl_group *world, char *text, int64_t size)
{
    char *all = malloc((size_t)world->count * (size_t)size + 1);
    if (!all) return fl_fail(FL_ERR_MEMORY, "stdin: out of memory");
    fl_status status = fl_comm_share(world, "script", all, text, (size_t)size, 0);
    if (status == FL_OK) memcpy(text, all, (size_t)size);
    free(all);
    return status;
}

fl_status fl_lua_share_stdin(void)
{
    fl_group *world;
    char *text = NULL;
    int64_t size = 0;
    int rank = fl_world_get()->rank;
    if (!fl_comm_get()) return FL_OK;
    FL_TRY(fl_group_world(&world));
    int64_t *sizes = calloc((size_t)world->count, sizeof *sizes);
    fl_status status = sizes ? FL_OK : fl_fail(FL_ERR_MEMORY, "stdin: out of memory");
    if (status == FL_OK && rank == 0) status = read_all(&text, &size);
    if (status == FL_OK) status = fl_comm_share(world, "script", sizes, &size, sizeof size, FL_WAIT_IDLE);
    if (status == FL_OK && rank != 0) {
        size = sizes[0];
        text = calloc((size_t)size + 1, 1);
        if (!text) status = fl_fail(FL_ERR_MEMORY, "stdin: out of memory");
    }
    if (status == FL_OK) status = take_from_first(world, text, size);
    if (status == FL_OK) status = put_back(text, size);
    free(sizes);
    free(text);
    return status;
}

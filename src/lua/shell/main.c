/*
** main.c -- the program: a superset of the standalone Lua interpreter.
**
** Short options, arg, LUA_INIT, exit codes and messages are those of lua 5.4, so that whatever starts Lua can
** start flowlua. Long options are its own. The table `flow` comes with require "flow"; in the REPL, with -e
** and in a script on standard input it is a global too.
*/
#define _GNU_SOURCE /* environ */
#include "core/process.h"
#include "lua/bind/errors.h"
#include "lua/bind/modules.h"
#include "lua/bind/scope.h"
#include "lua/bind/state.h"
#include "shell.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <limits.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *program = "flowlua";
static const char *trace_path;

enum { MAX_RANKS = 1024 };

/* The command line, beside the -e and -l options that run in order. */
struct options {
    int script;                /* index of the script in argv; 0: none */
    int ranks;                 /* number to start; 0: not asked */
    int ranks_at, ranks_words; /* index of that option in argv */
    int plan;                  /* number of ranks that are planned; 0: none */
    const char *machine;       /* the file that describes them, or NULL */
    bool interactive, version, ignore_environment, warnings, execute, doctor, help;
    const char *bad; /* an option that is wrong */
    const char *why;
};

/* ---- messages ---- */

static void say(const char *message)
{
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program, message);
    fflush(stderr);
}

/* Prints the reason why the program ends. If it is one of several ranks all of them end here. */
static void fail(const char *message)
{
    if (fl_comm_get()) fl_lua_fail(message);
    say(message);
}

/* Prints the error object on the stack, if status says there is one. */
static int report(lua_State *L, int status)
{
    if (status != LUA_OK) {
        const char *message = lua_tostring(L, -1);
        fail(message ? message : "(error message is not a string)");
        lua_pop(L, 1);
    }
    return status;
}

static void print_version(void)
{
    if (fl_comm_get() && fl_world_get()->rank != 0) return;
    printf("flowlua %s  %s\n", FL_VERSION, LUA_COPYRIGHT);
    fflush(stdout);
}

static const char usage_text[] =
    "usage: flowlua [options] [script [args]]\n"
    "Available options are:\n"
    "  -e stat       execute string 'stat'\n"
    "  -i            enter interactive mode after executing 'script'\n"
    "  -l mod        require library 'mod' into global 'mod'\n"
    "  -l g=mod      require library 'mod' into global 'g'\n"
    "  -v            show version information\n"
    "  -E            ignore environment variables (LUA_*, FLOW_*)\n"
    "  -W            turn warnings on\n"
    "  --            stop handling options\n"
    "  -             stop handling options and execute stdin\n"
    "  --trace FILE  write a Chrome trace of every op to FILE at the end\n"
    "  --ranks N     start N ranks under mpirun\n"
    "  --plan N      say what 'script' would cost on N ranks, from its optimizer's first step\n"
    "                to the second, without computing\n"
    "  --machine F   with --plan: the Lua file that describes the ranks\n"
    "  --doctor      probe this machine: CPU level, products, memory, MPI, GPUs\n"
    "  --version     show version information\n"
    "  --help        show this text\n"
    "Without a script, on a terminal, flowlua starts an interactive session: try help().\n"
    "require searches the folder of the script, then the default folders. LUA_PATH and "
    "LUA_CPATH replace both; \";;\" in them stands for both.\n";

static void bad_usage(const struct options *options)
{
    char message[256];
    if (strcmp(options->bad, "-e") == 0 || strcmp(options->bad, "-l") == 0)
        snprintf(message, sizeof message, "'%s' needs argument", options->bad);
    else if (options->why) snprintf(message, sizeof message, "%s", options->why);
    else snprintf(message, sizeof message, "unrecognized option '%s'", options->bad);
    if (fl_comm_get()) fl_failure_end(EXIT_FAILURE, message, usage_text);
    say(message);
    fputs(usage_text, stderr);
}

/* ---- the command line ---- */

static const char *const long_options[] = {"--trace",  "--ranks",   "--plan", "--machine",
                                           "--doctor", "--version", "--help"};

static void unknown_long(struct options *options, const char *text)
{
    static char why[256];
    char hint[FL_SUGGEST_TEXT];
    fl_suggestion s = {.word = text};
    for (size_t i = 0; i < sizeof long_options / sizeof *long_options; i++) fl_suggest_offer(&s, long_options[i]);
    snprintf(why, sizeof why, "unrecognized option '%.100s'%s", text, fl_suggest_text(hint, &s));
    options->bad = text;
    options->why = why;
}

/* Value of the long option `name` at argv[*i]: after '=' or the next argument. */
static const char *long_value(struct options *options, char **argv, int *i, const char *name)
{
    static char why[128];
    size_t n = strlen(name);
    if (argv[*i][n] == '=') return argv[*i] + n + 1;
    if (argv[*i + 1]) return argv[++*i];
    snprintf(why, sizeof why, "'%s' needs argument", name);
    options->bad = name;
    options->why = why;
    return NULL;
}

/* The number of ranks that the option `name` gives, 0: it is wrong. `before`: that of an earlier one. */
static int count_of_ranks(struct options *options, char **argv, int *i, const char *name, int before)
{
    static char why[128];
    const char *text = long_value(options, argv, i, name);
    if (!text) return 0;
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (end == text || *end || errno || n < 1 || n > MAX_RANKS)
        snprintf(why, sizeof why, "%s takes a whole number from 1 to %d, got '%.40s'", name, MAX_RANKS, text);
    else if (before) snprintf(why, sizeof why, "%s is given twice", name);
    else return (int)n;
    options->bad = name;
    options->why = why;
    return 0;
}

static void read_ranks(struct options *options, char **argv, int *i)
{
    int at = *i;
    options->ranks = count_of_ranks(options, argv, i, "--ranks", options->ranks);
    options->ranks_at = at;
    options->ranks_words = *i - at + 1;
}

static bool is_long(const char *text, const char *name)
{
    size_t n = strlen(name);
    return strncmp(text, name, n) == 0 && (text[n] == 0 || text[n] == '=');
}

static void read_long(struct options *options, char **argv, int *i)
{
    const char *text = argv[*i];
    if (strcmp(text, "--version") == 0) options->version = true;
    else if (strcmp(text, "--doctor") == 0) options->doctor = true;
    else if (strcmp(text, "--help") == 0) options->help = true;
    else if (is_long(text, "--trace")) trace_path = long_value(options, argv, i, "--trace");
    else if (is_long(text, "--ranks")) read_ranks(options, argv, i);
    else if (is_long(text, "--plan")) options->plan = count_of_ranks(options, argv, i, "--plan", options->plan);
    else if (is_long(text, "--machine")) options->machine = long_value(options, argv, i, "--machine");
    else unknown_long(options, text);
}

/* Checks the options beside --plan. */
static void check_plan(struct options *options, char **argv)
{
    const char *script = options->script ? argv[options->script] : NULL;
    if (options->bad || (!options->plan && !options->machine)) return;
    options->why = !options->plan             ? "--machine goes with --plan N"
        : !script || strcmp(script, "-") == 0 ? "--plan needs a script: it is read once for each kind of rank"
        : options->ranks                      ? "--plan and --ranks do not go together: a plan starts no ranks"
        : options->interactive                ? "--plan and -i do not go together"
        : trace_path                          ? "--plan and --trace do not go together: nothing runs"
                                              : NULL;
    if (options->why) options->bad = options->plan ? "--plan" : "--machine";
}

/* Reads argv up to the script; stops at the first mistake. */
static void read_options(struct options *options, char **argv)
{
    int i;
    for (i = 1; argv[i] && argv[i][0] == '-' && !options->bad; i++) {
        const char *text = argv[i];
        if (text[1] == '-' && text[2]) {
            read_long(options, argv, &i);
            continue;
        }
        if (text[1] == '-') {
            i++;
            break;
        }
        if (text[1] == 0) break;
        bool single = text[2] == 0;
        if (text[1] == 'E' && single) options->ignore_environment = true;
        else if (text[1] == 'i' && single) options->interactive = options->version = true;
        else if (text[1] == 'v' && single) options->version = true;
        else if (text[1] == 'W' && single) options->warnings = true;
        else if (text[1] == 'e' || text[1] == 'l') {
            options->execute |= text[1] == 'e';
            if (single && (!argv[i + 1] || argv[i + 1][0] == '-')) options->bad = text[1] == 'e' ? "-e" : "-l";
            else if (single) i++;
        } else options->bad = text;
    }
    options->script = argv[i] ? i : 0;
    check_plan(options, argv);
}

/* -E: no part of the program, and no process that it starts, gets a FLOW_ variable. Before any of them is read.
** FLOW_JOINED stays: it marks the processes that a rank starts as no ranks. */
static void forget_variables(void)
{
    char name[64];
    for (char **at = environ; *at;) {
        size_t length = strcspn(*at, "=");
        bool ours = strncmp(*at, "FLOW_", 5) == 0 && strncmp(*at, "FLOW_JOINED=", 12) != 0 && length < sizeof name;
        if (ours) {
            snprintf(name, sizeof name, "%.*s", (int)length, *at);
            ours = unsetenv(name) == 0;
        }
        at = ours ? environ : at + 1;
    }
}

/* arg: the script at 0, its arguments from 1, what stood before it at negative positions; without a script the program
** itself is at 0. */
static void set_arg(lua_State *L, char **argv, int argc, int script)
{
    lua_createtable(L, argc - script, script + 1);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
}

/* ---- search paths of require ---- */

/* The script's folder, "." for one without a folder; of a link, the folder of what it points to. */
static void folder_of(char *folder, const char *script)
{
    char target[PATH_MAX];
    struct stat s;
    const char *path = lstat(script, &s) == 0 && S_ISLNK(s.st_mode) && realpath(script, target) ? target : script;
    const char *slash = strrchr(path, '/');
    if (!slash) snprintf(folder, PATH_MAX, ".");
    else snprintf(folder, PATH_MAX, "%.*s", slash > path ? (int)(slash - path) : 1, path);
}

/* The start of Lua's default path in package.path or cpath: the variable replaces it, but for its first ";;". -1: it
** has none. */
static ptrdiff_t default_start(const char *variable, bool ignore_environment)
{
    char versioned[32];
    snprintf(versioned, sizeof versioned, "%s_5_4", variable);
    const char *given = getenv(versioned);
    if (!given) given = getenv(variable);
    if (!given || ignore_environment) return 0;
    const char *mark = strstr(given, ";;");
    return !mark ? -1 : mark == given ? 0 : mark - given + 1;
}

/* The templates, of which every "@" is the folder, become the first of the default path. */
static void look_in(lua_State *L, const char *field, const char *folder, const char *templates, ptrdiff_t start)
{
    if (start < 0) return;
    lua_getglobal(L, "package");
    lua_getfield(L, -1, field);
    const char *path = lua_tostring(L, -1);
    lua_pushlstring(L, path, (size_t)start);
    luaL_gsub(L, templates, "@", folder);
    lua_pushstring(L, path + start);
    lua_concat(L, 3);
    lua_setfield(L, -3, field);
    lua_pop(L, 2);
}

/* require searches beside the script too. A folder whose name means something in a path is left out. */
static void look_beside(lua_State *L, const char *script, bool ignore_environment)
{
    char folder[PATH_MAX];
    folder_of(folder, script);
    if (strpbrk(folder, ";?")) return;
    look_in(L, "path", folder, "@/?.lua;@/?/init.lua;", default_start("LUA_PATH", ignore_environment));
    look_in(L, "cpath", folder, "@/?.so;", default_start("LUA_CPATH", ignore_environment));
}

/* ---- running ---- */

static int run_string(lua_State *L, const char *code, const char *name)
{
    int status = luaL_loadbuffer(L, code, strlen(code), name);
    if (status == LUA_OK) status = fl_lua_protected_call(L, 0, 0);
    return report(L, status);
}

/* NULL: standard input, which all ranks read. */
static int load_file(lua_State *L, const char *path)
{
    if (path || fl_lua_share_stdin() == FL_OK) return luaL_loadfile(L, path);
    lua_pushstring(L, fl_message());
    return LUA_ERRFILE;
}

static int run_file(lua_State *L, const char *path)
{
    int status = load_file(L, path);
    if (status == LUA_OK) status = fl_lua_protected_call(L, 0, 0);
    return report(L, status);
}

/* -l mod or -l name=mod */
static int run_library(lua_State *L, const char *text)
{
    const char *equals = strchr(text, '=');
    lua_getglobal(L, "require");
    lua_pushstring(L, equals ? equals + 1 : text);
    int status = fl_lua_protected_call(L, 1, 1);
    if (status == LUA_OK) {
        lua_pushlstring(L, text, equals ? (size_t)(equals - text) : strlen(text));
        lua_insert(L, -2);
        lua_pushglobaltable(L);
        lua_insert(L, -3);
        lua_rawset(L, -3);
        lua_pop(L, 1);
    }
    return report(L, status);
}

static bool takes_word(const char *text)
{
    return is_long(text, "--trace") || is_long(text, "--ranks") || is_long(text, "--plan")
        || is_long(text, "--machine");
}

/* The -e, -l and -W options, in order. */
static bool run_options(lua_State *L, char **argv, int end)
{
    for (int i = 1; i < end; i++) {
        if (argv[i][0] != '-' || argv[i][1] == 0 || strcmp(argv[i], "--") == 0) break;
        char letter = argv[i][1];
        if (takes_word(argv[i]) && !strchr(argv[i], '=')) i++;
        if (letter == 'W') lua_warning(L, "@on", 0);
        if (letter != 'e' && letter != 'l') continue;
        const char *text = argv[i][2] ? argv[i] + 2 : argv[++i];
        int status = letter == 'e' ? run_string(L, text, "=(command line)") : run_library(L, text);
        if (status != LUA_OK) return false;
    }
    return true;
}

static bool run_environment(lua_State *L)
{
    const char *name = "LUA_INIT_5_4", *code = getenv(name);
    char chunk[32];
    if (!code) code = getenv(name = "LUA_INIT");
    if (!code) return true;
    if (code[0] == '@') return run_file(L, code + 1) == LUA_OK;
    snprintf(chunk, sizeof chunk, "=%s", name);
    return run_string(L, code, chunk) == LUA_OK;
}

static bool is_stdin(char **argv, int script)
{
    return strcmp(argv[script], "-") == 0 && strcmp(argv[script - 1], "--") != 0;
}

/* Pushes the script's arguments: the entries of `arg`, which -e and LUA_INIT may have changed. */
static int push_arguments(lua_State *L)
{
    if (lua_getglobal(L, "arg") != LUA_TTABLE) luaL_error(L, "'arg' is not a table");
    int list = lua_gettop(L), n = (int)luaL_len(L, list);
    luaL_checkstack(L, n + 4, "too many arguments to script");
    for (int i = 1; i <= n; i++) lua_rawgeti(L, list, i);
    lua_remove(L, list);
    return n;
}

/* The script gets its arguments as "...". */
static bool run_script(lua_State *L, char **argv, int script)
{
    int status = load_file(L, is_stdin(argv, script) ? NULL : argv[script]);
    if (status == LUA_OK) status = fl_lua_protected_call(L, push_arguments(L), LUA_MULTRET);
    return report(L, status) == LUA_OK;
}

/* require "flow" into the global flow, and help. */
static bool open_flow(lua_State *L)
{
    if (run_library(L, "flow") != LUA_OK) return false;
    lua_getglobal(L, "flow");
    lua_getfield(L, -1, "_help");
    lua_setglobal(L, "help");
    lua_pop(L, 1);
    return true;
}

/* Before any tensor exists: starts the ranks that are asked for, in place of this process, or joins the others. */
static bool join_ranks(char **argv, const struct options *options)
{
    bool starts = options->ranks > 1;
    if (options->plan) {
        fl_status planned = !fl_plan_is_started() ? FL_OK : fl_plan_join();
        if (planned != FL_OK) fail(fl_message());
        return planned == FL_OK;
    }
    fl_status status = starts ? fl_lua_start_ranks(argv, options->ranks_at, options->ranks_words, options->ranks)
                              : fl_launch_join();
    if (fl_comm_get()) {
        fl_failure_watch(program);
        fl_lua_answer_questions();
    }
    if (status != FL_OK) fail(fl_message());
    return status == FL_OK;
}

/* The ranks of a script that branches on math.random must not go different ways. */
static void seed_lua(lua_State *L)
{
    lua_getglobal(L, "math");
    lua_getfield(L, -1, "randomseed");
    lua_pushinteger(L, (lua_Integer)fl_generator_current()->seed);
    lua_call(L, 1, 0);
    lua_pop(L, 1);
}

/* The plan is the program's: the script runs in processes of its own. If one fails the program ends with its status. */
static bool print_plan(lua_State *L, char **argv, const struct options *options)
{
    if (fl_launched(NULL)) {
        fail("--plan starts no ranks: leave out mpirun");
        return false;
    }
    lua_pushcfunction(L, fl_plan_main);
    lua_pushinteger(L, options->plan);
    lua_pushstring(L, options->machine);
    lua_pushlightuserdata(L, argv);
    lua_pushstring(L, argv[options->script]);
    if (report(L, fl_lua_protected_call(L, 4, 1)) != LUA_OK) return false;
    if (lua_tointeger(L, -1) != EXIT_SUCCESS) fl_lua_exit((int)lua_tointeger(L, -1));
    return true;
}

/* Before and after the script in a process that plans a rank. */
static bool call_plan(lua_State *L, lua_CFunction function)
{
    lua_pushcfunction(L, function);
    return report(L, fl_lua_protected_call(L, 0, 0)) == LUA_OK;
}

/* The body of main, run in a protected call: argc and argv in, true when all went well. */
static int protected_main(lua_State *L)
{
    int argc = (int)lua_tointeger(L, 1);
    char **argv = lua_touserdata(L, 2);
    struct options o = {0};
    read_options(&o, argv);
    luaL_checkversion(L);
    bool only_tells = o.bad ? !fl_launched(NULL) : argc == 2 && (o.version || o.help) && !o.interactive;
    if (!only_tells && !join_ranks(argv, &o)) return 0;
    if (o.bad) {
        bad_usage(&o);
        return 0;
    }
    if (o.help) fputs(usage_text, stdout);
    if (o.version) print_version();
    if (o.ignore_environment) {
        lua_pushboolean(L, 1);
        lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    }
    bool nothing_asked = !o.script && !o.execute && !o.version && !o.help && !o.doctor, terminal = false;
    if (nothing_asked && fl_lua_on_terminal(&terminal) != FL_OK) {
        fail(fl_message());
        return 0;
    }
    luaL_openlibs(L);
    fl_lua_open_scopes(L);
    fl_lua_takes_code = true;
    fl_lua_embed_modules(L);
    fl_lua_open_exit(L);
    if (fl_comm_get()) {
        seed_lua(L);
        fl_lua_join_errors(L);
    }
    if (o.plan && !fl_plan_is_started()) {
        lua_pushboolean(L, print_plan(L, argv, &o));
        return 1;
    }
    if (o.script && !is_stdin(argv, o.script)) look_beside(L, argv[o.script], o.ignore_environment);
    set_arg(L, argv, argc, o.script);
    lua_gc(L, LUA_GCGEN, 0, 0);
    bool repl = o.interactive || (nothing_asked && terminal);
    if (o.doctor && !fl_lua_doctor(L)) return 0;
    if ((repl || o.execute || nothing_asked) && !open_flow(L)) return 0;
    if (!o.ignore_environment && !run_environment(L)) return 0;
    if (!run_options(L, argv, o.script ? o.script : argc)) return 0;
    if (o.plan && !call_plan(L, fl_plan_watch)) return 0;
    if (o.script && !run_script(L, argv, o.script)) return 0;
    if (o.plan && !call_plan(L, fl_plan_finish)) return 0;
    if (repl) {
        if (fl_lua_repl(L, nothing_asked) != FL_OK) {
            fail(fl_message());
            return 0;
        }
    } else if (nothing_asked && run_file(L, NULL) != LUA_OK) return 0;
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- main ---- */

static void write_trace(void)
{
    static bool written;
    if (written) return;
    written = true;
    fl_engine_wait_all();
    if (fl_engine_profile_dump(trace_path) != FL_OK) say(fl_message());
}

/* Empties a file to which all ranks add in the end. An error is reported before the script runs, not after it has run
** for hours. */
static bool empty_file(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file) fclose(file);
    else fl_fail(FL_ERR_IO, "--trace: cannot write '%s': %s", path, strerror(errno));
    return file != NULL;
}

/* The trace covers os.exit too, so it is the last thing written, also when a library ends the process; recording begins
** before any op. */
static bool start_trace(void)
{
    if (!trace_path) return true;
    if (!empty_file(trace_path)) {
        say(fl_message());
        return false;
    }
    if (fl_engine_profile_start() != FL_OK) {
        say(fl_message());
        return false;
    }
    fl_lua_last = write_trace;
    atexit(write_trace);
    return true;
}

/* The script has ended well. A fault that it has not seen is reported, as far as it is known: ops without a reader are
** not waited for, except where other ranks may be affected. */
static bool leave(void)
{
    fl_lua_leave_ranks();
    if (fl_engine_end(false) == FL_OK) return true;
    fail(fl_message());
    return false;
}

/* A standard stream that is closed stays of no use, but no file that is opened may come in its place: a script would
** read or overwrite that one instead. Reading, or writing, what is put there is an error as it was before. */
static void hold_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    hold_closed_streams();
    read_options(&o, argv);
    fl_plan_is_started(); /* known by a variable */
    if (o.ignore_environment) forget_variables();
    if (argc > 0 && argv[0] && argv[0][0]) program = argv[0];
    if (!o.bad && !start_trace()) return EXIT_FAILURE;
    lua_State *L = fl_lua_new_state();
    if (!L) {
        say("cannot create state: not enough memory");
        return EXIT_FAILURE;
    }
    lua_pushcfunction(L, protected_main);
    lua_pushinteger(L, argc);
    lua_pushlightuserdata(L, argv);
    int status = lua_pcall(L, 2, 1, 0);
    bool good = lua_toboolean(L, -1);
    good = report(L, status) == LUA_OK && good;
    if (good) good = leave();
    else if (fl_comm_get()) fl_comm_abort(EXIT_FAILURE);
    fl_lua_close_state(L);
    if (!trace_path) fl_engine_stop();
    fl_launch_leave();
    fl_lua_exit(good ? EXIT_SUCCESS : EXIT_FAILURE);
}

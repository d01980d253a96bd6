/*
** doctor.c -- flowlua --doctor: each line is a probe that ran here, now.
*/
#include "core/process.h"
#include "lua/bind/modules.h"
#include "shell.h"

#include <dlfcn.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void line(const char *what, bool good, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void line(const char *what, bool good, const char *format, ...)
{
    va_list args;
    printf("%-10s %-5s ", what, good ? "ok" : "--");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fputc('\n', stdout);
}

/* Seconds of the fastest of a few runs of f, within about a third of a second. */
static double fastest(void (*f)(void *), void *context)
{
    double best = 1e9, end = fl_now_seconds() + 0.3;
    f(context);
    for (int i = 0; i < 3 || fl_now_seconds() < end; i++) {
        double start = fl_now_seconds();
        f(context);
        double seconds = fl_now_seconds() - start;
        if (seconds < best) best = seconds;
    }
    return best;
}

enum { SIDE = 1024, COPY_BYTES = 64 << 20 };

static void product(void *context)
{
    float *m = context;
    fl_cpu_sgemm(false, false, SIDE, SIDE, SIDE, 1, m, SIDE, m + SIDE * SIDE, SIDE, 0, m + 2 * SIDE * SIDE, SIDE);
}

/* True if the program has opened this library. */
static bool is_loaded(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library) dlclose(library);
    return library != NULL;
}

static bool probe_product(void)
{
    float *m = malloc(3 * sizeof *m * SIDE * SIDE);
    if (!m) return false;
    for (int i = 0; i < 2 * SIDE * SIDE; i++) m[i] = 1;
    double seconds = fastest(product, m);
    bool right = m[2 * SIDE * SIDE] == SIDE && m[3 * SIDE * SIDE - 1] == SIDE;
    bool library = is_loaded("libdnnl.so.2") || is_loaded("libdnnl.so.3");
    line("product", right, "%d x %d float32: %.0f GFLOP/s, oneDNN %s", SIDE, SIDE,
         2.0 * SIDE * SIDE * SIDE / seconds * 1e-9, library ? "in use" : "not found (own kernels)");
    free(m);
    return right;
}

static void copy_part(void *context, int64_t begin, int64_t end)
{
    char *bytes = context;
    int64_t chunk = COPY_BYTES / 64;
    memcpy(bytes + COPY_BYTES + begin * chunk, bytes + begin * chunk, (size_t)((end - begin) * chunk));
}

static void copy_all(void *context) { fl_team_for(64, 1e5, copy_part, context); }

static bool probe_memory(void)
{
    char *bytes = malloc(2 * (size_t)COPY_BYTES);
    if (!bytes) return false;
    memset(bytes, 1, 2 * (size_t)COPY_BYTES);
    double seconds = fastest(copy_all, bytes);
    line("memory", true, "copy of %d MiB: %.1f GB/s read and written", COPY_BYTES >> 20,
         2.0 * COPY_BYTES / seconds * 1e-9);
    free(bytes);
    return true;
}

/* An op from Lua, with the number it must give. */
static bool probe_ops(lua_State *L)
{
    static const char code[] = "local flow = require 'flow'\n"
                               "local x = flow.tensor({{1, 2}, {3, 4}}, {dtype = 'float32', requires_grad = true})\n"
                               "local y = (x:matmul(x) * 2):sum()\n"
                               "y:backward()\n"
                               "return y:item() == 108 and x.grad:sum():item() == 80";
    bool good = luaL_dostring(L, code) == LUA_OK && lua_toboolean(L, -1);
    line("ops", good, "%s",
         good                      ? "product, sum and gradient of a 2 x 2 matrix are right"
             : lua_isstring(L, -1) ? lua_tostring(L, -1)
                                   : "wrong result");
    lua_pop(L, 1);
    return good;
}

static void probe_library(const char *what, const char *name, const char *missing)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    line(what, library != NULL, "%s", library ? name : missing);
    if (library) dlclose(library);
}

/* Checks the library that moves tensors between the GPUs of several ranks. */
static void probe_device_comm(const fl_device *device)
{
    char text[64];
    bool good = device->comm->open() == FL_OK;
    if (good) device->comm->describe(text, sizeof text);
    line("gpus", good, "%s", good ? text : fl_message());
}

/* The GPU, with numbers that it computed. */
static void probe_gpu(lua_State *L)
{
    static const char code[] = "local flow = require 'flow'\n"
                               "local x = flow.tensor({{1, 2}, {3, 4}}, {dtype = 'float32'}):to('cuda')\n"
                               "return (x:matmul(x) * 2):sum():item() == 108";
    const fl_device *d;
    char text[256];
    if (fl_device_get(&d, FL_CUDA) != FL_OK) {
        line("gpu", false, "%s", fl_message());
        return;
    }
    d->describe(text, sizeof text, d->own);
    bool good = luaL_dostring(L, code) == LUA_OK && lua_toboolean(L, -1);
    line("gpu", good, "%s (of %d): %s", text, d->count,
         good                      ? "product and sum of a 2 x 2 matrix are right"
             : lua_isstring(L, -1) ? lua_tostring(L, -1)
                                   : "wrong result");
    lua_pop(L, 1);
    if (d->comm) probe_device_comm(d);
}

/* The output of two ranks, started as a user would start them; *seconds: the time that took. */
static bool ask_two_ranks(char *answer, size_t size, double *seconds)
{
    char self[FL_PLUGIN_PATH], command[FL_PLUGIN_PATH + 128];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    double start = fl_now_seconds();
    if (n <= 0) return false;
    self[n] = '\0';
    snprintf(command, sizeof command,
             "FLOW_WORLD= '%s' -E --ranks 2 -e 'flow.barrier() io.write(flow.world_size())' </dev/null 2>&1", self);
    FILE *pipe = popen(command, "r");
    if (!pipe) return false;
    size_t length = fread(answer, 1, size - 1, pipe);
    answer[length] = '\0';
    answer[strcspn(answer, "\n")] = '\0';
    *seconds = fl_now_seconds() - start;
    return pclose(pipe) == 0 && strcmp(answer, "22") == 0;
}

static void probe_ranks(void)
{
    const fl_comm *comm = fl_comm_get();
    const fl_world *world = fl_world_get();
    char answer[256] = "mpirun could not be started";
    double seconds;
    if (comm)
        line("ranks", true, "rank %d of %d through %s, memory %s", world->rank, world->size, comm->name,
             fl_shared_has(world->rank) ? "shared" : "not shared");
    else if (fl_launched(NULL)) line("ranks", true, "one process, started by a rank or alone in its job");
    else if (ask_two_ranks(answer, sizeof answer, &seconds))
        line("ranks", true, "two ranks met through mpirun in %.0f ms", 1e3 * seconds);
    else line("ranks", false, "%s", answer);
}

bool fl_lua_doctor(lua_State *L)
{
    if (fl_comm_get() && fl_world_get()->rank != 0) return true; /* one rank prints */
    line("flowlua", true, "%s, %s", FL_VERSION, LUA_RELEASE);
    line("cpu", true, "%s kernels, %d threads", fl_cpu_level_name(fl_cpu_level()), fl_team_size());
    bool good = probe_ops(L);
    good &= probe_product();
    good &= probe_memory();
    probe_library("editor", "libedit.so.2", "libedit.so.2 not found: the session reads plain lines");
    probe_gpu(L);
    probe_ranks();
    fflush(stdout);
    return good;
}

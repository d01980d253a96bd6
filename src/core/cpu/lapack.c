/*
** lapack.c -- LAPACK opened on demand: see lapack.h.
**
** OpenBLAS is preferred, the reference LAPACK does too, and FLOW_LAPACK names another file. Threads of the library
** would compete with our team for the cores, so OpenBLAS is set to one thread before it is opened.
*/
#include "lapack.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const libraries[] = {"libopenblas.so.0", "liblapack.so.3"};
static const char THREADS[] = "OPENBLAS_NUM_THREADS";

/* All names there are, in the order of the fields. */
static const char *const names[] = {
#define NAME(name, arguments) #name,
    FL_LAPACK_ROUTINES(NAME)
#undef NAME
};
enum { ROUTINES = sizeof names / sizeof *names };
_Static_assert(sizeof(fl_lapack) == ROUTINES * sizeof(void *), "a pointer per name");

static bool find_all(fl_lapack *out, void *library, char letter)
{
    void *found[ROUTINES];
    for (int i = 0; i < ROUTINES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c%s_", letter, names[i]);
        if (!(found[i] = dlsym(library, name))) return false;
    }
    memcpy(out, found, sizeof found);
    return true;
}

/* One thread, whatever the environment says, which is as before afterwards. */
static void *open_serial(const char *path)
{
    const char *given = getenv(THREADS);
    char *before = given ? strdup(given) : NULL;
    setenv(THREADS, "1", 1);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (before) setenv(THREADS, before, 1);
    else unsetenv(THREADS);
    free(before);
    if (!library) return NULL;
    void (*set_threads)(int) = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    if (set_threads) set_threads(1); /* it was open before: others may have set another number */
    return library;
}

static bool load_from(fl_lapack tables[2], const char *path)
{
    void *library = open_serial(path);
    return library && find_all(&tables[0], library, 's') && find_all(&tables[1], library, 'd');
}

static bool load(fl_lapack tables[2])
{
    const char *own = getenv("FLOW_LAPACK");
    if (own && *own) return load_from(tables, own);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (load_from(tables, libraries[i])) return true;
    return false;
}

fl_status fl_lapack_open(const fl_lapack **out, const char *who, fl_dtype dtype)
{
    static fl_lapack tables[2];
    static bool tried, there;
    if (!tried) there = load(tables);
    tried = true;
    if (!there) {
        const char *own = getenv("FLOW_LAPACK");
        bool named = own && *own;
        return fl_fail(FL_ERR_MISSING, "%s: there is no LAPACK (%s); install the package libopenblas0-pthread", who,
                       named ? own : "libopenblas.so.0 or liblapack.so.3");
    }
    *out = &tables[dtype == FL_FLOAT64];
    return FL_OK;
}

/*
** onednn.c -- opening oneDNN: see onednn.h.
*/
#include "onednn.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

static void (*set_threads)(int); /* of the OpenMP that came with it; per calling thread */

/* Kernels are entered from one thread, so no lock is needed. */
void *fl_onednn_library(void)
{
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"};
    static bool tried;
    static void *library;
    for (size_t i = 0; i < sizeof names / sizeof *names && !tried && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!tried && library) set_threads = (void (*)(int))dlsym(library, "omp_set_num_threads");
    tried = true;
    return library;
}

void fl_onednn_serial(void)
{
    if (set_threads) set_threads(1);
}

/*
** library.cu -- opening libraries of the CUDA toolkit by name: none of them is linked.
*/
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *fl_cuda_library(const char *variable, const char *name, const int *majors, int count)
{
    const char *own = getenv(variable);
    if (own && *own) return dlopen(own, RTLD_NOW | RTLD_LOCAL);
#ifndef FL_EMULATED
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/"};
    for (int i = 0; i < count; i++)
        for (const char *folder : folders) {
            char path[64];
            snprintf(path, sizeof path, "%slib%s.so.%d", folder, name, majors[i]);
            void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (library) return library;
        }
#endif
    return NULL;
}

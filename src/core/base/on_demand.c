/*
** on_demand.c -- opening the libraries of others (see on_demand.h).
*/
#include "on_demand.h"

#include <dlfcn.h>
#include <pthread.h>

static void *open_any(const fl_on_demand *library)
{
    void *handle = NULL;
    for (size_t i = 0; i < sizeof library->files / sizeof *library->files && library->files[i] && !handle; i++)
        handle = dlopen(library->files[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

static fl_status load(fl_on_demand *library)
{
    void *handle = open_any(library);
    if (!handle)
        return fl_fail(FL_ERR_MISSING, "the library %s is not there; install the package %s", library->files[0],
                       library->package);
    for (size_t i = 0; i < library->count; i++)
        if (!(library->functions[i] = dlsym(handle, library->names[i])))
            return fl_fail(FL_ERR_MISSING, "the library %s has no '%s'; install the package %s", library->files[0],
                           library->names[i], library->package);
    return FL_OK;
}

fl_status fl_on_demand_open(fl_on_demand *library)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (__atomic_load_n(&library->open, __ATOMIC_ACQUIRE)) return FL_OK;
    pthread_mutex_lock(&lock);
    fl_status status = library->open ? FL_OK : load(library);
    if (status == FL_OK) __atomic_store_n(&library->open, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return status;
}

/*
** plugin.c -- finding and opening plug-ins.
**
** A plug-in lies beside the program it was built with, because the two share structures: an installed one is never
** taken for a build in another folder.
*/
#include "plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Folder of the running program, without the slash at its end. */
static bool program_folder(char *folder)
{
    ssize_t n = readlink("/proc/self/exe", folder, FL_PLUGIN_PATH - 1);
    if (n <= 0) return false;
    folder[n] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    return slash != NULL;
}

bool fl_plugin_find(char *path, const char *name)
{
    static const char *const places[] = {"", "/../lib/flowlua"};
    char folder[FL_PLUGIN_PATH];
    const char *slash = strrchr(name, '/'), *own = slash ? slash + 1 : name;
    if (!program_folder(folder)) return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int n = snprintf(path, FL_PLUGIN_PATH, "%s%s/%.*sflowlua-%s.so", folder, places[i], (int)(own - name), name,
                         own);
        if (n < FL_PLUGIN_PATH && access(path, R_OK) == 0) return true;
    }
    return false;
}

fl_status fl_plugin_open(void **entry, const char *name, const char *symbol, const char *package)
{
    char path[FL_PLUGIN_PATH];
    if (!fl_plugin_find(path, name))
        return fl_fail(
            FL_ERR_MISSING,
            "flowlua-%s.so is neither beside the program nor in ../lib/flowlua; install the package %s and run make",
            name, package);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fl_fail(FL_ERR_MISSING, "the plug-in cannot be opened: %s", dlerror());
    void *found = dlsym(library, symbol);
    if (!found)
        return fl_fail(FL_ERR_MISSING, "'%s' belongs to another version of flowlua: it has no '%s'; run make", path,
                       symbol);
    *entry = found;
    return FL_OK;
}

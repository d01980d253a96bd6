/*
** plugin.c -- finding and opening plug-ins.
**
** A plug-in lies beside the file it was built with, because the two share structures: an installed one is never
** taken for a build in another folder. That file is the program, or a library that holds the core (libflow.so,
** flow.so). A plug-in finds the core's symbols in the global scope. A library may have been opened without being in it,
** so it is added before the first plug-in is opened.
*/
#define _GNU_SOURCE /* dladdr1 */
#include "plugin.h"
#include "dtype.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folder of the running program, without the slash at its end. */
static bool program_folder(char *folder)
{
    char path[FL_PLUGIN_PATH];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return false;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = '\0';
    memcpy(folder, path, (size_t)(slash - path) + 1);
    return true;
}

/* The library that holds this code, from now on in the global scope; NULL: the program itself holds it. */
static void *own_library(void)
{
    Dl_info info;
    struct link_map *map = NULL;
    bool known = dladdr1(fl_dtype_sizes, &info, (void **)&map, RTLD_DL_LINKMAP) != 0;
    return known && map && map->l_name[0] ? dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) : NULL;
}

/* Folder of the file that holds this code. It is not closed: the core stays until the process ends. */
static bool own_folder(char *folder)
{
    char origin[PATH_MAX];
    void *library = own_library();
    if (!library) return program_folder(folder);
    if (dlinfo(library, RTLD_DI_ORIGIN, origin) != 0) return false;
    return snprintf(folder, FL_PLUGIN_PATH, "%s", origin) < FL_PLUGIN_PATH;
}

static char *wanted_folder; /* owned; NULL: none was given */

fl_status fl_plugin_folder(const char *folder)
{
    char *copy = folder ? strdup(folder) : NULL;
    if (folder && !copy) return fl_fail(FL_ERR_MEMORY, "out of memory");
    free(wanted_folder);
    wanted_folder = copy;
    return FL_OK;
}

/* The only folder where plug-ins are, NULL: it is not given. */
static const char *given_folder(void)
{
    const char *text = getenv("FLOW_PLUGINS");
    return wanted_folder ? wanted_folder : text && *text ? text : NULL;
}

/* "folder/NAME" is FOLDER/PLACE/folder/flowlua-NAME.so. */
static bool is_there(char *path, const char *folder, const char *place, const char *name)
{
    const char *slash = strrchr(name, '/'), *own = slash ? slash + 1 : name;
    int n = snprintf(path, FL_PLUGIN_PATH, "%s%s/%.*sflowlua-%s.so", folder, place, (int)(own - name), name, own);
    return n < FL_PLUGIN_PATH && access(path, R_OK) == 0;
}

bool fl_plugin_find(char *path, const char *name)
{
    /* of a build; of lib/libflow.so; of bin/flowlua; of lib/lua/5.4/flow.so */
    static const char *const places[] = {"", "/flowlua", "/../lib/flowlua", "/../../flowlua"};
    char folder[FL_PLUGIN_PATH];
    const char *given = given_folder();
    if (given) return is_there(path, given, "", name);
    if (!own_folder(folder)) return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (is_there(path, folder, places[i], name)) return true;
    return false;
}

/* The plug-in was bound to another copy of the core, which this process holds as well. */
static bool is_of_another(void *library)
{
    const void *const *core = dlsym(library, "fl_plugin_core");
    return core && *core != fl_dtype_sizes;
}

static fl_status fail_missing(const char *name, const char *package)
{
    const char *given = given_folder();
    if (given) return fl_fail(FL_ERR_MISSING, "flowlua-%s.so is not in the folder of plug-ins, '%s'", name, given);
    return fl_fail(FL_ERR_MISSING,
                   "flowlua-%s.so is neither beside the program nor in ../lib/flowlua; install the package %s and run "
                   "make, or name "
                   "its folder in FLOW_PLUGINS",
                   name, package);
}

fl_status fl_plugin_open(void **entry, const char *name, const char *symbol, const char *package)
{
    char path[FL_PLUGIN_PATH];
    if (!fl_plugin_find(path, name)) return fail_missing(name, package);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return fl_fail(FL_ERR_MISSING, "the plug-in cannot be opened: %s%s", why,
                       strstr(why, "undefined symbol: fl_") ? " (a program with libflow.a is linked with -rdynamic)"
                                                            : "");
    }
    if (is_of_another(library))
        return fl_fail(FL_ERR_STATE, "'%s' is used by another copy of flowlua in this process; one of them can use it",
                       path);
    void *found = dlsym(library, symbol);
    if (!found)
        return fl_fail(FL_ERR_MISSING, "'%s' belongs to another version of flowlua: it has no '%s'; run make", path,
                       symbol);
    *entry = found;
    return FL_OK;
}

/* True if the file is an object that ends before its segments do: the loader maps it, and the first access to what is
** missing would end the process. */
static bool is_cut_off(int file, off_t size)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) segment;
    if (pread(file, &head, sizeof head, 0) != sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return false;
    for (int i = 0; i < head.e_phnum; i++) {
        off_t at = (off_t)head.e_phoff + i * (off_t)sizeof segment;
        if (pread(file, &segment, sizeof segment, at) != sizeof segment) return true;
        if (segment.p_type == PT_LOAD
            && (segment.p_offset > (size_t)size || segment.p_filesz > (size_t)size - segment.p_offset))
            return true;
    }
    return false;
}

/* Fails for files that the loader would block on or crash with. Files that it refuses itself are not checked. */
static fl_status check_file(const char *path)
{
    struct stat info;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would block */
    if (file < 0) return FL_OK;
    const char *wrong = NULL;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) wrong = "not a regular file";
    else if (is_cut_off(file, info.st_size)) wrong = "the file is cut off";
    close(file);
    return wrong ? fl_fail(FL_ERR_MISSING, "'%s' cannot be opened: %s", path, wrong) : FL_OK;
}

fl_status fl_plugin_open_file(void **library, void **entry, const char *path, const char *symbol)
{
    char folder[FL_PLUGIN_PATH];
    FL_TRY(check_file(path));
    own_folder(folder); /* the core is in the global scope from here on */
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!opened) {
        const char *why = dlerror();
        size_t n = strlen(path);
        bool names = strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0;
        return fl_fail(FL_ERR_MISSING, "'%s' cannot be opened: %s", path, names ? why + n + 2 : why);
    }
    void *found = dlsym(opened, symbol);
    fl_status status = FL_OK;
    if (!found) status = fl_fail(FL_ERR_MISSING, "'%s' has no '%s'", path, symbol);
    else if (is_of_another(opened))
        status = fl_fail(FL_ERR_STATE, "'%s' is bound to another copy of flowlua in this process", path);
    *library = opened;
    *entry = found;
    return status;
}

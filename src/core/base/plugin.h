/*
** plugin.h -- parts of the program that lie in files of their own and are opened only when needed.
*/
#ifndef FL_PLUGIN_H
#define FL_PLUGIN_H

#include "dtype.h"
#include "status.h"

#include <stdbool.h>

enum { FL_PLUGIN_PATH = 4096 };

/* Path of flowlua-NAME.so (of "folder/NAME": folder/flowlua-NAME.so): in the folder that FLOW_PLUGINS names, else
** beside the file that holds the core, or in lib/flowlua where that is installed. false: it is in none of these
** places. */
bool fl_plugin_find(char *path, const char *name);

/* They are in this folder; NULL: in the one that FLOW_PLUGINS names, and so on. Copied. */
fl_status fl_plugin_folder(const char *folder);

/* Opens the plug-in for the life of the process, without showing its symbols to others, and finds its entry point.
** Error FL_ERR_MISSING: not there (the message names `package` to install it), cannot be opened, of another version;
** FL_ERR_STATE: another copy of the core has it. */
fl_status fl_plugin_open(void **entry, const char *name, const char *symbol, const char *package);

/* The same for a file that is no plug-in of ours, which stays open; library: its handle, the same for the same file. */
fl_status fl_plugin_open_file(void **library, void **entry, const char *path, const char *symbol);

/* Once in a plug-in: shows to which copy of the core its symbols are bound. */
#define FL_PLUGIN                                      \
    FL_EXPORT extern const void *const fl_plugin_core; \
    const void *const fl_plugin_core = fl_dtype_sizes;

#endif

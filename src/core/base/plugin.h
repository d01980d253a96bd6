/*
** plugin.h -- parts of the program that lie in files of their own and are opened only when needed.
*/
#ifndef FL_PLUGIN_H
#define FL_PLUGIN_H

#include "status.h"

#include <stdbool.h>

enum { FL_PLUGIN_PATH = 4096 };

/* Path of flowlua-NAME.so (of "folder/NAME": folder/flowlua-NAME.so): beside the program, or in ../lib/flowlua when the
** program is installed. false: it is in neither place. */
bool fl_plugin_find(char *path, const char *name);

/* Opens the plug-in for the life of the process, without showing its symbols to others, and finds its entry point.
** Error FL_ERR_MISSING: not there (the message names `package` to install it), cannot be opened, of another version. */
fl_status fl_plugin_open(void **entry, const char *name, const char *symbol, const char *package);

#endif

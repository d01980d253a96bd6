/*
** on_demand.h -- libraries of others that are opened when the first caller needs them.
**
** A file that uses one lists its functions once:
**
**     #define FUNCTIONS(X) X(png_read_info) X(png_read_row)
**     static struct { FUNCTIONS(FL_ON_DEMAND_FIELD) } lib;
**     static fl_on_demand library = {{"libpng16.so.16"}, "libpng16-16", FL_ON_DEMAND_INTO(lib, FUNCTIONS)};
*/
#ifndef FL_ON_DEMAND_H
#define FL_ON_DEMAND_H

#include "status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct fl_on_demand {
    const char *files[4]; /* names of the library, the first that there is is taken */
    const char *package;  /* that has it */
    void **functions;     /* receives the functions */
    const char *const *names;
    size_t count;
    bool open; /* on_demand.c's own */
} fl_on_demand;

/* All functions are there when it returns FL_OK. FL_ERR_MISSING names the library and its package; the next call tries
** again. Any thread. */
fl_status fl_on_demand_open(fl_on_demand *library);

#define FL_ON_DEMAND_FIELD(name) __typeof__(&name) name;
#define FL_ON_DEMAND_NAME(name) #name,
/* A struct of pointers to functions and, in the same order, their names. */
#define FL_ON_DEMAND_TABLE(table, ...) \
    (void **)&(table), (const char *const[]){__VA_ARGS__}, sizeof(table) / sizeof(void *), false
#define FL_ON_DEMAND_INTO(table, functions) FL_ON_DEMAND_TABLE(table, functions(FL_ON_DEMAND_NAME))

#endif

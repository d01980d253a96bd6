/*
** resident.h -- the memory that this process really has.
*/
#ifndef RESIDENT_H
#define RESIDENT_H

#include <stdio.h>
#include <unistd.h>

static long resident_bytes(void)
{
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &all, &resident) != 2) resident = 0;
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

#endif

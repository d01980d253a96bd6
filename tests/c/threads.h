/*
** threads.h -- how many threads this process has.
*/
#ifndef THREADS_H
#define THREADS_H

#include <dirent.h>

static int count_threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return -1;
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

#endif

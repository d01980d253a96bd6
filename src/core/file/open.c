/*
** open.c -- opening what is to be read (see open.h).
*/
#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 1 << 30 /* bytes of one request */ };

fl_status fl_file_open(int *fd, int64_t *size, const char *who, const char *path)
{
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0 || fstat(file, &info) != 0) {
        int why = errno;
        if (file >= 0) close(file);
        return fl_fail(FL_ERR_IO, "%s: %s: %s", who, path, strerror(why));
    }
    if (!S_ISREG(info.st_mode)) {
        close(file);
        return fl_fail(FL_ERR_IO, "%s: %s: not a regular file", who, path);
    }
    *fd = file;
    *size = info.st_size;
    return FL_OK;
}

fl_status fl_file_read(int fd, void *data, int64_t bytes, int64_t offset, const char *who, const char *path)
{
    for (int64_t done = 0; done < bytes;) {
        size_t size = (size_t)(bytes - done < MOST ? bytes - done : MOST);
        ssize_t got = pread(fd, (char *)data + done, size, offset + done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return fl_fail(FL_ERR_IO, "%s: %s: %s", who, path, got < 0 ? strerror(errno) : "the file ends early");
        done += got;
    }
    return FL_OK;
}

/*
** replace.c -- the temporary file that takes a target's place (see replace.h).
*/
#include "replace.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUFFIX = 64 }; /* room for what a temporary name adds; the most is 1 + 16 + 1 + 19 + 1 + 4 + 4 bytes */

fl_status fl_replacement_fail(const fl_replacement *file, int error)
{
    if (error == EFAULT) /* the value, not the file, is unreadable: a mapping whose file is gone (mapping.h) */
        return fl_fail(FL_ERR_IO, "%s: %s: a value cannot be read: the file that it is mapped from has become shorter",
                       file->who, file->path);
    return fl_fail(FL_ERR_IO, "%s: %s: %s", file->who, file->path, strerror(error));
}

fl_status fl_replacement_init(fl_replacement *out, const char *who, const char *path)
{
    *out = (fl_replacement){.who = who, .path = strdup(path), .temporary = calloc(1, strlen(path) + SUFFIX), .fd = -1};
    return out->path && out->temporary ? FL_OK : fl_fail(FL_ERR_MEMORY, "%s: out of memory", who);
}

fl_status fl_replacement_write(const fl_replacement *file, const void *data, int64_t bytes, int64_t offset)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = pwrite(file->fd, at, bytes > INT32_MAX ? INT32_MAX : (size_t)bytes, offset);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return fl_replacement_fail(file, done < 0 ? errno : ENOSPC);
        at += done, offset += done, bytes -= done;
    }
    return FL_OK;
}

/* This host by its name. */
static uint64_t host_hash(void)
{
    char name[256] = "";
    (void)!gethostname(name, sizeof name - 1);
    return fl_hash_bytes(FL_HASH_START, name, strlen(name));
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The number of bytes of the target's name that a temporary name begins with: all, but for names near the system's
** limit. */
static int kept_length(const char *base)
{
    size_t length = strlen(base), most = NAME_MAX - SUFFIX;
    if (length <= most) return (int)length;
    while (most > 0 && ((unsigned char)base[most] & 0xc0) == 0x80) most--; /* whole characters */
    return (int)most;
}

static void name_temporary(fl_replacement *file, uint64_t host, int64_t pid, int64_t attempt)
{
    const char *base = base_name(file->path);
    file->host = host;
    file->attempt = attempt;
    sprintf(file->temporary, "%.*s%.*s.%016" PRIx64 ".%" PRId64 ".%" PRId64 ".tmp", (int)(base - file->path),
            file->path, kept_length(base), base, host, pid, attempt);
}

/* True if `name` is a temporary name made on this host, of any target. */
static bool is_leftover(const char *name, uint64_t host)
{
    char mark[1 + 16 + 1 + 1];
    snprintf(mark, sizeof mark, ".%016" PRIx64 ".", host);
    const char *at = strstr(name, mark);
    int64_t pid, attempt;
    int end = 0;
    if (!at || at == name) return false;
    at += sizeof mark - 1;
    return sscanf(at, "%" SCNd64 ".%" SCNd64 ".tmp%n", &pid, &attempt, &end) == 2 && end > 0 && !at[end];
}

/* Removes a temporary file if no process holds its lock. */
static void leftover_remove(int folder, const char *name)
{
    struct stat info;
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (file < 0) return;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0)
        (void)!unlinkat(folder, name, 0);
    close(file);
}

/* The target's folder; -1 when it cannot be opened. */
static int folder_open(const char *path)
{
    const char *base = base_name(path);
    char *folder = base == path ? strdup(".") : strndup(path, base - path > 1 ? (size_t)(base - path - 1) : 1);
    int file = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    return file;
}

static void leftovers_remove(const char *path)
{
    int file = folder_open(path);
    DIR *folder = file >= 0 ? fdopendir(file) : NULL;
    if (!folder) {
        if (file >= 0) close(file);
        return;
    }
    uint64_t host = host_hash();
    for (struct dirent *entry; (entry = readdir(folder));)
        if (is_leftover(entry->d_name, host)) leftover_remove(file, entry->d_name);
    closedir(folder);
}

/* The target must not be there or be a regular file; file->mode becomes its mode. */
static fl_status check_target(fl_replacement *file)
{
    struct stat info;
    if (lstat(file->path, &info) != 0) return errno == ENOENT ? FL_OK : fl_replacement_fail(file, errno);
    if (!S_ISREG(info.st_mode))
        return fl_fail(FL_ERR_IO, "%s: %s exists and is not a regular file", file->who, file->path);
    file->mode = info.st_mode & 07777;
    return FL_OK;
}

/* Locks the new temporary file. false: another process took it for one that was left, and removes it. A file system
** without locks is fine: no process can lock the file, so none removes it. */
static bool temporary_lock(const fl_replacement *file)
{
    struct stat info;
    if (flock(file->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return fstat(file->fd, &info) != 0 || info.st_nlink > 0;
}

fl_status fl_replacement_create(fl_replacement *file)
{
    FL_TRY(check_target(file));
    leftovers_remove(file->path);
    uint64_t host = host_hash();
    for (int64_t attempt = 0; file->fd < 0; attempt++) {
        name_temporary(file, host, getpid(), attempt);
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd < 0 && (errno != EEXIST || attempt == 1000)) {
            int error = errno;
            file->temporary[0] = '\0'; /* not ours */
            return fl_replacement_fail(file, error);
        }
        if (file->fd >= 0 && !temporary_lock(file)) {
            close(file->fd);
            file->fd = -1;
        }
    }
    if (!file->mode) return FL_OK;
    /* those who join must write */
    return fchmod(file->fd, file->mode | S_IWUSR) == 0 ? FL_OK : fl_replacement_fail(file, errno);
}

/* Makes the rename itself survive a crash. A file system that cannot sync folders is no reason to fail. */
static void folder_sync(const char *path)
{
    int file = folder_open(path);
    if (file < 0) return;
    (void)!fsync(file);
    close(file);
}

/* A file of this name that is not the one meant would be another host's. */
fl_status fl_replacement_join(fl_replacement *file, uint64_t host, int64_t pid, int64_t attempt, int64_t bytes)
{
    struct stat info;
    file->joined = true;
    name_temporary(file, host, pid, attempt);
    file->fd = open(file->temporary, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &info) != 0)
        return fl_fail(FL_ERR_IO, "%s: %s: %s; every rank writes its own part, so all ranks need the same folder",
                       file->who, file->temporary, strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size != bytes)
        return fl_fail(FL_ERR_IO, "%s: %s is not the file of the other ranks", file->who, file->temporary);
    return FL_OK;
}

fl_status fl_replacement_flush(const fl_replacement *file)
{
    return fsync(file->fd) == 0 ? FL_OK : fl_replacement_fail(file, errno);
}

fl_status fl_replacement_commit(fl_replacement *file)
{
    if (file->joined) return FL_OK;
    FL_TRY(check_target(file));
    if (file->mode && fchmod(file->fd, file->mode) != 0) return fl_replacement_fail(file, errno);
    FL_TRY(fl_replacement_flush(file));
    int lock = dup(file->fd); /* the lock outlives the close, whose result counts, until the file has its name */
    int error = close(file->fd) != 0 ? errno : 0;
    file->fd = -1;
    if (!error && rename(file->temporary, file->path) != 0) error = errno;
    if (lock >= 0) close(lock);
    if (error) return fl_replacement_fail(file, error);
    file->temporary[0] = '\0';
    folder_sync(file->path);
    return FL_OK;
}

void fl_replacement_drop(fl_replacement *file)
{
    if (file->fd >= 0) close(file->fd);
    if (!file->joined && file->temporary && file->temporary[0]) unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (fl_replacement){.fd = -1};
}

fl_status fl_file_replace(const char *who, const char *path, const void *data, int64_t bytes)
{
    fl_replacement file;
    fl_status status = fl_replacement_init(&file, who, path);
    if (status == FL_OK) status = fl_replacement_create(&file);
    if (status == FL_OK) status = fl_replacement_write(&file, data, bytes, 0);
    if (status == FL_OK) status = fl_replacement_commit(&file);
    fl_replacement_drop(&file);
    return status;
}

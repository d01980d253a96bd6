/*
** safetensors_write.c -- writer of safetensors files (see safetensors.h).
**
** The header is padded with spaces to a multiple of 8, so that the data begins aligned. Integers are printed as
** integers, never through a double.
**
** A temporary file is called <target>.<host>.<pid>.<attempt>.tmp and locked while its writer lives, so the next save
** into that folder can remove those of this host whose lock is free: what processes that were killed have left. Files
** of other hosts are left alone, because locks need not reach from host to host.
*/
#define _GNU_SOURCE /* fallocate */
#include "safetensors.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct fl_safetensors_writer {
    char *path, *temporary;
    int file;
    bool joined; /* the temporary file is another process's */
    mode_t mode; /* of the target, taken over; 0: there is none */
    uint64_t host;
    int64_t attempt;
    int64_t data_start, data_bytes;
};

/* ---- text ---- */

struct text {
    char *at;
    size_t size, room;
    bool failed; /* out of memory */
};

static void text_add(struct text *text, const char *bytes, size_t size)
{
    if (text->room - text->size < size && !text->failed) {
        size_t room = 2 * (text->size + size) + 256;
        char *at = realloc(text->at, room);
        text->failed = at == NULL;
        if (at) text->at = at, text->room = room;
    }
    if (text->failed) return;
    memcpy(text->at + text->size, bytes, size);
    text->size += size;
}

static void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void text_format(struct text *text, const char *format, ...)
{
    char buffer[64];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    text_add(text, buffer, (size_t)size);
}

static void text_string(struct text *text, const char *string)
{
    text_add(text, "\"", 1);
    for (; *string; string++) {
        if (*string == '"' || *string == '\\') text_format(text, "\\%c", *string);
        else if ((unsigned char)*string < 0x20) text_format(text, "\\u%04x", *string);
        else text_add(text, string, 1);
    }
    text_add(text, "\"", 1);
}

static void text_entry(struct text *text, const fl_safetensors_entry *entry)
{
    text_string(text, entry->name);
    text_format(text, ":{\"dtype\":\"%s\",\"shape\":[", fl_safetensors_dtypes[entry->dtype]);
    for (int i = 0; i < entry->shape.ndim; i++) text_format(text, "%s%" PRId64, i ? "," : "", entry->shape.dims[i]);
    text_format(text, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", entry->start, entry->start + entry->bytes);
}

/* Length (8 bytes, little end first), JSON, padding. */
static void text_header(struct text *text, const fl_safetensors_entry *entries, int count, const char *const *metadata,
                        int metadata_count)
{
    unsigned char length[8] = {0};
    text_add(text, (const char *)length, 8);
    text_add(text, "{", 1);
    for (int i = 0; i < metadata_count; i++) {
        text_format(text, "%s", i ? "," : "\"__metadata__\":{");
        text_string(text, metadata[2 * i]);
        text_add(text, ":", 1);
        text_string(text, metadata[2 * i + 1]);
    }
    if (metadata_count) text_format(text, "}%s", count ? "," : "");
    for (int i = 0; i < count; i++) {
        if (i) text_add(text, ",", 1);
        text_entry(text, &entries[i]);
    }
    text_add(text, "}", 1);
    while (!text->failed && text->size % 8 != 0) text_add(text, " ", 1);
    for (int i = 0; i < 8 && !text->failed; i++) text->at[i] = (char)((text->size - 8) >> (8 * i) & 0xff);
}

/* ---- files ---- */

static fl_status failed(const fl_safetensors_writer *writer, int error)
{
    return fl_fail(FL_ERR_IO, "save: %s: %s", writer->path, strerror(error));
}

static fl_status write_all(const fl_safetensors_writer *writer, const void *data, int64_t bytes, int64_t offset)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = pwrite(writer->file, at, bytes > INT32_MAX ? INT32_MAX : (size_t)bytes, offset);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return failed(writer, done < 0 ? errno : ENOSPC);
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

enum { SUFFIX = 64 }; /* room for what a temporary name adds; the most is 1 + 16 + 1 + 19 + 1 + 4 + 4 bytes */

/* How many bytes of the target's name a temporary name begins with: all, but for names near the system's limit. */
static int kept_length(const char *base)
{
    size_t length = strlen(base), most = NAME_MAX - SUFFIX;
    if (length <= most) return (int)length;
    while (most > 0 && ((unsigned char)base[most] & 0xc0) == 0x80) most--; /* whole characters */
    return (int)most;
}

static void name_temporary(fl_safetensors_writer *writer, uint64_t host, int64_t pid, int64_t attempt)
{
    const char *base = base_name(writer->path);
    writer->host = host;
    writer->attempt = attempt;
    sprintf(writer->temporary, "%.*s%.*s.%016" PRIx64 ".%" PRId64 ".%" PRId64 ".tmp", (int)(base - writer->path),
            writer->path, kept_length(base), base, host, pid, attempt);
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

static void leftovers_remove(const fl_safetensors_writer *writer)
{
    int file = folder_open(writer->path);
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

/* The target must not be there or be a regular file; writer->mode becomes its mode. */
static fl_status check_target(fl_safetensors_writer *writer)
{
    struct stat info;
    if (lstat(writer->path, &info) != 0) return errno == ENOENT ? FL_OK : failed(writer, errno);
    if (!S_ISREG(info.st_mode)) return fl_fail(FL_ERR_IO, "save: %s exists and is not a regular file", writer->path);
    writer->mode = info.st_mode & 07777;
    return FL_OK;
}

/* Locks the new temporary file. false: another process took it for one that was left, and removes it. A file system
** without locks is fine: no process can lock the file, so none removes it. */
static bool temporary_lock(const fl_safetensors_writer *writer)
{
    struct stat info;
    if (flock(writer->file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return fstat(writer->file, &info) != 0 || info.st_nlink > 0;
}

/* Opens a new file beside the target, readable by whom the target was (a new target: as umask says). */
static fl_status temporary_open(fl_safetensors_writer *writer)
{
    FL_TRY(check_target(writer));
    leftovers_remove(writer);
    uint64_t host = host_hash();
    for (int64_t attempt = 0; writer->file < 0; attempt++) {
        name_temporary(writer, host, getpid(), attempt);
        writer->file = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->file < 0 && (errno != EEXIST || attempt == 1000)) {
            int error = errno;
            writer->temporary[0] = '\0'; /* not ours */
            return failed(writer, error);
        }
        if (writer->file >= 0 && !temporary_lock(writer)) {
            close(writer->file);
            writer->file = -1;
        }
    }
    if (!writer->mode) return FL_OK;
    return fchmod(writer->file, writer->mode | S_IWUSR) == 0 ? FL_OK
                                                             : failed(writer, errno); /* those who join must write */
}

/* Gives the file its size. Room on the disk is taken now where the file system can, so that a full one is known
** early. */
static fl_status file_reserve(const fl_safetensors_writer *writer)
{
    int64_t size = writer->data_start + writer->data_bytes;
    if (fallocate(writer->file, 0, 0, size) == 0) return FL_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) return failed(writer, errno);
    return ftruncate(writer->file, size) == 0 ? FL_OK : failed(writer, errno);
}

/* Makes the rename itself survive a crash. A file system that cannot sync folders is no reason to fail. */
static void folder_sync(const char *path)
{
    int file = folder_open(path);
    if (file < 0) return;
    (void)!fsync(file);
    close(file);
}

static fl_status writer_new(fl_safetensors_writer **out, const char *path)
{
    fl_safetensors_writer *w = calloc(1, sizeof *w);
    if (w) {
        w->file = -1;
        w->path = strdup(path);
        w->temporary = calloc(1, strlen(path) + SUFFIX);
    }
    if (!w || !w->path || !w->temporary) {
        fl_safetensors_abandon(w);
        return fl_fail(FL_ERR_MEMORY, "save: out of memory");
    }
    *out = w;
    return FL_OK;
}

static fl_status header_write(fl_safetensors_writer *writer, const struct text *header)
{
    if (header->failed) return fl_fail(FL_ERR_MEMORY, "save: out of memory");
    if (header->size > 100 * 1000 * 1000)
        return fl_fail(FL_ERR_IO, "save: %s: the plain values take more than 100 MB", writer->path);
    FL_TRY(temporary_open(writer));
    writer->data_start = (int64_t)header->size;
    FL_TRY(file_reserve(writer));
    return write_all(writer, header->at, (int64_t)header->size, 0);
}

static void lay_out(fl_safetensors_writer *writer, fl_safetensors_entry *entries, int count)
{
    for (int i = 0; i < count; i++) {
        entries[i].start = writer->data_bytes;
        entries[i].bytes = fl_shape_numel(&entries[i].shape) * (int64_t)fl_dtype_size(entries[i].dtype);
        writer->data_bytes += entries[i].bytes;
    }
}

fl_status fl_safetensors_create(fl_safetensors_writer **out, const char *path, fl_safetensors_entry *entries, int count,
                                const char *const *metadata, int metadata_count)
{
    fl_safetensors_writer *w = NULL;
    FL_TRY(writer_new(&w, path));
    lay_out(w, entries, count);
    struct text header = {0};
    text_header(&header, entries, count, metadata, metadata_count);
    fl_status status = header_write(w, &header);
    free(header.at);
    if (status != FL_OK) {
        fl_safetensors_abandon(w);
        return status;
    }
    *out = w;
    return FL_OK;
}

void fl_safetensors_ticket_get(fl_safetensors_ticket *out, const fl_safetensors_writer *writer)
{
    *out = (fl_safetensors_ticket){writer->host, getpid(), writer->attempt, writer->data_start,
                                   writer->data_start + writer->data_bytes};
}

/* A file of this name that is not the one meant would be another host's. */
static fl_status temporary_join(fl_safetensors_writer *writer, const fl_safetensors_ticket *ticket)
{
    struct stat info;
    writer->file = open(writer->temporary, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (writer->file < 0 || fstat(writer->file, &info) != 0)
        return fl_fail(FL_ERR_IO, "save: %s: %s; every rank writes its own part, so all ranks need the same folder",
                       writer->temporary, strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size != ticket->file_bytes
        || writer->data_start + writer->data_bytes != ticket->file_bytes)
        return fl_fail(FL_ERR_IO, "save: %s is not the file of the other ranks", writer->temporary);
    return FL_OK;
}

fl_status fl_safetensors_join(fl_safetensors_writer **out, const char *path, fl_safetensors_entry *entries, int count,
                              const fl_safetensors_ticket *ticket)
{
    fl_safetensors_writer *w = NULL;
    FL_TRY(writer_new(&w, path));
    w->joined = true;
    w->data_start = ticket->data_start;
    lay_out(w, entries, count);
    name_temporary(w, ticket->host, ticket->pid, ticket->attempt);
    fl_status status = temporary_join(w, ticket);
    if (status != FL_OK) {
        fl_safetensors_abandon(w);
        return status;
    }
    *out = w;
    return FL_OK;
}

fl_status fl_safetensors_write(fl_safetensors_writer *writer, const fl_safetensors_entry *entry, const void *data,
                               int64_t first, int64_t bytes)
{
    return write_all(writer, data, bytes, writer->data_start + entry->start + first);
}

fl_status fl_safetensors_flush(fl_safetensors_writer *writer)
{
    return fsync(writer->file) == 0 ? FL_OK : failed(writer, errno);
}

static fl_status put_in_place(fl_safetensors_writer *writer)
{
    FL_TRY(check_target(writer));
    if (writer->mode && fchmod(writer->file, writer->mode) != 0) return failed(writer, errno);
    FL_TRY(fl_safetensors_flush(writer));
    int lock = dup(writer->file); /* the lock outlives the close, whose result counts, until the file has its name */
    int error = close(writer->file) != 0 ? errno : 0;
    writer->file = -1;
    if (!error && rename(writer->temporary, writer->path) != 0) error = errno;
    if (lock >= 0) close(lock);
    if (error) return failed(writer, error);
    writer->temporary[0] = '\0';
    folder_sync(writer->path);
    return FL_OK;
}

fl_status fl_safetensors_commit(fl_safetensors_writer *writer)
{
    fl_status status = writer->joined ? FL_OK : put_in_place(writer);
    fl_safetensors_abandon(writer);
    return status;
}

void fl_safetensors_abandon(fl_safetensors_writer *writer)
{
    if (!writer) return;
    if (writer->file >= 0) close(writer->file);
    if (!writer->joined && writer->temporary && writer->temporary[0]) unlink(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    free(writer);
}

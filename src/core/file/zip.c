/*
** zip.c -- reading zip archives (see zip.h). An archive ends in a record with the place of its directory; before
** that record stands, if 32 bits are not enough, another one with 64.
*/
#include "zip.h"
#include "open.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    END = 22,
    END64 = 56,
    LOCATOR64 = 20,
    CENTRAL = 46,
    LOCAL = 30, /* bytes of records */
    MAX_COMMENT = 65535,
    ENCRYPTED = 1, /* a flag of members */
    STORED = 0,
    DEFLATED = 8
};

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static bool begins(const unsigned char *at, const char *magic) { return memcmp(at, magic, 4) == 0; }

static fl_status fail(const fl_zip *zip, const char *what)
{
    return fl_fail(FL_ERR_IO, "%s: %s: %s", zip->who, zip->path, what);
}

static fl_status read_at(const fl_zip *zip, void *data, int64_t size, int64_t offset)
{
    return fl_file_read(zip->fd, data, size, offset, zip->who, zip->path);
}

/* ---- the directory ---- */

struct directory {
    int64_t offset, bytes, count;
    int64_t limit; /* nothing of it, and no member, lies behind */
};

static fl_status end64_read(struct directory *directory, const fl_zip *zip, int64_t end)
{
    unsigned char locator[LOCATOR64], record[END64];
    if (end < LOCATOR64) return FL_OK;
    FL_TRY(read_at(zip, locator, LOCATOR64, end - LOCATOR64));
    if (!begins(locator, "PK\6\7")) return FL_OK;
    uint64_t at = number(locator + 8, 8);
    if (at > (uint64_t)end - LOCATOR64 || (uint64_t)end - LOCATOR64 - at < END64)
        return fail(zip, "its directory is damaged");
    FL_TRY(read_at(zip, record, END64, (int64_t)at));
    if (!begins(record, "PK\6\6")) return fail(zip, "its directory is damaged");
    directory->count = (int64_t)number(record + 32, 8);
    directory->bytes = (int64_t)number(record + 40, 8);
    directory->offset = (int64_t)number(record + 48, 8);
    directory->limit = (int64_t)at;
    return FL_OK;
}

/* Finds the record at the end, behind which stands at most a comment. */
static fl_status directory_find(struct directory *directory, const fl_zip *zip)
{
    int64_t most = END + MAX_COMMENT, size = zip->file_bytes < most ? zip->file_bytes : most, at = size - END;
    unsigned char *tail = malloc((size_t)size + 1);
    if (!tail) return fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", zip->who, zip->path);
    fl_status status = read_at(zip, tail, size, zip->file_bytes - size);
    while (status == FL_OK && at >= 0
           && (!begins(tail + at, "PK\5\6") || at + END + (int64_t)number(tail + at + 20, 2) != size))
        at--;
    if (status == FL_OK && at < 0) {
        bool is_zip = zip->file_bytes >= 4 && read_at(zip, tail, 4, 0) == FL_OK && begins(tail, "PK\3\4");
        status = fail(zip,
                      is_zip ? "the file ends early: the directory of the archive is missing" : "not a zip archive");
    }
    if (status == FL_OK) {
        directory->limit = zip->file_bytes - size + at;
        directory->count = (int64_t)number(tail + at + 10, 2);
        directory->bytes = (int64_t)number(tail + at + 12, 4);
        directory->offset = (int64_t)number(tail + at + 16, 4);
        status = end64_read(directory, zip, directory->limit);
    }
    free(tail);
    return status;
}

/* Sizes and offset that do not fit into 32 bits, from the extra field 1. */
static bool extra64_read(int64_t *size, int64_t *packed, int64_t *offset, const unsigned char *extra, int64_t length)
{
    int64_t *const values[] = {size, packed, offset};
    if (*size != UINT32_MAX && *packed != UINT32_MAX && *offset != UINT32_MAX) return true;
    for (int64_t at = 0; at + 4 <= length; at += 4 + (int64_t)number(extra + at + 2, 2)) {
        int64_t next = at + 4, end = next + (int64_t)number(extra + at + 2, 2);
        if (number(extra + at, 2) != 1 || end > length) continue;
        for (int i = 0; i < 3; i++) {
            if (*values[i] != UINT32_MAX) continue;
            if (next + 8 > end) return false;
            *values[i] = (int64_t)number(extra + next, 8);
            next += 8;
        }
        return true;
    }
    return false;
}

static fl_status member_fail(const fl_zip *zip, const fl_zip_member *member, const char *what)
{
    char shown[FL_SHOWN_TEXT];
    return fl_fail(FL_ERR_IO, "%s: %s: '%s': %s", zip->who, zip->path, fl_text_name(shown, member->name), what);
}

static fl_status member_check(const fl_zip *zip, const fl_zip_member *member, const unsigned char *record,
                              int64_t limit)
{
    char shown[FL_SHOWN_TEXT];
    uint64_t method = number(record + 10, 2);
    if (memchr(member->name, 0, number(record + 28, 2))) return fail(zip, "a member's name has a NUL");
    if (number(record + 8, 2) & ENCRYPTED) return member_fail(zip, member, "encrypted; unpack the archive first");
    if (method != STORED && method != DEFLATED)
        return member_fail(zip, member, "compressed by another method than deflate; unpack the archive first");
    if (member->size < 0 || member->packed < 0 || member->offset < 0 || member->offset > limit
        || member->packed > limit - member->offset || (method == STORED && member->size != member->packed))
        return member_fail(zip, member, "its entry in the directory is damaged");
    if (member->size / FL_DEFLATE_RATIO > member->packed)
        return fl_fail(FL_ERR_IO,
                       "%s: %s: '%s' promises %lld bytes; %lld compressed bytes hold at most %d times as many",
                       zip->who, zip->path, fl_text_name(shown, member->name), (long long)member->size,
                       (long long)member->packed, FL_DEFLATE_RATIO);
    return FL_OK;
}

/* The entry at *at, which moves on. */
static fl_status member_read(fl_zip *zip, const unsigned char **at, const unsigned char *end, int64_t limit)
{
    const unsigned char *r = *at;
    if (end - r < CENTRAL || !begins(r, "PK\1\2")) return fail(zip, "its directory is damaged");
    int64_t name = (int64_t)number(r + 28, 2), extra = (int64_t)number(r + 30, 2), comment = (int64_t)number(r + 32, 2);
    if (end - r < CENTRAL + name + extra + comment) return fail(zip, "its directory is damaged");
    fl_zip_member *m = &zip->members[zip->count];
    *m = (fl_zip_member){.name = strndup((const char *)r + CENTRAL, (size_t)name),
                         .packing = number(r + 10, 2) == STORED ? FL_PACKED_PLAIN : FL_PACKED_DEFLATE,
                         .crc = (uint32_t)number(r + 16, 4),
                         .packed = (int64_t)number(r + 20, 4),
                         .size = (int64_t)number(r + 24, 4),
                         .offset = (int64_t)number(r + 42, 4)};
    if (!m->name) return fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", zip->who, zip->path);
    zip->count++;
    if (!extra64_read(&m->size, &m->packed, &m->offset, r + CENTRAL + name, extra))
        return member_fail(zip, m, "its entry in the directory is damaged");
    FL_TRY(member_check(zip, m, r, limit));
    *at = r + CENTRAL + name + extra + comment;
    return FL_OK;
}

static int by_offset(const void *a, const void *b)
{
    const fl_zip_member *x = *(const fl_zip_member *const *)a, *y = *(const fl_zip_member *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Members that share bytes are how a small archive holds much more than deflate can. */
static fl_status overlap_check(const fl_zip *zip)
{
    const fl_zip_member **order = malloc(sizeof *order * (size_t)(zip->count + 1));
    fl_status status = order ? FL_OK : fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", zip->who, zip->path);
    for (int64_t i = 0; i < zip->count && order; i++) order[i] = &zip->members[i];
    if (order) qsort(order, (size_t)zip->count, sizeof *order, by_offset);
    for (int64_t i = 0; i + 1 < zip->count && status == FL_OK; i++)
        if (order[i]->offset + LOCAL + order[i]->packed > order[i + 1]->offset)
            status = member_fail(zip, order[i + 1], "it shares bytes with another member");
    free(order);
    return status;
}

static fl_status directory_read(fl_zip *zip)
{
    struct directory d = {0};
    FL_TRY(directory_find(&d, zip));
    if (d.offset < 0 || d.bytes < 0 || d.offset > d.limit || d.bytes > d.limit - d.offset || d.count < 0
        || d.count > d.bytes / CENTRAL)
        return fail(zip, "its directory is damaged");
    unsigned char *data = malloc((size_t)d.bytes + 1);
    zip->members = calloc((size_t)d.count + 1, sizeof *zip->members);
    fl_status status = data && zip->members ? read_at(zip, data, d.bytes, d.offset)
                                            : fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", zip->who, zip->path);
    const unsigned char *at = data;
    for (int64_t i = 0; i < d.count && status == FL_OK; i++) status = member_read(zip, &at, data + d.bytes, d.offset);
    free(data);
    return status == FL_OK ? overlap_check(zip) : status;
}

fl_status fl_zip_open(fl_zip **out, const char *who, const char *path)
{
    int fd;
    int64_t size;
    FL_TRY(fl_file_open(&fd, &size, who, path));
    fl_zip *zip = calloc(1, sizeof *zip);
    if (zip) {
        *zip = (fl_zip){.fd = fd, .file_bytes = size, .who = strdup(who), .path = strdup(path)};
    } else close(fd);
    fl_status status = zip && zip->who && zip->path ? directory_read(zip)
                                                    : fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", who, path);
    if (status == FL_OK) *out = zip;
    else fl_zip_close(zip);
    return status;
}

void fl_zip_close(fl_zip *zip)
{
    if (!zip) return;
    for (int64_t i = 0; i < zip->count; i++) free(zip->members[i].name);
    free(zip->members);
    free(zip->who);
    free(zip->path);
    close(zip->fd);
    free(zip);
}

/* ---- members ---- */

fl_status fl_zip_stream(fl_stream **out, const fl_zip *zip, int64_t index)
{
    const fl_zip_member *m = &zip->members[index];
    unsigned char head[LOCAL];
    char shown[FL_SHOWN_TEXT];
    if (zip->file_bytes - m->offset < LOCAL) return member_fail(zip, m, "its bytes are missing");
    FL_TRY(read_at(zip, head, LOCAL, m->offset));
    int64_t start = m->offset + LOCAL + (int64_t)number(head + 26, 2) + (int64_t)number(head + 28, 2);
    if (!begins(head, "PK\3\4") || start > zip->file_bytes || m->packed > zip->file_bytes - start)
        return member_fail(zip, m, "its header is damaged");
    char *path = malloc(strlen(zip->path) + sizeof shown + 8);
    if (!path) return fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", zip->who, zip->path);
    stpcpy(stpcpy(stpcpy(stpcpy(path, zip->path), ": '"), fl_text_name(shown, m->name)), "'");
    fl_stream_part part = {.who = zip->who,
                           .path = path,
                           .fd = zip->fd,
                           .packing = m->packing,
                           .offset = start,
                           .bytes = m->packed,
                           .has_crc = true,
                           .size = m->size,
                           .crc = m->crc};
    fl_status status = fl_stream_open_part(out, &part);
    free(path);
    return status;
}

/*
** zip_write.c -- the records of a zip archive that is written (see zip.h).
*/
#include "zip.h"

#include <string.h>

static int put(unsigned char *out, int64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)((uint64_t)value >> (8 * i));
    return bytes;
}

static bool is_large(const fl_zip_member *member) { return member->size >= UINT32_MAX || member->packed >= UINT32_MAX; }

/* The fields that the local and the central record have in common: from the version that is needed to the length of the
** extra field. The date is the first one that the format has. */
static int put_common(unsigned char *out, const fl_zip_member *member, bool large, int extra)
{
    unsigned char *at = out;
    at += put(at, large ? 45 : 20, 2);
    at += put(at, 1 << 11, 2); /* the name is UTF-8 */
    at += put(at, member->packing == FL_PACKED_PLAIN ? 0 : 8, 2);
    at += put(at, 0, 2);
    at += put(at, 1 << 5 | 1, 2);
    at += put(at, member->crc, 4);
    at += put(at, large ? UINT32_MAX : member->packed, 4);
    at += put(at, large ? UINT32_MAX : member->size, 4);
    at += put(at, (int64_t)strlen(member->name), 2);
    at += put(at, extra, 2);
    return (int)(at - out);
}

static int put_bytes(unsigned char *out, const char *bytes, size_t size)
{
    memcpy(out, bytes, size);
    return (int)size;
}

int fl_zip_local(unsigned char *out, const fl_zip_member *member)
{
    bool large = is_large(member);
    unsigned char *at = out;
    at += put_bytes(at, "PK\3\4", 4);
    at += put_common(at, member, large, large ? 20 : 0);
    at += put_bytes(at, member->name, strlen(member->name));
    if (!large) return (int)(at - out);
    at += put(at, 1, 2);
    at += put(at, 16, 2);
    at += put(at, member->size, 8);
    at += put(at, member->packed, 8);
    return (int)(at - out);
}

int fl_zip_central(unsigned char *out, const fl_zip_member *member)
{
    bool large = is_large(member) || member->offset >= UINT32_MAX;
    unsigned char *at = out;
    at += put_bytes(at, "PK\1\2", 4);
    at += put(at, 45, 2); /* the version of the writer, on MS-DOS: no permissions */
    at += put_common(at, member, large, large ? 28 : 0);
    at += put(at, 0, 6); /* comment, disk, attributes */
    at += put(at, 0, 4);
    at += put(at, large ? UINT32_MAX : member->offset, 4);
    at += put_bytes(at, member->name, strlen(member->name));
    if (!large) return (int)(at - out);
    at += put(at, 1, 2);
    at += put(at, 24, 2);
    at += put(at, member->size, 8);
    at += put(at, member->packed, 8);
    at += put(at, member->offset, 8);
    return (int)(at - out);
}

int fl_zip_end(unsigned char *out, int64_t count, int64_t directory, int64_t directory_bytes)
{
    bool large = count >= UINT16_MAX || directory >= UINT32_MAX || directory_bytes >= UINT32_MAX;
    unsigned char *at = out;
    if (large) {
        at += put_bytes(at, "PK\6\6", 4);
        at += put(at, 44, 8);
        at += put(at, 45, 2);
        at += put(at, 45, 2);
        at += put(at, 0, 8);
        at += put(at, count, 8);
        at += put(at, count, 8);
        at += put(at, directory_bytes, 8);
        at += put(at, directory, 8);
        at += put_bytes(at, "PK\6\7", 4);
        at += put(at, 0, 4);
        at += put(at, directory + directory_bytes, 8);
        at += put(at, 1, 4);
    }
    at += put_bytes(at, "PK\5\6", 4);
    at += put(at, 0, 4);
    at += put(at, large ? UINT16_MAX : count, 2);
    at += put(at, large ? UINT16_MAX : count, 2);
    at += put(at, large ? UINT32_MAX : directory_bytes, 4);
    at += put(at, large ? UINT32_MAX : directory, 4);
    at += put(at, 0, 2);
    return (int)(at - out);
}

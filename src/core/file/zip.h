/*
** zip.h -- members of zip archives (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT), zip64 too: stored or
** deflated. The directory is checked against the file: no member lies outside of it or shares bytes with another one,
** and none claims more bytes than deflate can hold.
*/
#ifndef FL_ZIP_H
#define FL_ZIP_H

#include "stream.h"

typedef struct fl_zip_member {
    char *name;         /* owned */
    fl_packing packing; /* FL_PACKED_PLAIN or FL_PACKED_DEFLATE */
    uint32_t crc;
    int64_t packed, size; /* bytes in the file and inflated */
    int64_t offset;       /* of its local header */
} fl_zip_member;

typedef struct fl_zip {
    fl_zip_member *members; /* in the order of the directory */
    int64_t count;
    /* the reader's own */
    char *who, *path;
    int fd;
    int64_t file_bytes;
} fl_zip;

/* Opens an archive and reads its directory; fl_zip_close frees *out. who: the first word of messages. */
fl_status fl_zip_open(fl_zip **out, const char *who, const char *path);

/* The bytes of a member; the archive must stay open. Messages name it "path: 'member'". */
fl_status fl_zip_stream(fl_stream **out, const fl_zip *zip, int64_t index);

void fl_zip_close(fl_zip *zip); /* takes NULL */

/* ---- writing ---- */

/* The parts of an archive, in memory of the caller: fl_zip_local comes before the bytes of each member, all the
** fl_zip_central behind the last one, and fl_zip_end ends it. Sizes of 4 GiB and more are written as zip64. */
enum { FL_ZIP_RECORD = 128 /* bytes at most that each of them writes, without the name */ };
int fl_zip_local(unsigned char *out, const fl_zip_member *member);
int fl_zip_central(unsigned char *out, const fl_zip_member *member);
int fl_zip_end(unsigned char *out, int64_t count, int64_t directory, int64_t directory_bytes);

#endif

/*
** stream.h -- the bytes of a file from front to back: as they lie there, or inflated (gzip, members of zip archives).
**
** Sizes in a file are checked: fl_stream_claim refuses more bytes than can come, so that nothing is allocated for
** it. If the format has a checksum it is compared when the last byte has been read.
*/
#ifndef FL_STREAM_H
#define FL_STREAM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { FL_DEFLATE_RATIO = 1032 /* at most: 258 bytes from two bits (https://zlib.net/zlib_tech.html) */ };

typedef struct fl_stream fl_stream;

/* The compression of a part of a file. */
typedef enum fl_packing { FL_PACKED_PLAIN, FL_PACKED_GZIP, FL_PACKED_DEFLATE } fl_packing;

/* A part of an open file; the name in messages is `path`. */
typedef struct fl_stream_part {
    const char *who, *path; /* copied */
    int fd;
    bool owns_fd; /* closed with the stream, or when it cannot be made */
    fl_packing packing;
    int64_t offset, bytes; /* as they lie in the file */
    bool has_crc;          /* `size` and `crc` are those of the bytes as they are read */
    int64_t size;
    uint32_t crc;
} fl_stream_part;

/* Opens a regular file; one that begins like gzip is inflated. who: the first word of messages. */
fl_status fl_stream_open(fl_stream **out, const char *who, const char *path);
fl_status fl_stream_open_part(fl_stream **out, const fl_stream_part *part);

/* The next bytes, at most `size`; fewer come at the end alone. */
fl_status fl_stream_read_some(int64_t *got, fl_stream *stream, void *data, int64_t size);
/* Exactly `size` bytes; that there are fewer is an error. */
fl_status fl_stream_read(fl_stream *stream, void *data, int64_t size);
/* An error unless so many bytes may still come. */
fl_status fl_stream_claim(const fl_stream *stream, int64_t bytes);
/* An error if anything follows. */
fl_status fl_stream_end(fl_stream *stream);
/* All that is left, in memory that the caller frees, and behind it `padding` bytes of 0. */
fl_status fl_stream_read_all(char **out, int64_t *size, fl_stream *stream, int64_t padding);

/* Of a stream that is not packed: exactly the bytes from there on, wherever it stands; any thread may call it. */
fl_status fl_stream_read_at(const fl_stream *stream, void *data, int64_t offset, int64_t size);
/* Its bytes as they lie in the file. */
int64_t fl_stream_bytes(const fl_stream *stream);

const char *fl_stream_who(const fl_stream *stream);
const char *fl_stream_path(const fl_stream *stream);
bool fl_stream_is_packed(const fl_stream *stream);
/* Of a stream that is not packed: bytes that were read, or lie before it in the file. */
int64_t fl_stream_offset(const fl_stream *stream);

void fl_stream_close(fl_stream *stream); /* takes NULL */

#endif

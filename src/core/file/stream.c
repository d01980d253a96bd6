/*
** stream.c -- streams of files (see stream.h). They read at offsets, so several streams may share an open file.
*/
#include "stream.h"
#include "open.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PACKED = 1 << 16, MOST = 1 << 30 /* bytes of one request */ };

struct fl_stream {
    fl_stream_part part;
    char *who, *path;
    int64_t at, end; /* of the file: the next byte to read */
    int64_t given;   /* bytes to the caller */
    uint32_t crc;    /* of these */
    bool finished;   /* the compressed data has ended, and its checksum is right */
    bool inflating;  /* `z` must be ended */
    z_stream z;
    unsigned char packed[PACKED];
};

static fl_status damaged(const fl_stream *stream)
{
    return fl_fail(FL_ERR_IO, "%s: %s: the compressed data is damaged", stream->who, stream->path);
}

static fl_status ends_early(const fl_stream *stream)
{
    return fl_fail(FL_ERR_IO, "%s: %s: the file ends early", stream->who, stream->path);
}

static fl_status stream_begin(fl_stream *stream)
{
    stream->at = stream->part.offset;
    stream->end = stream->part.offset + stream->part.bytes;
    stream->finished = stream->part.packing == FL_PACKED_PLAIN;
    stream->crc = (uint32_t)crc32(0, NULL, 0);
    if (stream->finished) return FL_OK;
    if (inflateInit2(&stream->z, stream->part.packing == FL_PACKED_GZIP ? 16 + MAX_WBITS : -MAX_WBITS) != Z_OK)
        return fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", stream->who, stream->path);
    stream->inflating = true;
    return FL_OK;
}

fl_status fl_stream_open_part(fl_stream **out, const fl_stream_part *part)
{
    fl_stream *s = calloc(1, sizeof *s);
    if (s) {
        s->part = *part;
        s->who = strdup(part->who);
        s->path = strdup(part->path);
    }
    if (!s || !s->who || !s->path) {
        fl_status status = fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", part->who, part->path);
        if (!s && part->owns_fd) close(part->fd);
        fl_stream_close(s);
        return status;
    }
    fl_status status = stream_begin(s);
    if (status == FL_OK) *out = s;
    else fl_stream_close(s);
    return status;
}

fl_status fl_stream_open(fl_stream **out, const char *who, const char *path)
{
    unsigned char head[3];
    fl_stream_part part = {.who = who, .path = path, .owns_fd = true};
    FL_TRY(fl_file_open(&part.fd, &part.bytes, who, path));
    bool is_gzip = pread(part.fd, head, 3, 0) == 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == Z_DEFLATED;
    part.packing = is_gzip ? FL_PACKED_GZIP : FL_PACKED_PLAIN;
    return fl_stream_open_part(out, &part);
}

void fl_stream_close(fl_stream *stream)
{
    if (!stream) return;
    if (stream->inflating) inflateEnd(&stream->z);
    if (stream->part.owns_fd) close(stream->part.fd);
    free(stream->who);
    free(stream->path);
    free(stream);
}

const char *fl_stream_who(const fl_stream *stream) { return stream->who; }
const char *fl_stream_path(const fl_stream *stream) { return stream->path; }
bool fl_stream_is_packed(const fl_stream *stream) { return stream->part.packing != FL_PACKED_PLAIN; }
int64_t fl_stream_offset(const fl_stream *stream) { return stream->at; }
int64_t fl_stream_bytes(const fl_stream *stream) { return stream->part.bytes; }

/* ---- reading ---- */

/* Bytes as they lie in the file: fewer than `size` at the end of the part. */
static fl_status raw_read(size_t *got, fl_stream *stream, void *data, int64_t size)
{
    int64_t left = stream->end - stream->at;
    if (size > left) size = left;
    FL_TRY(fl_file_read(stream->part.fd, data, size, stream->at, stream->who, stream->path));
    stream->at += size;
    *got = (size_t)size;
    return FL_OK;
}

fl_status fl_stream_read_at(const fl_stream *stream, void *data, int64_t offset, int64_t size)
{
    return fl_file_read(stream->part.fd, data, size, stream->part.offset + offset, stream->who, stream->path);
}

static fl_status packed_fill(fl_stream *stream)
{
    size_t got;
    FL_TRY(raw_read(&got, stream, stream->packed, PACKED));
    stream->z.next_in = stream->packed;
    stream->z.avail_in = (uInt)got;
    return got > 0 ? FL_OK : ends_early(stream);
}

/* The compressed data has ended: nothing may follow, but in a file of gzip another one. */
static fl_status member_end(fl_stream *stream)
{
    if (stream->z.avail_in == 0 && stream->at == stream->end) {
        stream->finished = true;
        return FL_OK;
    }
    if (stream->part.packing != FL_PACKED_GZIP) return damaged(stream);
    if (stream->z.avail_in == 0) FL_TRY(packed_fill(stream));
    if (stream->z.next_in[0] != 0x1f)
        return fl_fail(FL_ERR_IO, "%s: %s: bytes after the compressed data", stream->who, stream->path);
    return inflateReset(&stream->z) == Z_OK ? FL_OK : damaged(stream);
}

static fl_status inflate_some(int64_t *got, fl_stream *stream, void *data, int64_t size)
{
    int64_t done = 0;
    while (done < size && !stream->finished) {
        uInt room = (uInt)(size - done < MOST ? size - done : MOST);
        if (stream->z.avail_in == 0) FL_TRY(packed_fill(stream));
        stream->z.next_out = (unsigned char *)data + done;
        stream->z.avail_out = room;
        int code = inflate(&stream->z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR) return fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", stream->who, stream->path);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) return damaged(stream);
        done += room - stream->z.avail_out;
        if (code == Z_STREAM_END) FL_TRY(member_end(stream));
    }
    *got = done;
    return FL_OK;
}

/* The bytes so far against the size and the sum that the archive gives; at the end both must be right. */
static fl_status sum_check(fl_stream *stream, const void *data, int64_t got, bool ended)
{
    stream->given += got;
    if (!stream->part.has_crc) return FL_OK;
    for (int64_t i = 0; i < got; i += MOST)
        stream->crc = (uint32_t)crc32(stream->crc, (const unsigned char *)data + i,
                                      (uInt)(got - i < MOST ? got - i : MOST));
    if (stream->given > stream->part.size || (ended && stream->given < stream->part.size)) return damaged(stream);
    if (stream->given == stream->part.size && stream->crc != stream->part.crc)
        return fl_fail(FL_ERR_IO, "%s: %s: damaged: its checksum is another one", stream->who, stream->path);
    return FL_OK;
}

fl_status fl_stream_read_some(int64_t *got, fl_stream *stream, void *data, int64_t size)
{
    int64_t n = 0;
    if (stream->part.packing == FL_PACKED_PLAIN) {
        size_t raw = 0;
        FL_TRY(raw_read(&raw, stream, data, size));
        n = (int64_t)raw;
    } else FL_TRY(inflate_some(&n, stream, data, size));
    FL_TRY(sum_check(stream, data, n, n < size));
    *got = n;
    return FL_OK;
}

fl_status fl_stream_read(fl_stream *stream, void *data, int64_t size)
{
    int64_t got;
    FL_TRY(fl_stream_read_some(&got, stream, data, size));
    return got == size ? FL_OK : ends_early(stream);
}

fl_status fl_stream_claim(const fl_stream *stream, int64_t bytes)
{
    if (stream->part.has_crc && bytes > stream->part.size - stream->given) return ends_early(stream);
    if (stream->part.packing == FL_PACKED_PLAIN) return bytes <= stream->end - stream->at ? FL_OK : ends_early(stream);
    if ((stream->given + bytes) / FL_DEFLATE_RATIO <= stream->part.bytes) return FL_OK;
    return fl_fail(FL_ERR_IO,
                   "%s: %s: the header promises %lld bytes of elements; %lld compressed bytes hold at most %d times as "
                   "many",
                   stream->who, stream->path, (long long)bytes, (long long)stream->part.bytes, FL_DEFLATE_RATIO);
}

fl_status fl_stream_end(fl_stream *stream)
{
    char more;
    int64_t got;
    FL_TRY(fl_stream_read_some(&got, stream, &more, 1));
    return got == 0 ? FL_OK : fl_fail(FL_ERR_IO, "%s: %s: bytes after the last element", stream->who, stream->path);
}

fl_status fl_stream_read_all(char **out, int64_t *size, fl_stream *stream, int64_t padding)
{
    int64_t room = fl_stream_is_packed(stream) ? 4 * (stream->end - stream->at) + PACKED : stream->end - stream->at + 1,
            done = 0, got = 0;
    char *data = malloc((size_t)(room + padding));
    fl_status status = data ? FL_OK : fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", stream->who, stream->path);
    while (status == FL_OK) {
        status = fl_stream_read_some(&got, stream, data + done, room - done);
        if (status != FL_OK || got < room - done) break;
        done += got;
        room *= 2;
        char *grown = realloc(data, (size_t)(room + padding));
        if (grown) data = grown;
        else status = fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", stream->who, stream->path);
    }
    if (status != FL_OK) {
        free(data);
        return status;
    }
    *size = done + got;
    memset(data + *size, 0, (size_t)padding);
    char *fitting = realloc(data, (size_t)(*size + padding + 1));
    *out = fitting ? fitting : data;
    return FL_OK;
}

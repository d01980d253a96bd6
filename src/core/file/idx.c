/*
** idx.c -- reader of IDX files.
**
** Layout: 0, 0, type, number of axes; one big-endian 32-bit size per axis; the elements, big end first. Sizes are
** checked: elements that cannot lie in a file of that size are refused, and memory grows with what the file
** really holds.
*/
#include "idx.h"
#include "open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    CHUNK = 1 << 20,
    MAX_RATIO = 1032 /* of deflate: 258 bytes from two bits (https://zlib.net/zlib_tech.html) */
};

struct reader {
    const char *path;
    gzFile file;
    int64_t file_bytes;
};

static const struct {
    unsigned char code, bytes;
    fl_dtype dtype;
} types[] = {
    {0x08, 1, FL_UINT8}, {0x09, 1, FL_INT8},    {0x0b, 2, FL_INT32},
    {0x0c, 4, FL_INT32}, {0x0d, 4, FL_FLOAT32}, {0x0e, 8, FL_FLOAT64},
};

static fl_status read_error(const struct reader *reader)
{
    int code;
    (void)gzerror(reader->file, &code);
    const char *text = "the compressed data is damaged";
    if (code == Z_ERRNO) text = strerror(errno);
    if (code == Z_OK || code == Z_BUF_ERROR) text = "the file ends early";
    return fl_fail(FL_ERR_IO, "idx: %s: %s", reader->path, text);
}

static fl_status read_exactly(const struct reader *reader, void *data, size_t size)
{
    int got = gzread(reader->file, data, (unsigned)size);
    return got == (int)size ? FL_OK : read_error(reader);
}

static uint32_t big_endian(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Type and shape from the head of the file. */
static fl_status head_read(const struct reader *reader, int *type, fl_shape *shape)
{
    unsigned char head[4], size[4];
    int64_t dims[FL_MAX_NDIM];
    FL_TRY(read_exactly(reader, head, 4));
    *type = -1;
    for (int i = 0; i < (int)(sizeof types / sizeof types[0]); i++)
        if (head[0] == 0 && head[1] == 0 && types[i].code == head[2]) *type = i;
    if (*type < 0) return fl_fail(FL_ERR_IO, "idx: %s: not an IDX file", reader->path);
    if (head[3] > FL_MAX_NDIM)
        return fl_fail(FL_ERR_IO, "idx: %s: %d axes are more than %d", reader->path, head[3], FL_MAX_NDIM);
    for (int i = 0; i < head[3]; i++) {
        FL_TRY(read_exactly(reader, size, 4));
        dims[i] = big_endian(size);
    }
    return fl_shape_make(shape, reader->path, dims, head[3]) == FL_OK ? FL_OK : fl_fail_prefix(FL_ERR_IO, "idx: ");
}

/* True if the file can hold a header of so many axes and that many bytes of elements. */
static fl_status claim_check(const struct reader *reader, int ndim, int64_t bytes)
{
    int64_t claimed = 4 + 4 * ndim + bytes;
    bool packed = !gzdirect(reader->file);
    if (claimed / (packed ? MAX_RATIO : 1) <= reader->file_bytes) return FL_OK;
    if (!packed) return fl_fail(FL_ERR_IO, "idx: %s: the file ends early", reader->path);
    return fl_fail(
        FL_ERR_IO,
        "idx: %s: the header promises %lld bytes of elements; %lld compressed bytes hold at most %d times as many",
        reader->path, (long long)bytes, (long long)reader->file_bytes, MAX_RATIO);
}

/* Nothing may follow; of a compressed file this reads and checks the sum at its end. */
static fl_status end_check(const struct reader *reader)
{
    unsigned char more;
    int code, got = gzread(reader->file, &more, 1);
    if (got > 0) return fl_fail(FL_ERR_IO, "idx: %s: bytes after the last element", reader->path);
    (void)gzerror(reader->file, &code);
    return code == Z_OK ? FL_OK : read_error(reader);
}

/* The elements' bytes, allocated as they arrive; the caller frees. */
static fl_status body_read(const struct reader *reader, unsigned char **out, int64_t bytes)
{
    unsigned char *data = NULL;
    int64_t size = 0, room = 0;
    fl_status status = FL_OK;
    while (size < bytes && status == FL_OK) {
        int64_t step = bytes - size < CHUNK ? bytes - size : CHUNK;
        if (room - size < step) {
            room = 2 * room + step < bytes ? 2 * room + step : bytes;
            unsigned char *grown = realloc(data, (size_t)room);
            if (!grown) status = fl_fail(FL_ERR_MEMORY, "idx: %s: out of memory", reader->path);
            else data = grown;
        }
        if (status == FL_OK) status = read_exactly(reader, data + size, (size_t)step);
        size += step;
    }
    if (status == FL_OK) status = end_check(reader);
    if (status != FL_OK) free(data);
    else *out = data;
    return status;
}

/* Elements to the machine's byte order; int16 becomes int32. */
static void elements_store(void *to, const unsigned char *from, int64_t count, int type)
{
    int size = types[type].bytes;
    if (size == 2) {
        for (int64_t i = 0; i < count; i++) ((int32_t *)to)[i] = (int16_t)(from[2 * i] << 8 | from[2 * i + 1]);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int j = 0; j < size; j++) ((unsigned char *)to)[i * size + j] = from[i * size + size - 1 - j];
}

static fl_status tensor_read(fl_tensor **out, const struct reader *reader)
{
    int type;
    fl_shape shape;
    unsigned char *data = NULL;
    FL_TRY(head_read(reader, &type, &shape));
    int64_t count = fl_shape_numel(&shape);
    if (count > INT64_MAX / 8)
        return fl_fail(FL_ERR_IO, "idx: %s: %lld elements are too many", reader->path, (long long)count);
    FL_TRY(claim_check(reader, shape.ndim, count * types[type].bytes));
    FL_TRY(body_read(reader, &data, count * types[type].bytes));
    fl_tensor *t;
    fl_status status = fl_tensor_empty_local(&t, types[type].dtype, &shape);
    if (status == FL_OK) {
        if (count > 0) elements_store(fl_tensor_data(t), data, count, type);
        *out = t;
    }
    free(data);
    return status;
}

fl_status fl_idx_read(fl_tensor **out, const char *path)
{
    int fd;
    struct reader r = {.path = path};
    FL_TRY(fl_file_open(&fd, &r.file_bytes, "idx", path));
    r.file = gzdopen(fd, "rb");
    if (!r.file) {
        close(fd);
        return fl_fail(FL_ERR_MEMORY, "idx: %s: out of memory", path);
    }
    fl_status status = tensor_read(out, &r);
    gzclose_r(r.file);
    return status;
}

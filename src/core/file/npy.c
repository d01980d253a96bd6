/*
** npy.c -- arrays of .npy files as tensors (see npy.h).
*/
#include "npy.h"
#include "mapping.h"
#include "npy_header.h"
#include "open.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 /* bytes that are converted at once */ };

static fl_status out_of_memory(const fl_stream *stream)
{
    return fl_fail(FL_ERR_MEMORY, "%s: %s: out of memory", fl_stream_who(stream), fl_stream_path(stream));
}

static void bytes_swap(void *data, int64_t count, int width)
{
    uint16_t *x2 = data;
    uint32_t *x4 = data;
    uint64_t *x8 = data;
    if (width == 2)
        for (int64_t i = 0; i < count; i++) x2[i] = __builtin_bswap16(x2[i]);
    if (width == 4)
        for (int64_t i = 0; i < count; i++) x4[i] = __builtin_bswap32(x4[i]);
    if (width == 8)
        for (int64_t i = 0; i < count; i++) x8[i] = __builtin_bswap64(x8[i]);
}

/* Any byte but 0 is true. */
static void booleans_clean(uint8_t *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++) data[i] = data[i] != 0;
}

/* Elements of dtypes that tensors do not have, in the next wider one. */
static void elements_widen(void *to, const void *from, int64_t count, const fl_npy_header_facts *facts)
{
    if (facts->width == 2 && facts->kind == 'i')
        for (int64_t i = 0; i < count; i++) ((int32_t *)to)[i] = ((const int16_t *)from)[i];
    if (facts->width == 2 && facts->kind == 'u')
        for (int64_t i = 0; i < count; i++) ((int32_t *)to)[i] = ((const uint16_t *)from)[i];
    if (facts->width == 4)
        for (int64_t i = 0; i < count; i++) ((int64_t *)to)[i] = ((const uint32_t *)from)[i];
}

static fl_status range_check(const fl_stream *stream, const uint64_t *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (data[i] > INT64_MAX)
            return fl_fail(FL_ERR_IO, "%s: %s: element %" PRId64 " is %" PRIu64 ", more than an int64 holds",
                           fl_stream_who(stream), fl_stream_path(stream), i, data[i]);
    return FL_OK;
}

/* Elements whose size in the file is the tensor's: read where they stay. */
static fl_status elements_read(void *data, fl_stream *stream, int64_t count, const fl_npy_header_facts *facts)
{
    FL_TRY(fl_stream_read(stream, data, count * facts->width));
    if (facts->swapped) bytes_swap(data, count, facts->width);
    if (facts->kind == 'b') booleans_clean(data, count);
    return facts->kind == 'u' && facts->width == 8 ? range_check(stream, data, count) : FL_OK;
}

static fl_status elements_convert(char *data, fl_stream *stream, int64_t count, const fl_npy_header_facts *facts)
{
    int64_t most = CHUNK / facts->width, size = (int64_t)fl_dtype_size(facts->dtype);
    void *chunk = malloc(CHUNK);
    fl_status status = chunk ? FL_OK : out_of_memory(stream);
    for (int64_t i = 0; i < count && status == FL_OK; i += most) {
        int64_t n = count - i < most ? count - i : most;
        status = fl_stream_read(stream, chunk, n * facts->width);
        if (status != FL_OK) break;
        if (facts->swapped) bytes_swap(chunk, n, facts->width);
        elements_widen(data + i * size, chunk, n, facts);
    }
    free(chunk);
    return status;
}

/* The shape of the elements as they follow each other. */
static fl_shape shape_in_file(const fl_npy_header_facts *facts)
{
    fl_shape shape = facts->shape;
    for (int i = 0; i < shape.ndim && facts->columns_first; i++) shape.dims[i] = facts->shape.dims[shape.ndim - 1 - i];
    return shape;
}

fl_status fl_npy_read(fl_tensor **out, bool *columns_first, fl_stream *stream)
{
    fl_npy_header_facts facts;
    fl_tensor *t;
    FL_TRY(fl_npy_header_read(&facts, stream));
    fl_shape shape = shape_in_file(&facts);
    int64_t count = fl_shape_numel(&shape);
    FL_TRY(fl_stream_claim(stream, count * facts.width));
    FL_TRY(fl_tensor_empty_local(&t, facts.dtype, &shape));
    fl_status status = FL_OK;
    if (count > 0 && facts.width == (int)fl_dtype_size(facts.dtype))
        status = elements_read(fl_tensor_data(t), stream, count, &facts);
    else if (count > 0) status = elements_convert(fl_tensor_data(t), stream, count, &facts);
    if (status == FL_OK) status = fl_stream_end(stream);
    if (status != FL_OK) {
        fl_tensor_unref(t);
        return status;
    }
    *out = t;
    *columns_first = facts.columns_first && shape.ndim > 1;
    return FL_OK;
}

/* ---- mapping ---- */

struct mapped {
    fl_mapping file;
    fl_poison *lost; /* owned: the error of a file that was cut */
};

static void mapped_release(void *context)
{
    struct mapped *mapped = context;
    fl_mapping_close(&mapped->file);
    fl_poison_unref(mapped->lost);
    free(mapped);
}

static fl_status map_check(const fl_stream *stream, const fl_npy_header_facts *facts)
{
    const char *why = NULL;
    if (facts->swapped) why = "its elements have the other byte order";
    else if (facts->width != (int)fl_dtype_size(facts->dtype) || (facts->kind == 'u' && facts->width == 8))
        why = "its elements are of a dtype that tensors do not have";
    else if (fl_stream_offset(stream) % facts->width != 0) why = "its elements are not aligned";
    return why ? fl_fail(FL_ERR_IO, "%s: %s: cannot be mapped: %s; leave map out", fl_stream_who(stream),
                         fl_stream_path(stream), why)
               : FL_OK;
}

static fl_status elements_map(fl_tensor **out, const fl_stream *stream, int fd, const fl_npy_header_facts *facts,
                              int64_t count)
{
    const fl_meta *meta;
    fl_shape shape = shape_in_file(facts);
    size_t first = (size_t)fl_stream_offset(stream), bytes = first + (size_t)(count * facts->width);
    struct mapped *mapped = calloc(1, sizeof *mapped);
    if (!mapped) return out_of_memory(stream);
    fl_status status = fl_mapping_open_copy(&mapped->file, fd, (int64_t)bytes, fl_stream_who(stream),
                                            fl_stream_path(stream));
    if (status == FL_OK) status = fl_meta_local(&meta, facts->dtype, &shape);
    if (status == FL_OK) {
        char *data = (char *)(uintptr_t)mapped->file.data + first;
        status = fl_tensor_foreign(out, meta, NULL, data, mapped_release, mapped);
        fl_meta_unref(meta);
    }
    if (status != FL_OK) {
        mapped_release(mapped);
        return status;
    }
    fl_fail(FL_ERR_IO, "%s: %s: the file has become shorter, or cannot be read any more, while it was mapped",
            fl_stream_who(stream), fl_stream_path(stream));
    mapped->lost = fl_poison_prepare(FL_ERR_IO, fl_stream_who(stream));
    fl_mapping_watch(&mapped->file, &(*out)->storage->var, mapped->lost);
    return FL_OK;
}

fl_status fl_npy_map(fl_tensor **out, bool *columns_first, const char *path)
{
    fl_npy_header_facts facts;
    fl_stream_part part = {.who = "npy", .path = path};
    fl_stream *stream = NULL;
    FL_TRY(fl_file_open(&part.fd, &part.bytes, "npy", path));
    fl_status status = fl_stream_open_part(&stream, &part);
    if (status == FL_OK) status = fl_npy_header_read(&facts, stream);
    if (status == FL_OK) status = map_check(stream, &facts);
    if (status == FL_OK) {
        fl_shape shape = shape_in_file(&facts);
        int64_t count = fl_shape_numel(&shape);
        status = fl_stream_claim(stream, count * facts.width);
        if (status == FL_OK && fl_stream_offset(stream) + count * facts.width != part.bytes)
            status = fl_fail(FL_ERR_IO, "npy: %s: bytes after the last element", path);
        if (status == FL_OK)
            status = count > 0 ? elements_map(out, stream, part.fd, &facts, count)
                               : fl_tensor_empty_local(out, facts.dtype, &shape);
        *columns_first = facts.columns_first && shape.ndim > 1;
    }
    fl_stream_close(stream);
    close(part.fd);
    return status;
}

/* ---- writing ---- */

int fl_npy_header(char *out, fl_dtype dtype, const fl_shape *shape)
{
    static const char *const names[FL_DTYPE_COUNT] = {
        [FL_BOOL] = "|b1",  [FL_UINT8] = "|u1",   [FL_INT8] = "|i1",    [FL_INT32] = "<i4",
        [FL_INT64] = "<i8", [FL_FLOAT16] = "<f2", [FL_FLOAT32] = "<f4", [FL_FLOAT64] = "<f8",
    };
    if (!names[dtype]) return 0;
    int size = 10 + sprintf(out + 10, "{'descr': '%s', 'fortran_order': False, 'shape': (", names[dtype]);
    for (int i = 0; i < shape->ndim; i++)
        size += sprintf(out + size, "%s%" PRId64 "%s", i ? ", " : "", shape->dims[i], shape->ndim == 1 ? "," : "");
    size += sprintf(out + size, "), }");
    while (size % 64 != 63) out[size++] = ' ';
    out[size++] = '\n';
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (char)((size - 10) & 0xff);
    out[9] = (char)((size - 10) >> 8);
    return size;
}

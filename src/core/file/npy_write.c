/*
** npy_write.c -- tensors as NumPy's files (see npy_write.h). In an archive a member's record comes before its bytes,
** and is written again once their sum and size are known.
*/
#include "npy_write.h"
#include "npy.h"
#include "replace.h"
#include "zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { CHUNK = 1 << 20, MAX_NAME = 32000 };

static int64_t tensor_bytes(const fl_tensor *tensor)
{
    return fl_shape_numel(&tensor->meta->shape) * (int64_t)fl_dtype_size(tensor->meta->dtype);
}

static fl_status header_make(int *size, char *out, const char *who, const fl_tensor *tensor)
{
    *size = fl_npy_header(out, tensor->meta->dtype, &tensor->meta->shape);
    return *size > 0 ? FL_OK
                     : fl_fail(FL_ERR_DTYPE, "%s: NumPy has no %s; write x:to(\"float32\")", who,
                               fl_dtype_name(tensor->meta->dtype));
}

fl_status fl_npy_write(const char *path, const fl_tensor *tensor)
{
    char header[FL_NPY_HEADER];
    int size;
    fl_replacement file;
    int64_t bytes = tensor_bytes(tensor);
    FL_TRY(header_make(&size, header, "save_npy", tensor));
    fl_status status = fl_replacement_init(&file, "save_npy", path);
    if (status == FL_OK) status = fl_replacement_create(&file);
    if (status == FL_OK) status = fl_replacement_write(&file, header, size, 0);
    if (status == FL_OK && bytes > 0) status = fl_replacement_write(&file, fl_tensor_data(tensor), bytes, size);
    if (status == FL_OK) status = fl_replacement_commit(&file);
    fl_replacement_drop(&file);
    return status;
}

/* ---- archives ---- */

struct archive {
    fl_replacement file;
    int64_t size; /* bytes written */
    fl_zip_member *members;
    unsigned char *record; /* room for one with the longest name */
    unsigned char *chunk;  /* of deflated bytes */
    bool packed;
    z_stream z;
};

static fl_status append(struct archive *archive, const void *data, int64_t bytes)
{
    FL_TRY(fl_replacement_write(&archive->file, data, bytes, archive->size));
    archive->size += bytes;
    return FL_OK;
}

static fl_status bytes_write(struct archive *archive, fl_zip_member *member, const void *data, int64_t bytes, bool last)
{
    const unsigned char *at = data;
    int64_t left = bytes;
    do {
        uInt n = (uInt)(left < CHUNK ? left : CHUNK);
        member->crc = (uint32_t)crc32(member->crc, at, n);
        if (!archive->packed) FL_TRY(append(archive, at, n));
        archive->z.next_in = (unsigned char *)at;
        archive->z.avail_in = n;
        at += n, left -= n;
        for (bool more = archive->packed; more; more = archive->z.avail_out == 0) {
            archive->z.next_out = archive->chunk;
            archive->z.avail_out = CHUNK;
            deflate(&archive->z, last && left == 0 ? Z_FINISH : Z_NO_FLUSH);
            FL_TRY(append(archive, archive->chunk, CHUNK - archive->z.avail_out));
        }
    } while (left > 0);
    return FL_OK;
}

static fl_status member_write(struct archive *archive, fl_zip_member *member, const fl_tensor *tensor)
{
    char header[FL_NPY_HEADER];
    int size;
    int64_t bytes = tensor_bytes(tensor);
    FL_TRY(header_make(&size, header, "save_npz", tensor));
    member->packing = archive->packed ? FL_PACKED_DEFLATE : FL_PACKED_PLAIN;
    member->offset = archive->size;
    member->packed = member->size = size + bytes;
    bool large = member->size >= UINT32_MAX;
    FL_TRY(append(archive, archive->record, fl_zip_local(archive->record, member)));
    int64_t start = archive->size;
    if (archive->packed && deflateReset(&archive->z) != Z_OK) return fl_fail(FL_ERR_MEMORY, "save_npz: out of memory");
    member->crc = (uint32_t)crc32(0, NULL, 0);
    FL_TRY(bytes_write(archive, member, header, size, bytes == 0));
    if (bytes > 0) FL_TRY(bytes_write(archive, member, fl_tensor_data(tensor), bytes, true));
    member->packed = archive->size - start;
    if (!large && member->packed >= UINT32_MAX)
        return fl_fail(FL_ERR_IO, "save_npz: '%s' does not shrink", member->name);
    return fl_replacement_write(&archive->file, archive->record, fl_zip_local(archive->record, member), member->offset);
}

static fl_status directory_write(struct archive *archive, int count)
{
    int64_t start = archive->size;
    for (int i = 0; i < count; i++)
        FL_TRY(append(archive, archive->record, fl_zip_central(archive->record, &archive->members[i])));
    int size = fl_zip_end(archive->record, count, start, archive->size - start);
    return append(archive, archive->record, size);
}

static fl_status archive_open(struct archive *archive, const char *path, const char *const *names, int count)
{
    FL_TRY(fl_replacement_init(&archive->file, "save_npz", path));
    archive->members = calloc((size_t)count + 1, sizeof *archive->members);
    archive->record = malloc(MAX_NAME + 8 + FL_ZIP_RECORD);
    archive->chunk = malloc(CHUNK);
    if (!archive->members || !archive->record || !archive->chunk)
        return fl_fail(FL_ERR_MEMORY, "save_npz: out of memory");
    for (int i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        if (length > MAX_NAME) return fl_fail(FL_ERR_VALUE, "save_npz: a name has more than %d bytes", MAX_NAME);
        if (!(archive->members[i].name = malloc(length + 5))) return fl_fail(FL_ERR_MEMORY, "save_npz: out of memory");
        stpcpy(stpcpy(archive->members[i].name, names[i]), ".npy");
    }
    if (archive->packed
        && deflateInit2(&archive->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        archive->packed = false;
        return fl_fail(FL_ERR_MEMORY, "save_npz: out of memory");
    }
    return fl_replacement_create(&archive->file);
}

fl_status fl_npz_write(const char *path, const char *const *names, fl_tensor *const *tensors, int count, bool packed)
{
    struct archive a = {.packed = packed, .file = {.fd = -1}};
    fl_status status = archive_open(&a, path, names, count);
    for (int i = 0; i < count && status == FL_OK; i++) status = member_write(&a, &a.members[i], tensors[i]);
    if (status == FL_OK) status = directory_write(&a, count);
    if (status == FL_OK) status = fl_replacement_commit(&a.file);
    fl_replacement_drop(&a.file);
    for (int i = 0; i < count && a.members; i++) free(a.members[i].name);
    if (a.packed) deflateEnd(&a.z);
    free(a.members);
    free(a.record);
    free(a.chunk);
    return status;
}

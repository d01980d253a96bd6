/*
** jpeg_write.c -- images as JPEG files, by libjpeg-turbo. An error of the library jumps back into the function that
** called it.
*/
#include "jpeg_write.h"
#include "base/on_demand.h"
#include "image_internal.h"
#include "replace.h"

#include <stdlib.h>
#include <string.h>

#if __has_include(<jpeglib.h>)

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#define FUNCTIONS(X)        \
    X(jpeg_std_error)       \
    X(jpeg_CreateCompress)  \
    X(jpeg_mem_dest)        \
    X(jpeg_set_defaults)    \
    X(jpeg_set_quality)     \
    X(jpeg_start_compress)  \
    X(jpeg_write_scanlines) \
    X(jpeg_finish_compress) \
    X(jpeg_destroy_compress)

static struct {
    FUNCTIONS(FL_ON_DEMAND_FIELD)
} lib;
static fl_on_demand library = {{fl_jpeg_library}, fl_jpeg_package, FL_ON_DEMAND_INTO(lib, FUNCTIONS)};

struct writer {
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    jmp_buf escape;
    char why[JMSG_LENGTH_MAX];
    unsigned char *bytes; /* owned: the file */
    unsigned long size;
    bool created;
};

static void on_error(j_common_ptr info)
{
    struct writer *w = info->client_data;
    info->err->format_message(info, w->why);
    longjmp(w->escape, 1);
}

static fl_status encode(struct writer *writer, const fl_pixels *pixels, int quality)
{
    size_t row_bytes = (size_t)pixels->width * (size_t)pixels->channels;
    writer->info.err = lib.jpeg_std_error(&writer->errors);
    writer->errors.error_exit = on_error;
    writer->info.client_data = writer;
    if (setjmp(writer->escape)) return fl_fail(FL_ERR_VALUE, "save_jpeg: %s", writer->why);
    lib.jpeg_CreateCompress(&writer->info, JPEG_LIB_VERSION, sizeof writer->info);
    writer->created = true;
    lib.jpeg_mem_dest(&writer->info, &writer->bytes, &writer->size);
    writer->info.image_width = (JDIMENSION)pixels->width;
    writer->info.image_height = (JDIMENSION)pixels->height;
    writer->info.input_components = pixels->channels;
    writer->info.in_color_space = pixels->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    lib.jpeg_set_defaults(&writer->info);
    lib.jpeg_set_quality(&writer->info, quality, TRUE);
    lib.jpeg_start_compress(&writer->info, TRUE);
    for (int y = 0; y < pixels->height; y++) {
        JSAMPROW row = pixels->data + row_bytes * (size_t)y;
        lib.jpeg_write_scanlines(&writer->info, &row, 1);
    }
    lib.jpeg_finish_compress(&writer->info);
    return FL_OK;
}

fl_status fl_jpeg_write(const char *path, const fl_pixels *pixels, int quality)
{
    if (fl_on_demand_open(&library) != FL_OK) return fl_fail_prefix(FL_ERR_MISSING, "save_jpeg: ");
    struct writer *w = calloc(1, sizeof *w);
    if (!w) return fl_fail(FL_ERR_MEMORY, "save_jpeg: out of memory");
    fl_status status = encode(w, pixels, quality);
    if (status == FL_OK) status = fl_file_replace("save_jpeg", path, w->bytes, (int64_t)w->size);
    if (w->created) lib.jpeg_destroy_compress(&w->info);
    free(w->bytes);
    free(w);
    return status;
}

#else

fl_status fl_jpeg_write(const char *path, const fl_pixels *pixels, int quality)
{
    return fl_fail(FL_ERR_MISSING,
                   "save_jpeg: flowlua was built without libjpeg; install the package libjpeg-dev and "
                   "run make");
}

#endif

/*
** png_write.c -- images as PNG files, by libpng. An error of the library jumps back into the function that called it.
*/
#include "png_write.h"
#include "base/on_demand.h"
#include "image_internal.h"
#include "replace.h"

#include <stdlib.h>
#include <string.h>

#if __has_include(<png.h>)

#include <setjmp.h>
#include <stdio.h>

#include <png.h>

#define FUNCTIONS(X)            \
    X(png_create_write_struct)  \
    X(png_create_info_struct)   \
    X(png_destroy_write_struct) \
    X(png_set_write_fn)         \
    X(png_get_io_ptr)           \
    X(png_get_error_ptr)        \
    X(png_set_IHDR)             \
    X(png_write_info)           \
    X(png_write_row)            \
    X(png_write_end)

static struct {
    FUNCTIONS(FL_ON_DEMAND_FIELD)
} lib;
static fl_on_demand library = {{FL_PNG_LIBRARY}, FL_PNG_PACKAGE, FL_ON_DEMAND_INTO(lib, FUNCTIONS)};

struct writer {
    fl_replacement file;
    int64_t size; /* bytes written */
    fl_status status;
    png_struct *png;
    png_info *info;
    jmp_buf escape;
    char why[256];
};

__attribute__((noreturn)) static void on_error(png_struct *png, const char *why)
{
    struct writer *w = lib.png_get_error_ptr(png);
    snprintf(w->why, sizeof w->why, "%s", why);
    longjmp(w->escape, 1);
}

static void ignore_warning(png_struct *png, const char *why) {}

static void write_output(png_struct *png, unsigned char *bytes, size_t count)
{
    struct writer *w = lib.png_get_io_ptr(png);
    w->status = fl_replacement_write(&w->file, bytes, (int64_t)count, w->size);
    if (w->status != FL_OK) on_error(png, "");
    w->size += (int64_t)count;
}

static void flush_output(png_struct *png) {}

/* All of the file; errors come by a jump. */
static void write_image(struct writer *writer, const fl_pixels *pixels)
{
    static const int colors[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                 PNG_COLOR_TYPE_RGB_ALPHA};
    size_t row = (size_t)pixels->width * (size_t)pixels->channels;
    lib.png_set_write_fn(writer->png, writer, write_output, flush_output);
    lib.png_set_IHDR(writer->png, writer->info, (uint32_t)pixels->width, (uint32_t)pixels->height, 8,
                     colors[pixels->channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                     PNG_FILTER_TYPE_DEFAULT);
    lib.png_write_info(writer->png, writer->info);
    for (int y = 0; y < pixels->height; y++) lib.png_write_row(writer->png, pixels->data + row * (size_t)y);
    lib.png_write_end(writer->png, writer->info);
}

static fl_status encode(struct writer *writer, const fl_pixels *pixels)
{
    writer->png = lib.png_create_write_struct(PNG_LIBPNG_VER_STRING, writer, on_error, ignore_warning);
    if (!writer->png)
        return fl_fail(FL_ERR_MISSING, "save_png: libpng does not fit the version %s", PNG_LIBPNG_VER_STRING);
    if (setjmp(writer->escape))
        return writer->status != FL_OK ? writer->status
                                       : fl_fail(FL_ERR_IO, "save_png: %s: %s", writer->file.path, writer->why);
    writer->info = lib.png_create_info_struct(writer->png);
    if (!writer->info) return fl_fail(FL_ERR_MEMORY, "save_png: out of memory");
    write_image(writer, pixels);
    return FL_OK;
}

fl_status fl_png_write(const char *path, const fl_pixels *pixels)
{
    struct writer w = {.status = FL_OK};
    if (fl_on_demand_open(&library) != FL_OK) return fl_fail_prefix(FL_ERR_MISSING, "save_png: ");
    fl_status status = fl_replacement_init(&w.file, "save_png", path);
    if (status == FL_OK) status = fl_replacement_create(&w.file);
    if (status == FL_OK) status = encode(&w, pixels);
    if (w.png) lib.png_destroy_write_struct(&w.png, &w.info);
    if (status == FL_OK) status = fl_replacement_commit(&w.file);
    fl_replacement_drop(&w.file);
    return status;
}

#else

fl_status fl_png_write(const char *path, const fl_pixels *pixels)
{
    return fl_fail(FL_ERR_MISSING,
                   "save_png: flowlua was built without libpng; install the package libpng-dev and run "
                   "make");
}

#endif

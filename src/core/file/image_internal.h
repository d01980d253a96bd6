/*
** image_internal.h -- the interface of a format to image.c: readers of its header and of its pixels.
*/
#ifndef FL_IMAGE_INTERNAL_H
#define FL_IMAGE_INTERNAL_H

#include "image.h"

enum {
    FL_IMAGE_MOST_PIXELS = 1 << 28,
    FL_IMAGE_DAMAGED_PIXELS = 1 << 20 /* most of a damaged file, beyond what its bytes can hold */
};

/* Files and packages of the libraries. */
extern const char fl_jpeg_library[], fl_jpeg_package[]; /* jpeg.c */
#define FL_PNG_LIBRARY "libpng16.so.16"
#define FL_PNG_PACKAGE "libpng16-16"

typedef struct fl_image_format {
    const char *name;
    /* Makes the decoder: `file` with what is known so far is its beginning. Sets stored_width to orientation and
    ** most_reduced. On an error it frees nothing: `close` follows. */
    fl_status (*open)(fl_image_file *file);
    /* Pixels of a box of the stored image, which is reduced; box in reduced pixels. */
    fl_status (*read)(fl_image_file *file, fl_pixels *out, fl_image_box box, int reduce);
    void (*close)(fl_image_file *file); /* its own parts, not `file` */
    size_t size;                        /* bytes of its structure, which begins with fl_image_file */
} fl_image_format;

extern const fl_image_format fl_jpeg_format, fl_png_format;

/* The orientation in EXIF data (TIFF), 1 where there is none. */
int fl_exif_orientation(const unsigned char *exif, size_t size);

/* "who: name: the JPEG data is damaged (why)", FL_ERR_IO. */
fl_status fl_image_fail(const fl_image_file *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Error when the header claims more pixels than are allowed, or than `most` for a file of that size. */
fl_status fl_image_claim(const fl_image_file *file, int64_t width, int64_t height, int64_t most);

#endif

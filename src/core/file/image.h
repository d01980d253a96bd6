/*
** image.h -- JPEG and PNG files, decoded to rows of bytes.
**
** libjpeg-turbo and libpng are opened when the first image of their kind is read. Sizes in a header are checked
** first: images that cannot lie in so many bytes are refused before memory is allocated. Everything here is called on
** any thread; an open image belongs to one.
*/
#ifndef FL_IMAGE_H
#define FL_IMAGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fl_image_kind { FL_IMAGE_ANY, FL_IMAGE_JPEG, FL_IMAGE_PNG } fl_image_kind;

/* Channels of the result. As stored: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha; a palette becomes its colours,
** CMYK becomes RGB. To L and RGB, alpha is dropped; to RGBA, it is 255 where there is none. */
typedef enum fl_image_mode { FL_IMAGE_STORED, FL_IMAGE_L, FL_IMAGE_RGB, FL_IMAGE_RGBA } fl_image_mode;

typedef struct fl_image_options {
    fl_image_mode mode;
    bool as_stored; /* no turning by the orientation that EXIF data gives */
    bool damaged;   /* a damaged or truncated file gives what can be decoded; the rest is gray or black */
    bool wide;      /* 16 bits per channel are kept (fl_pixels.wide); else they become 8, rounded */
} fl_image_options;

/* The bytes of a file, borrowed until fl_image_close. Messages begin with "who: name: ". */
typedef struct fl_image_bytes {
    const char *who, *name;
    const unsigned char *data;
    size_t size;
} fl_image_bytes;

/* A rectangle of pixels. */
typedef struct fl_image_box {
    int x, y, width, height;
} fl_image_box;

/* Pixels, row by row without gaps, channels interleaved. Begins as {0}; fl_pixels_free frees it. */
typedef struct fl_pixels {
    unsigned char *data; /* owned */
    size_t capacity;
    int width, height, channels;
    bool wide; /* 16 bits per channel, of the machine's byte order */
} fl_pixels;

/* Room for so many pixels, whose values are undefined; FL_ERR_MEMORY names `who`. */
fl_status fl_pixels_room(fl_pixels *pixels, const char *who, int width, int height, int channels);
void fl_pixels_free(fl_pixels *pixels);
static inline size_t fl_pixels_bytes(const fl_pixels *pixels)
{
    return (size_t)pixels->width * (size_t)pixels->height * (size_t)pixels->channels << pixels->wide;
}

/* The requested box in the pixels that were read: whole numbers unless the image was reduced. */
typedef struct fl_image_area {
    double x, y, width, height;
} fl_image_area;

typedef struct fl_image_file fl_image_file;
struct fl_image_file {
    fl_image_bytes bytes;
    fl_image_options options;
    fl_image_kind kind;
    int stored_width, stored_height; /* in the file */
    int width, height;               /* upright, unless options.as_stored */
    int channels;                    /* of the result */
    int depth;                       /* bits per channel in the file */
    int orientation;                 /* 1 to 8, as EXIF counts them */
    int most_reduced;                /* 8 for JPEG, 1 for PNG */
};

/* Reads the header. kind: FL_IMAGE_ANY, or an error for other files. Errors: FL_ERR_IO for what the file is,
** FL_ERR_MISSING without the library. */
fl_status fl_image_open(fl_image_file **out, const fl_image_bytes *bytes, fl_image_kind kind,
                        const fl_image_options *options);

/* Decodes the box of the (upright) image, of every `reduce`-th pixel in both directions, averaged: 1, 2, 4, 8 up to
** most_reduced. out may hold some more than the box, which `area` (NULL: not asked for) says. Once per open image. */
fl_status fl_image_read(fl_image_file *file, fl_pixels *out, fl_image_area *area, fl_image_box box, int reduce);

void fl_image_close(fl_image_file *file); /* NULL is fine */

#endif

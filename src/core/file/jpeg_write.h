/*
** jpeg_write.h -- images as JPEG files.
*/
#ifndef FL_JPEG_WRITE_H
#define FL_JPEG_WRITE_H

#include "image.h"

/* Writes 8-bit pixels of 1 (gray) or 3 (RGB) channels. quality: 1 to 100. A file that is there is replaced when all is
** written. Messages begin with "save_jpeg". */
fl_status fl_jpeg_write(const char *path, const fl_pixels *pixels, int quality);

#endif

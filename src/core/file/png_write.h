/*
** png_write.h -- images as PNG files.
*/
#ifndef FL_PNG_WRITE_H
#define FL_PNG_WRITE_H

#include "image.h"

/* Writes 8-bit pixels of 1 to 4 channels: gray, gray and alpha, RGB, RGB and alpha. A file that is there is replaced
** when all is written. Messages begin with "save_png". */
fl_status fl_png_write(const char *path, const fl_pixels *pixels);

#endif

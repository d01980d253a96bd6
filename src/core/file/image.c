/*
** image.c -- what JPEG and PNG files have in common: which it is, EXIF's orientation, limits, the libraries.
*/
#include "image.h"
#include "image_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fl_status fl_image_fail(const fl_image_file *file, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return fl_fail(FL_ERR_IO, "%s: %s: %s", file->bytes.who, file->bytes.name, text);
}

fl_status fl_image_claim(const fl_image_file *file, int64_t width, int64_t height, int64_t most)
{
    if (width * height > FL_IMAGE_MOST_PIXELS)
        return fl_image_fail(file, "%lld x %lld pixels are more than %d", (long long)width, (long long)height,
                             FL_IMAGE_MOST_PIXELS);
    if (file->options.damaged) most += FL_IMAGE_DAMAGED_PIXELS;
    if (width * height > most)
        return fl_image_fail(file, "the header claims %lld x %lld pixels; %zu bytes cannot hold so many",
                             (long long)width, (long long)height, file->bytes.size);
    return FL_OK;
}

/* ---- pixels ---- */

fl_status fl_pixels_room(fl_pixels *pixels, const char *who, int width, int height, int channels)
{
    pixels->width = width;
    pixels->height = height;
    pixels->channels = channels;
    size_t bytes = fl_pixels_bytes(pixels) + 64; /* vectors may be read behind the last pixel */
    if (bytes <= pixels->capacity) return FL_OK;
    free(pixels->data);
    pixels->data = malloc(bytes);
    pixels->capacity = pixels->data ? bytes : 0;
    return pixels->data ? FL_OK : fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d x %d pixels", who, width, height);
}

void fl_pixels_free(fl_pixels *pixels)
{
    free(pixels->data);
    *pixels = (fl_pixels){0};
}

/* ---- EXIF ---- */

struct tiff {
    const unsigned char *data;
    size_t size;
    bool big_endian;
};

/* A number of 2 or 4 bytes; 0 outside of the data. */
static uint32_t tiff_number(const struct tiff *tiff, size_t at, size_t bytes)
{
    uint32_t number = 0;
    if (at > tiff->size || tiff->size - at < bytes) return 0;
    for (size_t i = 0; i < bytes; i++) number = number << 8 | tiff->data[at + (tiff->big_endian ? i : bytes - 1 - i)];
    return number;
}

int fl_exif_orientation(const unsigned char *exif, size_t size)
{
    enum { ENTRY = 12, TAG = 0x0112, SHORT = 3 };
    struct tiff tiff = {exif, size, size > 0 && exif[0] == 'M'};
    if (size < 8 || (memcmp(exif, "II*\0", 4) != 0 && memcmp(exif, "MM\0*", 4) != 0)) return 1;
    size_t at = tiff_number(&tiff, 4, 4), count = tiff_number(&tiff, at, 2);
    for (at += 2; count > 0; count--, at += ENTRY) {
        if (tiff_number(&tiff, at, 2) != TAG) continue;
        uint32_t orientation = tiff_number(&tiff, at + 8, 2);
        bool known = tiff_number(&tiff, at + 2, 2) == SHORT && orientation >= 1 && orientation <= 8;
        return known ? (int)orientation : 1;
    }
    return 1;
}

/* ---- orientation: upright pixel (x, y) is the stored one at (x, y), or at (y, x) where axes are swapped, counted from
** the other end where an axis is flipped ---- */

struct turn {
    bool swap, flip_x, flip_y; /* of the stored image */
};

static struct turn turn_of(int orientation)
{
    static const struct turn turns[] = {
        {0, 0, 0}, {0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1}, {1, 0, 0}, {1, 0, 1}, {1, 1, 1}, {1, 1, 0},
    };
    return turns[orientation];
}

/* An upright box as one of the stored image. */
static fl_image_box stored_box(const fl_image_file *file, fl_image_box box)
{
    struct turn turn = turn_of(file->orientation);
    if (turn.swap) box = (fl_image_box){box.y, box.x, box.height, box.width};
    if (turn.flip_x) box.x = file->stored_width - box.x - box.width;
    if (turn.flip_y) box.y = file->stored_height - box.y - box.height;
    return box;
}

static void turn_area(fl_image_area *area, const fl_pixels *stored, struct turn turn)
{
    if (turn.flip_x) area->x = stored->width - area->x - area->width;
    if (turn.flip_y) area->y = stored->height - area->y - area->height;
    if (turn.swap) *area = (fl_image_area){area->y, area->x, area->height, area->width};
}

static fl_status turn_pixels(fl_pixels *pixels, const char *who, struct turn turn)
{
    fl_pixels stored = *pixels;
    int width = turn.swap ? stored.height : stored.width, height = turn.swap ? stored.width : stored.height;
    size_t pixel = (size_t)stored.channels << stored.wide;
    *pixels = (fl_pixels){.wide = stored.wide};
    fl_status status = fl_pixels_room(pixels, who, width, height, stored.channels);
    unsigned char *out = pixels->data;
    for (int y = 0; y < height && status == FL_OK; y++)
        for (int x = 0; x < width; x++, out += pixel) {
            int u = turn.swap ? y : x, v = turn.swap ? x : y;
            if (turn.flip_x) u = stored.width - 1 - u;
            if (turn.flip_y) v = stored.height - 1 - v;
            memcpy(out, stored.data + ((size_t)v * (size_t)stored.width + (size_t)u) * pixel, pixel);
        }
    fl_pixels_free(&stored);
    return status;
}

/* ---- images ---- */

static const struct {
    fl_image_kind kind;
    const fl_image_format *format;
    const char *reader, *magic;
    size_t size;
} formats[] = {
    {FL_IMAGE_JPEG, &fl_jpeg_format, "data.jpeg", "\xff\xd8\xff", 3},
    {FL_IMAGE_PNG, &fl_png_format, "data.png", "\x89PNG\r\n\x1a\n", 8},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static const fl_image_format *format_of(fl_image_kind kind) { return formats[kind - FL_IMAGE_JPEG].format; }

/* Finds out which format it is. */
static fl_status recognise(fl_image_kind *out, const fl_image_bytes *bytes, fl_image_kind wanted)
{
    char shown[40], first[9] = "";
    for (int i = 0; i < FORMATS; i++) {
        if (bytes->size < formats[i].size || memcmp(bytes->data, formats[i].magic, formats[i].size) != 0) continue;
        *out = formats[i].kind;
        if (wanted == FL_IMAGE_ANY || wanted == formats[i].kind) return FL_OK;
        return fl_fail(FL_ERR_IO, "%s: %s: a %s file; %s reads it", bytes->who, bytes->name, formats[i].format->name,
                       formats[i].reader);
    }
    const char *names = wanted == FL_IMAGE_ANY ? "JPEG or PNG" : format_of(wanted)->name;
    if (bytes->size == 0) return fl_fail(FL_ERR_IO, "%s: %s: the file is empty", bytes->who, bytes->name);
    size_t length = bytes->size < 8 ? bytes->size : 8;
    memcpy(first, bytes->data, length);
    fl_text_clean(shown, sizeof shown, first, length, "");
    return fl_fail(FL_ERR_IO, "%s: %s: not a %s file: it begins with \"%s\"", bytes->who, bytes->name, names, shown);
}

fl_status fl_image_open(fl_image_file **out, const fl_image_bytes *bytes, fl_image_kind kind,
                        const fl_image_options *options)
{
    FL_TRY(recognise(&kind, bytes, kind));
    fl_image_file *file = calloc(1, format_of(kind)->size);
    if (!file) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", bytes->who);
    file->bytes = *bytes;
    file->options = *options;
    file->kind = kind;
    file->orientation = 1;
    fl_status status = format_of(kind)->open(file);
    if (status != FL_OK) {
        if (status == FL_ERR_MISSING) fl_fail_prefix(status, "%s: ", bytes->who);
        fl_image_close(file);
        return status;
    }
    if (options->as_stored) file->orientation = 1;
    bool swap = turn_of(file->orientation).swap;
    file->width = swap ? file->stored_height : file->stored_width;
    file->height = swap ? file->stored_width : file->stored_height;
    *out = file;
    return FL_OK;
}

fl_status fl_image_read(fl_image_file *file, fl_pixels *out, fl_image_area *area, fl_image_box box, int reduce)
{
    struct turn turn = turn_of(file->orientation);
    fl_image_box stored = stored_box(file, box), part;
    part.x = stored.x / reduce;
    part.y = stored.y / reduce;
    part.width = (stored.x + stored.width + reduce - 1) / reduce - part.x;
    part.height = (stored.y + stored.height + reduce - 1) / reduce - part.y;
    fl_image_area inside = {(double)stored.x / reduce - part.x, (double)stored.y / reduce - part.y,
                            (double)stored.width / reduce, (double)stored.height / reduce};
    FL_TRY(format_of(file->kind)->read(file, out, part, reduce));
    turn_area(&inside, out, turn);
    if (file->orientation != 1) FL_TRY(turn_pixels(out, file->bytes.who, turn));
    if (area) *area = inside;
    return FL_OK;
}

void fl_image_close(fl_image_file *file)
{
    if (!file) return;
    format_of(file->kind)->close(file);
    free(file);
}

/*
** png.c -- PNG files, decoded by libpng: palettes, transparency, interlacing and every depth.
**
** Gamma and colour profiles are not applied, as in Pillow and torchvision. The library reports errors by a jump, which
** ends in the function of this file that called it; no frame of another file lies in between.
*/
#include "base/on_demand.h"
#include "image_internal.h"

#include <stdlib.h>
#include <string.h>

#if __has_include(<png.h>)

#include <setjmp.h>
#include <stdio.h>

#include <png.h>

/* ---- the library ---- */

#define FUNCTIONS(X)                  \
    X(png_create_read_struct)         \
    X(png_create_info_struct)         \
    X(png_destroy_read_struct)        \
    X(png_set_read_fn)                \
    X(png_get_io_ptr)                 \
    X(png_get_error_ptr)              \
    X(png_read_info)                  \
    X(png_get_IHDR)                   \
    X(png_get_valid)                  \
    X(png_get_eXIf_1)                 \
    X(png_set_palette_to_rgb)         \
    X(png_set_expand_gray_1_2_4_to_8) \
    X(png_set_tRNS_to_alpha)          \
    X(png_set_scale_16)               \
    X(png_set_swap)                   \
    X(png_set_gray_to_rgb)            \
    X(png_set_strip_alpha)            \
    X(png_set_add_alpha)              \
    X(png_set_interlace_handling)     \
    X(png_set_user_limits)            \
    X(png_set_keep_unknown_chunks)    \
    X(png_set_crc_action)             \
    X(png_read_update_info)           \
    X(png_get_rowbytes)               \
    X(png_get_channels)               \
    X(png_read_row)                   \
    X(png_read_end)

static struct {
    FUNCTIONS(FL_ON_DEMAND_FIELD)
} lib;
static fl_on_demand library = {{FL_PNG_LIBRARY}, FL_PNG_PACKAGE, FL_ON_DEMAND_INTO(lib, FUNCTIONS)};

/* ---- errors and input ---- */

struct png {
    fl_image_file file;
    png_struct *png;
    png_info *info;
    size_t at;      /* of the input */
    jmp_buf escape; /* target of the library's errors */
    char why[256];
    int color, passes;
    unsigned char *rows; /* owned: one row, or the whole image where it is interlaced */
    size_t row_bytes;
};

__attribute__((noreturn)) static void on_error(png_struct *png, const char *why)
{
    struct png *self = lib.png_get_error_ptr(png);
    snprintf(self->why, sizeof self->why, "%s", why);
    longjmp(self->escape, 1);
}

static void ignore_warning(png_struct *png, const char *why) {}

static void read_input(png_struct *png, unsigned char *out, size_t bytes)
{
    struct png *self = lib.png_get_io_ptr(png);
    size_t left = self->file.bytes.size - self->at;
    if (bytes > left && (left == 0 || !self->file.options.damaged)) on_error(png, "");
    if (bytes > left) { /* the bytes there may give some more rows */
        memset(out + left, 0, bytes - left);
        bytes = left;
    }
    memcpy(out, self->file.bytes.data + self->at, bytes);
    self->at += bytes;
}

static fl_status fail_damaged(const struct png *png)
{
    if (strcmp(png->why, "") == 0) return fl_image_fail(&png->file, "the PNG data ends early");
    return fl_image_fail(&png->file, "the PNG data is damaged: %s", png->why);
}

/* ---- header ---- */

/* Channels as they are stored, a palette and a transparent colour spread out. */
static int stored_channels(const struct png *png)
{
    bool color = png->color & PNG_COLOR_MASK_COLOR, alpha = png->color & PNG_COLOR_MASK_ALPHA;
    return (color ? 3 : 1) + (alpha || lib.png_get_valid(png->png, png->info, PNG_INFO_tRNS));
}

static int orientation_of(const struct png *png)
{
    uint32_t size = 0;
    unsigned char *exif = NULL;
    if (!lib.png_get_valid(png->png, png->info, PNG_INFO_eXIf)) return 1;
    lib.png_get_eXIf_1(png->png, png->info, &size, &exif);
    return exif ? fl_exif_orientation(exif, size) : 1;
}

/* Deflate makes at most 1032 bytes of one. */
static fl_status check_header(struct png *png)
{
    enum { MOST_RATIO = 1032 };
    static const int channels[] = {0, 1, 3, 4};
    fl_image_file *file = &png->file;
    uint32_t width, height;
    int interlaced;
    lib.png_get_IHDR(png->png, png->info, &width, &height, &file->depth, &png->color, &interlaced, NULL, NULL);
    int bits = file->depth * (png->color & PNG_COLOR_MASK_PALETTE ? 1 : stored_channels(png));
    FL_TRY(fl_image_claim(file, width, height, (int64_t)file->bytes.size * MOST_RATIO * 8 / bits));
    file->stored_width = (int)width;
    file->stored_height = (int)height;
    file->channels = file->options.mode == FL_IMAGE_STORED ? stored_channels(png) : channels[file->options.mode];
    file->most_reduced = 1;
    file->orientation = orientation_of(png);
    return FL_OK;
}

/* Chunks that say nothing of pixels are passed over: some of them are packed, and the library would keep all they hold.
*/
static void skip_chunks(png_struct *png)
{
    static const unsigned char names[] = "hIST\0iCCP\0iTXt\0pCAL\0sCAL\0sPLT\0tEXt\0zTXt";
    lib.png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, names, sizeof names / 5);
}

static fl_status png_open(fl_image_file *file)
{
    struct png *png = (struct png *)file;
    FL_TRY(fl_on_demand_open(&library));
    png->png = lib.png_create_read_struct(PNG_LIBPNG_VER_STRING, png, on_error, ignore_warning);
    if (!png->png)
        return fl_fail(FL_ERR_MISSING, "%s does not fit the version %s that flowlua was built with", FL_PNG_LIBRARY,
                       PNG_LIBPNG_VER_STRING);
    if (setjmp(png->escape)) return fail_damaged(png);
    png->info = lib.png_create_info_struct(png->png);
    if (!png->info) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", file->bytes.who);
    lib.png_set_read_fn(png->png, png, read_input);
    lib.png_set_user_limits(png->png, INT32_MAX, INT32_MAX);
    skip_chunks(png->png);
    if (file->options.damaged) lib.png_set_crc_action(png->png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    lib.png_read_info(png->png, png->info);
    return check_header(png);
}

/* ---- pixels ---- */

static bool is_wide(const struct png *png) { return png->file.depth == 16 && png->file.options.wide; }

/* Sets the pixel format that the decoder writes: gray comes from RGB (gray_of). */
static void set_output(struct png *png)
{
    fl_image_mode mode = png->file.options.mode;
    bool color = png->color & PNG_COLOR_MASK_COLOR;
    if (png->color == PNG_COLOR_TYPE_PALETTE) lib.png_set_palette_to_rgb(png->png);
    else if (png->file.depth < 8) lib.png_set_expand_gray_1_2_4_to_8(png->png);
    if (lib.png_get_valid(png->png, png->info, PNG_INFO_tRNS)) lib.png_set_tRNS_to_alpha(png->png);
    if (is_wide(png)) lib.png_set_swap(png->png); /* the machine's order is little-endian */
    else if (png->file.depth == 16) lib.png_set_scale_16(png->png);
    if (!color && (mode == FL_IMAGE_RGB || mode == FL_IMAGE_RGBA)) lib.png_set_gray_to_rgb(png->png);
    if (mode == FL_IMAGE_RGB || mode == FL_IMAGE_L) lib.png_set_strip_alpha(png->png);
    if (mode == FL_IMAGE_RGBA) lib.png_set_add_alpha(png->png, is_wide(png) ? 0xffff : 0xff, PNG_FILLER_AFTER);
    png->passes = lib.png_set_interlace_handling(png->png);
    lib.png_read_update_info(png->png, png->info);
    png->row_bytes = lib.png_get_rowbytes(png->png, png->info);
}

/* Luma as Pillow weighs it, of 8 or 16 bits. */
static void gray_of(unsigned char *out, const unsigned char *rgb, int width, bool wide)
{
    for (int x = 0; x < width; x++) {
        uint32_t sum = 32768;
        for (int c = 0; c < 3; c++) {
            static const uint32_t weights[] = {19595, 38470, 7471};
            uint16_t value = rgb[3 * x + c];
            if (wide) memcpy(&value, rgb + 2 * (3 * x + c), 2);
            sum += value * weights[c];
        }
        uint16_t gray = (uint16_t)(sum >> 16);
        if (wide) memcpy(out + 2 * x, &gray, 2);
        else out[x] = (unsigned char)gray;
    }
}

static void take_row(struct png *png, fl_pixels *out, const unsigned char *row, fl_image_box box, int y)
{
    bool wide = is_wide(png);
    size_t channels = (size_t)out->channels;
    bool from_rgb = channels == 1 && (png->color & PNG_COLOR_MASK_COLOR);
    unsigned char *to = out->data + (((size_t)y * (size_t)box.width * channels) << wide);
    size_t first = ((size_t)box.x * (from_rgb ? 3 : channels)) << wide;
    if (from_rgb) gray_of(to, row + first, box.width, wide);
    else memcpy(to, row + first, ((size_t)box.width * channels) << wide);
}

static void read_rows(struct png *png, fl_pixels *out, fl_image_box box)
{
    bool interlaced = png->passes > 1;
    int end = interlaced ? png->file.stored_height : box.y + box.height;
    for (int pass = 0; pass < png->passes; pass++)
        for (int y = 0; y < end; y++) {
            unsigned char *row = png->rows + (interlaced ? png->row_bytes * (size_t)y : 0);
            lib.png_read_row(png->png, row, NULL);
            if (pass == png->passes - 1 && y >= box.y && y < box.y + box.height)
                take_row(png, out, row, box, y - box.y);
        }
    if (end == png->file.stored_height) lib.png_read_end(png->png, NULL);
}

/* Of a damaged image: the rows read so far. */
static void take_damaged(struct png *png, fl_pixels *out, fl_image_box box)
{
    if (png->passes > 1)
        for (int y = 0; y < box.height; y++)
            take_row(png, out, png->rows + png->row_bytes * (size_t)(y + box.y), box, y);
}

static fl_status png_read(fl_image_file *file, fl_pixels *out, fl_image_box box, int reduce)
{
    struct png *png = (struct png *)file;
    if (setjmp(png->escape)) {
        if (!file->options.damaged || !png->rows) return fail_damaged(png);
        take_damaged(png, out, box);
        return FL_OK;
    }
    set_output(png);
    out->wide = is_wide(png);
    FL_TRY(fl_pixels_room(out, file->bytes.who, box.width, box.height, file->channels));
    if (file->options.damaged) memset(out->data, 0, fl_pixels_bytes(out));
    png->rows = calloc(png->passes > 1 ? (size_t)file->stored_height : 1, png->row_bytes);
    if (!png->rows) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", file->bytes.who);
    read_rows(png, out, box);
    return FL_OK;
}

static void png_close(fl_image_file *file)
{
    struct png *png = (struct png *)file;
    if (png->png) lib.png_destroy_read_struct(&png->png, &png->info, NULL);
    free(png->rows);
}

const fl_image_format fl_png_format = {"PNG", png_open, png_read, png_close, sizeof(struct png)};

#else

static fl_status png_missing(fl_image_file *file)
{
    return fl_fail(FL_ERR_MISSING, "flowlua was built without libpng; install the package libpng-dev and run make");
}
static void png_nothing(fl_image_file *file) {}

const fl_image_format fl_png_format = {"PNG", png_missing, NULL, png_nothing, sizeof(fl_image_file)};

#endif

/*
** jpeg.c -- JPEG files, decoded by libjpeg-turbo.
**
** Of a box only its rows and, as far as blocks go, its columns are computed. The slow integer transform and smooth
** upsampling are used, as Pillow and torchvision do, so that values are the same bits. The library reports errors by a
** jump, which ends in the function of this file that called it; no frame of another file lies in between.
*/
#include "base/on_demand.h"
#include "image_internal.h"

#include <stdlib.h>
#include <string.h>

#if __has_include(<jpeglib.h>)

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#if JPEG_LIB_VERSION >= 80
const char fl_jpeg_library[] = "libjpeg.so.8", fl_jpeg_package[] = "libjpeg-turbo8";
#else
const char fl_jpeg_library[] = "libjpeg.so." TEXT(JPEG_LIB_VERSION), fl_jpeg_package[] = "libjpeg62-turbo";
#endif

enum { MOST_SCANS = 200, MARGIN = 2 /* columns beside the box that its smooth upsampling looks at */ };

/* ---- the library ---- */

#define FUNCTIONS(X)          \
    X(jpeg_std_error)         \
    X(jpeg_CreateDecompress)  \
    X(jpeg_read_header)       \
    X(jpeg_start_decompress)  \
    X(jpeg_crop_scanline)     \
    X(jpeg_skip_scanlines)    \
    X(jpeg_read_scanlines)    \
    X(jpeg_resync_to_restart) \
    X(jpeg_destroy_decompress)

static struct {
    FUNCTIONS(FL_ON_DEMAND_FIELD)
} lib;
static fl_on_demand library = {{fl_jpeg_library}, fl_jpeg_package, FL_ON_DEMAND_INTO(lib, FUNCTIONS)};

/* ---- errors ---- */

struct jpeg {
    fl_image_file file;
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape; /* target of the library's errors */
    char why[JMSG_LENGTH_MAX];
    bool created, out_of_memory;
    unsigned char *row; /* owned */
};

static struct jpeg *jpeg_of(j_common_ptr info) { return info->client_data; }

__attribute__((noreturn)) static void leave(j_common_ptr info, const char *why)
{
    struct jpeg *jpeg = jpeg_of(info);
    if (why) snprintf(jpeg->why, sizeof jpeg->why, "%s", why);
    else info->err->format_message(info, jpeg->why);
    longjmp(jpeg->escape, 1);
}

static void on_error(j_common_ptr info)
{
    jpeg_of(info)->out_of_memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
    leave(info, NULL);
}

/* Warnings that pixels are wrong are errors, unless the file may be damaged; others say nothing. */
static void on_message(j_common_ptr info, int level)
{
    int code = info->err->msg_code;
    if (level >= 0 || jpeg_of(info)->file.options.damaged) return;
    if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR) return;
#ifdef JWRN_BOGUS_ICC
    if (code == JWRN_BOGUS_ICC) return;
#endif
    leave(info, NULL);
}

static void print_nothing(j_common_ptr info) {}

static void on_progress(j_common_ptr info)
{
    if (((j_decompress_ptr)info)->input_scan_number > MOST_SCANS) leave(info, "more than " TEXT(200) " scans");
}

static fl_status fail_damaged(const struct jpeg *jpeg)
{
    if (jpeg->out_of_memory) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", jpeg->file.bytes.who);
    if (strcmp(jpeg->why, "") == 0) return fl_image_fail(&jpeg->file, "the JPEG data ends early");
    return fl_image_fail(&jpeg->file, "the JPEG data is damaged: %s", jpeg->why);
}

/* ---- input: the bytes of the file; behind them an end is made up for a damaged one ---- */

static const JOCTET end_of_image[] = {0xff, JPEG_EOI};

static void source_begin(j_decompress_ptr info) {}

static boolean source_more(j_decompress_ptr info)
{
    struct jpeg *jpeg = info->client_data;
    if (!jpeg->file.options.damaged) leave((j_common_ptr)info, "");
    info->src->next_input_byte = end_of_image;
    info->src->bytes_in_buffer = sizeof end_of_image;
    return TRUE;
}

static void source_skip(j_decompress_ptr info, long bytes)
{
    if (bytes <= 0) return;
    if ((size_t)bytes > info->src->bytes_in_buffer) {
        source_more(info);
        return;
    }
    info->src->next_input_byte += bytes;
    info->src->bytes_in_buffer -= (size_t)bytes;
}

static void source_set(struct jpeg *jpeg)
{
    jpeg->source = (struct jpeg_source_mgr){.next_input_byte = jpeg->file.bytes.data,
                                            .bytes_in_buffer = jpeg->file.bytes.size,
                                            .init_source = source_begin,
                                            .fill_input_buffer = source_more,
                                            .skip_input_data = source_skip,
                                            .resync_to_restart = lib.jpeg_resync_to_restart,
                                            .term_source = source_begin};
    jpeg->info.src = &jpeg->source;
}

/* ---- header ---- */

/* Walks the segments before the first scan to EXIF data. */
static int orientation_of(const fl_image_bytes *bytes)
{
    enum { APP1 = 0xe1, SCAN = 0xda };
    const unsigned char *data = bytes->data;
    for (size_t at = 2; at + 4 <= bytes->size && data[at] == 0xff && data[at + 1] != SCAN;) {
        size_t length = (size_t)data[at + 2] << 8 | data[at + 3];
        if (data[at + 1] == 0xff) {
            at++;
            continue;
        }
        if (length < 2 || bytes->size - at - 2 < length) return 1;
        if (data[at + 1] == APP1 && length >= 8 && memcmp(data + at + 4, "Exif\0\0", 6) == 0)
            return fl_exif_orientation(data + at + 10, length - 8);
        at += 2 + length;
    }
    return 1;
}

/* True if the end of an image follows the header, which has been read. */
static bool has_end(const struct jpeg *jpeg)
{
    const unsigned char *begin = jpeg->source.next_input_byte;
    for (size_t n = jpeg->source.bytes_in_buffer; n >= 2; n--)
        if (begin[n - 2] == 0xff && begin[n - 1] == JPEG_EOI) return true;
    return false;
}

static int result_channels(const struct jpeg *jpeg)
{
    static const int channels[] = {0, 1, 3, 4};
    fl_image_mode mode = jpeg->file.options.mode;
    if (mode != FL_IMAGE_STORED) return channels[mode];
    return jpeg->info.num_components == 1 ? 1 : 3;
}

/* A coded block of 64 pixels takes a bit or more; of an arithmetic code far less, but for the tables before it. */
static fl_status check_header(struct jpeg *jpeg)
{
    enum { PIXELS_PER_BYTE = 512, ARITHMETIC = 1 << 14 };
    fl_image_file *file = &jpeg->file;
    file->depth = jpeg->info.data_precision;
    if (file->depth != 8) return fl_image_fail(file, "%d bits per channel; JPEG files are read with 8", file->depth);
    file->stored_width = (int)jpeg->info.image_width;
    file->stored_height = (int)jpeg->info.image_height;
    file->channels = result_channels(jpeg);
    file->most_reduced = 8;
    int64_t most = (int64_t)file->bytes.size * (jpeg->info.arith_code ? ARITHMETIC : PIXELS_PER_BYTE);
    FL_TRY(fl_image_claim(file, file->stored_width, file->stored_height, most));
    if (!file->options.damaged && !has_end(jpeg)) return fl_image_fail(file, "the JPEG data ends early");
    file->orientation = orientation_of(&file->bytes);
    return FL_OK;
}

static fl_status jpeg_open(fl_image_file *file)
{
    struct jpeg *jpeg = (struct jpeg *)file;
    FL_TRY(fl_on_demand_open(&library));
    jpeg->info.err = lib.jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->errors.output_message = print_nothing;
    jpeg->info.client_data = jpeg;
    if (setjmp(jpeg->escape)) return fail_damaged(jpeg);
    lib.jpeg_CreateDecompress(&jpeg->info, JPEG_LIB_VERSION, sizeof jpeg->info);
    jpeg->created = true;
    jpeg->info.client_data = jpeg;
    jpeg->progress.progress_monitor = on_progress;
    jpeg->info.progress = &jpeg->progress;
    source_set(jpeg);
    lib.jpeg_read_header(&jpeg->info, TRUE);
    return check_header(jpeg);
}

/* ---- pixels ---- */

static bool is_cmyk(const struct jpeg *jpeg)
{
    return jpeg->info.jpeg_color_space == JCS_CMYK || jpeg->info.jpeg_color_space == JCS_YCCK;
}

static void set_output(struct jpeg *jpeg, int reduce)
{
    static const J_COLOR_SPACE spaces[] = {0, JCS_GRAYSCALE, 0, JCS_RGB, JCS_EXT_RGBA};
    jpeg->info.out_color_space = is_cmyk(jpeg) ? JCS_CMYK : spaces[jpeg->file.channels];
    jpeg->info.scale_num = 1;
    jpeg->info.scale_denom = (unsigned)reduce;
    jpeg->info.dct_method = JDCT_ISLOW;
}

/* Adobe's programs store CMYK inverted, and other ones do as they; so Pillow reads it, too. */
static void convert_cmyk(unsigned char *out, const unsigned char *cmyk, int width, int channels)
{
    for (int x = 0; x < width; x++, cmyk += 4, out += channels) {
        unsigned char rgba[4] = {0, 0, 0, 255};
        for (int c = 0; c < 3; c++) {
            unsigned t = (255u - cmyk[c]) * cmyk[3] + 128;
            int value = cmyk[3] - (int)(((t >> 8) + t) >> 8);
            rgba[c] = (unsigned char)(value < 0 ? 0 : value);
        }
        if (channels == 1)
            out[0] = (unsigned char)((rgba[0] * 19595u + rgba[1] * 38470u + rgba[2] * 7471u + 32768) >> 16);
        else memcpy(out, rgba, (size_t)channels);
    }
}

/* The first row of the box has been reached; `first` is its column in the rows of the decoder. */
static void read_rows(struct jpeg *jpeg, fl_pixels *out, int first)
{
    bool cmyk = is_cmyk(jpeg);
    size_t bytes = (size_t)out->width * (size_t)out->channels;
    bool whole = first == 0 && (int)jpeg->info.output_width == out->width && !cmyk;
    for (int y = 0; y < out->height; y++) {
        unsigned char *to = out->data + bytes * (size_t)y;
        JSAMPROW row = whole ? to : jpeg->row;
        lib.jpeg_read_scanlines(&jpeg->info, &row, 1);
        if (cmyk) convert_cmyk(to, row + 4 * first, out->width, out->channels);
        else if (!whole) memcpy(to, row + out->channels * first, bytes);
    }
}

static fl_status jpeg_read(fl_image_file *file, fl_pixels *out, fl_image_box box, int reduce)
{
    struct jpeg *jpeg = (struct jpeg *)file;
    FL_TRY(fl_pixels_room(out, file->bytes.who, box.width, box.height, file->channels));
    if (!(jpeg->row = malloc((size_t)file->stored_width * 4)))
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory", file->bytes.who);
    if (setjmp(jpeg->escape)) return fail_damaged(jpeg);
    set_output(jpeg, reduce);
    lib.jpeg_start_decompress(&jpeg->info);
    JDIMENSION all = jpeg->info.output_width, left = box.x > MARGIN ? (JDIMENSION)(box.x - MARGIN) : 0;
    JDIMENSION right = (JDIMENSION)(box.x + box.width) + MARGIN, width = (right < all ? right : all) - left;
    if (width < all) lib.jpeg_crop_scanline(&jpeg->info, &left, &width);
    else left = 0;
    if (box.y > 0) lib.jpeg_skip_scanlines(&jpeg->info, (JDIMENSION)box.y);
    read_rows(jpeg, out, box.x - (int)left);
    return FL_OK;
}

static void jpeg_close(fl_image_file *file)
{
    struct jpeg *jpeg = (struct jpeg *)file;
    if (jpeg->created) lib.jpeg_destroy_decompress(&jpeg->info);
    free(jpeg->row);
}

const fl_image_format fl_jpeg_format = {"JPEG", jpeg_open, jpeg_read, jpeg_close, sizeof(struct jpeg)};

#else

static fl_status jpeg_missing(fl_image_file *file)
{
    return fl_fail(FL_ERR_MISSING, "flowlua was built without libjpeg; install the package libjpeg-dev and run make");
}
static void jpeg_nothing(fl_image_file *file) {}

const fl_image_format fl_jpeg_format = {"JPEG", jpeg_missing, NULL, jpeg_nothing, sizeof(fl_image_file)};

#endif

/*
** augment_geometry.c -- steps that move pixels, plane by plane.
*/
#include "augment_internal.h"
#include "cpu/pixels.h"

#include <math.h>
#include <string.h>

static unsigned char byte_of(double value) { return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value + 0.5); }

static void swap_planes(fl_augmenter *augmenter)
{
    fl_planes now = augmenter->now;
    augmenter->now = augmenter->spare;
    augmenter->spare = now;
}

/* ---- boxes ---- */

fl_image_box fl_draw_box(fl_step_words *words, const double *values, int height, int width)
{
    double area = (double)height * width, least = values[4], most = values[5];
    for (int i = 0; i < 10; i++) {
        double part = area * fl_draw_between(words, values[2], values[3]);
        double ratio = exp(fl_draw_between(words, log(least), log(most)));
        double w = rint(sqrt(part * ratio)), h = rint(sqrt(part / ratio));
        double u = fl_draw_unit(words), v = fl_draw_unit(words);
        if (w < 1 || w > width || h < 1 || h > height) continue;
        return (fl_image_box){(int)(v * (width - w + 1)), (int)(u * (height - h + 1)), (int)w, (int)h};
    }
    double ratio = (double)width / height; /* none fits: the middle, in an allowed shape */
    int w = ratio > most ? (int)rint(height * most) : width, h = ratio < least ? (int)rint(width / least) : height;
    w = w < 1 ? 1 : w > width ? width : w;
    h = h < 1 ? 1 : h > height ? height : h;
    return (fl_image_box){(width - w) / 2, (height - h) / 2, w, h};
}

bool fl_draw_erased(fl_image_box *box, fl_step_words *words, const double *values, int height, int width)
{
    double area = (double)height * width;
    for (int i = 0; i < 10; i++) {
        double part = area * fl_draw_between(words, values[1], values[2]);
        double ratio = exp(fl_draw_between(words, log(values[3]), log(values[4])));
        double h = rint(sqrt(part * ratio)), w = rint(sqrt(part / ratio));
        double u = fl_draw_unit(words), v = fl_draw_unit(words);
        if (h >= height || w >= width || h < 1 || w < 1) continue;
        *box = (fl_image_box){(int)(v * (width - w + 1)), (int)(u * (height - h + 1)), (int)w, (int)h};
        return true;
    }
    return false;
}

/* ---- steps ---- */

/* The part of [begin, begin + length) inside [0, size): its beginning, and its length. */
static int inside(int *at, int begin, int length, int size)
{
    int from = begin > 0 ? begin : 0, to = begin + length < size ? begin + length : size;
    *at = from;
    return to > from ? to - from : 0;
}

fl_status fl_step_crop(fl_augmenter *augmenter, fl_image_box box, const double *fill)
{
    const fl_planes *in = &augmenter->now;
    fl_planes *out = &augmenter->spare;
    int left, top, width = inside(&left, box.x, box.width, in->width);
    int height = inside(&top, box.y, box.height, in->height);
    FL_TRY(fl_planes_room(out, box.width, box.height, in->channels));
    for (int c = 0; c < in->channels; c++) {
        unsigned char *to = out->data + (size_t)c * (size_t)fl_planes_pixels(out);
        const unsigned char *from = in->data + (size_t)c * (size_t)fl_planes_pixels(in);
        if (width < box.width || height < box.height)
            memset(to, fill ? byte_of(fill[c]) : 0, (size_t)fl_planes_pixels(out));
        for (int y = top; y < top + height && width; y++)
            memcpy(to + (size_t)(y - box.y) * (size_t)box.width + (left - box.x),
                   from + (size_t)y * (size_t)in->width + left, (size_t)width);
    }
    swap_planes(augmenter);
    return FL_OK;
}

fl_status fl_step_scale(fl_augmenter *augmenter, const fl_scaling *scaling)
{
    fl_planes all = augmenter->spare, plane = {0};
    int channels = augmenter->now.channels;
    fl_status status = fl_planes_room(&all, scaling->window.width, scaling->window.height, channels);
    augmenter->spare = all;
    for (int c = 0; c < channels && status == FL_OK; c++) {
        fl_pixels pixels = {.data = augmenter->now.data + (size_t)c * (size_t)fl_planes_pixels(&augmenter->now),
                            .width = augmenter->now.width,
                            .height = augmenter->now.height,
                            .channels = 1};
        status = fl_resample(&augmenter->resampler, &plane, &pixels, scaling);
        if (status != FL_OK) break;
        size_t bytes = (size_t)fl_planes_pixels(&plane);
        memcpy(all.data + (size_t)c * bytes, plane.data, bytes);
    }
    fl_planes_free(&plane);
    if (status == FL_OK) swap_planes(augmenter);
    return status;
}

void fl_step_mirror(fl_planes *planes)
{
    const fl_pixel_loops *loops = FL_BY_LEVEL(fl_pixel_loops);
    unsigned char line[4096], *row = planes->data;
    int width = planes->width;
    for (int64_t y = 0; y < (int64_t)planes->height * planes->channels; y++, row += width) {
        int half = width / 2, at = 0;
        for (int n; at < half; at += n) { /* pieces of both ends change places */
            n = half - at < (int)sizeof line ? half - at : (int)sizeof line;
            loops->reverse(line, row + at, n);
            loops->reverse(row + at, row + width - at - n, n);
            memcpy(row + width - at - n, line, (size_t)n);
        }
    }
}

void fl_step_upend(fl_planes *planes)
{
    unsigned char line[4096];
    size_t width = (size_t)planes->width;
    for (int c = 0; c < planes->channels; c++) {
        unsigned char *top = planes->data + (size_t)c * (size_t)fl_planes_pixels(planes);
        for (int y = 0; y < planes->height / 2; y++) {
            unsigned char *a = top + width * (size_t)y, *b = top + width * (size_t)(planes->height - 1 - y);
            for (size_t at = 0, n; at < width; at += n) {
                n = width - at < sizeof line ? width - at : sizeof line;
                memcpy(line, a + at, n);
                memcpy(a + at, b + at, n);
                memcpy(b + at, line, n);
            }
        }
    }
}

void fl_step_erase(fl_planes *planes, fl_image_box box, const double *fill)
{
    for (int c = 0; c < planes->channels; c++)
        for (int y = box.y; y < box.y + box.height; y++)
            memset(planes->data + ((size_t)c * (size_t)planes->height + (size_t)y) * (size_t)planes->width + box.x,
                   byte_of(fill[c]), (size_t)box.width);
}

/* ---- rotation ---- */

struct sample {
    int x, y;          /* the pixel to the upper left */
    float right, down; /* shares of its neighbours */
};

/* The pixel, or the fill outside. */
static float pixel_at(const unsigned char *plane, const fl_planes *planes, int x, int y, float fill)
{
    bool is_inside = x >= 0 && y >= 0 && x < planes->width && y < planes->height;
    return is_inside ? plane[(size_t)y * (size_t)planes->width + (size_t)x] : fill;
}

static unsigned char blend_four(const unsigned char *plane, const fl_planes *planes, const struct sample *sample,
                                float fill)
{
    float a = pixel_at(plane, planes, sample->x, sample->y, fill),
          b = pixel_at(plane, planes, sample->x + 1, sample->y, fill);
    float c = pixel_at(plane, planes, sample->x, sample->y + 1, fill),
          d = pixel_at(plane, planes, sample->x + 1, sample->y + 1, fill);
    float up = a + (b - a) * sample->right, low = c + (d - c) * sample->right;
    return (unsigned char)(up + (low - up) * sample->down + 0.5f);
}

fl_status fl_step_rotate(fl_augmenter *augmenter, double degrees, bool nearest, const double *fill)
{
    const fl_planes *in = &augmenter->now;
    fl_planes *out = &augmenter->spare;
    double angle = degrees * 3.14159265358979323846 / 180, cosine = cos(angle), sine = sin(angle);
    double middle_x = in->width * 0.5 - 0.5, middle_y = in->height * 0.5 - 0.5;
    FL_TRY(fl_planes_room(out, in->width, in->height, in->channels));
    size_t pixels = (size_t)fl_planes_pixels(in);
    for (int y = 0; y < in->height; y++)
        for (int x = 0; x < in->width; x++) {
            double u = x - middle_x, v = y - middle_y;
            double from_x = cosine * u - sine * v + middle_x, from_y = sine * u + cosine * v + middle_y;
            if (nearest) from_x = rint(from_x), from_y = rint(from_y);
            struct sample s = {(int)floor(from_x), (int)floor(from_y), 0, 0};
            s.right = (float)(from_x - s.x);
            s.down = (float)(from_y - s.y);
            for (int c = 0; c < in->channels; c++)
                out->data[(size_t)c * pixels + (size_t)y * (size_t)in->width + (size_t)x] =
                    blend_four(in->data + (size_t)c * pixels, in, &s, byte_of(fill[c]));
        }
    swap_planes(augmenter);
    return FL_OK;
}

/*
** augment.c -- runs the steps of a list on an image.
**
** The first step decides how much of a file is decoded: of a crop its box alone, at half, a quarter or an eighth of the
** size where the result stays smaller than that.
*/
#include "augment_internal.h"
#include "base/hash.h"
#include "cpu/pixels.h"
#include "cpu/random.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int values;
} kinds[FL_STEP_COUNT] = {
    [FL_STEP_RESIZE] = {"resize", 2},
    [FL_STEP_CROP] = {"crop", 4},
    [FL_STEP_CENTER_CROP] = {"center_crop", 2},
    [FL_STEP_PAD] = {"pad", 8},
    [FL_STEP_RANDOM_CROP] = {"random_crop", 10},
    [FL_STEP_RANDOM_RESIZED_CROP] = {"random_resized_crop", 6},
    [FL_STEP_HORIZONTAL_FLIP] = {"horizontal_flip", 1},
    [FL_STEP_VERTICAL_FLIP] = {"vertical_flip", 1},
    [FL_STEP_ROTATE] = {"rotate", 7},
    [FL_STEP_COLOR_JITTER] = {"color_jitter", 8},
    [FL_STEP_GRAYSCALE] = {"grayscale", 1},
    [FL_STEP_ERASE] = {"random_erasing", 9},
};

int fl_augment_kind_of(const char *name, int *count)
{
    for (int i = 0; i < FL_STEP_COUNT; i++)
        if (strcmp(kinds[i].name, name) == 0) {
            *count = kinds[i].values;
            return i;
        }
    return -1;
}

bool fl_augment_size(const fl_augment *augment, int *height, int *width)
{
    bool known = false;
    for (int i = 0; i < augment->count; i++) {
        const double *v = augment->steps[i].values;
        switch (augment->steps[i].kind) {
        case FL_STEP_RESIZE: /* of the shorter side: not known, unless what comes in is */
            if (v[1] == 0 && known) {
                int shorter = *height < *width ? *height : *width;
                *height = (int)((double)*height * v[0] / shorter), *width = (int)((double)*width * v[0] / shorter);
                break;
            }
            known = v[1] > 0;
            *height = (int)v[0], *width = (int)v[1];
            break;
        case FL_STEP_CROP:
            known = true;
            *height = (int)v[2], *width = (int)v[3];
            break;
        case FL_STEP_CENTER_CROP:
        case FL_STEP_RANDOM_CROP:
        case FL_STEP_RANDOM_RESIZED_CROP:
            known = true;
            *height = (int)v[0], *width = (int)v[1];
            break;
        case FL_STEP_PAD:
            if (known) *height += (int)(v[1] + v[3]), *width += (int)(v[0] + v[2]);
            break;
        default: break;
        }
    }
    return known;
}

void fl_augmenter_free(fl_augmenter *augmenter)
{
    fl_pixels_free(&augmenter->pixels);
    fl_planes_free(&augmenter->now);
    fl_planes_free(&augmenter->spare);
    fl_resampler_free(&augmenter->resampler);
}

/* ---- random words ---- */

/* Words of the generator that ops draw from, at counters of their own. */
static void draw_words(fl_step_words *out, const fl_augment_draw *draw, int step)
{
    fl_random_key key = {draw->seed, fl_hash_mix(UINT64_C(0x1a3e5), draw->epoch)};
    uint64_t first = ((uint64_t)draw->position * FL_STEPS_MOST + (uint64_t)step) * FL_STEP_WORDS;
    FL_BY_LEVEL(fl_random_kernels)->words(out->words, &key, first, FL_STEP_WORDS);
    out->used = 0;
}

static bool is_random(const fl_augment_step *step) { return step->kind >= FL_STEP_RANDOM_CROP; }

/* ---- boxes and scalings of an image of a given size ---- */

/* As torchvision computes the other side. */
static fl_scaling scaling_of_resize(const double *v, int height, int width)
{
    int shorter = height < width ? height : width, h = (int)v[0], w = (int)v[1];
    if (w == 0) {
        h = (int)((double)v[0] * height / shorter);
        w = (int)((double)v[0] * width / shorter);
    }
    h = h < 1 ? 1 : h;
    w = w < 1 ? 1 : w;
    return (fl_scaling){{0, 0, width, height}, {0, 0, width, height}, w, h, {0, 0, w, h}};
}

static fl_scaling scaling_of_box(fl_image_box box, const double *v)
{
    int h = (int)v[0], w = (int)v[1];
    return (fl_scaling){{box.x, box.y, box.width, box.height}, box, w, h, {0, 0, w, h}};
}

/* The middle, rounded as torchvision does; it may lie beyond the edges. */
static fl_image_box center_box(const double *v, int height, int width)
{
    int h = (int)v[0], w = (int)v[1];
    int top = h > height ? -((h - height) / 2) : (int)rint((height - h) / 2.0);
    int left = w > width ? -((w - width) / 2) : (int)rint((width - w) / 2.0);
    return (fl_image_box){left, top, w, h};
}

/* The box of a crop of an image of this size; it may lie beyond the edges, where the fill is. */
static fl_status crop_box(fl_image_box *out, const fl_augment_step *step, fl_step_words *words, int height, int width)
{
    const double *v = step->values;
    if (step->kind == FL_STEP_CENTER_CROP) *out = center_box(v, height, width);
    if (step->kind == FL_STEP_CROP) *out = (fl_image_box){(int)v[1], (int)v[0], (int)v[3], (int)v[2]};
    if (step->kind == FL_STEP_PAD)
        *out = (fl_image_box){-(int)v[0], -(int)v[1], width + (int)(v[0] + v[2]), height + (int)(v[1] + v[3])};
    if (step->kind != FL_STEP_RANDOM_CROP) return FL_OK;
    int h = (int)v[0], w = (int)v[1], all_h = height + (int)(v[3] + v[5]), all_w = width + (int)(v[2] + v[4]);
    if (h > all_h || w > all_w)
        return fl_fail(FL_ERR_SHAPE, "random_crop: %d x %d do not fit into %d x %d, with the padding (height x width)",
                       h, w, all_h, all_w);
    int top = fl_draw_below(words, all_h - h + 1) - (int)v[3], left = fl_draw_below(words, all_w - w + 1) - (int)v[2];
    *out = (fl_image_box){left, top, w, h};
    return FL_OK;
}

static const double *fill_of(const fl_augment_step *step)
{
    if (step->kind == FL_STEP_PAD) return step->values + 4;
    return step->kind == FL_STEP_RANDOM_CROP ? step->values + 6 : NULL;
}

/* ---- steps ---- */

static fl_status run_step(fl_augmenter *augmenter, const fl_augment_step *step, fl_step_words *words)
{
    const double *v = step->values;
    int height = augmenter->now.height, width = augmenter->now.width;
    fl_image_box box;
    fl_scaling scaling;
    switch (step->kind) {
    case FL_STEP_RESIZE:
        scaling = scaling_of_resize(v, height, width);
        return scaling.width == width && scaling.height == height ? FL_OK : fl_step_scale(augmenter, &scaling);
    case FL_STEP_CROP:
    case FL_STEP_CENTER_CROP:
    case FL_STEP_PAD:
    case FL_STEP_RANDOM_CROP:
        FL_TRY(crop_box(&box, step, words, height, width));
        return fl_step_crop(augmenter, box, fill_of(step));
    case FL_STEP_RANDOM_RESIZED_CROP:
        scaling = scaling_of_box(fl_draw_box(words, v, height, width), v);
        return fl_step_scale(augmenter, &scaling);
    case FL_STEP_HORIZONTAL_FLIP:
        if (fl_draw_unit(words) < v[0]) fl_step_mirror(&augmenter->now);
        return FL_OK;
    case FL_STEP_VERTICAL_FLIP:
        if (fl_draw_unit(words) < v[0]) fl_step_upend(&augmenter->now);
        return FL_OK;
    case FL_STEP_ROTATE: return fl_step_rotate(augmenter, fl_draw_between(words, v[0], v[1]), v[2] != 0, v + 3);
    case FL_STEP_COLOR_JITTER: return fl_step_jitter(&augmenter->now, words, v);
    case FL_STEP_GRAYSCALE: return fl_draw_unit(words) < v[0] ? fl_step_gray(&augmenter->now) : FL_OK;
    default:
        if (fl_draw_unit(words) < v[0] && fl_draw_erased(&box, words, v, height, width))
            fl_step_erase(&augmenter->now, box, v + 5);
        return FL_OK;
    }
}

static fl_status run_steps(fl_augmenter *augmenter, const fl_augment *augment, int first, const fl_augment_draw *draw)
{
    fl_step_words words;
    for (int i = first; i < augment->count; i++) {
        if (is_random(&augment->steps[i])) draw_words(&words, draw, i);
        FL_TRY(run_step(augmenter, &augment->steps[i], &words));
    }
    return FL_OK;
}

fl_status fl_augment_planes(fl_augmenter *augmenter, const fl_augment *augment, const fl_augment_draw *draw)
{
    return run_steps(augmenter, augment, 0, draw);
}

/* ---- files ---- */

/* The box of the file as planes. */
static fl_status decode_box(fl_augmenter *augmenter, fl_image_file *file, fl_image_box box)
{
    FL_TRY(fl_image_read(file, &augmenter->pixels, NULL, box, 1));
    const fl_pixels *p = &augmenter->pixels;
    FL_TRY(fl_planes_room(&augmenter->now, p->width, p->height, p->channels));
    FL_BY_LEVEL(fl_pixel_loops)
        ->split(augmenter->now.data, fl_planes_pixels(&augmenter->now), p->data, fl_planes_pixels(&augmenter->now),
                p->channels);
    return FL_OK;
}

/* The factor by which the decoder may reduce the file: the result is at least `gap` times smaller than that. */
static int reduction(const fl_image_file *file, const fl_augment *augment, const fl_scaling *scaling)
{
    static const double gap = 1.5;
    double x = scaling->area.width / scaling->width, y = scaling->area.height / scaling->height, least = x < y ? x : y;
    int reduce = 1;
    if (augment->exact) return 1;
    while (2 * reduce <= file->most_reduced && least >= gap * 2 * reduce) reduce *= 2;
    return reduce;
}

static fl_status decode_scaled(fl_augmenter *augmenter, const fl_augment *augment, fl_image_file *file,
                               fl_scaling scaling)
{
    fl_image_area inside, whole = scaling.area;
    fl_image_box box = fl_scaling_needs(&scaling, file->width, file->height);
    int reduce = reduction(file, augment, &scaling);
    FL_TRY(fl_image_read(file, &augmenter->pixels, &inside, box, reduce));
    scaling.area = (fl_image_area){(whole.x - box.x) / reduce + inside.x, (whole.y - box.y) / reduce + inside.y,
                                   whole.width / reduce, whole.height / reduce};
    scaling.edges = (fl_image_box){0, 0, augmenter->pixels.width, augmenter->pixels.height};
    return fl_resample(&augmenter->resampler, &augmenter->now, &augmenter->pixels, &scaling);
}

static bool is_crop(const fl_augment_step *step)
{
    return step->kind == FL_STEP_CROP || step->kind == FL_STEP_CENTER_CROP || step->kind == FL_STEP_RANDOM_CROP;
}

static bool fits(fl_image_box box, int height, int width)
{
    return box.x >= 0 && box.y >= 0 && box.x + box.width <= width && box.y + box.height <= height;
}

/* A resize, and the crop of its result if one follows that lies inside. *done: number of these steps. */
static fl_status decode_resized(fl_augmenter *augmenter, const fl_augment *augment, fl_image_file *file,
                                const fl_augment_draw *draw, int *done)
{
    fl_scaling scaling = scaling_of_resize(augment->steps[0].values, file->height, file->width);
    fl_image_box box;
    fl_step_words words;
    *done = 1;
    if (augment->count > 1 && is_crop(&augment->steps[1])) {
        draw_words(&words, draw, 1);
        FL_TRY(crop_box(&box, &augment->steps[1], &words, scaling.height, scaling.width));
        if (fits(box, scaling.height, scaling.width)) {
            scaling.window = box;
            *done = 2;
        }
    }
    bool same = scaling.width == file->width && scaling.height == file->height;
    return same ? decode_box(augmenter, file, scaling.window) : decode_scaled(augmenter, augment, file, scaling);
}

/* Decodes what the first steps leave, which *done counts. */
static fl_status decode(fl_augmenter *augmenter, const fl_augment *augment, fl_image_file *file,
                        const fl_augment_draw *draw, int *done)
{
    const fl_augment_step *first = augment->count ? augment->steps : NULL;
    fl_image_box whole = {0, 0, file->width, file->height}, box;
    fl_step_words words;
    *done = 0;
    if (!first) return decode_box(augmenter, file, whole);
    draw_words(&words, draw, 0);
    if (first->kind == FL_STEP_RESIZE) return decode_resized(augmenter, augment, file, draw, done);
    if (first->kind == FL_STEP_RANDOM_RESIZED_CROP) {
        *done = 1;
        box = fl_draw_box(&words, first->values, file->height, file->width);
        return decode_scaled(augmenter, augment, file, scaling_of_box(box, first->values));
    }
    if (is_crop(first)) {
        FL_TRY(crop_box(&box, first, &words, file->height, file->width));
        *done = fits(box, file->height, file->width);
        if (*done) return decode_box(augmenter, file, box);
    }
    return decode_box(augmenter, file, whole);
}

fl_status fl_augment_file(fl_augmenter *augmenter, const fl_augment *augment, fl_image_file *file,
                          const fl_augment_draw *draw)
{
    int done;
    fl_status status = decode(augmenter, augment, file, draw, &done);
    if (status == FL_ERR_IO) return status; /* it names the file */
    if (status == FL_OK) status = run_steps(augmenter, augment, done, draw);
    if (status == FL_OK) return FL_OK;
    return fl_fail_prefix(status, "%s: %s: ", file->bytes.who, file->bytes.name);
}

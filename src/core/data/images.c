/*
** images.c -- images as tensors, one at a time and in batches.
*/
#include "images.h"
#include "cpu/pixels.h"
#include "pool.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

/* The two bytes of each of the 256 numbers of a channel. */
static void fill_halves(uint16_t *table, const fl_image_output *output, int channel)
{
    for (int i = 0; i < 256; i++) {
        float x = (float)i * output->scale[channel] + output->shift[channel];
        table[i] = output->dtype == FL_FLOAT16 ? fl_float16_from_float(x) : fl_bfloat16_from_float(x);
    }
}

/* out: contiguous, of the output's dtype. */
static void store(void *out, const fl_planes *planes, const fl_image_output *output)
{
    const fl_pixel_loops *loops = FL_BY_LEVEL(fl_pixel_loops);
    int64_t n = fl_planes_pixels(planes), step = output->channels_last ? planes->channels : 1;
    if (output->dtype == FL_UINT8 && output->channels_last) loops->join(out, planes->data, n, n, planes->channels);
    if (output->dtype == FL_UINT8 && !output->channels_last) memcpy(out, planes->data, (size_t)(n * planes->channels));
    if (output->dtype == FL_UINT8) return;
    for (int c = 0; c < planes->channels; c++) {
        int64_t first = output->channels_last ? c : c * n;
        const unsigned char *in = planes->data + c * n;
        if (output->dtype == FL_FLOAT32) {
            loops->floats((float *)out + first, step, in, n, output->scale[c], output->shift[c]);
            continue;
        }
        uint16_t table[256], *to = (uint16_t *)out + first;
        fill_halves(table, output, c);
        for (int64_t i = 0; i < n; i++) to[i * step] = table[in[i]];
    }
}

static fl_shape shape_of(const fl_planes *planes, bool channels_last)
{
    if (channels_last) return (fl_shape){.ndim = 3, .dims = {planes->height, planes->width, planes->channels}};
    return (fl_shape){.ndim = 3, .dims = {planes->channels, planes->height, planes->width}};
}

fl_status fl_image_tensor(fl_tensor **out, const fl_planes *planes, const fl_image_output *output)
{
    fl_shape shape = shape_of(planes, output->channels_last);
    FL_TRY(fl_tensor_empty_local(out, output->dtype, &shape));
    store(fl_tensor_data(*out), planes, output);
    return FL_OK;
}

static int workers_of(const fl_image_set *set) { return fl_pool_workers(set->workers); }

/* ---- items ---- */

/* Makes augmenter->now of what has been read. */
static fl_status make_image(fl_augmenter *augmenter, const fl_item *item, const char *who, const fl_image_set *set,
                            const fl_augment_draw *draw)
{
    fl_image_bytes bytes = {who, item->name, item->bytes, item->size};
    fl_image_file *file;
    FL_TRY(fl_image_open(&file, &bytes, FL_IMAGE_ANY, &set->options));
    fl_status status = fl_augment_file(augmenter, &set->augment, file, draw);
    fl_image_close(file);
    return status;
}

static const char who[] = "images";

fl_status fl_image_item(fl_tensor **out, int64_t *label, bool *has_label, const fl_item_source *source,
                        const fl_image_set *set, const fl_augment_draw *draw)
{
    fl_item *item = calloc(1, sizeof *item);
    fl_augmenter augmenter = {0};
    if (!item) return fl_fail(FL_ERR_MEMORY, "images: out of memory");
    fl_status status = fl_item_source_read(source, item, draw->position);
    if (status == FL_OK) status = make_image(&augmenter, item, who, set, draw);
    if (status == FL_OK) status = fl_image_tensor(out, &augmenter.now, &set->output);
    *label = item->label;
    *has_label = item->has_label;
    fl_augmenter_free(&augmenter);
    fl_item_close(item);
    free(item);
    return status;
}

/* ---- tensors ---- */

struct stack {
    const fl_image_set *set;
    const fl_augment_draw *draw;
    const unsigned char *in;
    unsigned char *out;          /* NULL: not made yet */
    int channels, height, width; /* of each that comes in */
    size_t bytes;                /* of each result */
    fl_augmenter *seats;
};

static fl_status run_on(fl_augmenter *augmenter, const struct stack *stack, int64_t item)
{
    size_t bytes = (size_t)stack->channels * (size_t)stack->height * (size_t)stack->width;
    fl_augment_draw draw = *stack->draw;
    draw.position += item;
    FL_TRY(fl_planes_room(&augmenter->now, stack->width, stack->height, stack->channels));
    memcpy(augmenter->now.data, stack->in + bytes * (size_t)item, bytes);
    return fl_augment_planes(augmenter, &stack->set->augment, &draw);
}

static fl_status run_stack(void *context, int64_t item, int seat)
{
    const struct stack *s = context;
    FL_TRY(run_on(&s->seats[seat], s, item + 1));
    store(s->out + s->bytes * (size_t)(item + 1), &s->seats[seat].now, &s->set->output);
    return FL_OK;
}

/* The first image gives the sizes of the results. */
static fl_status augment_stack(fl_tensor **out, struct stack *stack, int64_t count, bool batch)
{
    fl_augmenter *a = &stack->seats[0];
    FL_TRY(run_on(a, stack, 0));
    fl_shape one = shape_of(&a->now, stack->set->output.channels_last), shape = {.ndim = 4, .dims = {count}};
    for (int i = 0; i < 3; i++) shape.dims[i + 1] = one.dims[i];
    FL_TRY(fl_tensor_empty_local(out, stack->set->output.dtype, batch ? &shape : &one));
    stack->out = fl_tensor_data(*out);
    stack->bytes = (size_t)fl_planes_pixels(&a->now) * (size_t)a->now.channels
        * fl_dtype_size(stack->set->output.dtype);
    store(stack->out, &a->now, &stack->set->output);
    fl_status status = fl_pool_run(count - 1, workers_of(stack->set), run_stack, stack);
    if (status != FL_OK) fl_tensor_unref(*out);
    return status;
}

fl_status fl_image_augment(fl_tensor **out, fl_tensor *in, const fl_image_set *set, const fl_augment_draw *draw)
{
    const int64_t *size = in->meta->shape.dims + in->meta->shape.ndim - 3;
    struct stack s = {set, draw, fl_tensor_data(in), NULL, (int)size[0], (int)size[1], (int)size[2], 0, NULL};
    bool batch = in->meta->shape.ndim == 4;
    int seats = workers_of(set);
    if (!(s.seats = calloc((size_t)seats, sizeof *s.seats))) return fl_fail(FL_ERR_MEMORY, "augment: out of memory");
    fl_status status = augment_stack(out, &s, batch ? in->meta->shape.dims[0] : 1, batch);
    for (int i = 0; i < seats; i++) fl_augmenter_free(&s.seats[i]);
    free(s.seats);
    return status;
}

/* ---- batches ---- */

struct seat {
    fl_item item;
    fl_augmenter augmenter;
};

/* The task's arguments, copied by the engine. */
struct batch {
    fl_image_set set;
    const fl_item_source *source; /* borrowed */
    fl_augment_draw draw;
    unsigned char *images;
    int64_t *labels; /* NULL: not wanted */
    int channels, height, width;
    size_t bytes; /* of an image */
    int64_t count;
    struct seat *seats;
    int64_t positions[];
};

static fl_status take_label(const struct batch *batch, const fl_item *item, int64_t i)
{
    if (!batch->labels) return FL_OK;
    if (!item->has_label) return fl_fail(FL_ERR_VALUE, "images: %s: has no label; say labels = false", item->name);
    batch->labels[i] = item->label;
    return FL_OK;
}

static fl_status fill_slot(void *context, int64_t i, int seat)
{
    const struct batch *b = context;
    struct seat *s = &b->seats[seat];
    fl_augment_draw draw = b->draw;
    draw.position = b->positions[i];
    FL_TRY(fl_item_source_read(b->source, &s->item, draw.position));
    FL_TRY(take_label(b, &s->item, i));
    FL_TRY(make_image(&s->augmenter, &s->item, who, &b->set, &draw));
    const fl_planes *made = &s->augmenter.now;
    if (made->channels != b->channels || made->height != b->height || made->width != b->width)
        return fl_fail(FL_ERR_SHAPE, "images: %s: became %d x %d x %d where the batch has %d x %d x %d", s->item.name,
                       made->channels, made->height, made->width, b->channels, b->height, b->width);
    store(b->images + b->bytes * (size_t)i, made, &b->set.output);
    return FL_OK;
}

static fl_status run_batch(void *payload)
{
    struct batch *b = payload;
    int seats = workers_of(&b->set);
    b->seats = calloc((size_t)seats, sizeof *b->seats);
    if (!b->seats) return fl_fail(FL_ERR_MEMORY, "images: out of memory for %d workers", seats);
    fl_status status = fl_pool_run(b->count, seats, fill_slot, b);
    for (int i = 0; i < seats; i++) {
        fl_item_close(&b->seats[i].item);
        fl_augmenter_free(&b->seats[i].augmenter);
    }
    free(b->seats);
    return status;
}

static struct batch batch_of(const fl_tensor *images, const fl_tensor *labels, const fl_item_source *source,
                             const fl_image_set *set, const fl_augment_draw *draw, int64_t count)
{
    const int64_t *size = images->meta->shape.dims;
    bool last = set->output.channels_last;
    struct batch b = {.set = *set, .source = source, .draw = *draw, .count = count};
    b.images = fl_tensor_data(images);
    b.labels = labels ? fl_tensor_data(labels) : NULL;
    b.channels = (int)size[last ? 3 : 1];
    b.height = (int)size[last ? 1 : 2];
    b.width = (int)size[last ? 2 : 3];
    b.bytes = (size_t)(size[1] * size[2] * size[3]) * fl_dtype_size(set->output.dtype);
    return b;
}

fl_status fl_image_batch(fl_tensor *images, fl_tensor *labels, const fl_item_source *source, fl_var *held,
                         const fl_image_set *set, const fl_augment_draw *draw, const int64_t *positions, int64_t count)
{
    fl_var *writes[2] = {&images->storage->var, labels ? &labels->storage->var : NULL};
    if (count == 0) return FL_OK;
    size_t bytes = sizeof(struct batch) + sizeof *positions * (size_t)count;
    struct batch *b = malloc(bytes);
    if (!b) return fl_fail(FL_ERR_MEMORY, "images: out of memory for a batch of %lld", (long long)count);
    *b = batch_of(images, labels, source, set, draw, count);
    for (int64_t i = 0; i < count; i++)
        b->positions[i] = positions[i] < 0 ? positions[i] + source->count : positions[i];
    fl_status status = fl_pool_push(&(fl_pool_task){.name = who,
                                                    .run = run_batch,
                                                    .payload = b,
                                                    .payload_size = bytes,
                                                    .reads = &held,
                                                    .read_count = 1,
                                                    .writes = writes,
                                                    .write_count = labels ? 2 : 1});
    free(b);
    return status;
}

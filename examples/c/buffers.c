/* buffers.c -- a program hands its own buffer over: values are read and written where they are, and it is told when the
** last tensor that uses the buffer is gone. */
#include <flow.h>

#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                              \
    if ((call) != FLOW_OK) {                   \
        fprintf(stderr, "%s\n", flow_error()); \
        return 1;                              \
    }

/* A picture as a game or a simulation keeps it: three bytes to a pixel, and four unused bytes at the end of a row. */
enum { WIDTH = 6, HEIGHT = 4, ROW = 3 * WIDTH + 4 };

static void let_go(void *picture)
{
    printf("the picture is free again\n");
    free(picture);
}

int main(void)
{
    const int64_t shape[] = {HEIGHT, WIDTH, 3}, strides[] = {ROW, 3, 1}, both[] = {0, 1};
    unsigned char *picture = malloc(HEIGHT * ROW);
    for (int i = 0; i < HEIGHT * ROW; i++) picture[i] = (unsigned char)(i % ROW * 10);

    flow_tensor *pixels, *floats, *mean;
    float colour[3];
    TRY(flow_open(NULL));
    TRY(flow_borrow(&pixels, &(flow_spec){.dtype = "uint8", .ndim = 3, .shape = shape}, picture, strides, let_go,
                    picture));
    TRY(flow_call(NULL, 0, "clamp_", FLOW_ARGS(flow_of(pixels), flow_named("max", flow_int(100))))); /* in the buffer */
    TRY(flow_call(&floats, 1, "cast", FLOW_ARGS(flow_of(pixels), flow_text("float32"))));
    TRY(flow_call(&mean, 1, "mean", FLOW_ARGS(flow_of(floats), flow_ints(both, 2))));
    TRY(flow_read(mean, colour, sizeof colour));
    printf("mean colour %.0f %.0f %.0f, last byte of a row %d\n", colour[0], colour[1], colour[2],
           picture[3 * WIDTH - 1]);
    flow_unref(floats);
    flow_unref(mean);
    flow_unref(pixels);
    TRY(flow_close());
    return 0;
}

/*
** tiles.c -- lists of elementwise steps: their construction, the walk of a thread.
*/
#include "tiles_plan.h"
#include "convert.h"
#include "copy.h"
#include "reduce.h"

#include <assert.h>

/* ---- building ---- */

void fl_tiles_begin(fl_tiles *tiles, int ndim, const int64_t *size, const int64_t *stride)
{
    tiles->slot_count = tiles->step_count = 0;
    tiles->pattern_count = 1;
    tiles->ndim = ndim;
    tiles->total = 1;
    tiles->sink = NULL;
    tiles->on_cpu = false;
    for (int i = ndim - 1; i >= 0; i--) {
        tiles->sizes[i] = size[i];
        tiles->strides[0][i] = stride ? stride[i] : tiles->total;
        tiles->total *= size[i];
    }
}

/* The pattern of a view's strides, which is found or added; FL_TILES_FULL: there are too many. */
static int pattern_of(fl_tiles *tiles, const fl_view *view)
{
    int64_t strides[FL_MAX_NDIM] = {0}, any = 0;
    for (int i = 0; i < view->ndim; i++)
        any |= strides[tiles->ndim - view->ndim + i] = view->size[i] == 1 ? 0 : view->stride[i];
    if (!any) return FL_TILE_CONSTANT;
    for (int p = 0; p < tiles->pattern_count; p++) {
        int i = 0;
        while (i < tiles->ndim && (tiles->strides[p][i] == strides[i] || tiles->sizes[i] == 1)) i++;
        if (i == tiles->ndim) return p;
    }
    if (tiles->pattern_count == FL_TILES_PATTERNS) return FL_TILES_FULL;
    memcpy(tiles->strides[tiles->pattern_count], strides, sizeof strides);
    return tiles->pattern_count++;
}

/* A slot for what lies in memory, or the one that is there. */
static int operand_slot(fl_tiles *tiles, const fl_tile_slot *wanted)
{
    for (int i = 0; i < tiles->slot_count; i++) {
        const fl_tile_slot *slot = &tiles->slots[i];
        if (!slot->is_result && slot->data == wanted->data && slot->number == wanted->number
            && slot->dtype == wanted->dtype && slot->stored == wanted->stored && slot->pattern == wanted->pattern)
            return i;
    }
    if (tiles->slot_count == FL_TILES_SLOTS) return FL_TILES_FULL;
    tiles->slots[tiles->slot_count] = *wanted;
    return tiles->slot_count++;
}

int fl_tiles_operand(fl_tiles *tiles, const fl_view *view)
{
    bool is_number = view->data == view->scalar;
    int pattern = pattern_of(tiles, view);
    int64_t number = 0;
    if (pattern == FL_TILES_FULL) return FL_TILES_FULL;
    if (is_number) memcpy(&number, view->scalar, fl_dtype_size(view->dtype)); /* the bytes above have no value */
    return operand_slot(tiles,
                        &(fl_tile_slot){.data = is_number ? NULL : view->data,
                                        .number = number,
                                        .dtype = view->dtype,
                                        .stored = view->dtype,
                                        .pattern = (int8_t)pattern});
}

static fl_tile_step *step_add(fl_tiles *tiles, fl_ew_loop loop, float cost_ns, fl_dtype result)
{
    fl_tile_step *step = &tiles->steps[tiles->step_count++];
    step->loop = loop;
    step->draw = NULL;
    step->cost_ns = cost_ns;
    step->row = FL_EW_NONE;
    step->nin = 0;
    step->out = (uint8_t)tiles->slot_count;
    tiles->slots[tiles->slot_count++] = (fl_tile_slot){.dtype = result, .stored = result, .is_result = true};
    return step;
}

static bool is_full(const fl_tiles *tiles, int more)
{
    return tiles->step_count + more > FL_TILES_STEPS || tiles->slot_count + more > FL_TILES_SLOTS;
}

static bool converts(const fl_tile_step *step) { return !step->loop && !step->draw; }

int fl_tiles_cast(fl_tiles *tiles, int slot, fl_dtype dtype)
{
    if (is_full(tiles, 1)) return FL_TILES_FULL;
    fl_tile_step *step = step_add(tiles, NULL, 0.3f, dtype);
    step->in[step->nin++] = (uint8_t)slot;
    return step->out;
}

int fl_tiles_convert(fl_tiles *tiles, int slot, fl_dtype dtype)
{
    fl_tile_slot as = tiles->slots[slot];
    if (as.dtype == dtype) return slot;
    if (!as.is_result) {
        as.dtype = dtype;
        return operand_slot(tiles, &as);
    }
    for (int i = 0; i < tiles->step_count; i++) {
        const fl_tile_step *step = &tiles->steps[i];
        if (converts(step) && step->in[0] == slot && tiles->slots[step->out].dtype == dtype) return step->out;
    }
    return fl_tiles_cast(tiles, slot, dtype);
}

int fl_tiles_draw(fl_tiles *tiles, const fl_draw *draw, uint64_t first, int slot, fl_dtype result)
{
    if (is_full(tiles, 3)) return FL_TILES_FULL;
    if (draw->kind == FL_DRAW_DROPOUT) slot = fl_tiles_convert(tiles, slot, fl_draw_dtype(result));
    fl_tile_step *step = step_add(tiles, NULL, 1, fl_draw_dtype(result));
    if (draw->kind == FL_DRAW_DROPOUT) step->in[step->nin++] = (uint8_t)slot;
    step->draw = draw;
    step->first = first;
    step->drawn = result;
    return fl_tiles_convert(tiles, step->out, result);
}

/* True if the slot's value is of the narrow dtype, or a number that the dtype holds exactly. */
static bool is_of_narrow(const fl_tile_slot *slot, fl_dtype narrow)
{
    if (slot->dtype == narrow) return true;
    bool is_number = slot->pattern == FL_TILE_CONSTANT && !slot->is_result && !slot->data;
    if (!is_number || slot->stored != FL_FLOAT32) return false;
    float number;
    memcpy(&number, &slot->number, sizeof number);
    return narrow == FL_BFLOAT16 ? (slot->number & 0xffff) == 0
                                 : fl_float16_to_float(fl_float16_from_float(number)) == number;
}

/* The dtype of the loop: a narrow one where all is of it and the row has a loop, which gives the bits that conversions
** around that of float32 give. */
static fl_dtype loop_dtype(const fl_tiles *tiles, int row, fl_dtype compute, fl_dtype result, const int *in, int nin)
{
    const fl_ew_row *info = &fl_ew_rows[row];
    if (!tiles->on_cpu || compute != FL_FLOAT32) return compute;
    fl_dtype narrow = result;
    if (fl_ew_is_predicate(info->rule)) {
        int i = nin > 1 && tiles->slots[in[0]].dtype == FL_FLOAT32 ? 1 : 0; /* the first may be a number */
        narrow = tiles->slots[in[i]].dtype;
        if (result != FL_BOOL) return compute;
    }
    if ((narrow != FL_FLOAT16 && narrow != FL_BFLOAT16) || !(*FL_BY_LEVEL(fl_ew_loops))[row][narrow]) return compute;
    for (int i = 0; i < nin; i++)
        if (i != info->mask && !is_of_narrow(&tiles->slots[in[i]], narrow)) return compute;
    return narrow;
}

int fl_tiles_row(fl_tiles *tiles, int row, fl_dtype compute, fl_dtype result, const fl_ew_attr *attributes,
                 const int *in, int nin)
{
    const fl_ew_row *info = &fl_ew_rows[row];
    int slots[FL_EW_MAX_IN];
    if (is_full(tiles, nin + 2)) return FL_TILES_FULL;
    compute = loop_dtype(tiles, row, compute, result, in, nin);
    for (int i = 0; i < nin; i++) slots[i] = fl_tiles_convert(tiles, in[i], i == info->mask ? FL_BOOL : compute);
    float cost = info->cost_ns;
    if (compute == FL_FLOAT64) cost = cost < 0.5f ? cost * 2 : cost * 10; /* the C library's functions cost more */
    fl_tile_step *step = step_add(tiles, (*FL_BY_LEVEL(fl_ew_loops))[row][compute], cost,
                                  fl_ew_is_predicate(info->rule) ? FL_BOOL : compute);
    step->row = (uint8_t)row;
    for (int i = 0; i < nin; i++) step->in[step->nin++] = (uint8_t)slots[i];
    memcpy(step->attributes, attributes, sizeof step->attributes);
    return fl_tiles_convert(tiles, step->out, result);
}

void fl_tiles_store(fl_tiles *tiles, int slot, void *data)
{
    assert(tiles->slots[slot].is_result);
    tiles->slots[slot].data = data;
}

void fl_tiles_consume(fl_tiles *tiles, int slot, int64_t row, fl_tiles_sink sink, void *context)
{
    tiles->sink = sink;
    tiles->context = context;
    tiles->sink_slot = slot;
    tiles->sink_row = row;
}

/* ---- moving elements between memory and buffers ---- */

/* True if elements are converted through a buffer of the dtype. */
static bool is_through(fl_dtype dtype) { return dtype == FL_INT64 || dtype == FL_FLOAT32 || dtype == FL_FLOAT64; }

/* Converts n <= FL_TILE elements, or one for all of them; strides in bytes. */
static void convert(const fl_copy_kernels *copy, char *to, fl_dtype to_dtype, int64_t to_stride, const char *from,
                    fl_dtype from_dtype, int64_t from_stride, int64_t n)
{
    int64_t size = (int64_t)fl_dtype_size(to_dtype);
    fl_copy_through middle = fl_copy_through_of(from_dtype);
    if (to_dtype == from_dtype) {
        if (to_stride == size && from_stride == size) memcpy(to, from, (size_t)(n * size));
        else copy->move[__builtin_ctzll((unsigned long long)size)](to, to_stride, from, from_stride, n);
    } else if (from_stride == 0 && n > 1) {
        int64_t value;
        (*FL_BY_LEVEL(fl_convert_loops))[from_dtype][to_dtype](&value, from, 1);
        copy->move[__builtin_ctzll((unsigned long long)size)](to, to_stride, (const char *)&value, 0, n);
    } else if (to_stride == size && from_stride == (int64_t)fl_dtype_size(from_dtype)) {
        (*FL_BY_LEVEL(fl_convert_loops))[from_dtype][to_dtype](to, from, n);
    } else if (is_through(to_dtype) && fl_copy_through_of(to_dtype) == middle && to_stride == size) {
        copy->load[from_dtype](to, from, from_stride, n);
    } else if (is_through(from_dtype) && from_stride == (int64_t)fl_dtype_size(from_dtype)) {
        copy->store[middle][to_dtype](to, to_stride, from, n);
    } else {
        int64_t buffer[FL_TILE];
        copy->load[from_dtype](buffer, from, from_stride, n);
        copy->store[middle][to_dtype](to, to_stride, buffer, n);
    }
}

/* Position of element `first` in the axes. */
static void locate(int64_t *at, const fl_tiles *tiles, int64_t first)
{
    for (int i = tiles->ndim - 1; i >= 0; i--) {
        at[i] = first % tiles->sizes[i];
        first /= tiles->sizes[i];
    }
}

/* The position n elements further, mostly in the next row: without divisions, which take as long as a short row. */
static void advance(int64_t *at, const fl_tiles *tiles, int64_t n)
{
    for (int i = tiles->ndim - 1; i >= 0 && n > 0; i--) {
        int64_t size = tiles->sizes[i], next = at[i] + n;
        n = next < size ? 0 : next - size < size ? 1 : next / size;
        at[i] = next - n * size;
    }
}

static char *address(const fl_tiles *tiles, const fl_tile_slot *slot, const int64_t *at)
{
    const int64_t *strides = tiles->strides[slot->pattern];
    int64_t offset = 0;
    for (int i = 0; i < tiles->ndim; i++) offset += at[i] * strides[i];
    return slot->data + offset * (int64_t)fl_dtype_size(slot->stored);
}

/* Gathers n elements from position `start` on into the buffer, or scatters them, run by run of the last axis; element i
** of a linear pattern, the first of which is `first`, lies at i. */
static void move_runs(const fl_tiles *tiles, const fl_tile_slot *slot, const int64_t *start, int64_t first, int64_t n,
                      char *buffer, bool scatter)
{
    const int64_t *strides = tiles->strides[slot->pattern];
    int64_t at[FL_MAX_NDIM], last = tiles->ndim - 1;
    int64_t size = (int64_t)fl_dtype_size(slot->dtype), stored = (int64_t)fl_dtype_size(slot->stored);
    if (tiles->linear >> slot->pattern & 1u) {
        char *memory = slot->data + first * stored;
        if (scatter) convert(tiles->copy, memory, slot->stored, stored, buffer, slot->dtype, size, n);
        else convert(tiles->copy, buffer, slot->dtype, size, memory, slot->stored, stored, n);
        return;
    }
    memcpy(at, start, sizeof at);
    char *p = address(tiles, slot, at);
    while (n > 0) {
        int64_t run = tiles->sizes[last] - at[last], stride = strides[last] * stored;
        if (run > n) run = n;
        if (scatter) convert(tiles->copy, p, slot->stored, stride, buffer, slot->dtype, size, run);
        else convert(tiles->copy, buffer, slot->dtype, size, p, slot->stored, stride, run);
        buffer += run * size;
        n -= run;
        at[last] += run;
        p += run * stride;
        for (int64_t i = last; i > 0 && at[i] == tiles->sizes[i]; i--) {
            at[i] = 0;
            at[i - 1]++;
            p += (strides[i - 1] - tiles->sizes[i] * strides[i]) * stored;
        }
    }
}

/* ---- a thread's part ---- */

struct worker {
    const fl_tiles *tiles;
    char *line; /* of the sink */
    int bad;
    int64_t first, at[FL_MAX_NDIM]; /* the tile's first element and its position */
    char *places[FL_TILES_SLOTS];
};

/* Sets the addresses of the buffers, and fills in the constants. A value without a buffer is one element in its
** place. */
static void set_places(struct worker *worker, char *memory)
{
    const fl_tiles *tiles = worker->tiles;
    for (int i = 0; i < tiles->slot_count; i++) {
        const fl_tile_slot *slot = &tiles->slots[i];
        if (slot->buffer < FL_TILE_LINE) worker->places[i] = memory + slot->buffer * tiles->pitch;
        if (!fl_tile_is_constant(slot)) continue;
        char *from = slot->data ? slot->data : (char *)(uintptr_t)&slot->number;
        if (slot->last_use < 0) {
            worker->places[i] = from;
            continue;
        }
        int64_t n = tiles->total < tiles->tile ? tiles->total : tiles->tile;
        convert(tiles->copy, worker->places[i], slot->dtype, (int64_t)fl_dtype_size(slot->dtype), from, slot->stored, 0,
                n);
    }
}

/* A result goes where it is stored. */
static void put_result(const struct worker *worker, const fl_tile_slot *slot, char *buffer, int64_t first, int64_t n)
{
    const fl_tiles *tiles = worker->tiles;
    if (!tiles->streamed) {
        move_runs(tiles, slot, worker->at, first, n, buffer, true);
        return;
    }
    int64_t size = (int64_t)fl_dtype_size(slot->dtype), bytes = n * size;
    char *to = slot->data + first * size;
    int64_t head = (int64_t)(-(uintptr_t)to & 63);
    if (head > bytes) head = bytes;
    int64_t middle = (bytes - head) & ~(int64_t)63;
    memcpy(to, buffer, (size_t)head);
    tiles->copy->stream(to + head, buffer + head, middle);
    memcpy(to + head + middle, buffer + head + middle, (size_t)(bytes - head - middle));
}

/* Elements that a loop works on between two requests: few, because the processor waits where many are open. */
enum { FETCH_EVERY = 256 };

/* Asks for a part of what the next tile reads. Inlined, because a function that does nothing else is removed. */
static inline __attribute__((always_inline)) void fetch_part(const struct worker *worker, int64_t n, int64_t part,
                                                             int64_t parts)
{
    const fl_tiles *tiles = worker->tiles;
    for (int i = 0; i < tiles->slot_count; i++) {
        const fl_tile_slot *slot = &tiles->slots[i];
        if (slot->is_result || slot->buffer != FL_TILE_DIRECT || !(tiles->linear >> slot->pattern & 1u)) continue;
        int64_t size = (int64_t)fl_dtype_size(slot->dtype), end = n * (part + 1) / parts * size;
        for (int64_t at = n * part / parts * size; at < end; at += 64)
            __builtin_prefetch(worker->places[i] + n * size + at);
    }
}

static int run_loop(struct worker *worker, const fl_tile_step *step, int64_t n)
{
    const fl_tiles *tiles = worker->tiles;
    int64_t every = step->fetch < 0 ? n : FETCH_EVERY, pieces = (n + every - 1) / every;
    int bad = 0;
    for (int64_t i = 0; i < pieces; i++) {
        const void *in[FL_EW_MAX_IN];
        int64_t first = i * every, count = n - first < every ? n - first : every;
        if (step->fetch >= 0) fetch_part(worker, n, step->fetch * pieces + i, tiles->fetches * pieces);
        for (int k = 0; k < step->nin; k++)
            in[k] = worker->places[step->in[k]] + first * (int64_t)fl_dtype_size(tiles->slots[step->in[k]].dtype);
        char *out = worker->places[step->out] + first * (int64_t)fl_dtype_size(tiles->slots[step->out].dtype);
        bad |= step->loop(out, in, count, step->attributes);
    }
    return bad;
}

static void run_step(struct worker *worker, const fl_tile_step *step, int64_t first, int64_t n)
{
    const fl_tiles *tiles = worker->tiles;
    const fl_tile_slot *out = &tiles->slots[step->out];
    char *to = worker->places[step->out];
    if (step->in_spines) {
        const fl_spine_loops *loops = FL_BY_LEVEL(fl_spine_loops);
        fl_spine_loop loop = out->dtype == FL_FLOAT32 ? loops->f32 : loops->f64;
        if (step->spine >= 0) loop(worker->places, n, tiles->spines + step->spine);
    } else if (step->loop) {
        worker->bad |= run_loop(worker, step, n);
    } else if (step->draw) {
        const char *in = step->nin ? worker->places[step->in[0]] : NULL;
        fl_cpu_draw_elements(step->draw, step->drawn, to, in, step->first + (uint64_t)first, n);
    } else {
        fl_dtype from = tiles->slots[step->in[0]].dtype;
        convert(tiles->copy, to, out->dtype, (int64_t)fl_dtype_size(out->dtype), worker->places[step->in[0]], from,
                (int64_t)fl_dtype_size(from), n);
    }
    if (out->data && out->buffer != FL_TILE_DIRECT) put_result(worker, out, to, first, n);
}

/* Elements [first, first + n), n <= tile; `within`: of the block of the sink. */
static void run_tile(struct worker *worker, int64_t first, int64_t n, int64_t within)
{
    const fl_tiles *tiles = worker->tiles;
    if (tiles->located) advance(worker->at, tiles, first - worker->first);
    worker->first = first;
    for (int i = 0; i < tiles->slot_count; i++) {
        const fl_tile_slot *slot = &tiles->slots[i];
        int64_t size = (int64_t)fl_dtype_size(slot->dtype);
        if (slot->buffer == FL_TILE_LINE) worker->places[i] = worker->line + within * size;
        if (slot->buffer != FL_TILE_DIRECT) continue;
        worker->places[i] = tiles->linear >> slot->pattern & 1u ? slot->data + first * size
                                                                : address(tiles, slot, worker->at);
    }
    for (int i = 0; i < tiles->order_count; i++) {
        int code = tiles->order[i];
        if (code < FL_TILE_LOAD) run_step(worker, &tiles->steps[code], first, n);
        else
            move_runs(tiles, &tiles->slots[code - FL_TILE_LOAD], worker->at, first, n,
                      worker->places[code - FL_TILE_LOAD], false);
    }
}

static void run_chunks(fl_tiles *tiles, int64_t begin, int64_t end)
{
    _Alignas(64) char memory[FL_TILE_MEMORY], line[FL_REDUCE_BLOCK * sizeof(int64_t)];
    struct worker w = {.tiles = tiles, .line = line};
    set_places(&w, memory);
    int64_t row = begin / tiles->pieces, piece = begin % tiles->pieces;
    w.first = row * tiles->row + piece * tiles->chunk;
    if (tiles->located) locate(w.at, tiles, w.first);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset = piece * tiles->chunk, first = row * tiles->row + offset;
        if (++piece == tiles->pieces) piece = 0, row++;
        int64_t n = tiles->row - offset < tiles->chunk ? tiles->row - offset : tiles->chunk;
        for (int64_t done = 0; done < n; done += tiles->tile)
            run_tile(&w, first + done, n - done < tiles->tile ? n - done : tiles->tile, done);
        if (!tiles->sink) continue;
        const fl_tile_slot *slot = &tiles->slots[tiles->sink_slot];
        const char *elements = slot->buffer == FL_TILE_LINE ? line
                                                            : slot->data + first * (int64_t)fl_dtype_size(slot->dtype);
        tiles->sink(tiles->context, first, n, elements);
    }
    if (tiles->streamed) tiles->copy->fence();
    if (w.bad) __atomic_fetch_or(&tiles->bad, w.bad, __ATOMIC_RELAXED);
}

/* One step on memory as it lies: ranges of any length at once. */
static void run_flat(fl_tiles *tiles, int64_t begin, int64_t end)
{
    const fl_tile_step *step = &tiles->steps[0];
    int64_t first = begin * FL_TILE, n = (end * FL_TILE < tiles->total ? end * FL_TILE : tiles->total) - first;
    const void *in[FL_EW_MAX_IN];
    const fl_tile_slot *slots = tiles->slots, *out = &slots[step->out];
    for (int i = 0; i < step->nin; i++)
        in[i] = slots[step->in[i]].data + first * (int64_t)fl_dtype_size(slots[step->in[i]].dtype);
    int bad = step->loop(out->data + first * (int64_t)fl_dtype_size(out->dtype), in, n, step->attributes);
    if (bad) __atomic_fetch_or(&tiles->bad, bad, __ATOMIC_RELAXED);
}

/* An operand of the one step, or its result, in the current row. */
struct row_part {
    char *at;     /* its first element in memory */
    int64_t down; /* bytes from there to the next row, where no axis but the last two moves on */
    int64_t size; /* of an element, in bytes */
    char
        *repeated; /* room for one element of a row as often as a chunk reads it; NULL: elements lie as they are read */
};

/* The parts of the step: its operands, then its result, with all but `at`. */
static void open_parts(struct row_part *parts, const struct worker *worker)
{
    const fl_tiles *tiles = worker->tiles;
    const fl_tile_step *step = &tiles->steps[0];
    for (int k = 0; k <= step->nin; k++) {
        int i = k < step->nin ? step->in[k] : step->out;
        const fl_tile_slot *slot = &tiles->slots[i];
        int64_t size = (int64_t)fl_dtype_size(slot->dtype);
        bool constant = fl_tile_is_constant(slot), direct = slot->buffer == FL_TILE_DIRECT;
        parts[k] = (struct row_part){.at = worker->places[i], .size = constant ? 0 : size};
        if (constant) continue;
        parts[k].down = tiles->strides[slot->pattern][tiles->ndim - 2] * size;
        parts[k].repeated = direct ? NULL : worker->places[i];
    }
}

/* Goes to the row at worker->at; next: it follows the one before along the last axis but one. */
static void open_row(struct row_part *parts, const struct worker *worker, bool next)
{
    const fl_tiles *tiles = worker->tiles;
    const fl_tile_step *step = &tiles->steps[0];
    int64_t n = tiles->row < tiles->chunk ? tiles->row : tiles->chunk;
    for (int k = 0; k <= step->nin; k++) {
        struct row_part *part = &parts[k];
        if (part->size == 0) continue;
        if (next) part->at += part->down;
        else part->at = address(tiles, &tiles->slots[k < step->nin ? step->in[k] : step->out], worker->at);
        if (!part->repeated || (next && part->down == 0)) continue;
        tiles->copy->move[__builtin_ctzll((uint64_t)part->size)](part->repeated, part->size, part->at, 0, n);
    }
}

/* One step on rows as they lie. */
static void run_flat_rows(fl_tiles *tiles, int64_t begin, int64_t end)
{
    _Alignas(64) char memory[FL_TILE_MEMORY];
    const fl_tile_step *step = &tiles->steps[0];
    struct worker w = {.tiles = tiles};
    struct row_part parts[FL_EW_MAX_IN + 1], *out = &parts[step->nin];
    int64_t piece = begin % tiles->pieces;
    set_places(&w, memory);
    locate(w.at, tiles, begin / tiles->pieces * tiles->row);
    open_parts(parts, &w);
    open_row(parts, &w, false);
    for (int64_t unit = begin; unit < end; unit++) {
        const void *in[FL_EW_MAX_IN];
        int64_t first = piece * tiles->chunk, n = tiles->row - first < tiles->chunk ? tiles->row - first : tiles->chunk;
        for (int k = 0; k < step->nin; k++)
            in[k] = parts[k].repeated ? parts[k].repeated : parts[k].at + first * parts[k].size;
        w.bad |= step->loop(out->at + first * out->size, in, n, step->attributes);
        if (++piece < tiles->pieces || unit + 1 == end) continue;
        piece = 0;
        advance(w.at, tiles, tiles->row);
        open_row(parts, &w, w.at[tiles->ndim - 2] != 0);
    }
    if (w.bad) __atomic_fetch_or(&tiles->bad, w.bad, __ATOMIC_RELAXED);
}

static void run_units(void *context, int64_t begin, int64_t end)
{
    fl_tiles *tiles = context;
    if (tiles->flat) run_flat(tiles, begin, end);
    else if (tiles->flat_rows) run_flat_rows(tiles, begin, end);
    else run_chunks(tiles, begin, end);
}

int fl_tiles_run(fl_tiles *tiles)
{
    if (tiles->total == 0) return 0;
    fl_tiles_plan(tiles);
    int64_t units = tiles->total / tiles->row * tiles->pieces;
    if (tiles->total <= FL_TILE) run_units(tiles, 0, units);
    else fl_team_for(units, fl_tiles_chunk_cost(tiles), run_units, tiles);
    return tiles->bad;
}

/*
** tiles_plan.c -- the plan of a list of steps: the layout of operands, spines, the order of steps, slots that share a
** buffer.
**
** Operands whose layout in memory suits a step are read and written there; those that are broadcast, strided or of
** another dtype go through a buffer of the L1 cache. A result takes the buffer of an operand that is not used any more.
*/
#include "tiles_plan.h"
#include "copy.h"
#include "reduce.h"

enum {
    SMALLEST_TILE = 32,     /* with it all slots have room */
    STREAM_FROM = 16 << 20, /* bytes of a result that are written past the caches */
    LONG_ROW = 128,         /* rows from here on are cut one by one, so that their operands need no buffer */
    GUARD = 64              /* bytes between buffers, so that they do not fall on the same sets of the cache */
};

/* ---- layout ---- */

/* The axes in the order of the results' strides, neighbours merged where all patterns allow. */
static void merge_axes(fl_tiles *tiles)
{
    fl_layout layout;
    layout.count = tiles->ndim;
    layout.operands = tiles->pattern_count;
    for (int i = 0; i < tiles->ndim; i++) {
        layout.axes[i].size = tiles->sizes[i];
        for (int p = 0; p < tiles->pattern_count; p++) layout.axes[i].stride[p] = tiles->strides[p][i];
    }
    fl_layout_simplify(&layout);
    if (layout.count == 0) layout.axes[layout.count++] = (fl_axis){1, {1, 1, 1, 1}};
    tiles->ndim = layout.count;
    for (int i = 0; i < layout.count; i++) {
        tiles->sizes[i] = layout.axes[i].size;
        for (int p = 0; p < tiles->pattern_count; p++) tiles->strides[p][i] = layout.axes[i].stride[p];
    }
}

/* True if element i lies at position i. */
static bool is_linear(const fl_tiles *tiles, int pattern)
{
    int64_t expected = 1;
    for (int i = tiles->ndim - 1; i >= 0; i--) {
        if (tiles->strides[pattern][i] != expected) return false;
        expected *= tiles->sizes[i];
    }
    return true;
}

/* Cuts the elements: rows into chunks. A chunk lies in one row of the axes when `located`. */
static void cut(fl_tiles *tiles)
{
    int64_t last = tiles->sizes[tiles->ndim - 1];
    tiles->row = tiles->total;
    tiles->chunk = FL_TILE;
    tiles->linear = 0;
    for (int p = 0; p < tiles->pattern_count; p++) tiles->linear |= (unsigned)is_linear(tiles, p) << p;
    tiles->in_rows = tiles->by_row = 0;
    if (tiles->sink) {
        int64_t row = tiles->sink_row;
        tiles->chunk = row >= FL_REDUCE_BLOCK ? FL_REDUCE_BLOCK : FL_REDUCE_BLOCK / row * row;
        if (row >= FL_REDUCE_BLOCK) tiles->row = row;
    } else if (tiles->ndim > 1 && last >= LONG_ROW) tiles->row = last;
    if (tiles->row < tiles->total && tiles->row == last)
        for (int p = 0; p < tiles->pattern_count; p++) {
            tiles->in_rows |= (unsigned)(tiles->strides[p][tiles->ndim - 1] == 1) << p;
            tiles->by_row |= (unsigned)(tiles->strides[p][tiles->ndim - 1] == 0) << p;
        }
    tiles->pieces = (tiles->row + tiles->chunk - 1) / tiles->chunk;
}

/* True if the slot is read or written where it lies. */
static bool is_direct(const fl_tiles *tiles, const fl_tile_slot *slot)
{
    return slot->data && slot->dtype == slot->stored && slot->pattern != FL_TILE_CONSTANT
        && ((tiles->linear | tiles->in_rows) >> slot->pattern & 1u);
}

static bool is_stored(const fl_tile_slot *slot) { return slot->is_result && slot->data; }

/* Results far larger than the caches go past them, so that the lines they fill are not read first. Only where memory is
** what takes the time: bursts of such stores hold up longer computations. */
static bool is_streamed(const fl_tiles *tiles)
{
    if (!(tiles->linear & 1u) || tiles->total * (int64_t)sizeof(int64_t) < STREAM_FROM) return false;
    for (int i = 0; i < tiles->step_count; i++)
        if (tiles->steps[i].cost_ns >= FL_TILE_LONG) return false;
    for (int i = 0; i < tiles->slot_count; i++) {
        const fl_tile_slot *slot = &tiles->slots[i];
        if (!is_stored(slot)) continue;
        if (tiles->total * (int64_t)fl_dtype_size(slot->dtype) < STREAM_FROM || (uintptr_t)slot->data % 64)
            return false;
        for (int k = 0; k < tiles->slot_count; k++)
            if (k != i && tiles->slots[k].data == slot->data) return false;
    }
    return true;
}

/* ---- spines ---- */

/* The codes of a row, where operand 0, 1 or 2 is the running value; FL_SPINE_END: it is no step of spines. */
static fl_spine_code spine_code(const fl_tile_step *step, int value)
{
    static const uint8_t codes[FL_EW_COUNT][FL_EW_MAX_IN] = {
        [FL_EW_add] = {FL_SPINE_ADD, FL_SPINE_ADD},
        [FL_EW_sub] = {FL_SPINE_SUB, FL_SPINE_SUB_FROM},
        [FL_EW_mul] = {FL_SPINE_MUL, FL_SPINE_MUL},
        [FL_EW_div] = {FL_SPINE_DIV, FL_SPINE_DIV_OF},
        [FL_EW_addcmul] = {FL_SPINE_ADDCMUL},
        [FL_EW_addcdiv] = {FL_SPINE_ADDCDIV, FL_SPINE_END, FL_SPINE_ADDCDIV_BY},
        [FL_EW_neg] = {FL_SPINE_NEG},
        [FL_EW_abs] = {FL_SPINE_ABS},
        [FL_EW_sqrt] = {FL_SPINE_SQRT},
        [FL_EW_square] = {FL_SPINE_SQUARE},
        [FL_EW_reciprocal] = {FL_SPINE_RECIPROCAL},
        [FL_EW_relu] = {FL_SPINE_RELU},
        [FL_EW_clamp] = {FL_SPINE_CLAMP},
    };
    return codes[step->row][value];
}

/* True for an operand times itself. */
static bool is_square(const fl_tile_step *step) { return step->row == FL_EW_mul && step->in[0] == step->in[1]; }

static bool is_spine_dtype(fl_dtype dtype) { return dtype == FL_FLOAT32 || dtype == FL_FLOAT64; }

/* Counts the uses of each slot as an operand of steps. */
static void count_uses(const fl_tiles *tiles, uint8_t *uses)
{
    memset(uses, 0, FL_TILES_SLOTS);
    for (int i = 0; i < tiles->step_count; i++)
        for (int k = 0; k < tiles->steps[i].nin; k++) uses[tiles->steps[i].in[k]]++;
}

/* Steps whose value only the next one needs are joined: the longer of two runs goes on. */
static void join_steps(fl_tiles *tiles)
{
    uint8_t uses[FL_TILES_SLOTS], maker[FL_TILES_SLOTS];
    count_uses(tiles, uses);
    for (int i = 0; i < tiles->step_count; i++) {
        fl_tile_step *step = &tiles->steps[i];
        fl_dtype dtype = tiles->slots[step->out].dtype;
        maker[step->out] = (uint8_t)i;
        step->absorbed = false;
        step->before = -1;
        step->value = 0;
        step->unread = -1;
        step->spine_count = 1;
        step->in_spines = false;
        step->spine = -1;
        if (!spine_code(step, 0) || !is_spine_dtype(dtype)) continue;
        for (int k = 0; k < step->nin; k++) {
            const fl_tile_slot *slot = &tiles->slots[step->in[k]];
            if (!slot->is_result || slot->data || uses[step->in[k]] != (is_square(step) ? 2 : 1)) continue;
            if (!spine_code(step, k) || (tiles->sink && tiles->sink_slot == step->in[k])) continue;
            const fl_tile_step *last = &tiles->steps[maker[step->in[k]]];
            if (!spine_code(last, 0) || last->spine_count < step->spine_count) continue;
            step->before = (int8_t)maker[step->in[k]];
            step->value = (uint8_t)k;
            step->spine_count = (uint8_t)(last->spine_count + 1);
        }
        if (step->before >= 0) tiles->steps[step->before].absorbed = true;
    }
}

/* True if a spine may read the operand where it lies, one element for all of a row. */
static bool may_lie_by_row(const fl_tiles *tiles, const fl_tile_slot *slot)
{
    return !slot->is_result && slot->data && slot->dtype == slot->stored && slot->pattern >= 0
        && tiles->by_row >> slot->pattern & 1u;
}

/* True if the step takes operand k as a number beside the running value, in any list. */
static bool takes_number(const fl_tiles *tiles, const fl_tile_step *step, int k)
{
    if (step->nin != 2 || is_square(step) || (step->before < 0 && !step->absorbed)) return false;
    const fl_tile_slot *first = &tiles->slots[step->in[0]];
    bool second_runs = step->before >= 0 ? step->value == 1
                                         : fl_tile_is_constant(first) || may_lie_by_row(tiles, first);
    return k != second_runs;
}

/* Operands of one element for a row lie where spines read them, unless a step needs them in a buffer. */
static void set_by_row(fl_tiles *tiles)
{
    bool buffered[FL_TILES_SLOTS] = {false};
    for (int i = 0; i < tiles->step_count; i++)
        for (int k = 0; k < tiles->steps[i].nin; k++)
            if (!takes_number(tiles, &tiles->steps[i], k)) buffered[tiles->steps[i].in[k]] = true;
    for (int i = 0; i < tiles->slot_count; i++) {
        fl_tile_slot *slot = &tiles->slots[i];
        if (buffered[i] || !may_lie_by_row(tiles, slot)) continue;
        slot->buffer = FL_TILE_DIRECT;
        slot->loaded = true;
    }
}

/* True if the operand has one element for all that a spine works on at once. */
static bool is_one(const fl_tiles *tiles, const fl_tile_slot *slot)
{
    return fl_tile_is_constant(slot) || (slot->buffer == FL_TILE_DIRECT && may_lie_by_row(tiles, slot));
}

/* The code of a step: of operands that are the running value, or a number, those that read none. */
static fl_spine_op spine_op(const fl_tiles *tiles, fl_tile_step *step)
{
    fl_spine_op op = {.code = (uint8_t)spine_code(step, step->value),
                      .operand = step->in[step->nin > 1 && step->value == 0],
                      .low = step->attributes[0].number,
                      .high = step->attributes[1].number};
    if (step->nin == 3) op.next = step->in[step->value == 2 ? 1 : 2];
    if (step->nin != 2) return op;
    const fl_tile_slot *other = &tiles->slots[op.operand];
    if (is_square(step)) op.code = FL_SPINE_SQUARE;
    else if (is_one(tiles, other)) op.code += FL_SPINE_ADD_N - FL_SPINE_ADD;
    else return op;
    if (is_square(step) || other->dtype == other->stored) step->unread = (int8_t)(1 - step->value);
    return op;
}

/* The codes of the spine that ends with the step, from `at` on; returns the place of its end. */
static int write_spine(fl_tiles *tiles, fl_tile_step *step, int at)
{
    int end = at + step->spine_count;
    tiles->spines[end] = (fl_spine_op){.code = FL_SPINE_NEXT, .operand = step->out};
    for (int i = end - 1;; i--) {
        bool begins = i == at;
        if (begins && step->nin == 2 && is_one(tiles, &tiles->slots[step->in[0]])) step->value = 1;
        tiles->spines[i] = spine_op(tiles, step);
        if (begins) break;
        step = &tiles->steps[step->before];
    }
    tiles->spines[at - 1].next = step->in[step->value];
    return end;
}

/* True if the step's result is stored where it is computed, or not stored. */
static bool stays_in_place(const fl_tiles *tiles, const fl_tile_step *step)
{
    const fl_tile_slot *out = &tiles->slots[step->out];
    return !out->data || out->buffer == FL_TILE_DIRECT;
}

/* True if step i may follow step `last` in a list of spines. A result stored elsewhere ends the list. */
static bool goes_on(const fl_tiles *tiles, int last, int i)
{
    const fl_tile_step *step = &tiles->steps[i];
    return stays_in_place(tiles, &tiles->steps[last]) && spine_code(step, 0)
        && tiles->slots[step->out].dtype == tiles->slots[tiles->steps[last].out].dtype;
}

/* The step after `i` that is not absorbed; step_count: there is none. */
static int next_step(const fl_tiles *tiles, int i)
{
    do i++;
    while (i < tiles->step_count && tiles->steps[i].absorbed);
    return i;
}

/* The op of the list that takes the slot beside the running value, from place `at` to the end; -1: none. */
static int taker_of(const fl_spine_op *ops, int at, int end, int slot)
{
    for (; at < end; at++)
        if (ops[at].code >= FL_SPINE_ADD && ops[at].code <= FL_SPINE_DIV_OF && ops[at].operand == slot) return at;
    return -1;
}

/* A value that passes from one spine of a list to another, and nowhere else, stays in a register, if one is free. */
static void keep_values(fl_tiles *tiles, int at, int end)
{
    int busy_until[FL_SPINE_KEPT] = {0};
    uint8_t uses[FL_TILES_SLOTS];
    count_uses(tiles, uses);
    for (; at < end; at++) {
        fl_spine_op *op = &tiles->spines[at];
        const fl_tile_slot *slot = &tiles->slots[op->operand];
        if (op->code != FL_SPINE_NEXT || slot->data || uses[op->operand] != 1) continue;
        if (tiles->sink && tiles->sink_slot == op->operand) continue;
        int taker = taker_of(tiles->spines, at + 1, end, op->operand), k = 0;
        if (taker < 0) continue;
        while (k < FL_SPINE_KEPT && busy_until[k] > at) k++;
        if (k == FL_SPINE_KEPT) continue;
        busy_until[k] = taker;
        op->code = (uint8_t)(FL_SPINE_KEEP + k);
        tiles->spines[taker].code += FL_SPINE_ADD_KEPT - FL_SPINE_ADD + k * (FL_SPINE_ADD_KEPT_2 - FL_SPINE_ADD_KEPT);
    }
}

/* Spines and single steps of spines that follow each other become lists; a single step alone runs its own loop. */
static void set_spines(fl_tiles *tiles)
{
    int at = 0;
    join_steps(tiles);
    if (tiles->by_row) set_by_row(tiles);
    for (int i = next_step(tiles, -1), next; i < tiles->step_count; i = next) {
        fl_tile_step *first = &tiles->steps[i];
        next = next_step(tiles, i);
        if (!spine_code(first, 0) || !is_spine_dtype(tiles->slots[first->out].dtype)) continue;
        bool alone = next == tiles->step_count || !goes_on(tiles, i, next);
        if (alone && first->before < 0) continue;
        first->spine = (int16_t)at;
        first->in_spines = true;
        int end = write_spine(tiles, first, at + 1), last = i;
        while (next < tiles->step_count && goes_on(tiles, last, next)) {
            end = write_spine(tiles, &tiles->steps[next], end + 1);
            tiles->steps[next].in_spines = true;
            last = next;
            next = next_step(tiles, next);
        }
        tiles->spines[end].code = FL_SPINE_END;
        keep_values(tiles, at + 1, end);
        tiles->spines[at].operand = tiles->spines[end].operand;
        at = end + 1;
    }
}

/* The slots that a step, or the spine that ends with it, reads. */
static int operands_of(const fl_tiles *tiles, const fl_tile_step *step, uint8_t *slots)
{
    int count = 0;
    for (;;) {
        for (int k = 0; k < step->nin; k++)
            if (k != step->unread && (step->before < 0 || k != step->value)) slots[count++] = step->in[k];
        if (step->before < 0) return count;
        step = &tiles->steps[step->before];
    }
}

/* ---- order and buffers ---- */

/* Finds the slots that are read and written in place. */
static void set_direct(fl_tiles *tiles)
{
    for (int i = 0; i < tiles->slot_count; i++) {
        fl_tile_slot *slot = &tiles->slots[i];
        bool direct = is_direct(tiles, slot) && !(tiles->streamed && slot->is_result);
        slot->buffer = direct ? FL_TILE_DIRECT : 0;
        slot->loaded = direct || slot->is_result || fl_tile_is_constant(slot);
        slot->last_use = -1;
    }
}

/* Operands that are gathered for the step, from place `count` of the order on; returns the place after them. */
static int add_loads(fl_tiles *tiles, const fl_tile_step *step, int count)
{
    uint8_t slots[FL_EW_MAX_IN * FL_TILES_STEPS];
    int operands = operands_of(tiles, step, slots);
    for (int k = 0; k < operands; k++) {
        fl_tile_slot *slot = &tiles->slots[slots[k]];
        if (!slot->loaded) tiles->order[count++] = (uint8_t)(FL_TILE_LOAD + slots[k]);
        slot->loaded = true;
    }
    return count;
}

static void add_step(fl_tiles *tiles, int i, int place)
{
    uint8_t slots[FL_EW_MAX_IN * FL_TILES_STEPS];
    int operands = operands_of(tiles, &tiles->steps[i], slots);
    for (int k = 0; k < operands; k++) tiles->slots[slots[k]].last_use = (int16_t)place;
    tiles->order[place] = (uint8_t)i;
}

/* A step, or all of a list of spines, comes after what it gathers. */
static void set_order(fl_tiles *tiles)
{
    int count = 0;
    for (int i = next_step(tiles, -1), end; i < tiles->step_count; i = end) {
        end = i;
        do {
            count = add_loads(tiles, &tiles->steps[end], count);
            end = next_step(tiles, end);
        } while (end < tiles->step_count && tiles->steps[end].in_spines && tiles->steps[end].spine < 0);
        for (int k = i; k < end; k = next_step(tiles, k)) add_step(tiles, k, count++);
    }
    tiles->order_count = count;
}

/* True if some operand or result needs its position in the axes. */
static bool needs_position(const fl_tiles *tiles)
{
    for (int i = 0; i < tiles->slot_count; i++) {
        const fl_tile_slot *slot = &tiles->slots[i];
        if (!slot->data || fl_tile_is_constant(slot)) continue;
        if (!(tiles->linear >> slot->pattern & 1u)) return true;
    }
    return false;
}

/* If operands are far larger than the caches, long loops prefetch those of the next tile. */
static void set_fetches(fl_tiles *tiles)
{
    tiles->fetches = 0;
    for (int i = 0; i < tiles->step_count; i++) {
        fl_tile_step *step = &tiles->steps[i];
        bool fetches = step->loop && step->cost_ns >= FL_TILE_LONG
            && tiles->total * (int64_t)fl_dtype_size(tiles->slots[step->out].dtype) >= STREAM_FROM;
        step->fetch = (int8_t)(fetches ? tiles->fetches++ : -1);
    }
}

static bool is_flat(const fl_tiles *tiles)
{
    const fl_tile_step *step = &tiles->steps[0];
    bool flat = tiles->step_count == 1 && step->loop && !tiles->sink && tiles->row == tiles->total && !tiles->located
        && tiles->slots[step->out].buffer == FL_TILE_DIRECT;
    for (int i = 0; i < step->nin; i++) flat = flat && tiles->slots[step->in[i]].buffer == FL_TILE_DIRECT;
    return flat;
}

double fl_tiles_chunk_cost(const fl_tiles *tiles)
{
    double cost = 0;
    for (int i = 0; i < tiles->step_count; i++) cost += tiles->steps[i].cost_ns;
    for (int i = 0; i < tiles->order_count; i++) cost += tiles->order[i] < FL_TILE_LOAD ? 0 : 0.3;
    return cost * (double)(tiles->row < tiles->chunk ? tiles->row : tiles->chunk);
}

static bool is_flat_by_row(const fl_tiles *tiles)
{
    const fl_tile_step *step = &tiles->steps[0];
    bool flat = tiles->row < tiles->total && tiles->step_count == 1 && step->loop && !tiles->sink && step->fetch < 0
        && tiles->slots[step->out].buffer == FL_TILE_DIRECT;
    for (int i = 0; i < step->nin && flat; i++) {
        const fl_tile_slot *slot = &tiles->slots[step->in[i]];
        flat = slot->buffer == FL_TILE_DIRECT || fl_tile_is_constant(slot) || may_lie_by_row(tiles, slot);
    }
    return flat;
}

/* Buffers that are free while the order is gone through. */
struct free_buffers {
    int count;
    uint8_t list[FL_TILES_SLOTS];
};

static uint8_t buffer_take(fl_tiles *tiles, struct free_buffers *unused)
{
    return unused->count ? unused->list[--unused->count] : (uint8_t)tiles->buffers++;
}

/* The buffers of operands whose last use is at `place`; those of elements of `size` bytes where size is not 0. */
static void buffers_give(fl_tiles *tiles, struct free_buffers *unused, const fl_tile_step *step, int place, size_t size)
{
    uint8_t slots[FL_EW_MAX_IN * FL_TILES_STEPS];
    int operands = operands_of(tiles, step, slots);
    for (int k = 0; k < operands; k++) {
        fl_tile_slot *slot = &tiles->slots[slots[k]];
        if (slot->last_use != place || slot->buffer >= FL_TILE_LINE || fl_tile_is_constant(slot)) continue;
        if (size && fl_dtype_size(slot->dtype) != size) continue;
        unused->list[unused->count++] = slot->buffer;
        slot->last_use = -1; /* given */
    }
}

/* A result takes the buffer of an operand that ends with its step, where their elements are of one size: loops may work
** in place. */
static void set_buffers(fl_tiles *tiles)
{
    struct free_buffers unused = {0};
    tiles->buffers = 0;
    for (int i = 0; i < tiles->slot_count; i++)
        if (fl_tile_is_constant(&tiles->slots[i]) && tiles->slots[i].last_use >= 0)
            tiles->slots[i].buffer = (uint8_t)tiles->buffers++;
    if (tiles->sink && tiles->slots[tiles->sink_slot].buffer != FL_TILE_DIRECT)
        tiles->slots[tiles->sink_slot].buffer = FL_TILE_LINE;
    for (int place = 0; place < tiles->order_count; place++) {
        int code = tiles->order[place];
        if (code >= FL_TILE_LOAD) {
            tiles->slots[code - FL_TILE_LOAD].buffer = buffer_take(tiles, &unused);
            continue;
        }
        const fl_tile_step *step = &tiles->steps[code];
        fl_tile_slot *out = &tiles->slots[step->out];
        if (step->loop) buffers_give(tiles, &unused, step, place, fl_dtype_size(out->dtype));
        if (out->buffer < FL_TILE_LINE) {
            out->buffer = buffer_take(tiles, &unused);
            if (out->last_use < 0) unused.list[unused.count++] = out->buffer; /* stored at once, or not used at all */
        }
        buffers_give(tiles, &unused, step, place, 0);
    }
}

static void set_tile(fl_tiles *tiles)
{
    size_t widest = 1;
    for (int i = 0; i < tiles->slot_count; i++)
        if (fl_dtype_size(tiles->slots[i].dtype) > widest) widest = fl_dtype_size(tiles->slots[i].dtype);
    tiles->tile = FL_TILE;
    while (tiles->tile > SMALLEST_TILE && tiles->buffers * (tiles->tile * (int64_t)widest + GUARD) > FL_TILE_MEMORY)
        tiles->tile /= 2;
    tiles->pitch = tiles->tile * (int64_t)widest + GUARD;
    if (!tiles->sink && tiles->chunk > tiles->tile) tiles->chunk = tiles->tile;
    tiles->pieces = (tiles->row + tiles->chunk - 1) / tiles->chunk;
}

void fl_tiles_plan(fl_tiles *tiles)
{
    merge_axes(tiles);
    cut(tiles);
    tiles->streamed = is_streamed(tiles);
    tiles->bad = 0;
    tiles->copy = FL_BY_LEVEL(fl_copy_kernels);
    set_direct(tiles);
    set_spines(tiles);
    set_order(tiles);
    tiles->located = needs_position(tiles);
    tiles->flat = is_flat(tiles);
    set_fetches(tiles);
    tiles->flat_rows = is_flat_by_row(tiles);
    set_buffers(tiles);
    set_tile(tiles);
}

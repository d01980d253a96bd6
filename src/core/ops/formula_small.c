/*
** formula_small.c -- formulas of few elements, for which a plan of tiles would take longer than the elements.
**
** The rows' loops run one after the other over blocks. The block of each value is settled when the formula is
** defined; a row may write over an operand that ends with it. The loops are those of tiles, so the bits are the same.
*/
#include "formula_values.h"

enum { MOST = 1024, BLOCK = 512, BLOCKS = 12 };

/* Rows of floats alone. */
static bool is_plain(const fl_formula_node *node)
{
    const fl_ew_row *row = &fl_ew_rows[node->index];
    return row->mask < 0 && row->rule != FL_EW_LOGIC && !fl_ew_is_predicate(row->rule);
}

/* A free block, the first of them; BLOCKS: there is none. */
static int take_block(uint32_t *taken)
{
    int block = __builtin_ctz(~*taken);
    *taken |= 1u << block;
    return block;
}

/* Position of the last row that reads the value of node i. */
static int last_use(const fl_formula *formula, int i)
{
    int last = i;
    for (int k = i + 1; k < formula->count; k++)
        for (int j = 0; j < formula->nodes[k].nin; j++)
            if (formula->nodes[k].in[j] == i) last = k;
    return last;
}

/* True if a row other than of logic computes with results of comparisons alone. */
static bool joins_tests(const fl_formula *formula)
{
    bool tests[FL_FORMULA_NODES] = {false}, joins = false;
    for (int i = 0; i < formula->count; i++) {
        const fl_formula_node *node = &formula->nodes[i];
        if (node->kind != FL_FORMULA_ROW) continue;
        const fl_ew_row *row = &fl_ew_rows[node->index];
        bool test = row->rule == FL_EW_LOGIC || fl_ew_is_predicate(row->rule), all = true;
        for (int k = 0; k < node->nin; k++) all = all && (k == row->mask || tests[node->in[k]]);
        tests[i] = test || all;
        joins = joins || (all && !test);
    }
    return joins;
}

void fl_formula_settle(fl_formula *formula)
{
    uint32_t taken = 0;
    formula->joins_tests = joins_tests(formula);
    formula->is_small = true;
    for (int i = 0; i < formula->count && formula->is_small; i++) {
        fl_formula_node *node = &formula->nodes[i];
        if (node->kind == FL_FORMULA_ROW) {
            formula->is_small = is_plain(node);
            for (int k = 0; k < node->nin; k++) {
                const fl_formula_node *in = &formula->nodes[node->in[k]];
                if (in->kind == FL_FORMULA_ROW && last_use(formula, node->in[k]) == i) taken &= ~(1u << in->block);
            }
        }
        node->block = (int8_t)take_block(&taken); /* of others: where they are numbers, for the whole call */
        formula->is_small = formula->is_small && node->block < BLOCKS;
    }
}

/* True if the operand's elements lie as those of the result. */
static bool lies_alike(const fl_view *in, const fl_view *out)
{
    return in->data == in->scalar || (in->dtype == out->dtype && in->contiguous && in->numel == out->numel);
}

static bool is_for_small(const fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    if (!kernel->op->formula->is_small || out->numel > MOST || !out->contiguous) return false;
    if (out->dtype != FL_FLOAT32 && out->dtype != FL_FLOAT64) return false;
    for (int i = 0; i < kernel->nin; i++)
        if (!lies_alike(&kernel->in[i], out)) return false;
    return true;
}

static double number_of(const fl_view *view)
{
    switch (view->dtype) {
    case FL_FLOAT32: return *(const float *)view->data;
    case FL_FLOAT64: return *(const double *)view->data;
    case FL_BOOL: return *(const uint8_t *)view->data;
    default: return (double)view->scalar[0];
    }
}

/* A call while its blocks are computed. */
struct run {
    const fl_kernel *kernel;
    fl_formula_value values[FL_FORMULA_NODES];
    const char *places[FL_FORMULA_NODES];
    char *memory; /* the blocks, of so many bytes each */
    size_t bytes;
};

static char *block_of(const struct run *run, int node)
{
    return run->memory + (size_t)run->kernel->op->formula->nodes[node].block * run->bytes;
}

static size_t block_count(const fl_formula *formula)
{
    int last = 0;
    for (int i = 0; i < formula->count; i++)
        if (formula->nodes[i].block > last) last = formula->nodes[i].block;
    return (size_t)last + 1;
}

static size_t block_bytes(const fl_view *out)
{
    int64_t n = out->numel < BLOCK ? out->numel : BLOCK;
    return ((size_t)n * fl_dtype_size(out->dtype) + 63) & ~(size_t)63;
}

/* Finds the values that are numbers, and clears the addresses of blocks. */
static void begin(struct run *run)
{
    const fl_formula *formula = run->kernel->op->formula;
    for (int i = 0; i < formula->count; i++) {
        const fl_formula_node *node = &formula->nodes[i];
        fl_formula_value *value = &run->values[i];
        run->places[i] = NULL;
        value->is_number = node->kind != FL_FORMULA_OPERAND;
        value->number = node->number;
        if (node->kind == FL_FORMULA_ATTR) value->number = fl_attr_number(&run->kernel->attrs->at[node->index]);
        if (node->kind == FL_FORMULA_OPERAND) {
            const fl_view *view = &run->kernel->in[node->index];
            value->is_number = view->data == view->scalar;
            if (value->is_number) value->number = number_of(view);
        } else if (node->kind == FL_FORMULA_ROW) {
            value->is_number = fl_formula_all_numbers(node, run->values);
            if (value->is_number) value->number = fl_formula_number(node, run->values);
        }
    }
}

/* The address of elements [first, first + n) of the row's operand. */
static const char *operand(struct run *run, int i, int64_t first, int64_t n, fl_dtype dtype)
{
    const fl_formula_node *node = &run->kernel->op->formula->nodes[i];
    if (!run->values[i].is_number) {
        if (node->kind == FL_FORMULA_ROW) return run->places[i];
        return (const char *)run->kernel->in[node->index].data + first * (int64_t)fl_dtype_size(dtype);
    }
    if (!run->places[i]) {
        char *block = block_of(run, i);
        fl_cpu_repeat_number(block, run->values[i].number, dtype, n);
        run->places[i] = block;
    }
    return run->places[i];
}

/* The destination of a row's value: a further result, or its block. */
static char *place_of(const struct run *run, int i, int64_t first)
{
    const fl_kernel *kernel = run->kernel;
    for (int k = 1; k < kernel->nout; k++)
        if (kernel->op->formula->kept[k - 1] == i)
            return (char *)kernel->out[k].data + first * (int64_t)fl_dtype_size(kernel->out[k].dtype);
    return block_of(run, i);
}

static void run_block(struct run *run, int64_t first, int64_t n)
{
    const fl_formula *formula = run->kernel->op->formula;
    const fl_view *out = &run->kernel->out[0];
    char *result = (char *)out->data + first * (int64_t)fl_dtype_size(out->dtype);
    int last = formula->count - 1;
    for (int i = 0; i <= last; i++) {
        const fl_formula_node *node = &formula->nodes[i];
        if (node->kind == FL_FORMULA_ROW) run->places[i] = NULL; /* other values have lain in its block since */
        if (node->kind != FL_FORMULA_ROW || run->values[i].is_number) continue;
        const void *in[FL_FORMULA_IN];
        fl_ew_attr attrs[FL_FORMULA_ATTRS];
        int same = i < last ? fl_formula_same(node, run->values) : -1;
        if (same >= 0 && formula->nodes[same].kind == FL_FORMULA_OPERAND) {
            run->places[i] = operand(run, same, first, n, out->dtype);
            continue;
        }
        for (int k = 0; k < node->nin; k++) in[k] = operand(run, node->in[k], first, n, out->dtype);
        fl_formula_attributes(attrs, node, run->values);
        char *to = i == last ? result : place_of(run, i, first);
        (*FL_BY_LEVEL(fl_ew_loops))[node->index][out->dtype](to, in, n, attrs);
        run->places[i] = to;
    }
    if (run->values[last].is_number) fl_cpu_repeat_number(result, run->values[last].number, out->dtype, n);
    else if (formula->nodes[last].kind != FL_FORMULA_ROW)
        memcpy(result, operand(run, last, first, n, out->dtype), (size_t)n * fl_dtype_size(out->dtype));
}

bool fl_formula_run_small(fl_kernel *kernel)
{
    if (!is_for_small(kernel)) return false;
    if (kernel->out[0].numel == 0) return true;
    struct run run = {.kernel = kernel, .bytes = block_bytes(&kernel->out[0])};
    char memory[block_count(kernel->op->formula) * run.bytes] __attribute__((aligned(64)));
    run.memory = memory;
    begin(&run);
    for (int64_t first = 0; first < kernel->out[0].numel; first += BLOCK) {
        int64_t rest = kernel->out[0].numel - first;
        run_block(&run, first, rest < BLOCK ? rest : BLOCK);
    }
    return true;
}

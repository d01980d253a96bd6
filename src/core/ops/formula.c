/*
** formula.c -- formulas of scripts: a list of rows becomes tiles (cpu/tiles.h), whatever the size.
**
** Values between the rows stay in the caches, or on a device in the registers of one generated kernel, and have the
** precision that the rows compute in. Rows of numbers alone are computed once, in float64. If results are large
** enough to be deferred, the rows are dispatched instead, so that one pass takes the neighbours, too.
*/
#include "op/formula.h"
#include "cpu/tiles.h"
#include "dispatch/record.h"
#include "formula_values.h"
#include "memory/device.h"
#include "ops.h"

#include <math.h>

static bool needs_dtypes(const fl_infer *infer)
{
    const fl_formula *formula = infer->op->formula;
    const fl_formula_node *last = &formula->nodes[formula->count - 1];
    if (formula->joins_tests) return true;
    for (int i = 0; i < infer->nin; i++)
        if (infer->in[i].kind == FL_TENSOR && !fl_dtype_is_float(infer->in[i].dtype)) return true;
    return last->kind == FL_FORMULA_ROW && fl_ew_is_predicate(fl_ew_rows[last->index].rule);
}

static fl_spec spec_of(const fl_formula_node *node, const fl_infer *infer)
{
    bool integer = node->is_integer;
    if (node->kind == FL_FORMULA_OPERAND) return infer->in[node->index];
    if (node->kind == FL_FORMULA_ATTR) integer = infer->attrs->at[node->index].kind == FL_NUM_INT;
    return integer ? (fl_spec){.kind = FL_NUM_INT, .dtype = FL_INT64}
                   : (fl_spec){.kind = FL_NUM_FLOAT, .dtype = fl_dtype_default};
}

/* The spec of a row from those of its operands, by the row's own inference. *as_ops: integers are computed. */
static bool infer_row(fl_spec *out, const fl_formula_node *node, const fl_spec *specs, bool *as_ops)
{
    fl_spec in[FL_FORMULA_IN];
    fl_attrs attrs;
    bool tensors = false, integers = false;
    fl_attrs_init(&attrs, node->op);
    for (int i = 0; i < FL_FORMULA_ATTRS; i++)
        if (node->attrs[i] >= 0) fl_attr_set_number(&attrs, i, 0);
    for (int i = 0; i < node->nin; i++) {
        in[i] = specs[node->in[i]];
        tensors = tensors || in[i].kind == FL_TENSOR;
        integers = integers || (in[i].kind == FL_TENSOR && fl_dtype_is_integer(in[i].dtype));
    }
    *out = (fl_spec){.kind = FL_NUM_FLOAT, .dtype = fl_dtype_default};
    if (!tensors) return true;
    fl_infer row = {.op = node->op, .name = node->op->name, .attrs = &attrs, .in = in, .nin = node->nin, .nout = 1};
    row.out[0].kind = FL_TENSOR;
    if (node->op->infer(&row) != FL_OK) return false;
    *out = row.out[0];
    bool test = fl_ew_is_predicate(fl_ew_rows[node->index].rule);
    *as_ops = *as_ops || (test ? integers : !fl_dtype_is_float(out->dtype));
    return true;
}

/* The dtype that the rows give one by one, which is left as it is where they cannot be dispatched so. */
static void infer_dtype(fl_infer *infer)
{
    const fl_formula *formula = infer->op->formula;
    fl_spec specs[FL_FORMULA_NODES] = {{.kind = FL_NONE}};
    bool as_ops = false;
    for (int i = 0; i < formula->count; i++) {
        const fl_formula_node *node = &formula->nodes[i];
        if (node->kind != FL_FORMULA_ROW) specs[i] = spec_of(node, infer);
        else if (!infer_row(&specs[i], node, specs, &as_ops)) return;
    }
    fl_dtype dtype = specs[formula->count - 1].dtype;
    if (specs[formula->count - 1].kind != FL_TENSOR) return;
    infer->out[0].dtype = dtype;
    infer->as_ops = as_ops || !fl_dtype_is_float(dtype);
}

fl_status fl_formula_infer(fl_infer *infer)
{
    fl_shape shape = {0, {0}};
    for (int i = 0; i < infer->nin; i++)
        if (infer->in[i].kind == FL_TENSOR)
            FL_TRY(fl_shape_broadcast(&shape, infer->name, &shape, &infer->in[i].shape));
    fl_dtype dtype = fl_dtype_to_float(fl_infer_promote(infer));
    for (int i = 0; i < infer->nout; i++) {
        infer->out[i].shape = shape;
        infer->out[i].dtype = dtype;
    }
    if (needs_dtypes(infer)) infer_dtype(infer);
    return FL_OK;
}

void fl_formula_sbp(fl_sigs *sigs)
{
    if (sigs->op->formula->linear) fl_sbp_linear(sigs);
    else fl_sbp_elementwise(sigs);
}

const fl_op *fl_formula_row(const char *name)
{
    const fl_op *op = fl_op_find(name);
    if (!op || !op->row) return NULL;
    const fl_ew_row *row = &fl_ew_rows[op->row];
    bool floats = row->categories >> fl_dtype_categories[FL_FLOAT32] & 1;
    return floats || row->rule == FL_EW_LOGIC ? op : NULL;
}

double fl_formula_cost(const fl_op *row) { return fl_ew_rows[row->row].cost_ns; }

double fl_formula_absent(const fl_op *row, int i)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, row);
    return i < attrs.count ? fl_ew_number(&attrs.at[i], i) : 0;
}

static int64_t nearest(double number)
{
    return number >= 0x1p63 ? INT64_MAX : number <= -0x1p63 ? INT64_MIN : number != number ? 0 : (int64_t)number;
}

void fl_formula_attributes(fl_ew_attr *attrs, const fl_formula_node *node, const fl_formula_value *values)
{
    for (int i = 0; i < FL_FORMULA_ATTRS; i++) {
        double number = node->attrs[i] < 0 ? node->absent[i] : values[node->attrs[i]].number;
        attrs[i] = (fl_ew_attr){number, nearest(number)};
    }
}

double fl_formula_number(const fl_formula_node *node, const fl_formula_value *values)
{
    const fl_ew_row *row = &fl_ew_rows[node->index];
    double numbers[FL_FORMULA_IN], result = 0;
    uint8_t conditions[FL_FORMULA_IN], truth = 0;
    const void *in[FL_FORMULA_IN];
    fl_ew_attr attrs[FL_FORMULA_ATTRS];
    bool logic = row->rule == FL_EW_LOGIC;
    fl_formula_attributes(attrs, node, values);
    for (int i = 0; i < node->nin; i++) {
        numbers[i] = values[node->in[i]].number;
        conditions[i] = numbers[i] != 0;
        in[i] = logic || i == row->mask ? (const void *)&conditions[i] : (const void *)&numbers[i];
    }
    bool test = fl_ew_is_predicate(row->rule);
    (*FL_BY_LEVEL(fl_ew_loops))[node->index][logic ? FL_BOOL : FL_FLOAT64](test ? (void *)&truth : (void *)&result, in,
                                                                           1, attrs);
    return test ? truth : result;
}

/* The slot of a node; a number becomes an operand of the dtype. */
static int slot_of(fl_tiles *tiles, fl_formula_value *value, fl_dtype compute)
{
    if (value->slot >= 0) return value->slot;
    fl_view view = {.ndim = 0, .dtype = compute};
    fl_operand number = fl_of_number(value->number);
    fl_view_of_number(&view, &number, compute);
    view.data = view.scalar;
    return value->slot = fl_tiles_operand(tiles, &view);
}

static int row_slot(fl_tiles *tiles, const fl_formula_node *node, fl_formula_value *values, fl_dtype compute)
{
    const fl_ew_row *row = &fl_ew_rows[node->index];
    fl_ew_attr attrs[FL_FORMULA_ATTRS];
    int in[FL_FORMULA_IN];
    fl_dtype dtype = row->rule == FL_EW_LOGIC ? FL_BOOL : compute;
    for (int i = 0; i < node->nin; i++) {
        in[i] = slot_of(tiles, &values[node->in[i]], compute);
        if (in[i] == FL_TILES_FULL) return FL_TILES_FULL;
    }
    fl_formula_attributes(attrs, node, values);
    return fl_tiles_row(tiles, node->index, dtype, fl_ew_is_predicate(row->rule) ? FL_BOOL : compute, attrs, in,
                        node->nin);
}

static void value_of(fl_formula_value *value, const fl_formula_node *node, const fl_kernel *kernel, fl_tiles *tiles)
{
    *value = (fl_formula_value){.slot = -1, .is_number = node->kind != FL_FORMULA_OPERAND, .number = node->number};
    if (node->kind == FL_FORMULA_ATTR) value->number = fl_attr_number(&kernel->attrs->at[node->index]);
    if (node->kind == FL_FORMULA_OPERAND) value->slot = fl_tiles_operand(tiles, &kernel->in[node->index]);
}

int fl_formula_same(const fl_formula_node *node, const fl_formula_value *values)
{
    if (node->index != FL_EW_mul && node->index != FL_EW_div) return -1;
    const fl_formula_value *x = &values[node->in[0]], *y = &values[node->in[1]];
    if (y->is_number && y->number == 1) return node->in[0];
    return node->index == FL_EW_mul && x->is_number && x->number == 1 ? node->in[1] : -1;
}

bool fl_formula_all_numbers(const fl_formula_node *node, const fl_formula_value *values)
{
    for (int i = 0; i < node->nin; i++)
        if (!values[node->in[i]].is_number) return false;
    return true;
}

/* Has the value of a node stored where a result is; FL_TILES_FULL: there is no room. */
static int store(fl_tiles *tiles, fl_formula_value *value, const fl_view *out, fl_dtype compute)
{
    int slot = slot_of(tiles, value, compute);
    if (slot != FL_TILES_FULL && !tiles->slots[slot].is_result) slot = fl_tiles_cast(tiles, slot, out->dtype);
    if (slot != FL_TILES_FULL) slot = fl_tiles_convert(tiles, slot, out->dtype);
    if (slot != FL_TILES_FULL) fl_tiles_store(tiles, slot, out->data);
    return slot;
}

/* The formula as tiles that give out[0], and what is kept. */
static fl_status build(fl_tiles *tiles, const fl_kernel *kernel)
{
    const fl_formula *formula = kernel->op->formula;
    const fl_view *out = &kernel->out[0];
    fl_dtype compute = fl_dtype_compute(out->dtype);
    fl_formula_value values[FL_FORMULA_NODES];
    fl_tiles_begin(tiles, out->ndim, out->size, out->stride);
    for (int i = 0; i < formula->count; i++) {
        const fl_formula_node *node = &formula->nodes[i];
        value_of(&values[i], node, kernel, tiles);
        if (node->kind != FL_FORMULA_ROW) continue;
        values[i].is_number = fl_formula_all_numbers(node, values);
        int same = fl_formula_same(node, values);
        if (values[i].is_number) values[i].number = fl_formula_number(node, values);
        else if (same >= 0) values[i].slot = slot_of(tiles, &values[same], compute);
        else if ((values[i].slot = row_slot(tiles, node, values, compute)) == FL_TILES_FULL)
            return fl_fail(FL_ERR_VALUE, "%s: its operands lie in memory in too many ways; make them contiguous",
                           kernel->name);
    }
    bool stored = store(tiles, &values[formula->count - 1], out, compute) != FL_TILES_FULL;
    for (int i = 1; i < kernel->nout && stored; i++)
        stored = store(tiles, &values[formula->kept[i - 1]], &kernel->out[i], compute) != FL_TILES_FULL;
    return stored ? FL_OK : fl_fail(FL_ERR_VALUE, "%s: the formula is too long", kernel->name);
}

/* ---- gradients ---- */

static fl_operand gradient_operand(const fl_grad *g, int i)
{
    if (i >= 0) return g->in[i];
    return fl_of(i == -1 ? g->gout[0] : g->out[-2 - i]);
}

static fl_status gradient_of(fl_tensor **out, const fl_formula_gradient *gradient, const fl_grad *g)
{
    fl_operand in[FL_MAX_PARAMS];
    fl_attrs attrs;
    fl_attrs_init(&attrs, gradient->op);
    for (int i = 0; i < gradient->nin; i++) in[i] = gradient_operand(g, gradient->in[i]);
    for (int i = 0; i < gradient->nattrs; i++)
        fl_attr_set_number(&attrs, i, fl_attr_number(&g->attrs->at[gradient->attrs[i]]));
    return fl_dispatch(out, gradient->op, in, gradient->nin, &attrs);
}

/* An op of one result: backward comes where its gradient is there. */
fl_status fl_formula_grad(fl_grad *g)
{
    const fl_formula *formula = g->op->formula;
    bool saved = g->op == formula->saving && !fl_grad_enabled;
    const fl_formula_gradient *gradients = saved ? formula->from_saved : formula->gradients;
    if (!gradients) return fl_fail(FL_ERR_STATE, "%s: the lua_State that defined this op is closed", g->op->name);
    for (int i = 0; i < g->nin; i++) {
        if (!g->need[i]) continue;
        if (gradients[i].is_given) g->gin[i] = fl_tensor_ref(g->gout[0]);
        else if (gradients[i].op) FL_TRY(gradient_of(&g->gin[i], &gradients[i], g));
    }
    return FL_OK;
}

/* ---- as ops ---- */

/* A value while the rows are dispatched: a tensor (owned where a row gave it) or a number. */
struct term {
    fl_operand operand;
    bool owned;
};

static double number_of(const fl_operand *operand)
{
    return operand->kind == FL_NUM_FLOAT ? operand->number : (double)operand->integer;
}

/* A product of floats with 1 is the other factor. */
static bool is_same(struct term *out, const fl_formula_node *node, const struct term *terms)
{
    fl_formula_value values[FL_FORMULA_NODES];
    for (int i = 0; i < node->nin; i++) {
        const fl_operand *operand = &terms[node->in[i]].operand;
        bool number = operand->kind != FL_TENSOR;
        if (!number && !fl_dtype_is_float(operand->tensor->meta->dtype)) return false;
        values[node->in[i]].is_number = number;
        values[node->in[i]].number = number ? number_of(operand) : 0;
    }
    int same = fl_formula_same(node, values);
    if (same < 0 || values[same].is_number) return false;
    *out = (struct term){terms[same].operand, false};
    return true;
}

static fl_status dispatch_row(struct term *out, const fl_formula_node *node, const struct term *terms)
{
    fl_operand in[FL_FORMULA_IN];
    fl_formula_value numbers[FL_FORMULA_NODES];
    bool tensors = false;
    for (int i = 0; i < node->nin; i++) {
        in[i] = terms[node->in[i]].operand;
        tensors = tensors || in[i].kind == FL_TENSOR;
        if (in[i].kind != FL_TENSOR) numbers[node->in[i]].number = number_of(&in[i]);
    }
    for (int i = 0; i < FL_FORMULA_ATTRS; i++)
        if (node->attrs[i] >= 0) numbers[node->attrs[i]].number = number_of(&terms[node->attrs[i]].operand);
    if (!tensors) {
        out->operand = fl_of_number(fl_formula_number(node, numbers));
        return FL_OK;
    }
    if (is_same(out, node, terms)) return FL_OK;
    const fl_op *op = node->op;
    fl_attrs attrs;
    fl_attrs_init(&attrs, op);
    for (int i = 0; i < FL_FORMULA_ATTRS; i++)
        if (node->attrs[i] >= 0) fl_attr_set_number(&attrs, i, numbers[node->attrs[i]].number);
    fl_tensor *result;
    FL_TRY(fl_dispatch(&result, op, in, node->nin, &attrs));
    *out = (struct term){fl_of(result), true};
    return FL_OK;
}

static fl_operand number_node(const fl_formula_node *node, const fl_attrs *attrs)
{
    const fl_attr *attr = node->kind == FL_FORMULA_ATTR ? &attrs->at[node->index] : NULL;
    double number = attr ? fl_attr_number(attr) : node->number;
    bool integer = attr ? attr->kind == FL_NUM_INT : node->is_integer;
    return integer && fabs(number) < 0x1p63 ? fl_of_integer((int64_t)number) : fl_of_number(number);
}

fl_status fl_formula_compute(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_formula *formula = op->formula;
    struct term terms[FL_FORMULA_NODES] = {{{FL_NONE, {0}}, false}};
    fl_status status = FL_OK;
    int last = formula->count - 1;
    for (int i = 0; i <= last && status == FL_OK; i++) {
        const fl_formula_node *node = &formula->nodes[i];
        if (node->kind == FL_FORMULA_ROW) status = dispatch_row(&terms[i], node, terms);
        else if (node->kind == FL_FORMULA_OPERAND) terms[i].operand = in[node->index];
        else terms[i].operand = number_node(node, attrs);
    }
    if (status == FL_OK && terms[last].owned) *out = fl_tensor_ref(terms[last].operand.tensor);
    else if (status == FL_OK) status = FL_CALL(out, clone, terms[last].operand);
    for (int i = 1; i < op->nout && status == FL_OK; i++)
        out[i] = fl_tensor_ref(terms[formula->kept[i - 1]].operand.tensor);
    for (int i = 0; i <= last; i++)
        if (terms[i].owned) fl_tensor_unref(terms[i].operand.tensor);
    return status;
}

/* ---- as one kernel ---- */

fl_status fl_formula_kernel(fl_kernel *kernel)
{
    fl_tiles tiles;
    if (kernel->out[0].numel == 0 || fl_formula_run_small(kernel)) return FL_OK;
    FL_TRY(build(&tiles, kernel));
    fl_tiles_run(&tiles);
    return FL_OK;
}

fl_status fl_formula_on_device(fl_kernel *kernel)
{
    fl_tiles tiles;
    const fl_device *device;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_device_get(&device, FL_CUDA));
    if (!device->tiles) return fl_fail(FL_ERR_MISSING, "%s: %s runs no formulas", kernel->name, device->name);
    FL_TRY(build(&tiles, kernel));
    return device->tiles(&tiles, kernel->name);
}

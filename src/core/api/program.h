/*
** program.h -- a program as a file has it (program_read.c), for its runs (program.c).
*/
#ifndef FL_API_PROGRAM_H
#define FL_API_PROGRAM_H

#include "api.h"

/* A value: an operand or a result of a step or of the program. All texts are borrowed from the file. */
typedef struct fl_program_value {
    const char *name;
    fl_dtype dtype;
    fl_shape shape;
    const char *placement, *sbp; /* "cpu {0, 1}" and "S(0), B", owned by the block; NULL: local */
} fl_program_value;

/* An input, a weight or an output. */
typedef struct fl_program_entry {
    const char *name;
    int value;
    bool requires_grad;
    fl_tensor *tensor; /* owned, of a weight */
} fl_program_entry;

typedef struct fl_program_operand {
    int value; /* -1: `number`, or nothing */
    flow_arg number;
} fl_program_operand;

typedef struct fl_program_step {
    const char *op; /* "add_": in place */
    bool no_grad, undraws, detaches;
    fl_program_operand *in;
    flow_arg *named; /* attributes and options */
    int *out, *draws;
    int nin, nnamed, nout, ndraws, redraws; /* redraws: a number of draws, 0: none */
} fl_program_step;

struct flow_program {
    fl_safetensors *file; /* owned, as all below */
    struct json_t *tree;
    struct fl_program_block *blocks; /* memory of the arrays */
    fl_program_value *values;
    fl_program_entry *inputs, *weights, *outputs;
    fl_program_step *steps;
    int value_count, input_count, weight_count, output_count, step_count, draw_count;
};

/* The list of a file, checked; the weights are not read yet. */
fl_status fl_program_read(flow_program **out, const char *path);

/* Memory that lives as long as the program, zeroed; NULL: there is none. */
void *fl_program_memory(flow_program *program, size_t size);

#endif

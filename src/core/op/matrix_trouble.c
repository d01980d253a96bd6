/*
** matrix_trouble.c -- what is wrong with a matrix: see matrix_trouble.h.
*/
#include "matrix_trouble.h"

#include <stdio.h>
#include <string.h>

void fl_matrix_trouble_of(fl_matrix_trouble *out, const char *name, const char *trouble, const fl_view *a)
{
    memset(out, 0, sizeof *out);
    out->name = name;
    out->trouble = trouble;
    out->batch = a->ndim - 2;
    for (int axis = 0; axis < out->batch; axis++) {
        out->size[axis] = a->size[axis];
        out->start[axis] = a->start[axis];
        out->logical[axis] = a->logical[axis];
    }
}

/* The number in the whole batch of matrix i of this rank's part. */
static int64_t number_in_batch(const fl_matrix_trouble *trouble, int64_t i)
{
    int64_t number = 0, step = 1;
    for (int axis = trouble->batch - 1; axis >= 0; axis--) {
        number += (i % trouble->size[axis] + trouble->start[axis]) * step;
        i /= trouble->size[axis];
        step *= trouble->logical[axis];
    }
    return number;
}

void fl_matrix_trouble_text(char *text, size_t size, const fl_matrix_trouble *t, int64_t matrix, int code)
{
    char which[48] = "the matrix", what[128];
    const char *trouble = t->trouble;
    if (t->batch > 0) snprintf(which, sizeof which, "matrix %lld of the batch", (long long)number_in_batch(t, matrix));
    if (code == FL_MATRIX_NOT_FINITE) trouble = "has elements that are NaN or infinite";
    else if (code == FL_MATRIX_COMPLEX) trouble = "has complex eigenvalues, and there are no complex tensors";
    snprintf(what, sizeof what, trouble, code);
    snprintf(text, size, "%s: %s %s", t->name, which, what);
}

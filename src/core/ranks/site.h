/*
** site.h -- the collective that a rank enters, and the line that calls it: for messages and fingerprints.
*/
#ifndef FL_SITE_H
#define FL_SITE_H

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"
#include "value/sbp.h"

#include <stdint.h>

enum { FL_WHERE_TEXT = 64, FL_COLLECTIVE_NAME = 24 };

/* A collective in numbers; the text is made only for a message. */
typedef struct fl_collective {
    char name[FL_COLLECTIVE_NAME]; /* "all-reduce", "barrier"; "": nothing yet */
    fl_shape shape;                /* of the tensor; ndim -1: no tensor is concerned */
    uint8_t dtype;
    fl_nd_sbp from, to;
    char where[FL_WHERE_TEXT]; /* "train.lua:41"; not part of the fingerprint */
} fl_collective;

/* Equal on members that enter the same collective. tag: a hash of all else that must be equal, see fl_entry. */
uint64_t fl_fingerprint(const fl_collective *collective, uint64_t tag);

/* "all-reduce of float32[8, 6], P -> B" */
enum { FL_COLLECTIVE_TEXT = 512 };
FL_EXPORT const char *fl_collective_text(char *buffer, const fl_collective *collective);

/* "all-reduce of float32[8, 6], P -> B (train.lua:41)" */
const char *fl_collective_at(char *buffer, const fl_collective *collective);

#endif

/*
** sbp.h -- SBPs: the distribution of a tensor over the ranks of a placement, one for each axis of the hierarchy.
**
** An fl_sbp is one byte and an fl_nd_sbp eight, so they are compared and hashed as integers.
*/
#ifndef FL_SBP_H
#define FL_SBP_H

#include <stdbool.h>
#include <stdint.h>

enum { FL_MAX_HIERARCHY = 7 }; /* axes of a placement */

typedef uint8_t fl_sbp;
enum { /* 0..7: S(axis) */
       FL_B = 0x10,
       FL_PSUM = 0x20,
       FL_PMAX = 0x21,
       FL_PMIN = 0x22
};
#define FL_S(axis) ((fl_sbp)(axis))
static inline bool fl_sbp_is_split(fl_sbp sbp) { return sbp < 0x10; }
static inline bool fl_sbp_is_partial(fl_sbp sbp) { return (sbp & 0x20) != 0; }

typedef struct fl_nd_sbp {
    uint8_t n;                   /* = ndim of the placement's hierarchy */
    fl_sbp at[FL_MAX_HIERARCHY]; /* entries from n on are 0 */
} fl_nd_sbp;

static inline uint64_t fl_nd_sbp_bits(fl_nd_sbp nd_sbp)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &nd_sbp, sizeof bits);
    return bits;
}
static inline bool fl_nd_sbp_equal(fl_nd_sbp a, fl_nd_sbp b) { return fl_nd_sbp_bits(a) == fl_nd_sbp_bits(b); }

/* n entries all equal to s. */
fl_nd_sbp fl_nd_sbp_fill(fl_sbp sbp, int n);

/* "S(0)", "B", "P", "P(max)", "P(min)"; "P(sum)" is read as well, and S(-1) when ndim (of the tensor) is known: pass 0
** when it is not. false when it is none of these; an axis the tensor lacks is fl_meta_get's error. */
bool fl_sbp_parse(fl_sbp *out, const char *text, int ndim);

/* "S(0)" */
enum { FL_SBP_TEXT = 16, FL_ND_SBP_TEXT = 128 };
const char *fl_sbp_text(char *buffer, fl_sbp sbp);

/* "S(0)" for one axis, "(S(0), B)" for more. */
const char *fl_nd_sbp_text(char *buffer, fl_nd_sbp nd_sbp);

/* As scripts write it: `"S(0)"`, `{"S(0)", "B"}`. */
enum { FL_ND_SBP_SOURCE = FL_ND_SBP_TEXT + 2 * FL_MAX_HIERARCHY };
const char *fl_nd_sbp_source(char *buffer, fl_nd_sbp nd_sbp);

/* P, P(max) and P(min) replaced by B: the SBP of the value once it is reduced, and of its gradient. */
fl_nd_sbp fl_nd_sbp_reduced(fl_nd_sbp nd_sbp);

/* s for a hierarchy of n axes: the first of its entries, then B. */
fl_nd_sbp fl_nd_sbp_fit(fl_nd_sbp nd_sbp, int n);

#endif

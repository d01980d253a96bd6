/*
** compress.lv.c -- the loops of 2-bit compression, once per level.
*/
#include "compress.h"
#include "op/compress.h"

#include <math.h>
#include <string.h>

enum { TILE = 1024 };

/* The values of the four codes of a byte, in thresholds. A NaN stays one in every sum. */
#define MEANING(code) \
    ((code) == FL_2BIT_PLUS ? 1.0f : (code) == FL_2BIT_MINUS ? -1.0f : (code) == FL_2BIT_NAN ? (float)NAN : 0.0f)
#define BYTE(b)                                                                             \
    {                                                                                       \
        MEANING((b)&3), MEANING((b) >> 2 & 3), MEANING((b) >> 4 & 3), MEANING((b) >> 6 & 3) \
    }
#define BYTES_4(b) BYTE(b), BYTE((b) + 1), BYTE((b) + 2), BYTE((b) + 3)
#define BYTES_16(b) BYTES_4(b), BYTES_4((b) + 4), BYTES_4((b) + 8), BYTES_4((b) + 12)
#define BYTES_64(b) BYTES_16(b), BYTES_16((b) + 16), BYTES_16((b) + 32), BYTES_16((b) + 48)
static const float meanings[256][4] = {BYTES_64(0), BYTES_64(64), BYTES_64(128), BYTES_64(192)};

/* Eight codes of a byte each in 16 bits, the first in the lowest. */
static inline uint32_t packed(const uint8_t *codes)
{
    uint64_t bits;
    memcpy(&bits, codes, sizeof bits);
    bits = (bits | bits >> 6) & 0x000f000f000f000full;
    bits = (bits | bits >> 12) & 0x000000ff000000ffull;
    return (uint32_t)((bits | bits >> 24) & 0xffff);
}

#define T float
#define FN(name) FL_PASTE(name, f32)
#include "compress.inc"

#define T double
#define FN(name) FL_PASTE(name, f64)
#include "compress.inc"

const fl_compress_table FL_LV(fl_compress_table) = {{{compress_f32, expand_f32}, {compress_f64, expand_f64}}};

/*
** json.h -- reading JSON as RFC 8259 has it: headers of files and flow.json.decode go through here.
**
** jansson reads: integers exactly to 64 bits, every string checked to be UTF-8, no key twice, the order of keys kept.
** A number beyond int64 or float64 is an error, and so is a NUL in a key.
*/
#ifndef FL_JSON_H
#define FL_JSON_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct json_t json_t; /* of jansson.h, which whoever looks into a value includes */

enum { FL_JSON_DEPTH = 200 }; /* of lists and objects in each other */

/* The limits of a text, besides those of JSON. */
typedef struct fl_json_limits {
    size_t values; /* at most; 0: as many as there are */
    bool no_nul;   /* strings cannot hold \u0000 */
} fl_json_limits;

/* Reads a text that is one value; json_decref frees *out. Errors: FL_ERR_IO with what is wrong and where,
** "':' expected near '5' at byte 6 (line 1)"; FL_ERR_MEMORY. */
fl_status fl_json_read(json_t **out, const char *text, size_t size, fl_json_limits limits);

#endif

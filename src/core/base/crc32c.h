/*
** crc32c.h -- the checksum of iSCSI, ext4 and RecordIO: CRC-32 with Castagnoli's polynomial, by the CPU's own
** instructions where it has them.
*/
#ifndef FL_CRC32C_H
#define FL_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of bytes that follow those with checksum `before`; 0 for the first ones. Any thread. */
uint32_t fl_crc32c(uint32_t before, const void *data, size_t bytes);

/* The same, and copies the bytes to `to`, which does not overlap them (NULL: nothing is copied): both cost little more
** than the slower one. next: data that will be read after them, in memory that is far away; they are prefetched
** meanwhile. NULL: not known. */
uint32_t fl_crc32c_copy(uint32_t before, void *to, const void *data, size_t bytes, const void *next);

/* The same by method `method` of those the CPU has, from the slowest on, for tests; NULL: there are no more. */
typedef uint32_t fl_crc32c_method(uint32_t before, void *to, const void *data, size_t bytes, const void *next);
fl_crc32c_method *fl_crc32c_methods(int method);

#endif

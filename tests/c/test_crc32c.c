/*
** test_crc32c.c -- every method of the checksum gives what the definition, bit by bit, does.
*/
#include "check.h"
#include "core/base/crc32c.h"

#include <string.h>

static uint32_t by_definition(uint32_t before, const unsigned char *data, size_t bytes)
{
    uint32_t state = ~before;
    for (size_t i = 0; i < bytes; i++) {
        state ^= data[i];
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (0x82f63b78u & -(state & 1));
    }
    return ~state;
}

static void known_values(void)
{
    unsigned char zeros[32] = {0};
    for (int m = 0; fl_crc32c_methods(m); m++) {
        CHECK(fl_crc32c_methods(m)(0, NULL, "123456789", 9) == 0xe3069283u);
        CHECK(fl_crc32c_methods(m)(0, NULL, zeros, sizeof zeros) == 0x8a9136aau); /* RFC 3720, B.4 */
        CHECK(fl_crc32c_methods(m)(0, NULL, NULL, 0) == 0);
    }
}

enum { MOST = 10000 };

static void any_length_and_place(void)
{
    static unsigned char data[MOST + 8], copy[MOST + 24];
    for (int i = 0; i < MOST + 8; i++) data[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int m = 0; fl_crc32c_methods(m); m++) {
        int wrong = 0;
        for (size_t n = 0; n <= MOST; n += n < 600 ? 1 : 241) {
            const unsigned char *at = data + n % 8;
            unsigned char *to = copy + 8 + n % 5;
            memset(copy, 0xa5, sizeof copy);
            wrong += fl_crc32c_methods(m)(0, NULL, at, n) != by_definition(0, at, n);
            wrong += fl_crc32c_methods(m)((uint32_t)n, to, at, n) != by_definition((uint32_t)n, at, n);
            wrong += memcmp(to, at, n) != 0 || to[-1] != 0xa5 || to[n] != 0xa5;
        }
        CHECK(wrong == 0);
    }
}

static void parts_make_the_whole(void)
{
    unsigned char data[5000];
    memset(data, 7, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut += 499)
        CHECK(fl_crc32c(fl_crc32c(0, data, cut), data + cut, sizeof data - cut) == fl_crc32c(0, data, sizeof data));
}

int main(void)
{
    RUN(known_values);
    RUN(any_length_and_place);
    RUN(parts_make_the_whole);
    return finish();
}

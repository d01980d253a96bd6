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
    unsigned char zeros[32] = {0}, ones[32], up[32], down[32];
    /* a command of iSCSI that reads */
    static const unsigned char read_10[48] = {1, 0xc0, [16] = 0x14, [22] = 4, [27] = 0x14, [31] = 0x18, 0x28, [40] = 2};
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++) {
        up[i] = (unsigned char)i;
        down[i] = (unsigned char)(31 - i);
    }
    for (int m = 0; fl_crc32c_methods(m); m++) {
        CHECK(fl_crc32c_methods(m)(0, NULL, "123456789", 9, NULL) == 0xe3069283u);
        /* RFC 3720, B.4 */
        CHECK(fl_crc32c_methods(m)(0, NULL, zeros, sizeof zeros, NULL) == 0x8a9136aau);
        CHECK(fl_crc32c_methods(m)(0, NULL, ones, sizeof ones, NULL) == 0x62a8ab43u);
        CHECK(fl_crc32c_methods(m)(0, NULL, up, sizeof up, NULL) == 0x46dd794eu);
        CHECK(fl_crc32c_methods(m)(0, NULL, down, sizeof down, NULL) == 0x113fdb5cu);
        CHECK(fl_crc32c_methods(m)(0, NULL, read_10, sizeof read_10, NULL) == 0xd9963a56u);
        CHECK(fl_crc32c_methods(m)(0, NULL, NULL, 0, NULL) == 0);
    }
}

enum { MOST = 10000 };

/* Also with bytes that are asked for meanwhile, far past the end of theirs. */

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
            wrong += fl_crc32c_methods(m)(0, NULL, at, n, n % 3 ? NULL : data) != by_definition(0, at, n);
            wrong += fl_crc32c_methods(m)((uint32_t)n, to, at, n, n % 2 ? data + MOST : NULL)
                != by_definition((uint32_t)n, at, n);
            wrong += memcmp(to, at, n) != 0 || to[-1] != 0xa5 || to[n] != 0xa5;
        }
        CHECK(wrong == 0);
    }
}

/* Lengths and places by chance, with copies: as the tables. */
static void as_the_tables(void)
{
    static unsigned char data[70000], copy[70000];
    uint32_t chance = 1;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)((chance = chance * 1664525u + 1013904223u) >> 24);
    for (int m = 1; fl_crc32c_methods(m); m++) {
        int wrong = 0;
        for (int i = 0; i < 1000; i++) {
            size_t most = (size_t)64 << (i % 11), n, place, to;
            n = (chance = chance * 1664525u + 1013904223u) % most;
            place = (chance = chance * 1664525u + 1013904223u) % (sizeof data - n);
            to = (chance = chance * 1664525u + 1013904223u) % (sizeof copy - n);
            uint32_t is = fl_crc32c_methods(m)(chance, copy + to, data + place, n, data);
            wrong += is != fl_crc32c_methods(0)(chance, NULL, data + place, n, NULL);
            wrong += memcmp(copy + to, data + place, n) != 0;
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
    RUN(as_the_tables);
    RUN(parts_make_the_whole);
    return finish();
}

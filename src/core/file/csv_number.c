/*
** csv_number.c -- decimal numbers as doubles, and times as seconds (see csv_number.h).
**
** A number is digits times a power of ten. Up to 19 digits fit into 64 bits; with a power up to 27, of which only that
** of five needs digits (below 2^63), product and quotient are exact in 128 bits, and are rounded once. Longer numbers
** go to strtod.
*/
#define _GNU_SOURCE /* strtod_l */
#include "csv_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef unsigned __int128 wide;

enum { DIGITS = 19, EXACT = 22, POWERS = 27, EXPONENT = 100000, LONGEST = 400 };

static const double tens[EXACT + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static uint64_t power_of_five(int n)
{
    static const uint64_t low[] = {1,     5,      25,      125,     625,      3125,      15625,
                                   78125, 390625, 1953125, 9765625, 48828125, 244140625, 1220703125};
    return n <= 13 ? low[n] : low[13] * low[n - 13 <= 13 ? n - 13 : 13] * (n > 26 ? 5 : 1);
}

/* value * 2^exponent; sticky: there was a bit below. value has more than 53 bits or is exact. */
static double round_wide(wide value, bool sticky, int exponent)
{
    uint64_t high = (uint64_t)(value >> 64);
    int bits = high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll((uint64_t)value | 1), shift = bits - 53;
    if (shift <= 0) return ldexp((double)(uint64_t)value, exponent);
    wide half = (wide)1 << (shift - 1), rest = value & ((half << 1) - 1);
    uint64_t mantissa = (uint64_t)(value >> shift);
    if (rest > half || (rest == half && (sticky || mantissa & 1))) mantissa++;
    return ldexp((double)mantissa, shift + exponent);
}

/* digits * 10^power, |power| <= POWERS */
static double scale(uint64_t digits, int power)
{
    if (digits <= UINT64_C(1) << 53 && power >= -EXACT && power <= EXACT)
        return power < 0 ? (double)digits / tens[-power] : (double)digits * tens[power];
    if (power >= 0) return round_wide((wide)digits * power_of_five(power), false, power);
    int shift = __builtin_clzll(digits);
    wide dividend = (wide)(digits << shift) << 64, divisor = power_of_five(-power), quotient = dividend / divisor;
    return round_wide(quotient, quotient * divisor != dividend, power - 64 - shift);
}

/* The bytes from text to end by strtod, with a point. */
static double read_slowly(const char *text, const char *end, char decimal, locale_t plain)
{
    char buffer[LONGEST];
    size_t size = (size_t)(end - text);
    if (size >= LONGEST) {
        char *copy = strndup(text, size), *point = copy && decimal != '.' ? strchr(copy, decimal) : NULL;
        if (point) *point = '.';
        double value = copy ? strtod_l(copy, NULL, plain) : NAN;
        free(copy);
        return value;
    }
    memcpy(buffer, text, size);
    buffer[size] = '\0';
    char *point = decimal != '.' ? strchr(buffer, decimal) : NULL;
    if (point) *point = '.';
    return strtod_l(buffer, NULL, plain);
}

static const char *word_read(fl_number *out, const char *text, bool negative)
{
    static const struct {
        const char *word;
        int size;
        double value;
    } words[] = {{"infinity", 8, INFINITY}, {"inf", 3, INFINITY}, {"nan", 3, NAN}};
    for (int i = 0; i < 3; i++)
        if (strncasecmp(text, words[i].word, (size_t)words[i].size) == 0) {
            *out = (fl_number){false, 0, negative ? -words[i].value : words[i].value};
            return text + words[i].size;
        }
    return NULL;
}

/* The exponent behind e or E, which is left alone where no digit follows. */
static const char *exponent_read(int *power, const char *at)
{
    const char *digit = at + 1 + (at[1] == '+' || at[1] == '-');
    int exponent = 0;
    if (*digit < '0' || *digit > '9') return at;
    for (; *digit >= '0' && *digit <= '9'; digit++)
        if (exponent < EXPONENT) exponent = exponent * 10 + (*digit - '0');
    *power += at[1] == '-' ? -exponent : exponent;
    return digit;
}

const char *fl_number_read(fl_number *out, const char *text, char decimal, locale_t plain)
{
    bool negative = *text == '-', is_integer = true;
    const char *at = text + (negative || *text == '+'), *first = at;
    uint64_t digits = 0;
    while (*at == '0') at++;
    const char *from = at;
    for (; *at >= '0' && *at <= '9'; at++) digits = digits * 10 + (uint64_t)(*at - '0');
    int count = at - from > 1000 ? 1000 : (int)(at - from), power = 0;
    bool any = at > first;
    if (*at == decimal) {
        const char *point = ++at;
        if (count == 0)
            while (*at == '0') at++;
        from = at;
        for (; *at >= '0' && *at <= '9'; at++) digits = digits * 10 + (uint64_t)(*at - '0');
        count += at - from > 1000 ? 1000 : (int)(at - from);
        power = -(int)(at - point < EXPONENT ? at - point : EXPONENT);
        any = any || at > point;
        is_integer = false;
    }
    if (!any) return word_read(out, first, negative);
    if (*at == 'e' || *at == 'E') {
        const char *behind = exponent_read(&power, at);
        is_integer = is_integer && behind == at;
        at = behind;
    }
    bool fits = count <= DIGITS;
    if (is_integer && fits && digits <= (uint64_t)INT64_MAX + negative) {
        *out = (fl_number){true, negative ? (int64_t)(0 - digits) : (int64_t)digits,
                           negative ? -(double)digits : (double)digits};
        return at;
    }
    double value = 0;
    if (fits && (digits == 0 || (power >= -POWERS && power <= POWERS))) value = digits ? scale(digits, power) : 0;
    else value = read_slowly(first, at, decimal, plain);
    *out = (fl_number){false, 0, negative ? -value : value};
    return at;
}

/* ---- times ---- */

/* A number of `size` digits. */
static bool digits_read(int *out, const char **at, const char *end, int size)
{
    *out = 0;
    if (end - *at < size) return false;
    for (int i = 0; i < size; i++) {
        if ((*at)[i] < '0' || (*at)[i] > '9') return false;
        *out = *out * 10 + ((*at)[i] - '0');
    }
    *at += size;
    return true;
}

static bool mark_read(const char **at, const char *end, const char *marks)
{
    if (*at == end || !**at || !strchr(marks, **at)) return false;
    ++*at;
    return true;
}

/* Days from 1970-01-01 in the Gregorian calendar; years begin in March, so that the leap day is their last. */
static int64_t days_from(int year, int month, int day)
{
    int64_t y = year - (month <= 2), m = (month + 9) % 12;
    return y * 365 + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day - 1 - 719468;
}

static bool date_read(double *out, const char **at, const char *end)
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (!digits_read(&year, at, end, 4) || !mark_read(at, end, "-/") || !digits_read(&month, at, end, 2)
        || !mark_read(at, end, "-/") || !digits_read(&day, at, end, 2))
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (month < 1 || month > 12 || day < 1 || day > lengths[month - 1] + (leap && month == 2)) return false;
    *out = (double)days_from(year, month, day) * 86400;
    return true;
}

/* "+01:00", "-0530", "Z" */
static bool zone_read(double *out, const char **at, const char *end)
{
    int hours, minutes = 0;
    if (mark_read(at, end, "Zz")) return true;
    bool west = *at < end && **at == '-';
    if (!mark_read(at, end, "+-")) return false;
    if (!digits_read(&hours, at, end, 2)) return false;
    mark_read(at, end, ":");
    if (*at < end && !digits_read(&minutes, at, end, 2)) return false;
    *out += (west ? 60 : -60) * (hours * 60 + minutes);
    return hours < 24 && minutes < 60;
}

bool fl_time_read(double *out, const char *text, int64_t size)
{
    const char *at = text, *end = text + size;
    int hour, minute, second = 0;
    double value, fraction = 0, unit = 0.1;
    if (!date_read(&value, &at, end)) return false;
    if (at == end) {
        *out = value;
        return true;
    }
    if (!mark_read(&at, end, " Tt") || !digits_read(&hour, &at, end, 2) || !mark_read(&at, end, ":")
        || !digits_read(&minute, &at, end, 2))
        return false;
    if (mark_read(&at, end, ":") && !digits_read(&second, &at, end, 2)) return false;
    if (hour > 24 || minute > 59 || second > 60) return false;
    value += hour * 3600 + minute * 60 + second;
    if (mark_read(&at, end, "."))
        for (int digit; digits_read(&digit, &at, end, 1); unit /= 10) fraction += digit * unit;
    value += fraction;
    mark_read(&at, end, " ");
    if (at < end && !zone_read(&value, &at, end)) return false;
    *out = value;
    return at == end;
}

/*
** special.c -- special functions that are written in others.
*/
#include "composite.h"

#define HIDDEN_SAMPLES(...) SAMPLES(__VA_ARGS__), .flags = FL_OP_HIDDEN

FL_COMPOSITE(ndtr, "ndtr(x)", "erfc(x * -0.7071067811865476) * 0.5", HIDDEN_SAMPLES("flow.randn(3, 4)"),
             "Distribution function of the standard normal distribution.");
FL_COMPOSITE(spherical_j0, "spherical_j0(x)", "sinc(x * 0.3183098861837907)", HIDDEN_SAMPLES("flow.randn(3, 4)"),
             "sin(x) / x, 1 at 0.");
FL_COMPOSITE(ldexp, "ldexp(x, other)", "x * exp2(other)",
             SAMPLES("flow.randn(3, 4), flow.randn(3, 4)", "flow.randn(3, 4), flow.randint(-3, 4, {4})"),
             "x times 2 to the power other.");

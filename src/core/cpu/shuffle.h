/*
** shuffle.h -- lanes picked from two vectors, for gcc and clang.
**
** FL_SHUFFLE(a, b, pick, lanes): lane i of the result is lane pick[i] of a and b laid one after the other. The
** picks are constants after inlining, so both compilers turn this into the machine's permutations.
*/
#ifndef FL_CPU_SHUFFLE_H
#define FL_CPU_SHUFFLE_H

#if defined(__clang__)
#define FL_SHUFFLE(a, b, pick, lanes)                                                                            \
    ({                                                                                                           \
        __typeof__(a) a_ = (a), b_ = (b), r_ = a_;                                                               \
        __typeof__(pick) p_ = (pick);                                                                            \
        _Pragma("unroll") for (int i_ = 0; i_ < (lanes); i_++) r_[i_] = p_[i_] < (lanes) ? a_[p_[i_] % (lanes)]  \
                                                                                         : b_[p_[i_] % (lanes)]; \
        r_;                                                                                                      \
    })
#else
#define FL_SHUFFLE(a, b, pick, lanes) __builtin_shuffle((a), (b), (pick))
#endif

#endif

/*
** mma.cuh -- what attention uses of tensor cores, copies and powers, with the same meaning on the CPU.
**
** Fragments of mma.m16n8k16 (PTX ISA, "Matrix fragments"), lane = 4 * g + t: of A registers hold (row g or g + 8,
** columns 2t, 2t+1 or 8 more): {g, lower}, {g + 8, lower}, {g, upper}, {g + 8, upper}; of B (k 2t, 2t+1 or 8 more;
** column g); of C {g, 2t}, {g, 2t+1}, {g + 8, 2t}, {g + 8, 2t+1}.
*/
#ifndef FL_MMA_CUH
#define FL_MMA_CUH

#include "cuda.h"

#if !defined(FL_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define FL_TENSOR_CORES 1
#endif

/* ---- weights ---- */

/* 2^x, of which 16 bits are kept; 0 where it would not be a normal number. */
__device__ static inline float fl_two_to(float x)
{
#ifdef FL_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* ---- copies to shared memory ---- */

/* 16 bytes, zeros where there is nothing to read; visible after fl_copy_wait and a barrier. */
__device__ static inline void fl_copy16(void *shared, const void *from, bool exists)
{
#ifdef FL_TENSOR_CORES
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
                 "l"(from), "r"(exists ? 16 : 0)
                 : "memory");
#elif defined(FL_EMULATED)
    fl_emulated_copy16(shared, from, exists);
#else
    uint4 zero = {0, 0, 0, 0};
    *(uint4 *)shared = exists ? *(const uint4 *)from : zero;
#endif
}

/* The copies since the last call are a group. */
__device__ static inline void fl_copy_commit(void)
{
#ifdef FL_TENSOR_CORES
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(FL_EMULATED)
    fl_emulated_copy_commit();
#endif
}

/* All groups of this thread but the last N are there. */
template<int N>
__device__ static inline void fl_copy_wait(void)
{
#ifdef FL_TENSOR_CORES
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#elif defined(FL_EMULATED)
    fl_emulated_copy_wait(N);
#endif
}

/* ---- fragments ---- */

#ifdef FL_EMULATED

/* Lane l gives the address of row l % 8 of 8 x 8 matrix l / 8. */
template<bool TRANSPOSED>
static inline void fl_matrices_load(uint32_t (&out)[4], const void *row)
{
    int g = fl_emulated_lane() / 4, t = fl_emulated_lane() % 4;
    for (int i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (int c = 0; c < 2; c++) {
            int from = TRANSPOSED ? 2 * t + c : g, at = TRANSPOSED ? g : 2 * t + c;
            pair[c] = ((const uint16_t *)__shfl_sync(0xffffffffu, (uintptr_t)row, 8 * i + from))[at];
        }
        memcpy(&out[i], pair, sizeof pair);
    }
}

/* Lanes put their fragments here for each other, and what is in them as matrices. */
struct fl_emulated_fragments {
    uint32_t a[32][4], b[32][2];
};

template<typename T>
FL_EMULATED_UNSEEN static inline float fl_fragment_element(const uint32_t *words, int index)
{
    T values[2];
    memcpy((void *)values, &words[index / 2], sizeof values);
    return fl_load(values[index % 2]);
}

template<typename T>
FL_EMULATED_UNSEEN static inline void fl_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    static fl_emulated_fragments all[32];
    int lane = fl_emulated_lane(), g = lane / 4, t = lane % 4;
    fl_emulated_fragments *f = &all[threadIdx.x / 32];
    memcpy(f->a[lane], a, sizeof a);
    f->b[lane][0] = b0;
    f->b[lane][1] = b1;
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        int row = g + 8 * (i / 2), column = 2 * t + i % 2;
        for (int k = 0; k < 16; k++) {
            int pair = k % 8 / 2, a_word = row / 8 + 2 * (k / 8), b_word = k / 8;
            c[i] += fl_fragment_element<T>(f->a[4 * (row % 8) + pair], 2 * a_word + k % 2)
                * fl_fragment_element<T>(f->b[4 * column + pair], 2 * b_word + k % 2);
        }
    }
    __syncwarp();
}

#else

template<bool TRANSPOSED>
__device__ static inline void fl_matrices_load(uint32_t (&out)[4], const void *row)
{
#ifdef FL_TENSOR_CORES
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
#else
    __trap(); /* GPUs without them are given float32 */
#endif
}

#ifdef FL_TENSOR_CORES
#define FL_MMA_ASM(type)                                                \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "  \
                 "{%0, %1, %2, %3};"                                    \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#else
#define FL_MMA_ASM(type) __trap()
#endif

/* C += A B with A 16 x 16, B 16 x 8 */
template<typename T>
__device__ static inline void fl_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template<>
__device__ inline void fl_mma<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    FL_MMA_ASM("f16");
}
template<>
__device__ inline void fl_mma<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    FL_MMA_ASM("bf16");
}

#endif

/* Two values as one register, `low` first in memory. */
template<typename T>
__device__ static inline uint32_t fl_pair(float low, float high);
template<>
__device__ inline uint32_t fl_pair<__half>(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}
template<>
__device__ inline uint32_t fl_pair<__nv_bfloat16>(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

#endif

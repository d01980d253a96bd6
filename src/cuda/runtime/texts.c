/*
** texts.c -- the headers that sources compiled at run time include, as they lie in src, each with a zero behind it.
*/
#define TEXT(name, path)                                                                                 \
    __asm__(".pushsection .rodata\n.global fl_text_" #name "\n.hidden fl_text_" #name "\nfl_text_" #name \
            ":\n.incbin \"src/" path "\"\n.byte 0\n.popsection\n");

TEXT(values, "cuda/parts/values.h")
TEXT(divide, "cuda/parts/divide.h")
TEXT(special, "core/op/special.h")
TEXT(math, "cuda/kernels/elementwise_math.h")
TEXT(formulas, "core/op/elementwise_formulas.inc")
TEXT(fused, "cuda/kernels/fused.cuh")

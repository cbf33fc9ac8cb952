/* What this processor and this system can do. */
#ifndef SPLITPIN_CPU_H
#define SPLITPIN_CPU_H

int has_avx2(void);   /* AVX2, FMA, F16C, and a system that keeps their registers */
int has_avx512(void); /* AVX-512 F, BW, DQ and VL beside that */
int has_bf16(void);   /* AVX512_BF16 or AMX_BF16: then torch multiplies bfloat16 faster than anything does float32 */

#endif

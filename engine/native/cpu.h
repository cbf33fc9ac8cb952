/* What this processor and this system can do. */
#ifndef SPLITPIN_CPU_H
#define SPLITPIN_CPU_H

int has_avx2(void);   /* AVX2, FMA, F16C, and a system that keeps their registers */
int has_avx512(void); /* AVX-512 F, BW, DQ and VL beside that */

#endif

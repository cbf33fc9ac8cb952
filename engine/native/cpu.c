/* Detection by CPUID and XGETBV; Intel SDM volume 2, CPUID, and volume 1, 14.3 and 15.2. Compiled for any x86-64. */
#include "cpu.h"

#include <cpuid.h>
#include <stdint.h>

#define FMA_BIT (1u << 12)
#define OSXSAVE_BIT (1u << 27)
#define AVX_BIT (1u << 28)
#define F16C_BIT (1u << 29)
#define AVX2_BIT (1u << 5)
#define AVX512_BITS (1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) /* F, DQ, BW, VL */
#define AMX_BF16_BIT (1u << 22)
#define AVX512_BF16_BIT (1u << 5)
#define YMM_STATE 0x06u                                         /* of XCR0: XMM and YMM */
#define ZMM_STATE 0xE6u                                         /* and mask registers and both halves of ZMM */

static uint32_t leaf_1_ecx(void) {
    uint32_t a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) ? c : 0;
}

static uint32_t leaf_7_ebx(void) {
    uint32_t a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) ? b : 0;
}

/* What the system saves when it changes threads. */
static uint32_t saved_state(void) {
    uint32_t low, high;
    if (!(leaf_1_ecx() & OSXSAVE_BIT)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

int has_avx2(void) {
    const uint32_t needed = FMA_BIT | AVX_BIT | F16C_BIT;
    return (leaf_1_ecx() & needed) == needed && leaf_7_ebx() & AVX2_BIT && (saved_state() & YMM_STATE) == YMM_STATE;
}

int has_avx512(void) {
    return has_avx2() && (leaf_7_ebx() & AVX512_BITS) == AVX512_BITS && (saved_state() & ZMM_STATE) == ZMM_STATE;
}

int has_bf16(void) {
    uint32_t a, b, c, d;
    if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (d & AMX_BF16_BIT) return 1;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & AVX512_BF16_BIT;
}

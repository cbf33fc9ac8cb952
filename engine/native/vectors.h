/* 32 float32 numbers, in two registers of AVX-512 or four of AVX2, and how they are made from bytes.

   Lane order is the same in both, and so is the order in which `sum` adds: both instruction sets give the same bits. */
#ifndef SPLITPIN_VECTORS_H
#define SPLITPIN_VECTORS_H

#include <immintrin.h>

#include "kernels.h"

#ifdef __AVX512F__
#define LANES 16
typedef __m512 vf;
#define VF(name) _mm512_##name
#else
#define LANES 8
typedef __m256 vf;
#define VF(name) _mm256_##name
#endif
#define PARTS (32 / LANES)
#define EACH_PART UNROLLED for (int part = 0; part < PARTS; part++)
#define UNROLLED _Pragma("clang loop unroll(full)")
#define ALWAYS_INLINE inline __attribute__((always_inline))

typedef struct {
    vf part[PARTS];
} f32x32;

/* How far ahead of the weights that are computed memory is asked for, and how many rows of activations share one
   decoding of a weight: as many as the registers hold sums for. */
#define AHEAD_BYTES 4096
#define ROWS_AT_ONCE (LANES == 16 ? 4 : 2)

static ALWAYS_INLINE void prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

/* Where an output goes. */
static ALWAYS_INLINE size_t place_of(const struct matrix *m, size_t row) {
    return (size_t)m->first_row + row * (size_t)m->row_step;
}

/* -- loads, from any address ------------------------------------------------------------------------------------- */

static ALWAYS_INLINE __m128i load16(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
static ALWAYS_INLINE __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

static ALWAYS_INLINE uint16_t load_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static ALWAYS_INLINE uint32_t load_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static ALWAYS_INLINE float float_of_bits(uint32_t bits) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits))); }
static ALWAYS_INLINE float float_of_f16(uint16_t bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))); }
static ALWAYS_INLINE float load_f16(const uint8_t *p) { return float_of_f16(load_u16(p)); }
static ALWAYS_INLINE float load_bf16(const uint8_t *p) { return float_of_bits((uint32_t)load_u16(p) << 16); }
static ALWAYS_INLINE float load_f32(const uint8_t *p) { return float_of_bits(load_u32(p)); }

static ALWAYS_INLINE f32x32 load_floats(const float *p) {
    f32x32 out;
    EACH_PART out.part[part] = VF(loadu_ps)(p + part * LANES);
    return out;
}

/* -- numbers of 4 bits: 16 bytes to 32 --------------------------------------------------------------------------- */

/* The low halves of all bytes, then their high halves: the order of GGUF. */
static ALWAYS_INLINE __m256i split_nibbles(const uint8_t *p) {
    __m128i raw = load16(p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(raw, 4), raw), _mm256_set1_epi8(15));
}

/* The low and the high half of each byte side by side: the order of safetensors. */
static ALWAYS_INLINE __m256i paired_nibbles(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu8_epi16(load16(p));
    return _mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)), _mm256_set1_epi8(15));
}

/* `value` in each byte whose bit is set, of 32 bits with the lowest first; 0 in the others. */
static ALWAYS_INLINE __m256i where_set(const uint8_t *bits, char value) {
    const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i masks = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(bits)), places);
    __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, masks), masks);
    return _mm256_and_si256(set, _mm256_set1_epi8(value));
}

/* table[number] for 32 numbers below 16. */
static ALWAYS_INLINE __m256i look_up(__m256i numbers, __m128i table) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), numbers);
}

/* -- bytes to floats --------------------------------------------------------------------------------------------- */

#ifdef __AVX512F__
static ALWAYS_INLINE __m128i part_of(__m256i bytes, int part) {
    return part ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes);
}
#define WIDEN_I8 _mm512_cvtepi8_epi32
#define WIDEN_U8 _mm512_cvtepu8_epi32
#define F16_PART(bytes, part) _mm256_slli_epi16(_mm256_cvtepu8_epi16(part_of(bytes, part)), 8)
#else
static ALWAYS_INLINE __m128i part_of(__m256i bytes, int part) {
    __m128i half = part & 2 ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes);
    return part & 1 ? _mm_unpackhi_epi64(half, half) : half;
}
#define WIDEN_I8 _mm256_cvtepi8_epi32
#define WIDEN_U8 _mm256_cvtepu8_epi32
#define F16_PART(bytes, part) _mm_slli_epi16(_mm_cvtepu8_epi16(part_of(bytes, part)), 8)
#endif

static ALWAYS_INLINE f32x32 floats_of_i8(__m256i bytes) {
    f32x32 out;
    EACH_PART out.part[part] = VF(cvtepi32_ps)(WIDEN_I8(part_of(bytes, part)));
    return out;
}

static ALWAYS_INLINE f32x32 floats_of_u8(__m256i bytes) {
    f32x32 out;
    EACH_PART out.part[part] = VF(cvtepi32_ps)(WIDEN_U8(part_of(bytes, part)));
    return out;
}

/* float16 numbers of which the low byte is 0; these are the high bytes. E2M1 and whole numbers from -8 to 8 are such. */
static ALWAYS_INLINE f32x32 floats_of_f16_bytes(__m256i bytes) {
    f32x32 out;
    EACH_PART out.part[part] = VF(cvtph_ps)(F16_PART(bytes, part));
    return out;
}

/* E2M1 numbers by their 4 bits, as the high bytes of float16. */
static ALWAYS_INLINE __m128i e2m1_f16_bytes(void) {
    const char minus_0 = (char)0x80;
    return _mm_setr_epi8(0, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46, minus_0, minus_0 | 0x38, minus_0 | 0x3C,
                         minus_0 | 0x3E, minus_0 | 0x40, minus_0 | 0x42, minus_0 | 0x44, minus_0 | 0x46);
}

/* -- scales -------------------------------------------------------------------------------------------------------- */

/* 2^(exponent - 127): E8M0 without its number that is none, 255, which becomes infinity as in the reference. */
static ALWAYS_INLINE float power_of_two(uint8_t exponent) {
    return float_of_bits(exponent ? (uint32_t)exponent << 23 : 1u << 22);
}

/* 16 scales of 8 bits, times a factor. */
static ALWAYS_INLINE void scales_of_i8(float *out, __m128i scales, float factor) {
    __m256i first = _mm256_cvtepi8_epi32(scales), last = _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(scales, scales));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(first), _mm256_set1_ps(factor)));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(last), _mm256_set1_ps(factor)));
}

/* -- arithmetic, each operation rounded --------------------------------------------------------------------------- */

static ALWAYS_INLINE f32x32 times(f32x32 values, float factor) {
    EACH_PART values.part[part] = VF(mul_ps)(values.part[part], VF(set1_ps)(factor));
    return values;
}

/* Another factor for the first 16 and the last 16. */
static ALWAYS_INLINE f32x32 times_halves(f32x32 values, float first, float last) {
    EACH_PART values.part[part] = VF(mul_ps)(values.part[part], VF(set1_ps)(part < PARTS / 2 ? first : last));
    return values;
}

static ALWAYS_INLINE f32x32 minus(f32x32 values, float less) {
    EACH_PART values.part[part] = VF(sub_ps)(values.part[part], VF(set1_ps)(less));
    return values;
}

/* Another number for the first 16 and the last 16. */
static ALWAYS_INLINE f32x32 minus_halves(f32x32 values, float first, float last) {
    EACH_PART values.part[part] = VF(sub_ps)(values.part[part], VF(set1_ps)(part < PARTS / 2 ? first : last));
    return values;
}

/* sums + values * others, rounded once. */
static ALWAYS_INLINE f32x32 add_product(f32x32 sums, f32x32 values, f32x32 others) {
    EACH_PART sums.part[part] = VF(fmadd_ps)(values.part[part], others.part[part], sums.part[part]);
    return sums;
}

static ALWAYS_INLINE float sum(f32x32 v) {
#ifdef __AVX512F__
    __m512 all = _mm512_add_ps(v.part[0], v.part[1]);
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
#else
    __m256 a = _mm256_add_ps(_mm256_add_ps(v.part[0], v.part[2]), _mm256_add_ps(v.part[1], v.part[3]));
#endif
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* -- out ----------------------------------------------------------------------------------------------------------- */

/* Numbers from place `place` of `out` on, rounded once, to the nearest and of two such to the even one, as torch does. */
static ALWAYS_INLINE void store_numbers(void *out, size_t place, enum number type, f32x32 v) {
    EACH_PART {
        size_t at = place + (size_t)part * LANES;
        if (type == FLOAT32) VF(storeu_ps)((float *)out + at, v.part[part]);
#ifdef __AVX512F__
        if (type == FLOAT16)
            _mm256_storeu_si256((void *)((uint16_t *)out + at), _mm512_cvtps_ph(v.part[part], _MM_FROUND_TO_NEAREST_INT));
        if (type == BFLOAT16) {
            __m512i bits = _mm512_castps_si512(v.part[part]);
            __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
            __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
            __mmask16 no_number = _mm512_cmp_ps_mask(v.part[part], v.part[part], _CMP_UNORD_Q);
            near = _mm512_mask_or_epi32(near, no_number, bits, _mm512_set1_epi32(0x400000));
            _mm256_storeu_si256((void *)((uint16_t *)out + at), _mm512_cvtepi32_epi16(_mm512_srli_epi32(near, 16)));
        }
#else
        if (type == FLOAT16)
            _mm_storeu_si128((void *)((uint16_t *)out + at), _mm256_cvtps_ph(v.part[part], _MM_FROUND_TO_NEAREST_INT));
        if (type == BFLOAT16) {
            __m256i bits = _mm256_castps_si256(v.part[part]);
            __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
            __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
            __m256 no_number = _mm256_cmp_ps(v.part[part], v.part[part], _CMP_UNORD_Q);
            __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
            near = _mm256_srli_epi32(_mm256_blendv_epi8(near, quiet, _mm256_castps_si256(no_number)), 16);
            __m128i low = _mm256_castsi256_si128(near), high = _mm256_extracti128_si256(near, 1);
            _mm_storeu_si128((void *)((uint16_t *)out + at), _mm_packus_epi32(low, high));
        }
#endif
    }
}

#endif

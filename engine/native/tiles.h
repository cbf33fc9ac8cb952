/* Scales and zero points that lie beside the weights, one for a tile of rows and columns; and numbers of 4 bits.

   Formats: OCP Microscaling Formats v1.0, 5.3.3 (E2M1) and 5.4.1 (E8M0); OCP 8-bit Floating Point v1.0 (E4M3, E5M2). */
#ifndef SPLITPIN_TILES_H
#define SPLITPIN_TILES_H

#include "vectors.h"

/* -- copies; there is no C library to do them ---------------------------------------------------------------------- */

/* A loop that the compiler does not make a call of memcpy from. */
static ALWAYS_INLINE void copy_some(void *to, const void *from, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i++) {
        ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
        __asm__ volatile("" ::: "memory");
    }
}

/* 32 bytes of which `nbytes` may be read; the others are 0. */
static ALWAYS_INLINE void copy_rest(uint8_t *to, const uint8_t *from, size_t nbytes) {
    _mm256_storeu_si256((__m256i *)to, _mm256_setzero_si256());
    copy_some(to, from, nbytes);
}

static ALWAYS_INLINE f32x32 all_floats(float value) {
    f32x32 out;
    EACH_PART out.part[part] = VF(set1_ps)(value);
    return out;
}

/* 32 floats of which `count` may be read; the others are 0. */
static ALWAYS_INLINE f32x32 load_some_floats(const float *p, size_t count) {
    float some[32];
    store_numbers(some, 0, FLOAT32, all_floats(0.0f));
    copy_some(some, p, 4 * count);
    return load_floats(some);
}

static ALWAYS_INLINE void store_some_numbers(void *out, size_t place, const enum number type, f32x32 v, size_t count) {
    const size_t size = type == FLOAT32 ? 4 : 2;
    uint8_t all[128];
    store_numbers(all, 0, type, v);
    copy_some((uint8_t *)out + place * size, all, count * size);
}

/* The first `count`, then zeros. */
static ALWAYS_INLINE f32x32 first_of(f32x32 v, size_t count) {
    float all[32];
    store_numbers(all, 0, FLOAT32, v);
    return load_some_floats(all, count);
}

static ALWAYS_INLINE f32x32 divided(f32x32 values, float divisor) {
    EACH_PART values.part[part] = VF(div_ps)(values.part[part], VF(set1_ps)(divisor));
    return values;
}

/* -- scales -------------------------------------------------------------------------------------------------------- */

enum scale_type { NO_SCALE, F32_SCALE, BF16_SCALE, F16_SCALE, E4M3_SCALE, E8M0_SCALE };

/* How the tiles of a matrix lie. */
struct tiles {
    size_t across, all;  /* tiles in a row of tiles, and in the matrix */
    size_t tall, groups; /* rows of a tile; its groups of 32 neighbours in a row */
    int halves;          /* a tile has half a group instead */
    enum scale_type type;
};

static inline enum scale_type scale_type_of(const struct matrix *m) {
    if (m->scale < 0) return NO_SCALE;
    if (is(m->scale_dtype, "F32")) return F32_SCALE;
    if (is(m->scale_dtype, "BF16")) return BF16_SCALE;
    if (is(m->scale_dtype, "F16")) return F16_SCALE;
    if (is(m->scale_dtype, "F8_E4M3")) return E4M3_SCALE;
    return is(m->scale_dtype, "U8") || is(m->scale_dtype, "F8_E8M0") ? E8M0_SCALE : NO_SCALE;
}

static ALWAYS_INLINE size_t scale_bytes(enum scale_type type) {
    return type == F32_SCALE ? 4 : type == BF16_SCALE || type == F16_SCALE ? 2 : 1;
}

/* Whether 32 neighbours in a row share a scale that can be read, or the first and the last 16 of them. */
static inline int fits_tiles(const struct matrix *m) {
    const int32_t wide = m->tile_columns;
    return scale_type_of(m) != NO_SCALE && m->tile_rows > 0 && wide > 0 &&
           (wide >= m->columns || wide == 16 || wide % 32 == 0);
}

/* The same, or there is one scale for the whole matrix and nothing else. */
static inline int fits_scales(const struct matrix *m) {
    return m->scale < 0 ? m->tile_columns >= m->columns && m->tile_rows >= m->rows : fits_tiles(m) && !m->wholes;
}

static inline struct tiles tiles_of(const struct matrix *m) {
    const size_t wide = (size_t)m->tile_columns, tall = (size_t)m->tile_rows;
    struct tiles tiles = {((size_t)m->columns + wide - 1) / wide, ((size_t)m->rows + tall - 1) / tall, tall, wide / 32,
                          wide == 16, scale_type_of(m)};
    if (tiles.across == 1) tiles.halves = 0, tiles.groups = (size_t)m->columns / 32 + 1;
    tiles.all *= tiles.across;
    return tiles;
}

#ifdef __AVX512F__
#define INTS(name) _mm512_##name
#define INTEGERS __m512i
#define AND_INTEGERS _mm512_and_si512
#define LOAD_INTEGERS(p) _mm512_loadu_si512(p)
#define STORE_INTEGERS(p, v) _mm512_storeu_si512(p, v)
#define BITS_DOWN(bits) ((unsigned)(bits))
#define AS_FLOATS _mm512_castsi512_ps
#define WIDEN_U16(p) _mm512_cvtepu16_epi32(load32(p))
#define F16_FLOATS(p) _mm512_cvtph_ps(load32(p))
#else
#define INTS(name) _mm256_##name
#define INTEGERS __m256i
#define AND_INTEGERS _mm256_and_si256
#define LOAD_INTEGERS load32
#define STORE_INTEGERS(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define BITS_DOWN(bits) (bits)
#define AS_FLOATS _mm256_castsi256_ps
#define WIDEN_U16(p) _mm256_cvtepu16_epi32(load16(p))
#define F16_FLOATS(p) _mm256_cvtph_ps(load16(p))
#endif

static ALWAYS_INLINE f32x32 load_bf16_floats(const uint8_t *p) {
    f32x32 out;
    EACH_PART out.part[part] = AS_FLOATS(INTS(slli_epi32)(WIDEN_U16(p + 2 * LANES * part), 16));
    return out;
}

static ALWAYS_INLINE f32x32 load_f16_floats(const uint8_t *p) {
    f32x32 out;
    EACH_PART out.part[part] = F16_FLOATS(p + 2 * LANES * part);
    return out;
}

/* Powers of two; 0 stands for 2^-127, which is subnormal. */
static ALWAYS_INLINE f32x32 floats_of_e8m0(__m256i bytes) {
    const __m256i one_if_zero = _mm256_abs_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256()));
    f32x32 out;
    EACH_PART out.part[part] =
        AS_FLOATS(INTS(add_epi32)(INTS(slli_epi32)(WIDEN_U8(part_of(bytes, part)), 23),
                                  INTS(slli_epi32)(WIDEN_U8(part_of(one_if_zero, part)), 22)));
    return out;
}

/* E4M3 numbers times 2^-8, as float16 holds them; 0x7F and 0xFF are no numbers. */
static ALWAYS_INLINE f32x32 floats_of_e4m3_less(__m256i bytes) {
    f32x32 out;
#ifdef __AVX512F__
    const __m512i words = _mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8);
    const __m512i spread = _mm512_and_si512(_mm512_srai_epi16(words, 1), _mm512_set1_epi16((short)0xBFFF));
    const __mmask32 none = _mm512_cmpeq_epi16_mask(_mm512_add_epi16(words, words), _mm512_set1_epi16((short)0xFE00));
    const __m512i f16 = _mm512_mask_mov_epi16(spread, none, _mm512_set1_epi16(0x7E00));
    out.part[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(f16));
    out.part[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(f16, 1));
#else
    UNROLLED for (int half = 0; half < 2; half++) {
        const __m128i here = half ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes);
        const __m256i words = _mm256_slli_epi16(_mm256_cvtepu8_epi16(here), 8);
        const __m256i spread = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16((short)0xBFFF));
        const __m256i none = _mm256_cmpeq_epi16(_mm256_add_epi16(words, words), _mm256_set1_epi16((short)0xFE00));
        const __m256i f16 = _mm256_or_si256(spread, none);
        out.part[2 * half] = _mm256_cvtph_ps(_mm256_castsi256_si128(f16));
        out.part[2 * half + 1] = _mm256_cvtph_ps(_mm256_extracti128_si256(f16, 1));
    }
#endif
    return out;
}

/* The scales of 32 tiles from number `tile` of the matrix on, as far as there are so many; `inside`: there are. */
static ALWAYS_INLINE f32x32 scales_from(const struct tiles *tiles, const struct pieces *p, size_t tile,
                                        const int inside) {
    if (tiles->type == NO_SCALE) return all_floats(p->whole);
    const size_t size = scale_bytes(tiles->type), left = tiles->all - tile;
    const uint8_t *raw = p->scale + tile * size;
    uint8_t copy[128];
    if (!inside && left < 32) {
        copy_some(copy, raw, left * size);
        raw = copy;
    }
    switch (tiles->type) {
    case BF16_SCALE: return load_bf16_floats(raw);
    case F16_SCALE: return load_f16_floats(raw);
    case E4M3_SCALE: return times(floats_of_e4m3_less(load32(raw)), 256.0f);
    case E8M0_SCALE: return floats_of_e8m0(load32(raw));
    default: return load_floats((const float *)(const void *)raw);
    }
}

/* Zero points of compressed-tensors for 32 tiles, less what the numbers are less: int32 words
   [tiles down * bits / 32, tiles across]. */
static inline void packed_zeros(const struct matrix *m, const struct tiles *tiles, const uint8_t *raw, size_t tile,
                                int less, float *zeros) {
    const size_t bit = tile / tiles->across * (size_t)m->bits, first = tile % tiles->across;
    const uint8_t *words = raw + 4 * (bit / 32 * tiles->across + first);
    const uint32_t mask = (1u << m->bits) - 1;
    for (size_t i = 0; i < 32 && first + i < tiles->across; i++)
        zeros[i] = (float)((int)(load_u32(words + 4 * i) >> bit % 32 & mask) - less);
}

/* -- numbers of 4 bits by table ------------------------------------------------------------------------------------ */

/* What 16 numbers stand for: floats of which the low 16 bits are 0. */
struct nibble_table {
#ifdef __AVX512F__
    __m512 values;
#else
    __m256i high, low; /* bytes of their upper 16 bits */
#endif
};

static ALWAYS_INLINE struct nibble_table nibble_table(const float *values) {
    struct nibble_table table;
#ifdef __AVX512F__
    table.values = _mm512_loadu_ps(values);
#else
    uint8_t high[16], low[16];
    for (int i = 0; i < 16; i++) {
        const uint32_t bits = (uint32_t)_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(values[i])));
        high[i] = (uint8_t)(bits >> 24), low[i] = (uint8_t)(bits >> 16);
    }
    table.high = _mm256_broadcastsi128_si256(load16(high)), table.low = _mm256_broadcastsi128_si256(load16(low));
#endif
    return table;
}

/* Numbers of 4 bits less half their range. */
static const float LESS_8[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

/* The order of numbers in a word of 32 bits: one behind the other, or as AWQ has them, at places 0 4 1 5 2 6 3 7. */
enum nibble_order { IN_ORDER, AWQ_ORDER };

/* The 32 floats of 16 bytes. */
static ALWAYS_INLINE f32x32 floats_of_nibbles(const uint8_t *p, const struct nibble_table *table,
                                              const enum nibble_order order) {
    f32x32 out;
#ifdef __AVX512F__
    /* Each float's byte into its place, the right half of it into the low bits: permutexvar looks at no others. */
    const __m512i bytes = _mm512_broadcast_i32x4(load16(p));
    const __m512i halves = order == IN_ORDER ? _mm512_set_epi32(4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0)
                                             : _mm512_set_epi32(4, 4, 0, 0, 4, 4, 0, 0, 4, 4, 0, 0, 4, 4, 0, 0);
    const __m512i first = order == IN_ORDER ? _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0)
                                            : _mm512_set_epi32(7, 5, 7, 5, 6, 4, 6, 4, 3, 1, 3, 1, 2, 0, 2, 0);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    out.part[0] = _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, first), halves), table->values);
    out.part[1] = _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, last), halves), table->values);
#else
    /* Bytes in such an order that, once both bytes of a float lie side by side, the even and the odd ones are eight
       neighbours each. */
    const __m256i places = order == IN_ORDER ? _mm256_setr_epi8(0, 4, 0, 4, 1, 5, 1, 5, 8, 12, 8, 12, 9, 13, 9, 13, //
                                                                2, 6, 2, 6, 3, 7, 3, 7, 10, 14, 10, 14, 11, 15, 11, 15)
                                             : _mm256_setr_epi8(0, 4, 2, 6, 0, 4, 2, 6, 8, 12, 10, 14, 8, 12, 10, 14, //
                                                                1, 5, 3, 7, 1, 5, 3, 7, 9, 13, 11, 15, 9, 13, 11, 15);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(p)), places);
    const __m256i shifted = _mm256_srli_epi16(bytes, 4), upper = _mm256_set1_epi32((int)0xFFFF0000);
    const __m256i halves =
        order == IN_ORDER ? _mm256_blend_epi16(bytes, shifted, 0xAA) : _mm256_blend_epi16(bytes, shifted, 0xCC);
    const __m256i numbers = _mm256_and_si256(halves, _mm256_set1_epi8(15));
    const __m256i high = _mm256_shuffle_epi8(table->high, numbers), low = _mm256_shuffle_epi8(table->low, numbers);
    const __m256i begin = _mm256_unpacklo_epi8(low, high), end = _mm256_unpackhi_epi8(low, high);
    out.part[0] = _mm256_castsi256_ps(_mm256_slli_epi32(begin, 16));
    out.part[1] = _mm256_castsi256_ps(_mm256_and_si256(begin, upper));
    out.part[2] = _mm256_castsi256_ps(_mm256_slli_epi32(end, 16));
    out.part[3] = _mm256_castsi256_ps(_mm256_and_si256(end, upper));
#endif
    return out;
}

#endif

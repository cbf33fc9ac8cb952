/* What GPTQ and AWQ share: weights lie by outputs, and scales and zero points of a group of columns do too. */
#ifndef SPLITPIN_OUTPUTS_H
#define SPLITPIN_OUTPUTS_H

#include "tiles.h"

#define NOT_A_NUMBER __builtin_nanf("")

/* Which group a column belongs to, and where the scales lie. */
struct groups {
    struct tiles tiles; /* of 32 scales that lie one behind the other */
    size_t rows, wide, count;
    const uint8_t *order; /* int32 [columns], NULL: `wide` neighbours each */
    int ordered;          /* the group may change within 8 columns */
    int broken;           /* a column is in a group that does not exist */
};

static inline int fits_groups(const struct matrix *m) {
    return scale_type_of(m) != NO_SCALE && m->tile_rows == 1 && m->tile_columns > 0 && !m->wholes &&
           m->rows * m->bits % 32 == 0 && m->columns % 8 == 0;
}

static inline struct groups groups_of(const struct matrix *m, const struct pieces *p) {
    const size_t rows = (size_t)m->rows, columns = (size_t)m->columns, wide = (size_t)m->tile_columns;
    const size_t count = (columns + wide - 1) / wide;
    struct groups groups = {{rows, rows * count, 1, 1, 0, scale_type_of(m)}, rows, wide, count, p->order,
                            wide % 8 != 0 && count > 1, 0};
    uint32_t others = 0;
    if (p->order)
        for (size_t group = 0, column = 0; group < count; group++)
            for (size_t end = column + wide < columns ? column + wide : columns; column < end; column++) {
                const uint32_t found = load_u32(p->order + 4 * column);
                others |= found ^ (uint32_t)group;
                groups.broken |= found >= count;
            }
    if (others) groups.ordered = 1;
    else groups.order = NULL;
    return groups;
}

static ALWAYS_INLINE size_t group_of(const struct groups *groups, size_t column) {
    if (!groups->order) return column / groups->wide;
    const uint32_t found = load_u32(groups->order + 4 * column);
    return found < groups->count ? found : 0;
}

static ALWAYS_INLINE f32x32 group_scales(const struct groups *groups, const struct pieces *p, size_t group, size_t row,
                                         const int inside) {
    return scales_from(&groups->tiles, p, group * groups->rows + row, inside);
}

static ALWAYS_INLINE f32x32 times_each(f32x32 values, f32x32 factors) {
    EACH_PART values.part[part] = VF(mul_ps)(values.part[part], factors.part[part]);
    return values;
}

static ALWAYS_INLINE f32x32 minus_each(f32x32 values, f32x32 less) {
    EACH_PART values.part[part] = VF(sub_ps)(values.part[part], less.part[part]);
    return values;
}

static ALWAYS_INLINE f32x32 plus_each(f32x32 values, f32x32 more) {
    EACH_PART values.part[part] = VF(add_ps)(values.part[part], more.part[part]);
    return values;
}

/* -- 32 numbers of a column or a group ----------------------------------------------------------------------------- */

/* Runs of 8 columns that memory is asked for ahead: their lines lie far apart. */
#define RUNS_AHEAD 16

/* Numbers of 4 or 8 bits, 32 of them from number `place` of `count` on; `some` holds them where there are fewer.
   `inside`: there are not. */
static ALWAYS_INLINE const uint8_t *numbers_at(const uint8_t *from, size_t place, size_t count, size_t bits,
                                               const int inside, uint8_t *some) {
    from += place * bits / 8;
    if (inside || count - place >= 32) return from;
    copy_rest(some, from, (count - place) * bits / 8);
    return some;
}

/* Those of a group of columns, which lie [groups, rows]. */
static ALWAYS_INLINE const uint8_t *numbers_from(const struct matrix *m, const uint8_t *from, size_t group, size_t row,
                                                 const int inside, uint8_t *some) {
    const size_t rows = (size_t)m->rows, wide = (size_t)m->tile_columns;
    const size_t groups = ((size_t)m->columns + wide - 1) / wide;
    return numbers_at(from, group * rows + row, groups * rows, (size_t)m->bits, inside, some);
}

/* The words of 32 rows from word `place` of `count` on, in which GPTQ has 8 or 4 columns each. */
struct words {
    INTEGERS part[PARTS];
};

static ALWAYS_INLINE void store_words(uint32_t *to, struct words words) {
    EACH_PART STORE_INTEGERS(to + LANES * part, words.part[part]);
}

static ALWAYS_INLINE struct words load_words(const uint8_t *from, size_t place, size_t count, const int inside) {
    struct words out;
    uint8_t copy[128];
    from += 4 * place;
    if (!inside && count - place < 32) {
        copy_some(copy, from, 4 * (count - place));
        from = copy;
    }
    EACH_PART out.part[part] = LOAD_INTEGERS(from + 4 * LANES * part);
    return out;
}

/* Sixteen bytes of sixteen rows, turned: each round puts rows beside those half of them further down. */
static ALWAYS_INLINE void turn_bytes(__m128i *rows) {
    __m128i before[16];
    for (int round = 0; round < 4; round++) {
        UNROLLED for (int i = 0; i < 16; i++) before[i] = rows[i];
        UNROLLED for (int i = 0; i < 8; i++) {
            rows[2 * i] = _mm_unpacklo_epi8(before[i], before[i + 8]);
            rows[2 * i + 1] = _mm_unpackhi_epi8(before[i], before[i + 8]);
        }
    }
}

/* Four words of four rows, likewise. */
static ALWAYS_INLINE void turn_words(__m128i *rows) {
    const __m128i a = _mm_unpacklo_epi32(rows[0], rows[2]), b = _mm_unpackhi_epi32(rows[0], rows[2]);
    const __m128i c = _mm_unpacklo_epi32(rows[1], rows[3]), d = _mm_unpackhi_epi32(rows[1], rows[3]);
    rows[0] = _mm_unpacklo_epi32(a, c), rows[1] = _mm_unpackhi_epi32(a, c);
    rows[2] = _mm_unpacklo_epi32(b, d), rows[3] = _mm_unpackhi_epi32(b, d);
}

/* Words [count, 32], four of them side by side for each of the 32: [32, count], `count` 4 or 8. */
static ALWAYS_INLINE void turn_all_words(const uint32_t *from, const int count, uint8_t *to) {
    for (int row = 0; row < 32; row += 4)
        UNROLLED for (int first = 0; first < count; first += 4) {
            __m128i words[4];
            UNROLLED for (int i = 0; i < 4; i++)
                words[i] = load16((const uint8_t *)(from + 32 * (first + i) + row));
            turn_words(words);
            UNROLLED for (int i = 0; i < 4; i++)
                _mm_storeu_si128((__m128i *)(to + 4 * (count * (row + i) + first)), words[i]);
        }
}

/* -- out ----------------------------------------------------------------------------------------------------------- */

/* Eight rows of eight floats that lie 32 apart, turned: columns. */
static ALWAYS_INLINE void turn(const float *from, __m256 *to) {
    __m256 two[8], four[8];
    UNROLLED for (int i = 0; i < 8; i += 2) {
        const __m256 a = _mm256_loadu_ps(from + 32 * i), b = _mm256_loadu_ps(from + 32 * (i + 1));
        two[i] = _mm256_unpacklo_ps(a, b), two[i + 1] = _mm256_unpackhi_ps(a, b);
    }
    UNROLLED for (int i = 0; i < 8; i += 4)
        UNROLLED for (int j = 0; j < 2; j++) {
            four[i + 2 * j] = _mm256_shuffle_ps(two[i + j], two[i + j + 2], 0x44);
            four[i + 2 * j + 1] = _mm256_shuffle_ps(two[i + j], two[i + j + 2], 0xEE);
        }
    UNROLLED for (int i = 0; i < 4; i++) {
        to[i] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
        to[i + 4] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
    }
}

/* Eight numbers from place `place` of `out` on, rounded as `store_numbers` does. */
static ALWAYS_INLINE void store_8(void *out, size_t place, enum number type, __m256 v) {
    if (type == FLOAT32) _mm256_storeu_ps((float *)out + place, v);
    if (type == FLOAT16)
        _mm_storeu_si128((void *)((uint16_t *)out + place), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    if (type == BFLOAT16) {
        const __m256i bits = _mm256_castps_si256(v);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
        const __m256 no_number = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
        const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
        const __m256i all = _mm256_srli_epi32(_mm256_blendv_epi8(near, quiet, _mm256_castps_si256(no_number)), 16);
        const __m128i low = _mm256_castsi256_si128(all), high = _mm256_extracti128_si256(all, 1);
        _mm_storeu_si128((void *)((uint16_t *)out + place), _mm_packus_epi32(low, high));
    }
}

#endif

/* GPTQ of 4 bits: int32 words [columns / 8, rows] with 8 columns of a row each, lowest bits first; zero points
   [groups, rows] of 4 bits, to which `zero_step` is added within their bits, or 8 where there are none. */
#define NAME gptq4

struct gptq4_tables {
    struct nibble_table zeros;
#ifdef __AVX512F__
    __m512 numbers;
#endif
};

struct gptq4_run {
    struct words words;
};

static inline int gptq4_fits(const struct matrix *m) { return is(m->kind, "gptq") && m->bits == 4 && fits_groups(m); }

static ALWAYS_INLINE struct gptq4_tables gptq4_tables(const struct matrix *m) {
    struct gptq4_tables tables;
    float numbers[16];
    for (int i = 0; i < 16; i++) numbers[i] = (float)((i + m->zero_step) & 15);
    tables.zeros = nibble_table(numbers);
#ifdef __AVX512F__
    for (int i = 0; i < 16; i++) numbers[i] = (float)i;
    tables.numbers = _mm512_loadu_ps(numbers);
#endif
    return tables;
}

static ALWAYS_INLINE struct gptq4_run gptq4_open(const struct matrix *m, const struct pieces *p, size_t row,
                                                 size_t column, const int inside) {
    const size_t rows = (size_t)m->rows, place = column / 8 * rows + row;
    const uint8_t *ahead = p->weight + 4 * (place + RUNS_AHEAD * rows);
    prefetch(ahead), prefetch(ahead + 64);
    return (struct gptq4_run){load_words(p->weight, place, rows * (size_t)m->columns / 8, inside)};
}

static ALWAYS_INLINE f32x32 gptq4_column(const struct gptq4_tables *tables, const struct gptq4_run *run, int i) {
    f32x32 out;
#ifdef __AVX512F__
    EACH_PART out.part[part] = /* looks at the lowest 4 bits only */
        _mm512_permutexvar_ps(_mm512_srli_epi32(run->words.part[part], (unsigned)(4 * i)), tables->numbers);
#else
    (void)tables;
    EACH_PART out.part[part] = _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srli_epi32(run->words.part[part], 4 * i), _mm256_set1_epi32(15)));
#endif
    return out;
}

static ALWAYS_INLINE f32x32 gptq4_zeros(const struct matrix *m, const struct pieces *p,
                                        const struct gptq4_tables *tables, size_t group, size_t row, const int inside) {
    if (!p->zero) return all_floats(8.0f);
    uint8_t some[32];
    return floats_of_nibbles(numbers_from(m, p->zero, group, row, inside, some), &tables->zeros, IN_ORDER);
}

static ALWAYS_INLINE void gptq4_turned(const struct matrix *m, const struct pieces *p, size_t row, size_t column,
                                       uint8_t *numbers) {
    uint32_t words[4 * 32];
    uint8_t turned[16 * 32];
    UNROLLED for (size_t i = 0; i < 4; i++) store_words(words + 32 * i, gptq4_open(m, p, row, column + 8 * i, 0).words);
    turn_all_words(words, 4, turned);
    for (size_t i = 0; i < 32; i++)
        _mm256_storeu_si256((__m256i *)(numbers + 32 * i), paired_nibbles(turned + 16 * i));
}

#include "../output_format.h"

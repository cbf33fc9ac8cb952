/* AWQ: int32 words [columns, rows / 8] with 8 rows of a column each; zero points [groups, rows / 8] likewise, or 8
   where there are none. */
#define NAME awq

struct awq_tables {
    struct nibble_table numbers;
};

struct awq_run {
    const struct matrix *matrix;
    const struct pieces *pieces;
    size_t row, column;
    int inside;
};

static inline int awq_fits(const struct matrix *m) { return is(m->kind, "awq") && m->bits == 4 && fits_groups(m); }

static ALWAYS_INLINE struct awq_tables awq_tables(const struct matrix *m) {
    static const float numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    (void)m;
    return (struct awq_tables){nibble_table(numbers)};
}

static ALWAYS_INLINE struct awq_run awq_open(const struct matrix *m, const struct pieces *p, size_t row,
                                             size_t column, const int inside) {
    return (struct awq_run){m, p, row, column, inside};
}

static ALWAYS_INLINE f32x32 awq_column(const struct awq_tables *tables, const struct awq_run *run, int i) {
    const struct matrix *m = run->matrix;
    const size_t rows = (size_t)m->rows, column = run->column + (size_t)i;
    prefetch(run->pieces->weight + ((column + 8 * RUNS_AHEAD) * rows + run->row) / 2);
    uint8_t some[32];
    const uint8_t *bytes =
        numbers_at(run->pieces->weight, column * rows + run->row, rows * (size_t)m->columns, 4, run->inside, some);
    return floats_of_nibbles(bytes, &tables->numbers, AWQ_ORDER);
}

static ALWAYS_INLINE f32x32 awq_zeros(const struct matrix *m, const struct pieces *p, const struct awq_tables *tables,
                                      size_t group, size_t row, const int inside) {
    if (!p->zero) return all_floats(8.0f);
    uint8_t some[32];
    return floats_of_nibbles(numbers_from(m, p->zero, group, row, inside, some), &tables->numbers, AWQ_ORDER);
}

/* The 32 numbers of 16 bytes. */
static ALWAYS_INLINE __m256i awq_bytes(const uint8_t *p) {
    const __m256i places = _mm256_setr_epi8(0, 2, 0, 2, 1, 3, 1, 3, 4, 6, 4, 6, 5, 7, 5, 7, //
                                            8, 10, 8, 10, 9, 11, 9, 11, 12, 14, 12, 14, 13, 15, 13, 15);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(p)), places);
    return _mm256_and_si256(_mm256_blend_epi16(bytes, _mm256_srli_epi16(bytes, 4), 0xAA), _mm256_set1_epi8(15));
}

static ALWAYS_INLINE void awq_turned(const struct matrix *m, const struct pieces *p, size_t row, size_t column,
                                     uint8_t *numbers) {
    const size_t rows = (size_t)m->rows, count = rows * (size_t)m->columns;
    for (size_t half = 0; half < 32; half += 16) {
        __m128i low[16], high[16];
        UNROLLED for (size_t i = 0; i < 16; i++) {
            uint8_t some[32];
            const __m256i all = awq_bytes(numbers_at(p->weight, (column + half + i) * rows + row, count, 4, 0, some));
            low[i] = _mm256_castsi256_si128(all), high[i] = _mm256_extracti128_si256(all, 1);
        }
        turn_bytes(low), turn_bytes(high);
        UNROLLED for (size_t i = 0; i < 16; i++) {
            _mm_storeu_si128((__m128i *)(numbers + 32 * i + half), low[i]);
            _mm_storeu_si128((__m128i *)(numbers + 32 * (i + 16) + half), high[i]);
        }
    }
}

#include "../output_format.h"

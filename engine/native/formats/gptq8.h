/* GPTQ of 8 bits: int32 words [columns / 4, rows] with 4 columns of a row each, lowest bits first; zero points
   [groups, rows] of 8 bits, to which `zero_step` is added within their bits, or 128 where there are none. */
#define NAME gptq8

struct gptq8_tables {
    __m256i step;
};

struct gptq8_run {
    struct words words[2];
};

static inline int gptq8_fits(const struct matrix *m) { return is(m->kind, "gptq") && m->bits == 8 && fits_groups(m); }

static ALWAYS_INLINE struct gptq8_tables gptq8_tables(const struct matrix *m) {
    return (struct gptq8_tables){_mm256_set1_epi8((char)m->zero_step)};
}

static ALWAYS_INLINE struct gptq8_run gptq8_open(const struct matrix *m, const struct pieces *p, size_t row,
                                                 size_t column, const int inside) {
    const size_t rows = (size_t)m->rows, place = column / 4 * rows + row, count = rows * (size_t)m->columns / 4;
    const uint8_t *ahead = p->weight + 4 * (place + RUNS_AHEAD * rows);
    prefetch(ahead), prefetch(ahead + 64), prefetch(ahead + 4 * rows), prefetch(ahead + 4 * rows + 64);
    return (struct gptq8_run){
        {load_words(p->weight, place, count, inside), load_words(p->weight, place + rows, count, inside)}};
}

static ALWAYS_INLINE f32x32 gptq8_column(const struct gptq8_tables *tables, const struct gptq8_run *run, int i) {
    f32x32 out;
    (void)tables;
    EACH_PART out.part[part] = VF(cvtepi32_ps)(
        AND_INTEGERS(INTS(srli_epi32)(run->words[i / 4].part[part], BITS_DOWN(8 * (i % 4))), INTS(set1_epi32)(255)));
    return out;
}

static ALWAYS_INLINE f32x32 gptq8_zeros(const struct matrix *m, const struct pieces *p,
                                        const struct gptq8_tables *tables, size_t group, size_t row, const int inside) {
    if (!p->zero) return all_floats(128.0f);
    uint8_t some[32];
    return floats_of_u8(_mm256_add_epi8(load32(numbers_from(m, p->zero, group, row, inside, some)), tables->step));
}

static ALWAYS_INLINE void gptq8_turned(const struct matrix *m, const struct pieces *p, size_t row, size_t column,
                                       uint8_t *numbers) {
    uint32_t words[8 * 32];
    UNROLLED for (size_t i = 0; i < 8; i += 2) {
        const struct gptq8_run run = gptq8_open(m, p, row, column + 4 * i, 0);
        store_words(words + 32 * i, run.words[0]), store_words(words + 32 * (i + 1), run.words[1]);
    }
    turn_all_words(words, 8, numbers);
}

#include "../output_format.h"

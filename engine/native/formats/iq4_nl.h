/* GGUF IQ4_NL: one float16 scale and 32 numbers of 4 bits in 18 bytes; level[number] * scale. IQ4_XS has the same
   levels. */
#define NAME iq4_nl
#define WIDE 32

static ALWAYS_INLINE __m128i iq4_levels(void) {
    return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

struct iq4_nl_row {
    const uint8_t *blocks;
};

struct iq4_nl_block {
    const uint8_t *numbers;
    float scale;
};

static inline int iq4_nl_fits(const struct matrix *m) { return is_gguf(m, "IQ4_NL", WIDE); }

static inline size_t iq4_nl_row_bytes(const struct matrix *m) { return (size_t)m->columns / 32 * 18; }

static inline struct iq4_nl_row iq4_nl_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct iq4_nl_row){p->weight + row * iq4_nl_row_bytes(m)};
}

static inline struct iq4_nl_block iq4_nl_open(const struct iq4_nl_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 18;
    return (struct iq4_nl_block){bytes + 2, load_f16(bytes)};
}

static inline f32x32 iq4_nl_group(const struct iq4_nl_block *block, int group) {
    (void)group;
    return times(floats_of_i8(look_up(split_nibbles(block->numbers), iq4_levels())), block->scale);
}

#include "../row_format.h"

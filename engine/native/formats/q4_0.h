/* GGUF Q4_0: 32 numbers of 4 bits and one float16 scale in 18 bytes; (number - 8) * scale. */
#define NAME q4_0
#define WIDE 32

struct q4_0_row {
    const uint8_t *blocks;
};

struct q4_0_block {
    const uint8_t *bytes;
    float scale;
};

static inline int q4_0_fits(const struct matrix *m) { return is_gguf(m, "Q4_0", WIDE); }

static inline size_t q4_0_row_bytes(const struct matrix *m) { return (size_t)m->columns / 32 * 18; }

static inline struct q4_0_row q4_0_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q4_0_row){p->weight + row * q4_0_row_bytes(m)};
}

static inline struct q4_0_block q4_0_open(const struct q4_0_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 18;
    return (struct q4_0_block){bytes + 2, load_f16(bytes)};
}

static inline f32x32 q4_0_group(const struct q4_0_block *block, int group) {
    (void)group;
    __m256i numbers = _mm256_sub_epi8(split_nibbles(block->bytes), _mm256_set1_epi8(8));
    return times(floats_of_i8(numbers), block->scale);
}

#include "../row_format.h"

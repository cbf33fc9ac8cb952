/* GGUF Q6_K: 256 numbers of 6 bits in 210 bytes, in groups of 16 with a scale of 8 bits; (number - 32) * scale. Four
   bits of each number come first, then two of each, the scales, and a float16 factor for the block. */
#define NAME q6_k
#define WIDE 256

struct q6_k_row {
    const uint8_t *blocks;
};

struct q6_k_block {
    const uint8_t *bytes;
    float scales[16];
};

static inline int q6_k_fits(const struct matrix *m) { return is_gguf(m, "Q6_K", WIDE); }

static inline size_t q6_k_row_bytes(const struct matrix *m) { return (size_t)m->columns / 256 * 210; }

static inline struct q6_k_row q6_k_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q6_k_row){p->weight + row * q6_k_row_bytes(m)};
}

static inline struct q6_k_block q6_k_open(const struct q6_k_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 210;
    struct q6_k_block opened = {.bytes = bytes};
    scales_of_i8(opened.scales, load16(bytes + 192), load_f16(bytes + 208));
    return opened;
}

static inline f32x32 q6_k_group(const struct q6_k_block *block, int group) {
    __m256i low = load32(block->bytes + group / 4 * 64 + group % 2 * 32);
    low = _mm256_and_si256(group % 4 < 2 ? low : _mm256_srli_epi16(low, 4), _mm256_set1_epi8(15));
    __m256i high = _mm256_srli_epi16(load32(block->bytes + 128 + group / 4 * 32), group % 4 * 2);
    high = _mm256_slli_epi16(_mm256_and_si256(high, _mm256_set1_epi8(3)), 4);
    __m256i numbers = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
    return times_halves(floats_of_i8(numbers), block->scales[2 * group], block->scales[2 * group + 1]);
}

#include "../row_format.h"

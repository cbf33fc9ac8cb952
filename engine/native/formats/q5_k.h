/* GGUF Q5_K: as Q4_K, with a fifth bit of each number in 32 bytes before the others; 176 bytes. */
#define NAME q5_k
#define WIDE 256

struct q5_k_row {
    const uint8_t *blocks;
};

struct q5_k_block {
    const uint8_t *bytes;
    float scales[8], minima[8];
};

static inline int q5_k_fits(const struct matrix *m) { return is_gguf(m, "Q5_K", WIDE); }

static inline size_t q5_k_row_bytes(const struct matrix *m) { return (size_t)m->columns / 256 * 176; }

static inline struct q5_k_row q5_k_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q5_k_row){p->weight + row * q5_k_row_bytes(m)};
}

static inline struct q5_k_block q5_k_open(const struct q5_k_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 176;
    struct q5_k_block opened = {.bytes = bytes};
    k_scales_and_minima(bytes, opened.scales, opened.minima);
    return opened;
}

static inline f32x32 q5_k_group(const struct q5_k_block *block, int group) {
    __m256i fifth = _mm256_and_si256(_mm256_srli_epi16(load32(block->bytes + 16), group), _mm256_set1_epi8(1));
    __m256i numbers = _mm256_or_si256(k_nibbles(block->bytes + 48, group), _mm256_slli_epi16(fifth, 4));
    return minus(times(floats_of_u8(numbers), block->scales[group]), block->minima[group]);
}

#include "../row_format.h"

/* GGUF Q2_K: 256 numbers of 2 bits in 84 bytes, in groups of 16; number * scale - minimum. Scale and minimum of a group
   share a byte, and have a float16 factor each at the end of the block. Q3_K has the same numbers. */
#define NAME q2_k
#define WIDE 256

struct q2_k_row {
    const uint8_t *blocks;
};

struct q2_k_block {
    const uint8_t *bytes;
    float scales[16], minima[16];
};

static inline int q2_k_fits(const struct matrix *m) { return is_gguf(m, "Q2_K", WIDE); }

static inline size_t q2_k_row_bytes(const struct matrix *m) { return (size_t)m->columns / 256 * 84; }

static inline struct q2_k_row q2_k_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q2_k_row){p->weight + row * q2_k_row_bytes(m)};
}

/* Numbers of 2 bits: those of four groups share 32 bytes. */
static ALWAYS_INLINE __m256i k_pairs(const uint8_t *numbers, int group) {
    return _mm256_and_si256(_mm256_srli_epi16(load32(numbers + group / 4 * 32), group % 4 * 2), _mm256_set1_epi8(3));
}

static inline struct q2_k_block q2_k_open(const struct q2_k_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 84;
    struct q2_k_block opened = {.bytes = bytes};
    __m128i both = load16(bytes), low = _mm_set1_epi8(15);
    scales_of_i8(opened.scales, _mm_and_si128(both, low), load_f16(bytes + 80));
    scales_of_i8(opened.minima, _mm_and_si128(_mm_srli_epi16(both, 4), low), load_f16(bytes + 82));
    return opened;
}

static inline f32x32 q2_k_group(const struct q2_k_block *block, int group) {
    f32x32 numbers = floats_of_u8(k_pairs(block->bytes + 16, group));
    numbers = times_halves(numbers, block->scales[2 * group], block->scales[2 * group + 1]);
    return minus_halves(numbers, block->minima[2 * group], block->minima[2 * group + 1]);
}

#include "../row_format.h"

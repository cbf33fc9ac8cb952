/* GGUF Q3_K: 256 numbers of 3 bits in 110 bytes, in groups of 16; (number - 4) * scale. The third bit of each comes
   first, then the other two, then scales of 6 bits, less 32, and a float16 factor for the block. */
#define NAME q3_k
#define WIDE 256

struct q3_k_row {
    const uint8_t *blocks;
};

struct q3_k_block {
    const uint8_t *bytes;
    float scales[16];
};

static inline int q3_k_fits(const struct matrix *m) { return is_gguf(m, "Q3_K", WIDE); }

static inline size_t q3_k_row_bytes(const struct matrix *m) { return (size_t)m->columns / 256 * 110; }

static inline struct q3_k_row q3_k_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q3_k_row){p->weight + row * q3_k_row_bytes(m)};
}

static inline struct q3_k_block q3_k_open(const struct q3_k_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 110;
    struct q3_k_block opened = {.bytes = bytes};
    __m128i low = _mm_loadl_epi64((const __m128i *)(bytes + 96));
    low = _mm_and_si128(_mm_unpacklo_epi64(low, _mm_srli_epi16(low, 4)), _mm_set1_epi8(15));
    int high = (int)load_u32(bytes + 104);
    __m128i upper = _mm_srlv_epi32(_mm_set1_epi32(high), _mm_setr_epi32(0, 2, 4, 6));
    upper = _mm_slli_epi16(_mm_and_si128(upper, _mm_set1_epi8(3)), 4);
    scales_of_i8(opened.scales, _mm_sub_epi8(_mm_or_si128(low, upper), _mm_set1_epi8(32)), load_f16(bytes + 108));
    return opened;
}

static inline f32x32 q3_k_group(const struct q3_k_block *block, int group) {
    __m256i third = _mm256_and_si256(_mm256_srli_epi16(load32(block->bytes), group), _mm256_set1_epi8(1));
    __m256i numbers = _mm256_or_si256(k_pairs(block->bytes + 32, group), _mm256_slli_epi16(third, 2));
    numbers = _mm256_sub_epi8(numbers, _mm256_set1_epi8(4));
    return times_halves(floats_of_i8(numbers), block->scales[2 * group], block->scales[2 * group + 1]);
}

#include "../row_format.h"

/* GGUF Q4_K: 256 numbers of 4 bits in 144 bytes, in groups of 32; number * scale - minimum. Scales and minima have 6
   bits, packed in 12 bytes, and a float16 factor each for the block. Q5_K has the same scales. */
#define NAME q4_k
#define WIDE 256

struct q4_k_row {
    const uint8_t *blocks;
};

struct q4_k_block {
    const uint8_t *numbers;
    float scales[8], minima[8];
};

/* Eight scales of 8 bits each, times a factor. */
static ALWAYS_INLINE void k_scales(float *out, uint32_t first, uint32_t last, float factor) {
    __m256i numbers = _mm256_cvtepu8_epi32(_mm_set_epi32(0, 0, (int)last, (int)first));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(numbers), _mm256_set1_ps(factor)));
}

/* Both from the first 16 bytes of a block: their upper two bits are those of the other four of them. */
static ALWAYS_INLINE void k_scales_and_minima(const uint8_t *bytes, float *scales, float *minima) {
    uint32_t scale = load_u32(bytes + 4), minimum = load_u32(bytes + 8), low = load_u32(bytes + 12);
    k_scales(scales, scale & 0x3F3F3F3F, (low & 0x0F0F0F0F) | (scale >> 2 & 0x30303030), load_f16(bytes));
    k_scales(minima, minimum & 0x3F3F3F3F, (low >> 4 & 0x0F0F0F0F) | (minimum >> 2 & 0x30303030), load_f16(bytes + 2));
}

/* Numbers of two groups share 32 bytes. */
static ALWAYS_INLINE __m256i k_nibbles(const uint8_t *numbers, int group) {
    __m256i raw = load32(numbers + group / 2 * 32);
    return _mm256_and_si256(group % 2 ? _mm256_srli_epi16(raw, 4) : raw, _mm256_set1_epi8(15));
}

static inline int q4_k_fits(const struct matrix *m) { return is_gguf(m, "Q4_K", WIDE); }

static inline size_t q4_k_row_bytes(const struct matrix *m) { return (size_t)m->columns / 256 * 144; }

static inline struct q4_k_row q4_k_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q4_k_row){p->weight + row * q4_k_row_bytes(m)};
}

static inline struct q4_k_block q4_k_open(const struct q4_k_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 144;
    struct q4_k_block opened = {.numbers = bytes + 16};
    k_scales_and_minima(bytes, opened.scales, opened.minima);
    return opened;
}

static inline f32x32 q4_k_group(const struct q4_k_block *block, int group) {
    f32x32 numbers = floats_of_u8(k_nibbles(block->numbers, group));
    return minus(times(numbers, block->scales[group]), block->minima[group]);
}

#include "../row_format.h"

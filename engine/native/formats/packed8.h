/* pack-quantized of compressed-tensors, 8 bits: (number - zero point) * scale, four numbers in an int32 word, lowest
   bits first. Where no zero point is stored it is 128. */
#define NAME packed8
#define GROUP_BYTES 32
#define FACTOR 1.0f
#define ZEROS 1

struct packed8_tables {
    __m256i half;
};

static inline int packed8_fits(const struct matrix *m) {
    return is(m->kind, "packed") && m->bits == 8 && m->columns % 4 == 0 && fits_tiles(m) && !m->wholes;
}

static ALWAYS_INLINE struct packed8_tables packed8_tables(void) {
    return (struct packed8_tables){_mm256_set1_epi8((char)128)};
}

static ALWAYS_INLINE f32x32 packed8_numbers(const struct packed8_tables *tables, const uint8_t *bytes) {
    return floats_of_i8(_mm256_xor_si256(load32(bytes), tables->half));
}

static ALWAYS_INLINE void packed8_scales(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                         size_t tile, float *scales, float *zeros) {
    store_numbers(scales, 0, FLOAT32, scales_from(tiles, p, tile, 0));
    if (p->zero) packed_zeros(m, tiles, p->zero, tile, 128, zeros);
}

#include "../tile_format.h"

/* fp8 E4M3 with scales of tiles, rows, groups of 32 (MXFP8), or one for the whole matrix: number * scale. */
#define NAME fp8_e4m3
#define GROUP_BYTES 32
#define FACTOR 256.0f
#define ZEROS 0

struct fp8_e4m3_tables {
    int none;
};

static inline int fp8_e4m3_fits(const struct matrix *m) {
    return is(m->kind, "fp8") && is(m->dtype, "F8_E4M3") && fits_scales(m);
}

static ALWAYS_INLINE struct fp8_e4m3_tables fp8_e4m3_tables(void) { return (struct fp8_e4m3_tables){0}; }

static ALWAYS_INLINE f32x32 fp8_e4m3_numbers(const struct fp8_e4m3_tables *tables, const uint8_t *bytes) {
    (void)tables;
    return floats_of_e4m3_less(load32(bytes));
}

static ALWAYS_INLINE void fp8_e4m3_scales(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                          size_t tile, float *scales, float *zeros) {
    store_numbers(scales, 0, FLOAT32, scales_from(tiles, p, tile, 0));
    (void)m, (void)zeros;
}

#include "../tile_format.h"

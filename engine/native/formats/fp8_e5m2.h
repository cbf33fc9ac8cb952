/* fp8 E5M2, which is the upper half of float16, with scales as E4M3 has them: number * scale. */
#define NAME fp8_e5m2
#define GROUP_BYTES 32
#define FACTOR 1.0f
#define ZEROS 0

struct fp8_e5m2_tables {
    int none;
};

static inline int fp8_e5m2_fits(const struct matrix *m) {
    return is(m->kind, "fp8") && is(m->dtype, "F8_E5M2") && fits_scales(m);
}

static ALWAYS_INLINE struct fp8_e5m2_tables fp8_e5m2_tables(void) { return (struct fp8_e5m2_tables){0}; }

static ALWAYS_INLINE f32x32 fp8_e5m2_numbers(const struct fp8_e5m2_tables *tables, const uint8_t *bytes) {
    (void)tables;
    return floats_of_f16_bytes(load32(bytes));
}

static ALWAYS_INLINE void fp8_e5m2_scales(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                          size_t tile, float *scales, float *zeros) {
    store_numbers(scales, 0, FLOAT32, scales_from(tiles, p, tile, 0));
    (void)m, (void)zeros;
}

#include "../tile_format.h"

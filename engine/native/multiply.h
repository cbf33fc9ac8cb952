/* Many rows of activations times a strip of unpacked weights, both float32: a tile of sums stays in the registers. */
#ifndef SPLITPIN_MULTIPLY_H
#define SPLITPIN_MULTIPLY_H

#include "vectors.h"

#define TILE_ROWS 4
#define TILE_TOKENS (LANES == 16 ? 6 : 2) /* 24 or 8 sums; the rest of the registers holds what they are made from */

static ALWAYS_INLINE float sum_lanes(vf v) {
#ifdef __AVX512F__
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
    __m256 a = v;
#endif
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static ALWAYS_INLINE void multiply_tile(const float *weights, const int rows, const float *x, const int tokens,
                                        size_t columns, float *out, size_t out_stride, size_t step) {
    vf sums[TILE_ROWS][TILE_TOKENS];
    size_t column = 0;
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int t = 0; t < tokens; t++) sums[r][t] = VF(setzero_ps)();
    for (; column + LANES <= columns; column += LANES) {
        vf values[TILE_TOKENS];
        UNROLLED for (int t = 0; t < tokens; t++) values[t] = VF(loadu_ps)(x + (size_t)t * columns + column);
        UNROLLED for (int r = 0; r < rows; r++) {
            const vf weight = VF(loadu_ps)(weights + (size_t)r * columns + column);
            UNROLLED for (int t = 0; t < tokens; t++) sums[r][t] = VF(fmadd_ps)(weight, values[t], sums[r][t]);
        }
    }
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int t = 0; t < tokens; t++) {
            float sum = sum_lanes(sums[r][t]);
            for (size_t rest = column; rest < columns; rest++)
                sum += weights[(size_t)r * columns + rest] * x[(size_t)t * columns + rest];
            out[(size_t)t * out_stride + (size_t)r * step] = sum;
        }
}

static ALWAYS_INLINE void multiply_rows(const float *weights, const int rows, const float *x, int tokens,
                                        size_t columns, float *out, size_t out_stride, size_t step) {
    for (; tokens >= TILE_TOKENS; tokens -= TILE_TOKENS) {
        multiply_tile(weights, rows, x, TILE_TOKENS, columns, out, out_stride, step);
        x += TILE_TOKENS * columns, out += TILE_TOKENS * out_stride;
    }
    for (; tokens; tokens--) {
        multiply_tile(weights, rows, x, 1, columns, out, out_stride, step);
        x += columns, out += out_stride;
    }
}

static void multiply(const float *weights, int rows, const float *x, int tokens, size_t columns, float *out,
                     size_t out_stride, size_t place, size_t step) {
    for (out += place; rows >= TILE_ROWS; rows -= TILE_ROWS) {
        multiply_rows(weights, TILE_ROWS, x, tokens, columns, out, out_stride, step);
        weights += TILE_ROWS * columns, out += TILE_ROWS * step;
    }
    for (; rows; rows--) {
        multiply_rows(weights, 1, x, tokens, columns, out, out_stride, step);
        weights += columns, out += step;
    }
}

#endif

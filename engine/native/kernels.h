/* Products with packed matrices, and unpacking them: what the C files of this folder share.

   How a format is added
   ---------------------
   1. Write formats/NAME.h (q4_0.h is the shortest example, q4_k.h one with blocks of 256). It holds

        #define NAME my_format
        #define WIDE 32                        weights of a row that one block has: a multiple of 32
        static inline int my_format_fits(const struct matrix *m)
                                               whether this file reads such a matrix, down to tiles and remainders
        static inline size_t my_format_row_bytes(const struct matrix *m)
                                               bytes of the weights of one row (prefetching asks)
        struct my_format_row { ... };          what all blocks of a row share
        static inline struct my_format_row my_format_start(const struct matrix *m, const struct pieces *p, size_t row)
        struct my_format_block { ... };        what all weights of a block share, scales above all
        static inline struct my_format_block my_format_open(const struct my_format_row *row, size_t block)
        static inline f32x32 my_format_group(const struct my_format_block *block, int group)
                                               the 32 weights from column 32 * group of the block on
        #include "../row_format.h"             writes my_format_product and my_format_unpack

      All of it is compiled once for AVX2 and once for AVX-512. Numbers are __m256i of 32 bytes and become f32x32 by the
      functions of vectors.h, which hide the difference; no format file asks which of the two it is compiled for.
   2. Add #include "formats/NAME.h" and FORMAT(NAME) to blocks.c, tiles.c or outputs.c, which are compiled apart from each
      other so that this takes a third of the time. The first format that fits is used.
   3. Add its `MatrixCode` to tests/engine/experts/test_native_blocks.py, _tiles.py or _outputs.py, which compare it with
      engine/experts/dequant, and its name to tests/bench/expert_kernels.py.

   Rules
   -----
   - `group` returns the very float32 numbers of engine/experts/dequant, bit for bit: the same operations in the same
     order, each rounded (the compiler fuses none, and none of them may be fused by hand). The product adds
     weight * activation with one rounding, so a format has no product of its own.
   - For many rows of activations `unpack` is called for `STRIP_ROWS` rows of weights at a time, and multiply.h does
     the rest.
   - Read nothing outside the pieces of the matrix, not one byte: the last record of a bank ends where memory ends.
     Nothing is aligned; use the load functions of vectors.h.
   - No subnormal float32 numbers on the way (they cost a hundred cycles, and some set the processor to flush them):
     small floats become float16 bits first, then `floats_of_f16_bytes` or `floats_of_f16`.
   - Rows with scales and zero points in pieces of their own take tile_format.h instead of row_format.h, layouts whose
     neighbours in memory are outputs (GPTQ, AWQ) output_format.h; each says what it asks of a format. Whatever fits
     none of the three writes NAME_product and NAME_unpack itself, of the types `product_fn` and `unpack_fn`. */
#ifndef SPLITPIN_KERNELS_H
#define SPLITPIN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define INTERFACE 2 /* goes up with every change of a struct or a call that Python sees */

/* One stored matrix of a layer; the same for all experts. Python fills it from a `StoredMatrix` and its `MatrixCode`,
   whose docstring explains the first fields: engine/system/native_library.py has the same struct. */
struct matrix {
    char kind[12], dtype[12], scale_dtype[12]; /* words of MatrixCode, scale_dtype "" for None */
    int32_t rows, columns;                     /* outputs, inputs */
    int32_t tile_rows, tile_columns;           /* weights that share a scale */
    int32_t bits, zero_step, divides;
    int32_t first_row, row_step;               /* where the outputs go: first_row + row * row_step */
    int32_t format;                            /* what `splitpin_find` returned */
    int32_t unused;
    int64_t weight, scale, zero, order;        /* where the pieces begin in a record; -1: there is no such piece */
    const float *wholes;                       /* scales of whole matrices [E], or NULL */
};

/* The pieces of one expert's matrix; NULL: there is no such piece. `whole` is 1 where there is none. */
struct pieces {
    const uint8_t *weight, *scale, *zero, *order;
    float whole;
};

/* One expert and the rows that go through it; also seen by Python. */
struct task {
    const uint8_t *record;
    const float *rows; /* [tokens, columns], one behind the other */
    float *out;        /* [tokens, outputs of all matrices] */
    int32_t expert;    /* its number: place in `wholes` */
    int32_t tokens;
};

#define FEW_ROWS 8    /* of activations: more of them are multiplied with weights that were unpacked to float32 first */
#define STRIP_ROWS 32 /* of weights that are unpacked at a time for them; a strip stays in the caches of one thread */

enum number { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };

/* out[t * out_stride + first_row + row * row_step] = weights of `row` times x[t], for rows from `first` up to `last`. */
typedef void product_fn(const struct matrix *m, const struct pieces *p, const float *x, int tokens, float *out,
                        size_t out_stride, size_t first, size_t last);

/* Row `row` of the matrix to out + (first_row + row * row_step) * out_stride, numbers of the type `type`. */
typedef void unpack_fn(const struct matrix *m, const struct pieces *p, void *out, enum number type, size_t out_stride,
                       size_t first, size_t last);

struct format {
    const char *name;
    int (*fits)(const struct matrix *m);
    product_fn *product;
    unpack_fn *unpack;
};

/* out[t * out_stride + place + row * step] = weights of `row` times x[t]: unpacked weights [rows, columns], float32. */
typedef void multiply_fn(const float *weights, int rows, const float *x, int tokens, size_t columns, float *out,
                         size_t out_stride, size_t place, size_t step);

/* A table of formats ends with one without a name. build.py compiles its file with ISA=avx2 and with ISA=avx512. */
#define FORMAT(name) {#name, name##_fits, name##_product, name##_unpack}
#define TABLE__(name, isa) name##_##isa
#define TABLE_(name, isa) TABLE__(name, isa)
#define TABLE(name) TABLE_(name, ISA)

extern const struct format blocks_avx2[], tiles_avx2[], outputs_avx2[];
extern const struct format blocks_avx512[], tiles_avx512[], outputs_avx512[];
extern multiply_fn *const multiply_avx2, *const multiply_avx512;

static inline int is(const char *word, const char *other) {
    while (*word && *word == *other) word++, other++;
    return *word == *other;
}

static inline int is_gguf(const struct matrix *m, const char *type, int block) {
    return is(m->kind, "gguf") && is(m->dtype, type) && m->columns % block == 0;
}

#endif

/* AWQ: int32 words [columns, rows / 8] with 8 rows of a column each; zero points [groups, rows / 8] likewise, or 8
   where there are none. */
#define NAME awq

struct awq_tables {
    struct nibble_table numbers;
};

struct awq_run {
    const struct matrix *matrix;
    const struct pieces *pieces;
    size_t row, column;
};

static inline int awq_fits(const struct matrix *m) { return is(m->kind, "awq") && m->bits == 4 && fits_groups(m); }

static ALWAYS_INLINE struct awq_tables awq_tables(const struct matrix *m) {
    static const float numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    (void)m;
    return (struct awq_tables){nibble_table(numbers)};
}

static ALWAYS_INLINE struct awq_run awq_open(const struct matrix *m, const struct pieces *p, size_t row,
                                             size_t column) {
    return (struct awq_run){m, p, row, column};
}

static ALWAYS_INLINE f32x32 awq_column(const struct awq_tables *tables, const struct awq_run *run, int i) {
    const struct matrix *m = run->matrix;
    const size_t rows = (size_t)m->rows, column = run->column + (size_t)i;
    prefetch(run->pieces->weight + ((column + 8 * RUNS_AHEAD) * rows + run->row) / 2);
    uint8_t some[32];
    const uint8_t *bytes =
        numbers_at(run->pieces->weight, column * rows + run->row, rows * (size_t)m->columns, 4, some);
    return floats_of_nibbles(bytes, &tables->numbers, AWQ_ORDER);
}

static ALWAYS_INLINE f32x32 awq_zeros(const struct matrix *m, const struct pieces *p, const struct awq_tables *tables,
                                      size_t group, size_t row) {
    if (!p->zero) return all_floats(8.0f);
    uint8_t some[32];
    return floats_of_nibbles(numbers_from(m, p->zero, group, row, some), &tables->numbers, AWQ_ORDER);
}

#include "../output_format.h"

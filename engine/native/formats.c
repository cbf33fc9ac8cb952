/* All formats for one instruction set; compiled once with FORMATS=formats_avx2 and once with formats_avx512. */
#include "kernels.h"
#include "vectors.h"

#include "formats/q4_0.h"

#define FORMAT(name) {#name, name##_fits, name##_product, name##_unpack}

const struct format FORMATS[] = {
    FORMAT(q4_0),
    {0},
};

/* All that depends on the instruction set; compiled once with INSTRUCTIONS=with_avx2 and once with with_avx512. */
#include "kernels.h"
#include "multiply.h"
#include "vectors.h"

#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q5_0.h"
#include "formats/q5_1.h"
#include "formats/q8_0.h"
#include "formats/q2_k.h"
#include "formats/q3_k.h"
#include "formats/q4_k.h"
#include "formats/q5_k.h"
#include "formats/q6_k.h"
#include "formats/iq4_nl.h"
#include "formats/iq4_xs.h"
#include "formats/gguf_mxfp4.h"

#include "outputs.h"
#include "tiles.h"

#include "formats/fp4.h"
#include "formats/fp8_e4m3.h"
#include "formats/fp8_e5m2.h"
#include "formats/int8.h"
#include "formats/packed4.h"
#include "formats/packed8.h"
#include "formats/awq.h"
#include "formats/gptq4.h"
#include "formats/gptq8.h"

#define FORMAT(name) {#name, name##_fits, name##_product, name##_unpack}

static const struct format formats[] = {
    FORMAT(q4_0),
    FORMAT(q4_1),
    FORMAT(q5_0),
    FORMAT(q5_1),
    FORMAT(q8_0),
    FORMAT(q2_k),
    FORMAT(q3_k),
    FORMAT(q4_k),
    FORMAT(q5_k),
    FORMAT(q6_k),
    FORMAT(iq4_nl),
    FORMAT(iq4_xs),
    FORMAT(gguf_mxfp4),
    FORMAT(fp4),
    FORMAT(fp8_e4m3),
    FORMAT(fp8_e5m2),
    FORMAT(int8),
    FORMAT(packed4),
    FORMAT(packed8),
    FORMAT(awq),
    FORMAT(gptq4),
    FORMAT(gptq8),
    {0},
};

const struct instructions INSTRUCTIONS = {formats, multiply};

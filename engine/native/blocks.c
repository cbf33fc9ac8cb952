/* Blocks of GGUF files, and the product with weights that were unpacked before. */
#include "multiply.h"

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

const struct format TABLE(blocks)[] = {
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
    {0},
};

multiply_fn *const TABLE(multiply) = multiply;

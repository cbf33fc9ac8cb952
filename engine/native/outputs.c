/* Weights that lie by outputs: GPTQ and AWQ. */
#include "outputs.h"

#include "formats/awq.h"
#include "formats/gptq4.h"
#include "formats/gptq8.h"

const struct format TABLE(outputs)[] = {
    FORMAT(awq),
    FORMAT(gptq4),
    FORMAT(gptq8),
    {0},
};

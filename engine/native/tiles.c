/* Rows of weights with the scales of tiles beside them: safetensors files. */
#include "tiles.h"

#include "formats/fp4.h"
#include "formats/fp8_e4m3.h"
#include "formats/fp8_e5m2.h"
#include "formats/int8.h"
#include "formats/packed4.h"
#include "formats/packed8.h"

const struct format TABLE(tiles)[] = {
    FORMAT(fp4),
    FORMAT(fp8_e4m3),
    FORMAT(fp8_e5m2),
    FORMAT(int8),
    FORMAT(packed4),
    FORMAT(packed8),
    {0},
};

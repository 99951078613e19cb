"""The numbers of include/ina/ina.h by name."""

import enum

NOBODY = -1
RESULT_ALIGNMENT = 256  # bytes


class Op(enum.IntEnum):
    SUM = 1
    MIN = 2
    MAX = 3
    AVG = 4
    PROD = 5
    BAND = 6
    BOR = 7
    BXOR = 8


class DType(enum.IntEnum):
    INT8 = 1
    INT32 = 2
    INT64 = 3
    FLOAT32 = 4
    FLOAT64 = 5
    BFLOAT16 = 6
    FLOAT16 = 7
    UINT8 = 8
    BOOL = 9

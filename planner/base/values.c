/* values.c - names of the enums in values.h. */
#include "base/values.h"

#include "base/names.h"

ENUM_NAME(init_name, enum init_kind, INIT_MAP)

ENUM_NAME(buffer_values_name, enum buffer_values_kind, BUFFER_VALUES_MAP)

ENUM_NAME(input_name, enum input_kind, INPUT_MAP)

/* kernel.c - names of the enums in kernel.h. */
#include "base/kernel.h"

#include "base/names.h"

ENUM_NAME(category_name, enum category, CATEGORY_MAP)

/* validate_readme.c - puts README.md's table of what was checked there anew (truth_table.h). */
#include "tests/support/truth_table.h"

int main(void)
{
    return truth_table_put() ? 0 : 1;
}

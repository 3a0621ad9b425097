/* validate_readme.c - puts the tables of what was checked into their pages anew (truth_table.h). */
#include "tests/support/truth_table.h"

int main(void)
{
    bool ok = true;
    for (int i = 0; i < TRUTH_TABLES; i++)
        ok = truth_table_put(&truth_tables[i]) && ok;
    return ok ? 0 : 1;
}

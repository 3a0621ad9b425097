/* import_meant.c - which key a key of nobody's was meant to be. */
#include "base/names.h"
#include "frameworks/framework.h"

#include <string.h>

static void keep_nearer(const char *path, const char *name, const char **nearest)
{
    const bool slip = names_misspelt(path, name) || names_lacks_end(path, name);
    if (strcmp(path, name) != 0 && slip && names_nearer(path, name, *nearest))
        *nearest = name;
}

/* The key of this version, by any of its names, that the path is a slip of; NULL: none. */
static const char *misspelt(const struct import *im, const char *path)
{
    const char *nearest = NULL, *other;
    for (uint32_t i = 0; i < im->framework->row_count; i++) {
        const struct key_row *row = &im->framework->rows[i];
        if (!row->syntaxes || row->syntaxes >> im->document.syntax & 1U)
            keep_nearer(path, row->path, &nearest);
    }
    for (uint32_t i = 0; im->framework->other_name && (other = im->framework->other_name(i)); i++)
        keep_nearer(path, other, &nearest);
    return nearest;
}

static void keep_longer(const char *path, const char *name, const char **nearest)
{
    if (names_lacks_word(path, name) && names_nearer(path, name, *nearest))
        *nearest = name;
}

/* The key of this version, of those that are settings, which has one word more; NULL: none. */
static const char *lacks_word(const struct import *im, const char *path)
{
    const char *nearest = NULL, *other;
    for (uint32_t i = 0; i < im->framework->row_count; i++) {
        const struct key_row *row = &im->framework->rows[i];
        if (row->setting && (!row->syntaxes || row->syntaxes >> im->document.syntax & 1U))
            keep_longer(path, row->path, &nearest);
    }
    for (uint32_t i = 0; im->framework->other_name && (other = im->framework->other_name(i)); i++)
        keep_longer(path, other, &nearest);
    return nearest && !import_node(im, nearest) ? nearest : NULL;
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* The only key of this version, not in the file, that is called so in another section; NULL: there
 * is none, or there are several. */
static const char *in_another_section(const struct import *im, const char *path)
{
    const char *found = NULL;
    for (uint32_t i = 0; i < im->framework->row_count; i++) {
        const struct key_row *row = &im->framework->rows[i];
        if (!row->path || (row->syntaxes && !(row->syntaxes >> im->document.syntax & 1U)) ||
            strcmp(last_part(row->path), last_part(path)) != 0 ||
            (found && strcmp(found, row->path) == 0))
            continue;
        if (found)
            return NULL;
        found = row->path;
    }
    return found && !import_node(im, found) ? found : NULL;
}

const char *import_meant(const struct import *im, const char *path)
{
    const char *slip = misspelt(im, path);
    if (!slip)
        slip = lacks_word(im, path);
    return slip ? slip : in_another_section(im, path);
}

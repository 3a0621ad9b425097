/* files.h - the files that commands leave in a folder. */
#ifndef SHARDPLAN_FILES_H
#define SHARDPLAN_FILES_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Makes the folder, and those that it lies in, unless they are there. ERR_IO names the one that
 * cannot be made; those before it stay. */
enum err_code files_make_folder(const char *dir, struct err *err);

/* Whether it can be made and files in it, to be asked before what takes long: makes nothing. ERR_IO
 * names what is in the way. */
enum err_code files_check_folder(const char *dir, struct err *err);

/* Removes a folder of the caller's own, with all that others have left in it; "": there is none. */
void files_remove_folder(const char *dir);

/* As files_make_folder, of the folder that a file is to lie in. */
enum err_code files_make_parent(const char *file, struct err *err);

/* "DIR/NAME", written into path, which is returned. */
const char *files_path(const char *dir, const char *name, char *path, size_t size);

/* Writes a value as DIR/NAME, and gives the value up. */
enum err_code files_write_json(const char *dir, const char *name, json_t *value, struct err *err);

/* Makes a folder for results, unless it is there, waits until no other process writes its own into
 * it, and holds it until it is given back: what lies in it is of one command. A command holds it
 * once; a second time it would wait for itself. Where the file system has no locks, nothing is
 * held.
 */
enum err_code files_take_folder(const char *dir, int *hold, struct err *err);
void files_give_folder(int hold);

/* Runs gnuplot in a folder on a script that lies there, so that neither has to name the folder,
 * whose name may hold what a script cannot say; its messages go nowhere. Returns whether it drew.
 */
bool files_gnuplot(const char *dir, const char *script);

/* Copies an SVG from its <svg on, so that it can stand inside a page; nothing if it is not there.
 */
void files_inline_svg(FILE *to, const char *path);

/* The beginning of a page, its title also as a heading. */
void files_html_begin(FILE *to, const char *title);

/* A text with what HTML would take for markup escaped; '?' for what is no UTF-8. */
void files_html_text(FILE *to, const char *text);

/* What `print` writes, as preformatted text of a page. */
void files_html_pre(FILE *to, void (*print)(FILE *to, const void *context), const void *context);

/* A text as a gnuplot string: in single quotes, those within doubled, control characters left out,
 * '?' for what is no UTF-8. */
void files_gnuplot_text(FILE *to, const char *text);

#endif

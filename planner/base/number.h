/* number.h - numbers as people write them: the one place where typed text becomes a number.
 *
 * All functions take the whole text or nothing: no spaces, no trailing letters, no "inf", "nan" or
 * hexadecimal, nothing that does not fit. What range is sensible is the caller's to say. */
#ifndef SHARDPLAN_NUMBER_H
#define SHARDPLAN_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

enum { NUMBER_TEXT = 40 }; /* characters that hold any number written here */

/* "42": decimal digits only, below 2^64. */
bool number_integer(const char *text, uint64_t *out);

/* "8k": 8 x 1024, as lengths of sequences are called. */
bool number_kilo(const char *text, uint64_t *out);

/* "-0.5", "1e-3": a finite double; too small for one is 0. */
bool number_real(const char *text, double *out);

/* "4096", "500MB", "1.5GiB": bytes below 2^63, a fraction of one is cut. Units B, KB ... TB and
 * KiB ... TiB in any case; "80G" is refused, because people mean either. Without a unit: digits. */
bool number_bytes(const char *text, uint64_t *out);

/* A short text that number_real reads back as the same value; `single`: as the same float. */
const char *number_real_text(double value, bool single, char text[NUMBER_TEXT]);

/* The same for number_bytes: in the largest unit that divides it, "500MB", "80GiB", "4097B". */
const char *number_bytes_text(uint64_t bytes, char text[NUMBER_TEXT]);

#endif

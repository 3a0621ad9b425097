/* version_notes.h - what a version of PyTorch other than the newest does otherwise is shown with
 * the plan that follows it. */
#ifndef SHARDPLAN_VERSION_NOTES_H
#define SHARDPLAN_VERSION_NOTES_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* A line for each: "torch 2.8: one rank gathers from itself, as many do (until 2.9)". */
void version_notes_print(FILE *file, uint32_t torch);

/* The member "torch" of an object: {"version", "otherwise": [{"does", "until", "source"}, ...]}. */
void version_notes_set(json_t *object, uint32_t torch);

#endif

/* build_gpt2.h - GPT-2's two builders: for family_gpt2.c. */
#ifndef SHARDPLAN_BUILD_GPT2_H
#define SHARDPLAN_BUILD_GPT2_H

#include "model/family.h"

family_builder build_gpt2;    /* nanoGPT's op sequence */
family_builder build_hf_gpt2; /* transformers' */

#endif

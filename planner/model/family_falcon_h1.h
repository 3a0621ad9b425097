/* family_falcon_h1.h - Falcon-H1's builder: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILY_FALCON_H1_H
#define SHARDPLAN_FAMILY_FALCON_H1_H

#include "model/family.h"

/* transformers'. */
family_builder build_hf_falcon_h1;

#endif

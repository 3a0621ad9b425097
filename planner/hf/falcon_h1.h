/* falcon_h1.h - Falcon-H1's builder. */
#ifndef SHARDPLAN_HF_FALCON_H1_H
#define SHARDPLAN_HF_FALCON_H1_H

#include "model/builder.h"

model_builder build_hf_falcon_h1;

#endif

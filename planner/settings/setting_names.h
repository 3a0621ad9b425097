/* setting_names.h - values of settings that are built in: GPUs, node types, models. */
#ifndef SHARDPLAN_SETTING_NAMES_H
#define SHARDPLAN_SETTING_NAMES_H

#include "settings/setting.h"

extern const struct setting_names setting_gpus, setting_nodes, setting_models;

#endif

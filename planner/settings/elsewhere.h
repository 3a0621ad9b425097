/* elsewhere.h - what other programs call a setting: for who types the name that he is used to. */
#ifndef SHARDPLAN_ELSEWHERE_H
#define SHARDPLAN_ELSEWHERE_H

/* What to say of a name that no setting has, typed with or without "--", '-' or '_' between its
 * words: *setting is the name of the one that is meant, or NULL where there is none; then the text
 * says what is planned instead. NULL: nobody is known to call anything so. Lent. */
const char *elsewhere_say(const char *name, const char **setting);

/* What is planned in the place of a value that other programs' setting of that kind has and this
 * one's has not: "sgd is"; NULL: nobody is known to have it. Lent. */
const char *elsewhere_value(const char *setting, const char *text);

#endif

/* err.h - one error type: a code for programs, a sentence for people.
 *
 * A function that can fail returns an enum err_code and takes a struct err as its last argument.
 * The first failure writes the sentence; callers on the way up may put context in front of it.
 * Nothing below cli/ prints or exits. */
#ifndef SHARDPLAN_ERR_H
#define SHARDPLAN_ERR_H

#define ERR_MAP(X)                                                                                 \
    X(OK, "ok")                                                                                    \
    X(INVALID, "invalid input")                                                                    \
    X(INFEASIBLE, "does not fit")                                                                  \
    X(UNSUPPORTED, "not supported")                                                                \
    X(NOMEM, "out of memory")                                                                      \
    X(IO, "input/output error")                                                                    \
    X(DEVICE, "device call failed")                                                                \
    X(INTERNAL, "internal error")

enum err_code {
#define X(name, text) ERR_##name,
    ERR_MAP(X)
#undef X
};

struct err {
    enum err_code code;
    char text[1024]; /* a sentence without a final period; empty when code is ERR_OK */
};

/* Records the first failure (a later call keeps the first) and returns its code. err may be NULL.
 */
enum err_code err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " in front of the recorded sentence and returns its code. err may be NULL. */
enum err_code err_context(struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The code of the failure that is recorded, for callers of what returns none of its own;
 * ERR_INVALID where err is NULL. */
static inline enum err_code err_recorded(const struct err *err)
{
    return err ? err->code : ERR_INVALID;
}

/* The fixed text of a code, for example "invalid input". Never NULL. */
const char *err_name(enum err_code code);

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code try_rc_ = (call);                                                            \
        if (try_rc_ != ERR_OK)                                                                     \
            return try_rc_;                                                                        \
    } while (0)

#define TRY_GOTO(rc, call, label)                                                                  \
    do {                                                                                           \
        (rc) = (call);                                                                             \
        if ((rc) != ERR_OK)                                                                        \
            goto label;                                                                            \
    } while (0)

#endif

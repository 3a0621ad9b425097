/* recording_steps.c - see recording_steps.h. */
#include "recorded/recording_steps.h"

#include <stdlib.h>
#include <string.h>

struct text { /* being read */
    const struct recording *recording;
    const struct recorded_limits *limits;
    struct recorded_steps *steps;
    bool *alive, *given; /* (buffers), (parameters) */
    uint32_t *saved;     /* (parameters) views of it that nodes have */
    uint8_t *passed;     /* (modules and the root) borders so far: of forward 1, 2; backward 3, 4 */
    bool backward, final; /* behind =loss, behind =final */
    bool came_back;       /* the recording says where backward is back (RECORDED_BACK) */
    uint32_t alive_cap;
    const char *at, *end; /* the step being read */
    uint32_t line;
    struct err *err;
};

static enum err_code wrong(const struct text *t, const char *what)
{
    return err_set(t->err, ERR_INVALID, "%s: line %u: step %u, \"%.*s\": %s", t->recording->path,
                   t->line, t->steps->count, (int)(t->end - t->at < 60 ? t->end - t->at : 60),
                   t->at, what);
}

/* A number below `limit` at *at, which moves behind it. */
static bool number(const char **at, uint32_t limit, uint32_t *out)
{
    uint64_t value = 0;
    const char *c = *at;
    for (; *c >= '0' && *c <= '9' && value <= UINT32_MAX; c++)
        value = 10 * value + (uint64_t)(*c - '0');
    if (c == *at || value >= limit)
        return false;
    *at = c;
    *out = (uint32_t)value;
    return true;
}

static bool buffer_at(const struct text *t, const char **at, uint32_t *out)
{
    return number(at, t->steps->buffers, out) && t->alive[*out];
}

static bool place_at(const struct text *t, const char **at, uint32_t *out)
{
    static const struct {
        char letter;
        uint32_t place;
    } kinds[] = {{'p', PLACE_PARAM}, {'i', PLACE_INPUT}, {'m', PLACE_MODULE_BUFFER}};
    const uint32_t limits[] = {t->limits->params, t->limits->inputs, t->limits->constants};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (**at == kinds[k].letter) {
            ++*at;
            if (!number(at, limits[k], out))
                return false;
            *out |= kinds[k].place;
            return true;
        }
    return buffer_at(t, at, out);
}

static enum err_code read_call(struct text *t, struct recorded_step *step)
{
    struct recorded_steps *s = t->steps;
    const char *at = t->at;
    if (!number(&at, t->recording->call_count, &step->arg) || *at++ != ':')
        return wrong(t, "no such call");
    const uint32_t places = t->recording->calls[step->arg].places;
    step->first_place = s->place_count;
    for (uint32_t i = 0; i < places; i++) {
        if (i > 0 && *at++ != ',')
            return wrong(t, "the call has more operands");
        if (s->place_count == s->place_cap)
            s->places =
                xrealloc(s->places, (s->place_cap = 2 * s->place_cap + 1024) * sizeof *s->places);
        if (!place_at(t, &at, &s->places[s->place_count++]))
            return wrong(t, "an operand is nothing that is there");
    }
    step->recomputed = *at == 'r';
    at += step->recomputed;
    step->sums = *at == 'a';
    at += step->sums;
    return at == t->end ? ERR_OK : wrong(t, "the call has fewer operands");
}

static enum err_code read_birth(struct text *t, struct recorded_step *step)
{
    const char *at = t->at + 1;
    if (!number(&at, t->recording->type_count, &step->arg) || at != t->end)
        return wrong(t, "no such type");
    if (t->steps->buffers == t->alive_cap)
        t->alive = xrealloc(t->alive, (t->alive_cap = 2 * t->alive_cap + 1024) * sizeof *t->alive);
    step->buffer = t->steps->buffers++;
    t->alive[step->buffer] = true;
    return ERR_OK;
}

static enum err_code read_death(struct text *t, struct recorded_step *step)
{
    const char *at = t->at + 1;
    if (!buffer_at(t, &at, &step->buffer) || at != t->end)
        return wrong(t, "no such buffer is alive");
    t->alive[step->buffer] = false;
    return ERR_OK;
}

static enum err_code read_gradient(struct text *t, struct recorded_step *step)
{
    const char *at = t->at + 1;
    if (!number(&at, t->limits->params, &step->arg) || *at++ != ':' ||
        !buffer_at(t, &at, &step->buffer) || at != t->end)
        return wrong(t, "no such parameter, or no such buffer is alive");
    if (!t->backward)
        return wrong(t, "gradients come behind =loss");
    if (!t->limits->trained[step->arg])
        return wrong(t, "this parameter is not trained");
    if (t->given[step->arg])
        return wrong(t, "this parameter has its gradient already");
    t->given[step->arg] = true;
    t->alive[step->buffer] = false; /* the strategy's from here on */
    return ERR_OK;
}

static enum err_code read_border(struct text *t, struct recorded_step *step)
{
    const char *at = t->at + 1;
    step->arg = MODULE_ROOT;
    if (*at == 'r')
        at++;
    else if (!number(&at, t->limits->modules, &step->arg))
        return wrong(t, "no such module");
    if (at != t->end)
        return wrong(t, "no such module");
    const uint8_t border = (uint8_t)(step->kind - RECORDED_PRE_FORWARD + 1);
    uint8_t *root = &t->passed[t->limits->modules];
    uint8_t *passed = step->arg == MODULE_ROOT ? root : &t->passed[step->arg];
    /* hooks find no tensor in what a root returns that is no container to them: backward never
     * begins at its border, or did before it did at others' */
    const bool inside = passed == root ? !t->steps->unbegun : t->backward ? *root >= 2 : *root == 1;
    if (t->backward && border == 4 && *passed == 2 && passed != root)
        return err_set(t->err, ERR_UNSUPPORTED,
                       "%s: backward never comes to module %u of \"modules\", whose output nobody "
                       "uses (the last layer of LLaVA's tower): planned under fsdp2 alone",
                       t->recording->path, step->arg);
    if (*passed + 1 != border || t->backward != (border > 2) || !inside)
        return wrong(t, "modules are called once, in the root, and come back in that order");
    t->steps->unbegun |= t->backward && *root == 2 && passed != root;
    *passed = border;
    return ERR_OK;
}

static enum err_code read_back(struct text *t, struct recorded_step *step)
{
    const char *at = t->at + 1;
    if (!number(&at, t->limits->modules, &step->arg) || at != t->end)
        return wrong(t, "no such module");
    return t->passed[step->arg] >= 3 ? ERR_OK : wrong(t, "its backward has not begun");
}

/* Recordings of before there was RECORDED_BACK: the hooks of what a module was called with fire
 * after those of who returned it, and behind both is where backward came back to. Nodes of views
 * that were made in between, before the module's forward, run before either. */
static void add_back(struct text *t, const struct recorded_step *post)
{
    struct recorded_steps *s = t->steps;
    struct recorded_step *last = s->count ? &s->of[s->count - 1] : NULL;
    if (t->came_back || !last || last->kind != RECORDED_PRE_BACKWARD || last->arg == MODULE_ROOT)
        return;
    const struct recorded_step pre = *last;
    *last = (struct recorded_step){.kind = RECORDED_BACK, .arg = post->arg};
    ARRAY_GROW(s->of, s->count, s->cap);
    s->of[s->count++] = pre;
}

/* Hooks of every module: those of one may fire as often as it is called. */
static enum err_code read_called(struct text *t, struct recorded_step *step)
{
    const char *at = t->at + 1;
    const bool back = step->kind == RECORDED_CALLED_BACK || step->kind == RECORDED_RETURNED_BACK;
    if (!number(&at, t->limits->called, &step->arg) || at != t->end)
        return wrong(t, "no such module");
    return back == t->backward ? ERR_OK : wrong(t, "it is on the other side of =loss");
}

/* A node saves a view of a parameter, or lets go of one. */
static enum err_code read_saved(struct text *t, struct recorded_step *step)
{
    const char *at = t->at + 1;
    const bool saves = step->kind == RECORDED_SAVED;
    if (!number(&at, t->limits->params, &step->arg) || at != t->end)
        return wrong(t, "no such parameter");
    if (!saves && t->saved[step->arg] == 0)
        return wrong(t, "no node has saved a view of this parameter");
    t->saved[step->arg] += saves ? 1 : -1U;
    return ERR_OK;
}

static enum err_code read_mark(struct text *t, struct recorded_step *step)
{
    static const struct {
        const char *name;
        enum recorded_step_kind kind;
    } marks[] = {{"=logits", RECORDED_LOGITS},
                 {"=loss", RECORDED_LOSS},
                 {"=blocks", RECORDED_BLOCKS},
                 {"=final", RECORDED_FINAL}};
    const size_t length = (size_t)(t->end - t->at);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (strlen(marks[i].name) == length && memcmp(marks[i].name, t->at, length) == 0) {
            step->kind = marks[i].kind;
            t->backward = t->backward || step->kind == RECORDED_LOSS;
            t->final = t->final || step->kind == RECORDED_FINAL;
            return ERR_OK;
        }
    return wrong(t, "no such mark: allowed are logits, loss, blocks, final");
}

static enum err_code read_step(struct text *t, struct recorded_step *step)
{
    if (t->final && *t->at != '-')
        return wrong(t, "behind =final buffers die, and nothing else");
    switch (*t->at) {
    case '+':
        step->kind = RECORDED_BIRTH;
        return read_birth(t, step);
    case '-':
        step->kind = RECORDED_DEATH;
        return read_death(t, step);
    case 'g':
        step->kind = RECORDED_GRADIENT;
        return read_gradient(t, step);
    case '(':
        step->kind = RECORDED_PRE_FORWARD;
        return read_border(t, step);
    case ')':
        step->kind = RECORDED_POST_FORWARD;
        return read_border(t, step);
    case '<':
        step->kind = RECORDED_PRE_BACKWARD;
        return read_border(t, step);
    case '>':
        step->kind = RECORDED_POST_BACKWARD;
        return read_border(t, step);
    case '|':
        step->kind = RECORDED_BACK;
        return read_back(t, step);
    case '{':
        step->kind = RECORDED_CALLED;
        return read_called(t, step);
    case '}':
        step->kind = RECORDED_RETURNED;
        return read_called(t, step);
    case '[':
        step->kind = RECORDED_CALLED_BACK;
        return read_called(t, step);
    case ']':
        step->kind = RECORDED_RETURNED_BACK;
        return read_called(t, step);
    case 's':
        step->kind = RECORDED_SAVED;
        return read_saved(t, step);
    case 'u':
        step->kind = RECORDED_UNSAVED;
        return read_saved(t, step);
    case '=':
        return read_mark(t, step);
    default:
        step->kind = RECORDED_CALL;
        return read_call(t, step);
    }
}

/* A stream has one end of forward, one of backward behind it, and nothing left alive. */
static enum err_code check_whole(const struct text *t)
{
    uint32_t losses = 0, finals = 0;
    for (uint32_t i = 0; i < t->steps->count; i++) {
        losses += t->steps->of[i].kind == RECORDED_LOSS;
        finals += t->steps->of[i].kind == RECORDED_FINAL && losses == 1;
    }
    if (losses != 1 || finals != 1)
        return wrong(t, "one =loss is needed, and one =final behind it");
    for (uint32_t b = 0; b < t->steps->buffers; b++)
        if (t->alive[b])
            return wrong(t, "a buffer never dies");
    for (uint32_t p = 0; p < t->limits->params; p++)
        if (t->saved[p])
            return wrong(t, "a node never lets go of a parameter");
    return ERR_OK;
}

enum err_code recorded_steps_read(const struct recording *recording, uint32_t line,
                                  const char *text, const struct recorded_limits *limits,
                                  struct recorded_steps *out, struct err *err)
{
    enum { ROOM = 1024 };
    struct text t = {.recording = recording,
                     .limits = limits,
                     .steps = out,
                     .alive = xcalloc(ROOM, sizeof *t.alive),
                     .alive_cap = ROOM,
                     .given = xcalloc(limits->params + 1, sizeof *t.given),
                     .saved = xcalloc(limits->params + 1, sizeof *t.saved),
                     .passed = xcalloc(limits->modules + 1, sizeof *t.passed),
                     .came_back = strchr(text, '|') != NULL,
                     .at = text,
                     .end = text,
                     .line = line,
                     .err = err};
    enum err_code rc = ERR_OK;
    *out = (struct recorded_steps){.of = NULL};
    while (rc == ERR_OK && *t.at) {
        struct recorded_step step = {.arg = 0};
        t.end = t.at + strcspn(t.at, " ");
        rc = read_step(&t, &step);
        if (rc != ERR_OK)
            break;
        if (step.kind == RECORDED_POST_BACKWARD && step.arg != MODULE_ROOT)
            add_back(&t, &step);
        ARRAY_GROW(out->of, out->count, out->cap);
        out->of[out->count++] = step;
        t.at = *t.end ? t.end + 1 : t.end;
    }
    t.end = t.at;
    if (rc == ERR_OK)
        rc = check_whole(&t);
    free(t.alive);
    free(t.given);
    free(t.saved);
    free(t.passed);
    return rc;
}

void recorded_steps_free(struct recorded_steps *steps)
{
    free(steps->of);
    free(steps->places);
    *steps = (struct recorded_steps){.of = NULL};
}

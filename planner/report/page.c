/* page.c - see page.h. */
#include "report/page.h"

#include "report/style.h"

static double gib(double bytes)
{
    return bytes / 1073741824.0;
}

void page_verdict(FILE *to, const struct settings *settings, const struct prediction *p,
                  const struct profile *profile, const struct step_time *time)
{
    char number[32], host[96] = "";
    if (!p->fits_host)
        snprintf(host, sizeof host, ", %.2f of %.2f GiB of the host",
                 gib((double)p->host_needed_bytes), gib((double)p->host_capacity_bytes));
    const double capacity = profile_value(profile, PROFILE_CAPACITY);
    fprintf(
        to,
        "<p class=\"verdict\"><b class=\"%s\">%s</b>%s: %.2f of %.2f GiB a GPU%s; a step of %.4g "
        "s, %s tokens/s a GPU%s%s.</p>\n",
        p->fits ? "good" : "bad", p->fits ? "fits" : "does not fit", p->tight ? ", tight" : "",
        gib((double)p->device_bytes), gib(capacity), host, time->timeline.step_s,
        style_grouped((uint64_t)(time->tokens_per_s + 0.5), number),
        settings->unplanned
            ? "; this is not quite the file's job (the list of what is not modelled is "
              "below)"
            : "",
        settings->misspelt ? "; the file has keys that are not known, and may be misspelt (the "
                             "list is below)"
                           : "");
}

void page_picture_begin(FILE *to, double left, double right, double from, double to_x)
{
    fprintf(to,
            "<div class=\"picture\" data-left=\"%g\" data-right=\"%g\" data-from=\"%.9g\" "
            "data-to=\"%.9g\">\n",
            left, right, from, to_x);
}

void page_picture_end(FILE *to)
{
    fputs(
        "</div>\n<div class=\"reading\">Point at the picture to read it; turn the wheel over it to "
        "zoom, double-click to see all of it.</div>\n",
        to);
}

void page_terms(FILE *to)
{
    static const char *const terms[][2] = {
        {"requested", "the bytes of all tensors that are alive: the coloured areas"},
        {"allocated", "the same in blocks of 512 bytes, and what kernels take beside tensors: "
                      "<code>torch.cuda.max_memory_allocated()</code>"},
        {"reserved", "what PyTorch's caching allocator holds of the GPU, used or not: "
                     "<code>torch.cuda.max_memory_reserved()</code>"},
        {"outside the allocator", "the CUDA context and NCCL's buffers"},
        {"device", "reserved and that together, as <code>nvidia-smi</code> shows it: what must "
                   "fit"},
        {"capacity", "what the GPU has"},
    };
    fputs("<p>Drawn twice, as the program is long and as the step is: there a tensor is allocated "
          "when the device comes to its first kernel, though the host asked for it "
          "earlier.</p>\n<dl>",
          to);
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++)
        fprintf(to, "<dt>%s</dt><dd>%s</dd>\n", terms[i][0], terms[i][1]);
    fputs("</dl>\n", to);
}

void page_put_text(FILE *to, const char *text)
{
    for (; *text; text++)
        if (*text != '"' && *text != '\\' && *text != '<' && (unsigned char)*text >= ' ')
            fputc(*text, to);
}

/* The view box is what is seen: zooming makes it narrower around the pointer, never wider than the
 * picture. */
void page_script(FILE *to)
{
    fputs("<script>\n"
          "for (const box of document.querySelectorAll('.picture')) {\n"
          "  const svg = box.querySelector('svg'), out = box.nextElementSibling;\n"
          "  if (!svg) continue;\n"
          "  const data = box.querySelector('script'), rows = data ? JSON.parse(data.text) : [];\n"
          "  const whole = svg.viewBox.baseVal, all = {x: whole.x, y: whole.y, w: whole.width, "
          "h: whole.height};\n"
          "  const at = event => { const r = svg.getBoundingClientRect();\n"
          "    return whole.x + whole.width * (event.clientX - r.left) / r.width; };\n"
          "  svg.addEventListener('pointermove', event => {\n"
          "    const d = box.dataset, share = (at(event) - all.x) / all.w;\n"
          "    const x = +d.from + (share - d.left) / (d.right - d.left) * (d.to - d.from);\n"
          "    let low = 0, high = rows.length;\n"
          "    while (low < high) { const mid = (low + high) >> 1;\n"
          "      if (rows[mid][0] <= x) low = mid + 1; else high = mid; }\n"
          "    out.textContent = share < d.left || share > d.right || !rows.length ? '' :\n"
          "      rows[Math.max(0, low - 1)][1];\n"
          "  });\n"
          "  svg.addEventListener('wheel', event => {\n"
          "    event.preventDefault();\n"
          "    const x = at(event), f = event.deltaY < 0 ? 0.8 : 1.25;\n"
          "    const w = Math.min(all.w, Math.max(all.w / 200, whole.width * f));\n"
          "    const left = x - (x - whole.x) * w / whole.width;\n"
          "    svg.setAttribute('preserveAspectRatio', 'none');\n"
          "    svg.setAttribute('viewBox', [Math.min(Math.max(all.x, left), all.x + all.w - w), "
          "all.y, w, all.h].join(' '));\n"
          "  }, {passive: false});\n"
          "  svg.addEventListener('dblclick', () =>\n"
          "    svg.setAttribute('viewBox', [all.x, all.y, all.w, all.h].join(' ')));\n"
          "}\n"
          "</script>\n",
          to);
}

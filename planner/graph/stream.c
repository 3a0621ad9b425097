/* stream.c - see stream.h. */
#include "graph/stream.h"

#include <stdlib.h>

void stream_free(struct stream *stream)
{
    if (!stream)
        return;
    free(stream->steps);
    free(stream->buffers);
    kernel_table_release(stream->kernels);
    free(stream->grads);
    free(stream->given);
    free(stream);
}

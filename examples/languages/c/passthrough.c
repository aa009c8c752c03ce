/* Passthrough: what a message costs without any work. */
#include "weir_udf.h"

static weir_error forward(const weir_message *message, weir_emitter *out) {
    (void)message;
    weir_forward(out);
    return NULL;
}

WEIR_TRANSFORM(NULL, forward);

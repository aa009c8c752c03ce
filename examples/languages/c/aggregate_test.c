#include "aggregate.c"
#include "weir_test.h"

int main(void) {
    WEIR_CHECK_TEXT(weir_test_configure(configure, "null"), "config: field: name the field to sum up");
    WEIR_CHECK_TEXT(weir_test_configure(configure, "{\"field\":\"amount\"}"), NULL);

    const weir_test_message messages[] = {{"{\"amount\":5}", NULL, 0, NULL, NULL}, {"{\"amount\":\"x\"}", NULL, 0, NULL, NULL},
                                          {"{\"amount\":-7}", NULL, 0, NULL, NULL}, {"{\"amount\":1}", NULL, 0, NULL, NULL}, {NULL, NULL, 0, NULL, NULL}};
    WEIR_CHECK(weir_test_aggregate(&totals, messages, 5) == 1);
    WEIR_CHECK_TEXT(weir_test_value(0), "{\"count\":3,\"sum\":-1}");
    WEIR_CHECK(weir_test_event_time_ms(0) == 59999);
    WEIR_CHECK_TEXT(weir_test_rejected(1), "amount: expected a whole number");
    WEIR_CHECK_TEXT(weir_test_rejected(4), "not a JSON object");

    /* Where nothing was taken, no window opens. */
    WEIR_CHECK(weir_test_aggregate(&totals, messages + 1, 1) == 0);
    return 0;
}

#include "transform.c"
#include "weir_test.h"

int main(void) {
    WEIR_CHECK_TEXT(weir_test_configure(configure, "{\"large_from\":0}"), "config: large_from: expected a whole number of at least 1");
    WEIR_CHECK_TEXT(weir_test_configure(configure, "{\"large_from\":500}"), NULL);

    /* Orders are masked and sized. */
    const weir_test_message orders[] = {
        {"{\"id\":1,\"email\":\"ann@example.com\",\"amount\":499,\"ts\":7,\"note\":\"\303\251 <b>\"}", NULL, 5, "trace", "t1"},
        {"{\"id\":2,\"email\":\"bob@example.com\",\"amount\":500}", NULL, 5, NULL, NULL},
        {"{\"id\":3,\"deleted\":true}", NULL, 5, NULL, NULL},
        {NULL, "4", 5, NULL, NULL},
    };
    WEIR_CHECK(weir_test_transform(transform, orders, 4) == 4);
    WEIR_CHECK_TEXT(weir_test_value(0), "{\"id\":1,\"email\":\"a***@example.com\",\"amount\":499,\"size\":\"small\",\"note\":\"\303\251 <b>\"}");
    WEIR_CHECK_TEXT(weir_test_key(0), "1");
    WEIR_CHECK_TEXT(weir_test_attribute(0, "size"), "small");
    WEIR_CHECK_TEXT(weir_test_attribute(0, "trace"), "t1");
    WEIR_CHECK_TEXT(weir_test_route(0), NULL);
    WEIR_CHECK(weir_test_event_time_ms(0) == 7);
    WEIR_CHECK_TEXT(weir_test_route(1), "large");
    WEIR_CHECK_TEXT(weir_test_value(2), NULL);
    WEIR_CHECK_TEXT(weir_test_key(2), "3");
    WEIR_CHECK_TEXT(weir_test_value(3), NULL);
    WEIR_CHECK(weir_test_origin(3) == 3);

    /* What is no order is rejected. */
    const weir_test_message others[] = {{"x", NULL, 0, NULL, NULL}, {"[]", NULL, 0, NULL, NULL}, {"{}", NULL, 0, NULL, NULL}, {"{\"id\":\"1\"}", NULL, 0, NULL, NULL},
                                        {"{\"id\":1,\"email\":\"a@b\",\"amount\":-1}", NULL, 0, NULL, NULL}, {"{\"id\":1}", NULL, 0, NULL, NULL}};
    const char *const reasons[] = {"not a JSON object", "not a JSON object", "id: expected a whole number", "id: expected a whole number",
                                   "amount: expected a whole number of cents", "email: expected an address"};
    WEIR_CHECK(weir_test_transform(transform, others, 6) == 0);
    for (size_t i = 0; i < 6; i++) WEIR_CHECK_TEXT(weir_test_rejected(i), reasons[i]);
    return 0;
}

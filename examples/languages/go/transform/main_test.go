package main

import (
	"reflect"
	"testing"

	"weir/udf/udftest"
)

func TestOrdersAreMaskedAndSized(t *testing.T) {
	results := udftest.Transform(t, build, `{"large_from":500}`,
		udftest.Value(`{"id":1,"email":"ann@example.com","amount":499,"ts":7,"note":"é <b>"}`),
		udftest.Value(`{"id":2,"email":"bob@example.com","amount":500}`),
		udftest.Value(`{"id":3,"deleted":true}`),
		udftest.Message{})
	rows := results.Rows
	if got := string(rows[0].Value); got != `{"id":1,"email":"a***@example.com","amount":499,"size":"small","note":"é <b>"}` {
		t.Fatal(got)
	}
	if string(rows[0].Key) != "1" || rows[0].EventTimeMs != 7 || rows[0].Route != "" || rows[1].Route != "large" {
		t.Fatalf("%+v", rows)
	}
	if rows[2].Value != nil || string(rows[2].Key) != "3" || rows[3].Value != nil {
		t.Fatalf("%+v", rows)
	}
}

func TestWhatIsNoOrderIsRejected(t *testing.T) {
	reasons := udftest.Transform(t, build, "null", udftest.Values("x", "[]", "{}", `{"id":"1"}`, `{"id":1}`, `{"id":1,"email":"a@b","amount":-1}`)...).Reasons()
	want := []string{"not a JSON object", "not a JSON object", expected["id"], expected["id"], expected["email"], expected["amount"]}
	if !reflect.DeepEqual(reasons, want) {
		t.Fatal(reasons)
	}
}

func TestAWrongLimitIsRefused(t *testing.T) {
	if got := udftest.Refusal(t, build, `{"large_from":0}`); got != "config: large_from: expected a whole number of at least 1" {
		t.Fatal(got)
	}
}

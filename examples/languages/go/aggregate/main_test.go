package main

import (
	"reflect"
	"testing"

	"weir/udf/udftest"
)

func TestAFieldIsCountedAndSummedUp(t *testing.T) {
	results := udftest.Aggregate(t, build, `{"field":"amount"}`, udftest.Values(`{"amount":5}`, `{"amount":-7}`, `{"amount":"5"}`, `x`, `{}`, `{"amount":40}`)...)
	if got := results.Values(); !reflect.DeepEqual(got, []string{`{"count":3,"sum":38}`}) {
		t.Fatal(got)
	}
	bad := "amount: expected a whole number"
	if got := results.Reasons(); !reflect.DeepEqual(got, []string{bad, "not a JSON object", bad}) {
		t.Fatal(got)
	}
}

func TestTheFieldMustBeNamed(t *testing.T) {
	if got := udftest.Refusal(t, build, "null"); got != "config: field: name the field to sum up" {
		t.Fatal(got)
	}
}

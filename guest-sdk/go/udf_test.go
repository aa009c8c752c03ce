package udf_test

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"weir/udf"
	"weir/udf/udftest"
)

// commanded does what each message says.
type commanded struct{ prefix string }

type settings struct {
	Prefix string `json:"prefix"`
}

func build(s settings) (udf.Transformer, error) {
	if s.Prefix == "no" {
		return nil, errors.New("prefix: not this one")
	}
	return &commanded{s.Prefix}, nil
}

func (c *commanded) Routes() []string { return []string{"left", "right"} }

func (c *commanded) Transform(m udf.Message, out *udf.Emitter) error {
	for _, word := range strings.Fields(string(m.Value())) {
		switch word {
		case "forward":
			out.Forward()
		case "right":
			out.ForwardTo(udf.NthRoute(1))
		case "emit":
			out.Append(func(buf []byte) []byte { return append(append(buf, c.prefix...), m.Value()...) })
		case "tombstone":
			out.Emit(nil)
		case "empty":
			out.Emit([]byte{})
		case "row":
			row := m.Row()
			row.Key, row.EventTimeMs = []byte("k"), 7
			row.Attributes = append(row.Attributes, udf.Attribute{Name: "new", Value: nil})
			out.EmitRow(row)
		case "reject":
			return errors.New("told to")
		}
	}
	if m.Value() == nil {
		out.Forward()
	}
	return nil
}

func TestAForwardedBatchGoesBackAsItCame(t *testing.T) {
	messages := udftest.Values("forward", "forward")
	messages[1].Key = []byte{}
	messages[0].Attributes = []udf.Attribute{{Name: "a", Value: []byte("1")}}
	results := udftest.Transform(t, build, "null", messages...)
	if got := results.Values(); !reflect.DeepEqual(got, []string{"forward", "forward"}) {
		t.Fatal(got)
	}
	if results.Rows[0].Key != nil || results.Rows[1].Key == nil || results.Rows[0].Attributes[0].Name != "a" {
		t.Fatalf("%+v", results.Rows)
	}
}

func TestRowsKeepWhatIsNotChanged(t *testing.T) {
	message := udftest.Message{Key: []byte("key"), Value: []byte("emit row right"), EventTimeMs: 5,
		Attributes: []udf.Attribute{{Name: "a", Value: nil}, {Name: "b", Value: []byte("x")}}}
	rows := udftest.Transform(t, build, `{"prefix":"> "}`, udftest.Value("forward"), message, udftest.Value("forward")).Rows
	a, b := message.Attributes[0], message.Attributes[1]
	want := []udftest.Row{
		{Value: []byte("forward"), Origin: 0},
		{Key: []byte("key"), Value: []byte("> emit row right"), EventTimeMs: 5, Attributes: []udf.Attribute{a, b}, Origin: 1},
		{Key: []byte("k"), Value: message.Value, EventTimeMs: 7, Attributes: []udf.Attribute{a, b, {Name: "new"}}, Origin: 1},
		{Key: []byte("key"), Value: message.Value, EventTimeMs: 5, Attributes: []udf.Attribute{a, b}, Origin: 1, Route: "right"},
		{Value: []byte("forward"), Origin: 2},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Fatalf("%+v", rows)
	}
}

func TestATombstoneIsNotAnEmptyValue(t *testing.T) {
	messages := []udftest.Message{udftest.Value("tombstone"), udftest.Value("empty"), {}, udftest.Value("emit")}
	rows := udftest.Transform(t, build, "null", messages...).Rows
	absent := []bool{rows[0].Value == nil, rows[1].Value == nil, rows[2].Value == nil, rows[3].Value == nil}
	if !reflect.DeepEqual(absent, []bool{true, false, true, false}) {
		t.Fatal(absent)
	}
}

func TestARejectedMessageTakesBackWhatItEmitted(t *testing.T) {
	for _, words := range []string{"reject", "forward reject", "emit reject", "right tombstone row forward reject", "forward forward reject", "forward emit forward reject"} {
		message := udftest.Value(words)
		message.Attributes = []udf.Attribute{{Name: "a", Value: nil}}
		results := udftest.Transform(t, build, "null", udftest.Value("forward"), udftest.Value("tombstone"), udftest.Value("forward"), message, udftest.Value(""), udftest.Value("forward emit"))
		if got := results.Values(); !reflect.DeepEqual(got, []string{"forward", "", "forward", "forward emit", "forward emit"}) {
			t.Fatal(words, got)
		}
		if results.Rows[1].Value != nil || results.Rows[3].Value == nil || len(results.Rows[3].Attributes) != 0 {
			t.Fatalf("%s: %+v", words, results.Rows)
		}
		if !reflect.DeepEqual(results.Rejected, []udftest.Rejection{{Row: 3, Reason: "told to"}}) || !reflect.DeepEqual(results.Filtered, []int{4}) {
			t.Fatalf("%s: %+v", words, results)
		}
	}
}

func TestManyRowsOfAllKindsStayInOrder(t *testing.T) {
	words := []string{"forward", "tombstone", "emit", "empty", "forward emit reject", "", "row"}
	var messages []udftest.Message
	for i := range 1000 {
		messages = append(messages, udftest.Value(words[i*7919%len(words)]+strings.Repeat(" ", i%3)))
	}
	rows := udftest.Transform(t, build, "null", messages...).Rows
	last := -1
	for _, row := range rows {
		word := strings.TrimSpace(string(messages[row.Origin].Value))
		value, present := map[string]string{"tombstone": "", "empty": ""}[word]
		if !present {
			value = string(messages[row.Origin].Value)
		}
		if string(row.Value) != value || (row.Value == nil) != (word == "tombstone") || row.Origin <= last {
			t.Fatalf("%q: %+v", word, row)
		}
		last = row.Origin
	}
}

func TestAWrongConfigurationIsRefused(t *testing.T) {
	for config, want := range map[string]string{
		`{"prefix":"no"}`:   "prefix: not this one",
		`{"perfix":"x"}`:    "perfix",
		`{"prefix":1}`:      "config: ",
		`{"prefix":"x"} {}`: "something follows",
		`{"prefix":"x"`:     "config: ",
	} {
		if got := udftest.Refusal(t, build, config); !strings.Contains(got, want) {
			t.Errorf("%s: %s", config, got)
		}
	}
}

// longest keeps the length of the longest message.
type longest struct{}

func (longest) Add(n *uint64, m udf.Message) error {
	if m.Value() == nil {
		return errors.New("a tombstone has no length")
	}
	*n = max(*n, uint64(len(m.Value())))
	return nil
}
func (longest) Encode(n *uint64, buf []byte) []byte { return binary.AppendUvarint(buf, *n) }
func (longest) Merge(n *uint64, encoded []byte) error {
	other, _ := binary.Uvarint(encoded)
	*n = max(*n, other)
	return nil
}
func (longest) Emit(pane udf.Pane, n *uint64, out *udf.Emitter) error {
	if *n > 100 {
		return errors.New("too long")
	}
	out.Append(func(buf []byte) []byte { return append(append(buf, pane.Key...), byte('0'+*n)) })
	return nil
}

func TestAnAggregatorSumsUpAndRejects(t *testing.T) {
	build := func(struct{}) (udf.Aggregator[uint64], error) { return longest{}, nil }
	results := udftest.Aggregate(t, build, "null", udftest.Value("a"), udftest.Value("abc"), udftest.Message{}, udftest.Value("ab"))
	if len(results.Rows) != 1 || string(results.Rows[0].Value) != "key3" || string(results.Rows[0].Key) != "key" || results.Rows[0].EventTimeMs != udftest.WindowEndMs-1 {
		t.Fatalf("%+v", results.Rows)
	}
	if !reflect.DeepEqual(results.Rejected, []udftest.Rejection{{Row: 2, Reason: "a tombstone has no length"}}) {
		t.Fatalf("%+v", results.Rejected)
	}
	results = udftest.Aggregate(t, build, "null", udftest.Value(strings.Repeat("x", 101)))
	if len(results.Rows) != 0 || results.Reasons()[0] != "too long" {
		t.Fatalf("%+v", results)
	}
}

func TestGroupsAreKeptApart(t *testing.T) {
	aggregator := udf.Aggregates[uint64](longest{})
	in := &udf.Batch{Values: udf.Column{Bytes: []byte("abbccc"), Ends: []uint32{1, 3, 6, 6}, Present: []byte{7}}, EventTimes: make([]int64, 4)}
	made, err := aggregator.Accumulate(in, udf.Groups{Rows: []uint32{2, 3, 0, 1}, Ends: []uint32{1, 2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	if made.Fragments.Get(0)[0] != 3 || made.Fragments.Get(1) != nil || made.Fragments.Get(2)[0] != 2 || made.Rejected.Rows[0] != 3 {
		t.Fatalf("%+v", made)
	}
	if _, err := aggregator.Migrate(7, udf.Column{}); err == nil || !strings.Contains(err.Error(), "version 7") {
		t.Fatal(err)
	}
}

// Package aggregator makes a module of a [udf.Aggregator]. A program that imports it is an aggregator: it
// calls Export once, in an init function, and has an empty main.
package aggregator

import "weir/udf"

var (
	configure func(config string) ([]string, error)
	aggregate udf.BatchAggregator
)

// Export makes the module an aggregator. The function is called once for each instance with the step's
// `config`; use struct{} for one without settings. An error refuses the configuration: the pipeline does not
// start, and its author reads the text.
func Export[C, A any](build func(C) (udf.Aggregator[A], error)) {
	configure = func(config string) ([]string, error) {
		built, routes, err := udf.Configured(config, build)
		if err == nil {
			aggregate = udf.Aggregates(built)
		}
		return routes, err
	}
}

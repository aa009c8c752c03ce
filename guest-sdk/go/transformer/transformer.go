// Package transformer makes a module of a [udf.Transformer]. A program that imports it is a transformer:
// it calls one of the two functions once, in an init function, and has an empty main.
package transformer

import (
	"errors"

	"weir/udf"
)

var (
	configure func(config string) ([]string, error)
	transform udf.BatchTransformer
)

// Export makes the module a transformer. The function is called once for each instance with the step's
// `config`; use struct{} for one without settings. An error refuses the configuration: the pipeline does not
// start, and its author reads the text.
func Export[C any](build func(C) (udf.Transformer, error)) {
	ExportBatch(func(config C) (udf.BatchTransformer, error) {
		built, err := build(config)
		if err != nil {
			return nil, err
		}
		return routed{udf.Batches(built), built}, nil
	})
}

// ExportBatch makes the module a transformer of whole batches.
func ExportBatch[C any](build func(C) (udf.BatchTransformer, error)) {
	transform = unconfigured{}
	configure = func(config string) ([]string, error) {
		built, routes, err := udf.Configured(config, build)
		if err == nil {
			transform = built
		}
		return routes, err
	}
}

// routed has the routes of the transformer that the batch transformer was made of.
type routed struct {
	udf.BatchTransformer
	inner any
}

func (r routed) Routes() []string {
	if router, ok := r.inner.(udf.Router); ok {
		return router.Routes()
	}
	return nil
}

type unconfigured struct{}

func (unconfigured) TransformBatch(*udf.Batch) (udf.Output, error) {
	return udf.Output{}, errors.New("transform was called before configure")
}

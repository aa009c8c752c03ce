module orders

go 1.24

require weir/udf v1.1.0

replace weir/udf => ../../../guest-sdk/go

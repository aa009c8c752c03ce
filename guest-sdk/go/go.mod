module weir/udf

go 1.24

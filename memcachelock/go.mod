module github.com/dlock-go/dlock/memcachelock

go 1.26.0

require github.com/dlock-go/dlock v0.0.0

replace github.com/dlock-go/dlock => ../
